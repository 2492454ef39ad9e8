"""Shares of common records, estimated from marks, against known sets."""

import numpy as np
import pytest
from scipy.stats import binom

from privsketch import FileError, ParameterError
from privsketch.ledger import MAX_MARKS, Marks, compared, recognised

ALPHA = 1e-6  # chance of a false alarm of each statistical test


def hashes(rng, n):
    return rng.integers(0, 2**64, size=n, dtype=np.uint64)


def marks(*parts):
    values = np.concatenate(parts)
    if len(values) > MAX_MARKS + 1000:  # at most 1,000 are repeated in these tests
        values = np.partition(values, MAX_MARKS + 1000)[: MAX_MARKS + 1000]
    return Marks(tuple(map(int, values)))


def test_marks_are_the_smallest_distinct_ones():
    values = [5, 3, 3, 9, *range(100, 900)]
    found = Marks(tuple(values))
    assert found.values == (3, 5, 9, *range(100, 353))
    assert not found.is_whole
    assert Marks((4, 4)).is_whole
    assert Marks.from_bytes(found.to_bytes()) == found
    assert Marks.from_bytes(bytes(8)) == Marks(())
    assert Marks.from_bytes(Marks((7,), b"encoding").to_bytes()).encoding == b"encoding"
    for damaged in (b"", b"1234567", bytes(8 * 258)):
        with pytest.raises(FileError):
            Marks.from_bytes(damaged)
    for wrong in (-1, 2**64):
        with pytest.raises(ParameterError):
            Marks((wrong,))


def test_order_and_repetition_do_not_matter():
    rng = np.random.default_rng(0)
    rows = hashes(rng, 5000)
    again = rng.permutation(np.concatenate([rows, rows[:700]]))
    assert compared(marks(rows), marks(again), "a").kind == "same"


@pytest.mark.parametrize(
    ("common", "new", "old", "kind", "share", "old_share"),
    [
        (100, 0, 0, "same", 1, 1),
        (100, 50, 0, "grown", 2 / 3, 1),
        (100, 0, 50, "part", 1, 2 / 3),
        (100, 20, 50, "mostly", 5 / 6, 2 / 3),
        (10, 100, 100, "some", 1 / 11, 1 / 11),
        (1, 0, 0, "same", 1, 1),
    ],
)
def test_few_rows_are_compared_exactly(common, new, old, kind, share, old_share):
    rng = np.random.default_rng(1)
    both, one, other = hashes(rng, common), hashes(rng, new), hashes(rng, old)
    match = compared(marks(both, one), marks(both, other), "a")
    assert match.kind == kind
    assert match.error == 0
    assert match.share == pytest.approx(share)
    assert match.old_share == pytest.approx(old_share)


def test_strangers_have_nothing_in_common():
    rng = np.random.default_rng(2)
    assert compared(marks(hashes(rng, 10**5)), marks(hashes(rng, 10**5)), "a") is None
    assert compared(Marks(()), Marks(()), "a") is None
    assert compared(marks(hashes(rng, 3)), Marks(()), "a") is None


@pytest.mark.parametrize("size_ratio", [1.0, 0.3])
def test_shares_are_estimated_without_bias(size_ratio):
    """Common marks of many comparisons are as many as a binomial law of the true share says."""
    rng = np.random.default_rng()
    n, share, trials = 10_000, 0.9, 100
    n_common = n_seen = 0
    inside = 0
    for _ in range(trials):
        both, one = hashes(rng, int(n * share)), hashes(rng, n - int(n * share))
        other = hashes(rng, int(len(both) * (1 / size_ratio - share)))  # old ones are more
        match = compared(marks(both, one), marks(both, other), "a")
        assert match.kind == "mostly"
        end = min(marks(both, one).values[-1], marks(both, other).values[-1])
        seen = sum(value < end for value in marks(both, one).values)
        n_common += round(match.share * seen)
        n_seen += seen
        inside += abs(match.share - share) <= 2 * match.error
    low, high = binom.ppf([ALPHA / 2, 1 - ALPHA / 2], n_seen, share)
    assert low <= n_common <= high
    wrong_low, wrong_high = binom.ppf([ALPHA / 2, 1 - ALPHA / 2], n_seen, share - 0.03)
    assert not wrong_low <= n_common <= wrong_high  # a bias of three hundredths would show
    # Two standard errors hold in nine of ten cases at least; binom.ppf(1e-6, 100, 0.9) = 73.
    assert inside >= binom.ppf(ALPHA, trials, 0.9)


def test_a_tenth_of_the_records_changed():
    rng = np.random.default_rng()
    for _ in range(100):  # "same" by chance: (0.9 / 1.1)^255 = 6e-23; share off by 0.2: below 1e-15
        both = hashes(rng, 9000)
        match = compared(marks(both, hashes(rng, 1000)), marks(both, hashes(rng, 1000)), "a")
        assert match.kind == "mostly"
        assert abs(match.share - 0.9) < 0.2
        assert 0.01 < match.error < 0.03


def test_a_table_that_has_grown():
    rng = np.random.default_rng()
    old = hashes(rng, 50_000)
    match = compared(marks(old, hashes(rng, 50_000)), marks(old), "a")
    assert match.kind == "grown"
    assert match.old_share == 1
    back = compared(marks(old), marks(old, hashes(rng, 50_000)), "a")
    assert back.kind == "part"


def test_a_grain_of_a_mountain_says_little():
    """Of a small table in a large one hardly a mark is compared: no strong words about it."""
    rng = np.random.default_rng(5)
    small = hashes(rng, 600)
    large = marks(small, hashes(rng, 200_000))
    match = compared(marks(small), large, "a")
    assert match is None or match.kind == "some"


def test_the_closest_of_every_data_set_comes_first():
    rng = np.random.default_rng(6)
    rows = hashes(rng, 3000)
    known = [
        ("half", marks(rows[:1800], hashes(rng, 1200))),
        ("all", marks(rows[:500])),
        ("all", marks(rows)),
        ("other", marks(hashes(rng, 3000))),
    ]
    found = recognised(marks(rows), known)
    assert [(match.data_set, match.kind) for match in found] == [
        ("all", "same"),
        ("half", "mostly"),
    ]
    assert "60 %" in found[1].words or abs(found[1].share - 0.6) > 0.01
