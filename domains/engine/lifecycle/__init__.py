"""How new full state comes to life: fed in slices while updates flow (``backfill.py``), or loaded and led up
(``replay.py``).
``life.py`` has the states of a domain meanwhile, and which may follow which.
"""
