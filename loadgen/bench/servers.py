"""Servers to compare with, each on loopback, in a directory of its own, and ended with the ``with`` block.

Settings are given on the command line and nothing is read from the system's configuration, so that a figure's settings
are all in this file. *Durable* is what Headrace does: an answer to a write is given when it is on disk. *Relaxed* is
what the Noria evaluation gave MySQL: a thread pool, and no flush when a transaction ends.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from urllib.request import urlopen

from loadgen.peers.store import LoadRunError

UP_WITHIN = 60.0
DOWN_WITHIN = 60.0
BUFFERS = "1G"
"""Buffers of MariaDB and PostgreSQL: several times the data at scale 1, so that no page waits for a disk."""
CONNECTIONS = 512
POSTGRES_PATHS = ("/usr/lib/postgresql/*/bin/postgres", "/usr/local/pgsql/bin/postgres")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def missing(program: str) -> str | None:
    """Why the server cannot be started here, or None if it can: ``mariadb``, ``postgres`` or ``redis``."""
    found: Callable[[], object] = {"mariadb": mariadbd, "postgres": postgres_bin, "redis": redis_server}[program]
    return None if found() else f"{program} is not installed (apt-get install {PACKAGES[program]})"


PACKAGES = {"mariadb": "mariadb-server", "postgres": "postgresql", "redis": "redis-server"}


def mariadbd() -> str | None:
    return shutil.which("mariadbd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


def redis_server() -> str | None:
    return shutil.which("redis-server")


def postgres_bin() -> Path | None:
    for pattern in POSTGRES_PATHS:
        found = sorted(Path("/").glob(pattern.lstrip("/")))
        if found:
            return found[-1].parent
    return None


@contextmanager
def mariadb(directory: Path, *, durable: bool = True, port: int = 0) -> Iterator[str]:
    """The URL of a MariaDB without a database yet: append the name of one."""
    program, port, data = mariadbd(), port or free_port(), directory / "mariadb"
    if program is None:
        raise LoadRunError(missing("mariadb") or "", hint="or give the URL of one that runs, to headrace loadgen")
    user = [f"--user={_name_of_user()}"] if os.geteuid() == 0 else []
    if not data.exists():
        install = shutil.which("mariadb-install-db", path=f"{os.environ.get('PATH', '')}:/usr/bin")
        flags = ("--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db", f"--datadir={data}")
        _run([install or "mariadb-install-db", *flags, *user])
    settings = [
        f"--innodb-buffer-pool-size={BUFFERS}",
        "--innodb-log-file-size=512M",
        f"--max-connections={CONNECTIONS}",
        "--skip-log-bin",
        "--skip-name-resolve",
        "--default-time-zone=+00:00",
        "--character-set-server=utf8mb4",
        "--collation-server=utf8mb4_bin",
        f"--innodb-flush-log-at-trx-commit={1 if durable else 0}",
        f"--thread-handling={'one-thread-per-connection' if durable else 'pool-of-threads'}",
    ]
    where = [f"--datadir={data}", f"--socket={data}/s", f"--pid-file={data}/pid", f"--port={port}"]
    command = [program, "--no-defaults", *user, *where, "--bind-address=127.0.0.1", *settings]
    with _running(command, port, directory / "mariadb.log"):
        yield f"mysql://root@127.0.0.1:{port}/"


@contextmanager
def postgres(directory: Path, *, durable: bool = True, port: int = 0) -> Iterator[str]:
    """The URL of a PostgreSQL without a database of ours yet: append the name of one."""
    programs, port, data = postgres_bin(), port or free_port(), directory / "postgres"
    if programs is None:
        raise LoadRunError(missing("postgres") or "", hint="or give the URL of one that runs, to headrace loadgen")
    prefix: list[str] = []
    if os.geteuid() == 0:  # It does not run as root.
        prefix = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        directory.chmod(0o755)
        if not data.exists():
            data.mkdir()
            shutil.chown(data, "postgres", "postgres")
    if not (data / "PG_VERSION").exists():
        _run([*prefix, str(programs / "initdb"), "-D", str(data), "--auth=trust", "-U", "postgres", "-E", "UTF8"])
    settings = {
        "listen_addresses": "127.0.0.1",
        "port": str(port),
        "unix_socket_directories": "",
        "shared_buffers": f"{BUFFERS}B",
        "max_connections": str(CONNECTIONS),
        "timezone": "UTC",
        "max_wal_size": "4GB",
        "synchronous_commit": "on" if durable else "off",
    }
    flags = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    with _running([*prefix, str(programs / "postgres"), "-D", str(data), *flags], port, directory / "postgres.log"):
        yield f"postgresql://postgres@127.0.0.1:{port}/"


@contextmanager
def redis(directory: Path, *, port: int = 0) -> Iterator[tuple[str, int]]:
    """Host and port of a Redis that keeps nothing on disk: it is a cache."""
    program, port = redis_server(), port or free_port()
    if program is None:
        raise LoadRunError(missing("redis") or "")
    flags = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(directory)]
    with _running([program, *flags], port, directory / "redis.log"):
        yield "127.0.0.1", port


@contextmanager
def headrace(directory: Path, *, port: int = 0, more: Sequence[str] = ()) -> Iterator[str]:
    """The URL of an embedded Headrace: durable, as it always is."""
    port = port or free_port()
    data = ["--data", str(directory / "headrace"), "--port", str(port), "--log-level", "warning"]
    with _running([sys.executable, "-m", "headrace", "serve", *data, *more], port, directory / "headrace.log"):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def headrace_cluster(directory: Path, *, port: int = 0, more: Sequence[str] = ()) -> Iterator[str]:
    """The URL of ``headrace up`` as small as it gets: an api process and a worker of one shard, and what keeps them.

    That is a controller, ZooKeeper and the supervisor: their time and memory count as the server's.
    """
    port = port or free_port()
    data = ["--data", str(directory / "cluster"), "--port", str(port), "--log-level", "warning"]
    parts = ["--workers", "1", "--shards", "1", "--controllers", "1", "--apis", "1", "--zookeepers", "1"]
    # A machine that the load fills holds a process up for seconds; there is nobody to take a lost one's place here.
    patience = ["--dead-after", "10", "--session-timeout", "10"]
    command = [sys.executable, "-m", "headrace", "up", *data, *parts, *patience, *more]
    with _running(command, port, directory / "cluster.log", serves=is_well):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def _running(
    command: Sequence[str], port: int, log: Path, serves: Callable[[int], bool] | None = None
) -> Iterator[None]:
    """The process, from when it takes connections, or from when ``serves`` says of the port that it does."""
    serves = serves or _takes
    # A package that is installed has its code compiled, and so has a clone from the second start on.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, env=environment)
    try:
        until = time.monotonic() + UP_WITHIN
        while not serves(port):
            if process.poll() is not None or time.monotonic() > until:
                raise LoadRunError(f"{Path(command[0]).name} did not start", hint=_tail(log))
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        try:
            process.wait(DOWN_WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _takes(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


def is_well(port: int) -> bool:
    """A cluster takes connections before it serves."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1) as answer:
            return bool(answer.status == HTTPStatus.OK)
    except OSError:
        return False


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise LoadRunError(f"{Path(command[0]).name} failed", hint=(done.stderr or done.stdout)[-500:])


def _tail(log: Path) -> str:
    return log.read_text("utf-8", errors="replace")[-500:]


def _name_of_user() -> str:
    return pwd.getpwuid(os.geteuid()).pw_name


# python -m loadgen.bench.servers: install what is missing, from Debian's packages.

INSTALLED_WITHIN = 1800


def install() -> int:
    """Exit code."""
    wanted = [package for program, package in PACKAGES.items() if missing(program)]
    if not wanted:
        print("MariaDB, PostgreSQL and Redis are there")
        return 0
    by_hand = f"apt-get install --no-install-recommends {' '.join(wanted)}"
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        print(f"missing: {', '.join(wanted)}; as root, on Debian: {by_hand}")
        return 1
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", *by_hand.split()[2:]]):
        done = subprocess.run(command, env=quiet, timeout=INSTALLED_WITHIN, check=False)
        if done.returncode:
            print(f"failed: {' '.join(command)}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(install())
