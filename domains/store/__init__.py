"""Base state as the engine sees it: the protocol of a store, its twin in memory, and what the steps ask of either.

ALTER TABLE rewrites no stored row: ``widening.py`` says what one has in a column that came later, and why that is the
same in the store, its log, an archive and Spark.
"""
