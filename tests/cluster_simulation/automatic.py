"""Automatic views, asked for and asked beside everything else: what they show is right as that of any view is, and a
client that believes in one that is gone gets no answer, and never another view's."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import TYPE_CHECKING, Any

from controller.cluster.leader.automatic import AutomaticViews
from controller.cluster.serving.automatic import ShownViews
from controller.cluster.serving.connections import ReaderGone
from controller.cluster.state import AutomaticList
from domains.errors import HeadraceError, NoLeader
from domains.plan.graph import NodeIndex
from migrations.flow.automatic import AutomaticView, with_automatic
from migrations.flow.plan import State
from migrations.statements.adhoc.shapes_of_selects import ad_hoc_name
from tests.cluster_simulation import checks
from tests.cluster_simulation.loop import Condition
from tests.cluster_simulation.program import LEDGER_VIEWS, LedgerView

if TYPE_CHECKING:
    from tests.cluster_simulation.client import Client
    from tests.cluster_simulation.cluster import Cluster

INDEXES = (
    "CREATE INDEX by_who ON marks (who)",
    "CREATE INDEX by_box ON marks (box)",
    "CREATE INDEX whose ON tags (who)",
)
"""An automatic view adds none."""

VIEWS = [LedgerView(name, sql) for name, sql in LEDGER_VIEWS.items() if "?" in sql]
BY_NAME = {ad_hoc_name(view.sql): view for view in VIEWS}

ANSWER_SECONDS = 2.0


class SimulatedDoor:
    """See ``AutomaticDoor``: a controller that leads, or believes so."""

    def __init__(self, cluster: Cluster, random: Random) -> None:
        self._cluster, self._random = cluster, random

    async def keep(self, sql: str, lately: int) -> AutomaticList:
        async def act(views: AutomaticViews) -> AutomaticList:
            await views.keep(sql, lately)
            return views.told()

        return await self._ask(act)

    async def automatic(self, used: Mapping[str, int], written: Mapping[str, int]) -> AutomaticList:
        async def act(views: AutomaticViews) -> AutomaticList:
            views.used(used, written)
            return views.told()

        return await self._ask(act)

    async def _ask(self, act: Callable[[AutomaticViews], Awaitable[AutomaticList]]) -> AutomaticList:
        controllers = self._cluster.controllers.values()
        leading = [each for each in controllers if each.leader and each.process.condition is Condition.RUNNING]
        if not leading:
            raise NoLeader("nobody leads")
        controller = self._random.choice(leading)

        async def asked() -> AutomaticList:
            if controller.leader is None:
                raise NoLeader("it leads no more")
            return await act(controller.leader.keeping())

        try:
            return await self._cluster.at(controller.process, asked, ANSWER_SECONDS)
        except TimeoutError:
            raise NoLeader("it does not answer") from None


class AutomaticAsker:
    """One client's asking."""

    def __init__(self, seed: int, seconds: float, pace: float, ledger: checks.Ledger) -> None:
        self.random = Random(f"automatic views {seed}")
        self.counts: Counter[str] = Counter()
        self._seconds, self._pace, self._ledger = seconds, pace, ledger
        self._shown: ShownViews | None = None

    def _views(self, client: Client) -> ShownViews:
        if self._shown is None:
            door = SimulatedDoor(client.cluster, self.random)
            self._shown = ShownViews(client.directory, door, lambda before, after: None, self._uses, self._written)
            client.directory.on_state.append(self._shown.declared_anew)
        return self._shown

    def _uses(self) -> dict[str, int]:
        return {name: self.random.randrange(5) for name in self._shown.views} if self._shown else {}

    def _written(self, table: str) -> int:
        """More than are worth any view, now and then."""
        return int(asyncio.get_running_loop().time()) * self.random.choice((0, 1, 1, 1000))

    async def ask_on(self, client: Client) -> None:
        loop, shown = asyncio.get_running_loop(), self._views(client)
        end = loop.time() + self._seconds
        while loop.time() < end:
            await asyncio.sleep(self.random.random() * self._pace)
            if not shown.views or self.random.random() < 0.2:
                await self._keep(shown, self.random.choice(VIEWS))
            else:
                await self._read(client, self.random.choice(list(shown.views)))

    async def _keep(self, shown: ShownViews, view: LedgerView) -> bool:
        try:
            await shown.keep(view.sql, self.random.randrange(10))
        except HeadraceError as error:
            self.counts[f"automatic views refused: {error.code}"] += 1
            return False
        self.counts["automatic views kept"] += 1
        return ad_hoc_name(view.sql) in shown.views

    async def _read(self, client: Client, name: str) -> None:
        view = BY_NAME[name]
        arguments = view.arguments(self.random)
        token = dict(client.token) if self.random.random() < 0.5 else {}
        known = client.known() if token else {}
        place = (f"automatic {view.name}", arguments)
        before = client.shown.get(place, frozenset())
        rows = await self._rows(client, name, arguments, token)
        self.counts["automatic reads" if rows is not None else "automatic reads without an answer"] += 1
        if rows is None or view.shows is None:
            return
        table, columns = view.shows
        where = dict(zip(columns, arguments, strict=True))
        covered = {row[0] for row in known.get(table, ()) if all(row[c] == v for c, v in where.items())}
        counts = Counter(int(row[0]) for row in rows)
        ids, doubled = frozenset(counts), frozenset(id for id, count in counts.items() if count > 1)
        client.shown[place] = ids | before
        self._ledger.seen.append(checks.Seen(place[0], table, where, ids, before | covered, doubled))

    async def _rows(self, client: Client, name: str, arguments: Any, token: Any, within: float = 2.0) -> Any:
        """None where it is gone, or cannot answer now."""
        shown = self._views(client)
        state = shown.state
        reader = state.flow.readers.get(name)
        if reader is None:
            return None

        def outdated() -> HeadraceError:
            shown.gone(reader)
            return ReaderGone("it is nowhere")

        return await client.read(name, arguments, token, within, state=state, outdated=outdated)

    async def compare(self, client: Client, oracle: checks.LedgerOracle) -> None:
        """When all is quiet, each is made, and has the rows that are stored."""
        shown = self._views(client)
        for view in self.random.sample(VIEWS, 3):
            if not await self._keep(shown, view):
                continue
            for arguments, wanted in oracle.answers(view):
                found = await self._rows(client, ad_hoc_name(view.sql), arguments, {}, 5.0)
                assert found is not None, f"automatic {view.name} {arguments} has no answer, and all is quiet"
                assert not checks.differ(found, wanted, ordered="ORDER BY" in view.sql), (
                    f"automatic {view.name} {arguments} answers {sorted(found)}, not {sorted(wanted)}"
                )
                self.counts["automatic answers compared"] += 1

    async def close(self) -> None:
        if self._shown is not None:
            await self._shown.close()


class GivenNumbers:
    """Which view each number was given to, by whatever leader."""

    def __init__(self) -> None:
        self._given: dict[NodeIndex, AutomaticView] = {}

    def note(self, cluster: Cluster) -> None:
        for controller in cluster.controllers.values():
            leader = controller.leader
            if leader is not None and leader.automatic is not None:
                for view in (*leader.automatic.views.values(), *leader.automatic.changing):
                    for index in view.nodes:
                        other = self._given.setdefault(index, view)
                        assert other is view, (
                            f"{index} was given twice: to {other.definition.sql}, {view.definition.sql}"
                        )


def shown_by_leader(cluster: Cluster, state: State) -> State:
    """What is to be there: what is declared, and what the leader keeps beside."""
    controller = cluster.leader()
    leader = None if controller is None else controller.leader
    if leader is None or leader.automatic is None:
        return state
    return with_automatic(state, leader.automatic.views.values())
