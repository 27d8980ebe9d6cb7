"""The Authority: who leads, who is there, and the state that a new leader starts from.

Not the ZooKeeper server, but the room through which Headrace asks it. An :class:`Authority` keeps one small state, read
and replaced by compare-and-set: what is written is what was read at that version, or it is refused. The state is the
recipe, from which everything else follows::

    migrator ── write(recipe, version) ──► Authority ──► one file, replaced whole     LocalAuthority
             ◄── read() at a start ───────              (ZooKeeper, in a cluster)

``LocalAuthority`` keeps it in a file of the data directory. It is production code: the embedded server runs on it,
without ZooKeeper, and the tests do.
"""
