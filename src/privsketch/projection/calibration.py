"""Noise of a released record from budget and matrix: the calibrations A and B.

A, "realised": the release is private for every matrix P by itself, with the sensitivity of this P.
The matrix may be public, and used again. Laplace noise spends no delta.
B, "fresh": nobody knew the matrix, and the pair (P, Z) is private on average over P, see
noise/fresh.py. It has less noise from about ten components on, for one release only.

"auto" fixes at most one calibration that spends delta, from public numbers and before the matrix is
drawn. Afterwards only A with Laplace noise, which spends none, may replace it. The least noise of A
and B at the drawn matrix would spend up to twice the delta (docs/projection.md).

"union" and "paper" are for comparison: the corrected union bound of JLL Theorem 5, and the printed
scales of Theorems 3 and 5, charged with their actual delta.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from privsketch._base.errors import ParameterError, require_gaussian_delta, require_one_of
from privsketch.facts.budget import Budget, number_text, round_up
from privsketch.noise.calibration import kappa_discrete
from privsketch.noise.fresh import (
    fresh_gaussian,
    fresh_laplace,
    fresh_laplace_scale,
    half_normal_tail,
)
from privsketch.noise.mechanism import NoiseLaw, gaussian_law, laplace_law
from privsketch.projection.matrix import ENTRY_ERROR, ENTRY_FAILURE, MATRIX_UNIT, Change, Matrix

CALIBRATIONS = ("auto", "realised", "fresh", "union", "paper")
ROW_NOISES = ("auto", "laplace", "gaussian")
_SCALE_BITS = 36  # one random word is enough for noise of a scale below 2^36


@dataclass(frozen=True)
class RowNoise:
    """Noise of the projections of one record, on integers divided by 2^shift."""

    law: NoiseLaw
    shift: int
    calibration: str
    text: str

    @property
    def std(self) -> float:
        """Standard deviation in integers before the shift."""
        return math.sqrt(self.law.variance) * 2.0**self.shift

    @property
    def fourth_moment(self) -> float:
        """Fourth moment of one number of noise, in the integers that noise is added to."""
        if self.law.kind == "gaussian":
            return 3 * self.law.variance**2
        q = math.exp(-1 / self.law.scale)
        return 2 * q * (1 + 10 * q + q * q) / math.expm1(-1 / self.law.scale) ** 4


def realised_laplace(change: Change, matrix: Matrix, budget: Budget) -> RowNoise:
    """Return pure noise (A), calibrated to this matrix."""
    l1, k = change.l1(matrix), matrix.n_components
    shift = _shift(l1 / budget.epsilon)
    law = laplace_law(_shifted_l1(l1, shift, k), k, budget.epsilon, "replace")
    return RowNoise(law, shift, "realised", _THIS_MATRIX)


def realised_gaussian(change: Change, matrix: Matrix, budget: Budget) -> RowNoise:
    """Return (epsilon, delta) noise (A), calibrated to this matrix."""
    k = matrix.n_components
    square = change.l2_squared(matrix)
    law = gaussian_law(square, k, budget.epsilon, budget.delta, "replace")
    shift = _shift(law.scale)
    if shift:
        # Dividing and rounding down moves each component by less than one.
        length = math.sqrt(square) * (1 + 1e-12) / 2.0**shift + math.sqrt(k)
        law = gaussian_law(
            math.ceil(length * length * (1 + 1e-12)), k, budget.epsilon, budget.delta, "replace"
        )
    return RowNoise(law, shift, "realised", _THIS_MATRIX)


@dataclass(frozen=True)
class _Fresh:
    """Facts for a calibration to fresh matrices, known before one is drawn."""

    change: Change
    dim: int
    n_components: int
    budget: Budget

    @property
    def length(self) -> float:
        """|v| in the units of the integer matrix."""
        return self.change.radius * MATRIX_UNIT

    @property
    def delta(self) -> float:
        """Delta less the probability that an entry of the matrix is not accurate."""
        remainder = self.budget.delta - self.dim * self.n_components * ENTRY_FAILURE
        if not remainder > 0.5 * self.budget.delta:
            raise ParameterError(
                f"`delta={self.budget.delta:g}` with `calibration='fresh'`: too small for the "
                "accuracy of the matrix; use `calibration='realised'`"
            )
        return remainder

    def l1_rounding(self, shift: int) -> float:
        """Return the increase of the L1 norm of v P by rounding, in units of |v|."""
        entries = ENTRY_ERROR * self.n_components * math.sqrt(self.change.spread) / MATRIX_UNIT
        return entries + self.n_components * _step(shift) / self.length

    def l2_rounding(self, shift: int) -> float:
        """Return the increase of the L2 norm of v P by rounding, in units of |v|."""
        entries = ENTRY_ERROR * math.sqrt(self.change.spread * self.n_components) / MATRIX_UNIT
        return entries + math.sqrt(self.n_components) * _step(shift) / self.length

    def laplace(self, bound: float, calibration: str, text: str) -> RowNoise:
        """Return Laplace noise that hides shifts v P of L1 norm up to bound |v|."""
        shift = _shift(bound * self.length / self.budget.epsilon)
        return self._laplace(bound + self.l1_rounding(shift), shift, calibration, text)

    def laplace_by_moments(self) -> RowNoise:
        """Return Laplace noise (B), by Renyi divergences of all components."""
        epsilon, k = self.budget.epsilon, self.n_components
        shift = _shift(fresh_laplace_scale(k, epsilon, self.delta) * self.length)
        rounding, step = self.l1_rounding(shift) / k, 2.0**shift / self.length
        scale = fresh_laplace_scale(k, epsilon, self.delta, rounding, step)
        return self._laplace(scale * epsilon, shift, "fresh", _ONE_RELEASE)

    def _laplace(self, bound: float, shift: int, calibration: str, text: str) -> RowNoise:
        """Return noise of scale bound |v| / epsilon, all rounding included."""
        epsilon = self.budget.epsilon
        l1 = math.ceil(bound * self.length / 2.0**shift * (1 + 1e-12))
        law = laplace_law(l1, self.n_components, epsilon, "replace")
        law = law.charged(epsilon, self.budget.delta, "replace")
        return RowNoise(law, shift, calibration, text)

    def gaussian(self) -> RowNoise:
        """Return discrete Gaussian noise (B)."""
        budget, k = self.budget, self.n_components
        shift = _shift(fresh_gaussian(k, budget.epsilon, self.delta) * self.length)
        relative = fresh_gaussian(k, budget.epsilon, self.delta, self.l2_rounding(shift))
        scale = relative * self.length / 2.0**shift * (1 + 1e-12)
        length = self.length / 2.0**shift
        law = NoiseLaw(
            "gaussian",
            k,
            length,  # before the projection, which stretches it by a random factor around 1
            budget.epsilon,
            budget.delta,
            "replace",
            scale,
            scale**2,
            rho=length**2 / (2 * scale**2) * (1 + 1e-11),
        )
        return RowNoise(law, shift, "fresh", _ONE_RELEASE)


_THIS_MATRIX = "holds for the matrix that was drawn, however often it is used and whoever knows it"
_ONE_RELEASE = "mean over fresh matrices, for one release"


def fixed_before(
    change: Change, dim: int, n_components: int, budget: Budget, noise: str, calibration: str
) -> RowNoise:
    """Return the noise for a fresh matrix, fixed before it is drawn."""
    fresh = _Fresh(change, dim, n_components, budget)
    k = n_components
    if calibration == "union":
        # JLL Theorem 5 with the delta that its bound leaves out.
        bound = math.sqrt(2 * k * math.log(2 * k / fresh.delta)) * (1 + 1e-12)
        return fresh.laplace(bound, "union", f"union over components; {_ONE_RELEASE}")
    options = []
    if noise in ("auto", "laplace"):
        bound = fresh_laplace(k, fresh.delta, budget.epsilon)
        options.append(fresh.laplace(bound, "fresh", _ONE_RELEASE))
        options.append(fresh.laplace_by_moments())
    if noise in ("auto", "gaussian"):
        options.append(fresh.gaussian())
    return min(options, key=lambda option: option.std)


def is_fresh(dim: int, n_components: int, budget: Budget, noise: str, calibration: str) -> bool:
    """Return whether to use the noise of a fresh matrix, from public numbers alone.

    "auto" uses one matrix for one release, unless delta is too small for its accuracy, or Gaussian
    noise is requested and smaller at the drawn matrix.
    """
    if calibration != "auto":
        return calibration in ("fresh", "union")
    if budget.delta <= 2 * dim * n_components * ENTRY_FAILURE:
        return False
    if noise != "gaussian":
        return True
    # The largest singular value of a Gaussian matrix is about 1 + sqrt(dim / k).
    drawn = kappa_discrete(budget.epsilon, budget.delta) * (1 + math.sqrt(dim / n_components))
    return fresh_gaussian(n_components, budget.epsilon, budget.delta) < drawn


def paper_noise(change: Change, matrix: Matrix, budget: Budget, protect: str) -> RowNoise:
    """Return the printed scales: c = 2 sqrt k (Theorem 3), k sqrt(2 ln(2 k) / k) (Theorem 5).

    The charge is their actual cost: for a fresh matrix the probability that v P is longer than c,
    for a public one the epsilon of this matrix.
    """
    k = matrix.n_components
    theorem = 3 if protect == "element" else 5
    bound = 2 * math.sqrt(k) if theorem == 3 else math.sqrt(2 * k * math.log(2 * k))
    fresh = _Fresh(change, matrix.dim, k, budget)
    epsilon = budget.epsilon
    shift = _shift(bound * fresh.length / epsilon)
    l1 = math.ceil(bound * fresh.length / 2.0**shift)
    law = laplace_law(l1, k, epsilon, "replace")
    text = f"scale of JLL Theorem {theorem} as printed"
    if matrix.is_public:
        actual = _shifted_l1(change.l1(matrix), shift, k)
        spent = max(round_up(Fraction(actual) / Fraction(law.scale)), epsilon)
        law = replace(law, epsilon=spent, inner=spent, sensitivity=max(actual, l1))
        note = f"{text}; this matrix makes it epsilon = {number_text(spent)}"
        return RowNoise(law, shift, "paper", note)
    failure = half_normal_tail(k, math.sqrt(k) * (bound - fresh.l1_rounding(shift)))
    delta = failure * (1 + 1e-9) + matrix.dim * k * ENTRY_FAILURE
    law = law.charged(epsilon, delta, "replace")
    note = f"{text}; its delta is {delta:.3g}, not what the theorem says; {_ONE_RELEASE}"
    return RowNoise(law, shift, "paper", note)


def check_choices(budget: Budget, noise: str, calibration: str, is_public: bool) -> None:
    """Raise a ParameterError for combinations without a proof, before a matrix is drawn."""
    require_one_of("noise", noise, ROW_NOISES)
    require_one_of("calibration", calibration, CALIBRATIONS)
    if noise == "gaussian":
        require_gaussian_delta(budget.delta, "laplace")
    if calibration in ("fresh", "union"):
        if is_public:
            raise ParameterError(
                f"`calibration={calibration!r}` with `random_state`: its matrix must be unknown "
                "before the release; leave `random_state` out, or use `calibration='realised'`"
            )
        if budget.delta == 0:
            raise ParameterError(
                f"`calibration={calibration!r}` with delta=0: it needs delta > 0; use "
                "`calibration='realised'` for pure differential privacy"
            )
    if calibration in ("paper", "union") and noise == "gaussian":
        raise ParameterError("calibration", calibration, "the paper has `noise='laplace'` only")


def realised(change: Change, matrix: Matrix, budget: Budget, noise: str) -> RowNoise:
    """Return the smaller noise of A, both kinds of which are private at every single matrix."""
    if noise == "laplace" or budget.delta == 0:
        return realised_laplace(change, matrix, budget)
    gaussian = realised_gaussian(change, matrix, budget)
    if noise == "gaussian" or not _may_be_less(change, matrix, budget, gaussian):
        return gaussian
    return min(gaussian, realised_laplace(change, matrix, budget), key=lambda option: option.std)


def smaller_noise(
    fixed: RowNoise, change: Change, matrix: Matrix, budget: Budget, noise: str
) -> RowNoise:
    """Return the fixed noise of a fresh matrix, or pure noise at the drawn one if it is smaller.

    The charge stays that of the fixed noise: over all matrices the release spends its delta.
    """
    if noise == "gaussian" or not _may_be_less(change, matrix, budget, fixed):
        return fixed
    pure = realised_laplace(change, matrix, budget)
    if pure.std >= fixed.std:
        return fixed
    law = pure.law.charged(budget.epsilon, budget.delta, "replace")
    return replace(pure, law=law, text=f"{pure.text}; chosen by the matrix, so delta is charged")


def _may_be_less(change: Change, matrix: Matrix, budget: Budget, other: RowNoise) -> bool:
    """Return whether pure noise may be smaller than `other`, without computing exact bounds."""
    return change.l1_at_least(matrix) / budget.epsilon * math.sqrt(2) < other.std


def _shifted_l1(l1: int, shift: int, n_components: int) -> int:
    """Return a bound on the L1 norm after the shift, which moves each component by less than 1."""
    return -(-l1 >> shift) + (n_components if shift else 0)


def _shift(scale: float) -> int:
    return max(0, math.frexp(scale)[1] - _SCALE_BITS)


def _step(shift: int) -> float:
    return 2.0**shift if shift else 0.0
