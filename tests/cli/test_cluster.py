"""`privsketch cluster`: files of records to private clusters, and what goes wrong on the way."""

import io
import os
import signal
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

import privsketch as ps
from privsketch import AccessError, ClusterModel
from privsketch.cli.fit import cluster as command_file
from privsketch.cli.shell import progress
from privsketch.clustering import choose as methods
from privsketch.clustering import cluster_with
from privsketch.clustering import medians as medians
from tests import commands, seams
from tests.commands import DATA, USAGE, contents

DIM, K = 3, 2
CENTERS = np.array([[-2.0, -2.0, -2.0], [2.0, 2.0, 2.0]])
PUBLIC = ["-k", K, "--ball", 5, "--epsilon", 2, "--delta", "1e-6"]
STUDY = [*PUBLIC, "--records", 1e4, "--seed", 3]


@pytest.fixture
def small_blocks(monkeypatch):
    """Readers cut tables into many blocks, so that one pass takes many steps."""
    seams.set(monkeypatch, "memory.BLOCK_VALUES", 50 * DIM)
    seams.set(monkeypatch, "memory.WIDE_ROWS", 1)


def some_records(n_records=4000, seed=0):
    rng = np.random.default_rng(seed)
    return CENTERS[rng.integers(K, size=n_records)] + 0.3 * rng.normal(size=(n_records, DIM))


def write(path, records, names="abc"):
    columns = dict(zip(names, records.T, strict=True))
    if str(path).endswith(".npy"):
        np.save(path, records)
    elif str(path).endswith(".csv"):
        csv.write_csv(pa.table(columns), path)
    else:
        pq.write_table(pa.table(columns), path, row_group_size=500)


def run(*arguments):
    return commands.run("cluster", *arguments)


def clustered(*arguments):
    """A run that must succeed."""
    return commands.succeeded("cluster", *arguments)


def in_order(centers):
    return centers[np.argsort(centers[:, 0])]


# ---------------------------------------------------------------- what it does


@pytest.mark.slow
@pytest.mark.parametrize("method", ["auto", "pipeline", "partition-tree", "lloyd", "grid"])
def test_one_command_gives_a_model_and_a_report(folder, method):
    write("data.parquet", some_records())
    told = clustered(
        "data.parquet",
        *("-k", K, "--ball", 5, "--epsilon", 8, "--delta", "1e-6", "--records", 4000),
        *("--method", method, "-o", "model.json", "--report", "report.html", "--source", "north"),
    )
    assert (folder / "report.html").read_text().startswith("<!doctype html>")
    if method == "auto" and "sketch" in told.stdout.splitlines()[0]:
        model = ps.ClusterModel.load("model.json")
    else:
        model = ClusterModel.load("model.json")
        assert method in ("auto", model.method)
        assert (model.reason != "") == (method == "auto")
        assert model.domain == ps.Ball(dim=DIM, radius=5.0)
    assert model.columns == ("a", "b", "c")
    assert model.receipt.source == "north"
    assert (model.receipt.epsilon, model.receipt.neighbours) == (8.0, "add-remove")
    assert model.receipt.delta <= 1e-6
    assert model.centers.shape == CENTERS.shape
    for line in ("epsilon = 8", "written to model.json", "written to report.html"):
        assert line in told.stdout
    assert {path.name for path in folder.iterdir()} == {"data.parquet", "model.json", "report.html"}


def test_a_sketch_is_planned_made_and_learned_from(folder, no_noise):
    write("data.parquet", some_records())
    told = clustered(
        "data.parquet", *STUDY, "--method", "sketch", "-o", "model.json", "--report", "r.html"
    )
    model = ps.ClusterModel.load("model.json")
    np.testing.assert_allclose(in_order(model.centers), CENTERS, atol=0.2)
    assert model.receipt.source == "model"
    assert "method      sketch" in told.stdout
    assert "the source is named after the output, model" in told.stdout
    assert "k-means cost" in (folder / "r.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["auto", "sketch"])
def test_the_number_of_clusters_is_taken_from_a_sketch(folder, no_noise, method):
    write("data.parquet", some_records())
    number = ["-k", "auto", "--max-clusters", 6, "--method", method]
    study = [*number, *STUDY[2:], "-o", "model.json", "--report", "r.html"]
    told = clustered("data.parquet", *study)
    model = ps.ClusterModel.load("model.json")
    assert model.n_clusters == K
    np.testing.assert_allclose(in_order(model.centers), CENTERS, atol=0.2)
    assert model.method == "sketch"
    # What the estimator makes of the same words.
    options = ps.KMeansOptions(max_clusters=6)
    ball = ps.Ball(radius=5.0)
    estimator = ps.PrivateKMeans(
        "auto", epsilon=2, delta=1e-6, domain=ball, n_records=1e4, random_state=3, options=options
    ).fit(some_records())
    assert len(estimator.cluster_centers_) == K
    design = estimator.sketch_.design
    assert (design.n_components, model.receipt.epsilon) == (6, 2.0)
    assert model.design_fingerprint == replace(design, columns=("a", "b", "c")).fingerprint
    assert "2 clusters of about 400" in told.stdout
    assert ("only a sketch tells the number" in told.stdout) == (method == "auto")


def test_a_dry_run_of_auto_plans_for_the_largest_number(folder):
    write("data.parquet", some_records())
    before = contents(folder)
    told = clustered("data.parquet", "-k", "auto", *STUDY[2:], "--dry-run")
    assert "only a sketch tells the number of clusters" in told.stdout
    assert "for kmeans, 20 components" in told.stdout
    assert told.stdout.splitlines()[-1] == "nothing was spent"
    assert contents(folder) == before


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("-k", "auto", "--loss", "distances"), "--loss squares"),
        (("-k", "auto", "--loss", "distances", "--method", "rounds"), "--loss squares"),
        (("-k", "auto", "--method", "lloyd"), "use --method sketch"),
        (("-k", "auto", "--method", "pipeline"), "use --method sketch"),
        (("-k", "auto", "--max-clusters", "0"), "--max-clusters 0"),
        (("-k", "3", "--max-clusters", "5"), "only with --clusters auto"),
        (("-k", "many"), "not a whole number or auto"),
        (("-k", "0"), "--clusters 0"),
    ],
)
def test_a_number_that_no_sketch_tells_costs_nothing(folder, options, words, dry):
    write("data.parquet", some_records())
    line = commands.refused(
        folder, "cluster", "data.parquet", *STUDY[2:], *options, *dry, "-o", "model.json"
    )
    assert words in line


def test_distances_in_place_of_squares(folder):
    write("data.parquet", some_records())
    clustered("data.parquet", *STUDY, "--loss", "distances", "-o", "model.json")
    model = ClusterModel.load("model.json")
    assert (model.loss, model.method) == ("distances", "rounds")


@pytest.mark.parametrize("kind", ["parquet", "csv", "npy"])
def test_files_of_any_kind_and_number_give_what_an_array_gives(folder, no_noise, kind):
    records = some_records().astype(np.float32).astype(np.float64)
    write(f"one.{kind}", records[:1500])
    if kind == "npy":
        write("two.npy", records[1500:])
    else:  # columns are found by their names
        write(f"two.{kind}", records[1500:][:, ::-1], names="cba")
    clustered(f"one.{kind}", f"two.{kind}", *STUDY, "--method", "lloyd", "-o", "model.json")
    expected = cluster_with(
        "lloyd",
        records,
        K,
        domain=ps.Ball(dim=DIM, radius=5.0),
        budget=ps.Budget(2.0, 1e-6),
        n_records=1e4,
        random_state=3,
    )
    found = ClusterModel.load("model.json")
    np.testing.assert_array_equal(found.centers, expected.centers)
    # Names in the first line of a text file are published where somebody states them.
    assert found.columns == (("a", "b", "c") if kind == "parquet" else None)


def test_columns_and_box_and_missing_values_are_as_told(folder, no_noise):
    records = some_records()
    with_holes = records.copy()
    with_holes[::7, 1] = np.nan
    pq.write_table(
        pa.table({"name": ["x"] * len(records), **dict(zip("abc", with_holes.T, strict=True))}),
        "data.parquet",
    )
    clustered(
        "data.parquet",
        *("-k", K, "--box", "-4,-5", "4,5", "--epsilon", 1, "--delta", 0, "--seed", 3),
        *("--columns", "c,b", "--missing", "center", "--method", "lloyd", "-o", "model.json"),
        *("--neighbours", "replace"),
    )
    filled = np.nan_to_num(with_holes[:, [2, 1]], nan=0.0)
    domain = ps.Box([-4, -5], [4, 5])
    budget = ps.Budget(1.0, 0.0, "replace")
    expected = cluster_with("lloyd", filled, K, domain=domain, budget=budget, random_state=3)
    found = ClusterModel.load("model.json")
    np.testing.assert_array_equal(found.centers, expected.centers)
    assert found.columns == ("c", "b")
    assert found.receipt.neighbours == "replace"


def test_the_choice_sees_public_facts_only(folder, monkeypatch):
    seen = []
    chosen = methods.choose_method

    def watched(method, **facts):
        seen.append((method, facts))
        return chosen("lloyd", **facts)

    seams.set(monkeypatch, "choose.choose_method", watched)
    for n_records, seed in ((30, 0), (3000, 1)):
        write("data.parquet", some_records(n_records, seed))
        clustered("data.parquet", *PUBLIC, "-o", "model.json", "--force")
    assert seen[0] == seen[1]
    assert seen[0][0] == "auto"
    assert seen[0][1]["n_records"] is None


def test_what_was_written_can_be_inspected(folder):
    write("data.parquet", some_records())
    clustered("data.parquet", *STUDY, "--method", "lloyd", "-o", "model.json")
    told = commands.run("inspect", "model.json")
    model = ClusterModel.load("model.json")
    assert told.exit_code == 0
    assert told.stdout.strip() == model.describe() + "\n\n" + model.receipt.describe()


def test_every_method_can_be_asked_for():
    assert set(command_file.methods_of("squares")) == set(methods.method_names())
    assert set(command_file.methods_of("distances")) == {"auto", *medians.MEDIAN_METHODS}


# ---------------------------------------------------------------- a dry run


@pytest.mark.parametrize("more", [[], ["--method", "sketch"], ["--loss", "distances"]], ids=str)
def test_a_dry_run_reads_no_record_and_spends_nothing(folder, spent, more):
    # Reading this record would fail.
    (folder / "data.csv").write_text("a,b,c\n1,2,secret\n")
    before = contents(folder)
    told = clustered("data.csv", *STUDY, *more, "-o", "model.json", "--dry-run")
    assert "method      " in told.stdout
    assert "record      3 columns" in told.stdout
    assert "at most epsilon = 2, delta = 1e-06 for one record" in told.stdout
    assert ("s for a million records with" in told.stdout) == ("sketch" in more)
    assert "enough from" in told.stdout
    assert (
        "no record was read, only the header of text files and sheets\nnothing was spent"
        in told.stdout
    )
    assert spent == []
    assert contents(folder) == before


# ---------------------------------------------------------------- refusals

REFUSED = {
    "output exists": (["data.parquet", "-o", "old.json"], "old.json exists; clustering"),
    "report exists": (["data.parquet", "-o", "m.json", "--report", "old.json"], "old.json exists"),
    "output is data": (["data.parquet", "-o", "data.parquet", "--force"], "given twice"),
    "report is output": (["data.parquet", "-o", "m.json", "--report", "m.json"], "given twice"),
    "no folder": (["data.parquet", "-o", "nowhere/m.json"], "no such folder"),
    "no folder of the report": (
        ["data.parquet", "-o", "m.json", "--report", "nowhere/r.html"],
        "no such folder",
    ),
    "no file": (["none.parquet", "-o", "m.json"], "no such file"),
    "file twice": (["data.parquet", "./data.parquet", "-o", "m.json"], "given twice"),
    "files that differ": (["data.parquet", "text.parquet", "-o", "m.json"], "--columns a,b,c"),
    "text": (["text.parquet", "-o", "m.json"], "not numeric"),
    "unknown column": (["data.parquet", "--columns", "a,z", "-o", "m.json"], "'z' is unknown"),
    "missing values": (["holes.parquet", "-o", "m.json"], "missing"),
    "center": (["data.parquet", "--center", "1,2", "-o", "m.json"], "dim=2"),
    "text in csv": (["text.csv", "-o", "m.json"], "not numeric"),
}
REFUSED_USAGE = {
    "no clusters": (["data.parquet", "-k", 0, "-o", "m.json"], "--clusters 0:"),
    "no budget": (["data.parquet", "--epsilon", 0, "-o", "m.json"], "--epsilon 0.0:"),
    "no domain": (["data.parquet", "--box", 0, 1, "-o", "m.json"], "one of --schema FILE"),
    "no threads": (["data.parquet", "--threads", 0, "-o", "m.json"], "--threads 0:"),
    "no method of means": (
        ["data.parquet", "--method", "rounds", "-o", "m.json"],
        "--loss squares",
    ),
    "no method of medians": (
        ["data.parquet", "--loss", "distances", "--method", "grid", "-o", "m.json"],
        "--loss distances",
    ),
    "unprintable source": (["data.parquet", "--source", "a\nb", "-o", "m.json"], "--source 'a"),
}


@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        pytest.param(*case, code, id=name)
        for cases, code in ((REFUSED, DATA), (REFUSED_USAGE, USAGE))
        for name, case in cases.items()
    ],
)
def test_a_refusal_is_one_line_and_leaves_everything_as_it_was(
    folder, spent, arguments, words, code
):
    records = some_records(200)
    write("data.parquet", records)
    holes = records.copy()
    holes[-1, 1] = np.nan
    write("holes.parquet", holes)
    pq.write_table(pa.table({"a": ["secret"], "b": [1.5], "c": [2.5]}), "text.parquet")
    (folder / "text.csv").write_text("a,b,c\n1.25,2,3\n1.25,secret,3\n")
    (folder / "old.json").write_text("old")
    before = contents(folder)
    result = run(*STUDY, "--method", "lloyd", *arguments)
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code
    error = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert len(error) == 1
    assert words in error[0]
    for private in ("secret", "1.25", "carry", repr(records[0, 0])):
        assert private not in result.output
    assert "nothing was spent" in result.stderr
    assert spent == []
    assert contents(folder) == before


def test_outputs_are_replaced_if_told_so(folder):
    write("data.parquet", some_records())
    for name in ("model.json", "report.html"):
        (folder / name).write_text("old")
    outputs = ["-o", "model.json", "--report", "report.html"]
    clustered("data.parquet", *STUDY, "--method", "lloyd", *outputs, "--force")
    assert ClusterModel.load("model.json").n_clusters == K
    assert (folder / "report.html").read_text().startswith("<!doctype html>")


# ---------------------------------------------------------------- ended early


def interrupted(monkeypatch, when):
    """The bars of a run that is interrupted, by Ctrl-C, when `when(passes, calls)` says so."""
    told = {"passes": 0, "calls": 0}

    class Bars:
        def __init__(self, paths):
            pass

        def __enter__(self):
            return self.advance

        def __exit__(self, *error):
            return None

        @staticmethod
        def advance(name, done):
            told["passes"] += done == 0
            told["calls"] += 1
            if when(told["passes"], told["calls"]):
                os.kill(os.getpid(), signal.SIGINT)

    seams.set(monkeypatch, "progress.pass_bars", Bars)


METHODS = ["pipeline", "sketch", "partition-tree", "lloyd", "grid"]


@pytest.fixture
def interrupted_run(folder, small_blocks, monkeypatch):
    """What a command says that is interrupted in some pass; it leaves the folder as it was."""

    def made(method, when):
        write("data.parquet", some_records())
        before = contents(folder)
        interrupted(monkeypatch, when)
        result = run("data.parquet", *STUDY, "--method", method, "-o", "model.json")
        assert result.exit_code == 1
        assert contents(folder) == before
        return result.stderr

    return made


@pytest.mark.parametrize("method", METHODS)
def test_an_interrupt_in_the_first_pass_costs_nothing(interrupted_run, spent, method):
    said = interrupted_run(method, lambda passes, calls: calls == 3)
    assert "nothing was spent" in said
    assert spent == []


@pytest.mark.parametrize("method", ["pipeline", "partition-tree", "lloyd"])
def test_an_interrupt_after_the_first_release_says_that_it_cost(interrupted_run, spent, method):
    said = interrupted_run(method, lambda passes, calls: passes == 2)
    assert "the budget counts as spent" in said
    assert len(spent) > 0


def test_an_error_after_the_first_release_says_that_it_cost(folder, spent, monkeypatch):
    write("data.parquet", some_records())

    def full(self, path):
        raise AccessError("model.json: no space left")

    seams.set(monkeypatch, "clusters.ClusterModel.save", full)
    result = run("data.parquet", *STUDY, "--method", "lloyd", "-o", "model.json")
    assert result.exit_code == DATA
    assert "the budget counts as spent" in result.stderr
    assert len(spent) > 0


def test_a_report_that_fails_leaves_the_model(folder, monkeypatch):

    def fails(*arguments, **options):
        raise AccessError("no report today")

    seams.set(monkeypatch, "html.report_page", fails)
    write("data.parquet", some_records())
    result = run(
        "data.parquet", *STUDY, "--method", "lloyd", "-o", "model.json", "--report", "r.html"
    )
    assert result.exit_code == DATA
    assert "model.json was written before that: the budget counts as spent" in result.stderr
    assert "written to model.json" in result.stdout
    assert ClusterModel.load("model.json").n_clusters == K


# ---------------------------------------------------------------- progress


def test_passes_are_shown_by_name_on_a_terminal_only(folder, monkeypatch):
    from rich.console import Console

    write("data.parquet", some_records())
    arguments = ["data.parquet", *STUDY, "--method", "lloyd", "-o", "model.json", "--force"]
    assert clustered(*arguments).stderr == ""
    screen = io.StringIO()
    monkeypatch.setenv("TERM", "xterm-256color")  # others may not move the cursor
    console = Console(file=screen, force_terminal=True, width=100)
    seams.set(monkeypatch, "progress.console", lambda: console)
    clustered(*arguments)
    assert "pass  1  cluster sums" in screen.getvalue()
    assert "4000 of 4000" in screen.getvalue()


@pytest.mark.parametrize("name", ["FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"])
def test_a_file_that_takes_colours_is_told_no_number_of_records(folder, monkeypatch, name):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv(name, "1")
    write("data.parquet", some_records())
    assert clustered("data.parquet", *STUDY, "--method", "lloyd", "-o", "model.json").stderr == ""


def test_bars_count_records_and_passes(monkeypatch, folder):
    from rich.console import Console

    write("data.parquet", some_records(100))
    screen = io.StringIO()
    monkeypatch.setenv("TERM", "xterm-256color")  # others may not move the cursor
    console = Console(file=screen, force_terminal=True, width=100)
    seams.set(monkeypatch, "progress.console", lambda: console)
    with progress.pass_bars(ps.Table(folder / "data.parquet")) as advance:
        for number in range(9):
            advance(f"number {number}", 0)
            advance(f"number {number}", 60)
            advance(f"number {number}", 40)
    last = screen.getvalue().rsplit("\x1b[2K", 1)[0]
    assert "pass  9  number 8" in last
    assert "100 of 100" in last
