"""A job that reads files that are to be loaded: a task for each file, on whatever machine.

What is done with a file is not this room's business: the function comes by its name, as all our code comes to tasks.
``headrace/loading`` names the one that reads, checks and cuts a file's rows and writes them where who loads finds them;
the files and that place are thus to be reached by every worker under the same names.
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from migrations.backfill.spark.reporting import Reporter, Watch

ARCHIVE = "headrace-loading.zip"


def run(spark: SparkSession, what: dict[str, Any], reporter: Reporter) -> list[Any]:
    """What ``function`` (``module:name``) of ``packages`` answers for each of ``items``, in their order."""
    module, _, name = what["function"].partition(":")
    items = list(what["items"])
    if not str(spark.sparkContext.master).startswith("local"):
        _ship(spark.sparkContext, what["packages"])

    def act(item: Any) -> Any:
        function: Callable[[Any], Any] = getattr(import_module(module), name)
        return function(item)

    with Watch(spark, reporter):
        found: list[Any] = spark.sparkContext.parallelize(items, max(1, len(items))).map(act).collect()
    return found


def _ship(context: SparkContext, packages: list[str]) -> None:
    """Send the packages along, in front of what the workers' Python has."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ARCHIVE
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
            for package in packages:
                found = find_spec(package)
                assert found is not None, f"no package {package}"
                for root in map(Path, found.submodule_search_locations or ()):
                    for module in sorted(root.rglob("*.py")):
                        target.write(module, str(package / module.relative_to(root)))
        context.addPyFile(str(path))
