"""One part of the cluster: a process that is started again whenever it ends, until it is stopped."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# How long a process that died stays down: at first hardly at all, then longer each time.

FIRST_SECONDS = 0.1
"""Most deaths are single: a kill, an error that will not come again. Whoever waits, waits for this."""
LONGEST_SECONDS = 5.0
"""Something that dies at each start shall not take the machine from the others, and still be back soon once the reason
is gone."""
SETTLED_SECONDS = 10.0
"""Seconds after which a process counts as started; its death begins a new series of tries."""


@dataclass(slots=True)
class Backoff:
    next: float = FIRST_SECONDS

    def after(self, lived: float) -> float:
        """Seconds to wait after a process that lived for ``lived`` seconds."""
        if lived >= SETTLED_SECONDS:
            self.next = FIRST_SECONDS
        wait, self.next = self.next, min(2 * self.next, LONGEST_SECONDS)
        return wait


LOG_BYTES = 10_000_000
"""A log that is longer is put aside when its process starts; one such is kept."""

TAIL_BYTES = 20_000


@dataclass(frozen=True, slots=True)
class ClusterPart:
    """The command to run."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    log: Path
    grace: float
    """Seconds that it may take to stop cleanly."""
    sockets: Sequence[int] = ()
    """Descriptors that it inherits."""


class PartProcess:
    """Keeps one part running. ``changed`` is called whenever it has another process, or none."""

    def __init__(self, part: ClusterPart, tell: Callable[[str], None], changed: Callable[[], None]) -> None:
        self.part = part
        self.ends = 0
        """How often its process has ended without having been asked to."""
        self.last_words = ""
        """Why it ended then, as far as its log says: the error in one line."""
        self._tell = tell
        self._changed = changed
        self._backoff = Backoff()
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._spawning = asyncio.Lock()
        """After a spawn that is cancelled half-way two tasks wait for its process, and one of them gets nonsense."""
        self._logged = 0

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    async def start(self) -> None:
        """Raises OSError where no process can be made."""
        await self._spawn()
        self._task = asyncio.create_task(self._keep(), name=self.part.name)

    async def stop(self) -> None:
        """Ask it to end, and after its grace make it."""
        if self._task is not None:
            async with self._spawning:
                self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        process = self._process
        if process is not None and process.returncode is None:
            self._signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(self.part.grace):
                    await process.wait()
            except TimeoutError:
                self._tell(f"{self.part.name} does not stop within {self.part.grace:g} s and is killed")
                self.kill()
                await process.wait()
        self._close_input()
        self._changed()

    def kill(self) -> None:
        """End the process at once, for a caller in a hurry; ``stop`` is still to be called."""
        self._signal(signal.SIGKILL)

    def hang_up(self) -> None:
        """Have the process read again what it reads on SIGHUP."""
        self._signal(signal.SIGHUP)

    def _signal(self, how: signal.Signals) -> None:
        """Send a signal without asyncio, which looks first whether the process has ended, and so takes the exit code
        away from who waits for it."""
        if self.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, how)

    def _said_last(self) -> str:
        try:
            with self.part.log.open("rb") as log:
                log.seek(max(self._logged, os.fstat(log.fileno()).st_size - TAIL_BYTES))
                lines = log.read().decode(errors="replace").splitlines()
        except OSError:
            return ""
        for number in range(len(lines) - 1, -1, -1):
            if lines[number].startswith("error: "):
                hint = lines[number + 1] if lines[number + 1 :] else ""
                return lines[number].removeprefix("error: ") + (f" ({hint[6:]})" if hint.startswith("hint: ") else "")
        return lines[-1] if lines else ""

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            assert self._process is not None
            began = loop.time()
            code = await self._process.wait()
            self.ends += 1
            self.last_words = self._said_last()  # Now: the next process begins where the log ends.
            self._close_input()
            self._changed()
            wait = self._backoff.after(loop.time() - began)
            self._tell(f"{self.part.name} {ending(code)}; it is started again in {wait:.1f} s (log: {self.part.log})")
            await asyncio.sleep(wait)
            try:
                async with self._spawning:
                    await self._spawn()
            except OSError as error:
                self._tell(f"{self.part.name} cannot be started: {error.strerror or error}")

    async def _spawn(self) -> None:
        part = self.part
        if part.log.exists() and part.log.stat().st_size > LOG_BYTES:
            part.log.replace(part.log.with_suffix(".log.1"))
        with part.log.open("ab") as log:
            self._logged = log.tell()
            self._process = await asyncio.create_subprocess_exec(
                *part.command,
                # It ends when this does, so that nothing is left behind by a supervisor that was killed.
                stdin=asyncio.subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=part.environment,
                pass_fds=part.sockets,
                start_new_session=True,  # Ctrl-C on the terminal is for the supervisor, which stops all in order.
            )
        self._changed()

    def _close_input(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()


def ending(code: int) -> str:
    """How it ended, in words."""
    if code < 0:
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"
    return f"ended with exit code {code}"
