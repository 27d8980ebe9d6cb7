"""A text that differs from earlier ones in constants only means what it means when it is parsed, errors included."""

from __future__ import annotations

import random
from typing import Any

import pytest

from migrations.parse.reading import qualified
from migrations.statements.prepared import CHARACTERS_KEPT, TEXTS_KEPT, PreparedStatement, prepared_of
from migrations.statements.texts_of_shape import QualifiedShapes, StatementOfShape, TextsOfShape
from tests.migrations.statement_catalog import CATALOG, NOW

KNOWN = [
    "UPDATE stories SET score = score - {} WHERE id = {}",
    "UPDATE stories SET score = score - {} WHERE id = {} AND score >= {} AND NOT title = {}",
    "UPDATE `stories` SET `title` = {}, made = NOW(), score = ({} + score) * -{} WHERE `stories`.`id` IN ({}, {})",
    "update stories as s set s.title = {} where s.author between {} and {} or s.made < {} or s.title is null",
    "INSERT INTO stories (author, title, score) VALUES ({}, {}, {})",
    "INSERT INTO stories VALUES ({}, {}, {}, {}, {}), (NULL, {}, DEFAULT, -{}, NOW())",
    "INSERT IGNORE INTO log (day, body, weight) VALUES ({}, {}, {})",
    "REPLACE INTO log VALUES ({}, {}, {})",
    "INSERT INTO votes VALUES ({}, {}) ON DUPLICATE KEY UPDATE user = {} + VALUES(user)",
    "DELETE FROM votes WHERE user = {} AND story_id <> {}",
    "BEGIN; UPDATE stories SET score = {} WHERE id = {};\n\tSAVEPOINT a1; DELETE FROM log WHERE day = {}; COMMIT",
    "DELETE FROM nowhere; UPDATE stories SET title = {} WHERE id = {}; UPDATE stories SET nothing = {}",
    "SELECT title FROM stories WHERE id = {}; UPDATE stories SET title = {} WHERE id = {}; SELECT {}, 7 FROM log;",
]
"""The texts whose constants are no part of what is remembered."""

PARSED = [
    "UPDATE stories SET title = {} WHERE id = {} LIMIT {}",
    "UPDATE stories SET title = UPPER({}) WHERE id = {}",
    "UPDATE stories SET title = x{} WHERE id = {}",
    "UPDATE stories SET made = DATE {} WHERE id = {}",
    "UPDATE stories SET made = made + INTERVAL {} DAY WHERE id = {}",
    "UPDATE stories SET score = CAST({} AS DECIMAL({}, 2)) WHERE id = 1",
    "UPDATE stories SET title = {} /* {} */ WHERE id = {}",
    "UPDATE stories SET title = {} /*!{} , author = {} */ WHERE id = 1",
    "UPDATE stories SET title = {} WHERE id = {} -- {}",
    "/* DELETE FROM log */ DELETE FROM log; DELETE FROM votes WHERE user = {}",
    'UPDATE stories SET title = "{}" WHERE id = {}',
    "UPDATE stories SET title = {} {} WHERE id = 1",
    "UPDATE stories SET title = 'a''{}' WHERE id = {}",
    "UPDATE stories SET title = {} WHERE id = ? AND author = {}",
    "UPDATE stories SET title = @a WHERE id = {}",
    "UPDATE stories SET score = RAND() WHERE id = {}",
    "UPDATE stories SET made = NOW({}) WHERE id = {}",
    "UPDATE stories SET title = {} WHERE id = (SELECT MAX(user) FROM votes WHERE user < {})",
    "INSERT INTO votes SELECT {}, {}",
    "DELETE FROM votes WHERE user = {}; SET autocommit = {}",
    "DELETE FROM votes WHERE user = {}; SET @a = {}",
    "DELETE FROM votes WHERE user = {}; KILL {}",
    "DELETE FROM votes WHERE user = {}; CREATE TABLE t (a CHAR({}))",
    "SELECT title FROM stories WHERE id = {} AND author = {}",
]
"""Those that are parsed each time."""

CONSTANTS = [
    *(
        "0",
        "1",
        "7",
        "12",
        "007",
        "99999",
        "2147483648",
        "999999999999999999",
        "9223372036854775807",
        "1" * 30,
        "1" * 70,
    ),
    *("1.5", "1.50", "0.10", ".5", "5.", "12345.678", "1e3", "1.5E-2", "0x41", "x'41'", "b'101'", "N'a'", "_utf8'a'"),
    *("''", "'x'", "'7'", "'7.5'", "' 8 '", "'a long text, longer than its column'", "'2026-01-31'", "'2026-13-31'"),
    *(
        "'2026-1-2 3:04:05'",
        "'it''s'",
        r"'a\'b'",
        "'a;b'",
        "'?'",
        "'--'",
        "'/*'",
        "'\n'",
        "'€ 😀'",
        '"q"',
        "'`'",
        "'@a'",
    ),
    *(
        "NULL",
        "TRUE",
        "-3",
        "- 3",
        "+4",
        "1 + 1",
        "'a' 'b'",
        "٣",
        "DEFAULT",
        "id",
        "(SELECT 1)",
        "1, 1",
        "1; COMMIT",
        "?",
    ),
]
PLAIN = ["7", "1.50", "'x'"]


def outcome(meant: Any) -> str:
    try:
        return repr(meant())
    except Exception as error:
        return f"{type(error)} {error!s} {getattr(error, 'hint', None)}"


def learnt(template: str, constants: list[str]) -> TextsOfShape:
    texts, sql = TextsOfShape(), template.format(*constants)
    for _ in range(2):
        assert texts.statements(sql) is None
        texts.learn(sql, prepared_of(sql))
    return texts


def meant(statements: list[PreparedStatement]) -> list[str]:
    return [
        f"{each.parsed.sql}: {outcome(lambda each=each: each.interpret(CATALOG, (), NOW))}"
        if each.parsed.transaction is None
        else f"{each.parsed.transaction}"
        for each in statements
    ]


@pytest.mark.parametrize("template", [*KNOWN, *PARSED])
@pytest.mark.parametrize("seed", range(4))
def test_a_text_of_a_known_shape_means_what_it_says(template: str, seed: int) -> None:
    """Whatever the constants are that the shape was learnt of, and those that it comes with."""
    rng = random.Random(f"{seed} {template}")
    places = template.count("{}")
    for _ in range(8):
        first = [rng.choice(PLAIN if rng.random() < 0.8 else CONSTANTS) for _ in range(places)]
        try:
            texts = learnt(template, first)
        except Exception:
            continue  # It is no statement at all.
        for _ in range(12):
            # Of the same kinds mostly, else it is another shape.
            given = [
                rng.choice([each, *CONSTANTS] if rng.random() < 0.2 else OF_KIND.get(each, [each])) for each in first
            ]
            sql = template.format(*given)
            found = texts.statements(sql)
            if found is not None:
                assert meant(found) == meant(prepared_of(sql))
                assert [(a.is_write, a.reads, a.defines, a.in_transactions) for a in found] == [
                    (b.is_write, b.reads, b.defines, b.in_transactions) for b in prepared_of(sql)
                ]


OF_KIND = {
    "7": [each for each in CONSTANTS if each.isdecimal() and each.isascii()],
    "1.50": [each for each in CONSTANTS if each.replace(".", "", 1).isdecimal() and "." in each],
    "'x'": [each for each in CONSTANTS if each.startswith("'")],
}


@pytest.mark.parametrize("template", KNOWN)
def test_the_common_forms_are_known(template: str) -> None:
    places = template.count("{}")
    texts = learnt(template, ["7"] * places)
    sql = template.format(*map(str, range(10, 10 + places)))
    assert texts.knows(sql)
    assert any(isinstance(each, StatementOfShape) for each in texts.statements(sql) or ())
    assert not texts.knows(template.format(*["'7'"] * places)), "a text is no number"


@pytest.mark.parametrize("template", PARSED)
def test_other_forms_are_parsed(template: str) -> None:
    texts, sql = TextsOfShape(), template.format(*["'7'" if "x{}" in template else "7"] * template.count("{}"))
    for _ in range(3):
        texts.learn(sql, outcome_statements(sql))
        assert texts.statements(sql) is None


def outcome_statements(sql: str) -> list[PreparedStatement]:
    try:
        return prepared_of(sql)
    except Exception:
        return []


IN_DATABASES = [
    "SELECT * FROM orders o JOIN shop.items i ON i.id = o.item WHERE o.id = {} AND o.name = {}",
    "SELECT `orders`.`a` FROM `orders` WHERE `id` IN ({}, {}) AND b = (SELECT MAX(b) FROM items WHERE c < {})",
    "INSERT INTO orders VALUES ({}, {}, {})",
    "SELECT `'` FROM orders, `{}`, items WHERE a = '`' OR b = {} OR c = '`, `' OR `d` = {}",
    'SELECT "{}" FROM orders WHERE a = {}',
    "SELECT 1 /* {} */ FROM orders WHERE a = {} -- {}",
    "SELECT N'{}' FROM orders WHERE a = {}",
    "UPDATE orders SET a = {} WHERE b = {}; DELETE FROM items WHERE a = {}",
]


@pytest.mark.parametrize("template", IN_DATABASES)
def test_a_text_says_the_same_in_another_database_whatever_its_constants_are(template: str) -> None:
    rng, known = random.Random(template), 0
    shapes = QualifiedShapes()
    odd = [*CONSTANTS, "' FROM nowhere, `'", "'`'", "'`, x'", "` FROM x, `", "'", "`"]
    for number in range(200):
        sql = template.format(*[rng.choice(PLAIN if number % 2 else odd) for _ in range(template.count("{}"))])
        for schema in ("shop", "other"):
            said, whole = shapes.said(sql, schema), outcome(lambda: qualified(sql, schema))  # noqa: B023  Called at once.
            assert said is None or repr(said) == whole
            known += said is not None
            if said is None and whole.startswith(("'", '"')):
                shapes.learn(sql, schema, qualified(sql, schema))
    assert known > 50 or template not in IN_DATABASES[:3]


@pytest.mark.parametrize(
    "template", ["SELECT `'`, a.x FROM {} a JOIN shop.b AS `'` WHERE c = 1", "SELECT N' ', x FROM {} a WHERE b = '1'"]
)
def test_what_looks_like_a_constant_and_has_names_in_it_is_none(template: str) -> None:
    shapes, with_names, without = QualifiedShapes(), template.format("shop.a"), template.format("a")
    shapes.learn(with_names, "shop", qualified(with_names, "shop"))
    assert shapes.said(without, "shop") is None
    assert qualified(without, "shop") == template.format("`shop`.a")


def test_shapes_are_remembered_and_the_oldest_are_forgotten() -> None:
    texts = learnt("DELETE FROM votes WHERE user = {}", ["7"])
    for number in range(TEXTS_KEPT - 1):
        sql = f"DELETE FROM votes{number}{'x' * 300} WHERE user = 1"
        texts.learn(sql, prepared_of(sql))
        assert texts.statements("DELETE FROM votes WHERE user = 9") is not None, "it was used lately"
    assert len(texts._known) < TEXTS_KEPT
    assert texts._characters == sum(map(len, texts._known)) <= CHARACTERS_KEPT
