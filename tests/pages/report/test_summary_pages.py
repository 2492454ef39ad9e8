"""Pages of summaries: means and shares in units, by group, and what noise hides."""

import numpy as np
import pytest

import privsketch as ps
from privsketch.pages import report_page
from tests.html_page import Page

SCHEMA = ps.Schema(
    [
        ps.Number("age", 18, 100, unit="years"),
        ps.Category("ward", ["north", "south"]),
        ps.Flag("smoker"),
        ps.Date("seen", "2020-01-01", "2020-12-31"),
        ps.Cycle("hour", 24),
    ]
)
N = 8000


def sketch_of(n, **plan):
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    south = rng.random(n) < 0.25
    table = pd.DataFrame(
        {
            "age": np.where(south, 70.0, 40.0) + rng.uniform(-5, 5, n),
            "ward": np.where(south, "south", "north"),
            "smoker": rng.random(n) < 0.5,
            "seen": np.datetime64("2020-06-01") + rng.integers(-20, 21, n),
            "hour": rng.uniform(11, 13, n),
        }
    )
    design = ps.Design.plan(task="regression", domain=SCHEMA, **plan)
    return ps.sketch(table, design, source="here", insecure=design.insecure)


@pytest.fixture(scope="module")
def exact():
    return sketch_of(N, insecure=True)


def test_groups_stand_beside_each_other(exact):
    text = Page(report_page(ps.learn_summary(exact, by="ward"), exact)).text
    assert "Means and shares with 95 % intervals, of all records and by ward" in text
    assert "8,000 records (public)" in text or "8,000" in text
    for words in ("age years", "47.", "70.0", "40.0", "2020-0", "smoker", "sd"):
        assert words in text
    assert "Standard deviations within groups would need third moments" in text
    assert "nan" not in text.lower().split()


def test_without_groups_there_are_all_records(exact):
    text = Page(report_page(ps.learn_summary(exact), exact)).text
    assert "group: all records" in text
    assert "ward shares north" in text
    assert "third moments" not in text


def test_groups_smaller_than_the_noise_have_no_numbers():
    total = sketch_of(200, budget=ps.Budget(epsilon=0.05, delta=1e-6), n_records=200)
    text = Page(report_page(ps.learn_summary(total, by="ward"), total)).text
    assert "drowned in noise" in text
    assert "Where a group is smaller than the noise, nothing can be said about it." in text
    assert " nan " not in text.lower()
