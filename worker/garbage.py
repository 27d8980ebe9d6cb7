"""Python's collector of cyclic garbage, told what lives here: millions of rows that stay, and very few cycles.

Untold it walks over all young containers at each 700 new ones, and over everything once a quarter has been added. Rows
are containers to it. A warm server spent two fifths of its time so, most of it within whatever look-up happened to make
the 700th (py-spy shows a plain ``dict.items()`` as the hottest line of all).

Nothing of ours relies on it to free what is large: a removed vertex gives up its state itself (``domains/control.py``).
What cycles there are come of exceptions and of tasks, and are young when they go.
"""

from __future__ import annotations

import gc

YOUNG = 2_000
"""New containers until the young ones are walked over: 0.2 ms each time. With 20,000, which walks over as many in all,
it was 1.2 ms, and of the reads beside a backfill each hundredth waited for one."""
MIDDLE = 200
"""Such walks until the middle-aged ones are: some 10 ms each 400,000 new containers. Fewer would be shorter and more
often: with 5 the hundredth read waits for those. And a cycle that lives so long is old when it goes."""
OLD = 1_000
"""Those until everything is: after so many millions that a pause of a second or two is seldom."""


def expect_long_lives() -> None:
    """For a process that serves, once it has loaded its code: that is set apart for good."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)
