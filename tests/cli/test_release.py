"""`privsketch release`: files of records to released rows, and what goes wrong on the way."""

import datetime
import decimal
import gc
import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

import privsketch as ps
from privsketch.cli import stoppable
from privsketch.projection import public_matrix
from privsketch.testing import replaced_noise
from tests import commands, seams
from tests.commands import DATA, INTEGRITY, USAGE, run

DIM, K = 3, 2
OPTIONS = ["--epsilon", "4", "-k", str(K), "--ball", "3", "--seed", "5"]


@pytest.fixture
def small_blocks(monkeypatch):
    """Readers and threads cut tables into many pieces, at different places."""
    seams.set(monkeypatch, "memory.BLOCK_VALUES", 7 * DIM)
    seams.set(monkeypatch, "memory.WIDE_ROWS", 1)
    seams.set(monkeypatch, "rows.RELEASE_CHUNK_VALUES", 3 * DIM)


def released(*arguments):
    """A release that must succeed."""
    return commands.succeeded("release", *arguments)


def refused(folder, *arguments, code=DATA):
    """The error line of a release that must fail."""
    return commands.refused(folder, "release", *arguments, code=code)


def some_records(n_records=50, seed=0):
    return np.random.default_rng(seed).normal(size=(n_records, DIM))


def table_of(records, **more):
    return pa.table({**dict(zip("abc", records.T, strict=True)), **more})


WRITERS = {
    "parquet": lambda path, table: pq.write_table(table, path, row_group_size=20),
    "csv": lambda path, table: csv.write_csv(table, path),
    "arrow": lambda path, table: feather.write_feather(table, str(path), chunksize=20),
    "npy": lambda path, table: np.save(path, np.column_stack([c.to_numpy() for c in table])),
}


def write(path, table):
    WRITERS[Path(path).suffix[1:]](Path(path), table)


def read(path):
    """A released table as Arrow reads it."""
    path = Path(path)
    if path.suffix == ".npy":
        values = np.load(path)
        return pa.table({f"projection{j}": column for j, column in enumerate(values.T)})
    if path.suffix == ".csv":
        return csv.read_csv(path)
    if path.suffix == ".parquet":
        return pq.read_table(path)
    return feather.read_table(path)


def projections(table):
    return np.column_stack([table[f"projection{j}"].to_numpy() for j in range(K)])


def assert_projected(values, records, matrix, radius=3.0, center=0.0):
    """Equal to (records - center) P but for quantising: half a unit for each coordinate."""
    offset = records - center
    length = np.linalg.norm(offset, axis=1, keepdims=True)
    inside = offset * (radius / np.maximum(length, radius))
    unit = radius / 2**20
    # A record that is moved to the edge is truncated as well, and the edge is a unit inside.
    slack = 3 * unit * np.abs(matrix).sum(axis=0)
    assert (np.abs(values - inside @ matrix) <= slack).all()


# ---------------------------------------------------------------- what is released


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("center", ["0", "1,-1,0.5"])
def test_rows_are_projections_of_records_moved_into_the_ball(folder, no_noise, threads, center):
    records = 2 * some_records(500)
    write("data.parquet", table_of(records))
    options = ["--center", center, "--threads", threads, "--publish-matrix", "P.npy"]
    released("data.parquet", *OPTIONS, *options, "-o", "out.parquet")
    center = np.array([float(number) for number in center.split(",")])
    assert_projected(projections(read("out.parquet")), records, np.load("P.npy"), center=center)


@pytest.mark.parametrize("output", ["parquet", "csv", "arrow", "npy"])
@pytest.mark.parametrize("kind", ["parquet", "csv", "arrow", "npy"])
def test_every_kind_of_file_is_read_and_written(folder, no_noise, small_blocks, kind, output):
    records = some_records()
    write(f"data.{kind}", table_of(records))
    released(f"data.{kind}", *OPTIONS, "-o", f"out.{output}")
    table = read(f"out.{output}")
    assert table.column_names == ["projection0", "projection1"]
    assert_projected(projections(table), records, public_matrix(DIM, K, 5).values)
    assert json.loads(Path("out.receipt.json").read_text())["format"] == "privsketch-release"


def test_files_are_read_in_order_and_columns_found_by_name(folder, no_noise):
    first, second, third = (some_records(30, seed) for seed in range(3))
    write("z.parquet", table_of(first))
    write("y.csv", table_of(second).select(["c", "a", "b"]))
    write("x.npy", table_of(third))
    released("z.parquet", "y.csv", "x.npy", *OPTIONS, "-o", "out.npy")
    matrix = public_matrix(DIM, K, 5).values
    assert_projected(np.load("out.npy"), np.concatenate([first, second, third]), matrix)


def test_columns_may_be_chosen(folder, no_noise):
    records = some_records()
    write("data.csv", table_of(records, name=["x"] * len(records)))
    released("data.csv", *OPTIONS, "--columns", "c,a", "-o", "out.npy")
    matrix = public_matrix(2, K, 5).values
    assert_projected(np.load("out.npy"), records[:, [2, 0]], matrix)
    np.save("wide.npy", records)
    released("wide.npy", *OPTIONS, "--columns", "2,0", "-o", "wide-out.npy")
    assert (np.load("wide-out.npy") == np.load("out.npy")).all()


def test_large_tables_are_whole(folder, no_noise):
    """More rows than a writer gathers at a time: two row groups, and a header that grows."""
    records = np.tile(some_records(1000), (400, 1))
    np.save("data.npy", records)
    released("data.npy", *OPTIONS, "-k", 6, "-o", "out.parquet")
    assert pq.read_metadata("out.parquet").num_row_groups == 2
    released("data.npy", *OPTIONS, "-k", 6, "-o", "other.npy")
    values = np.load("other.npy")
    assert (values == np.tile(values[:1000], (400, 1))).all()
    assert (pq.read_table("out.parquet").to_pandas().to_numpy() == values).all()


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_released_rows_have_the_noise_that_the_receipt_states(folder, noise):
    """Squared noise over the stated variance: 8 standard errors, a false alarm below 1e-9.

    A scale that is 5 % off would be twice as far away.
    """
    n_records, k = 40_000, 4
    np.save("data.npy", np.zeros((n_records, DIM)))
    options = ["--epsilon", 2, "--delta", 1e-6, "-k", k, "--ball", 1, "--noise", noise]
    released("data.npy", *options, "-o", "out.npy")
    description = ps.ReleaseDescription.load("out.receipt.json")
    assert description.noise == noise
    values, variance = np.load("out.npy"), description.noise_variance
    spread = np.sqrt((description.noise_fourth_moment / variance**2 - 1) / values.size)
    assert abs((values**2).mean() / variance - 1) < 8 * spread
    assert abs(values.mean()) < 8 * np.sqrt(variance / values.size)
    assert 8 * spread < 0.05


# ---------------------------------------------------------------- carried columns


def test_carried_columns_stay_with_their_rows(folder, no_noise, small_blocks):
    """Several files and row groups, pieces of many sizes, three threads."""
    tables = []
    for i, (kind, n_records) in enumerate([("parquet", 53), ("arrow", 48), ("parquet", 1)]):
        place = 100 * i + np.arange(n_records)
        rows = place[:, np.newaxis] * np.array([[1e-3, 2e-3, -1e-3]])
        table = table_of(rows, id=place, label=[f"row {number}" for number in place])
        write(f"part-{i}.{kind}", table.select(["label", "b", "a", "id", "c"]))
        tables.append((place, rows))
    names = ["part-0.parquet", "part-1.arrow", "part-2.parquet"]
    result = released(
        *names,
        *OPTIONS,
        "--carry",
        "id,label",
        "--columns",
        "a,b,c",
        "--threads",
        3,
        "-o",
        "o.arrow",
    )
    assert "UNPROTECTED: id, label" in result.stderr
    table = read("o.arrow")
    assert table.column_names == ["id", "label", "projection0", "projection1"]
    place = np.concatenate([place for place, _ in tables])
    assert (table["id"].to_numpy() == place).all()
    assert table["label"].to_pylist() == [f"row {number}" for number in place]
    matrix = public_matrix(DIM, K, 5).values
    assert_projected(projections(table), np.concatenate([rows for _, rows in tables]), matrix)


def test_values_of_any_type_are_carried_unchanged(folder, no_noise):
    moment = datetime.datetime(2020, 2, 29, 12, tzinfo=datetime.UTC)
    carried = {
        "text": pa.array(["", None, 'ü,\n"x"']),
        "number": pa.array([2**63 - 1, None, -1]),
        "money": pa.array([decimal.Decimal("1.10"), None, decimal.Decimal("-2.00")]),
        "when": pa.array([moment, None, moment], pa.timestamp("ns", "UTC")),
        "list": pa.array([[1, 2], None, []]),
        "pair": pa.array([{"x": 1, "y": "a"}, None, {"x": None, "y": "b"}]),
        "bytes": pa.array([b"\x00\xff", None, b""]),
        "category": pa.array(["low", None, "low"]).dictionary_encode(),
    }
    table = table_of(some_records(3), **carried)
    write("data.parquet", table)
    for kind in ("parquet", "arrow"):
        released("data.parquet", *OPTIONS, "--carry", ",".join(carried), "-o", f"{kind}.{kind}")
        out = read(f"{kind}.{kind}")
        for name in carried:
            assert out[name].to_pylist() == table[name].to_pylist()
        assert out.schema.field("when").type == pa.timestamp("ns", "UTC")
        assert out.schema.field("category").type == pa.string()


def test_dictionaries_may_change_within_a_file(folder, no_noise):
    schema = table_of(some_records(1), kind=pa.array(["x"]).dictionary_encode()).schema
    with pa.ipc.new_stream("data.arrow", schema) as stream:
        for words in (["x", "y"], ["z", "x"]):
            kind = pa.array(words).dictionary_encode()
            stream.write_table(table_of(some_records(2), kind=kind))
    released("data.arrow", *OPTIONS, "--carry", "kind", "-o", "out.arrow")
    assert read("out.arrow")["kind"].to_pylist() == ["x", "y", "z", "x"]


def test_a_dry_run_tells_the_noise_and_spends_nothing(folder, spent):
    write(folder / "in.parquet", table_of(some_records()))
    result = released(
        *("in.parquet", "-k", "4", "--epsilon", "1", "--ball", "3", "--seed", "1"),
        *("-o", "out.parquet", "--dry-run"),
    )
    projection = ps.Projection.draw(ps.Ball(DIM, 3.0), 4, epsilon=1.0, random_state=1)
    assert f"{projection.noise_variance**0.5:.4g}" in result.output
    assert "1.5 in each number" in result.output  # 3 / sqrt(4)
    assert [path.name for path in folder.iterdir()] == ["in.parquet"]
    assert spent == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_request_to_end_is_not_lost_in_a_library(number):
    before = signal.getsignal(number)
    with stoppable(None) as stop:
        stop.raise_if_stopped()
        with suppress(BaseException):  # as some libraries do
            os.kill(os.getpid(), number)
            time.sleep(1)
        with pytest.raises(KeyboardInterrupt):
            stop.raise_if_stopped()
    assert signal.getsignal(number) is before


def test_bytes_are_not_carried_into_text(folder):
    write(folder / "in.parquet", table_of(some_records(), key=[b"\xff"] * 50))
    line = refused(folder, "in.parquet", "--carry", "key", "-o", "out.csv", *OPTIONS)
    assert "'key'" in line


def test_the_receipt_names_the_columns_of_a_record_and_counts_rows(folder):
    write(folder / "in.parquet", table_of(some_records(), key=["k"] * 50))
    released("in.parquet", "--carry", "key", "-o", "out.parquet", *OPTIONS)
    description = ps.ReleaseDescription.load("out.receipt.json")
    assert description.n_records == 50
    assert len(description.record) == DIM
    assert "key" not in description.record


def test_nothing_but_values_is_carried(folder, no_noise):
    """Arrow files may hold numbers under nulls, and texts of rows that are gone."""
    hidden = np.array([1.0, 123456.789, 3.0])
    number = pa.Array.from_buffers(
        pa.float64(), 3, [pa.py_buffer(bytes([0b101])), pa.py_buffer(hidden.tobytes())]
    )
    text = pa.array(["a" * 20, "hidden" * 4, "c" * 20]).cast(pa.string_view())
    table = pa.table(
        {"x": [0.1, 0.2], "n": number.slice(0, 2), "t": pa.concat_arrays([text[:1], text[2:]])}
    )
    with pa.ipc.new_file(folder / "in.arrow", table.schema) as file:
        file.write_table(table)
    assert hidden[1:2].tobytes() in (folder / "in.arrow").read_bytes()
    for output in ("o.arrow", "o2.parquet"):
        released(
            *("in.arrow", "--columns", "x", "--carry", "n,t", "-k", "1", "-o", output),
            *("--epsilon", "1", "--ball", "1"),
        )
        content = (folder / output).read_bytes()
        assert hidden[1:2].tobytes() not in content
        assert b"hidden" not in content
        assert read(folder / output).column("t").to_pylist() == ["a" * 20, "c" * 20]


def test_columns_of_csv_are_carried_as_they_stand_there(folder, no_noise):
    text = 'id,a,b,c,note\n007,1,0,0,NA\n1e3,0,1,0,\n-0.0,0,0,1,"two\nlines, ""quoted"""\n'
    Path("data.csv").write_text(text)
    released("data.csv", *OPTIONS, "--carry", "note,id", "-o", "out.csv")
    as_text = csv.ConvertOptions(column_types={"id": pa.string(), "note": pa.string()})
    table = csv.read_csv(
        "out.csv", csv.ReadOptions(), csv.ParseOptions(newlines_in_values=True), as_text
    )
    assert table["id"].to_pylist() == ["007", "1e3", "-0.0"]
    assert table["note"].to_pylist() == ["NA", "", 'two\nlines, "quoted"']


def test_long_text_with_line_breaks_survives_the_blocks_of_a_reader(folder, no_noise):
    notes = [f"{'line ' * 200}\n{i}" for i in range(6000)]  # 6 MB: more than one block
    write("data.csv", table_of(np.full((6000, DIM), 0.5), note=notes))
    released("data.csv", *OPTIONS, "--carry", "note", "-o", "out.parquet")
    assert read("out.parquet")["note"].to_pylist() == notes


# ---------------------------------------------------------------- the receipt


def test_the_receipt_says_what_was_done(folder):
    write("data.parquet", table_of(some_records(), id=np.arange(50)))
    told = released("data.parquet", *OPTIONS, "--carry", "id", "--source", "clinic", "-o", "r.csv")
    description = ps.ReleaseDescription.load("r.receipt.json")
    assert description.describe() in told.stdout
    assert "written to r.csv, 50 rows, and r.receipt.json" in told.stdout
    assert description.columns == ("projection0", "projection1")
    assert description.carried == ("id",)
    assert description.domain == ps.Ball(dim=DIM, radius=3.0)
    assert (description.seed, description.calibration) == (5, "realised")
    receipt = description.receipt
    assert (receipt.epsilon, receipt.delta, receipt.neighbours) == (4.0, 0.0, "replace")
    assert (receipt.source, receipt.unit) == ("clinic", "one record")
    assert receipt.assumption == "columns copied without protection: id"
    assert not receipt.sampler.startswith("INSECURE")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], {"calibration": "realised", "noise": "laplace", "seed": None}),
        (
            ["--delta", 1e-6, "--calibration", "fresh", "-k", 20],
            {"calibration": "fresh", "noise": "gaussian"},
        ),
        (["--delta", 1e-6, "--calibration", "union"], {"calibration": "union"}),
        (["--calibration", "paper"], {"calibration": "paper"}),
        (["--protect", "element"], {"protect": "element"}),
        (["--delta", 1e-6, "--noise", "gaussian", "--seed", 3], {"noise": "gaussian", "seed": 3}),
    ],
    ids=str,
)
def test_options_reach_the_release(folder, options, expected):
    np.save("data.npy", some_records())
    released("data.npy", "--epsilon", 1, "-k", K, "--box", -2, "1,2,3", *options, "-o", "out.npy")
    description = ps.ReleaseDescription.load("out.receipt.json")
    assert {name: getattr(description, name) for name in expected} == expected
    assert description.domain == ps.Box(-2, [1, 2, 3])


def test_a_bound_is_part_of_the_receipt(folder):
    np.save("data.npy", some_records())
    released("data.npy", *OPTIONS, "--bound", 0.5, "--bound-norm", "l1", "-o", "out.npy")
    unit = ps.ReleaseDescription.load("out.receipt.json").receipt.unit
    assert unit == "a change of one record by at most 0.5 in L1 distance"


def test_missing_values_are_centerd_if_told(folder, no_noise):
    Path("data.csv").write_text("a,b,c\n1,,1\n1,0.5,1\n")
    assert "--missing center" in refused(folder, "data.csv", *OPTIONS, "-o", "out.npy")
    box = ["--epsilon", 4, "-k", K, "--box", 0, 1, "--missing", "center"]
    released("data.csv", *box, "-o", "out.npy")
    assert (np.load("out.npy")[0] == np.load("out.npy")[1]).all()


def test_a_receipt_without_exact_noise_is_marked(folder, no_noise):
    np.save("data.npy", some_records())
    released("data.npy", *OPTIONS, "-o", "out.npy")
    assert "INSECURE" in run("inspect", "out.npy").stdout


@pytest.mark.parametrize("name", ["out.receipt.json", "out.parquet"])
def test_inspect_describes_a_release(folder, name):
    np.save("data.npy", some_records())
    released("data.npy", *OPTIONS, "-o", "out.parquet")
    told = run("inspect", name)
    assert told.exit_code == 0
    assert ps.ReleaseDescription.load("out.receipt.json").describe() in told.stdout
    assert ("described by out.receipt.json" in told.stdout) == (name == "out.parquet")


def test_inspect_takes_no_other_file_for_a_released_table(folder):
    np.save("data.npy", some_records())
    released("data.npy", *OPTIONS, "-o", "out.parquet")
    Path("out.sketch").write_bytes(b"something")
    assert run("inspect", "out.sketch").exit_code == INTEGRITY
    assert run("inspect", "data.npy").exit_code == INTEGRITY


def test_an_altered_receipt_is_refused(folder):
    np.save("data.npy", some_records())
    released("data.npy", *OPTIONS, "-o", "out.parquet")
    text = Path("out.receipt.json").read_text()
    Path("out.receipt.json").write_text(text.replace('"epsilon": 4.0', '"epsilon": 0.4'))
    told = run("inspect", "out.receipt.json")
    assert told.exit_code == INTEGRITY
    assert "altered" in told.stderr


# ---------------------------------------------------------------- the matrix


@pytest.mark.parametrize("options", [[], ["--delta", 1e-6], ["--seed", 5]], ids=str)
def test_a_published_matrix_is_that_of_the_release(folder, no_noise, options):
    records = some_records()
    np.save("data.npy", records)
    fresh = ["--epsilon", 4, "-k", K, "--ball", 3, *options, "--publish-matrix", "P.npy"]
    released("data.npy", *fresh, "-o", "out.npy")
    matrix = np.load("P.npy")
    assert_projected(np.load("out.npy"), records, matrix)
    assert (matrix == public_matrix(DIM, K, 5).values).all() == ("--seed" in options)


def test_a_matrix_is_not_published_before_the_release(folder):
    """The sampler looks at the folder while the release goes on."""
    np.save("data.npy", some_records())
    seen = []

    def look(values, law):
        seen.append(Path("P.npy").exists())
        return values.copy(), law.scale

    with replaced_noise(look):
        released("data.npy", *OPTIONS, "--publish-matrix", "P.npy", "-o", "out.npy")
    assert seen == [False]
    assert Path("P.npy").exists()


# ---------------------------------------------------------------- all or nothing


def fails_at(call, error):
    """A sampler that raises in the middle of a release."""
    count = 0

    def sampler(values, law):
        nonlocal count
        count += 1
        if count == call:
            raise error
        return values.copy(), law.scale

    return sampler


@pytest.mark.mostly_slow(quick_every=8)
@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("output", ["out.parquet", "out.csv", "out.arrow", "out.npy"])
def test_an_interrupt_leaves_nothing(folder, small_blocks, output, threads):
    np.save("data.npy", some_records())
    options = [*OPTIONS, "--threads", threads, "--publish-matrix", "P.npy"]
    with replaced_noise(fails_at(5, KeyboardInterrupt())):
        result = run("release", "data.npy", *options, "-o", output)
    assert result.exit_code == 1
    assert "Aborted" in result.stderr
    del result
    gc.collect()  # writers that were left open would complain now
    assert [path.name for path in folder.iterdir()] == ["data.npy"]


def test_a_bad_record_at_the_end_leaves_nothing(folder, small_blocks):
    write("first.csv", table_of(some_records()))
    records = some_records()
    records[-1, 1] = np.inf
    write("second.parquet", table_of(records))
    options = [*OPTIONS, "--publish-matrix", "P.npy", "-o", "out.csv"]
    line = refused(folder, "first.csv", "second.parquet", *options)
    assert "missing" in line


def test_a_damaged_file_at_the_end_leaves_nothing(folder, small_blocks):
    write("first.csv", table_of(some_records()))
    Path("second.csv").write_text("a,b,c\n" + "1,2,3\n" * 50 + "1,confidential,3\n")
    line = refused(folder, "first.csv", "second.csv", *OPTIONS, "-o", "out.csv")
    assert "second.csv: column number 1 (from 0) is not numeric" in line
    assert "confidential" not in line


@pytest.fixture
def full_disk(monkeypatch):
    """The disk is full as soon as a table is complete."""

    def fail(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)


@pytest.mark.parametrize("output", ["out.parquet", "out.npy"])
def test_a_full_disk_leaves_nothing(folder, full_disk, output):
    np.save("data.npy", some_records())
    line = refused(folder, "data.npy", *OPTIONS, "-o", output)
    assert line == f"Error: {output}: No space left on device; nothing was spent"


@pytest.mark.parametrize("failing", [1, 2])
@pytest.mark.parametrize("old", [False, True], ids=["new", "replacing"])
def test_a_table_never_stands_without_its_own_receipt(folder, monkeypatch, failing, old):
    """One of the last two steps, the renaming of receipt and table, fails."""
    np.save("data.npy", some_records())
    if old:
        released("data.npy", *OPTIONS, "-o", "out.npy")
    replace, count = os.replace, 0

    def sometimes(source, target):
        nonlocal count
        if Path(target).name in ("out.npy", "out.receipt.json"):
            count += 1
            if count == failing:
                raise OSError(5, "Input/output error")
        return replace(source, target)

    monkeypatch.setattr(os, "replace", sometimes)
    result = run("release", "data.npy", *OPTIONS, "--force", "-o", "out.npy")
    assert result.exit_code == DATA
    assert "Input/output error" in result.stderr
    assert count == failing
    assert [path.name for path in folder.iterdir()] == ["data.npy"]


def test_the_receipt_appears_first(folder, monkeypatch):
    np.save("data.npy", some_records())
    released("data.npy", *OPTIONS, "-o", "out.npy", "--source", "old")
    replace, states = os.replace, []

    def watched(source, target):
        replace(source, target)
        receipt = Path("out.receipt.json")
        source = ps.ReleaseDescription.load(receipt).receipt.source if receipt.exists() else None
        states.append((Path("out.npy").exists(), source))

    monkeypatch.setattr(os, "replace", watched)
    released("data.npy", *OPTIONS, "-o", "out.npy", "--source", "new", "--force")
    assert (True, "new") in states
    assert (True, "old") not in states[states.index((False, "new")) :]
    assert states.index((False, "new")) < states.index((True, "new"))


def test_a_second_release_is_not_made_unawares(folder, spent):
    np.save("data.npy", some_records())
    released("data.npy", *OPTIONS, "-o", "out.npy")
    spent.clear()
    line = refused(folder, "data.npy", *OPTIONS, "-o", "out.npy")
    assert "would spend the budget again" in line
    assert "--force" in line
    Path("out.npy").rename("moved.npy")  # its receipt still stands there
    assert "spend" in refused(folder, "data.npy", *OPTIONS, "-o", "out.npy")
    assert spent == []
    released("data.npy", *OPTIONS, "-o", "out.npy", "--force")
    assert len(spent) == 1


def test_two_tables_never_share_a_receipt(folder, spent):
    np.save("data.npy", some_records())
    line = refused(folder, "data.npy", *OPTIONS, "-o", "data.parquet", "--force")
    assert "data.receipt.json" in line
    assert spent == []


@pytest.mark.parametrize(
    "names",
    [
        ["data.npy", "-o", "data.npy"],
        ["data.npy", "-o", "./data.npy"],
        ["data.npy", "-o", "out.npy", "--publish-matrix", "data.npy"],
        ["data.npy", "-o", "out.npy", "--publish-matrix", "out.npy"],
    ],
    ids=" ".join,
)
def test_force_replaces_neither_records_nor_the_other_result(folder, spent, names):
    np.save("data.npy", some_records())
    assert "twice" in refused(folder, *names, *OPTIONS, "--force")
    assert spent == []


# ---------------------------------------------------------------- errors

BAD = {
    "not numeric": (["text.parquet"], "column 'name' is not numeric but string; name the columns"),
    "not numeric, csv": (["text.csv"], "column number 3 (from 0) is not numeric"),
    "not numeric, stated": (["text.csv", "--columns", "a,name"], "column 'name' is not numeric"),
    "unknown column": (["data.parquet", "--columns", "a,x"], "column 'x' is unknown"),
    "unknown carried column": (["data.parquet", "--carry", "x"], "column 'x' is unknown"),
    "carried twice": (["text.parquet", "--carry", "name,name"], "'name' is named twice"),
    "carried and released": (["data.parquet", "--columns", "a,b", "--carry", "a"], "part of the"),
    "carried array": (["data.npy", "--carry", "a"], "array"),
    "nothing left": (["data.parquet", "--carry", "a,b,c"], "none is left"),
    "names of an array": (["data.npy", "--columns", "a,b"], "column numbers"),
    "other columns": (["data.parquet", "text.parquet"], "text.parquet: its columns are not those"),
    "other width": (["data.parquet", "wide.npy"], "4 columns"),
    "same file": (["data.parquet", "./data.parquet"], "twice"),
    "no such file": (["nowhere.parquet"], "no such file"),
    "unknown kind": (["data.ods"], "unknown kind"),
    "vector": (["vector.npy"], "2 dimensions"),
    "empty csv": (["empty.csv"], "no records"),
    "empty parquet": (["empty.parquet"], "no records"),
    "domain": (
        ["data.parquet", "--center", "0,0"],
        "the table has 3 columns, a record has dim=2; name the columns",
    ),
    "no room for text": (["text.parquet", "--carry", "name", "-o", "out.npy"], "no room"),
    "list in csv": (["list.parquet", "--carry", "list", "-o", "out.csv"], "list<"),
    "name taken": (["taken.parquet", "--carry", "projection0"], "name of a released one"),
    "kind of output": (["data.parquet", "-o", "out.xlsx"], "out.xlsx: unknown kind"),
    "compressed output": (["data.parquet", "-o", "out.csv.gz"], "unknown kind"),
    "folder": (["data.parquet", "-o", "nowhere/out.csv"], "no such folder"),
    "matrix": (["data.parquet", "--publish-matrix", "P.csv"], ".npy"),
}
BAD_USAGE = {
    "components": (["data.parquet", "-k", 0], "--components 0:"),
    "epsilon": (["data.parquet", "--epsilon", -1], "--epsilon -1.0:"),
    "threads": (["data.parquet", "--threads", 0], "--threads 0:"),
    "source": (["data.parquet", "--source", "x" * 201], "--source x"),
    "gaussian": (["data.parquet", "--noise", "gaussian"], "--noise gaussian"),
    "seed": (["data.parquet", "--delta", 1e-6, "--calibration", "fresh"], "leave --seed out"),
    "bound": (["data.parquet", "--bound-norm", "l1"], "only with --bound"),
    "two domains": (
        ["data.parquet", "--box", 0, 1],
        "one of --schema FILE, --box",
    ),
}


@pytest.fixture
def tables(folder):
    records = some_records(5)
    write("data.parquet", table_of(records))
    np.save("data.npy", records)
    np.save("wide.npy", np.zeros((3, 4)))
    np.save("vector.npy", np.zeros(3))
    text = table_of(records, name=["confidential"] * 5)
    write("text.parquet", text)
    write("text.csv", text)
    write("list.parquet", table_of(records, list=[[1]] * 5))
    write("taken.parquet", table_of(records, projection0=["x"] * 5))
    write("empty.parquet", table_of(records[:0]))
    Path("empty.csv").write_text("a,b,c\n")
    return folder


@pytest.mark.parametrize(
    ("arguments", "word", "code"),
    [
        pytest.param(*case, code, id=name)
        for cases, code in ((BAD, DATA), (BAD_USAGE, USAGE))
        for name, case in cases.items()
    ],
)
def test_mistakes_get_one_clear_line_and_release_nothing(tables, arguments, word, code):
    output = [] if "-o" in arguments else ["-o", "out.parquet"]
    line = refused(tables, *OPTIONS, *arguments, *output, code=code)
    assert word in line
    assert "confidential" not in line


def test_carried_columns_need_one_type(tables):
    records = some_records(5)
    write("one.parquet", table_of(records, id=np.arange(5)))
    write("two.parquet", table_of(records, id=[str(i) for i in range(5)]))
    line = refused(tables, "one.parquet", "two.parquet", *OPTIONS, "--carry", "id", "-o", "o.csv")
    assert "two.parquet: column 'id' is string, in the first file int64" in line


def test_data_and_budget_are_required(folder):
    for missing in ("--epsilon", "-k", "--ball"):
        place = OPTIONS.index(missing)
        options = OPTIONS[:place] + OPTIONS[place + 2 :]
        assert run("release", "data.npy", *options, "-o", "out.npy").exit_code == 2
    assert "DATA" in run("release", *OPTIONS, "-o", "out.npy").stderr


def test_help_tells_what_a_user_must_know():
    text = " ".join(run("release", "--help").stdout.split())
    for words in (
        "makes the matrix public",
        "Noise has no seed",
        "Row i of the output is row i of the input",
        "sorted by something secret tells that order",
        "UNPROTECTED",
        "as text",
        "does not shrink",
        "spends the budget again",
        "--epsilon 4 --components 10 --protect row",
    ):
        assert words in text
