"""Writes of base tables: what an operation comes to, on its own table and on those that foreign keys reach."""
