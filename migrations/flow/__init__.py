"""How the joint graph's nodes become a dataflow: what is placed in which domain, in how many shards, and in what order.

``plan.py`` makes the steps of a migration, ``extension.py`` places new nodes beside those that run, ``sharding.py``
says how an operator stands in shards, ``routing.py`` which shard a write goes to, ``explain.py`` draws a view's part.
"""
