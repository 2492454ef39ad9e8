"""Kinds of columns: coordinates within their bounds, distances as documented, and the way back."""

import itertools
import math
from datetime import date, datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import privsketch as ps
from privsketch.facts import field_covariance, field_errors, field_names, field_values

SOME = settings(max_examples=60, deadline=None, derandomize=True)
WEIGHTS = st.sampled_from([1.0, 0.25, 3.0])
DAY = 86400.0


def values_of(column):
    """Values that a column can have, extremes and what lies outside among them."""
    if isinstance(column, ps.Category | ps.Flag):
        return np.arange(len(column.labels), dtype=float)
    if isinstance(column, ps.Date):
        first, last = column.bounds
        return np.array([first - 1e9, first, first + DAY, (first + last) / 2, last, last + 1e9])
    if isinstance(column, ps.Cycle):
        return column.start + np.array([0, 0.1, 0.25, 0.5, 0.75, 0.999, 1, 2.5, -3]) * column.period
    return np.array([-1e300, column.low, 0.3 * column.low + 0.7 * column.high, column.high, 1e300])


COLUMNS = [
    ps.Number("age", 18, 100),
    ps.Number("age", 18, 100, weight=2.5),
    ps.Number("x", -1e-3, 1e5),
    ps.Number("income", 0, 500_000, scale="log"),
    ps.Number("dose", 0.01, 1000, scale="log", weight=0.5),
    ps.Category("region", ["north", "south", "east", "west"]),
    ps.Category("one", ["x"], weight=3),
    ps.Category("region", ["north", "south"], missing="category"),
    ps.Category("codes", [1, 2, 30]),
    ps.Flag("smoker"),
    ps.Flag("smoker", weight=2.0),
    ps.Flag("smoker", missing="category"),
    ps.Date("admitted", "2020-01-01", "2025-12-31"),
    ps.Date("moment", "2020-01-01T06:00:00", datetime(2020, 1, 2)),
    ps.Cycle("hour", 24),
    ps.Cycle("month", 12, start=1, weight=1.5),
]
IDS = [f"{type(column).__name__}-{place}" for place, column in enumerate(COLUMNS)]


@pytest.mark.parametrize("column", COLUMNS, ids=IDS)
def test_coordinates_lie_within_bounds_and_the_norm_is_exact(column):
    points = column.encode(values_of(column))
    assert points.shape == (len(column.coordinates), len(values_of(column)))
    assert (points >= column.lowest[:, None]).all()
    assert (points <= column.highest[:, None]).all()
    squares = np.square(points - column.center[:, None]).sum(axis=0)
    assert squares.max() == pytest.approx(column.squared_radius, rel=1e-12)  # and attained


@pytest.mark.parametrize("column", COLUMNS, ids=IDS)
def test_what_is_decoded_is_what_was_encoded(column):
    values = values_of(column)
    points = column.encode(values).T
    found = column.decode(points)
    if isinstance(column, ps.Category | ps.Flag):
        shares = column.shares(points)
        assert (shares == np.eye(len(column.labels))).all()
        return
    if isinstance(column, ps.Number):
        wanted = np.clip(values, column.low, column.high)
        np.testing.assert_allclose(found[:, 0], wanted, rtol=1e-12, atol=1e-9 * column.high)
    elif isinstance(column, ps.Date):
        np.testing.assert_allclose(found[:, 0], np.clip(values, *column.bounds), atol=1e-3)
    else:
        turn = (found[:, 0] - values) / column.period
        np.testing.assert_allclose(turn, np.rint(turn), atol=1e-12)


@pytest.mark.parametrize("column", COLUMNS, ids=IDS)
def test_slopes_are_those_of_the_fields(column):
    inner = column.encode(values_of(column)[1:3]).T.mean(axis=0)
    if isinstance(column, ps.Category | ps.Flag):
        inner = column.center
    step = 1e-6
    unit = DAY if isinstance(column, ps.Date) else 1.0
    for place in range(len(inner)):
        change = np.zeros(len(inner))
        change[place] = step
        # Shares add up to 1 whatever is decoded; a slope is that of the share by itself.
        if isinstance(column, ps.Category | ps.Flag) and len(inner) > 1:
            wanted = np.eye(len(inner))[place] / column.corner
        else:
            ends = [column.decode((inner + sign * change)[None])[0] for sign in (1, -1)]
            wanted = (ends[0] - ends[1]) / (2 * step) / unit
        np.testing.assert_allclose(column.slopes(inner)[:, place], wanted, rtol=1e-4, atol=1e-9)


@given(WEIGHTS, st.integers(1, 40))
@SOME
def test_two_categories_are_half_the_range_of_a_number_apart(weight, n_values):
    column = ps.Category("c", [f"v{place}" for place in range(n_values)], weight=weight)
    corners = column.encode(np.arange(len(column.labels), dtype=float)).T
    for one, other in itertools.combinations(corners, 2):
        assert math.dist(one, other) == pytest.approx(weight)
    number = ps.Number("x", 0, 1, weight=weight)
    ends = number.encode(np.array([0.0, 1.0]))[0]
    assert weight == pytest.approx((ends[1] - ends[0]) / 2)
    flag = ps.Flag("f", weight=weight).encode(np.array([0.0, 1.0]))[0]
    assert flag[1] - flag[0] == pytest.approx(weight)
    cycle = ps.Cycle("h", 24, weight=weight).encode(np.array([3.0, 15.0])).T
    assert math.dist(*cycle) == pytest.approx(weight)


@given(st.floats(0, 24), st.integers(-5, 5), st.floats(0.01, 12))
@SOME
def test_a_cycle_has_no_seam(hour, turns, apart):
    column = ps.Cycle("hour", 24)
    here, again, there = column.encode(np.array([hour, hour + 24 * turns, hour + apart])).T
    assert math.dist(here, again) < 1e-9
    assert math.dist(here, there) == pytest.approx(math.sin(math.pi * apart / 24), abs=1e-9)


@given(st.floats(0.01, 1000), st.floats(1.01, 50))
@SOME
def test_equal_ratios_are_equal_distances_on_a_logarithmic_scale(value, ratio):
    column = ps.Number("dose", 1e-3, 1e6, scale="log")
    ends = column.encode(np.array([value, value * ratio, 1.0, ratio]))[0]
    assert ends[1] - ends[0] == pytest.approx(ends[3] - ends[2], abs=1e-12)


@pytest.mark.parametrize("column", COLUMNS, ids=IDS)
def test_a_value_does_not_depend_on_its_neighbours(column):
    """Bit for bit: vector code of a library may treat the last elements of an array otherwise."""
    values = np.resize(values_of(column), 61)
    together = column.encode(values)
    for place, value in enumerate(values):
        alone = column.encode(np.array([value]))[:, 0]
        assert together[:, place].tobytes() == alone.tobytes()


@pytest.mark.parametrize("column", COLUMNS, ids=IDS)
def test_missing_stays_missing_and_moves_nothing(column):
    values = values_of(column)[:2]
    points = column.encode(np.array([values[0], np.nan, values[1]]))
    assert np.isnan(points[:, 1]).all()
    assert points[:, [0, 2]].tobytes() == column.encode(values).tobytes()


@pytest.mark.parametrize("column", COLUMNS, ids=IDS)
def test_json_and_words(column):
    schema = ps.Schema([column])
    assert ps.Schema.from_json(schema.to_json()) == schema
    assert column.name in schema.describe()


BAD = {
    "swapped": (lambda: ps.Number("age", 100, 18), "swapped"),
    "equal": (lambda: ps.Number("age", 18, 18), "swapped"),
    "no number": (lambda: ps.Number("age", "18", 100), "expected a number"),
    "infinite": (lambda: ps.Number("age", 0, math.inf), "finite"),
    "log below 0": (lambda: ps.Number("x", -1, 1, scale="log"), "0 or above"),
    "scale": (lambda: ps.Number("x", 0, 1, scale="sqrt"), "linear"),
    "fill outside": (lambda: ps.Number("x", 0, 1, fill=2), "outside"),
    "fill and rule": (lambda: ps.Number("x", 0, 1, fill=1, missing="drop"), "one of the two"),
    "weight": (lambda: ps.Number("x", 0, 1, weight=0), "weight"),
    "category rule": (lambda: ps.Number("x", 0, 1, missing="category"), "expected one of"),
    "twice": (lambda: ps.Category("c", ["a", "b", "a"]), "twice"),
    "the same text": (lambda: ps.Category("c", [1, "1"]), "twice"),
    "no values": (lambda: ps.Category("c", []), "expected a list"),
    "a text": (lambda: ps.Category("c", "north"), "expected a list"),
    "fill unknown": (lambda: ps.Category("c", ["a"], fill="b"), "not one of its values"),
    "middle of a category": (lambda: ps.Category("c", ["a"], missing="center"), "expected one of"),
    "dates swapped": (lambda: ps.Date("d", "2025-01-01", "2020-01-01"), "not before"),
    "no date": (lambda: ps.Date("d", "01.01.2020", "2025-01-01"), "2020-01-31"),
    "format": (lambda: ps.Date("d", "2020-01-01", "2021-01-01", format="dmy"), "%d"),
    "period": (lambda: ps.Cycle("h", 0), "above 0"),
    "flag words": (lambda: ps.Flag("f", true="J", false="j"), "also the word for false"),
    "flag numbers": (lambda: ps.Flag("f", true="1.0", false="1"), "also the word for false"),
    "infinite label": (lambda: ps.Category("c", ["a", "-inf"]), "missing number"),
    "far": (lambda: ps.Date("d", "1500-01-01", "2020-01-01"), "1700"),
    "name": (lambda: ps.Number("", 0, 1), "name of a column"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_is_our_error(case):
    make, words = BAD[case]
    with pytest.raises(ps.PrivsketchError, match=words):
        make()


def test_dates_have_one_spelling():
    spelled = [
        ps.Date("d", "2020-01-01", date(2021, 1, 1)),
        ps.Date("d", datetime(2020, 1, 1), np.datetime64("2021-01-01")),
        ps.Date("d", "2020-01-01T00:00:00", "2021-01-01T00:00:00+00:00"),
    ]
    assert len(set(spelled)) == 1


def test_errors_and_covariances_in_units():
    """A linear column by hand; shares of categories; a cycle about a strong place."""
    schema = ps.Schema([ps.Number("age", 0, 100), ps.Flag("f"), ps.Cycle("h", 24)])
    point = np.array([[0.2, 0.1, 0.5, 0.0]])
    assert field_names(schema) == ("age", "f", "h")
    np.testing.assert_allclose(field_values(schema, point), [[60.0, 0.6, 0.0]])
    errors = field_errors(schema, point, [[0.01, 0.02, 0.3, 0.05]])
    np.testing.assert_allclose(errors, [[0.5, 0.02, 0.05 / 0.5 * 24 / (2 * math.pi)]])
    covariance = field_covariance(schema, point[0], np.diag([0.04, 0.01, 0.0, 0.0]))
    np.testing.assert_allclose(covariance[:2, :2], [[100.0, 0.0], [0.0, 0.01]])
    # Nothing is known of the hour where points lie all around.
    nowhere = field_errors(schema, [[0.0, 0.0, 0.0, 0.0]], [[0.01, 0.01, 0.2, 0.2]])
    assert nowhere[0, 2] == pytest.approx(24 / math.sqrt(12))
