"""Migrations: in turn, step by step, with their progress; ``bulk/`` computes a full part outside of what serves."""
