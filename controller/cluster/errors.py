"""What can go wrong between a process that serves and the workers. All are ``Unavailable``, 503 to the client."""

from __future__ import annotations

from domains.errors import Unavailable


class OutcomeUnknown(Unavailable):
    """A write was sent, and no answer came: it was done or not. It is never repeated by itself."""

    code = "outcome_unknown"


class NotServed(Unavailable):
    """Nobody hosts a domain now, or nobody that can be reached. Nothing was done."""

    code = "not_served"


class ReaderGone(Unavailable):
    """The reader that was asked for was dropped or replaced: the view is looked up again, and nobody else hears it."""
