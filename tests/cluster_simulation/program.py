"""What the clients of one simulation do: tables, views, and statements, drawn from the seed.

There are two kinds of tables. Those of the *ledger* are only inserted into, each row under a number of its own, so that
of every row it can be said whether it may, must or must not be there, and of every answer whether it can ever have been
true. Those of the *campaign* are tables, views and writes of any sort (``tests/campaign``): what they must come to is
the judge's to say, at the end, over the rows that are stored then.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

MARKS = "CREATE TABLE marks (id INT PRIMARY KEY, who INT, box INT)"
TAGS = "CREATE TABLE tags (id INT, who INT)"

LEDGER_VIEWS = {
    "marks_of": "SELECT id, who, box FROM marks WHERE who = ?",
    "marks_in": "SELECT id, who FROM marks WHERE box = ? AND who = ?",
    "tags_of": "SELECT id FROM tags WHERE who = ?",
    "count_of": "SELECT who, COUNT(*) AS n FROM tags WHERE who = ? GROUP BY who",
    "sum_of": "SELECT box, SUM(who) AS s, COUNT(*) AS n FROM marks WHERE box = ? GROUP BY box",
    "all_tags": "SELECT id, who FROM tags",
    "total": "SELECT COUNT(*) AS n, MAX(id) AS m FROM marks",
    "pairs": "SELECT m.id AS a, t.id AS b FROM marks m JOIN tags t ON m.who = t.who WHERE m.box = ?",
    "loose": "SELECT m.id AS a, t.id AS b FROM marks m LEFT JOIN tags t ON m.id = t.id WHERE m.who = ?",
    "newest": "SELECT id, box FROM marks WHERE who = ? ORDER BY id DESC LIMIT 3",
    "counts": "SELECT who, COUNT(*) AS n FROM tags GROUP BY who",
    "boxes": "SELECT DISTINCT box FROM marks WHERE who = ?",
    "both": "SELECT u.id FROM (SELECT id, who FROM marks UNION ALL SELECT id, who FROM tags) u WHERE u.who = ?",
}
"""Text that both MySQL's dialect and SQLite take, for the oracle."""

_SHOWS = {
    "marks_of": ("marks", (1,)),
    "marks_in": ("marks", (2, 1)),
    "tags_of": ("tags", (1,)),
    "shelf_of": ("tags", (1,)),
    "all_tags": ("tags", ()),
}

PEOPLE, BOXES = 4, 3


@dataclass(frozen=True, slots=True)
class LedgerView:
    name: str
    sql: str
    written: str = ""
    """As the view is made, where that is not over the tables themselves."""

    @property
    def shows(self) -> tuple[str, tuple[int, ...]] | None:
        """Where its rows are rows of one ledger table, the number first: that table, and the columns asked for."""
        return _SHOWS.get(self.name)

    @property
    def parameters(self) -> int:
        return self.sql.count("?")

    def create(self) -> str:
        return f"CREATE {'EXT ' if not self.parameters else ''}VIEW {self.name} AS {self.written or self.sql}"

    def arguments(self, random: Random) -> tuple[int, ...]:
        return tuple(random.randrange(PEOPLE) for _ in range(self.parameters))

    def every_arguments(self) -> list[tuple[int, ...]]:
        found: list[tuple[int, ...]] = [()]
        for _ in range(self.parameters):
            found = [(*each, value) for each in found for value in range(max(PEOPLE, BOXES))]
        return found


SHELF = tuple(
    f"CREATE OR REPLACE VIEW shelf AS {text}"
    for text in (
        "SELECT id, who FROM tags",
        "SELECT id, who FROM tags WHERE id > 0",
        "SELECT who, id FROM tags GROUP BY id, who",
        "SELECT DISTINCT who, id FROM tags",
        "SELECT t.id, t.who FROM tags t JOIN tags u ON t.id = u.id",
    )
)
"""A view that others read, and what it is replaced by while they are read: the same rows, each out of other nodes."""

SHELF_VIEWS = tuple(
    LedgerView(name, text, text.replace("tags", "shelf"))
    for name, text in (
        ("shelf_of", "SELECT id FROM tags WHERE who = ?"),
        ("shelf_counts", "SELECT who, COUNT(*) AS n FROM tags GROUP BY who"),
    )
)


def ledger_tables(random: Random, shards: int) -> list[str]:
    """``tags`` is a bag, and may be spread by any column, or not at all."""
    if shards == 1:
        return [MARKS, TAGS]
    return [MARKS, TAGS + random.choice(("", " SHARD BY (who)", " SHARD BY (id) SHARDS 1", " SHARD BY (who) SHARDS 2"))]


def ledger_views(random: Random, count: int) -> list[LedgerView]:
    return [LedgerView(name, LEDGER_VIEWS[name]) for name in random.sample(list(LEDGER_VIEWS), count)]
