"""PostgreSQL's messages: whatever is encoded as the manual says is decoded as it was; nothing else is."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.upstream.columns import Stopped
from headrace.upstream.postgres import pgoutput as told
from headrace.upstream.postgres.pgoutput import EPOCH, UNCHANGED, decode

NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
VALUES = st.one_of(st.none(), st.just(UNCHANGED), NAMES)
ROWS = st.lists(VALUES, max_size=5).map(tuple)
LSNS, OIDS = st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1)
TIMES = st.integers(0, 2**50).map(lambda micros: EPOCH + micros / 1e6)
COLUMNS = st.builds(told.RelationColumn, st.booleans(), NAMES, OIDS, st.integers(-1, 2**31 - 1))
MESSAGES: st.SearchStrategy[Any] = st.one_of(
    st.builds(told.ToldBegin, LSNS, TIMES, OIDS),
    st.builds(told.ToldCommit, LSNS, LSNS, TIMES),
    st.builds(told.ToldOrigin, LSNS, NAMES),
    st.builds(told.ToldRelation, OIDS, NAMES, NAMES, st.sampled_from("dfin"), st.lists(COLUMNS, max_size=4).map(tuple)),
    st.builds(told.ToldType, OIDS, NAMES, NAMES),
    st.builds(told.ToldInsert, OIDS, ROWS),
    st.builds(told.ToldUpdate, OIDS, ROWS, st.none(), ROWS),
    st.builds(told.ToldUpdate, OIDS, st.none(), st.one_of(st.none(), ROWS), ROWS),
    st.builds(told.ToldDelete, OIDS, ROWS, st.none()),
    st.builds(told.ToldDelete, OIDS, st.none(), ROWS),
    st.builds(told.ToldTruncate, st.lists(OIDS, max_size=3).map(tuple), st.booleans(), st.booleans()),
    st.builds(told.ToldMessage, st.booleans(), LSNS, NAMES, st.binary(max_size=20)),
)


def text(value: str) -> bytes:
    return value.encode() + b"\0"


def row(values: told.ToldRow) -> bytes:
    def one(value: Any) -> bytes:
        if value is None or value is UNCHANGED:
            return b"n" if value is None else b"u"
        return b"t" + struct.pack(">i", len(value.encode())) + value.encode()

    return struct.pack(">H", len(values)) + b"".join(map(one, values))


def time(at: float) -> bytes:
    return struct.pack(">q", round((at - EPOCH) * 1e6))


def encoded(message: told.Decoded) -> bytes:
    match message:
        case told.ToldBegin(commit, at, xid):
            return b"B" + struct.pack(">Q", commit) + time(at) + struct.pack(">I", xid)
        case told.ToldCommit(commit, end, at):
            return b"C\0" + struct.pack(">QQ", commit, end) + time(at)
        case told.ToldOrigin(commit, name):
            return b"O" + struct.pack(">Q", commit) + text(name)
        case told.ToldRelation(id, schema, name, identity, columns):
            head = b"R" + struct.pack(">I", id) + text(schema) + text(name) + identity.encode()
            parts = [
                struct.pack(">B", each.is_key) + text(each.name) + struct.pack(">Ii", each.oid, each.modifier)
                for each in columns
            ]
            return head + struct.pack(">H", len(columns)) + b"".join(parts)
        case told.ToldType(oid, schema, name):
            return b"Y" + struct.pack(">I", oid) + text(schema) + text(name)
        case told.ToldInsert(relation, new):
            return b"I" + struct.pack(">I", relation) + b"N" + row(new)
        case told.ToldUpdate(relation, key, old, new):
            before = b"" if key is old is None else b"K" + row(key) if key is not None else b"O" + row(old or ())
            return b"U" + struct.pack(">I", relation) + before + b"N" + row(new)
        case told.ToldDelete(relation, key, old):
            return b"D" + struct.pack(">I", relation) + (b"K" + row(key) if key is not None else b"O" + row(old or ()))
        case told.ToldTruncate(relations, cascade, restart):
            flags = cascade | restart << 1
            return (
                b"T"
                + struct.pack(">IB", len(relations), flags)
                + b"".join(struct.pack(">I", each) for each in relations)
            )
        case told.ToldMessage(transactional, lsn, prefix, content):
            return (
                b"M" + struct.pack(">BQ", transactional, lsn) + text(prefix) + struct.pack(">I", len(content)) + content
            )


@given(MESSAGES)
@settings(max_examples=200, deadline=None)
def test_what_is_encoded_is_decoded(message: told.Decoded) -> None:
    assert decode(encoded(message)) == message


@given(MESSAGES, st.integers(1, 4))
@settings(max_examples=100, deadline=None)
def test_what_ends_elsewhere_stops(message: told.Decoded, more: int) -> None:
    payload = encoded(message)
    for broken in (payload + b"\0" * more, payload[:-more]):
        if len(broken) > 1:
            with pytest.raises(Stopped):
                decode(broken)


@pytest.mark.parametrize(
    ("payload", "word"),
    [
        (b"S\0\0\0\1\1", "streamed before its end"),
        (b"b" + b"\0" * 40, "two phases"),
        (b"Z", "kind 'Z', which is not known"),
        (b"I\0\0\0\1N\0\1b\0\0\0\1x", "kind 'b'"),
        (b"C\1" + b"\0" * 24, "flags"),
    ],
)
def test_what_was_not_asked_for_stops_by_name(payload: bytes, word: str) -> None:
    with pytest.raises(Stopped, match=word):
        decode(payload)
