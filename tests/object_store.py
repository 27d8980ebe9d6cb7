"""A store of objects on this machine: moto's S3, behind a door that tells one key from another and can be shut.

Buckets live in this process's memory, and outlast the server: while it is away, nothing is lost there either.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

Environment = dict[str, Any]
Begin = Callable[[str, list[tuple[str, str]]], Any]

REFUSED = (
    b'<?xml version="1.0"?><Error><Code>InvalidAccessKeyId</Code>'
    b"<Message>The AWS Access Key Id you provided does not exist in our records.</Message></Error>"
)


class Quiet(WSGIRequestHandler):
    def log_request(self, *_: object) -> None:
        """A test has hundreds."""


class ObjectStore:
    """``key`` is the one access key that is known; moto itself takes any."""

    def __init__(self, key: str) -> None:
        self.key = key
        self._refuses = False
        self._moto = DomainDispatcherApplication(create_backend_app)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._server: Any = None
        self.open()

    def open(self) -> None:
        self._server = make_server("127.0.0.1", self.port, self._answer, threaded=True, request_handler=Quiet)
        Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    @contextmanager
    def away(self) -> Iterator[None]:
        self.close()
        try:
            yield
        finally:
            self.open()

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """As if the key had been taken back."""
        self._refuses = True
        try:
            yield
        finally:
            self._refuses = False

    def bucket(self, name: str) -> Callable[[str], str]:
        """A new one; answers the URL of a path in it."""
        headers = {"Authorization": f"AWS4-HMAC-SHA256 Credential={self.key}/20260131/us-east-1/s3/aws4_request"}
        urlopen(Request(f"http://127.0.0.1:{self.port}/{name}", method="PUT", headers=headers)).close()
        endpoint = quote(f"127.0.0.1:{self.port}", safe="")
        return lambda path: f"s3://{name}/{path}?endpoint_override={endpoint}&scheme=http"

    def _answer(self, environment: Environment, begin: Begin) -> Iterable[bytes]:
        if not self._refuses and f"Credential={self.key}/" in environment.get("HTTP_AUTHORIZATION", ""):
            answer: Iterable[bytes] = self._moto(environment, begin)
            return answer
        begin("403 Forbidden", [("Content-Type", "application/xml"), ("Content-Length", str(len(REFUSED)))])
        return [REFUSED]
