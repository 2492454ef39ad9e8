"""Harmonics of signs: what they add to the variance of a one-bit sketch, and to its forecast."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.cluster import KMeans

import privsketch as ps
from benchmarks.datasets import squared_error
from benchmarks.forecast import ball, plane, seeds
from privsketch.design import excess, expected_range, harmonic_variance, references
from privsketch.features import HARMONICS, RadialLaw, Tail

FALSE_ALARM = 1e-6  # at most, of each comparison
STANDARD_ERRORS = 5.5  # of a mean of many numbers: 4e-8


LAWS = {
    "multi-scale": ("multi-scale", RadialLaw((0.4, 6.0))),
    "with a tail": ("multi-scale", RadialLaw((0.1, 6.0), Tail(0.2, 0.5))),
    "one scale": ("adapted-radius", RadialLaw((1.5, 1.5))),
    "normal": ("gaussian", RadialLaw((1.5, 1.5))),
}
N, K, DIM, WIDTH, SPREAD = 400_000, 5, 3, 1.0, 2.5


def drawn_variances(law: str, radii: RadialLaw) -> tuple[np.ndarray, np.ndarray]:
    """|w|^2 of N frequencies, and the variance over n^2 for centers that are drawn for each."""
    rng = np.random.default_rng(0)
    if law == "gaussian":
        lengths = np.linalg.norm(rng.normal(size=(N, DIM)), axis=1) / radii.scales[0]
    else:
        radius, scale = radii.drawn(rng.uniform(size=N), rng.uniform(size=N))
        lengths = radius / scale
    along = lengths[:, np.newaxis] * SPREAD * rng.normal(size=(N, K))  # w.c of each center
    variances = np.zeros(N)
    for order in HARMONICS:
        moments = np.exp(1j * order * along).mean(axis=1)
        damped = np.abs(moments) ** 2 * np.exp(-((order * lengths * WIDTH) ** 2))
        variances += damped / (2 * order**2)
    return lengths**2, variances


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("in_band", [False, True])
def test_the_mean_over_frequencies_is_as_stated(name, in_band):
    law, radii = LAWS[name]
    squared, variances = drawn_variances(law, radii)
    facts = {"n_components": K, "n_records": 1.0, "width": WIDTH, "spread": SPREAD}
    told = harmonic_variance(law, radii, DIM, **facts, in_band=in_band)
    x = squared * WIDTH**2
    weights = x * np.exp(-x) if in_band else np.ones(N)
    samples = weights * variances / weights.mean()
    allowed = STANDARD_ERRORS * samples.std() / math.sqrt(N)
    assert samples.mean() == pytest.approx(told, abs=allowed)
    # A third of an order's weight, or a mixture of clusters that all lie in one place, is seen.
    assert 0.3 * told > allowed
    alone = harmonic_variance(law, radii, DIM, **{**facts, "n_components": 1}, in_band=in_band)
    assert abs(alone - told) > 2 * allowed


def test_sums_of_signs_vary_by_sampling_and_harmonics(no_noise):
    """Sums without noise against the first harmonic of the mixture they were drawn from.

    Given frequencies and centers, dithers and records are random. By dithers, |deviation|^2 of a
    feature lies between 0 and the square of all amplitudes; records add at most n pi^2 / 8.
    """
    rng = np.random.default_rng(1)
    k, dim, n, m = 4, 2, 20_000, 2000
    centers = rng.uniform(-4, 4, size=(k, dim))
    records = centers[rng.integers(k, size=n)] + 0.5 * rng.normal(size=(n, dim))
    design = ps.Design.plan(
        n_components=k,
        domain=ps.Box(-8, 8, dim=dim),
        budget=ps.Budget(1.0, 1e-6),
        n_features=m,
        feature_map="one-bit",
        n_records=n,
        random_state=3,
    )
    found = ps.sketch(records, design).moments()
    frequencies = design.radians()

    def mean_of(order: int) -> np.ndarray:
        at = order * frequencies
        damping = np.square(at).sum(axis=1) * 0.5**2 / 2
        return np.exp(1j * at @ centers.T).mean(axis=1) * np.exp(-damping) * n / order

    away = np.abs(found - mean_of(1)) ** 2
    amplitudes = np.abs([mean_of(order) for order in range(3, 500, 2)])
    harmonics = np.square(amplitudes).sum(axis=0)
    rest = n**2 / 998  # of orders from 501 on, were all records in one place
    told = np.square(amplitudes[: len(HARMONICS)]).sum(axis=0)
    assert told.mean() > 0.9 * harmonics.mean()  # those that are counted are most
    most = (amplitudes.sum(axis=0) + 4 * math.sqrt(n)) ** 2
    allowed = math.sqrt(np.square(most).mean()) * math.sqrt(math.log(2 / FALSE_ALARM) / (2 * m))
    sampling = n * math.pi**2 / 8
    low, high = harmonics.mean() - allowed, harmonics.mean() + sampling + rest + allowed
    assert low < away.mean() < high
    # Sampling alone, as forecasts had it, is far too little.
    assert away.mean() > 20 * sampling
    assert low > sampling
    assert high < 2 * harmonics.mean()


def test_other_maps_have_none():
    study = {"n_components": 4, "domain": ps.Box(-8, 8, dim=3), "budget": ps.Budget(1.0, 1e-6)}
    design = ps.Design.plan(**study, n_records=1e5, n_features=200, random_state=0)
    for reference in references(design.domain, 4):
        assert excess(design, reference, 1e5) == excess(design, reference, 1e5, sees_all=True)


# Where forecasts had tops of 1.0005, 1.004 and 1.0007: records, frequencies and dithers have seeds
# and there is no noise, so that nothing here is left to chance.
CELLS = {
    "seed mixture": seeds(4, 2, 10**4),
    "tight plane": plane(15, 10**4, 0.05),
    "tight in ball": ball(8, 4, 20_000),
}


@pytest.mark.parametrize("name", CELLS)
def test_what_is_learned_from_signs_lies_in_the_range(name, no_noise):
    data, n, _ = CELLS[name]
    ratios = []
    for seed in range(3):
        design = ps.Design.plan(
            n_components=data.n_clusters,
            domain=data.domain,
            budget=ps.Budget(20.0, 1e-6),
            n_records=n,
            feature_map="one-bit",
            random_state=seed,
        )
        records = data.make(np.random.default_rng([seed, 20210607]))
        centers = ps.learn_kmeans(ps.sketch(records, design), data.n_clusters).centers
        best = KMeans(data.n_clusters, init=centers, n_init=1, max_iter=50).fit(records).inertia_
        ratios.append(squared_error(records, centers) / best)
    low, high = expected_range(design, n)
    assert low < np.median(ratios) < high


def test_more_records_do_not_make_up_for_harmonics():
    study = {"n_components": 10, "domain": ps.Box(-8, 8, dim=10), "budget": ps.Budget(1.0, 1e-6)}
    signs, waves = (
        ps.Design.plan(**study, n_records=1e9, n_features=300, feature_map=name, random_state=0)
        for name in ("one-bit", "fourier")
    )
    assert expected_range(waves, 1e9)[1] < 1.0001
    assert expected_range(signs, 1e9)[1] > 1.05


def test_pure_noise_leaves_signs_more_features():
    study = {"n_components": 10, "domain": ps.Box(-8, 8, dim=10), "budget": ps.Budget(0.3, 0.0)}
    signs, waves = (
        ps.Design.plan(**study, n_records=1e5, feature_map=name, random_state=0)
        for name in ("one-bit", "fourier")
    )
    assert signs.n_features > 2 * waves.n_features
    fewer = ps.Design.plan(
        **study,
        n_records=1e5,
        feature_map="one-bit",
        n_features=waves.n_features,
        random_state=0,
    )
    assert signs.forecast().rsse_high < fewer.forecast().rsse_high
