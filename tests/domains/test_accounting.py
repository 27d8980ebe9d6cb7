"""What is accounted for a row goes when the row goes, whatever was done with its values in between."""

from __future__ import annotations

import pytest

from domains.operators.state import RowIndex
from domains.plan.packets import Insert
from worker.wire import codec


@pytest.mark.parametrize("text", ["plain", "größer", "ω→∞", "🙂"])
def test_a_text_weighs_the_same_once_it_was_sent(text: str) -> None:
    index = RowIndex((0,), partial=False)
    row = (1, "".join(text))
    before = index.bytes
    index.apply([(row, 1)])
    codec.encode(Insert("t", (row,)))  # CPython keeps the UTF-8 form with the text from here on.
    index.apply([(row, -1)])
    assert index.bytes == before
