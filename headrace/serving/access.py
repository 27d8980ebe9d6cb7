"""What settings say of who is let in, by whose tokens, and where it is recorded what they do.

The keys of tokens come from a file, or over HTTPS, which is why this is here: rooms below know no HTTP client.
"""

from __future__ import annotations

import asyncio
import ssl
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

from api.mysql.upstream import UpstreamServer
from controller.access.audit_file import AuditFile
from controller.access.audit_log import AuditLog
from controller.access.keeper import TokenVerifier
from headrace.errors import BadRequest
from headrace.settings import ASYMMETRIC, Settings, SettingsError
from headrace.upstream.address import UpstreamAddress
from zookeeper.address import is_loopback

FILE_SECONDS = 5.0
"""Between two looks at a file of keys."""
URL_SECONDS = 300.0
"""Between two readings of a URL: how long a key that its issuer withdraws may be in force here."""
BYTES_MAX = 1_000_000
SHARED = ("HS256", "HS384", "HS512")
"""Algorithms of tokens whose keys are secrets."""
PLAIN = {"accept": "application/json", "accept-encoding": "identity"}
"""What is asked for: a packed answer of a kilobyte may be a gigabyte."""


class KeyFile:
    """See :class:`controller.access.key_set.KeySource`."""

    secret = True
    seconds = FILE_SECONDS

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path

    async def read(self) -> bytes:
        try:
            return await asyncio.to_thread(self._read)
        except OSError as error:
            raise ValueError(error.strerror or str(error)) from error

    def _read(self) -> bytes:
        if not self._path.is_file():  # A pipe would be waited for.
            raise FileNotFoundError(2, "there is no such file")
        with self._path.open("rb") as file:
            return file.read(BYTES_MAX + 1)


class KeyUrl:
    """See :class:`controller.access.key_set.KeySource`."""

    secret = False
    seconds = URL_SECONDS

    def __init__(self, url: str) -> None:
        self.name = url
        self._trusted: ssl.SSLContext | None = None

    async def read(self) -> bytes:
        import httpx  # Late: only who verifies tokens needs it.

        if self._trusted is None:  # Authorities are read from a file of 200 kB.
            self._trusted = await asyncio.to_thread(httpx.create_ssl_context)
        try:
            async with (
                httpx.AsyncClient(verify=self._trusted, timeout=None) as client,
                client.stream("GET", self.name, headers=PLAIN) as answer,
            ):
                if answer.status_code != 200:
                    raise ValueError(f"it answers with status {answer.status_code}")
                found = bytearray()
                async for part in answer.aiter_raw():
                    found += part
                    if len(found) > BYTES_MAX:
                        raise ValueError(f"it has more than {BYTES_MAX} bytes")
                return bytes(found)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ValueError(str(error) or type(error).__name__) from error


async def begin_tokens(settings: Settings) -> TokenVerifier | None:
    """The verifier of tokens that the settings ask for.

    :raises BadRequest: settings contradict one another, or a file of keys cannot be used.
    """
    if settings.jwt_keys is None:
        return None
    if not settings.jwt_issuer or not settings.jwt_audience:
        raise BadRequest(
            "jwt_keys is set without jwt_issuer and jwt_audience",
            hint="name both: a token that the same issuer made for another application must not be taken for ours",
        )
    # Late: it loads cryptography.
    from controller.access.key_set import KeySet
    from controller.access.web_tokens import TokenRules, WebTokens

    unknown = [each for each in settings.jwt_algorithms if each not in (*ASYMMETRIC, *SHARED)]
    if unknown:
        raise BadRequest(
            f'jwt_algorithms has "{unknown[0]}", by which no token may be signed',
            hint=f"known are {', '.join((*ASYMMETRIC, *SHARED))}",
        )
    is_url = "://" in settings.jwt_keys
    shared = [each for each in settings.jwt_algorithms if each in SHARED]
    if is_url:
        _check_url(settings.jwt_keys)
        if shared:
            raise BadRequest(
                f"jwt_algorithms has {', '.join(shared)}, whose key is a secret, and jwt_keys is a URL",
                hint="keep shared secrets in a file, mode 0600; a URL is for public keys",
            )
    rules = TokenRules(
        settings.jwt_issuer,
        tuple(settings.jwt_audience),
        tuple(settings.jwt_algorithms),
        settings.jwt_role_claim,
        settings.jwt_leeway,
    )
    source = KeyUrl(settings.jwt_keys) if is_url else KeyFile(Path(settings.jwt_keys))
    keys = KeySet(source, rules.algorithms)
    # An issuer that is down keeps no server from starting: keys and passwords go on, and it is asked again.
    await keys.start(must_read=not is_url)
    return WebTokens(rules, keys)


def begin_audit(settings: Settings, name: str | None = None) -> AuditLog | None:
    """The log that the settings ask for; with ``name``, a process's own: ``audit-api-1.jsonl``.

    :raises BadRequest: its file cannot be opened.
    """
    path = settings.audit_log
    if path is None:
        return None
    path = path if name is None else path.with_name(f"{path.stem}-{name}{path.suffix}")
    log = AuditLog(
        AuditFile(path.absolute(), settings.audit_size, settings.audit_files),
        data=settings.audit_data,
        refuses=settings.audit_failure == "refuse",
        statement_size=settings.audit_statement_size,
    )
    log.begin()
    return log


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    host = parts.hostname or ""
    if not host or not (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))):
        raise BadRequest(
            f'jwt_keys "{url}" is no https:// URL',
            hint="whoever changes an answer on its way would make tokens; http:// is taken of this machine only",
        )


def upstream_of(settings: Settings) -> UpstreamServer | None:
    """Where statements of MySQL's clients are passed on to.

    :raises SettingsError: there is no such place, or a file of it cannot be read."""
    if settings.mysql_upstream is None:
        return None
    address = UpstreamAddress.parse(settings.mysql_upstream)
    if address.kind != "mysql":
        raise SettingsError(f"mysql_upstream: {address} is no MariaDB", hint="mysql://user:password@host:3306/database")
    path, accounts = settings.mysql_upstream_accounts, dict[str, tuple[str, str]]()
    try:
        if path is not None:
            if path.stat().st_mode & 0o077:
                raise SettingsError(f'mysql_upstream_accounts: others may read "{path}"', hint=f"chmod 600 {path}")
            for name, login in tomllib.loads(path.read_text("utf-8")).items():
                if not isinstance(login, str) or ":" not in login:
                    raise SettingsError(f'mysql_upstream_accounts: "{name}" has no "name:password" in "{path}"')
                user, _, password = login.partition(":")
                accounts[name] = user, password
        tls = None if address.ssl_ca is None else ssl.create_default_context(cafile=address.ssl_ca)
    except (OSError, ValueError) as error:
        raise SettingsError(f"mysql_upstream: {error}") from error
    return UpstreamServer(
        host=address.host,
        port=address.port,
        database=address.database,
        source=settings.mysql_upstream_source or address.database,
        owner=(address.user, address.password),
        accounts=accounts,
        tls=tls,
        connections=settings.mysql_upstream_connections,
        wait=settings.mysql_upstream_wait,
    )
