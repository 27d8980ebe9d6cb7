"""Bulk backfill: stages, tasks, and who runs them."""
