"""The Java for the bundled ZooKeeper and for Spark jobs, and the jars of the bundled ZooKeeper."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from zookeeper.errors import ServerFailed

JAVA_MINIMUM = 17
"""The minimum of PySpark 4. ZooKeeper itself runs on 8, which nobody tests any more."""

JARS = (
    "zookeeper-*.jar",
    "slf4j-api-*.jar",
    "log4j-api-*.jar",
    "log4j-core-*.jar",
    "log4j-slf4j2-impl-*.jar",
    "metrics-core-*.jar",
    "snappy-java-*.jar",
    "netty-*.jar",
    "commons-io-*.jar",
    "commons-cli-*.jar",
)
"""The jars of PySpark that the server needs. With these it starts in 0.6 s and takes 70 MB, with all of them in 1.5 s
and 117 MB (PySpark 4.3.0, Java 17)."""

VERSION_SECONDS = 15.0
"""Seconds for ``java -version``, which takes 0.1 s. One that hangs (a wrapper that prompts, a network disk that is
away) must not make a start or a migration hang with it."""

BUNDLED_ZOOKEEPER = "the bundled ZooKeeper"

_ELSE = "or name a running ZooKeeper with --zookeeper host:port"


async def java(user: str = BUNDLED_ZOOKEEPER, otherwise: str = _ELSE) -> Path:
    """The ``java`` of JAVA_HOME, or else of PATH. Raises ServerFailed if there is none, or if it is too old.

    The message says that ``user`` needs it; its hint ends with ``otherwise``: what to do without Java.
    """
    return await asyncio.to_thread(java_at_once, user, otherwise)


def java_at_once(user: str = BUNDLED_ZOOKEEPER, otherwise: str = _ELSE) -> Path:
    """:func:`java` without an event loop; blocks for ``java -version``, 0.1 s."""
    path = _find(user, otherwise)
    # A process group of its own: if ``java`` is a script, killing it alone would leave its child, which holds the pipe.
    with (
        _runnable(path),
        subprocess.Popen(
            [path, "-version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        ) as process,
    ):
        try:
            said, _ = process.communicate(timeout=VERSION_SECONDS)
        except subprocess.TimeoutExpired:
            raise ServerFailed(
                f'"{path}" has not said its version of Java in {VERSION_SECONDS:g} s', hint="check JAVA_HOME and PATH"
            ) from None
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
    return _new_enough(path, said, user, otherwise)


def _find(user: str, otherwise: str) -> Path:
    home = os.environ.get("JAVA_HOME")
    path = Path(home) / "bin" / "java" if home else None
    if path is not None and path.is_file():
        return path
    found = shutil.which("java")
    if found is None:
        where = f'neither JAVA_HOME ("{home}") nor PATH has one' if home else "PATH has none"
        raise ServerFailed(f"{user} needs Java, and {where}", hint=f"install Java {JAVA_MINIMUM} or newer, {otherwise}")
    return Path(found)


@contextmanager
def _runnable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ServerFailed(f'cannot run "{path}": {error.strerror}', hint="check JAVA_HOME and PATH") from error


def _new_enough(path: Path, output: bytes, user: str, otherwise: str) -> Path:
    """Compares the feature release: 17 of ``openjdk version "17.0.15"``, 8 of ``java version "1.8.0_412"``."""
    found = re.search(rb'version "(?:1\.)?(\d+)', output)
    if found is None:
        said = output.decode(errors="replace").strip().split("\n")[0][:200]
        raise ServerFailed(
            f'"{path}" does not name its version of Java, but says: {said}', hint="check JAVA_HOME and PATH"
        )
    version = int(found[1])
    if version < JAVA_MINIMUM:
        raise ServerFailed(
            f'{user} needs Java {JAVA_MINIMUM} or newer, and "{path}" is Java {version}',
            hint=f"point JAVA_HOME to a newer one, {otherwise}",
        )
    return path


def class_path() -> str:
    """The jars of the installed PySpark, which is not imported. Raises ServerFailed."""
    package = find_spec("pyspark")
    folders = package.submodule_search_locations if package is not None else None
    jars = [jar for folder in folders or () for name in JARS for jar in sorted(Path(folder, "jars").glob(name))]
    if not any(jar.name.startswith("zookeeper-") for jar in jars):
        raise ServerFailed(
            "the bundled ZooKeeper comes out of PySpark's jars, and they are not installed",
            hint=f"pip install 'headrace[spark]', {_ELSE}",
        )
    return os.pathsep.join(map(str, jars))
