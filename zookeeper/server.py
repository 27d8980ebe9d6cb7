"""The bundled ZooKeeper: one server or three, started out of the jars that come with PySpark.

::

    DIR/size  ports                            number of servers; the clients' ports at the last start
    DIR/1/zoo.cfg  myid  log4j2.properties     written anew at each start
    DIR/1/data/                                ZooKeeper's own: snapshots and log
    DIR/1/server.log  server.out               ZooKeeper's log; output of Java itself

It is for a cluster on one machine, for tests and for drills. A cluster of several machines needs a ZooKeeper on three
of them, so that it survives the loss of one: see ``docs/operations.md``.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from struct import Struct
from zlib import adler32

from zookeeper.address import Finding, probe
from zookeeper.errors import ServerFailed
from zookeeper.java import class_path, java

HOST = "127.0.0.1"
SIZE = "size"
PORTS = "ports"

TICK_MS = 250
"""ZooKeeper's unit of time. It grants sessions of at least 2 ticks and ends them at a tick: one of 1.5 s after 1.75 s
at the latest. Shorter ticks would only mean more packets between servers."""
INIT_TICKS = 40
"""A server that joins has 10 s to fetch the state."""
SYNC_TICKS = 12
"""A server of three that is silent for 3 s is left out. A garbage collection on a busy machine takes less."""

HEAP = "64m"
"""The state is one znode of at most a megabyte, and a few small ones."""
LOG_ALLOCATION_KB = 1024
"""ZooKeeper preallocates its log file, by default 64 MB."""

START_SECONDS = 30.0
"""0.6 s on a quiet machine; three servers on a busy one need several times that."""
STOP_SECONDS = 5.0
POLL_SECONDS = 0.05
PORTS_TRIED = 3
"""Another process may take a free port between our finding it and Java's opening it."""

JVM_OPTIONS = (
    f"-Xmx{HEAP}",
    "-XX:+UseSerialGC",  # One thread instead of one a core, and it returns memory.
    "-XX:TieredStopAtLevel=1",  # It is never busy enough for the optimising compiler to pay.
    "-Dzookeeper.jmx.log4j.disable=true",
    "-Dzookeeper.admin.enableServer=false",  # Else it takes port 8080.
    "-Dzookeeper.4lw.commands.whitelist=srvr,ruok",
    f"-Dzookeeper.preAllocSize={LOG_ALLOCATION_KB}",
)

LOGGING = """\
status = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {folder}/server.log
appender.file.filePattern = {folder}/server.log.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %p %c{{1}}: %m%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
"""


def size_of(directory: Path) -> int | None:
    """How many servers have their data there; None if there are none yet."""
    try:
        return int((directory / SIZE).read_text())
    except (OSError, ValueError):
        return None


class Ensemble:
    """``size`` servers on this machine, with their data in ``directory``. For one process at a time.

    Clients connect to ``host`` at ``ports``; by default at those of the last start. At the first start, and if another
    program has taken these ports (``tell`` is told of that), free ones are found.
    """

    def __init__(
        self,
        directory: Path,
        size: int = 1,
        *,
        ports: Sequence[int] | None = None,
        host: str = HOST,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        if size not in (1, 3):
            raise ValueError("an ensemble has 1 server or 3: with 2 it survives no more than with 1")
        if ports is not None and len(ports) != size:
            raise ValueError("a port for each server")
        self._directory = directory
        self._given = tuple(ports) if ports is not None else None
        self._host = host
        self._tell = tell
        self._servers = [_Server(directory.absolute() / str(number), number, host) for number in range(1, size + 1)]

    @property
    def address(self) -> str:
        """The address as ``--zookeeper`` takes it; known after ``start``."""
        return ",".join(f"{self._host}:{server.port}" for server in self._servers)

    @property
    def pids(self) -> dict[int, int]:
        """The process numbers of the servers that run, by server number."""
        return {server.number: server.pid for server in self._servers if server.pid is not None}

    async def start(self) -> None:
        """Start the servers that do not run, and return when all serve. Raises ServerFailed; then none runs."""
        self._check_size()
        ports = self._given or self._kept()
        try:
            for attempt in range(PORTS_TRIED):
                try:
                    await self._start(ports)
                    break
                except _PortTaken as error:
                    await self.stop()
                    if self._given is not None or attempt == PORTS_TRIED - 1:
                        raise ServerFailed(str(error), hint="choose another port, or stop what uses it") from error
                    if ports is not None:
                        self._tell(f"{error}; it listens elsewhere from now on")
                    ports = None
            self._keep()
        except BaseException:
            await self.stop()
            raise

    def _kept(self) -> tuple[int, ...] | None:
        """The ports of the last start, if known."""
        try:
            ports = tuple(map(int, (self._directory / PORTS).read_text().split()))
        except (OSError, ValueError):
            return None
        usable = len(set(ports)) == len(self._servers) and all(0 < port < 2**16 for port in ports)
        return ports if usable else None

    def _keep(self) -> None:
        path, text = self._directory / PORTS, " ".join(str(server.port) for server in self._servers)
        try:
            path.write_text(f"{text}\n")
        except OSError as error:
            raise ServerFailed(f'cannot write to "{path}": {error.strerror or error}') from error

    def _check_size(self) -> None:
        """The size must not change: two empty servers beside the one with the state would be a majority without it."""
        path, size = self._directory / SIZE, len(self._servers)
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                path.write_text(f"{size}\n")
            before = path.read_text().strip()
        except OSError as error:
            raise ServerFailed(f'cannot write to "{self._directory}": {error.strerror or error}') from error
        if before != str(size):
            raise ServerFailed(
                f'ZooKeeper in "{self._directory}" is one of {before} servers, and cannot become one of {size}',
                hint=f"start it with {before}, or begin anew in another directory",
            )

    async def _start(self, ports: Sequence[int] | None) -> None:
        """``ports`` are the clients'; None: free ones."""
        program = [str(await java()), *JVM_OPTIONS, "-cp", class_path()]
        for port in ports or ():
            _check_free(self._host, port)  # Before any server is started.
        free = [port for port in _free_ports(self._host, 4 * len(self._servers)) if port not in (ports or ())]
        for number, server in enumerate(self._servers):
            server.port = ports[number] if ports is not None else free[3 * number]
            server.quorum = (free[3 * number + 1], free[3 * number + 2])
        for server in self._servers:
            await server.start(program, self._servers)
        await asyncio.gather(*(server.serves() for server in self._servers))

    async def stop(self) -> None:
        """Stop all in order."""
        await asyncio.gather(*(server.stop() for server in self._servers))

    async def kill(self, number: int) -> None:
        """Kill server 1, 2 or 3, as in a crash."""
        await self._server(number).kill()

    async def restart(self, number: int) -> None:
        """Start server 1, 2 or 3 again on its ports; returns when it serves."""
        server = self._server(number)
        await server.stop()
        await server.start([str(await java()), *JVM_OPTIONS, "-cp", class_path()], self._servers)
        await server.serves()

    async def ended(self) -> int:
        """Wait until a server ends that was not stopped or killed here; answers its number."""
        waits = {asyncio.create_task(server.ended()): server.number for server in self._servers}
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            return min(waits[each] for each in done)
        finally:
            for each in waits:
                each.cancel()

    def _server(self, number: int) -> _Server:
        return self._servers[number - 1]


class _PortTaken(Exception):
    pass


class _Server:
    def __init__(self, folder: Path, number: int, host: str) -> None:
        self.folder = folder
        self.number = number
        self.host = host
        self.port = 0
        self.quorum = (0, 0)
        """Ports between the servers: for followers, and for elections."""
        self._process: asyncio.subprocess.Process | None = None
        self._wanted = asyncio.Event()
        """Set while it should run."""
        self._logged = 0
        """Bytes of the log at the start."""

    @property
    def pid(self) -> int | None:
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def start(self, program: Sequence[str], servers: Sequence[_Server]) -> None:
        for log in sorted(self.folder.glob("data/version-2/log.*")):
            await asyncio.to_thread(check_log, log)
        if self.pid is not None:
            return
        _check_free(self.host, self.port)
        try:
            self._configure(servers)
            self._logged = _size(self.folder / "server.log")
            output = (self.folder / "server.out").open("wb")
        except OSError as error:
            raise ServerFailed(f'cannot write to "{self.folder}": {error.strerror or error}') from error
        main = "ZooKeeperServerMain" if len(servers) == 1 else "quorum.QuorumPeerMain"
        logging_options = f"-Dlog4j2.configurationFile={(self.folder / 'log4j2.properties').as_uri()}"
        with output:
            self._process = await asyncio.create_subprocess_exec(
                program[0],
                logging_options,
                *program[1:],
                f"org.apache.zookeeper.server.{main}",
                str(self.folder / "zoo.cfg"),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C on the terminal must not reach it: it is stopped last.
            )
        self._wanted.set()

    def _configure(self, servers: Sequence[_Server]) -> None:
        data = self.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        lines = [
            f"tickTime={TICK_MS}",
            f"initLimit={INIT_TICKS}",
            f"syncLimit={SYNC_TICKS}",
            f"dataDir={data}",
            f"clientPort={self.port}",
            f"clientPortAddress={self.host}",
            "maxSessionTimeout=60000",
            "maxClientCnxns=0",  # All clients of a machine have one address here.
            "autopurge.snapRetainCount=3",
            "autopurge.purgeInterval=1",
        ]
        if len(servers) > 1:
            lines += [
                f"server.{each.number}={each.host}:{each.quorum[0]}:{each.quorum[1]};{each.host}:{each.port}"
                for each in servers
            ]
            lines = [line for line in lines if not line.startswith("clientPort")]
            lines += ["standaloneEnabled=false", "reconfigEnabled=false"]
            (data / "myid").write_text(f"{self.number}\n")
        (self.folder / "zoo.cfg").write_text("\n".join(lines) + "\n")
        (self.folder / "log4j2.properties").write_text(LOGGING.format(folder=self.folder))

    async def serves(self) -> None:
        """Returns when it serves. Raises ServerFailed, _PortTaken."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + START_SECONDS
        while not await _serving(self.host, self.port):
            if self.pid is None:
                raise self._failed("has ended")
            if loop.time() > deadline:
                raise self._failed(f"does not serve within {START_SECONDS:g} s")
            await asyncio.sleep(POLL_SECONDS)
        if self.pid is None:
            raise _PortTaken(f"port {self.port} for ZooKeeper is taken by another ZooKeeper")

    def _failed(self, what: str) -> Exception:
        log = _since(self.folder / "server.log", self._logged) + _since(self.folder / "server.out", 0)
        if "BindException" in log or "Address already in use" in log:
            return _PortTaken(f"port {self.port} for ZooKeeper is taken")
        return ServerFailed(
            f"the bundled ZooKeeper server {self.number} {what}",
            hint=f'see "{self.folder / "server.log"}" and "{self.folder / "server.out"}"',
        )

    async def stop(self) -> None:
        await self._end(signal.SIGTERM)

    async def kill(self) -> None:
        await self._end(signal.SIGKILL)

    async def _end(self, how: signal.Signals) -> None:
        self._wanted.clear()
        process = self._process
        if process is None:
            return
        if process.returncode is None:
            process.send_signal(how)
            try:
                async with asyncio.timeout(STOP_SECONDS):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()

    async def ended(self) -> None:
        while True:
            await self._wanted.wait()
            assert self._process is not None
            await self._process.wait()
            if self._wanted.is_set():
                return


async def _serving(host: str, port: int) -> bool:
    """Whether it answers, and has joined the others if it is one of three."""
    finding, said = await probe(host, port)
    return finding is Finding.ZOOKEEPER and "Mode:" in said


def _check_free(host: str, port: int) -> None:
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, port))
        except OSError as error:
            raise _PortTaken(f"port {port} for ZooKeeper is taken: {error.strerror}") from error


def _free_ports(host: str, count: int) -> list[int]:
    sockets = [socket.create_server((host, 0)) for _ in range(count)]
    ports: list[int] = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _since(path: Path, offset: int) -> str:
    """A log from the offset on, or all of it if it has begun anew."""
    try:
        content = path.read_bytes()
    except OSError:
        return ""
    return content[offset if len(content) >= offset else 0 :].decode(errors="replace")


# What ZooKeeper reads past: it checks the sum of each change in its log, but takes one whose length or last byte has
# turned for the end, as if a crash had torn it, and goes on without that change and all behind it.

_LOG_HEADER = 16
_CHANGE = Struct(">qi")
"""Its Adler checksum, and its length. The bytes follow, then an end mark."""
_END = b"B"


def check_log(path: Path) -> None:
    """:raises ServerFailed: changes in it were synced, and ZooKeeper would go on without them."""
    content = path.read_bytes().rstrip(b"\0")  # It is allocated before it is written.
    at = _LOG_HEADER
    while at < len(content):
        end = _end_of(content, at)
        if end is None:
            break
        at = end
    else:
        return
    # A crash may have torn the last change: then no whole one follows, and it is not one whose length alone is wrong.
    torn = content[at:]
    whole_but_for_length = torn.endswith(_END) and _checked(torn, len(torn) - _CHANGE.size - len(_END))
    followed = any(_end_of(content, later) is not None for later in range(at + 1, len(content) - _CHANGE.size))
    length = _CHANGE.unpack_from(torn)[1] if len(torn) > _CHANGE.size else -1
    if whole_but_for_length or followed or _checked(torn, length):
        raise ServerFailed(
            f'ZooKeeper\'s log "{path}" is damaged at byte {at}: it would go on without what is behind that',
            hint="with three servers delete the data of this one; else bring back what headrace state has saved",
        )


def _end_of(content: bytes, at: int) -> int | None:
    """The end of the change that begins there; None where there is no whole one."""
    if at + _CHANGE.size > len(content):
        return None
    length: int = _CHANGE.unpack_from(content, at)[1]
    end = at + _CHANGE.size + length
    if length <= 0 or content[end : end + 1] != _END or not _checked(content[at : end + 1], length):
        return None
    return end + 1


def _checked(change: bytes, length: int) -> bool:
    """Whether so many bytes have the checksum that stands before them."""
    if length <= 0 or len(change) < _CHANGE.size + length + 1:
        return False
    return bool(_CHANGE.unpack_from(change)[0] == adler32(change[_CHANGE.size : _CHANGE.size + length]))
