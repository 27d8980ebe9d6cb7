"""Which commands take a setting as a flag."""

from __future__ import annotations

PARTS = ("controller", "worker", "api")
"""The commands that start a part of a cluster; ``up`` starts them all."""


class Flag:
    """The commands that take a setting as a flag, and what their help calls its value.

    The command line makes the flags of this (``headrace/cli/serving.py``), so a setting is declared once.
    """

    def __init__(self, *commands: str, value: str | None = None) -> None:
        self.commands = commands
        self.value = value
