"""Search for a mistake in few columns that makes a source like the others.

It is a factor of units, a shift, values that are cut, or two columns that are exchanged.

Honest sources differ in their shares of the same clusters, so every fit adjusts the shares. The
search compares the misfit of this fit with the misfit if one column is `factor * value + shift`
as well, then another column, as long as that helps (docs/comparing.md).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
from scipy.optimize import minimize, minimize_scalar
from scipy.special import ndtr

from privsketch._base.types import Floats
from privsketch.facts.units import MEASURES, conversion
from privsketch.pages.comparison.observation import Fit, Observation, as_complex
from privsketch.pages.comparison.reference import Change, Reference

MAX_CHANGED = 4  # columns that are changed at once
# Shifts that are tried first, in standard deviations of a column.
SHIFTS = (-8.0, -5.0, -3.0, -2.0, -1.2, -0.7, 0.7, 1.2, 2.0, 3.0, 5.0, 8.0)
MIN_EXCESS_FOR_PAIRS = 0.1  # excess misfit, as a share of the signal, from which pairs are tried
MAX_ALL_PAIRS = 3  # columns up to which all pairs of changes are tried
MAX_STARTS = 8  # changes that a second one is added to, if there are more columns
N_TOPS = 2  # best changes of each column among them
MIN_PART = 0.08  # share of the excess misfit that a changed column must explain
N_EXACT = 6  # units whose chi-square is computed in full
TIE = 1.0  # difference of chi-square below which no explanation is better
MARGIN = 12.0  # difference of chi-square up to which two explanations are about as good
MARGIN_SHARE = 0.02  # the same, as a share of what is explained, since no reference is exact
LIMIT_RATIO = 4.0  # a factor that could as well be larger by this ratio is only a limit
N_HALVINGS = 8  # of the range of such a limit
N_CUTS = 25  # values at which cuts are tried
CUT_RANGE = 2.0  # largest distance of a cut from a component's mean, in its widths
MIN_CUT_SHARE = 0.05  # share of a source's records that a cut must move
MAX_LABEL_ATOMS = 400  # pairs of a component and a label; lighter components keep their shares
MIN_GAIN = 40.0  # gain of chi-square for a column: far beyond the best of a few hundred trials


@dataclass(frozen=True)
class UnitMistake:
    """A unit instead of another: a source has `factor * value + shift`, others `value`."""

    words: str
    factor: float
    shift: float
    meant: str

    def is_for(self, unit: str) -> bool:
        """Return whether a schema's unit is the one that was meant."""
        return unit.strip().lower() in MEASURES[self.meant].symbols

    def may_be_for(self, unit: str) -> bool:
        """Return whether it is, or is the same unit of what a laboratory measures."""
        name = unit.strip().lower()
        return self.is_for(unit) or (bool(name) and self.meant.endswith(f" in {name}"))

    @property
    def substance(self) -> str:
        """What a laboratory measures in these units, in lower case; empty for other units."""
        found = re.search(r"(\w+) in ", self.words)
        return "" if found is None else found[1].lower()

    def describe(self) -> str:
        """Return the mistake with its numbers, as a possibility."""
        shift = f" and {'plus' if self.shift > 0 else 'minus'} {abs(self.shift):.4g}"
        return f"{self.words} would be {self.factor:.4g} times{shift * (self.shift != 0)}"


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
# Units of which the search has the powers of ten. They are named where the schema states the unit.
_TENS = (
    ("grams", "kilograms"),
    ("centimetres", "metres"),
    ("millimetres", "metres"),
    ("millimetres", "centimetres"),
    ("metres", "kilometres"),
)


def _both_ways(pairs: Sequence[tuple[str, str]]) -> tuple[UnitMistake, ...]:
    return tuple(_mistake(*units) for pair in pairs for units in (pair, pair[::-1]))


MISTAKES = _both_ways(_PAIRS)
_POSSIBLE = (*MISTAKES, *_both_ways(_TENS))  # mistakes that a limit may stand for
UNIT_CHANGES = [Change(mistake.factor, mistake.shift) for mistake in MISTAKES]


@dataclass(frozen=True)
class Explanation:
    """Changes of columns that explain a source best, and how much they explain.

    Attributes
    ----------
    baseline_chi2, chi2 : float
        Chi-square without changes, and with them.
    n_numbers : int
        Number of fitted numbers, which is chi-square's expectation under noise and sampling.
    changes, mistakes : dict
        Change of each coordinate, and the mistake of units that would cause it, if any.
    gains : dict
        By coordinate, the part of chi-square that its change explains, given the other changes.
    singles : dict
        By name of a column, the part of chi-square that its best change explains alone. A column of
        labels, or a cycle, changes by shares of labels in each component.
    weights : (K,) float64
        Weights of the components, in records.
    limits : dict
        By coordinate, the least change that explains as much, where any larger one does so too.
    possible : dict
        By coordinate of a limit, mistakes of the stated unit that explain as much.
    """

    baseline_chi2: float
    chi2: float
    n_numbers: int
    changes: dict[int, Change] = field(default_factory=dict)
    mistakes: dict[int, UnitMistake | None] = field(default_factory=dict)
    gains: dict[int, float] = field(default_factory=dict)
    singles: dict[str, float] = field(default_factory=dict)
    weights: Floats = field(default_factory=lambda: np.zeros(0))
    limits: dict[int, Change] = field(default_factory=dict)
    possible: dict[int, tuple[UnitMistake, ...]] = field(default_factory=dict)

    @property
    def excess(self) -> float:
        """Chi-square without changes beyond what noise and sampling explain."""
        return max(self.baseline_chi2 - self.n_numbers, 0.0)

    @property
    def explained(self) -> float:
        """Share of the excess that the changes explain."""
        return min((self.baseline_chi2 - self.chi2) / max(self.excess, 1e-12), 1.0)


def fit_shares(observation: Observation, reference: Reference) -> tuple[Fit, float, Floats]:
    """Fit a source by reweighting the reference's components.

    Returns the fit, its chi-square and the weights (K,) in records.
    """
    vectors = reference.vectors({})[0]
    fit = Fit(observation, as_complex(reference.shares @ vectors))
    for _ in range(2):  # variances depend, a little, on the fit
        chi2, weights = fit.solve(vectors)
        total = max(float(weights.sum()), 1e-12)
        fit = Fit(observation, as_complex(weights / total @ vectors))
    chi2, weights = fit.solve(vectors)
    return fit, chi2, weights


def explain(observation: Observation, reference: Reference) -> Explanation:
    """Find the best changes of few columns: one by one, or two at once if one does not help."""
    fit, baseline_chi2, _ = fit_shares(observation, reference)
    search = _Search(fit, reference)
    excess = max(baseline_chi2 - fit.n_numbers, 0.0)
    min_gain = max(MIN_GAIN, MIN_PART * excess)
    first = search.tops({})
    singles = {
        coordinate: max(baseline_chi2 - tops[0][0], 0.0) for coordinate, tops in first.items()
    }
    changes: dict[int, Change] = {}
    chi2 = baseline_chi2
    is_far = excess > MIN_EXCESS_FOR_PAIRS * max(fit.square - fit.n_numbers, 1.0)
    if max(singles.values(), default=0.0) < excess / 2 and is_far and len(first) > 1:
        cost, pair = search.refined(search.best_pair(first))
        if baseline_chi2 - cost >= 2 * min_gain:
            changes, chi2 = pair, cost
    while len(changes) < min(MAX_CHANGED, len(first)):
        tops = search.tops(changes) if changes else first
        coordinate = min(tops, key=lambda coordinate: tops[coordinate][0][0])
        cost, tried = search.refined({**changes, coordinate: tops[coordinate][0][1]})
        if chi2 - cost < min_gain:
            break
        changes, chi2 = tried, cost
    changes, mistakes = search.name_units(changes, baseline_chi2)
    chi2 = search.cost(changes)
    for other in (search.best_cut(), search.best_exchange()):
        cost = search.cost(other)
        # A mistake of stated units is likely, so that another explanation must be clearly better.
        share = MARGIN_SHARE if search.are_stated(mistakes) else 0.0
        if cost < chi2 - MARGIN - share * (baseline_chi2 - cost):
            changes, chi2, mistakes = other, cost, dict.fromkeys(other)
    chi2, weights = fit.solve(reference.vectors(changes)[0])
    lines = reference.features.lines
    named = {lines[coordinate].name: gain for coordinate, gain in singles.items()}
    named |= _label_gains(fit, reference, baseline_chi2)
    limits, possible = search.limits(changes, baseline_chi2)
    gains = {
        coordinate: search.cost(_without(changes, coordinate)) - chi2 for coordinate in changes
    }
    return Explanation(
        baseline_chi2,
        chi2,
        fit.n_numbers,
        changes,
        mistakes,
        gains,
        named,
        weights,
        limits,
        possible,
    )


def _label_gains(fit: Fit, reference: Reference, baseline_chi2: float) -> dict[str, float]:
    """Return what other shares of the labels of a column explain, by its name.

    A change moves the records of all components. Labels have no such change, so each component has
    shares of its own. What as many free numbers explain by chance is subtracted.
    """
    vectors = reference.vectors({})[0]
    heaviest = np.argsort(-fit.solve(vectors)[1])
    gains = {}
    for block, name in enumerate(reference.features.block_names):
        corners = reference.corner_vectors(block)
        free = heaviest[: max(MAX_LABEL_ATOMS // corners.shape[1], 1)]
        rest = np.delete(vectors, free, axis=0)
        atoms = np.concatenate([rest, corners[free].reshape(-1, vectors.shape[1])])
        n_free = len(free) * (corners.shape[1] - 1)
        gains[name] = max(baseline_chi2 - fit.solve(atoms)[0] - n_free, 0.0)
    return gains


def _cut(value: float, is_low: bool) -> Change:
    """Return the cut of all values below or above one."""
    return Change(low=value) if is_low else Change(high=value)


def _without(changes: dict[int, Change], coordinate: int) -> dict[int, Change]:
    """Return the changes of all other coordinates."""
    return {other: change for other, change in changes.items() if other != coordinate}


class _Search:
    """Search for changes of one source."""

    def __init__(self, fit: Fit, reference: Reference) -> None:
        self.fit, self.reference = fit, reference
        self.trials = {
            coordinate: _candidates(reference, coordinate)
            for coordinate in reference.features.lines
        }

    def cost(self, changes: dict[int, Change]) -> float:
        """Return chi-square under given changes."""
        return self.fit.solve(self.reference.vectors(changes)[0])[0]

    def tops(self, changes: dict[int, Change]) -> dict[int, list[tuple[float, Change]]]:
        """Return the best further changes of every unchanged column, best first."""
        tops = {}
        for coordinate, trials in self.trials.items():
            if coordinate not in changes:
                costs = self.fit.costs(self.reference.vectors(changes, coordinate, trials))
                best = np.argsort(costs)[:N_TOPS]
                tops[coordinate] = [(float(costs[c]), trials[int(c)]) for c in best]
        return tops

    def best_pair(self, first: dict[int, list[tuple[float, Change]]]) -> dict[int, Change]:
        """Return the best changes of two columns.

        With few columns all pairs are tried, with many those of the changes that help most alone.
        """
        tries_all = len(self.trials) <= MAX_ALL_PAIRS
        if tries_all:
            starts = [(j, change) for j in list(self.trials)[:-1] for change in self.trials[j]]
        else:
            ranked = sorted(
                (top[0], j, t) for j, tops in first.items() for t, top in enumerate(tops)
            )
            starts = [(j, first[j][t][1]) for _, j, t in ranked[:MAX_STARTS]]
        best: tuple[float, dict[int, Change]] = (math.inf, {})
        for coordinate, change in starts:
            for other, trials in self.trials.items():
                if other == coordinate or (tries_all and other < coordinate):
                    continue
                costs = self.fit.costs(self.reference.vectors({coordinate: change}, other, trials))
                if costs.min() < best[0]:
                    pair = {coordinate: change, other: trials[int(costs.argmin())]}
                    best = float(costs.min()), pair
        return best[1]

    def refined(self, changes: dict[int, Change]) -> tuple[float, dict[int, Change]]:
        """Refine all changes together, and return their chi-square as well."""
        coordinates = list(changes)

        def changed(t: Floats) -> dict[int, Change]:
            moved = {}
            for coordinate, step in zip(coordinates, t, strict=True):
                old, ratio = changes[coordinate], math.exp(min(max(float(step), -3.0), 3.0))
                if old.factor == 1.0:
                    moved[coordinate] = Change(1.0, old.shift * ratio)
                else:
                    moved[coordinate] = Change(old.factor * ratio, old.shift)
            return moved

        start = np.zeros(len(coordinates))
        steps: Any = {
            "maxfev": 24 * len(coordinates),
            "initial_simplex": np.vstack([start, 0.08 * np.eye(len(coordinates))]),
            "xatol": 1e-3,
            "fatol": 0.5,
        }
        search: Any = minimize  # its type stubs lack this method for plain functions
        best = search(lambda t: self.cost(changed(t)), start, method="Nelder-Mead", options=steps)
        return float(best.fun), changed(best.x)

    def name_units(
        self, changes: dict[int, Change], baseline_chi2: float
    ) -> tuple[dict[int, Change], dict[int, UnitMistake | None]]:
        """Replace fitted numbers by units where those explain as much."""
        mistakes: dict[int, UnitMistake | None] = dict.fromkeys(changes)
        for _ in range(2 if len(changes) > 1 else 1):
            for coordinate in changes:
                other_changes = _without(changes, coordinate)
                rough = self.fit.costs(
                    self.reference.vectors(other_changes, coordinate, UNIT_CHANGES)
                )
                near = rough <= np.sort(rough)[N_EXACT - 1] + TIE
                exact = {
                    int(c): self.cost({**other_changes, coordinate: UNIT_CHANGES[int(c)]})
                    for c in np.flatnonzero(near)
                }
                fitted = self.cost(changes)
                least = min(fitted, *exact.values())
                allowed = least + max(12.0, 0.03 * (baseline_chi2 - least))
                unit = self._unit(coordinate)
                good = [
                    (not MISTAKES[c].is_for(unit), MISTAKES[c].shift != 0, cost, c)
                    for c, cost in exact.items()
                    if cost <= allowed
                ]
                mistakes[coordinate] = None
                # A shift has a fitted number, so it must explain clearly more than a unit does.
                shifted = self._shift(other_changes, coordinate)
                shift_cost = self.cost({**other_changes, coordinate: shifted})
                # A mistake of the stated unit is likely, so the shift must explain even more.
                is_stated = bool(good) and not min(good)[0]
                better = max(12.0, (0.02 if is_stated else 0.005) * (baseline_chi2 - least))
                if good and min(good)[2] <= shift_cost + better:
                    best = _likeliest(good)
                    mistakes[coordinate] = MISTAKES[best]
                    changes = {**changes, coordinate: UNIT_CHANGES[best]}
                elif shift_cost <= allowed:
                    changes = {**changes, coordinate: shifted}
        return changes, mistakes

    def _shift(self, other_changes: dict[int, Change], coordinate: int) -> Change:
        """Return the best shift of a column, given the changes of other columns."""
        trials = [change for change in self.trials[coordinate] if change.factor == 1.0]
        if not trials:
            return Change()
        costs = self.fit.costs(self.reference.vectors(other_changes, coordinate, trials))
        start = trials[int(costs.argmin())].shift
        best = minimize_scalar(
            lambda t: self.cost({**other_changes, coordinate: Change(1.0, start * t)}),
            bounds=(0.5, 1.7),
            method="bounded",
            options={"maxiter": 15},
        )
        return Change(1.0, start * float(best.x))

    def best_cut(self) -> dict[int, Change]:
        """Return the cut of one column's values that explains the source best, if there is any."""
        best: tuple[float, dict[int, Change]] = (math.inf, {})
        for coordinate, line in self.reference.features.lines.items():
            means, widths = self._components(coordinate)
            first = float((means - CUT_RANGE * widths).min())
            last = float((means + CUT_RANGE * widths).max())
            reach = last - first  # a cut beyond all values puts them in one place
            points = np.linspace(max(first - reach, line.low), min(last + reach, line.high), N_CUTS)
            for is_low in (True, False):
                trials = [_cut(line.value(point), is_low) for point in points]
                costs = self.fit.costs(self.reference.vectors({}, coordinate, trials))
                place = int(costs.argmin())
                if costs[place] < best[0]:
                    near = points[max(place - 1, 0)], points[min(place + 1, N_CUTS - 1)]
                    best = float(costs[place]), self._refined_cut(coordinate, is_low, near)
        return best[1]

    def _refined_cut(
        self, coordinate: int, is_low: bool, near: tuple[float, float]
    ) -> dict[int, Change]:
        """Return the best cut of a column between two coordinates, if it moves enough records."""
        line = self.reference.features.lines[coordinate]

        def cut_at(point: float) -> dict[int, Change]:
            return {coordinate: _cut(line.value(point), is_low)}

        best = minimize_scalar(
            lambda point: self.cost(cut_at(float(point))),
            bounds=near,
            method="bounded",
            options={"maxiter": 15},
        )
        changes = cut_at(float(best.x))
        weights = self.fit.solve(self.reference.vectors(changes)[0])[1]
        means, widths = self._components(coordinate)
        side = 1.0 if is_low else -1.0
        shares = ndtr(side * (float(best.x) - means) / np.maximum(widths, 1e-300))
        moved = float(weights @ shares) / max(float(weights.sum()), 1e-300)
        return changes if moved >= MIN_CUT_SHARE else {}

    def _components(self, coordinate: int) -> tuple[Floats, Floats]:
        """Return means and widths (K,) of the components along a coordinate."""
        return self.reference.means[:, coordinate], self.reference.widths[:, coordinate]

    def best_exchange(self) -> dict[int, Change]:
        """Return the exchange of two columns that explains the source best, if there is any."""
        pairs = [
            {first: Change(origin=second), second: Change(origin=first)}
            for first, second in combinations(self.reference.features.lines, 2)
        ]
        return min(pairs, key=self.cost, default={})

    def limits(
        self, changes: dict[int, Change], baseline_chi2: float
    ) -> tuple[dict[int, Change], dict[int, tuple[UnitMistake, ...]]]:
        """Return the least changes that explain as much, where any larger ones do so too.

        Values that a change moves to the edge of the domain do not tell how far it would go. Where
        the schema states a unit, its mistakes that explain as much are returned as well.
        """
        chi2 = self.cost(changes)
        allowed = chi2 + MARGIN + MARGIN_SHARE / 2 * max(baseline_chi2 - chi2, 0.0)
        found, possible = {}, {}
        for coordinate, change in changes.items():
            if not change.is_linear:
                continue

            def scaled(power: float, change: Change = change) -> Change:
                if change.factor == 1.0:
                    return Change(1.0, change.shift * power)
                return Change(change.factor**power, change.shift * power)

            size = abs(math.log(change.factor)) if change.factor != 1.0 else 1.0
            far = 1 + math.log(LIMIT_RATIO) / size if change.factor != 1.0 else LIMIT_RATIO
            others = _without(changes, coordinate)
            if self.cost({**others, coordinate: scaled(far)}) > allowed:
                continue
            low, high = 0.0, 1.0
            for _ in range(N_HALVINGS):
                middle = (low + high) / 2
                explains = self.cost({**others, coordinate: scaled(middle)}) <= allowed
                low, high = (low, middle) if explains else (middle, high)
            found[coordinate] = scaled(high)
            possible[coordinate] = tuple(
                mistake
                for mistake in self._mistakes_of(coordinate)
                if self.cost({**others, coordinate: Change(mistake.factor, mistake.shift)})
                <= allowed
            )
        return found, possible

    def _mistakes_of(self, coordinate: int) -> list[UnitMistake]:
        """Return mistakes of the unit that the schema states for a coordinate.

        What a laboratory measures has factors of its own; the name of the column may tell them.
        """
        unit = self._unit(coordinate)
        stated = [mistake for mistake in _POSSIBLE if mistake.may_be_for(unit)]
        name = self.reference.features.lines[coordinate].name.lower()
        named = [one for one in stated if one.substance and one.substance in name]
        return named or stated

    def are_stated(self, mistakes: Mapping[int, UnitMistake | None]) -> bool:
        """Return whether all mistakes are about units that the schema states."""
        return all(
            mistake is not None and mistake.is_for(self._unit(coordinate))
            for coordinate, mistake in mistakes.items()
        )

    def _unit(self, coordinate: int) -> str:
        column = self.reference.features.lines[coordinate].column
        return "" if column is None else column.unit


def _likeliest(good: list[tuple[bool, bool, float, int]]) -> int:
    """Return the unit that changes values least among those that explain as much as the best.

    If all values are clipped to a bound of the column, inches, feet and metres explain them alike.
    """
    is_other, is_shifted, cost, _ = min(good)
    ties = [
        number
        for other, shifted, chi2, number in good
        if (other, shifted) == (is_other, is_shifted) and chi2 <= cost + TIE
    ]
    return min(ties, key=lambda number: (abs(math.log(MISTAKES[number].factor)), number))


def _candidates(reference: Reference, coordinate: int) -> list[Change]:
    """Return the changes by units and some shifts, each effect once."""
    line = reference.features.lines[coordinate]
    middle = float(reference.shares @ reference.means[:, coordinate])
    points = middle + reference.spread(coordinate) * np.array([-1.5, 0.0, 1.5])
    unit = max(abs(line.value(points[2]) - line.value(points[0])) / 3, 1e-300)
    changes = [*UNIT_CHANGES, *(Change(1.0, size * unit) for size in SHIFTS)]
    different: dict[tuple[int, ...], Change] = {}
    step = (line.high - line.low) / 400
    for change in changes:
        values = change.factor * line.values(points) + change.shift
        moved = np.clip(line.coordinates(values), line.low, line.high)
        different.setdefault(tuple(int(x) for x in np.rint(moved / step)), change)
    return list(different.values())
