"""The cluster's status, put together from the workers' reports; it needs no leader."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controller.cluster.serving.connections import Connections
from controller.cluster.serving.directory import Directory
from controller.deployment import Reason, ReasonKind
from controller.status import UNHELD, Held, graph_of, readers_of
from controller.transactions.in_doubt import told_of_doubt
from domains.errors import HeadraceError
from domains.plan.graph import DomainIndex, NodeIndex
from migrations.flow.dataflow import Dataflow
from worker.protocol.messages import Status, StatusDocument
from zookeeper.registration import WorkerDescriptor

PATIENCE = 1.0
"""Seconds for a worker's report. One that hangs is shown as silent."""

Document = dict[str, Any]


@dataclass(slots=True)
class Overview:
    _directory: Directory
    _connections: Connections

    async def status(self, hits: int, misses: int, open: int) -> Document:
        """Sizes in bytes, times in seconds; ``counters`` only grow while no worker is lost. ``open``: the transactions
        of this process."""
        documents = await self._documents()
        answered = list(documents.values())
        domains = [{"worker": name, **domain} for name, each in documents.items() for domain in each["domains"]]
        counters = {"hits": hits, "misses": misses, "syncs": sum(each["syncs"] for each in answered)}
        for domain in domains:
            for name, count in domain["counters"].items():
                counters[name] = counters.get(name, 0) + count
        return {
            "cluster": self._decided(documents),
            "memory": _memory(documents),
            "counters": counters,
            "tables": self._tables(domains),
            "views": {} if self._directory.cluster is None else views_of(self._directory.state.flow, domains),
            "domains": [{name: value for name, value in domain.items() if name in DOMAIN} for domain in domains],
            "workers": [self._worker(worker, documents.get(worker.name)) for worker in self._workers()],
            "links": [
                {"from": name, "to": to, **peer}
                for name, each in documents.items()
                for to, peer in each["peers"]["out"].items()
            ],
            "transactions": told_of_doubt(
                {id: at for domain in domains for id, at in domain["in_doubt"].items()}, open
            ),
        }

    async def graph(self) -> Document:
        """The nodes, and their state in all domains that answer."""
        documents = await self._documents()
        return graph_of(self._directory.state.flow, _held(documents))

    async def graph_of_view(self, view: str) -> tuple[Document, Document]:
        """The nodes that a view stands on, of which alone workers tell; and its reader's status, by the view's name."""
        flow = self._directory.state.flow
        wanted = flow.above_reader(view)
        documents = await self._documents(frozenset(wanted))
        domains = [domain for each in documents.values() for domain in each["domains"]]
        return graph_of(flow, _held(documents), wanted), views_of(flow, domains, view)

    # --- the report -------------------------------------------------------------------------------------------

    def _workers(self) -> list[WorkerDescriptor]:
        return [worker for _, worker in sorted(self._directory.workers.items())]

    async def _documents(self, nodes: frozenset[NodeIndex] | None = None) -> dict[str, Document]:
        """The status of each worker that answers."""
        workers = self._workers()
        told = await asyncio.gather(*(self._ask(worker, nodes) for worker in workers))
        return {worker.name: each for worker, each in zip(workers, told, strict=True) if each is not None}

    async def _ask(self, worker: WorkerDescriptor, nodes: frozenset[NodeIndex] | None) -> Document | None:
        try:
            async with asyncio.timeout(PATIENCE):
                connection = await self._connections.to(worker)
                answer: StatusDocument = await connection.ask(Status(nodes))
        except (HeadraceError, TimeoutError):
            return None
        return answer.document

    # --- what is shown ------------------------------------------------------------------------------------------

    def _decided(self, documents: Mapping[str, Document]) -> Document:
        directory, decided = self._directory, self._directory.cluster
        leader = directory.leader if directory.led else None
        shown: Document = {
            "deployment": directory.authority.deployment,
            "leader": None if leader is None else {"name": leader.name, "host": leader.host, "port": leader.port},
            "zookeeper": "connected" if directory.connected else "away",
        }
        if decided is None:
            return {**shown, "started": False}
        return {
            **shown,
            "started": True,
            "epoch": decided.epoch,
            "shards": decided.shards,
            "quorum": decided.quorum,
            "draining": [name for name, process in decided.draining.items() if self._is_there(name, process)],
            "unplaced": [domain for domain in decided.domains if not self._has_host(domain, documents)],
        }

    def _is_there(self, name: str, process: int) -> bool:
        """Whether the drained process is still there: after a restart a worker is not drained."""
        worker = self._directory.workers.get(name)
        return worker is not None and worker.incarnation == process and name in self._directory.registered

    def _has_host(self, domain: DomainIndex, documents: Mapping[str, Document]) -> bool:
        """Whether the domain's worker is there: a domain that nobody can take stays with its lost worker. ZooKeeper may
        have lost sight of a worker that answers us."""
        owner = self._directory.owner(domain)
        return owner is not None and (owner.name in self._directory.registered or owner.name in documents)

    def _worker(self, worker: WorkerDescriptor, told: Document | None) -> Document:
        decided = self._directory.cluster
        placement = decided.placement if decided is not None else {}
        shown: Document = {
            "worker": worker.name,
            "host": worker.host,
            "port": worker.port,
            "pid": worker.pid,
            "registered": worker.name in self._directory.registered,
            "domains": [domain for domain, given in placement.items() if given.worker == worker.name],
        }
        if told is None:
            return {**shown, "health": "silent"}
        memory = {f"memory_{name}": told["memory"].get(name, 0) for name in MEMORY}
        archive = {name: told[name] for name in ARCHIVE if name in told}
        return {**shown, **{name: told[name] for name in WORKER}, **memory, **archive}

    def _tables(self, domains: Iterable[Document]) -> Document:
        """Over all shards that answer; a position counts the writes to all of them."""
        shown = {name: {"rows": 0, "position": 0} for name in self._names()}
        for domain in domains:
            for name, table in domain["tables"].items():
                if name in shown:
                    shown[name]["rows"] += table["rows"]
                    shown[name]["position"] += table["position"]
        return shown

    def _names(self) -> list[str]:
        return (
            [] if self._directory.cluster is None else [t.title for t in self._directory.state.catalog.tables.values()]
        )


def _memory(documents: Mapping[str, Document]) -> Document:
    """The memory of all workers together; each has a limit of its own, and perhaps an alarm."""
    told = {name: each["memory"] for name, each in documents.items()}
    shown: Document = {name: sum(each.get(name, 0) for each in told.values()) for name in MEMORY}
    alarms = [f'worker "{name}": {each["alarm"]}' for name, each in sorted(told.items()) if "alarm" in each]
    return {**shown, "alarm": "; ".join(alarms)} if alarms else shown


def _held(documents: Mapping[str, Document]) -> Held:
    held: Held = {}
    for document in documents.values():
        for domain in document["domains"]:
            for index, own in domain["state"].items():
                keys, size, deltas = held.get(NodeIndex(int(index)), UNHELD)
                total = (keys + own["keys"], size + own["bytes"], deltas + own.get("deltas", 0))
                held[NodeIndex(int(index))] = total
    return held


def views_of(flow: Dataflow, domains: Sequence[Document], view: str | None = None) -> Document:
    """The contents of the domains' readers, by view, or of that of one. ``lag``: writes that are in the base tables and
    not yet in the reader, of the shard that is furthest behind. Reports are not of one moment, so a busy cluster always
    shows a few.
    """
    positions = {table["base"]: table["position"] for each in domains for table in each["tables"].values()}
    shown: Document = {
        name: {"materialization": node.materialization.value, "keys": 0, "bytes": 0, "lag": 0}
        for name, node in readers_of(flow, view)
    }
    for domain in domains:
        for name, reader in domain["readers"].items():
            known = shown.get(name)
            if known is not None:
                known["keys"] += reader["keys"]
                known["bytes"] += reader["bytes"]
                behind = (positions.get(base, seen) - seen for base, seen in reader["clock"].items())
                known["lag"] = max(known["lag"], sum(each for each in behind if each > 0))
    return shown


def with_leaders_view(shown: Document, led: Document) -> Document:
    """Add what only the leader knows: whether a recovery is under way, and when it last heard each worker."""
    workers = {each["name"]: each for each in led.get("workers", ())}
    seen = {name: led[name] for name in LED if name in led}
    cluster = {**shown["cluster"], "leader_answers": bool(led), **seen}
    if "unplaced" in cluster:  # Also domains whose worker is there but cannot open them.
        cluster["unplaced"] = sorted({*cluster["unplaced"], *map(int, led.get("closed", ()))})
    if led.get("closed"):
        cluster["alarm"] = "; ".join(f"shard {shard} is not served: {why}" for shard, why in led["closed"].items())
    return {
        **shown,
        "cluster": cluster,
        "workers": [{**each, **_seen(workers.get(each["worker"], {}))} for each in shown["workers"]],
    }


def trouble_of(shown: Document) -> Iterator[Reason]:
    """What of a status is not served, or not sound."""
    cluster = shown["cluster"]
    served = {domain["domain"] for domain in shown["domains"] if domain["linked"]}
    closed = [shard for shard in range(cluster.get("shards", 0)) if shard not in served]
    if "alarm" in cluster:
        yield Reason(ReasonKind.SHARDS, cluster["alarm"])
    if missing := [str(shard) for shard in closed if str(shard) not in cluster.get("closed", {})]:
        yield Reason(ReasonKind.SHARDS, f"shard{'' if len(missing) == 1 else 's'} {', '.join(missing)} not served now")
    for worker in shown["workers"]:
        if worker["domains"] and worker["health"] not in ("ok", "silent"):
            yield Reason(ReasonKind.STORAGE, f'worker "{worker["worker"]}": {worker["health"]}')
        if worker["domains"] and worker.get("full"):
            yield Reason(ReasonKind.CHANGES, f'worker "{worker["worker"]}": {worker["full"]}')


def _seen(worker: Document) -> Document:
    return {name: worker[name] for name in SEEN if name in worker}


LED = ("calm", "trouble", "doing", "closed", "migrating", "automatic")
SEEN = ("heard", "draining")
MEMORY = ("accounted", "full", "limit", "resident", "reader_map_file")
DOMAIN = ("domain", "worker", "incarnation", "shard", "linked", "nodes", "bytes", "parked", "pending", "held")
ARCHIVE = ("archive",)
"""In the reports of workers that have one."""
WORKER = ("health", "full", "storage_alarms", "uptime", "epoch", "inbox", "outbound_waiting", "refused")
