"""Which column of a file is which of the table: by name, in any case, or as ``--map`` says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.loading.errors import LoadError
from headrace.loading.table import LoadedTable


class Columns:
    """For one table and one mapping."""

    def __init__(self, table: LoadedTable, mapping: Mapping[str, str]) -> None:
        self._table = table
        self._mapping = {name.lower(): to for name, to in mapping.items()}
        self._known: dict[str, str | None] = {}
        for name, to in mapping.items():
            if to and table.column(to) is None:
                raise LoadError(
                    f'"{name}" is to be column "{to}", which table "{table.name}" has not', hint=table.hint(to)
                )

    def of(self, name: str) -> str | None:
        """The table's column for a file's; None where it is left out.

        :raises LoadError: the table has none.
        """
        if name not in self._known:
            to = self._mapping.get(name.lower(), name)
            column = self._table.column(to) if to else None
            if to and column is None:
                hint = f"{self._table.hint(name)}; --map {name}=COLUMN maps it, --map {name}= leaves it out"
                raise LoadError(f'table "{self._table.name}" has no column "{name}"', hint=hint)
            self._known[name] = None if column is None else column.name
        return self._known[name]

    def all_of(self, names: Sequence[str], file: str) -> list[str | None]:
        """The table's columns for all of a file's, in its order.

        :raises LoadError: it has one that the table has not, one twice, or lacks one that cannot be left out.
        """
        try:
            found = [self.of(name) for name in names]
        except LoadError as error:
            raise LoadError(f'file "{file}": {error.message}', hint=error.hint) from None
        taken = [name for name in found if name is not None]
        for name in taken:
            if taken.count(name) > 1:
                raise LoadError(f'file "{file}" has column "{name}" twice', hint="leave one of them out by --map")
        missing = self.missing(taken)
        if missing:
            hint = f"it is NOT NULL and has no default; the file's columns are {', '.join(names)}"
            raise LoadError(f'file "{file}" lacks column "{missing[0]}" of table "{self._table.name}"', hint=hint)
        if not taken:
            raise LoadError(f'file "{file}" has no column of table "{self._table.name}"', hint=self._table.hint(""))
        return found

    def missing(self, given: Sequence[str]) -> list[str]:
        """Columns that cannot be left out, and are."""
        return [column.name for column in self._table.columns if not column.optional and column.name not in given]
