"""Every ``headrace`` command that a document shows is one: it exists, and so does each of its options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from serving_process import ROOT

from headrace.cli import app

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"```(?:sh|console)\n(.*?)```", re.S)
COMMAND = re.compile(r"(?:^|[\s;|`])(?:\.venv/bin/)?headrace((?: [^\n`|;]*)?)", re.M)


def shown(path: Path) -> Iterator[list[str]]:
    """The words behind ``headrace`` of each command, without its comment."""
    text = path.read_text("utf-8").replace("\\\n", " ")
    inline = re.sub(r"```.*?```", "", text, flags=re.S)
    commands = re.findall(r"`(?:\.venv/bin/)?headrace( [^`]+)`", inline)
    for block in [*BLOCK.findall(text), "\n".join(re.findall(r"^ {4}(headrace .*)$", inline, re.M))]:
        commands += [found for line in block.splitlines() for found in COMMAND.findall(line.split(" #")[0])]
    for command in commands:
        words = re.sub(r"[\[\]…]", " ", " ".join(command.split()))
        try:
            yield shlex.split(words)
        except ValueError:  # A quoted text of several lines.
            yield shlex.split(words.split('"')[0])


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_commands_and_options_exist(path: Path) -> None:
    for words in shown(path):
        command: Any = typer.main.get_command(app)
        options: dict[str, Any] = {}
        left = iter(words)
        for word in left:
            if word.startswith("-"):
                options |= {name: each for each in command.params for name in each.opts}
                assert word in {*options, "--help"}, (words, word)
                if word != "--help" and not options[word].is_flag:
                    next(left, None)
            elif hasattr(command, "commands"):
                assert word in command.commands, (words, word)
                command = command.commands[word]
