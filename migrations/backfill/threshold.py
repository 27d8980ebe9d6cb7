"""From how many base rows on a full part is computed in bulk. By itself: settings know it, and nothing else here."""

SPARK_THRESHOLD = 1_000_000
"""Base rows. Slices in the worker do that in some ten seconds, in which a JVM has hardly started; a job reads the rows
elsewhere, so that above it the worker's core is spared."""
