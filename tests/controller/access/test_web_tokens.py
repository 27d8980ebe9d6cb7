"""Tokens of an issuer: what is taken, what is refused and counted, and what a deployment makes of it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from argon2 import PasswordHasher
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt import api_jws as jws

from controller.access import web_tokens
from controller.access.accounts import Account, administrator
from controller.access.authentication import FAILURES, Authentication
from controller.access.keeper import Keeper
from controller.access.key_set import KeySet
from controller.access.passwords import Passwords, new_id
from controller.access.session import Caller
from controller.access.web_tokens import TOKEN_MAX, TokenRules, WebTokens
from domains.errors import Overloaded, TooManyRequests, Unauthenticated, Unavailable
from migrations.access.rights import Privilege, Rights
from tests.kit.issuer import AUDIENCE, NAME, Issuer, Published
from zookeeper.accounts import FileAccounts

ASYMMETRIC = ("RS256", "PS256", "ES256", "ES384", "ES512", "EdDSA")
READER = Account("reader", new_id(), is_role=True, rights=Rights({"byauthor": frozenset({Privilege.SELECT})}))


class Door:
    """What tokens knock at."""

    def __init__(self, issuer: Issuer, keeper: Keeper, **rules: Any) -> None:
        self.issuer, self.keeper = issuer, keeper
        self.source = Published(issuer.document())
        self.clock = 1000.0
        told = {"issuer": NAME, "audiences": (AUDIENCE, "other"), "algorithms": ASYMMETRIC, **rules}
        self.tokens = WebTokens(TokenRules(**told), KeySet(self.source, told["algorithms"], lambda: self.clock))
        keeper.tokens = self.tokens
        self.authentication = Authentication(keeper, lambda: self.clock)

    async def ask(self, token: str, address: str = "192.0.2.9") -> Caller:
        return await self.authentication.session([b"Bearer " + token.encode()], address)

    async def refused(self, token: str, why: str, address: str = "") -> None:
        """The same as for a key that nobody has, and counted by its reason."""
        before = self.tokens.status()["refused"].get(why, 0)
        with pytest.raises(Unauthenticated) as wrong:
            await self.ask(token, address or f"192.0.2.{len(self.authentication._failures)}")
        with pytest.raises(Unauthenticated) as key:
            await self.ask("hrk_nobody", "198.51.100.1")
        self.authentication._failures.pop("198.51.100.1")
        assert (wrong.value.message, wrong.value.hint) == (key.value.message, key.value.hint)
        refused = self.tokens.status()["refused"]
        assert refused.get(why, 0) == before + 1, refused


@pytest.fixture
async def keeper(tmp_path: Path) -> AsyncIterator[Keeper]:
    keeper = Keeper(FileAccounts(tmp_path), Passwords(PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)))
    await keeper.start()
    ann = administrator("ann", new_id(), await keeper.passwords.made("x"), None)
    await keeper.change("ann", lambda before: ann)
    await keeper.change("reader", lambda before: READER)
    yield keeper
    await keeper.close()


@pytest.fixture
async def door(keeper: Keeper) -> AsyncIterator[Door]:
    door = Door(Issuer(), keeper)
    await door.tokens.keys.start(must_read=True)
    yield door
    await door.tokens.close()


async def test_a_token_has_the_rights_of_the_role_that_it_names_now(door: Door) -> None:
    token = door.issuer.token(tenant=["a", "b"])
    caller = await door.ask(token)
    assert (caller.account, caller.claims["sub"], caller.claims["tenant"]) == ("reader", "u7", ["a", "b"])
    assert caller.may(Privilege.SELECT, "ByAuthor")
    assert not caller.may(Privilege.SELECT, "words")
    assert await door.ask(token) is caller, "it is remembered"
    with pytest.raises(TypeError):
        caller.claims["sub"] = "u8"  # type: ignore[index]
    await door.keeper.change("reader", lambda role: None if role is None else replace(role, rights=Rights({})))
    assert not (await door.ask(token)).may(Privilege.SELECT, "ByAuthor")
    assert not caller.renewed().may(Privilege.SELECT, "ByAuthor"), "a stream that lasts"
    await door.keeper.change("reader", lambda role: None)
    with pytest.raises(Unauthenticated):
        caller.renewed()
    await door.refused(token, "account")


@pytest.mark.parametrize("algorithm", ASYMMETRIC)
async def test_each_algorithm(keeper: Keeper, algorithm: str) -> None:
    issuer = Issuer()
    issuer.rotate("second", algorithm)
    door = Door(issuer, keeper)
    await door.tokens.keys.start(must_read=True)
    assert (await door.ask(issuer.token())).account == "reader"
    head, body, signature = issuer.token(sub="u8").split(".")
    await door.refused(f"{head}.{issuer.token(sub='u9').split('.')[1]}.{signature}", "signature")
    assert body
    await door.tokens.close()


def encoded(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


CLAIMS = {"iss": NAME, "aud": AUDIENCE, "role": "reader", "sub": "u1", "exp": 4e9}


async def test_no_algorithm_and_a_public_key_as_a_secret(keeper: Keeper) -> None:
    issuer = Issuer()
    issuer.rotate("rsa", "RS256")
    public = issuer.private["rsa"][1].public_key()
    texts = [
        public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        json.dumps(issuer.jwk("rsa")).encode(),
        issuer.jwk("rsa")["n"].encode(),
    ]
    # Also where secrets are allowed beside: a key is for its own kind.
    for algorithms in (ASYMMETRIC, (*ASYMMETRIC, "HS256")):
        door = Door(issuer, keeper, algorithms=algorithms)
        await door.tokens.keys.start(must_read=True)
        for name in ("none", "None", "NONE", "", None, 7, ["HS256"]):
            for signature in ("", encoded("x")):
                text = f"{encoded({'alg': name, 'kid': 'rsa'})}.{encoded(CLAIMS)}.{signature}"
                await door.refused(text, "algorithm")
        for secret in texts:
            for kid in ({"kid": "rsa"}, {}):
                signed = f"{encoded({'alg': 'HS256', **kid})}.{encoded(CLAIMS)}"
                made = base64.urlsafe_b64encode(hmac.digest(secret, signed.encode(), hashlib.sha256)).rstrip(b"=")
                why = "key" if "HS256" in algorithms else "algorithm"
                await door.refused(f"{signed}.{made.decode()}", why)
        await door.tokens.close()


async def test_a_key_is_not_used_for_another_algorithm_than_its_own(door: Door) -> None:
    door.issuer.rotate("rsa", "RS256")
    door.source.document = door.issuer.document()
    assert (await door.ask(door.issuer.token())).account == "reader"
    key = door.issuer.private["rsa"][1]
    door.issuer.private["rsa"] = ("PS256", key)
    await door.refused(door.issuer.token("rsa"), "key")


async def test_claims_are_checked(door: Door) -> None:
    now = int(time.time())
    token = door.issuer.token
    for claims, why in (
        ({"exp": now - 11}, "expired"),
        ({"exp": None}, "claim"),
        ({"exp": float("inf")}, "form"),
        ({"exp": "soon"}, "form"),
        ({"exp": [1]}, "form"),
        ({"nbf": now + 60}, "early"),
        ({"iat": now + 60}, "early"),
        ({"iss": "https://issuer.example"}, "issuer"),
        ({"iss": [NAME]}, "issuer"),
        ({"iss": None}, "claim"),
        ({"aud": "headrace2"}, "audience"),
        ({"aud": ["a", "b"]}, "audience"),
        ({"aud": {"headrace": 1}}, "audience"),
        ({"aud": None}, "claim"),
        ({"aud": []}, "claim"),
        ({"role": None}, "role"),
        ({"role": 7}, "role"),
        ({"role": ["reader", "ann"]}, "role"),
        ({"role": {"reader": 1}}, "role"),
        ({"role": "nobody"}, "account"),
        ({"role": ""}, "account"),
        ({"role": "Reader"}, "account"),
    ):
        await door.refused(token(**claims), why)
    for claims in ({"exp": now - 5}, {"nbf": now + 5}, {"aud": ["x", "other"]}, {"role": ["reader"]}, {"sub": None}):
        assert (await door.ask(token(**claims))).account == "reader", claims


async def test_what_is_no_token_is_refused_and_costs_little(door: Door) -> None:
    head, body, signature = door.issuer.token().split(".")
    deep = base64.urlsafe_b64encode(b"[" * 4000).rstrip(b"=").decode()
    for text, why in (
        ("", "form"),
        ("x", "form"),
        ("..", "form"),
        ("é.é.é", "form"),
        (f"{head}.{body}", "form"),
        (f"{head}.{body}.", "signature"),
        (f"{head}.{body}.{signature}.{signature}", "form"),
        (f"{head}.{body}.!!{signature}", "form"),
        (f"{deep}.{body}.{signature}", "form"),
        (f"{encoded([])}.{body}.{signature}", "form"),
        (f"{encoded({'alg': 'ES256', 'kid': 7})}.{body}.{signature}", "form"),
        (f"{encoded({'alg': 'ES256', 'kid': 'first', 'crit': ['x'], 'x': 1})}.{body}.{signature}", "form"),
        (f"{encoded({'alg': 'ES256', 'kid': 'first', 'b64': False, 'crit': ['b64']})}..{signature}", "form"),
        (
            f"{encoded({'alg': 'ES256', 'kid': 'first', 'jwk': {'kty': 'oct', 'k': 'AA'}})}.{body}.{signature}",
            "signature",
        ),
        ("a" * (TOKEN_MAX + 1), "size"),
        (f"{head}.{'A' * 60_000}.{signature}", "size"),
    ):
        await door.refused(text, why)
    claims = base64.urlsafe_b64encode(b"[" * 4000).rstrip(b"=").decode()
    await door.refused(f"{head}.{claims}.{signature}", "signature")


async def test_wrong_ones_count_for_the_address_and_old_ones_do_not(door: Door) -> None:
    old = door.issuer.token(exp=int(time.time()) - 60)
    for _ in range(FAILURES + 5):  # A server that passes on what its users have.
        await door.refused(old, "expired", "192.0.2.7")
    good = door.issuer.token()
    assert (await door.ask(good, "192.0.2.7")).account == "reader"
    for _ in range(FAILURES):
        await door.refused(door.issuer.token(aud="x"), "audience", "192.0.2.7")
    with pytest.raises(TooManyRequests):
        await door.ask(door.issuer.token(aud="x"), "192.0.2.7")
    for token in (good, door.issuer.token(sub="new")):  # One user of a server does not shut out the others.
        assert (await door.ask(token, "192.0.2.7")).account == "reader"


async def test_an_issuer_makes_no_administrator(door: Door) -> None:
    await door.refused(door.issuer.token(role="ann"), "administrator")
    caller = await door.ask(door.issuer.token())
    everything = Rights({"*": frozenset(Privilege)})
    await door.keeper.change("reader", lambda role: None if role is None else replace(role, rights=everything))
    with pytest.raises(Unauthenticated):
        caller.renewed()


async def test_a_new_key_is_read_when_a_token_names_it_and_not_for_every_stranger(door: Door) -> None:
    assert door.source.readings == 1
    door.issuer.rotate("second")
    new = door.issuer.token()
    door.source.document = door.issuer.document()
    callers = await asyncio.gather(*(door.ask(new, f"192.0.2.{n}") for n in range(20)))
    assert {each.account for each in callers} == {"reader"}
    assert door.source.readings == 2, "many wait for one reading"
    for n in range(20):
        await door.refused(door.issuer.token(header={"kid": f"stranger {n}"}), "key")
    assert door.source.readings == 2
    door.clock += 61
    await door.refused(door.issuer.token(header={"kid": "stranger"}), "key")
    assert door.source.readings == 3


async def test_a_withdrawn_key_ends_what_it_has_signed(door: Door) -> None:
    door.issuer.rotate("second")
    door.source.document = door.issuer.document()
    old, new = door.issuer.token("first"), door.issuer.token("second")
    caller = await door.ask(old)
    assert (await door.ask(new)).account == "reader"
    del door.issuer.private["first"]
    door.source.document = door.issuer.document()
    await door.tokens.keys._read()
    assert not door.authentication.sessions
    await door.refused(old, "key")
    with pytest.raises(Unauthenticated):
        caller.renewed()
    assert (await door.ask(new)).account == "reader"


async def test_the_last_good_keys_stay_where_the_issuer_does_not_answer(
    door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    good = door.source.document
    for document, error in (
        (b"", OSError("connection refused")),
        (b"<html>", None),
        (b"[" * 100_000, None),
        (b'{"keys": 7}', None),
        (b'{"keys": [7]}', None),
        (b"\xff\xfe", None),
        (b" " * 2_000_000, None),
        (json.dumps({"keys": [door.issuer.jwk("first")] * 101}).encode(), None),
    ):
        door.source.document, door.source.error = document, error
        failures = door.tokens.status()["key_failures"]
        await door.tokens.keys._read()
        status = door.tokens.status()
        assert (status["keys"], status["key_failures"]) == (1, failures + 1), document[:20]
        assert status["key_error"]
        assert (await door.ask(door.issuer.token(sub=str(failures)))).account == "reader"
    assert len([each for each in caplog.records if "cannot be read" in each.message]) == 1, "once a minute"
    door.source.document, door.source.error = good, None
    await door.tokens.keys._read()
    assert "key_error" not in door.tokens.status()


async def test_a_slow_issuer_is_not_waited_for(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.access.key_set.READ_SECONDS", 0.05)

    async def read() -> bytes:
        await asyncio.Event().wait()
        raise AssertionError

    door.source.read = read  # type: ignore[method-assign]
    await door.refused(door.issuer.token(header={"kid": "new"}), "key")
    assert "within 0.05 s" in door.tokens.status()["key_error"]
    assert (await door.ask(door.issuer.token())).account == "reader"


async def test_before_the_first_keys_nobody_can_say(keeper: Keeper) -> None:
    door = Door(Issuer(), keeper)
    door.source.error = OSError("no route")
    await door.tokens.keys.start(must_read=False)
    with pytest.raises(Unavailable, match="could not be read"):
        await door.ask(door.issuer.token())
    door.source.error = None
    door.clock += 61
    assert (await door.ask(door.issuer.token())).account == "reader"
    await door.tokens.close()


async def test_a_flood_waits_in_bounds(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_tokens, "WAITING_MAX", 5)
    asked = [door.ask(door.issuer.token(sub=str(n)), f"192.0.2.{n}") for n in range(20)]
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert {type(each) for each in found} == {Caller, Overloaded}
    assert door.tokens.status()["waiting"] == 0


def raw(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode("utf-8", "surrogatepass")).rstrip(b"=").decode()


async def test_headers_and_claims_that_no_issuer_makes(door: Door) -> None:
    """What is not signed is refused without a trace, and what is signed, too, where it cannot be a token for us."""
    deep = "[" * 2_900
    for header in (
        "[" * 5_900,
        deep,
        '{"alg":' + deep,
        '{"alg":"ES256","kid":' + "9" * 5_000 + "}",
        '{"alg":"ES256","kid":{"a":1}}',
        '{"alg":"ES256","kid":["first"]}',
        '{"alg":"ES256","kid":7}',
        '{"alg":"ES256","kid":"first","crit":["exp"]}',
        '{"alg":"ES256","kid":"first","b64":false,"crit":["b64"]}',
        '{"alg":"ES256","kid":"first","alg":"none"}',
        '{"alg":"ES256","kid":"../../../../etc/passwd"}',
        '{"alg":"ES256","kid":"\\ud800"}',
        '{"alg":"ES256","jku":"https://evil.example/keys","kid":"x"}',
        '{"alg":"ES256","jwk":{"kty":"oct","k":"AA"},"kid":"x"}',
        "[]",
        "null",
        '"ES256"',
        "\ud800",
    ):
        for claims in (encoded(CLAIMS), raw(deep), raw("[]")):
            for signature in ("", "AA", "A" * 86):
                with pytest.raises(Unauthenticated):
                    await door.ask(f"{raw(header)}.{claims}.{signature}", f"192.0.2.{len(header)}")
                door.authentication._failures.clear()
    issuer = door.issuer
    for header in ({"crit": ["exp"]}, {"crit": ["b64"], "b64": False}, {"crit": []}):
        await door.refused(issuer.token(header=header), "form")
    for claims in (
        {"exp": float("inf")},
        {"exp": "9" * 400},
        {"exp": [4e9]},
        {"exp": True},
        {"nbf": float("inf")},
        {"iat": float("inf")},
        {"iat": "later"},
        {"sub": 7},
        {"sub": ["u7"]},
        {"aud": {"headrace": 1}},
        {"aud": [["headrace"]]},
        {"aud": []},
        {"iss": [NAME]},
        {"role": "\ud800"},
        {"role": {"reader": 1}},
        {"role": ["reader", "ann"]},
        {"role": ""},
    ):
        with pytest.raises(Unauthenticated):
            await door.ask(issuer.token(**claims), "192.0.2.200")
        door.authentication._failures.clear()
    key = issuer.private["first"][1]
    for text in (b"[" * 2_900, b"[]", b"7", b'{"exp":', b"\xff", b'{"exp": 1e999}', b'{"exp": NaN}'):
        with pytest.raises(Unauthenticated):
            await door.ask(jws.encode(text, key, "ES256", headers={"kid": "first"}), "192.0.2.201")
        door.authentication._failures.clear()
