"""The reader maps as one request sees them: each in one state, however many look-ups the request makes.

::

    request ──► in_one_state ──► Reading ── [client] ──► ReaderSnapshot       the first time; then the same one
                     ▲                          └──► …                        (a cluster's host has several maps)
                     └── a map grew meanwhile: all of it again

Beginning a transaction takes as long as looking up two keys, and a page of a site makes a dozen look-ups. What is read
of one map is thus of one moment: no write, and no batch of writes, is seen by one look-up and not by another one. Two
maps are two workers', which publish each for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from domains.errors import Unavailable
from worker.reader_map import environment
from worker.reader_map.reader import ATTEMPTS, ReaderClient, ReaderSnapshot

Answer = TypeVar("Answer")


class Reading(dict[ReaderClient, ReaderSnapshot]):
    """``reading[client]`` is that map's state, of which there is one for each client. Keep it short: while it is open,
    pages that it sees are not used again.

    A dictionary, as it is asked for a state with each look-up of a request: 0.05 µs so, and 0.3 by a method.
    """

    def __missing__(self, client: ReaderClient) -> ReaderSnapshot:
        found = self[client] = client.snapshot()
        return found

    def close(self) -> None:
        for snapshot in self.values():
            snapshot.close()


def in_one_state(answer: Callable[[Reading], Answer]) -> Answer:
    """What ``answer`` makes of the maps; it is called again where one of them grew meanwhile. Raises Unavailable."""
    for _ in range(ATTEMPTS):
        reading = Reading()
        try:
            return answer(reading)
        except environment.Error as error:
            if not environment.was_interrupted(error):
                raise Unavailable(f"the reader map cannot be read: {error}") from error
        finally:
            reading.close()
    raise Unavailable("the reader map is closed")
