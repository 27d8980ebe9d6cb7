"""What must hold: of answers while everything goes wrong, and of the whole cluster once it has come to rest."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from controller.cluster.state import ClusterState
from domains.engine.invariants import check_links
from domains.language.types import Delta, Row
from domains.plan.graph import DomainIndex, is_automatic
from domains.plan.packets import Clock
from domains.plan.sharding import base_shard, shard_of
from migrations.flow.plan import State
from tests.cluster_simulation.client import Ending
from tests.cluster_simulation.loop import Condition
from tests.cluster_simulation.program import LedgerView
from tests.cluster_simulation.storage import CrashStore
from worker.service.status import heard_positions

if TYPE_CHECKING:
    from tests.cluster_simulation.cluster import Cluster
    from tests.cluster_simulation.worker import SimulatedWorker


@dataclass(frozen=True, slots=True)
class Seen:
    """An answer of a view that shows single rows of one ledger table."""

    view: str
    table: str
    where: dict[int, int]
    """Column → value, as the view was asked."""
    ids: frozenset[int]
    at_least: frozenset[int]
    """What its token covers, was written before the view came, or had been shown to the same client before."""
    doubled: frozenset[int] = frozenset()
    """Of ``ids``, those that were there more than once."""


@dataclass(slots=True)
class Ledger:
    """Every row that was to be inserted, and how that ended."""

    rows: dict[str, dict[int, Row]] = field(default_factory=lambda: {"marks": {}, "tags": {}})
    endings: dict[tuple[str, int], Ending] = field(default_factory=dict)
    positions: dict[tuple[str, int], Clock] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    lost: dict[str, set[int]] = field(default_factory=dict)
    """By table, rows that were not archived when the disk they were on was given up: they may be there, since somebody
    may have sent them again, or not."""
    twice: set[int] = field(default_factory=set)
    """Rows that were sent under a number which their shard has forgotten with its disk."""

    def judge(self, stored: dict[str, list[Row]], order: dict[str, dict[int, dict[int, int]]]) -> None:
        """``order``: table → shard → id → place in the log."""
        for table, intended in self.rows.items():
            counts = Counter(row[0] for row in stored.get(table, ()))
            for row in stored.get(table, ()):
                assert intended.get(row[0]) == row, f"{table} has {row}, which nobody inserted"
            for id, row in intended.items():
                ending = self.endings.get((table, id), Ending.UNKNOWN)
                allowed = {Ending.DONE: (1,), Ending.REFUSED: (0,), Ending.UNKNOWN: (0, 1)}[ending]
                if id in self.lost.get(table, ()):
                    allowed = (0, 1)
                if id in self.twice:
                    allowed = (0, 1, 2)
                assert counts[id] in allowed, f"{row} of {table} is there {counts[id]} times, and was {ending.value}"
        for seen in self.seen:
            self._judge_answer(seen, stored, order)

    def _judge_answer(self, seen: Seen, stored: dict[str, list[Row]], order: dict[str, Any]) -> None:
        lost = self.lost.get(seen.table, set())
        known = {row[0] for row in stored.get(seen.table, ())} | lost
        assert seen.ids <= known, (
            f"{seen.view} showed {sorted(seen.ids - known)}, which are lost: not durable when shown"
        )
        doubled = seen.doubled - self.twice
        assert not doubled, f"{seen.view} showed {sorted(doubled)} more than once"
        missing = seen.at_least - seen.ids - lost
        assert not missing, (
            f"{seen.view} did not show {sorted(missing)}, which its token covers, were there before it, or were shown"
        )
        for places in order.get(seen.table, {}).values():
            mine = {
                id: place
                for id, place in places.items()
                if all(self.rows[seen.table][id][column] == value for column, value in seen.where.items())
            }
            last = max((place for id, place in mine.items() if id in seen.ids), default=-1)
            skipped = sorted(id for id, place in mine.items() if place < last and id not in seen.ids)
            assert not skipped, f"{seen.view} showed a later row of a shard, and not {skipped} before it"


def check_heard(cluster: Cluster, store: CrashStore, shard: int, shards: int) -> None:
    """Nobody has heard of a position that a shard which is opened would give again. (Within one process packets are
    sent before the sync; but whoever is there has its shards open still, or has closed them in order.)"""
    for worker in cluster.every_worker:
        if worker.is_up and worker.process.condition is Condition.RUNNING:
            heard = heard_positions(worker.dataflow.hosted)
            for schema in store.tables():
                base = base_shard(schema.name, schema.generation, shard, shards)
                assert heard.get(base, 0) <= store.position(schema.name), (
                    f"{worker.process} has heard of {base} up to {heard[base]}, which goes on at "
                    f"{store.position(schema.name)}"
                )


def check_calm(cluster: Cluster) -> None:
    """While a leader says that nothing is wrong, all that is in the recipe is there and serves, but for what was lost
    a moment ago. A later round of recovery would mend what lacks, and nobody would have seen it."""
    controller = cluster.leader()
    leader = None if controller is None else controller.leader
    if leader is None or leader.migrator is None or not leader.calm or leader.is_over:
        return
    living = [worker for worker in cluster.every_worker if worker.is_up and not worker.process.is_dead]
    if any(worker.dataflow.hosted.epoch > leader.epoch for worker in living):
        return  # It has a successor, and has not heard of it.
    decided, flow = leader.ledger.decided, leader.migrator.state.flow
    for worker in living:
        for index, host in worker.dataflow.hosted.hosts.items():
            given = decided.placement[index]
            if (given.worker, given.incarnation) != (worker.name, host.domain.incarnation):
                continue
            there = {vertex.index for vertex in host.domain.vertices.values() if not vertex.building} - host.domain.held
            wanted = {node.index for node in flow.nodes.values() if index in flow.places(node.index)}
            assert wanted <= there, (
                f"the leader is calm, and domain {index} at {worker.name} lacks the nodes {sorted(wanted - there)}"
            )
            automatic = leader.automatic
            kept = {n for view in automatic.views.values() for n in view.nodes if index in view.flow.places(n)}
            under_way = {n for view in automatic.changing for n in view.nodes}
            beside = {each for each in there if is_automatic(each)}
            where = f"the leader is calm, and domain {index} at {worker.name}"
            assert kept <= there, f"{where} lacks the automatic nodes {sorted(kept - there)}"
            strange = sorted(beside - kept - under_way)
            assert not strange, f"{where} has the automatic nodes {strange}, which nobody keeps"


# --- the cluster at rest ------------------------------------------------------------------------------------------


def restless(cluster: Cluster, decided: ClusterState | None, state: State) -> str:
    """What is still under way, or not as it was decided; nothing when all is quiet."""
    if decided is None:
        return "nothing is decided yet"
    for domain in decided.domains:
        given = decided.placement.get(domain)
        if given is None:
            return f"domain {domain} has no place"
        hosts = cluster.hosted(domain)
        if [worker.name for worker in hosts] != [given.worker]:
            return f"domain {domain} is open at {[worker.name for worker in hosts]}, and is to be at {given.worker}"
        wrong = _unsettled(hosts[0], domain, decided, state)
        if wrong:
            return f"domain {domain} at {hosts[0].name}: {wrong}"
    return _under_way(cluster, decided)


def _unsettled(worker: SimulatedWorker, index: DomainIndex, decided: ClusterState, state: State) -> str:
    host = worker.dataflow.hosted.hosts[index]
    domain = host.domain
    if domain.incarnation != decided.placement[index].incarnation:
        return f"incarnation {domain.incarnation} instead of {decided.placement[index].incarnation}"
    if not host.linked:
        return "not linked"
    if host.held or host.outgoing:
        return f"{len(host.held)} packets held, {len(host.outgoing)} not sent"
    wanted = {node.index for node in state.flow.nodes.values() if index in state.flow.places(node.index)}
    there = {vertex.index for vertex in domain.vertices.values()}
    if there != wanted:
        return f"nodes too many {sorted(there - wanted)}, missing {sorted(wanted - there)}"
    building = sorted({vertex.index for vertex in domain.vertices.values() if vertex.building} | domain.held)
    if building or domain.backfill is not None:
        return f"nodes {building} are being built"
    if domain.ingresses.pending or domain.parked or domain.awaiting:
        return f"{len(domain.ingresses.pending)} holes await other domains, {len(domain.parked)} reads wait for them"
    tables = {schema.name: schema for schema in domain.store.tables()}
    known = {
        schema.name: schema for schema in state.catalog.tables.values() if index < (schema.shards or decided.shards)
    }
    return "" if tables == known else f"tables {sorted(tables)} instead of {sorted(known)}, or of other schemas"


def _under_way(cluster: Cluster, decided: ClusterState) -> str:
    incarnations = {domain: given.incarnation for domain, given in decided.placement.items()}
    sent: dict[Any, Any] = {}
    received: dict[Any, Any] = {}
    for worker in hosting(cluster, decided):
        dataflow = worker.dataflow
        if dataflow._inbox or dataflow._batches:
            return f"{worker.name} has something to do"
        if worker.peers.waiting_bytes:
            return f"{worker.name} has {worker.peers.waiting_bytes} bytes on their way"
        if dataflow.hosted.known != incarnations:
            return f"{worker.name} knows the incarnations {dataflow.hosted.known}, and {incarnations} is decided"
        for host in dataflow.hosted.hosts.values():
            domain = host.domain
            for link, out in domain.links.outgoing.items():
                if out.routes:
                    sent[link] = (domain.link_epoch(link), out.sequence)
            for link, end in domain.links.incoming.items():
                received[link] = (domain.link_epoch(link), end.sequence)
    late = {link: (place, received.get(link)) for link, place in sent.items() if received.get(link, (0, 0)) < place}
    late = {link: ends for link, ends in late.items() if ends[0][1]}
    return f"links {late} are behind" if late else ""


def hosting(cluster: Cluster, decided: ClusterState) -> list[SimulatedWorker]:
    """The workers that have domains, each once, by name."""
    names = sorted({given.worker for given in decided.placement.values()})
    return [cluster.workers[name] for name in names]


def check_engine(cluster: Cluster, decided: ClusterState) -> None:
    """The eight rules of ``domains/`` hold in every domain and across all links."""
    domains = []
    for worker in hosting(cluster, decided):
        worker.dataflow.check()
        domains += [host.domain for host in worker.dataflow.hosted.hosts.values()]
    check_links(sorted(domains, key=lambda domain: domain.index))


def _store(cluster: Cluster, decided: ClusterState, shard: int) -> CrashStore:
    given = decided.placement[DomainIndex(shard)]
    return cluster.disks.disks[given.data, DomainIndex(shard)].store


def stored_rows(cluster: Cluster, decided: ClusterState, state: State) -> dict[str, list[Row]]:
    """The rows of every table as the disks have them, duplicates repeated; dropped columns left out by the caller."""
    found: dict[str, list[Row]] = {}
    for schema in state.catalog.tables.values():
        rows = found[schema.name] = []
        for shard in range(schema.shards or cluster.shards):
            table = _store(cluster, decided, shard).table(schema.name)
            factor = schema.shards or cluster.shards
            for row, weight in table.find((), ()):
                assert shard_of(row[schema.shard_column], factor) == shard, (
                    f"{row} of {schema.name} is in shard {shard}"
                )
                rows += [row] * weight
    return found


def log_order(
    cluster: Cluster, decided: ClusterState, state: State, tables: Sequence[str]
) -> dict[str, dict[int, dict[int, int]]]:
    found: dict[str, dict[int, dict[int, int]]] = {}
    for name in tables:
        if name not in state.catalog.tables:
            continue
        schema = state.catalog.table(name)
        for shard in range(schema.shards or cluster.shards):
            places = found.setdefault(name, {}).setdefault(shard, {})
            store = _store(cluster, decided, shard)
            for sequence, deltas in (
                *_archived(cluster, base_shard(name, schema.generation, shard, cluster.shards)),
                *store.log(name, store.floor(name), 1 << 30),
            ):
                for row, _ in deltas:
                    places[row[0]] = sequence
    return found


def _archived(cluster: Cluster, base: str) -> list[tuple[int, list[Delta]]]:
    if cluster.archive is None or base not in cluster.archive.manifests:
        return []
    return [(part.position, part.deltas) for part in cluster.archive.manifests[base].parts if not part.whole]


class LedgerOracle:
    """The ledger's views over the rows that are stored, by SQLite."""

    def __init__(self, stored: dict[str, list[Row]]) -> None:
        self._connection = sqlite3.connect(":memory:")
        self._connection.execute("CREATE TABLE marks (id INT, who INT, box INT)")
        self._connection.execute("CREATE TABLE tags (id INT, who INT)")
        for table, width in (("marks", 3), ("tags", 2)):
            slots = ", ".join("?" * width)
            self._connection.executemany(f"INSERT INTO {table} VALUES ({slots})", stored.get(table, ()))

    def answers(self, view: LedgerView) -> Iterator[tuple[tuple[int, ...], list[Row]]]:
        for arguments in view.every_arguments():
            yield arguments, [tuple(row) for row in self._connection.execute(view.sql, arguments)]

    def close(self) -> None:
        self._connection.close()


def differ(found: Sequence[Row], wanted: Sequence[Row], *, ordered: bool) -> bool:
    def plain(rows: Sequence[Row]) -> list[Any]:
        return [tuple(value if value is None else int(value) for value in row) for row in rows]  # type: ignore[arg-type]

    return plain(found) != plain(wanted) if ordered else Counter(plain(found)) != Counter(plain(wanted))
