"""Rights as values: privileges on names, held in sets.

MySQL's privileges have MySQL's names; ``EVICT`` and those about a deployment are ours. ``ALL`` is written for all of
them but ``GRANT OPTION``, and as in MySQL, whoever holds that on a name may grant what it holds there itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from domains.errors import SqlError
from migrations.parse.grammar import SCHEMA
from migrations.parse.temporary import is_hidden


class Privilege(StrEnum):
    SELECT = "SELECT"
    INSERT = "INSERT"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    CREATE = "CREATE"
    ALTER = "ALTER"
    DROP = "DROP"
    REFERENCES = "REFERENCES"
    """Foreign keys to this table."""
    SHOW_VIEW = "SHOW VIEW"
    """Definitions and dataflow of a view."""
    EVICT = "EVICT"
    """Have a view forget keys."""
    QUERY = "QUERY"
    """SELECTs as SQL, beside look-ups of views."""
    CREATE_USER = "CREATE USER"
    """Accounts, roles and keys of whoever has no right that one has not."""
    PROCESS = "PROCESS"
    """The statements and migrations of others: to see them, and to stop them."""
    METRICS = "METRICS"
    """Status, metrics, and the whole dataflow."""
    ARCHIVE = "ARCHIVE"
    """Bring the archive up to now."""
    BYPASS_POLICIES = "BYPASS POLICIES"
    """Rows as no policy of their table restricts them, unless the request has claims."""
    SET_CLAIMS = "SET CLAIMS"
    """Say for whom a request is: what policies compare."""
    GRANT_OPTION = "GRANT OPTION"


EVERYTHING = "*"
"""All tables and views, and the deployment."""
WHOLE = frozenset(
    (
        Privilege.QUERY,
        Privilege.CREATE_USER,
        Privilege.PROCESS,
        Privilege.METRICS,
        Privilege.ARCHIVE,
        Privilege.BYPASS_POLICIES,
        Privilege.SET_CLAIMS,
    )
)
"""Privileges that are about the deployment, and so on ``*`` only."""
ALL = frozenset(Privilege) - {Privilege.GRANT_OPTION}
ALL_WORDS = ("ALL", "ALL PRIVILEGES")
NONE: frozenset[Privilege] = frozenset()


class Right(NamedTuple):
    privilege: Privilege | None
    """None: any that is about tables and views."""
    on: str = EVERYTHING
    """A name in lower case."""

    def __str__(self) -> str:
        where = "" if self.privilege in WHOLE else f' on "{self.on}"'
        return f"{self.privilege or 'right'}{where}"


@dataclass(frozen=True, slots=True)
class Rights:
    """The rights that somebody holds."""

    held: Mapping[str, frozenset[Privilege]]
    """By name in lower case, ``database.*``, or ``*``."""

    def allow(self, privilege: Privilege | None, on: str = EVERYTHING) -> bool:
        """``on``: in lower case."""
        if is_hidden(on):  # Nobody else knows the name.
            return True
        everywhere, here = self.held.get(EVERYTHING, NONE), self.held.get(on, NONE)
        if on != EVERYTHING:
            schema, dot, _ = on.partition(".")
            here |= self.held.get(f"{schema if dot else SCHEMA}.{EVERYTHING}", NONE)
        if privilege is None:
            return bool(here) or bool(everywhere - WHOLE - {Privilege.GRANT_OPTION})
        return privilege in everywhere or privilege in here

    def cover(self, other: Rights, *, to_grant: bool = False) -> bool:
        """Whether whoever holds these has all of the other's, and ``to_grant``: may grant them."""
        return all(
            self.allow(privilege, on) and (not to_grant or self.allow(Privilege.GRANT_OPTION, on))
            for on, privileges in other.held.items()
            for privilege in privileges
        )

    def __or__(self, other: Rights) -> Rights:
        names = {*self.held, *other.held}
        return Rights({name: self.held.get(name, NONE) | other.held.get(name, NONE) for name in names})

    def __sub__(self, other: Rights) -> Rights:
        """Each level by itself, as in MySQL: to take SELECT on a table leaves SELECT on ``*``."""
        left = {name: privileges - other.held.get(name, NONE) for name, privileges in self.held.items()}
        return Rights({name: privileges for name, privileges in left.items() if privileges})

    def lines(self) -> list[tuple[str, str, bool]]:
        """``SELECT, INSERT``, the name, and whether GRANT OPTION is held there; the widest first."""
        found = []
        for name in sorted(self.held, key=lambda each: (each != EVERYTHING, each)):
            held = self.held[name] - {Privilege.GRANT_OPTION}
            whole = ALL if name == EVERYTHING else ALL - WHOLE
            words = ["ALL PRIVILEGES"] if held >= whole else [each.value for each in Privilege if each in held]
            found.append((", ".join(words or ["USAGE"]), name, Privilege.GRANT_OPTION in self.held[name]))
        return found


NO_RIGHTS = Rights({})
ADMINISTRATOR = Rights({EVERYTHING: frozenset(Privilege)})


def rights_of_words(words: Iterable[str], on: str) -> Rights:
    """What GRANT names.

    :raises SqlError: there is no such privilege, or it is not about tables and views.
    """
    found: set[Privilege] = set()
    for word in words:
        if word in ALL_WORDS:
            found |= ALL if on == EVERYTHING else ALL - WHOLE
        elif word != "USAGE":
            try:
                privilege = Privilege(word)
            except ValueError:
                known = ", ".join(each.value for each in Privilege)
                raise SqlError(f'there is no right "{word}"', hint=f"ALL, {known}") from None
            if privilege in WHOLE and on != EVERYTHING:
                raise SqlError(f'{word} is no right on "{on}"', hint=f"it is about the deployment: GRANT {word} ON *")
            found.add(privilege)
    return Rights({on.lower(): frozenset(found)} if found else {})
