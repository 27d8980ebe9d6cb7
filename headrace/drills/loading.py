"""The load's process, as the drill sees it: orders in, answers out."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.errors import HeadraceError

ORDER_SECONDS = 120.0
"""For an order that waits for nothing but the cluster: then it is not the cluster that is slow."""
LINE_MAX = 1 << 20


class DrillFailed(HeadraceError):
    """The drill itself could not be carried out, so it says nothing about the cluster."""

    code = "drill_failed"


@dataclass
class LoadProcess:
    records: Path
    _process: asyncio.subprocess.Process

    @classmethod
    async def start(cls, url: str, seed: str, records: Path, rates: tuple[float, float]) -> LoadProcess:
        reads, writes = rates
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "loadgen.drills", "--url", url, "--seed", seed, "--records", str(records)),
            *("--reads", str(reads), "--writes", str(writes)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_MAX,
            start_new_session=True,  # Ctrl-C is for the drill, which ends it.
        )
        return cls(records, process)

    async def order(self, do: str, **more: Any) -> dict[str, Any]:
        """What the load answers. Raises DrillFailed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **more}).encode() + b"\n")
            async with asyncio.timeout(ORDER_SECONDS):
                line = await self._process.stdout.readline()
        except TimeoutError:
            raise DrillFailed(f'the load did not "{do}" within {ORDER_SECONDS:g} s') from None
        except OSError as error:
            raise DrillFailed(f"the load has ended: {error}") from error
        if not line:
            raise DrillFailed(f'the load ended instead of answering to "{do}"')
        answer: dict[str, Any] = json.loads(line)
        if "failed" in answer:
            raise DrillFailed(f'the load could not "{do}": {answer["failed"]}')
        return answer

    async def end(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
