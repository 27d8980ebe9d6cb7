"""The Lobsters program as SQL text: base tables, natural views and page queries, in the order to run them in."""

from __future__ import annotations

from importlib.resources import files

TABLES = (
    "users",
    "tags",
    "stories",
    "taggings",
    "comments",
    "votes",
    "read_ribbons",
    "tag_filters",
    "hidden_stories",
    "saved_stories",
    "hats",
    "keystores",
    "suggested_taggings",
    "suggested_titles",
    "invitations",
    "invitation_requests",
    "hat_requests",
    "messages",
    "moderations",
)
"""The base tables, each after those that its rows point to."""


def _read(name: str) -> str:
    return files("lobsters").joinpath(name).read_text(encoding="utf-8")


def schema() -> str:
    """``CREATE TABLE`` for each of :data:`TABLES`."""
    return _read("schema.sql")


def natural_views() -> str:
    """``CREATE VIEW`` for what the pages' queries are built on: votes, scores, hotness, karma, replies."""
    return _read("natural_views.sql")


def page_queries() -> str:
    """``CREATE EXT VIEW`` for each query of a page, with ``?`` for what the page asks by."""
    return _read("page_queries.sql")


def page_views() -> tuple[str, str]:
    """The files of the variant whose pages are one answer each: a view after the natural ones, and the queries."""
    views, queries = _read("page_views.sql").split("-- Queries", 1)
    return views, "--" + queries


def hand_optimised() -> tuple[str, str]:
    """The files of the variant with counters: ``ALTER TABLE`` statements after the schema, and the queries that
    differ."""
    columns, queries = _read("hand_optimised.sql").split("-- Queries", 1)
    return columns, "--" + queries


def fill_counters() -> str:
    """``UPDATE`` statements that compute the counters from the natural views; for databases."""
    return _read("fill_counters.sql")


def database_indexes(variant: str) -> str:
    """``CREATE INDEX`` statements for the queries of ``natural`` or ``hand-optimised`` in a database."""
    natural, optimised = _read("database_indexes.sql").split("-- natural", 1)[1].split("-- hand-optimised", 1)
    return "--" + (natural if variant == "natural" else optimised)


def program() -> str:
    """All of it, in the order in which it can be run."""
    return "\n".join((schema(), natural_views(), page_queries()))
