"""What is known of a text that is passed on before anybody performs it, and of what the upstream's session has set."""

from __future__ import annotations

import re
from collections.abc import Mapping

from api.mysql.values import CHARSETS

KINDS = re.compile(
    r"""\s*(?: (?P<own>SELECT\s+CONNECTION_ID\s*\(\s*\)\s*(?:AS\s+\w+\s*)?;?\s*$)
      | KILL\s+(?:CONNECTION\s+|QUERY\s+)?(?P<kill>\d+)
      | (?P<define>CREATE\s+(?:OR\s+REPLACE\s+)?EXT\s+VIEW\b)
      | (?P<ask>(?:SELECT\s+(?:FOUND_ROWS|ROW_COUNT)\s*\(\s*\)\s*(?:AS\s+\w+\s*)?|SELECT\s+@@(?:warning|error)_count\s*
          |SHOW\s+(?:COUNT\s*\(\s*\*\s*\)\s+)?(?:WARNINGS|ERRORS)\b.*);?\s*$)
      | (?P<setting>SET\s|USE\s) )""",
    re.IGNORECASE | re.VERBOSE,
)
"""What is done here whatever the upstream would do, what asks about the statement before, and what is said again."""
OF_BEFORE = re.compile(r"\b(?:FOUND_ROWS|ROW_COUNT)\s*\(|@@(?:warning|error)_count", re.IGNORECASE)
HOLDS = re.compile(
    r"\bTEMPORARY\b|\bLOCK\b|\b(?:GET|RELEASE)_LOCK|(?<!@)@(?!@)|\bPREPARE\b|\bHANDLER\b|\bCALL\b|\bXA\b",
    re.IGNORECASE,
)
"""Statements after which the upstream's session has more than what SET has set."""
SHADOWS = re.compile(r"\bTEMPORARY\b|\bLOCK\s+TABLES?\b|\bCALL\b|\bPREPARE\b", re.IGNORECASE)
"""Statements after which a name may mean another table, or tables are locked: the upstream answers all that comes."""
_MODES = frozenset(
    (
        *("ANSI_QUOTES", "PIPES_AS_CONCAT", "NO_BACKSLASH_ESCAPES", "IGNORE_SPACE", "HIGH_NOT_PRECEDENCE", "ORACLE"),
        *("REAL_AS_FLOAT", "PAD_CHAR_TO_FULL_LENGTH", "NO_UNSIGNED_SUBTRACTION", "ANSI", "MSSQL", "DB2", "POSTGRESQL"),
        *("EMPTY_STRING_IS_NULL", "TIME_ROUND_FRACTIONAL", "MAXDB"),
    )
)
_UTC = ("+00:00", "UTC", "Etc/UTC")
_NO_LIMIT = 2**63


def is_plain(told: Mapping[str, str]) -> bool:
    """Whether texts and values mean here what they mean upstream, in a session with these variables."""
    if not told:
        return False
    zone = told.get("time_zone", "")
    zone = told.get("system_time_zone", "") if zone == "SYSTEM" else zone
    modes = set(told.get("sql_mode", "").upper().split(","))
    limit = told.get("sql_select_limit", "")
    unlimited = not limit.isdigit() or int(limit) >= _NO_LIMIT
    charsets = told.get("character_set_client"), told.get("character_set_results") or "binary"
    return zone in _UTC and not modes & _MODES and unlimited and all(each in CHARSETS for each in charsets)
