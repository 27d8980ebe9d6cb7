"""The child process of a job: what it says, how it ends, and that nothing is left of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from domains.errors import Cancelled
from migrations.backfill.spark import launching
from migrations.backfill.spark.launching import (
    AUTOGROUP,
    NICENESS,
    SparkFailed,
    SparkJob,
    SparkUnavailable,
    error_of_code,
)
from migrations.backfill.spark.session import MANY_ROWS, settings_of
from migrations.backfill.spark.settings import SparkSettings
from tests.migrations.spark.conftest import SMALL, until


def below(process: int) -> list[psutil.Process]:
    """The processes below one, and below these."""
    try:
        return psutil.Process(process).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def is_gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


@pytest.mark.long
def test_a_job_says_how_far_it_is_and_what_came_of_it() -> None:
    with SparkJob("probe", {"tasks": 2}, SMALL) as job:
        until(lambda: job.wait(0.2), "the job never ended")
        found = job.result()
    assert found["master"] == "local[2]"
    assert found["python"] == [sys.executable]
    assert "master" in job.progress
    assert job.process.wait(0) == 0


def test_cancelled_with_all_that_is_below_it() -> None:
    with SparkJob("probe", {"tasks": 2, "seconds": 600}, SMALL) as job:
        until(lambda: job.progress.get("tasks"), "its tasks never ran")
        family = below(job.process.pid)
        assert any("java" in process.name() for process in family)
        assert {process.nice() for process in family} == {min(19, os.nice(0) + NICENESS)}
        if AUTOGROUP.exists():
            groups = {Path(f"/proc/{process.pid}/autogroup").read_text() for process in family}
            assert len(groups) == 1
            assert groups.pop().endswith(f"nice {NICENESS}\n")
        job.cancel()
        job.cancel()
        with pytest.raises(Cancelled):
            job.result()
        until(lambda: all(map(is_gone, family)), f"something is left of {family}")


def nothing_outlives_its_parent(folder: Path, settings: str, waits: str) -> None:
    """Kill the parent of a job that has these settings once a JVM is there; ``waits`` are lines of the parent before it
    says that the job is."""
    program = folder / "parent.py"
    program.write_text(
        "import time\n"
        "from migrations.backfill.spark.launching import SparkJob\n"
        "from migrations.backfill.spark.settings import SparkSettings\n"
        "from tests.migrations.spark.conftest import SMALL\n"
        f'job = SparkJob("probe", {{"tasks": 1, "seconds": 600}}, {settings})\n'
        f"{waits}"
        "print(job.process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{os.getcwd()}:{os.getcwd()}/clients/python"}
    parent = subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, env=environment)
    family: list[psutil.Process] = []
    try:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        until(lambda: below(child), "no JVM was started")
        family = [psutil.Process(child), *below(child)]
        parent.send_signal(signal.SIGKILL)
        until(lambda: all(map(is_gone, family)), f"something is left of {family}")
    finally:
        parent.kill()
        parent.wait()
        for each in family:
            if each.is_running():
                each.kill()


@pytest.mark.long
def test_a_job_whose_tasks_run_does_not_outlive_its_parent(tmp_path: Path) -> None:
    """The longer form of the next test: Python's workers are there, too."""
    waits = 'while not job.progress.get("tasks"):\n    time.sleep(0.05)\n'
    nothing_outlives_its_parent(tmp_path, "SMALL", waits)


def test_a_job_does_not_outlive_its_parent(tmp_path: Path) -> None:
    """Not even one that is killed and can say nothing any more; its JVM is starting."""
    nothing_outlives_its_parent(tmp_path, 'SparkSettings("local[1]")', "")


# --- without a JVM ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (None, "Spark needs Java, and PATH has none .install Java 17 or newer, and PySpark"),
        ('java version "1.8.0_412"', "Spark needs Java 17 or newer, and .* is Java 8"),
    ],
)
def test_java_missing_or_too_old(
    script: str | None, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    if script is not None:
        java = tmp_path / "java"
        java.write_text(f"#!/bin/sh\necho '{script}' >&2\n")
        java.chmod(0o755)
    with pytest.raises(SparkUnavailable, match=says):
        SparkJob("probe", {}, SMALL)


def a_child_does(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    """What a job's child is, from here on: a script of the shell in the place of Python."""
    python = folder / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    monkeypatch.setattr(launching.sys, "executable", str(python))


def test_a_child_that_dies_says_its_last_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(launching, "check_java", lambda: None)
    a_child_does(monkeypatch, tmp_path, "echo 'no such thing' >&2\nexit 3")
    with SparkJob("probe", {}, SMALL) as job:
        until(lambda: job.wait(0.2), "the job never ended")
        with pytest.raises(SparkFailed, match="ended with code 3: no such thing"):
            job.result()


def test_a_child_that_is_killed_says_by_what(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its last line was told as if it were the reason."""
    monkeypatch.setattr(launching, "check_java", lambda: None)
    a_child_does(monkeypatch, tmp_path, "echo '26/01/31 INFO TaskSetManager: Starting task 3.0' >&2\nkill -9 $$")
    with SparkJob("probe", {}, SMALL) as job:
        until(lambda: job.wait(0.2), "the job never ended")
        told = r"was killed by SIGKILL, as the system does where memory is short \(before that it said: 26/01/31 INFO"
        with pytest.raises(SparkFailed, match=told):
            job.result()


def test_a_java_home_without_a_java_is_kept_from_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Java is then that of PATH, which the check has found; Spark's own script would not look there."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    a_child_does(monkeypatch, tmp_path, 'echo "JAVA_HOME is ${JAVA_HOME-not set}" >&2\nexit 3')
    with SparkJob("probe", {}, SMALL) as job:
        until(lambda: job.wait(0.2), "the job never ended")
        with pytest.raises(SparkFailed, match="JAVA_HOME is not set"):
            job.result()


def test_what_is_for_one_machine_is_not_sent_to_a_cluster() -> None:
    """Its workers know our modules by a zip only, and its JVMs are not ours to choose for."""
    own = {"spark.python.daemon.module", "spark.driver.defaultJavaOptions", "spark.driver.host"}
    assert own <= settings_of(SparkSettings("local[2]")).keys()
    assert own.isdisjoint(settings_of(SparkSettings("spark://127.0.0.1:7077")))
    given = SparkSettings(conf=(("spark.python.daemon.module", "pyspark.daemon"),))
    assert settings_of(given)["spark.python.daemon.module"] == "pyspark.daemon"


def test_java_compiles_twice_where_rows_are_many() -> None:
    local, java = SparkSettings("local[2]"), "spark.driver.defaultJavaOptions"
    assert "TieredStopAtLevel=1" in settings_of(local, MANY_ROWS - 1)[java]
    assert "TieredStopAtLevel" not in settings_of(local, MANY_ROWS)[java]


def test_errors_come_back_as_they_were() -> None:
    assert type(error_of_code("cancelled", "m", "h")) is Cancelled
    assert type(error_of_code("unheard_of", "m", None)) is SparkFailed


def test_who_serves_has_no_spark() -> None:
    """Neither the server, nor what starts jobs, nor the command line loads PySpark."""
    modules = (
        "headrace.cli, headrace.serving.server, controller.embedded.local, headrace.verifying, "
        "migrations.backfill.spark.runner"
    )
    program = f"import sys, {modules}; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


HANGS_IN_NATIVE_CODE = """
import ctypes, signal, threading
from migrations.backfill.spark import __main__ as job
job.PATIENCE = 0.1
signal.signal(signal.SIGTERM, job._stop)
threading.Thread(target=job._end_with_input, daemon=True).start()
library, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
print("begun", flush=True)
while True:
    library.pthread_mutex_lock(mutex)  # The second time for ever, and no signal breaks it off.
"""


def test_a_job_whose_parent_is_gone_ends_where_no_signal_is_heeded() -> None:
    """A store of objects that did not answer was waited for by a job that nobody wanted any more."""
    with subprocess.Popen(
        [sys.executable, "-c", HANGS_IN_NATIVE_CODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            assert child.stdout.readline() == b"begun\n"
            child.stdin.close()
            until(lambda: child.poll() is not None, "it did not end")
            assert child.returncode == 128 + signal.SIGTERM
        finally:
            child.kill()
