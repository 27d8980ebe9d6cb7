"""The limits of transactions, which the settings name: apart, since commands load them and nothing of the rest."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    """Of one process that answers HTTP; each is a setting of its name."""

    max_transactions: int = 1_000
    """Sessions and transactions that are open. One more is refused."""
    max_transaction_size: int = 16_000_000
    """Bytes that one may stage and remember of what it has read."""
    transaction_idle: float = 60.0
    """Seconds without a statement after which one is rolled back."""
