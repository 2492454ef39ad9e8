"""The number of clusters, from how well each number explains a sketch."""

import numpy as np
import pytest

import privsketch as ps
from privsketch.learning import Candidate, best_size


def candidates(misfits, *, explains=(), plain=False):
    return [
        Candidate(size, misfit, explains=size in explains, plain=plain)
        for size, misfit in enumerate(misfits, start=1)
    ]


def test_the_last_large_fall_counts():
    assert best_size(candidates([900, 300, 2.5, 2.2, 2.0, 1.9])) == 3


def test_where_noise_is_most_of_a_residual_what_is_beyond_it_counts():
    """Six groups with wards and smokers, from five noisy sites: no fall is by half."""
    misfits = [12.2, 8.3, 5.9, 3.9, 2.2, 1.16, 1.14, 1.14, 1.13, 1.11, 1.10, 1.09]
    assert best_size(candidates(misfits, explains=range(9, 13))) == 6
    assert best_size(candidates(misfits)) == 6


@pytest.mark.parametrize("misfits", [[1.09, 1.04, 1.01], [40, 30, 24, 19, 16, 14], [1.2]])
def test_without_a_fall_there_is_one_cluster(misfits):
    assert best_size(candidates(misfits)) == 1


def test_balls_that_explain_are_believed():
    assert best_size(candidates([1.3, 1.2, 1.0, 1.0], explains=(3, 4), plain=True)) == 3


def four_groups(epsilon, seed):
    """A sketch of 4,000 records in four groups, planned for up to 12."""
    rng = np.random.default_rng(seed)
    centers = 0.5 * np.array([[-1, -1, 0, -1], [0, 1, -1, 0], [1, 0, 1, 0], [-1, 1, 1, -1]])
    records = centers[rng.integers(4, size=4000)] + 0.15 * rng.normal(size=(4000, 4))
    design = ps.Design.plan(
        n_components=12, domain=ps.Box(-1, 1, dim=4), budget=ps.Budget(epsilon, 1e-6),
        n_records=4000, feature_map="fourier", random_state=seed,
    )  # fmt: skip
    return ps.sketch(np.clip(records, -1, 1), design)


@pytest.mark.parametrize("seed", range(4))
def test_fewer_clusters_than_noise_lets_through_are_told(seed):
    """At 0.03 the noise of twice as many clusters hides them, whatever is found."""
    model = ps.learn_kmeans(four_groups(0.03, seed), "auto")
    assert "noise may hide more" in model.concerns[0] or "noise decided" in model.concerns[0]
    model = ps.learn_kmeans(four_groups(3.0, seed), "auto")
    assert model.n_clusters == 4
    assert not any("hide" in text or "decided" in text for text in model.concerns)
