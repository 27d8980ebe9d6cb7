"""How many rows running tasks have read and fed, while they run: Spark's tracker tells of tasks that are done, and of a
stage with one task nothing until its end.

What is read Spark's status store knows by its executors' heartbeats. Of what is fed a task sends a datagram every now
and then, and the driver looks what has come whenever somebody asks. One that is lost, or that no firewall lets through,
costs nothing but a number that stands still; what a task that is done has fed is counted by Spark's accumulator. A
datagram without the job's secret is passed over.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DATAGRAM = struct.Struct(">16sIIQ")
"""Secret, stage, task, rows fed by it so far."""

SECONDS = 0.5
"""Between two datagrams of a task."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where tasks tell, and by which secret. ``port`` is 0 where nobody listens."""

    host: str
    port: int
    secret: bytes


class Tally:
    """The driver's end. It listens at ``bound``, which tasks reach as ``host``; it is to be closed."""

    def __init__(self, bound: str, host: str) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._fed: dict[tuple[int, int], int] = {}
        port = 0
        with suppress(OSError):
            self._socket.bind((bound, 0))
            port = self._socket.getsockname()[1]
        self.address = Address(host, port, os.urandom(16))

    def rows(self) -> int:
        """Of all tasks, as far as they have told; of one that was tried twice, the more."""
        with suppress(OSError):
            while self.address.port:
                self._take(self._socket.recv(_DATAGRAM.size + 1))
        return sum(self._fed.values())

    def _take(self, data: bytes) -> None:
        if len(data) != _DATAGRAM.size:
            return
        secret, stage, task, rows = _DATAGRAM.unpack(data)
        if secret == self.address.secret:
            self._fed[stage, task] = max(rows, self._fed.get((stage, task), 0))

    def close(self) -> None:
        self._socket.close()


def tally_of(spark: SparkSession) -> Tally:
    """Where executors reach this driver."""
    conf = spark.sparkContext.getConf()
    host = conf.get("spark.driver.host") or "127.0.0.1"
    return Tally(conf.get("spark.driver.bindAddress") or host, host)


class Reading:
    """Rows that Spark has read of files since this was made. The store has no interface in Python: what it does not
    tell is 0."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self._read: dict[int, int] = {}
        """By stage."""
        self._done = self._stages()

    def rows(self) -> int:
        with suppress(Exception):
            store = self._context._jsc.sc().statusStore()
            for stage in self._stages() - self._done:
                with suppress(Exception):  # One that is only planned.
                    found = store.lastStageAttempt(stage)
                    self._read[stage] = int(found.inputRecords())
                    if found.status().toString() not in ("ACTIVE", "PENDING"):
                        self._done.add(stage)
        return sum(self._read.values())

    def _stages(self) -> set[int]:
        tracker = self._context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup()]
        return {stage for job in jobs if job is not None for stage in job.stageIds}


class Teller:
    """A task's end."""

    def __init__(self, address: Address, stage: int, task: int) -> None:
        self._address, self._place = address, (stage, task)
        self._rows, self._told = 0, time.monotonic()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def fed(self, rows: int) -> None:
        self._rows += rows
        if self._address.port and time.monotonic() - self._told >= SECONDS:
            self._told = time.monotonic()
            with suppress(OSError):
                data = _DATAGRAM.pack(self._address.secret, *self._place, self._rows)
                self._socket.sendto(data, (self._address.host, self._address.port))

    def close(self) -> None:
        self._socket.close()
