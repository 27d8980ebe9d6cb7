"""``python -m tests.campaign.constants``: views with parameters beside the same SELECT with its values written out.

A view with parameters keeps them out of its state: as keys, as ranges, or in what is applied when it is read. A SELECT
with constants has none of that. Both have to come to one answer, and DuckDB, which shares no code with either, to the
same. Parameters stand anywhere: below EXISTS, IN, aggregates, DISTINCT, windows and set operations, in lists and
ranges, on each side of outer joins, in views that a view reads, each by itself or one several times (``:u``).
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from random import Random

import duckdb

from domains.errors import LimitExceeded, SqlError, Unsupported
from tests.campaign.nested import DEFINITIONS, DISTINCT_OF_NOTHING, TABLES, Bag, Writes, bag
from tests.campaign.simulated import simulated
from tests.campaign.subject import Setting, Subject

QUERIES, WRITES, READS = 14, 5, 3
MARK = re.compile(r":[uvwl]\b")
"""One value each; ``:l`` is a list."""
Values = list[int | list[int]]


class Drawn:
    """SELECTs of columns c0, c1 … over the tables and derived tables of ``nested.py``."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._aliases = 0

    def query(self) -> str:
        self._aliases = 0
        return self._block(self._random.choice((1, 2, 2, 3)), self._random.randint(1, 3), "", outermost=True)

    # --- a block ------------------------------------------------------------------------------------------------

    def _block(self, depth: int, width: int, outer: str, *, outermost: bool = False) -> str:
        """``outer``: a column of a query around that it compares with one of its own, if any."""
        random = self._random
        text, columns = self._from(depth)
        conditions = [self._condition(depth, columns) for _ in range(random.choice((0, 1, 1, 2)))]
        if outer:
            conditions.append(f"{random.choice(columns)} = {outer}")
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        shape = random.random()
        if shape < 0.3:
            items, behind = self._grouped(depth, width, columns)
        else:
            items, behind = [random.choice(columns) for _ in range(width)], ""
            if shape < 0.4:
                items[-1] = self._window(columns)
            elif shape < 0.5 and outermost:
                items[-1] = f"{random.choice(columns)} + :u"
            elif shape < 0.65 and depth > 1:
                items[-1] = self._scalar(depth, columns)
        shown = ", ".join(f"{item} AS c{at}" for at, item in enumerate(items))
        distinct = "DISTINCT " if random.random() < 0.12 and "ROLLUP" not in behind else ""
        whole = f"SELECT {distinct}{shown} FROM {text}{where}{behind}"
        if not outer and depth > 1 and random.random() < 0.12:
            word = random.choice(("UNION", "UNION ALL", "INTERSECT", "EXCEPT"))
            whole = f"{whole} {word} {self._block(depth - 1, width, '')}"
        elif random.random() < 0.1 and "ROLLUP" not in behind:
            whole += f" ORDER BY {', '.join(str(at + 1) for at in range(width))} LIMIT {random.randint(1, 3)}"
        return f"({whole})" if " LIMIT " in whole and not outermost else whole

    def _grouped(self, depth: int, width: int, columns: list[str]) -> tuple[list[str], str]:
        random = self._random
        groups = random.sample(columns, min(len(columns), random.choice((0, 1, 1, 2))))
        aggregates = [self._aggregate(columns) for _ in range(width)]
        having = random.choice(
            (
                f"{self._aggregate(columns)} > {random.randint(0, 2)}",
                f"{self._aggregate(columns)} >= :v",
                f"{(groups or aggregates)[0]} {random.choice(('=', '=', '<>', '<'))} :u",
            )
        )
        if groups and depth > 1 and random.random() < 0.3:
            having = f"{self._aggregate(columns)} >= {self._scalar(depth, groups)}"
        having = f" HAVING {having}" if random.random() < 0.4 else ""
        if not groups:
            return aggregates, having
        left = list(groups)
        items = [left.pop() if left and random.random() < 0.6 else aggregate for aggregate in aggregates]
        rolled = " WITH ROLLUP" if random.random() < 0.1 else ""
        return items, f" GROUP BY {', '.join(groups)}{rolled}{having}"

    def _aggregate(self, columns: list[str]) -> str:
        kinds = ("COUNT(*)", "COUNT({})", "SUM({})", "MIN({})", "MAX({})", "COUNT(DISTINCT {})")
        return self._random.choice(kinds).format(self._random.choice(columns))

    def _window(self, columns: list[str]) -> str:
        one, by, order = (self._random.choice(columns) for _ in range(3))
        function = self._random.choice(("RANK()", "COUNT(*)", f"SUM({one})", f"MIN({one})"))
        over = self._random.choice((f"PARTITION BY {by}", f"PARTITION BY {by} ORDER BY {order}", f"ORDER BY {order}"))
        return f"{function} OVER ({over}{' DESC' if 'ORDER' in over and self._random.random() < 0.5 else ''})"

    # --- FROM ---------------------------------------------------------------------------------------------------

    def _source(self, depth: int) -> tuple[str, list[str]]:
        self._aliases += 1
        alias = f"t{self._aliases}"
        if depth > 1 and self._random.random() < 0.4:
            width = self._random.randint(1, 2)
            inner = self._block(depth - 1, width, "")
            return f"({inner}) {alias}", [f"{alias}.c{at}" for at in range(width)]
        table = self._random.choice(list(TABLES))
        return f"{table} {alias}", [f"{alias}.{column}" for column in TABLES[table]]

    def _from(self, depth: int) -> tuple[str, list[str]]:
        random = self._random
        text, columns = self._source(depth)
        for _ in range(random.choice((0, 0, 1, 1, 2)) if depth > 1 else 0):
            if random.random() < 0.1:
                self._aliases += 1
                alias = f"t{self._aliases}"
                inner = self._block(depth - 1, 1, random.choice(columns))
                text += f" {random.choice(('LEFT JOIN', 'JOIN'))} LATERAL ({inner}) {alias} ON 1 = 1"
                columns = [*columns, f"{alias}.c0"]
                continue
            other, more = self._source(depth)
            kind = random.choice(("JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL OUTER JOIN"))
            on = f"{random.choice(columns)} = {random.choice(more)}"
            if random.random() < 0.25 and kind != "FULL OUTER JOIN":
                on += f" AND {random.choice((*columns, *more))} {random.choice(('=', '=', '<>', '>'))} {self._given()}"
            elif random.random() < 0.15 and kind == "JOIN":
                on += f" AND {random.choice((*columns, *more))} >= {self._scalar(depth, [*columns, *more])}"
            text += f" {kind} {other} ON {on}"
            columns = [*columns, *more]
        return text, columns

    # --- conditions ---------------------------------------------------------------------------------------------

    def _given(self) -> str:
        return self._random.choice((":u", ":u", ":v", ":w", str(self._random.randint(0, 3))))

    def _condition(self, depth: int, columns: list[str]) -> str:
        random, column = self._random, self._random.choice(columns)
        nested = random.random() < 0.35 and depth > 1
        if not nested:
            kinds = (
                *("{0} = {1}", "{0} = {1}", "{0} = {1}", "{0} > {1}", "{0} <= {1}", "{0} <> {1}", "{0} IN ({1}, 2)"),
                *("{0} IN (:l)", "{0} BETWEEN {1} AND {2}", "({0} = {1} OR {3} = 1)", "NOT ({0} < {1})"),
                *("{0} IS NULL", "{0} <=> {1}", "COALESCE({0}, 0) = {1}", "{0} + {1} > 2", "({0}, {3}) = ({1}, {2})"),
                "({0} = {3} AND {0} <> {1} OR {3} = {0} AND {3} > {2})",
                "({0} >= {3} OR {0} >= {3} AND {0} = {1})",
            )
            return random.choice(kinds).format(column, self._given(), self._given(), random.choice(columns))
        correlated = random.choice(("", column, column))
        negated = random.choice(("", "NOT "))
        if random.random() < 0.5:
            return f"{negated}EXISTS ({self._block(depth - 1, 1, correlated or column)})"
        if random.random() < 0.6:
            return f"{random.choice(columns)} {negated}IN ({self._block(depth - 1, 1, correlated)})"
        compared = random.choice(("=", "<", ">="))
        if random.random() < 0.3:
            inner = self._block(depth - 1, 1, correlated)
            return f"{column} {compared} {random.choice(('ANY', 'ALL'))} ({inner})"
        return f"{column} {compared} {self._scalar(depth, columns)}"

    def _scalar(self, depth: int, columns: list[str]) -> str:
        text, inner = self._from(depth - 1)
        condition = self._condition(depth - 1, inner)
        correlated = f" AND {self._random.choice(inner)} = {self._random.choice(columns)}"
        more = correlated if self._random.random() < 0.7 else ""
        return f"(SELECT {self._aggregate(inner)} FROM {text} WHERE {condition}{more})"


class Asked:
    """A query as a view, and as a SELECT of constants."""

    def __init__(self, sql: str, *, named: bool) -> None:
        self.sql, self.named = sql, named
        self.marks: list[str] = MARK.findall(sql)

    @property
    def view(self) -> str:
        """A list is a parameter by itself."""
        return self.sql if self.named else MARK.sub("?", self.sql)

    def values(self, random: Random) -> Values:
        """One for each parameter that is written, in the order of the text; one name has one value."""
        drawn: Values = []
        known: dict[str, int | list[int]] = {}
        for mark in self.marks:
            value: int | list[int] = (
                random.choices(range(4), k=random.randint(1, 3)) if mark == ":l" else (random.randint(0, 3))
            )
            drawn.append(known.setdefault(mark, value) if self.named else value)
        return drawn

    def written(self, values: Values) -> str:
        left = iter(values)

        def text(_: object) -> str:
            value = next(left)
            return ", ".join(map(str, value)) if isinstance(value, list) else str(value)

        return MARK.sub(text, self.sql)

    @property
    def below(self) -> Asked:
        """What reads the view of this one, and asks for more."""
        return Asked(f"SELECT v.c0 AS c0 FROM ({self.sql}) v WHERE v.c0 >= :w", named=self.named)


def for_duckdb(text: str) -> str:
    return text.replace("<=>", "IS NOT DISTINCT FROM")


class Round:
    """One subject and some queries, from one seed."""

    def __init__(self, seed: int, counts: Counter[str]) -> None:
        self.random, self.counts = Random(f"constants {seed}"), counts
        setting = Setting(seed, self.random.random() < 0.8, self.random.randint(1, 3), self.random.randint(1, 2))
        self.subject: Subject = simulated(setting)
        self.duck = duckdb.connect()
        self.duck.execute("SET default_null_order = 'nulls_first_on_asc_last_on_desc'; SET threads = 1")
        self.writes = Writes(self.random)
        self.views: dict[str, Asked] = {}

    def run(self) -> None:
        for statement in DEFINITIONS:
            self._execute(statement)
        for _ in range(12):
            self._write()
        drawn = Drawn(self.random)
        for number in range(QUERIES):
            self._create(f"V{number}", Asked(drawn.query(), named=self.random.random() < 0.5))
        for turn in range(READS):
            self._compare()
            for _ in range(WRITES if turn < READS - 1 else 0):
                self._write()
            self._disturb()
        self.subject.settle()
        self.subject.check()
        self._compare()
        self.duck.close()

    def _execute(self, statement: str) -> None:
        self.subject.execute(statement)
        self.duck.execute(statement)

    def _write(self) -> None:
        self._execute(self.writes.statement())
        if self.random.random() < 0.5:
            self.subject.step(self.random)

    def _disturb(self) -> None:
        draw = self.random.random()
        if draw < 0.5:
            self.subject.evict_some(self.random)
        elif draw < 0.6:
            self.subject.restart()

    def _create(self, name: str, asked: Asked) -> None:
        if not self._made(name, asked.view, asked) or self.random.random() > 0.3:
            return
        above = asked.below
        text = f"SELECT v.c0 AS c0 FROM {name} v WHERE v.c0 >= {':w' if asked.named else '?'}"
        self._made(f"On{name}", text, above)

    def _made(self, name: str, text: str, asked: Asked) -> bool:
        self.counts["asked"] += 1
        try:
            self.subject.execute(f"CREATE EXT VIEW {name} AS {text}")
        except (Unsupported, LimitExceeded, SqlError) as error:
            self.counts[f"refused: {str(error)[:110]}"] += 1
            self.counts["refused"] += 1
            return False
        except Exception as error:
            raise AssertionError(f"{text}\n{error!r}") from error
        self.views[name] = asked
        return True

    def _compare(self) -> None:
        for name, asked in self.views.items():
            values = asked.values(self.random)
            text = asked.written(values)
            self.subject.settle()
            try:
                answers = {"the view": self.subject.lookup(name, values)}
                answers["without one"] = self.subject.select_evaluated(text) or []
            except Unsupported as error:
                self.counts[f"refused with constants: {str(error)[:90]}"] += 1
                continue
            except Exception as error:
                raise AssertionError(f"{asked.sql}\n{text}\n{error!r}") from error
            self.counts["answers"] += 1
            self._judge(asked, text, {way: bag(rows) for way, rows in answers.items()})

    def _judge(self, asked: Asked, text: str, answers: dict[str, Bag]) -> None:
        expected = self._expected(text)
        if expected is not None:
            answers["DuckDB"] = expected
        if len({frozenset(rows.items()) for rows in answers.values()}) > 1:
            lines = "\n".join(f"{way}: {dict(rows)}" for way, rows in answers.items())
            raise AssertionError(f"{asked.view}\n{text}\n{lines}")

    def _expected(self, text: str) -> Bag | None:
        """DuckDB's answer; None where it errs, or has no such construct."""
        if DISTINCT_OF_NOTHING.search(text) or "ROLLUP" in text:  # Of no rows it has a sum, and in MySQL none.
            return None
        try:
            return bag(self.duck.execute(for_duckdb(text)).fetchall())
        except duckdb.Error as error:
            self.counts[f"DuckDB refused: {str(error)[:80]}"] += 1
            return None


def rounds(seeds: Iterable[int], counts: Counter[str]) -> Iterator[tuple[int, AssertionError | None]]:
    """Each seed's round, and what it found."""
    for seed in seeds:
        counts["rounds"] += 1
        try:
            Round(seed, counts).run()
        except AssertionError as error:
            yield seed, error
        else:
            yield seed, None


def campaign(seed: int, seconds: float, most: int) -> int:
    counts, found, until = Counter[str](), 0, time.monotonic() + seconds
    for number, finding in rounds(range(seed, sys.maxsize), counts):
        if finding is not None:
            found += 1
            again = f"python -m tests.campaign.constants --seed {number} --seconds 0.01"
            print(f"seed {number}: {finding}\n  again: {again}\n")
        if time.monotonic() > until or found >= most:
            break
    for what, count in counts.most_common(30):
        print(f"{count:8,} {what}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign.constants", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long")
    parser.add_argument("--seed", type=int, help="the first round's seed; drawn and printed without it")
    parser.add_argument("--failures", type=int, default=1, help="stop after so many findings")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1_000_000_000)
    print(f"views with parameters beside constants from seed {seed} for {options.seconds:.0f} s")
    return 1 if campaign(seed, options.seconds, options.failures) else 0


if __name__ == "__main__":
    sys.exit(main())
