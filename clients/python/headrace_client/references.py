"""Values in a key of ``lookups`` that come from the answer of a look-up before it, in the same request.

::

    db.lookups([("StoryByName", [["abc"]]), ("VotesOn", [[first(0, "id")]])])

The first argument is the place of that look-up, from 0 on, the second a column of its view.
"""

from __future__ import annotations


class Reference(dict[str, tuple[int, str]]):
    """As the server takes it; a type of its own, so that a key by name is not taken for one."""


def first(place: int, column: str) -> Reference:
    """The value in the first row; NULL where there is none."""
    return Reference(first=(place, column))


def all_of(place: int, column: str) -> Reference:
    """The values in all rows, each once, as the list of an IN parameter."""
    return Reference(all=(place, column))


def each(place: int, column: str) -> Reference:
    """Makes a key for each row; several in one key are of the same row."""
    return Reference(each=(place, column))
