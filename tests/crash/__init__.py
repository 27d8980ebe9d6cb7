"""Servers that are killed: what was acknowledged is there afterwards, once; what was not is there whole or not at all.

``rounds`` kills a real server process under load again and again; ``test_crash_points`` copies the data directory at
every point between the steps of a migration and opens each copy.
"""
