"""What MySQL writes and sqlglot's grammar has not, as tokens that it has. What that leaves out is told beside."""

from __future__ import annotations

import re

from migrations.parse.syntax import DIALECT, Token, TokenType, exp

SPELLED = frozenset((TokenType.STRING, TokenType.IDENTIFIER, TokenType.NUMBER))

_NEWEST = 80_099
"""Comments for this version of MySQL, the last of its 8.0, and older ones are executed."""
_SPELLED_OR_COMMENT = re.compile(
    r"""'(?:[^'\\]|\\.)*'?|"(?:[^"\\]|\\.)*"?|`[^`]*`?|--(?=\s|$)[^\n]*|\#[^\n]*
    |(?P<opens>/\*(?:!(?P<version>\d{5,6})?|H!))|(?P<closes>\*/)|/\*.*?(?:\*/|\Z)""",
    re.DOTALL | re.VERBOSE,
)


def with_executed_comments(sql: str) -> tuple[str, int]:
    """The text with what MySQL executes of its comments, ``/*!40101 SET NAMES utf8 */``, in their place, and without
    those for versions that are newer; and where one begins that does not end, or -1. What is ours alone stands in
    ``/*H! … */``, which is a comment to all others. All else keeps its place in the text."""
    parts: list[str] = []
    at, open_at = 0, -1
    for found in _SPELLED_OR_COMMENT.finditer(sql):
        if found["opens"] and open_at < 0:
            open_at = found.start()
            left_out = int(found["version"] or 0) > _NEWEST
            parts += [sql[at:open_at], " " * len(found[0])]
            at = found.end()
        elif found["closes"] and open_at >= 0:
            inside = sql[at : found.start()]
            parts += [_blank(inside) if left_out else inside, "  "]
            at, open_at = found.end(), -1
    return "".join([*parts, sql[at:]]), open_at


def _blank(text: str) -> str:
    return "".join("\n" if character == "\n" else " " for character in text)


_PRIORITIES = {
    "INSERT": ("LOW_PRIORITY", "HIGH_PRIORITY", "DELAYED"),
    "REPLACE": ("LOW_PRIORITY", "DELAYED"),
    "UPDATE": ("LOW_PRIORITY",),
    "DELETE": ("LOW_PRIORITY", "QUICK", "IGNORE"),
}
"""Words behind a verb that say when and how MySQL works, and not what it does. IGNORE makes warnings of errors that a
DELETE has none of here."""


def without_priorities(tokens: list[Token]) -> tuple[list[Token], bool]:
    """And whether it is UPDATE IGNORE."""

    def stands(at: int, words: tuple[str, ...]) -> bool:
        return at < len(tokens) and tokens[at].token_type not in SPELLED and tokens[at].text.upper() in words

    verb, at = tokens[0].text.upper(), 1
    while stands(at, _PRIORITIES.get(verb, ())):
        at += 1
    ignore = verb == "UPDATE" and stands(at, ("IGNORE",))
    return [tokens[0], *tokens[at + ignore :]], ignore


def without_duplicates(tokens: list[Token]) -> tuple[list[Token], str]:
    """``CREATE TABLE t … IGNORE AS SELECT`` without that word, and it: IGNORE, or REPLACE."""
    words = [token.text.upper() for token in tokens]
    if words[0] != "CREATE" or "TABLE" not in words[:4]:
        return tokens, ""
    for at in range(words.index("TABLE") + 2, len(tokens) - 1):
        if tokens[at].token_type in SPELLED or words[at] not in ("IGNORE", "REPLACE"):
            continue
        begins = [word for word in words[at + 1 : at + 4] if word not in ("AS", "(")]
        if begins and begins[0] in ("SELECT", "WITH", "TABLE", "VALUES"):
            return [*tokens[:at], *tokens[at + 1 :]], words[at]
    return tokens, ""


def with_plain_values(tokens: list[Token]) -> list[Token]:
    """``VALUES(c)`` behind ON DUPLICATE KEY UPDATE is a function; sqlglot would read ``(VALUES(c) + 1)`` as rows."""
    starts = [i for i, token in enumerate(tokens) if token.text.upper() == "DUPLICATE"]
    if not starts or not any(token.token_type == TokenType.VALUES for token in tokens[starts[-1] :]):
        return tokens

    def plain(token: Token) -> Token:
        if token.token_type != TokenType.VALUES:
            return token
        return Token(TokenType.VAR, token.text, token.line, token.col, token.start, token.end, token.comments)

    return [*tokens[: starts[-1]], *(plain(token) for token in tokens[starts[-1] :])]


def with_interval_calls(tokens: list[Token]) -> list[Token]:
    """``INTERVAL(n, 1, 10)`` is a function, ``INTERVAL (n + 1) DAY`` a time: only a call has a comma."""

    def is_call(at: int) -> bool:
        depth = 0
        for token in tokens[at + 1 :]:
            depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
            if depth == 1 and token.token_type == TokenType.COMMA:
                return True
            if depth < 1:
                return False
        return False

    if not any(token.token_type == TokenType.INTERVAL for token in tokens):
        return tokens
    return [
        Token(TokenType.VAR, token.text, token.line, token.col, token.start, token.end, token.comments)
        if token.token_type == TokenType.INTERVAL and is_call(at)
        else token
        for at, token in enumerate(tokens)
    ]


_BEFORE_NAMES = ("(", ",", "ADD", "COLUMN", "MODIFY", "EXISTS")


def without_national(tokens: list[Token]) -> list[Token]:
    """``NATIONAL CHAR`` is a CHAR of utf8, as all are here. A column may be called so, too."""
    if tokens[0].text.upper() not in ("CREATE", "ALTER"):
        return tokens
    return [
        token
        for at, token in enumerate(tokens)
        if token.text.upper() != "NATIONAL"
        or token.token_type in SPELLED
        or [each.text.upper() for each in tokens[at + 1 : at + 2]] not in (["CHAR"], ["VARCHAR"], ["CHARACTER"])
        or tokens[at - 1].text.upper() in _BEFORE_NAMES
    ]


_BEFORE_ROWS = frozenset(("(", "UNION", "EXCEPT", "INTERSECT", "ALL", "DISTINCT", "AS", "EXPLAIN"))


def with_selects_of_rows(tokens: list[Token]) -> list[Token]:
    """``VALUES ROW(1, 2), ROW(3, 4)``, which sqlglot does not know, as what it means: ``(SELECT 1 AS column_0, 2 AS
    column_1 UNION ALL SELECT 3, 4)``."""
    found: list[Token] = []
    at = 0
    while at < len(tokens):
        begins = tokens[at].token_type == TokenType.VALUES and (not found or found[-1].text.upper() in _BEFORE_ROWS)
        if not begins or not _is_row(tokens, at + 1):
            found.append(tokens[at])
            at += 1
            continue
        at += 1
        is_first = True
        while _is_row(tokens, at):
            found += _made_up(tokens[at], "(SELECT" if is_first else "UNION ALL SELECT")
            depth, column, at = 1, 0, at + 2
            while at < len(tokens) and depth:
                token = tokens[at]
                depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
                ends = depth == 0 or (depth == 1 and token.token_type == TokenType.COMMA)
                if ends and is_first:
                    found += _made_up(token, f"AS column_{column}")
                    column += 1
                if depth:
                    found.append(token)
                at += 1
            is_first = False
            if at < len(tokens) and tokens[at].token_type == TokenType.COMMA and _is_row(tokens, at + 1):
                at += 1
        found += _made_up(tokens[at - 1], ")")
    return found


def _is_row(tokens: list[Token], at: int) -> bool:
    return (
        at + 1 < len(tokens)
        and tokens[at].token_type not in SPELLED
        and tokens[at].text.upper() == "ROW"
        and tokens[at + 1].token_type == TokenType.L_PAREN
    )


def _made_up(place: Token, words: str) -> list[Token]:
    """Words that stand where a token does."""
    made = DIALECT.tokenize(words)
    return [Token(t.token_type, t.text, place.line, place.col, place.start, place.end, []) for t in made]


def without_locks(tree: exp.Expr, sql: str) -> None:
    """FOR UPDATE and FOR SHARE of a SELECT are no part of what it answers: ``lock_of`` tells of them."""
    words = sql.upper()
    if isinstance(tree, exp.Query) and ("UPDATE" in words or "SHARE" in words):
        found = [lock for select in tree.find_all(exp.Select) for lock in select.args.get("locks") or ()]
        for select in tree.find_all(exp.Select):
            select.set("locks", None)
        if found:
            waits = {lock.args.get("wait") for lock in found}
            how = "exclusive" if any(lock.args.get("update") for lock in found) else "shared"
            tree.meta[_LOCK] = how, True in waits, False in waits


_LOCK = "headrace_lock"


def lock_of(tree: exp.Expr) -> tuple[str, bool, bool] | None:
    """How a SELECT is to be read: ``exclusive`` (FOR UPDATE) or ``shared`` (FOR SHARE), whether NOWAIT, and whether
    SKIP LOCKED; None: plainly."""
    found: tuple[str, bool, bool] | None = tree.meta.get(_LOCK)
    return found
