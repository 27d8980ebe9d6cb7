"""Transactions of clients: sessions, in which statements follow one another, and what a transaction asks its shard.

::

    POST /v1/transactions ─► StatementSession, with a transaction      Headrace-Transaction: id ─► found again
    Headrace-Session: name ─► StatementSession, BEGIN … COMMIT in SQL
    "atomic": true; BEGIN; …; COMMIT in one text ─► a StatementSession for as long as the request

    Caller.session ─► Transaction ─┬─ writes, savepoints, COMMIT ─► Hosts.transact ─► the shards' domains
                                   └─ SELECTs and look-ups ─────► Hosts.evaluate, over the rows as it sees them

    POST /v1/snapshots ─► Snapshots: all shards at one moment          Headrace-Snapshot: name ─► SnapshotReads, in a
                                                                       transaction's place

The transaction itself is in the domains (``domains/engine/transactions``), which say what holds. Here are its commit
over several shards, what brings to an end what that has left (``in_doubt.py``), and the limits: how many there are, how
long one may be idle, and how much it may stage.
"""
