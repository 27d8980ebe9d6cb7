"""A URL's file system: pyarrow's, with what has to be said of each kind, and its errors in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from domains.archive import ArchiveUnreachable, ArchiveUnusable

OBJECT_STORES = ("s3", "gcs", "abfs")
"""By pyarrow's names. They show an object when it is written to its end, and not before."""

NO_DIRECTORIES = ("s3", "gcs")
"""Where a directory is what names have in common: none is made, and so nobody must see to the bucket before each file.
Azure's store may have real ones."""

SPARKS_NAMES = {"s3a": "s3"}
"""Whoever has the archive's URL from Spark's settings may give it as it is."""

GCS_PATIENCE = 10
"""Seconds for which Google's client tries a request again. Its own quarter of an hour would keep a process that long
from stopping; the archiver tries again by itself."""

LIBHDFS = "Java with its JAVA_HOME, Hadoop's libhdfs.so with HADOOP_HOME, and CLASSPATH: see docs/archive.md"


def open_file_system(url: str) -> tuple[Any, str]:
    """The file system, and the path in it.

    :raises ArchiveUnusable: there is none for such a URL, or it needs a library that is not here.
    :raises ArchiveUnreachable: anything else, which may pass.
    """
    if "://" not in url:
        return fs.LocalFileSystem(), str(Path(url).expanduser().absolute())
    scheme, _, rest = url.partition("://")
    try:
        opened, path = fs.FileSystem.from_uri(_for_pyarrow(scheme, rest))
    except (ValueError, pa.ArrowException) as error:
        raise ArchiveUnusable(
            f'cannot use "{url}" as an archive: {first_line(error)}',
            hint="give a directory, or a URL that pyarrow understands",
        ) from error
    except OSError as error:
        # Of a library that is missing, pyarrow tells every place where it has looked, the first time.
        if "load libjvm" in str(error) or "load libhdfs" in str(error):
            told, hint = "libhdfs or Java's libjvm cannot be loaded", f"install {LIBHDFS}"
            raise ArchiveUnusable(f'cannot use "{url}" as an archive: {told}', hint=hint) from error
        raise ArchiveUnreachable(
            f'cannot use "{url}" as an archive: {first_line(error)}', hint=hint_for(opened_by=scheme)
        ) from error
    return opened, str(path)


def _for_pyarrow(scheme: str, rest: str) -> str:
    if scheme in ("gs", "gcs") and "retry_limit_seconds=" not in rest:
        rest = f"{rest}{'&' if '?' in rest else '?'}retry_limit_seconds={GCS_PATIENCE}"
    return f"{SPARKS_NAMES.get(scheme, scheme)}://{rest}"


def check_usable(url: str) -> None:
    """Raises ArchiveUnusable: what cannot ever do is told at the start. What may be away for now is not waited for."""
    if url.partition("://")[0] in (*OBJECT_STORES, *SPARKS_NAMES, "gs", "abfss"):
        return  # To open it may be to ask it for its region.
    try:
        open_file_system(url)
    except ArchiveUnusable:
        raise
    except ArchiveUnreachable:
        return


def hint_for(opened_by: str) -> str:
    """What to look at where a place does not do what it is asked, by its scheme or pyarrow's name of it."""
    kind = SPARKS_NAMES.get(opened_by, opened_by)
    if kind == "s3":
        return (
            "see that the bucket is there and answers, and that AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY may write"
        )
    if kind in ("gs", "gcs"):
        return "see that the bucket is there and answers, and that GOOGLE_APPLICATION_CREDENTIALS names who may write"
    if kind in ("hdfs", "viewfs"):
        return f"see that it is there, may be written and has room; it needs {LIBHDFS}"
    return "see that it is there, may be written and has room"


def first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
