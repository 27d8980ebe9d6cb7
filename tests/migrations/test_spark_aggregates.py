"""Every aggregate has words of its own in the judge's SQL, and one that nobody has written is no other's."""

from __future__ import annotations

from typing import cast

import pytest

from domains.language.expressions import Field
from domains.language.types import BIGINT
from domains.plan.graph import AggregateFunction
from migrations.query.expressions.aggregates import Summary
from migrations.spark_sql.block import aggregate
from migrations.spark_sql.expressions import Names

UNKNOWN = cast(AggregateFunction, "median")


def written(function: AggregateFunction) -> str:
    names = Names()
    argument: Field | None = names.add("t0.c1", BIGINT)
    return aggregate(Summary(function, argument, BIGINT), names)


def test_each_is_written_in_its_own_words() -> None:
    refused = {AggregateFunction.JSON_ARRAYAGG, AggregateFunction.JSON_OBJECTAGG}
    texts = {function: written(function) for function in AggregateFunction if function not in refused}
    assert len(set(texts.values())) == len(texts), texts
    assert texts[AggregateFunction.SUM_DISTINCT] == "sum(DISTINCT t0.c1)"
    assert "sum(" in texts[AggregateFunction.AVG]
    assert "/" in texts[AggregateFunction.AVG]


def test_an_aggregate_that_nobody_has_written_is_no_mean() -> None:
    with pytest.raises(AssertionError, match="median"):
        written(UNKNOWN)
    with pytest.raises(AssertionError, match="median"):
        _ = Summary(UNKNOWN, None, BIGINT).of_nothing
