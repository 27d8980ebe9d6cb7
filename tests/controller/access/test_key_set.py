"""Which keys of a JWKS document are used, for what."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from controller.access.key_set import KeySet, SigningKey
from domains.errors import BadRequest
from tests.kit.issuer import Issuer, Published

ALL = ("RS256", "PS256", "ES256", "EdDSA", "HS256")
SECRET = {"kty": "oct", "kid": "shared", "k": base64.urlsafe_b64encode(b"s" * 32).decode()}


async def read(*keys: dict[str, Any], allowed: tuple[str, ...] = ALL, secret: bool = False) -> KeySet:
    source = Published(json.dumps({"keys": keys}).encode())
    source.secret = secret
    found = KeySet(source, allowed)
    await found._read()
    assert "key_error" not in found.status()
    return found


def kid(found: SigningKey | None) -> str | None:
    return None if found is None else found.kid or ""


async def test_keys_by_name_and_by_kind() -> None:
    issuer = Issuer()
    issuer.rotate("rsa", "RS256")
    issuer.rotate("ed", "EdDSA")
    first, second, third = (issuer.jwk(each) for each in ("first", "rsa", "ed"))
    keys = await read(first, second, third)
    assert kid(keys.find("first", "ES256")) == "first"
    assert kid(keys.find(None, "ES256")) == "first", "the only one of its kind"
    assert keys.find("first", "RS256") is None
    assert keys.find("rsa", "PS256") is None, "it says RS256 itself"
    assert keys.find("nobody", "ES256") is None
    unnamed = {name: value for name, value in first.items() if name not in ("kid", "alg")}
    keys = await read(unnamed, {**second, "alg": "RS256"})
    assert kid(keys.find("any", "ES256")) == ""
    issuer.rotate("another")
    keys = await read(first, issuer.jwk("another"))
    assert keys.find(None, "ES256") is None, "either may be meant"


@pytest.mark.parametrize(
    "changed",
    [
        {"use": "enc"},
        {"key_ops": ["sign"]},
        {"key_ops": "verify"},
        {"alg": "ES384"},
        {"kty": "EC2"},
        {"crv": "P-384"},
        {"crv": "secp256k1"},
        {"crv": ["P-256"]},
        {"x": None},
        {"x": "AA"},
        {"y": 7},
        {"kid": 7},
    ],
)
async def test_what_cannot_be_used_is_passed_over(changed: dict[str, Any]) -> None:
    issuer = Issuer()
    keys = await read({**issuer.jwk("first"), **changed}, SECRET)
    assert keys.status()["keys"] == 0
    good = issuer.jwk("first")
    assert (await read({**good, **changed}, good)).status()["keys"] == 1


async def test_weak_and_endless_keys(caplog: pytest.LogCaptureFixture) -> None:
    small = RSAAlgorithm.to_jwk(rsa.generate_private_key(65537, 1024).public_key(), as_dict=True)
    usual = RSAAlgorithm.to_jwk(rsa.generate_private_key(65537, 2048).public_key(), as_dict=True)
    endless = {**usual, "n": "f" * 400_000}
    slow = {**usual, "e": usual["n"]}
    keys = await read({**small, "kid": "a"}, {**endless, "kid": "b"}, {**slow, "kid": "c"}, {**usual, "kid": "d"})
    assert [each.kid for each in keys._keys] == ["d"]
    assert caplog.text.count("passed over") == 3


async def test_a_private_key_that_was_published_is_held_as_a_public_one(caplog: pytest.LogCaptureFixture) -> None:
    private = RSAAlgorithm.to_jwk(rsa.generate_private_key(65537, 2048), as_dict=True)
    keys = await read({**private, "key_ops": ["sign", "verify"]})
    (key,) = keys._keys
    assert {name for name, _ in key.members} == {"kty", "n", "e"}
    assert not hasattr(key.key, "private_numbers")
    assert private["d"] not in caplog.text


async def test_shared_secrets_come_from_a_file_and_are_asked_for() -> None:
    for allowed, secret, count in ((ALL, False, 0), (ALL, True, 1), (("ES256",), True, 0)):
        keys = await read(SECRET, allowed=allowed, secret=secret)
        assert keys.status()["keys"] == count
    short = {**SECRET, "k": base64.urlsafe_b64encode(b"short").decode()}
    assert (await read(short, secret=True)).status()["keys"] == 0


@pytest.mark.parametrize("document", [b"", b"{}", b'{"keys": []}', json.dumps({"keys": [SECRET]}).encode()])
async def test_a_start_without_a_key_says_so(document: bytes) -> None:
    keys = KeySet(Published(document), ("ES256",))
    with pytest.raises(BadRequest, match="keys of tokens") as refused:
        await keys.start(must_read=True)
    assert "JWKS" in (refused.value.hint or "")
