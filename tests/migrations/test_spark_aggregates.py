"""Every aggregate has words of its own in the judge's SQL, and one that nobody has written is no other's."""

from __future__ import annotations

from typing import cast

import pytest

from domains.expressions import Field
from domains.graph import AggregateFunction
from domains.types import BIGINT
from migrations.query.aggregates import Summary
from migrations.spark_sql.expressions import Names
from migrations.spark_sql.grouping import aggregate

UNKNOWN = cast(AggregateFunction, "median")


def written(function: AggregateFunction) -> str:
    names = Names()
    argument: Field | None = names.add("t0.c1", BIGINT)
    return aggregate(Summary(function, argument, BIGINT), names)


def test_each_is_written_in_its_own_words() -> None:
    texts = {function: written(function) for function in AggregateFunction}
    assert len(set(texts.values())) == len(AggregateFunction), texts
    assert texts[AggregateFunction.SUM_DISTINCT] == "sum(DISTINCT t0.c1)"
    assert "sum(" in texts[AggregateFunction.AVG]
    assert "/" in texts[AggregateFunction.AVG]


def test_an_aggregate_that_nobody_has_written_is_no_mean() -> None:
    with pytest.raises(AssertionError, match="median"):
        written(UNKNOWN)
    with pytest.raises(AssertionError, match="median"):
        _ = Summary(UNKNOWN, None, BIGINT).of_nothing
