"""What the law "mixed" of frequencies means for plans and forecasts (features/mixed.py).

A cluster of a records has the moment a G(w) prod_c C_c at a frequency w. G is the characteristic
function of its numbers, and C_c = sum_l p_cl exp(i phase_cl) for each labelled column c that the
feature reads. Phases are uniform and independent, so C_c has the mean square e_c = sum_l p_cl^2.
This gives, per feature and with noise of variance v per real component,

- about the numbers the information of design/size.py times the mean energy of the label factors;
- about the shares of column c, along each of L_c - 1 orthonormal directions in which they can
  change, a^2 |G|^2 prod_others e / v if the feature reads the column. Where frequencies of the
  numbers are low, clusters look alike, and only |G|^2 less that of all records together counts.

A share is `side` / sqrt 2 of a coordinate: the squared error of a center sums that of its numbers
and side^2 / 2 times that of its shares. A record's own squared distance is (side^2 / 2) (1 - e_c)
in column c. Shares are those of a plausible table: uniform on the simplex, for which e_c has the
mean 2 / (L_c + 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from privsketch._base.types import Bits, Floats
from privsketch.design.size import center_error
from privsketch.facts.domain import Box, Domain
from privsketch.features.mixed import Columns, losses, number_mask, sampled_reading
from privsketch.features.radii import RadialLaw

CYCLE_UNKNOWNS = 8  # the harmonics up to the fourth


@dataclass(frozen=True)
class LabelColumn:
    """A column of labels, or a cycle.

    Attributes
    ----------
    n_free : int
        Number of free shares of a cluster.
    energy : float
        Plausible mean square of a cluster's factor.
    square : float
        Half of the squared distance of two labels: what errors of shares cost.
    """

    n_free: int
    energy: float
    square: float


@dataclass(frozen=True, eq=False)
class MixedSpace:
    """The numbers of a table as a domain, and its other columns."""

    numbers: Box | None
    others: tuple[LabelColumn, ...]
    read: Bits  # (n_frequencies, n_others), which columns frequencies read

    @property
    def n_numbers(self) -> int:
        """Number of number columns."""
        return 0 if self.numbers is None else len(self.numbers.half_widths)

    @property
    def n_free_shares(self) -> int:
        """Number of free shares of a cluster, in all columns."""
        return sum(column.n_free for column in self.others)

    def energy(self, *, squared: bool = False) -> float:
        """Return the mean over features of the label factors' energy, or of its square."""
        return float(np.mean(self._energies() ** (2 if squared else 1)))

    def energy_beside(self, index: int) -> float:
        """Return the mean energy of the columns beside one, 0 for features that do not read it."""
        energies = self._energies() / self.others[index].energy
        return float(np.mean(np.where(self.read[:, index], energies, 0.0)))

    def _energies(self) -> Floats:
        """Return the energy of a cluster's labels in each feature, (n_frequencies,)."""
        energies = np.array([column.energy for column in self.others])
        return np.asarray(np.where(self.read, energies, 1.0).prod(axis=1))


@lru_cache(maxsize=16)
def mixed_space(domain: Domain, columns: Columns | None) -> MixedSpace | None:
    """Return the numbers and other columns of records in a box; None for other laws."""
    if columns is None:
        return None
    half, center, is_number = domain.half_widths, domain.center_vector, number_mask(columns)
    numbers = None
    if is_number.any():
        middle, width = center[is_number], half[is_number]
        numbers = Box(low=middle - width, high=middle + width)
    others, first, loss = [], 0, iter(losses(columns))
    for kind, size in columns:
        square = 4 * float(half[first]) ** 2
        first += size
        if kind == "cycle":  # a radius instead of a side
            others.append(LabelColumn(CYCLE_UNKNOWNS, 1 / next(loss), square / 4))
        elif kind == "labels":  # corners of a simplex, or the two ends of a line
            is_line = size == 1
            square = square / 2 if is_line else square
            others.append(LabelColumn(max(size - 1, 1), 1 / next(loss), square))
    return MixedSpace(numbers, tuple(others), sampled_reading(columns))


def mixed_error(
    space: MixedSpace,
    *,
    n_components: int,
    n_records: float,
    n_features: int,
    variance: float,
    n_unknowns: int,
    radii: RadialLaw,
    width: float,
    spread: float,
) -> float:
    """Return the expected squared error of a center over that of a record, as `center_error` does.

    `width` and `spread` are those of the numbers of a cluster and of the centers.
    """
    dim, cluster = space.n_numbers, n_records / n_components
    squares, resolved = [c.square * (1 - c.energy) for c in space.others], 1.0
    spare = 1 - n_unknowns / (2 * n_features)
    within, error = math.fsum(squares), 0.0
    if dim > 0:
        shift = center_error(
            n_components=n_components,
            dim=dim,
            n_records=n_records,
            n_features=n_features,
            variance=variance / space.energy(),
            n_unknowns=n_unknowns,
            band=radii.band_share(width),
            squared_band=radii.squared_band_share(width),
        )
        error += shift * dim * width**2
        within += dim * width**2
        resolved = radii.energy_share(width) - radii.energy_share(math.hypot(width, spread))
    if spare <= 0 or resolved <= 0:
        return math.inf
    for index, column in enumerate(space.others):
        information = cluster**2 * n_features * resolved * space.energy_beside(index) / variance
        error += column.square * column.n_free / (information * spare)
    return error / within
