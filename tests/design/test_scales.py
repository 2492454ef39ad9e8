"""Scales of the frequencies: from public facts, as fine as the noise lets one see."""

import itertools

import numpy as np
import pytest
from test_planning import brute_force_error

import privsketch as ps
from privsketch.design import (
    LARGEST_RANGE,
    MAX_COST,
    MAX_COST_OF_FEW,
    MAX_TAIL_EXCESS,
    center_error,
    default_radii,
    kmeans_unknowns,
)
from privsketch.features import RadialLaw, Tail


def radii(domain, k=10, *, n_features=8000, n_records=1e5, variance=1e5):
    return default_radii(domain, k, n_features=n_features, n_records=n_records, variance=variance)


def test_scales_come_from_public_facts():
    law = radii(ps.Box(-8, 8, dim=10))
    assert law == RadialLaw((0.25 / 8, 4.0), Tail(0.125, 0.25))
    assert radii(ps.Box(0, 16, dim=10)) == law
    many = radii(ps.Box(-1, 1, dim=2), 100)  # many clusters in the plane: finer
    assert many.scales[1] / many.tail.below == pytest.approx(60)
    ball, box = ps.Ball(dim=1, radius=3.0), ps.Box(-3, 3, dim=1)
    assert radii(ball, 4) == radii(box, 4)


def test_no_scale_is_finer_than_records_are():
    for k in (10, 100, 1000, 10_000):
        low, high = radii(ps.Box(-1, 1, dim=1), k, n_features=16 * k, n_records=1e9).scales
        assert high / low <= LARGEST_RANGE * (1 + 1e-12)


def test_the_finest_scale_follows_from_the_noise():
    box = ps.Box(-1, 1, dim=2)
    finest = [
        radii(box, 15, n_features=480, variance=v).scales[0] for v in np.geomspace(1e3, 1e9, 200)
    ]
    assert all(fine <= coarse for fine, coarse in itertools.pairwise(finest))
    ratios = np.array(finest) / finest[0]
    assert set(np.round(ratios, 9)) == {1, 2, 8}  # the last one has no tail at all


@pytest.mark.parametrize("k", [3, 10, 40])
def test_a_tail_is_worth_its_features(k):
    # Clusters in the tail are seen, and those in the main band lose no more than said.
    tails = 0
    for dim, epsilon, delta in itertools.product((1, 2, 3, 6, 12), (0.03, 0.3, 3), (0, 1e-6)):
        design = ps.Design.plan(
            n_components=k,
            domain=ps.Box(-1, 1, dim=dim),
            budget=ps.Budget(epsilon, delta),
            n_records=2e4,
            random_state=1,
        )
        law = design.frequencies.radial_law
        if law.tail is None:
            continue
        tails += 1
        facts = {
            "n_components": k,
            "dim": dim,
            "n_records": 2e4,
            "n_features": design.n_features,
            "variance": design.noise_std**2 + 1e4,
            "n_unknowns": kmeans_unknowns(k, dim),
        }

        def error(law, width, facts=facts):
            shares = law.band_share(width), law.squared_band_share(width)
            return center_error(band=shares[0], squared_band=shares[1], **facts)

        low, high = law.scales
        assert error(law, np.sqrt(low * law.tail.below)) <= MAX_TAIL_EXCESS * 1.001
        middle = np.sqrt(law.tail.below * high)
        plain = RadialLaw((law.tail.below, high))
        cost = MAX_COST_OF_FEW if dim <= 3 else MAX_COST
        assert error(law, middle) <= 1.001 * cost * error(plain, middle)
    assert tails >= 5


def test_small_sketches_have_no_features_to_spare():
    box = ps.Box(-8, 8, dim=10)
    assert radii(box, n_features=293, variance=1.0).tail is None  # 2.6 per unknown
    assert radii(box, n_features=800, variance=1.0).tail is not None


def test_labels_have_no_width_to_look_for():
    def plan(*columns, law=None):
        schema = ps.Schema([ps.Number("age", 0, 100), ps.Number("height", 0, 250), *columns])
        budget = ps.Budget(1.0, 1e-6)
        return ps.Design.plan(
            n_components=3, domain=schema, budget=budget, n_records=1e6, frequencies=law
        ).frequencies

    region = ps.Category("region", ["north", "south"])
    assert plan().tail is not None
    assert plan(region, law="multi-scale").tail is None
    # Where frequencies of labels have a law of their own, numbers have the scales that they have
    # without labels.
    assert plan(region, law="mixed").radial_law == plan().radial_law


def test_scales_that_are_given_are_a_plain_law():
    def plan(**choices):
        return ps.Design.plan(
            n_components=5,
            domain=ps.Box(-1, 1, dim=3),
            budget=ps.Budget(1.0, 1e-6),
            n_records=1e6,
            random_state=1,
            **choices,
        ).frequencies

    assert plan(frequency_scale=(0.1, 1.0)).radial_law == RadialLaw((0.1, 1.0))
    assert plan().tail is not None
    assert plan(frequencies="structured").radial_law == plan().radial_law
    assert plan(frequencies="multi-scale") == plan()


@pytest.mark.parametrize("tightness", [1, 2, 6])
def test_errors_of_tight_clusters_against_the_whole_fisher_matrix(tightness):
    # Clusters at the end of the main band, and those in the tail, which few features see.
    k, dim, size, variance = 6, 5, 1000.0, 90.0
    ratios, as_before = [], []
    rng = np.random.default_rng(tightness)
    for seed in range(5):
        design = ps.Design.plan(
            n_components=k,
            domain=ps.Box(-1, 1, dim=dim),
            budget=ps.Budget(1.0, 1e-6),
            n_records=1e7,
            n_features=16 * k * dim,
            random_state=seed,
        )
        law = design.frequencies.radial_law
        width = law.tail.below / tightness
        centers = rng.uniform(-0.8, 0.8, size=(k, dim))
        exact = brute_force_error(design.radians(), size, centers, width, variance)
        told = center_error(
            n_components=k,
            dim=dim,
            n_records=k * size,
            n_features=design.n_features,
            variance=variance,
            n_unknowns=kmeans_unknowns(k, dim),
            band=law.band_share(width),
            squared_band=law.squared_band_share(width),
        )
        ratios.append(exact / told)
        main = RadialLaw((law.tail.below, law.scales[1])).band_share(width)
        as_before.append(exact / told * main / law.band_share(width))
    assert np.median(ratios) == pytest.approx(1, abs=0.3)
    if tightness == 6:  # a forecast that did not know of the tail would be far off
        assert np.median(as_before) < 0.5
