"""Full state after a rebuild by Spark: built in bulk, in the round of recovery that has opened the shards again.

::

    shards made, opened ─► more base rows than the threshold? ─ no ──► fed in slices, as in every other round
                            └─ yes ─► nodes ─► archive up to now ─► job ─► load ─► read the log, replay ─► activate

It is a migration's bulk build (``controller/migrating/bulk/building.py``) of the nodes that the round adds again. Rows
are neither lost nor doubled:

* **What is built** are the places that the round adds held (``reconcile.py``): full state and all below it in an opened
  domain, and what was removed with it in a survivor. They are closed under links: egresses that feed their full
  ingresses are among them, and so are all ingresses that their egresses feed. The job computes exactly their states.
* **As of when.** All nodes exist before the base tables are archived up to P, and each domain keeps its log since it
  got its nodes. So the log after P is there.
* **Meanwhile** no row goes to them: their egresses send nothing before the replay, which begins when every state is
  loaded. From then on the links carry the replay's rows in their order.
* **State that survived** above them (a first phase of an aggregate, say) is empty to the job, and is fed whole when its
  domain's replay begins (``domains/engine/lifecycle/replay.py``).
* **If it is broken off**, at any step: until ``Activate`` the nodes are reported as being built, so the next round,
  perhaps another leader's, removes them and adds them anew. The job ends with the round, and the log that was kept for
  it is freed by a release or by the next leader's epoch.

So if the job fails or is cancelled the round is broken off, and the next one feeds in slices.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from controller.cluster.leader.building import BulkSettings, ClusterSource, builder_of
from controller.cluster.leader.fleet import Deposed
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
"""How often a bulk build is tried. A cluster that loses workers faster must first be whole again, and loading the
states may be what kills them."""

_log = logging.getLogger("headrace.controller")


@dataclass(slots=True)
class Refills:
    """What is known of refills, for a leader's term."""

    due: bool = False
    """Shards were rebuilt from runs, and the full state on them is not built yet."""
    attempts: int = 0
    slices: str = ""
    """Why it is fed in slices, if it is."""
    shown: Rebuilding | None = None
    """The operation that asked for it, if this leader has it."""
    built: int = 0
    """How often it was built in bulk."""

    def ask(self, shown: Rebuilding) -> None:
        self.due, self.attempts, self.slices, self.shown = True, 0, "", shown

    def notice(self, decided: ClusterState) -> None:
        """Called before each decision: an earlier leader's rebuilds are in the state."""
        self.due = self.due or any(given.rebuild and given.rebuild.runs for given in decided.placement.values())

    def done(self) -> None:
        self.due, self.attempts, self.slices, self.shown = False, 0, "", None


@dataclass(slots=True)
class Refill:
    """The refill of one round, with that round's ``executor``."""

    refills: Refills
    bulk: BulkSettings
    executor: Executor
    source: ClusterSource | None
    _change: Change | None = field(default=None, init=False)
    _choice: Choice = field(default=Choice("", ""), init=False)

    @property
    def way(self) -> str:
        """The runner that builds it in bulk; "" if it is fed in slices."""
        return "" if self._change is None else self._choice.way

    async def planned(self, state: State, todo: Repair) -> Repair:
        """The repair to carry out. After it comes :meth:`fill`, or its feeds if there is no bulk build."""
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
        """Build the states, when all nodes are there; then they only have to be activated.

        :raises Interrupted: the round must begin again, in slices if the build failed.
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
