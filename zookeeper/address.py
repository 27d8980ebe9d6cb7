"""The address of ZooKeeper, ``host:port,host:port/path``, and a probe of what answers there."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import Enum
from ipaddress import ip_address

from zookeeper.errors import AuthorityError

DEFAULT_PORT = 2181

PROBE_SECONDS = 2.0
"""ZooKeeper answers within a millisecond, even without a quorum; a busy machine may take longer."""

KNOWN_ANSWERS = (b"Zookeeper version", b"is not in the whitelist", b"is not currently serving requests")
"""Every ZooKeeper since 3.4.10 answers ``srvr`` with one of these: the command is allowed by default, and a server that
does not allow it, or has no quorum, says so."""


@dataclass(frozen=True, slots=True)
class Address:
    hosts: tuple[tuple[str, int], ...]
    path: str
    """The znode that everything is below; empty for the root."""

    def __str__(self) -> str:
        return ",".join(joined(host, port) for host, port in self.hosts) + self.path


def is_loopback(host: str) -> bool:
    """Whether only processes of this machine reach that address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_address(text: str) -> Address:
    """Raises AuthorityError."""
    servers, slash, path = text.strip().partition("/")
    hosts = tuple(_host(each.strip(), text) for each in servers.split(","))
    return Address(hosts, (slash + path).rstrip("/"))


def _host(text: str, whole: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    if (
        not host
        or any(each in host for each in (" @/" if bracketed else " @/:"))
        or not port.isdecimal()
        or not 0 < int(port) < 65536
    ):
        raise AuthorityError(
            f'"{whole}" is not an address of ZooKeeper', hint="write it like host:2181 or host1:2181,host2:2181/path"
        )
    return host, int(port)


class Finding(Enum):
    ZOOKEEPER = "a ZooKeeper answers"
    STRANGER = "something else answers"
    SILENT = "something takes connections and says nothing"
    ABSENT = "nothing takes connections"


async def probe(host: str, port: int) -> tuple[Finding, str]:
    """The kind of server there, and its answer; for ABSENT, the system's reason."""
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            reader, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return Finding.ABSENT, "no answer"
    except OSError as error:
        return Finding.ABSENT, error.strerror or str(error)
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            writer.write(b"srvr")
            answer = await reader.read(4096)
    except TimeoutError:
        return Finding.SILENT, ""
    except OSError:
        return Finding.STRANGER, ""
    finally:
        writer.close()
    known = any(each in answer for each in KNOWN_ANSWERS)
    return (Finding.ZOOKEEPER if known else Finding.STRANGER), answer.decode(errors="replace")
