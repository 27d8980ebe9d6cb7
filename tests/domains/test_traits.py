"""The table of operator traits is whole, and nobody beside it asks an operator for its class."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from domains.plan.graph import MERGED, AggregateFunction, Operator
from domains.plan.questions import Traits
from domains.plan.traits import TRAITS
from tests.test_house import FILES, name_of, tree_of

OPERATORS = {each.__name__ for each in get_args(Operator)}
MAY_ASK = (
    "domains/plan/traits.py",
    "domains/engine/vertices.py",  # It makes the running operator of the one that is data.
    "migrations/query/plan.py",  # It makes operators out of operators: filters merge.
    "migrations/query/plans/pruning.py",  # Likewise: joins narrow.
    "migrations/query/plans/monotone.py",  # It reads the expressions of projections.
)


def operators_named(pattern: ast.AST, names: dict[str, str]) -> set[str]:
    """The operators' classes that an expression names, imported one by one or with the module ``graph``."""
    direct = {names[node.id] for node in ast.walk(pattern) if isinstance(node, ast.Name) and node.id in names}
    through = {
        node.attr
        for node in ast.walk(pattern)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and names.get(node.value.id) == "graph"
    }
    return (direct | through) & OPERATORS


def imported_from_graph(tree: ast.Module) -> dict[str, str]:
    """By the name that stands in the file, what it is in ``domains/plan/graph.py``."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "domains.plan.graph":
            found.update({alias.asname or alias.name: alias.name for alias in node.names})
        if isinstance(node, ast.ImportFrom) and node.module == "domains.plan":
            found.update({alias.asname or "graph": "graph" for alias in node.names if alias.name == "graph"})
    return found


def questions(tree: ast.Module) -> Iterator[int]:
    """The lines that ask for the class of an operator: ``isinstance``, ``type(…) is``, ``match``."""
    names = imported_from_graph(tree)
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("isinstance", "issubclass")
        ):
            asked: ast.AST = node.args[1]
        elif isinstance(node, ast.Compare):
            asked = node
        elif isinstance(node, ast.MatchClass):
            asked = node.cls
        else:
            continue
        if operators_named(asked, names):
            yield asked.lineno  # type: ignore[attr-defined]


def guesses(tree: ast.Module) -> Iterator[int]:
    """The lines of ``case _`` that are neither ``assert_never`` nor an error."""
    for node in ast.walk(tree):
        if isinstance(node, ast.match_case) and ast.unparse(node.pattern) == "_" and node.guard is None:
            last = node.body[-1]
            if not ast.unparse(last).startswith(("assert_never(", "raise ")) and not raises(last):
                yield node.pattern.lineno


def raises(statement: ast.stmt) -> bool:
    """``return SomeError(…)`` of a function that translates errors."""
    value = statement.value if isinstance(statement, ast.Return) else None
    return isinstance(value, ast.Call) and ast.unparse(value.func).endswith("Error")


def unclosed(tree: ast.Module) -> Iterator[int]:
    """The lines of each ``match`` over operators that does not end in ``assert_never``."""
    names = imported_from_graph(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Match) or not any(operators_named(case.pattern, names) for case in node.cases):
            continue
        if not ast.unparse(node.cases[-1].body[0]).startswith("assert_never("):
            yield node.lineno


def test_nobody_asks_an_operator_for_its_class() -> None:
    found = {name: lines for path in FILES if (lines := [*questions(tree_of(path))]) and (name := name_of(path))}
    assert not {name: lines for name, lines in found.items() if name not in MAY_ASK}
    assert set(found) == set(MAY_ASK), "a file that no longer asks goes off the list"


def test_a_match_over_operators_is_closed() -> None:
    assert not {name_of(path): lines for path in FILES if (lines := [*unclosed(tree_of(path))])}


def test_no_last_case_guesses() -> None:
    assert not {name_of(path): lines for path in FILES if (lines := [*guesses(tree_of(path))])}


def test_the_search_finds_what_it_looks_for() -> None:
    asking = """
from domains.plan import graph
from domains.plan.graph import Join as Both
a = isinstance(x, graph.TopK)
b = isinstance(x, int | Both)
c = type(x) is Both
match x:
    case graph.Filter(predicate=p):
        pass
    case _:
        d = None
"""
    tree = ast.parse(asking)
    assert sorted(questions(tree)) == [4, 5, 6, 8]
    assert list(guesses(tree)) == [10]
    assert list(unclosed(tree)) == [7]
    assert not list(questions(ast.parse("from x import Join\na = isinstance(x, Join)")))


def test_each_operator_answers_everything() -> None:
    assert set(TRAITS) == set(get_args(Operator))
    asked = {*Traits.__annotations__, *Traits.__abstractmethods__}
    for operator, traits in TRAITS.items():
        assert isinstance(traits, type)
        assert not {name for name in asked if not hasattr(traits, name)}, operator
        assert not traits.__abstractmethods__, operator


def test_each_aggregate_says_how_it_merges() -> None:
    assert set(MERGED) == set(AggregateFunction)


def test_the_engine_names_operators_as_the_table_does() -> None:
    """Each operator of the table has its line in the equations of ``graph.py``."""
    equations = (Path(__file__).parents[2] / "domains" / "plan" / "graph.py").read_text("utf-8").split('"""')[1]
    assert not {name for name in OPERATORS if name not in equations}
