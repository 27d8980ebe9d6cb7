"""How the demo looks: a column of text with rules, small tables and times, in colour where there is a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TextColumn
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

WIDTH = 100
"""Lines of prose longer than this are hard to read; a narrower terminal wins."""

INDENT = 3


class Printer:
    """Prints the parts of the story, each as it happens."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False, emoji=False)
        if self.console.width > WIDTH or not self.console.is_terminal:
            self.console.width = WIDTH

    def title(self, text: str, subtitle: str) -> None:
        self.console.print()
        self.console.print(Text.assemble((" ≋ ", "bold cyan"), (text, "bold")))
        self._line(Text(subtitle, style="dim"))
        self.console.print()

    def fact(self, name: str, *parts: str | tuple[str, str]) -> None:
        """``name`` and what there is to say of it, in one line."""
        self._line(Text.assemble((f"{name:<10}", "cyan"), *parts))

    def heading(self, number: int, text: str) -> None:
        self.console.print()
        self.console.print(Rule(Text(f" {number}  {text} ", style="bold"), align="left", style="cyan"))

    def say(self, text: str) -> None:
        """A paragraph; the markup ``[b]`` and ``[i]`` is for words that are explained."""
        self.console.print()
        for line in Text.from_markup(text).wrap(self.console, self.console.width - INDENT):
            line.rstrip()
            self._line(line)

    def request(self, method: str, path: str, body: str = "") -> None:
        self.console.print()
        self._line(Text.assemble((f"{method} ", "bold magenta"), (path, "magenta"), (f"  {body}" if body else "", "")))

    def outcome(self, what: str, style: str, milliseconds: float | None = None, note: str = "") -> None:
        """``● miss   4.31 ms   note``"""
        time = "" if milliseconds is None else f"{milliseconds:8.2f} ms"
        self._line(Text.assemble(("● ", style), (f"{what:<9}", f"bold {style}"), (time, "bold"), (f"   {note}", "dim")))

    def table(self, columns: Sequence[tuple[str, str]], rows: Iterable[Sequence[str | Text]]) -> None:
        """``columns`` are (title, ``left`` or ``right``)."""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        for title, justify in columns:
            table.add_column(title, justify="right" if justify == "right" else "left", no_wrap=justify == "right")
        for row in rows:
            table.add_row(*row)
        self.console.print(Padding(table, (0, 0, 0, INDENT), expand=False))

    def tree(self, lines: Sequence[str], left_out: int) -> None:
        """A view's dataflow: one line a node, cut at the edge, what is partial in colour."""
        room = self.console.width - INDENT
        for line in lines:
            cut = line if len(line) <= room else _without_middle(line, room)
            text = Text(cut, style="dim")
            text.highlight_regex(r"partial by .*$", "bold yellow")
            text.highlight_regex(r"full by \([^)]*\)", "cyan")
            self._line(text)
        if left_out:
            self._line(Text(f"… {left_out} more lines", style="dim italic"))

    def command(self, comment: str, line: str) -> None:
        """A line for the reader's own terminal, never wrapped, so that it can be copied whole."""
        self.console.print()
        self._line(Text(f"# {comment}", style="dim"))
        self._line(Text(line))

    def progress(self) -> Progress:
        """A bar that stays when it is full. Where there is no terminal it is printed once, at the end."""
        return Progress(
            TextColumn(" " * INDENT + "[cyan]{task.description:<9}[/]"),
            BarColumn(bar_width=32, complete_style="cyan", finished_style="cyan"),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f} rows"),
            TextColumn("[dim]{task.fields[note]}[/]"),
            console=self.console,
        )

    def blank(self) -> None:
        self.console.print()

    def _line(self, text: Text) -> None:
        """One line, however long: the terminal may wrap it, we do not."""
        self.console.print(Text(" " * INDENT).append_text(text), soft_wrap=True)


def _without_middle(line: str, room: int) -> str:
    """The line cut to ``room`` characters; what it says of state, after the double space at its end, stays."""
    operator, gap, state = line.rpartition("  ")
    kept = room - len(gap + state) - 1
    if not gap or kept < room // 3:
        return line[: room - 1] + "…"
    return operator[:kept] + "…" + gap + state
