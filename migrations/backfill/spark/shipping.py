"""Our code as a zip, for the workers of a cluster: they run what the driver runs, whatever is installed there.

A function goes to a worker as the name of its module, which the worker imports. In local mode that is the same
installation. On other machines the packages that tasks use are sent along, in front of what the worker's Python has;
what they need in turn (``pyarrow``, ``orjson``, ``sqlglot``: see ``requirements.lock``) must be installed there, in the
Python that ``spark.pyspark.python`` names (else the same path as the driver's).
"""

from __future__ import annotations

import zipfile
from importlib.util import find_spec
from pathlib import Path

from pyspark import SparkContext

PACKAGES = ("domains", "migrations", "headrace_client")
"""What tasks import. They are pure, so nothing else of ours comes along; of the client they have the errors."""

ARCHIVE = "headrace-code.zip"


def ship(context: SparkContext, folder: Path) -> None:
    """Send the packages to every worker of this context, before its first task.

    Workers fetch them when they begin, also those that begin late: the zip stays in ``folder`` while the session lasts.
    """
    path = folder / ARCHIVE
    pack(path)
    context.addPyFile(str(path))


def pack(path: Path) -> None:
    """Write the packages' modules into a zip that Python imports from."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        for package in PACKAGES:
            found = find_spec(package)
            assert found is not None
            for folder in found.submodule_search_locations or ():
                root = Path(folder)
                for module in sorted(root.rglob("*.py")):
                    target.write(module, str(package / module.relative_to(root)))
