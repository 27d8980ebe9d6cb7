"""Shards whose disk is lost: given up, fenced, and rebuilt from the archive."""
