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
    return files("loadgen.lobsters").joinpath(name).read_text(encoding="utf-8")


def schema() -> str:
    """``CREATE TABLE`` for each of :data:`TABLES`."""
    return _read("schema.sql")


def natural_views() -> str:
    """``CREATE VIEW`` for what the pages' queries are built on: votes, scores, hotness, karma, replies."""
    return _read("natural_views.sql")


def page_queries() -> str:
    """``CREATE EXT VIEW`` for each query of a page, with ``?`` for what the page asks by."""
    return _read("page_queries.sql")


def program() -> str:
    """All of it, in the order in which it can be run."""
    return "\n".join((schema(), natural_views(), page_queries()))
