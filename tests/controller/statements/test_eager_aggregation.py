"""Sums below joins: what an update costs does not grow with what its row joins. Example 2.1 of Cumulus."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controller.embedded.local import LocalDeployment
from domains.operators.join import JoinOperator
from tests.controller.migrating.test_bulk import ended

TABLES = """
CREATE TABLE customers (cid INT PRIMARY KEY, nation INT);
CREATE TABLE orders (oid INT PRIMARY KEY, cid INT, discount DECIMAL(5, 2));
CREATE TABLE lineitems (oid INT, price DECIMAL(10, 2));
INSERT INTO customers VALUES (1, 7), (2, 7);
"""
REVENUE = """CREATE EXT VIEW revenue AS SELECT {hint} c.nation, SUM(o.discount * l.price) AS revenue
FROM customers c, orders o, lineitems l WHERE c.cid = o.cid AND o.oid = l.oid {condition} GROUP BY c.nation"""
EAGER = "/*+ EAGER_AGGREGATION */"


@pytest.fixture
def met(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of every join that an update passes, how many rows it looks at, and makes."""
    counted: list[int] = []
    found, forward = JoinOperator._found, JoinOperator.forward

    def counting_found(self: JoinOperator, *given: Any) -> Any:
        rows = found(self, *given)
        counted.append(sum(len(list(some)) for some in rows.values() if some is not None))
        return rows

    def counting_forward(self: JoinOperator, *given: Any) -> Any:
        output = forward(self, *given)
        counted.append(len(output))
        return output

    monkeypatch.setattr(JoinOperator, "_found", counting_found)
    monkeypatch.setattr(JoinOperator, "forward", counting_forward)
    return counted


async def _cost(path: Path, hint: str, condition: str, met: list[int], each: int) -> int:
    """Rows that joins meet when a customer with so many orders, of so many lineitems each, moves to another nation."""
    deployment = await LocalDeployment.open(path)
    orders = ", ".join(f"({oid}, 1, 0.5)" for oid in range(each))
    lineitems = ", ".join(f"({oid}, {price})" for oid in range(each) for price in range(each))
    view = REVENUE.format(hint=hint, condition=condition)
    await deployment.execute(
        f"{TABLES} INSERT INTO orders VALUES {orders}; INSERT INTO lineitems VALUES {lineitems}; {view}"
    )
    keys: list[dict[str, list[str]]] = [{"nation": ["7"]}, {"nation": ["8"]}] if condition else [{}]
    for key in keys:
        await deployment.page("revenue", key)
    met.clear()
    _, token = await deployment.execute("UPDATE customers SET nation = 8 WHERE cid = 1")
    cost = sum(met)
    answer = b"".join([await deployment.page("revenue", key, token=token) for key in keys])
    await deployment.close()
    assert answer == b'{"nation":8,"revenue":"%.4f"}' % (each * 0.5 * sum(range(each)))
    return cost


@pytest.mark.parametrize("condition", ["", "AND c.nation = ?"])
async def test_a_customers_update_costs_no_more_for_his_lineitems(
    tmp_path: Path, met: list[int], condition: str
) -> None:
    few, many = [await _cost(tmp_path / f"eager{each}", EAGER, condition, met, each) for each in (2, 20)]
    assert few == many <= 4  # His sum, taken from one nation and given to another.


async def test_without_the_hint_it_does(tmp_path: Path, met: list[int]) -> None:
    few, many = [await _cost(tmp_path / f"lazy{each}", "", "", met, each) for each in (2, 20)]
    assert few >= 2 * 2**2
    assert many >= 2 * 20**2


async def test_explain_shows_the_sums_below(tmp_path: Path) -> None:
    deployment = await LocalDeployment.open(tmp_path)
    await deployment.execute(TABLES + REVENUE.format(hint=EAGER, condition="AND c.nation = ?"))
    lines = [line.strip("│├└─ ").split("] ")[1] for line in deployment.explain("revenue").splitlines()]
    assert lines == [
        "reader revenue  partial by (nation)",
        "γ nation; SUM(sum)  partial by (nation)",
        "⋈ cid = cid",
        "customers  base, (cid), indexed by (nation)",
        "γ cid; SUM(computed_1)  partial by (cid)",
        "π cid, discount * sum",
        "⋈ oid = oid",
        "orders  base, (oid), indexed by (cid)",
        "γ oid; SUM(price)  partial by (oid)",
        "lineitems  base, a bag, indexed by (oid)",
    ]
    await deployment.close()


TAGGED = """
CREATE TABLE taggings (story INT, tag INT, PRIMARY KEY (story, tag), KEY (tag));
CREATE TABLE votes (story INT, user INT, PRIMARY KEY (story, user));
"""
PER_TAG = (
    "CREATE EXT VIEW per_tag AS SELECT {hint}tag, COUNT(*) AS n FROM taggings JOIN votes USING (story) GROUP BY tag"
)


def _tagged(tags: int) -> str:
    """So many tags, and 40 votes, on each of five stories."""
    pairs = [", ".join(f"({story}, {n})" for story in range(5) for n in range(count)) for count in (tags, 40)]
    return f"{TAGGED} INSERT INTO taggings VALUES {pairs[0]}; INSERT INTO votes VALUES {pairs[1]};"


def _definition(deployment: LocalDeployment) -> str:
    return next(view.sql for view in deployment.views() if view.name == "per_tag")


@pytest.mark.parametrize(
    ("tags", "hint", "chosen"),
    [
        (3, "", ""),
        (30, "", "/*+ EAGER_AGGREGATION(about 6000 rows joined of 350) */"),
        (30, "/*+ NO_EAGER_AGGREGATION */ ", "/*+ NO_EAGER_AGGREGATION */"),
    ],
)
@pytest.mark.parametrize("by_migration", [False, True])
async def test_sums_are_chosen_where_joins_multiply(
    tmp_path: Path, tags: int, hint: str, chosen: str, by_migration: bool
) -> None:
    deployment = await LocalDeployment.open(tmp_path)
    await deployment.execute(_tagged(tags))
    if by_migration:
        started = await deployment.migrate(PER_TAG.format(hint=hint))
        await ended(deployment, started.id)
    else:
        await deployment.execute(PER_TAG.format(hint=hint))
    assert chosen in _definition(deployment)
    assert ("EAGER" in _definition(deployment)) == bool(chosen)
    assert (deployment.explain("per_tag").count("γ") > 1) == ("about" in chosen)
    page = await deployment.page("per_tag", {})
    assert page.count(b'"n":200') == tags
    await deployment.close()
    again = await LocalDeployment.open(tmp_path)
    assert chosen in _definition(again)
    await again.close()
