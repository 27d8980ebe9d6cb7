"""Who has written upstream waits here until that has come; how far a follower is, in status and metrics."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest

from headrace.errors import BadRequest, HeadraceError, NotFound, ReadTimeout, Unavailable
from headrace.upstream.columns import Stopped
from tests.upstream.upstream_server import position_of


def positions_of(token: str) -> dict[str, int]:
    positions: dict[str, int] = json.loads(base64.urlsafe_b64decode(token.removeprefix("h1.") + "=="))
    return positions


def test_a_read_waits_for_a_position(shop: Any, upstream: Any) -> None:
    table = f"t_{shop.name}"
    shop.run(f"CREATE TABLE {table} (id INT PRIMARY KEY, n INT)", f"INSERT INTO {table} VALUES (1, 1)")
    shop.import_()
    shop.here.execute(f"CREATE VIEW v_{shop.name} AS SELECT n FROM {table} WHERE id = ?")
    assert shop.here.view(f"v_{shop.name}").lookup(id=1) == [{"n": 1}]
    shop.run(f"UPDATE {table} SET n = 2")
    tokens: list[str] = []
    position = position_of(upstream)
    waiting = [Thread(target=lambda: tokens.append(shop.here.upstream_token(shop.name, position))) for _ in range(3)]
    for each in waiting:
        each.start()
    shop.follow()
    for each in waiting:
        each.join(30)
    assert len(tokens) == 3
    for token in tokens:
        assert {name.partition("@")[0] for name in positions_of(token)} >= {table}, "a view of it would not wait"
        assert shop.here.view(f"v_{shop.name}").lookup_many([[1]], token=token) == [[{"n": 2}]]


def test_what_cannot_be_waited_for_is_told(shop: Any, upstream: Any) -> None:
    table = f"t_{shop.name}"
    shop.run(f"CREATE TABLE {table} (id INT PRIMARY KEY, n INT)", f"INSERT INTO {table} VALUES (1, 1)")
    shop.import_()
    token = shop.here.upstream_token
    refused: list[tuple[type[HeadraceError], str, Callable[[], Any]]] = [
        (NotFound, "no database", lambda: token("nothing", "0-1-1")),
        (BadRequest, "no position", lambda: token(shop.name, "soon")),
        (BadRequest, "no position of", lambda: token(shop.name, "0/16B3748")),
        (ReadTimeout, "did not reach", lambda: token(shop.name, "0-1-99999999")),
    ]
    for kind, word, ask in refused:
        with pytest.raises(kind, match=word):
            ask()
    shop.run(f"DROP TABLE {table}")
    with pytest.raises(Stopped):
        shop.follow()
    with pytest.raises(Unavailable, match="not followed any more"):
        token(shop.name, position_of(upstream))


def test_status_and_metrics_say_how_far_it_is(shop: Any, upstream: Any) -> None:
    table = f"t_{shop.name}"
    shop.run(f"CREATE TABLE {table} (id INT PRIMARY KEY, n INT)", f"INSERT INTO {table} VALUES (1, 1)")
    shop.import_()
    shop.run(f"UPDATE {table} SET n = 2")
    shop.follow()
    told = shop.here.status()["upstreams"][shop.name]
    assert told["position"] == position_of(upstream)
    assert 0 <= told["lag"] < 10
    assert 0 <= told["silent"] < 10
    assert told["alarm"] == ""
    _, _, metrics = shop.here.fetch("/metrics")
    assert f'headrace_upstream_lag{{upstream="{shop.name}"}} {told["lag"]}' in metrics.decode()
    shop.run(f"DROP TABLE {table}")
    with pytest.raises(Stopped):
        shop.follow()
    assert "is not what it was" in shop.here.status()["upstreams"][shop.name]["alarm"]
    assert f'upstream "{shop.name}"' in shop.here.status()["health"]
