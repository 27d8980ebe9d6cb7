"""What PostgreSQL's plug-in ``pgoutput`` sends, decoded: protocol version 1, values as texts.

The manual, "Logical Replication Message Formats". What was not asked for (streamed and two-phase transactions, binary
values) and what is not known stops by name: nothing is passed over.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from headrace.upstream.columns import Stopped

EPOCH = 946_684_800
"""Of its times, 2000-01-01, in seconds since 1970."""


class Unchanged(Enum):
    """In place of a value that is stored apart (TOAST), and that an UPDATE leaves as it was."""

    UNCHANGED = "u"


UNCHANGED = Unchanged.UNCHANGED
ToldRow = tuple[str | Unchanged | None, ...]
"""The values of a row, in the order of the relation's columns."""


@dataclass(frozen=True, slots=True)
class ToldBegin:
    commit: int
    """Where its commit is."""
    at: float
    xid: int


@dataclass(frozen=True, slots=True)
class ToldCommit:
    commit: int
    end: int
    """Just behind it."""
    at: float


@dataclass(frozen=True, slots=True)
class ToldOrigin:
    commit: int
    name: str


@dataclass(frozen=True, slots=True)
class RelationColumn:
    is_key: bool
    """Whether it is of the replica identity."""
    name: str
    oid: int
    modifier: int


@dataclass(frozen=True, slots=True)
class ToldRelation:
    id: int
    schema: str
    name: str
    identity: str
    """``d``: the primary key, ``f``: the whole row, ``i``: an index, ``n``: nothing."""
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class ToldType:
    oid: int
    schema: str
    name: str


@dataclass(frozen=True, slots=True)
class ToldInsert:
    relation: int
    new: ToldRow


@dataclass(frozen=True, slots=True)
class ToldUpdate:
    relation: int
    key: ToldRow | None
    """The old row, of which it has the identity's columns alone: only where these are changed."""
    old: ToldRow | None
    """The old row, where all of it is the identity."""
    new: ToldRow


@dataclass(frozen=True, slots=True)
class ToldDelete:
    relation: int
    key: ToldRow | None
    old: ToldRow | None


@dataclass(frozen=True, slots=True)
class ToldTruncate:
    relations: tuple[int, ...]
    cascade: bool
    restart_identity: bool


@dataclass(frozen=True, slots=True)
class ToldMessage:
    """Of ``pg_logical_emit_message``."""

    transactional: bool
    lsn: int
    prefix: str
    content: bytes


Decoded = (
    ToldBegin
    | ToldCommit
    | ToldOrigin
    | ToldRelation
    | ToldType
    | ToldInsert
    | ToldUpdate
    | ToldDelete
    | ToldTruncate
    | ToldMessage
)

NOT_ASKED = {
    **dict.fromkeys("SEcA", "a transaction that is streamed before its end"),
    **dict.fromkeys("bPKrp", "a transaction of two phases (PREPARE TRANSACTION)"),
}


def decode(payload: bytes) -> Decoded:
    """:raises Stopped: it is of a kind that is not known, or does not end where it should."""
    reader = _Reader(payload)
    kind = reader.letter()
    if kind in NOT_ASKED:
        raise Stopped(f"the upstream sent {NOT_ASKED[kind]} (message {kind}), which was not asked for")
    if kind not in _DECODERS:
        raise Stopped(f"the upstream sent a message of kind {kind!r}, which is not known")
    try:
        found = _DECODERS[kind](reader)
    except (struct.error, IndexError, UnicodeDecodeError, ValueError) as error:
        raise Stopped(f"the upstream sent a message of kind {kind} that cannot be decoded: {error}") from error
    if not reader.is_at_end:
        raise Stopped(f"the upstream sent a message of kind {kind} that is longer than it should be")
    return found


class _Reader:
    def __init__(self, payload: bytes) -> None:
        self._payload, self._at = payload, 0

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._payload)

    def take(self, length: int) -> bytes:
        taken = self._payload[self._at : self._at + length]
        if length < 0 or len(taken) < length:
            raise ValueError("it ends too early")
        self._at += length
        return taken

    def letter(self) -> str:
        return self.take(1).decode("latin-1")

    def number(self, form: str) -> int:
        return int(struct.unpack(form, self.take(struct.calcsize(form)))[0])

    def time(self) -> float:
        return EPOCH + self.number(">q") / 1e6

    def text(self) -> str:
        end = self._payload.index(b"\0", self._at)
        found = self.take(end - self._at).decode()
        self._at += 1
        return found

    def row(self) -> ToldRow:
        return tuple([self._value() for _ in range(self.number(">H"))])

    def _value(self) -> str | Unchanged | None:
        kind = self.letter()
        if kind == "n":
            return None
        if kind == "u":
            return UNCHANGED
        if kind == "t":
            return self.take(self.number(">i")).decode()
        raise ValueError(f"a value is of kind {kind!r}")


def _begin(reader: _Reader) -> ToldBegin:
    return ToldBegin(reader.number(">Q"), reader.time(), reader.number(">I"))


def _commit(reader: _Reader) -> ToldCommit:
    if reader.number(">B"):
        raise ValueError("it has flags, of which none is known")
    return ToldCommit(reader.number(">Q"), reader.number(">Q"), reader.time())


def _origin(reader: _Reader) -> ToldOrigin:
    return ToldOrigin(reader.number(">Q"), reader.text())


def _relation(reader: _Reader) -> ToldRelation:
    id, schema, name, identity = reader.number(">I"), reader.text(), reader.text(), reader.letter()
    columns = [
        RelationColumn(bool(reader.number(">B") & 1), reader.text(), reader.number(">I"), reader.number(">i"))
        for _ in range(reader.number(">H"))
    ]
    return ToldRelation(id, schema, name, identity, tuple(columns))


def _type(reader: _Reader) -> ToldType:
    return ToldType(reader.number(">I"), reader.text(), reader.text())


def _inserted(reader: _Reader) -> ToldInsert:
    relation, kind = reader.number(">I"), reader.letter()
    if kind != "N":
        raise ValueError(f"it has a row of kind {kind!r}")
    return ToldInsert(relation, reader.row())


def _updated(reader: _Reader) -> ToldUpdate:
    relation, kind = reader.number(">I"), reader.letter()
    key = old = None
    if kind in "KO":
        before = reader.row()
        key, old = (before, None) if kind == "K" else (None, before)
        kind = reader.letter()
    if kind != "N":
        raise ValueError(f"it has a row of kind {kind!r}")
    return ToldUpdate(relation, key, old, reader.row())


def _deleted(reader: _Reader) -> ToldDelete:
    relation, kind = reader.number(">I"), reader.letter()
    if kind not in "KO":
        raise ValueError(f"it has a row of kind {kind!r}")
    before = reader.row()
    return ToldDelete(relation, before if kind == "K" else None, before if kind == "O" else None)


def _truncated(reader: _Reader) -> ToldTruncate:
    count, flags = reader.number(">I"), reader.number(">B")
    return ToldTruncate(tuple([reader.number(">I") for _ in range(count)]), bool(flags & 1), bool(flags & 2))


def _message(reader: _Reader) -> ToldMessage:
    flags, lsn, prefix = reader.number(">B"), reader.number(">Q"), reader.text()
    return ToldMessage(bool(flags & 1), lsn, prefix, reader.take(reader.number(">I")))


_DECODERS: dict[str, Callable[[_Reader], Decoded]] = {
    "B": _begin,
    "C": _commit,
    "O": _origin,
    "R": _relation,
    "Y": _type,
    "I": _inserted,
    "U": _updated,
    "D": _deleted,
    "T": _truncated,
    "M": _message,
}
