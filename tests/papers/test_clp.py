"""Figures 4 to 8 of CLP: ratios as asked for, formulas, usable epsilons, and words that react."""

import math

import mpmath
import numpy as np
import pytest

import privsketch as ps
from papers.clp import ratio as clp_ratio
from papers.clp import ratio_panels as clp_ratio_panels
from papers.clp import sampling as clp_sampling
from papers.clp import sampling_panels as clp_sampling_panels
from papers.clp import setting as clp_setting
from papers.clp import size as clp_size
from papers.clp import size_panels as clp_size_panels
from papers.clp.targets import TARGETS
from papers.harness.cells import run_cells
from papers.harness.rows import to_csv
from papers.harness.views import to_png
from privsketch import ParameterError, sketch


def design(noise="gaussian", delta=1e-6, n_features=200, **options):
    return clp_setting.design_of(
        4,
        4,
        n_features,
        2000,
        1,
        scale=1.5,
        budget=ps.Budget(1.0, delta),
        noise=noise,
        **{"count": "omitted", **options},
    )


# Setting


def test_records_are_the_mixture():
    records = clp_setting.draw_records(20_000, 4, 8, 3)
    every = np.square(records.table[:, None].astype(float) - records.centers).sum(axis=2)
    # Mean of n d squares of normal numbers, d = 8: six standard errors of sqrt(2 / (n d)).
    assert every.min(axis=1).mean() / 8 <= 1 + 6 * math.sqrt(2 / 160_000)
    assert clp_setting.squared_error(records.table, records.centers) == pytest.approx(
        every.min(axis=1).sum(), rel=1e-5
    )
    assert records.rsse(records.centers) == pytest.approx(1, abs=0.01)


def test_a_release_is_that_of_sketch():
    one = design()
    table = clp_setting.draw_table(np.zeros((4, 4)), 500, np.random.default_rng(0))
    exact = clp_setting.sums_of(table, one)
    ours = clp_setting.release(exact, one, ps.Budget(0.5, 1e-6))
    theirs = sketch(table, ours.design, engine=ps.engines.Threads(n_threads=1))
    assert ours.receipt.epsilon == theirs.receipt.epsilon == 0.5
    assert ours.receipt.scale == theirs.receipt.scale
    # Two releases of 400 sums differ by noise of twice the variance: their squares have a relative
    # standard error of sqrt(2 / 400), and seven of them are 0.5.
    difference = (ours.sums - theirs.sums) / ours.design.unit
    assert np.mean(difference**2) == pytest.approx(2 * ours.design.noise_std**2, rel=0.5)


def test_the_known_scale_is_the_one_that_tells_most():
    from scipy.optimize import minimize_scalar

    from privsketch.design import band_share
    from privsketch.features import RadialLaw

    for dim in (4, 8, 10):
        found = minimize_scalar(
            lambda scale, dim=dim: -band_share("gaussian", RadialLaw((scale, scale)), 1.0, dim),
            bounds=(0.5, 20),
            method="bounded",
        )
        assert found.x == pytest.approx(clp_setting.JOINT_SCALE * math.sqrt(dim), rel=1e-3)


# Figures 4 and 5


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [1e-3, 0.1, 2.0])
def test_releases_have_the_ratio_that_was_asked_for(ratio):
    one = design(n_features=1000)
    table = clp_setting.draw_table(clp_setting.centers_of(4, 4, 0), 2000, np.random.default_rng(1))
    exact = clp_setting.sums_of(table, one)
    # The mean of the features in floats, by their definition.
    features = np.exp(1j * table.astype(float) @ one.radians().T).mean(axis=0)
    signal = float(np.vdot(features, features).real)
    assert clp_setting.signal_of(exact, one) == pytest.approx(signal, rel=1e-3)
    released = clp_setting.release(exact, one, clp_ratio.budget_for(ratio, one, signal, 2000))
    noise = released.moments() / 2000 - features
    measured = float(np.vdot(noise, noise).real) / signal
    # 2,000 squares of normal numbers: a standard error of 3.2 %, six of them are 19 %. Planted
    # errors of the usual kind, the variance of a real part for that of an entry, are 50 % or more.
    assert measured == pytest.approx(ratio, rel=0.19)


def test_a_ratio_beyond_all_budgets_is_refused():
    with pytest.raises(ParameterError, match=r"ratio=1e-12: no epsilon up to 100"):
        clp_ratio.budget_for(1e-12, design(), 50.0, 2000)


def ratio_rows(limits, *, n_features=1000):
    """Rows whose RSSE passes 1.2 at a ratio that is given for each decoder."""
    return [
        {
            "n_records": n,
            "k": 10,
            "d": 10,
            "m": n_features,
            "nsr": ratio,
            "decoder": decoder,
            "trials": 3,
            "epsilon": 1.0,
            "nsr_measured": 1.02 * ratio,
            "signal": 0.3,
            "rsse": 1.01 + ratio if ratio <= limit else 1.5 + ratio,
            "rsse_low": 1.0,
            "rsse_high": 2.0 + ratio,
        }
        for decoder, limit in limits.items()
        for n in (1000, 10_000)
        for ratio in (0.001, 0.01, 0.1)
    ]


def test_words_of_figure_4_react():
    words = clp_ratio_panels.ratio_comparison(ratio_rows({"cl-ompr": 0.01, "joint": 0.001}))
    _, theirs, ours = words.splitlines()
    assert "up to NSR 0.01 at n = 1000, 0.01 at n = 10000; the limit holds" in theirs
    assert "up to NSR 0.001 at n = 1000, 0.001 at n = 10000; the limit does NOT hold" in ours
    assert "to within 2%" in words
    none = clp_ratio_panels.ratio_comparison(ratio_rows({"cl-ompr": 0.0, "joint": 0.1}))
    assert "none that was tried at n = 1000" in none.splitlines()[1]
    assert "does NOT hold" in none.splitlines()[1]


def test_words_of_figure_5_count_cells():
    rows = [
        row
        for m in (100, 1000)
        for row in ratio_rows({"cl-ompr": 0.001, "joint": 0.1}, n_features=m)
        if row["n_records"] == 10_000
    ]
    # m = 10 k d promises 0.001 and 0.01; m = k d nothing.
    words = clp_ratio_panels.grid_comparison(rows)
    assert "1 of 2 cells that the rule promises succeed: it does NOT hold everywhere" in words
    assert "1 of 3 with m < 2 k d and 0 of 1 with more noise do" in words
    assert "2 of 2 cells that the rule promises succeed: it holds" in words
    text = clp_ratio_panels.grid_table(rows)
    assert text.count("*") == 4 + 1  # two cells for each decoder, and the note


# Figures 6 and 7


@pytest.mark.parametrize("epsilon", [1e-4, 0.03, 1.0, 30.0])
@pytest.mark.parametrize("rate", [1.0, 0.1, 0.01])
def test_the_formula_of_figure_6(epsilon, rate):
    with mpmath.workdps(60):
        e, b = mpmath.mpf(epsilon), mpmath.mpf(rate)
        expected = 1 / (b * mpmath.log(1 + (mpmath.exp(e) - 1) / b)) ** 2
        # Replace: (1 - b + b E) / (1 - b + b / E) = e^epsilon, solved for E by big numbers.
        t = mpmath.exp(e)
        p = (1 - b) * (t - 1)
        both = 1 / (b * mpmath.log((p + mpmath.sqrt(p * p + 4 * b * b * t)) / (2 * b))) ** 2
    assert clp_sampling.sampled_noise(epsilon, rate) == pytest.approx(float(expected), rel=1e-12)
    ours = clp_sampling.calibrated_noise(epsilon, rate, "add-remove")
    assert ours == pytest.approx(float(expected), rel=1e-9)
    assert clp_sampling.calibrated_noise(epsilon, rate, "replace") == pytest.approx(
        float(both), rel=1e-9
    )


def test_noise_of_empty_tables_is_that_of_the_formula():
    (row,) = clp_sampling.noise_rows(0.1, "add-remove", [1.0], 20, 1000)
    # 40,000 squares of Laplace numbers, each with relative variance 5: six standard errors are 7 %.
    assert row["measured"] == pytest.approx(row["paper"], rel=0.07)
    assert abs(row["measured"] / clp_sampling.sampled_noise(1.0, 0.13) - 1) > 0.07


def test_the_mean_over_the_law_is_that_of_many_records():
    one = design(n_features=50)
    centers = clp_setting.centers_of(4, 4, 0)
    table = clp_setting.draw_table(centers, 200_000, np.random.default_rng(5))
    exact = clp_setting.sums_of(table, one)
    mean = exact.sums / (one.unit * len(table))
    # Components within [-1, 1] have a standard error below 1 / sqrt(n); 100 of them, six each.
    assert np.abs(mean - clp_sampling.law_mean(one, centers)).max() < 6 / math.sqrt(200_000)


def test_ratios_of_figure_7():
    # Test vector: n = 10,000, m = 1000, alpha = 0.1, |z|^2 = 350, epsilon = 0.9, Laplace noise.
    ratio = clp_sampling.paper_ratio("laplace", 0.9, "uniform", 0.1, 1000, 10_000, 350.0)
    assert ratio == pytest.approx(0.284944092, rel=1e-8)
    for strategy in ("records", "uniform"):
        (row,) = clp_sampling.total_rows("laplace", 1.0, strategy, [0.1], 4, 1000, 2000)
        # The longest pair of the Fourier table is 0.07 % longer than the papers' circle.
        assert row["ours"] == pytest.approx(row["paper"], rel=1.5e-3)
        # Noise dominates: 8,000 squares with relative variance 5 have a standard error of 2.5 %.
        assert row["measured"] == pytest.approx(row["ours"], rel=0.2)


def test_words_of_figure_7_react():
    def rows(factor):
        return [
            {
                "noise": "laplace",
                "delta": 0.0,
                "epsilon": 1.0,
                "strategy": strategy,
                "rate": rate,
                "m": 1000,
                "n_records": 10_000,
                "signal": 0.3,
                "paper": 1.0,
                "ours": factor if strategy == "uniform" else 1.0,
                "measured": 1.0,
                "releases": 1,
            }
            for strategy in clp_sampling.STRATEGIES
            for rate in (0.1, 1.0)
        ]

    assert "does NOT" not in clp_sampling_panels.total_comparison(rows(0.2))
    assert "features, r of m: the ratio is 3 to 3 times" in clp_sampling_panels.total_comparison(
        rows(3.0)
    )
    assert "does NOT hold" in clp_sampling_panels.total_comparison(rows(3.0))


# Figure 8


def size_rows(limits, *, delta=0.0, noise="laplace"):
    """Rows that are usable from an epsilon on, given for each curve, at m = 64 only."""
    epsilons = clp_size.EPSILONS if delta else clp_size.PURE_EPSILONS
    return [
        {
            "n_records": n,
            "delta": delta,
            "curve": curve,
            "noise": noise,
            "epsilon": float(f"{epsilon * 10_000 / n:.10g}"),
            "m": m,
            "trials": 7,
            "signal": 0.25,
            "rsse": 1.05 if epsilon >= limit and m == 64 else 1.4 + m / 1000,
            "rsse_low": 1.0,
            "rsse_high": 2.0,
        }
        for curve, limit in limits.items()
        for n in clp_size.PRINTED
        for epsilon in epsilons
        for m in (32, 64)
    ]


def test_usable_epsilons_of_planted_rows():
    rows = size_rows({clp_size.CKM: 0.28, clp_size.KNOWN: 0.14, clp_size.UNKNOWN: 9.0})
    for n, printed in clp_size.PRINTED.items():
        assert clp_size_panels.usable(rows, n, 0.0, clp_size.KNOWN) == pytest.approx(printed)
        assert clp_size_panels.usable(rows, n, 0.0, clp_size.CKM) == pytest.approx(2 * printed)
        assert math.isnan(clp_size_panels.usable(rows, n, 0.0, clp_size.UNKNOWN))
        assert clp_size_panels.best(rows, n, 0.0, clp_size.KNOWN, printed)["m"] == 64
    # One lucky cell below cells that fail does not count.
    lucky = [dict(row) for row in rows]
    lucky[0] |= {"rsse": 1.0}
    assert (lucky[0]["curve"], lucky[0]["n_records"]) == (clp_size.CKM, 10_000)
    assert clp_size_panels.usable(lucky, 10_000, 0.0, clp_size.CKM) == pytest.approx(0.28)


def test_words_of_figure_8_react():
    rows = size_rows({clp_size.CKM: 0.28, clp_size.KNOWN: 0.14, clp_size.UNKNOWN: 0.07})
    rows += size_rows(
        {clp_size.CKM: 0.1, clp_size.KNOWN: 0.07, clp_size.UNKNOWN: 0.1},
        delta=clp_size.DELTA,
        noise="gaussian",
    )
    words = clp_size_panels.comparison(rows).splitlines()
    theirs, known, unknown = words[2:5]
    assert "usable epsilon 0.28 at n = 10000, 0.028 at n = 100000" in theirs
    assert "NOT as small as printed for n = 10000, 100000, 1000000" in theirs
    assert "at least as small as printed for every n" in known
    assert "RSSE at the printed epsilon 1.050, 1.050, 1.050" in known
    assert "<= 0.07 at n = 10000" in unknown
    assert "over that with delta, is 2 at n = 10000" in words[-1]
    # sqrt(8 / 0.25) times sqrt(2000) k d / n.
    assert "epsilon = 0.81 at n = 10000, 5.7 times as much" in words[0]
    assert math.sqrt(8 / 0.25) * math.sqrt(2000) * 32 / 10_000 == pytest.approx(0.8095, rel=1e-3)


def test_medians_over_trials():
    rows = size_rows({clp_size.CKM: 0.14})
    trials = [{**row, "rsse": value} for value in (1.0, 1.1, 3.0) for row in rows[:2]]
    for row in trials:
        for name in ("trials", "rsse_low", "rsse_high"):
            del row[name]
    made = clp_size.summary(trials)
    assert len(made) == 2
    assert (made[0]["trials"], made[0]["rsse"]) == (3, 1.1)
    assert made[0]["rsse_low"] == pytest.approx(1.05)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_tiny_targets(target):
    cells = target.experiment.cells("tiny")
    rows = target.experiment.summary(run_cells(cells, None, lambda share: None).rows)
    assert len({tuple(row) for row in rows}) == 1
    assert to_csv(rows).count("\n") == len(rows) + 1
    assert target.view.table(rows)
    assert target.view.comparison(rows)
    assert to_png(target.view.figure(rows)).startswith(b"\x89PNG")


@pytest.mark.parametrize("effort", ["full", "quick"])
def test_printed_epsilons_are_on_the_grid(effort):
    for cell in clp_size.cells(effort):
        assert clp_size.PRINTED[cell.parameters["n_records"]] in cell.parameters["pure"]
