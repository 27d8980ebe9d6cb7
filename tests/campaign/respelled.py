"""Collations, and JSON documents, judged by respelling: a table with a collation, whose texts are spelled at random,
beside a table in SQLite that has one spelling of each, compared by code point.

::

    ours    name VARCHAR(9) COLLATE utf8mb4_general_ci     'É', 'e ', 'ê' …   ─ answers, in one spelling ─┐
    SQLite  name TEXT                                      'e'                ─ answers ──────────────────┴─ equal
    ours    name JSON                                      1, 1.0, 1e0 …, beside '1'

Whatever compares texts by their keys then comes to what SQLite finds: = and <, IN, GROUP BY, DISTINCT, ORDER BY, joins,
set operations, windows, keys. What is shown of a group is besides the least spelling that it has, which a second column
tells: ``MIN(name COLLATE utf8mb4_bin)``.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

from domains.errors import ConstraintViolation, Unsupported
from domains.language.collating.collation import Collation
from tests.campaign.simulated import Simulated
from tests.campaign.subject import Setting

SPELLINGS: dict[Collation, dict[str, Sequence[str]]] = {
    Collation.GENERAL_CI: {"a": "aAáÀâ", "e": "eEéÊë", "o": "oOöÕ", "z": "zZž", "-": "-", "1": "1"},
    Collation.DOCUMENT: {each: (each, f"{each}.0", f"{each}0e-1") for each in "1235"},
    Collation.UCA_0900_AI_CI: {"-": "-", "1": "1１¹", "a": "aAáÀªⓐ", "e": "eEéÊ", "o": "oOöÕ", "z": "zZžＺ"},
}
"""Of each letter, in the collation's order, which for these is that of code points."""

WORDS = ("a", "e", "o", "z", "1", "-", "ae", "ea", "oz", "a-e", "")

NUMBERS = {"'ea'": "3", "'a'": "1", "'e'": "2", "'o'": "3"}
"""The numbers that stand for the texts of the views where ``name`` is a document."""
OF_DOCUMENTS = {
    "name COLLATE utf8mb4_bin": "CAST(name AS CHAR)",
    "AS r FROM t WHERE name = ?": "AS r FROM t WHERE n = ?",  # A document is no key, and decides of no window.
}

VIEWS = (
    "SELECT id, n FROM t WHERE name = ?",
    "SELECT id, n FROM t WHERE name IN (?)",
    "SELECT id FROM t WHERE name > ? ORDER BY name, id",
    "SELECT id FROM t WHERE n = ? ORDER BY name DESC, id LIMIT 3",
    "SELECT id, name FROM t WHERE name = 'ea' OR n > ?",
    "SELECT name, COUNT(*) AS c, SUM(n) AS s FROM t WHERE name = ? GROUP BY name",
    "SELECT name, COUNT(*) AS c, MAX(n) AS s FROM t GROUP BY name ORDER BY name",
    "SELECT n, MIN(name) AS low, MAX(name) AS high, COUNT(DISTINCT name) AS c FROM t WHERE n = ? GROUP BY n",
    "SELECT MIN(name) AS low, MAX(name) AS high, COUNT(DISTINCT name) AS c FROM t",
    "SELECT DISTINCT name, n FROM t WHERE n = ?",
    "SELECT DISTINCT name FROM t",
    "SELECT name, COUNT(*) AS c FROM u GROUP BY name",
    "SELECT t.id, u.id AS other FROM t JOIN u ON t.name = u.name",
    "SELECT t.id, u.id AS other FROM t JOIN u ON t.name = u.name WHERE t.name = ?",
    "SELECT t.id, u.id AS other FROM t JOIN u ON t.name = u.name WHERE u.n = ?",
    "SELECT t.id, u.id AS other FROM t LEFT JOIN u ON t.name = u.name AND u.n > 1 WHERE t.n = ?",
    "SELECT t.id, u.id AS other FROM t FULL OUTER JOIN u ON t.name = u.name AND t.n = u.n",
    "SELECT u.name, COUNT(t.id) AS c FROM u LEFT JOIN t ON t.name = u.name WHERE u.name = ? GROUP BY u.name",
    "SELECT id FROM t WHERE n = ? AND name IN (SELECT name FROM u)",
    "SELECT id FROM t WHERE n = ? AND NOT EXISTS (SELECT 1 FROM u WHERE u.name = t.name)",
    "SELECT id, (SELECT COUNT(*) FROM u WHERE u.name = t.name) AS c FROM t WHERE n = ?",
    "SELECT name FROM t WHERE n = 1 UNION SELECT name FROM u",
    "SELECT name FROM t INTERSECT SELECT name FROM u",
    "SELECT name FROM t EXCEPT SELECT name FROM u WHERE n > 1",
    "SELECT id, ROW_NUMBER() OVER (PARTITION BY name ORDER BY id) AS r FROM t WHERE name = ?",
    "SELECT id, RANK() OVER (PARTITION BY n ORDER BY name) AS r FROM t WHERE n = ?",
    "SELECT d.name, d.c FROM (SELECT name, COUNT(*) AS c FROM t GROUP BY name) AS d WHERE d.name = ?",
    "SELECT d.name, SUM(d.c) AS c FROM (SELECT name, n, COUNT(*) AS c FROM t GROUP BY name, n) AS d GROUP BY d.name",
    "SELECT id, CASE name WHEN 'a' THEN 1 WHEN 'e' THEN 2 ELSE 3 END AS k FROM t WHERE n = ?",
    "SELECT id FROM t WHERE n = ? AND name BETWEEN 'a' AND 'o'",
)
LEAST = (
    "SELECT name, MIN(name COLLATE utf8mb4_bin) AS least FROM t WHERE name = ? GROUP BY name",
    "SELECT name, MIN(name COLLATE utf8mb4_bin) AS least FROM t GROUP BY name",
    "SELECT n, name, MIN(name COLLATE utf8mb4_bin) AS least FROM t WHERE n = ? GROUP BY n, name",
)


class Respelled:
    """One run: two tables, all views, and writes."""

    def __init__(self, seed: int, collation: Collation) -> None:
        self.random = Random(f"respelled {seed} {collation}")
        self._spellings = SPELLINGS[collation]
        self._letters = {each: letter for letter, spelled in self._spellings.items() for each in spelled}
        self._pads = collation is Collation.GENERAL_CI
        partial, domains, shards = self.random.random() < 0.75, self.random.randint(1, 3), self.random.choice((1, 1, 3))
        self.subject = Simulated(Setting(seed, partial, domains, shards))
        self.judge = sqlite3.connect(":memory:", isolation_level=None)
        self.reads = 0
        self._is_json = collation is Collation.DOCUMENT
        self._words = tuple(self._spellings) if self._is_json else WORDS
        keyed = self.random.random() < 0.5 and not self._is_json
        for table, key in (("t", "id INT PRIMARY KEY, n INT"), ("u", "id INT, n INT")):
            unique = ", PRIMARY KEY (name, id)" if table == "u" and keyed else ""
            text = f"name VARCHAR(9) COLLATE {collation}" + (" NOT NULL" if unique else "")
            text = "name JSON" if self._is_json else text
            spread = " SHARD BY (name)" if self._is_json and table == "u" and self.random.random() < 0.5 else ""
            self.subject.execute(f"CREATE TABLE {table} ({key}, {text}{unique}){spread}")
            self.judge.execute(f"CREATE TABLE {table} ({key}, name TEXT{unique})")
        self.keyed = keyed
        for number, text in enumerate((*VIEWS, *LEAST)):
            self.subject.execute(f"CREATE VIEW V{number} AS {self._of_numbers(text)}")

    def _of_numbers(self, text: str, *, quoted: bool = False) -> str:
        if not self._is_json:
            return text
        numbers = {word: f"'{number}'" if quoted else number for word, number in NUMBERS.items()}
        for word, written in (numbers | OF_DOCUMENTS).items():
            text = text.replace(word, written)
        return text

    def spelled(self, word: str) -> str:
        text = "".join(self.random.choice(tuple(self._spellings[letter])) for letter in word)
        return text + " " * self.random.randrange(2) if self._pads else text

    def letters(self, row: Iterable[Any]) -> tuple[Any, ...]:
        """A row with one spelling of each text."""
        if self._is_json:
            return tuple(value[:1] if isinstance(value, str) else value for value in row)
        return tuple(
            "".join(self._letters[each] for each in (value.rstrip(" ") if self._pads else value))
            if isinstance(value, str)
            else value
            for value in row
        )

    def run(self, steps: int) -> None:
        for _ in range(steps):
            random = self.random
            act = random.choices(("write", "read", "evict", "step", "restart"), (5, 6, 1, 3, 0.2))[0]
            if act == "write":
                self._write()
            elif act == "read":
                self._read(random.randrange(len(VIEWS) + len(LEAST)))
            elif act == "evict":
                self.subject.evict_some(random)
            elif act == "step":
                self.subject.step(random)
            else:
                self.subject.restart()
        self.subject.settle()
        self.subject.check()
        for number in range(len(VIEWS) + len(LEAST)):
            self._read(number)
        self.judge.close()

    def _write(self) -> None:
        random, table = self.random, self.random.choice("tu")
        word, other, number = random.choice(self._words), random.choice(self._words), random.randrange(4)
        kind = random.choices(("insert", "delete", "update", "number"), (6, 1, 2, 1))[0]
        if kind == "insert":
            id = random.randrange(40)
            texts = (f"INSERT INTO {table} (id, n, name) VALUES ({id}, {number}, {{0}})", word, other)
        elif kind == "delete":
            texts = (f"DELETE FROM {table} WHERE name = {{0}} AND n <> {number}", word, other)
        elif kind == "update":
            texts = (f"UPDATE {table} SET name = {{0}} WHERE id = {random.randrange(40)}", word, other)
        else:
            texts = (f"UPDATE {table} SET n = {number} WHERE name IN ({{0}}, {{1}})", word, other)
        text, *words = texts
        is_null = kind == "insert" and not (self.keyed and table == "u") and random.random() < 0.1
        ours = ["NULL" if is_null else f"'{self.spelled(each)}'" for each in words]
        ours = [f"CAST({each} AS JSON)" for each in ours] if self._is_json else ours
        theirs = ["NULL" if is_null else f"'{each}'" for each in words]
        refused = judged = False
        try:
            self.subject.execute(text.format(*ours))
        except Unsupported:
            return  # A row would move to another shard: the judge is not asked either.
        except ConstraintViolation:
            refused = True
        try:
            self.judge.execute(text.format(*theirs))
        except sqlite3.IntegrityError:
            judged = True
        assert refused is judged, f"{text.format(*ours)}: refused {refused}, judged {judged}"

    def _read(self, number: int) -> None:
        asked = (*VIEWS, *LEAST)[number]
        text = self._of_numbers(asked)
        word, values, bound = self.random.choice(self._words), [], []
        judged = self._of_numbers(asked, quoted=True)
        given = (lambda each: json.loads(self.spelled(each))) if self._is_json else self.spelled
        if "name = ?" in text or "name > ?" in text:
            values, bound = [given(word)], [word]
        elif "IN (?)" in text:
            words = self.random.choices(self._words, k=3)
            values, bound = [[given(each) for each in words]], words
            judged = judged.replace("(?)", "(?, ?, ?)")
        elif "?" in text:
            values = bound = [self.random.randrange(4)]
        if self.random.random() < 0.3:
            self.subject.lookup(f"V{number}", values)  # While updates are under way its answer is an earlier one.
            return
        self.subject.settle()
        rows = self.subject.lookup(f"V{number}", values)
        self.reads += 1
        again = self.subject.view_evaluated(f"V{number}", values)
        assert Counter(map(self.letters, rows)) == Counter(map(self.letters, again)), f"{text} {values}: without a view"
        if number >= len(VIEWS):
            self._check_least(text, rows)
            return
        expected = [tuple(row) for row in self.judge.execute(judged, bound)]
        found = [self.letters(row) for row in rows]
        in_order = " ORDER BY " in text and " OVER " not in text
        assert (found == expected) if in_order else Counter(found) == Counter(expected), (
            f"{text} {values}: {found}, not {expected}"
        )

    def _check_least(self, text: str, rows: Sequence[tuple[Any, ...]]) -> None:
        for row in rows:
            assert row[-1] == row[-2], f"{text}: shows {row[-2]!r} of a group with {row[-1]!r}"
