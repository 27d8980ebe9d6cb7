"""Queries as text: MySQL for the subject, SQLite for the judge.

The judge's text differs on purpose. Views, CTEs and subqueries in FROM are all written out in place, ``*`` is spelled
out, RIGHT JOIN is turned round, positions become the expressions that they stand for, and the outermost ORDER BY and
LIMIT are left to the comparison: the judge returns every row, followed by its sort keys.
"""

from __future__ import annotations

import re
from dataclasses import replace

from tests.campaign.kinds import TXT
from tests.campaign.queries import Compound, Cut, OrderKey, Query, Select, SoFar, Source, Stored, View, named_columns
from tests.campaign.terms import Parameter, Term, both, by_order, column, constant


def cut_text(cut: Cut, *, judged: bool) -> str:
    def number(value: int | Parameter) -> str:
        if isinstance(value, int):
            return str(value)
        return value.placeholder if judged else value.marker

    text = ""
    if cut.limit is not None:
        text += f" LIMIT {number(cut.limit)}"
        if cut.offset != 0:
            text += f" OFFSET {number(cut.offset)}"
    return text


# --- MySQL ----------------------------------------------------------------------------------------------------------


def mysql(query: Query) -> str:
    """The text with parameter markers in it."""
    ctes: dict[str, str] = {}
    text = _mysql(query, ctes)
    if ctes:
        text = "WITH " + ", ".join(f"{name} AS ({body})" for name, body in ctes.items()) + " " + text
    return text


def parameters(query: Query) -> list[Parameter]:
    """In the order of the text."""
    by_id = {parameter.id: parameter for parameter in _declared(query)}
    return [by_id[int(found)] for found in re.findall(r"⟦(\d+)⟧", _inlined(query))]


def view_text(query: Query) -> str:
    return re.sub(r"⟦\d+⟧", "?", mysql(query))


def _inlined(query: Query) -> str:
    """MySQL text with views in place: where the parameters of views that are read stand."""
    ctes: dict[str, str] = {}
    text = _mysql(query, ctes, inline=True)
    return "".join(ctes.values()) + text


def _declared(query: Query) -> list[Parameter]:
    found: list[Parameter] = []
    branches = query.branches if isinstance(query, Compound) else (query,)
    for select in branches:
        shown = (output.term for output in select.outputs)
        for term in (*shown, *select.where, *((select.having,) if select.having else ())):
            found += [part.parameter for part in term.walk() if part.parameter is not None]
        for source in select.sources:
            relation = source.relation.query if isinstance(source.relation, View) else source.relation
            if not isinstance(relation, Stored | SoFar):
                found += _declared(relation)
    found += [value for value in (query.cut.limit, query.cut.offset) if isinstance(value, Parameter)]
    return found


def _mysql(query: Query, ctes: dict[str, str], inline: bool = False) -> str:
    if isinstance(query, Compound):
        if query.recursive is not None:
            own, within = replace(query, recursive=None), dict[str, str]()
            return _recursion(query.recursive, _mysql(own, within, inline), within)
        text = _mysql(query.branches[0], ctes, inline)
        for branch, word in zip(query.branches[1:], query.operations, strict=True):
            text += f" {word} " + _mysql(branch, ctes, inline)
        return text + _order_text(query.order, query) + cut_text(query.cut, judged=False)
    if query.star:
        shown = "*"
    else:
        shown = ", ".join(o.term.mysql() + (f" AS {o.name}" if o.aliased else "") for o in query.outputs)
    hints = [f"PARTIAL_BY({', '.join(query.partial_by)})"] if query.partial_by else []
    hints += ["EAGER_AGGREGATION"] if query.eager else []
    hint = f"/*+ {' '.join(hints)} */ " if hints else ""
    text = f"SELECT {hint}{'DISTINCT ' if query.distinct else ''}{shown} FROM " + _from_text(query, ctes, inline)
    condition = both(query.where)
    if condition is not None:
        text += f" WHERE {condition.mysql()}"
    if query.group:
        text += " GROUP BY " + ", ".join(_group_terms(query)) + (" WITH ROLLUP" if query.rollup else "")
    if query.having is not None:
        text += f" HAVING {query.having.mysql()}"
    return text + _order_text(query.order, query) + cut_text(query.cut, judged=False)


def _recursion(name: str, text: str, ctes: dict[str, str]) -> str:
    """A query in FROM. What its first branch reads by a name is written before it."""
    named = "".join(f"{each} AS ({body}), " for each, body in ctes.items())
    return f"WITH RECURSIVE {named}{name} AS ({text}) SELECT * FROM {name}"


def _group_terms(select: Select) -> list[str]:
    shown = [output.term for output in select.outputs]
    return [
        str(shown.index(term) + 1) if select.group_numbers and term in shown else term.mysql()
        for term in select.group or ()
    ]


def _order_text(order: tuple[OrderKey, ...], query: Query) -> str:
    parts = []
    for key in order:
        if key.position is None:
            text = key.term.mysql()
        else:
            text = str(key.position + 1) if key.by_number else query.outputs[key.position].name
        parts.append(text + (" DESC" if key.descending else ""))
    return " ORDER BY " + ", ".join(parts) if parts else ""


def _from_text(select: Select, ctes: dict[str, str], inline: bool) -> str:
    text = ""
    for source in select.sources:
        relation = source.relation
        if isinstance(relation, View) and inline:
            entry = f"({_mysql(relation.query, ctes, inline)}) AS {source.alias}"
        elif isinstance(relation, Stored | SoFar | View):
            entry = relation.name if relation.name == source.alias else f"{relation.name} AS {source.alias}"
        elif source.cte is not None:
            ctes.setdefault(source.cte, _mysql(relation, ctes, inline))
            entry = f"{source.cte} AS {source.alias}"
        else:
            entry = f"({_mysql(relation, ctes, inline)}) AS {source.alias}"
        if not source.join:
            text = entry
        elif source.join == ",":
            text += f", {entry}"
        else:
            text += f" {source.join} {entry}"
            if source.on is not None:
                text += f" ON {source.on.mysql()}"
    return text


# --- the judge ------------------------------------------------------------------------------------------------------


def judged(query: Query) -> str:
    """Every row and then its sort keys ``k0``, ``k1`` …, without order and without LIMIT."""
    if isinstance(query, Compound):
        body = _judged_union(query)
        shown = (query.outputs[key.position or 0] for key in query.order)
        terms = (by_order(column("u", output.name, output.term.type.plain)) for output in shown)
        keys = [f"{term.judge()} AS k{i}" for i, term in enumerate(terms)]
        return f"SELECT {', '.join(['u.*', *keys])} FROM ({body}) AS u"
    return _judged_select(query, with_keys=True)


def _judged_union(query: Compound) -> str:
    if query.recursive is not None:
        return _recursion(query.recursive, _judged_union(replace(query, recursive=None)), {})
    text = _judged_select(query.branches[0])
    for branch, word in zip(query.branches[1:], query.operations, strict=True):
        text += f" {word} " + _judged_select(branch)
    return text


def _judged_select(select: Select, with_keys: bool = False) -> str:
    if select.rollup and select.group:
        levels = [_judged_block(_level(select, kept), with_keys) for kept in range(len(select.group), -1, -1)]
        return f"SELECT * FROM ({' UNION ALL '.join(levels)})"
    return _judged_block(select, with_keys)


def _level(select: Select, kept: int) -> Select:
    """The rows grouped by the first terms only; by a constant at last, since without a group nothing has a row, too."""
    assert select.group is not None
    gone = select.group[kept:]

    def term(each: Term) -> Term:
        return constant(None, each.type) if each in gone else each

    outputs = tuple(replace(output, term=term(output.term)) for output in select.outputs)
    order = tuple(replace(key, term=term(key.term)) for key in select.order)
    group = select.group[:kept] or (constant("all", TXT),)
    return replace(select, outputs=outputs, order=order, group=group)


def _judged_block(select: Select, with_keys: bool) -> str:
    sources, moved = _judged_from(select)
    shown = [f"{output.term.judge(moved)} AS {output.name}" for output in select.outputs]
    if with_keys:
        shown += [f"{by_order(key.term).judge(moved)} AS k{i}" for i, key in enumerate(select.order)]
    text = f"SELECT {'DISTINCT ' if select.distinct else ''}{', '.join(shown)} FROM {sources}"
    condition = both(select.where)
    if condition is not None:
        text += f" WHERE {condition.judge(moved)}"
    if select.group:
        text += " GROUP BY " + ", ".join(f"({term.judge(moved)})" for term in select.group)
    if select.having is not None:
        text += f" HAVING {select.having.judge(moved)}"
    return text


def nested(query: Query) -> str:
    """A query inside another one. A LIMIT there comes with an order over all outputs, and maybe over keys that are not
    shown, so that it has one answer."""
    if query.cut.limit is None:
        return _judged_union(query) if isinstance(query, Compound) else _judged_select(query)
    names = ", ".join(output.name for output in query.outputs)
    order = ", ".join(f"k{i}" + (" DESC" if key.descending else "") for i, key in enumerate(query.order))
    return f"SELECT {names} FROM ({judged(query)}) ORDER BY {order}{cut_text(query.cut, judged=True)}"


def _judged_from(select: Select) -> tuple[str, dict[str, str]]:
    """The FROM text, and which aliases moved inside another.

    A RIGHT JOIN is turned round, everything before it put into a subquery: SQLite has RIGHT JOIN only since 3.39 and
    drops unmatched rows where a condition further left is constant (3.40).
    """
    text = ""
    moved: dict[str, str] = {}
    for number, source in enumerate(select.sources):
        entry = _judged_entry(source)
        if source.join == "RIGHT JOIN":
            before = select.sources[:number]
            aliases = {earlier.alias for earlier in before}
            names = sorted(pair for pair in named_columns(select) if pair[0] in aliases) or [("", "")]
            shown = ", ".join(f"{_moved_name(pair, moved)} AS {'_'.join(pair)}" for pair in names)
            moved = {earlier.alias: f"turned{number}" for earlier in before}
            text = f"{entry} LEFT JOIN (SELECT {shown} FROM {text}) AS turned{number}"
        elif not source.join:
            text = entry
        elif source.join in (",", "CROSS JOIN"):
            text += f" CROSS JOIN {entry}"
        else:
            text += f" {source.join} {entry}"
        if source.on is not None:
            text += f" ON {source.on.judge(moved)}"
    return text, moved


def _moved_name(pair: tuple[str, str], moved: dict[str, str]) -> str:
    alias, name = pair
    if not alias:
        return "1"
    return f"{moved[alias]}.{alias}_{name}" if alias in moved else f"{alias}.{name}"


def _judged_entry(source: Source) -> str:
    relation = source.relation
    if isinstance(relation, Stored | SoFar):
        return f"{relation.name} AS {source.alias}"
    query = relation.query if isinstance(relation, View) else relation
    return f"({nested(query)}) AS {source.alias}"
