"""What Spark forks its Python workers from in local mode: its own daemon, with what our tasks import loaded already.

Each worker would else load Arrow and our packages by itself, a second of processor time, and a small job has four.
``spark.python.daemon.module`` names it; on a cluster the code comes by a zip (``session.py``), which only a worker
knows, so there it is Spark's daemon.
"""

from __future__ import annotations

import importlib

from pyspark import daemon

LOADED = ("pyspark.worker", "pyspark.sql.pandas.serializers", "pyarrow.parquet", "migrations.backfill.spark.bulk")


def main() -> None:
    for module in LOADED:
        importlib.import_module(module)
    daemon.manager()


if __name__ == "__main__":
    main()
