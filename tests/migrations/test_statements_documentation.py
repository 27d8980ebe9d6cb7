"""docs/sql.md is run: what it calls supported is interpreted and planned, what it does not is refused by name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from domains.errors import HeadraceError, SqlSyntaxError, UnknownName, Unsupported
from domains.language.functions import FUNCTIONS
from migrations.catalog import Catalog
from migrations.information.planning import plan_information, reads_information
from migrations.joint_graph.graph import JointGraph
from migrations.parse.grammar import SCHEMA as SCHEMA_NAME
from migrations.parse.reading import makes_of_select
from migrations.query.view import plan_view
from migrations.statements.adhoc.shapes_of_selects import AdHoc, parameterise, verbatim
from migrations.statements.constants import count_placeholders, with_draws
from migrations.statements.definitions.selected import asked
from migrations.statements.interpret import interpret_one, split
from migrations.statements.statement import CreateView, Explain, PendingWrite, SelectStatement, Statement
from tests.migrations.statement_catalog import NOW, perform

TEXT = (Path(__file__).parents[2] / "docs" / "sql.md").read_text()
SCHEMA = re.search(r"```sql\n(.*?)```", TEXT, re.DOTALL)
assert SCHEMA is not None
CATALOG = perform(SCHEMA[1], Catalog())
EXAMPLES = re.findall(r"^\| (.+?) \| `([^`]+)` \| (.+?) \|$", TEXT, re.MULTILINE)
STATES = ("supported", "differs", "ours", "not supported")

OPERATORS = """
and or not xor in between like regexp case cast is_null is_not_null is_true is_false eq ne lt le gt ge null_safe_eq
add subtract multiply divide quotient int_divide modulo negate bit_and bit_or bit_xor bit_not shift_left shift_right
equal_to looked_up json_order json_key json_truth json_value_as json_element json_member json_member_of collate
alike_utf8mb4_general_ci alike_utf8mb4_0900_ai_ci
"""
NOT_CALLED = frozenset(OPERATORS.split())
"""Names of ``domains/functions`` that SQL writes as operators, or that only the planner writes."""


def understand(sql: str) -> None:
    for parsed in (with_draws(each, lambda _: 7) for each in split(sql)):
        if parsed.transaction is not None:
            continue
        if makes_of_select(parsed.expression):
            select = asked(parsed, CATALOG, (), NOW)
            assert select is not None
            plan_ad_hoc(select)
            continue
        statement = interpret_one(parsed, CATALOG, [1] * count_placeholders(parsed), NOW)
        for select in selects(statement):
            plan_ad_hoc(select)
        if isinstance(statement, CreateView):
            definition = statement.definition
            plan_view(CATALOG, JointGraph(), definition.name, definition.relation, columns=definition.columns)


def selects(statement: Statement) -> tuple[SelectStatement, ...]:
    match statement:
        case SelectStatement() as select:
            return (select,)
        case Explain(target=SelectStatement() as select):
            return (select,)
        case PendingWrite(subqueries=found):
            return found
        case _:
            return ()


def plan_ad_hoc(select: SelectStatement) -> None:
    def plan(view: AdHoc) -> None:
        plan_view(CATALOG, JointGraph(), view.name, view.definition().relation, drawn=True)

    if reads_information(select.query, SCHEMA_NAME):
        plan_information(select, SCHEMA_NAME)
        return
    try:
        plan(parameterise(select.query, CATALOG, select.params))
    except Unsupported:
        plan(verbatim(select.query, CATALOG, select.params))


@pytest.mark.parametrize(("construct", "sql", "state"), EXAMPLES, ids=[construct for construct, _, _ in EXAMPLES])
def test_an_example_is_in_the_state_that_the_page_says(construct: str, sql: str, state: str) -> None:
    assert state.startswith(STATES), construct
    if not state.startswith("not supported"):
        understand(sql)
        return
    with pytest.raises(HeadraceError) as caught:
        understand(sql)
    assert isinstance(caught.value, (Unsupported, SqlSyntaxError, UnknownName)), construct


def test_every_table_row_of_the_page_is_an_example() -> None:
    rows = [
        line for line in TEXT.split("\n") if line.startswith("| ") and not line.startswith(("| construct", "| types"))
    ]
    assert len(rows) == len(EXAMPLES)


FUNCTION_TEXT = TEXT[TEXT.index("### Functions") : TEXT.index("The clock: ")]
CLOCK_TEXT = TEXT[TEXT.index("The clock: ") : TEXT.index("Any other function")]


def names_in(text: str) -> list[str]:
    return re.findall(r"\b[A-Z][A-Z0-9_]+\b", text)


def test_every_function_of_the_engine_is_on_the_page() -> None:
    listed = {name.lower() for name in names_in(FUNCTION_TEXT)}
    assert sorted(name for name in FUNCTIONS if name not in NOT_CALLED and name not in listed) == []


@pytest.mark.parametrize("name", names_in(FUNCTION_TEXT))
def test_a_function_of_the_page_can_be_called(name: str) -> None:
    """With some number of arguments, of some kinds."""
    arguments = ["title", "made", "id", "2", "'%Y'"]
    tried = [f"{name}({', '.join(arguments[i : i + n])})" for n in range(5) for i in range(len(arguments) - n + 1)]
    tried += [f"{name}(DAY, {rest})" for rest in ("made, made", "1, made")]
    tried += [f"{name}(made, INTERVAL 1 DAY)", f"{name}('a' IN title)", f"{name}(DAY FROM made)"]
    for expression in tried:
        try:
            understand(f"SELECT {expression} AS x FROM stories")
        except HeadraceError:
            continue
        return
    pytest.fail(f"none of {tried}")


@pytest.mark.parametrize("name", [name for name in names_in(CLOCK_TEXT) if not name.startswith("SELECT")])
def test_a_function_of_the_clock_stands_in_all_statements(name: str) -> None:
    understand(f"SELECT {name}()")
    understand(f"UPDATE stories SET title = {name}()")
    understand(f"CREATE VIEW v AS SELECT {name}() AS x FROM stories")
    understand(f"CREATE VIEW v AS SELECT id FROM stories WHERE HOUR(made) > {name}()")
    understand(f"CREATE VIEW v AS SELECT id FROM stories LEFT JOIN votes ON user = id AND user > {name}()")
    understand(f"SELECT {name}() FROM stories")
