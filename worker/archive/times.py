"""Times as an archive writes them: UTC, ISO 8601, to the millisecond, so that their texts are in their order."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from domains.errors import BadRequest


def time_text(seconds: float) -> str:
    """Of seconds since 1970: ``2026-01-31T08:00:00.000Z``."""
    return _text(datetime.fromtimestamp(seconds, UTC))


def parse_time(text: str) -> str:
    """The same of what a person wrote; without a zone it is UTC. Raises BadRequest."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        hint = "write it like 2026-01-31T08:00:00Z, or give the token of a write (h1.…), or latest"
        raise BadRequest(f'"{text}" is not a time', hint=hint) from error
    return _text(moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC))


def after(time: str, earlier: str) -> str:
    """The time, or the first one after the earlier one where a clock was set back."""
    return time if time > earlier else _text(datetime.fromisoformat(earlier) + timedelta(milliseconds=1))


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
