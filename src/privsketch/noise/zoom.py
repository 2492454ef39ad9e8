"""Two noisy counts of disjoint cells, of which the heavy ones are divided and counted again.

With noise of scale t for epsilon = 1 / t, a cell of c records has

    y = c + Z, Z discrete Laplace of scale t,      y1 = y + E,

where E is such that y1 - c is discrete Laplace of scale 2 t. All y1 are released, and they alone
determine which cells are heavy. For a light cell, y is released too. For a heavy cell y stays
secret, and its parts may be counted with noise of scale 2 t.

It costs epsilon for each record that enters or leaves a cell (docs/theory.md). For a light cell,
(y, y1) costs what y does, since y1 given y depends on noise alone. For a heavy cell, y1 costs
epsilon / 2, and the parts, of which a record is in one, the other half. Which case applies is a
function of what was released.

The law of E. Discrete Laplace noise of parameter q = exp(-1 / scale) has the generating function
G_q(z) = (1 - q)^2 / ((1 - q z)(1 - q / z)). With b = exp(-1 / (2 t)), a = b^2 and
p = b / (1 + b)^2, G_b / G_a = p + (1 - p) G_b: E is 0 with probability p, and discrete Laplace of
scale 2 t otherwise. Since p is the probability that such a number is positive and odd, the coin is
a further draw of the same noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from privsketch._base.errors import ParameterError
from privsketch._base.types import Bits, Integers
from privsketch.facts.budget import Neighbours, exact
from privsketch.noise.mechanism import NoiseLaw
from privsketch.noise.samplers import discrete_laplace


def _no_cell(y1: Integers) -> Bits:
    return np.zeros(len(y1), dtype=np.bool_)


@dataclass(frozen=True)
class ZoomLaw(NoiseLaw):
    """Two noisy counts for `n_components` cells; `is_heavy` selects the heavy cells.

    `is_heavy` is a public function of all y1 alone. `variance` is that of y.
    """

    is_heavy: Callable[[Integers], Bits] = _no_cell

    @property
    def reach(self) -> float:
        """Magnitude that the draws for y1 hardly exceed together: 50 (1 + 2 + 2) scales."""
        return 250 * self.scale

    def words(self) -> tuple[str, str, str]:
        """Return the mechanism, the norm and the calibration for receipts."""
        return (
            f"discrete Laplace noise on {self.n_components} cells, and on parts of those that are "
            "heavy",
            "L1",
            "scale = sensitivity / epsilon; twice that for heavy cells, and again for their parts",
        )


def zoom_law(
    l1_sensitivity: int,
    n_cells: int,
    epsilon: float,
    neighbours: Neighbours,
    is_heavy: Callable[[Integers], Bits],
) -> ZoomLaw:
    """Return the law of two noisy counts, for cells that a unit moves by `l1_sensitivity`."""
    return ZoomLaw.pure("zoom", n_cells, l1_sensitivity, epsilon, neighbours, is_heavy=is_heavy)


def draw_zoom(counts: Integers, law: ZoomLaw) -> Integers:
    """Return (2, n) integers: all y1; then y of light cells, and y1 again of heavy ones."""
    if counts.shape != (law.n_components,):
        raise ParameterError(f"counts: expected {law.n_components} counts")
    if Fraction(law.sensitivity) > Fraction(law.scale) * exact(law.epsilon):
        raise ParameterError("zoom: noise not calibrated to its epsilon")
    noise = discrete_laplace(len(counts), law.scale)
    # Doubling a float is exact: the two scales must have exactly this ratio.
    coin, further = (discrete_laplace(len(counts), 2 * law.scale) for _ in range(2))
    is_zero = (coin > 0) & (coin % 2 == 1)
    y = counts + noise
    y1 = y + np.where(is_zero, 0, further)
    return np.stack([y1, np.where(law.is_heavy(y1), y1, y)])
