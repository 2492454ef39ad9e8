"""Plan of a run of the pipeline: how it spends its budget, by forecast, from public facts alone.

A plan chooses the directions of the sketch and their number, the number of rounds, and the shares
of directions, sketch and rounds. Candidates are compared by the squared error that each step is
expected to leave, in units of k-means without privacy:

- Released directions miss a share of the variance (`design.pca`).
- Along p directions k clusters whose centers are SPREAD widths apart overlap now and then, the
  more the fewer directions.
- The sketch finds centers along the directions (`design.forecast`), or loses clusters.
- Where noise hides clusters from a sketch, the mean of all records is released instead, and the
  rounds begin with centers around it. Probe rounds then split and merge clusters (`probes`).
- Rounds begin with the error of directions and sketch. The noise of a round is in proportion to its
  residuals, so that the error falls from round to round, down to that of the last one.
- What probe rounds leave follows from the noise of a round alone: a curve that was measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import Any, Literal

from privsketch._base.errors import ParameterError
from privsketch._base.formats import count_text
from privsketch.clustering.forecast import PublicFacts
from privsketch.design.forecast import excess, expected_middle, references
from privsketch.design.pca import predicted_loss
from privsketch.design.plan import plan_design
from privsketch.design.recipe import Design
from privsketch.facts.budget import Budget
from privsketch.facts.domain import Ball
from privsketch.noise.account import Shares
from privsketch.noise.calibration import rho_of_budget

Directions = Literal["columns", "released", "random", "mean"]
RoundKind = Literal["plain", "probe"]
# Bins of the lengths of residuals: from a hundredth of the diameter on, each is 100^(1/15) = 1.36
# times as long as the one before. More have more noise in all, and between ends of a bin a quantile
# is interpolated. benchmarks constants clustering RADIUS_BINS
RADIUS_BINS = 16
OWN_BINS = 12  # of the lengths around one place
# Columns of a sketch without a choice of directions; pure noise allows fewer.
MAX_SKETCH_COLUMNS, MAX_PURE_SKETCH_COLUMNS = 20, 10
# In fewer columns, directions are compared with all columns where these are expected to be rough.
# There the forecast for directions is too low: in 32 studies in which it was the lower one, it was
# right in 3 of 3 with a margin of 1.5 and a forecast above 0.3, and in 9 of 29 others.
ROUGH_EXCESS, DIRECTIONS_MARGIN = 0.3, 1.5
# Columns and clusters for which pure noise allows released directions; planning more takes long.
MAX_PURE_RELEASED_COLUMNS, MAX_PURE_RELEASED_CLUSTERS = 100, 20
# Candidates, of which the planner takes those of least forecast error. Twice as many would double
# the time of a plan and lower its forecast by about a fifth. docs/clustering.md has the measured
# error of plans.
DIRECTION_COUNTS = (2, 3, 4, 5, 6, 8, 10)  # benchmarks constants clustering DIRECTION_COUNTS
ROUND_COUNTS = (2, 3, 4, 6, 8)  # benchmarks constants clustering ROUND_COUNTS
# benchmarks constants clustering SUBSPACE_SHARES
SUBSPACE_SHARES = (Fraction(1, 10), Fraction(1, 5))
SKETCH_SHARES = tuple(Fraction(i, 20) for i in (4, 6, 8, 10, 12, 14, 16))  # of the rest
# Shares of a round for its radius: the smallest with a histogram of little noise. Pure: from 1/20.
RADIUS_SHARES = tuple(Fraction(1, i) for i in (100, 50, 20, 10, 5, 3))
MAX_RADIUS_NOISE = 0.15  # little noise: of half of a histogram's bins, over the number of records

# SPREAD, OVERLAP and UNSETTLED were measured on mixtures of Gaussians and on images
# (docs/clustering.md).
SPREAD = 6.0  # distance of centers from their mean, in widths of clusters, per direction
OVERLAP = 0.55  # records in the wrong cluster: exp(-OVERLAP separation^2), measured
RELEASED_SPREAD = 1.25  # spread along released directions over that along random ones
REMAINDER = 0.25  # share of the squared spread outside of good directions
SHAPE_ERROR = 0.05  # error of few directions for clusters of other shapes
# Error without any round: clusters are not as round as in the model of a sketch. Pure sketches
# have few features and err most.
UNSETTLED, PURE_UNSETTLED = 0.04, 0.3
UNSTEADY = 0.5  # share of a round's noise that stays: small clusters have more, steps err
LOSING_ERROR = 0.3  # error of a sketch from which on it loses clusters that rounds do not find
# A start around the mean: the error per cluster that rounds leave, the error that they begin with,
# and the squared distance of the mean from the center of the ball, in squared widths of clusters.
# Each may be off by a factor of 2 without another choice in nearly all of 32 noisy studies.
MEAN_ERROR_PER_CLUSTER = 0.07  # benchmarks constants clustering MEAN_ERROR_PER_CLUSTER
MEAN_START_ERROR = 2.5  # benchmarks constants clustering MEAN_START_ERROR
MEAN_OFFSET = 6.0  # benchmarks constants clustering MEAN_OFFSET
# Its shares and numbers of rounds: benchmarks constants clustering MEAN_SHARES
MEAN_SHARES = ((Fraction(1), 0), (Fraction(1, 2), 1), (Fraction(1, 5), 2))
MAX_START_EXCESS = 3.0  # error of centers around the center of the domain, without any release
# A mean is measured in two steps, from the middle of the domain and from where the first one was,
# if the noise of the first step is below the distance that it saves, in squared widths.
MIDDLE_SHARE = Fraction(1, 4)
# Error that probe rounds leave: PROBED_ERROR nu^PROBED_POWER (1 + nu)^2, if nu is the noise of a
# round with a fifth of the budget. benchmarks constants clustering PROBED_ERROR
# Without a delta they leave less than sketches: on 21 data sets of epsilon = 1 a mean logarithm of
# the cost of 0.010 instead of 0.045 for sketches of all columns, and on 18 as much as sketches
# along directions, 0.33, in a tenth of the time. Of 64 clusters they miss more.
PROBED_ERROR, PURE_PROBED_ERROR, PROBED_POWER = 1.0, 0.4, 0.7
MAX_PURE_PROBED_CLUSTERS = 40
# Up to this noise they were better than the start alone, and than plain rounds.
MAX_PROBED_NOISE, PROBED_GAIN = 2.0, 0.99
# Clusters in few columns are many widths apart, and no start around the mean is near all of them.
MIN_PROBED_COLUMNS = 5
MAX_PROBED_CLUSTERS = 400  # means of more take seconds to merge, in every round
# Shares of the mean, of probe rounds and of the last round, in percent, by the number of probe
# rounds, which falls with the logarithm of nu. benchmarks constants clustering PROBE_SHARES
PROBE_SHARES = (
    (20, 40, 40),
    (15, 25, 25, 35),
    (10, 15, 20, 25, 30),
    (10, 12, 15, 18, 20, 25),
)
# Shares of a round for radii of its places: the smallest with little noise, none if all have much.
OWN_SHARES = tuple(Fraction(i, 100) for i in (2, 5, 10, 15, 20))
MAX_OWN_NOISE = 0.35  # little noise: of a whole histogram, over the records of an average place


@dataclass(frozen=True)
class PipelinePlan:
    """Public numbers of a run.

    Attributes
    ----------
    directions : {"columns", "released", "random", "mean"}
        Directions of the sketch: all columns, released directions, or random ones. "mean" means no
        sketch: centers start around the mean of all records.
    n_directions : int
        Number of directions.
    rounds : tuple of {"plain", "probe"}
        Rounds that move the centers, and rounds that also look for clusters between them.
    weights : tuple of (str, Fraction)
        Shares of the budget by name; they add up to 1.
    excess : float
        Forecast of the squared error over that of k-means without privacy, less 1.
    """

    directions: Directions
    n_directions: int
    rounds: tuple[RoundKind, ...]
    weights: tuple[tuple[str, Fraction], ...]
    excess: float

    @property
    def n_rounds(self) -> int:
        """Number of rounds."""
        return len(self.rounds)

    def describe(self) -> str:
        """Return a one-line description of the plan."""
        rounds = count_text(self.n_rounds, "round")
        if "probe" in self.rounds:
            rounds += f", {self.rounds.count('probe')} of which look for clusters"
        if self.directions == "mean":
            return f"centers around the mean of all records, {rounds}"
        along = f"{self.n_directions} {self.directions} directions"
        if self.directions == "columns":
            along = f"all {self.n_directions} columns"
        sketch = float(dict(self.weights)["sketch"])
        return f"sketch along {along} with {sketch:.0%} of the budget, {rounds}"


@dataclass(frozen=True)
class Facts:
    """Public facts that a plan depends on."""

    n_clusters: int
    dim: int
    budget: Budget
    n_records: float


def pipeline_forecast(facts: PublicFacts) -> float:
    """Return the cost ratio to expect of the best plan for these facts."""
    return 1 + plan_pipeline(facts.n_clusters, facts.dim, facts.budget, facts.n_records).excess


def plan_pipeline(
    n_clusters: int, dim: int, budget: Budget, n_records: float, n_rounds: int | None = None
) -> PipelinePlan:
    """Return the plan of least expected error, of those with `n_rounds` if these are stated."""
    facts = Facts(n_clusters, dim, budget, max(n_records, 1.0))
    plans = list(_mean_plans(facts))
    if n_clusters > 1:
        if dim >= MIN_PROBED_COLUMNS and n_clusters <= MAX_PROBED_CLUSTERS:
            plans.append(probe_plan(facts, instead=min(plan.excess for plan in plans)))
        # A number of rounds that somebody states must not depend on a released number of records.
        if n_rounds is not None or not _are_probes_best(facts):
            plans += _sketch_plans(facts, min(plan.excess for plan in plans))
    known = sorted({plan.n_rounds for plan in plans})
    if n_rounds is not None and n_rounds not in known:
        numbers = ", ".join(map(str, known))
        raise ParameterError("n_rounds", n_rounds, f"a pipeline is planned with one of {numbers}")
    suitable = [plan for plan in plans if n_rounds in (None, plan.n_rounds)]
    return min(suitable, key=lambda plan: plan.excess)


def _are_probes_best(facts: Facts) -> bool:
    """Return whether rounds that look for clusters leave less than any sketch."""
    is_probed = facts.dim >= MIN_PROBED_COLUMNS and facts.n_clusters <= MAX_PURE_PROBED_CLUSTERS
    return facts.budget.delta == 0 and is_probed


def _sketch_plans(facts: Facts, known: float) -> Iterator[PipelinePlan]:
    """Yield plans with a sketch; `known` is the error that is expected of others."""
    max_columns = MAX_SKETCH_COLUMNS if facts.budget.delta > 0 else MAX_PURE_SKETCH_COLUMNS
    if facts.dim > max_columns:
        yield from _direction_plans(facts)
        return
    for plan in _column_plans(facts):
        known = min(known, plan.excess)
        yield plan
    if known > ROUGH_EXCESS:
        for plan in _direction_plans(facts):
            yield replace(plan, excess=DIRECTIONS_MARGIN * plan.excess)


def _mean_plans(facts: Facts) -> Iterator[PipelinePlan]:
    """Yield plans without a sketch, which lose no cluster if there is only one."""
    k, budget, n_records = facts.n_clusters, facts.budget, facts.n_records
    lost = MEAN_ERROR_PER_CLUSTER * k if k > 1 else 0.0
    for mean_share, n_rounds in MEAN_SHARES:
        weights = mean_weights(facts, mean_share)
        # As in one step: a forecast for two made this start too good beside sketches.
        measured = mean_noise(facts, weights["round mean"])
        last = MEAN_START_ERROR
        if n_rounds > 0:
            rounds = share_weights(None, mean_share, n_rounds, budget, n_records)
            del rounds["sketch"]
            last = rounds_excess(last, facts, rounds, n_rounds)
            weights |= rounds
        error = lost + last + measured * MEAN_OFFSET / (measured + MEAN_OFFSET)
        yield PipelinePlan(
            "mean", 0, plain_rounds(n_rounds), tuple(weights.items()), min(error, MAX_START_EXCESS)
        )


def plain_rounds(n_rounds: int) -> tuple[RoundKind, ...]:
    """Return the kinds of rounds that move the centers and nothing else."""
    kinds: list[RoundKind] = ["plain"] * n_rounds
    return tuple(kinds)


def mean_weights(facts: Facts, share: Fraction) -> dict[str, Fraction]:
    """Return the shares of a mean, which is measured in two steps where noise allows that."""
    if mean_noise(facts, MIDDLE_SHARE * share) >= 1:
        return round_weights(facts, share, "mean")
    first = round_weights(facts, MIDDLE_SHARE * share, "middle")
    return first | round_weights(facts, (1 - MIDDLE_SHARE) * share, "mean")


def probe_plan(facts: Facts, instead: float = MAX_START_EXCESS) -> PipelinePlan:
    """Return the plan that starts around the mean and looks for clusters by probe rounds.

    Up to some noise it is better than plans that do not look for any, whatever these are expected
    to leave: `instead`.
    """
    k = facts.n_clusters
    noise = round_noise(replace(facts, n_clusters=2 * k), Fraction(1, 5))
    n_probes = min(max(round(1.2 - 1.1 * math.log10(noise)), 1), len(PROBE_SHARES))
    mean, *shares = (Fraction(percent, 100) for percent in PROBE_SHARES[n_probes - 1])
    weights = mean_weights(facts, mean)
    # Probes stand one width from the start; their own rounds know it from the one before.
    common = radius_share(facts.budget, shares[0], facts.n_records)
    weights["radius start"] = shares[0] * common
    shares[0] *= 1 - common
    probes: list[RoundKind] = ["probe"] * n_probes
    kinds = (*probes, *plain_rounds(1))
    for number, (kind, share) in enumerate(zip(kinds, shares, strict=True)):
        n_places = k if kind == "plain" else 2 * k
        weights |= round_weights(facts, share, str(number), n_places)
    error = PURE_PROBED_ERROR if _are_probes_best(facts) else PROBED_ERROR
    error *= noise**PROBED_POWER * (1 + noise) ** 2
    if noise <= MAX_PROBED_NOISE:
        error = min(error, PROBED_GAIN * instead)
    return PipelinePlan("mean", 0, kinds, tuple(weights.items()), error)


def _column_plans(facts: Facts) -> Iterator[PipelinePlan]:
    """Yield plans with a sketch of all columns."""
    budget, everything = facts.budget, Fraction(1)
    error = sketch_excess(facts, everything) + unsettled(budget, 0)
    yield PipelinePlan("columns", facts.dim, (), (("sketch", everything),), error)
    for sketch in SKETCH_SHARES:
        first = sketch_excess(facts, sketch)
        lost = lost_excess(first)
        for n_rounds in ROUND_COUNTS:
            weights = share_weights(None, sketch, n_rounds, budget, facts.n_records)
            last = rounds_excess(first, facts, weights, n_rounds)
            yield PipelinePlan(
                "columns", facts.dim, plain_rounds(n_rounds), tuple(weights.items()), lost + last
            )


def _direction_plans(facts: Facts) -> Iterator[PipelinePlan]:
    """Yield plans with a sketch along a few directions."""
    k, dim, budget, n_records = facts.n_clusters, facts.dim, facts.budget, facts.n_records
    for p in (p for p in DIRECTION_COUNTS if p < dim):
        for subspace in _subspace_shares(facts):
            missed = 1.0
            if subspace is not None:
                # Centers of k clusters differ in k - 1 directions, mostly along half of them.
                n_needed = max(p, min(k - 1, dim)) // 2
                missed = missed_share(dim, n_needed, budget, subspace, n_records)
            spread = SPREAD * (1 + (RELEASED_SPREAD - 1) * (1 - missed))
            hidden = hidden_excess(k, p, spread)
            outside = SPREAD**2 * (REMAINDER + (1 - REMAINDER) * missed)
            for sketch in SKETCH_SHARES:
                share = sketch * (1 - (subspace or 0))
                lost = lost_excess(distant_excess(replace(facts, dim=p), share))
                for n_rounds in ROUND_COUNTS:
                    weights = share_weights(subspace, sketch, n_rounds, budget, n_records)
                    last = rounds_excess(outside, facts, weights, n_rounds)
                    yield PipelinePlan(
                        "random" if subspace is None else "released",
                        p,
                        plain_rounds(n_rounds),
                        tuple(weights.items()),
                        hidden + lost + last,
                    )


def _subspace_shares(facts: Facts) -> tuple[Fraction | None, ...]:
    """Return candidates for the share of directions; None stands for random ones."""
    is_large = (
        facts.dim > MAX_PURE_RELEASED_COLUMNS or facts.n_clusters > MAX_PURE_RELEASED_CLUSTERS
    )
    return (None,) if facts.budget.delta == 0 and is_large else (None, *SUBSPACE_SHARES)


def share_weights(
    subspace: Fraction | None, sketch: Fraction, n_rounds: int, budget: Budget, n_records: float
) -> dict[str, Fraction]:
    """Return the shares of all steps; `sketch` is a share of what the subspace leaves."""
    weights = {} if subspace is None else {"subspace": subspace}
    remainder = 1 - sum(weights.values(), Fraction(0))
    weights["sketch"] = remainder * sketch
    for_round = remainder * (1 - sketch) / n_rounds
    radius = radius_share(budget, for_round, n_records)
    for number in range(n_rounds):
        weights[f"radius {number}"] = for_round * radius
        weights[f"round {number}"] = for_round * (1 - radius)
    return weights


def round_weights(
    facts: Facts, share: Fraction, name: str, n_places: int | None = None
) -> dict[str, Fraction]:
    """Return the shares of the questions of one round: with radii of their own for `n_places`."""
    common, own = radius_share(facts.budget, share, facts.n_records), Fraction(0)
    if n_places is not None:
        own = own_share(facts, share, n_places)
    weights = {f"radius {name}": share * common}
    if own:
        weights[f"radii {name}"] = share * own
    return weights | {f"round {name}": share * (1 - common - own)}


def radius_share(budget: Budget, share: Fraction, n_records: float) -> Fraction:
    """Return the part of a round's share for its common radius."""
    radius = RADIUS_SHARES[-1]
    for part in RADIUS_SHARES[:1:-1] if budget.delta == 0 else RADIUS_SHARES[::-1]:
        if radius_noise(budget, share * part, n_records) <= MAX_RADIUS_NOISE:
            radius = part
    return radius


def own_share(facts: Facts, share: Fraction, n_places: int) -> Fraction:
    """Return the part of a round's share for radii of its places; 0 where noise hides them."""
    per_place = facts.n_records / n_places
    for part in OWN_SHARES:
        noise = counts_deviation(facts.budget, share * part) * math.sqrt(OWN_BINS)
        if noise <= MAX_OWN_NOISE * per_place:
            return part
    return Fraction(0)


def counts_deviation(budget: Budget, share: Fraction) -> float:
    """Return the standard deviation of noise on counts of disjoint sets of records."""
    if budget.delta > 0:
        rho = rho_of_budget(budget.epsilon, budget.delta) * float(share)
        deviation = 1 / math.sqrt(2 * rho)
    else:
        deviation = math.sqrt(2) / (budget.epsilon * float(share))
    if budget.neighbours == "replace":  # two bins change by one
        deviation *= math.sqrt(2) if budget.delta > 0 else 2
    return deviation


def radius_noise(budget: Budget, share: Fraction, n_records: float) -> float:
    """Return the noise of half of a histogram's bins together, over the number of records.

    The radius is where the sum of bins exceeds a share of the records: with much noise, anywhere.
    """
    return counts_deviation(budget, share) * math.sqrt(RADIUS_BINS / 2) / n_records


@cache
def _part(budget: Budget, share: Fraction) -> Budget:
    if share == 1:
        return budget
    return Shares(budget, {"part": share, "others": 1 - share}).part("part")


def _planned(
    task: str, n: int, dim: int, budget: Budget, share: Fraction, n_records: float, **kinds: Any
) -> Design | None:
    """Plan a release of `n` components in a ball; None if the share of the budget allows none."""
    try:
        return plan_design(
            task=task,
            n_components=n,
            domain=Ball(dim=dim, radius=1.0),
            budget=_part(budget, share).without_person,
            n_records=n_records,
            drawn=False,
            **kinds,
        )
    except ParameterError:
        return None


@cache
def _sketch_design(facts: Facts, share: Fraction) -> Design | None:
    k, dim, budget, n_records = facts.n_clusters, facts.dim, facts.budget, facts.n_records
    return _planned("kmeans", k, dim, budget, share, n_records, feature_map="fourier")


def sketch_excess(facts: Facts, share: Fraction) -> float:
    """Return the expected error of a sketch: the middle of its forecast."""
    design = _sketch_design(facts, share)
    if design is None:
        return math.inf
    return expected_middle(design, facts.n_records) - 1


@cache
def distant_excess(facts: Facts, share: Fraction) -> float:
    """Return the expected error for separated clusters, as clusters in many columns are."""
    design = _sketch_design(facts, share)
    if design is None:
        return math.inf
    distant = max(
        references(design.domain, facts.n_clusters),
        key=lambda reference: (reference.separation, reference.spread),
    )
    return float(excess(design, distant, facts.n_records))


@cache
def missed_share(
    dim: int, n_directions: int, budget: Budget, share: Fraction, n_records: float
) -> float:
    """Return the share of the variance that released directions are expected to miss."""
    kinds = {} if budget.delta == 0 else {"feature_map": "second-moments", "noise": "gaussian"}
    design = _planned("pca", n_directions, dim, budget, share, n_records, **kinds)
    return 1.0 if design is None else float(predicted_loss(design))


def lost_excess(error: float) -> float:
    """Return the part of a sketch's error that rounds do not repair: the clusters it misses."""
    return error * min(1.0, error / LOSING_ERROR)


def hidden_excess(n_clusters: int, n_directions: int, spread: float) -> float:
    """Return the error of records that few directions put into another cluster."""
    crowding = math.pow(n_clusters, 1 / n_directions)
    misplaced = math.exp(-OVERLAP * (spread / crowding) ** 2)
    return 2 * spread**2 * misplaced + SHAPE_ERROR * (crowding - 1)


def rounds_excess(
    outside: float, facts: Facts, weights: dict[str, Fraction], n_rounds: int
) -> float:
    """Return the error that rounds leave of `outside`, both in squared widths of clusters."""
    noise = round_noise(facts, weights["round 0"])
    error = outside
    for _ in range(n_rounds):
        measured = noise * (1 + error)
        error = measured * error / (measured + error)  # shrinkage weighs both errors
    histogram_noise = radius_noise(facts.budget, weights["radius 0"], facts.n_records)
    astray = max(0.0, histogram_noise - MAX_RADIUS_NOISE)
    return error + UNSTEADY * noise + unsettled(facts.budget, n_rounds) + astray


def unsettled(budget: Budget, n_rounds: int) -> float:
    """Return the error that rounds leave for shapes that a sketch does not model."""
    return (UNSETTLED if budget.delta > 0 else PURE_UNSETTLED) / (1 + n_rounds) ** 2


def mean_noise(facts: Facts, share: Fraction) -> float:
    """Return the squared noise of the mean of all records, over their squared spread.

    It is measured in one step, from the middle of the domain.
    """
    return (1 + MEAN_OFFSET) * round_noise(replace(facts, n_clusters=1), share)


def round_noise(facts: Facts, share: Fraction) -> float:
    """Return the squared noise of a round for residuals of squared length 1.

    It has d coordinates of Gaussian noise of variance r^2 / (2 rho), or of Laplace noise for the L1
    length, which is 0.8 sqrt(d) r for residuals of many columns. The radius r, which contains most
    residuals, is longer than the average length, and counts take a part.
    """
    dim, budget, per_cluster = facts.dim, facts.budget, facts.n_records / facts.n_clusters
    if budget.neighbours == "replace":
        per_cluster /= 2
    if budget.delta > 0:
        rho = rho_of_budget(budget.epsilon, budget.delta) * float(share)
        return 1.3 * dim / (2 * rho * per_cluster**2)
    epsilon = budget.epsilon * float(share)
    return 1.6 * (dim / (epsilon * per_cluster)) ** 2
