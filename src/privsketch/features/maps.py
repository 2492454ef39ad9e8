"""Feature maps by name.

Fourier and one-bit maps are tables of 65,536 pairs of integers indexed by the phase. A
record adds one pair per feature, so whatever the records and the frequencies, its
contribution is bounded by the largest pair: no assumption about the data, no rounding
argument. Quadratic features and second moments have no table; their bounds need the ball
the records are clipped to (features/contribution.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from privsketch.errors import ParameterError
from privsketch.features.fourier import AMPLITUDE, fourier_table
from privsketch.features.frequencies import FOURIER_LAWS, NO_LAW
from privsketch.features.onebit import FIRST_HARMONIC, onebit_table
from privsketch.features.quadratic import QUADRATIC_LAWS


@dataclass(frozen=True)
class PairBounds:
    """The largest pair of a table in three norms: exhaustive over all 65,536 phases."""

    l1: int  # max |c| + |s|
    l2_squared: int  # max c^2 + s^2
    linf: int  # max |c|, |s|


@dataclass(frozen=True)
class FeatureMap:
    """One way to turn a record into integers.

    `amplitude` is what the integers of a table mean: a sum divided by it estimates the sum
    over records of exp(i (phase + offset)). `dithered` maps add a public random offset to
    each phase. `laws` are the laws of frequencies that go with the map, the default first.
    """

    name: str
    build_table: Callable[[], npt.NDArray[np.int32]] | None
    amplitude: float
    dithered: bool
    laws: tuple[str, ...]

    @property
    def has_table(self) -> bool:
        """Whether features are pairs from a table."""
        return self.build_table is not None

    @property
    def table(self) -> npt.NDArray[np.int32]:
        """The (65536, 2) integer table."""
        if self.build_table is None:
            raise ParameterError(f"feature_map={self.name!r} has no table")
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


FEATURE_MAPS: dict[str, FeatureMap] = {
    "fourier": FeatureMap("fourier", fourier_table, float(AMPLITUDE), False, FOURIER_LAWS),
    "one-bit": FeatureMap("one-bit", onebit_table, FIRST_HARMONIC, True, FOURIER_LAWS),
    "quadratic": FeatureMap("quadratic", None, 1.0, False, QUADRATIC_LAWS),
    "second-moments": FeatureMap("second-moments", None, 1.0, False, (NO_LAW,)),
}


def feature_map(name: str) -> FeatureMap:
    """The map of that name."""
    if name not in FEATURE_MAPS:
        known = ", ".join(repr(known) for known in FEATURE_MAPS)
        raise ParameterError(f"feature_map={name!r}: expected one of {known}")
    return FEATURE_MAPS[name]
