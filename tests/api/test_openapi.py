"""The document at ``/openapi.json``, which ``/docs`` and generated clients are made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
from fake_deployment import FakeDeployment


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from references(each)


async def test_every_reference_leads_somewhere(http: httpx.AsyncClient, fake: FakeDeployment) -> None:
    document = (await http.get("/openapi.json")).json()
    found = set(references(document))
    assert found
    for reference in sorted(found):
        place = document
        for name in reference.removeprefix("#/").split("/"):
            assert name in place, f"{reference} leads nowhere"
            place = place[name]
