"""Which workloads there are, and what a run asks of one beside its jobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from loadgen.crud.workload import CrudWorkload
from loadgen.lobsters.ribbons import RibbonsWorkload
from loadgen.lobsters.workload import VARIANTS, LobstersWorkload
from loadgen.pace.errors import LoadError
from loadgen.pace.jobs import Workload
from loadgen.peers.store import Lookup, Program
from loadgen.vote.workload import DISTRIBUTIONS, VoteWorkload

NAMES = ("lobsters", "ribbons", "vote", "crud")


class PrimedWorkload(Workload, Protocol):
    """A workload with the data that it expects."""

    @property
    def program(self) -> Program: ...

    def probe(self) -> Lookup | None: ...

    def rows(self) -> tuple[Iterator[tuple[str, list[dict[str, Any]]]], int]: ...


class Asked(Protocol):
    """What decides a workload, out of the options of a run."""

    @property
    def workload(self) -> str: ...
    @property
    def variant(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def data_scale(self) -> float: ...
    @property
    def data_seed(self) -> int: ...
    @property
    def distribution(self) -> str: ...
    @property
    def batch(self) -> int: ...


def open_workload(asked: Asked) -> PrimedWorkload:
    """Raises LoadError for a name or a variant that is not known."""
    match asked.workload:
        case "lobsters":
            _known("variant", asked.variant, VARIANTS)
            return LobstersWorkload(
                variant=asked.variant, data_scale=asked.data_scale, data_seed=asked.data_seed, seed=asked.seed
            )
        case "ribbons":
            return RibbonsWorkload(
                data_scale=asked.data_scale, data_seed=asked.data_seed, seed=asked.seed, batch=asked.batch
            )
        case "vote":
            _known("distribution", asked.distribution, DISTRIBUTIONS)
            return VoteWorkload(
                data_scale=asked.data_scale, seed=asked.seed, distribution=asked.distribution, batch=asked.batch
            )
        case "crud":
            return CrudWorkload(data_scale=asked.data_scale, seed=asked.seed)
    raise LoadError(f'there is no workload "{asked.workload}"', hint=f"known are {', '.join(NAMES)}")


def _known(what: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        raise LoadError(f'there is no {what} "{given}"', hint=f"known are {', '.join(known)}")
