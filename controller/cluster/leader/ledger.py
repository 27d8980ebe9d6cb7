"""The leader's changes of the cluster's state: each is a compare-and-set of the whole.

Decisions of two leaders never mix: each write names the version that was read, and a new leader begins with a write, so
its predecessor's next write is refused, and it steps down. And a leader always knows what it has decided: a write whose
answer was lost is *in doubt* until a read settles it, and nothing else is decided before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from controller.cluster.leader.fleet import Deposed
from controller.cluster.state import ClusterState
from domains.errors import LimitExceeded, Unavailable
from zookeeper.authority import ClusterAuthority
from zookeeper.errors import AuthorityError, AuthorityUnavailable, StateConflict, StateTooLarge

RETRY_SECONDS = 0.1
"""Seconds between two attempts to reach ZooKeeper. An ensemble elects a new leader in some 0.2 s."""


class StateLedger:
    """``state`` is the last known decision; None before the deployment's first start."""

    def __init__(
        self, authority: ClusterAuthority, writer: str, deposed: Callable[[str], None] = lambda reason: None
    ) -> None:
        """``writer`` is unique to this leader's term. ``deposed`` is called when another process turns out to have
        written."""
        self.state: ClusterState | None = None
        self._writer = writer
        self._deposed = deposed
        self._authority = authority
        self._version = 0
        self._doubt: ClusterState | None = None
        self._turn = asyncio.Lock()

    @property
    def decided(self) -> ClusterState:
        assert self.state is not None, "asked before the first start was decided"
        return self.state

    async def load(self) -> ClusterState | None:
        """Read what an earlier leader left. Raises AuthorityUnavailable, StorageFailure."""
        data, self._version = await self._authority.read()
        self.state = None if data is None else ClusterState.decode(data, self._authority.deployment)
        return self.state

    async def change(self, decide: Callable[[ClusterState | None], ClusterState], *, patience: float) -> ClusterState:
        """Replace the state by what ``decide`` makes of it.

        :raises Unavailable: ZooKeeper did not answer within ``patience`` seconds. The write may have been done;
            ``settle`` finds out.
        :raises Deposed: another leader has written.
        :raises LimitExceeded: the state has become too large; nothing was written.
        """
        async with self._turn:
            deadline = asyncio.get_running_loop().time() + patience
            after: ClusterState | None = None
            while True:
                try:
                    await self._settle()
                    if after is not None and self.state is after:
                        return after
                    after = replace(decide(self.state), writer=self._writer)
                    await self._write(after)
                    return after
                except AuthorityUnavailable as error:
                    if asyncio.get_running_loop().time() >= deadline:
                        raise unreachable(error) from error
                    await asyncio.sleep(RETRY_SECONDS)

    async def amend(self, decide: Callable[[ClusterState], ClusterState], *, patience: float) -> ClusterState:
        """:meth:`change` of a state that exists; a leader's first act creates it."""

        def amended(before: ClusterState | None) -> ClusterState:
            assert before is not None
            return decide(before)

        return await self.change(amended, patience=patience)

    async def settle(self) -> None:
        """Find out whether a write in doubt was done. Raises AuthorityUnavailable, Deposed."""
        async with self._turn:
            await self._settle()

    async def confirm(self) -> None:
        """Make sure that ZooKeeper answers and that nobody else has written. Raises Unavailable, Deposed."""
        async with self._turn:
            try:
                await self._settle()
                _, version = await self._authority.read()
            except AuthorityUnavailable as error:
                raise unreachable(error) from error
            if version != self._version:
                raise self._succeeded()

    async def _write(self, after: ClusterState) -> None:
        data = after.encode()
        self._doubt = after  # It stays in doubt if the write is broken off, also by a cancellation.
        try:
            self._version = await self._authority.write(data, self._version)
        except AuthorityUnavailable as error:
            if not error.maybe_done:
                self._doubt = None
            raise
        except StateConflict:
            # An earlier attempt at the same write may have been done.
            await self._settle()
            return
        except StateTooLarge as error:
            self._doubt = None
            raise LimitExceeded(error.message, hint=error.hint) from error
        self.state, self._doubt = after, None

    async def _settle(self) -> None:
        if self._doubt is None:
            return
        data, version = await self._authority.read()
        if data == self._doubt.encode():
            self.state, self._version, self._doubt = self._doubt, version, None
        elif version == self._version:
            self._doubt = None
        else:
            raise self._succeeded()

    def _succeeded(self) -> Deposed:
        reason = "another leader has changed the cluster's state"
        self._deposed(reason)
        return Deposed(reason, hint="ask the leader")


def unreachable(error: AuthorityError) -> Unavailable:
    return Unavailable(
        f"ZooKeeper does not answer, so nothing can be changed now: {error.message}",
        hint="reads and writes go on; try again when it is back",
    )
