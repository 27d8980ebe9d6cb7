from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer

from headrace.cli import app
from headrace.settings import PARTS, Settings, SettingsError, flag_of, load
from headrace.sizes import format_size, parse_size

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (*Settings.model_fields, "config"):
        monkeypatch.delenv(f"HEADRACE_{name.upper()}", raising=False)
    monkeypatch.chdir(tmp_path)


def test_defaults() -> None:
    settings = load()
    assert (settings.host, settings.port, settings.domains) == ("127.0.0.1", 8080, 1)
    assert settings.memory_limit == 512_000_000
    assert settings.data == Path("headrace-data")


def test_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("headrace.toml").write_text('port = 1\nhost = "file"\nmemory_limit = "1GiB"\ndomains = 3\n')
    monkeypatch.setenv("HEADRACE_PORT", "2")
    monkeypatch.setenv("HEADRACE_HOST", "environment")
    settings = load(port=3, host=None)
    assert (settings.port, settings.host, settings.memory_limit, settings.domains) == (3, "environment", 2**30, 3)


def test_where_the_file_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for port, name in enumerate(("headrace.toml", "named.toml", "given.toml"), 1):
        Path(name).write_text(f"port = {port}")
    assert load().port == 1
    monkeypatch.setenv("HEADRACE_CONFIG", "named.toml")
    assert load().port == 2
    assert load(Path("given.toml")).port == 3


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("prot = 1", 'did you mean "port"'),
        ("zzz = 1", "known are data, host"),
        ("port =", "is not TOML"),
        ("port = 99999", 'setting "port" from "headrace.toml"'),
        ('memory_limit = "lots"', '"lots" is not a size; write it like 512MB'),
        ("memory_limit = 1.5", "is not a size"),
    ],
)
def test_wrong_files(text: str, says: str) -> None:
    Path("headrace.toml").write_text(text)
    with pytest.raises(SettingsError, match=says):
        load()


def test_wrong_settings_say_where_they_come_from(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match='setting "domains" from the command line'):
        load(domains=0)
    with pytest.raises(SettingsError, match="cannot read"):
        load(Path("absent.toml"))
    monkeypatch.setenv("HEADRACE_READ_TIMEOUT", "soon")
    with pytest.raises(SettingsError, match="HEADRACE_READ_TIMEOUT"):
        load()


@pytest.mark.parametrize(
    ("text", "size"),
    [("512MB", 512_000_000), ("1GiB", 2**30), ("1.5 gb", 1_500_000_000), ("7", 7), ("10B", 10), ("2KiB", 2048), (9, 9)],
)
def test_sizes(text: str | int, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MB", "-1MB", "1XB", "1e3", "0", "0.1B", "1 M B", 0, -5])
def test_no_sizes(text: str | int) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text)


def test_formatted_sizes() -> None:
    assert [format_size(each) for each in (0, 999, 1500, 512_000_000, 2e15)] == [
        "0 B",
        "999 B",
        "1.5 kB",
        "512 MB",
        "2000 TB",
    ]


def options(command: str) -> set[str]:
    """Flags of a command, by the name that one types."""
    found: Any = typer.main.get_command(app)
    for word in command.split():
        found = found.commands[word]
    return {flag for parameter in found.params for flag in parameter.opts}


def test_each_setting_has_the_flags_that_are_documented() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \| `(--[\w-]+)[^`]*`((?: of [^|]*)?) \| `HEADRACE_(\w+)` \|", text, re.M)
    without = {"key", "tls_ca", "tls_client_cert", "tls_client_key", "zookeeper_auth"}
    assert {name for name, *_ in rows} == set(Settings.model_fields) - without
    for name, flag, where, variable in rows:
        assert variable == name.upper()
        for command in re.findall(r"`([\w ]+)`", where):
            assert flag in options(command), f"headrace {command} has no {flag}"


def test_no_flag_takes_a_secret() -> None:
    """Whoever is on the machine sees command lines."""
    seen = set[str]()

    def walk(command: Any) -> None:
        for each in getattr(command, "commands", {}).values():
            walk(each)
        seen.update(flag for parameter in getattr(command, "params", ()) for flag in parameter.opts)

    walk(typer.main.get_command(app))
    named = {flag for flag in seen if re.search("key|secret|pass|auth|credential|token", flag)}
    assert named == {"--tls-key", "--secret-file", "--jwt-keys", "--token"}, "--token is a position that was answered"


def test_flags_have_the_types_of_their_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Settings] = []
    monkeypatch.setattr("headrace.serving.server.serve", lambda settings, started: given.append(settings))
    words = "serve --data d --port 7 --memory-limit 1GiB --read-timeout 0.5 --state full --shards 3"
    app([*words.split(), "--spark-conf", "a.b=1", "--spark-conf", "c.d=2"], standalone_mode=False)
    (settings,) = given
    assert (settings.data, settings.port, settings.memory_limit) == (Path("d"), 7, 2**30)
    assert (settings.read_timeout, settings.state, settings.shards) == (0.5, "full", 3)
    assert settings.spark_conf == ["a.b=1", "c.d=2"]


def test_a_setting_is_a_flag_of_the_commands_that_it_names() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for name in Settings.model_fields:
        for command in ("serve", "up", *PARTS):
            is_flag = any(option.name == name for option in commands[command].params)
            assert is_flag == (command in flag_of(name).commands), (command, name)
