"""How large a simulation is: drawn from its seed, or in parts what somebody says."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from random import Random

Shape = Mapping[str, float]
"""Parts of a size, by their names, that the seed does not decide."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is done, drawn from the seed."""

    shards: int
    workers: int
    controllers: int
    clients: int
    seconds: float
    faults: int
    views: int
    pace: float
    """Seconds between two requests of a client, about."""
    any_views: bool
    """A case of the campaign is done besides."""
    backups: bool = False
    """Back-ups are taken of it. Not drawn with the others: seeds without are what they were."""
    replaced: bool = False
    """A view that others read is replaced again and again. Not drawn with the others either."""
    ad_hoc: bool = False
    """SELECTs that no view answers are asked beside. Not drawn with the others either."""
    automatic: bool = False
    """Automatic views are asked for, and asked. Not drawn with the others either."""

    altered: bool = False
    """A table is altered while it is written to. Not drawn with the others either."""
    transacting: bool = False
    """Transactions go over the shards. Not drawn with the others either."""

    @classmethod
    def of(cls, random: Random) -> Size:
        return cls(
            shards=random.choice((1, 2, 2, 3, 4)),
            workers=random.choice((1, 2, 2, 3, 3, 4)),
            controllers=random.choice((1, 2, 2, 3)),
            clients=random.choice((1, 1, 2)),
            seconds=random.choice((2.0, 4.0, 8.0)),
            faults=random.choice((0, 1, 2, 2, 3, 3, 5, 8, 12)),
            views=random.choice((2, 3, 5)),
            pace=random.choice((0.1, 0.3, 0.6)),
            any_views=random.random() < 0.35,
        )


PARTS = {field.name: field.type for field in fields(Size)}


def shape_of(text: str) -> Shape:
    """``shards=4,workers=4``, as the command line has it."""
    shape: dict[str, float] = {}
    for each in filter(None, text.split(",")):
        name, _, value = each.partition("=")
        if name not in PARTS:
            sys.exit(f"no such part of the size: {name}; there are {', '.join(PARTS)}")
        shape[name] = float(value) if PARTS[name] == "float" else int(value)
    return shape
