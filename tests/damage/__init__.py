"""Damage to every file in turn: single bits and bytes inverted, blocks zeroed, files cut and deleted, folders
deleted and emptied.

What must come of it is a right answer, a refusal at the start that says why, or ``storage_failure``; never a wrong
answer, an acknowledged row that is gone without a word, or anything else. ``scenes.py`` has what is damaged: a server's
directory that was killed, or closed, or has several shards, an archive, a cluster's directory, and ZooKeeper's files.
``test_damage`` walks a short way through each, ``python -m tests.damage --seconds 600`` (``make damage``) as far as it
comes; a seed that is printed brings the same walk again.

Two things are not noticed: where an archive's folder of cuts was deleted whole, a restore brings back what the recipe
was recorded with; and a log of ZooKeeper's that was cut is taken for one that a crash has torn.
"""
