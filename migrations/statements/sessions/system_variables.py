"""The system variables of MySQL 8 that clients read, and what they are here.

Only what is true of this server: a variable that says how statements are read has the value by which they are. Truth
values are ``bool``: ``@@name`` shows 0 or 1, SHOW VARIABLES shows OFF or ON.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from domains.language.types import Value

_TEXT = """
auto_increment_increment = 1
auto_increment_offset = 1
autocommit = ON
character_set_client = 'utf8mb4'
character_set_connection = 'utf8mb4'
character_set_database = 'utf8mb4'
character_set_filesystem = 'binary'
character_set_results = 'utf8mb4'
character_set_server = 'utf8mb4'
character_set_system = 'utf8mb3'
collation_connection = 'utf8mb4_bin'
collation_database = 'utf8mb4_bin'
collation_server = 'utf8mb4_bin'
connect_timeout = 10
cte_max_recursion_depth = 1000
default_authentication_plugin = 'caching_sha2_password'
default_storage_engine = 'InnoDB'
default_tmp_storage_engine = 'InnoDB'
default_week_format = 0
div_precision_increment = 4
explicit_defaults_for_timestamp = ON
foreign_key_checks = ON
group_concat_max_len = 1024
gtid_executed = ''
gtid_mode = 'OFF'
gtid_next = 'AUTOMATIC'
gtid_purged = ''
hostname = 'headrace'
information_schema_stats_expiry = 86400
init_connect = ''
innodb_lock_wait_timeout = 50
innodb_strict_mode = ON
interactive_timeout = 28800
lc_messages = 'en_US'
lc_time_names = 'en_US'
license = 'headrace'
local_infile = OFF
lock_wait_timeout = 31536000
log_bin = OFF
long_query_time = 10.0
lower_case_table_names = 2
max_allowed_packet = 67108864
max_connections = 151
max_execution_time = 0
max_join_size = 18446744073709551615
max_prepared_stmt_count = 16382
max_user_connections = 0
net_buffer_length = 16384
net_read_timeout = 30
net_write_timeout = 60
offline_mode = OFF
optimizer_switch = ''
performance_schema = OFF
port = 3306
profiling = OFF
protocol_version = 10
read_only = OFF
require_secure_transport = OFF
server_id = 1
session_track_schema = ON
session_track_state_change = OFF
session_track_system_variables = ''
session_track_transaction_info = 'OFF'
socket = ''
sql_auto_is_null = OFF
sql_big_selects = ON
sql_buffer_result = OFF
sql_generate_invisible_primary_key = OFF
sql_log_bin = ON
sql_notes = ON
sql_quote_show_create = ON
sql_require_primary_key = OFF
sql_safe_updates = OFF
sql_select_limit = 18446744073709551615
sql_warnings = OFF
super_read_only = OFF
system_time_zone = 'UTC'
time_zone = 'SYSTEM'
timestamp = 0
transaction_isolation = 'SERIALIZABLE'
transaction_read_only = OFF
tx_isolation = 'SERIALIZABLE'
tx_read_only = OFF
unique_checks = ON
version_comment = 'Headrace'
version_compile_machine = 'x86_64'
version_compile_os = 'Linux'
wait_timeout = 28800
"""

SQL_MODE = (
    "ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,"
    "NO_ENGINE_SUBSTITUTION"
)
"""MySQL 8's default, in which statements are read here."""


def _read(text: str) -> Value | bool:
    if text in ("ON", "OFF"):
        return text == "ON"
    if text[0] == "'":
        return text.strip("'")
    return float(text) if "." in text else int(text)


def _variables() -> dict[str, Value | bool]:
    pairs = (line.split(" = ") for line in _TEXT.strip().split("\n"))
    return {name: _read(value) for name, value in pairs} | {"sql_mode": SQL_MODE}


SYSTEM_VARIABLES: Mapping[str, Value | bool] = MappingProxyType(_variables())
"""By name, as the server has them; a session may have set others."""
