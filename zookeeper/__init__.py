"""The Authority: who leads, who is there, and the state that a new leader starts from.

Not the ZooKeeper server, but the room through which Headrace asks it. An :class:`Authority` keeps one small state,
read and replaced by compare-and-set. ``LocalAuthority`` keeps it in a file of the data directory; it is what the
embedded server runs on, without ZooKeeper.
"""
