"""The number of clusters, from how well each number explains a sketch."""

import pytest

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
