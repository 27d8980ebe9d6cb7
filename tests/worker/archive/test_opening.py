"""What a URL cannot be used for is told at the start, in a line; what stores of objects are is asked in their way."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace
from domains.archive.manifest import ArchiveUnreachable, ArchiveUnusable, url_below
from worker.archive import place
from worker.archive.place import Place, check_usable, open_file_system

NO_LIBRARY = "Unable to load libhdfs\ndlopen(libhdfs.so) failed: libhdfs.so: cannot open shared object file"


class Refusing:
    """pyarrow's ``FileSystem``, for a URL that it cannot open."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def from_uri(self, url: str) -> None:
        raise self._error


def refuse(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr(place.fs, "FileSystem", Refusing(error))


@pytest.mark.parametrize(
    "text", [NO_LIBRARY, "Unable to load libjvm\ndlopen(…)", "Prior attempt to load libhdfs failed"]
)
def test_a_missing_libhdfs_is_named_at_the_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    refuse(monkeypatch, OSError(text))
    with pytest.raises(ArchiveUnusable) as caught:
        headrace.embedded(tmp_path, archive="hdfs://namenode:8020/headrace")
    assert "libhdfs or Java's libjvm cannot be loaded" in caught.value.message
    assert "HADOOP_HOME" in (caught.value.hint or "")
    assert "\n" not in str(caught.value)


def test_a_scheme_that_nobody_knows_is_told_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ArchiveUnusable, match=r'"nonsense://x/y" as an archive: Unrecognized filesystem type'):
        headrace.embedded(tmp_path, archive="nonsense://x/y")


def test_what_may_come_back_does_not_keep_from_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, OSError("HDFS connection failed\nat Java"))
    check_usable("hdfs://namenode:8020/headrace")
    with pytest.raises(ArchiveUnreachable) as caught:
        open_file_system("hdfs://namenode:8020/headrace")
    assert caught.value.message.endswith(": HDFS connection failed")
    assert "libhdfs.so" in (caught.value.hint or "")


def test_the_url_of_what_is_below() -> None:
    assert url_below("s3://bucket/a/?scheme=http", "b/c") == "s3://bucket/a/b/c?scheme=http"
    assert url_below("/srv/what?", "b") == "/srv/what?/b"


def test_directories_of_names_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Google's store, as pyarrow shows it: of a directory, it lists what is anywhere below it."""
    place = Place(str(tmp_path))
    for name in ("a/b/c", "a/d", "e", "f/g/h/i"):
        place.replace(name, b"")
    monkeypatch.setattr(place, "_flat", True)
    assert (place.files(), place.directories()) == (["e"], ["a", "f"])
    assert (place.files("a"), place.directories("a"), place.directories("f")) == (["d"], ["b"], ["g"])


class Asked:
    """pyarrow's ``FileSystem``, for the URLs that it is asked for."""

    def __init__(self) -> None:
        self.urls: list[str] = []

    def from_uri(self, url: str) -> tuple[Asked, str]:
        self.urls.append(url)
        return self, "path"


def test_what_pyarrow_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Google's client is not to keep anybody for its quarter of an hour, and Spark's name of S3 is not pyarrow's."""
    asked = Asked()
    monkeypatch.setattr(place.fs, "FileSystem", asked)
    for url in ("gs://a/b", "gs://a/b?scheme=http", "gs://a/b?retry_limit_seconds=3", "s3a://a/b?scheme=http"):
        open_file_system(url)
    limit = f"retry_limit_seconds={place.GCS_PATIENCE}"
    assert asked.urls == [
        f"gs://a/b?{limit}",
        f"gs://a/b?scheme=http&{limit}",
        "gs://a/b?retry_limit_seconds=3",
        "s3://a/b?scheme=http",
    ]
