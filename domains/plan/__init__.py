"""What a domain is told: the graph as data, packets (data plane), commands (control plane), deltas and shards."""
