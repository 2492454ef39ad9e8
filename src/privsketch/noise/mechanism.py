"""The function through which all noise passes, and the laws it draws from.

A `NoiseLaw` is public: it states the kind of noise, the sensitivity, the budget and the scale.
`add_noise` draws from it and returns the noisy integers with a receipt. Nothing else in the package
may draw noise.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal, Self

import numpy as np

from privsketch._base.errors import BudgetError, ParameterError
from privsketch._base.formats import INSECURE, NO_PRIVACY
from privsketch._base.threads import variable_set
from privsketch._base.types import Integers
from privsketch.facts.budget import Neighbours, exact
from privsketch.facts.receipt import NO_NOISE, Receipt
from privsketch.noise.calibration import (
    MAX_NOISE_SCALE,
    cube_variance,
    discrete_laplace_variance,
    laplace_scale,
    log_delta_zcdp,
    rho_of_budget,
    round_up_sqrt,
)
from privsketch.noise.samplers import (
    add_discrete_gaussian,
    add_discrete_laplace,
    discrete_gaussian,
    discrete_laplace,
    draw_cube,
)

NoiseKind = Literal["laplace", "gaussian", "cube", "none"]  # the last one of insecure designs only
ChoiceKind = Literal["choice", "threshold", "picks", "zoom"]  # noise/choice.py
CHOICE_KINDS: tuple[ChoiceKind, ...] = ("choice", "threshold", "picks", "zoom")
NOISE_KINDS: tuple[NoiseKind, ...] = ("laplace", "gaussian", "cube")
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1  # what released values are stored as
HEADROOM = 2**62  # for sums, and again for their noise: together they stay within 64 bits
# Length from which on vectors are drawn in bulk: OpenDP takes 10 microseconds for each number
# (python -m benchmarks constants noise MIN_BULK_VALUES).
MIN_BULK_VALUES = 4096


@dataclass(frozen=True)
class NoiseLaw:
    """Noise for one vector of integers.

    `sensitivity` is in the norm of the law: L1 (laplace), L2 (gaussian), largest
    component (cube). `scale` is b, sigma, or sensitivity / epsilon. `variance` is that
    of one component. `rho` is the zCDP budget of Gaussian noise, else 0; `zcdp` is the rho that the
    release is known to satisfy, None where its cost was derived otherwise. `inner` is the cost of
    pure noise by itself: epsilon, or more under masks (noise/laws.py), which `masking` describes.
    Noise that `wraps` is added modulo 2^64, for sums that are terms of a total (noise/sharing):
    saturated terms would not add up to the noisy total. The kind "none" adds nothing (`no_noise`).
    """

    kind: NoiseKind | ChoiceKind
    n_components: int
    sensitivity: float
    epsilon: float
    delta: float
    neighbours: Neighbours
    scale: float
    variance: float
    rho: float = 0.0
    inner: float = 0.0
    masking: str = ""
    zcdp: float | None = None
    wraps: bool = False

    def __post_init__(self) -> None:
        if self.inner == 0.0:
            object.__setattr__(self, "inner", self.epsilon)

    def charged(
        self, epsilon: float, delta: float, neighbours: Neighbours, masking: str = ""
    ) -> NoiseLaw:
        """Return this noise with another cost: under masks, or behind a random matrix.

        Its rho stays only if the cost does. Masks that keep a fixed number of features do not
        depend on the records, so the worst of them bounds the divergence.
        """
        same = (epsilon, delta, neighbours) == (self.epsilon, self.delta, self.neighbours)
        return replace(
            self,
            epsilon=epsilon,
            delta=delta,
            neighbours=neighbours,
            masking=masking,
            zcdp=self.zcdp if same else None,
        )

    def receipt(self, scale: float, source: str | None, sampler: str) -> Receipt:
        """Return the cost of one release of this noise, drawn at a scale not below the law's."""
        mechanism, norm, calibration = self.words()
        return Receipt(
            mechanism=mechanism,
            epsilon=self.epsilon,
            delta=self.delta,
            neighbours=self.neighbours,
            source=source,
            law=self.kind,
            sensitivity=None if self.kind == "none" else float(self.sensitivity),
            norm=norm,
            scale=scale,
            rho=self.zcdp,
            calibration=f"{calibration}; {self.masking}" if self.masking else calibration,
            sampler=sampler,
        )

    def words(self) -> tuple[str, str, str]:
        """Return mechanism, norm and calibration, as receipts state them."""
        calibration = {
            "laplace": "scale = sensitivity / epsilon",
            "gaussian": f"zCDP, rho = {self.rho:.12g}, discrete noise",
            "cube": "density ~ exp(-epsilon |z|_inf / sensitivity)",
            "none": NO_PRIVACY,
        }[self.kind]
        mechanism = f"{_NOISE_NAMES[self.kind]} noise on {self.n_components} integers"
        return mechanism, _NORMS[self.kind], calibration

    @classmethod
    def pure(
        cls,
        kind: NoiseKind | ChoiceKind,
        n_components: int,
        sensitivity: int,
        epsilon: float,
        neighbours: Neighbours,
        *,
        times: int = 1,
        variance: Callable[[float], float] = discrete_laplace_variance,
        **facts: Any,
    ) -> Self:
        """Return a law without delta, of scale times * sensitivity / epsilon, rounded up.

        `variance` maps that scale to the variance of one component.
        """
        scale = laplace_scale(times * sensitivity, epsilon)
        cost = epsilon, 0.0, neighbours
        return cls(kind, n_components, sensitivity, *cost, scale, variance(scale), **facts)

    @property
    def reach(self) -> float:
        """Magnitude that the noise exceeds with a chance under 1e-20."""
        return (2 * self.n_components + 100 if self.kind == "cube" else 50) * self.scale


def no_noise(n_components: int) -> NoiseLaw:
    """Return the law that adds nothing, for insecure designs: no privacy, an infinite epsilon.

    It is drawn only inside `insecure_noise`.
    """
    return NoiseLaw("none", n_components, math.inf, math.inf, 0.0, "add-remove", 0.0, 0.0)


def laplace_law(
    l1_sensitivity: int, n_components: int, epsilon: float, neighbours: Neighbours
) -> NoiseLaw:
    """Return discrete Laplace noise: pure, calibrated to the L1 norm."""
    return NoiseLaw.pure("laplace", n_components, l1_sensitivity, epsilon, neighbours)


def gaussian_law(
    l2_squared: int,
    n_components: int,
    epsilon: float,
    delta: float,
    neighbours: Neighbours,
    *,
    rho: float | None = None,
) -> NoiseLaw:
    """Return discrete Gaussian noise: rho-zCDP, the largest rho that implies (epsilon, delta).

    A share of a budget is cut as a `rho`, from which its epsilon and delta follow; give that rho.
    """
    if rho is None:
        rho = rho_of_budget(epsilon, delta)
    elif log_delta_zcdp(rho, epsilon) > math.log(delta):
        raise ParameterError("rho", rho, f"it does not imply epsilon={epsilon!r}, delta={delta!r}")
    sensitivity = round_up_sqrt(l2_squared)
    scale = sensitivity / math.sqrt(2 * rho)
    if not scale < MAX_NOISE_SCALE:
        raise ParameterError("epsilon", epsilon, "too small for any noise")
    while Fraction(scale) ** 2 * 2 * Fraction(rho) < Fraction(sensitivity) ** 2:
        scale = math.nextafter(scale, math.inf)
    return NoiseLaw(
        "gaussian",
        n_components,
        sensitivity,
        epsilon,
        delta,
        neighbours,
        scale,
        scale**2,
        rho=rho,
        zcdp=rho,
    )


def cube_law(
    linf_sensitivity: int, n_components: int, epsilon: float, neighbours: Neighbours
) -> NoiseLaw:
    """Return cube noise: pure, calibrated to the largest component.

    The exact sampler ends quickly only if sensitivity >= n_components * epsilon; see
    `cube_factor`.
    """
    if linf_sensitivity < n_components * exact(epsilon):
        raise ParameterError("cube noise: multiply the sums by cube_factor first")
    size = n_components, linf_sensitivity, epsilon
    return NoiseLaw.pure("cube", *size, neighbours, variance=lambda _: cube_variance(*size))


def cube_factor(linf_sensitivity: int, n_components: int, epsilon: float) -> int:
    """Return a public factor of sums and sensitivity with which the cube sampler is quick."""
    return max(1, math.ceil(n_components * exact(epsilon) / linf_sensitivity))


_NOISE_NAMES = {
    "laplace": "discrete Laplace",
    "gaussian": "discrete Gaussian",
    "cube": "cube (K-norm)",
    "none": "no",
}
OPENDP_SAMPLER = "exact integer sampler of OpenDP, operating-system entropy"
OWN_SAMPLER = "exact integer sampler of privsketch, operating-system entropy"
_NORMS = {"laplace": "L1", "gaussian": "L2", "cube": "largest component", "none": ""}

Sampler = Callable[[Integers, NoiseLaw], tuple[Integers, float]]


REPLACED = f"{INSECURE}: replaced for a test"
# Samplers that a receipt may name; older files have the third one for both of the first two.
_OLD_SAMPLER = "exact integer sampler, operating-system entropy"
SAMPLERS = (OPENDP_SAMPLER, OWN_SAMPLER, _OLD_SAMPLER, REPLACED)


def add_noise(values: Integers, law: NoiseLaw, *, source: str | None) -> tuple[Integers, Receipt]:
    """Add noise to exact integers; return the noisy integers and their receipt.

    `values` are (n_components,), or (n, n_components) when every row belongs to another
    record. A neighbouring table then changes one row, and all rows cost what one does.

    Charges: epsilon and delta of the law, once.
    """
    right_shape = values.ndim in (1, 2) and values.shape[-1] == law.n_components
    if not right_shape or values.dtype != np.int64:
        raise ParameterError(f"noise: expected {law.n_components} 64-bit integers")
    return _drawn(values, law, source)


def choose(values: Integers, law: NoiseLaw, *, source: str | None) -> tuple[Integers, Receipt]:
    """Draw from a law that chooses (noise/choice.py); return the choice and its receipt.

    Charges: epsilon of the law, once.
    """
    if law.kind not in CHOICE_KINDS or values.dtype != np.int64:
        raise ParameterError(f"law of kind {law.kind!r}: expected one that chooses, and integers")
    return _drawn(values, law, source)


def _drawn(values: Integers, law: NoiseLaw, source: str | None) -> tuple[Integers, Receipt]:
    """Notify watchers, draw from the sampler, and return the result with its receipt."""
    _require_usable(law)
    sampler = _sampler.get()
    _reserve()
    for watcher in _watchers.get():
        watcher()
    result, scale = sampler(values, law)
    return result, law.receipt(scale, source, _sampler_name(values, law))


LEDGER = "PRIVSKETCH_LEDGER"  # names the ledger file in which every release must be entered
_reserving: ContextVar[Callable[[], None] | None] = ContextVar("privsketch_entered", default=None)


def entered_noise(reserve: Callable[[], None] | None) -> AbstractContextManager[None]:
    """Attribute noise inside the block to one ledger entry, or to none (ledger/entry.py).

    `reserve` is called each time before noise is drawn, and returns once its cost is on disk.
    """
    return variable_set(_reserving, reserve)


def _reserve() -> None:
    """Reserve the entry; without one, noise is refused where the environment names a ledger."""
    reserve = _reserving.get()
    if reserve is not None:
        reserve()
    elif os.environ.get(LEDGER):
        raise BudgetError(
            f"{LEDGER} is set, and this release has no entry in a ledger; nothing was spent"
        )


def _require_usable(law: NoiseLaw) -> None:
    """Refuse a law without noise, or with noise that does not fit 64-bit integers."""
    if law.kind == "none":
        _require_consent()
        return
    if not (law.scale > 0 and math.isfinite(law.scale)):
        raise ParameterError(f"noise scale {law.scale!r}: must be positive and finite")
    if law.reach >= HEADROOM:
        raise ParameterError(
            "epsilon",
            law.epsilon,
            f"its noise, of scale {law.scale:.3g}, does not fit 64-bit integers",
            "use a larger epsilon",
        )


_consent: ContextVar[bool] = ContextVar("privsketch_insecure_noise", default=False)


def insecure_noise() -> AbstractContextManager[None]:
    """Allow the law without noise inside a with block, whose caller has asked for it.

    `sketching.build` enters it, for `insecure=True`, and nothing else does.
    """
    return variable_set(_consent, True)


def _require_consent() -> None:
    """Refuse to leave the noise out unless the caller asked for it and no ledger is there."""
    if not _consent.get():
        raise BudgetError(
            f"{INSECURE}: a law without noise, which only the caller of `sketch` can ask for; "
            "nothing was released"
        )
    if os.environ.get(LEDGER) or _reserving.get() is not None:
        raise BudgetError(
            f"{INSECURE}: a release without noise has no cost that a ledger could enter; nothing "
            "was released"
        )


def _is_bulk(values: Integers, law: NoiseLaw) -> bool:
    """Return whether noise is drawn in arrays (noise/samplers.py)."""
    is_long = len(values) >= MIN_BULK_VALUES and law.kind in ("laplace", "gaussian")
    return values.ndim == 2 or is_long


def is_replaced() -> bool:
    """Return whether noise is replaced for a test, in this context."""
    return _sampler.get() is not _exact_sampler


def _sampler_name(values: Integers, law: NoiseLaw) -> str:
    """Return the name of the sampler for a law, as receipts state it."""
    if law.kind == "none":
        return NO_NOISE
    if is_replaced():
        return REPLACED
    if law.kind == "choice":
        return OPENDP_SAMPLER
    if law.wraps:
        return OWN_SAMPLER
    return (
        OPENDP_SAMPLER
        if law.kind in ("laplace", "gaussian") and not _is_bulk(values, law)
        else OWN_SAMPLER
    )


def _exact_sampler(values: Integers, law: NoiseLaw) -> tuple[Integers, float]:
    if law.kind == "none":
        return values.copy(), 0.0
    if law.kind in CHOICE_KINDS:
        from privsketch.noise.choice import draw_choice

        return draw_choice(values, law)
    if law.wraps:
        return _wrapping_sampler(values, law)
    if _is_bulk(values, law):
        return _bulk_sampler(values, law)
    if law.kind == "laplace":
        return add_discrete_laplace(values, law.scale, int(law.sensitivity), law.inner)
    if law.kind == "gaussian":
        return add_discrete_gaussian(values, law.scale, law.sensitivity, law.rho)
    if law.kind != "cube":
        raise ParameterError(f"noise of the kind {law.kind!r} has no sampler")
    noise = draw_cube(law.n_components, int(law.sensitivity), law.inner)
    # Saturate like OpenDP does: a wrapped sum would put neighbours at opposite ends.
    noisy = [
        min(max(int(value) + step, INT64_MIN), INT64_MAX)
        for value, step in zip(values, noise, strict=True)
    ]
    return np.array(noisy, dtype=np.int64), law.scale


def _wrapping_sampler(values: Integers, law: NoiseLaw) -> tuple[Integers, float]:
    """Add noise to one vector modulo 2^64 throughout; OpenDP's would saturate."""
    if values.ndim != 1:
        raise ParameterError("noise", law.kind, "noise that wraps is for one vector")
    if law.kind == "cube":
        drawn = draw_cube(law.n_components, int(law.sensitivity), law.inner)
        noise = np.array([step % 2**64 for step in drawn], dtype=np.uint64).view(np.int64)
    else:
        noise = _certified_noise(values.size, law)
    return values + noise, law.scale


def _bulk_sampler(values: Integers, law: NoiseLaw) -> tuple[Integers, float]:
    """Add noise to rows and long vectors."""
    noise = _certified_noise(values.size, law).reshape(values.shape)
    return saturating_add(values, noise), law.scale


def saturating_add(a: Integers, b: Integers) -> Integers:
    """Add, saturating at the ends of int64: a wrapped sum would tell neighbours apart."""
    with np.errstate(over="ignore"):
        total = a + b
    overflowed = ((a ^ total) & (b ^ total)) < 0  # both terms have the other sign
    if not overflowed.any():
        return total
    return np.where(overflowed, np.where(a < 0, INT64_MIN, INT64_MAX), total)


def _certified_noise(count: int, law: NoiseLaw) -> Integers:
    """Draw noise in arrays, and certify its scale as OpenDP does elsewhere."""
    scale, sensitivity = Fraction(law.scale), Fraction(law.sensitivity)
    if law.kind == "laplace" and sensitivity <= scale * exact(law.inner):
        return discrete_laplace(count, law.scale)
    if law.kind == "gaussian" and sensitivity**2 <= 2 * Fraction(law.rho) * scale**2:
        return discrete_gaussian(count, law.scale)
    raise ParameterError("noise", law.kind, "not calibrated for rows")


_sampler: ContextVar[Sampler] = ContextVar("privsketch_noise_sampler", default=_exact_sampler)


def _insecure_sampler(sampler: Sampler) -> AbstractContextManager[None]:
    """Record, replay or replace noise inside a with block. For tests and audits only.

    Releases made inside are marked INSECURE in their receipts.
    """
    return variable_set(_sampler, sampler)


_watchers: ContextVar[tuple[Callable[[], None], ...]] = ContextVar("privsketch_watch", default=())


def watch_noise(watcher: Callable[[], None]) -> AbstractContextManager[None]:
    """Call `watcher` each time before noise is drawn inside a with block.

    It sees neither values nor noise; it serves to know when a budget begins to be spent.
    """
    return variable_set(_watchers, (*_watchers.get(), watcher))
