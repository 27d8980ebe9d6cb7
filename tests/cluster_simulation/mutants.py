"""Mistakes that the simulation must find: the proof that it could have found one.

Each takes away what excludes one race or one loss. ``python -m tests.cluster_simulation --mutant NAME`` runs with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

from controller.cluster.leader import automatic, performing, reconcile, recovery
from controller.cluster.leader.leader import Leader
from controller.cluster.leader.performing import ClusterExecutor, StableEpoch
from controller.cluster.lost_shards import fencing, rebuilding
from controller.cluster.serving import archiving
from controller.cluster.serving.domain_router import DomainRouter
from controller.transactions.sessions import Sessions
from controller.transactions.transaction import Transaction
from domains.engine.clock import Clocks
from domains.engine.domain import Domain
from domains.engine.lifecycle.expected import Expected
from domains.engine.lifecycle.replay import Replay
from domains.engine.links import Links
from domains.engine.transactions.transactions import Transactions
from domains.errors import HeadraceError, StorageFailure
from domains.plan.graph import AUTOMATIC as FIRST
from domains.plan.graph import is_automatic
from domains.plan.packets import Failed, PeerReset, Read, Write
from domains.store.memory_store import MemoryStore
from migrations.flow.automatic import OF_AN_EPOCH
from tests.cluster_simulation.adhoc import DictView
from tests.cluster_simulation.size import Shape
from tests.cluster_simulation.storage import Disks
from tests.failing_store import FailingTable
from worker.archive import recipes
from worker.dataflow.batch import Batch
from worker.dataflow.domain_host import DomainHost
from worker.dataflow.group_commit import GroupCommit
from worker.dataflow.hosted_domain import HostedDomain, Incarnations, Reception

Mutant = Callable[[], Any]


async def _at_once(*_: Any) -> None:
    """A barrier that waits for nothing."""


def _no_barrier_before_activation() -> Any:
    return mock.patch.object(performing, "all_lanes", _at_once)


def _no_barrier_before_nodes_come_again() -> Any:
    return mock.patch.object(performing, "everything_sent", _at_once)


def _answers_before_the_sync() -> Any:
    flush = GroupCommit._flush

    def hasty(self: GroupCommit, run: list[Batch]) -> None:
        for batch in run:
            batch.syncs.clear()
        flush(self, run)

    return mock.patch.object(GroupCommit, "_flush", hasty)


def _early_packets_are_dropped() -> Any:
    reception = HostedDomain.reception

    def impatient(self: HostedDomain, packet: Any) -> Reception:
        found = reception(self, packet)
        return Reception.STALE if found is Reception.HOLD else found

    return mock.patch.object(HostedDomain, "reception", impatient)


def _links_keep_their_epoch() -> Any:
    """Whoever is new is not told from who was there before."""
    return mock.patch.object(Links, "epoch", return_value=1)


def _clocks_of_what_is_removed_go_on() -> Any:
    """With their link, which goes on for others."""
    return mock.patch.object(Clocks, "end", return_value=None)


def _survivors_are_not_reset() -> Any:
    handle = DomainHost._handle

    def deaf(self: DomainHost, host: HostedDomain, packet: Any, batch: Batch) -> None:
        if isinstance(packet, PeerReset) and host.linked:
            host.domain.links.reset(packet.peer, packet.epoch)
            return
        handle(self, host, packet, batch)

    return mock.patch.object(DomainHost, "_handle", deaf)


def _old_leaders_are_obeyed() -> Any:
    return mock.patch.object(DomainHost, "check", return_value=None)


def _words_of_an_old_connection_are_obeyed() -> Any:
    return mock.patch.object(Leader, "_fence", _at_once)


def _writes_are_repeated() -> Any:
    ask = DomainRouter.ask

    async def stubborn(self: DomainRouter, *given: Any, repeatable: bool, **named: Any) -> Any:
        return await ask(self, *given, repeatable=True, **named)

    return mock.patch.object(DomainRouter, "ask", stubborn)


def _shards_are_not_fenced() -> Any:
    open_shard = Disks.open

    def careless(self: Disks, place: Any, process: Any, host: str, incarnation: int) -> Any:
        disk = self.disks.get(place)
        if disk is not None:
            disk.owner = None
        return open_shard(self, place, process, host, incarnation)

    return mock.patch.object(Disks, "open", careless)


def _full_state_is_not_rebuilt() -> Any:
    return mock.patch.object(reconcile, "_rebuilt", return_value=set())


def _given_up_shards_are_opened_at_once() -> Any:
    """And not when they have been made from the archive."""

    async def nothing_to_do(*_: Any) -> dict[Any, str]:
        return {}

    return mock.patch.object(rebuilding.RebuildOutcomes, "round", nothing_to_do)


def _what_is_given_up_is_heard_on() -> Any:
    """Survivors are asked how far they have heard, and hear more after that."""
    return mock.patch.object(Incarnations, "give_up", return_value=None)


def _lost_positions_are_given_again() -> Any:
    """Survivors are asked how far they have heard, and a shard goes on where the archive ends."""
    ask = fencing.heard_so_far

    async def in_vain(*given: Any) -> dict[str, int]:
        await ask(*given)
        return {}

    return mock.patch.object(fencing, "heard_so_far", in_vain)


class _Heedless:
    """A time of calm that never ends, once it has begun."""

    def __init__(self, calm: StableEpoch) -> None:
        self._calm = calm

    async def wait(self) -> int:
        return await self._calm.wait()

    def check(self, number: int) -> None:
        """Whatever has happened since."""


def _migrations_go_on_after_a_loss() -> Any:
    begin = ClusterExecutor.__init__

    def heedless(self: ClusterExecutor, *given: Any) -> None:
        begin(self, *given)
        if not self._number:  # A recovery's own has one.
            self._calm = _Heedless(self._calm)  # type: ignore[assignment]

    return mock.patch.object(ClusterExecutor, "__init__", heedless)


def _what_came_since_is_not_replayed() -> Any:
    """States are those of the archive's position, and what was written since is taken for replayed."""
    return mock.patch.object(Replay, "_replayed", lambda self, table, limit: _skipped(self, table))


def _skipped(replay: Replay, table: str) -> list[Any]:
    replay.positions[table] = replay._store.position(table)
    replay._later.pop(table, None)
    return []


def _what_survived_is_not_fed() -> Any:
    """State that runs on above what is built again in bulk, which is computed as if there were none."""
    begin = Replay.begin

    def without(self: Replay, *given: Any) -> None:
        self.full = ()
        begin(self, *given)

    return mock.patch.object(Replay, "begin", without)


def _what_broke_goes_on() -> Any:
    """A step that was committed and could not be ended is answered as refused, and its domain serves on."""

    def go_on(self: DomainHost, host: HostedDomain, packet: Any, error: HeadraceError, batch: Batch) -> None:
        host.domain.broken = None
        if isinstance(packet, Write):
            self.requests.reply(packet.request, Failed(error), batch)

    return mock.patch.object(DomainHost, "_break", go_on)


def _what_broke_is_a_refusal() -> Any:
    """Its domain is opened again, and who wrote is told that nothing was done."""
    stop = DomainHost._break

    def refuse(self: DomainHost, host: HostedDomain, packet: Any, error: HeadraceError, batch: Batch) -> None:
        if isinstance(packet, Write):
            self.requests.reply(packet.request, Failed(error), batch)
            packet = PeerReset(host.domain.index, 0)
        stop(self, host, packet, error, batch)

    return mock.patch.object(DomainHost, "_break", refuse)


def _what_cannot_be_read_is_empty() -> Any:
    """As where the end of what could be read is taken for the end of what is there."""
    find_many = FailingTable.find_many

    def lenient(self: FailingTable, columns: Any, keys: Any) -> Any:
        try:
            return find_many(self, columns, keys)
        except StorageFailure:
            return [[] for _ in keys]

    return mock.patch.object(FailingTable, "find_many", lenient)


def _upqueries_that_fail_are_left() -> Any:
    """Unanswered: who waits for them waits for ever."""
    fail = Domain._fail

    def silent(self: Domain, packet: Any, error: HeadraceError, step: Any) -> None:
        if isinstance(packet, Read):
            fail(self, packet, error, step)

    return mock.patch.object(Domain, "_fail", silent)


def _broken_domains_are_not_told_of() -> Any:
    return mock.patch.object(Leader, "broken", return_value=None)


def _recipes_of_back_ups_are_read_late() -> Any:
    """After the tables were cut, and nobody looks whether they are the same."""
    cut = archiving.cut_cluster

    async def late(look: archiving.Look, ask: archiving.Ask, keep: archiving.Keep) -> Any:
        async def keep_what_is_now(url: str, taken: Any, _: Any) -> Any:
            decided = (await look()).cluster
            return await keep(url, replace(taken, recipe=decided.recipe.to_json().decode()), decided)

        return await cut(look, ask, keep_what_is_now)

    return mock.patch.multiple(archiving, cut_cluster=late, check_same_tables=lambda *_: None)


def _a_cut_may_be_behind_the_last() -> Any:
    """Of two that were taken at once, by the leader and by an api process."""
    return mock.patch.object(recipes.Cut, "is_whole", property(lambda _: False))


def _recipes_are_in_the_order_of_their_times() -> Any:
    """Each by the clock of whoever wrote it."""
    by_time = property(lambda record: (0, (0, 0), record.time))
    ordered = mock.patch.object(recipes.RecipeRecord, "order", by_time)
    told = mock.patch.object(recipes, "after", lambda time, _: time)

    @contextmanager
    def both() -> Iterator[None]:
        with ordered, told:
            yield

    return both()


def _cuts_show_what_comes_later() -> Any:
    """As the binding's snapshots do: what is read of a shard later is of a later position."""
    return mock.patch.object(DictView, "_entries", property(DictView.entries, lambda *_: None), create=True)


def _automatic_nodes_survive_their_leader() -> Any:
    """And whatever else begins a recovery: it removes nodes that no recipe has, but for these."""
    repair = reconcile.repair

    def lenient(state: Any, survivors: Any, opened: Any) -> Any:
        hidden = {
            domain: replace(report, nodes=frozenset(each for each in report.nodes if not is_automatic(each)))
            for domain, report in survivors.items()
        }
        return repair(state, hidden, opened)

    return mock.patch.object(recovery, "repair", lenient)


def _numbers_of_automatic_nodes_are_given_again() -> Any:
    """By the next leader, and after a recovery."""
    return mock.patch.object(automatic, "numbers_of", return_value=range(FIRST, FIRST + OF_AN_EPOCH))


def _what_comes_during_a_check_is_not_checked() -> Any:
    """ALTER TABLE looks at the rows that are stored, and at none that is written meanwhile."""
    return mock.patch.object(Expected, "check_write", return_value=None)


def _what_is_prepared_holds_nothing() -> Any:
    return mock.patch.object(Transactions, "_check_locks", return_value=None)


def _what_is_prepared_is_not_stored() -> Any:
    keep = MemoryStore.keep

    def forgetful(self: MemoryStore, transaction: str, record: Any) -> None:
        if record is None or record.is_committed:
            keep(self, transaction, record)

    return mock.patch.object(MemoryStore, "keep", forgetful)


def _lost_locks_are_not_missed() -> Any:
    within = Transaction._within

    def again(self: Transaction, domain: Any, **how: Any) -> Any:
        return replace(within(self, domain, **how), begins=True)

    return mock.patch.object(Transaction, "_within", again)


def _what_comes_after_the_end_stays() -> Any:
    return mock.patch.object(Sessions, "has_left", return_value=False)


MUTANTS: dict[str, Mutant] = {
    mutant.__name__.strip("_").replace("_", "-"): mutant
    for mutant in (
        _no_barrier_before_activation,
        _no_barrier_before_nodes_come_again,
        _answers_before_the_sync,
        _early_packets_are_dropped,
        _links_keep_their_epoch,
        _clocks_of_what_is_removed_go_on,
        _survivors_are_not_reset,
        _old_leaders_are_obeyed,
        _words_of_an_old_connection_are_obeyed,
        _writes_are_repeated,
        _shards_are_not_fenced,
        _full_state_is_not_rebuilt,
        _given_up_shards_are_opened_at_once,
        _what_is_given_up_is_heard_on,
        _lost_positions_are_given_again,
        _migrations_go_on_after_a_loss,
        _what_came_since_is_not_replayed,
        _what_survived_is_not_fed,
        _what_broke_goes_on,
        _what_broke_is_a_refusal,
        _what_cannot_be_read_is_empty,
        _upqueries_that_fail_are_left,
        _broken_domains_are_not_told_of,
        _recipes_of_back_ups_are_read_late,
        _recipes_are_in_the_order_of_their_times,
        _a_cut_may_be_behind_the_last,
        _cuts_show_what_comes_later,
        _automatic_nodes_survive_their_leader,
        _numbers_of_automatic_nodes_are_given_again,
        _what_comes_during_a_check_is_not_checked,
        _what_is_prepared_holds_nothing,
        _what_is_prepared_is_not_stored,
        _lost_locks_are_not_missed,
        _what_comes_after_the_end_stays,
    )
}


@dataclass(frozen=True, slots=True)
class Hunt:
    """Where to look for a mistake: the faults that lead to its moment, which all of them together seldom do."""

    faults: tuple[str, ...] = ()
    """() are all."""
    first: int = 6000
    """The seed to begin with. Where few find it, one that did."""
    seeds: int = 60
    """How many are tried. Of those that are rarely found more: what a seed meets changes with the code, and then the
    test becomes slow and does not fail. It is quick again with another ``first``."""
    is_quick: bool = False
    """Whether it is found within a second or two."""
    shape: Shape = field(default_factory=dict)


CROWDED = {"shards": 3, "workers": 4, "views": 10, "faults": 3, "seconds": 4.0, "pace": 0.1, "any_views": 0}
"""Most losses leave some full view with a part of its sources, and rows are under way to it: one seed in seven or so
finds a mistake in how it is built again, wherever one begins."""

SCATTERED = {**CROWDED, "shards": 4, "workers": 6, "views": 6, "faults": 1}
"""So many workers that most losses of a disk leave some that have heard of what was on it: one seed in four finds what
goes wrong with that."""

BARE = {**CROWDED, "views": 2, "faults": 1, "seconds": 8.0, "pace": 0.3}
"""For a fault that makes its own views. One seed in three finds its mistake."""

FAILING = {**CROWDED, "shards": 1, "workers": 2, "faults": 6}
"""One shard, where a join looks up in the base as it takes a write: most seeds break steps off."""

AUTOMATIC = {**CROWDED, "workers": 3, "views": 3, "controllers": 2, "automatic": 1}

ALTERED = {**CROWDED, "faults": 0, "views": 2, "altered": 1, "pace": 0.05}

BACKED_UP = {**CROWDED, "faults": 0, "backups": 1}

TRANSACTING = {**CROWDED, "workers": 3, "views": 2, "faults": 4, "controllers": 2, "clients": 1, "transacting": 1}
"""Some ten seconds each, so that they are hunted with the long tests."""

HUNTS = {
    "no-barrier-before-activation": Hunt(("slow_links",), 7028, is_quick=True),
    "no-barrier-before-nodes-come-again": Hunt(("late_rows",), 12017, is_quick=True, shape=CROWDED),
    "clocks-of-what-is-removed-go-on": Hunt(
        ("betrayal", "isolate", "part", "slow_links"), 9014, shape={**CROWDED, "workers": 3, "faults": 4}
    ),
    "old-leaders-are-obeyed": Hunt(("late_leader",), 8083, 240, is_quick=True),
    "words-of-an-old-connection-are-obeyed": Hunt(("late_leader",), 8004, 240),
    "answers-before-the-sync": Hunt(("kill_worker", "kill_all", "stop_worker"), 6006, is_quick=True),
    "shards-are-not-fenced": Hunt(("betrayal", "stop_worker", "cut")),
    "given-up-shards-are-opened-at-once": Hunt(("lose_disk",), 61000, is_quick=True),
    "what-came-since-is-not-replayed": Hunt(("lose_disk",), 61007, is_quick=True),
    "what-survived-is-not-fed": Hunt(
        ("lose_disk",), 62006, is_quick=True, shape={**CROWDED, "workers": 3, "faults": 1}
    ),
    "what-is-given-up-is-heard-on": Hunt(
        ("late_loss",), 64022, shape={**CROWDED, "shards": 4, "views": 4, "faults": 4, "controllers": 1, "clients": 2}
    ),
    "lost-positions-are-given-again": Hunt(("lose_disk",), 310000, 40, shape=SCATTERED),
    "migrations-go-on-after-a-loss": Hunt(("loss_in_change",), 400000, 40, shape=BARE),
    **dict.fromkeys(
        (
            *("what-broke-goes-on", "what-broke-is-a-refusal", "what-cannot-be-read-is-empty"),
            "broken-domains-are-not-told-of",
        ),
        Hunt(("failing_calls",), 600000, 40, is_quick=True, shape=FAILING),
    ),
    "upqueries-that-fail-are-left": Hunt(("failing_calls",), 600001, 40, is_quick=True, shape={**FAILING, "shards": 3}),
    "recipes-of-back-ups-are-read-late": Hunt((), 500000, is_quick=True, shape=BACKED_UP),
    "recipes-are-in-the-order-of-their-times": Hunt((), 500000, is_quick=True, shape=BACKED_UP),
    "a-cut-may-be-behind-the-last": Hunt((), 500022, is_quick=True, shape=BACKED_UP),
    "cuts-show-what-comes-later": Hunt((), 700000, is_quick=True, shape={**CROWDED, "faults": 0, "ad_hoc": 1}),
    **dict.fromkeys(
        ("automatic-nodes-survive-their-leader", "numbers-of-automatic-nodes-are-given-again"),
        Hunt(("kill_controller", "expire"), 800000, is_quick=True, shape=AUTOMATIC),
    ),
    "what-comes-during-a-check-is-not-checked": Hunt((), 900104, is_quick=True, shape=ALTERED),
    "what-is-prepared-holds-nothing": Hunt(
        ("kill_worker", "stop_worker", "drain", "cut", "kill_controller"), 950002, shape=TRANSACTING
    ),
    "what-is-prepared-is-not-stored": Hunt(("kill_all",), 970200, shape={**TRANSACTING, "faults": 8, "workers": 2}),
    "lost-locks-are-not-missed": Hunt(("kill_worker",), 970100, shape={**TRANSACTING, "shards": 2}, is_quick=True),
    "what-comes-after-the-end-stays": Hunt((), 205, shape={"transacting": 1, "backups": 0}),
    "links-keep-their-epoch": Hunt(("late_packets", "namesake", "kill_worker")),
}


@contextmanager
def mutated(name: str | None) -> Iterator[None]:
    if name is None:
        yield
        return
    with MUTANTS[name]():
        yield
