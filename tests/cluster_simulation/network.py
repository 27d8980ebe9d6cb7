"""Connections between the processes of a simulation: bytes in order, late, and now and then cut.

A connection carries its bytes in order; two connections do not know of each other, so what goes over one may overtake
what went over another before. A pair of processes can be *parted*: nothing arrives until they are joined again, and
nobody is told. A process that dies takes its connections along, and the others are told, unless its machine is gone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import Context
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.cluster_simulation.loop import PROCESS, Process, VirtualLoop

Address = tuple[str, int]


@dataclass(slots=True)
class Weather:
    """Seconds that bytes are on their way."""

    delay: float = 0.001
    jitter: float = 0.002
    slow: float = 0.0
    """The share of messages that take a hundred times as long."""


class _Socket:
    def __init__(self, address: Address) -> None:
        self._address = address

    def setsockopt(self, *_: Any) -> None:
        """It has no options."""

    def getsockname(self) -> Address:
        return self._address


class Listener:
    def __init__(self, network: Network, address: Address, factory: Any, process: Process) -> None:
        self.network, self.address, self.factory, self.process = network, address, factory, process
        self.sockets = [_Socket(address)]

    def close(self) -> None:
        if self.network.listeners.get(self.address) is self:
            del self.network.listeners[self.address]


class Transport(asyncio.Transport):
    """One end. Its events are run by the process that it belongs to."""

    def __init__(self, network: Network, process: Process, protocol: Any, peer: Address, weather: Weather) -> None:
        super().__init__()
        self.network, self.process, self.protocol = network, process, protocol
        self.other: Transport = self
        self._peer, self._weather = peer, weather
        self.is_open = True
        self._closing = False
        self._last = 0.0
        self._way: deque[bytes | None] = deque()
        """On its way to the other end; None is the end of it."""
        process.at_death.append(self.die)

    # --- asyncio's side -------------------------------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._peer if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Messages here are small."""

    def pause_reading(self) -> None:
        raise AssertionError("nothing is ever full here")

    def resume_reading(self) -> None:
        raise AssertionError("nothing is ever full here")

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def is_closing(self) -> bool:
        return self._closing

    def write(self, data: Any) -> None:
        if self.is_open and not self._closing:
            self._put(bytes(data))

    def write_eof(self) -> None:
        self.close()

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._put(None)
            self._lose(None)

    def abort(self) -> None:
        self._closing = True
        if self.is_open:
            self._lose(None)
            self.other.reset_soon()

    # --- what happens ---------------------------------------------------------------------------------------------

    def _put(self, data: bytes | None) -> None:
        loop = self.network.loop
        late = self.network.late.get((self.process, self.other.process), 0.0)
        self._last = max(self._last, loop.time() + self.network.delay(self._weather) + late)
        self._way.append(data)
        loop.call_at(self._last, self.arrive, context=self.network.context)

    def arrive(self) -> None:
        """The next of what is on its way, unless the two ends are parted: then it waits."""
        if not self._way or self.network.are_parted(self.process, self.other.process):
            return
        data = self._way.popleft()
        other = self.other
        if not other.is_open:
            return
        if data is None:
            other.process.call(other.ended)
        else:
            other.process.call(other.receive, data)

    def receive(self, data: bytes) -> None:
        if self.is_open:
            self.protocol.data_received(data)

    def ended(self) -> None:
        if self.is_open:
            self.protocol.eof_received()
            self.close()

    def flow_again(self) -> None:
        """The two ends are joined: what has waited arrives."""
        for _ in range(len(self._way)):
            self.arrive()

    def reset_soon(self) -> None:
        """The other end is gone; what it had sent may have been lost with it."""
        if self.is_open:
            if self.network.random.random() < 0.5:
                self.other._way.clear()
            loop = self.network.loop
            at = max(self.other._last, loop.time() + self.network.delay(self._weather))
            loop.call_at(at, self._reset, context=self.network.context)

    def _reset(self) -> None:
        if self.network.are_parted(self.process, self.other.process):
            self.network.silent.append(self)
        elif self.is_open:
            self.process.call(self._lose, ConnectionResetError("reset by the peer"))

    def _lose(self, error: Exception | None) -> None:
        if self.is_open:
            self.is_open, self._closing = False, True
            self.network.transports.pop(self, None)
            self.process.call(self.protocol.connection_lost, error)

    def die(self) -> None:
        """With its process. Where the machine is gone, nobody is told."""
        if self.is_open:
            self.is_open, self._closing = False, True
            self.network.transports.pop(self, None)
            if not self.network.vanishing:
                self.other.reset_soon()


class Network:
    def __init__(self, loop: VirtualLoop, random: Random) -> None:
        self.loop = loop
        self.random = random
        self.weather = Weather()
        self.is_healed = False
        """Connections that were made in bad weather are as good as any from then on."""
        self.listeners: dict[Address, Listener] = {}
        self.transports: dict[Transport, None] = {}
        self.silent: list[Transport] = []
        """Whose other end is gone, without their knowing."""
        self.parted: set[frozenset[Process]] = set()
        self.late: dict[tuple[Process, Process], float] = {}
        """What the one sends to the other takes so many seconds longer."""
        self.vanishing = False
        self._ports = 7000
        self.context = Context()
        loop.connector = self

    def delay(self, weather: Weather) -> float:
        weather = Weather() if self.is_healed else weather
        seconds = weather.delay + self.random.random() * weather.jitter
        if weather.slow and self.random.random() < weather.slow:
            seconds *= 100
        return seconds

    def are_parted(self, one: Process, other: Process) -> bool:
        return bool(self.parted) and frozenset((one, other)) in self.parted

    # --- faults ---------------------------------------------------------------------------------------------------

    def part(self, one: Process, other: Process) -> None:
        if one is not other:
            self.parted.add(frozenset((one, other)))

    def join(self) -> None:
        """Everybody reaches everybody again."""
        self.parted.clear()
        silent, self.silent = self.silent, []
        for transport in silent:
            transport._reset()
        for transport in list(self.transports):
            transport.flow_again()

    def cut_some(self, share: float) -> int:
        """Connections break, for no reason that anybody could see. At both ends, not at once."""
        cut = 0
        for transport in list(self.transports):
            if self.random.random() < share:
                transport._lose(ConnectionResetError("cut"))
                transport.other.reset_soon()
                cut += 1
        return cut

    # --- asyncio's side -------------------------------------------------------------------------------------------

    def listen(self, factory: Any, host: str, port: int) -> Listener:
        process = PROCESS.get()
        assert process is not None
        if not port:
            self._ports += 1
            port = self._ports
        if (host, port) in self.listeners:
            raise OSError(98, "address in use")
        listener = self.listeners[host, port] = Listener(self, (host, port), factory, process)
        process.at_death.append(listener.close)
        return listener

    async def connect(self, factory: Any, host: str, port: int) -> Any:
        process = PROCESS.get()
        assert process is not None
        await asyncio.sleep(2 * self.delay(self.weather))
        listener = self.listeners.get((host, port))
        if listener is None:
            raise ConnectionRefusedError(111, "connection refused")
        if self.are_parted(process, listener.process):
            await self.loop.create_future()  # Until whoever waits gives up.
        weather = self._some_weather()
        near = Transport(self, process, factory(), (host, port), weather)
        far = Transport(
            self, listener.process, listener.process.context.copy().run(listener.factory), (process.name, 1), weather
        )
        near.other, far.other = far, near
        self.transports.update({near: None, far: None})
        near.protocol.connection_made(near)
        listener.process.call(far.protocol.connection_made, far)
        return near, near.protocol

    def _some_weather(self) -> Weather:
        """Each connection has its own."""
        base = self.weather
        return Weather(base.delay * self.random.choice((0.2, 1, 1, 5)), base.jitter, base.slow)
