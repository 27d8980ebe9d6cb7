"""The limits of transactions, which the settings name: apart, since commands load them and nothing of the rest."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Isolation(StrEnum):
    SERIALIZABLE = "serializable"
    """All that is read is held against others' commits: nobody waits, and who comes second begins again."""
    REPEATABLE_READ = "repeatable-read"
    """Plain reads are of one snapshot; what is written, and read to write, is of now and locked."""
    READ_COMMITTED = "read-committed"
    """The same, with a snapshot for each read."""

    @property
    def shown(self) -> str:
        """As ``@@transaction_isolation`` has it."""
        return self.value.upper()

    @classmethod
    def named(cls, name: str) -> Isolation:
        """Of a variable's value, or the words of a statement. No read shows what is not committed, whoever asks."""
        word = name.lower().replace(" ", "-")
        return cls.READ_COMMITTED if word == "read-uncommitted" else cls(word)


LOCK_SECONDS = 50.0
"""Seconds that a statement waits for a lock, unless a setting says otherwise. MySQL's default."""


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    """Of one process that answers HTTP; each is a setting of its name."""

    max_transactions: int = 1_000
    """Sessions and transactions that are open. One more is refused."""
    max_transaction_size: int = 16_000_000
    """Bytes that one may stage and remember of what it has read."""
    transaction_idle: float = 60.0
    """Seconds without a statement after which one is rolled back."""
    transaction_isolation: Isolation = Isolation.SERIALIZABLE
    """Of those that name none; connections of MySQL begin with REPEATABLE READ."""
    max_temporary_tables: int = 200
    """Of all sessions together. One more is refused: each is as much as another table."""
    lock_wait: float = LOCK_SECONDS
