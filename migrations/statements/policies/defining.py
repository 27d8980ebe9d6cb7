"""CREATE POLICY, DROP POLICY and SHOW POLICIES.

A policy is a part of the catalog, and of the plan of whatever reads its table (``query/source.py``). So views that run
are built anew when one comes or goes (``change.py``), and stay readable as they were until that is decided.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from domains.errors import AlreadyExists, NotFound, SqlError, StillInUse, Unsupported
from domains.language.expressions import Expression, Field
from domains.language.types import TableSchema
from migrations.access.policies import rows_where
from migrations.catalog import Catalog, Policy
from migrations.parse.policies import is_claim
from migrations.parse.reading import Parsed, exp, nodes
from migrations.query.expressions.moments import NOW, claim_beside, claim_value
from migrations.query.expressions.scalar import Setting, scalar
from migrations.query.expressions.scope import Scope
from migrations.query.relation import QueryContext
from migrations.query.view import plan_query
from migrations.statements.names import checked, known_table
from migrations.statements.statement import SetPolicies
from migrations.statements.subqueries import literal_node


def create_policy(parsed: Parsed, catalog: Catalog) -> SetPolicies:
    """:raises AlreadyExists: the table has one of this name. :raises SqlError, Unsupported: what it says cannot be."""
    node, text = parsed.expression, parsed.policy
    assert text is not None, "it was read with its tree"
    schema = known_table(catalog, node.this)
    known = catalog.policies.get(schema.name.lower(), ())
    if any(each.name.lower() == text.name.lower() for each in known):
        raise AlreadyExists(f'policy "{text.name}" of table "{schema.title}" exists', hint="DROP POLICY … ON … first")
    if text.check and text.command in ("SELECT", "DELETE"):
        raise SqlError(f"WITH CHECK of a policy FOR {text.command}, which makes no rows", hint="USING (condition)")
    if text.using and text.command == "INSERT":
        raise SqlError("USING of a policy FOR INSERT, which meets no rows", hint="WITH CHECK (condition)")
    policy = Policy(
        checked(text.name, "policy"),
        text.command,
        text.using,
        text.check,
        node.args.get("using"),
        node.args.get("check"),
    )
    _understood(catalog, schema, policy)
    return SetPolicies(schema, (*known, policy))


def drop_policy(parsed: Parsed, catalog: Catalog) -> SetPolicies:
    """:raises NotFound: there is none of this name, and IF EXISTS was not written."""
    node, text = parsed.expression, parsed.policy
    assert text is not None, "it was read with its tree"
    schema = known_table(catalog, node.this)
    known = catalog.policies.get(schema.name.lower(), ())
    left = tuple(each for each in known if each.name.lower() != text.name.lower())
    if len(left) == len(known) and not node.args.get("exists"):
        raise NotFound(f'no policy "{text.name}" of table "{schema.title}"', hint="SHOW POLICIES lists them")
    return SetPolicies(schema, left)


def _understood(catalog: Catalog, schema: TableSchema, policy: Policy) -> tuple[Expression, ...]:
    """The columns that a policy reads.

    :raises SqlError, Unsupported, UnknownName: it is no condition on a row of the table.
    """
    found: list[Expression] = []
    for condition in (policy.condition, policy.checked):
        if condition is None:
            continue
        for column in condition.find_all(exp.Column):
            if column.table and column.table.lower() != schema.title.lower():
                raise SqlError(
                    f'"{column.table}" in policy "{policy.name}" is not its table', hint="write the column alone"
                )
            at = schema.position(column.name)
            if at is not None:
                found.append(Field(at, schema.columns[at].type))
        plan_query(rows_where(schema, [condition]), QueryContext(catalog.without_policies()))
    return tuple(found)


def refuse_policies(catalog: Catalog, before: TableSchema, after: TableSchema) -> None:
    """:raises StillInUse: a policy would no longer be what it is, on a table that is altered so."""
    for policy in catalog.policies.get(before.name.lower(), ()):
        other = catalog.with_table(after)
        try:
            stays = _understood(catalog, before, policy) == _understood(other, after, policy)
        except (SqlError, Unsupported):
            stays = False
        if not stays:
            raise StillInUse(
                f'policy "{policy.name}" of table "{before.title}" reads a column that would be another',
                hint="CREATE POLICY another, DROP POLICY this one, and then alter the table",
            )


def for_claims(catalog: Catalog, claims: Mapping[str, Any]) -> Catalog:
    """The catalog in which policies have the claims of one user as constants."""
    for table in list(catalog.policies):
        catalog = catalog.with_policies(table, claimed(catalog, table, claims))
    return catalog


def claimed(catalog: Catalog, table: str, claims: Mapping[str, Any]) -> tuple[Policy, ...]:
    """The same of one table, by the lower-case name that it is stored by."""
    scope = Scope.of_table(catalog.tables[table])

    def own(condition: exp.Expr | None) -> exp.Expr | None:
        return _claimed(condition, scope, claims)

    policies = catalog.policies.get(table, ())
    return tuple([replace(each, condition=own(each.condition), checked=own(each.checked)) for each in policies])


def _claimed(condition: exp.Expr | None, scope: Scope, claims: Mapping[str, Any]) -> exp.Expr | None:
    if condition is None:
        return None

    def translate(part: exp.Expr) -> Expression:
        return scalar(part, scope, Setting(moment=lambda: NOW, place="a policy"))

    whole = exp.Paren(this=condition.copy())
    for node in [each for each in nodes(whole) if is_claim(each)]:
        call, _ = claim_beside(node, translate)
        node.replace(literal_node(claim_value(claims.get(node.expressions[0].name), call.type)))
    return whole
