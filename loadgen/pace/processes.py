"""Processor time and memory of the servers under load, and of the generator itself. The one module that knows psutil.

A server is found by the port that it listens on: the process that listens, the processes above it that belong to the
same program (a supervisor), and everything below those. On another machine nothing is found, and the report says so.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from loadgen.peers.store import PeerServer

LOCAL = ("127.0.0.1", "localhost", "::1", "0.0.0.0")


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes at one moment. ``resident`` counts shared pages once a process, ``proportional`` once in all."""

    at: float
    resident: int
    proportional: int


@dataclass(slots=True)
class ServerUse:
    """The processor time and memory of one process during a measurement."""

    pid: int
    name: str
    cpu_s: float = 0.0
    resident_max: int = 0
    memory: list[Memory] = field(default_factory=list)


class ProcessWatch:
    """Looks at the servers' processes now and then; what they used is from the ``start`` on."""

    def __init__(self, servers: Sequence[PeerServer]) -> None:
        self._servers = [each for each in servers if each.host in LOCAL]
        self.missing = [f"{each.host}:{each.port}" for each in servers if each.host not in LOCAL]
        self._processes: dict[int, psutil.Process] = {}
        self._before: dict[int, float] = {}
        self._uses: dict[int, ServerUse] = {}
        self._began = 0.0
        self.find()

    def find(self) -> None:
        """Look for processes that are new."""
        for server in self._servers:
            found = _processes_of(server)
            where = f"{server.host}:{server.port}"
            if not found and where not in self.missing:
                self.missing.append(where)
            for process in found:
                self._processes.setdefault(process.pid, process)

    def start(self) -> None:
        self.find()
        self._began = time.monotonic()
        self._uses.clear()
        self._before = {pid: cpu for pid, process in self._processes.items() if (cpu := _cpu(process)) is not None}

    def look(self) -> None:
        """Take memory and processor time. A process that came since the start has its time from zero."""
        at = time.monotonic() - self._began
        for pid, process in list(self._processes.items()):
            cpu = _cpu(process)
            if cpu is None:
                continue
            use = self._uses.setdefault(pid, ServerUse(pid, _name(process)))
            use.cpu_s = cpu - self._before.get(pid, 0.0)
            resident, proportional = _memory(process)
            use.memory.append(Memory(round(at, 2), resident, proportional))
            use.resident_max = max(use.resident_max, resident)

    @property
    def uses(self) -> list[ServerUse]:
        return [use for use in self._uses.values() if use.memory]


def _processes_of(server: PeerServer) -> list[psutil.Process]:
    """Everything of the program that listens on the port."""
    own = psutil.Process()
    listener = _listener(server.port)
    if listener is None or listener.pid == own.pid:
        return []
    try:
        top = listener
        while (parent := top.parent()) is not None and parent.pid != own.pid and _runs(parent, server.word):
            top = parent
        return [top, *top.children(recursive=True)]
    except psutil.Error:
        return []


def _listener(port: int) -> psutil.Process | None:
    try:
        for connection in psutil.net_connections("tcp"):
            address = connection.laddr
            if connection.status == psutil.CONN_LISTEN and connection.pid and address and address.port == port:
                return psutil.Process(connection.pid)
    except psutil.Error:
        return None
    return None


def _runs(process: psutil.Process, word: str) -> bool:
    """Whether one of the first words of its command line ends with the program's name. A shell that was told to
    start it has the name further back, inside of another word."""
    try:
        return any(part.rsplit("/", 1)[-1] == word for part in process.cmdline()[:4])
    except psutil.Error:
        return False


def _name(process: psutil.Process) -> str:
    try:
        line = process.cmdline()
        return " ".join([line[0].rsplit("/", 1)[-1], *line[1:5]])[:80] if line else process.name()
    except psutil.Error:
        return "?"


def _cpu(process: psutil.Process) -> float | None:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return None
    return float(times.user + times.system)


def _memory(process: psutil.Process) -> tuple[int, int]:
    try:
        full = process.memory_full_info()
        return int(full.rss), int(getattr(full, "pss", full.rss))
    except psutil.AccessDenied:
        resident = int(process.memory_info().rss)
        return resident, resident
    except psutil.Error:
        return 0, 0


def machine() -> dict[str, str]:
    return {
        "cpus": str(os.cpu_count()),
        "processor": processor(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def processor() -> str:
    """The processor as the system names it; Python's own answer on Linux is only the architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
