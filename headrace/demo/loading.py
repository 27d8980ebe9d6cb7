"""Brings the Lobsters program and its data into a server, as any application would: one migration, then inserts."""

from __future__ import annotations

import time

from headrace.client.connection import Connection
from headrace.demo.printing import Printer
from loadgen.lobsters import program
from loadgen.lobsters.data import Data

BATCH_ROWS = 1000
"""Rows a request: enough that one sync is shared by many rows, few enough that the bar moves."""


def make_program(db: Connection, printer: Printer) -> None:
    """Tables, views and page queries, as one migration: all of it is there, or none."""
    started = time.perf_counter()
    db.migrate(program.program()).wait()
    seconds = time.perf_counter() - started
    views = db.views()
    external = sum(view["external"] for view in views)
    printer.fact(
        "program",
        f"{len(db.tables())} base tables, {len(views) - external} views, {external} page queries",
        (f"  in {seconds:.1f} s", "dim"),
    )


def load(db: Connection, data: Data, printer: Printer) -> None:
    """All rows of ``data``, with a progress bar. Views that have readers are kept up to date meanwhile."""
    total = sum(data.totals.values())
    started = time.perf_counter()
    with printer.progress() as bar:
        task = bar.add_task("data", total=total, note="")
        for table, rows in data.batches(BATCH_ROWS):
            bar.update(task, note=table)
            db.table(table).insert(rows)
            bar.advance(task, len(rows))
    seconds = time.perf_counter() - started
    printer.fact("data", f"{total:,} rows", (f"  in {seconds:.1f} s, {total / seconds:,.0f} rows/s", "dim"))
    size = data.shape
    votes = sum(data.story_votes) + sum(data.comment_votes)
    printer.fact(
        "", (f"{size.users:,} users, {size.stories:,} stories, {size.comments:,} comments, {votes:,} votes", "dim")
    )
