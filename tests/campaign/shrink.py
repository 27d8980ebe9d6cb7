"""Makes a failing case small: drop operations, then simplify those that are left, while the same thing goes wrong."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.campaign.simplify import simpler
from tests.campaign.statements import Operation

Edit = tuple[int, int]
"""(position in the whole case, choice among ``simpler``)."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Which operations of a case are kept, and how they were simplified, in order."""

    kept: tuple[int, ...]
    edits: tuple[Edit, ...] = ()

    def applied(self, operations: Sequence[Operation]) -> list[Operation]:
        changed = dict(enumerate(operations))
        for position, choice in self.edits:
            changed[position] = simpler(changed[position])[choice]
        return [changed[position] for position in self.kept]

    def text(self) -> str:
        """``0-3,7/5.2,5.0``: ranges of positions, then the edits."""
        text = ",".join(_ranges(self.kept))
        return text + ("/" + ",".join(f"{p}.{c}" for p, c in self.edits) if self.edits else "")


def parse_recipe(text: str) -> Recipe:
    kept_text, _, edit_text = text.partition("/")
    kept: list[int] = []
    for part in kept_text.split(","):
        first, _, last = part.partition("-")
        kept += range(int(first), int(last or first) + 1)
    edits = [tuple(map(int, part.split("."))) for part in edit_text.split(",") if part]
    return Recipe(tuple(kept), tuple((position, choice) for position, choice in edits))


def _ranges(positions: Sequence[int]) -> list[str]:
    found: list[list[int]] = []
    for position in positions:
        if found and found[-1][1] == position - 1:
            found[-1][1] = position
        else:
            found.append([position, position])
    return [str(first) if first == last else f"{first}-{last}" for first, last in found]


@dataclass
class Shrinker:
    """``fails`` runs operations afresh and tells whether the same thing goes wrong."""

    operations: Sequence[Operation]
    fails: Callable[[Sequence[Operation]], bool]
    deadline: float
    runs: int = field(default=0)

    def shrink(self) -> Recipe:
        recipe = Recipe(tuple(range(len(self.operations))))
        while time.monotonic() < self.deadline:
            before = recipe
            recipe = self._fewer(recipe)
            recipe = self._simpler(recipe)
            if recipe == before:
                break
        return recipe

    def _try(self, recipe: Recipe) -> bool:
        if time.monotonic() >= self.deadline:
            return False
        self.runs += 1
        return self.fails(recipe.applied(self.operations))

    def _fewer(self, recipe: Recipe) -> Recipe:
        """Take out ever smaller runs of operations, from the end."""
        size = max(1, len(recipe.kept) // 2)
        while True:
            start = len(recipe.kept) - size
            while start > -size:
                low = max(start, 0)
                smaller = Recipe(recipe.kept[:low] + recipe.kept[low + size :], recipe.edits)
                if smaller.kept and self._try(smaller):
                    recipe = smaller
                start -= size
            if size == 1:
                return recipe
            size = max(1, size // 2)

    def _simpler(self, recipe: Recipe) -> Recipe:
        for position in recipe.kept:
            progress = True
            while progress and time.monotonic() < self.deadline:
                progress = False
                edited = Recipe((position,), recipe.edits).applied(self.operations)[0]
                for choice in range(len(simpler(edited))):
                    candidate = Recipe(recipe.kept, (*recipe.edits, (position, choice)))
                    if self._try(candidate):
                        recipe, progress = candidate, True
                        break
        return recipe
