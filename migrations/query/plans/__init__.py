"""What is done to the plan of a whole query: columns that nobody reads are dropped (``pruning.py``)."""
