"""A process that writes rows one by one and archives them at every moment, until it is killed.

``archiving_child.py DIR FIRST``: prints ``ready``, then the number of each row once it is acknowledged.
"""

from __future__ import annotations

import sys
from pathlib import Path

from domains.language.types import BIGINT, TableColumn, TableSchema
from domains.plan.commands import CreateTable
from domains.plan.graph import DomainIndex
from domains.plan.packets import Insert
from worker.archive import archiver as archiver_module
from worker.archive.archiver import Archiver
from worker.archive.options import ArchiveOptions
from worker.embedded import open_embedded

BASE = DomainIndex(0)
SCHEMA = TableSchema("t", (TableColumn("id", BIGINT, nullable=False),), primary_key=(0,))


def main(directory: Path, first: int) -> None:
    archiver_module.LOG_TAIL = 3
    dataflow = open_embedded(directory / "data", groups=1, memory_limit=2**30)
    dataflow.start()
    if not dataflow.stores[BASE].tables():
        dataflow.command(BASE, CreateTable(SCHEMA)).result()
    options = ArchiveOptions(str(directory / "archive"), interval=0.1, segment_rows=7)
    Archiver(dataflow, options).start()
    print("ready", flush=True)
    number = first
    while True:
        dataflow.write(BASE, Insert("t", ((number,),))).result()
        print(number, flush=True)
        number += 1


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
