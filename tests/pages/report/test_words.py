"""Clusters in words: planted ones get theirs, equal ones get none, however the noise falls."""

import numpy as np
import pytest

import privsketch as ps
from privsketch.pages import Parts, words_of
from privsketch.pages.report import words
from tests import seams

SCHEMA = ps.Schema(
    [
        ps.Number("age", 0, 100),
        ps.Number("glucose", 2, 22, unit="mmol/l"),
        ps.Category("region", ["north", "south", "east"]),
        ps.Flag("smoker"),
        ps.Date("admitted", "2020-01-01", "2029-12-31"),
        ps.Cycle("hour", 24),
    ]
)
MIDDLE = {
    "age": 50,
    "glucose": 12,
    "region": {"north": 0.4, "south": 0.3, "east": 0.3},
    "smoker": 0.4,
    "admitted": "2025-01-01",
    "hour": 12,
}


def point(schema=SCHEMA, **changes):
    """The center of a cluster with these values, and the middle ones elsewhere."""
    found = []
    for column in schema.columns:
        value = {**MIDDLE, **changes}[column.name]
        if isinstance(column, ps.Category):
            shares = [value.get(label, 0.0) for label in column.labels]
            found += [share * column.corner for share in shares]
        elif isinstance(column, ps.Flag):
            found.append((value - 0.5) * column.weight)
        else:
            found += column.encode(np.array([column.value_of(value)]))[:, 0].tolist()
    return np.array(found)


def parts(centers, error=0.01, weights=None, schema=SCHEMA):
    centers = np.array(centers)
    size = len(centers)
    errors = None if error is None else np.full(centers.shape, error)
    weights = np.full(size, 1 / size) if weights is None else np.array(weights)
    return Parts("cluster", centers, weights, errors, None, (), schema.box, schema)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"age": 80}, "oldest"),
        ({"age": 20}, "youngest"),
        ({"glucose": 18}, "highest glucose"),
        ({"glucose": 5}, "lowest glucose"),
        ({"region": {"north": 0.8, "south": 0.1, "east": 0.1}}, "mostly north"),
        ({"region": {"north": 0.0, "south": 0.5, "east": 0.5}}, "mostly south"),
        ({"region": {"north": 0.03, "south": 0.37, "east": 0.37, "other": 0.23}}, "more region"),
        ({"smoker": 0.9}, "mostly smoker"),
        ({"smoker": 0.1}, "seldom smoker"),
        ({"smoker": 0.7}, "mostly smoker"),
        ({"admitted": "2028-01-01"}, "admitted latest"),
        ({"admitted": "2021-01-01"}, "admitted earliest"),
        ({"hour": 22}, "hour around 22"),
    ],
    ids=str,
)
def test_what_sets_a_cluster_apart_is_named(changes, told):
    found = words_of(parts([point(**changes), point(), point()]))
    assert found[0].startswith(told)
    assert "," not in found[0]


def test_several_things_come_in_the_order_of_their_size():
    changes = {"age": 90, "glucose": 16, "region": {"north": 1.0}}
    found = words_of(parts([point(**changes), point()]))
    assert found == [
        "oldest, mostly north, highest glucose",
        "youngest, more south, lowest glucose",
    ]


def test_no_more_than_four_things_are_named():
    changes = {"age": 90, "glucose": 20, "smoker": 1.0, "admitted": "2029-01-01", "hour": 0}
    found = words_of(parts([point(**changes), point()]))[0]
    assert len(found.split(", ")) == words.MAX_PHRASES == 4


def test_only_one_of_the_older_ones_can_be_the_oldest():
    found = words_of(parts([point(age=20), point(age=80), point(age=90), point(age=90.5)]))
    assert found[0] == "youngest"
    assert found[1:] == ["older", "older", "older"]


def test_equal_clusters_get_no_words():
    assert words_of(parts([point()] * 4)) == [""] * 4
    assert words_of(parts([point()] * 4, error=None)) == [""] * 4
    assert words_of(parts([point()])) == [""]


def false_words(error=0.05, n_draws=200):
    """Words about clusters that differ by nothing but their errors."""
    rng = np.random.default_rng(0)
    count = 0
    for _ in range(n_draws):
        centers = point() + error * rng.standard_normal((3, SCHEMA.dim))
        count += sum(bool(text) for text in words_of(parts(centers, error)))
    return count


def test_noise_is_not_described():
    # 600 clusters x 9 coordinates at four standard errors: 0.34 words on average, and more than 6
    # of them once in 10^7.
    assert false_words() <= 6


def test_noise_would_be_described_if_errors_were_not_looked_at(monkeypatch):
    seams.set(monkeypatch, "words.MIN_ERRORS", 1.0)
    assert false_words() > 100


def test_shares_need_more_than_their_errors_say():
    assert words_of(parts([point(smoker=0.52), point()], error=1e-6)) == ["", ""]
    assert words_of(parts([point(smoker=0.56), point()], error=1e-6))[0] == "mostly smoker"


def test_what_is_certain_but_tiny_is_not_named():
    assert words_of(parts([point(age=51), point(age=50)], error=1e-6)) == ["", ""]


def test_large_differences_within_their_errors_are_not_named():
    assert words_of(parts([point(age=70), point(age=50)], error=0.3)) == ["", ""]


def test_without_errors_a_tenth_of_the_bounds_counts():
    assert words_of(parts([point(age=61), point()], error=None)) == ["oldest", "youngest"]
    assert words_of(parts([point(age=59), point()], error=None)) == ["", ""]


def test_clusters_of_nobody_have_no_portrait():
    found = words_of(parts([point(age=90), point(), point()], weights=[0.001, 0.5, 0.499]))
    assert found == ["hardly any records", "", ""]


def test_weights_of_columns_do_not_change_words():
    columns = [
        ps.Number("age", 0, 100, weight=0.1),
        ps.Category("region", ["north", "south", "east"], weight=10.0),
        ps.Flag("smoker", weight=0.2),
    ]
    schema = ps.Schema(columns)
    changed = point(schema, age=90, region={"north": 0.6, "south": 0.2, "east": 0.2}, smoker=0.9)
    found = words_of(parts([changed, point(schema)], error=1e-4, schema=schema))
    assert found[0] == "oldest, mostly smoker, mostly north"


def test_labels_that_say_little_come_with_their_column():
    columns = [ps.Category("ward", ["1", "2"]), ps.Category("clinic", ["north", "no"])]
    schema = ps.Schema([*columns, ps.Category("home", ["north"])])
    first = np.concatenate([[0.7, 0, 0], [0.7, 0, 0], [0.7, 0.0]])
    other = np.concatenate([[0, 0.7, 0], [0, 0.7, 0], [0, 0.7]])
    found = words_of(parts([first, other], schema=schema))
    assert set(found[0].split(", ")) == {
        "mostly ward 1",
        "mostly clinic north",
        "mostly home north",
    }
    assert set(found[1].split(", ")) == {"mostly ward 2", "mostly clinic no", "mostly home other"}


def test_boxes_without_a_schema_have_words_too():
    box = ps.Box([0, -1], [10, 1])
    centers = np.array([[2.0, 0.0], [5.0, 0.0], [8.0, 0.0]])
    some = Parts(
        "cluster", centers, np.full(3, 1 / 3), np.full((3, 2), 0.01), None, ["a", "b"], box, None
    )
    assert words_of(some) == ["lowest a", "", "highest a"]


def test_a_cycle_without_a_place_is_all_around():
    hours = ps.Schema([ps.Cycle("hour", 24)])
    centers = [[0.0, 0.0], [0.45, 0.0]]
    assert words_of(parts(centers, schema=hours)) == ["hour all around", "hour around 0"]
