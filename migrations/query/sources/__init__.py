"""FROM: what its sources and their columns are called, before and after a join (``names.py``)."""
