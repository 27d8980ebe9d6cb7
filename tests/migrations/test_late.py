"""Which nodes of a dataflow are ready at once, and in which parts the others come."""

from __future__ import annotations

from domains.plan.graph import Base, Materialization
from migrations.change import change_of
from migrations.flow.dataflow import late_parts
from migrations.flow.plan import State, one_domain, spread_over
from migrations.recipe import RecipeEntry

SCHEMA = "CREATE TABLE big (id INT PRIMARY KEY, a INT); CREATE TABLE small (id INT PRIMARY KEY, a INT)"
ROWS = {"big": 1000, "small": 10}


def state_of(*entries: RecipeEntry, groups: int = 1) -> State:
    state = State()
    for entry in (RecipeEntry((SCHEMA,)), *entries):
        state = change_of(state, entry, one_domain if groups == 1 else spread_over(groups)).state
    return state


def views(*sql: str) -> list[RecipeEntry]:
    return [RecipeEntry((each,)) for each in sql]


def test_what_needs_no_feeding_is_no_part() -> None:
    state = state_of(*views("CREATE VIEW P AS SELECT id FROM big WHERE a = ?"))
    assert late_parts(state.flow, state.catalog, ROWS) == []


def test_parts_share_nothing_that_is_late() -> None:
    of_views = views(
        "CREATE EXT VIEW ByKind AS SELECT a, COUNT(*) AS n FROM big GROUP BY a",
        "CREATE EXT VIEW Top AS SELECT a, n FROM ByKind ORDER BY n LIMIT 3",
        "CREATE VIEW P AS SELECT id FROM big WHERE a = ?",
        "CREATE EXT VIEW Few AS SELECT a, COUNT(*) AS n FROM small GROUP BY a",
    )
    for groups in (1, 3):
        state = state_of(*of_views, groups=groups)
        parts = late_parts(state.flow, state.catalog, ROWS)
        assert [part.views for part in parts] == [("few",), ("bykind", "top")]
        late = [index for part in parts for index in part.nodes]
        assert len(late) == len(set(late))
        for index, node in state.flow.nodes.items():
            if index in late:
                continue
            assert late_free(state, index), "what is ready stands on nothing that is late"
            assert isinstance(node.operator, Base) or node.materialization is not Materialization.FULL


def late_free(state: State, index: int) -> bool:
    late = {each for part in late_parts(state.flow, state.catalog, ROWS) for each in part.nodes}
    return late.isdisjoint(state.flow.ancestors(index))  # type: ignore[arg-type]


def test_named_views_come_before_selects() -> None:
    select = RecipeEntry(("SELECT a, COUNT(*) AS n FROM small GROUP BY a",), ad_hoc=True)
    state = state_of(select, *views("CREATE EXT VIEW ByKind AS SELECT COUNT(*) AS n FROM big"))
    first, second = late_parts(state.flow, state.catalog, ROWS)
    assert first.views == ("bykind",)
    assert state.catalog.views[second.views[0]].ad_hoc
