"""An archive as values: manifests and segments, the columns of their files, blocks of rows, checksums; whole cuts of
transactions, and what is brought back of them to a lost shard."""
