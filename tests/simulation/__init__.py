"""A whole deployment's data plane on one thread, from a seed: domains, links that delay and reorder across each other,
readers, evictions, crashes, stores that fail. The oracle of everything that is built on the engine."""
