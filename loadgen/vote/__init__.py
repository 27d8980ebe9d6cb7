"""The vote workload (Listing 3.1 of the Noria thesis): stories, votes, and how many votes a story has.

95 of 100 requests read a story with its count, 5 cast a vote. A client gathers requests and sends them in batches, as
the thesis' clients do, since no single request is worth a packet at hundreds of thousands a second::

    requests, one by one ─► gathered to a batch ─► one look-up of many keys, or one insert of many rows
"""
