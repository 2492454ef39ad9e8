"""Figures 2 and 3 of ICASSP: the ratio and its inverse, devices, references, words about rows."""

import math
from dataclasses import replace

import numpy as np
import pytest

import privsketch as ps
from papers.harness.views import to_png
from papers.icassp import curves, panels, setting, snr, snr_panels
from papers.icassp.setting import mixture, objective, paper_design
from papers.theory import icassp_snr, icassp_to_laplace_scale
from privsketch import ParameterError
from privsketch.noise import OPENDP_SAMPLER, OWN_SAMPLER
from privsketch.sketching import exact_sums


def test_records_of_a_trial_are_those_of_the_paper():
    data = mixture(3, 20_000)
    assert np.array_equal(data.table, mixture(3, 20_000).table)
    assert not np.array_equal(data.means, mixture(4, 1).means)
    # 2000 trials of 100 normal coordinates: their variance is known to 0.003, five standard
    # errors (1e-6) are 0.016 of it.
    every = np.array([mixture(trial, 1).means for trial in range(2000)])
    assert every.var() == pytest.approx((1.5 * 10**0.1) ** 2, rel=0.016)
    # Around the true means records have variance 1 in each column: 2e5 numbers, 0.3 % each.
    assert objective(data.table, data.means) <= 10 * 1.016


def test_objective_is_the_mean_over_all_pairs():
    data = mixture(0, 60_123, 3, 4)
    centers = data.means + 0.3
    every = np.square(data.table[:, np.newaxis].astype(float) - centers).sum(axis=2)
    assert objective(data.table, centers) == pytest.approx(every.min(axis=1).mean(), rel=1e-6)


@pytest.mark.slow
def test_reference_is_k_means():
    from sklearn.cluster import KMeans

    data = mixture(5, 30_000, 4, 3)
    own = KMeans(4, n_init=3, random_state=0).fit(data.table)
    best = own.inertia_ / len(data.table)
    assert objective(data.table, setting.without_privacy(data)) == pytest.approx(best, rel=1e-5)
    # From some of the records, finished on all of them: a fixed point of Lloyd's as well.
    some = setting.without_privacy(data, n_first=2000, n_rounds=30)
    assert objective(data.table, some) == pytest.approx(best, rel=1e-4)
    # Without the rounds the means of 500 records of a cluster are 3 / 500 = 0.6 % worse.
    assert objective(data.table, setting.without_privacy(data, n_first=2000, n_rounds=0)) > best


def test_oracle_scale_gives_the_signal_of_the_paper():
    scale = setting.oracle_scale()
    assert setting.expected_signal(scale, 10, 10) == pytest.approx(0.35, abs=1e-9)
    # Against mixtures and frequencies as they are drawn: 40 mixtures, 1000 frequencies each.
    found = []
    for trial in range(40):
        data = mixture(trial, 1)
        design = paper_design(data, 1000, seed=trial)
        law = setting.sketch_law(design.radians(), data.means)
        found.append(np.square(np.abs(law)).mean())
    error = np.std(found) / math.sqrt(len(found))
    assert np.mean(found) == pytest.approx(0.35, abs=6 * error)
    assert error < 0.005
    # The width of a cluster would be another scale, and 0.35 another signal.
    assert setting.expected_signal(1.0, 10, 10) < 0.2


def test_sketch_law_is_the_mean_over_records():
    data = mixture(1, 200_000, 3, 2)
    frequencies = np.array([[0.3, -0.2], [1.0, 0.4], [0.0, 0.0]])
    mean = np.exp(1j * data.table.astype(float) @ frequencies.T).mean(axis=0)
    # Standard error at most 1 / sqrt(2e5) = 0.0022 in all; 6 of them, and 3 frequencies.
    law = setting.sketch_law(frequencies, data.means)
    assert np.abs(mean - law).max() < 0.0135
    assert law[2] == 1


@pytest.mark.parametrize("rate", [1.0, 0.1, 0.01])
def test_noise_and_epsilon_of_a_wanted_ratio(rate):
    for ratio in (0.1, 3.0, 200.0):
        sigma = setting.noise_for(ratio, 1e5, rate)
        facts = {"n_per_device": 1e5, "feature_rate": rate}
        assert icassp_snr(sigma_xi=sigma, **facts) == pytest.approx(ratio, rel=1e-12)
        # Proposition 1 on sums: Laplace noise of scale 2 sqrt 2 m / epsilon.
        epsilon = setting.epsilon_for(sigma, 1e5, 1000, rate)
        scale = icassp_to_laplace_scale(sigma, 1e5, rate)
        assert scale == pytest.approx(2 * math.sqrt(2) * 1000 / epsilon, rel=1e-5)
    assert setting.noise_for(1e7, 1e5, rate) is None


def test_rate_of_a_wanted_ratio():
    for sigma in (1.0, 10.0):
        rate = setting.rate_for(40.0, 1e5, sigma)
        found = icassp_snr(n_per_device=1e5, feature_rate=rate, sigma_xi=sigma)
        assert found == pytest.approx(40.0, rel=1e-12)


@pytest.mark.parametrize("kept", [None, 40])
def test_the_predicted_ratio_is_that_of_releases(kept):
    # (7) with the true |z|^2 against E|s - z|^2 of releases. 200 features of 3 releases of each
    # of 8 samples are 9600 squares of nearly Laplace variables, whose mean varies by
    # sqrt(5 / 9600) = 2.3 %: 15 % are six standard errors.
    k, d, m, n, epsilon = 3, 2, 200, 4000, 2.0
    errors, signals = [], []
    for trial in range(8):
        data = mixture(0, n, k, d)
        rng = np.random.default_rng(trial)
        label = rng.integers(k, size=n)
        table = (data.means[label] + rng.normal(size=(n, d))).astype(np.float32)
        design = setting.at_epsilon(paper_design(data, m, seed=trial, kept=kept), epsilon)
        law = setting.sketch_law(design.radians(), data.means)
        signals.append(np.square(np.abs(law)).mean())
        sums = exact_sums([table], design, n_threads=1).sums
        for _ in range(3):
            sketch = setting.devices_sketch(sums[np.newaxis], design, n)
            errors.append(np.square(np.abs(sketch.mean() - law)).mean())
    rate = 1.0 if kept is None else kept / m
    sigma = 4 * math.sqrt(2 * rate) * m / (math.sqrt(n) * epsilon)
    facts = {"n_per_device": n, "feature_rate": rate, "sigma_xi": sigma}
    expected = icassp_snr(signal=np.mean(signals), **facts)
    measured = np.mean(signals) / np.mean(errors)
    assert measured == pytest.approx(expected, rel=0.15)
    # The planted error: a scale with epsilon under the root would be caught.
    wrong = icassp_snr(signal=np.mean(signals), **{**facts, "sigma_xi": sigma * math.sqrt(epsilon)})
    assert measured != pytest.approx(wrong, rel=0.15)


def devices_case(n_devices):
    data = mixture(0, 1200, 2, 2)
    design = setting.at_epsilon(paper_design(data, 60, seed=1), 0.5)
    parts = np.split(data.table, n_devices)
    sums = np.stack([exact_sums([part], design, n_threads=1).sums for part in parts])
    return data, design, parts, sums


def test_devices_are_holders_whose_sketches_are_merged():
    data, design, parts, sums = devices_case(6)
    own = setting.devices_sketch(sums, design, len(data.table))
    singles = [ps.sketch(part, design, source=f"device {i}") for i, part in enumerate(parts)]
    merged = ps.merge(singles)
    assert own.n_records == merged.n_records == 1200
    assert own.noise_variance == merged.noise_variance
    assert own.noise_variance == pytest.approx(6 * design.noise_std**2)
    assert (own.receipt.epsilon, own.receipt.delta) == (0.5, 0.0)
    # The same receipt that a merge writes, and a file that the library takes.
    # Rows of all devices are drawn at once, by another sampler than one short vector.
    assert {part.sampler for part in own.receipt.parts} == {OWN_SAMPLER}
    assert {part.sampler for part in merged.receipt.parts} == {OPENDP_SAMPLER}
    ours, theirs = (
        sorted(repr(replace(part, sampler="")) for part in s.receipt.parts) for s in (own, merged)
    )
    assert ours == theirs
    assert np.array_equal(ps.Sketch.from_bytes(own.to_bytes()).values, own.values)


@pytest.mark.parametrize("n_devices", [1, 6])
def test_noise_of_devices_has_the_variance_of_all_of_them(n_devices):
    _, design, _, sums = devices_case(n_devices)
    total = sums.sum(axis=0)
    noise = np.concatenate(
        [setting.devices_sketch(sums, design, 1200).values - total for _ in range(100)]
    )
    variance = n_devices * design.sum_noise.sums_law.variance
    # 12,000 squares of Laplace variables (kurtosis 6 at most): 2 %; 11 % are five of them.
    assert np.mean(noise.astype(float) ** 2) == pytest.approx(variance, rel=0.11)
    assert abs(noise.mean()) < 5.5 * math.sqrt(variance / noise.size)


def test_only_the_papers_noise_is_for_devices():
    _, _, _, sums = devices_case(2)
    domain = setting.box(2)
    other = ps.Design.plan(n_components=2, domain=domain, budget=ps.Budget(1.0), n_records=100)
    with pytest.raises(ParameterError, match="Laplace"):
        setting.devices_sketch(sums, other, 1200)


def test_masks_keep_their_share_and_records_their_sketch():
    data = mixture(0, 3000, 2, 2)
    design = paper_design(data, 40, seed=0, kept=8)
    assert design.masks.feature_rate(40) == 0.2
    assert paper_design(data, 40, seed=0, kept=40).masks is None
    assert paper_design(data, 40, seed=0, kept=8, in_blocks=True).masks.features == "block"
    assert setting.at_epsilon(design, 0.1).frequencies == design.frequencies
    assert setting.predicted_snr(design, 3000) == pytest.approx(
        0.2 * 3000 * 0.35 / (1 - 0.2 * 0.35 + 32 * 0.2 * 40**2 / 3000), rel=1e-12
    )


def run(cells, summary):
    return summary([row for cell in cells for row in cell.run(**cell.parameters)])


def typed(rows):
    """As they come back from a file."""
    return [
        {name: float(value) if isinstance(value, int) else value for name, value in row.items()}
        for row in rows
    ]


@pytest.mark.slow
def test_tiny_run_of_figure_2():
    left = run(snr.left_cells("tiny"), snr.left_summary)
    assert {row["decoder"] for row in left} == {"cl-ompr", "joint"}
    assert all(set(row) == set(left[0]) for row in left)
    assert "sigma_xi = 1" in snr_panels.left_table(left)
    assert "|z|^2 = 0.35" in snr_panels.left_comparison(typed(left))
    assert to_png(snr_panels.left_figure(typed(left)))[:4] == b"\x89PNG"
    right = run(snr.right_cells("tiny"), snr.right_summary)
    assert len(right) == 2 * 2 * len({row["snr"] for row in right})
    assert "our joint decoder: mean RSSE" in snr_panels.right_table(right)
    assert to_png(snr_panels.right_figure(typed(right)))[:4] == b"\x89PNG"


@pytest.mark.slow
def test_tiny_run_of_figure_3():
    rows = run(curves.cells("tiny"), curves.summary)
    assert all(set(row) == set(rows[0]) for row in rows)
    names = {row["curve"] for row in rows}
    expected = {curves.CKM, curves.CKM_JOINT, curves.OURS, curves.GRID, *curves.LLOYD.values()}
    assert names == expected
    # At epsilon = 1 and n = 2000 two clusters in two columns are found by our sketch.
    best = [r["rsse"] for r in rows if r["curve"] == curves.OURS and r["delta"] > 0]
    assert min(best) < 1.5
    assert "privsketch, pure, replace" in panels.table(typed(rows))
    assert to_png(panels.figure(typed(rows)))[:4] == b"\x89PNG"


def test_efforts_have_the_epsilons_of_the_bars():
    assert {1e-2, 2e-3, 2e-4} <= set(curves.EXTENTS["full"].epsilons)
    assert {1e-1, 2e-2, 2e-3} <= set(curves.EXTENTS["quick"].epsilons)
    for effort in ("full", "quick"):
        extent = curves.EXTENTS[effort]
        assert all(extent.n_records % n_devices == 0 for n_devices in extent.devices)
        assert all(max(extent.devices) % n_devices == 0 for n_devices in extent.devices)


def test_a_run_that_spends_too_much_is_an_error():
    data = mixture(0, 500, 2, 2)
    released = ps.sketch(data.table, setting.at_epsilon(paper_design(data, 40, seed=0), 1.0))
    with pytest.raises(ParameterError, match="spent"):
        curves._spent(curves.CKM, released.receipt, 0.5)


def point(curve, epsilon, rsse, **others):
    base = {
        "curve": curve,
        "neighbours": "replace",
        "delta": 0.0,
        "devices": 1,
        "alpha_r": 1.0,
        "size": 10.0 if curve in (curves.CKM, curves.CKM_JOINT) else 0.0,
        "m": 1000,
        "snr": 1e3 * epsilon,
        "epsilon": epsilon,
        "records": 10_000_000,
        "trials": 5,
        "rsse": rsse,
    }
    return {**base, **others}


def planted(ckm=(3.0, 1.1, 1.05), own=(1.1, 1.01, 1.0), masked=(3.1, 1.15, 1.06)):
    epsilons = (2e-3, 1e-2, 1.0)
    rows = []
    for i, epsilon in enumerate(epsilons):
        rows.append(point(curves.CKM, epsilon, ckm[i]))
        rows.append(point(curves.CKM, epsilon, masked[i], alpha_r=0.1))
        rows.append(point(curves.CKM, epsilon, 4.0 - i, devices=100, snr=100 * epsilon))
        rows.append(point(curves.OURS, epsilon, own[i]))
        rows.append(point(curves.LLOYD["packing"], epsilon, 2.0 - i / 3))
        rows.append(point(curves.LLOYD["uniform"], epsilon, 3.0 - i / 3))
    rows.append(point(curves.GRID, 2e-3, 2.5))
    return rows


def test_words_about_figure_3_follow_the_rows():
    text = panels.comparison(planted())
    assert "alpha_r = 1, m = 10 k d: at most 1.100 for epsilon >= 0.01, below 1.2" in text
    assert "privsketch, pure, replace: at most 1.100 for epsilon >= 0.002, below 1.2" in text
    assert "NOT below" not in text
    assert "no epsilon here for L = 100" in text
    assert "RSSE below 1.2 from epsilon = 0.01 for L = 1" in text
    assert "L = 1, alpha_r = 0.1: 1.01 to 1.05 times" in text
    assert "not worse than EUGkM at 0 of 1 epsilons (worse at 0.002)" in text
    assert "packing has the smaller median at 3 of 3 epsilons" in text
    # SNR x 10 >= 100 at the two larger epsilons of L = 1, masked or not, and at one of L = 100.
    assert "promises 5 points of CKM; 4 of them are below 1.2, and 0 of the other 4" in text


def test_curves_that_miss_their_bar_say_so():
    text = panels.comparison(planted(ckm=(3.0, 1.25, 1.05)))
    assert "alpha_r = 1, m = 10 k d: at most 1.250 for epsilon >= 0.01, NOT below 1.2" in text
    assert text.count("NOT below") == 1
    text = panels.comparison(planted(own=(1.31, 1.01, 1.0)))
    assert (
        "privsketch, pure, replace: at most 1.310 for epsilon >= 0.002, NOT below 1.2; below "
        in (text)
    )
    assert "below it from epsilon = 0.01 on" in text


def test_bars_move_with_the_number_of_records():
    rows = [{**row, "records": 1_000_000, "epsilon": 10 * row["epsilon"]} for row in planted()]
    text = panels.comparison(rows)
    assert "0.01 becomes 0.1" in text
    assert "privsketch, pure, replace: at most 1.100 for epsilon >= 0.02, below 1.2" in text


def ratio_point(series, ratio, rsse, decoder="cl-ompr", size=10.0):
    return {
        "decoder": decoder,
        "series": series,
        "snr": ratio,
        "size": size,
        "rsse": rsse,
        "rsse_mean": rsse,
        "rsse_std": 0.1,
        "signal": 0.35,
        "signal_low": 0.3,
        "signal_high": 0.4,
        "realised_snr": 1.1 * ratio,
        "epsilon": 1.0,
        "records": 100_000,
        "trials": 4,
    }


@pytest.mark.parametrize(("factor", "verdict"), [(1.02, "holds."), (1.6, "holds in part.")])
def test_words_about_the_ratio_follow_the_rows(factor, verdict):
    rows = []
    for decoder in ("cl-ompr", "joint"):
        for ratio, rsse in ((1.0, 4.0), (10.0, 2.0), (100.0, 1.15), (1000.0, 1.1)):
            rows.append(ratio_point("alpha_r = 1", ratio, rsse, decoder))
        rows.append(ratio_point("alpha_r = 0.1", 30.0, 1.51 * factor, decoder))
    text = snr_panels.left_comparison(rows)
    assert f"the ratio tells the error {verdict}" in text
    assert "from SNR = 100 on" in text
    assert "1.10 to 1.10 times" in text
    assert "0.300 to 0.400" in text


def test_words_about_the_rule_follow_the_rows():
    grid = {(0.6, 10.0): 3.0, (0.6, 100.0): 2.5, (10.0, 10.0): 1.15, (10.0, 100.0): 1.1}
    rows = [
        ratio_point("grid", ratio, value, decoder, size)
        for decoder in ("cl-ompr", "joint")
        for (size, ratio), value in grid.items()
    ]
    text = snr_panels.right_comparison(rows)
    assert "2 of the 2 points that the rule promises are below 1.2: it holds" in text
    assert "the best below m = k d is 2.50" in text
    rows[2]["rsse_mean"] = 1.4
    text = snr_panels.right_comparison(rows)
    assert "1 of the 2 points that the rule promises are below 1.2: it does not hold" in text
    assert "is at least 1e+03" in text
