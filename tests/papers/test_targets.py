"""Targets of the papers: they run, write their files, and measure what they say they do."""

import csv
import dataclasses
import itertools
import math

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs

from papers.__main__ import main
from papers.harness import results
from papers.harness.cells import Cell, Experiment, run_cells
from papers.harness.rows import from_csv
from papers.harness.targets import TARGETS, find_targets
from papers.jll import distances as jll_distances
from papers.jll import distances_panels as jll_distances_panels
from papers.jll import setting as jll_setting
from papers.jll import spread as jll_spread
from papers.jll import table as jll_table
from privsketch import FileError, ParameterError
from privsketch._base import one_thread
from privsketch.projection import MATRIX_UNIT

NAMES = [
    *("icassp-figure2-left", "icassp-figure2-right", "icassp-figure3"),
    *("clp-figure4", "clp-figure5", "clp-figure6", "clp-figure7", "clp-figure8"),
    *("jll-figure1", "jll-figure2", "jll-figure3", "jll-figure4", "jll-table1"),
    *("bal-synthetic", "bal-images", "bal-epsilon"),
]


def silent(share):
    pass


def run(*arguments):
    return CliRunner().invoke(main, [*map(str, arguments)])


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """Every target in its smallest size: rows of the CSV file, words, progress."""
    folder = tmp_path_factory.mktemp("reproduced")
    found = {}
    for target in TARGETS:
        shares = []
        outcome = results.run(target, folder, "tiny", shares.append)
        with open(folder / f"{target.name}.csv", newline="") as stream:
            rows = list(csv.DictReader(stream))
        found[target.name] = rows, outcome, shares
    return found


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_a_target_writes_a_table_words_and_a_picture(target, outcomes):
    rows, outcome, shares = outcomes[target.name]
    assert rows
    assert all(None not in row.values() and None not in row for row in rows)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    kinds = [path.suffix for path in outcome.files]
    assert kinds == [".csv", ".txt"] + [".png"] * (target.view.figure is not None)
    assert outcome.files[1].read_text().startswith(target.view.shows)
    assert "scikit-learn" in outcome.text
    if target.view.figure is not None:
        assert outcome.files[2].read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_rows_read_from_a_file_say_the_same(outcomes):
    # A file of rows can take the place of a run, to the last character.
    for target in TARGETS:
        _, outcome, _ = outcomes[target.name]
        rows = from_csv(outcome.files[0].read_text())
        made_by = outcome.text.splitlines()[-1]
        assert made_by.startswith(f"python -m papers {target.name}: tiny run, ")
        assert results.words(target, rows, made_by) == outcome.text


def test_the_list_has_all_targets():
    assert [target.name for target in TARGETS] == NAMES
    answer = run()
    assert answer.exit_code == 0
    *listed, last = answer.stdout.splitlines()[1:]
    assert [line.split()[0] for line in listed] == NAMES
    assert last.startswith("all ")


def test_a_paper_and_all_are_names_of_several():
    jll = [target for target in TARGETS if target.name.startswith("jll-")]
    assert find_targets(["jll"]) == jll
    assert find_targets(["all"]) == list(TARGETS)
    assert find_targets(["jll-table1", "jll"]) == [jll[-1], *jll[:-1]]


def test_unknown_targets_are_refused_before_anything_runs(tmp_path):
    answer = run("jll-figure1", "jll-table2", "-o", tmp_path / "out")
    assert answer.exit_code == 2
    assert "jll-table2" in answer.stderr
    assert "jll-table1" in answer.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_target_from_the_shell(tmp_path):
    answer = run("jll-figure2", "--quick", "--jobs", 1, "-o", tmp_path / "out")
    assert answer.exit_code == 0
    assert (tmp_path / "out" / "jll-figure2.png").exists()
    words = (tmp_path / "out" / "jll-figure2.txt").read_text()
    assert "python -m papers jll-figure2 --quick: quick run" in words
    # Nothing has changed: the released records, which have noise, are those of the first run.
    assert run("jll-figure2", "--quick", "--jobs", 2, "-o", tmp_path / "out").exit_code == 0
    assert (tmp_path / "out" / "jll-figure2.txt").read_text() == words
    run("jll-figure2", "--quick", "--again", "--jobs", 1, "-o", tmp_path / "out")
    assert (tmp_path / "out" / "jll-figure2.txt").read_text() != words


def stopped():
    raise KeyboardInterrupt


def test_a_run_that_is_stopped_says_where_it_goes_on(tmp_path, monkeypatch):
    experiment = Experiment(lambda effort: [Cell(stopped, {})])
    target = dataclasses.replace(TARGETS[0], experiment=experiment)
    monkeypatch.setattr("papers.harness.targets.TARGETS", (target,))
    answer = run(target.name, "-o", tmp_path / "out")
    assert answer.exit_code == 1
    assert f"goes on with what is in {tmp_path / 'out' / 'cells'}" in answer.stderr


def test_figures_say_that_they_need_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "find_spec", lambda name: None)
    with pytest.raises(ParameterError, match=r"privsketch\[plot\]"):
        results.run(TARGETS[0], tmp_path, "tiny", silent)


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="file"):
        results.run(TARGETS[0], tmp_path / "file", "tiny", silent)


def test_accuracy_is_that_of_the_best_matching():
    rng = np.random.default_rng(3)
    for _ in range(20):
        labels, found = rng.integers(4, size=(2, 60))
        best = max(
            float(np.mean(np.array(names)[found] == labels))
            for names in itertools.permutations(range(4))
        )
        assert jll_table.accuracy(labels, found) == pytest.approx(best, abs=1e-12)


def test_records_are_those_of_the_paper():
    # All four accuracies without privacy, two records in 10,000 left to versions of k-means.
    for (dim, _), printed in zip(jll_setting.SIZES, jll_table.PRINTED["none"], strict=True):
        table, labels = jll_setting.records(dim)
        assert jll_table.clustered(table, labels) == pytest.approx(printed, abs=2.5e-4)
        assert np.linalg.norm(table, axis=1).max() < jll_setting.ball(dim).radius


def test_other_seeds_are_not_those_of_the_paper():
    # The check above can fail: no other seed of the first ten gives the first two accuracies.
    for seed in range(1, 10):
        found = []
        for dim in (3, 10):
            centers = np.zeros((2, dim))
            centers[:, 0] = -2, 2
            table, labels = make_blobs(10_000, centers=centers, random_state=seed)
            starts = np.array([table[labels == j].mean(axis=0) for j in (0, 1)])
            with one_thread():
                fitted = KMeans(2, init=starts, n_init=1).fit(table)
            found.append(jll_table.accuracy(labels, fitted.labels_))
        assert np.abs(np.subtract(found, (0.9783, 0.9772))).max() > 2.5e-4


def test_the_papers_matrix_consists_of_records():
    # Matrix and records come from the same stream: it is not independent of them.
    for dim, k in jll_setting.SIZES:
        centers = np.zeros((2, dim))
        first, _ = make_blobs(10_000, centers=centers, random_state=0, shuffle=False)
        matrix = jll_setting.paper_matrix(dim, k)
        assert np.abs(matrix.values.T * math.sqrt(k) - first[:k]).max() < math.sqrt(k) / MATRIX_UNIT


@pytest.mark.parametrize("protect", ["element", "row"])
@pytest.mark.parametrize("column", [0, 1])
def test_small_cells_of_table_1(protect, column):
    # One release varies by 0.003: 0.02 is beyond any chance. The transposed order of the same
    # random numbers is 0.06 off, so the right matrix is told from a wrong one.
    dim, k = jll_setting.SIZES[column]
    table, labels = jll_setting.records(dim)
    projection = jll_setting.draw(dim, k, protect, "paper", "seed 0")
    found = jll_table.clustered(jll_setting.released(projection, table), labels)
    printed = jll_table.PRINTED[protect][column]
    assert found == pytest.approx(printed, abs=0.02)
    entries = np.random.RandomState(0).normal(0, 1 / math.sqrt(k), (dim, k))
    noise = np.random.default_rng(1).laplace(0, jll_spread.printed_scale(protect, k), (10_000, k))
    assert jll_table.clustered(table @ entries + noise, labels) < printed - 0.04


def test_only_the_papers_calibration_goes_with_its_matrix():
    with pytest.raises(ParameterError, match="calibration='auto'"):
        jll_setting.draw(3, 2, "row", "auto", "seed 0")


@pytest.mark.slow
def test_distances_are_unbiased_with_the_corrected_variance():
    # 20,000 independent differences: 6 standard errors, false alarms below 1e-8.
    first, second = jll_distances.sampled_pairs(50)
    true = np.square(first - second).sum(axis=1)
    found = []
    for _ in range(400):
        squares, distances = jll_distances.recovered(first, second, "row")
        found.append(squares - true)
    values = np.concatenate(found)
    s2 = distances.rows.variance
    assert s2 == pytest.approx(2 * jll_spread.printed_scale("row", 2) ** 2, rel=5e-3)
    error = values.std() / math.sqrt(len(values))
    assert abs(values.mean()) < 6 * error
    assert abs(values.mean() + 2 * 2 * s2) > 6 * error  # noise not subtracted
    assert distances.variance(true) == pytest.approx(true**2 + 28 * s2**2 + 8 * s2 * true)


def test_every_pair_has_a_matrix_of_its_own():
    # Eight copies of one pair in each of 300 wide releases: the sums of four and four do not
    # correlate, false alarms below 1e-8. With a common matrix, the planted error, they do.
    limit = 6 / math.sqrt(300)
    first = np.tile([3.0, 3.0, 3.0], (8, 1))
    second = -first
    found = np.array([jll_distances.recovered(first, second, "element")[0] for _ in range(300)])
    assert abs(_correlation(found)) < limit
    rng = np.random.default_rng(0)
    shifts = (first - second)[0] @ rng.normal(0, 1 / math.sqrt(2), size=(300, 3, 2))
    noise = np.diff(rng.laplace(0, 1 / math.sqrt(2), size=(300, 8, 2, 2)), axis=-1)[..., 0]
    assert _correlation(np.square(shifts[:, np.newaxis] + noise).sum(axis=2)) > limit


def _correlation(found):
    return np.corrcoef(found[:, :4].sum(axis=1), found[:, 4:].sum(axis=1))[0, 1]


def test_moments_of_bins_are_those_of_all_differences(monkeypatch):
    values = iter(np.split(np.random.default_rng(5).standard_t(3, size=400) * 60, 20))
    seen = []

    real = jll_distances.recovered

    def fixed(first, second, protect):
        seen.append(next(values))
        true = np.square(first - second).sum(axis=1)
        return true + seen[-1], real(first, second, protect)[1]

    monkeypatch.setattr(jll_distances, "recovered", fixed)
    # Five releases of each kind, in cells of one that add up.
    monkeypatch.setitem(jll_distances._RUNS, "tiny", (40, 5, 1, 20))
    rows = jll_distances.summary(run_cells(jll_distances.cells("tiny"), None, silent).rows)
    for protect, part in (("element", seen[:10]), ("row", seen[10:])):
        every = np.concatenate(part)
        mean, error, variance = jll_distances_panels.moments(rows, protect)
        assert mean == pytest.approx(every.mean())
        assert variance == pytest.approx(np.square(every).mean())
        assert error == pytest.approx(math.sqrt(variance / len(every)))


def test_claim_7_is_as_printed():
    # s2 = 1, |a|^2 = 1, k = 2: 2/2 + 4 (7 - 1) + 4.
    assert jll_distances.claim_7(np.ones(1), 1.0) == pytest.approx([29.0])


@pytest.mark.slow
def test_figure_4_follows_its_closed_form(outcomes):
    rows = [row for row in outcomes["jll-figure4"][0] if row["calibration"] == "paper"]
    assert {row["protect"] for row in rows} == {"element", "row"}
    for row in rows:
        k = int(row["k"])
        c = 2 * k**0.5 if row["protect"] == "element" else (2 * k * math.log(2 * k)) ** 0.5
        # Noise is rounded up, never down: rows are stored on a grid.
        assert 1 - 1e-5 < float(row["paper_formula"]) / math.sqrt(1 + c * c / 8) < 1 + 2e-3


@pytest.mark.slow
def test_projected_records_have_variance_d_over_k(outcomes):
    # One matrix of 100 x k entries varies by sqrt(2 / 100) / sqrt(k), 50 records by less than 0.1.
    for row in outcomes["jll-figure4"][0]:
        ratio = float(row["measured"]) / float(row["right_formula"])
        assert 0.5 < ratio < 1.5
        if row["calibration"] == "paper":
            assert float(row["measured"]) > 1.3 * float(row["paper_formula"])


def test_the_papers_matrix_moves_the_centres_apart():
    # Centres are on the first axis: measured on released records, whose noise has mean 0. One
    # mean of 5000 varies by 0.05 at most; 0.5 is far beyond any chance.
    for dim, k in jll_setting.SIZES[:2]:
        table, labels = jll_setting.records(dim)
        projection = jll_setting.draw(dim, k, "element", "paper", "seed 0")
        points = jll_setting.released(projection, table)
        first, second = (points[labels == j].mean(axis=0) for j in (0, 1))
        distance = jll_table.projected_distance(dim, k)
        assert np.linalg.norm(first - second) == pytest.approx(distance, abs=0.5)
        assert distance > 7  # 4 before: why the printed accuracies are so high here
