"""The relational operators at run time, one file each, each introduced by its equation.

An operator answers three questions, and keeps nothing of its own but what it needs to answer the first:

* ``forward``: the parents changed by these deltas (and are in their new state): how does the output change?
* ``compute``: which output rows have these keys? (asked of the parents through the look-ups that it is given; ``None``
  for a key whose computation met a hole that only another domain can fill)
* ``translate``: entries above were evicted: which entries below may depend on them?
"""
