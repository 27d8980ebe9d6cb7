"""Damage to every file in turn: single bits and bytes inverted, blocks zeroed, files cut and deleted, folders
deleted and emptied.

What must come of it is a right answer, a refusal at the start that says why, or ``storage_failure``; never a wrong
answer, an acknowledged row that is gone without a word, or anything else. ``scenes.py`` has what is damaged: a server's
directory that was killed, or closed, or has several shards, an archive, and a cluster's directory. ``test_damage``
walks a short way through each, ``python -m tests.damage --seconds 600`` (``make damage``) as far as it comes; a seed
that is printed brings the same walk again.

One thing is not noticed: where the newest record of a recipe or of a cut was deleted from an archive, a restore brings
back the one before it.
"""
