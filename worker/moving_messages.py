"""What is said about a domain that is on its way from one worker to another."""

from __future__ import annotations

from dataclasses import dataclass

from domains.graph import DomainIndex


@dataclass(frozen=True, slots=True)
class LinkRequest:
    """Say when the domain is linked here. → ``Done``; NotHere where it is not within so many seconds.

    For whoever was told ``NotHere.unlinked`` and knows that the domain was given to this worker: it asks again as soon
    as there is something to be asked, neither before nor later.
    """

    domain: DomainIndex
    within: float


@dataclass(frozen=True, slots=True)
class FlushDomain:
    """From the controller: the domain is about to be closed here, so have its store write to its files now what closing
    would write then, while nobody has the domain. It goes on serving. → ``Done``, also where it is not here

    Nothing depends on it: it may be lost, late or sent twice, and what is written meanwhile is left for the closing.
    """

    epoch: int
    domain: DomainIndex


MovingMessage = LinkRequest | FlushDomain
