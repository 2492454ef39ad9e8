"""Feature maps by name, with sensitivities read off their tables.

A map is a table of 65,536 pairs of integers indexed by the phase. A record adds one
pair per feature, so whatever the records and the frequencies, its contribution is
bounded by the largest pair: no assumption about the data, no rounding argument.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from privsketch.budget import Neighbours
from privsketch.errors import ParameterError
from privsketch.features.fourier import AMPLITUDE, fourier_table
from privsketch.features.onebit import FIRST_HARMONIC, onebit_table


@dataclass(frozen=True)
class PairBounds:
    """The largest pair of a table in three norms: exhaustive over all 65,536 phases."""

    l1: int  # max |c| + |s|
    l2_squared: int  # max c^2 + s^2
    linf: int  # max |c|, |s|


@dataclass(frozen=True)
class FeatureMap:
    """One way to turn a phase into a pair of integers.

    `amplitude` is what the integers mean: a sum divided by it estimates the sum over
    records of exp(i (phase + offset)). `dithered` maps add a public random offset to
    each phase.
    """

    name: str
    build_table: Callable[[], npt.NDArray[np.int32]]
    amplitude: float
    dithered: bool

    @property
    def table(self) -> npt.NDArray[np.int32]:
        """The (65536, 2) integer table."""
        return self.build_table()

    @property
    def bounds(self) -> PairBounds:
        """Largest pair of the table in the norms that noise is calibrated to."""
        return _pair_bounds(self)


@cache
def _pair_bounds(feature_map: FeatureMap) -> PairBounds:
    pairs = feature_map.table.astype(np.int64)
    return PairBounds(
        l1=int(np.abs(pairs).sum(axis=1).max()),
        l2_squared=int(np.square(pairs).sum(axis=1).max()),
        linf=int(np.abs(pairs).max()),
    )


@dataclass(frozen=True)
class Sensitivity:
    """How far one record can move the integer sums of all features."""

    l1: int
    l2_squared: int
    linf: int


def sensitivity(bounds: PairBounds, n_features: int, neighbours: Neighbours) -> Sensitivity:
    """Integer sensitivities of the sums of `n_features` pairs (docs/theory.md; CLP Table 1).

    Replacing a record can move every feature to its opposite: twice the bound.
    """
    factor = 1 if neighbours == "add-remove" else 2
    return Sensitivity(
        l1=factor * n_features * bounds.l1,
        l2_squared=factor**2 * n_features * bounds.l2_squared,
        linf=factor * bounds.linf,
    )


FEATURE_MAPS: dict[str, FeatureMap] = {
    "fourier": FeatureMap("fourier", fourier_table, float(AMPLITUDE), dithered=False),
    "one-bit": FeatureMap("one-bit", onebit_table, FIRST_HARMONIC, dithered=True),
}


def feature_map(name: str) -> FeatureMap:
    """The map of that name."""
    if name not in FEATURE_MAPS:
        known = ", ".join(repr(known) for known in FEATURE_MAPS)
        raise ParameterError(f"feature_map={name!r}: expected one of {known}")
    return FEATURE_MAPS[name]
