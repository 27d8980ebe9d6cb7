"""The closed list of what may go over the wire. What is not here cannot be sent, nor made by what is received.

Classes are known on the wire by their names, which are unique in the list. Both sides must have the same list with the
same fields: ``PROTOCOL`` is a digest of all of it and is compared when a connection opens, so that processes of two
versions refuse each other with a clear message and never misread each other.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import fields
from enum import Enum
from typing import get_args
from zlib import crc32

from domains import errors
from domains.errors import HeadraceError
from domains.language import expressions, types
from domains.plan import commands, graph, packets
from worker.protocol import messages
from worker.protocol.messages import Message, NotHere, StaleEpoch
from worker.protocol.operations import RebuiltTable
from worker.reader_map.lookup import BoundLookup
from worker.wire.errors import ConnectionLost, ProtocolError, RemoteFault, WrongDeployment

FORMAT = 1
"""Of everything that the digest does not see: frames, envelopes, how a value is packed. Raise it with them."""

TYPES: tuple[type, ...] = (types.SqlType, types.Column, types.TableColumn, types.TableSchema)

EXPRESSIONS: tuple[type, ...] = (expressions.Field, expressions.Constant, expressions.Call)

GRAPH: tuple[type, ...] = (
    *get_args(graph.Operator),
    graph.AggregateCall,
    graph.Node,
    graph.OrderTerm,
    graph.Parameter,
    graph.Sharding,
)

PACKETS: tuple[type, ...] = (
    *get_args(packets.Operation),
    *get_args(packets.Packet),
    *get_args(packets.Outcome),
    packets.Fill,
    packets.Once,
    packets.Pattern,
    packets.Unfilled,
)
"""Effects are not sent: each is performed by the process whose domain ordered it."""

COMMANDS: tuple[type, ...] = (*get_args(commands.Command), commands.Part, commands.Progress, commands.Route)

MESSAGES: tuple[type, ...] = (*get_args(Message), messages.DomainReport, messages.Placed, BoundLookup, RebuiltTable)

CLASSES: tuple[type, ...] = (*TYPES, *EXPRESSIONS, *GRAPH, *PACKETS, *COMMANDS, *MESSAGES)


def _errors() -> Iterator[type[HeadraceError]]:
    yield from (each for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, HeadraceError))
    yield from (NotHere, StaleEpoch, ConnectionLost, ProtocolError, RemoteFault, WrongDeployment)


ERRORS: dict[str, type[HeadraceError]] = {each.code: each for each in _errors()}
"""By code. An error of any other class is sent as the nearest of its base classes that is here."""


def details_of(kind: type[HeadraceError]) -> tuple[str, ...]:
    """An error's fields beside message and hint: the further keyword arguments, which are attributes too."""
    return tuple(name for name in inspect.signature(kind).parameters if name not in ("message", "hint"))


def _digest() -> int:
    known = [f"{each.__name__}({', '.join(f'{f.name}: {f.type}' for f in fields(each))})" for each in CLASSES]
    known += [f"{code}({', '.join(details_of(each))})" for code, each in ERRORS.items()]
    enums = {e for room in (types, graph, messages) for e in vars(room).values() if inspect.isclass(e)}
    known += [f"{each.__name__}={[member.value for member in each]}" for each in enums if issubclass(each, Enum)]
    return crc32("\n".join(sorted(known)).encode())


PROTOCOL = f"headrace-{FORMAT}-{_digest():08x}"

assert len({each.__name__ for each in CLASSES}) == len(CLASSES), "two classes of one name"
