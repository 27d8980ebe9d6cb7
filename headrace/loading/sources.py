"""Files as rows, in batches: CSV and JSON lines, also compressed, and Parquet. Memory is that of a block of the file.

========== ====================================================================================================
CSV        pyarrow, every field as text; a record with too few or too many fields is a row with a problem
JSON lines line by line, numbers with a point exactly; a line that is no object is a row with a problem
Parquet    pyarrow, a batch of rows at a time; a type that SQL has none for is refused before the first row
========== ====================================================================================================

``.gz``, ``.bz2``, ``.lz4`` and ``.zst`` behind the name of a text file say how it is compressed.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from headrace.loading.chunks import FileOptions, Format, LoadError, SourceRow
from headrace.loading.table import Columns

BLOCK_BYTES = 4 * 2**20
"""Bytes of a text file that are read at a time; no record of CSV and no line of JSON may be longer."""
BATCH_ROWS = 2_000
"""Rows of Parquet that are read at once."""
VALUE_BYTES = 8
"""Bytes of a number in the size of a row of Parquet."""

COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".lz4": "lz4", ".zst": "zstd"}
FORMATS = {
    ".csv": Format.CSV,
    ".tsv": Format.CSV,
    ".jsonl": Format.JSON_LINES,
    ".ndjson": Format.JSON_LINES,
    ".json": Format.JSON_LINES,
    ".parquet": Format.PARQUET,
}

Progress = Callable[[int], None]
"""Hears how many bytes of a file have been read, so far."""


class FileSources:
    """Files of one load, read with the same options into the same table's columns."""

    def __init__(self, columns: Columns, options: FileOptions) -> None:
        self._columns = columns
        self._options = options

    def rows(self, file: Path, progress: Progress) -> Iterator[SourceRow]:
        """:raises LoadError: the file cannot be read, or has columns that the table has not; it names the file."""
        kind = self._options.format or format_of(file)
        read = {Format.CSV: self._csv, Format.JSON_LINES: self._json_lines, Format.PARQUET: self._parquet}[kind]
        with _translated(file):
            yield from read(file, progress)

    def check_quotes(self, file: Path) -> None:
        """Checks that each quote of a CSV file is closed where its field ends.

        pyarrow takes what follows an open quote for its field, up to the next quote or the end of the file: rows would
        go missing without a word. To be called before the first row is stored; 70 MB a second, and nothing where the
        file has no quotes.

        :raises LoadError: it is not; with the line.
        """
        if (self._options.format or format_of(file)) is not Format.CSV:
            return
        with _translated(file):
            with _opened(file) as (stream, _):
                if not any(b'"' in block for block in iter(lambda: stream.read(BLOCK_BYTES), b"")):
                    return
            with _opened(file) as (stream, _):
                csv.field_size_limit(BLOCK_BYTES)
                text = TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
                records = csv.reader(text, delimiter=self._delimiter(file), strict=True)
                before = 0
                try:
                    for _ in records:
                        before = records.line_num
                except csv.Error as error:
                    raise LoadError(
                        f"the quotes of the record that begins in line {before + 1} do not close: {error}",
                        hint='a field in quotes ends with a quote, and a quote in it is written twice: "a ""b"" c"',
                    ) from error

    # --- CSV ----------------------------------------------------------------------------------------------------

    def _delimiter(self, file: Path) -> str:
        return self._options.delimiter or ("\t" if ".tsv" in file.suffixes else ",")

    def _csv(self, file: Path, progress: Progress) -> Iterator[SourceRow]:
        bad: list[Any] = []
        given = list(self._options.columns)

        def set_aside(row: Any) -> str:
            bad.append(row)
            return "skip"

        delimiter = self._delimiter(file)
        names, only = (given, False) if given else _header(file, delimiter)
        columns = self._columns.all_of(names, str(file))
        if only:
            return
        with _opened(file) as (stream, position):
            reader = pc.open_csv(
                stream,
                # One thread: rows that are skipped have numbers then, and come in order.
                pc.ReadOptions(
                    use_threads=False, block_size=BLOCK_BYTES, column_names=names, skip_rows=0 if given else 1
                ),
                pc.ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=set_aside),
                pc.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    null_values=list(self._options.nulls),
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                    check_utf8=False,
                ),
            )
            number, skipped = 0, 0 if given else 1
            with reader:  # Its thread reads ahead, and is not to be met by the end of the process.
                for batch in reader:
                    for values in _texts(batch):
                        number += 1
                        while bad and bad[0].number - skipped == number:
                            yield _misfit(file, number, bad.pop(0))
                            number += 1
                        size = sum(len(value) for value in values if value is not None) + len(values)
                        yield _csv_row(file, number, columns, values, size)
                    progress(position())
            yield from (_misfit(file, row.number - skipped, row) for row in bad)

    # --- JSON lines ---------------------------------------------------------------------------------------------

    def _json_lines(self, file: Path, progress: Progress) -> Iterator[SourceRow]:
        with _opened(file) as (stream, position):
            for number, line in enumerate(_lines(stream), 1):
                if number % BATCH_ROWS == 0:
                    progress(position())
                if line.strip():
                    yield self._json_row(file, number, line)

    def _json_row(self, file: Path, number: int, line: bytes) -> SourceRow:
        try:
            found = json.loads(line, parse_float=Decimal, parse_constant=_no_constant)
            if not isinstance(found, dict):
                raise ValueError(f"it is a {type(found).__name__} and no object")
        except (ValueError, RecursionError) as error:
            shown = {"line": line.decode("utf-8", "backslashreplace")}
            return SourceRow(str(file), number, shown, len(line), f"the line is not read as JSON: {error}")
        values: dict[str, Any] = {}
        for name, value in found.items():
            try:
                column = self._columns.of(name)
            except LoadError as error:
                return SourceRow(str(file), number, found, len(line), error.message)
            if column in values:
                return SourceRow(str(file), number, found, len(line), f'column "{column}" is given twice')
            if column is not None:
                values[column] = value
        return SourceRow(str(file), number, values, len(line))

    # --- Parquet ------------------------------------------------------------------------------------------------

    def _parquet(self, file: Path, progress: Progress) -> Iterator[SourceRow]:
        total = file.stat().st_size
        with pq.ParquetFile(file, page_checksum_verification=True) as opened:
            schema, rows = opened.schema_arrow, opened.metadata.num_rows
            columns = self._columns.all_of(schema.names, str(file))
            taken = [name for name, column in zip(schema.names, columns, strict=True) if column is not None]
            names = [column for column in columns if column is not None]
            for name in taken:
                _check_type(file, schema.field(name))
            number = 0
            for batch in opened.iter_batches(BATCH_ROWS, columns=taken, use_threads=False):
                lists = [_values(_plain(batch.column(name))) for name in taken]
                for values in zip(*lists, strict=True):
                    number += 1
                    size = sum(len(v) if isinstance(v, (str, bytes)) else VALUE_BYTES for v in values)
                    row = dict(zip(names, values, strict=True))
                    bad = next((name for name in names if type(row[name]) is _Unreadable), None)
                    problem = None if bad is None else f'{row[bad].why} of column "{bad}"'
                    yield SourceRow(str(file), number, row, size, problem)
                progress(total * number // max(1, rows))


def format_of(file: Path) -> Format:
    """:raises LoadError: its name does not tell."""
    suffixes = [suffix.lower() for suffix in file.suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    kind = FORMATS.get(suffixes[-1]) if suffixes else None
    if kind is None:
        hint = f"names end in {', '.join(FORMATS)}, or say it by --format csv, jsonl or parquet"
        raise LoadError(f'the format of file "{file}" cannot be told from its name', hint=hint)
    return kind


# --- text ---------------------------------------------------------------------------------------------------------


@contextmanager
def _opened(file: Path) -> Iterator[tuple[Any, Callable[[], int]]]:
    """A stream of the file's bytes, decompressed, and how far the file itself was read."""
    with pa.OSFile(str(file)) as raw:
        compression = COMPRESSIONS.get(file.suffix.lower())
        stream = raw if compression is None else pa.CompressedInputStream(raw, compression)
        yield stream, raw.tell


def _lines(stream: Any) -> Iterator[bytes]:
    """The lines without their ends; the first without a byte-order mark.

    :raises LoadError: one is longer than a block.
    """
    rest, first = b"", True
    while block := stream.read(BLOCK_BYTES):
        if first:
            block, first = block.removeprefix(b"\xef\xbb\xbf"), False
        lines = (rest + block).split(b"\n")
        rest = lines.pop()
        if len(rest) > BLOCK_BYTES:
            raise LoadError(
                f"it has a line of more than {BLOCK_BYTES} bytes", hint="is it JSON lines, an object a line?"
            )
        yield from lines
    if rest:
        yield rest


def _header(file: Path, delimiter: str) -> tuple[list[str], bool]:
    """The names in the first line of CSV, and whether that is all there is, without its end; the reader minds that."""
    with _opened(file) as (stream, _):
        start = stream.read(BLOCK_BYTES)
    only = len(start) < BLOCK_BYTES and b"\n" not in start and b"\r" not in start
    start = start.split(b"\n", 1)[0] + b"\n"
    try:
        start.decode()
    except UnicodeDecodeError as error:
        hint = "convert the file, for example by iconv -f UTF-16 -t UTF-8"
        raise LoadError("its first line is not UTF-8", hint=hint) from error
    options = pc.ParseOptions(delimiter=delimiter, invalid_row_handler=lambda _: "skip")
    names: list[str] = pc.read_csv(pa.BufferReader(start), pc.ReadOptions(use_threads=False), options).column_names
    return names, only


def _texts(batch: pa.RecordBatch) -> Iterator[Sequence[str | None]]:
    try:
        lists = [column.to_pylist() for column in batch.columns]
    except UnicodeDecodeError:  # Some field is not UTF-8: the row is to be found.
        lists = [[_text(each) for each in column.cast(pa.binary()).to_pylist()] for column in batch.columns]
    return zip(*lists, strict=True)


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "surrogateescape")


def _csv_row(
    file: Path, number: int, columns: Sequence[str | None], values: Sequence[str | None], size: int
) -> SourceRow:
    row = {name: value for name, value in zip(columns, values, strict=True) if name is not None}
    return SourceRow(str(file), number, row, size)


def _misfit(file: Path, number: int, row: Any) -> SourceRow:
    problem = f"the record has {row.actual_columns} fields and not {row.expected_columns}"
    return SourceRow(str(file), number, {"record": row.text}, len(row.text), problem)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")


# --- Parquet ------------------------------------------------------------------------------------------------------


def _check_type(file: Path, field: pa.Field) -> None:
    kind = field.type
    if pa.types.is_nested(kind) or pa.types.is_duration(kind) or pa.types.is_time(kind) or pa.types.is_interval(kind):
        raise LoadError(
            f'file "{file}": column "{field.name}" is {kind}, which has no SQL type here',
            hint=f"leave it out by --map {field.name}=, or write it as text or a number",
        )


def _plain(column: pa.Array) -> pa.Array:
    """The column with moments to the microsecond, as SQL has them: digits behind that are cut off, as the server cuts
    them."""
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return column.cast(pa.timestamp("us", kind.tz), safe=False)
    return column


@dataclass(frozen=True, slots=True)
class _Unreadable:
    """A value that Python has not got."""

    text: str
    why: str

    def __str__(self) -> str:
        return self.text


def _values(column: pa.Array) -> list[Any]:
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):  # Some value is no UTF-8, or of no year that there is: the row is to be found.
        column = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        values = [_value(each) for each in column]
    return values


def _value(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        return _text(scalar.as_buffer().to_pybytes())
    except (OverflowError, ValueError) as error:
        return _Unreadable(str(scalar.value), f"{scalar.value} is no {scalar.type} that can be read ({error})")


@contextmanager
def _translated(file: Path) -> Iterator[None]:
    """Exceptions of pyarrow and the system, as ours and with the file's name."""
    try:
        yield
    except LoadError as error:
        if str(file) in error.message:
            raise
        raise LoadError(f'file "{file}": {error.message}', hint=error.hint) from error
    except pa.ArrowException as error:
        raise LoadError(f'file "{file}" cannot be read: {error}', hint="is it whole, and of that format?") from error
    except OSError as error:
        raise LoadError(f'file "{file}" cannot be read: {error.strerror or error}') from error
