"""What goes over links all the time, packed and checked by hand: ``LinkUpdate`` and the ``Fill`` in it.

This may be plain: a step on one domain sends an update to each of its links, and a shuffle has many. The generated
functions take twice as long, since they call one function a field and three a row.
"""

from __future__ import annotations

from typing import Any

from domains.graph import NodeIndex
from domains.packets import Fill, LinkId, LinkUpdate
from worker.wire.coders import LEAVES, Coder, Misfit

VALUES = LEAVES - {bool}
"""The types of a row's values."""
_INTEGERS = frozenset((int,))


def link_update_coder(fill: Coder, pattern: Coder, unfilled: Coder) -> Coder:
    pack_fill, unpack_fill, pack_pattern, unpack_pattern = fill.pack, fill.unpack, pattern.pack, pattern.unpack
    pack_unfilled, unpack_unfilled = unfilled.pack, unfilled.unpack
    assert pack_fill is not None
    assert pack_pattern is not None
    assert pack_unfilled is not None

    def pack(o: LinkUpdate) -> Any:
        evictions: Any = [(node, pack_pattern(each)) for node, each in o.evictions] if o.evictions else ()
        fills: Any = [pack_fill(each) for each in o.fills] if o.fills else ()
        failed: Any = [pack_unfilled(each) for each in o.unfilled] if o.unfilled else ()
        return ("LinkUpdate", o.link, o.sequence, o.epoch, o.clock, evictions, o.deltas, fills, o.ended, failed)

    def unpack(packed: Any) -> LinkUpdate:
        _, link, sequence, epoch, clock, evictions, deltas, fills, ended, failed = packed
        if type(link) is not int or type(sequence) is not int or type(epoch) is not int or type(clock) is not dict:
            raise Misfit
        for base, position in clock.items():
            if type(base) is not str or type(position) is not int:
                raise Misfit
        if not (type(evictions) is type(deltas) is type(fills) is type(ended) is type(failed) is tuple):
            raise Misfit
        for node, rows in deltas:
            if type(node) is not int:
                raise Misfit
            check_deltas(rows)
        if evictions:
            evictions = tuple([(_integer(node), unpack_pattern(each)) for node, each in evictions])
        if fills:
            fills = tuple([unpack_fill(each) for each in fills])
        if ended:
            ended = tuple(map(_integer, ended))
        if failed:
            failed = tuple([unpack_unfilled(each) for each in failed])
        return LinkUpdate(LinkId(link), sequence, epoch, clock, evictions, deltas, fills, ended, failed)

    return Coder(unpack, pack)


def fill_coder() -> Coder:
    def pack(o: Fill) -> Any:
        return ("Fill", o.node, o.columns, o.key, o.rows)

    def unpack(packed: Any) -> Fill:
        tag, node, columns, key, rows = packed
        if tag != "Fill" or type(node) is not int or not (type(columns) is type(key) is tuple):
            raise Misfit
        if not (_INTEGERS.issuperset(map(type, columns)) and VALUES.issuperset(map(type, key))):
            raise Misfit
        check_deltas(rows)
        return Fill(NodeIndex(node), columns, key, rows)

    return Coder(unpack, pack)


def check_deltas(deltas: Any) -> None:
    """Each a row of values and a weight: 0.1 µs a row of three. (The set of a run's types takes longer to make.)"""
    if type(deltas) is not tuple:
        raise Misfit
    for row, weight in deltas:
        if type(row) is not tuple or type(weight) is not int:
            raise Misfit
        for value in row:
            if type(value) not in VALUES:
                raise Misfit


def _integer(value: Any) -> Any:
    if type(value) is not int:
        raise Misfit
    return value
