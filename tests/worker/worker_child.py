"""A worker in a process of its own, with an authority of its own: ``python worker_child.py NAME DATA [bug]``.

It prints its descriptor when it is ready. With ``bug`` a step of its dataflow fails soon after.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from dataclasses import asdict
from pathlib import Path

from domains.errors import HeadraceError
from domains.plan.graph import DomainIndex
from tests.kit.leading_workers import SECRET, Told, let_lead
from worker.service.process import Worker, work
from zookeeper.memory import MemoryZooKeeper


async def main(name: str, data: Path, bug: bool) -> None:
    zookeeper = MemoryZooKeeper()
    zookeeper.secret = SECRET
    authority = zookeeper.authority("main")
    await authority.start(create=True)
    await let_lead(authority)

    def ready(worker: Worker) -> None:
        print(json.dumps(asdict(worker.descriptor)), flush=True)
        if bug:
            worker.dataflow.control(lambda hosted, _: hosted.hosts[DomainIndex(999)])

    await work(Told(name, data), authority, ready)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(name)s %(levelname)s %(message)s")
    try:
        asyncio.run(main(sys.argv[1], Path(sys.argv[2]), "bug" in sys.argv[3:]))
    except HeadraceError as error:
        sys.exit(str(error))
