"""Damage to every file of a data directory in turn: single bits and bytes inverted, files cut and deleted.

What must come of it is a right answer, a refusal at the start that says why, or ``storage_failure``; never a wrong
answer, an acknowledged row that is gone without a word, or anything else. ``test_damage`` walks a short way,
``python -m tests.damage --seconds 600`` (``make damage``) as far as it comes; a seed that is
printed brings the same walk again.
"""
