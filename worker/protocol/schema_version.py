"""A table's schema as one number, so that a write can say which one it was made for.

Whoever makes a write may know an older schema than the domain has, or a newer one that the domain is about to be told.
Rows made for one must not be stored under the other.
"""

from __future__ import annotations

from zlib import crc32

from domains.language.types import TableSchema

REMEMBERED = 10_000
"""Schemas whose numbers are kept: more than a deployment has tables, so that it is worked out once for each."""

_known: dict[int, tuple[TableSchema, int]] = {}
"""By identity, since a schema's hash would cost as much as its text. The schema is kept so that it stays its own."""


def version_of(schema: TableSchema) -> int:
    """The same in every process of one version of Headrace. From any thread."""
    found = _known.get(id(schema))
    if found is not None:
        return found[1]
    if len(_known) >= REMEMBERED:
        _known.clear()
    version = crc32(repr(schema).encode("utf-8", "backslashreplace"))
    _known[id(schema)] = (schema, version)
    return version
