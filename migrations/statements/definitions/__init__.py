"""Definitions: CREATE, ALTER and DROP of tables, indexes and views, from their syntax to a new schema."""
