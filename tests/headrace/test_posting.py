"""What ``headrace load`` sends is sent again where the server says that it may be, and nowhere else."""

from typing import Any, cast

import pytest

from headrace.client.connection import Connection
from headrace.errors import HeadraceError, LimitExceeded, Overloaded, Unavailable
from headrace.loading import posting


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
    monkeypatch.setattr(posting, "FIRST_PAUSE", 0.0)
    server = Refusing(error)
    assert posting.Poster(cast(Connection, server), "t", "s", patience=60.0).last_number() == 7
    assert server.asked == 2


def test_what_will_never_fit_is_not_sent_again() -> None:
    server = Refusing(LimitExceeded("too large"))
    with pytest.raises(LimitExceeded):
        posting.Poster(cast(Connection, server), "t", "s", patience=60.0).last_number()
    assert server.asked == 1
