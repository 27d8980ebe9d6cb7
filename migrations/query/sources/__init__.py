"""FROM: its sources as a tree (``tree.py``), what they and their columns are called, before and after a join
(``names.py``), what is asked of the reader (``asked.py``), and JSON_TABLE (``json_tables.py``)."""
