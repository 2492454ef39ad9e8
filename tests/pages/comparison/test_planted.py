"""Mistakes that were planted at one of five sites are named; honest sites are left alone."""

from dataclasses import replace

import pytest

import privsketch as ps
from benchmarks.compare_sites import clinic_study
from privsketch.pages import ColumnChange, comparison_page

pytestmark = pytest.mark.usefixtures("fixed_noise")

WORDS = {
    "glucose-x18": "glucose: at least",
    "cholesterol-x38.67": "cholesterol: at least",
    "shift": "weight: plus 1",
    "cut": "glucose: no values above",
    "swapped": "age: has the values of weight; weight: has the values of age",
    "constant": "all of its records are nearly the same",
}


@pytest.mark.slow
@pytest.mark.parametrize("mistake", WORDS)
def test_a_planted_mistake_is_named(mistake):
    (alarm,) = ps.compare(clinic_study(0, mistake)).alarms
    assert alarm.source == "site-1"
    assert alarm.words().startswith(WORDS[mistake])


@pytest.mark.slow
@pytest.mark.parametrize("mistake", ["glucose-x18", "cholesterol-x38.67", "shift", "swapped"])
def test_a_site_with_a_twentieth_of_the_records_is_found_as_well(mistake):
    found = ps.compare(clinic_study(0, mistake, odd_n=200))
    assert [alarm.source for alarm in found.alarms] == ["site-1"]


def test_the_least_factor_is_below_the_true_one():
    """Glucose in mg/dl lies above the upper bound wherever it is, so 18 cannot be told from 30."""
    for mistake, factor in (("glucose-x18", 18.0), ("cholesterol-x38.67", 38.67)):
        (alarm,) = ps.compare(clinic_study(1, mistake)).alarms
        (change,) = alarm.changes
        assert change.is_limit
        assert 2 < change.factor < factor
        assert change.unit == ""


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        ("glucose-x18", "glucose in mg/dl instead of mmol/l would be 18.02 times"),
        ("cholesterol-x38.67", "cholesterol in mg/dl instead of mmol/l would be 38.67 times"),
    ],
)
def test_a_limit_names_the_unit_that_it_may_stand_for(mistake, words):
    """The schema states mmol/l, so mg/dl is told as a possibility, and of this substance alone."""
    found = ps.compare(clinic_study(1, mistake))
    (alarm,) = found.alarms
    assert alarm.changes[0].possible == (words,)
    assert f"({words})" in alarm.words()
    assert words in comparison_page(found)


def test_limits_say_no_more_than_is_known():
    def words(factor, shift):
        return ColumnChange("a", factor, shift, "", is_limit=True).describe()

    assert words(5.48, 0.0).startswith("a: at least 5.4 times")
    assert words(0.0121, 0.0).startswith("a: at most 0.013 times")
    assert words(1.0, -1999.0).startswith("a: minus at least 1900 ")


@pytest.mark.parametrize("seed", range(4))
def test_own_shares_alone_raise_no_alarm(seed):
    """A hundred such studies raise none (benchmarks/README.md)."""
    assert not ps.compare(clinic_study(100 + seed)).alarms


def test_many_sites_share_references_and_the_wrong_ones_are_found():
    sites = clinic_study(3, "glucose-x18", n_sites=20)
    other = clinic_study(3, "swapped", n_sites=20)[1]
    sites[7] = replace(other, sources=("site-7",), receipt=replace(other.receipt, source="site-7"))
    found = ps.compare(sites)
    assert [alarm.source for alarm in found.alarms] == ["site-1", "site-7"]
