"""Dumps by ``mariadb-dump``: of Headrace into Headrace and MariaDB, and of MariaDB into Headrace."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from loadgen.bench import servers
from tests.mysql.conftest import MysqlServer
from tests.mysql.test_mysql_statements import rows

DUMP, LOAD = shutil.which("mariadb-dump"), shutil.which("mariadb")
pytestmark = pytest.mark.skipif(DUMP is None or LOAD is None, reason="mariadb-dump is not installed")

MADE = (
    "CREATE TABLE authors (id INT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(40) NOT NULL COMMENT 'o\\'ne\\n', "
    "at DATETIME(6), raw BLOB, ratio DOUBLE, price DECIMAL(8,2), kind ENUM('a', 'b'), day DATE DEFAULT '2026-01-31', "
    "UNIQUE KEY by_name (name)) COMMENT 'who\\'s'",
    "CREATE TABLE kids (id INT PRIMARY KEY, parent INT, note TEXT, KEY p (parent), "
    "CONSTRAINT k FOREIGN KEY (parent) REFERENCES authors (id) ON DELETE CASCADE)",
    "INSERT INTO authors (id, name, at, raw, ratio, price, kind) VALUES "
    "(7, 'o\\'ne; \\n x -- \\\\', '2026-01-31 08:00:00.5', x'00ff275c', 0.1, 1.50, 'b'), "
    "(8, 'two', NULL, NULL, NULL, NULL, NULL)",
    "INSERT INTO kids VALUES (1, 7, 'Wäter'), (2, NULL, NULL)",
    "CREATE VIEW counts AS SELECT parent, COUNT(*) AS n FROM kids GROUP BY parent",
)
ASKED = (
    "SELECT * FROM authors ORDER BY id",
    "SELECT * FROM kids ORDER BY id",
    "SELECT * FROM counts ORDER BY n, parent",
    "SELECT COLUMN_COMMENT FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'authors' "
    "ORDER BY ORDINAL_POSITION",
    "SELECT TABLE_COMMENT FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'authors'",
)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with servers.mariadb(tmp_path_factory.mktemp("mariadb"), durable=False) as url:
        port = int(url.rstrip("/").rsplit(":", 1)[1])
        with _connected(port) as db:  # Views of dumps are root's, wherever that comes from.
            rows(db, "CREATE USER IF NOT EXISTS root@'%'")
            rows(db, "GRANT ALL ON *.* TO root@'%' WITH GRANT OPTION")
        yield port


def _connected(port: int) -> Any:
    return pymysql.connect(host="127.0.0.1", port=port, user="root", autocommit=True)


def _made(port: int, name: str) -> None:
    with _connected(port) as db:
        for sql in (f"CREATE DATABASE {name} COLLATE utf8mb4_bin", f"USE {name}", *MADE):
            rows(db, sql)


def _moved(source: int, target: int, name: str, path: Path, *options: str) -> None:
    """A dump of a database, loaded into one of the same name and ``_copy``."""
    assert DUMP is not None
    assert LOAD is not None
    where = ("--no-defaults", "--host=127.0.0.1", "--user=root", "--skip-ssl")
    with path.open("wb") as out:
        command = [DUMP, *where, f"--port={source}", *options, name]
        subprocess.run(command, stdout=out, stderr=subprocess.PIPE, check=True, timeout=120)
    with _connected(target) as db:
        rows(db, f"CREATE DATABASE {name}_copy COLLATE utf8mb4_bin")
    with path.open("rb") as dumped:
        command = [LOAD, *where, f"--port={target}", "--force", f"{name}_copy"]
        done = subprocess.run(command, stdin=dumped, capture_output=True, check=False, timeout=120)
    # Before a view there stands one of constants in its place, which Headrace has none of.
    errors = [line for line in done.stderr.decode().splitlines() if line.startswith("ERROR")]
    assert [line for line in errors if "SELECT without FROM" not in line] == [], path.read_text(errors="replace")


def _answers(port: int, name: str) -> list[Any]:
    with _connected(port) as db:
        rows(db, f"USE {name}")
        return [rows(db, sql) for sql in ASKED]


@pytest.mark.parametrize("way", ["ours to ours", "ours to theirs", "theirs to ours"])
def test_a_dump_is_loaded(open_server: MysqlServer, theirs: int, way: str, tmp_path: Path) -> None:
    source, target = ({"ours": open_server.port, "theirs": theirs}[each] for each in way.split(" to "))
    name = way.replace(" ", "_")
    _made(source, name)
    _moved(source, target, name, tmp_path / "dump.sql")
    assert _answers(target, f"{name}_copy") == _answers(source, name)
    with _connected(target) as db:
        rows(db, f"USE {name}_copy")
        assert rows(db, "SELECT COUNT(*) FROM authors") == ((2,),)
        with pytest.raises(pymysql.MySQLError):
            rows(db, "INSERT INTO kids VALUES (3, 99, 'nobody')")
        rows(db, "INSERT INTO authors (name) VALUES ('three')")
        assert rows(db, "SELECT id > 8 FROM authors WHERE name = 'three'") == ((1,),)
    for port, made in ((source, name), (target, f"{name}_copy")):
        with _connected(port) as db:
            rows(db, f"DROP DATABASE {made}")


def test_the_ten_minutes_from_mysql_run(theirs: int, open_server: MysqlServer, db: Any) -> None:
    """docs/from-mysql.md, at the ports of these servers."""
    if shutil.which("mariadb-dump") is None or shutil.which("mysql") is None:
        pytest.skip("there is no mariadb-dump or mysql on PATH")
    with _connected(theirs) as source:
        for sql in (
            "CREATE DATABASE shop",
            "CREATE TABLE shop.stories (id INT AUTO_INCREMENT PRIMARY KEY, author INT NOT NULL, title VARCHAR(80))",
            "INSERT INTO shop.stories (author, title) VALUES (1, 'Water power'), (2, 'Tail water'), (1, 'Weirs')",
        ):
            rows(source, sql)
    page = (Path(__file__).parents[2] / "docs" / "from-mysql.md").read_text("utf-8")
    script = "set -e -o pipefail\n" + "".join(re.findall(r"```sh\n(.*?)```", page, re.DOTALL))
    for program in ("mysql", "mariadb-dump"):
        script = script.replace(f"{program} -h", f"{program} --no-defaults --skip-ssl -h")
    script = script.replace("3306", str(theirs)).replace("3307", str(open_server.port))
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "id\ttitle\n1\tWater power\n3\tWeirs\n" in done.stdout
    assert 'answered by the view "shop.byauthor"' in done.stdout
    rows(db, "DROP DATABASE shop")
