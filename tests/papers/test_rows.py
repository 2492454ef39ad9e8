"""Rows of experiments: picked, gathered, and kept in files with their types."""

import math
from operator import itemgetter

import pytest

from papers.harness.rows import from_csv, grouped, numbers, places, quartiles, to_csv, where

ROWS = [
    {"curve": "b", "n": 100, "rsse": 1.5},
    {"curve": "a", "n": 100, "rsse": 1.25},
    {"curve": "b", "n": 10, "rsse": 1.75},
    {"curve": "b", "n": 100, "rsse": 3.5},
]


def test_rows_come_back_from_csv_with_their_types():
    rows = [
        {"a": 3, "b": 0.5, "c": "x, y", "d": ""},
        {"a": -1, "b": math.inf, "c": "z", "d": "1 2"},
    ]
    assert from_csv(to_csv(rows)) == rows
    assert math.isnan(from_csv("a\nnan\n")[0]["a"])


def test_columns_keep_their_order_and_places_are_sorted():
    assert numbers(ROWS, "n") == [100.0, 100.0, 10.0, 100.0]
    assert places(ROWS, "n") == [10.0, 100.0]


def test_rows_are_picked_by_all_values():
    # A file may have a whole number where a float is asked for.
    assert where(ROWS, curve="b", n=100.0) == [ROWS[0], ROWS[3]]
    assert where(ROWS, curve="c") == []
    assert where(ROWS) == ROWS


def test_groups_come_in_the_order_of_their_first_rows():
    groups = grouped(ROWS, itemgetter("curve", "n"))
    assert list(groups) == [("b", 100), ("a", 100), ("b", 10)]
    assert groups["b", 100] == [ROWS[0], ROWS[3]]


def test_quartiles_are_columns_beside_the_median():
    found = quartiles("rsse", [4.0, 1.0, 2.0, 3.0, 9.0])
    assert found == {"rsse": 3.0, "rsse_low": 2.0, "rsse_high": 4.0}
    assert all(math.isnan(value) for value in quartiles("rsse", [math.nan]).values())
    assert quartiles("x", [1.0, 2.0])["x"] == pytest.approx(1.5)
