"""OVER: what a window function says (``meaning.py``), and the columns that it becomes (``columns.py``)."""
