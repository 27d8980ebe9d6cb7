"""The same client over a socket and embedded, blocking and awaited."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from math import inf, nan
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import UUID

import headrace_client
import pytest
from fake_deployment import FakeDeployment
from headrace_client import calls, encoding
from headrace_client.calls import read_answer
from headrace_client.connection import Connection
from headrace_client.encoding import to_json, to_text
from headrace_client.tokens import Token, decode, merge
from serving_process import SCHEMA, Launch, ahead_of

import headrace
from headrace import connect, connect_async, errors
from headrace.embedding import embedded
from headrace.serving.opening import open_deployment
from headrace.settings import Settings


async def open_fake(settings: Settings) -> FakeDeployment:
    return FakeDeployment(settings.read_timeout)


@pytest.fixture(params=["fake server", "fake embedded", "local server", "local embedded"])
def db(request: pytest.FixtureRequest, shared: Callable[[str], str], tmp_path: Path) -> Iterator[Connection]:
    kind, where = request.param.split()
    if where == "server":
        opened = connect(shared(kind))
    else:
        opened = embedded(tmp_path, opener=open_fake if kind == "fake" else open_deployment, read_timeout=60)
    with opened as db:
        db.execute(SCHEMA)
        yield db


@pytest.fixture(params=["served", "embedded"])
def hasty(request: pytest.FixtureRequest, launch_local: Launch, tmp_path: Path) -> Iterator[Connection]:
    """Its reads wait for next to nothing."""
    if request.param == "served":
        opened = connect(launch_local("--read-timeout", "0.1").url)
    else:
        opened = embedded(tmp_path, read_timeout=0.1)
    with opened as db:
        yield db


def test_execute(db: Connection) -> None:
    inserted = db.execute("INSERT INTO stories (id, title) VALUES (?, ?)", [1, "one"])
    assert inserted.rows_affected == 1
    result = db.execute("SELECT id, title FROM stories WHERE id = ?", [1], token=inserted.token)
    assert result.columns == (("id", "BIGINT"), ("title", "TEXT"))
    assert result.rows == ((1, "one"),)
    assert list(result) == [(1, "one")]
    assert len(result) == 1
    assert result.records() == [{"id": 1, "title": "one"}]
    both = db.execute_all("SELECT id FROM stories; SELECT title FROM stories")
    assert [each.rows for each in both] == [((1,),), (("one",),)]


def test_view(db: Connection) -> None:
    written = db.table("stories").insert([{"id": 1, "title": "one"}, {"id": 2, "title": "two"}])
    assert written.rows_affected == 2
    view = db.view("StoriesWithVC")
    assert view.lookup(id=1, token=written.token) == [{"id": 1, "title": "one", "vcount": 0}]
    assert view.lookup({"id": 1}) == view.lookup(id=1)
    assert view.lookup(id=None) == []
    pages = view.lookup_many([2, (9,), [1], {"id": 2}], token=written.token)
    assert [[row["id"] for row in page] for page in pages] == [[2], [], [1], [2]]
    assert sorted(row["id"] for row in db.view("ByIds").lookup(id=[1, 2, 3])) == [1, 2]
    several = db.lookups(
        [("StoriesWithVC", [2, 9]), ("ByIds", []), ("StoriesWithVC", [{"id": 1}])], token=written.token
    )
    assert [[[row["id"] for row in page] for page in pages] for pages in several] == [[[2], []], [], [[1]]]
    first_of, of_all, of_each = (make(0, "id") for make in (encoding.first, encoding.all_of, encoding.each))
    referring = db.lookups([("StoriesWithVC", [2, 1]), ("ByIds", [[of_all]]), ("StoriesWithVC", [of_each, [first_of]])])
    assert [[[row["id"] for row in page] for page in pages] for pages in referring[2:]] == [[[2], [1], [2]]]
    assert sorted(row["id"] for row in referring[1][0]) == [1, 2]
    assert view.evict([1]) == 1
    assert "StoriesWithVC" in view.explain()


def test_table(db: Connection) -> None:
    stories = db.table("stories")
    stories.insert({"id": 1, "title": "one"})
    updated = stories.update({"id": 1}, {"title": "uno"})
    assert db.view("StoriesWithVC").lookup(id=1, token=updated.token)[0]["title"] == "uno"
    assert stories.delete({"id": 1}).rows_affected == 1


def test_migration(db: Connection) -> None:
    seen: list[float] = []
    migration = db.migrate("CREATE VIEW AllIds AS SELECT id FROM stories")
    assert migration.wait(60, lambda status: seen.append(status.progress)).state == "done"
    assert seen[-1] == 1
    assert db.view("AllIds").lookup() == []


def test_shows(db: Connection) -> None:
    assert {each["name"] for each in db.tables()} == {"stories", "votes"}
    assert {each["name"] for each in db.views()} >= {"StoriesWithVC", "ByIds"}
    assert "counters" in db.status()
    assert "domains" in db.graph()


def test_errors_are_exceptions(db: Connection) -> None:
    with pytest.raises(errors.SqlSyntaxError) as syntax:
        db.execute("SELEC 1")
    assert syntax.value.line == 1
    assert str(syntax.value).count(f"at line 1, column {syntax.value.column}") == 1
    with pytest.raises(errors.NotFound, match="did you mean"):
        db.view("StoriesWithVX").lookup(id=1)
    with pytest.raises(errors.TypeViolation):
        db.view("StoriesWithVC").lookup(id="seven")
    with pytest.raises(errors.ConstraintViolation):
        db.table("stories").insert([{"id": 1}, {"id": 1}])
    with pytest.raises(errors.BadRequest, match="token"):
        db.view("ByIds").lookup(id=1, token="nonsense")
    with pytest.raises(errors.BadRequest, match="statement"):
        db.execute(" ; ")
    with pytest.raises((errors.NotFound, errors.UnknownName)):
        db.migrate("DROP VIEW nothing")


def test_a_token_of_another_deployment_times_out(hasty: Connection) -> None:
    hasty.execute(SCHEMA)
    written = hasty.table("stories").insert({"id": 2})
    with pytest.raises(errors.ReadTimeout):
        hasty.view("ByIds").lookup(id=1, token=ahead_of(written.token))


def test_closed(db: Connection) -> None:
    db.close()
    db.close()
    with pytest.raises(errors.ConnectionFailed, match="closed"):
        db.status()


def test_read_your_writes(served: str) -> None:
    with connect(served, read_your_writes=True) as db:
        assert db.token is None
        db.execute(SCHEMA)
        db.table("stories").insert({"id": 1, "title": "one"})
        first = db.token
        db.execute("INSERT INTO votes (story_id, user_id) VALUES (1, 2)")
        assert first
        assert db.token not in (None, first)
        assert db.view("StoriesWithVC").lookup(id=1)[0]["vcount"] == 1


def test_tokens_merge(served_local: str) -> None:
    with connect(served_local) as db:
        db.execute(SCHEMA)
        story = db.table("stories").insert({"id": 1, "title": "one"}).token
        vote = db.execute("INSERT INTO votes (story_id, user_id) VALUES (1, 2)").token
        assert decode(story | vote) == merge(decode(story), decode(vote)) == decode(vote | story)
        assert db.view("StoriesWithVC").lookup(id=1, token=story | vote) == [{"id": 1, "title": "one", "vcount": 1}]
        assert isinstance(str(vote) | story, Token)
        with pytest.raises(errors.BadRequest, match="token"):
            story | "nonsense"


def test_a_session_waits_for_its_own_writes_alone(hasty: Connection) -> None:
    """Two users of one web application share its connections, and not what they wait for."""
    hasty.execute(SCHEMA)
    ann, bob = hasty.session(), hasty.session()
    written = ann.table("stories").insert({"id": 1, "title": "one"})
    assert (ann.token, bob.token, hasty.token) == (written.token, None, None)
    assert bob.view("ByIds").lookup(id=9) == []
    later = hasty.session(ann.token)
    assert later.view("StoriesWithVC").lookup(id=1) == [{"id": 1, "title": "one", "vcount": 0}]
    unreached = hasty.session(ahead_of(written.token))
    for given in (None, written.token):  # What is remembered holds beside what a call is given.
        with pytest.raises(errors.ReadTimeout):
            unreached.view("ByIds").lookup(id=1, token=given)
    with pytest.raises(errors.BadRequest, match="token"):
        hasty.session("nonsense")
    with ann:
        pass
    assert bob.view("ByIds").lookup(id=1) == [{"id": 1}]
    hasty.close()
    with pytest.raises(errors.ConnectionFailed, match="closed"):
        bob.status()


async def test_an_awaited_session(served_local: str) -> None:
    async with connect_async(served_local) as db:
        await db.execute(SCHEMA)
        async with db.session() as ann:
            written = await ann.table("stories").insert({"id": 1, "title": "one"})
            assert (ann.token, db.token) == (written.token, None)
        assert await db.session(ann.token).view("ByIds").lookup(id=1) == [{"id": 1}]


def test_embedded_is_used_by_many_threads(tmp_path: Path) -> None:
    with embedded(tmp_path, opener=open_fake) as db:
        db.execute(SCHEMA)
        work = [Thread(target=db.table("stories").insert, args=([{"id": n, "title": "x"}],)) for n in range(20)]
        for thread in work:
            thread.start()
        for thread in work:
            thread.join()
        assert len(db.execute("SELECT id FROM stories")) == 20


def test_embedded_closes_its_deployment(tmp_path: Path) -> None:
    kept: list[FakeDeployment] = []

    async def opener(settings: Settings) -> FakeDeployment:
        assert settings.memory_limit == 10_000_000
        kept.append(FakeDeployment())
        return kept[0]

    with embedded(tmp_path, opener=opener, memory_limit="10MB"):
        assert not kept[0].closed
    assert kept[0].closed


def test_embedded_that_cannot_open(tmp_path: Path) -> None:
    async def opener(_: Settings) -> FakeDeployment:
        raise errors.StorageFailure("the data directory is in use")

    with pytest.raises(errors.StorageFailure):
        embedded(tmp_path, opener=opener)


async def test_async_client(served: str) -> None:
    async with connect_async(served, read_your_writes=True) as db:
        await db.execute(SCHEMA)
        await db.table("stories").insert([{"id": 1, "title": "one"}])
        await db.table("stories").update({"id": 1}, {"title": "eins"})
        await db.table("stories").insert({"id": 1, "title": "uno"}, on_duplicate="update", update=["title"])
        view = db.view("StoriesWithVC")
        assert await view.lookup(id=1) == [{"id": 1, "title": "uno", "vcount": 0}]
        assert await view.lookup_many([1, 2]) == [[{"id": 1, "title": "uno", "vcount": 0}], []]
        assert await view.evict([1]) in (0, 1)
        assert "StoriesWithVC" in await view.explain()
        assert (await (await db.migrate("CREATE VIEW AllIds AS SELECT id FROM stories")).wait(60)).state == "done"
        assert (await db.table("stories").delete({"id": 1})).rows_affected == 1
        assert {each["name"] for each in await db.tables()} == {"stories", "votes"}
        assert len(await db.views()) == 3
        assert "counters" in await db.status()
        assert "domains" in await db.graph()
        with pytest.raises(errors.NotFound):
            await db.view("nothing").lookup()
    with pytest.raises(errors.ConnectionFailed, match="closed"):
        await db.status()


async def test_what_a_reader_holds(served_local: str) -> None:
    with connect(served_local, read_your_writes=True) as db:
        db.execute(SCHEMA)
        db.table("stories").insert([{"id": 1, "title": "one"}])
        db.view("StoriesWithVC").lookup(id=1)
        lines = list(db.view("StoriesWithVC").held())
    async with connect_async(served_local) as awaiting:
        awaited = [line async for line in awaiting.view("StoriesWithVC").held()]
        with pytest.raises(errors.NotFound):
            await anext(awaiting.view("nothing").held())
    assert b'"one"' in b"".join(lines)
    assert b'"end"' in lines[-1]
    assert awaited == lines


def test_both_clients_have_the_same_surface() -> None:
    from headrace_client import async_connection, connection

    # Of live views: what they are made of, a poll of one and a stream of the other.
    live = {"fetch", "streamed"}
    for name in ("Connection", "View", "Table", "Migration"):
        blocking, awaited = getattr(connection, name), getattr(async_connection, f"Async{name}")
        public = {each for each in vars(blocking) if not each.startswith("_")}
        assert public - live == {each for each in vars(awaited) if not each.startswith("_")} - live


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "127.0.0.1:1", "http://[", "ftp://x"])
async def test_nobody_there(url: str) -> None:
    with pytest.raises(errors.ConnectionFailed):
        connect(url).status()
    with pytest.raises(errors.ConnectionFailed):
        await connect_async(url).status()


@pytest.mark.parametrize("content", [b"<html>", b"[]", b'{"error": "x"}', b'{"results": 1}', b"null"])
@pytest.mark.parametrize("status", [200, 404, 502])
def test_an_answer_that_is_not_ours(content: bytes, status: int) -> None:
    with pytest.raises(errors.ConnectionFailed, match="not Headrace"):
        read_answer(calls.execute("SELECT 1", ()), status, content)


def test_every_error_comes_back_as_itself() -> None:
    for code, kind in errors.BY_CODE.items():
        again = errors.rebuild(code, "broke at line 3, column 4", "mend it")
        assert type(again) is kind
        assert (again.message, again.hint) == ("broke at line 3, column 4", "mend it")
    assert type(errors.rebuild("of a later version", "x")) is errors.ServerFault


def test_values() -> None:
    values: list[Any] = [Decimal("1E+2"), datetime(2026, 1, 31, 8), date(2026, 1, 31), b"\xff", True, 2**70]
    assert to_json(values) == (
        b'["100","2026-01-31 08:00:00","2026-01-31",{"BLOB":"/w=="},true,1180591620717411303424]'
    )
    assert to_json(values[:-1]) == b'["100","2026-01-31 08:00:00","2026-01-31",{"BLOB":"/w=="},true]'
    assert [to_text(each) for each in values[:5]] == ["100", "2026-01-31 08:00:00", "2026-01-31", "/w==", "1"]
    assert to_json([None, 1]) == b"[null,1]"
    assert to_json([time(8), -timedelta(hours=30, microseconds=5)]) == b'["08:00:00","-30:00:00.000005"]'
    assert to_json([None, UUID(int=1)]) == b'[null,"00000000-0000-0000-0000-000000000001"]'
    assert to_text(UUID(int=1)) == "00000000-0000-0000-0000-000000000001"
    for wrong in (object(), {(): 2}, "\ud800", [nan], [{"x": -inf}], [2**70, nan], Decimal("NaN")):
        with pytest.raises(errors.BadRequest):
            to_json(wrong)


def test_datetimes_with_a_zone_are_taken_to_utc() -> None:
    berlin = timezone(timedelta(hours=2))
    assert to_json([datetime(2026, 1, 31, 1, 30, tzinfo=berlin)]) == b'["2026-01-30 23:30:00"]'
    assert to_text(datetime(2026, 1, 31, 8, tzinfo=UTC)) == "2026-01-31 08:00:00"
    with pytest.raises(errors.BadRequest, match="years 1 to 9999"):
        to_json([datetime(1, 1, 1, tzinfo=berlin)])


@pytest.mark.parametrize("where", ["server", "embedded"])
def test_reads_have_pythons_types(where: str, shared: Callable[[str], str], tmp_path: Path) -> None:
    """DECIMAL, dates and BLOB came as the strings that they are in JSON, which a text is, too."""
    berlin = timezone(timedelta(hours=2))
    bill = {
        "id": 1,
        "paid": Decimal("12345678901234567890.10"),
        "text": "1.50",
        "at": datetime(2026, 1, 31, 8, 0, 0, 250_000),
        "due": date(2026, 1, 31),
        "body": b"\xff\x00",
        "took": -timedelta(hours=100, seconds=1, microseconds=500_000),
        "none": None,
    }
    with connect(shared("local")) if where == "server" else embedded(tmp_path) as db:
        db.execute(
            "CREATE TABLE bills (id INT PRIMARY KEY, paid DECIMAL(30,2), text TEXT, at DATETIME, due DATE, body BLOB,"
            " took TIME, none TIMESTAMP); CREATE VIEW BillsById AS SELECT * FROM bills WHERE id = ?;"
            " CREATE VIEW DueAt AS SELECT id, due FROM bills WHERE at = ?; CREATE VIEW Ids AS SELECT id FROM bills"
        )
        written = db.table("bills").insert({**bill, "at": datetime(2026, 1, 31, 10, 0, 0, 250_000, berlin)})
        view = db.view("BillsById")
        for token in (written.token, None, None):
            assert view.lookup(id=1, token=token) == [bill]
            assert view.lookup_many([2, 1, [1]], token=token) == [[], [bill], [bill]]
            at = [encoding.first(1, "at")]
            several = db.lookups([("Ids", [[]]), ("BillsById", [1, 2]), ("DueAt", [at, bill["at"]])], token=token)
            assert several == [[[{"id": 1}]], [[bill], []], [[{"id": 1, "due": date(2026, 1, 31)}]] * 2]
        assert view.lookup(id=None) == []
        assert db.view("DueAt").lookup(at=datetime(2026, 1, 31, 6, 0, 0, 250_000, timezone(-timedelta(hours=2))))
        found = db.execute("SELECT *, SUM(paid) OVER_ALL FROM bills WHERE at = ? GROUP BY id", [bill["at"]])
        assert found.records() == [{**bill, "OVER_ALL": bill["paid"]}]
        again = db.table("bills").insert({**view.lookup(id=1)[0], "id": 2})
        assert view.lookup(id=2, token=again.token) == [{**bill, "id": 2}]


def test_a_schema_is_taken_from_one_and_given_to_another(served_local: str, tmp_path: Path) -> None:
    with connect(served_local) as there, embedded(tmp_path) as here:
        assert there.schema() == here.schema() == ""
        there.execute(SCHEMA)
        here.execute(there.schema())
        assert here.schema() == there.schema() != ""
        assert here.view("StoriesWithVC").lookup(id=1) == []


def test_raw_reads_are_those_of_json(shared: Callable[[str], str]) -> None:
    plain = {"id": 1, "paid": "1.50", "at": "2026-01-31 08:00:00", "body": "/w=="}
    with connect(shared("local"), raw=True) as db:
        db.execute("CREATE TABLE bills (id INT PRIMARY KEY, paid DECIMAL(30,2), at DATETIME, body BLOB)")
        db.execute("CREATE VIEW BillsById AS SELECT * FROM bills WHERE id = ?")
        token = db.table("bills").insert({**plain, "body": b"\xff"}).token
        for each in (db, db.session(token)):
            assert each.view("BillsById").lookup(id=1, token=token) == [plain]
            assert each.execute("SELECT * FROM bills", token=token).records() == [plain]


def test_types_that_do_not_fit_the_answer_are_an_error() -> None:
    for types in ("0:DATE", "7:DATE", "0:DECIMAL, -", "x:DATE", "0"):
        with pytest.raises(errors.ConnectionFailed):
            read_answer(calls.lookup("v", {}), 200, b'{"rows": [{"id": "seven"}]}', types)
    later = read_answer(calls.lookup("v", {}), 200, b'{"rows": [{"id": "seven"}]}', "0:OF_A_LATER_VERSION")
    assert later == [{"id": "seven"}]


def test_parameters_keep_their_types(tmp_path: Path) -> None:
    """Nothing says what type a ``?`` has: bytes went as their base64 text and were stored as that, decimals became
    doubles where they were computed with."""
    with embedded(tmp_path, read_your_writes=True) as db:
        db.execute("CREATE TABLE files (id INT PRIMARY KEY, body BLOB, paid DECIMAL(30,2))")
        db.execute("INSERT INTO files VALUES (?, ?, ?)", [1, b"\xff", Decimal("12345678901234567890.10")])
        db.execute("UPDATE files SET paid = paid + ? WHERE body = ?", [Decimal("0.01"), b"\xff"])
        found = db.execute("SELECT HEX(body), paid FROM files WHERE body IN (?)", [[b"\xff", b""]])
        assert found.rows == (("FF", Decimal("12345678901234567890.11")),)
        for wrong in ({"BLOB": "?"}, {"BLOB": 1}, {"DECIMAL": "1e9"}, {}, {"BLOB": "", "DECIMAL": "1"}):
            with pytest.raises((errors.BadRequest, errors.TypeViolation)):
                db.execute("SELECT ?", [wrong])


def test_bytes_for_a_column_of_text_are_utf_8_or_an_error(tmp_path: Path) -> None:
    """No column's type is known here: bytes went as their base64 text, and a TEXT column stored that."""
    with embedded(tmp_path, read_your_writes=True) as db:
        db.execute("CREATE TABLE files (name VARCHAR(20) PRIMARY KEY, body BLOB)")
        files = db.table("files")
        for name, body in ((b"caf\xc3\xa9", b"\xff"), ("tea", b"\x00")):
            files.insert({"name": name, "body": body})
        assert set(db.execute("SELECT name, HEX(body) FROM files").rows) == {("café", "FF"), ("tea", "00")}
        assert files.insert({"name": b"tea", "body": b"AP8="}, on_duplicate="update").rows_affected == 2
        assert files.update({"name": b"tea", "body": b"AP8="}, {"body": b"\x01"}).rows_affected == 1
        assert files.delete({"name": "tea", "body": b"\x01"}).rows_affected == 1
        assert files.delete({"name": b"caf\xc3\xa9"}).rows_affected == 1
        db.execute("CREATE EXT VIEW ByName AS SELECT name FROM files WHERE name = ?")
        files.insert({"name": b"caf\xc3\xa9"})
        by_name, found = db.view("ByName"), [{"name": "café"}]
        assert by_name.lookup(name=b"caf\xc3\xa9") == by_name.lookup(name="café") == found
        assert by_name.lookup_many([[b"caf\xc3\xa9"], {"name": b"tea"}]) == [found, []]
        assert db.lookups([("ByName", [[b"caf\xc3\xa9"]]), ("ByName", [[encoding.first(0, "name")], [b"tea"]])]) == [
            [found],
            [found, []],
        ]
        for wrong in (files.insert, files.delete, by_name.lookup):
            with pytest.raises(errors.TypeViolation, match='column "name": it is not UTF-8 text'):
                wrong({"name": b"\xff"})
        with pytest.raises(errors.TypeViolation, match='does not fit type BLOB of column "body"'):
            files.insert({"name": "x", "body": {"BLOB": "?"}})
        with pytest.raises(errors.TypeViolation, match="not a scalar value"):
            files.insert({"name": {"TEXT": "x"}})


def test_lists_that_a_query_string_cannot_say(tmp_path: Path) -> None:
    with embedded(tmp_path, read_your_writes=True) as db:
        db.execute("CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (7), (8)")
        db.execute("CREATE EXT VIEW v AS SELECT id FROM t WHERE id IN (?)")
        for ids in ([None, 7], {7, None}, (7, *range(100, 9_000))):
            assert db.view("v").lookup(id=ids) == [{"id": 7}]
        assert db.view("v").lookup(id=[None]) == []


def test_long_integers_are_read_as_they_are() -> None:
    """A sum of unsigned BIGINTs may have more than 64 bits."""
    content = b'{"results": [{"columns": [], "rows": [[36893488147419103230]], "rows_affected": 0}], "token": ""}'
    assert read_answer(calls.execute("SELECT 1", ()), 200, content)[0].rows == ((36893488147419103230,),)


def test_names_are_escaped() -> None:
    assert calls.lookup("a/b ?", {"x&y": "1=2"}).path == "/v1/views/a%2Fb%20%3F?x%26y=1%3D2"


def test_the_package_exports() -> None:
    assert headrace.embedded is embedded
    assert isinstance(connect_async("http://x"), headrace.AsyncConnection)
    with pytest.raises(AttributeError):
        _ = headrace.nothing


@pytest.mark.parametrize("name", headrace_client.__all__)
def test_each_name_is_there(name: str) -> None:
    assert getattr(headrace_client, name) is not None
