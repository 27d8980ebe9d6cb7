"""Walks over sqlglot's trees, without the identifiers: half of all nodes, below which is nothing.

A new view's tree is gone through again and again, in search of parameters, aggregates, tables and hints. With sqlglot's
own walks planning takes a tenth more.
"""

from __future__ import annotations

from collections.abc import Iterator

from migrations.parse import exp

_PLAIN = frozenset({str, bool, int, type(None), exp.Identifier})
"""Classes of most values in a tree's ``args``, where there is nothing to go down to: told faster than by isinstance."""


def children(node: exp.Expr) -> list[exp.Expr]:
    """What stands directly below, in the order of the text."""
    found: list[exp.Expr] = []
    for value in node.args.values():
        if type(value) in _PLAIN:
            continue
        if type(value) is list:
            found += [each for each in value if type(each) not in _PLAIN and isinstance(each, exp.Expr)]
        elif isinstance(value, exp.Expr):
            found.append(value)
    return found


def nodes(tree: exp.Expr) -> Iterator[exp.Expr]:
    """All of a tree, the nearer ones first."""
    found = [tree]
    for node in found:  # It grows meanwhile.
        found += children(node)
        yield node
