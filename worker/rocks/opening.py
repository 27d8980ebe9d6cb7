"""Opening a RocksDB so that what was acknowledged and cannot be read any more is named, before a file is changed.

RocksDB repairs what it opens: it reads its log up to a hole, writes what it found into a file, and deletes the log. So
a database that is there is opened for reading first, which changes nothing, and what can be reached is compared with
the record of what was acknowledged (``acknowledged.py``). A garbled tail behind the record is what a crash leaves, and
opens. Less than the record is a *loss*: the database is not opened. Damage that RocksDB's reader does not notice
(``misread.py``) is made such that it does, in a copy of the log for the look, and in the log itself for the opening.

Where somebody goes on without it, the files that were damaged are copied aside first::

    DIR/base
    DIR/base.damaged-20260131T080000Z/     CURRENT, MANIFEST-…, 000004.log, acknowledged
                                      loss.json            what is lost: an alarm until it is acknowledged
                                      loss.acknowledged.json    … when it was
"""

from __future__ import annotations

import json
import marshal
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from domains.archive.manifest import opened, sealed
from domains.errors import StorageFailure
from worker.rocks import layout
from worker.rocks.acknowledged import FILE, TABLES, Acknowledged, AcknowledgedRecord
from worker.rocks.database import RESTORE, Database
from worker.rocks.misread import misread, stop_at

RECORDED = 2
"""The format from which on a store has a record of what was acknowledged; without it, the record was deleted."""

LOSS, LOSS_ACKNOWLEDGED = "loss.json", "loss.acknowledged.json"


@dataclass(frozen=True, slots=True)
class Loss:
    """Acknowledged positions that cannot be reached: the first and the last of each table that is known."""

    why: str
    positions: dict[str, tuple[int, int]] = field(default_factory=dict)
    fatal: bool = False
    """There is no going on without it."""

    def __str__(self) -> str:
        parts = [
            f'{last - first + 1:,} of table "{table}" (positions {first:,} to {last:,})'
            for table, (first, last) in sorted(self.positions.items())
        ]
        return f"{self.why}; missing are {', '.join(parts)}" if parts else self.why


@dataclass(slots=True)
class Opened:
    database: Database
    record: AcknowledgedRecord
    loss: Loss | None


def open_database(path: Path, *, create: bool, accept_loss: bool) -> Opened:
    """Raises StorageFailure: in use, corrupt, or less is there than was acknowledged and that is not accepted. Then no
    file was changed."""
    try:
        if create:
            path.mkdir(parents=True, exist_ok=True)
        record, loss, damaged = _compared(path)
    except OSError as error:
        raise StorageFailure(f"cannot open the database in {path}: {error.strerror or error}") from error
    try:
        if loss is not None:
            if not accept_loss or loss.fatal:
                raise _refusal(path, loss)
            _keep_aside(path, loss)
            if record is None:
                (path / FILE).unlink(missing_ok=True)
        new = not (path / "CURRENT").exists()
        if not create:
            check_there(path)
        if new and create and record is None:
            record = AcknowledgedRecord.make(path)
        for log, at in damaged.items():
            stop_at(log, at)
        database = Database(path, create=create and new)
        try:
            return Opened(database, record or AcknowledgedRecord.make(path), loss)
        except BaseException:
            database.close()
            raise
    except OSError as error:
        raise StorageFailure(f"cannot open the database in {path}: {error.strerror or error}") from error
    except BaseException:
        if record is not None:
            record.close()
        raise


def check_there(path: Path) -> None:
    """Raises StorageFailure where a database that was there is not, or there is nothing in its directory."""
    if not (path / "CURRENT").exists():
        raise StorageFailure(f'the database in "{path}" is missing: there were tables in it', hint=RESTORE)


def _compared(path: Path) -> tuple[AcknowledgedRecord | None, Loss | None, dict[Path, int]]:
    """The record, where it is there and whole, what can be reached less than it says, and where RocksDB would not
    notice damage of its logs."""
    record, damage = None, ""
    try:
        record = AcknowledgedRecord(path)
    except FileNotFoundError:
        damage = f'the record of what was acknowledged, "{path / FILE}", is missing'
    except StorageFailure as error:
        if type(error) is not StorageFailure:
            raise  # In use.
        damage = error.message
    try:
        damaged = misread(path)
        return record, _loss(path, record.last if record is not None else None, damage, damaged), damaged
    except BaseException:
        if record is not None:
            record.close()
        raise


def _loss(path: Path, acknowledged: Acknowledged | None, damage: str, damaged: Mapping[Path, int]) -> Loss | None:
    recorded = (path / FILE).exists()
    if not (path / "CURRENT").exists():
        # RocksDB would make a new database here. It makes CURRENT before anything that can hold rows.
        if (acknowledged is not None and acknowledged.sequence) or any(path.glob("*.sst")) or any(path.glob("*.log")):
            return Loss(f'the database in {path} has lost its file "CURRENT"', fatal=True)
        return Loss(damage) if recorded and acknowledged is None else None
    for file, at in damaged.items():
        if file.suffix != ".log":
            return Loss(f'the database in {path} is corrupt: "{file.name}" is damaged at byte {at:,}', fatal=True)
    looked = _look(path, damaged)
    try:
        if acknowledged is None:
            header = looked.get(layout.STORE_KEY)
            if recorded or (header is not None and _format(path, header) >= RECORDED):
                return Loss(damage)
            return _uncounted(path, damaged)
        if looked.sequence() >= acknowledged.sequence:
            return None
        reached = dict(_positions(looked))
    finally:
        looked.close()
    lost = {
        table: (reached.get(table, 0) + 1, position)
        for table, position in acknowledged.positions.items()
        if position > reached.get(table, 0)
    }
    return Loss(f"the log of the database in {path} is damaged or missing, and acknowledged writes with it", lost)


def _look(path: Path, damaged: Mapping[Path, int]) -> Database:
    if not damaged:
        return Database(path, create=False, read_only=True)
    with tempfile.TemporaryDirectory() as directory:
        logs = Path(directory)
        for log in path.glob("*.log"):
            if log in damaged:
                stop_at(Path(shutil.copyfile(log, logs / log.name)), damaged[log])
            else:
                (logs / log.name).symlink_to(log.resolve())
        return Database(path, create=False, read_only=True, logs=logs)  # Which has read them by then.


def _uncounted(path: Path, damaged: Mapping[Path, int]) -> Loss | None:
    """What is damaged of a database of before the record, where writes are missing that nobody counts."""
    places = ", ".join(f'"{log.name}" from byte {at:,} on' for log, at in sorted(damaged.items()))
    return (
        Loss(f"the log of the database in {path} is damaged: {places}; how much is missing is not known")
        if places
        else None
    )


def _format(path: Path, header: bytes) -> int:
    try:
        return int(marshal.loads(header)[0])
    except (ValueError, EOFError, TypeError, IndexError) as error:
        raise StorageFailure(f"the database in {path} has a header that cannot be read") from error


def _positions(looked: Database) -> Iterator[tuple[str, int]]:
    for key, value in looked.items(layout.CATALOG, layout.prefix_end(layout.CATALOG)):
        counters = looked.get(layout.COUNTERS + key[len(layout.CATALOG) :])
        if counters is not None:
            yield json.loads(value)["schema"]["name"], marshal.loads(counters)[-1]


def _refusal(path: Path, loss: Loss) -> StorageFailure:
    restore = "restore it from its archive or a back-up"
    if loss.fatal:
        return StorageFailure(f"{loss}; nothing was changed", hint=restore)
    return StorageFailure(
        f"{loss}; nothing was changed",
        hint=f"{restore}; in a cluster headrace rebuild does it; "
        f"to go on without what is missing: headrace accept-loss --data {_data_directory(path)}",
    )


def _data_directory(base: Path) -> Path:
    """See ``worker/embedded.py``."""
    parent = base.parent
    return parent.parent.parent if parent.parent.name == "shards" else parent


# --- losses that were accepted ----------------------------------------------------------------------------------


def _keep_aside(path: Path, loss: Loss) -> None:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    aside = path.with_name(f"{path.name}.damaged-{stamp}")
    aside.mkdir()
    for pattern in ("CURRENT", "MANIFEST-*", "*.log", FILE, TABLES):
        for file in path.glob(pattern):
            shutil.copy2(file, aside / file.name)
    told = f"{loss}; since {stamp} it is served without; the damaged files are in {aside}"
    with (aside / LOSS).open("w", encoding="utf-8") as document:
        json.dump(sealed({"loss": told, "tables": loss.positions}), document)
    for each in [*aside.iterdir(), aside, aside.parent]:
        descriptor = os.open(each, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def losses(path: Path) -> list[str]:
    """The losses of a database that were accepted and not acknowledged since, as sentences."""
    return [_told(each) for each in _loss_files(path)]


def acknowledge_losses(path: Path) -> list[str]:
    """They are no alarm any more; what is kept aside stays. Answers them."""
    found = _loss_files(path)
    told = [_told(each) for each in found]
    for each in found:
        each.rename(each.with_name(LOSS_ACKNOWLEDGED))
    return told


def _loss_files(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}.damaged-*/{LOSS}"))


def _told(path: Path) -> str:
    try:
        return str(opened(json.loads(path.read_text("utf-8")))["loss"])
    except (OSError, ValueError, KeyError, TypeError):
        return f'acknowledged writes were lost; "{path}", which said what, is damaged'
