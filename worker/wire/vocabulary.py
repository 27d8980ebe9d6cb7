"""The closed list of classes that may go over the wire. No other can be sent, or be made from received bytes.

A class is identified by its name, which is unique in the list. Both sides must have the same list with the same fields:
``PROTOCOL`` is a digest of all of it, which is compared when a connection opens, so that processes of two versions
refuse each other with a clear message and never misread each other.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import Field, fields, is_dataclass
from enum import Enum
from types import ModuleType
from typing import Any, get_args
from zlib import crc32

from domains import errors
from domains.engine.evaluation import EvaluationPlan
from domains.engine.transactions.locks import HeldByLocks
from domains.errors import HeadraceError
from domains.language import expressions, types
from domains.language.functions.json import paths, table
from domains.plan import commands, graph, packets
from domains.plan.copies import PartCopy
from domains.plan.estimates import Estimated
from domains.plan.snapshots import InSnapshot
from domains.store.storage import SnapshotRecord
from worker.adhoc.answer import Question
from worker.protocol import cuts, messages, operations
from worker.protocol.messages import (
    ConnectionLost,
    NotHere,
    ProtocolError,
    RemoteFault,
    StaleEpoch,
    WrongDeployment,
)
from worker.reader_map.lookup import BoundLookup
from worker.rocks.stored_table import ViewedTable

FORMAT = 1
"""Raise it with any change that the digest does not see: of frames, envelopes, or how a value is packed."""


def _dataclasses_of(module: ModuleType) -> list[type]:
    own = (each for each in vars(module).values() if inspect.isclass(each) and each.__module__ == module.__name__)
    return [each for each in own if is_dataclass(each)]


TYPES: tuple[type, ...] = (
    types.SqlType,
    types.StoredExpression,
    types.Check,
    types.Column,
    types.ForeignKey,
    types.TableColumn,
    types.TableSchema,
)

EXPRESSIONS: tuple[type, ...] = (expressions.Field, expressions.Constant, expressions.Call)

JSON: tuple[type, ...] = (*get_args(table.JsonColumn), *get_args(paths.Leg))

GRAPH: tuple[type, ...] = (
    *get_args(graph.Operator),
    graph.AggregateCall,
    graph.Frame,
    graph.FrameBound,
    graph.Node,
    graph.OrderTerm,
    graph.Parameter,
    graph.RangeTerm,
    graph.RoundStep,
    graph.Sharding,
    graph.WindowCall,
)

PACKETS: tuple[type, ...] = (
    *get_args(packets.TransactionAct),
    *get_args(packets.Packet),
    *get_args(packets.Outcome),
    InSnapshot,
    PartCopy,
    packets.Fill,
    packets.InTransaction,
    packets.Once,
    packets.Pattern,
    packets.RowGuard,
    packets.Unfilled,
    SnapshotRecord,
)
"""Effects are not sent: the process of the domain that ordered one performs it."""

COMMANDS: tuple[type, ...] = (*get_args(commands.Command), commands.Part, commands.Progress, commands.Route)

MESSAGES: tuple[type, ...] = (
    *_dataclasses_of(messages),
    *_dataclasses_of(operations),
    *_dataclasses_of(cuts),
    BoundLookup,
)

QUESTIONS: tuple[type, ...] = (Question, EvaluationPlan, Estimated, ViewedTable)

CLASSES: tuple[type, ...] = (*TYPES, *EXPRESSIONS, *JSON, *GRAPH, *PACKETS, *COMMANDS, *MESSAGES, *QUESTIONS)


def _errors() -> Iterator[type[HeadraceError]]:
    yield from (each for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, HeadraceError))
    yield from (NotHere, StaleEpoch, ConnectionLost, ProtocolError, RemoteFault, WrongDeployment)


ERRORS: dict[str, type[HeadraceError]] = {each.code: each for each in _errors()} | {"held_by_locks": HeldByLocks}
"""The errors by what they are called here: their codes, of which two classes have one. An error of another class is
sent as its nearest base class in this list."""


def details_of(kind: type[HeadraceError]) -> tuple[str, ...]:
    """An error's fields beside message and hint: further keyword arguments of its constructor, and attributes."""
    return tuple(name for name in inspect.signature(kind).parameters if name not in ("message", "hint"))


def sent_fields(kind: type) -> tuple[Field[Any], ...]:
    return tuple(each for each in fields(kind) if each.metadata.get("sent", True))


def _digest() -> int:
    known = [f"{each.__name__}({', '.join(f'{f.name}: {f.type}' for f in sent_fields(each))})" for each in CLASSES]
    known += [f"{code}({', '.join(details_of(each))})" for code, each in ERRORS.items()]
    enums = {e for room in (types, graph, messages) for e in vars(room).values() if inspect.isclass(e)}
    known += [f"{each.__name__}={[member.value for member in each]}" for each in enums if issubclass(each, Enum)]
    return crc32("\n".join(sorted(known)).encode())


PROTOCOL = f"headrace-{FORMAT}-{_digest():08x}"

assert len({each.__name__ for each in CLASSES}) == len(CLASSES), "two classes of one name"
