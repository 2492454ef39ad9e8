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


def products(costs, first_explaining):
    """Return candidates of products with 30 unknowns each, in a sketch of variance one."""
    return [
        Candidate(size, cost / 4000, size >= first_explaining, True, cost, 1.0, 30 * size)
        for size, cost in enumerate(costs, start=1)
    ]


FALLS = [226, 134, 49, 5.3, 5.1, 1.3, 1.3, 1.1, 0.9]  # of each unknown; six clusters


def test_a_fall_shows_a_cluster_that_the_residual_hides():
    costs = [4000 + 30 * sum(FALLS[size:]) for size in range(len(FALLS) + 1)]
    assert best_size(products(costs, first_explaining=4)) == 6
    # Two small falls end the search, one does not.
    for small, expected in ((1, 6), (2, 4)):
        falls = [*FALLS[:3], *[1.0] * small, 9.0, *[1.0] * 6]
        costs = [4000 + 30 * sum(falls[size:]) for size in range(len(falls) + 1)]
        assert best_size(products(costs, first_explaining=4)) == expected


def test_falls_do_not_count_where_nothing_explains_the_sketch_or_atoms_are_no_products():
    costs = [4000 + 30 * sum(FALLS[size:]) for size in range(len(FALLS) + 1)]
    unexplained = products(costs, first_explaining=99)
    assert best_size(unexplained) == 4
    numbers = [Candidate(c.n_clusters, c.misfit, c.explains, True) for c in products(costs, 4)]
    assert best_size(numbers) == 4
