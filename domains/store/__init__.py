"""Base state as the engine sees it: the protocol of a store, its twin in memory, and what the steps ask of either."""
