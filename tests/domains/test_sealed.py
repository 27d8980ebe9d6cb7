from __future__ import annotations

import json

import pytest

from domains.archive.manifest import opened, sealed

DOCUMENT = {"pid": 4711, "names": ["a", "ä"], "of": {"x": None, "y": 2.5}, "long": "text " * 20}


def test_a_sealed_document_opens_however_it_is_spaced() -> None:
    for indent in (None, 1):
        assert opened(json.loads(json.dumps(sealed(DOCUMENT), indent=indent))) == DOCUMENT
    assert opened(DOCUMENT) == DOCUMENT, "an earlier version's has no checksum"


def test_no_bit_changes_what_is_read() -> None:
    data = json.dumps(sealed(DOCUMENT)).encode()
    for at in range(8 * len(data)):
        turned = bytearray(data)
        turned[at // 8] ^= 1 << at % 8
        try:
            found = opened(json.loads(turned))
        except ValueError:
            continue
        assert {name: found.get(name) for name in DOCUMENT} == DOCUMENT


def test_what_is_no_object_is_refused() -> None:
    with pytest.raises(ValueError, match="no object"):
        opened([1])
