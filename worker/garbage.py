"""Python's collector of cyclic garbage, told what lives here: millions of rows that stay, and very few cycles.

Untold it walks over all young containers at each 700 new ones, and over everything once a quarter has been added. Rows
are containers to it. A warm server spent two fifths of its time so, most of it within whatever look-up happened to make
the 700th (py-spy shows a plain ``dict.items()`` as the hottest line of all).

Nothing of ours relies on it to free what is large: a removed vertex gives up its state itself (``domains/control.py``).
What cycles there are come of exceptions and of tasks, and are young when they go.
"""

from __future__ import annotations

import gc

YOUNG = 20_000
"""New containers until the young ones are walked over: about a millisecond each time."""
MIDDLE = 20
"""Such walks until the middle-aged ones are: some 20 ms each ten million new containers."""
OLD = 1_000
"""Those until everything is: after so many millions that a pause of a second or two is seldom."""


def expect_long_lives() -> None:
    """For a process that serves, once it has loaded its code: that is set apart for good."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)
