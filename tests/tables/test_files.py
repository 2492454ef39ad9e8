"""What errors say of files: which column, which kind of fault, what to state; never a value.

That files are read rightly is the matter of tests/privacy/test_neighbouring_tables.py.
"""

import datetime
import gzip
import os
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privsketch as ps
from privsketch import MissingError, RecordError
from privsketch.clustering import cluster_with
from privsketch.tables import RecordFiles, count_records, expanded
from tests import seams
from tests.commands import DATA, refused, run, succeeded
from tests.reading import read_blocks
from tests.workbooks import write_workbook

SECRET = "confidential"
NAMES = ("age", "bmi", "dose")


def refusal(data, design, **options):
    with pytest.raises(ps.PrivsketchError) as caught:
        ps.sketch(ps.Table(data, **options), design)
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(caught.value.__context__)
    return str(caught.value)


@pytest.fixture
def design(make_design):
    return make_design(dim=3, columns=list(NAMES))


# ---------------------------------------------------------------- how text is written

FAULTS = {
    # content, what is said of it, what the error says
    "semicolons": ("age;bmi;dose\n1;2;3\n", {}, ["'age' is unknown", "delimiter=';'"]),
    "bars": ("age|bmi|dose\n1|2|3\n", {}, ["'age' is unknown", "delimiter='|'"]),
    "tabs": ("age\tbmi\tdose\n1\t2\t3\n", {}, ["'age' is unknown", "delimiter='\\t'"]),
    "a semicolon in a name": ("age,bmi;dose,x\n1,2,3\n", {}, ["'bmi' is unknown", "delimiter=';'"]),
    "semicolons in a record": (f"{SECRET};0,5\n1;2\n", {}, ["delimiter=';'"]),
    "commas in a file that has others": (
        "age,bmi,dose\n1,2,3\n",
        {"delimiter": ";"},
        ["'age' is unknown"],
    ),
    "decimal commas": (
        "age;bmi;dose\n1;2,5;3\n",
        {"delimiter": ";"},
        ["column 'bmi' is not numeric: a cell has text", "decimal=','"],
    ),
    "decimal points": (
        "age;bmi;dose\n1;2.5;3\n",
        {"delimiter": ";", "decimal": ","},
        ["column 'bmi' is not numeric: a cell has text"],
    ),
    "thousands": (
        "age;bmi;dose\n1;2.500,0;3\n",
        {"delimiter": ";", "decimal": ","},
        ["column 'bmi' is not numeric: a cell has text"],
    ),
    "a decimal comma that separates cells": (
        "age,bmi,dose\n1,2,3\n",
        {"decimal": ","},
        ["decimal=','", "delimiter=';'"],
    ),
    "too many cells": (f"age,bmi,dose\n1,2,3,{SECRET}\n", {}, ["a line has 4 cells, the first 3"]),
    "latin-1": ("âge,bmi,dose\n1,2,3\n".encode("latin-1"), {}, ["not UTF-8", "encoding="]),
    "latin-1 for UTF-16": (
        "age,bmi,dose\n1,2,3\n".encode("utf-16"),
        {"encoding": "latin-1"},
        ["unknown"],
    ),
    "UTF-16 that was cut": (
        "age,bmi,dose\n1,2,3\n".encode("utf-16")[:-1],
        {"encoding": "utf-16"},
        ["not UTF-16"],
    ),
    "a letter that is not in cp1252": (
        b"age,bmi,dose\n1,2,3\n" * 100 + b"1,2,\x81" + SECRET.encode(),
        {"encoding": "cp1252"},
        ["not CP1252"],
    ),
}


@pytest.mark.parametrize(("content", "said", "words"), FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
def test_errors_name_the_fault_and_what_to_say(
    tmp_path, design, spent, content, said, words, ending
):
    path = tmp_path / f"t.{ending}"
    content = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(content) if ending.endswith("gz") else content)
    text = refusal(path, design, **said)
    for word in words:
        assert word in text
    assert spent == []


def test_carried_text_that_is_not_utf_8_has_a_name(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"x,note\n1,\xff" + SECRET.encode() + b"\n")
    files = RecordFiles.of(ps.Table([tmp_path / "t.csv"], columns=["x"]), ["note"])
    with pytest.raises(ps.PrivsketchError, match="column 'note' is not UTF-8") as caught:
        list(files.rows())
    assert SECRET not in str(caught.value)


def test_a_file_of_semicolons_is_told_before_anything_is_made_of_it(tmp_path):
    (tmp_path / "t.csv").write_text(f"age;{SECRET}\n1;2\n")
    with pytest.raises(ps.PrivsketchError, match="if semicolons separate its cells") as caught:
        RecordFiles.of(ps.Table([tmp_path / "t.csv"], columns=["age"]))
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("delimiter", value) for value in ("", ";;", '"', "\n", "5", "x", "-", "é", "\0", 5)),
        *(("decimal", value) for value in ("", "..", ";", "x", None)),
        *(("encoding", value) for value in ("", "klingon", "hex", "rot13", "idna", "punycode", 8)),
        ("sheet", ""),
    ],
)
def test_what_cannot_be_said_of_a_file(name, value):
    with pytest.raises(ps.PrivsketchError, match=f"{name}="):
        ps.Table("nowhere.csv", **{name: value})


@pytest.mark.parametrize("mark", [",", "."])
def test_delimiter_and_decimal_mark_differ(mark):
    with pytest.raises(ps.PrivsketchError, match="decimal"):
        ps.Table("nowhere.csv", delimiter=mark, decimal=mark)


@pytest.mark.parametrize("spelled", ["\t", "\\t", "tab"])
def test_tabs_can_be_spelled(tmp_path, spelled):
    (tmp_path / "t.csv").write_text('x\ty\n1,5\t"2"\n')
    written = {"delimiter": spelled, "decimal": ","}
    (block,) = read_blocks(tmp_path / "t.csv", 2, **written)
    assert block.tolist() == [[1.5, 2.0]]


# ---------------------------------------------------------------- folders and patterns


def folder_of(path, **files):
    path.mkdir()
    for name, content in files.items():
        place = path / name.replace("__", ".").replace("EQUALS", "=")
        place.mkdir() if content is None else place.write_bytes(content)
    return path


FOLDERS = {
    "empty": ({}, "no data file"),
    "hidden files only": ({"_SUCCESS": b"", "__crc": b""}, "no data file"),
    "several kinds": ({"a__csv": b"x\n1\n", "b__npy": b""}, "several kinds, a.csv and b.npy"),
    "an unknown kind": ({"a__csv": b"x\n1\n", "b__txt": b""}, "b.txt: unknown kind of file"),
    "a folder": ({"a__csv": b"x\n1\n", "more": None}, "a folder in it, more"),
    "partitions": ({"yearEQUALS2020": None}, "partitioned folder, with year=2020"),
}


@pytest.mark.parametrize(("files", "words"), FOLDERS.values(), ids=FOLDERS)
def test_a_folder_whose_files_might_be_passed_over_is_refused(tmp_path, files, words):
    folder = folder_of(tmp_path / "folder", **files)
    for read in (
        expanded,
        lambda path: list(read_blocks([path], 1)),
        lambda p: ps.Table([p]).all_files,
    ):
        with pytest.raises(ps.PrivsketchError, match=words):
            read(folder)
    assert count_records(ps.Table([folder])) is None


def test_a_part_of_a_partitioned_table_can_be_named(tmp_path):
    folder = tmp_path / "t" / "year=2020"
    folder.mkdir(parents=True)
    np.save(folder / "a.npy", np.ones((2, 1)))
    for path in (folder, str(tmp_path / "t" / "*")):
        assert count_records(ps.Table(path)) == 2
    assert len(expanded(tmp_path / "t" / "year=*" / "*.npy")) == 1


def test_a_pattern_without_a_match_is_an_error(tmp_path, design):
    (tmp_path / "_a.csv").write_text("age,bmi,dose\n1,2,3\n")
    assert "no file matches" in refusal(tmp_path / "*.csv", design)
    assert len(expanded(tmp_path / "_*.csv")) == 1


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(tmp_path):
    for name in ("a[1].npy", "a1.npy"):
        np.save(tmp_path / name, np.full((1, 1), len(name)))
    assert expanded(tmp_path / "a[1].npy") == [tmp_path / "a[1].npy"]


def test_links_within_a_folder_are_one_file(tmp_path):
    folder = folder_of(tmp_path / "folder", a__csv=b"x\n1\n")
    (folder / "b.csv").symlink_to(folder / "a.csv")
    with pytest.raises(ps.PrivsketchError, match="twice"):
        list(read_blocks(folder, 1))


# ---------------------------------------------------------------- sheets

SHEETS = {
    "text": ([["x", "y"], [1, SECRET]], "column 'y' is not numeric: a cell has text in it"),
    "numbers as text": ([["x", "y"], [1, "2.5"]], "column 'y' is not numeric: a cell has text"),
    "a date": ([["x", "y"], [datetime.date(2020, 1, 31), 1]], "column 'x'.* a date or time in it"),
    "a missing value": ([["x", "y"], [1, None], [2, 3]], "column 'y' has a missing"),
    "a cell beyond the header": ([["x", "y"], [1, 2, SECRET]], "cells beyond those of the first"),
    "numbers for names": ([[1, 2], [3, 4]], "header=False"),
    "a date for a name": ([["x", datetime.date(2020, 1, 31)], [3, 4]], "header=False"),
    "another name": ([["x", SECRET], [3, 4]], "'y' is unknown among its 2 columns"),
    "a name twice": ([["x", "y", "y"], [3, 4, 5]], "'y' is not unique"),
    "nothing": ([], "no row with the names"),
}


@pytest.mark.parametrize(("rows", "words"), SHEETS.values(), ids=SHEETS)
def test_errors_of_sheets_name_the_column(tmp_path, make_design, spent, rows, words):
    pytest.importorskip("python_calamine")
    write_workbook(tmp_path / "t.xlsx", {"s": rows})
    with pytest.raises(ps.PrivsketchError, match=words) as caught:
        ps.sketch(tmp_path / "t.xlsx", make_design(dim=2, columns=["x", "y"]))
    assert SECRET not in str(caught.value)
    assert spent == []


def test_a_sheet_is_named_where_there_are_several(tmp_path, make_design, no_noise):
    pytest.importorskip("python_calamine")
    path, design = tmp_path / "t.xlsx", make_design(dim=1)
    write_workbook(path, {SECRET: [["x"], [1]], "b": [["x"], [2]]})
    assert "several sheets" in refusal(path, design)
    assert "no sheet of the name 'c'" in refusal(path, design, sheet="c")
    found = ps.sketch(ps.Table(path, sheet="b"), design).values
    assert (found == ps.sketch([[2.0]], design).values).all()


def test_columns_of_a_sheet_without_a_header_are_stated(tmp_path):
    pytest.importorskip("python_calamine")
    write_workbook(tmp_path / "t.xlsx", {"s": [[None, 1, None], [2, 3]]})
    written = {"header": False}
    (block,) = read_blocks(tmp_path / "t.xlsx", 2, [1, 0], **written)
    np.testing.assert_array_equal(block, [[1, np.nan], [3, 2]])
    for read in (
        lambda: RecordFiles.of(ps.Table([tmp_path / "t.xlsx"], **written)),
        lambda: list(read_blocks(tmp_path / "t.xlsx", 2, **written)),
    ):
        with pytest.raises(ps.PrivsketchError, match=r"columns=\[...\]"):
            read()


@pytest.mark.parametrize("content", [b"", b"PK\x05\x06" + bytes(18), b"x,y\n1,2\n", bytes(2000)])
def test_a_workbook_that_is_none(tmp_path, design, content):
    pytest.importorskip("python_calamine")
    (tmp_path / "t.xlsx").write_bytes(content)
    assert "not a valid Excel file" in refusal(tmp_path / "t.xlsx", design)


def test_without_the_library_sheets_are_refused_by_its_name(tmp_path, design, monkeypatch):
    monkeypatch.setitem(sys.modules, "python_calamine", None)
    (tmp_path / "t.xlsx").write_bytes(b"")
    assert "pip install 'privsketch[excel]'" in refusal(tmp_path / "t.xlsx", design)


# ---------------------------------------------------------------- by a schema


def visits():
    """Rows of some persons, with cells of every kind."""
    rng = np.random.default_rng(0)
    n = 60
    return pd.DataFrame(
        {
            "patient": rng.integers(0, 25, n),
            "weight": rng.uniform(40, 120, n).round(3),
            "region": rng.choice(["Süd", "Nord", "elsewhere"], n),
            "smoker": rng.random(n) < 0.3,
            "seen": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), "D"),
        }
    )


def visits_in_text(folder):
    frame = visits()
    folder.mkdir()
    for name, part in (("a.csv", frame[:20]), ("b.csv.gz", frame[20:])):
        part.to_csv(folder / name, sep=";", decimal=",", encoding="latin-1", index=False)
    return folder, {"delimiter": ";", "decimal": ",", "encoding": "latin-1"}


def visits_in_a_sheet(folder):
    pytest.importorskip("python_calamine")
    folder.mkdir()
    rows = [
        [patient, weight, region, bool(smoker), seen.date()]
        for patient, weight, region, smoker, seen in visits().itertuples(index=False)
    ]
    write_workbook(folder / "t.xlsx", {"visits": [list(visits().columns), *rows]})
    return folder / "t.xlsx", {}


@pytest.mark.parametrize("form", [visits_in_text, visits_in_a_sheet])
@pytest.mark.parametrize("person", [None, "patient"])
def test_files_as_they_come_by_a_schema(tmp_path, no_noise, monkeypatch, form, person):
    # Which row of a person counts follows from a key, here the same one in both runs.
    seams.set(monkeypatch, "persons.secrets.randbits", lambda bits: 2**bits // 3)
    columns = [
        ps.Number("weight", 30, 150),
        ps.Category("region", ["Süd", "Nord"]),
        ps.Flag("smoker"),
        ps.Date("seen", "2020-01-01", "2022-12-31"),
    ]
    design = ps.Design.plan(
        n_components=2,
        domain=ps.Schema(columns, person=person),
        budget=ps.Budget(1.0, 1e-6),
        random_state=0,
    )
    data, said = form(tmp_path / "data")
    found = ps.sketch(ps.Table(data, **said), design)
    wanted = ps.sketch(visits(), design)
    assert (found.values == wanted.values).all()
    frame = visits()
    without_one = ps.sketch(frame[frame.patient != frame.patient[0]], design)
    assert (found.values != without_one.values).any()


# ---------------------------------------------------------------- which value is missing


def holes(bad=np.nan):
    records = np.random.default_rng(0).uniform(-1, 1, (3000, 3))
    records[2500, 1] = bad
    return records


def written(folder, kind):
    frame = pd.DataFrame(holes(), columns=list(NAMES))
    path = folder / f"t.{kind}"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), path)
    elif kind == "npy":
        np.save(path, holes())
    else:
        frame.to_csv(path, index=False)
    return path


def dask_frame(folder):
    import dask.dataframe as dd

    return dd.from_pandas(pd.DataFrame(holes(), columns=list(NAMES)), npartitions=3)


HOLDERS = {
    "frame": (lambda _: pd.DataFrame(holes(), columns=list(NAMES)), "bmi"),
    "infinite": (lambda _: pd.DataFrame(holes(-np.inf), columns=list(NAMES)), "bmi"),
    "polars": (lambda _: pl.DataFrame(holes(), schema=list(NAMES)), "bmi"),
    "pyarrow": (lambda _: pa.table(dict(zip(NAMES, holes().T, strict=True))), "bmi"),
    "parquet": (lambda folder: written(folder, "parquet"), "bmi"),
    "array": (lambda _: holes(), 1),
    "npy": (lambda folder: written(folder, "npy"), 1),
    "header that nobody stated": (lambda folder: written(folder, "csv"), 1),
    "iterator": (lambda _: iter([holes()]), 1),
    "dask": (dask_frame, "bmi"),
}


def words_of(column):
    return f"column number {column} (from 0)" if isinstance(column, int) else f"column {column!r}"


@pytest.mark.parametrize(("form", "column"), HOLDERS.values(), ids=HOLDERS)
def test_a_missing_value_has_the_name_of_its_column(tmp_path, make_design, spent, form, column):
    with pytest.raises(MissingError) as caught:
        ps.sketch(form(tmp_path), make_design(dim=3))
    assert str(caught.value).startswith(words_of(column))
    assert caught.value.__context__ is None
    assert spent == []
    if isinstance(column, str):
        with pytest.raises(MissingError, match="column 'bmi'"):
            ps.sketch(form(tmp_path), make_design(dim=2), columns=["dose", "bmi"])


@pytest.mark.usefixtures("warm_pool")
@pytest.mark.mostly_slow(quick_every=3)
@pytest.mark.parametrize("engine", ["threads", "dask", "pool"])
def test_every_engine_names_the_column(tmp_path, make_design, engine):
    path = written(tmp_path, "parquet")
    with pytest.raises(MissingError, match="column 'bmi'"):
        ps.sketch(path, make_design(dim=3), engine=engine)
    with pytest.raises(MissingError, match="column 'bmi'"):
        ps.sketch([path], make_design(dim=2), columns=["bmi", "age"], engine=engine)


def test_names_on_which_files_do_not_agree_are_numbers(tmp_path, make_design):
    written(tmp_path, "parquet")
    other = pa.table({name: [0.0] for name in "abc"})
    pq.write_table(other, tmp_path / "u.parquet")
    with pytest.raises(MissingError, match="column number 1 "):
        ps.sketch([tmp_path / "t.parquet", tmp_path / "u.parquet"], make_design(dim=3))


def test_an_engine_that_does_not_say_where_is_asked_again(tmp_path, make_design, monkeypatch):
    """As a device does, which looks at its records when all of them were there."""

    def sums(blocks, *args, **kwargs):
        for _ in blocks:
            pass
        raise MissingError

    seams.set(monkeypatch, "threads.exact_sums", sums)
    with pytest.raises(MissingError, match="column 'bmi'"):
        ps.sketch(written(tmp_path, "parquet"), make_design(dim=3))
    with pytest.raises(MissingError, match=r"^a record has"):
        ps.sketch(iter([holes()]), make_design(dim=3))


@pytest.mark.parametrize(
    "method", ["pipeline", "lloyd", "grid", "partition-tree", "sample-aggregate", "k-variates"]
)
def test_methods_that_read_records_again_name_the_column(tmp_path, method, spent):
    facts = {
        "domain": ps.Ball(3, 2.0),
        "budget": ps.Budget(1.0, 1e-6),
        "n_records": 3000,
        "random_state": 0,
    }
    for data, column in (
        (written(tmp_path, "parquet"), "bmi"),
        (written(tmp_path, "csv"), 1),
        (holes(), 1),
    ):
        with pytest.raises(MissingError) as caught:
            cluster_with(method, data, 2, **facts)
        assert str(caught.value).startswith(words_of(column))
    with pytest.raises(MissingError, match="column 'bmi'"):
        ps.PrivateKMeans(
            2, epsilon=1.0, delta=1e-6, domain=ps.Ball(3, 2.0), method=method, n_records=3000
        ).fit(pd.DataFrame(holes(), columns=list(NAMES)))
    assert spent == []


def test_sparse_records_and_rows_name_the_column():
    frame = pd.DataFrame(holes(), columns=list(NAMES))
    with pytest.raises(MissingError, match="column 'bmi'"):
        ps.PrivateKMeans(
            2,
            epsilon=1.0,
            delta=1e-6,
            domain=ps.Box(-1, 1),
            method="pipeline",
            n_records=3000,
            options={"n_nonzero": 2},
        ).fit(frame)
    with pytest.raises(MissingError, match="column 'bmi'"):
        ps.PrivateProjection(2, epsilon=1.0, delta=0.0, domain=ps.Ball(3, 2.0)).fit_transform(frame)


@pytest.mark.parametrize("form", [list, lambda rows: np.array(rows, dtype=object)])
def test_text_in_an_array_of_objects_has_the_number_of_its_column(make_design, form):
    rows = form([[1.0, 2.0, 3.0], [1.0, 2.0, None], [1.0, SECRET, 3.0]])
    if isinstance(rows, list):
        rows[2][1] = {SECRET}  # which makes no array of texts
    assert "column number 1 (from 0) is not numeric" in refusal(rows, make_design(dim=3))
    assert "column number 1 (from 0) is" in refusal(rows, make_design(dim=2), columns=[0, 1])


# ---------------------------------------------------------------- from the shell


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of two files as they are written elsewhere, and a design."""
    monkeypatch.chdir(tmp_path)
    data = folder_of(tmp_path / "data")
    records = np.random.default_rng(0).uniform(-1, 1, (300, 2)).tolist()
    for name, part in (("a.csv", records[:100]), ("b.csv", records[100:])):
        lines = ["größe;gewicht", *(f"{x};{y}".replace(".", ",") for x, y in part)]
        (data / name).write_bytes("\r\n".join(lines).encode("latin-1"))
    design = ["design", "-k", "2", "--box", "-1", "1", "--columns", "größe,gewicht"]
    succeeded(*design, "--epsilon", "1", "--delta", "1e-6", "--seed", "1", "-o", "study.json")
    return tmp_path


WRITTEN = ["--delimiter", ";", "--decimal", ",", "--encoding", "latin-1"]
BUDGET = ["--epsilon", "1", "--delta", "1e-6"]
COMMANDS = {
    "sketch": ["sketch", "study.json", "data", "-o", "out.sketch"],
    "cluster": ["cluster", "data", "-k", "2", "--ball", "2", *BUDGET, "-o", "model.json"],
    "release": ["release", "data/*.csv", "-k", "2", "--ball", "2", *BUDGET, "-o", "out.parquet"],
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_every_command_reads_files_as_they_come(folder, command):
    succeeded(*command, *WRITTEN)
    if command[0] == "release":
        assert pq.read_metadata("out.parquet").num_rows == 300


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_every_command_says_what_is_to_be_said(folder, command, spent):
    columns = [] if command[0] == "sketch" else ["--columns", "größe,gewicht"]
    command = [*command, *columns]
    line = refused(folder, *command, code=DATA)
    assert "UTF-8" in line
    assert "--encoding latin-1" in line
    line = refused(folder, *command, "--encoding", "latin-1", code=DATA)
    assert "--delimiter ';'" in line
    line = refused(folder, *command, *WRITTEN[:2], *WRITTEN[4:], code=DATA)
    assert "column 'größe' is not numeric" in line
    assert "--decimal ," in line
    line = refused(folder, *command, *WRITTEN[2:], code=DATA)
    assert "--decimal , is what separates its cells" in line
    line = refused(folder, *command, *WRITTEN, "--delimiter", ";;")
    assert "--delimiter ';;': expected one character" in line
    for error in (line, refused(folder, *command, *WRITTEN, "--encoding", "klingon")):
        assert error.endswith("nothing was spent")
    assert spent == []


@pytest.mark.parametrize("name", ["sketch", "cluster"])
def test_results_are_not_written_into_a_folder_of_records(folder, name, spent):
    command = [*COMMANDS[name][:-1], "data/out"]
    assert "in a folder of records" in refused(folder, *command, *WRITTEN, code=DATA)
    command = [*COMMANDS[name][:-1], "data/a.csv", "--force"]
    assert "given twice" in refused(folder, *command, *WRITTEN, code=DATA)
    assert spent == []


def test_the_same_file_through_a_folder_is_refused(folder):
    command = ["release", "data", "data/a.csv", *COMMANDS["release"][2:]]
    assert "the same file is given twice" in refused(folder, *command, *WRITTEN, code=DATA)


def test_help_says_how_files_are_written():
    for name in COMMANDS:
        page = run(name, "--help").stdout
        for option in ("--no-header", "--delimiter", "--decimal", "--encoding", "--sheet"):
            assert option in page


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_in_a_folder_of_data_is_refused(tmp_path):
    """Reading it would wait for somebody who writes."""
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    os.mkfifo(tmp_path / "b.csv")
    design = ps.Design.plan(
        n_components=1, domain=ps.Box(-1, 1, dim=2), budget=ps.Budget(1.0), random_state=0
    )
    for path in (tmp_path, tmp_path / "*.csv"):
        with pytest.raises(RecordError, match=r"b\.csv: a pipe or a device"):
            ps.sketch(path, design)
