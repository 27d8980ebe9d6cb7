"""Migrations: one after the other, step by step, with progress; ``bulk/`` computes full state beside the workers."""
