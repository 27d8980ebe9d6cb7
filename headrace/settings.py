"""Settings: command line, then environment (``HEADRACE_…``), then a TOML file, then defaults.

The file is the one given by ``--config`` or ``HEADRACE_CONFIG``, else ``headrace.toml`` in the working directory if
there is one. Its keys are the names of the fields below; an unknown one is an error, so that a slip of the pen is seen.
"""

from __future__ import annotations

import os
import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from api.limits import Limits
from controller.statements.shapes import AdHocMode
from controller.transactions.limits import Isolation
from domains.plan.sharding import SHARDS_MAX
from domains.store.storage import AUTOMATIC_BYTES, DISK_RESERVE
from headrace.errors import HeadraceError
from headrace.flags import PARTS, Flag
from headrace.listed import host_names, networks, origins, pairs
from headrace.sizes import parse_size
from migrations.backfill.spark.settings import DRIVER_MEMORY, SPARK_THRESHOLD, SparkSettings
from worker.archive.options import INTERVAL, RETENTION, SEGMENT_ROWS
from zookeeper.address import parse_address
from zookeeper.authority import SESSION_TIMEOUT
from zookeeper.errors import AuthorityError
from zookeeper.registration import check_name

_LIMITS = Limits()
MYSQL_VERSION = "8.0.36"
DEFAULT_FILE = Path("headrace.toml")
Size = Annotated[int, BeforeValidator(parse_size)]
DefaultCollation = Literal["utf8mb4_bin", "utf8mb4_general_ci", "utf8mb4_0900_ai_ci"]

ASYMMETRIC = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Algorithms of tokens whose keys are public."""

CLUSTER_SHARDS = 4
"""The default of a new cluster. Shards are what can be spread over workers, and their number is fixed."""


class SettingsError(HeadraceError):
    """A setting is wrong; the message is one line that says which, where from, and what would be right."""

    code = "bad_setting"


def flag_of(name: str) -> Flag:
    """The flag of a setting; the ``url`` that client commands call has an option of its own in each of them."""
    return next((each for each in Settings.model_fields[name].metadata if isinstance(each, Flag)), Flag())


def is_size(name: str) -> bool:
    """Whether a setting is a number of bytes, which may be written like 512MB."""
    return any(isinstance(each, BeforeValidator) for each in Settings.model_fields[name].metadata)


class Settings(BaseSettings):
    """All settings, in the order in which help lists them."""

    model_config = SettingsConfigDict(env_prefix="HEADRACE_", extra="forbid")

    data: Annotated[Path, Flag("serve", "up", "worker", "admin", value="DIR")] = Field(
        default=Path("headrace-data"), description="directory for tables, logs and readers"
    )
    host: Annotated[str, Flag("serve", "up", *PARTS)] = Field(
        default="127.0.0.1", description="address to listen on; 0.0.0.0 for all"
    )
    port: Annotated[int, Flag("serve", "up", "api")] = Field(
        default=8080, ge=0, le=65535, description="port to listen on; 0 takes a free one"
    )
    mysql_port: Annotated[int | None, Flag("serve", "up", "api", value="PORT")] = Field(
        default=None, ge=0, le=65535, description="port for MySQL's clients; 0 takes a free one; none, if not given"
    )
    mysql_version: Annotated[str, Flag("serve", "up", "api", value="VERSION")] = Field(
        default=MYSQL_VERSION,
        pattern=r"8\.[0-9]+\.[0-9]+([-+][\w.+-]+)?",
        description="version that MySQL's clients are told, by which they choose what they ask",
    )
    max_prepared: Annotated[int, Flag("serve", "up", "api", value="N")] = Field(
        default=16_382, ge=1, description="prepared statements of a connection of MySQL's protocol"
    )
    mysql_upstream: Annotated[str | None, Flag("serve", "up", "api", value="URL")] = Field(
        default=None, description="database that tables here follow, to which MySQL's clients are passed on"
    )
    mysql_upstream_source: Annotated[str, Flag("serve", "up", "api", value="NAME")] = Field(
        default="", description="what it is called here, if not by its database"
    )
    mysql_upstream_accounts: Annotated[Path | None, Flag("serve", "up", "api", value="FILE")] = Field(
        default=None, description="accounts of it, as TOML: account here = name:password there"
    )
    mysql_upstream_connections: Annotated[int, Flag("serve", "up", "api", value="N")] = Field(
        default=100, ge=1, description="connections to it that are open at once"
    )
    mysql_upstream_wait: Annotated[float, Flag("serve", "up", "api", value="SECONDS")] = Field(
        default=0.5, ge=0, le=3600, description="seconds that a view waits for a client's own write to come from there"
    )
    memory_limit: Annotated[Size, Flag("serve", "up", "worker", value="SIZE")] = Field(
        default=512_000_000, description="bytes of state and readers, obeyed by evicting"
    )
    domains: Annotated[int, Flag("serve", value="N")] = Field(
        default=1, ge=1, le=64, description="domains that the graph is split over"
    )
    disk_reserve: Annotated[Size, Flag("serve", "up", "worker", value="SIZE")] = Field(
        default=DISK_RESERVE, description="bytes of the disk that stay free: with less, writes are refused"
    )
    shards: Annotated[int | None, Flag("serve", "up", "controller", value="N")] = Field(
        default=None, ge=1, le=SHARDS_MAX, description="shards of every table and view; decided at the first start"
    )
    state: Annotated[Literal["partial", "full"], Flag("serve", value="KIND")] = Field(
        default="partial", description="partial: views hold what is asked for; full: all of it, to compare with"
    )
    collation: Annotated[DefaultCollation, Flag("serve", "up", "controller", value="NAME")] = Field(
        default="utf8mb4_bin", description="collation of the texts of new tables whose definition names none"
    )
    read_timeout: Annotated[float, Flag("serve", "up", "api", value="SECONDS")] = Field(
        default=5.0, gt=0, le=3600, description="seconds that a read waits for its answer"
    )
    ad_hoc: Annotated[AdHocMode, Flag("serve", "up", "api", value="MODE")] = Field(
        default=AdHocMode.KEEP,
        description="SELECTs that no view answers: off refuses them, answer evaluates them, keep also makes views of "
        "those that pay",
    )
    statement_timeout: Annotated[float, Flag("serve", "up", "api", value="SECONDS")] = Field(
        default=30.0, gt=0, le=86_400, description="seconds after which a SELECT is stopped, with its planning"
    )
    max_answer_rows: Annotated[int, Flag("serve", "up", "api", value="N")] = Field(
        default=1_000_000, ge=1, description="rows that a SELECT that is evaluated may answer"
    )
    max_evaluation_size: Annotated[Size, Flag("serve", "up", "worker", "api", value="SIZE")] = Field(
        default=1_000_000_000, description="bytes that the process may hold that evaluates a SELECT"
    )
    max_automatic_size: Annotated[Size, Flag("serve", "up", "worker", value="SIZE")] = Field(
        default=AUTOMATIC_BYTES, description="bytes that automatic views may hold together, in a worker"
    )
    max_body_size: Annotated[Size, Flag("serve", "up", "api", value="SIZE")] = Field(
        default=_LIMITS.max_body_size, description="greatest request body in bytes"
    )
    max_header_size: Annotated[Size, Flag("serve", "up", "api", value="SIZE")] = Field(
        default=_LIMITS.max_header_size, description="greatest head of a request in bytes, each header counting 32 more"
    )
    max_pipelined: Annotated[int, Flag("serve", "up", "api", value="N")] = Field(
        default=_LIMITS.max_pipelined, ge=1, description="requests that wait behind one another on a connection"
    )
    max_message_size: Annotated[Size, Flag("serve", "up", "api", value="SIZE")] = Field(
        default=_LIMITS.max_message_size, description="greatest message of a WebSocket's client in bytes"
    )
    max_in_flight: Annotated[Size, Flag("serve", "up", "api", value="SIZE")] = Field(
        default=_LIMITS.max_in_flight,
        description="bytes of requests that are not answered, and as many of answers that are not read",
    )
    max_answer_size: Annotated[Size, Flag("serve", "up", "api", value="SIZE")] = Field(
        default=_LIMITS.max_answer_size, description="greatest answer in bytes"
    )
    max_connections: Annotated[int, Flag("serve", "up", "api", value="N")] = Field(
        default=_LIMITS.max_connections, ge=1, description="connections that are open at once"
    )
    max_connections_per_address: Annotated[int, Flag("serve", "up", "api", value="N")] = Field(
        default=_LIMITS.max_connections_per_address,
        ge=1,
        description="connections that are open at once from one address",
    )
    max_waiting: Annotated[int, Flag("serve", "up", "api", value="N")] = Field(
        default=_LIMITS.max_waiting, ge=1, description="requests that wait for their answers at once"
    )
    max_live: Annotated[int, Flag("serve", "up", "api", value="N")] = Field(
        default=_LIMITS.max_live, ge=1, description="subscriptions to live views at once"
    )
    max_live_per_connection: Annotated[int, Flag("serve", "up", "api", value="N")] = Field(
        default=_LIMITS.max_live_per_connection, ge=1, description="the same of one connection"
    )
    max_live_selects: Annotated[int, Flag("serve", "up", "api", value="N")] = Field(
        default=_LIMITS.max_live_selects, ge=0, description="views that are made for SELECTs that are followed"
    )
    max_live_size: Annotated[Size, Flag("serve", "up", "api", value="SIZE")] = Field(
        default=_LIMITS.max_live_size, description="bytes of the rows of all answers that are watched"
    )
    live_steps: Annotated[int, Flag("serve", "up", "api", value="N")] = Field(
        default=_LIMITS.live_steps, ge=1, description="changes of a watched answer kept for those who come back"
    )
    max_transactions: Annotated[int, Flag("serve", value="N")] = Field(
        default=_LIMITS.max_transactions, ge=0, description="transactions and sessions that are open at once"
    )
    max_transaction_size: Annotated[Size, Flag("serve", value="SIZE")] = Field(
        default=_LIMITS.max_transaction_size, description="bytes of what one has staged, and remembers of its reads"
    )
    transaction_idle: Annotated[float, Flag("serve", value="SECONDS")] = Field(
        default=_LIMITS.transaction_idle, gt=0, description="seconds without a statement until one is rolled back"
    )
    transaction_isolation: Annotated[Isolation, Flag("serve", value="LEVEL")] = Field(
        default=_LIMITS.transaction_isolation, description="of transactions over HTTP that name no level"
    )
    max_temporary_tables: Annotated[int, Flag("serve", value="N")] = Field(
        default=_LIMITS.max_temporary_tables, ge=0, description="temporary tables of all sessions together"
    )
    lock_wait: Annotated[float, Flag("serve", value="SECONDS")] = Field(
        default=_LIMITS.lock_wait, ge=0, description="seconds that a statement waits for a lock"
    )
    snapshot_every: Annotated[float, Flag("serve", "up", "api", value="SECONDS")] = Field(
        default=0.0, ge=0, description="seconds between two snapshots of all shards; 0: only those that are asked for"
    )
    request_timeout: Annotated[float, Flag("serve", "up", "api", value="SECONDS")] = Field(
        default=_LIMITS.request_timeout,
        gt=0,
        le=3600,
        description="seconds within which a request is to be there whole",
    )
    idle_timeout: Annotated[float, Flag("serve", "up", "api", value="SECONDS")] = Field(
        default=_LIMITS.idle_timeout,
        gt=0,
        le=3600,
        description="seconds after which a connection without a request is closed",
    )
    max_sql_size: Annotated[Size, Flag("serve", "up", "api", value="SIZE")] = Field(
        default=_LIMITS.max_sql_size, description="greatest text of SQL in bytes"
    )
    max_statements: Annotated[int, Flag("serve", "up", "api", value="N")] = Field(
        default=_LIMITS.max_statements, ge=1, description="statements in a text of SQL"
    )
    max_list_items: Annotated[int, Flag("serve", "up", "api", value="N")] = Field(
        default=_LIMITS.max_list_items, ge=1, description="items of a list in SQL, or operators in a row"
    )
    max_select_columns: Annotated[int, Flag("serve", "up", "api", value="N")] = Field(
        default=_LIMITS.max_select_columns, ge=1, description="columns that a SELECT lists"
    )
    max_joins: Annotated[int, Flag("serve", "up", "api", value="N")] = Field(
        default=_LIMITS.max_joins, ge=1, description="joins that a SELECT has, with those of its subqueries"
    )
    max_subquery_rows: Annotated[int, Flag("serve", "up", "api", value="N")] = Field(
        default=_LIMITS.max_subquery_rows, ge=1, description="rows that IN (SELECT …) of a write may give"
    )
    max_nesting: Annotated[int, Flag("serve", "up", "api", value="N")] = Field(
        default=_LIMITS.max_nesting, ge=1, description="levels of brackets in SQL"
    )
    trusted_proxy: Annotated[list[str], AfterValidator(networks), Flag("serve", "up", "api", value="ADDRESS")] = Field(
        default=[],
        description="address or network of a proxy whose X-Forwarded-For says where a request comes from; may be given "
        "several times",
    )
    jwt_keys: Annotated[str | None, Flag("serve", "up", "api", value="FILE|URL")] = Field(
        default=None, description="JWKS document, in a file or behind https://, of the issuer whose tokens are accepted"
    )
    jwt_issuer: Annotated[str | None, Flag("serve", "up", "api", value="NAME")] = Field(
        default=None, description='the issuer of tokens: their claim "iss"'
    )
    jwt_audience: Annotated[list[str], Flag("serve", "up", "api", value="NAME")] = Field(
        default=[], description='whom a token has to be for: its claim "aud"; may be given several times'
    )
    jwt_role_claim: Annotated[str, Flag("serve", "up", "api", value="CLAIM")] = Field(
        default="role", min_length=1, description="claim of a token that names the role or user whose rights it has"
    )
    jwt_algorithms: Annotated[list[str], Flag("serve", "up", "api", value="NAME")] = Field(
        default=ASYMMETRIC,
        min_length=1,
        description="algorithm by which tokens may be signed; may be given several times",
    )
    jwt_leeway: Annotated[float, Flag("serve", "up", "api", value="SECONDS")] = Field(
        default=10.0, ge=0, le=300, description="seconds by which the clock of the tokens' issuer may differ"
    )
    tls_cert: Annotated[Path | None, Flag("serve", "up", "api", value="FILE")] = Field(
        default=None, description="certificate with its chain, PEM: HTTP is answered over TLS; read again on SIGHUP"
    )
    tls_key: Annotated[Path | None, Flag("serve", "up", "api", value="FILE")] = Field(
        default=None, description="its key, PEM, readable by its owner alone; that of tls_cert's file, if not given"
    )
    tls_client_ca: Annotated[Path | None, Flag("serve", "up", "api", value="FILE")] = Field(
        default=None, description="certificates, PEM, of those who sign clients' certificates, which prove accounts"
    )
    allowed_hosts: Annotated[list[str], AfterValidator(host_names), Flag("serve", "up", "api", value="NAME")] = Field(
        default=[],
        description="name that this server is reached by, *.example.com for all below one, * for any; may be given "
        "several times. Without it any, but on loopback only loopback's",
    )
    cors_origins: Annotated[list[str], AfterValidator(origins), Flag("serve", "up", "api", value="ORIGIN")] = Field(
        default=[],
        description="origin like https://app.example.com whose pages may call this server, * for any; may be given "
        "several times",
    )
    insecure: Annotated[bool, Flag("serve", "up", "api")] = Field(
        default=False, description="listen where others reach it, though there are no accounts"
    )
    audit_log: Annotated[Path | None, Flag("serve", "up", "api", value="FILE")] = Field(
        default=None, description="file in which is recorded who did what: a JSON object a line"
    )
    audit_data: Annotated[Literal["off", "statements", "values"], Flag("serve", "up", "api", value="KIND")] = Field(
        default="off",
        description="what the audit log has of reads and writes of rows: off, statements without values, values",
    )
    audit_size: Annotated[Size, Flag("serve", "up", "api", value="SIZE")] = Field(
        default=100_000_000, description="bytes of the audit log after which the next file begins"
    )
    audit_files: Annotated[int, Flag("serve", "up", "api", value="N")] = Field(
        default=10, ge=2, le=1000, description="files of the audit log that are kept, with the one that is written"
    )
    audit_statement_size: Annotated[Size, Flag("serve", "up", "api", value="SIZE")] = Field(
        default=16_000, le=1_000_000, description="characters of a statement in the audit log; the rest is cut off"
    )
    audit_failure: Annotated[Literal["refuse", "continue"], Flag("serve", "up", "api", value="KIND")] = Field(
        default="refuse",
        description="what becomes of changes while the audit log cannot be written: refuse, or continue without",
    )
    log_level: Annotated[Literal["debug", "info", "warning", "error"], Flag("serve", "up", *PARTS, value="LEVEL")] = (
        Field(default="info", description="what is logged: debug, info, warning, error")
    )
    log_format: Annotated[Literal["text", "json"], Flag("serve", "up", *PARTS, value="FORMAT")] = Field(
        default="text", description="how a line of the log is written: text, json"
    )
    slow_request: Annotated[float, Flag("serve", "up", "api", value="SECONDS")] = Field(
        default=1.0, ge=0, le=3600, description="seconds from which on a request is logged as slow; 0 logs none"
    )
    drills: Annotated[Path | None, Flag("serve", "up", "api", value="DIR")] = Field(
        default=None, description="directory of what headrace drill --out has written, for the console to show"
    )
    backups: Annotated[str | None, Flag("serve", "up", "api", value="URL")] = Field(
        default=None, description="directory or URL that back-ups are made under, for the console to list"
    )
    archive: Annotated[str | None, Flag("serve", "up", "controller", "worker", value="URL")] = Field(
        default=None, description="directory or URL (s3://…, hdfs://…) that base tables are archived under"
    )
    archive_interval: Annotated[float, Flag("serve", "up", "controller", "worker", value="SECONDS")] = Field(
        default=INTERVAL, ge=0.1, le=86_400, description="seconds between two archivings: what a lost disk may cost"
    )
    archive_retention: Annotated[float, Flag("serve", "up", "controller", "worker", value="SECONDS")] = Field(
        default=RETENTION, ge=0, description="seconds for which every archived position can be gone back to"
    )
    archive_segment_rows: Annotated[int, Flag("serve", "up", "worker", value="N")] = Field(
        default=SEGMENT_ROWS, ge=1_000, le=100_000_000, description="rows to an archived segment, at most and about"
    )
    spark_master: Annotated[str | None, Flag("serve", "up", "controller", "api", value="URL")] = Field(
        default=None,
        description="where Spark jobs run: local[N], spark://host:port, or none; every core here, if not given",
    )
    spark_conf: Annotated[
        list[str], AfterValidator(pairs), Flag("serve", "up", "controller", "api", value="KEY=VALUE")
    ] = Field(default=[], description="a setting of Spark's own, as key=value; may be given several times")
    spark_threshold: Annotated[int, Flag("serve", "up", "controller", "api", value="ROWS")] = Field(
        default=SPARK_THRESHOLD,
        ge=0,
        description="base rows above which a full view is computed from the archive, by Spark or by a process here; "
        "rows that a SELECT may read before Spark answers it, where spark_master is given",
    )
    spark_memory: Annotated[Size, Flag("serve", "up", "controller", "api", value="SIZE")] = Field(
        default=DRIVER_MEMORY, description="bytes of the heap of a Spark job"
    )
    url: str = Field(default="http://127.0.0.1:8080", description="the server that client commands call")
    key: str | None = Field(
        default=None, repr=False, description="API key of client commands; no flag, since others see command lines"
    )
    tls_ca: Path | None = Field(
        default=None, description="certificates, PEM, that client commands trust in place of the usual ones"
    )
    tls_client_cert: Path | None = Field(
        default=None, description="certificate, PEM, that client commands show to the server"
    )
    tls_client_key: Path | None = Field(default=None, description="its key, PEM; that of the same file, if not given")

    # A part of a cluster.
    zookeeper: Annotated[str | None, Flag("up", *PARTS, "admin", value="HOSTS")] = Field(
        default=None, description="ZooKeeper's servers: host:port,host:port/path"
    )
    zookeeper_auth: str | None = Field(
        default=None, description="name:password that keeps others out of what we keep in ZooKeeper"
    )  # Without a flag: others see command lines.
    secret_file: Annotated[Path | None, Flag("up", *PARTS, "admin", value="FILE")] = Field(
        default=None,
        description="file with the deployment's secret, of mode 0600; secret in the data directory, if not given",
    )
    deployment: Annotated[str, Flag("up", *PARTS, "admin", value="NAME")] = Field(
        default="main", description="name of the cluster in ZooKeeper"
    )
    session_timeout: Annotated[float, Flag("up", *PARTS, value="SECONDS")] = Field(
        default=SESSION_TIMEOUT, ge=0.5, le=60, description="seconds until ZooKeeper takes a silent process for dead"
    )
    name: Annotated[str | None, Flag(*PARTS)] = Field(
        default=None, description="name of this process in its cluster; host and port, if not given"
    )
    advertise: Annotated[str | None, Flag(*PARTS, value="HOST")] = Field(
        default=None, description="host under which the others reach this process; host, if not given"
    )
    controller_port: Annotated[int, Flag("controller")] = Field(
        default=7070, ge=0, le=65535, description="port of a controller's control interface; 0 takes a free one"
    )
    worker_port: Annotated[int, Flag("worker")] = Field(
        default=7071, ge=0, le=65535, description="port on which a worker is reached by the others; 0 takes a free one"
    )
    api_port: Annotated[int, Flag("api")] = Field(
        default=0,
        ge=0,
        le=65535,
        description="port on which other api processes reach this one, not its clients; 0 takes a free one",
    )
    quorum: Annotated[int, Flag("controller", value="N")] = Field(
        default=1, ge=1, le=1000, description="workers that must be there when a new deployment is placed"
    )
    dead_after: Annotated[float, Flag("up", "controller", value="SECONDS")] = Field(
        default=2.0, ge=0.5, le=60, description="seconds until the leader takes a silent worker for dead"
    )

    # A whole cluster on one machine.
    workers: Annotated[int, Flag("up", value="N")] = Field(
        default=3, ge=1, le=64, description="worker processes to start"
    )
    controllers: Annotated[int, Flag("up", value="N")] = Field(
        default=2, ge=1, le=9, description="controller processes to start, of which one leads"
    )
    apis: Annotated[int, Flag("up", value="N")] = Field(
        default=1, ge=1, le=64, description="api processes to start, behind one port"
    )
    zookeepers: Annotated[Literal[1, 3] | None, Flag("up", value="N")] = Field(
        default=None,
        description="ZooKeeper servers to start: 1, or 3 of which one may fail; decided at the first start",
    )

    def spark(self) -> SparkSettings:
        """The settings of Spark jobs."""
        conf = tuple((name, value) for name, _, value in (each.partition("=") for each in self.spark_conf))
        return SparkSettings(self.spark_master or "", conf, self.spark_memory)

    @field_validator("zookeeper")
    @classmethod
    def _is_an_address(cls, text: str | None) -> str | None:
        try:
            return None if text is None else str(parse_address(text))
        except AuthorityError as error:
            raise ValueError(str(error)) from error

    @field_validator("zookeeper_auth")
    @classmethod
    def _is_a_name_and_password(cls, text: str | None) -> str | None:
        if text is not None and not all(text.partition(":")):
            raise ValueError("write it like name:password")
        return text

    @field_validator("deployment", "name")
    @classmethod
    def _is_a_name(cls, text: str | None, info: ValidationInfo) -> str | None:
        return None if text is None else check_name(text, info.field_name or "process")

    @field_validator("zookeepers", mode="before")
    @classmethod
    def _is_a_number(cls, value: Any) -> Any:
        """The environment says it as text, which a literal number does not take."""
        return int(value) if isinstance(value, str) and value.isdecimal() else value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """First come, first served. The file's values are handed to the class as ``_file`` by ``load``."""
        del dotenv_settings, file_secret_settings
        assert isinstance(init_settings, InitSettingsSource)
        file = init_settings.init_kwargs.pop("_file", {})
        return init_settings, env_settings, InitSettingsSource(settings_cls, file)


def load(config: Path | None = None, **given: Any) -> Settings:
    """The settings in force; values of None in ``given`` count as not given. Raises SettingsError."""
    named = config or (Path(os.environ["HEADRACE_CONFIG"]) if os.environ.get("HEADRACE_CONFIG") else None)
    path = named or (DEFAULT_FILE if DEFAULT_FILE.is_file() else None)
    file = {} if path is None else _read(path)
    flags = {name: value for name, value in given.items() if value is not None}
    try:
        return Settings(_file=file, **flags)  # type: ignore[call-arg]
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0])
        origin = _origin(name, flags, path)
        raise SettingsError(f'setting "{name}" from {origin}: {first["msg"].removeprefix("Value error, ")}') from error


def _read(path: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise SettingsError(f'cannot read the settings file "{path}": {error.strerror}') from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f'the settings file "{path}" is not TOML: {error}') from error
    for name in values:
        if name not in Settings.model_fields:
            near = get_close_matches(name, Settings.model_fields, 1)
            known = f'did you mean "{near[0]}"?' if near else f"known are {', '.join(Settings.model_fields)}"
            raise SettingsError(f'unknown setting "{name}" in "{path}"; {known}')
    return values


def _origin(name: str, flags: dict[str, Any], path: Path | None) -> str:
    if name in flags:
        return "the command line"
    variable = f"HEADRACE_{name.upper()}"
    return f"the environment ({variable})" if variable in os.environ else f'"{path}"'
