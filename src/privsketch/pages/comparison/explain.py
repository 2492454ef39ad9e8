"""Does a shift, or the factor of a unit, of a few columns make a source like the others?

A source has its own shares of the others' clusters, whatever they are: that is what honest sources
differ in. What that leaves unexplained is compared with what is left if, besides, one column is
`factor * value + shift`, then another one, as long as that helps (docs/comparing.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.optimize import minimize, minimize_scalar

from privsketch._base.types import Floats
from privsketch.facts.units import MEASURES, conversion
from privsketch.pages.comparison.observation import Fit, Observation
from privsketch.pages.comparison.reference import Change, Reference

MAX_COLUMNS = 4  # that are changed at once
# Shifts that are tried first, in standard deviations of a column.
SHIFTS = (-8.0, -5.0, -3.0, -2.0, -1.2, -0.7, 0.7, 1.2, 2.0, 3.0, 5.0, 8.0)
FAR = 0.1  # share of a source's signal that own shares leave, from which on pairs are tried
FEW = 3  # columns of which all pairs of changes are tried
MAX_STARTS, N_TOPS = 8, 2  # changes that a second one is added to; of a column
MIN_PART = 0.08  # of what own shares leave unexplained, for a column
N_EXACT = 6  # units whose cost is computed in full
TIE = 1.0  # of chi-square: no reason to prefer one of two explanations
MIN_GAIN = 40.0  # of chi-square for a column: far beyond the best of a few hundred tries


@dataclass(frozen=True)
class UnitMistake:
    """A unit in the place of another: a source has `factor * value + shift`, others `value`."""

    words: str
    factor: float
    shift: float
    meant: str

    def is_for(self, unit: str) -> bool:
        """Return whether the mistaken unit is the one that a schema states."""
        return unit.strip().lower() in MEASURES[self.meant].symbols


def _mistake(used: str, meant: str) -> UnitMistake:
    return UnitMistake(f"{used} instead of {meant}", *conversion(meant, used), meant)


# Units that are mistaken for each other, both ways.
_PAIRS = (
    ("pounds", "kilograms"),
    ("stones", "kilograms"),
    ("pounds", "stones"),
    ("ounces", "grams"),
    ("inches", "centimetres"),
    ("inches", "metres"),
    ("feet", "centimetres"),
    ("feet", "metres"),
    ("inches", "feet"),
    ("miles", "kilometres"),
    ("acres", "hectares"),
    ("US gallons", "litres"),
    ("fluid ounces", "millilitres"),
    ("degrees Fahrenheit", "degrees Celsius"),
    ("kelvins", "degrees Celsius"),
    ("millimetres of mercury", "kilopascals"),
    ("kilocalories", "kilojoules"),
    ("glucose in mg/dl", "mmol/l"),
    ("cholesterol in mg/dl", "mmol/l"),
    ("µmol/l", "creatinine in mg/dl"),
    ("HbA1c in mmol/mol", "HbA1c in percent"),
    ("minutes", "hours"),
    ("seconds", "hours"),
    ("hours", "days"),
    ("days", "weeks"),
    ("months", "years"),
    ("weeks", "years"),
    ("days", "years"),
    ("degrees", "radians"),
    ("tenths", "wholes"),
    ("hundredths (percent, cm for m)", "wholes"),
    ("thousandths (g for kg, mm for m)", "wholes"),
    ("millionths", "wholes"),
)
MISTAKES = tuple(
    mistake for one, other in _PAIRS for mistake in (_mistake(one, other), _mistake(other, one))
)


@dataclass(frozen=True)
class Explanation:
    """What a source would have done with its columns, and what that explains.

    `plain` is the chi-square of own shares alone, `left` the one with the changes, out of
    `n_numbers`; `gains` are falls of it by each column.
    """

    plain: float
    left: float
    n_numbers: int
    changes: dict[int, Change] = field(default_factory=dict)
    mistakes: dict[int, UnitMistake | None] = field(default_factory=dict)
    gains: dict[int, float] = field(default_factory=dict)
    singles: dict[int, float] = field(default_factory=dict)
    weights: Floats = field(default_factory=lambda: np.zeros(0))

    @property
    def excess(self) -> float:
        """What own shares leave beyond noise and sampling."""
        return max(self.plain - self.n_numbers, 0.0)

    @property
    def explained(self) -> float:
        """The share of that which the changes explain."""
        return min((self.plain - self.left) / max(self.excess, 1e-12), 1.0)

    @property
    def misfit(self) -> float:
        """What is left over what noise and sampling leave."""
        return self.left / self.n_numbers


def plain_fit(seen: Observation, reference: Reference) -> tuple[Fit, float, Floats]:
    """A source by own shares of the reference's components."""
    vectors = reference.vectors({})[0]
    moments = _moments(reference.weights / max(reference.weights.sum(), 1e-300) @ vectors)
    fit = Fit(seen, moments)
    for _ in range(2):  # variances depend, a little, on what is fitted
        chi_square, weights = fit.solve(vectors)
        total = max(float(weights.sum()), 1e-12)
        fit = Fit(seen, _moments(weights / total @ vectors))
    chi_square, weights = fit.solve(vectors)
    return fit, chi_square, weights


def _moments(real: Floats) -> np.ndarray:
    first, second = real.reshape(2, -1)
    return np.asarray(first + 1j * second)


def explain(seen: Observation, reference: Reference) -> Explanation:
    """The best changes of a few columns: one by one, two at once where one does not help."""
    fit, plain, _ = plain_fit(seen, reference)
    search = _Search(fit, reference)
    excess = max(plain - fit.n_numbers, 0.0)
    enough = max(MIN_GAIN, MIN_PART * excess)
    first = search.tops({})
    singles = {place: max(plain - tops[0][0], 0.0) for place, tops in first.items()}
    changes: dict[int, Change] = {}
    left = plain
    is_far = excess > FAR * max(fit.square - fit.n_numbers, 1.0)
    if max(singles.values(), default=0.0) < excess / 2 and is_far and len(first) > 1:
        cost, pair = search.refined(search.best_pair(first))
        if plain - cost >= 2 * enough:
            changes, left = pair, cost
    while len(changes) < min(MAX_COLUMNS, len(first)):
        tops = search.tops(changes) if changes else first
        place = min(tops, key=lambda place: tops[place][0][0])
        cost, tried = search.refined({**changes, place: tops[place][0][1]})
        if left - cost < enough:
            break
        changes, left = tried, cost
    changes, mistakes = search.named(changes, plain)
    left, weights = fit.solve(reference.vectors(changes)[0])
    gains = {
        place: search.cost({other: c for other, c in changes.items() if other != place}) - left
        for place in changes
    }
    return Explanation(plain, left, fit.n_numbers, changes, mistakes, gains, singles, weights)


class _Search:
    """Trials of changes for one source."""

    def __init__(self, fit: Fit, reference: Reference) -> None:
        self.fit, self.reference = fit, reference
        self.trials = {place: _candidates(reference, place) for place in reference.features.lines}

    def cost(self, changes: dict[int, Change]) -> float:
        """Chi-square under given changes."""
        return self.fit.solve(self.reference.vectors(changes)[0])[0]

    def tops(self, changes: dict[int, Change]) -> dict[int, list[tuple[float, Change]]]:
        """For every column that is not changed yet the best further changes, best first."""
        found = {}
        for place, trials in self.trials.items():
            if place not in changes:
                costs = self.fit.costs(self.reference.vectors(changes, place, trials))
                best = np.argsort(costs)[:N_TOPS]
                found[place] = [(float(costs[c]), trials[int(c)]) for c in best]
        return found

    def best_pair(self, first: dict[int, list[tuple[float, Change]]]) -> dict[int, Change]:
        """Changes of two columns: of few columns all units, of many those that help most alone."""
        starts: list[tuple[int, Change]]
        if len(self.trials) <= FEW:
            places = list(self.trials)[:-1]
            starts = [(place, change) for place in places for change in self.trials[place]]
        else:
            ranked = sorted(
                (cost, place, t)
                for place, tops in first.items()
                for t, (cost, _) in enumerate(tops)
            )
            starts = [(place, first[place][t][1]) for _, place, t in ranked[:MAX_STARTS]]
        best: tuple[float, dict[int, Change]] | None = None
        for place, change in starts:
            for other, trials in self.trials.items():
                if other == place or (len(self.trials) <= FEW and other < place):
                    continue
                costs = self.fit.costs(self.reference.vectors({place: change}, other, trials))
                if best is None or costs.min() < best[0]:
                    best = float(costs.min()), {place: change, other: trials[int(costs.argmin())]}
        return {} if best is None else best[1]

    def refined(self, changes: dict[int, Change]) -> tuple[float, dict[int, Change]]:
        """All changes together, moved to where they explain most."""
        places = list(changes)

        def changed(t: Floats) -> dict[int, Change]:
            found = {}
            for place, step in zip(places, t, strict=True):
                old, more = changes[place], math.exp(min(max(float(step), -3.0), 3.0))
                if old.factor == 1.0:
                    found[place] = Change(1.0, old.shift * more)
                else:
                    found[place] = Change(old.factor * more, old.shift)
            return found

        start = np.zeros(len(places))
        steps: Any = {
            "maxfev": 24 * len(places),
            "initial_simplex": np.vstack([start, 0.08 * np.eye(len(places))]),
            "xatol": 1e-3,
            "fatol": 0.5,
        }
        search: Any = minimize  # its types do not know this method with a plain function
        found = search(lambda t: self.cost(changed(t)), start, method="Nelder-Mead", options=steps)
        return float(found.fun), changed(found.x)

    def named(
        self, changes: dict[int, Change], plain: float
    ) -> tuple[dict[int, Change], dict[int, UnitMistake | None]]:
        """Known units in the place of fitted numbers, where they explain as much."""
        mistakes: dict[int, UnitMistake | None] = dict.fromkeys(changes)
        for _ in range(2 if len(changes) > 1 else 1):
            for place in changes:
                others = {other: change for other, change in changes.items() if other != place}
                trials = [Change(mistake.factor, mistake.shift) for mistake in MISTAKES]
                rough = self.fit.costs(self.reference.vectors(others, place, trials))
                near = rough <= np.sort(rough)[N_EXACT - 1] + TIE
                exact = {
                    int(c): self.cost({**others, place: trials[int(c)]})
                    for c in np.flatnonzero(near)
                }
                fitted = self.cost(changes)
                least = min(fitted, *exact.values())
                allowed = least + max(12.0, 0.03 * (plain - least))
                unit = self._unit(place)
                good = [
                    (not MISTAKES[c].is_for(unit), MISTAKES[c].shift != 0, cost, c)
                    for c, cost in exact.items()
                    if cost <= allowed
                ]
                mistakes[place] = None
                # Numbers are fitted: what a shift explains clearly better than any unit is one.
                shifted = self._shift(others, place)
                told = {**others, place: shifted}
                # A mistake of the unit that is stated is likely; that the others' clusters are
                # not quite as they were fitted is likely, too.
                is_stated = bool(good) and not min(good)[0]
                better = max(12.0, (0.02 if is_stated else 0.005) * (plain - least))
                if good and min(good)[2] <= self.cost(told) + better:
                    best = _likeliest(good)
                    mistakes[place] = MISTAKES[best]
                    changes = {**changes, place: trials[best]}
                elif self.cost(told) <= allowed:
                    changes = {**changes, place: shifted}
        return changes, mistakes

    def _shift(self, others: dict[int, Change], place: int) -> Change:
        """The best change of a column that is a shift, the others being changed as they are."""
        trials = [change for change in self.trials[place] if change.factor == 1.0]
        if not trials:
            return Change()
        costs = self.fit.costs(self.reference.vectors(others, place, trials))
        start = trials[int(costs.argmin())].shift
        found = minimize_scalar(
            lambda t: self.cost({**others, place: Change(1.0, start * t)}),
            bounds=(0.5, 1.7),
            method="bounded",
            options={"maxiter": 15},
        )
        return Change(1.0, start * float(found.x))

    def _unit(self, place: int) -> str:
        column = self.reference.features.lines[place].column
        return "" if column is None else column.unit


def _likeliest(good: list[tuple[bool, bool, float, int]]) -> int:
    """Of units that explain as much as the best one, the one that changes values least.

    Where all values end at a bound of the column, inches, feet and metres explain it alike.
    """
    is_other, is_shifted, cost, _ = min(good)
    ties = [
        number
        for other, shifted, one, number in good
        if (other, shifted) == (is_other, is_shifted) and one <= cost + TIE
    ]
    return min(ties, key=lambda number: (abs(math.log(MISTAKES[number].factor)), number))


def _candidates(reference: Reference, place: int) -> list[Change]:
    """Known units and a few shifts, those left out that put all records at the same edge."""
    line = reference.features.lines[place]
    spread = reference.spread(place)
    shares = reference.weights / max(float(reference.weights.sum()), 1e-300)
    middle = float(shares @ reference.means[:, place])
    at = middle + spread * np.array([-1.5, 0.0, 1.5])
    unit = max(abs(line.value(at[2]) - line.value(at[0])) / 3, 1e-300)
    found = [Change(mistake.factor, mistake.shift) for mistake in MISTAKES]
    found += [Change(1.0, size * unit) for size in SHIFTS]
    different: dict[tuple[int, ...], Change] = {}
    step = (line.high - line.low) / 400
    for change in found:
        moved = np.clip(line.moved(at, change.factor, change.shift), line.low, line.high)
        different.setdefault(tuple(int(x) for x in np.rint(moved / step)), change)
    return list(different.values())
