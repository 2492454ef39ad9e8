"""Periods: limits of calendar years, quarters and months beside the total limit."""

from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest

import privsketch as ps
from privsketch.ledger import Cost, Limit, Period, pace
from privsketch.noise import rho_of_budget
from tests import seams

LIMIT = Limit(Fraction(3), Fraction(0))


class Clock:
    """The time that ledgers see."""

    time = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    seams.set(monkeypatch, "store.now", lambda: clock.time.isoformat(timespec="seconds"))
    return clock


@pytest.fixture
def book(tmp_path):
    return ps.Ledger.create(tmp_path / "budget.ledger")


def spend(book, epsilon, **options):
    return book.reserve("labs", Cost(epsilon, **options), what="a sketch")


def test_a_release_must_fit_the_period_and_the_limit(book, clock):
    book.add("labs", epsilon=1.5, period="month", period_epsilon=1)
    spend(book, 0.75)
    with pytest.raises(
        ps.BudgetError, match=r"left are epsilon = 0.25.* of the limit of this month"
    ):
        spend(book, 0.5)
    quote = book.quote("labs", Cost(0.5))
    assert not quote.allowed
    assert "limit of this month" in quote.words
    clock.time = datetime(2026, 2, 1, tzinfo=UTC)
    assert (
        "and epsilon = 0.5, delta = 0 of this month's limit" in book.quote("labs", Cost(0.5)).words
    )
    spend(book, 0.5)
    with pytest.raises(
        ps.BudgetError, match=r"left are epsilon = 0.25.* of the limit epsilon = 1.5"
    ):
        spend(book, 0.5)  # the month would allow it
    assert book.check() == []


def test_a_cheaper_commit_and_its_own_period_count(book, clock):
    book.add("labs", epsilon=3, period="year", period_epsilon=1)
    entry = spend(book, 1)
    clock.time += timedelta(days=400)
    book.commit(entry, cost=Cost(0.25))  # of last year, where it was reserved
    assert book.data_set("labs").period_spent.epsilon == 0
    spend(book, 1)
    assert book.data_set("labs").period_spent.epsilon == 1
    assert book.total("labs").epsilon == Fraction(5, 4)


def test_a_period_has_the_delta_of_the_limit(tmp_path, clock):
    book = ps.Ledger.create(tmp_path / "rho.ledger", "zcdp")
    book.add("labs", epsilon=3, delta=3e-6, period="year", period_epsilon=1)
    period = book.data_set("labs").period
    assert period.limit.delta == Fraction(3, 10**6)
    rho = period.limit.rho
    assert float(rho) == pytest.approx(rho_of_budget(1.0, 3e-6))
    book.reserve("labs", Cost(0.9, 1e-6, float(rho) / 2), what="a sketch")
    with pytest.raises(ps.BudgetError, match="this year"):
        book.reserve("labs", Cost(0.9, 1e-6, float(rho) * 0.51), what="a sketch")


def test_check_finds_a_period_above_its_limit(book, clock, monkeypatch):
    book.add("labs", epsilon=3, period="month", period_epsilon=1)
    spend(book, 1)
    clock.time += timedelta(days=31)
    spend(book, 1)
    assert book.check() == []
    with monkeypatch.context() as patch:  # a program that forgets the period
        seams.set(patch, "contents.DataSet.over", lambda data_set, charged: "")
        spend(book, 0.5)
    (problem,) = book.check()
    assert "above its limit of a month" in problem


def test_a_clock_that_is_set_back_frees_nothing(book, clock):
    book.add("labs", epsilon=3, period="month", period_epsilon=1)
    spend(book, 1)
    clock.time += timedelta(days=31)
    clock.time -= timedelta(days=45)
    with pytest.raises(ps.BudgetError, match="this month"):
        spend(book, 0.5)


@pytest.mark.parametrize(("every", "month"), [("year", 1), ("quarter", 10), ("month", 11)])
def test_periods_are_those_of_the_calendar(every, month):
    period, time = Period(every, LIMIT), datetime(2026, 11, 30, 23, 59, 59, tzinfo=UTC)
    assert period.start(time) == datetime(2026, month, 1, tzinfo=UTC)
    assert period.start(datetime(2027, 1, 1, tzinfo=UTC)) == datetime(2027, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"period": "year"}, "go together"),
        ({"period_epsilon": 1.0}, "go together"),
        ({"period": "week", "period_epsilon": 1.0}, "'year', 'quarter', 'month'"),
        ({"period": "year", "period_epsilon": 4}, "not above the limit"),
        ({"period": "year", "period_epsilon": 0}, "above 0"),
    ],
)
def test_what_is_no_period(book, options, words):
    with pytest.raises(ps.ParameterError, match=words):
        book.add("labs", epsilon=3, **options)
    assert book.datasets() == []


def test_the_pace_is_that_since_the_first_release():
    now = datetime(2026, 7, 1, tzinfo=UTC)
    first = now - timedelta(days=100)
    assert pace(Fraction(1, 4), [first], now).endswith("until about April 2027")  # 300 days later
    assert pace(Fraction(1), [first], now) == "the limit is spent"
    assert "more than 100 years" in pace(Fraction(1, 1000), [first], now)
    assert pace(Fraction(1, 4), [now - timedelta(days=3)], now) == ""  # too early
    assert pace(Fraction(0), [], now) == ""


def test_the_pace_knows_what_periods_allow():
    """One of three in the first year: the rest cannot be spent before the third year begins."""
    limit, now = Limit(Fraction(3), Fraction(0)), datetime(2025, 7, 1, tzinfo=UTC)
    first = now - timedelta(days=100)
    of_a_year = {"period": Period("year", Limit(Fraction(1), Fraction(0))), "limit": limit}
    assert pace(Fraction(1, 3), [first], now).endswith("January 2026")
    assert pace(Fraction(1, 3), [first], now, **of_a_year).endswith("January 2026")
    assert pace(Fraction(1, 10), [first], now, **of_a_year).endswith("December 2027")
    half = {"period": Period("year", Limit(Fraction(1, 2), Fraction(0))), "limit": limit}
    assert pace(Fraction(1, 3), [first], now, **half).endswith("January 2028")


def test_a_delta_that_does_not_fit_is_told(book, clock):
    book.add("labs", epsilon=3, delta=1e-6)
    spend(book, 1, delta=1e-6)
    with pytest.raises(ps.BudgetError, match="its delta does not fit: it may be 0 at most"):
        spend(book, 1, delta=1e-6)
    with pytest.raises(ps.BudgetError) as told:
        spend(book, 5, delta=1e-6)
    assert "delta does not fit" not in str(told.value)
