"""What ``headrace load`` sends is sent again where the server says that it may be, and nowhere else."""

from typing import Any, cast

import pytest
from headrace_client.connection import Connection

from headrace.errors import HeadraceError, LimitExceeded, Overloaded, Unavailable
from headrace.loading import running
from headrace.loading.chunks import Ready, SourceRow
from headrace.loading.rejects import shown


class Refusing:
    """A connection and its table, whose first answer is an error."""

    def __init__(self, error: HeadraceError) -> None:
        self.error, self.asked = error, 0

    def table(self, name: str) -> Any:
        return self

    def last_number(self, stream: str) -> int:
        self.asked += 1
        if self.asked == 1:
            raise self.error
        return 7


@pytest.mark.parametrize("error", [Overloaded("16384 requests are waiting already"), Unavailable("starting")])
def test_an_answer_that_nothing_was_done_is_tried_again(error: HeadraceError, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "FIRST_PAUSE", 0.0)
    server = Refusing(error)
    assert running.Poster(cast(Connection, server), "t", "s", patience=60.0).last_number() == 7
    assert server.asked == 2


def test_what_will_never_fit_is_not_sent_again() -> None:
    server = Refusing(LimitExceeded("too large"))
    with pytest.raises(LimitExceeded):
        running.Poster(cast(Connection, server), "t", "s", patience=60.0).last_number()
    assert server.asked == 1


class Limited:
    """A table that takes requests of so many characters."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.stored: list[dict[str, Any]] = []

    def table(self, name: str) -> Any:
        return self

    def insert(self, rows: list[dict[str, Any]], once: Any) -> None:
        if len(shown({"rows": rows})) > self.limit:
            raise LimitExceeded("the body exceeds max_body_size")
        self.stored += rows


def ready(number: int, width: int) -> Ready:
    values = {"id": number, "name": "x" * width}
    return Ready(SourceRow("f", number, values, width), values)


def test_a_row_that_is_larger_than_a_request_may_be_is_set_aside() -> None:
    server, rejects = Limited(1_000), []
    rows = [ready(1, 10), ready(2, 5_000), ready(3, 10), ready(4, 2_000)]
    poster = running.Poster(cast(Connection, server), "t", "s", patience=1.0)
    assert poster.post(1, rows, rejects.extend) == 2
    assert [row["id"] for row in server.stored] == [1, 3]
    assert [each.row.number for each in rejects] == [2, 4]


def test_many_rows_that_are_too_many_for_a_request_are_not_set_aside() -> None:
    poster = running.Poster(cast(Connection, Limited(1_000)), "t", "s", patience=1.0)
    with pytest.raises(LimitExceeded) as caught:
        poster.post(1, [ready(number, 100) for number in range(20)], lambda _: None)
    assert "--chunk-rows" in (caught.value.hint or "")
