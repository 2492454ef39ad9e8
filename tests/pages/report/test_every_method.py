"""Reports of whatever an estimator can give: none fails after the budget was spent."""

from __future__ import annotations

import re

import numpy as np
import pytest

import privsketch as ps
from privsketch.cli import methods_of
from privsketch.clustering import MEDIAN_METHODS as OF_MEDIANS
from privsketch.clustering import method_names
from privsketch.estimators import MAPS
from privsketch.pages import report_page

RECORDS = np.random.default_rng(0).choice([-0.5, 0.5], size=(400, 2))
BOX, BALL = ps.Box(low=-1, high=1, dim=2), ps.Ball(dim=2, radius=1.5)
SKETCH = {"n_features": 40, "n_init": 1}
NOISES = ("gaussian", "laplace", "cube")


def fits():
    """Every way to learn a model: its name, the estimator and its parameters."""
    kmeans = [(method, None, None) for method in method_names() if method != "sketch"]
    kmeans += [("lloyd", noise, None) for noise in NOISES]
    kmeans += [(method, None, 1) for method in ("pipeline", "partition-tree")]
    for method, noise, n_nonzero in kmeans:
        options = {"noise": noise, "n_nonzero": n_nonzero}
        what = " ".join(str(value) for value in (method, noise, n_nonzero) if value)
        yield f"k-means, {what}", ps.PrivateKMeans, {"options": options}, method
    for noise in NOISES:
        options = {**SKETCH, "noise": noise}
        yield f"k-means, sketch, {noise}", ps.PrivateKMeans, {"options": options}, "sketch"
    for name, size in (("one-bit", SKETCH), ("cells", {})):
        options = {**size, "feature_map": name}
        yield f"k-means, sketch, {name}", ps.PrivateKMeans, {"options": options}, "sketch"
    for method in OF_MEDIANS:
        yield f"k-medians, {method}", ps.PrivateKMedians, {}, method
    yield "mixture", ps.PrivateGaussianMixture, SKETCH, None
    for method in MAPS:
        yield f"components, {method}", ps.PrivatePCA, {"domain": BALL}, method


CASES = {name: fit for name, *fit in fits()}


def fitted(name, delta, neighbours, epsilon=4.0):
    estimator, choices, method = CASES[name]
    noise = (choices.get("options") or {}).get("noise")
    if noise == "gaussian" and delta == 0:
        pytest.skip("Gaussian noise needs a delta")
    choices = {"domain": BOX, **choices, "neighbours": neighbours}
    if method is not None:
        choices["method"] = method
    if method == "grid":
        choices["n_records"] = len(RECORDS)
    return estimator(2, epsilon=epsilon, delta=delta, random_state=0, **choices).fit(RECORDS)


def test_all_methods_of_the_command_are_here():
    of_command = {*methods_of("squares"), *methods_of("distances")}
    assert of_command <= {method for _, _, method in CASES.values()}


@pytest.mark.parametrize(
    ("delta", "neighbours"),
    [
        (1e-6, "add-remove"),
        pytest.param(1e-6, "replace", marks=pytest.mark.slow),
        pytest.param(0.0, "add-remove", marks=pytest.mark.slow),
        pytest.param(0.0, "replace", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("name", CASES)
def test_every_model_has_a_report(name, delta, neighbours):
    model = fitted(name, delta, neighbours)
    page = report_page(model.model_, getattr(model, "sketch_", None))
    assert "What it cost" in page
    shares = [float(text) for text in re.findall(r"<td>([0-9.]+)%</td>", page)]
    if model.model_.receipt.composition in ("sequential", "concentrated") and shares:
        # Shares add up to the whole but for what was not used, and the rounding of each line.
        assert 97 < sum(shares) < 100 + 0.05 * len(shares) + 1e-9
