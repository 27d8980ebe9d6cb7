"""Definitions upstream: what becomes of each. What is not known to be harmless stops."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from headrace.upstream.batch import Altered, Emptied
from headrace.upstream.columns import Stopped, quoted
from headrace.upstream.mariadb.columns import AS_THEY_ARE, OTHERS

Meaning = Emptied | Altered | None
"""None: it is nothing to us."""

_NAME = r"(?:`(?:[^`]|``)+`|[\w$]+)"
_TABLE = rf"(?P<table>{_NAME}(?:\s*\.\s*{_NAME})?)"
_COMMENT = re.compile(r"/\*(?!M?!).*?\*/|--[ \t][^\n]*|#[^\n]*", re.DOTALL)
_VERSIONED = re.compile(r"/\*M?!\d*|\*/")
_SETTING = re.compile(r"SET\s+STATEMENT\s.*?\sFOR\s+", re.IGNORECASE | re.DOTALL)
_TRUNCATE = re.compile(rf"TRUNCATE\s+(?:TABLE\s+)?{_TABLE}", re.IGNORECASE)
_ALTER = re.compile(
    rf"ALTER\s+(?:ONLINE\s+)?(?:IGNORE\s+)?TABLE\s+(?:IF\s+EXISTS\s+)?{_TABLE}(?P<rest>.*)", re.I | re.S
)
_ROWS = frozenset(["INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "CALL", "WITH", "DO", "XA"])
"""Statements that change rows, told as statements."""
_HARMLESS = re.compile(
    r"(?:CREATE|DROP|ALTER)\s+(?:OR\s+REPLACE\s+)?(?:DEFINER\s*=\s*\S+\s+)?(?:SQL\s+SECURITY\s+\w+\s+|ALGORITHM\s*=\s*\w+\s+)*"
    r"(?:AGGREGATE\s+)?(?:VIEW|TRIGGER|PROCEDURE|FUNCTION|EVENT|USER|ROLE|SERVER|PACKAGE|SEQUENCE)\b"
    r"|(?:CREATE|DROP)\s+(?:ONLINE\s+|OFFLINE\s+|UNIQUE\s+|FULLTEXT\s+|SPATIAL\s+)*INDEX\b"
    r"|CREATE\s+(?:DATABASE|SCHEMA)\b|ALTER\s+(?:DATABASE|SCHEMA)\b"
    r"|(?:DROP|CREATE)\s+(?:OR\s+REPLACE\s+)?TEMPORARY\s"
    r"|(?:GRANT|REVOKE|SET|FLUSH|ANALYZE|OPTIMIZE|REPAIR|CHECK|COMMIT|BEGIN|RENAME\s+USER|INSTALL|UNINSTALL)\b",
    re.IGNORECASE,
)
_NAMES_TABLES = re.compile(
    r"(?:(?:CREATE|DROP)\s+(?:OR\s+REPLACE\s+)?TABLE\s+(?:IF\s+(?:NOT\s+)?EXISTS\s+)?|RENAME\s+TABLES?\s+(?:IF\s+EXISTS\s+)?)"
    r"(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
_DATABASE = re.compile(rf"DROP\s+(?:DATABASE|SCHEMA)\s+(?:IF\s+EXISTS\s+)?(?P<name>{_NAME})", re.IGNORECASE)


def meaning_of(statement: str, schema: str, database: str, follows: Collection[str]) -> Meaning:
    """What the statement means to the tables that follow. ``schema``: the database that was in use.

    :raises Stopped: they are not what they were behind it, and it cannot be done here.
    """
    text = _VERSIONED.sub(" ", _COMMENT.sub(" ", statement)).strip()
    text = _SETTING.sub("", text)
    first = (re.match(r"\w+", text) or [""])[0].upper()
    if first in _ROWS:
        if not follows or (schema != database and database not in text):
            return None
        hint = "binlog_format = ROW for each session; then import the tables anew"
        raise Stopped(f"the upstream has told a change of rows as a statement: {_short(text)}", hint=hint)
    if found := _TRUNCATE.match(text):
        table = _ours(found["table"], schema, database, follows)
        return Emptied(table) if table else None
    if found := _ALTER.match(text):
        return _altered(text, found["table"], found["rest"], schema, database, follows)
    if found := _DATABASE.match(text):
        if _plain(found["name"]) == database:
            raise Stopped(f'database "{database}" was dropped upstream')
        return None
    if _HARMLESS.match(text):
        return None
    if found := _NAMES_TABLES.match(text):
        for named in _tables_of(first, found["rest"]):
            if table := _ours(named, schema, database, follows):
                hint = "import it anew, or leave it out: headrace follow --leave-out TABLE"
                raise Stopped(f'table "{table}" is not what it was upstream: {_short(text)}', hint=hint)
        return None
    raise Stopped(f"the upstream has told a statement whose meaning is not known: {_short(text)}")


def _tables_of(first: str, rest: str) -> Iterator[str]:
    """Those that are made, dropped or get another name; not those that a CREATE reads."""
    pattern = rf"{_NAME}(?:\s*\.\s*{_NAME})?"
    if first == "CREATE":
        found = re.match(pattern, rest)
        yield from [found[0]] if found else []
        return
    yield from re.findall(pattern, rest)


def _plain(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def _ours(named: str, schema: str, database: str, follows: Collection[str]) -> str | None:
    parts = [_plain(part) for part in re.findall(_NAME, named)]
    if (parts[0] if len(parts) == 2 else schema) != database:
        return None
    return next((table for table in follows if table.lower() == parts[-1].lower()), None)


def _short(text: str) -> str:
    return " ".join(text.split())[:200]


# ALTER TABLE, clause by clause.

_NOTHING = re.compile(
    r"(?:ADD|DROP|RENAME)\s+(?:UNIQUE\s+|FULLTEXT\s+|SPATIAL\s+)?(?:INDEX|KEY)\b|ADD\s+(?:UNIQUE|FULLTEXT|SPATIAL)\b"
    r"|ADD\s+(?:CONSTRAINT\s+\S+\s+)?(?:CHECK|UNIQUE)\b|DROP\s+(?:CONSTRAINT|CHECK|FOREIGN\s+KEY)\b"
    r"|ALTER\s+(?:INDEX|KEY)\b"
    r"|(?:ENGINE|AUTO_INCREMENT|COMMENT|ROW_FORMAT|ALGORITHM|LOCK|STATS_\w+|KEY_BLOCK_SIZE|CHECKSUM|AVG_ROW_LENGTH"
    r"|MAX_ROWS|MIN_ROWS|PAGE_\w+)\s*=?|FORCE\b|(?:ENABLE|DISABLE)\s+KEYS\b|ORDER\s+BY\b|(?:NO)?WAIT\b",
    re.IGNORECASE,
)
_FOREIGN = re.compile(r"ADD\s+(?:CONSTRAINT\s+\S+\s+)?FOREIGN\s+KEY\b", re.IGNORECASE)
_CASCADES = re.compile(r"ON\s+(?:DELETE|UPDATE)\s+(?:CASCADE|SET\s+NULL)", re.IGNORECASE)
_COLUMN = re.compile(
    rf"(?P<act>ADD\s+(?:COLUMN\s+)?(?:IF\s+NOT\s+EXISTS\s+)?|MODIFY\s+(?:COLUMN\s+)?|CHANGE\s+(?:COLUMN\s+)?{_NAME}\s+)"
    rf"(?P<name>{_NAME})\s+(?P<type>\w+)(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
_MORE = re.compile(
    r"\b(?:UNIQUE|PRIMARY|KEY|REFERENCES|GENERATED|AS|AUTO_INCREMENT|CHECK|CHARACTER|CHARSET|COLLATE|CURRENT_\w+|NOW|LOCALTIME\w*"
    r"|SERIAL|VIRTUAL|PERSISTENT|STORED|SYSTEM|INVISIBLE)\b|DEFAULT\s*\(|DEFAULT\s+\w+\s*\(",
    re.IGNORECASE,
)
"""Words by which a column is not the same here, or by which old rows get what is known there only."""
_DROPPED = re.compile(rf"DROP\s+(?:COLUMN\s+)?(?:IF\s+EXISTS\s+)?{_NAME}\s*(?:RESTRICT|CASCADE)?\s*$", re.IGNORECASE)
_RENAMED = re.compile(rf"RENAME\s+COLUMN\s+{_NAME}\s+TO\s+{_NAME}\s*$", re.IGNORECASE)
_DEFAULT = re.compile(
    rf"ALTER\s+(?:COLUMN\s+)?(?P<name>{_NAME})\s+(?:SET\s+DEFAULT\s+(?P<value>.+)|DROP\s+DEFAULT)\s*$", re.I | re.S
)
_CONSTANT = re.compile(r"-?[\d.]+$|b?'|NULL$", re.IGNORECASE)
_ANOTHER = re.compile(rf"\bRENAME\s+(?:TO\s+|AS\s+)?(?P<table>{_NAME}(?:\s*\.\s*{_NAME})?)\s*$", re.IGNORECASE)


def _altered(text: str, named: str, rest: str, schema: str, database: str, follows: Collection[str]) -> Meaning:
    table = _ours(named, schema, database, follows)
    if table is None:
        for clause in _clauses(rest):
            found = _ANOTHER.match(clause)
            if found and _ours(found["table"], schema, database, follows):
                raise Stopped(f"another table has got the name of one that follows: {_short(text)}")
        return None
    ours: list[str] = []
    for clause in _clauses(rest):
        if _NOTHING.match(clause) or (_FOREIGN.match(clause) and not _CASCADES.search(clause)):
            continue
        ours.append(_clause(clause, text))
    return Altered(table, f"ALTER TABLE {quoted(table)} {', '.join(ours)}" if ours else "")


def _clause(clause: str, text: str) -> str:
    """:raises Stopped: it is none that does the same here."""
    if _RENAMED.match(clause):
        return clause
    if given := _DEFAULT.match(clause):
        # What is not constant is in each event.
        return clause if _CONSTANT.match(given["value"] or "0") else f"ALTER COLUMN {given['name']} DROP DEFAULT"
    found = _COLUMN.match(clause)
    if found and not _MORE.search(_unquoted(found["rest"])):
        kind = found["type"].lower()
        if kind in AS_THEY_ARE or kind in OTHERS or kind in ("integer", "numeric", "boolean", "bool"):
            spelled = OTHERS.get(kind, found["type"])
            behind = re.sub(r"^\s*\(\d+\)", "", found["rest"]) if kind in OTHERS else found["rest"]
            return f"{found['act']}{found['name']} {spelled}{behind}"
    elif _DROPPED.match(clause) and not found:
        return clause
    hint = "import the table anew, or leave it out: headrace follow --leave-out TABLE"
    raise Stopped(f"a definition upstream cannot be done here: {_short(text)}", hint=hint)


def _unquoted(text: str) -> str:
    return re.sub(r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`", "''", text)


def _clauses(text: str) -> Iterator[str]:
    """Parted by the commas that are in no brackets and no quotes."""
    depth, quote, begin, at = 0, "", 0, 0
    while at < len(text):
        each = text[at]
        if quote:
            if each == "\\" and quote != "`":
                at += 1
            elif each == quote:
                quote = ""
        elif each in "'\"`":
            quote = each
        elif each in "()":
            depth += 1 if each == "(" else -1
        elif each == "," and not depth:
            yield text[begin:at].strip()
            begin = at + 1
        at += 1
    yield text[begin:].strip().rstrip(";").strip()
