"""``headrace bench rebuild``: how long a lost shard takes to come back, and what clients notice meanwhile."""
