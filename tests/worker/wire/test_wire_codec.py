"""Everything that may be sent arrives as it was, and nothing else is made of any bytes."""

from __future__ import annotations

import inspect
import tracemalloc
from contextlib import suppress
from dataclasses import is_dataclass, replace
from random import Random
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_objects import error, expression, instance, plain, update

from domains import errors
from domains.errors import HeadraceError, LimitExceeded, NotFound, SqlError
from domains.language import expressions, types
from domains.language.expressions import Call, Constant, Expression, Field
from domains.language.types import BIGINT, BOOL
from domains.plan import commands, graph, packets
from domains.plan.graph import Filter
from domains.plan.packets import Failed, Insert, Publish, Reply, Send
from worker.protocol import messages
from worker.protocol.messages import ConnectionLost, NotHere, ProtocolError, Report, StatusDocument
from worker.wire import frames, vocabulary
from worker.wire.codec import decode, encode
from worker.wire.frames import Cutter, framed, opened
from worker.wire.vocabulary import CLASSES, ERRORS, details_of

ROOMS = (commands, errors, expressions, graph, packets, types, messages)
NEVER_SENT = {Publish, Reply, Send, types.Origin}
"""Effects: each is performed by the process whose domain ordered it; and what only clients are told."""


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_class_arrives_as_it_was(kind: type) -> None:
    for seed in range(60):
        random = Random(f"{kind.__name__} {seed}")
        sent = expression(random) if kind in vocabulary.EXPRESSIONS else instance(random, kind)
        data = encode(sent)
        received = decode(data)
        assert plain(received) == plain(sent), seed
        assert encode(received) == data, seed


@pytest.mark.parametrize("kind", ERRORS.values(), ids=lambda kind: kind.__name__)
def test_every_error_arrives_as_it_was(kind: type[HeadraceError]) -> None:
    for seed in range(10):
        sent = error(Random(seed), kind)
        received = decode(encode(sent))
        assert type(received) is kind
        assert (str(received), plain(received), received.args) == (str(sent), plain(sent), (sent.message,))


def test_an_error_keeps_what_its_constructor_made() -> None:
    received = decode(encode(Failed(SqlError("no such thing", hint="look", line=3, column=4))))
    assert str(received.error) == "no such thing at line 3, column 4 (look)"
    assert (received.error.line, received.error.column) == (3, 4)
    assert decode(encode(NotHere("gone", epoch=7))).epoch == 7
    assert decode(encode(ConnectionLost("gone", sent=True))).sent


def test_an_error_of_a_class_that_is_not_known_is_its_base_class() -> None:
    class Special(NotFound):
        code = "special"

    assert plain(decode(encode(Special("x", hint="y")))) == plain(NotFound("x", hint="y"))
    other_version = msgpack.packb(("HeadraceError", "new_in_2", "we speak 2", None, 1, 2))
    assert plain(decode(other_version)) == plain(HeadraceError("we speak 2"))


def test_nothing_is_forgotten() -> None:
    """A dataclass that is new in one of these modules is added to the vocabulary or named here."""
    found = {
        each
        for room in ROOMS
        for each in vars(room).values()
        if inspect.isclass(each) and is_dataclass(each) and each.__module__ == room.__name__
    }
    assert found - NEVER_SENT == {each for each in CLASSES if each.__module__ in {room.__name__ for room in ROOMS}}
    own = {
        each
        for room in (errors, messages, vocabulary)
        for each in vars(room).values()
        if inspect.isclass(each) and issubclass(each, HeadraceError)
    }
    assert own == set(ERRORS.values())


def test_what_is_not_of_the_vocabulary_is_not_sent() -> None:
    for thing in (Publish(graph.NodeIndex(1)), object(), 3):
        with pytest.raises(AssertionError, match="vocabulary"):
            encode(thing)


def test_details_are_the_further_arguments() -> None:
    assert details_of(SqlError) == ("line", "column")
    assert details_of(NotFound) == ()


def test_an_expression_may_be_of_any_depth() -> None:
    condition: Expression = Field(0, BOOL)
    for number in range(5000):
        condition = Call("or", (condition, Constant(number, BIGINT)), BOOL)
    data = encode(Filter(condition))
    received = decode(data)
    assert encode(received) == data
    at = received.predicate
    for number in reversed(range(5000)):
        assert at.arguments[1].value == number
        at = at.arguments[0]


def test_a_document_that_nests_too_deep_is_refused_in_words() -> None:
    deep: Any = []
    for _ in range(2000):
        deep = [deep]
    with pytest.raises(LimitExceeded, match="nests too deep"):
        encode(StatusDocument({"deep": deep}))


@given(st.binary(max_size=300))
def test_garbage_is_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(data)


SENT = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=9)
    | st.binary(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=4) | st.integers(0, 99), inner, max_size=4)
    ),
    max_leaves=30,
)
NAMES = sorted({each.__name__ for each in CLASSES} | {"Expression", "HeadraceError"})


@given(st.sampled_from(NAMES), st.lists(SENT, max_size=8))
@settings(max_examples=1500, deadline=None)
def test_what_is_made_of_any_fields_is_a_message_or_a_protocol_error(name: str, sent: list[Any]) -> None:
    data = msgpack.packb((name, *sent))
    with suppress(ProtocolError):
        assert type(decode(data)).__name__ in NAMES or name in ("Expression", "HeadraceError")


@given(st.data())
@settings(max_examples=1500, deadline=None)
def test_what_a_change_makes_of_a_message_is_a_message_or_a_protocol_error(data: st.DataObject) -> None:
    random = Random(data.draw(st.integers(0, 2**32)))
    kind = random.choice(CLASSES)
    sent = bytearray(encode(expression(random) if kind in vocabulary.EXPRESSIONS else instance(random, kind)))
    at = data.draw(st.integers(0, len(sent)))
    sent[at : at + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=9))
    with suppress(ProtocolError):
        encode(decode(bytes(sent)))


MEGABYTE = 1 << 20
LARGE = {
    "empty maps": b"\xdd" + MEGABYTE.to_bytes(4, "big") + b"\x80" * MEGABYTE,
    "maps of one": b"\xdd" + MEGABYTE.to_bytes(4, "big") + b"\x81\xc0\xc0" * MEGABYTE,
    "lists that do not come": (b"\xdd" + MEGABYTE.to_bytes(4, "big")) * 500 + b"\xc0" * MEGABYTE,
    "maps that do not come": (b"\xdf" + MEGABYTE.to_bytes(4, "big")) * 500 + b"\xc0" * MEGABYTE,
    "lists in lists": b"\x91" * MEGABYTE,
    "a number of a megabyte": b"\xc9" + MEGABYTE.to_bytes(4, "big") + b"\x02" + b"\x7f" * MEGABYTE,
    "digits of a megabyte": b"\xc9" + MEGABYTE.to_bytes(4, "big") + b"\x01" + b"9" * MEGABYTE,
}


@pytest.mark.parametrize("data", LARGE.values(), ids=LARGE)
def test_a_large_message_takes_no_more_memory_than_it_may(data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            decode(data)
        assert tracemalloc.get_traced_memory()[1] < 20 * len(data)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("text", ["1E+999999999", "1E-999999999", "NaN", "Infinity", "sNaN"])
def test_a_decimal_that_no_column_has_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError):
        decode(msgpack.packb(("Constant", msgpack.ExtType(1, text.encode()))))


def test_a_large_document_arrives() -> None:
    document = {"rows": [{"number": number, "name": f"t{number}"} for number in range(20_000)]}
    assert decode(encode(StatusDocument(document))).document == document


def test_spoilt_messages_are_protocol_errors_or_messages() -> None:
    """What a few wrong bytes make of a message: an object of the vocabulary that could be sent, or ProtocolError."""
    refused = kept = 0
    for seed in range(8000):
        random = Random(seed)
        kind = random.choice(CLASSES)
        sent = expression(random) if kind in vocabulary.EXPRESSIONS else instance(random, kind)
        data = bytearray(encode(sent))
        for _ in range(random.randint(1, 3)):
            data[random.randrange(len(data))] = random.randrange(256)
        if random.random() < 0.2:
            del data[random.randrange(len(data)) :]
        try:
            received = decode(bytes(data))
        except ProtocolError:
            refused += 1
        else:
            kept += 1
            # What came through has the types that its class says, down to the last value: it can be sent again.
            again = decode(encode(received))
            assert plain(again) == plain(received) or "nan" in repr(received), seed
    assert min(refused, kept) > 1000


@pytest.mark.parametrize(
    "spoilt",
    [
        ("Ping", "one"),
        ("Ping", True),
        ("Ping",),
        ("Ping", 1, 2),
        ("Pang", 1),
        (),
        None,
        {"Ping": 1},
        (["Ping"], 1),
        ("Upquery", 1, 1, 1, (1, "2"), ()),
        ("Upquery", 1, 1, 1, (1,), ((1, (2,)),)),
        ("Filter", ("Ping", 1)),
        ("Filter", ("Expression", ("add", 2, ("SqlType", "INTEGER", "INT", None, 0, None, None)))),
        ("Filter", ("Expression",)),
        ("LinkUpdate", 1, 1, 1, {"a": "b"}, (), (), (), (), ()),
        ("LinkUpdate", 1, 1, 1, {}, (), ((4, (((1, True), 1),)),), (), (), ()),
        ("LinkUpdate", 1, 1, 1, {}, (), ((4, (((1,), 1.0),)),), (), (), ()),
        ("LinkUpdate", 1, 1, 1, {}, (), ((4, ((b"r", 1),)),), (), (), ()),
        ("LinkUpdate", 1, 1, 1, {}, (), (), (("Ping", 1),), (), ()),
        ("LinkUpdate", 1, 1, 1, {}, (), (), (), (), (("Unfilled", 4, (0,), (1,), "not an error"),)),
        ("HeadraceError", ["not_found"], "x", None),
        ("HeadraceError", "not_found", 3, None),
        ("HeadraceError", "not_here", "x", None),
        msgpack.ExtType(9, b"x"),
        msgpack.ExtType(1, b"one"),
    ],
    ids=repr,
)
def test_a_field_of_the_wrong_type_is_a_protocol_error(spoilt: Any) -> None:
    with pytest.raises(ProtocolError):
        decode(msgpack.packb(spoilt))


def test_the_protocol_is_another_when_a_field_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert vocabulary.PROTOCOL.endswith(f"{vocabulary._digest():08x}")
    monkeypatch.setattr(vocabulary, "CLASSES", tuple(each for each in CLASSES if each is not Report))
    assert not vocabulary.PROTOCOL.endswith(f"{vocabulary._digest():08x}")


# --- frames -------------------------------------------------------------------------------------------------------


def test_frames_are_cut_out_of_any_pieces() -> None:
    random = Random(5)
    sent = [framed(number, update(number, "x" * random.randrange(400))) for number in range(200)]
    data = b"".join(sent)
    cutter, received, at = Cutter(), [], 0
    while at < len(data):
        size = random.choice((1, 2, 3, 50, 3000))
        received += cutter.cut(data[at : at + size])
        at += size
    assert [opened(content)[0] for content in received] == list(range(200))
    assert [len(content) + 4 for content in received] == list(map(len, sent))


def test_a_frame_over_the_limit_is_refused_before_it_arrives() -> None:
    small = framed(1, update(1))
    cutter = Cutter(limit=len(small))
    assert len(cutter.cut(small + b"\x7f\xff\xff\xff")) == 1
    with pytest.raises(ProtocolError, match="over the limit"):
        cutter.cut(b"")


def test_a_message_over_the_limit_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "FRAME_MAX", 1000)
    insert = Insert("t", (("x" * 500, "y" * 500),))
    with pytest.raises(LimitExceeded, match="over the limit"):
        framed(1, insert)
    assert framed(1, replace(insert, rows=()))
