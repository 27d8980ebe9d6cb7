"""Inner, left and mark joins on equal columns.

With primes for the state after the step, the matched part changes by

    Δ(L ⋈ R) = ΔL ⋈ R' + L ⋈ ΔR            where L = L' − ΔL

and the left rows without a match, U, by

    ΔU = U(ΔL, R') + U(L, R') − U(L, R).

A mark join has each left row once, followed by 1 where it has a match (M) and by 0 where it has none:

    Δ(L ⊳ R) = M(ΔL, R') × 1 + U(ΔL, R') × 0 + (M(L, R') − M(L, R)) × 1 + (U(L, R') − U(L, R)) × 0.

Neither formula pulls: where a side has a hole at the join key, the update cannot be completed, and by rule 3 nothing
below has consulted that key. What may still be wrong below are entries computed before the row existed; the row names
them (rule 5), if it is of the side that they are pulled from: an entry that has no row of that side at the key has
nothing to join there, whatever comes on the other. So a user's ribbons on stories where nobody replied to him leave
his notifications alone. A NULL join key equals nothing: it is never consulted and never a hole.

Where a residual compares a column of a side, of the rows of that side at the join key only those in the range are
looked at (``ranged.py``). Inner joins have such residuals too, and then use that

    ΔL ⋈ R' + L ⋈ ΔR = ΔL ⋈ R' + L' ⋈ ΔR − ΔL ⋈ ΔR.

A range is a part of a key: what holds for the key, of holes and evictions, holds for each of its ranges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from domains.language.compile import compile_filter_batch, compile_predicate
from domains.language.types import Column, Delta, Row, collations_of
from domains.operators.operator import Forward, Found, Lookups, Operator, rename
from domains.operators.ranged import Partners, Ranged, RangeOfSide, ranged
from domains.plan import graph
from domains.plan.deltas import Entry, add_row, consolidate, group_by_key, key_function
from domains.plan.graph import Columns, JoinKind
from domains.plan.packets import Pattern
from domains.plan.sides import LEFT, RIGHT, ranges_of, side_columns

Groups = tuple[dict[Row, list[Delta]], dict[Row, list[Delta]]]
"""The changes of both sides by join key."""
NO_PARTNERS: Partners = ()
NOTHING: list[Delta] = []
MATCHED: Row = (1,)


@dataclass(frozen=True, slots=True)
class Drive:
    """How a look-up by some output columns passes through: pull ``side`` by ``columns``, join, check the rest."""

    side: int
    columns: Columns
    part: Callable[[Row], Row]
    """The look-up's key → the driving side's key."""
    checks: tuple[tuple[int, int], ...]
    """(position in the key, output column) of what the driving side does not decide."""
    join_key: Callable[[Row], Row] | None
    """The look-up's key → the join key, where it contains it: then both sides are consulted there, also if empty."""


class JoinOperator(Operator):
    def __init__(self, descriptor: graph.Join, left: Sequence[Column], right: Sequence[Column]) -> None:
        self.kind = descriptor.kind
        self.on: tuple[Columns, Columns] = (descriptor.left_on, descriptor.right_on)
        self.widths = (len(left), len(right))
        collations = (collations_of(left), collations_of(right))
        self._keys = (key_function(self.on[LEFT], collations[LEFT]), key_function(self.on[RIGHT], collations[RIGHT]))
        self._naming = tuple(
            key_function(tuple(range(len(columns))), own) if own else None
            for columns, own in zip((left, right), collations, strict=True)
        )
        """What a side's row names, where that is not its values: a pattern has keys."""
        self._nulls: Row = (0,) if descriptor.kind is JoinKind.MARK else (None,) * len(right)
        """What follows a left row without a match."""
        self._marks = descriptor.kind is JoinKind.MARK
        residual = descriptor.residual
        self._matches = compile_predicate(residual) if residual is not None else None
        self._keep = compile_filter_batch(residual) if residual is not None else None
        found = zip(ranges_of(residual, len(left)), (left, right), strict=True)
        self._ranges = tuple([None if range_ is None else RangeOfSide(range_, columns) for range_, columns in found])
        self._is_ranged = any(self._ranges)
        self._collations = collations
        self._counts = descriptor.kind is not JoinKind.INNER and residual is None
        """A change of the right side asks only how many rows the key has there: a vote for a story of 100,000 votes
        must not read them all."""
        self._places = self._output_places()
        self._drives: dict[Columns, Drive] = {}

    def _output_places(self) -> tuple[tuple[Columns, ...], tuple[Columns, ...]]:
        """The places of each side's columns in the output. The two join columns are one value (where a left join makes
        the right one NULL, to take them for one evicts too much, never too little)."""
        width = self.widths[LEFT]
        left = [{column} for column in range(width)]
        right = [{width + column} for column in range(self.widths[RIGHT])]
        if self._marks:
            right = [set() for _ in right]
        for a, b in zip(*self.on, strict=True):
            right[b].add(a)
            if not self._marks:
                left[a].add(width + b)
        return tuple(tuple(sorted(p)) for p in left), tuple(tuple(sorted(p)) for p in right)

    # --- look-ups -------------------------------------------------------------------------------------------

    def drive(self, columns: Columns) -> Drive:
        if columns not in self._drives:
            # All rows (of full state, for the invariants) come from the left, which a left join has to begin with.
            side = dict(self.vertex.node.drives)[columns] if columns else dict(self.vertex.node.drives).get((), 0)
            self._drives[columns] = make_drive(self, columns, side)
        return self._drives[columns]

    def drive_from(self, columns: Columns, side: int) -> None:
        self._drives[columns] = make_drive(self, columns, side)

    def compute(self, lookups: Lookups, columns: Columns, keys: Sequence[Row]) -> list[Found]:
        drive = self.drive(columns)
        side, other = drive.side, 1 - drive.side
        driving = lookups.find(self.vertex.parents[side], drive.columns, [drive.part(key) for key in keys])
        own_key = self._keys[side]
        wanted: dict[Row, None] = {}
        # Where a look-up may meet a hole, both sides are consulted even for nothing (rule 3). Where none can, on base
        # tables alone, what has no row to join asks for nothing: a ribbon on a story looks no comments of it up.
        consulting = drive.join_key if any(parent.may_miss for parent in self.vertex.parents) else None
        if consulting is not None:
            wanted.update((consulting(key), None) for key in keys)
        for rows in driving:
            if rows is not None:
                wanted.update((own_key(row), None) for row, _ in rows)
        consulted = [key for key in wanted if None not in key]
        found = self._sought(lookups, other, consulted) if consulted else ()
        partners: dict[Row, Partners | None] = dict(zip(consulted, found, strict=True))
        if drive.columns != self.on[side] and self.vertex.parents[side].may_miss:
            own = lookups.find(self.vertex.parents[side], self.on[side], consulted)
            partners.update((key, None) for key, rows in zip(consulted, own, strict=True) if rows is None)
        return [
            None
            if rows is None or (consulting is not None and partners[consulting(key)] is None)
            else self._joined(drive, key, rows, partners)
            for key, rows in zip(keys, driving, strict=True)
        ]

    def _joined(self, drive: Drive, key: Row, driving: Iterable[Delta], partners: dict[Row, Partners | None]) -> Found:
        own_key, other = self._keys[drive.side], 1 - drive.side
        output: list[Delta] = []
        for row, weight in driving:
            join_key = own_key(row)
            partner = NO_PARTNERS if None in join_key else partners[join_key]
            if partner is None:
                return None
            rows = self._within(other, partner, row)
            if drive.side == LEFT:
                self._extend_left(output, row, weight, rows)
            else:
                output.extend(
                    (left + row, w * weight) for left, w in rows if self._matches is None or self._matches(left + row)
                )
        for position, column in drive.checks:
            found = key_function((column,), self.vertex.collations)
            wanted = (key[position],)
            output = [delta for delta in output if found(delta[0]) == wanted]
        return output

    def _extend_left(self, output: list[Delta], left: Row, weight: int, rights: Iterable[Delta]) -> None:
        matches = self._matches
        if self._marks:
            output.append((left + (MATCHED if self._any_match(left, rights) else self._nulls), weight))
            return
        before = len(output)
        if matches is None:
            output.extend([(left + right, weight * w) for right, w in rights])
        else:
            output.extend([(left + right, weight * w) for right, w in rights if matches(left + right)])
        if len(output) == before and self.kind is JoinKind.LEFT:
            output.append((left + self._nulls, weight))

    # --- updates --------------------------------------------------------------------------------------------

    def forward(self, inputs: list[list[Delta]], act: Forward) -> list[Delta]:
        groups = (group_by_key(inputs[LEFT], self._keys[LEFT]), group_by_key(inputs[RIGHT], self._keys[RIGHT]))
        keys = [key for key in {**groups[LEFT], **groups[RIGHT]} if None not in key]
        output: list[Delta] = []
        if self.kind is JoinKind.INNER:
            if self._is_ranged:
                self._inner_ranged(output, groups, keys, act)
            else:
                self._inner(output, groups, keys, act)
            return output
        for key, deltas in groups[LEFT].items():
            if None in key:
                output.extend((row + self._nulls, weight) for row, weight in deltas)
        if self._counts:
            only_right = [key for key in keys if key not in groups[LEFT]]
            self._outer(output, groups, [key for key in keys if key in groups[LEFT]], act)
            self._outer_counted(output, groups[RIGHT], only_right, act)
        else:
            self._outer(output, groups, keys, act)
        return output

    def _inner(self, output: list[Delta], groups: Groups, keys: list[Row], act: Forward) -> None:
        """``ΔL ⋈ R' + L ⋈ ΔR``: nearly every join, 0.6 µs a key that changes on one side."""
        (left_groups, right_groups), (left, right), keep = groups, self.vertex.parents, self._keep
        lefts = self._found(act, LEFT, keys if left.may_miss else [key for key in keys if key in right_groups])
        rights = self._found(act, RIGHT, keys if right.may_miss else [key for key in keys if key in left_groups])
        for key in keys:
            left_rows, right_rows = lefts.get(key, ()), rights.get(key, ())
            left_deltas, right_deltas = left_groups.get(key, NOTHING), right_groups.get(key, NOTHING)
            if left_rows is None or right_rows is None:
                self._name_incomplete(act, left_deltas, right_deltas)
                continue
            joined = [(left + right, v * w) for left, v in left_deltas for right, w in right_rows]
            if right_deltas:
                before = _before(left_rows, left_deltas)
                joined += [(left + right, v * w) for left, v in before for right, w in right_deltas]
            output += joined if keep is None else keep(joined)

    def _inner_ranged(self, output: list[Delta], groups: Groups, keys: list[Row], act: Forward) -> None:
        left_groups, right_groups = groups
        left, right = self.vertex.parents
        lefts = self._partners(act, LEFT, keys if left.may_miss else [key for key in keys if key in right_groups])
        rights = self._partners(act, RIGHT, keys if right.may_miss else [key for key in keys if key in left_groups])
        within, keep = self._within, self._keep
        for key in keys:
            left_rows, right_rows = lefts.get(key, NO_PARTNERS), rights.get(key, NO_PARTNERS)
            left_deltas, right_deltas = left_groups.get(key, NOTHING), right_groups.get(key, NOTHING)
            if left_rows is None or right_rows is None:
                self._name_incomplete(act, left_deltas, right_deltas)
                continue
            joined = [(row + other, v * w) for row, v in left_deltas for other, w in within(RIGHT, right_rows, row)]
            joined += [(other + row, v * w) for row, v in right_deltas for other, w in within(LEFT, left_rows, row)]
            if left_deltas and right_deltas:
                twice = self._changed(right_deltas)
                joined += [(row + other, -v * w) for row, v in left_deltas for other, w in within(RIGHT, twice, row)]
                joined = consolidate(joined)
            output += joined if keep is None else keep(joined)

    def _outer(self, output: list[Delta], groups: Groups, keys: list[Row], act: Forward) -> None:
        """A left join where rows of the right side are looked at, not only counted."""
        (left_groups, right_groups), left = groups, self.vertex.parents[LEFT]
        lefts = self._partners(act, LEFT, keys if left.may_miss else [key for key in keys if key in right_groups])
        rights = self._partners(act, RIGHT, keys)
        for key in keys:
            left_rows, right_rows = lefts.get(key, NO_PARTNERS), rights[key]
            left_deltas, right_deltas = left_groups.get(key, NOTHING), right_groups.get(key, NOTHING)
            if left_rows is None or right_rows is None:
                self._name_incomplete(act, left_deltas, right_deltas)
                continue
            for row, weight in left_deltas:
                self._extend_left(output, row, weight, self._within(RIGHT, right_rows, row))
            if right_deltas:
                changes = consolidate(right_deltas)
                touched = _before(self._touched(left_rows, changes), left_deltas)
                self._right_changed(output, touched, right_rows, changes)

    def _outer_counted(
        self, output: list[Delta], right_groups: dict[Row, list[Delta]], keys: list[Row], act: Forward
    ) -> None:
        """A left join where only the right side has changed, and each of its rows is a match: how many rows the key has
        there says whether it had any before, and has any now."""
        if not keys:
            return
        most = 1 + max(sum([w for _, w in right_groups[key] if w > 0]) for key in keys)
        counts = act.count(self.vertex.parents[RIGHT], self.on[RIGHT], keys, most)
        lefts = self._found(act, LEFT, keys)
        for key, count in zip(keys, counts, strict=True):
            left_rows, changes = lefts[key], right_groups[key]
            if left_rows is None or count is None:
                self._name_incomplete(act, NOTHING, changes)
                continue
            # More than have come: some were there before.
            had, has = count == most or count > sum([w for _, w in changes]), count > 0
            if self._marks and had == has:
                continue
            for left, weight in left_rows:
                if not self._marks:
                    output.extend([(left + right, weight * w) for right, w in changes])
                if had != has:
                    self._flipped(output, left, weight if had else -weight)

    def _partners(self, act: Forward, side: int, keys: list[Row]) -> dict[Row, Partners | None]:
        return dict(zip(keys, self._sought(act, side, keys), strict=True)) if keys else {}

    def _sought(self, lookups: Lookups, side: int, keys: list[Row]) -> Sequence[Partners | None]:
        """What a side has at join keys, for :meth:`_within`."""
        parent, range_ = self.vertex.parents[side], self._ranges[side]
        if range_ is None:
            return lookups.find(parent, self.on[side], keys)
        return lookups.ranged(parent, self.on[side], range_.column, keys)

    def _changed(self, rights: list[Delta]) -> Partners:
        """Changes of the right side, as partners of left rows."""
        range_, changes = self._ranges[RIGHT], consolidate(rights)
        return (changes if range_ is None else ranged(changes, range_.column, self._collations[RIGHT])) or changes

    def _within(self, side: int, found: Partners, row: Row) -> Iterable[Delta]:
        """Those rows of a side that may match a row of the other one."""
        if not isinstance(found, Ranged):
            return found
        range_ = self._ranges[side]
        assert range_ is not None, "ranges are asked for where a match is in one"
        bounds = range_.bounds(row)
        return () if bounds is None else found.within(bounds)

    def _found(self, act: Forward, side: int, keys: list[Row]) -> dict[Row, Found]:
        if not keys:
            return {}
        return dict(zip(keys, act.find(self.vertex.parents[side], self.on[side], keys), strict=True))

    def _name_incomplete(self, act: Forward, *deltas: list[Delta]) -> None:
        """A side has a hole at the key of these changes, one list a side."""
        for side in sorted(self._driving):
            act.name_rows(self._named(side, (row for row, _ in deltas[side])))

    def _touched(self, lefts: Partners, changes: list[Delta]) -> Iterable[Delta]:
        """The left rows that may match one of the changed right rows."""
        if self._ranges[LEFT] is None:
            return self._within(LEFT, lefts, ())
        touched: Entry = {}
        for change, _ in changes:
            touched.update(consolidate(self._within(LEFT, lefts, change)))
        return touched.items()

    def _right_changed(
        self, output: list[Delta], lefts: Iterable[Delta], rights: Partners, changes: list[Delta]
    ) -> None:
        """``L ⋈ ΔR``, and which rows of L gained their first match or lost their last one."""
        matches = self._matches
        changed = self._changed(changes)
        came = {row: weight for row, weight in changes if weight > 0}
        for left, weight in lefts:
            of_left = list(self._within(RIGHT, changed, left))
            if matches is not None:
                of_left = [(right, w) for right, w in of_left if matches(left + right)]
            if not of_left:
                continue
            if not self._marks:
                output.extend([(left + right, weight * w) for right, w in of_left])
            had, has = any(w < 0 for _, w in of_left), False
            counted: Entry = {}  # A projection on the way may have made rows equal.
            for right, w in self._within(RIGHT, rights, left):
                if matches is None or matches(left + right):
                    has = True
                    if not had:
                        add_row(counted, right, w)
                        had = counted.get(right, 0) > came.get(right, 0)
                    if had:
                        break
            if had != has:
                self._flipped(output, left, weight if had else -weight)

    def _flipped(self, output: list[Delta], left: Row, weight: int) -> None:
        """A left row that lost its last match, or gained its first (then the weight is that of what goes)."""
        output.append((left + self._nulls, weight))
        if self._marks:
            output.append((left + MATCHED, -weight))

    def _any_match(self, left: Row, rights: Iterable[Delta]) -> bool:
        if self._matches is None:
            return any(True for _ in rights)
        return any(self._matches(left + right) for right, _ in rights)

    # --- evictions ------------------------------------------------------------------------------------------

    @property
    def _driving(self) -> set[int]:
        """The sides that look-ups are pulled from. An entry is named by rows of its own; where some are pulled from one
        side and some from the other, by those of both."""
        return {side for _, side in self.vertex.node.drives}

    def _named(self, side: int, rows: Iterable[Row]) -> Iterable[Pattern]:
        places, naming = self._places[side], self._naming[side]
        if naming is not None:
            rows = map(naming, rows)
        return (Pattern(places, row, strict=False) for row in rows)

    def translate(self, parent: int, patterns: Sequence[Pattern], act: Forward) -> list[Pattern]:
        """Each renamed; and what the driving side's rows at the evicted join keys name (rule 6), looked up together."""
        places, on = self._places[parent], self.on[parent]
        translated = rename(patterns, places)
        evicted = (_join_key_of(pattern, on) for pattern in patterns if pattern.strict)
        join_keys = [key for key in dict.fromkeys(evicted) if key is not None]
        for side in sorted(self._driving) if join_keys else ():
            for rows in act.peek_old(self.vertex.parents[side], self.on[side], join_keys):
                translated.extend(self._named(side, (row for row, _ in rows or ())))
        return translated


def _before(rows: Iterable[Delta], changes: list[Delta]) -> Iterable[Delta]:
    """The rows as they were before the changes that they already reflect."""
    if not changes:
        return rows
    entry: Entry = {}
    for row, weight in rows:  # A projection on the way may have made rows equal.
        add_row(entry, row, weight)
    for row, weight in changes:
        add_row(entry, row, -weight)
    return entry.items()


def _join_key_of(pattern: Pattern, on: Columns) -> Row | None:
    """The join key, if the evicted entry is one of the index that the join consults."""
    if len(pattern.columns) != len(set(on)):
        return None
    values: list[object] = []
    for column in on:
        for copies, value in zip(pattern.columns, pattern.values, strict=True):
            if column in copies:
                values.append(value)
                break
        else:
            return None
    return None if None in values else tuple(values)  # type: ignore[arg-type]


def make_drive(join: JoinOperator, columns: Columns, side: int) -> Drive:
    """The planner's choice of side, worked out. The planner chose a side that decides one column at least."""
    own = side_columns(join.kind, join.on, join.widths[LEFT], columns, side)
    known = [i for i, column in enumerate(own) if column >= 0 and column not in own[:i]]
    # A left join's right join column equals the left one only where there is a match.
    unsure = join.kind is not JoinKind.INNER and side == LEFT
    checks = tuple(
        (i, column) for i, column in enumerate(columns) if i not in known or (unsure and column >= join.widths[LEFT])
    )
    driving = tuple(own[i] for i in known)
    join_key = None
    if join.on[side] and all(column in driving for column in join.on[side]):
        join_key = key_function(tuple(known[driving.index(column)] for column in join.on[side]))
    return Drive(side, driving, key_function(tuple(known)), checks, join_key)
