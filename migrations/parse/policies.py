"""Statements about row policies, whose grammar sqlglot does not have: read from tokens.

::

    CREATE POLICY name ON table [AS PERMISSIVE] [FOR ALL | FOR SELECT | FOR INSERT | FOR UPDATE | FOR DELETE]
                  [TO PUBLIC] [USING (condition)] [WITH CHECK (condition)]
    DROP POLICY [IF EXISTS] name ON table                                 SHOW POLICIES [ON table]

The conditions are SQL, and are parsed as such, in their places of the text: so errors name line and column of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from domains.errors import SqlError, SqlSyntaxError, Unsupported
from migrations.parse.grammar import whole_name
from migrations.parse.syntax import Token, TokenType, exp, nodes

COMMANDS = ("ALL", "SELECT", "INSERT", "UPDATE", "DELETE")
_QUOTED = frozenset((TokenType.STRING, TokenType.IDENTIFIER))


@dataclass(frozen=True, slots=True)
class PolicyText:
    """What CREATE POLICY and DROP POLICY say. Conditions are texts, "" where there is none."""

    name: str
    command: str = "ALL"
    using: str = ""
    check: str = ""


Parse = Callable[[str], exp.Expr]
"""The tree of a SELECT in which claims may stand."""
CLAIM = "CURRENT_CLAIM"
_CLAIM = re.compile(CLAIM, re.IGNORECASE)


def is_claim(node: exp.Expr) -> bool:
    """Whether it is ``CURRENT_CLAIM('name')``: what is known of the user for whom rows are read or written."""
    return isinstance(node, exp.Anonymous) and str(node.this).upper() == CLAIM


def refuse_claims(tree: exp.Expr, text: str) -> None:
    """:raises Unsupported: the statement has one, and is no policy."""
    if _CLAIM.search(text) and any(map(is_claim, nodes(tree))):
        raise Unsupported(
            f"{CLAIM}() outside of a policy", hint=f"CREATE POLICY … USING (user_id = {CLAIM}('sub')) holds everywhere"
        )


def policy_statement(sql: str, tokens: Sequence[Token], parse: Parse) -> tuple[exp.Expr, PolicyText | None] | None:
    """The tree and the policy of a statement about policies; None for any other.

    The tree names the table, and has the conditions: ``Create(kind=POLICY)``, ``Drop(kind=POLICY)``, ``Show``.

    :raises SqlSyntaxError: with line and column.
    :raises Unsupported: clauses that are not there.
    """
    words = [token.text.upper() if token.token_type not in _QUOTED else "" for token in tokens[:2]]
    if words == ["CREATE", "POLICY"]:
        return _created(_Reader(sql, tokens, 2), parse)
    if words == ["DROP", "POLICY"]:
        return _dropped(_Reader(sql, tokens, 2))
    if words == ["SHOW", "POLICIES"]:
        read = _Reader(sql, tokens, 2)
        target = read.table() if read.takes("ON") or read.takes("FROM") else None
        read.end()
        return exp.Show(this="POLICIES", **({} if target is None else {"target": target})), None
    return None


def _created(read: _Reader, parse: Parse) -> tuple[exp.Expr, PolicyText]:
    name = read.name("the name of a policy")
    read.expect("ON")
    table, command, using, check = read.table(), "ALL", "", ""
    if read.takes("AS") and not read.takes("PERMISSIVE"):
        raise Unsupported(
            "CREATE POLICY … AS RESTRICTIVE", hint="write the condition into each policy of the table, joined by AND"
        )
    if read.takes("FOR"):
        command = read.one_of(COMMANDS)
    if read.takes("TO") and not read.takes("PUBLIC"):
        raise Unsupported(
            "CREATE POLICY … TO role",
            hint="leave it out, and compare a claim: CURRENT_CLAIM('role') = 'editor' AND (…)",
        )
    trees: dict[str, exp.Expr] = {}
    if read.takes("USING"):
        using, blank = read.condition()
        trees["using"] = _condition(parse(blank))
    if read.takes("WITH", "CHECK"):
        check, blank = read.condition()
        trees["check"] = _condition(parse(blank))
    read.end()
    if not trees:
        raise read.unexpected("USING (condition) or WITH CHECK (condition)")
    return exp.Create(this=table, kind="POLICY", **trees), PolicyText(name, command, using, check)


def _condition(select: exp.Expr) -> exp.Expr:
    """The one item of a SELECT.

    :raises SqlError, Unsupported: a policy cannot have it."""
    condition: exp.Expr = select.expressions[0].unnest()
    for node in nodes(condition):
        if isinstance(node, exp.Placeholder):
            raise SqlError("a parameter in a policy", hint=f"{CLAIM}('name') is what is known of who asks")
        if isinstance(node, exp.Query):
            raise Unsupported("a subquery in a policy", hint="compare columns of the table with claims")
        if is_claim(node) and not (len(node.expressions) == 1 and node.expressions[0].is_string):
            raise SqlError(f"{CLAIM} takes a name in quotes", hint=f"{CLAIM}('sub')")
    return condition


def _dropped(read: _Reader) -> tuple[exp.Expr, PolicyText]:
    if_exists = read.takes("IF", "EXISTS")
    name = read.name("the name of a policy")
    read.expect("ON")
    table = read.table()
    read.end()
    return exp.Drop(this=table, kind="POLICY", exists=if_exists), PolicyText(name)


class _Reader:
    """Tokens one after the other."""

    def __init__(self, sql: str, tokens: Sequence[Token], at: int) -> None:
        self._sql = sql
        self._tokens = tokens
        self._at = at

    def _word(self, ahead: int = 0) -> str:
        """The word that comes, in capitals; "" for what is quoted, and at the end."""
        at = self._at + ahead
        if at >= len(self._tokens) or self._tokens[at].token_type in _QUOTED:
            return ""
        return str(self._tokens[at].text).upper()

    def takes(self, *words: str) -> bool:
        """Whether these words come; then they are read."""
        if any(self._word(ahead) != word for ahead, word in enumerate(words)):
            return False
        self._at += len(words)
        return True

    def expect(self, word: str) -> None:
        if not self.takes(word):
            raise self.unexpected(word)

    def one_of(self, words: Sequence[str]) -> str:
        found = next((word for word in words if self.takes(word)), None)
        if found is None:
            raise self.unexpected(f"{', '.join(words[:-1])} or {words[-1]}")
        return found

    def name(self, what: str) -> str:
        if self._at >= len(self._tokens) or self._tokens[self._at].token_type == TokenType.STRING:
            raise self.unexpected(what)
        token = self._tokens[self._at]
        begins = token.text[:1]
        if token.token_type != TokenType.IDENTIFIER and not (begins.isalpha() or begins == "_"):
            raise self.unexpected(what)
        self._at += 1
        return str(token.text)

    def table(self) -> exp.Table:
        name = self.name("a table")
        if self.takes("."):
            name = whole_name(name, self.name("a table"))
        return exp.Table(this=exp.to_identifier(name, quoted=True))

    def condition(self) -> tuple[str, str]:
        """The text in parentheses, and the same as a SELECT whose item stands in the same place."""
        start, depth = self._at, 0
        if self._word() != "(":
            raise self.unexpected("a condition in parentheses")
        while self._at < len(self._tokens):
            kind = self._tokens[self._at].token_type
            depth += (kind == TokenType.L_PAREN) - (kind == TokenType.R_PAREN)
            self._at += 1
            if not depth:
                first, last = self._tokens[start].start, self._tokens[self._at - 1].end
                text = self._sql[first : last + 1]
                before = "".join(each if each == "\n" else " " for each in self._sql[:first])
                return text[1:-1].strip(), f"{before[: -len('SELECT')]}SELECT{text}"
        raise self.unexpected(")")

    def end(self) -> None:
        if self._at < len(self._tokens):
            raise self.unexpected("the end of the statement")

    def unexpected(self, expected: str) -> SqlSyntaxError:
        ends = self._at >= len(self._tokens)
        at = self._tokens[-1].end + 1 if ends else self._tokens[self._at].start
        found = "but the text ends" if ends else f'found "{str(self._tokens[self._at].text)[:40]}"'
        before = self._sql[:at]
        line, column = before.count("\n") + 1, at - (before.rfind("\n") + 1) + 1
        return SqlSyntaxError(f"expected {expected}, {found}", line=line, column=column)
