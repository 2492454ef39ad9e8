"""What other programs write is read as the frame that they wrote, or refused.

Writers and readers each decide what a record is. One record of a frame has an odd text, in a column
that nobody reads, as a label or as a person: a text that holds whole records of its own file, or
anything else that quotes, line ends and missing values are made of. Every program that people have
writes that frame. The oracle is the same frame in memory, of which no text was ever made.

With rules by which no record stops a release nothing at all is refused, once people state how the
file is written.
"""

import codecs
import contextlib
import csv
import itertools
import re

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from openpyxl.utils.exceptions import IllegalCharacterError

import privsketch as ps
from privsketch.tables import ENCODINGS, MULTIBYTE, Key
from privsketch.tables.untyped import excel, lines
from tests import seams
from tests.reading import read_blocks

N = 6


@pytest.fixture(autouse=True)
def one_key(monkeypatch):
    """Which record of a person counts is the same in every run."""
    seams.set(monkeypatch, "persons.Key", lambda: Key((1, 2, 3, 4)))


COLUMNS = ("x", "y", "note", "label", "person")
PLACES = ("note", "label", "person")
RELATIONS = ("add-remove", "replace")


def frame(**cells):
    """A table of six records, of which the third has these cells."""
    table = {
        "x": [i / 8 for i in range(N)],  # sheets keep 16 digits
        "y": [-i / 8 for i in range(N)],
        "note": ["plain"] * N,
        "label": ["red", "blue"] * (N // 2),
        "person": [f"p{i}" for i in range(N)],
    }
    for name, cell in cells.items():
        table[name][2] = cell
    return pd.DataFrame(table)


def schema(neighbours, *, total=False, person=True):
    rule, label, unknown = ("drop", "drop", "drop")
    if neighbours == "replace":
        rule, label, unknown = ("center", "category", "together")
    return ps.Schema(
        [
            ps.Number("x", -1, 1),
            ps.Number("y", -1, 1),
            ps.Category("label", ["red", "blue"], missing=label),
        ],
        missing=rule,
        person="person" if person else None,
        missing_person=unknown if person else "error",
        unreadable="missing" if total else "error",
    )


def records(data, asked, neighbours, **said):
    """All records that are read, in an order of their own: that of persons is by chance."""
    chosen = asked if isinstance(asked, ps.Schema) else None
    dim = chosen.dim if chosen else asked
    said = said if chosen else {**said, "missing": "center"}
    blocks = read_blocks(data, dim, schema=chosen, neighbours=neighbours, **said)
    rows = np.concatenate([np.empty((0, dim)), *(np.asarray(b, np.float64) for b in blocks)])
    rows = np.nan_to_num(rows, nan=-9.0)
    return rows[np.lexsort(rows.T[::-1])]


# ---------------------------------------------------------------- writers


def by_csv_module(table, path, **options):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, **options)
        writer.writerow(table.columns)
        writer.writerows(table.astype(object).where(table.notna(), None).itertuples(index=False))


_BASE = duckdb.connect()


def by_duckdb(table, path, **options):
    told = ", ".join(f"{name} {value}" for name, value in options.items())
    _BASE.register("t", table)
    _BASE.execute(f"COPY (SELECT * FROM t) TO '{path}' ({told})")


def by_polars(table):
    return pl.DataFrame({name: column.tolist() for name, column in table.items()}, strict=False)


def arrow(table):
    return pa.Table.from_pandas(table, preserve_index=False)


# Each with the end of its files, how it writes a frame, and what people say of it.
WRITERS = {
    "pandas csv": (".csv", lambda t, p: t.to_csv(p, index=False), {}),
    "pandas csv of Windows": (
        ".csv",
        lambda t, p: t.to_csv(p, index=False, lineterminator="\r\n"),
        {},
    ),
    "pandas csv, all quoted": (
        ".csv",
        lambda t, p: t.to_csv(p, index=False, quoting=csv.QUOTE_ALL),
        {},
    ),
    "pandas csv, semicolons": (
        ".csv",
        lambda t, p: t.to_csv(p, index=False, sep=";", decimal=","),
        {"delimiter": ";", "decimal": ","},
    ),
    "pandas csv, utf-16": (
        ".csv.gz",
        lambda t, p: t.to_csv(p, index=False, encoding="utf-16"),
        {"encoding": "utf-16"},
    ),
    "pandas tsv": (".tsv", lambda t, p: t.to_csv(p, index=False, sep="\t"), {"quotes": True}),
    "polars csv": (".csv", lambda t, p: by_polars(t).write_csv(p), {}),
    "polars tsv": (
        ".tsv",
        lambda t, p: by_polars(t).write_csv(p, separator="\t"),
        {"quotes": True},
    ),
    "duckdb csv": (".csv", lambda t, p: by_duckdb(t, p, FORMAT="csv"), {}),
    "duckdb tsv": (
        ".tsv",
        lambda t, p: by_duckdb(t, p, FORMAT="csv", DELIMITER="'\t'"),
        {"quotes": True},
    ),
    "arrow csv": (".csv", lambda t, p: pa.csv.write_csv(arrow(t), p), {}),
    "csv module": (".csv", by_csv_module, {}),
    "csv module tsv": (
        ".tsv",
        lambda t, p: by_csv_module(t, p, dialect="excel-tab"),
        {"quotes": True},
    ),
    "pandas parquet": (".parquet", lambda t, p: t.to_parquet(p, index=False), {}),
    "polars parquet": (".parquet", lambda t, p: by_polars(t).write_parquet(p), {}),
    "duckdb parquet": (".parquet", lambda t, p: by_duckdb(t, p, FORMAT="parquet"), {}),
    "arrow parquet": (".parquet", lambda t, p: pq.write_table(arrow(t), p), {}),
    "arrow feather": (".feather", lambda t, p: pa.feather.write_feather(arrow(t), p), {}),
    "polars ipc": (".arrow", lambda t, p: by_polars(t).write_ipc(p), {}),
    "polars categories": (
        ".arrow",
        lambda t, p: by_polars(t).with_columns(pl.col(pl.String).cast(pl.Categorical)).write_ipc(p),
        {},
    ),
    "openpyxl": (".xlsx", lambda t, p: t.to_excel(p, index=False, engine="openpyxl"), {}),
    "xlsxwriter": (".xlsx", lambda t, p: t.to_excel(p, index=False, engine="xlsxwriter"), {}),
}
TEXT = [name for name, (end, _, _) in WRITERS.items() if end.startswith((".csv", ".tsv"))]


def written(name, table, folder, place=0):
    """The file of a writer; None if it cannot write such a frame."""
    end, write, _ = WRITERS[name]
    path = folder / f"{place}{end}"
    try:
        write(table, path)
    except (OSError, ValueError, UnicodeError, IllegalCharacterError):
        assert end == ".xlsx"  # which holds no control characters; others write everything
        return None
    return path


# ---------------------------------------------------------------- texts


def inner_records(name, place="note", count=3):
    """Texts that hold well-formed records of their own file, cell by cell.

    What stands before and behind them completes the lines of the record that they are in.
    """
    suffix, _, said = WRITERS[name]
    mark = said.get("delimiter", "\t" if suffix == ".tsv" else ",")
    numbers = [cell.replace(".", said.get("decimal", ".")) for cell in ("0.9", "-0.9")]
    rows = [[*numbers, "z", "red", f"q{i}"] for i in range(count)]
    column = COLUMNS.index(place)
    before, behind = mark.join([*rows[0][:column], ""]), mark.join(["", *rows[0][column + 1 :]])
    for end in ("\n", "\r\n", "\r"):
        body = end.join(mark.join(row) for row in rows)
        yield from (f"hi{end}{body}", f"hi{behind}{end}{body}{end}{before}ho")
        yield from (f'"hi{end}{body}', f'hi"{behind}{end}{body}{end}{before}"ho')


ODD = [
    *('"', '""', '"""', '"hi', 'hi"', '"hi"', 'a"b', '","', '"p1"', '""p1""', "'", "'p1'"),
    *(",", ";", "\t", "|", "a,b", "a\tb", "\\", "\\n", '\\"', "a\\"),
    *("\n", "\r", "\r\n", "\n\n", "a\nb", "a\rb", "a\r\nb", "a\r", "\ra", "\np1", "p1\r", '"\n"'),
    *("", " ", "  ", "NA", "nan", "null", "None", "-", ".", "0", "1", "007", "1e5", "true"),
    *("p1", " p1 ", "red", "\ufeff", "\u2028", "\x85", "\x0b", "\x1c", "é語🙂", "#p1", "=1+1"),
]
MISSING = ("", " ", "NA", '"', '""')
LONG = "x" * 9000


def compared(name, path, table, neighbours, *, total):
    """Compare a written frame with the one in memory; "refused" if the file is."""
    asked = schema(neighbours, total=total)
    wanted = records(table, asked, neighbours)
    said = dict(WRITERS[name][2])
    if not total:
        said.pop("quotes", None)
    if path.suffix == ".xlsx" and neighbours == "replace":
        said["n_records"] = len(wanted)
    try:
        found = records(path, asked, neighbours, **said)
    except ps.PrivsketchError:
        assert not total, f"{name}: refused, although no record may stop it"
        return "refused"
    assert found.shape == wanted.shape, f"{name}: {len(found)} records of {len(wanted)}"
    assert (found == wanted).all(), name
    return "same"


def all_texts(name, place):
    if name not in TEXT:  # whose files say where a text ends
        # To openpyxl "=1+1" is a formula, whose value it does not know.
        return [text for text in (*ODD[::3], *inner_records("pandas csv")) if text != "=1+1"]
    return [*ODD, *inner_records(name, place), LONG]


@pytest.mark.mostly_slow(quick_every=6)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", list(WRITERS))
def test_an_odd_text_is_read_as_in_memory_or_refused(tmp_path, name, place):
    ends = []
    for number, text in enumerate(all_texts(name, place)):
        table = frame(**{place: text})
        path = written(name, table, tmp_path, number)
        if path is not None:
            # Each text under both relations, and with and without rules that stop a release.
            for neighbours, total in itertools.product(RELATIONS, (False, True)):
                if text not in MISSING and (number + total + (neighbours == "replace")) % 2:
                    continue
                ends.append(compared(name, path, table, neighbours, total=total))
    assert "same" in ends
    assert name in TEXT or "refused" not in ends  # files with types leave nothing open


# ---------------------------------------------------------------- records without any value


def all_missing(place, n_columns=5):
    """A frame in which one record, the first, a middle or the last, has no value at all."""
    table = frame().astype(object)
    table.iloc[place] = None
    return table.iloc[:, :n_columns].astype({"x": float, "y": float})


@pytest.mark.mostly_slow(quick_every=4)
@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize("name", list(WRITERS))
def test_a_record_without_any_value(tmp_path, name, neighbours):
    rule, label = ("center", "category")
    columns = [ps.Number("x", -1, 1), ps.Number("y", -1, 1)]
    columns.append(ps.Category("label", ["red", "blue"], missing=label))
    asked = ps.Schema(columns, missing=rule, unreadable="missing")
    whole = records(frame(), asked, neighbours)
    for place in (0, 2, N - 1):
        table = all_missing(place)
        path, said = written(name, table, tmp_path, place), dict(WRITERS[name][2])
        is_sheet = path.suffix == ".xlsx"
        if is_sheet and neighbours == "replace":
            said["n_records"] = N
        found = records(path, asked, neighbours, **said)
        # Of a sheet nobody can tell such a record at its end, so it counts nowhere.
        left_out = is_sheet and neighbours == "add-remove"
        wanted = records(table.drop(index=place) if left_out else table, asked, neighbours)
        assert (found == wanted).all()
        assert left_out or len(found) == len(whole)


@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize("name", ["openpyxl", "pandas csv", "polars parquet"])
def test_a_record_without_any_value_is_refused_where_missing_values_are(tmp_path, name, neighbours):
    asked = ps.Schema([ps.Number("x", -1, 1), ps.Category("label", ["red", "blue"])])
    for place in (0, 2):
        path = written(name, all_missing(place), tmp_path, place)
        said = {"n_records": N} if path.suffix == ".xlsx" and neighbours == "replace" else {}
        with pytest.raises(ps.PrivsketchError, match="missing"):
            records(path, asked, neighbours, **said)


def test_removing_the_last_record_of_a_sheet_removes_no_other(tmp_path):
    """Empty rows before it are gone from the file, too: they never counted."""
    asked = ps.Schema([ps.Number("x", -1, 1), ps.Number("y", -1, 1)], missing="center")
    table = frame().astype(object)
    table.iloc[2 : N - 1] = None
    counts = []
    for rows in (table, table.iloc[:-1]):
        path = written("openpyxl", rows, tmp_path)
        counts.append(len(records(path, asked, "add-remove")))
    assert counts[0] - counts[1] == 1


def test_rows_of_a_sheet_that_a_model_is_asked_about_stay_where_they_are(tmp_path):
    asked = ps.Schema([ps.Number("x", -1, 1), ps.Number("y", -1, 1)], missing="center")
    points = ps.encode(written("openpyxl", all_missing(2), tmp_path), asked)
    assert (points == ps.encode(all_missing(2), asked)).all()


IN_MEMORY = {
    "pandas": lambda table: table,
    "polars": lambda table: by_polars(table),
    "arrow": arrow,
    "list": lambda table: [list(row) for row in table.to_numpy(dtype=object)],
    "array": lambda table: table.to_numpy(dtype=np.float64),
    "masked": lambda table: np.ma.masked_invalid(table.to_numpy(dtype=np.float64)),
    "blocks": lambda table: [table.to_numpy(dtype=np.float64)[:2], table.to_numpy(float)[2:]],
}


@pytest.mark.parametrize("total", [False, True])
@pytest.mark.parametrize("name", [*WRITERS, *IN_MEMORY])
def test_a_record_without_any_value_does_not_change_their_public_number(tmp_path, name, total):
    for place in (None, 0, 2, N - 1):
        table = frame()[["x", "y"]]
        if place is not None:
            table.iloc[place] = np.nan
        said = {"unreadable": "missing" if total else "error"}
        if name in IN_MEMORY:
            data = IN_MEMORY[name](table)
        else:
            data = written(name, table, tmp_path)
            said |= WRITERS[name][2] | ({"n_records": N} if data.suffix == ".xlsx" else {})
        assert len(records(data, 2, "replace", **said)) == N


def test_a_sheet_without_its_public_number_of_records_is_refused(tmp_path, make_design):
    path = written("openpyxl", frame()[["x", "y"]], tmp_path)
    with pytest.raises(ps.PrivsketchError, match="n_records="):
        records(path, 2, "replace")
    with pytest.raises(ps.PrivsketchError, match="more than the stated"):
        records(path, 2, "replace", n_records=N - 1)
    assert len(records(path, 2, "replace", n_records=N + 3)) == N + 3
    for data in ([path, path.with_name("b.csv")], frame()[["x", "y"]], path.with_name("b.csv")):
        frame()[["x", "y"]].to_csv(path.with_name("b.csv"), index=False)
        with pytest.raises(ps.PrivsketchError, match="one Excel sheet"):
            records(data, 2, "replace", n_records=N)
    with pytest.raises(ps.PrivsketchError, match="private"):
        records(path, 2, "add-remove", n_records=N)


# ---------------------------------------------------------------- one column, encodings


@pytest.mark.parametrize("total", [False, True])
@pytest.mark.parametrize("name", TEXT)
def test_one_column(tmp_path, name, total):
    """A cell needs no delimiter there to hold other records."""
    asked = ps.Schema(
        [ps.Category("label", ["red", "blue"], missing="category")],
        unreadable="missing" if total else "error",
    )
    said = (
        dict(WRITERS[name][2])
        if total
        else {key: value for key, value in WRITERS[name][2].items() if key != "quotes"}
    )
    ends = []
    for number, text in enumerate([*ODD, "hi\nred\nred", "hi\rred\rred", "hi\r\nred\r\nred"]):
        table = frame(label=text)[["label"]]
        path = written(name, table, tmp_path, number)
        for neighbours in RELATIONS:
            wanted = records(table, asked, neighbours)
            try:
                found = records(path, asked, neighbours, **said)
            except ps.PrivsketchError:
                assert not total, repr(text)
                ends.append("refused")
                continue
            assert found.shape == wanted.shape, repr(text)
            assert (found == wanted).all(), repr(text)
            ends.append("same")
    assert "same" in ends


@pytest.mark.mostly_slow(quick_every=12)
@pytest.mark.parametrize(
    "encoding",
    [
        name if place % 4 == 0 else pytest.param(name, marks=pytest.mark.audit)
        for place, name in enumerate(sorted(ENCODINGS))
    ],
)
def test_every_encoding_that_is_accepted(tmp_path, encoding):
    letters = "".join(
        each for each in "äéßЖשع語あ가" if each.encode(encoding, "ignore") not in (b"", b"\xff\xfe")
    )
    for number, text in enumerate(
        [*inner_records("pandas csv"), letters, f'"{letters}\r\n,"', "\x0b", "|~^"]
    ):
        try:
            text.encode(encoding)
        except UnicodeEncodeError:
            continue
        for place, total in zip(("note", "label"), (number % 2 == 0, number % 2 == 1), strict=True):
            table = frame(**{place: text})
            path = tmp_path / f"{number}.csv"
            table.to_csv(path, index=False, encoding=encoding)
            asked = schema("add-remove", total=total)
            wanted = records(table, asked, "add-remove")
            try:
                found = records(path, asked, "add-remove", encoding=encoding)
            except ps.PrivsketchError:
                assert not total, repr(text)
                continue
            assert found.shape == wanted.shape
            assert (found == wanted).all()


@pytest.mark.parametrize(
    "encoding",
    [
        *("unicode_escape", "unicode-escape", "raw_unicode_escape", "raw-unicode-escape", "utf-7"),
        *("charmap", "iso2022_jp", "iso-2022-jp", "iso2022_kr", "hz", "idna", "punycode", "rot13"),
        *("base64", "undefined", "johab", "mbcs", "no such"),
    ],
)
def test_encodings_with_states_or_escapes_are_refused(encoding):
    with pytest.raises(ps.PrivsketchError, match="encoding="):
        ps.Table("nowhere.csv", encoding=encoding)


@pytest.mark.parametrize("encoding", [*MULTIBYTE, "utf-8", "utf-16-le", "utf-32-be", "cp1252"])
def test_damaged_bytes_stay_in_their_line(tmp_path, encoding):
    """Whatever two bytes a record ends in, the next one is read."""
    codec = codecs.lookup(encoding)
    head, good = codec.encode("x,note\n")[0], codec.encode("0.5,z\n")[0]
    unit = {"utf-16-le": 2, "utf-32-be": 4}.get(encoding, 1)
    note = ps.Category("note", ["z"], missing="category")
    asked = ps.Schema([ps.Number("x", -1, 1), note], missing="center", unreadable="missing")
    damages = [
        bytes(pair) for pair in itertools.product(range(0x7E, 0x100), range(0x20, 0x100, 17))
    ]
    body = []
    for damage in damages:
        for part in (damage[:1], damage, damage + damage[:1]):
            padded = part + b"\xd8" * (-len(part) % unit)
            body.append(codec.encode("0.25,")[0] + padded + codec.encode("\n")[0])
            body.append(good)
    path = tmp_path / "t.csv"
    path.write_bytes(head + b"".join(body))
    found = read_blocks(path, asked.dim, schema=asked, encoding=encoding, quotes=False)
    values = np.concatenate([np.asarray(block) for block in found])[:, 0]
    assert len(values) == len(body)
    assert (values[1::2] == 0.5).all()


# ---------------------------------------------------------------- planted faults


def without_empty_rows(path, sheet, rows=excel._rows):
    @contextlib.contextmanager
    def some():
        with rows(path, sheet) as found:
            yield (row for row in found if row)

    return some()


def decoded_once(array):
    """As it was read before: views of texts inside of dictionaries stop it."""
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


class DecodedByPairs(lines._Decoded):
    """A damaged byte takes the next one with it."""

    def __init__(self, stream, encoding, errors):
        super().__init__(stream, encoding, "strict")
        self._decoder = self

    def decode(self, piece, final):
        return re.sub(rb"[\x80-\xff].", b"?", piece, flags=re.DOTALL).decode("ascii", "replace")


def odd(name, place):
    return lambda path: test_an_odd_text_is_read_as_in_memory_or_refused(path, name, place)


UNTYPED = "privsketch.tables.untyped"
PLANTED = {
    "quotes of a .tsv file that are not asked for": (
        odd("pandas tsv", "note"),
        (f"{UNTYPED}.lines.LineGuard._begins_cell", lambda *_: False),
    ),
    "a person of a .tsv file that is two quotes": (
        odd("polars tsv", "person"),
        (f"{UNTYPED}.lines.LineGuard._begins_cell", lambda *_: False),
    ),
    "carriage returns that end lines": (
        lambda path: test_one_column(path, "pandas csv", False),
        (f"{UNTYPED}.lines.LineGuard._has_odd", lambda *_: False),
    ),
    "carriage returns that nobody mends": (
        lambda path: test_one_column(path, "pandas csv", True),
        (f"{UNTYPED}.lines.LineGuard._has_odd", lambda *_: False),
    ),
    "empty rows of a sheet that are no records": (
        lambda path: test_a_record_without_any_value_is_refused_where_missing_values_are(
            path, "openpyxl", "add-remove"
        ),
        (f"{UNTYPED}.excel._rows", without_empty_rows),
    ),
    "empty rows at the end of a sheet": (
        lambda path: test_a_record_without_any_value_does_not_change_their_public_number(
            path, "openpyxl", True
        ),
        ("privsketch.tables.reading.filled_up", lambda blocks, chosen: blocks),
    ),
    "empty rows of a sheet that count": (
        test_removing_the_last_record_of_a_sheet_removes_no_other,
        ("privsketch.tables.memory.Selection.leaves_out_empty_rows", False),
    ),
    "an encoding with escapes": (
        lambda path: test_encodings_with_states_or_escapes_are_refused("raw_unicode_escape"),
        (f"{UNTYPED}.format.ENCODINGS", ENCODINGS | {"raw-unicode-escape"}),
    ),
    "an encoding with states": (
        lambda path: test_encodings_with_states_or_escapes_are_refused("iso2022_jp"),
        (f"{UNTYPED}.format.ENCODINGS", ENCODINGS | {"iso2022_jp"}),
    ),
    "labels that polars keeps as categories": (
        odd("polars categories", "label"),
        ("privsketch.tables.cells.plain_array", decoded_once),
    ),
    "bytes that are left out with what follows": (
        lambda path: test_damaged_bytes_stay_in_their_line(path, "utf-8"),
        (f"{UNTYPED}.lines._Decoded", DecodedByPairs),
    ),
}


@pytest.mark.parametrize("name", list(PLANTED))
def test_planted_faults_are_found(tmp_path, monkeypatch, name):
    check, (target, replacement) = PLANTED[name]
    monkeypatch.setattr(target, replacement)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check(tmp_path)
