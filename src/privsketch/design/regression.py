"""Designs for regression and classification: the target's weight, the radius, and a forecast.

The sketch holds noisy second moments of encoded records z about the center of their ball, their
mean and their number: all that a linear model of any column on others needs. With a delta and
Gaussian noise, only the ball is to be planned. Pure noise takes taxicab moments of the box instead
(features/taxicab.py), which hold mean and number, and the target has its share of their L1 norm.

Noise of entry (i, j) in units of the columns is s R^2 / (c_i c_j), where c_j is the weight
of column j, r_j its half-width and R^2 = sum c_j^2 r_j^2 the squared radius.

**Weight of the target.** With p_j = c_j^2 r_j^2 / R^2 the share of column j, V_j = r_j^2 over the
variance of column j given the others, y the target and b the coefficients, noise is expected to
cost s^2 / (2 n^2) times

    (sum_j V_j / p_j) (1 / p_y + sum_k b_k^2 r_k^2 / (r_y^2 p_k))
    + sum_j V_j b_j^2 r_j^2 / (r_y p_j)^2

of the target's variance. The best p_y is 1/2 for small b, and less as sum b^2 grows. Measured
losses are flat between .15 and .5, with their least values near .3, which is taken.

**Radius.** The corner of the bounds is at sum w^2 over numbers of weight w. Evenly spread numbers
have a squared norm of mean sum w^2 / 3 and variance 4/45 sum w^4, and `clip="uniform"` takes the
mean and two standard deviations. Categories, flags and cycles have the same norm in every record.

**Forecast.** Predictors of equal shares explain r2 of the target's variance, in even parts along
the eigenvectors of their second moments, whose eigenvalues are a = n times their variances. With
prior variances t a^2 of the products X'y, and w the variance of their noise and sampling, the
posterior mean loses

    sum a t w / (w + t a^2) / (r2 var(y) n)

of what could be explained. It is an order of magnitude: real tables were between a tenth and 23
times of it, above it for few columns and for rare classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from privsketch._base.errors import ParameterError
from privsketch._base.types import Floats
from privsketch.design.pca import enough_text, least_records
from privsketch.design.recipe import Design
from privsketch.design.request import Request
from privsketch.design.size import Verdict
from privsketch.design.validity import kinds_of_targets, maps_for, possible_targets, require_target
from privsketch.facts.columns import Column, Date, Number
from privsketch.facts.domain import Ball, Domain
from privsketch.facts.labels import Labelled
from privsketch.facts.schema import Schema
from privsketch.features.frequencies import NO_LAW
from privsketch.features.moments import DIAGONAL, OFF_DIAGONAL, moment_count
from privsketch.features.taxicab import taxicab_weight, to_coordinates
from privsketch.noise.mechanism import NoiseKind
from privsketch.noise.sums import MAX_RECORDS

TARGET_SHARE = 0.3  # of the squared radius
SPREAD = 0.1  # variance of a number over its squared half-width; 1/3 if spread evenly
DEFAULT_RATE, DEFAULT_R2 = 0.2, 0.3  # share of a class, and of the target's variance explained
GOOD_LOSS, ENOUGH_LOSS, HOPELESS_LOSS = 0.02, 0.1, 0.97
LOSS_SCATTER = 10.0  # the forecast is an order of magnitude
COUNT_ERRORS = 4.0  # a noisy number of records must be at least so many standard deviations


# ---------------------------------------------------------------- plan


def plan_regression(request: Request) -> Design:
    """Plan second moments in which the target has its share of the radius, or of the L1 norm."""
    _require_columns(request)
    name, noise = _map_and_noise(request)
    is_taxicab, schema = name == "taxicab", request.schema
    if schema is not None and request.target is not None:
        weight_of = taxicab_weight if is_taxicab else ball_weight
        schema = _weighted(schema, request.target, weight_of(schema, request.target))
    n_features = moment_count(request.dim + is_taxicab)  # with the constant
    if request.n_features not in (None, n_features) or request.frequencies not in (None, NO_LAW):
        raise ParameterError(
            f"n_features, frequencies: `task={request.task!r}` takes all second moments, and no "
            "frequencies; leave both out"
        )
    count = "omitted" if is_taxicab else "released"
    if request.budget.neighbours == "replace":
        count = "public"
    design = request.design(
        domain=_domain(request, schema, is_box=is_taxicab),
        schema=schema,
        feature_map=name,
        frequencies=request.draw(NO_LAW, n_features),
        noise=noise,
        count=request.count or count,
        mean=request.mean or ("omitted" if is_taxicab else "released"),
        n_records=request.n_records or float(MAX_RECORDS),
    )
    if request.n_records is not None:
        return design
    outlook = _Outlook.of(design, request.n_holders or 1, request.noise_ratio)
    enough = least_records(lambda n: outlook.verdict(n) == "good", precision=100)
    return replace(design, n_records=min(enough, float(MAX_RECORDS)))


def _require_columns(request: Request) -> None:
    """Raise a ParameterError unless there is a column to predict, and one to predict it from."""
    task, schema = request.task, request.schema
    if task == "classification" and schema is None:
        raise ParameterError(
            "`task='classification'` needs a schema as its domain: it states the classes, which "
            "are never read off records"
        )
    require_target(task, request.target, schema, request.columns)
    if schema is not None and not possible_targets(task, schema, None):
        kinds = kinds_of_targets(task)
        raise ParameterError(f"`task={task!r}`: no column of the schema is {kinds}")
    if (request.dim if schema is None else len(schema.columns)) < 2:
        raise ParameterError(f"`task={task!r}` needs two columns at least, one to predict")


def _map_and_noise(request: Request) -> tuple[str, NoiseKind]:
    """Return the feature map and the kind of noise: stated ones, or those for the budget.

    With Laplace noise, taxicab moments are taken unless a parameter belongs to second moments.
    """
    noise = request.noise or ("gaussian" if request.budget.delta > 0 else "laplace")
    has_box = request.schema is not None and request.clip != "uniform"
    is_open = request.mean is None and request.count != "released" and request.masks is None
    is_pure = noise == "laplace" and has_box and is_open
    name, possible = request.feature_map, maps_for(request.task)
    if name is None:
        name = "taxicab" if is_pure else "second-moments"
    if name not in possible:
        names = ", ".join(map(repr, possible))
        raise ParameterError(
            f"`feature_map={name!r}` with `task={request.task!r}`: expected {names}"
        )
    if name == "taxicab" and request.noise is None:
        noise = "laplace"
    if name == "taxicab" and request.clip == "uniform":
        raise ParameterError(
            "`clip='uniform'` with `feature_map='taxicab'`: it is for the ball of "
            "'second-moments'; leave it out"
        )
    if noise == "cube" or (request.masks is not None and request.mean != "omitted"):
        raise ParameterError(
            f"noise, masks: `task={request.task!r}` takes `noise='gaussian'` or 'laplace' and no "
            "masks; leave them out"
        )
    return name, noise


def _domain(request: Request, schema: Schema | None, *, is_box: bool) -> Domain:
    """Return the box or the ball of encoded records."""
    if schema is None:
        return request.domain
    if is_box:
        return schema.box
    radius = uniform_radius(schema) if request.clip == "uniform" else schema.radius
    return Ball(dim=schema.dim, radius=radius, center=schema.ball.center_vector)


def ball_weight(schema: Schema, target: str) -> float:
    """Return the weight with which the target has `TARGET_SHARE` of the squared radius."""
    own = {column.name: column.squared_radius for column in schema.columns}
    others = math.fsum(square for name, square in own.items() if name != target)
    factor = math.sqrt(TARGET_SHARE / (1 - TARGET_SHARE) * others / own[target])
    return factor * next(column.weight for column in schema.columns if column.name == target)


def _weighted(schema: Schema, target: str, weight: float) -> Schema:
    """Return the schema with this weight for the target."""

    def scaled(column: Column) -> Column:
        return replace(column, weight=weight)  # type: ignore[type-var]

    columns = [scaled(c) if c.name == target else c for c in schema.columns]
    return replace(schema, columns=columns)


def uniform_radius(schema: Schema) -> float:
    """Return the radius that holds nearly all records whose numbers are spread evenly."""
    numbers = [c.squared_radius for c in schema.columns if isinstance(c, Number | Date)]
    others = [c.squared_radius for c in schema.columns if not isinstance(c, Number | Date)]
    corner = math.fsum(numbers)
    scatter = math.sqrt(4 / 45 * math.fsum(square**2 for square in numbers))
    return math.sqrt(math.fsum(others) + min(corner, corner / 3 + 2 * scatter))


# ---------------------------------------------------------------- forecast


@dataclass(frozen=True)
class RegressionForecast:
    """Expected accuracy of a design for regression or classification, from public facts alone.

    Attributes
    ----------
    lost : float
        Expected share of what the columns can explain of the target that noise and sampling cost:
        an order of magnitude. If no target is stated, that of the column for which it is largest.
    verdict : {"good", "rough", "hopeless"}
        Good if less than 0.02 is lost. Hopeless if more than 0.97 is, or if the noise of the number
        of records is more than a fourth of it.
    n_records_needed : float
        Smallest number of records of one holder with which at most a tenth is lost.
    r2 : float
        Assumed share of the target's variance that the columns explain.
    rate : float, optional
        Assumed share of the records that have the class; None for targets without classes.
    """

    lost: float
    verdict: Verdict
    n_records_needed: float
    r2: float = DEFAULT_R2
    rate: float | None = None

    def describe(self) -> str:
        """Return the forecast as one line of text; above a tenth its number means little."""
        enough = enough_text(self.n_records_needed, "no number of records is enough")
        cost = f"about {100 * self.lost:.2g} %" if self.lost <= ENOUGH_LOSS else "much"
        if self.verdict == "hopeless":
            cost = "nearly all"
        assumed = f"{100 * self.r2:g} % of its variance"
        if self.rate is not None:
            assumed += f", and a class {100 * self.rate:g} % of the records"
        return (
            f"{self.verdict}: noise hides {cost} of what the other columns tell about the target, "
            f"if that is {assumed}; {enough}"
        )


def regression_forecast(
    design: Design,
    *,
    n_holders: int = 1,
    noise_ratio: float | None = None,
    rate: float | None = None,
    r2: float | None = None,
) -> RegressionForecast:
    """Forecast the merged sketches of `n_holders` holders with `design.n_records` records each.

    `noise_ratio` is the variance of the total's noise over that of one release. It defaults to the
    number of holders. `rate` and `r2` are those of `Design.forecast`.
    """
    outlook = _Outlook.of(design, n_holders, noise_ratio, rate, r2)
    return RegressionForecast(
        lost=outlook.lost(design.n_records),
        verdict=outlook.verdict(design.n_records),
        n_records_needed=least_records(
            lambda n: outlook.is_counted(n) and outlook.lost(n) <= ENOUGH_LOSS
        ),
        r2=outlook.worlds[0].r2,
        rate=outlook.worlds[0].rate,
    )


def _checked_share(name: str, value: float | None) -> float:
    if value is None:
        return DEFAULT_RATE if name == "rate" else DEFAULT_R2
    if isinstance(value, bool) or not isinstance(value, float | int) or not 0 < value < 1:
        raise ParameterError(name, value, "expected a share between 0 and 1")
    return float(value)


def noise_of(design: Design) -> tuple[float, Floats, float]:
    """Return the noise of a total of one release: of entries off the diagonal, and of the count.

    The noise of z_i z_j has the standard deviation s g_i g_j: the first two results are s and g,
    in encoded units. The third is that of the number of records.
    """
    noise = design.sum_noise
    if design.feature_map != "taxicab":
        radius = float(design.domain.half_widths[0])
        std = design.noise_std * radius**2 * DIAGONAL / OFF_DIAGONAL
        return std, np.ones(design.dim), math.sqrt(noise.count_variance)
    std = math.sqrt(noise.sums_law.variance) / noise.factor  # of u_i^2, twice that of u_i u_j
    gains = np.diag(to_coordinates(design.domain, design.column_kinds))
    count_std = 0.0 if design.count == "public" else std * float(gains[0]) ** 2
    return std / 2, gains[1:], count_std


@dataclass(frozen=True, eq=False)
class _World:
    """Plausible records: variances of the predictors and of the target, and what is explained."""

    predictors: Floats  # along each eigenvector
    gains: Floats  # of their noise
    target: float
    target_gain: float
    r2: float
    rate: float | None = None  # of the class, if the target has classes

    def lost(self, n_records: float, noise_std: float) -> float:
        """Return the lost share for this noise of an entry off the diagonal, without gains."""
        if len(self.predictors) == 0:
            return 0.0  # there is nothing to lose
        a, explained = n_records * self.predictors, self.r2 * self.target * n_records
        t = explained / len(a) / a  # prior variances of the coefficients
        g = np.square(self.gains)
        noise = (noise_std**2 * g) * (self.target_gain**2 + (g * t).sum() + g * t)
        w = noise + (1 - self.r2) * self.target * a
        return float((a * t * w / (w + t * a * a)).sum() / explained)


@dataclass(frozen=True, eq=False)
class _Outlook:
    """What is expected of a total by the number of records of each holder."""

    worlds: list[_World]
    noise_std: float  # of an entry off the diagonal, without gains
    count_std: float
    n_holders: int

    @classmethod
    def of(
        cls,
        design: Design,
        n_holders: int,
        noise_ratio: float | None,
        rate: float | None = None,
        r2: float | None = None,
    ) -> _Outlook:
        """Return the outlook of a design, whose noise does not depend on the number of records."""
        shares = _checked_share("rate", rate), _checked_share("r2", r2)
        noise_std, gains, count_std = noise_of(design)
        worlds = list(_worlds(design, gains, *shares))
        if rate is not None and all(world.rate is None for world in worlds):
            raise ParameterError("rate", rate, "the target has no classes", "leave it out")
        n_noises = math.sqrt(n_holders if noise_ratio is None else noise_ratio)
        return cls(worlds, n_noises * noise_std, n_noises * count_std, n_holders)

    def lost(self, n_records: float) -> float:
        """Return the largest share that any of the worlds loses."""
        total = self.n_holders * n_records
        return max(world.lost(total, self.noise_std) for world in self.worlds)

    def is_counted(self, n_records: float) -> bool:
        """Whether there are records, and their number stands out of its noise."""
        return n_records > 0 and COUNT_ERRORS * self.count_std <= self.n_holders * n_records

    def verdict(self, n_records: float) -> Verdict:
        """Return the verdict about this number of records."""
        if not self.is_counted(n_records) or self.lost(n_records) > HOPELESS_LOSS:
            return "hopeless"
        return "good" if self.lost(n_records) < GOOD_LOSS else "rough"


def _worlds(design: Design, gains: Floats, rate: float, r2: float) -> Iterator[_World]:
    """Yield plausible records for the target, or for each kind of column that it can be."""
    schema = design.schema
    if schema is None:  # columns of equal shares
        shares = 1 / design.dim if isinstance(design.domain, Ball) else 1.0
        each = SPREAD * np.square(design.domain.half_widths) * shares
        yield _World(each[1:], gains[1:], float(each[0]), float(gains[0]), r2)
        return
    names = possible_targets(design.task, schema, None) or schema.names
    if design.target is not None:
        names = (design.target,)
    elif design.task == "regression":  # flags only where there is nothing else
        lines = {column.name for column in schema.columns if isinstance(column, Number | Date)}
        names = tuple(name for name in names if name in lines) or names
    variances = [_variances(column) for column in schema.columns]
    firsts = [float(gains[place.start]) for _, place in schema.places()]
    owners = np.repeat(np.arange(len(variances)), [len(own) for own in variances])
    joined, joined_gains = np.concatenate(variances), np.array(firsts)[owners]
    seen = set()
    for index, column in enumerate(schema.columns):
        kind = type(column), len(column.coordinates), column.weight
        if column.name not in names or kind in seen:
            continue
        seen.add(kind)
        is_class, others = isinstance(column, Labelled), owners != index
        yield _World(
            predictors=joined[others],
            gains=joined_gains[others],
            target=_target_variance(column, rate),
            target_gain=firsts[index],
            r2=r2,
            rate=rate if is_class else None,
        )


def _variances(column: Column) -> Floats:
    """Return plausible variances of a predictor, one for each direction in which it can vary."""
    if isinstance(column, Labelled):  # equally frequent labels
        k = len(column.labels)
        return np.full(k - 1, column.weight**2 / 2 / k)
    if isinstance(column, Number | Date):
        return np.array([SPREAD * column.squared_radius])
    n = len(column.coordinates)  # of a cycle, whose values are spread evenly
    return np.full(n, column.squared_radius / n)


def _target_variance(column: Column, rate: float) -> float:
    """Return the variance of a number, or of the coordinate of one label."""
    if not isinstance(column, Labelled):
        return SPREAD * column.squared_radius
    scale = column.weight if column.is_line else column.corner
    return scale**2 * rate * (1 - rate)
