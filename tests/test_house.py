"""The house polices itself: what the documentation promises about the code is true, and the tail does not grow.

Sizes are a ratchet. A file or function that was over the limit when this test was written is named with its size; it
may shrink, never grow, and its line goes when it is within the limit. Nothing is added to the lists.
"""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections import Counter
from collections.abc import Iterator, Set
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import LONGEST, longest_first
from worker.dataflow.inbox import BATCH_INPUTS
from worker.dataflow.pacing import SLICE_SECONDS

ROOT = Path(__file__).parents[1]
ROOMS = ("headrace", "api", "controller", "worker", "migrations", "domains", "zookeeper", "lobsters", "loadgen")
CLIENT = ROOT / "clients" / "python" / "headrace_client"
FILES = sorted(path for room in (*(ROOT / each for each in ROOMS), CLIENT) for path in room.rglob("*.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))

FILE_LINES = 500
"""Past this there are two concepts in a file. The median is to stay far below: aim for 100 to 250."""
FUNCTION_LINES = 70
"""A function that is longer than a screen does three things."""

LONG_FILES: dict[str, int] = {}
LONG_FUNCTIONS: dict[str, int] = {}

DOORS = {
    "sqlglot": ("migrations/parse/syntax.py",),
    "rocksdict": ("worker/rocks/database.py",),
    "lmdb": ("worker/reader_map/environment.py",),
    "msgpack": ("worker/wire/codec.py",),
    "jwt": ("controller/access/key_set.py", "controller/access/web_tokens.py"),
    "pyarrow": ("worker/archive/", "migrations/backfill/spark/", "headrace/loading/"),
    "fastapi": ("api/",),
    "starlette": ("api/",),
    "kazoo": ("zookeeper/kazoo_authority.py",),
    "re2": ("domains/language/functions/matching.py",),
    "pyspark": ("migrations/backfill/spark/",),
    "matplotlib": ("loadgen/drills/timeline.py", "loadgen/report/curves.py"),
    "psutil": ("controller/status.py", "loadgen/bench/", "loadgen/pace/processes.py"),
    "prometheus_client": ("api/metrics.py",),
    "httpx": ("headrace/", "loadgen/bench/", "loadgen/drills/", "clients/python/"),
    "orjson": ("api/", "controller/lookups/view_dump.py", "domains/language/json_rows.py", "headrace/", "loadgen/"),
    "typer": ("headrace/cli/", "loadgen/cli.py"),
    "rich": ("headrace/", "loadgen/bench/", "loadgen/drills/", "loadgen/telling.py"),
    "pydantic": ("api/", "headrace/settings.py"),
    "pydantic_settings": ("headrace/settings.py",),
    "uvicorn": ("headrace/serving/server.py", "api/doors/", "loadgen/bench/"),
    "websockets": ("api/doors/web_socket.py", "loadgen/bench/"),
    "httptools": ("api/doors/wire_http.py",),
    "duckdb": ("loadgen/bench/",),
    "hdrh": ("loadgen/pace/point.py",),
    "pymysql": ("headrace/upstream/mariadb/",),
    "pymysqlreplication": ("headrace/upstream/mariadb/stream.py",),
    "psycopg2": ("headrace/upstream/postgres/",),
    "asyncmy": ("loadgen/peers/mysql.py",),
    "asyncpg": ("loadgen/peers/postgres.py",),
    "redis": ("loadgen/peers/cached.py",),
}
"""Where each dependency enters. The benchmark compares with hand-written code, so it may know what that needs."""
BENCH_KNOWS = ("rocksdict", "lmdb")

PLACES = re.compile(r"/(?:home|root|work|Users|opt|mnt)/[\w.]|(?:extra-)?index-url|find-links|\.internal\b", re.I)
"""Paths of a machine and addresses of package registries: nothing of where it was written belongs into the project."""


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), str(path))


def tracked() -> list[Path]:
    """The project's text files: what git knows or would add."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [path for name in listed.stdout.splitlines() if (path := ROOT / name).is_file()]


# --- sizes --------------------------------------------------------------------------------------------------------


def too_long(sizes: dict[str, int], limit: int, allowed: dict[str, int]) -> list[str]:
    grown = [
        f"{name}: {size} lines, {allowed.get(name, limit)} at most"
        for name, size in sizes.items()
        if size > allowed.get(name, limit)
    ]
    done = [f"{name} is within the limit: take it off the list" for name in allowed if sizes.get(name, 0) <= limit]
    return grown + done


def test_no_file_is_too_long() -> None:
    sizes = {name_of(path): len(path.read_text("utf-8").splitlines()) for path in FILES}
    assert not too_long(sizes, FILE_LINES, LONG_FILES)


def test_no_function_is_too_long() -> None:
    sizes = {
        f"{name_of(path)} {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path in FILES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert not too_long(sizes, FUNCTION_LINES, LONG_FUNCTIONS)


HOUSE = {
    "headrace": (72, 11705),
    "api": (56, 10531),
    "controller": (105, 21158),
    "worker": (90, 18670),
    "migrations": (167, 33_400),
    "domains": (121, 23_750),
    "zookeeper": (13, 3200),
    "lobsters": (5, 850),
    "loadgen": (82, 14_650),
    "clients": (10, 2569),
}
"""Files and lines of each room, a ratchet: lower it with what was folded or deleted; whoever raises it says for what in
the commit."""
FOLDER_FILES = 15


@pytest.mark.parametrize("room", HOUSE)
def test_the_house_does_not_grow(room: str) -> None:
    files = [path for path in FILES if name_of(path).startswith(f"{room}/")]
    lines = sum(len(path.read_text("utf-8").splitlines()) for path in files)
    message = f"{room}: {len(files)} files of {lines} lines: fold a small file, or delete what is dead"
    most_files, most_lines = HOUSE[room]
    assert len(files) <= most_files, message
    assert lines <= most_lines, message


def test_no_folder_is_too_full() -> None:
    counted = Counter(name_of(path.parent) for path in FILES)
    assert not {name: count for name, count in counted.items() if count > FOLDER_FILES}


SMALL_LINES, FOLDED_LINES = 80, 400


def test_a_small_file_is_folded_into_its_one_importer() -> None:
    """Where that is in the same folder, does not only list what is there, and is not too long with it."""
    paths = {module_of(path): path for path in FILES}
    importers: dict[str, set[str]] = {name: set() for name in paths}
    for importer, path in paths.items():
        for name in modules_imported(path, paths.keys()) - {importer}:
            importers[name].add(importer)
    lines = {name: len(path.read_text("utf-8").splitlines()) for name, path in paths.items()}
    fragments = [
        f"{name} into {one}"
        for name, some in importers.items()
        if len(some) == 1 and lines[name] < SMALL_LINES and paths[name].name != "__init__.py"
        for one in some
        if paths[one].parent == paths[name].parent and paths[one].name != "__init__.py"
        if lines[name] + lines[one] <= FOLDED_LINES
    ]
    assert not fragments


# --- prose --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [path for path in FILES if path.name == "__init__.py"], ids=name_of)
def test_every_room_has_an_essay(path: Path) -> None:
    essay = ast.get_docstring(tree_of(path)) or ""
    assert len(essay) > 60, "say in the package's docstring what the room is for"
    assert "to be written" not in essay.lower()
    if path.parent.parent == ROOT:
        assert "::" in essay, "a room of the house shows in a small drawing what flows through it"


def test_every_module_says_what_it_is() -> None:
    assert not [name_of(path) for path in FILES if not ast.get_docstring(tree_of(path))]


def test_no_room_for_odds_and_ends() -> None:
    odd = {"utils", "util", "common", "helpers", "helper", "core", "misc"}
    assert not [name_of(path) for path in FILES if odd & {path.stem, *path.relative_to(ROOT).parts}]


def test_each_class_has_a_name_of_its_own() -> None:
    """One word, one meaning. The client is a distribution of its own, with the names that its users know."""
    classes = Counter(
        node.name
        for path in FILES
        if not path.is_relative_to(CLIENT)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in classes.items() if count > 1] == []


def test_no_two_test_modules_share_a_name() -> None:
    """Without packages around them pytest knows them by their names alone, and refuses the second."""
    modules = [path for path in (ROOT / "tests").rglob("*.py") if not (path.parent / "__init__.py").exists()]
    names = Counter(path.name for path in modules if path.name != "conftest.py")
    assert [name for name, count in names.items() if count > 1] == []


def test_nothing_is_left_undone() -> None:
    marks = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b")
    assert not [name_of(path) for path in FILES if marks.search(path.read_text("utf-8"))]


def test_nothing_mentions_where_it_was_written() -> None:
    found = []
    for path in tracked():
        if path == Path(__file__) or path.is_relative_to(ROOT / "api" / "swagger"):  # Others' code, as it comes.
            continue
        for number, line in enumerate(path.read_text("utf-8", errors="ignore").splitlines(), 1):
            if PLACES.search(line):
                found.append(f"{name_of(path)}:{number}: {line.strip()}")
    assert not found


# --- imports ------------------------------------------------------------------------------------------------------


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]


def test_each_dependency_has_its_door() -> None:
    strays = []
    for path in FILES:
        name = name_of(path)
        for package in imported(path):
            doors = DOORS.get(package)
            bench = name.startswith("loadgen/bench/") and package in BENCH_KNOWS
            if doors is not None and not name.startswith(doors) and not bench:
                strays.append(f"{name} imports {package}")
    assert not strays


def test_all_dependencies_are_explained() -> None:
    explained = (ROOT / "docs" / "dependencies.md").read_text("utf-8")
    project = PROJECT["project"]
    measuring = tomllib.loads((ROOT / "loadgen" / "pyproject.toml").read_text("utf-8"))["project"]
    extras = [
        requirement
        for each in (project, measuring)
        for extra in each["optional-dependencies"].values()
        for requirement in extra
    ]
    for requirement in (*project["dependencies"], *measuring["dependencies"], *extras):
        package = re.split(r"[=<>\[]", requirement)[0]
        ours = package.startswith("headrace")
        assert ours or f"`{package}`" in explained, f"docs/dependencies.md: why {package}?"


def test_the_floors_and_strict_types_are_kept() -> None:
    """What the configuration forbids may grow, never shrink."""
    contracts = {contract["name"]: contract for contract in PROJECT["tool"]["importlinter"]["contracts"]}
    assert len(contracts) >= 10
    floors = ["headrace", "api", "controller", "worker | migrations", "domains | zookeeper", "headrace_client"]
    assert contracts["Imports only go down"]["layers"] == floors
    assert not [name for name, contract in contracts.items() if "ignore_imports" in contract]
    assert PROJECT["tool"]["mypy"]["strict"]
    assert set(PROJECT["tool"]["mypy"]["packages"]) == {*ROOMS, "headrace_client"}
    assert {"E", "F", "I", "B", "UP", "SIM", "RUF", "C4", "PIE", "RET", "PT", "PERF", "TID"} <= set(
        PROJECT["tool"]["ruff"]["lint"]["select"]
    )


def test_all_of_the_planner_is_held_to_be_pure() -> None:
    """The contracts name its modules one by one, since Spark's room, which is no part of it, cannot be taken out."""
    planner = {".".join(path.relative_to(ROOT).with_suffix("").parts) for path in (ROOT / "migrations").rglob("*.py")}
    planner = {name for name in planner if not name.endswith("__init__") and ".spark." not in name}
    for words in ("are pure", "Spark in migrations.backfill.spark"):
        (sources,) = (c["source_modules"] for c in PROJECT["tool"]["importlinter"]["contracts"] if words in c["name"])
        assert not [name for name in planner if not any(f"{name}.".startswith(f"{source}.") for source in sources)]


def test_all_that_puts_load_on_headrace_is_held_to_know_it_by_http_only() -> None:
    """All of the measuring tools, but for what starts servers and reaches into them, and the commands."""
    (sources,) = (
        c["source_modules"] for c in PROJECT["tool"]["importlinter"]["contracts"] if "by HTTP only" in c["name"]
    )
    reaching = ("loadgen.bench.", "loadgen.drills.", "loadgen.cli.", "loadgen.telling.")
    modules = [module_of(path) for path in FILES if path.is_relative_to(ROOT / "loadgen")]
    held = [name for name in modules if any(f"{name}.".startswith(f"{source}.") for source in sources)]
    assert [name for name in modules if name not in held and not f"{name}.".startswith(reaching)] == ["loadgen"]
    assert "loadgen.drills.load.load" in held


def module_of(path: Path) -> str:
    root = CLIENT.parent if CLIENT in path.parents else ROOT
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def modules_imported(path: Path, modules: Set[str]) -> set[str]:
    """By all its import statements: within functions and under ``TYPE_CHECKING`` too."""
    named: set[str] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            named |= inner if inner <= modules else {node.module, *(inner & modules)}
        elif isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names}
    return named & modules


def loaded_with(path: Path) -> Iterator[tuple[str, set[str]]]:
    """What the statements at the top of a module import: the module, and the names that are taken from it."""
    for node in tree_of(path).body:
        if isinstance(node, ast.Import):
            yield from ((alias.name, set()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, {alias.name for alias in node.names}


@pytest.mark.parametrize(
    "process",
    [
        "headrace.serving.server",
        "headrace.cluster.api_process",
        "headrace.cluster.controller_process",
        "headrace.cluster.supervisor",
        "headrace.cli.commands",
        "worker.service.process",
    ],
)
def test_a_process_without_an_archive_does_not_load_arrow(process: str) -> None:
    """It takes a tenth of a second of each start, and 60 MB."""
    names = {module_of(path): path for path in FILES}
    waiting, why = [process], {process: ""}
    while waiting:
        module = waiting.pop()
        for imported_module, taken in loaded_with(names[module]):
            assert not imported_module.startswith(("pyarrow", "pyspark", "duckdb")), f"{module} ({why[module]})"
            parts = imported_module.split(".")
            packages = {".".join(parts[:size]) for size in range(1, len(parts) + 1)}
            for each in (packages | {f"{imported_module}.{name}" for name in taken}) & names.keys() - why.keys():
                why[each] = f"{module} ← {why[module]}"
                waiting.append(each)


def test_no_modules_import_one_another_in_a_circle() -> None:
    """Not for types either: what two modules share has a third one, or a protocol."""
    names = {module_of(path): path for path in FILES}
    graph = {name: modules_imported(path, names.keys()) - {name} for name, path in names.items()}
    while free := {name for name, imported in graph.items() if not imported}:
        graph = {name: imported - free for name, imported in graph.items() if name not in free}
    assert not graph, f"in a circle, or above one: {sorted(graph)}"


# --- documents ----------------------------------------------------------------------------------------------------

DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))
    for path in DOCUMENTS:
        named = set(re.findall(r"(?:`|^)make ([a-z-]+)", path.read_text("utf-8"), re.M))
        assert named <= targets, (name_of(path), named - targets)


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_and_files_that_are_named_exist(path: Path) -> None:
    text = path.read_text("utf-8")
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", text):
        assert (path.parent / target).exists(), target
    for name in re.findall(r"`((?:docs|tests|" + "|".join(ROOMS) + r")/[\w/.]*)`", text):
        assert (ROOT / name).exists() or name == "migrations/backfill/", name


def test_files_that_an_essay_names_exist() -> None:
    """An essay names a file by the end of its path, and a move leaves such names behind."""
    there = [path.relative_to(ROOT).parts for path in [*FILES, *(ROOT / "tests").rglob("*.py")]]
    ends = {"/".join(parts[first:]) for parts in there for first in range(len(parts))}
    named = re.compile(r"`([\w/]+\.py)`")
    for path in [*FILES, *DOCUMENTS]:
        missing = set(named.findall(path.read_text("utf-8"))) - ends
        assert not missing, f"{name_of(path)} names {missing}"


def test_every_document_is_reached_from_the_readme() -> None:
    readme = DOCUMENTS[0].read_text("utf-8")
    assert not [name_of(path) for path in DOCUMENTS[2:] if f"({name_of(path)})" not in readme]


def test_the_false_friends_are_named() -> None:
    readme = DOCUMENTS[0].read_text("utf-8")
    for word in ("view", "migration", "domain", "worker", "batch", "zookeeper/"):
        assert re.search(rf"^\* (?:A )?\*\*{word}\*\*", readme, re.M), word


def test_figures_of_the_architecture() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    assert f"at most {BATCH_INPUTS} inputs" in text
    assert f"in slices of some {SLICE_SECONDS * 1000:g} ms" in text


def test_the_longest_tests_begin_first() -> None:
    missing = [name for name in LONGEST if not (ROOT / name.partition("::")[0]).exists()]
    assert not missing, "tests/conftest.py deals them to processes by these names"
    items = [SimpleNamespace(nodeid=name) for name in ("a", *LONGEST, "b", "c", "d")]
    dealt = longest_first(items, 2)  # type: ignore[arg-type]
    assert sorted(map(id, dealt)) == sorted(map(id, items))
    stretch = len(items) // 2
    assert [item.nodeid for item in dealt[:stretch]] == [*LONGEST[::2], "a", "b"][:stretch]
    assert dealt[stretch].nodeid == LONGEST[1]


def test_the_console_is_as_large_as_it_is_said_to_be() -> None:
    said = (ROOT / "docs" / "dependencies.md").read_text("utf-8")
    stated = re.search(r"some ([\d,]+) lines of JavaScript modules, as a browser reads\nthem, (\d+) kB", said)
    assert stated is not None
    lines, size = stated.groups()
    files = [path for path in (ROOT / "api" / "console").iterdir() if not path.is_symlink()]
    modules = [path.read_text("utf-8") for path in files if path.suffix == ".js"]
    assert abs(sum(len(each.splitlines()) for each in modules) - int(lines.replace(",", ""))) <= 100
    assert abs(sum(path.stat().st_size for path in files) / 1000 - int(size)) <= 5
