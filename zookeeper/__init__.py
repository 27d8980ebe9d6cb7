"""The Authority: who leads, who is there, and the state that a new leader starts from.

Not the ZooKeeper server, but the room through which Headrace asks it. An :class:`Authority` keeps one small state, read
and replaced by compare-and-set: what is written is what was read at that version, or it is refused. The state is what
everything else follows from: the recipe, and in a cluster which worker hosts which domain::

    embedded    migrator ──► Authority ──► a file, and two slots beside it             LocalAuthority
    cluster     leader ────► ClusterAuthority ─┐
                workers ───►   "               ├─► Session ─┬─► ZooKeeper              KazooAuthority
                api ───────►   "               ┘            └─► a twin in memory       MemoryAuthority

A ``ClusterAuthority`` also says who is there (workers register, and are gone when their session is) and who leads (an
election that a session can win and lose). What it does with a session is written once, in ``session_authority.py`` and
``registration.py``; the two sessions below it only read and write znodes. So the simulator runs the
same registration and election as production, and one suite of tests holds both to the same contract.

Who leads is not who may command: a leader that is cut off does not know that it was succeeded. The epoch in the state
fences it off, not this room; that is why being cut off from ZooKeeper is a nuisance here and no emergency.

``server.py`` starts ZooKeeper itself, the real one, for a cluster on one machine.
"""
