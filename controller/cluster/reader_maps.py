"""The reader maps of workers on this host, opened where they lie: what is read in them asks no other process.

A map belongs to one process of a worker. When another takes the worker's place it makes a new map, so each is opened
once for each incarnation. The map of a worker that died goes on being read until it is decided that its domains are
elsewhere: it holds what was there when it died, and a read that must be newer carries a token.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterable
from functools import lru_cache

from domains.errors import HeadraceError
from worker.reader_map import ReaderClient
from zookeeper.descriptors import WorkerDescriptor

_log = logging.getLogger("headrace.api")

Attach = Callable[[str], ReaderClient]
"""Opens the map in a directory."""


class ReaderMaps:
    def __init__(self, attach: Attach = ReaderClient) -> None:
        self._attach = attach
        self._clients: dict[WorkerDescriptor, ReaderClient | None] = {}

    def client(self, worker: WorkerDescriptor) -> ReaderClient | None:
        """None where the map is on another host, or cannot be opened: then the worker is asked."""
        if worker not in self._clients:
            self._clients[worker] = self._opened(worker)
        return self._clients[worker]

    def _opened(self, worker: WorkerDescriptor) -> ReaderClient | None:
        if not worker.reader_map or not is_local(worker.host):
            return None
        try:
            return self._attach(worker.reader_map)
        except HeadraceError as error:
            _log.warning('the reader map of worker "%s" is not read here: %s', worker.name, error)
            return None

    def keep(self, workers: Iterable[WorkerDescriptor]) -> None:
        """Close the maps of all others; nobody may use them any more."""
        for gone in self._clients.keys() - set(workers):
            client = self._clients.pop(gone)
            if client is not None:
                client.close()


@lru_cache(maxsize=1024)
def is_local(host: str) -> bool:
    """Whether an address is one of this host's."""
    try:
        for family, kind, _, _, address in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM):
            with socket.socket(family, kind) as probe:
                probe.bind(address)
            return True
    except OSError:
        return False
    return False
