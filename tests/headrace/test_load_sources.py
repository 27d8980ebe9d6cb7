"""Files as rows, without a server: what is read, what is set aside and where it stood, and how rows are cut."""

from __future__ import annotations

import bz2
import gzip
import json
import os
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from domains.language.types import BIGINT, TEXT
from headrace.loading import chunks, sources
from headrace.loading.chunks import FileOptions, LoadError, Reject, SourceRow, TooManyRejects, cut
from headrace.loading.rejects import Rejects, shown
from headrace.loading.running import stream_of
from headrace.loading.sources import FileSources
from headrace.loading.table import Columns, LoadedColumn, LoadedTable

TABLE = LoadedTable(
    "t",
    (
        LoadedColumn("id", BIGINT, False, False, False),
        LoadedColumn("name", TEXT, True, False, True),
        LoadedColumn("other", TEXT, True, False, True),
    ),
)


def read(file: Path, options: FileOptions | None = None) -> list[SourceRow]:
    options = options or FileOptions()
    return list(FileSources(Columns(TABLE, options.mapping), options).rows(file, lambda _: None))


def written(tmp_path: Path, name: str, text: str | bytes) -> Path:
    file = tmp_path / name
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


def plain(rows: list[SourceRow]) -> list[Any]:
    """Number and values, or number and problem."""
    return [(row.number, row.problem or row.values) for row in rows]


# --- CSV ----------------------------------------------------------------------------------------------------------


def test_csv_nulls_quotes_and_records_that_do_not_fit(tmp_path: Path) -> None:
    text = '\ufeffID,Name,other\n1,,"x"\n2,"",\\N\n\n3,too few\n4,"two\nlines","q""q"\n5,a,b,c\n6,NULL,z\n7,\n'
    assert plain(read(written(tmp_path, "t.csv", text))) == [
        (1, {"id": "1", "name": None, "other": "x"}),
        (2, {"id": "2", "name": "", "other": None}),
        (3, "the record has 2 fields and not 3"),
        (4, {"id": "4", "name": "two\nlines", "other": 'q"q'}),
        (5, "the record has 4 fields and not 3"),
        (6, {"id": "6", "name": "NULL", "other": "z"}),
        (7, "the record has 2 fields and not 3"),
    ]
    rows = read(written(tmp_path, "t.csv", "id,name\n1,NULL\n2,\n"), FileOptions(nulls=("NULL",)))
    assert [row.values["name"] for row in rows] == [None, ""]


def check_quotes(file: Path, options: FileOptions | None = None) -> None:
    options = options or FileOptions()
    FileSources(Columns(TABLE, options.mapping), options).check_quotes(file)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('id,name\n1,a\n2,"b\n3,c\n4,d\n', 3),  # The rest of the file would be one field.
        ('id,name\n1,"a\n2,"b"\n3,c\n', 2),  # Row 2 would be part of row 1.
        ('id,name\n1,"two\nlines"\n2,"b" x\n', 4),
        ('id,name\r\n1,"a\r\n', 2),
        ('id,name\n1,"a', 2),
    ],
)
def test_a_quote_that_is_not_closed_is_refused_with_its_line(tmp_path: Path, text: str, line: int) -> None:
    with pytest.raises(LoadError, match=f"begins in line {line} "):
        check_quotes(written(tmp_path, "t.csv", text))
    with pytest.raises(LoadError, match=f"begins in line {line} "):
        check_quotes(written(tmp_path, "t.csv.gz", gzip.compress(text.encode())))


@pytest.mark.parametrize(
    "text",
    [
        '\ufeff"id","name"\n1,"a ""b"", c"\n2,"two\nlines"\n',
        'id,name\n1,5" pipe\n',
        "id,name\n1,a\n",
        b'id\n"\xff\xfe"\n',
        "",
    ],
)
def test_quotes_that_close_are_taken(tmp_path: Path, text: str | bytes) -> None:
    check_quotes(written(tmp_path, "t.csv", text))
    check_quotes(written(tmp_path, "t.jsonl", '{"id": "'))


@pytest.mark.parametrize("text", ["id,name", "id,name\n", "id,name\r\n", "\ufeffid,name"])
def test_csv_of_a_header_alone_has_no_rows(tmp_path: Path, text: str) -> None:
    assert read(written(tmp_path, "t.csv", text)) == []


def test_csv_without_a_header_and_with_tabs(tmp_path: Path) -> None:
    expected = [(1, {"id": "1", "name": "a"}), (2, "the record has 1 fields and not 2"), (3, {"id": "3", "name": "b"})]
    columns = FileOptions(columns=("id", "name"))
    assert plain(read(written(tmp_path, "t.tsv", "1\ta\n2\n3\tb\n"), columns)) == expected
    semicolons = FileOptions(columns=("id", "name"), delimiter=";")
    assert plain(read(written(tmp_path, "t.csv", "1;a\n2\n3;b\n"), semicolons)) == expected


def test_rows_that_do_not_fit_keep_their_numbers_over_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "BLOCK_BYTES", 100)
    lines = ["id,name"] + [f"{i}" if i % 7 == 0 or i % 11 == 0 else f"{i},name {i}" for i in range(1, 500)]
    rows = read(written(tmp_path, "t.csv", "\n".join(lines)))
    assert [row.number for row in rows] == list(range(1, 500))
    for row in rows:
        bad = row.number % 7 == 0 or row.number % 11 == 0
        assert (row.problem is not None) == bad
        assert row.values == (
            {"record": str(row.number)} if bad else {"id": str(row.number), "name": f"name {row.number}"}
        )


def test_what_is_no_utf_8_is_left_to_the_check(tmp_path: Path) -> None:
    rows = read(written(tmp_path, "t.csv", b"id,name\n1,a\n2,\xff\n3,\xc3\xa9\n"))
    assert [row.values["name"] for row in rows] == ["a", "\udcff", "é"]


@pytest.mark.parametrize("head", ["id,größe".encode("latin-1"), "id,name".encode("utf-16"), b"id,\xff\xfe\x00"])
def test_a_header_that_is_no_utf_8_says_so(tmp_path: Path, head: bytes) -> None:
    with pytest.raises(LoadError, match=r"t\.csv.*is not UTF-8") as caught:
        read(written(tmp_path, "t.csv", head + b"\n1,a\n"))
    assert "iconv" in (caught.value.hint or "")


@pytest.mark.parametrize(("suffix", "compress"), [(".gz", gzip.compress), (".bz2", bz2.compress), ("", bytes)])
def test_compressed_text(tmp_path: Path, suffix: str, compress: Callable[[bytes], bytes]) -> None:
    expected = [(1, {"id": "1", "name": "a"}), (2, {"id": "2", "name": "b"})]
    assert plain(read(written(tmp_path, f"t.csv{suffix}", compress(b"id,name\n1,a\n2,b\n")))) == expected
    lines = compress(b'{"id": "1", "name": "a"}\n{"id": "2", "name": "b"}\n')
    assert plain(read(written(tmp_path, f"t.jsonl{suffix}", lines))) == expected


# --- JSON lines ---------------------------------------------------------------------------------------------------


def test_json_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "BLOCK_BYTES", 60)
    text = (
        '\ufeff{"ID": 1, "name": null}\n\n{"id": 2.10}\n[1]\n{"id": 4, "nam": 1}\n{"id": NaN}\n{"id": 6,\n'
        '{"id": 7, "Id": 8}\n{"id": 12345678901234567890.5}\n{"id": 10, "name": {"a": 1}}'
    )
    found = plain(read(written(tmp_path, "t.jsonl", text)))
    assert [number for number, _ in found] == [1, 3, 4, 5, 6, 7, 8, 9, 10]
    good = {number: values for number, values in found if isinstance(values, dict)}
    assert good == {
        1: {"id": 1, "name": None},
        3: {"id": Decimal("2.10")},
        9: {"id": Decimal("12345678901234567890.5")},
        10: {"id": 10, "name": {"a": 1}},
    }
    problems = [problem for _, problem in found if isinstance(problem, str)]
    words = ("is a list", 'no column "nam"', "NaN", "not read as JSON", '"id" is given twice')
    assert [word in problem for word, problem in zip(words, problems, strict=True)] == [True] * 5


def test_a_file_that_is_one_long_line_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "BLOCK_BYTES", 100)
    with pytest.raises(LoadError, match=r'a\.json".*a line of more than 100 bytes'):
        read(written(tmp_path, "a.json", "[" + '{"id": 1},' * 100 + "]"))


# --- Parquet ------------------------------------------------------------------------------------------------------


def test_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "BATCH_ROWS", 2)
    moment = pa.array([10**18 + 999, None, 3], pa.timestamp("ns", "Europe/Berlin"))
    table = pa.table({"id": [1, 2, 3], "Name": moment, "other": pa.array(["a", None, "b"]).dictionary_encode()})
    pq.write_table(table, tmp_path / "t.parquet")
    rows = read(tmp_path / "t.parquet")
    assert [(row.number, row.values["id"], row.values["other"]) for row in rows] == [
        (1, 1, "a"),
        (2, 2, None),
        (3, 3, "b"),
    ]
    assert isinstance(rows[0].values["name"], datetime)
    assert rows[0].values["name"].utctimetuple()[:6] == (2001, 9, 9, 1, 46, 40)
    pq.write_table(pa.table({"id": [1], "name": [[1]]}), tmp_path / "n.parquet")
    with pytest.raises(LoadError, match=r'"name" is list<.*no SQL type'):
        read(tmp_path / "n.parquet")
    assert plain(read(tmp_path / "n.parquet", FileOptions(mapping={"name": ""}))) == [(1, {"id": 1})]
    pq.write_table(pa.table({"id": [Decimal("1.5")], "name": [date(2026, 1, 31)]}), tmp_path / "d.parquet")
    assert plain(read(tmp_path / "d.parquet")) == [(1, {"id": Decimal("1.5"), "name": date(2026, 1, 31)})]


def test_values_of_parquet_that_python_has_not_got_are_of_their_row_only(tmp_path: Path) -> None:
    years = pa.array([0, 10**15, None, -(10**14)], pa.timestamp("ms"))
    pq.write_table(pa.table({"id": range(4), "name": years}), tmp_path / "t.parquet")
    rows = read(tmp_path / "t.parquet")
    assert [row.problem is None for row in rows] == [True, False, True, False]
    assert rows[1].problem is not None
    assert rows[1].problem.startswith("1000000000000000 is no timestamp[ms]")
    assert rows[1].problem.endswith('of column "name"')
    assert json.loads(shown(rows[1].values)) == {"id": 1, "name": "1000000000000000"}


@pytest.mark.parametrize("dictionary", [False, True])
def test_what_is_no_utf_8_in_parquet_is_left_to_the_check(tmp_path: Path, dictionary: bool) -> None:
    data = [None, pa.py_buffer(bytes(4) + b"\2\0\0\0"), pa.py_buffer(b"a\xff")]
    text = pa.Array.from_buffers(pa.string(), 1, data)
    name = text.dictionary_encode() if dictionary else text
    pq.write_table(pa.table({"id": [1], "name": name}), tmp_path / "t.parquet")
    assert plain(read(tmp_path / "t.parquet")) == [(1, {"id": 1, "name": "a\udcff"})]


# --- columns ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "mapping", "message", "hint"),
    [
        ("id,nam", {}, 'table "t" has no column "nam"', 'did you mean "name"?; --map nam=COLUMN'),
        ("id,foo", {}, 'no column "foo"', "its columns are id, name, other"),
        ("name", {}, 'lacks column "id"', "the file's columns are name"),
        ("id,name,NAME", {}, 'has column "name" twice', "--map"),
        ("id,name", {"name": "nome"}, 'to be column "nome"', 'did you mean "name"?'),
    ],
)
def test_columns_that_do_not_match(
    tmp_path: Path, header: str, mapping: dict[str, str], message: str, hint: str
) -> None:
    with pytest.raises(LoadError) as caught:
        read(written(tmp_path, "t.csv", f"{header}\n1,2,3\n"), FileOptions(mapping=mapping))
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")


def test_columns_are_mapped_and_left_out(tmp_path: Path) -> None:
    mapping = {"Number": "id", "title": "name", "junk": ""}
    rows = read(written(tmp_path, "t.csv", "number,TITLE,junk,other\n1,2,3,4\n"), FileOptions(mapping=mapping))
    assert plain(rows) == [(1, {"id": "1", "name": "2", "other": "4"})]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.txt", b"", "cannot be told from its name"),
        ("t.csv.gz", b"not gzip", "cannot be read"),
        ("t.parquet", b"PAR1 nothing", "cannot be read"),
        ("t.csv", b"", "cannot be read"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    with pytest.raises(LoadError, match=message) as caught:
        read(written(tmp_path, name, content))
    assert name in caught.value.message


# --- chunks and their stream --------------------------------------------------------------------------------------


def test_chunks_are_cut_by_rows_and_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 100)
    sizes = [10, 10, 10, 10, 95, 5, 300, 1, 1, 1, 1]
    rows = [SourceRow("f", number, {}, size) for number, size in enumerate(sizes, 1)]
    found = [[row.number for row in chunk] for chunk in cut(rows, 3)]
    assert found == [[1, 2, 3], [4, 5], [6, 7], [8, 9, 10], [11]]
    assert list(cut([], 3)) == []


def test_the_streams_name_is_that_of_the_content(tmp_path: Path) -> None:
    first, second = written(tmp_path, "a.csv", "id\n1\n"), written(tmp_path, "b.csv", "id\n2\n")
    same = written(tmp_path, "c.csv", "id\n1\n")
    options = FileOptions()
    name = stream_of([first, second], "T", options)
    assert name == stream_of([same, second], "t", FileOptions())
    others = [
        stream_of([second, first], "t", options),
        stream_of([first], "t", options),
        stream_of([first, second], "u", options),
        stream_of([first, second], "t", FileOptions(nulls=("x",))),
        stream_of([first, second], "t", FileOptions(chunk_rows=7)),
        stream_of([first, second], "t", FileOptions(mapping={"a": "b"})),
    ]
    assert len({name, *others}) == 7


def test_a_flipped_bit_in_a_page_of_parquet_is_told_of(tmp_path: Path) -> None:
    """Where the writer has put checksums beside the pages."""
    file = tmp_path / "t.parquet"
    values = pa.table({"id": pa.array(range(5_000), pa.int64())})
    pq.write_table(values, file, write_page_checksum=True, compression="none", use_dictionary=False)
    whole = file.read_bytes()
    at = whole.index((2_500).to_bytes(8, "little"))
    file.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
    with pytest.raises(LoadError, match="cannot be read"):
        read(file)


# --- rejects ------------------------------------------------------------------------------------------------------


def reject(number: int) -> Reject:
    return Reject(SourceRow("f", number, {"id": b"\xff", "name": "\udcff"}, 1), "why")


def test_rejects_of_chunks_that_were_not_done_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    rejects = Rejects(path, 10, "s", 0)
    for chunk in (1, 2, 3):
        rejects.add(chunk, [reject(chunk * 10), reject(chunk * 10 + 1)])
    rejects.close()
    path.write_text(path.read_text() + '{"file": "f", "row": 40, "rea')
    again = Rejects(path, 10, "s", 2)
    assert again.count == 4
    again.add(3, [reject(30)])
    again.close()
    assert [line.split('"row": ')[1].split(",")[0] for line in path.read_text().splitlines()] == [
        "10",
        "11",
        "20",
        "21",
        "30",
    ]
    with pytest.raises(LoadError, match="rejects of another load"):
        Rejects(path, 10, "other", 0)
    foreign = written(tmp_path, "notes.txt", "do not overwrite me\n")
    with pytest.raises(LoadError, match="another load"):
        Rejects(foreign, 10, "s", 0)
    assert foreign.read_text() == "do not overwrite me\n"
    with pytest.raises(LoadError, match="another load"):
        Rejects(written(tmp_path, "photo.jpg", b"\xff\xd8\xff"), 10, "s", 0)


def test_two_loads_do_not_write_to_one_file_of_rejects(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    first = Rejects(path, 10, "s", 0)
    for stream in ("s", "another"):  # Also of the same files: the second would replace the file of the first.
        with pytest.raises(LoadError, match="another load writes"):
            Rejects(path, 10, stream, 0)
    first.add(1, [reject(1)])
    first.close()
    assert len(path.read_text().splitlines()) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["bad.jsonl"]
    Rejects(path, 10, "s", 1).close()


def test_rejects_into_what_is_no_file_leave_it_there(tmp_path: Path) -> None:
    """``--rejects /dev/null``, as root: a file was put in its place."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        rejects = Rejects(path, 10, "s", 0)
        rejects.add(1, [reject(7)])
        rejects.close()
        assert json.loads(os.read(reader, 4096))["row"] == 7
    finally:
        os.close(reader)
    assert path.is_fifo()


def test_too_many_rejects(tmp_path: Path) -> None:
    rejects = Rejects(tmp_path / "bad.jsonl", 2, "s", 0)
    rejects.add(1, [reject(1), reject(2)])
    with pytest.raises(TooManyRejects, match=r'3 .*2 .*row 3 of file "f": why'):
        rejects.add(2, [reject(3)])
    with pytest.raises(TooManyRejects, match=r'row 4 of file "f": why'):
        Rejects(None, 10, "s", 0).add(1, [reject(4)])
