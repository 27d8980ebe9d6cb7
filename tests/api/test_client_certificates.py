"""Clients' certificates as accounts: who gets in, with which rights, and until when."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from time import time

import pytest
from argon2 import PasswordHasher
from cryptography import x509
from served_bytes import WITHIN, Site, asked, one_answer, served

from controller.access.accounts import Account, administrator
from controller.access.authentication import PeerCertificate
from controller.access.keeper import Keeper
from controller.access.passwords import Passwords, new_id
from controller.access.performing import perform
from controller.access.session import OPEN, Caller
from domains.errors import AlreadyExists, BadRequest, Forbidden, SqlSyntaxError, Unsupported
from headrace.serving.certificates import context_of
from headrace.settings import load
from migrations.access.rights import Privilege, Rights
from migrations.catalog import Catalog
from migrations.parse.accounts import AccountOptions, CreateUser
from migrations.parse.reading import parse
from tests.kit.certificates import Authority
from zookeeper.accounts import FileAccounts

PAGE = asked("GET /v1/views/ById?id=1")
TABLES = asked("GET /v1/tables")
READS = Rights({"byid": frozenset({Privilege.SELECT})})
SPIFFE = "spiffe://example/ns/app"


class Deployment:
    """A server that clients' certificates open, and the accounts behind it."""

    def __init__(self, site: Site, keeper: Keeper, authority: Authority) -> None:
        self.site, self.keeper, self.authority = site, keeper, authority

    def shows(self, common: str, *names: x509.GeneralName, lasts: timedelta = timedelta(days=1)) -> None:
        """What clients do from now on."""
        self.site.ssl = self.authority.trusting(self.authority.certificate("client", common, names or None, lasts))

    async def account(self, name: str, certificate: str, rights: Rights = READS) -> None:
        made = Account(name, new_id(), certificate=certificate, rights=rights)
        await self.keeper.change(name, lambda account: made)

    async def change(self, name: str, **changes: object) -> None:
        await self.keeper.change(name, lambda account: account and replace(account, **changes))  # type: ignore[arg-type]

    async def statuses(self, *requests: bytes) -> list[int]:
        return [int(each.split()[1]) for each in await self.site.say(*requests, answers=len(requests))]


@asynccontextmanager
async def deployed(tmp_path: Path) -> AsyncIterator[Deployment]:
    authority = Authority(tmp_path)
    certificate, key = authority.certificate("server")
    server = context_of(load(tls_cert=certificate, tls_key=key, tls_client_ca=authority.path))
    assert server is not None
    keeper = Keeper(FileAccounts(tmp_path), Passwords(PasswordHasher(1, 8, 1)))
    await keeper.start()
    kept = await keeper.passwords.made("a password")
    await keeper.change("ann", lambda account: administrator("ann", new_id(), kept, account))
    async with served(tls=(server, authority.trusting()), keeper=keeper) as site:
        yield Deployment(site, keeper, authority)
    await keeper.close()


async def test_a_certificate_is_enough_and_has_the_rights_of_its_account(tmp_path: Path) -> None:
    async with deployed(tmp_path) as it:
        await it.account("app", "CN:app")
        assert await it.statuses(PAGE) == [401]
        it.shows("app")
        assert await it.statuses(PAGE, TABLES, asked("GET /v1/status"), PAGE) == [200, 200, 403, 200]
        # The first request of a certificate is verified on the long way; those after it are hits.
        it.site.ways.clear()
        assert await it.statuses(PAGE, PAGE) == [200, 200]
        assert it.site.ways == []


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        (x509.UniformResourceIdentifier(SPIFFE), f"URI:{SPIFFE}"),
        (x509.RFC822Name("app@example.org"), "EMAIL:app@example.org"),
        (x509.DNSName("app.example.org"), "DNS:app.example.org"),
    ],
)
async def test_other_names_than_the_subject_count(tmp_path: Path, name: x509.GeneralName, kept: str) -> None:
    async with deployed(tmp_path) as it:
        await it.account("app", kept)
        it.shows("somebody", name)
        assert await it.statuses(PAGE) == [200]
        it.shows(kept.partition(":")[2])
        assert await it.statuses(PAGE) == [401]


async def test_who_has_no_account_is_told_which_name_was_looked_for(tmp_path: Path) -> None:
    async with deployed(tmp_path) as it:
        await it.account("app", "")  # An account of that name, which was not made to allow it.
        it.shows("app")
        (answer,) = await it.site.say(PAGE, answers=1)
        assert answer.startswith(b"HTTP/1.1 401")
        assert b"CN:app" in answer
        assert b"ssl_certificate" in answer


async def test_a_name_that_is_like_another_is_another(tmp_path: Path) -> None:
    async with deployed(tmp_path) as it:
        await it.account("app", "CN:app")
        for other in ("App", "app ", "xapp", "app,CN=x"):
            it.shows(other)
            assert await it.statuses(PAGE) == [401], other


async def test_two_accounts_of_one_certificate_get_nobody_in(tmp_path: Path) -> None:
    async with deployed(tmp_path) as it:
        await it.account("app", "CN:app")
        await it.account("other", f"URI:{SPIFFE}")
        it.shows("app", x509.UniformResourceIdentifier(SPIFFE))
        assert await it.statuses(PAGE) == [401]
        await it.account("other", "CN:app")  # By a process that did not see the first.
        it.shows("app")
        assert await it.statuses(PAGE) == [401]
        await it.change("other", certificate="")
        assert await it.statuses(PAGE) == [200]


async def test_a_certificate_of_another_authority_is_no_one(tmp_path: Path) -> None:
    async with deployed(tmp_path) as it:
        await it.account("app", "CN:app")
        (tmp_path / "others").mkdir()
        stranger = Authority(tmp_path / "others")
        it.site.ssl = it.authority.trusting(stranger.certificate("client", "app"))
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await it.statuses(PAGE)


async def test_a_key_or_password_counts_before_the_certificate(tmp_path: Path) -> None:
    async with deployed(tmp_path) as it:
        await it.account("app", "CN:app")
        it.shows("app")
        wrong = asked("GET /v1/views/ById?id=1", headers=["authorization: Bearer hrk_wrong"])
        ann = asked("GET /v1/status", headers=["authorization: Basic YW5uOmEgcGFzc3dvcmQ="])
        assert await it.statuses(wrong, ann, PAGE) == [401, 200, 200]


async def test_no_header_stands_for_a_certificate(tmp_path: Path) -> None:
    async with deployed(tmp_path) as it:
        await it.account("app", "CN:app")
        it.shows("app")
        assert await it.statuses(PAGE) == [200]
        it.site.ssl = it.authority.trusting()
        (known,) = [each for each in it.site.server.config.loaded_app.endpoints.authentication.sessions if each]
        for forged in ("CN:app", "certificate CN:app", str(known), repr(known)):
            assert await it.statuses(asked("GET /v1/views/ById?id=1", headers=[f"authorization: {forged}"])) == [401]


@pytest.mark.parametrize(
    "change",
    [
        {"locked": True},
        {"certificate": ""},
        {"certificate": "CN:another"},
        {"expires": "2020-01-01 00:00:00"},
        {"rights": Rights({})},
    ],
    ids=str,
)
async def test_what_ends_ends_on_open_connections(tmp_path: Path, change: dict[str, object]) -> None:
    """Another process writes the file: within two seconds it holds here, as with keys."""
    async with deployed(tmp_path) as it:
        await it.account("app", "CN:app")
        it.shows("app")
        reader, writer = await asyncio.open_connection("127.0.0.1", it.site.port, ssl=it.site.ssl)

        async def status() -> int:
            writer.write(PAGE)
            async with asyncio.timeout(WITHIN):
                return int((await one_answer(reader)).split()[1])

        assert [await status(), await status()] == [200, 200]
        other = Keeper(FileAccounts(tmp_path))
        await other.start()
        await other.change("app", lambda account: account and replace(account, **change))  # type: ignore[arg-type]
        await other.close()
        changed = time()
        while await status() == 200:
            assert time() < changed + WITHIN
            await asyncio.sleep(0.02)
        assert await status() == (403 if "rights" in change else 401)
        writer.close()


async def test_a_certificate_ends_on_open_connections(tmp_path: Path) -> None:
    async with deployed(tmp_path) as it:
        await it.account("app", "CN:app")
        it.shows("app", lasts=timedelta(seconds=4))
        reader, writer = await asyncio.open_connection("127.0.0.1", it.site.port, ssl=it.site.ssl)
        statuses = []
        async with asyncio.timeout(WITHIN):
            while not statuses or statuses[-1] == 200:
                writer.write(PAGE)
                statuses.append(int((await one_answer(reader)).split()[1]))
                await asyncio.sleep(0.05)
        assert statuses[0] == 200
        assert statuses[-1] == 401
        writer.close()


# --- statements -------------------------------------------------------------------------------------------------------


def options(text: str) -> AccountOptions:
    (parsed,) = parse(f"CREATE USER app {text}")
    statement = parsed.account
    assert isinstance(statement, CreateUser)
    return statement.options


def test_what_is_written() -> None:
    assert options("IDENTIFIED WITH ssl_certificate CN 'app'").certificate == "CN:app"
    assert options(f"IDENTIFIED WITH SSL_CERTIFICATE SAN 'uri:{SPIFFE}' ACCOUNT LOCK").certificate == f"URI:{SPIFFE}"
    assert options("IDENTIFIED WITH ssl_certificate SAN 'Email:a@b'").certificate == "EMAIL:a@b"
    assert options("IDENTIFIED BY 'x'").certificate is None
    for wrong in ("IDENTIFIED WITH ssl_certificate", "IDENTIFIED WITH ssl_certificate BY 'x'"):
        with pytest.raises(SqlSyntaxError):
            options(wrong)
    for wrong in ("SAN 'app'", "SAN 'IP:1.2.3.4'", "SAN 'URI:'"):
        with pytest.raises(Unsupported):
            options(f"IDENTIFIED WITH ssl_certificate {wrong}")


async def test_what_is_allowed(tmp_path: Path) -> None:
    async with deployed(tmp_path) as it:
        keeper = it.keeper

        async def does(text: str, who: Caller = OPEN) -> None:
            for each in parse(text):
                assert each.account is not None
                await perform(each.account, keeper, who, Catalog())

        await does("CREATE USER app IDENTIFIED WITH ssl_certificate CN 'app'; CREATE USER eve IDENTIFIED BY 'word'")
        app = keeper.accounts.get("app")
        assert app is not None
        assert (app.certificate, app.password) == ("CN:app", None)
        with pytest.raises(AlreadyExists):
            await does("CREATE USER other IDENTIFIED WITH ssl_certificate CN 'app'")
        with pytest.raises(AlreadyExists):
            await does("ALTER USER eve IDENTIFIED WITH ssl_certificate CN 'app'")
        # Nobody takes a name for themselves.
        eve = keeper.session("eve", float("inf"), lambda account: True, {})
        with pytest.raises(Forbidden):
            await does("ALTER USER USER() IDENTIFIED WITH ssl_certificate CN 'eve'", eve)
        await does("ALTER USER USER() IDENTIFIED BY 'another word'", eve)
        # What IDENTIFIED says is all that counts.
        await does("ALTER USER app IDENTIFIED BY 'word'")
        app = keeper.accounts.get("app")
        assert app is not None
        assert app.certificate == ""
        await does("ALTER USER eve IDENTIFIED WITH ssl_certificate CN 'app'; CREATE ROLE readers")
        with pytest.raises(BadRequest):
            await does("ALTER USER readers IDENTIFIED WITH ssl_certificate CN 'x'")
        # A certificate opens nothing where no CA is set: the last administrator has more than that.
        with pytest.raises(BadRequest, match="last administrator"):
            await does("ALTER USER ann IDENTIFIED WITH ssl_certificate CN 'ann'")


def test_the_document_is_read_as_it_was_written() -> None:
    made = Account("app", "1", certificate=f"URI:{SPIFFE}")
    assert Account.of("app", made.document()) == made
    assert "certificate" not in Account("app", "1").document()


def test_names_of_certificates() -> None:
    given = {
        "subject": ((("countryName", "NO"),), (("commonName", "app"),)),
        "notAfter": "Jan  1 00:00:00 2030 GMT",
        "subjectAltName": (("DNS", "a.example"), ("email", "a@b"), ("URI", SPIFFE)),
    }
    found = PeerCertificate.of(given)
    assert found.names == ("CN:app", "DNS:a.example", "EMAIL:a@b", f"URI:{SPIFFE}")
    assert found.expires == 1_893_456_000
    several = {**given, "subject": ((("commonName", "app"),), (("commonName", "ann"),))}
    assert not [each for each in PeerCertificate.of(several).names if each.startswith("CN:")]
