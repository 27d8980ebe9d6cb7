"""An issuer of tokens, with its keys: what it signs, and what it publishes."""

from __future__ import annotations

import json
import time
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt import api_jws as jws
from jwt.algorithms import get_default_algorithms

NAME = "https://issuer.example/"
AUDIENCE = "headrace"


class Issuer:
    def __init__(self) -> None:
        self.private: dict[str, tuple[str, Any]] = {}
        """The algorithm and the key, by kid."""
        self.rotate("first")

    def rotate(self, kid: str, algorithm: str = "ES256") -> None:
        """One more key."""
        if algorithm in ("EdDSA",):
            key: Any = ed25519.Ed25519PrivateKey.generate()
        elif algorithm.startswith("ES"):
            curves = {"ES256": ec.SECP256R1, "ES384": ec.SECP384R1, "ES512": ec.SECP521R1}
            key = ec.generate_private_key(curves[algorithm]())
        else:
            key = rsa.generate_private_key(65537, 2048)
        self.private[kid] = algorithm, key

    def jwk(self, kid: str) -> dict[str, Any]:
        algorithm, key = self.private[kid]
        public = get_default_algorithms()[algorithm].to_jwk(key.public_key(), as_dict=True)  # type: ignore[attr-defined]
        return {**public, "kid": kid, "use": "sig", "alg": algorithm}

    def document(self) -> bytes:
        return json.dumps({"keys": [self.jwk(kid) for kid in self.private]}).encode()

    def token(self, kid: str = "", *, header: dict[str, Any] | None = None, **claims: Any) -> str:
        """Of the latest key, valid for a minute; a claim of None is left out."""
        kid = kid or list(self.private)[-1]
        algorithm, key = self.private[kid]
        now = int(time.time())
        told = {"iss": NAME, "aud": AUDIENCE, "sub": "u7", "role": "reader", "iat": now, "exp": now + 60, **claims}
        told = {name: value for name, value in told.items() if value is not None}
        return jws.encode(json.dumps(told).encode(), key, algorithm, headers={"kid": kid, **(header or {})})


class Published:
    """A source of keys (``controller.access.key_set.KeySource``) that a test holds in its hands."""

    name = "https://issuer.example/keys"
    secret = False
    seconds = 3600.0

    def __init__(self, document: bytes = b"") -> None:
        self.document = document
        self.error: Exception | None = None
        self.readings = 0

    async def read(self) -> bytes:
        self.readings += 1
        if self.error is not None:
            raise self.error
        return self.document
