"""Full state after a rebuild by Spark: built in bulk, by the round of recovery that has the shards back.

::

    shards made, opened ─► more base rows than the threshold? ─ no ──► fed in slices, as in every other round
                            └─ yes ─► nodes ─► archive up to now ─► job ─► load ─► read the log, replay ─► activate

It is a migration's bulk build (``controller/migrating/bulk/building.py``) over another plan: of the nodes that the
round adds again. Why rows are neither lost nor doubled:

* **What is built** are the places that the round adds held (``reconcile.py``): in an opened domain what is full and
  what is below it, in a survivor what was removed for it. They are closed under links: whoever feeds a full ingress of
  theirs is one of them, and so is whoever one of their egresses feeds. The job computes their states, and no other's.
* **As of when.** The nodes are all there before the base tables are archived up to P, and each domain keeps its log
  from the moment when it got its nodes. So the log after P is there.
* **Meanwhile** no row goes to them: their egresses send nothing before the replay, which begins when every state is
  loaded. From then on the links carry what the replay makes, in the order in which it is made.
* **State that survived** above them (a first phase of an aggregate, say) is empty to the job, and is fed whole when
  its domain's replay begins (``domains/engine/lifecycle/replay.py``).
* **Broken off**, at any step: until ``Activate`` what is built is reported as such, so the next round, be it another
  leader's, removes it and adds it anew. Nothing that was loaded is ever gone on with. The job ends with the round; the
  log that was held for it is held no longer, by release or by the next leader's epoch.

So where the job fails, or is cancelled, the round is broken off too, and the next one feeds in slices.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from controller.cluster.leader.building import BulkSettings, ClusterSource, builder_of
from controller.cluster.leader.handles import Deposed
from controller.cluster.leader.reconcile import Repair
from controller.cluster.state import ClusterState
from controller.migrating.bulk.choice import Choice, choose
from controller.migrating.execution import Migration
from controller.migrating.executor import Executor, Interrupted
from domains.errors import HeadraceError
from domains.plan.commands import AddNodes
from migrations.change import Change
from migrations.flow.plan import MigrationPlan, PlanStep, State
from migrations.recipe import RecipeEntry

if TYPE_CHECKING:
    from controller.cluster.lost_shards.rebuild_way import Rebuilding

ATTEMPTS = 3
"""How often it is begun in bulk. A cluster that loses workers faster is to be back first, and what kills them may be
the states that are loaded."""

_log = logging.getLogger("headrace.controller")


@dataclass(slots=True)
class Refills:
    """State that outlives the rounds of a leader."""

    due: bool = False
    """Shards are rebuilt from runs, and the full state that stands on them is not back yet."""
    attempts: int = 0
    slices: str = ""
    """Why it is fed in slices all the same."""
    shown: Rebuilding | None = None
    """The operation that asked for it, if that was this leader's."""
    built: int = 0
    """How often it was built in bulk."""

    def ask(self, shown: Rebuilding) -> None:
        self.due, self.attempts, self.slices, self.shown = True, 0, "", shown

    def notice(self, decided: ClusterState) -> None:
        """Before anything is decided: an earlier leader's orders are in what it decided."""
        self.due = self.due or any(given.rebuild and given.rebuild.runs for given in decided.placement.values())

    def done(self) -> None:
        self.due, self.attempts, self.slices, self.shown = False, 0, "", None


@dataclass(slots=True)
class Refill:
    """Of one round; ``executor`` is that round's."""

    refills: Refills
    bulk: BulkSettings
    executor: Executor
    source: ClusterSource | None
    _change: Change | None = field(default=None, init=False)
    _choice: Choice = field(default=Choice("", ""), init=False)

    @property
    def way(self) -> str:
        """By whom it is built in bulk; "" where it is fed in slices."""
        return "" if self._change is None else self._choice.way

    async def planned(self, state: State, todo: Repair) -> Repair:
        """The repair as it is to be carried out. Its feeds are in place of :meth:`fill` where nothing is in bulk."""
        if not self.refills.due or not todo.feeds:
            return todo
        steps = (*todo.fresh, *todo.again)
        held = tuple(step for step in steps if isinstance(step.command, AddNodes) and step.command.held)
        change = Change(state, RecipeEntry(), views=MigrationPlan(held, ()))
        self._choice = await self._chosen(change)
        if self._choice.runner is None:
            self._say(f"feed full states in slices ({self._choice.why})")
            return todo
        self._change = change
        return replace(todo, fresh=_in_bulk(todo.fresh), again=_in_bulk(todo.again))

    async def _chosen(self, change: Change) -> Choice:
        refills = self.refills
        if refills.shown is not None and refills.shown.cancelled:
            refills.slices = refills.slices or "as was asked"
        if refills.attempts == ATTEMPTS:
            refills.slices = refills.slices or f"it was broken off {ATTEMPTS} times"
        if refills.slices:
            return Choice("slices", refills.slices)
        builder = builder_of(self.bulk, self.executor, self.source)
        return await choose(self.executor, change, builder, self.bulk.threshold, again=True)

    def _say(self, what: str) -> None:
        _log.info("epoch %d: %s", self.executor.epoch, what)
        if self.refills.shown is not None:
            self.refills.shown.fill(what)

    async def fill(self) -> None:
        """The states, when all nodes are there; what is left then is to activate them.

        :raises Interrupted: the round is to begin again, in slices where it was this that failed.
        """
        assert self._change is not None, "it is fed in slices"
        builder = builder_of(self.bulk, self.executor, self.source)
        assert builder is not None, "it is not to be built in bulk"
        refills = self.refills
        refills.attempts += 1
        filling = Migration(f"{self.executor.epoch}-full{refills.attempts}", "", "running")
        filling.backfill = self._choice.status()
        if refills.shown is not None:
            filling.cancelled = refills.shown.cancelled  # It may have been since the way was chosen.
            refills.shown.filling = filling
        self._say(f"build full states in bulk ({self.way}: {self._choice.why})")
        try:
            await builder.fill(self._change, self._choice, filling)
        except (Interrupted, Deposed):
            raise
        except HeadraceError as error:
            raise self._in_slices(str(error)) from error
        except Exception as error:
            _log.exception("the full states were not built in bulk")
            raise self._in_slices(f"an internal error: {error}") from error
        finally:
            if refills.shown is not None:
                refills.shown.filling = None
        refills.built += 1

    def _in_slices(self, why: str) -> Interrupted:
        self.refills.slices = why
        return Interrupted(f"the full states were not built in bulk: {why}")


def _in_bulk(steps: tuple[PlanStep, ...]) -> tuple[PlanStep, ...]:
    return tuple(
        replace(step, command=replace(step.command, bulk=True))
        if isinstance(step.command, AddNodes) and step.command.held
        else step
        for step in steps
    )
