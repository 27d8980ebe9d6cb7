"""The one compaction that a process has under way: a child that folds, and what has come of it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass

from domains.archive import ArchiveError, Segment, ShardManifest
from worker.archive.compacting import command, worth_compacting
from worker.archive.place import Place


@dataclass(frozen=True, slots=True)
class Compacted:
    identity: str
    snapshot: Segment


class Compaction:
    """One thread calls all methods."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[str] | None = None
        self._manifest: ShardManifest | None = None

    @property
    def running(self) -> str | None:
        """The base shard that is folded now."""
        return None if self._manifest is None else self._manifest.base

    def begin(self, place: Place, manifests: Iterable[ShardManifest], boundary: str) -> None:
        """Start with one of the shards that have enough which is older than ``boundary``, unless one is under way."""
        if self._child is not None:
            return
        for manifest in manifests:
            position = worth_compacting(manifest, boundary)
            if position is not None:
                self._child, self._manifest = _started(command(place, manifest, position)), manifest
                return

    def done(self) -> Compacted | None:
        """What has been folded since it was last asked. Raises ArchiveError where it went wrong."""
        if self._child is None or self._child.poll() is None:
            return None
        child, manifest = self._child, self._manifest
        self._child = self._manifest = None
        assert manifest is not None
        told, complaint = child.communicate()
        if child.returncode:
            lines = complaint.strip().splitlines() or [f"exit code {child.returncode}"]
            raise ArchiveError(f'compacting "{manifest.base}" failed: {lines[-1]}')
        return Compacted(manifest.identity, Segment(**json.loads(told)))

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = self._manifest = None


def _started(program: list[str]) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(
            program, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    except OSError as error:
        raise ArchiveError(f"no process can be started to compact: {error}") from error
