"""What a process says of itself where the others can read it: plain facts, as JSON, under its name."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Names of deployments, workers and controllers: they are path elements, host names and file names at once."""

EVERYWHERE = ("", "0.0.0.0", "::")
"""What one listens at to be reached at every address of a machine. Whoever connects to it reaches himself."""


def check_name(name: str, what: str) -> str:
    """The name itself. Raises ValueError where it could not be one."""
    if not NAME.fullmatch(name):
        raise ValueError(f'"{name}" is no name of a {what}: use up to 64 letters, digits, ".", "_" and "-"')
    return name


def advertised(host: str, advertise: str | None) -> str:
    """Where the others reach a process that listens at ``host``. Raises ValueError where that is no machine."""
    place = advertise or host
    if place in EVERYWHERE:
        raise ValueError(f'the others cannot reach this process at "{place}": --advertise names a host')
    return place


@dataclass(frozen=True, slots=True)
class WorkerDescriptor:
    """A worker process that is there."""

    name: str
    host: str
    """Where other machines reach it."""
    port: int
    incarnation: int
    """Greater than that of any earlier process of the same name."""
    pid: int
    data: str
    """What its data directory calls itself (``worker/belonging.py``): workers with one name open the same shards."""
    reader_map: str = ""
    """The directory of its reader map, absolute: processes of the same host read it."""


@dataclass(frozen=True, slots=True)
class ControllerDescriptor:
    """A controller process that leads or stands by."""

    name: str
    host: str
    port: int
    """Of its control interface, HTTP."""
    pid: int


Descriptor = TypeVar("Descriptor", WorkerDescriptor, ControllerDescriptor)


def to_json(descriptor: WorkerDescriptor | ControllerDescriptor) -> bytes:
    return json.dumps(asdict(descriptor), ensure_ascii=False).encode()


def from_json(kind: type[Descriptor], data: bytes) -> Descriptor:
    """Unknown keys are left out, so that a newer process may say more. Raises ValueError for anything else."""
    try:
        given: Any = json.loads(data)
        known = {field.name: given[field.name] for field in fields(kind) if field.name in given}
        descriptor = kind(**known)
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"no {kind.__name__}: {data[:200]!r}") from error
    for field in fields(kind):
        wanted = int if field.type == "int" else str
        if type(getattr(descriptor, field.name)) is not wanted:
            raise ValueError(f'no {kind.__name__}: "{field.name}" is not {wanted.__name__}')
    return descriptor
