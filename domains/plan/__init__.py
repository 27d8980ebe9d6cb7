"""A domain's orders: the graph as data, packets (data plane), commands (control plane), deltas and shards."""
