"""The crud workload: rows by their key, single inserts, changes and deletes. No view is worth a join here.

What a backend without a read problem does all day, so that the price of a request is seen apart from that of a query::

    70 get an item · 15 list an owner's items · 8 change one · 5 insert one · 2 delete one that the run inserted
"""
