"""``headrace demo``: partially stateful dataflow on a screen or two of a terminal, with a real server and real data.

The server runs in this process, on the main thread, as ``headrace serve`` does. The telling is a thread beside it that
knows the server only by its URL: whatever it shows, a client can do too.

::

    running.py ── serve(settings, started) ──► the server, until Ctrl-C
        │ started
        ▼
    directory, program and rows, with a bar
    telling.py ── miss, upquery, hit, vote, eviction, how to go on; on a terminal, or without one
"""

from headrace.demo.running import run, run_against

__all__ = ["run", "run_against"]
