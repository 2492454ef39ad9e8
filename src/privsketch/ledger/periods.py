"""Periods: how much of a limit may be spent within one calendar year, quarter or month.

The limit of a data set is what protects its records, and it stays. A period only spreads the
spending over time: its own limit holds for the releases that were reserved within it, in UTC.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any, Literal

from privsketch._base.errors import ParameterError, require_one_of
from privsketch.ledger.accounting import Limit, stated_limit
from privsketch.ledger.cost import as_fraction, texts_of

Every = Literal["year", "quarter", "month"]
_MONTHS: dict[Every, int] = {"year": 12, "quarter": 3, "month": 1}
EVERY: tuple[Every, ...] = tuple(_MONTHS)
# A pace of a few days says nothing about years; a week has its working days and its weekend.
MIN_PACE = timedelta(days=7)
MAX_PACE_YEARS = 100  # a pace that a limit outlasts by more needs no date


@dataclass(frozen=True)
class Period:
    """A part of the calendar, and the limit for the releases within one of them.

    Attributes
    ----------
    every : {"year", "quarter", "month"}
    limit : Limit
    """

    every: Every
    limit: Limit

    def start(self, time: datetime) -> datetime:
        """Return when the period began that a time lies in."""
        months = _MONTHS[self.every]
        month = (time.month - 1) // months * months + 1
        return datetime(time.year, month, 1, tzinfo=UTC)

    def to_json(self) -> dict[str, Any]:
        """Return the fields, with fractions as text."""
        return {"every": self.every, **texts_of(self.limit, "epsilon", "delta", "rho")}


def stated_period(every: object, epsilon: object, limit: Limit) -> Period | None:
    """Return the period of a new data set; None if neither is stated.

    Its delta is that of the limit: a delta says which noise may be taken, and most releases have
    the same one.
    """
    if every is None and epsilon is None:
        return None
    if every is None or epsilon is None:
        name = "period" if every is None else "period_epsilon"
        raise ParameterError(name, None, "`period` and `period_epsilon` go together")
    require_one_of("period", every, EVERY)
    part = as_fraction("period_epsilon", epsilon)
    if not 0 < part <= limit.epsilon:
        expected = "expected a number above 0 and not above the limit of the data set"
        raise ParameterError("period_epsilon", epsilon, expected)
    own = stated_limit(part, limit.delta, limit.accounting, limit.without_rho)
    return Period(every, own)  # type: ignore[arg-type]


def period_from_json(content: Any, limit: Limit) -> Period | None:
    """Return the period of a line of the ledger; None if it has none."""
    if content is None:
        return None
    return stated_period(content["every"], Fraction(content["epsilon"]), limit)


def pace(
    used: Fraction,
    times: Iterable[datetime],
    now: datetime,
    *,
    period: Period | None = None,
    limit: Limit | None = None,
) -> str:
    """Say how long a limit lasts if spending goes on as it did since the first release.

    With a period, it lasts at least until as many periods have passed as the limit has room for.
    """
    first = min(times, default=now)
    if not used or now - first < MIN_PACE:
        return ""
    if used >= 1:
        return "the limit is spent"
    days = float((1 - used) / used) * ((now - first) / timedelta(days=1))
    if days > 365 * MAX_PACE_YEARS:
        return f"at the pace so far the limit lasts for more than {MAX_PACE_YEARS} years"
    last = now + timedelta(days=days)
    if period is not None and limit is not None:
        last = max(last, _earliest_end(used, now, period, limit))
    return f"at the pace so far the limit lasts until about {last:%B %Y}"


def _earliest_end(used: Fraction, now: datetime, period: Period, limit: Limit) -> datetime:
    """Return the start of the first period in which a limit can be spent."""
    share = min(period.limit.epsilon / limit.epsilon, Fraction(1))
    # What is left needs this many full periods; the present one may be spent already.
    n_full = max(math.ceil((1 - used) / share) - 1, 0)
    months = _MONTHS[period.every] * n_full
    start = period.start(now)
    year, month = divmod(start.year * 12 + start.month - 1 + months, 12)
    return datetime(year, month + 1, 1, tzinfo=UTC)
