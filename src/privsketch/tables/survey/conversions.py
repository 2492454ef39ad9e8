"""Values in another unit than the bounds: what their bulk would fit better.

A rule for all columns: many values lie outside of the bounds, or all of them in a small part of
them, and after a known conversion nearly all would lie inside, and spread. Where values of both
units fit the bounds, as pounds do in bounds of 30 to 250 kg, nothing can be told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from privsketch._base.types import Floats, Integers
from privsketch.facts.units import conversion

MANY_OUTSIDE = 0.25  # of the values, from which on another unit is looked for
NARROW = 0.02  # part of the range that nearly all values lie in, below which one is
NEARLY_ALL = 0.95  # of the values, that fit after a conversion
_WIDER = 5.0  # times as wide as before, if they fitted before


@dataclass(frozen=True)
class Conversion:
    """`wanted = factor * value + offset`; `hints` are units and parts of names it belongs to."""

    found: str
    wanted: str
    factor: float
    offset: float = 0.0
    hints: tuple[str, ...] = ()

    def __call__(self, values: Floats) -> Floats:
        """Return values in the unit that is wanted."""
        return self.factor * values + self.offset

    @property
    def text(self) -> str:
        """In words."""
        return f"{self.found} instead of {self.wanted}"


_LENGTHS = ("height", "length", "size", "cm", "mm", "width", "m")
_WEIGHTS = ("weight", "mass", "kg", "g", "lb")
_HEAT = ("temp", "temperature", "celsius", "°c", "c", "fever")
_MONEY = ("income", "price", "cost", "salary", "amount", "revenue", "pay", "eur", "usd", "$", "€")
_SHARES = ("share", "rate", "ratio", "percent", "fraction", "probability", "%")
_TIMES = ("age", "years", "duration", "stay", "months", "days", "time", "hours", "minutes")
_SUGAR = ("glucose", "sugar", "mmol/l", "mg/dl")
_FAT = ("cholesterol", "ldl", "hdl", "mmol/l", "mg/dl")


def _both(found: str, wanted: str, hints: tuple[str, ...]) -> tuple[Conversion, Conversion]:
    return (
        Conversion(found, wanted, *conversion(found, wanted), hints),
        Conversion(wanted, found, *conversion(wanted, found), hints),
    )


CONVERSIONS: tuple[Conversion, ...] = (
    *_both("pounds", "kilograms", _WEIGHTS),
    *_both("grams", "kilograms", _WEIGHTS),
    *_both("inches", "centimetres", _LENGTHS),
    *_both("centimetres", "metres", _LENGTHS),
    *_both("millimetres", "centimetres", _LENGTHS),
    *_both("feet", "metres", _LENGTHS),
    *_both("miles", "kilometres", ("distance", "km", "speed")),
    *_both("degrees Fahrenheit", "degrees Celsius", _HEAT),
    *_both("kelvins", "degrees Celsius", _HEAT),
    *_both("cents", "whole units", _MONEY),
    *_both("whole units", "thousands", _MONEY),
    *_both("percent", "shares", _SHARES),
    *_both("months", "years", _TIMES),
    *_both("days", "years", _TIMES),
    *_both("minutes", "hours", _TIMES),
    *_both("hours", "days", _TIMES),
    *_both("glucose in mg/dl", "mmol/l", _SUGAR),
    *_both("cholesterol in mg/dl", "mmol/l", _FAT),
    *_both("creatinine in mg/dl", "µmol/l", ("creatinine", "µmol/l", "umol/l")),
)


def _known(this_year: int) -> tuple[Conversion, ...]:
    births = Conversion("years of birth", "ages", -1.0, float(this_year), ("age", "years"))
    return (*CONVERSIONS, births)


def looks_like(
    values: Floats,
    counts: Integers,
    low: float,
    high: float,
    position: Callable[[Floats], Floats],
    hints: tuple[str, ...] = (),
) -> tuple[str, ...]:
    """Return units that values (n,), each `counts` times, look like beside that of their bounds.

    `place` says where in the bounds a value lies, 0 to 1, as the column is scaled; `hints` are the
    unit of the column and the words of its name. Best first, at most three.
    """
    total = int(counts.sum())
    if total == 0:
        return ()
    inside, width = _fit(values, counts, low, high, position)
    is_outside, is_narrow = inside < 1 - MANY_OUTSIDE, inside > 0.99 and width < NARROW
    if not (is_outside or is_narrow):
        return ()
    candidates = []
    for candidate in _known(datetime.now(UTC).year):
        fits, spread = _fit(candidate(values), counts, low, high, position)
        if fits >= NEARLY_ALL and spread > (_WIDER * width if is_narrow else NARROW):
            is_hinted = bool(set(candidate.hints) & set(hints))
            candidates.append((not is_hinted, -round(fits, 2), -spread, candidate.text))
    best = sorted(candidates)
    if best and not best[0][0]:  # where the name tells what it is, others are not told
        best = [one for one in best if not one[0]]
    return tuple(text for *_, text in best[:3])


def _fit(
    values: Floats, counts: Integers, low: float, high: float, position: Callable[[Floats], Floats]
) -> tuple[float, float]:
    """Return the share of values inside the bounds, and the part of these that 98 % lie in."""
    inside = (values >= low) & (values <= high)
    share = float(counts[inside].sum() / counts.sum())
    order = np.argsort(values)
    so_far = np.cumsum(counts[order]) / counts.sum()
    ends = [min(int(np.searchsorted(so_far, part)), len(values) - 1) for part in (0.01, 0.99)]
    first, last = position(np.clip(values[order[ends]], low, high))
    return share, abs(float(last - first))
