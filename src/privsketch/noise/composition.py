"""Cost of several releases about the same records, by every valid bound.

Basic composition adds epsilons and deltas. Gaussian noise and pure releases have a rho, which adds
up too and is turned into an epsilon at a delta once, at the end (Bun and Steinke, 2016; Canonne,
Kamath and Steinke, 2020). dp-accounting does the same by Renyi divergences of many orders, and by
distributions of privacy losses: of all releases that cost (epsilon, delta), one pair of
distributions dominates (Kairouz, Oh and Viswanath, 2015). No such distribution is proven for
discrete Gaussian vectors, which enter by their rho. Distributions are composed by Fourier
transforms of floats, whose errors were measured and not proven: that bound is numerical.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from importlib.util import find_spec
from typing import Any

from privsketch._base.errors import ParameterError
from privsketch._base.notebook import described
from privsketch.facts.budget import exact, exact_sum, number_text, round_up
from privsketch.facts.receipt import Receipt, compose_sequential, is_sum, require_summable
from privsketch.noise.calibration import epsilon_of_rho, round_down

# Shares of delta for pure releases where Gaussian ones need some too. Any share is valid.
_SPLITS = (0.5, 0.1, 0.9, 0.01, 0.99)
_MAX_STEPS = 2e6  # of a distribution of losses
# Allowances for rounding in dp-accounting. Fourier transforms err by 3e-14 in the delta of a
# thousand releases, by measurement; the allowance is several hundred times as large. Losses are
# counted down from the largest in up to 4e6 steps, each rounded.
_LOST_DELTA, _LOST_SHARE, _LOST_LOSS, _LOST_EPSILON = 1e-14, 1e-9, 5e-10, 1e-14
# Below this epsilon, Renyi divergences of randomised response are differences of nearly equal
# floats, some of them negative. They equal those of its rho up to some millionths.
_SMALL_EPSILON = 1e-3
_SAME_RECORDS = "releases about the same records"


@dataclass(frozen=True)
class CostBound:
    """Valid statement about the cost of several releases together.

    Parameters
    ----------
    name : {"basic", "zcdp", "rdp", "pld"}
        Name of the bound.
    epsilon, delta : float
        Cost by this bound.
    how : str
        Explanation of the bound.
    is_numerical : bool
        Whether it relies on floats whose errors were measured, not proven.
    """

    name: str
    epsilon: float
    delta: float
    how: str
    is_numerical: bool = False


@dataclass(frozen=True)
class Composition:
    """Cost of several releases together: all bounds side by side.

    Attributes
    ----------
    receipts : tuple of Receipt
        Receipts of the releases.
    delta : float
        Delta of the bounds other than the basic one.
    bounds : tuple of CostBound
        Bounds, each of which holds by itself.
    numerical : bool
        Whether `best` may be a numerical bound.
    """

    receipts: tuple[Receipt, ...]
    delta: float
    bounds: tuple[CostBound, ...]
    numerical: bool = False

    @property
    def best(self) -> CostBound:
        """Bound of least epsilon among those whose delta is not above the requested one.

        Numerical bounds are left out unless `numerical` is True.
        """
        bounds = [bound for bound in self.bounds if self.numerical or not bound.is_numerical]
        fitting = [bound for bound in bounds if bound.delta <= self.delta]
        return min(fitting or bounds, key=lambda bound: bound.epsilon)

    @property
    def receipt(self) -> Receipt:
        """Receipt of all releases, by basic composition, with the sum of rho."""
        sources = {receipt.source for receipt in self.receipts}
        source = sources.pop() if len(sources) == 1 else None
        return compose_sequential(_SAME_RECORDS, self.receipts, source)

    def describe(self) -> str:
        """Describe all bounds in several lines."""
        first, best = self.receipts[0], self.best
        lines = [
            f"releases    {len(self.receipts)}, about the same records",
            f"unit        {first.unit}",
            f"neighbours  {first.neighbours}",
        ]
        for bound in self.bounds:
            mark = "  <- best" if bound is best else ""
            cost = f"epsilon = {_short_up(bound.epsilon)}, delta = {number_text(bound.delta)}"
            lines.append(f"{bound.name:<11} {cost} ({bound.how}){mark}")
        if self.delta == 0:
            lines.append("note        with a delta above 0 there are tighter bounds: state one")
        sources = {receipt.source for receipt in self.receipts}
        if None not in sources and len(sources) > 1:
            lines.append(
                f"note        {len(sources)} sources: if no record lies at two of them, releases "
                "of different sources do not add up"
            )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return described("What several releases cost together", self.describe().splitlines())

    def to_json(self) -> dict[str, Any]:
        """Return the bounds as plain JSON values."""
        return {
            "n_releases": len(self.receipts),
            "neighbours": self.receipts[0].neighbours,
            "unit": self.receipts[0].unit,
            "delta": self.delta,
            "best": self.best.name,
            "bounds": [dict(vars(bound)) for bound in self.bounds],
            "receipt": self.receipt.to_json(),
        }


def compose(
    receipts: Iterable[Receipt], *, delta: float | None = None, numerical: bool = False
) -> Composition:
    """Compute what releases about the same records cost together.

    Later releases may be chosen after seeing earlier ones, as long as their costs were fixed
    beforehand. Where costs are chosen adaptively, use a `Ledger`, whose rules allow that.

    Parameters
    ----------
    receipts : list of Receipt
        Receipts of releases about the same records, with the same neighbours and unit.
    delta : float, optional
        Delta at which to compute epsilon; the sum of all deltas if left out.
    numerical : bool
        Whether `best` may be the numerical bound "pld", where that is the least.

    Examples
    --------
    >>> import numpy as np, privsketch as ps
    >>> design = ps.Design.plan(n_components=2, domain=ps.Box(-1, 1, dim=2),
    ...                         budget=ps.Budget(epsilon=0.5, delta=1e-6), random_state=0)
    >>> released = [ps.sketch(np.zeros((1000, 2)), design, source="site-1") for _ in range(20)]
    >>> together = ps.compose([one.receipt for one in released])
    >>> together.bounds[0].epsilon, together.best.epsilon < 3
    (10.0, True)
    """
    parts = tuple(receipts) if isinstance(receipts, Iterable) else ()
    if not parts or not all(isinstance(part, Receipt) for part in parts):
        raise ParameterError("receipts: expected receipts, at least one, in a list")
    require_summable(parts)
    for part in parts:
        exact(part.epsilon)  # refuses what has no privacy
    total_delta = exact_sum([part.delta for part in parts])
    if delta is None:
        delta = total_delta
    elif isinstance(delta, bool) or not (isinstance(delta, int | float) and 0 <= delta < 1):
        raise ParameterError("delta", delta, "expected a number of at least 0 and below 1")
    basic = CostBound(
        "basic", exact_sum([part.epsilon for part in parts]), total_delta, "epsilons and deltas add"
    )
    bounds = [basic]
    if 0 < delta < 1 and total_delta < 1:
        bounds += _with_delta([leaf for part in parts for leaf in _leaves(part)], float(delta))
    return Composition(parts, float(delta), tuple(bounds), bool(numerical))


def _short_up(value: float) -> str:
    """Round up to six digits, so that a copied limit understates nothing."""
    six = Context(prec=6, rounding=ROUND_CEILING)
    return number_text(float(six.create_decimal(repr(float(value)))))


def _leaves(receipt: Receipt) -> Iterator[Receipt]:
    """Return the receipts that add up to one, or itself if it is accounted otherwise."""
    if not is_sum(receipt):
        yield receipt
        return
    for part in receipt.parts:
        yield from _leaves(part)


def _with_delta(parts: Sequence[Receipt], delta: float) -> Iterator[CostBound]:
    """Return the bounds that trade delta for epsilon."""
    without_rho = [part for part in parts if part.rho is None]
    with_rho = [part for part in parts if part.rho is not None]
    left = round_down(exact(delta) - exact(exact_sum([part.delta for part in without_rho])))
    if with_rho and left > 0:  # releases without a rho add up beside the others
        note = f"; {len(without_rho)} of them add up beside it" if without_rho else ""
        beside = exact(exact_sum([part.epsilon for part in without_rho]))
        total = exact_sum([part.rho for part in with_rho if part.rho is not None])
        bounds = [("zcdp", epsilon_of_rho(total, left), f"rho adds up to {total:.6g}")]
        if _has_dp_accounting():
            bounds.append(
                ("rdp", _by_moments(with_rho, left), "Renyi divergences, by dp-accounting")
            )
        for name, epsilon, how in bounds:
            if math.isfinite(epsilon):
                yield CostBound(name, round_up(exact(epsilon) + beside), delta, how + note)
    if _has_dp_accounting() and any(part.delta == 0 or part.rho is None for part in parts):
        epsilon = _by_losses(parts, delta)
        if math.isfinite(epsilon):
            how = "numerical: distributions of the privacy loss, by dp-accounting"
            if any(part.delta > 0 and part.rho is not None for part in parts):
                how += ", and rho of Gaussian noise"
            yield CostBound("pld", epsilon, delta, how, is_numerical=True)


def _has_dp_accounting() -> bool:
    return find_spec("dp_accounting") is not None


def _by_moments(parts: Sequence[Receipt], delta: float) -> float:
    """Compute epsilon by Renyi divergences, with an accountant of dp-accounting."""
    from dp_accounting import NeighboringRelation
    from dp_accounting.rdp import RdpAccountant

    # Randomised response is defined for a replaced value. Which change of a table an event hides is
    # settled already, by its rho or its epsilon.
    accountant = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
    for event, count in Counter(map(_event_of, parts)).items():
        accountant.compose(event, count)
    return float(accountant.get_epsilon(delta)) * (1 + 1e-12)


def _event_of(part: Receipt) -> Any:
    """Return the event for accountants of Renyi divergences."""
    from dp_accounting import ZCDpEvent

    is_small = part.rho is not None and part.epsilon < _SMALL_EPSILON
    return ZCDpEvent(part.rho) if is_small else part.dp_event()


def _by_losses(parts: Sequence[Receipt], delta: float) -> float:
    """Compute epsilon by privacy losses of non-Gaussian releases, with the rho of the others.

    Distributions are composed here and not by dp-accounting's `PLDAccountant`, which ignores the
    count of a randomised response (0.6.0).
    """
    rhos = [part.rho for part in parts if part.delta > 0 and part.rho is not None]
    costs = Counter(
        (part.epsilon, part.delta) for part in parts if part.delta == 0 or part.rho is None
    )
    losses = loss_distribution(costs)
    total_epsilon = sum(epsilon * count for (epsilon, _), count in costs.items())

    def implied(delta: float) -> float:
        lost = _LOST_DELTA * sum(costs.values()) if len(parts) > 1 else 0.0
        reduced = delta * (1 - _LOST_SHARE) - lost
        if reduced <= 0:
            return math.inf
        epsilon = float(losses.get_epsilon_for_delta(reduced))
        return epsilon + _LOST_LOSS * total_epsilon + _LOST_EPSILON

    if not rhos:
        return implied(delta)
    rho = exact_sum(rhos)
    splits = []
    for part in (delta * share for share in _SPLITS):
        gaussian_epsilon = epsilon_of_rho(rho, round_down(exact(delta) - exact(part)))
        splits.append(implied(part) + gaussian_epsilon)
    return min(splits) * (1 + 1e-15)


def loss_distribution(costs: Mapping[tuple[float, float], int]) -> Any:
    """Return dp-accounting's privacy losses of releases that cost (epsilon, delta), with counts.

    Losses are rounded up to steps. These are finer than dp-accounting's own where an epsilon is
    small, and coarser where a large total would not fit in memory.
    """
    from dp_accounting.pld.common import DifferentialPrivacyParameters
    from dp_accounting.pld.privacy_loss_distribution import from_privacy_parameters

    total_epsilon = sum(epsilon * count for (epsilon, _), count in costs.items())
    finest = min(1e-4, min(epsilon for epsilon, _ in costs) / 100)
    step = max(finest, total_epsilon / _MAX_STEPS)
    total: Any = None
    for (epsilon, delta), count in costs.items():
        single = from_privacy_parameters(DifferentialPrivacyParameters(epsilon, delta), step)
        several = single.self_compose(count) if count > 1 else single
        total = several if total is None else total.compose(several)
    return total
