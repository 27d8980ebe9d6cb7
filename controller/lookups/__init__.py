"""Look-ups of views: from parameter values to keys, from the reader map to bytes, across shards where need be."""
