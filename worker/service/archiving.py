"""How a process begins to archive what it hosts: ``worker/archive`` is loaded only then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.archive.options import ArchiveOptions, RecipeNow

if TYPE_CHECKING:
    from worker.archive.archiver import Archiver
    from worker.dataflow.thread import DataflowThread


def start_archiver(
    dataflow: DataflowThread, options: ArchiveOptions | None, recipe: RecipeNow | None = None
) -> Archiver | None:
    """Begin to archive in a thread of its own; the dataflow has started. None if nothing is to be archived.

    ``recipe`` gives the recipe in force, if this process is the whole deployment.

    :raises ArchiveUnusable: nothing can ever be archived there from here.
    """
    if options is None:
        return None
    from worker.archive.archiver import Archiver  # Late: it loads pyarrow, which takes a tenth of a second and 60 MB.
    from worker.archive.place import check_usable

    check_usable(options.url)
    # Where the process is the whole deployment, all shards are on one disk.
    dataflow.hosted.keeps_copies = recipe is None
    archiver = Archiver(dataflow, options, recipe=recipe)
    archiver.start()
    return archiver
