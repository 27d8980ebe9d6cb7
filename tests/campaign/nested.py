"""Random SELECTs that nest: subqueries in every clause, LATERAL, windows, ROLLUP, set operations, joins of each kind.

All columns are small integers with NULLs, so that one text means the same to every judge. A query is asked as a full
view, as a view by one of its columns, and without a view (``beside.py``).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Any

DEFINITIONS = (
    "CREATE TABLE p (id INT PRIMARY KEY, a INT, b INT)",
    "CREATE TABLE q (id INT PRIMARY KEY, a INT, b INT)",
    "CREATE TABLE r (a INT, b INT)",
)
TABLES = {"p": ("id", "a", "b"), "q": ("id", "a", "b"), "r": ("a", "b")}
"""The last one is a bag."""
WINDOWS = (
    *("RANK() {over}", "DENSE_RANK() {over}", "COUNT(*) {over}", "SUM({}) {over}", "MIN({}) {over}", "MAX({}) {over}"),
    *("COUNT({}) {over}", "BIT_AND(COALESCE({}, 6)) {over}", "BIT_OR(COALESCE({}, 0)) {over}"),
    *("BIT_XOR(COALESCE({}, 1)) {over}", "ROUND(VAR_POP({}) {over}, 2)", "ROUND(STDDEV_POP({}) {over}, 2)"),
    "JSON_LENGTH(JSON_ARRAYAGG({}) {over})",
)
"""Window functions that stand for one of each kind of frame's upkeep; of ties only what does not depend on their order.
"""
VALUE = "JSON_VALUE({document}, '{path}' RETURNING SIGNED{on})"
VALUE_FOR_MARIADB = re.compile(
    r"JSON_VALUE\((.*?), '([^']*)' RETURNING SIGNED((?: DEFAULT '?\d+'? ON (?:EMPTY|ERROR))*)\)"
)
"""MariaDB's JSON_VALUE has a path and no more; its JSON_TABLE says the same of a column."""
FOR_DUCKDB = {"JSON_LENGTH(JSON_ARRAYAGG(": "LEN(LIST("}
DISTINCT_OF_NOTHING = re.compile(r"LATERAL \(SELECT DISTINCT (COUNT|SUM|MIN|MAX)\(")
"""Where no row is, it has one row of NULL, and DuckDB 2.0 none, unless it is behind LEFT JOIN."""
WINDOW_QUANTIFIED = re.compile(r"\b(?:ANY|ALL) \(SELECT (?:(?! FROM ).)* OVER \(")
"""MariaDB 10.11 loses rows of ``= ALL (SELECT MAX(x) OVER …)``, as it does of IN with a window function inside."""
CUT_IN_EXISTS = re.compile(r"EXISTS \((?:(?!EXISTS).)* (?:INTERSECT|EXCEPT) (?:ALL )?\(")
"""Of a set operation with a branch that has LIMIT it says that there are no rows, and by itself answers them."""
NO_NUMBER = re.compile(r"'\$\.l' RETURNING SIGNED(?![^)]* ON ERROR\))")
"""In its JSON_TABLE a text that is no number is 0 where nothing is said, and NULL in MySQL's."""
COMPARISONS = ("=", "=", "=", "<>", "<", "<=", ">", ">=")
Bag = Counter[tuple[Any, ...]]


def bag(rows: Iterable[Iterable[Any]]) -> Bag:
    return Counter(tuple(None if value is None else round(float(value), 3) for value in row) for row in rows)


class Writes:
    """Statements that change the tables."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._ids = 0

    def statement(self) -> str:
        random, table = self._random, self._random.choice(list(TABLES))

        def value() -> str:
            return random.choice(("NULL", "0", "1", "2", "3"))

        draw = random.random()
        if draw < 0.7:
            rows = []
            for _ in range(random.randint(1, 3)):
                self._ids += 1
                rows.append(f"({f'{self._ids}, ' if table != 'r' else ''}{value()}, {value()})")
            return f"INSERT INTO {table} VALUES {', '.join(rows)}"
        if draw < 0.85:
            return f"DELETE FROM {table} WHERE a = {value()} AND b <> {random.randint(0, 3)}"
        return f"UPDATE {table} SET b = {value()} WHERE a = {random.randint(0, 3)}"


@dataclass(frozen=True, slots=True)
class Nested:
    """A query of so many columns; ``by``: the column that a view of it is asked by."""

    before: str
    """Up to its WHERE, and that; another AND may follow."""
    behind: str
    by: str

    @property
    def whole(self) -> str:
        return self.before + self.behind

    def of(self, value: str) -> str:
        return f"{self.before} AND {self.by} = {value}{self.behind}"

    @property
    def is_beyond_mariadb(self) -> bool:
        if any(form.search(self.whole) for form in (WINDOW_QUANTIFIED, CUT_IN_EXISTS, NO_NUMBER)):
            return True
        # Of BIT_AND and VAR_POP over a frame MariaDB errs, or says few digits.
        return any(word in self.whole for word in ("LATERAL", "FULL OUTER", "JSON_ARRAYAGG", "BIT_AND", "VAR_POP"))

    @property
    def is_beyond_duckdb(self) -> bool:
        if DISTINCT_OF_NOTHING.search(self.whole):
            return True
        return any(word in self.whole for word in ("WITH ROLLUP", "JSON_TABLE", "JSON_VALUE"))


Columns = list[str]


class Nester:
    def __init__(self, random: Random) -> None:
        self.random = random
        self._aliases = 0

    def query(self) -> Nested:
        self._aliases = 0
        return self._block(self.random.randint(1, 3), self.random.randint(1, 3), [])

    def asked(self) -> str:
        """A query with parameters that an outer join asks for, or a subquery in any place; each ``?`` is a number."""
        self._aliases = 0
        random = self.random
        text, columns = self._from(1, [])
        conditions, items = list[str](), random.sample(columns, 1)
        for _ in range(random.choice((1, 1, 2))):
            other, more = self._source(1)
            match = f"{random.choice(columns)} = {random.choice(more)} AND {random.choice(more)} = ?"
            if random.random() < 0.3:
                match += f" AND {random.choice((*columns, *more))} {random.choice(COMPARISONS)} {random.choice(more)}"
            draw = random.random()
            if draw < 0.5:
                text += f" LEFT JOIN {other} ON {match}"
                items.append(random.choice(more))
                if random.random() < 0.4:
                    conditions.append(f"{random.choice(more)} IS {random.choice(('', 'NOT '))}NULL")
            elif draw < 0.7:
                conditions.append(f"NOT EXISTS (SELECT 1 FROM {other} WHERE {match})")
            elif draw < 0.85:
                conditions.append(f"(EXISTS (SELECT 1 FROM {other} WHERE {match}) OR {columns[0]} > 1)")
            else:
                items.append(f"(SELECT {self._aggregate(more)} FROM {other} WHERE {match})")
        if random.random() < 0.5:
            conditions.append(f"{random.choice(columns)} {random.choice(('=', '=', '>'))} ?")
        shown = ", ".join(f"{item} AS c{i}" for i, item in enumerate(items))
        return f"SELECT {shown} FROM {text} WHERE {' AND '.join(conditions) or '1 = 1'}"

    # --- a block ------------------------------------------------------------------------------------------------

    def _block(self, depth: int, width: int, outer: Columns) -> Nested:
        """A SELECT of ``width`` columns; ``outer`` are the columns of queries around that it may read."""
        random = self.random
        source, columns = self._from(depth, outer)
        seen = [*columns, *outer] if random.random() < 0.6 else columns
        conditions = [self._condition(depth, columns, seen) for _ in range(random.choice((0, 1, 1, 2)))]
        where = f" WHERE {' AND '.join(conditions) if conditions else '1 = 1'}"
        shape = random.random()
        if shape < 0.3:
            items, behind = self._grouped(depth, width, columns, outer)
        elif shape < 0.45:
            items, behind = [self._window(columns) if i == 0 else random.choice(columns) for i in range(width)], ""
        else:
            items, behind = [self._value(depth, columns, outer) for _ in range(width)], ""
        shown = ", ".join(f"{item} AS c{i}" for i, item in enumerate(items))
        distinct = "DISTINCT " if random.random() < 0.15 and "ROLLUP" not in behind else ""  # MariaDB errs there.
        if random.random() < 0.12 and "ROLLUP" not in behind:
            behind += f" ORDER BY {', '.join(str(i + 1) for i in range(width))} LIMIT {random.randint(1, 3)}"
        return Nested(f"SELECT {distinct}{shown} FROM {source}{where}", behind, random.choice(columns))

    def _subquery(self, depth: int, width: int, outer: Columns) -> str:
        if self.random.random() < 0.15:
            word = self.random.choice(("UNION", "UNION ALL", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL"))
            sides = (self._block(depth - 1, width, []) for _ in range(2))
            return f" {word} ".join(f"({side.whole})" if " LIMIT " in side.behind else side.whole for side in sides)
        return self._block(depth - 1, width, outer).whole

    def _grouped(self, depth: int, width: int, columns: Columns, outer: Columns) -> tuple[Columns, str]:
        random = self.random
        groups = random.sample(columns, min(len(columns), random.choice((0, 1, 1, 2))))
        aggregates = [self._aggregate(columns) for _ in range(width)]
        if not groups:
            return aggregates, ""
        # Each group once: of a second time MariaDB does not say NULL where ROLLUP leaves it out.
        left = list(groups)
        items = [left.pop() if left and random.random() < 0.6 else aggregate for aggregate in aggregates]
        rolled = " WITH ROLLUP" if random.random() < 0.15 and not outer else ""
        having = f" HAVING {self._aggregate(columns)} {random.choice(COMPARISONS)} {random.randint(0, 3)}"
        return items, f" GROUP BY {', '.join(groups)}{rolled}" + (having if random.random() < 0.4 else "")

    def _aggregate(self, columns: Columns) -> str:
        column = self.random.choice(columns)
        kinds = ("COUNT(*)", "COUNT({})", "SUM({})", "MIN({})", "MAX({})", "COUNT(DISTINCT {})", "BIT_OR({})")
        return self.random.choice(kinds[:-1]).format(column)

    def _window(self, columns: Columns) -> str:
        random = self.random
        function = random.choice(WINDOWS)
        column, by, order = (random.choice(columns) for _ in range(3))
        partition = f"PARTITION BY {by}" if random.random() < 0.7 else ""
        ordered = f" ORDER BY {order}{random.choice(('', ' DESC'))}"
        over = partition + (ordered if "RANK" in function or random.random() < 0.5 else "")
        return function.format(column, over=f"OVER ({over})")

    # --- FROM ---------------------------------------------------------------------------------------------------

    def _alias(self) -> str:
        self._aliases += 1
        return f"t{self._aliases}"

    def _source(self, depth: int) -> tuple[str, Columns]:
        alias = self._alias()
        if depth > 1 and self.random.random() < 0.2:
            width = self.random.randint(1, 2)
            text = self._subquery(depth, width, [])
            return f"({text}) {alias}", [f"{alias}.c{i}" for i in range(width)]
        if self.random.random() < 0.1:
            return self._constants(alias)
        table = self.random.choice(list(TABLES))
        return f"{table} {alias}", [f"{alias}.{column}" for column in TABLES[table]]

    def _constants(self, alias: str) -> tuple[str, Columns]:
        """Rows of a source that reads no table."""
        random, width = self.random, self.random.randint(1, 2)
        rows = [[str(random.randint(0, 3)) for _ in range(width)] for _ in range(random.randint(1, 3))]
        for row in rows[1:]:
            row[0] = random.choice((row[0], "NULL"))
        first, *rest = (", ".join(f"{value} AS c{i}" for i, value in enumerate(row)) for row in rows)
        union = random.choice(("UNION ALL", "UNION"))
        text = f" {union} ".join(f"SELECT {row}" for row in (first, *rest))
        return f"({text}) {alias}", [f"{alias}.c{i}" for i in range(width)]

    def _from(self, depth: int, outer: Columns) -> tuple[str, Columns]:
        random = self.random
        text, columns = self._unnested(outer) if outer and random.random() < 0.15 else self._source(depth)
        for _ in range(random.choice((0, 0, 1, 1, 2)) if depth > 0 else 0):
            if random.random() < 0.1:
                table, more = self._unnested(columns)
                kind = random.choice(("JOIN", "LEFT JOIN"))
                on = f"{random.choice((*columns, more[0]))} {random.choice(COMPARISONS)} {random.choice(more)}"
                text, columns = f"{text} {kind} {table} ON {random.choice(('1 = 1', on))}", [*columns, *more]
                continue
            if random.random() < 0.25:
                text, columns = self._lateral(depth, text, columns)
                continue
            other, more = self._source(depth)
            kind = random.choice(("JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL OUTER JOIN", "CROSS JOIN"))
            on = f"{random.choice(columns)} = {random.choice(more)}"
            if random.random() < 0.25 and kind != "FULL OUTER JOIN":
                on += f" AND {random.choice(columns)} {random.choice(COMPARISONS)} {random.choice(more)}"
            text += f" {kind} {other}" + ("" if kind == "CROSS JOIN" else f" ON {on}")
            columns = [*columns, *more]
        return text, columns

    def _unnested(self, columns: Columns) -> tuple[str, Columns]:
        """JSON_TABLE of a document that is made of columns, with a level in it or without."""
        random, alias = self.random, self._alias()
        x, y = (random.choice(columns) for _ in range(2))
        documents = (
            *(f"JSON_ARRAY({x}, {y})", f"JSON_ARRAY({x}, JSON_ARRAY({y}, 1, {x}), JSON_OBJECT('k', {y}))"),
            *(f"IF({x} > 1, NULL, JSON_ARRAY({x}))", f"""CONCAT('[', COALESCE({x}, 7), ', {{"k": ', {y}, '}}]')"""),
        )
        shown = [
            *("FOR ORDINALITY", "INT PATH '$'", "INT PATH '$.k' DEFAULT '5' ON EMPTY", "INT EXISTS PATH '$.k'"),
            *("INT PATH '$[1]' DEFAULT '2' ON EMPTY DEFAULT '3' ON ERROR", "INT PATH '$[0]'"),
        ]
        chosen = random.sample(shown, random.randint(1, 3))
        nested = random.sample(("FOR ORDINALITY", "INT PATH '$'"), random.choice((0, 0, 1, 2)))
        texts = [f"c{at} {column}" for at, column in enumerate((*chosen, *nested))]
        if nested:
            texts[len(chosen) :] = [f"NESTED PATH '$[*]' COLUMNS ({', '.join(texts[len(chosen) :])})"]
        document, path = random.choice(documents), random.choice(("$[*]", "$[*]", "$"))
        names = [f"{alias}.c{at}" for at in range(len(chosen) + len(nested))]
        return f"JSON_TABLE({document}, '{path}' COLUMNS ({', '.join(texts)})) {alias}", names

    def _lateral(self, depth: int, text: str, columns: Columns) -> tuple[str, Columns]:
        random, alias, width = self.random, self._alias(), self.random.randint(1, 2)
        block = self._block(depth - 1, width, columns)
        inner = block.whole
        if " LIMIT " not in block.behind and "GROUP" not in block.behind:
            inner = block.of(random.choice(columns))  # It reads at least one.
        kind = random.choice(("JOIN", "LEFT JOIN", "CROSS JOIN"))
        on = random.choice(("1 = 1", f"{alias}.c0 {random.choice(COMPARISONS)} {random.randint(0, 3)}"))
        on = "" if kind == "CROSS JOIN" else f" ON {on}"
        return f"{text} {kind} LATERAL ({inner}) {alias}{on}", [*columns, *(f"{alias}.c{i}" for i in range(width))]

    # --- expressions --------------------------------------------------------------------------------------------

    def _value(self, depth: int, columns: Columns, outer: Columns) -> str:
        random = self.random
        if depth > 0 and random.random() < 0.15:
            return self._scalar(depth, columns)
        if random.random() < 0.1:
            return f"COALESCE({random.choice(columns)}, {random.randint(0, 3)})"
        if outer and random.random() < 0.1:
            return random.choice(outer)
        if random.random() < 0.07:
            return self._of_document(columns)
        return random.choice(columns)

    def _of_document(self, columns: Columns) -> str:
        random = self.random
        x, y = (random.choice(columns) for _ in range(2))
        documents = (f"JSON_ARRAY({x}, JSON_ARRAY({y}))", f"JSON_OBJECT('k', {x}, 'l', IF({y} > 1, 'no', '2'))")
        on = random.choice(
            ("", " DEFAULT 7 ON EMPTY", " DEFAULT '8' ON ERROR", " DEFAULT 7 ON EMPTY DEFAULT 8 ON ERROR")
        )
        path = random.choice(("$[0]", "$[1]", "$.k", "$.l"))
        return VALUE.format(document=random.choice(documents), path=path, on=on)

    def _scalar(self, depth: int, outer: Columns) -> str:
        """One row in any case: an aggregate without GROUP BY, or the first row."""
        source, columns = self._from(depth - 1, outer)
        condition = self._condition(depth - 1, columns, [*columns, *outer])
        if self.random.random() < 0.25:
            first = self.random.choice(columns)
            return f"(SELECT {first} FROM {source} WHERE {condition} ORDER BY 1 LIMIT 1)"
        return f"(SELECT {self._aggregate(columns)} FROM {source} WHERE {condition})"

    def _condition(self, depth: int, columns: Columns, seen: Columns) -> str:
        random, column = self.random, self.random.choice(columns)
        draw = random.random()
        if depth < 1 or draw < 0.35:
            other = random.choice((random.choice(seen), str(random.randint(0, 3))))
            return f"{column} {random.choice(COMPARISONS)} {other}"
        if draw < 0.42:
            return f"{column} IS {random.choice(('', 'NOT '))}NULL"
        if draw < 0.5:
            left, right = (self._condition(depth - 1, columns, seen) for _ in range(2))
            return f"({left} {random.choice(('OR', 'AND'))} {right})"
        if draw < 0.54:
            return f"NOT ({column} {random.choice(COMPARISONS)} {random.choice(seen)})"
        negated = random.choice(("", "", "NOT "))
        if draw < 0.7:
            left = random.choice(seen)
            return f"{left} {negated}IN ({self._subquery(depth, 1, seen)})"
        if draw < 0.85:
            return f"{negated}EXISTS ({self._subquery(depth, 1, seen)})"
        if draw < 0.95:
            return f"{column} {random.choice(COMPARISONS)} {self._scalar(depth, seen)}"
        quantifier = random.choice(("ANY", "ALL"))
        return f"{column} {random.choice(COMPARISONS)} {quantifier} ({self._subquery(depth, 1, seen)})"
