"""An archive as values: manifests and segments, the columns of their files, blocks of rows, checksums."""
