"""The Authority: who leads, who is there, and the state that a new leader starts from.

Not the ZooKeeper server, but the room through which Headrace asks it. An Authority keeps one small state, which is read
and replaced by compare-and-set: a write names the version that was read, and is refused if there is a later one. All
else follows from this state: the recipe, and in a cluster which worker hosts which domain::

    embedded    migrator ──► LocalAuthority ──► a file, and two slots beside it
    cluster     leader ────► ClusterAuthority ─┐
                workers ───►   "               ├─► Session ─┬─► ZooKeeper              KazooAuthority
                api ───────►   "               ┘            └─► a twin in memory       MemoryAuthority

A ``ClusterAuthority`` also knows who is there (a worker is registered for as long as its session lives) and who leads
(an election that a session can win and lose). ``authority.py`` and ``registration.py`` do this over either session,
which only reads and writes znodes. So the simulator runs the same registration and election as production, and one
suite of tests holds both to the same contract.

Winning the election does not give the right to command: a leader that is cut off does not know that it was succeeded.
The epoch in the state fences it off, not this room; so losing the connection to ZooKeeper is no emergency.

``secret.py`` reads the deployment's secret, which all of its processes have, and derives keys of it: who has it may use
the deployment's znodes.

``accounts.py`` keeps accounts, which are outside of the state: in a file, or in znodes of their own.

``server.py`` starts the real ZooKeeper, for a cluster on one machine.
"""
