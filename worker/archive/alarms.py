"""Lasting failures of archiving: shown in the status until they are over."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from domains.errors import HeadraceError

_log = logging.getLogger("headrace.worker")


@dataclass(slots=True)
class Alarm:
    error: HeadraceError
    since: str
    times: int = 1


class Alarms:
    """By what they are of: a base shard, "archive", "compaction". One thread writes, any may look."""

    def __init__(self, now: Callable[[], str]) -> None:
        self._now = now
        self._alarms: dict[str, Alarm] = {}

    def __bool__(self) -> bool:
        return bool(self._alarms)

    def sound(self, name: str, error: HeadraceError) -> None:
        known = self._alarms.get(name)
        if known is None:
            _log.warning('archiving of "%s" fails: %s', name, error)
            self._alarms[name] = Alarm(error, self._now())
        else:
            known.error, known.times = error, known.times + 1

    def clear(self, name: str) -> None:
        if self._alarms.pop(name, None) is not None:
            _log.warning('archiving of "%s" goes on', name)

    def keep(self, names: Iterable[str]) -> None:
        """Forget those of anything else: it is no business of this process any more."""
        for name in self._alarms.keys() - set(names):
            del self._alarms[name]

    def document(self) -> list[dict[str, Any]]:
        """JSON-ready."""
        return [
            {"of": name, "since": alarm.since, "times": alarm.times, "error": str(alarm.error)}
            for name, alarm in list(self._alarms.items())
        ]
