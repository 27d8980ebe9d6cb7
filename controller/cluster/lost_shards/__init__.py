"""Shards whose disk is gone: given up, fenced, and made again from the archive."""
