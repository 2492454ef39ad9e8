"""The calibration of cost ratios finds a law that is known, and holds on random studies."""

import importlib

import numpy as np
import pytest


@pytest.fixture
def ratios():
    return importlib.import_module("benchmarks.ratios")


def planted(n_studies, seed):
    """Studies whose excess is exp(0.8 a - 0.5 b) within a factor, and a sign that tells nothing."""
    rng = np.random.default_rng(seed)
    for _ in range(n_studies):
        error, out, fill = rng.uniform(-6, 1), rng.uniform(-3, 4), rng.uniform(-4, 0)
        excess = np.exp(0.8 * error - 0.5 * out + 0.3 * rng.standard_normal())
        yield {
            "ratio": 1 + excess,
            "signs": {"error": error, "stands out": out, "fill": fill},
        }


def test_a_known_law_is_found(ratios):
    rises = {"error": True, "stands out": False, "fill": True}
    found = ratios.fitted(list(planted(3000, 0)), rises)
    assert found.weights["error"] == pytest.approx(0.8, abs=0.1)
    assert found.weights["stands out"] == pytest.approx(-0.5, abs=0.1)
    assert found.weights.get("fill", 0) < 0.05
    foretold = [(found.ratio(found.score(s["signs"])), s["ratio"]) for s in planted(2000, 1)]
    inside = np.mean([ratio.low <= true <= ratio.high for ratio, true in foretold])
    assert 0.85 < inside < 0.97
    turned = ratios.fitted(list(planted(500, 2)), {"error": False, "stands out": True})
    assert turned.weights == {}  # no sign is believed against what is known of it


@pytest.mark.exhaustive  # what the fit is worth, not whether it is right
def test_intervals_hold_ratios_of_studies_that_took_no_part(ratios):
    found = list(ratios.random_studies(100_000, 40))
    low, _, high = np.array([study["foretold"] for study in found]).T
    true = np.array([study["ratio"] for study in found])
    # 0.9 on average; less in one run of a thousand
    assert np.mean((low <= true) & (true <= high)) > 0.72


def test_evaluation_data_are_others(ratios):
    assert len(ratios.OTHERS) == 20
    assert len(ratios.REAL) >= 10
    assert not {other.name for other in ratios.OTHERS} & set(ratios.KINDS)
