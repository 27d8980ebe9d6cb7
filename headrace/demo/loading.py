"""Brings the Lobsters program and its data into a server, as any application would: one migration, then inserts."""

from __future__ import annotations

import time
from collections import Counter

from headrace_client.connection import Connection

from headrace.demo.printing import Printer
from loadgen.lobsters import program
from loadgen.lobsters.data import Data

BATCH_ROWS = 1000
"""Rows a request: enough that one sync is shared by many rows, few enough that the bar moves. A broken-off load is
taken up at a boundary of these."""


def make_program(db: Connection, printer: Printer) -> None:
    """Tables, views and page queries, as one migration; what an earlier run has made is left as it is."""
    started = time.perf_counter()
    if not db.tables():
        db.migrate(program.program()).wait()
    elif not db.views():  # it was broken off between the two
        db.migrate(program.natural_views() + program.page_queries()).wait()
    seconds = time.perf_counter() - started
    views = db.views()
    external = sum(view["external"] for view in views)
    printer.fact(
        "program",
        f"{len(db.tables())} base tables, {len(views) - external} views, {external} page queries",
        (f"  in {seconds:.1f} s", "dim"),
    )


def load(db: Connection, data: Data, printer: Printer) -> None:
    """All rows of ``data``, with a progress bar. Views that have readers are kept up to date meanwhile.

    Each batch is stored as a whole or not at all, and always in the same order, so that the number of a table's rows
    says which batches are there already.
    """
    stored = {table: entry["rows"] for table, entry in db.status()["tables"].items()}
    seen = Counter[str]()
    sent = 0
    started = time.perf_counter()
    with printer.progress() as bar:
        task = bar.add_task("data", total=sum(data.totals.values()), note="")
        for table, rows in data.batches(BATCH_ROWS):
            seen[table] += len(rows)
            if seen[table] > stored[table]:
                bar.update(task, note=table)
                db.table(table).insert(rows)
                sent += len(rows)
            bar.advance(task, len(rows))
        seconds = time.perf_counter() - started
        bar.update(task, note=f"in {seconds:.1f} s, {sent / seconds:,.0f} rows/s")


def describe(data: Data, printer: Printer) -> None:
    """How large the site is."""
    size = data.shape
    votes = sum(data.story_votes) + sum(data.comment_votes)
    text = f"{size.users:,} users, {size.stories:,} stories, {size.comments:,} comments, {votes:,} votes"
    printer.fact("", (text, "dim"))
