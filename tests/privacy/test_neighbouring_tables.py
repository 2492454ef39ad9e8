"""A neighbouring table changes what is read of that one record, whichever way it comes in.

Every reader and every cut into parts gets generated tables; what comes out must be, bit for bit,
the records of an oracle that shares nothing with the readers: the table as it was generated, or
Python's csv module on the same bytes. Then a table with one record more, or with another one in
its place, differs in that record alone; the last tests say so of the sums. Blocks are made so
small that their ends fall everywhere, and planted faults must be caught.
"""

import contextlib
import csv
import gzip
import io
import itertools
import math
import os
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from scipy import sparse

import privsketch as ps
from privsketch.sketching import dask_parts
from privsketch.tables import RecordFiles, kind_of, read_parts
from privsketch.tables import memory as selection
from privsketch.tables import read_blocks as part_blocks
from privsketch.tables.untyped import lines
from tests import seams
from tests.reading import read_blocks, read_sparse_blocks, selection_of
from tests.workbooks import Fault, Formula, write_workbook

BATTERY = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
COLUMNS = ("x", "y")
NO_HEADER = {"header": False}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    seams.set(monkeypatch, "memory.BLOCK_VALUES", 8)
    seams.set(monkeypatch, "memory.WIDE_ROWS", 1)
    seams.set(monkeypatch, "files.FILE_VALUES", 10)
    seams.set(monkeypatch, "files.SENT_VALUES", 10)
    seams.set(monkeypatch, "text.BLOCK_BYTES", 128)
    seams.set(monkeypatch, "lines.PIECE", 7)


def rows_of(blocks, dim=2):
    parts = [np.asarray(block, dtype=np.float64).reshape(-1, dim) for block in blocks]
    return np.concatenate([np.empty((0, dim)), *parts])


def assert_same(found, wanted):
    """Bit for bit; every NaN is the same missing value."""
    assert found.shape == wanted.shape
    assert (np.isnan(found) == np.isnan(wanted)).all()
    same = np.where(np.isnan(wanted), 0.0, wanted)
    assert np.where(np.isnan(found), 0.0, found).tobytes() == same.tobytes()


def in_parts(data, chosen):
    """What processes and Dask's workers read: every part by itself."""
    return itertools.chain.from_iterable(
        part_blocks(part, chosen) for part in read_parts(ps.Table(data), chosen)
    )


# ---------------------------------------------------------------- text


NASTY = st.text(
    st.sampled_from(['"', ",", "\n", "\r", "\t", "a", " ", "é", "語", "🙂", "0", ";", "'", "\\"]),
    max_size=12,
)
NUMBERS = st.one_of(
    st.floats(-1e6, 1e6).map(repr),
    st.integers(-(10**6), 10**6).map(str),
    st.sampled_from(
        ["1e5", "1E5", ".5", "5.", "+1", "-0", "1.0e+05", "1e400", "-1e400", "1e-400", " 1", "2 "]
    ),
    st.sampled_from(["inf", "-inf", "Infinity", "", "NA", "nan", "NaN", "null", "#N/A"]),
)
RECORDS = st.lists(st.tuples(NUMBERS, NASTY, NUMBERS), max_size=25)


def as_number(cell, decimal="."):
    try:
        return float(cell.replace(decimal, "."))
    except ValueError:
        return math.nan


def csv_bytes(
    records,
    *,
    quote_all=False,
    end="\r\n",
    header=True,
    last_end=True,
    delimiter=",",
    encoding="utf-8",
):
    def cell(value):
        needs_quotes = quote_all or any(c in value for c in f'"{delimiter}\n\r')
        return '"' + value.replace('"', '""') + '"' if needs_quotes else value

    rows = [("x", "note", "y"), *records] if header else records
    lines = [delimiter.join(map(cell, row)) for row in rows]
    return (end.join(lines) + (end if lines and last_end else "")).encode(encoding)


def by_csv_module(content, header=True, delimiter=",", decimal=".", encoding="utf-8-sig"):
    """What Python's csv module reads of the same bytes."""
    text = io.StringIO(content.decode(encoding), newline="")
    rows = list(csv.reader(text, delimiter=delimiter))
    rows = [row for row in rows if row][1 if header else 0 :]
    cells = [[as_number(row[0], decimal), as_number(row[2], decimal)] for row in rows]
    return np.array(cells).reshape(-1, 2)


def zstd(content):
    return pa.compress(content, "zstd", asbytes=True)


def read_text(path, content, columns=COLUMNS, dim=2, **said):
    path.write_bytes({".gz": gzip.compress, ".zst": zstd}.get(path.suffix, bytes)(content))
    chosen = selection_of(dim, columns, **said)
    alone = rows_of(read_blocks(path, dim, columns, **said), dim)
    assert_same(rows_of(in_parts([path], chosen), dim), alone)
    if columns == COLUMNS:  # released rows carry what stands beside the record
        files = RecordFiles.of(ps.Table([path], columns=columns, **said), ["note"])
        pairs = list(files.rows())
        assert_same(rows_of(block for block, _ in pairs), alone)
        notes = [note for _, batch in pairs for note in batch.column(0).to_pylist()]
        return alone, notes
    return alone, None


@BATTERY
@given(
    RECORDS,
    st.booleans(),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.sampled_from(["t.csv", "t.csv.gz", "t.csv.zst"]),
)
def test_csv(tmp_path, records, quote_all, end, last_end, name):
    content = csv_bytes(records, quote_all=quote_all, end=end, last_end=last_end)
    found, notes = read_text(tmp_path / name, content)
    assert_same(found, by_csv_module(content))
    assert notes == [note for _, note, _ in records]


@pytest.mark.mostly_slow(quick_every=4)
@pytest.mark.parametrize("size", [96, 128])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_every_place_of_a_block_s_end(tmp_path, monkeypatch, size, ending):
    """Quoted line breaks, doubled quotes and characters of several bytes at all distances."""
    seams.set(monkeypatch, "text.BLOCK_BYTES", size)
    notes = ["a\nb", "c\r\nd", 'he said ""', ",\r\n,", "語\n語", '"\n"', "", "\n\n"]
    records = [(str(i), note, str(-i)) for i, note in enumerate(notes * 4)]
    for padding in range(size):
        first = ("7", "z" * (padding % 60), "8")
        more = [("5", "y" * (padding - padding % 60), "6")]
        content = csv_bytes([first, *more, *records], end=ending)
        found, carried = read_text(tmp_path / "t.csv", content)
        assert_same(found, by_csv_module(content))
        assert carried == [note for _, note, _ in [first, *more, *records]]


@BATTERY
@given(RECORDS)
def test_csv_without_a_header(tmp_path, records):
    content = csv_bytes(records, header=False)
    found, _ = read_text(tmp_path / "t.csv", content, columns=["0", "2"], header=False)
    assert_same(found, by_csv_module(content, header=False))


def in_letters_of(encoding, records):
    """Records whose notes an encoding can write, with decimal commas."""
    return [
        (
            x.replace(".", ","),
            note.encode(encoding, "replace").decode(encoding),
            y.replace(".", ","),
        )
        for x, note, y in records
    ]


ENCODINGS = ["latin-1", "cp1252", "utf-8", "utf-16", "utf-16-be", "utf-32", "gb18030", "shift_jis"]


@pytest.mark.slow
@BATTERY
@given(
    RECORDS,
    st.sampled_from([";", "|", "\t", "^", "]", "\\", "'", ":"]),
    st.sampled_from(ENCODINGS),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["t.csv", "t.csv.gz", "t.csv.zst"]),
)
def test_csv_as_it_is_written_elsewhere(
    tmp_path, records, delimiter, encoding, header, last_end, name
):
    records = in_letters_of(encoding, records)
    said = {"delimiter": delimiter, "encoding": encoding}
    content = csv_bytes(records, header=header, last_end=last_end, **said)
    said["decimal"] = ","
    wanted = by_csv_module(content, header, **said)
    if header:
        found, notes = read_text(tmp_path / name, content, **said)
        assert notes == [note for _, note, _ in records]
    else:
        found, _ = read_text(tmp_path / name, content, ["0", "2"], header=False, **said)
    assert_same(found, wanted)


@pytest.mark.slow
@BATTERY
@given(RECORDS, st.integers(0, 25), st.booleans())
def test_a_quote_that_never_ends_is_refused_elsewhere_too(tmp_path, records, place, ends_line):
    said = {"delimiter": ";", "encoding": "utf-16-le"}
    records = in_letters_of("utf-16-le", records)
    content = csv_bytes(records[:place], **said)
    content += ('1;"never' + ("\n" if ends_line else "")).encode("utf-16-le")
    content += csv_bytes([(x, "plain", y) for x, _, y in records[place:]], header=False, **said)
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(ps.PrivsketchError, match="CSV"):
        rows_of(read_blocks(tmp_path / "t.csv", 2, COLUMNS, decimal=",", **said))


@pytest.mark.parametrize("name", ["t.csv.gz", "t.csv.zst"])
def test_a_compressed_file_that_was_cut_is_refused(tmp_path, name):
    pack = {"t.csv.gz": gzip.compress, "t.csv.zst": zstd}[name]
    lines = b"".join(b"%d,%d\n" % (i, i * i) for i in range(3000))
    whole = pack(b"x,y\n" + lines)
    (tmp_path / name).write_bytes(whole + pack(b"1,2\n"))  # two of them are one file
    assert len(rows_of(read_blocks(tmp_path / name, 2))) == 3001
    for share in (0.3, 0.9, 0.999):
        (tmp_path / name).write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(ps.PrivsketchError, match="damaged"):
            rows_of(read_blocks(tmp_path / name, 2))


@BATTERY
@given(st.lists(NUMBERS, max_size=20), st.booleans(), st.booleans())
def test_one_column_of_text(tmp_path, cells, has_header, last_end):
    # An empty cell is an empty line; Python's csv module would call it no row.
    lines = ["x", *cells] if has_header else list(cells)
    content = "\n".join(lines) + ("\n" if last_end and lines else "")
    whole = content.removesuffix("\n").split("\n")[1 if has_header else 0 :]
    if not content or (not last_end and content.endswith("\n")):
        whole = whole if content else []
    wanted = np.array([[as_number(cell)] for cell in whole]).reshape(-1, 1)
    header = None if has_header else False
    for name in ("t.csv", "t.tsv"):
        found, _ = read_text(tmp_path / name, content.encode(), None, 1, header=header)
        assert_same(found, wanted)


TSV_NOTES = st.text(st.sampled_from(['"', ",", "'", "a", " ", "é", "🙂"]), max_size=8)


@BATTERY
@given(st.lists(st.tuples(NUMBERS, TSV_NOTES, NUMBERS), max_size=25), st.booleans())
def test_tsv_without_quotes(tmp_path, records, is_compressed):
    lines = ["x\tnote\ty", *("\t".join(record) for record in records)]
    content = "".join(f"{line}\n" for line in lines).encode()
    name = "t.tsv.gz" if is_compressed else "t.tsv"
    if any(note.startswith('"') for _, note, _ in records):
        with pytest.raises(ps.PrivsketchError, match="quotes=True"):
            read_text(tmp_path / name, content)
    else:  # both dialects agree
        for quotes in (None, True):
            assert_same(
                *(read_text(tmp_path / name, content, quotes=q)[0] for q in (quotes, False))
            )
    found, notes = read_text(tmp_path / name, content, quotes=False)
    wanted = [[as_number(x), as_number(y)] for x, _, y in records]
    assert_same(found, np.array(wanted).reshape(-1, 2))
    assert notes == [note for _, note, _ in records]


@BATTERY
@given(RECORDS, st.integers(0, 25), st.booleans())
@example([("1", "a", "2"), ("3", "b", "4")], 0, False)
def test_a_quote_that_never_ends_is_refused(tmp_path, records, place, ends_line):
    content = csv_bytes(records[:place])
    content += b'1,"never' + (b"\n" if ends_line else b"")
    content += csv_bytes([(x, "plain", y) for x, _, y in records[place:]], header=False)
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(ps.PrivsketchError, match="CSV"):
        rows_of(read_blocks(tmp_path / "t.csv", 2, COLUMNS))


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("n_lines", [1, 100, 255, 256, 257, 511, 512, 513, 2000])
def test_blank_lines_of_wider_files_are_no_records(tmp_path, n_lines, end):
    # Alone in a block of Arrow's, a line feed would be taken for the end of the file.
    lines = ["x,y,note", "1,2,a", *[""] * n_lines, "3,4,b", ""]
    (tmp_path / "t.csv").write_bytes(end.join(lines).encode())
    found = rows_of(read_blocks(tmp_path / "t.csv", 2, COLUMNS))
    assert_same(found, np.array([[1.0, 2.0], [3.0, 4.0]]))


def test_a_quote_that_never_ends_is_refused_where_nothing_else_is_wrong(tmp_path):
    # Arrow reads one row of this without a word.
    (tmp_path / "t.csv").write_text('x,y,note\n1,2,"a\n3,4,b\n5,6,c\n')
    with pytest.raises(ps.PrivsketchError, match="quote that begins a cell and never ends"):
        rows_of(read_blocks(tmp_path / "t.csv", 2, COLUMNS))


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("name", ["t.csv", "t.tsv"])
def test_missing_values_of_one_column_at_every_place_of_a_block_s_end(
    tmp_path, monkeypatch, name, end
):
    cells = [str(number) if number % 3 else "" for number in range(60)]
    (tmp_path / name).write_bytes((end.join(["x", *cells]) + end).encode())
    wanted = np.array([[as_number(cell)] for cell in cells])
    for size in range(24, 80):
        seams.set(monkeypatch, "text.BLOCK_BYTES", size)
        assert_same(rows_of(read_blocks(tmp_path / name, 1), 1), wanted)


# ---------------------------------------------------------------- what the attack did


def attack(tmp_path, name, first, n_records=20_000):
    body = '.1,.2,"\n.9,.8,"\n' * n_records
    (tmp_path / name).write_text("x,y,note\n" + first + body)
    return tmp_path / name


def attacked(path):
    """Notes of every length in the first record move the ends of blocks over all others."""
    for first in ("", *(f"0,0,{'z' * length}\n" for length in range(17))):
        found = rows_of(read_blocks(attack(path, "t.csv", first, 300), 2, COLUMNS))
        assert len(found) == 300 + bool(first)
        assert (found[int(bool(first)) :] == [0.1, 0.2]).all()


def test_line_breaks_in_quotes_of_a_column_that_nobody_reads(tmp_path):
    attacked(tmp_path)


@pytest.mark.mostly_slow(quick_every=2)
@pytest.mark.parametrize("engine", ["threads", "dask"])
def test_one_byte_of_a_note_moves_no_sum(tmp_path, make_design, no_noise, monkeypatch, engine):
    seams.set(monkeypatch, "text.BLOCK_BYTES", 2**12)
    design = make_design(dim=2)
    sums = [
        ps.sketch(attack(tmp_path, "t.csv", first), design, columns=COLUMNS, engine=engine).values
        for first in ("0,0,zz\n", "0,0,z\n", "")
    ]
    alone = ps.sketch(np.zeros((1, 2)), design).values
    assert (sums[0] == sums[1]).all()
    assert (sums[0] - sums[2] == alone).all()


def dask_forms(frame):
    import dask.dataframe as dd

    some = frame[["x", "y"]]
    return {
        "columns": some,
        "optimised": some.optimize(),
        "array": some.values,
        "delayed": dd.from_delayed(some.to_delayed(), meta=some._meta),
        "computed with": some.assign(x=some.x + 1),
    }


@pytest.mark.slow
def test_a_dask_frame_that_was_cut_from_csv_is_refused(tmp_path, make_design):
    import dask
    import dask.dataframe as dd

    (tmp_path / "t.csv").write_text("x,y,note\n" + "1,2,z\n" * 3000)
    design = make_design(dim=2)
    for name, data in dask_forms(dd.read_csv(tmp_path / "t.csv", blocksize=4096)).items():
        with pytest.raises(ps.PrivsketchError, match="blocksize=None"):
            ps.sketch(data, design)
        assert name
    for data in dask_forms(dd.read_csv(tmp_path / "t.csv", blocksize=None)).values():
        assert ps.sketch(data, design).design.dim == 2
    with pytest.raises(ps.PrivsketchError, match="Dask DataFrame or a Dask Array"):
        ps.sketch(dask.delayed([[1.0, 2.0]]), design)


# ---------------------------------------------------------------- headers


@pytest.mark.parametrize("name", ["t.csv", "t.tsv"])
@pytest.mark.parametrize("first", ["1,2", "0.5,NA", "NA,NA", "-1e3,smith", ",", "0,1"])
def test_a_first_line_that_may_be_a_record_is_refused_unquoted(tmp_path, name, first):
    line = first if name == "t.csv" else first.replace(",", "\t")
    (tmp_path / name).write_text(line + "\n3,4\n".replace(",", line[-1:] and ","))
    with pytest.raises(ps.PrivsketchError, match="header=False") as caught:
        rows_of(read_blocks(tmp_path / name, 2))
    assert "smith" not in str(caught.value)
    assert "1e3" not in str(caught.value)


@pytest.mark.parametrize("columns", [None, ["a", "b"], ["b", "secret"]])
def test_words_of_a_first_line_are_in_no_error(tmp_path, columns):
    # Text where nobody expected it: a file without a header, read as one with.
    (tmp_path / "t.csv").write_text("secret,hidden,hidden\n1,2,3\n")
    with pytest.raises(ps.PrivsketchError) as caught:
        rows_of(read_blocks(tmp_path / "t.csv", 2, columns))
    assert "hidden" not in str(caught.value)
    assert columns == ["b", "secret"] or "secret" not in str(caught.value)


def test_no_first_record_is_lost_where_there_is_no_header(tmp_path):
    for first in ("1,2", "NA,NA", ",", "nan,inf"):
        (tmp_path / "t.csv").write_text(f"{first}\n3,4\n")
        found = rows_of(read_blocks(tmp_path / "t.csv", 2, **NO_HEADER))
        assert len(found) == 2
    (tmp_path / "t.csv").write_text("")
    assert len(rows_of(read_blocks(tmp_path / "t.csv", 2, **NO_HEADER))) == 0


@pytest.mark.parametrize("header", ["yes", 1.5, "false"])
def test_a_header_is_there_or_not(tmp_path, header):
    (tmp_path / "t.csv").write_text("x,y\n3,4\n")
    with pytest.raises(ps.PrivsketchError, match="header="):
        rows_of(read_blocks(tmp_path / "t.csv", 2, header=header))


# ---------------------------------------------------------------- files with types


FLOATS = st.one_of(st.floats(width=32), st.sampled_from([math.nan, math.inf, 0.0, -0.0]))
TABLES = st.lists(st.tuples(FLOATS, FLOATS), max_size=30).map(
    lambda rows: np.array(rows, dtype=np.float64).reshape(-1, 2)
)


def arrow_table(records, kinds=("float64", "float64"), notes=True):
    kinds = [getattr(pa, kind)() for kind in kinds]
    arrays = [
        pa.array([None if math.isnan(v) else v for v in column], pa.float64()).cast(kind)
        for column, kind in zip(records.T, kinds, strict=True)
    ]
    table = pa.table(arrays, names=list(COLUMNS))
    return table.append_column("note", pa.array(['a,\n"'] * len(records))) if notes else table


@BATTERY
@given(TABLES, st.integers(1, 9), st.sampled_from(["float32", "float64"]))
def test_parquet_with_row_groups_of_any_size(tmp_path, records, size, kind):
    path = tmp_path / "t.parquet"
    table = arrow_table(records, (kind, "float64"))
    with pq.ParquetWriter(path, table.schema) as writer:  # row groups of different sizes
        for first in range(0, len(records), size):
            writer.write_table(table[first : first + size], row_group_size=1 + first % 4)
    assert_same(rows_of(read_blocks(path, 2, COLUMNS)), records)
    chosen = selection_of(2, COLUMNS, None)
    assert_same(rows_of(in_parts([path], chosen)), records)


@BATTERY
@given(TABLES, st.integers(1, 9), st.booleans())
def test_arrow_files_and_streams(tmp_path, records, size, is_stream):
    path = tmp_path / "t.arrow"
    table = arrow_table(records)
    make = pa.ipc.new_stream if is_stream else pa.ipc.new_file
    with make(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=size)
    assert_same(rows_of(read_blocks(path, 2, COLUMNS)), records)
    assert_same(rows_of(in_parts([path], selection_of(2, COLUMNS, None))), records)


@BATTERY
@given(TABLES, st.booleans())
def test_npy(tmp_path, records, is_fortran):
    path = tmp_path / "t.npy"
    np.save(path, np.asfortranarray(records) if is_fortran else records)
    assert_same(rows_of(read_blocks(path, 2)), records)
    assert_same(rows_of(in_parts([path], selection_of(2, None, None))), records)


WRITERS = {
    "parquet": lambda path, records: pq.write_table(arrow_table(records), path),
    "npy": np.save,
    "csv.zst": lambda path, records: path.write_bytes(
        zstd(csv_bytes([(repr(x), "a", repr(y)) for x, y in records.tolist()]))
    ),
}


@pytest.mark.slow
@BATTERY
@given(
    st.lists(TABLES, min_size=1, max_size=4),
    st.permutations(["b", "Z", "part-10", "part-9", "x y"]),
    st.sampled_from(list(WRITERS)),
)
def test_folders_and_patterns(tmp_path_factory, tables, names, kind):
    folder = tmp_path_factory.mktemp("tables") / "t.parquet"  # folders are called so, often
    folder.mkdir()
    files = {f"{name}.{kind}": table for name, table in zip(names, tables, strict=False)}
    for name, table in files.items():
        WRITERS[kind](folder / name, table)
    for hidden in ("_SUCCESS", f"_metadata.{kind}", f".b.{kind}.crc", f".{kind}"):
        (folder / hidden).write_bytes(b"no table")
    wanted = np.concatenate([files[name] for name in sorted(files)])
    columns = None if kind == "npy" else COLUMNS
    chosen = selection_of(2, columns, None)
    for data in (folder, str(folder / f"*.{kind}"), [folder], str(folder.parent / "t.*")):
        assert_same(rows_of(read_blocks(data, 2, columns)), wanted)
        assert_same(rows_of(in_parts(data, chosen)), wanted)
        if isinstance(data, list):
            rows = RecordFiles.of(ps.Table(data, columns=columns)).rows()
            assert_same(rows_of(block for block, _ in rows), wanted)
            for again in (folder / sorted(files)[0], folder, folder / "*"):
                with pytest.raises(ps.PrivsketchError, match="twice"):
                    rows_of(read_blocks([*data, again], 2, columns))
                with pytest.raises(ps.PrivsketchError, match="twice"):
                    RecordFiles.of(ps.Table([*data, again], columns=columns))


CELLS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(2**53), 2**53),
    st.booleans(),
    st.sampled_from([None, "NA", "", "nan", Fault("#N/A"), Fault("#DIV/0!"), Formula("A1+1")]),
)
SHEETS = st.lists(st.one_of(st.just(None), st.tuples(CELLS, NASTY, CELLS)), max_size=25)


def cell_as_number(cell):
    return math.nan if cell is None or isinstance(cell, str) else float(cell)


@pytest.mark.slow
@BATTERY
@given(SHEETS, st.integers(0, 3), st.integers(0, 2), st.booleans())
def test_excel(tmp_path, rows, right, down, header):
    pytest.importorskip("python_calamine")
    rows = [row and (row[0], row[1].replace("\r", "/"), row[2]) for row in rows]  # XML has none
    names = [("x", "note", "y")] if header else []
    sheet = [[]] * down + [
        [] if row is None else [None] * right + list(row) for row in names + rows
    ]
    write_workbook(tmp_path / "t.xlsx", {"other": [["x"], [1]], "a & b": sheet})
    kept = [row or (None, None, None) for row in (rows if header else [None] * down + rows)]
    while kept and all(map(is_not_stored, kept[-1])):  # at the end of a sheet
        kept.pop()
    wanted = np.array([[cell_as_number(x), cell_as_number(y)] for x, _, y in kept]).reshape(-1, 2)
    columns = list(COLUMNS) if header else [str(right), str(right + 2)]
    said = {"sheet": "a & b", "header": None if header else False}
    table = ps.Table([tmp_path / "t.xlsx"], columns=columns, **said)
    files = RecordFiles.of(table, ["note"] * header)
    pairs = list(files.rows())
    assert_same(rows_of(block for block, _ in pairs), wanted)
    found = read_blocks(tmp_path / "t.xlsx", 2, columns, **said)
    assert_same(rows_of(found), wanted)
    chosen = selection_of(2, columns, **said)
    assert_same(rows_of(in_parts([tmp_path / "t.xlsx"], chosen)), wanted)
    if header:
        notes = [note for _, batch in pairs for note in batch.column(0).to_pylist()]
        assert notes == [note or None for _, note, _ in kept]


def is_not_stored(cell):
    return cell is None or isinstance(cell, Formula)


@pytest.mark.usefixtures("warm_pool")
@pytest.mark.mostly_slow(quick_every=3)
@pytest.mark.parametrize("engine", ["threads", "pool", "dask"])
def test_sums_of_files_as_they_come(tmp_path, make_design, no_noise, engine):
    require_sums_of_files(tmp_path, make_design, engine)


def require_sums_of_files(tmp_path, make_design, engine):
    records = np.random.default_rng(0).uniform(-1, 1, (400, 2))
    cells = [(repr(x), "é;", repr(y)) for x, y in records.tolist()]
    said = {"delimiter": ";", "decimal": ",", "encoding": "latin-1"}
    cells = in_letters_of("latin-1", cells)
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, part in (("a.csv", cells[:100]), ("b.csv.zst", cells[100:])):
        content = csv_bytes(part, delimiter=";", encoding="latin-1")
        (folder / name).write_bytes(zstd(content) if name.endswith("zst") else content)
    design = make_design(dim=2)
    found = ps.sketch(ps.Table(folder, columns=COLUMNS, **said), design, engine=engine).values
    assert (found == ps.sketch(records, design).values).all()
    one_less = ps.sketch(records[1:], design).values
    assert (found - one_less == ps.sketch(records[:1], design).values).all()


@pytest.mark.slow
@BATTERY
@given(TABLES, TABLES, TABLES)
def test_files_whose_types_differ(tmp_path, first, second, third):
    whole = np.nan_to_num(np.clip(np.rint(second), -100, 100))
    pq.write_table(arrow_table(first), tmp_path / "a.parquet")
    pq.write_table(arrow_table(whole, ("int8", "int64")), tmp_path / "b.parquet")
    pq.write_table(arrow_table(third, ("float32", "float64"), notes=False), tmp_path / "c.parquet")
    (tmp_path / "d.csv").write_bytes(csv_bytes([(str(x), "q", str(y)) for x, y in whole]))
    paths = [tmp_path / name for name in ("a.parquet", "b.parquet", "c.parquet", "d.csv")]
    wanted = np.concatenate([first, whole, third, whole]) + 0.0
    found = rows_of(read_blocks(paths, 2, COLUMNS)) + 0.0  # whole numbers have no minus zero
    assert_same(found, wanted)
    chosen = selection_of(2, COLUMNS, None)
    assert_same(rows_of(in_parts(paths, chosen)) + 0.0, wanted)


# Numbers at which types round differently, if they do.
EXTREMES = {
    **{f"{sign}int{bits}": None for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "float16": [0.1, -65504.0, 6e-8, math.inf, math.nan],
    "float32": [0.1, 3.4e38, 1e-45, -math.inf, math.nan],
    "float64": [0.1, 1.7e308, 5e-324, math.inf, math.nan],
}


def extremes(kind):
    """Numbers of a type, as they are and as Python rounds them."""
    if EXTREMES[kind] is not None:
        numbers = np.array(EXTREMES[kind], kind)
        return numbers, numbers.astype(np.float64)
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    some = (low, low + 1, 0, 3, high - 1, high, 2**53 + 1, -(2**53) - 1, 2**63 - 2**9 - 1)
    numbers = [number for number in some if low <= number <= high]
    return np.array(numbers, kind), np.array([float(number) for number in numbers])


@pytest.mark.parametrize("other", ["float32", "float64"])
@pytest.mark.parametrize("kind", EXTREMES)
def test_every_type_of_numbers_with_a_missing_one_and_without(tmp_path, kind, other):
    numbers, wanted = extremes(kind)
    beside = np.full(len(numbers), 0.1, other)
    wanted = np.column_stack([wanted, beside.astype(np.float64)])
    plain = pa.table({"x": pa.array(numbers), "y": pa.array(beside)})
    gap = pa.table({"x": pa.array([None], plain["x"].type), "y": pa.array([None], other)})
    assert_same(rows_of(read_blocks(pd.DataFrame({"x": numbers, "y": beside}), 2)), wanted)
    for table, rows in ((plain, 0), (pa.concat_tables([plain, gap]), 1)):
        expected = np.concatenate([wanted, np.full((rows, 2), np.nan)])
        pq.write_table(table, tmp_path / "t.parquet")
        frame = table.to_pandas(types_mapper=pd.ArrowDtype)
        for data in (table, table.combine_chunks(), tmp_path / "t.parquet", frame):
            assert_same(rows_of(read_blocks(data, 2)), expected)


# ---------------------------------------------------------------- frames and arrays


class OwnFrame(pd.DataFrame):
    """What geopandas and others do."""

    @property
    def _constructor(self):
        return OwnFrame


def pandas_frame(records):
    frame = pd.DataFrame(records, columns=list(COLUMNS))
    return frame.set_index(pd.Index(records[:, 0] + 1, name="x"))  # an index is no column


def objects(frame):
    """Cells of many types, missing ones too."""
    kinds = [float, np.float64, Decimal, lambda v: None if math.isnan(v) else v, np.float32]
    cells = [[kinds[(i + j) % 5](v) for j, v in enumerate(row)] for i, row in enumerate(frame)]
    return np.array([*cells, [None, None]], dtype=object)[:-1]


def dask_frame(records):
    import dask.dataframe as dd

    return dd.from_pandas(pandas_frame(records).reset_index(drop=True), npartitions=3)


def dask_array(records):
    import dask.array as da

    return da.from_array(records, chunks=(4, 1))


FRAMES = {
    "pandas": pandas_frame,
    "subclass of pandas": lambda records: OwnFrame(pandas_frame(records)),
    "subclass of objects": lambda records: OwnFrame(objects(records), columns=list(COLUMNS)),
    "pandas nullable": lambda records: pandas_frame(records).astype("Float64"),
    "pandas objects": lambda records: pd.DataFrame(objects(records), columns=list(COLUMNS)),
    "polars": lambda records: pl.from_arrow(arrow_table(records)),
    "duckdb": lambda records: duckdb.connect().from_arrow(arrow_table(records)),
    "pyarrow": arrow_table,
    "array": lambda records: records,
    "array of objects": objects,
    "masked array": lambda records: np.ma.masked_invalid(np.where(np.isinf(records), 7, records)),
    "nested list": lambda records: records.tolist(),
    "nested list with None": lambda records: [
        [None if math.isnan(v) else v for v in row] for row in records.tolist()
    ],
    "list of blocks": lambda records: [records[:5], records[5:6], records[6:]],
    "list of other types": lambda records: [
        pandas_frame(records[:5]),
        pl.from_arrow(arrow_table(records[5:9])),
        OwnFrame(objects(records[9:]), columns=list(COLUMNS)),
    ],
}


@pytest.mark.mostly_slow(quick_every=8)
@pytest.mark.parametrize("form", FRAMES.values(), ids=FRAMES)
@BATTERY
@given(records=TABLES)
def test_frames_and_arrays(form, records):
    data = form(records)
    first = data[0] if isinstance(data, list) and data else data
    columns = None if isinstance(first, np.ndarray | list) else COLUMNS
    is_masked = isinstance(data, np.ma.MaskedArray)
    wanted = np.where(np.isinf(records), 7, records) if is_masked else records
    assert_same(rows_of(read_blocks(data, 2, columns)), wanted)
    assert_same(rows_of(in_parts(data, selection_of(2, columns, None))), wanted)


@pytest.mark.parametrize("form", [dask_frame, dask_array])
@settings(BATTERY, max_examples=15)
@given(records=TABLES.filter(lambda records: len(records) > 0))
def test_dask_partitions(form, records):
    from dask.threaded import get

    parts = dask_parts(ps.Table(form(records)), selection_of(2, None, None))
    read = [part_blocks(part, parts.selection) for part in get(parts.graph, parts.keys)]
    assert_same(rows_of(itertools.chain.from_iterable(read)), records)


@settings(BATTERY, max_examples=8)
@given(records=TABLES, n_partitions=st.integers(1, 3))
def test_spark_partitions(spark, records, n_partitions):
    from privsketch.sketching import spark_records

    rows = [[None if math.isnan(v) else v for v in row] for row in records.tolist()]
    frame = spark.createDataFrame(rows, "x double, y double").coalesce(n_partitions)
    with spark_records(ps.Table(frame), selection_of(2, None, None)) as found:
        read = found.each(lambda blocks: [np.array(block) for block in blocks])
    assert_same(rows_of(itertools.chain.from_iterable(read)), records)


@pytest.mark.parametrize("strange", ["null", "nan", "infinite", "huge"])
def test_one_record_of_a_spark_frame_moves_its_own_sums(spark, make_design, no_noise, strange):
    design = make_design(dim=2)
    cell = {"null": None, "nan": math.nan, "infinite": math.inf, "huge": 1e300}[strange]
    rest = np.random.default_rng(0).uniform(-1, 1, (60, 2)).tolist()

    def sums(rows):
        frame = spark.createDataFrame(rows, "x double, y double").repartition(2)
        return ps.sketch(ps.Table(frame, missing="center"), design).values

    alone = ps.sketch(
        ps.Table([[math.nan if cell is None else cell, 0.5]], missing="center"), design
    ).values
    assert (sums([*rest, [cell, 0.5]]) - sums(rest) == alone).all()


def test_sums_of_files_as_they_come_on_spark(spark, tmp_path, make_design, no_noise):
    require_sums_of_files(tmp_path, make_design, "spark")


@BATTERY
@given(TABLES, st.sampled_from(["csr", "csc", "coo", "lil"]), st.booleans())
def test_sparse_matrices(records, form, is_array):
    records = np.where(np.isfinite(records), records, 0.0) + 0.0
    make = sparse.coo_array if is_array else sparse.coo_matrix
    matrix = make(records).asformat(form)
    assert_same(rows_of(read_blocks(matrix, 2)) + 0.0, records)
    blocks = [block.toarray() for block in read_sparse_blocks(matrix, 2)]
    assert_same(rows_of(blocks) + 0.0, records)


# ---------------------------------------------------------------- one record that stops everything


STRANGE = [
    *(None, 10**400, -(10**400), math.nan, -math.inf, pd.NA, pd.NaT, np.ma.masked),
    *(Decimal("sNaN"), Decimal("NaN"), Decimal("1e999"), Fraction(10**400)),
    *(np.datetime64("NaT"), np.timedelta64("NaT"), np.longdouble("1e4000")),
]
HOLDERS = {
    "nested list": lambda rows: rows,
    "array of objects": lambda rows: np.array(rows, dtype=object),
    "frame": lambda rows: pd.DataFrame(rows, columns=list(COLUMNS), dtype=object),
    "own frame": lambda rows: OwnFrame(rows, columns=list(COLUMNS), dtype=object),
}


@pytest.mark.parametrize("strange", STRANGE, ids=lambda value: f"{value!r:.12}")
@pytest.mark.parametrize("form", HOLDERS.values(), ids=HOLDERS)
def test_no_cell_stops_all_others(form, strange, make_design, no_noise):
    rows = [[0.5, 1], [2, strange], [-1, 0.25]]
    design = make_design(dim=2)
    found = ps.sketch(ps.Table(form(rows), missing="center"), design).values
    wanted = ps.sketch([[0.5, 1], [2, 0], [-1, 0.25]], design).values
    assert (found == wanted).all()
    with pytest.raises(ps.PrivsketchError, match="missing"):
        ps.sketch(form(rows), design)


@pytest.mark.mostly_slow(quick_every=30)
@pytest.mark.parametrize("strange", STRANGE, ids=lambda value: f"{value!r:.12}")
@pytest.mark.parametrize("form", HOLDERS.values(), ids=HOLDERS)
@pytest.mark.parametrize(
    "estimator", [ps.PrivateKMeans, ps.PrivateKMedians, ps.PrivateGaussianMixture, ps.PrivatePCA]
)
def test_no_cell_stops_an_estimator(form, strange, estimator):
    rows = [[0.5, 1], [2, strange], [-1, 0.25]] * 20
    options = {"n_components": 1} if estimator is ps.PrivatePCA else {}
    if estimator in (ps.PrivateKMeans, ps.PrivateKMedians):
        options = {"n_clusters": 1}
    domain = ps.Ball(2, 3.0) if estimator is ps.PrivatePCA else ps.Box(-3, 3, dim=2)
    model = estimator(
        **options, epsilon=1.0, delta=1e-6, domain=domain, missing="center", random_state=0
    )
    model.fit(form(rows))
    with pytest.raises(ps.PrivsketchError):
        estimator(**options, epsilon=1.0, delta=1e-6, domain=domain).fit(form(rows))


DATES = [np.datetime64("2020-01-01"), np.timedelta64(5, "s"), pd.Timestamp("2020-01-01"), 1j, "1.5"]


@pytest.mark.parametrize("date", DATES, ids=repr)
@pytest.mark.parametrize("form", HOLDERS.values(), ids=HOLDERS)
def test_what_is_no_number_is_refused_everywhere(form, date, make_design):
    rows = [[0.5, 1], [2, date]]
    with pytest.raises(ps.PrivsketchError, match="not numeric"):
        ps.sketch(ps.Table(form(rows), missing="center"), make_design(dim=2))
    model = ps.PrivateKMeans(1, epsilon=1.0, delta=0.0, domain=ps.Box(-3, 3), missing="center")
    with pytest.raises((ps.PrivsketchError, TypeError), match=r"numeric|Complex|number"):
        model.fit(form(rows))


def test_dates_of_other_tables_are_no_numbers_for_estimators():
    days = pl.Series("x", [None, 5], dtype=pl.Int64).cast(pl.Date)
    for table in (
        pl.DataFrame({"x": days, "y": days}),
        [np.array(["2020-01-01", "NaT"], "datetime64[D]")] * 2,
        [[np.timedelta64(1, "s"), np.timedelta64(2, "s")]],
    ):
        model = ps.PrivateKMeans(1, epsilon=1.0, delta=0.0, domain=ps.Box(-3, 3), missing="center")
        with pytest.raises(ps.PrivsketchError, match="numeric"):
            model.fit(table)


class Refilling:
    """Blocks of a table, each in the array in which the one before it was."""

    def __init__(self, records, rows):
        self._records, self._room = records, np.empty((rows, records.shape[1]))

    def __iter__(self):
        for first in range(0, len(self._records), len(self._room)):
            self._room[:] = self._records[first : first + len(self._room)]
            yield self._room


GIVEN = {
    "iterable": lambda blocks: blocks,
    "iterator": iter,
    "lists that are made one by one": lambda blocks: ([block] for block in blocks),
}


@pytest.mark.parametrize("give", GIVEN.values(), ids=GIVEN)
def test_an_array_that_is_filled_again_and_again(give, make_design, no_noise):
    # One record of the last block would count for all blocks that are at work.
    design = make_design()
    records = np.random.default_rng(0).uniform(-1, 1, (64 * 50, design.dim))
    wanted = ps.sketch(records, design).values
    for _ in range(3):
        found = ps.sketch(
            give(Refilling(records, 50)), design, engine=ps.engines.Threads(n_threads=2)
        )
        assert found.values.tolist() == wanted.tolist()
    chosen = selection_of(design.dim, None, None)
    parts = list(
        read_parts(ps.Table(give(Refilling(records, 50))), chosen)
    )  # as they go to processes
    blocks = [block for part in parts for block in part_blocks(part, chosen)]
    np.testing.assert_array_equal(np.concatenate(blocks), records)


def test_released_rows_of_an_array_that_is_filled_again_and_again(no_noise):
    domain = ps.Box(-1, 1, dim=3)
    records = np.random.default_rng(0).uniform(-1, 1, (64 * 50, 3))
    projection = ps.Projection.draw(domain, 2, epsilon=1.0, delta=1e-6, random_state=0)
    found = np.concatenate(list(projection.releases(Refilling(records, 50), n_threads=2)))
    again = np.concatenate(list(projection.releases([records])))
    assert len(np.unique(found, axis=0)) == len(records)
    np.testing.assert_array_equal(found, again)


def test_what_is_under_a_mask_is_not_read(make_design, no_noise):
    design = make_design(dim=2)
    wanted = ps.sketch([[1.0, 0.0], [2.0, 1.0]], design).values
    numbers = np.ma.array([[1.0, 3.0], [2.0, 1.0]], mask=[[0, 1], [0, 0]])
    objects = np.ma.array(np.array([[1, "secret"], [2, 1]], dtype=object), mask=[[0, 1], [0, 0]])
    for table in (numbers, list(numbers), objects):
        assert (ps.sketch(ps.Table(table, missing="center"), design).values == wanted).all()
    with pytest.raises(ps.PrivsketchError, match="mask"):
        ps.PrivateKMeans(1, epsilon=1.0, delta=0.0, domain=ps.Box(-3, 3)).fit(list(numbers))


def test_a_column_without_any_value_is_missing_throughout(make_design, no_noise):
    design = make_design(dim=2)
    wanted = ps.sketch([[1.0, 0.0], [2.0, 0.0]], design).values
    for table in (
        pa.table({"x": [1.0, 2.0], "y": pa.nulls(2)}),
        pl.DataFrame({"x": [1.0, 2.0], "y": [None, None]}),
        pd.DataFrame({"x": [1.0, 2.0], "y": [None, None]}),
    ):
        assert (ps.sketch(ps.Table(table, missing="center"), design).values == wanted).all()


@pytest.mark.parametrize("spelling", ["None", "Null", " ", "<NA>", "NaT", ".", "#N/A N/A"])
def test_missing_values_as_people_write_them(tmp_path, spelling):
    (tmp_path / "t.csv").write_text(f"x,y\n1,{spelling}\n2,3\n")
    found = rows_of(read_blocks(tmp_path / "t.csv", 2))
    assert_same(found, np.array([[1.0, math.nan], [2.0, 3.0]]))


# ---------------------------------------------------------------- what errors keep


def whole_chain(error):
    while error is not None:
        yield repr(error)
        yield repr(getattr(error, "object", ""))
        error = error.__cause__ or error.__context__


def refusals(tmp_path):
    (tmp_path / "text.csv").write_text("x,y\n1,secretword\n")
    (tmp_path / "wide.csv").write_text("x,y\n1,2,secretword\n")
    (tmp_path / "bytes.csv").write_bytes(b"x,secretword\xff\n1,2\n")
    yield tmp_path / "text.csv"
    yield tmp_path / "wide.csv"
    yield tmp_path / "bytes.csv"
    yield [[1.0, "secretword"]]
    yield pd.DataFrame({"x": [1.0], "y": ["secretword"]}, dtype=object)
    yield np.array([[1.0, "secretword"]])
    query = "select 1 as x, cast(t as double) as y from (values ('secretword')) v(t)"
    yield duckdb.connect().sql(query)


def test_no_error_keeps_one_that_quotes_a_record(tmp_path, make_design):
    for data in refusals(tmp_path):
        with pytest.raises(ps.PrivsketchError) as caught:
            ps.sketch(data, make_design(dim=2))
        assert "secretword" not in " ".join(whole_chain(caught.value))
    for table in (np.array([[1.0, "secretword"]]), [["secretword", 1.0]]):
        with pytest.raises(ps.PrivsketchError) as caught:
            ps.PrivateKMeans(1, epsilon=1.0, delta=0.0, domain=ps.Box(-3, 3)).fit(table)
        assert "secretword" not in " ".join(whole_chain(caught.value))
    with pytest.raises(ps.PrivsketchError) as caught:
        RecordFiles.of(ps.Table([tmp_path / "bytes.csv"]))
    assert "secretword" not in " ".join(whole_chain(caught.value))


def test_a_first_record_is_read_as_all_others_are(tmp_path, monkeypatch):
    """Without a header nothing is asked of it that is not asked of the next one."""
    seams.set(monkeypatch, "text.BLOCK_BYTES", 2**20)
    for note in (b"a" * 200_000, b"\xff\xfe", b'"a\r\nb"', b'""'):
        for order in ([note, b"b"], [b"b", note]):
            (tmp_path / "t.csv").write_bytes(b"".join(b"1,%s,2\r\n" % cell for cell in order))
            found = rows_of(read_blocks(tmp_path / "t.csv", 2, ["0", "2"], **NO_HEADER))
            assert_same(found, np.array([[1.0, 2.0]] * 2))


@pytest.mark.parametrize("before", [65_534, 65_535, 65_536])
def test_a_header_whose_line_break_is_cut_in_two(tmp_path, monkeypatch, before):
    seams.set(monkeypatch, "text.BLOCK_BYTES", 2**20)
    header = b"x" * (before - 1)
    (tmp_path / "t.csv").write_bytes(header + b"\r\n1\r\n2\r\n")
    assert_same(rows_of(read_blocks(tmp_path / "t.csv", 1), 1), np.array([[1.0], [2.0]]))


@pytest.mark.slow
@pytest.mark.parametrize("first", ["oops,1,1\n", "1,1,1\n"])
def test_a_file_that_is_left_early_lets_the_program_end(tmp_path, first):
    """Arrow reads ahead in a thread, which must not come back when Python shuts down."""
    (tmp_path / "t.csv").write_text("a,b,c\n" + first + "1.25,2.5,3.75\n" * 1_500_000)
    program = (
        "from tests.reading import read_blocks\n"
        f"blocks = read_blocks({str(tmp_path / 't.csv')!r}, 3)\n"
        "try:\n    next(blocks)\nexcept ValueError as error:\n    print('refused')\n"
    )
    for _ in range(3):
        ended = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
        )
        assert (ended.returncode, ended.stderr) == (0, "")
        assert ("refused" in ended.stdout) == first.startswith("oops")


def test_the_name_of_a_file_says_once_what_it_is(tmp_path):
    (tmp_path / "a.tsv.csv").write_text("x,y\n1,2\n")
    assert_same(rows_of(read_blocks(tmp_path / "a.tsv.csv", 2)), np.array([[1.0, 2.0]]))


def test_links_of_one_file_are_one_file(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((3, 2)))
    os.link(tmp_path / "a.npy", tmp_path / "hard.npy")
    (tmp_path / "soft.npy").symlink_to(tmp_path / "a.npy")
    for other in ("hard.npy", "soft.npy", "a.npy"):
        paths = [tmp_path / "a.npy", tmp_path / other]
        with pytest.raises(ps.PrivsketchError, match="twice"):
            rows_of(read_blocks(paths, 2))
        with pytest.raises(ps.PrivsketchError, match="twice"):
            RecordFiles.of(ps.Table(paths))


# ---------------------------------------------------------------- planted faults


def parse_options(**changes):
    real = pyarrow.csv.ParseOptions
    return "pyarrow.csv.ParseOptions", lambda **options: real(**{**options, **changes})


def unchecked(held, names, mark, path):
    """The rows without a look at the last one."""
    return held.slice(0, held.num_rows - 1)


def strict(cell, where):
    """A cell as it was read before: what is no float is an error."""
    try:
        return float("nan") if cell is None else float(cell)
    except (OverflowError, ValueError) as error:
        raise ps.PrivsketchError("too large") from error


def unended(path):
    test_a_quote_that_never_ends_is_refused_where_nothing_else_is_wrong(path)


def own_frame(_):
    table = np.array([[0.5, 1.0], [2.0, 3.0]])
    frame = pd.DataFrame(table, columns=["a", "b"], index=pd.Index([7, 8], name="patient"))
    assert_same(rows_of(read_blocks(OwnFrame(frame), 2)), table)


def strange_cells(_):
    for strange in STRANGE:
        for form in HOLDERS.values():
            rows_of(read_blocks(form([[0.5, 1], [2, strange]]), 2))


def exact_types(data):
    """A subclass of a frame is taken for any table with an Arrow stream."""
    kind = kind_of(data)
    return "arrow" if kind == "pandas" and type(data) is not pd.DataFrame else kind


def elsewhere(path):
    test_csv_as_it_is_written_elsewhere.hypothesis.inner_test(
        path, [("1.5", "é語", "2"), ("2.5", "語;", "-1")], ";", "utf-16", True, True, "t.csv"
    )


class DecodedByPieces(lines._Decoded):
    """Letters that are cut between two pieces are lost."""

    def __init__(self, stream, encoding):
        super().__init__(stream, encoding)
        self._decoder = self

    def decode(self, piece, final):
        return piece.decode("utf-16", "ignore")


def folder_with_others(path):
    folder = path / "folder"
    folder.mkdir(exist_ok=True)
    np.save(folder / "a.npy", np.zeros((3, 2)))
    np.save(folder / "_b.npy", np.ones((3, 2)))
    assert_same(rows_of(read_blocks(folder, 2)), np.zeros((3, 2)))


def one_file_through_a_folder(path):
    folder = path / "folder"
    folder.mkdir(exist_ok=True)
    np.save(folder / "a.npy", np.zeros((3, 2)))
    with pytest.raises(ps.PrivsketchError, match="twice"):
        rows_of(read_blocks([folder / "a.npy", folder], 2))


def first_line_with_commas(path):
    """Numbers with a decimal comma are no names."""
    (path / "t.csv").write_text("1,5;2,5\n3,5;4,5\n")
    with pytest.raises(ps.PrivsketchError, match="header=False"):
        rows_of(read_blocks(path / "t.csv", 2, delimiter=";", decimal=","))


def is_plain_number(text):
    with contextlib.suppress(ValueError):
        return math.isfinite(float(text))
    return False


def convert_options(**changes):
    real = pyarrow.csv.ConvertOptions
    return "pyarrow.csv.ConvertOptions", lambda **options: real(**{**options, **changes})


TABLES = "privsketch.tables"
FAULTS = {
    "the decimal mark": (elsewhere, convert_options(decimal_point=".")),
    "letters cut in two": (elsewhere, (f"{TABLES}.untyped.lines._Decoded", DecodedByPieces)),
    "what is no data in a folder": (folder_with_others, (f"{TABLES}.files._is_data", bool)),
    "a file twice": (
        one_file_through_a_folder,
        (f"{TABLES}.reading.require_new", lambda file, seen: None),
    ),
    "a record with commas for a header": (
        first_line_with_commas,
        (f"{TABLES}.untyped.text._is_number", is_plain_number),
    ),
    "line breaks in quotes": (attacked, parse_options(newlines_in_values=False)),
    "quotes in TSV": (
        lambda path: test_tsv_without_quotes.hypothesis.inner_test(
            path, [("1", '"', "2"), ("3", "b", "4"), ("5", '"', "6")], False
        ),
        parse_options(quote_char='"'),
    ),
    "a quote without an end": (unended, (f"{TABLES}.untyped.text._without_last", unchecked)),
    "empty lines": (
        lambda path: test_one_column_of_text.hypothesis.inner_test(path, ["1", ""], True, True),
        parse_options(ignore_empty_lines=True),
    ),
    "a record for a header": (
        lambda path: test_a_first_line_that_may_be_a_record_is_refused_unquoted(
            path, "t.csv", "0.5,NA"
        ),
        (f"{TABLES}.untyped.text.may_be_record", lambda cells: False),
    ),
    "words of a first line": (
        lambda path: test_words_of_a_first_line_are_in_no_error(path, ["a", "b"]),
        (
            f"{TABLES}.untyped.text.selected_names",
            lambda names, chosen, what, may_show: selection.selected_names(names, chosen, what),
        ),
    ),
    "a cell that stops everything": (strange_cells, (f"{TABLES}.memory.cell_number", strict)),
    "a subclass of a frame": (
        own_frame,
        (f"{TABLES}.table.kind_of", exact_types),
    ),
}


@pytest.mark.parametrize(("check", "planted"), FAULTS.values(), ids=FAULTS)
def test_planted_faults_are_found(check, planted, tmp_path, monkeypatch):
    check(tmp_path)
    monkeypatch.setattr(*planted)
    with pytest.raises((AssertionError, ps.PrivsketchError, pytest.fail.Exception)):
        check(tmp_path)
