"""The tables of ``information_schema``, and the few of ``performance_schema``, as MySQL 8.0 has them.

A line is a table, or a column of it: its type, and ``!`` where it is NOT NULL. All texts are compared by
``utf8mb4_general_ci``, since names are found in any case.
"""

from __future__ import annotations

from functools import cache

from domains.language.types import TableSchema
from migrations.catalog import Catalog
from migrations.flow.plan import State
from migrations.parse.reading import parse
from migrations.statements.definitions.ddl import create_table

INFORMATION, PERFORMANCE = "information_schema", "performance_schema"

_NAME, _SQL_MODE = "varchar(64)", "varchar(520)"
_TABLES = """
TABLES
TABLE_CATALOG name! | TABLE_SCHEMA name! | TABLE_NAME name! | TABLE_TYPE enum('BASE TABLE','VIEW','SYSTEM VIEW')!
ENGINE name | VERSION int | ROW_FORMAT enum('Fixed','Dynamic','Compressed','Redundant','Compact','Paged')
TABLE_ROWS bigint unsigned | AVG_ROW_LENGTH bigint unsigned | DATA_LENGTH bigint unsigned
MAX_DATA_LENGTH bigint unsigned | INDEX_LENGTH bigint unsigned | DATA_FREE bigint unsigned
AUTO_INCREMENT bigint unsigned | CREATE_TIME timestamp | UPDATE_TIME datetime | CHECK_TIME datetime
TABLE_COLLATION name | CHECKSUM bigint | CREATE_OPTIONS varchar(256) | TABLE_COMMENT text

COLUMNS
TABLE_CATALOG name! | TABLE_SCHEMA name! | TABLE_NAME name! | COLUMN_NAME name | ORDINAL_POSITION int unsigned!
COLUMN_DEFAULT text | IS_NULLABLE varchar(3)! | DATA_TYPE longtext | CHARACTER_MAXIMUM_LENGTH bigint
CHARACTER_OCTET_LENGTH bigint | NUMERIC_PRECISION bigint unsigned | NUMERIC_SCALE bigint unsigned
DATETIME_PRECISION int unsigned | CHARACTER_SET_NAME name | COLLATION_NAME name | COLUMN_TYPE mediumtext!
COLUMN_KEY enum('','PRI','UNI','MUL')! | EXTRA varchar(256) | PRIVILEGES varchar(154) | COLUMN_COMMENT text!
GENERATION_EXPRESSION longtext! | SRS_ID int unsigned

STATISTICS
TABLE_CATALOG name! | TABLE_SCHEMA name! | TABLE_NAME name! | NON_UNIQUE int! | INDEX_SCHEMA name! | INDEX_NAME name
SEQ_IN_INDEX int unsigned! | COLUMN_NAME name | COLLATION varchar(1) | CARDINALITY bigint | SUB_PART bigint
PACKED binary(0) | NULLABLE varchar(3)! | INDEX_TYPE varchar(11)! | COMMENT varchar(8)! | INDEX_COMMENT varchar(2048)!
IS_VISIBLE varchar(3)! | EXPRESSION longtext

KEY_COLUMN_USAGE
CONSTRAINT_CATALOG name! | CONSTRAINT_SCHEMA name! | CONSTRAINT_NAME name | TABLE_CATALOG name! | TABLE_SCHEMA name!
TABLE_NAME name! | COLUMN_NAME name | ORDINAL_POSITION int unsigned! | POSITION_IN_UNIQUE_CONSTRAINT int unsigned
REFERENCED_TABLE_SCHEMA name | REFERENCED_TABLE_NAME name | REFERENCED_COLUMN_NAME name

TABLE_CONSTRAINTS
CONSTRAINT_CATALOG name! | CONSTRAINT_SCHEMA name! | CONSTRAINT_NAME name | TABLE_SCHEMA name! | TABLE_NAME name!
CONSTRAINT_TYPE varchar(11)! | ENFORCED varchar(3)!

REFERENTIAL_CONSTRAINTS
CONSTRAINT_CATALOG name! | CONSTRAINT_SCHEMA name! | CONSTRAINT_NAME name | UNIQUE_CONSTRAINT_CATALOG name!
UNIQUE_CONSTRAINT_SCHEMA name! | UNIQUE_CONSTRAINT_NAME name | MATCH_OPTION enum('NONE','PARTIAL','FULL')!
UPDATE_RULE enum('NO ACTION','RESTRICT','CASCADE','SET NULL','SET DEFAULT')!
DELETE_RULE enum('NO ACTION','RESTRICT','CASCADE','SET NULL','SET DEFAULT')! | TABLE_NAME name!
REFERENCED_TABLE_NAME name!

CHECK_CONSTRAINTS
CONSTRAINT_CATALOG name! | CONSTRAINT_SCHEMA name! | CONSTRAINT_NAME name! | CHECK_CLAUSE longtext!

VIEWS
TABLE_CATALOG name! | TABLE_SCHEMA name! | TABLE_NAME name! | VIEW_DEFINITION longtext
CHECK_OPTION enum('NONE','LOCAL','CASCADED') | IS_UPDATABLE enum('NO','YES') | DEFINER varchar(288)
SECURITY_TYPE varchar(7) | CHARACTER_SET_CLIENT name! | COLLATION_CONNECTION name!

SCHEMATA
CATALOG_NAME name! | SCHEMA_NAME name! | DEFAULT_CHARACTER_SET_NAME name! | DEFAULT_COLLATION_NAME name!
SQL_PATH binary(0) | DEFAULT_ENCRYPTION enum('NO','YES')!

ENGINES
ENGINE name! | SUPPORT varchar(8)! | COMMENT varchar(80)! | TRANSACTIONS varchar(3) | XA varchar(3)
SAVEPOINTS varchar(3)

CHARACTER_SETS
CHARACTER_SET_NAME name! | DEFAULT_COLLATE_NAME name! | DESCRIPTION varchar(2048)! | MAXLEN int unsigned!

COLLATIONS
COLLATION_NAME name! | CHARACTER_SET_NAME name! | ID bigint unsigned! | IS_DEFAULT varchar(3)! | IS_COMPILED varchar(3)!
SORTLEN int unsigned! | PAD_ATTRIBUTE enum('PAD SPACE','NO PAD')!

COLLATION_CHARACTER_SET_APPLICABILITY
COLLATION_NAME name! | CHARACTER_SET_NAME name!

PROCESSLIST
ID bigint unsigned! | USER varchar(32)! | HOST varchar(261)! | DB name | COMMAND varchar(16)! | TIME int!
STATE name | INFO varchar(65535)

PLUGINS
PLUGIN_NAME name! | PLUGIN_VERSION varchar(20)! | PLUGIN_STATUS varchar(10)! | PLUGIN_TYPE varchar(80)!
PLUGIN_TYPE_VERSION varchar(20)! | PLUGIN_LIBRARY name | PLUGIN_LIBRARY_VERSION varchar(20) | PLUGIN_AUTHOR name
PLUGIN_DESCRIPTION longtext | PLUGIN_LICENSE varchar(80) | LOAD_OPTION name!

COLUMN_STATISTICS
SCHEMA_NAME name! | TABLE_NAME name! | COLUMN_NAME name! | HISTOGRAM json!

FILES
FILE_ID bigint | FILE_NAME text | FILE_TYPE varchar(256) | TABLESPACE_NAME varchar(268)! | TABLE_CATALOG char(0)!
TABLE_SCHEMA binary(0) | TABLE_NAME binary(0) | LOGFILE_GROUP_NAME varchar(256) | LOGFILE_GROUP_NUMBER bigint
ENGINE name! | FULLTEXT_KEYS binary(0) | DELETED_ROWS binary(0) | UPDATE_COUNT binary(0) | FREE_EXTENTS bigint
TOTAL_EXTENTS bigint | EXTENT_SIZE bigint | INITIAL_SIZE bigint | MAXIMUM_SIZE bigint | AUTOEXTEND_SIZE bigint
CREATION_TIME binary(0) | LAST_UPDATE_TIME binary(0) | LAST_ACCESS_TIME binary(0) | RECOVER_TIME binary(0)
TRANSACTION_COUNTER binary(0) | VERSION bigint | ROW_FORMAT varchar(256) | TABLE_ROWS binary(0)
AVG_ROW_LENGTH binary(0) | DATA_LENGTH binary(0) | MAX_DATA_LENGTH binary(0) | INDEX_LENGTH binary(0)
DATA_FREE bigint | CREATE_TIME binary(0) | UPDATE_TIME binary(0) | CHECK_TIME binary(0) | CHECKSUM binary(0)
STATUS varchar(256) | EXTRA varchar(256)

PARTITIONS
TABLE_CATALOG name! | TABLE_SCHEMA name! | TABLE_NAME name! | PARTITION_NAME name | SUBPARTITION_NAME name
PARTITION_ORDINAL_POSITION int unsigned | SUBPARTITION_ORDINAL_POSITION int unsigned | PARTITION_METHOD varchar(13)
SUBPARTITION_METHOD varchar(13) | PARTITION_EXPRESSION varchar(2048) | SUBPARTITION_EXPRESSION varchar(2048)
PARTITION_DESCRIPTION text | TABLE_ROWS bigint unsigned | AVG_ROW_LENGTH bigint unsigned | DATA_LENGTH bigint unsigned
MAX_DATA_LENGTH bigint unsigned | INDEX_LENGTH bigint unsigned | DATA_FREE bigint unsigned | CREATE_TIME timestamp!
UPDATE_TIME datetime | CHECK_TIME datetime | CHECKSUM bigint | PARTITION_COMMENT text! | NODEGROUP varchar(256)
TABLESPACE_NAME varchar(268)

TRIGGERS
TRIGGER_CATALOG name! | TRIGGER_SCHEMA name! | TRIGGER_NAME name! | EVENT_MANIPULATION enum('INSERT','UPDATE','DELETE')!
EVENT_OBJECT_CATALOG name! | EVENT_OBJECT_SCHEMA name! | EVENT_OBJECT_TABLE name! | ACTION_ORDER int unsigned!
ACTION_CONDITION binary(0) | ACTION_STATEMENT longtext! | ACTION_ORIENTATION varchar(3)!
ACTION_TIMING enum('BEFORE','AFTER')! | ACTION_REFERENCE_OLD_TABLE binary(0) | ACTION_REFERENCE_NEW_TABLE binary(0)
ACTION_REFERENCE_OLD_ROW varchar(3)! | ACTION_REFERENCE_NEW_ROW varchar(3)! | CREATED timestamp! | SQL_MODE mode!
DEFINER varchar(288)! | CHARACTER_SET_CLIENT name! | COLLATION_CONNECTION name! | DATABASE_COLLATION name!

EVENTS
EVENT_CATALOG name! | EVENT_SCHEMA name! | EVENT_NAME name! | DEFINER varchar(288)! | TIME_ZONE name!
EVENT_BODY varchar(3)! | EVENT_DEFINITION longtext! | EVENT_TYPE varchar(9)! | EXECUTE_AT datetime
INTERVAL_VALUE varchar(256) | INTERVAL_FIELD varchar(18) | SQL_MODE mode! | STARTS datetime | ENDS datetime
STATUS varchar(21)! | ON_COMPLETION varchar(12)! | CREATED timestamp! | LAST_ALTERED timestamp!
LAST_EXECUTED datetime | EVENT_COMMENT varchar(2048)! | ORIGINATOR int unsigned! | CHARACTER_SET_CLIENT name!
COLLATION_CONNECTION name! | DATABASE_COLLATION name!

ROUTINES
SPECIFIC_NAME name! | ROUTINE_CATALOG name! | ROUTINE_SCHEMA name! | ROUTINE_NAME name!
ROUTINE_TYPE enum('FUNCTION','PROCEDURE')! | DATA_TYPE longtext | CHARACTER_MAXIMUM_LENGTH bigint
CHARACTER_OCTET_LENGTH bigint | NUMERIC_PRECISION int unsigned | NUMERIC_SCALE int unsigned
DATETIME_PRECISION int unsigned | CHARACTER_SET_NAME name | COLLATION_NAME name | DTD_IDENTIFIER longtext
ROUTINE_BODY varchar(8)! | ROUTINE_DEFINITION longtext | EXTERNAL_NAME binary(0) | EXTERNAL_LANGUAGE name!
PARAMETER_STYLE varchar(3)! | IS_DETERMINISTIC varchar(3)!
SQL_DATA_ACCESS enum('CONTAINS SQL','NO SQL','READS SQL DATA','MODIFIES SQL DATA')! | SQL_PATH binary(0)
SECURITY_TYPE enum('DEFAULT','INVOKER','DEFINER')! | CREATED timestamp! | LAST_ALTERED timestamp! | SQL_MODE mode!
ROUTINE_COMMENT text! | DEFINER varchar(288)! | CHARACTER_SET_CLIENT name! | COLLATION_CONNECTION name!
DATABASE_COLLATION name!

PARAMETERS
SPECIFIC_CATALOG name! | SPECIFIC_SCHEMA name! | SPECIFIC_NAME name! | ORDINAL_POSITION bigint unsigned!
PARAMETER_MODE varchar(5) | PARAMETER_NAME name | DATA_TYPE longtext | CHARACTER_MAXIMUM_LENGTH bigint
CHARACTER_OCTET_LENGTH bigint | NUMERIC_PRECISION int unsigned | NUMERIC_SCALE bigint | DATETIME_PRECISION int unsigned
CHARACTER_SET_NAME name | COLLATION_NAME name | DTD_IDENTIFIER mediumtext! | ROUTINE_TYPE enum('FUNCTION','PROCEDURE')!
"""
_OF_PERFORMANCE = "\n\n".join(
    f"{table}\nVARIABLE_NAME name! | VARIABLE_VALUE varchar(1024)"
    for table in ("session_variables", "global_variables", "session_status", "global_status")
)


def _columns(lines: list[str]) -> str:
    found = []
    for part in " | ".join(lines).split(" | "):
        name, type = part.split(" ", 1)
        null = " NOT NULL" if type.endswith("!") else ""
        type = type.removesuffix("!")
        found.append(f"`{name}` {_NAME if type == 'name' else _SQL_MODE if type == 'mode' else type}{null}")
    return ", ".join(found)


def _made(text: str) -> dict[str, TableSchema]:
    found: dict[str, TableSchema] = {}
    for part in text.strip().split("\n\n"):
        name, *lines = part.split("\n")
        (parsed,) = parse(f"CREATE TABLE `{name}` ({_columns(lines)}) COLLATE utf8mb4_general_ci")
        found[name.lower()] = create_table(parsed, Catalog()).schema
    return found


@cache
def virtual_tables() -> dict[str, dict[str, TableSchema]]:
    """By schema, and by their own names in lower case."""
    return {INFORMATION: _made(_TABLES), PERFORMANCE: _made(_OF_PERFORMANCE)}


@cache
def virtual_state() -> State:
    """What SELECTs of these tables are planned by."""
    return State(Catalog({name: table for tables in virtual_tables().values() for name, table in tables.items()}))
