"""A judge of transactions: from what clients have read and written it infers which isolation level was kept.

Clients of a system under test run transactions and record them; the checker looks for what no order of the transactions
explains. It knows nothing of the system, and asks nothing but what a client sees::

    Workload ─► clients ─► System (Modelled, MariaDB, …)      workload.py, system.py, mariadb.py
       seed        │
                   ▼
    events ◄► JSON, EDN   invoke, then ok, fail or info       events.py, edn.py
                   │
                   ▼
    keys          versions, and what is no cycle              lists.py, registers.py
                   │ ww, wr, rw; process, realtime
                   ▼
    Graph ─► components ─► kinds of cycles ─► Report          graph.py, cycles.py, anomalies.py, checker.py

The method is Elle's (Kingsbury and Alvaro, *Elle: Inferring Isolation Anomalies from Experimental Observations*, VLDB
2020). Each value is written to a key once, so a read names its writer. A list that is appended to shows its whole
history with each read: the longest read is the order of its versions, and with it all dependencies between
transactions are known: who overwrote whom (ww), read whose write (wr), or read what was overwritten by whom (rw). The
transactions can be brought into one order exactly if these have no cycle; what kind of edges the cycle is of says
which level it breaks. A register shows one version at a time: its order is inferred as far as a transaction reads
before it writes, and, at the levels by process and by clock, from what followed what. So lists find all there is to
find, registers what can be known, and neither calls an anomaly what is none (``test_brute_force.py`` has all orders of
small histories beside it).

An operation that is ``fail`` has had no effect: whoever sees its write has read an aborted one. One that is ``info``,
or is never completed, may have: it has if anybody sees a write of it, and then it has wholly; what it has read is not
asked.

A history of any length is checked in pieces, in memory that follows the keys in use. A key is retired when no event to
come has it; only then it gives its edges to the graph, all at once. A transaction is closed when all its keys are
retired: no edge to it is still to come. What is closed, and has no predecessor left, is in no cycle and goes; anything
else is carried into the next piece with its edges. So a piece ends where it may, and nothing that belongs together is
cut; a key that is used after it was retired is an error, not a gap (``graph.py``, ``Checker.retire``). A file is
read twice, and the first pass finds each key's last event.

A checker that has only ever said yes proves nothing: anomalies of each kind are planted in histories without any
(``planted.py``), short ones are in ``recorded/`` with what each must give, a store in memory (``Modelled``) keeps each
level and no more, and MariaDB shows at READ COMMITTED and REPEATABLE READ what these permit, at SERIALIZABLE nothing
(``control.py``).

    python -m tests.histories check run.json --level strict-serializable
    python -m tests.histories control --seconds 60 --seed 1
    python -m tests.histories long --operations 10_000_000
"""
