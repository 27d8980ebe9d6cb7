"""The reader map as its users meet it: answers as bytes, several processes and threads, growth, and its limits."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from domains.errors import Unavailable
from domains.language.types import BIGINT, TEXT, Column, Row
from domains.plan.graph import NodeIndex, OrderTerm, Reader
from domains.plan.packets import Publish
from worker.reader_map import ReaderClient, ReaderLayout, ReaderMap
from worker.reader_map import layout as layout_module
from worker.reader_map.layout import reader_id

ROOT = Path(__file__).parents[2]
COLUMNS = (Column("id", BIGINT), Column("text", TEXT))
ONE, LIST = NodeIndex(1), NodeIndex(2)
LAYOUTS = {
    ONE: ReaderLayout(1, Reader("one", (0,), (), (), 2), COLUMNS),
    LIST: ReaderLayout(2, Reader("list", (1,), (), (OrderTerm(0, True),), 1), COLUMNS),
}


@pytest.fixture
def readers(tmp_path: Path) -> Iterator[ReaderMap]:
    opened = ReaderMap(tmp_path / "readers")
    yield opened
    opened.close()


def fill(readers: ReaderMap, node: NodeIndex, key: Row, *rows: Row) -> None:
    readers.publish([(LAYOUTS[node], Publish(node, filled=[(key, [(row, 1) for row in rows])]))])


def change(readers: ReaderMap, node: NodeIndex, key: Row, old: Row | None, new: Row | None) -> None:
    deltas = [(key, (row, weight)) for row, weight in ((old, -1), (new, 1)) if row is not None]
    readers.publish([(LAYOUTS[node], Publish(node, deltas=deltas))])


def test_a_hole_is_not_an_empty_key(readers: ReaderMap) -> None:
    client = readers.client()
    fill(readers, ONE, (1,))
    assert client.pages(LAYOUTS[ONE], [(1,), (2,)]) == [b"", None]
    assert client.page(LAYOUTS[ONE], (1,)) == b""
    assert client.page(LAYOUTS[ONE], (2,)) is None
    assert client.rows(LAYOUTS[ONE], [(1,), (2,)]) is None
    assert client.holes(LAYOUTS[ONE], [(2,), (1,), (2,), (3,)]) == [(2,), (3,)]


def test_a_key_of_one_row_is_one_entry(readers: ReaderMap) -> None:
    client = readers.client()
    fill(readers, ONE, (1,), (1, "a"))
    change(readers, ONE, (1,), (1, "a"), (1, "b"))
    assert client.page(LAYOUTS[ONE], (1,)) == b'{"id":1,"text":"b"}'
    with readers._environment.begin() as transaction:
        assert transaction.stat()["entries"] == 2, "the row, and the reader's version"
    change(readers, ONE, (1,), (1, "b"), None)
    assert client.page(LAYOUTS[ONE], (1,)) == b""
    change(readers, ONE, (9,), None, (9, "nobody asked"))
    assert client.page(LAYOUTS[ONE], (9,)) is None


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_a_concealed_reader_is_a_hole_until_it_is_revealed(readers: ReaderMap, rows: int) -> None:
    """What comes meanwhile is found afterwards, in whichever form it is stored."""
    client, node = readers.client(), NodeIndex(4)
    full = ReaderLayout(4, Reader("full", (), (), (OrderTerm(0),), 2), COLUMNS)
    full.concealed = True
    readers.publish([(full, Publish(node, filled=[((), [])]))])
    for number in range(rows):
        readers.publish([(full, Publish(node, deltas=[((), ((number, "x"), 1))]))])
        assert client.page(full, ()) is None
        assert client.rows(full, [()]) is None
        assert client.parts(full, [()]) is None
        assert client.holes(full, [()]) == [()]
    readers.reveal(full)
    assert client.page(full, ()) == b",".join(b'{"id":%d,"text":"x"}' % number for number in range(rows))
    assert client.holes(full, [()]) == []
    readers.publish([(full, Publish(node, deltas=[((), ((9, "y"), 1))]))])
    assert (client.page(full, ()) or b"").endswith(b'{"id":9,"text":"y"}')
    readers.drop(full)
    assert client.page(full, ()) is None
    with readers._environment.begin() as transaction:
        assert transaction.stat()["entries"] == 0


def test_a_reader_that_is_dropped_before_it_is_revealed_leaves_nothing(readers: ReaderMap) -> None:
    full = ReaderLayout(4, Reader("full", (), (), (), 2), COLUMNS)
    full.concealed = True
    rows = [((number, "x"), 1) for number in range(3)]
    readers.publish([(full, Publish(NodeIndex(4), filled=[((), rows)]))])
    readers.drop(full)
    with readers._environment.begin() as transaction:
        assert transaction.stat()["entries"] == 0
    assert readers.bytes_of(4) == 0


def test_no_reader_begins_with_what_another_does() -> None:
    """Those of automatic views have greater numbers than fit into four bytes."""
    reader, others = Reader("one", (0,), (), (), 2), (layout_module.VEIL, layout_module.VERSION, b"\xff\xff\xff\xfd")
    numbers = [0, 1, 2**32 - 257, 2**32 - 256, 2**32 - 1, (1 << 40) * 256, ((1 << 40) + 1) * 256 + 255]
    prefixes = [*(ReaderLayout(number, reader, COLUMNS).prefix for number in numbers), *others]
    for one in prefixes:
        assert [other for other in prefixes if other.startswith(one)] == [one]


def test_shards_of_a_reader_have_numbers_of_their_own() -> None:
    numbers = {reader_id(NodeIndex(node), shard) for node in range(5) for shard in range(256)}
    assert len(numbers) == 5 * 256


def test_rows_come_in_order_and_only_the_visible_columns(readers: ReaderMap) -> None:
    client = readers.client()
    fill(readers, LIST, ("t",), (1, "t"), (3, "t"))
    change(readers, LIST, ("t",), None, (2, "t"))
    fill(readers, LIST, ("u",), (5, "u"))
    page = LAYOUTS[LIST]
    assert client.page(page, ("t",)) == b'{"id":3},{"id":2},{"id":1}'
    assert client.page(page, ("t",), limit=1, offset=1) == b'{"id":2}'
    assert client.page(page, ("t",), offset=9) == b""
    assert client.page(page, ("t",), limit=0) == b""
    assert client.rows(page, [("t",), ("u",), ("t",)], limit=2) == b'{"id":5},{"id":3}'
    with client.snapshot() as snapshot:
        fill(readers, LIST, ("v",), (7, "v"))
        assert snapshot.pages(page, [("u",), ("v",)]) == [b'{"id":5}', None]


def test_bytes_go_back_to_nothing(readers: ReaderMap) -> None:
    for count in (0, 1, 2, 5):
        fill(readers, LIST, ("t" * 300,), *[(i, "t" * 300) for i in range(count)])
        assert readers.bytes_of(2) > 0
        net = readers.publish([(LAYOUTS[LIST], Publish(LIST, evicted=[("t" * 300,), ("never",)]))])
        assert net[2] < 0
        assert readers.bytes_of(2) == 0
    fill(readers, LIST, ("t",), (1, "t"), (2, "t"))
    fill(readers, ONE, (1,), (1, "a"))
    readers.drop(LAYOUTS[LIST])
    assert readers.bytes_of(2) == 0
    assert readers.client().page(LAYOUTS[LIST], ("t",)) is None
    assert readers.client().page(LAYOUTS[ONE], (1,)) is not None
    readers.drop(LAYOUTS[ONE])
    readers.drop(LAYOUTS[ONE])


@pytest.mark.parametrize("backwards", [False, True])
def test_a_fill_of_many_rows_leaves_few_of_its_pages_empty(readers: ReaderMap, backwards: bool) -> None:
    """Rows in order would leave them half full: a page that is full is halved, and its first half gets no more."""
    rows = [(number, "some text") for number in range(2_000)]
    for key in range(5):
        fill(readers, LIST, (f"{key}",), *(reversed(rows) if backwards else rows))
    with readers._environment.begin() as transaction:
        held = sum(len(name) + len(value) + 10 for name, value in transaction.cursor())  # 10: the node and its pointer
        leaves = transaction.stat()["leaf_pages"] * transaction.stat()["psize"]
    assert held / leaves > 0.75, f"{held / leaves:.2f} of the pages is in use"


def test_a_step_is_seen_as_a_whole_from_other_threads(readers: ReaderMap) -> None:
    client = readers.client()
    fill(readers, ONE, (1,), (0, "a"))
    fill(readers, ONE, (2,), (0, "a"))
    stop, torn, reads = threading.Event(), [], []

    def look() -> None:
        while not stop.is_set():
            one, two = client.pages(LAYOUTS[ONE], [(1,), (2,)])
            reads.append(one)
            if one != two:
                torn.append((one, two))

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        at = 0
        while at < 300 or len(set(reads)) < 3:
            at += 1
            deltas = [((key,), ((value, "a"), weight)) for key in (1, 2) for value, weight in ((at - 1, -1), (at, 1))]
            readers.publish([(LAYOUTS[ONE], Publish(ONE, deltas=deltas))])
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not torn


def test_the_map_grows_under_its_readers(tmp_path: Path) -> None:
    readers = ReaderMap(tmp_path, initial_size=2**16)
    client = readers.client()
    fill(readers, ONE, (0,), (0, "first"))
    snapshot = client.snapshot()
    for at in range(1, 40):
        fill(readers, ONE, (at,), (at, "x" * 20_000))
    assert readers.bytes_of(1) > 39 * 20_000
    assert client.page(LAYOUTS[ONE], (0,)) == b'{"id":0,"text":"first"}'
    with pytest.raises(Unavailable), snapshot:
        snapshot.page(LAYOUTS[ONE], (0,))
    assert readers.file_bytes() < 2 * readers.bytes_of(1)
    readers.close()
    with pytest.raises(Unavailable):
        client.page(LAYOUTS[ONE], (0,))


OTHER_PROCESS = """
import sys
sys.path[:0] = [{root!r}, {here!r}]
from test_reader_map import LAYOUTS, ONE
from worker.reader_map import ReaderClient
client = ReaderClient({path!r})
open_for_ever = client.snapshot()
for line in sys.stdin:
    print(client.pages(LAYOUTS[ONE], [(int(line),)]), flush=True)
"""


def test_another_process_reads_while_the_map_grows_and_may_die(tmp_path: Path) -> None:
    readers = ReaderMap(tmp_path, initial_size=2**16)
    fill(readers, ONE, (0,), (0, "zero"))
    code = OTHER_PROCESS.format(root=str(ROOT), here=str(Path(__file__).parent), path=str(tmp_path))
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None

        def ask(key: int) -> str:
            assert other.stdin is not None
            assert other.stdout is not None
            other.stdin.write(f"{key}\n")
            other.stdin.flush()
            return other.stdout.readline().strip()

        assert ask(0) == """[b'{"id":0,"text":"zero"}']"""
        for at in range(1, 40):
            fill(readers, ONE, (at,), (at, "x" * 20_000))
        assert ask(40) == "[None]"
        assert ask(0) == """[b'{"id":0,"text":"zero"}']"""
        other.send_signal(signal.SIGKILL)
    # Its open snapshot would keep every page that is written over from being used again.
    assert readers._environment.reader_check() > 0
    for _ in range(200):
        change(readers, ONE, (1,), (1, "x" * 20_000), (1, "x" * 20_000 + "y"))
        change(readers, ONE, (1,), (1, "x" * 20_000 + "y"), (1, "x" * 20_000))
    assert readers.file_bytes() < 40 * 2 * 20_000
    readers.close()


FULL_DISK = """
import resource, signal, sys
sys.path[:0] = [{root!r}, {here!r}]
from test_reader_map import LAYOUTS, ONE, fill
from domains.errors import StorageFailure
from worker.reader_map import ReaderMap
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
readers = ReaderMap({path!r}, initial_size=2**17)
client = readers.client()
at = 0
try:
    while True:
        fill(readers, ONE, (at,), (at, "x" * 20_000))
        at += 1
except StorageFailure as failure:
    assert at > 3 and readers.bytes_of(1) < 300_000, at
    answers = client.pages(LAYOUTS[ONE], [(key,) for key in range(at + 1)])
    assert answers.pop() is None and None not in answers
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    fill(readers, ONE, (at,), (at, "room again"))
    assert client.page(LAYOUTS[ONE], (at,)) == b'{{"id":%d,"text":"room again"}}' % at
    print(failure.message)
"""


def test_a_full_disk_fails_the_step_alone(tmp_path: Path) -> None:
    # A limit on the size of a file is what a test can have of a full disk: the same write fails.
    code = FULL_DISK.format(root=str(ROOT), here=str(Path(__file__).parent), path=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("cannot grow the reader map"), done.stderr


def test_a_start_on_a_full_disk_says_how_much_room_it_takes(tmp_path: Path) -> None:
    code = f"""
import resource, sys
sys.path[:0] = [{str(ROOT)!r}]
from domains.errors import StorageFailure
from worker.reader_map import ReaderMap
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
try:
    ReaderMap({str(tmp_path)!r})
except StorageFailure as failure:
    print(failure)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "64 MiB" in done.stdout, done.stderr


def test_every_start_is_from_nothing(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        ReaderClient(tmp_path)
    readers = ReaderMap(tmp_path)
    fill(readers, ONE, (1,), (1, "a"))
    readers.close()
    readers = ReaderMap(tmp_path)
    assert readers.client().page(LAYOUTS[ONE], (1,)) is None
    assert readers.bytes_of(1) == 0
    readers.close()


def test_entries_fit_into_lmdb(readers: ReaderMap) -> None:
    assert readers._environment.max_key_size() == layout_module.ENTRY_LIMIT
    page = LAYOUTS[LIST]
    for length in range(layout_module.KEY_LIMIT - 8, layout_module.KEY_LIMIT + 8):
        key = ("k" * length,)
        fill(readers, LIST, key, (1, *key), (2, *key))
        assert readers.client().page(page, key) == b'{"id":2},{"id":1}'
    many = ReaderLayout(3, Reader("m", (0,), (), (OrderTerm(1, True),), 1), COLUMNS)
    rows: list[Row] = [(at, "y" * length) for at, length in enumerate(range(470, 500))]
    readers.publish([(many, Publish(NodeIndex(3), filled=[((5,), [(row, 1) for row in rows])]))])
    answer = b",".join(b'{"id":%d}' % at for at in range(29, -1, -1))
    assert readers.client().page(many, (5,)) == answer
    assert readers.client().rows(many, [(5,)], limit=3, offset=27) == b'{"id":2},{"id":1},{"id":0}'


def test_rows_that_look_alike_keep_their_own_places(readers: ReaderMap) -> None:
    # Their orders differ only behind what fits into an entry's key.
    node, long = NodeIndex(3), "z" * 600
    layouts = {node: ReaderLayout(3, Reader("m", (), (), (OrderTerm(1),), 1), COLUMNS)}
    rows: list[Row] = [(7, long + "a"), (8, long + "b"), (7, long + "c")]
    readers.publish([(layouts[node], Publish(node, filled=[((), [(row, 1) for row in rows])]))])
    assert readers.client().page(layouts[node], ()) == b'{"id":7},{"id":8},{"id":7}'
    readers.publish([(layouts[node], Publish(node, deltas=[((), (rows[0], -1))]))])
    assert readers.client().page(layouts[node], ()) == b'{"id":8},{"id":7}'
    assert readers.client().page(layouts[node], (), limit=1) == b'{"id":8}'
