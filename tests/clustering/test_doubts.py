"""Doubts about centers after the last round: planted steps, planted counts, and whole runs."""

import numpy as np
import pytest

import privsketch as ps
from privsketch.clustering import clustered, plan_pipeline
from privsketch.clustering.pipeline import (
    Measured,
    cluster,
    measured_excess,
    unfound_clusters,
    unsettled_centers,
)


def measured(counts, radius=10.0, count_noise=25.0):
    """Return what a round measured around places on a line."""
    k = len(counts)
    places = np.arange(k, dtype=float)[:, np.newaxis] * 100
    return Measured(
        places,
        np.zeros((k, 1)),
        np.array(counts, dtype=float),
        np.ones(k),
        np.full(k, radius),
        np.ones(k),
        count_noise,
    )


def test_centers_that_stay_raise_no_doubt():
    found = measured([100, 100, 100, 100])
    assert unsettled_centers(found, found.places + 1.0, 0.05) == ()  # a tenth of the radius


def test_centers_that_still_move_do():
    found = measured([100, 100, 100, 100])
    (text,) = unsettled_centers(found, found.places + 3.0, 0.05)
    assert "by 30% of the radius" in text
    assert "0 of 4 clusters may be noise" in text


def test_a_bad_forecast_doubts_smaller_steps():
    found = measured([100, 100, 14, 9])  # three deviations are 15
    (text,) = unsettled_centers(found, found.places + 1.0, 0.5)
    assert "2 of 4 clusters may be noise" in text


@pytest.mark.parametrize("counts", [[0, 0], [-5, -3]])
def test_no_records_are_no_error(counts):
    found = measured(counts)
    (text,) = unsettled_centers(found, found.places, 0.0)
    assert "2 of 2 clusters may be noise" in text


def test_centers_around_the_mean_were_not_looked_for():
    assert unfound_clusters(1) == ()
    assert "spread out around the mean" in unfound_clusters(2)[0]


def test_runs_say_where_clusters_were_not_found():
    rng = np.random.default_rng(0)
    centers = rng.uniform(-0.8, 0.8, (8, 12))
    records = centers[rng.integers(8, size=20_000)] + 0.05 * rng.normal(size=(20_000, 12))

    def concerns(epsilon):
        return clustered(
            cluster,
            records,
            8,
            domain=ps.Box(-1, 1, dim=12),
            budget=ps.Budget(epsilon, 0.0),
            n_records=2e4,
            random_state=0,
        ).concerns

    assert concerns(20.0) == ()
    assert any("not be in place" in text or "noise decided" in text for text in concerns(0.03))


def test_nothing_is_forecast_to_be_good_where_nothing_is_known():
    found = measured([0, 0])
    assert measured_excess(found, found.places, 0.5) == np.inf


@pytest.mark.parametrize("n_rounds", [2, 3, 4, 6, 8])
def test_a_stated_number_of_rounds_runs_for_any_released_number_of_records(n_rounds):
    for n_records in (300, 1_000, 3_000, 10_000, 100_000):
        plan = plan_pipeline(5, 10, ps.Budget(1.0), n_records, n_rounds)
        assert plan.n_rounds == n_rounds
