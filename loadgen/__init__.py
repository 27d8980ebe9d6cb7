"""Workloads: what an application would ask of Headrace, without an application.

The room stands outside the house. It knows Headrace by its public faces only (HTTP, SQL text, plain rows) and imports
nothing of it, so that whatever is measured or shown with it is what any client would see::

    lobsters/   schema, views, page queries and rows of a news site ──► headrace demo, tests, load runs

Rows come out of a seed, in the published sizes and shapes of the real site: a few stories get most of the votes, and
most get few.
"""
