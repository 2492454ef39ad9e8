"""Designs for regression and classification: the target's weight, the radius, and a forecast.

The sketch holds noisy second moments of encoded records z about the center of their ball, their
mean and their number: all that a linear model of any column on others needs. Only the ball is to be
planned. Noise of entry (i, j) in units of the columns is s R^2 / (c_i c_j), where c_j is the weight
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
from privsketch.facts.domain import Ball
from privsketch.facts.labels import Labelled
from privsketch.facts.schema import Schema
from privsketch.features.frequencies import NO_LAW
from privsketch.features.moments import DIAGONAL, OFF_DIAGONAL, moment_count
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
    """Plan second moments in which the target has its share of the radius."""
    schema, ball = request.schema, request.domain
    _require_columns(request)
    if schema is not None:
        if request.target is not None:
            schema = weighted(schema, request.target)
        ball = schema.ball
        if request.clip == "uniform":
            ball = replace_radius(ball, uniform_radius(schema))
    name, noise = _map_and_noise(request)
    n_features = moment_count(request.dim)
    if request.n_features not in (None, n_features) or request.frequencies not in (None, NO_LAW):
        raise ParameterError(
            f"n_features, frequencies: `task={request.task!r}` takes all dim (dim + 1) / 2 second "
            "moments, and no frequencies; leave both out"
        )
    is_public = request.budget.neighbours == "replace"
    design = request.design(
        domain=ball,
        schema=schema,
        feature_map=name,
        frequencies=request.draw(NO_LAW, n_features),
        noise=noise,
        count=request.count or ("public" if is_public else "released"),
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

    A map for pure noise, whose L1 norm does not grow with the columns, is chosen here.
    """
    name, possible = request.feature_map or "second-moments", maps_for(request.task)
    if name not in possible:
        names = ", ".join(map(repr, possible))
        raise ParameterError(
            f"`feature_map={name!r}` with `task={request.task!r}`: expected {names}"
        )
    noise = request.noise or ("gaussian" if request.budget.delta > 0 else "laplace")
    if noise == "cube" or (request.masks is not None and request.mean == "released"):
        raise ParameterError(
            f"noise, masks: `task={request.task!r}` takes `noise='gaussian'` or 'laplace' and no "
            "masks; leave them out"
        )
    return name, noise


def weighted(schema: Schema, target: str) -> Schema:
    """Return the schema with `TARGET_SHARE` of its squared radius for the target."""
    own = {column.name: column.squared_radius for column in schema.columns}
    others = math.fsum(square for name, square in own.items() if name != target)
    factor = math.sqrt(TARGET_SHARE / (1 - TARGET_SHARE) * others / own[target])

    def scaled(column: Column) -> Column:
        return replace(column, weight=column.weight * factor)  # type: ignore[type-var]

    columns = [scaled(c) if c.name == target else c for c in schema.columns]
    return replace(schema, columns=columns)


def replace_radius(ball: Ball, radius: float) -> Ball:
    """Return a ball of another radius about the same center."""
    return Ball(dim=ball.dim, radius=radius, center=ball.center_vector)


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


def _noise_std(design: Design) -> float:
    """Return the standard deviation of the noise of an off-diagonal entry, in encoded units."""
    return design.noise_std * float(design.domain.half_widths[0]) ** 2 * DIAGONAL / OFF_DIAGONAL


@dataclass(frozen=True, eq=False)
class _World:
    """Plausible records: variances of the predictors and of the target, and what is explained."""

    predictors: Floats  # along each eigenvector
    target: float
    r2: float
    rate: float | None = None  # of the class, if the target has classes

    def lost(self, n_records: float, noise_std: float) -> float:
        """Return the lost share for this noise of an off-diagonal entry."""
        if len(self.predictors) == 0:
            return 0.0  # there is nothing to lose
        a, explained = n_records * self.predictors, self.r2 * self.target * n_records
        t = explained / len(a) / a  # prior variances of the coefficients
        w = noise_std**2 * (1 + t.sum() + t) + (1 - self.r2) * self.target * a
        return float((a * t * w / (w + t * a * a)).sum() / explained)


@dataclass(frozen=True, eq=False)
class _Outlook:
    """What is expected of a total by the number of records of each holder."""

    worlds: list[_World]
    noise_std: float  # of an off-diagonal entry
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
        worlds = list(_worlds(design, *shares))
        if rate is not None and all(world.rate is None for world in worlds):
            raise ParameterError("rate", rate, "the target has no classes", "leave it out")
        n_noises = math.sqrt(n_holders if noise_ratio is None else noise_ratio)
        count_std = n_noises * math.sqrt(design.sum_noise.count_variance)
        return cls(worlds, n_noises * _noise_std(design), count_std, n_holders)

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


def _worlds(design: Design, rate: float, r2: float) -> Iterator[_World]:
    """Yield plausible records for the target, or for each kind of column that it can be."""
    schema = design.schema
    if schema is None:
        each = SPREAD * float(design.domain.half_widths[0]) ** 2 / design.dim
        yield _World(np.full(design.dim - 1, each), each, r2)
        return
    names = possible_targets(design.task, schema, None) or schema.names
    if design.target is not None:
        names = (design.target,)
    elif design.task == "regression":  # flags only where there is nothing else
        lines = {column.name for column in schema.columns if isinstance(column, Number | Date)}
        names = tuple(name for name in names if name in lines) or names
    seen = set()
    for column in schema.columns:
        kind = type(column), len(column.coordinates), column.weight
        if column.name in names and kind not in seen:
            seen.add(kind)
            others = [np.zeros(0), *(_variances(c) for c in schema.columns if c is not column)]
            is_class = isinstance(column, Labelled)
            variance = _target_variance(column, rate)
            yield _World(np.concatenate(others), variance, r2, rate if is_class else None)


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
