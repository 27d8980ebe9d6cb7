"""A deployment in one process: no ZooKeeper, no JVM, all domains on one dataflow thread."""
