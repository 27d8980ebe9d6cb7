"""SHOW and DESCRIBE as the SELECTs that they are: of ``information_schema``, with MySQL's names of columns.

::

    SHOW FULL TABLES FROM d LIKE 'a%'
      ──►  SELECT TABLE_NAME AS `Tables_in_d (a%)`, TABLE_TYPE AS Table_type FROM information_schema.TABLES
           WHERE TABLE_SCHEMA = 'd' HAVING `Tables_in_d (a%)` LIKE 'a%' ORDER BY TABLE_NAME

WHERE names the columns that are shown, and so it is a HAVING.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from domains.errors import SqlError, Unsupported
from domains.language.types import BIGINT, TEXT, Column
from migrations.access.rights import WHOLE, Privilege
from migrations.catalog import Catalog, unknown
from migrations.parse.grammar import SCHEMA, VIRTUAL_SCHEMAS
from migrations.parse.namespaces import WRITTEN
from migrations.parse.reading import exp, nodes, parse_select, quote
from migrations.parse.writing import quoted_text
from migrations.query.expressions.aggregates import aggregates_in
from migrations.statements.names import known_relation
from migrations.statements.sessions.session_values import SessionValues
from migrations.statements.statement import ConstantSelect


class _Listing(NamedTuple):
    columns: str
    """``name=SOURCE`` each; a name with a blank has a ``+`` in its place."""
    table: str
    schema: str = ""
    """The column that has the schema's name."""
    order: str = ""


_ROUTINE = (
    "Db=ROUTINE_SCHEMA Name=ROUTINE_NAME Type=ROUTINE_TYPE Definer=DEFINER Modified=LAST_ALTERED Created=CREATED "
    "Security_type=SECURITY_TYPE Comment=ROUTINE_COMMENT character_set_client=CHARACTER_SET_CLIENT "
    "collation_connection=COLLATION_CONNECTION Database+Collation=DATABASE_COLLATION"
)
_LISTINGS: dict[str, _Listing] = {
    "DATABASES": _Listing("Database=SCHEMA_NAME", "SCHEMATA", "", "SCHEMA_NAME"),
    "TABLES": _Listing("Tables_in=TABLE_NAME Table_type=TABLE_TYPE", "TABLES", "TABLE_SCHEMA", "TABLE_NAME"),
    "TABLE STATUS": _Listing(
        "Name=TABLE_NAME Engine=ENGINE Version=VERSION Row_format=ROW_FORMAT Rows=TABLE_ROWS "
        "Avg_row_length=AVG_ROW_LENGTH Data_length=DATA_LENGTH Max_data_length=MAX_DATA_LENGTH "
        "Index_length=INDEX_LENGTH Data_free=DATA_FREE Auto_increment=AUTO_INCREMENT Create_time=CREATE_TIME "
        "Update_time=UPDATE_TIME Check_time=CHECK_TIME Collation=TABLE_COLLATION Checksum=CHECKSUM "
        "Create_options=CREATE_OPTIONS Comment=TABLE_COMMENT",
        "TABLES",
        "TABLE_SCHEMA",
        "TABLE_NAME",
    ),
    "COLUMNS": _Listing(
        "Field=COLUMN_NAME Type=COLUMN_TYPE Collation=COLLATION_NAME Null=IS_NULLABLE Key=COLUMN_KEY "
        "Default=COLUMN_DEFAULT Extra=EXTRA Privileges=PRIVILEGES Comment=COLUMN_COMMENT",
        "COLUMNS",
        "TABLE_SCHEMA",
        "ORDINAL_POSITION",
    ),
    "INDEX": _Listing(
        "Table=TABLE_NAME Non_unique=NON_UNIQUE Key_name=INDEX_NAME Seq_in_index=SEQ_IN_INDEX Column_name=COLUMN_NAME "
        "Collation=COLLATION Cardinality=CARDINALITY Sub_part=SUB_PART Packed=PACKED Null=NULLABLE "
        "Index_type=INDEX_TYPE Comment=COMMENT Index_comment=INDEX_COMMENT Visible=IS_VISIBLE Expression=EXPRESSION",
        "STATISTICS",
        "TABLE_SCHEMA",
    ),
    "TRIGGERS": _Listing(
        "Trigger=TRIGGER_NAME Event=EVENT_MANIPULATION Table=EVENT_OBJECT_TABLE Statement=ACTION_STATEMENT "
        "Timing=ACTION_TIMING Created=CREATED sql_mode=SQL_MODE Definer=DEFINER "
        "character_set_client=CHARACTER_SET_CLIENT collation_connection=COLLATION_CONNECTION "
        "Database+Collation=DATABASE_COLLATION",
        "TRIGGERS",
        "TRIGGER_SCHEMA",
    ),
    "EVENTS": _Listing(
        "Db=EVENT_SCHEMA Name=EVENT_NAME Definer=DEFINER Time+zone=TIME_ZONE Type=EVENT_TYPE Execute+at=EXECUTE_AT "
        "Interval+value=INTERVAL_VALUE Interval+field=INTERVAL_FIELD Starts=STARTS Ends=ENDS Status=STATUS "
        "Originator=ORIGINATOR character_set_client=CHARACTER_SET_CLIENT collation_connection=COLLATION_CONNECTION "
        "Database+Collation=DATABASE_COLLATION",
        "EVENTS",
        "EVENT_SCHEMA",
    ),
    "FUNCTION STATUS": _Listing(_ROUTINE, "ROUTINES"),
    "PROCEDURE STATUS": _Listing(_ROUTINE, "ROUTINES"),
    "ENGINES": _Listing(
        "Engine=ENGINE Support=SUPPORT Comment=COMMENT Transactions=TRANSACTIONS XA=XA Savepoints=SAVEPOINTS", "ENGINES"
    ),
    "CHARACTER SET": _Listing(
        "Charset=CHARACTER_SET_NAME Description=DESCRIPTION Default+collation=DEFAULT_COLLATE_NAME Maxlen=MAXLEN",
        "CHARACTER_SETS",
    ),
    "COLLATION": _Listing(
        "Collation=COLLATION_NAME Charset=CHARACTER_SET_NAME Id=ID Default=IS_DEFAULT Compiled=IS_COMPILED "
        "Sortlen=SORTLEN Pad_attribute=PAD_ATTRIBUTE",
        "COLLATIONS",
        "",
        "COLLATION_NAME",
    ),
    "PLUGINS": _Listing(
        "Name=PLUGIN_NAME Status=PLUGIN_STATUS Type=PLUGIN_TYPE Library=PLUGIN_LIBRARY License=PLUGIN_LICENSE",
        "PLUGINS",
    ),
    "VARIABLES": _Listing("Variable_name=VARIABLE_NAME Value=VARIABLE_VALUE", "_variables", "", "VARIABLE_NAME"),
    "STATUS": _Listing("Variable_name=VARIABLE_NAME Value=VARIABLE_VALUE", "_status", "", "VARIABLE_NAME"),
}
_ONLY_FULL = {"TABLES": ("Table_type",), "COLUMNS": ("Collation", "Privileges", "Comment")}
LISTED = ", ".join(_LISTINGS)


def listing(
    what: str, node: exp.Expr, catalog: Catalog, session: SessionValues, pattern: str | None = None
) -> exp.Query | None:
    """The SELECT that a SHOW statement is, or DESCRIBE, which is ``COLUMNS``; None where it is none.

    :raises UnknownName: the schema, or the table, is not there."""
    known = _LISTINGS.get(what)
    if known is None:
        return None
    schema = schema_of(node, catalog, session)
    target = node.args.get("target") or (node.this if isinstance(node, exp.Describe) else None)
    hidden = () if node.args.get("full") else _ONLY_FULL.get(what, ())
    columns = [each.replace("+", " ").split("=") for each in known.columns.split(" ")]
    if what == "TABLES":
        columns[0][0] = f"Tables_in_{schema}" + ("" if pattern is None else f" ({pattern})")
    shown = ", ".join(f"{quote(source)} AS {quote(name)}" for name, source in columns if name not in hidden)
    reach = "global" if node.args.get("global_") else "session"
    table = f"performance_schema.{reach}{known.table}" if known.table[0] == "_" else f"information_schema.{known.table}"
    conditions = [f"{known.schema} = {quoted_text(schema)}"] if known.schema else []
    if target is not None:
        name = target.name
        if schema not in VIRTUAL_SCHEMAS:
            schema, name = catalog.placed(known_relation(catalog, _unqualified(target)).title)
            conditions = [f"{known.schema} = {quoted_text(schema)}"]
        conditions.append(f"TABLE_NAME = {quoted_text(name)}")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    order = f" ORDER BY {known.order}" if known.order else ""
    query = parse_select(f"SELECT {shown} FROM {table}{where}{order}")
    if pattern is not None:
        first = exp.column(columns[0][0], quoted=True)
        query.set("having", exp.Having(this=exp.Like(this=first, expression=exp.Literal.string(pattern))))
    elif (clause := node.args.get("where")) is not None:
        if any(aggregates_in(clause.this)):
            raise SqlError(
                f"an aggregate in SHOW {what} … WHERE", hint=f"SELECT it from information_schema.{known.table}"
            )
        _check_named(clause, [name for name, _ in columns if name not in hidden])
        query.set("having", exp.Having(this=clause.this.copy()))
    return query


def _check_named(clause: exp.Expr, shown: Sequence[str]) -> None:
    """:raises UnknownName: a column that is not shown."""
    for node in nodes(clause):
        if isinstance(node, exp.Column) and node.name.lower() not in {name.lower() for name in shown}:
            raise unknown("column", node.name, shown)
        if isinstance(node, exp.Query):
            raise Unsupported("a subquery in SHOW … WHERE", hint="SELECT from information_schema")


def _unqualified(target: exp.Expr) -> exp.Expr:
    return target.this if isinstance(target, exp.Table) else target


def schema_of(node: exp.Expr, catalog: Catalog, session: SessionValues) -> str:
    """The schema that a statement names, or the current one.

    :raises UnknownName: there is none of this name."""
    of = node.this if isinstance(node.this, exp.Table) else node
    return catalog.known_schema(of.text("db") or of.meta.get(WRITTEN, "") or session.schema or SCHEMA)


def told(what: str, node: exp.Expr, catalog: Catalog, session: SessionValues) -> ConstantSelect | None:
    """SHOW of what stands in no table."""
    if what in ("WARNINGS", "ERRORS"):
        columns = (Column("Level", TEXT), Column("Code", BIGINT), Column("Message", TEXT))
        found = [each for each in session.warnings if what == "WARNINGS" or each.level == "Error"]
        return ConstantSelect(columns, tuple((each.level, each.code, each.message) for each in found))
    if what == "PRIVILEGES":
        wide = ("Tables", "Server Admin")
        shown = tuple(Column(name, TEXT) for name in ("Privilege", "Context", "Comment"))
        return ConstantSelect(shown, tuple((each.value, wide[each in WHOLE], "") for each in Privilege))
    if what == "CREATE DATABASE":
        if node.args.get("target") is None:
            raise SqlError("SHOW CREATE DATABASE wants a name", hint=f"SHOW CREATE DATABASE {SCHEMA}")
        name = catalog.known_schema(node.args["target"].name)
        own = catalog.namespaces.get(name.lower())
        collation = (own.collation if own is not None else "") or catalog.collation or "utf8mb4_bin"
        text = f"CREATE DATABASE {quote(name)} /*!40100 DEFAULT CHARACTER SET utf8mb4 COLLATE {collation} */"
        return ConstantSelect((Column("Database", TEXT), Column("Create Database", TEXT)), ((name, text),))
    return None
