"""Feature maps by name, and bounds on what one record contributes to the sums of a design.

Fourier and one-bit maps are tables of 65,536 pairs of integers indexed by the phase. A record adds
one pair per feature, so its contribution is bounded by the largest pair, for all records and
frequencies: no assumption about the data, no rounding argument. Other packages can register such
maps. Quadratic features and second moments have no table; their bounds follow from the vectors and
the radius of the ball that records are clipped to; those of taxicab moments, from the integers that
stand for columns. With cells, a record is in one of them.

`Contribution` is the base class of these bounds, in the norms that noise needs. Masks only
remove features, so a bound over masks is the largest over what can be kept (docs/theory.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, lru_cache

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import ParameterError
from privsketch._base.plugins import Plugin, find_plugin, plugin_names
from privsketch.facts.budget import Neighbours
from privsketch.facts.domain import Domain
from privsketch.features.cells import CellContribution
from privsketch.features.fixedpoint import TABLE_SIZE
from privsketch.features.frequencies import FOURIER_LAWS, NO_LAW, Frequencies
from privsketch.features.masks import Contribution, Masks
from privsketch.features.mixed import Columns
from privsketch.features.moments import DIAGONAL, MOMENT_UNIT, MomentContribution
from privsketch.features.quadratic import QUADRATIC_LAWS, QuadraticContribution, value_unit
from privsketch.features.taxicab import TaxicabContribution, taxicab_of
from privsketch.features.waves import AMPLITUDE, FIRST_HARMONIC, fourier_table, onebit_table

CLUSTERING = ("kmeans", "gaussian-mixture")  # tasks of maps that see densities
SUPERVISED = ("regression", "classification")  # tasks that predict a column


@dataclass(frozen=True)
class PairBounds:
    """Largest pair of a table in three norms, over all 65,536 phases."""

    l1: int  # max |c| + |s|
    l2_squared: int  # max c^2 + s^2
    linf: int  # max |c|, |s|


@dataclass(frozen=True)
class FeatureMap:
    """A map from records to integers.

    A sum of a table's integers, divided by `amplitude`, estimates the sum over records of
    exp(i (phase + offset)). `dithered` maps add a public random offset to each phase. `laws` are
    the laws of frequencies that the map supports, the default first. `tasks` are those that designs
    with the map may have. `origin` is the distribution, with its version, that registered the map;
    None for maps of this library.
    """

    name: str
    build_table: Callable[[], npt.NDArray[np.int32]] | None
    amplitude: float
    dithered: bool
    laws: tuple[str, ...]
    tasks: tuple[str, ...] = CLUSTERING
    origin: str | None = None

    @property
    def for_components(self) -> bool:
        """Whether sums are of squares and products, which see no clusters."""
        return not set(self.tasks) & set(CLUSTERING)

    @property
    def has_table(self) -> bool:
        """Whether features are pairs from a table."""
        return self.build_table is not None

    @property
    def table(self) -> npt.NDArray[np.int32]:
        """The (65536, 2) integer table."""
        if self.build_table is None:
            raise ParameterError(f"`feature_map={self.name!r}` has no table")
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
    "cells": FeatureMap("cells", None, 1.0, False, (NO_LAW,)),
    "quadratic": FeatureMap("quadratic", None, 1.0, False, QUADRATIC_LAWS, ("pca",)),
    "second-moments": FeatureMap(
        "second-moments", None, 1.0, False, (NO_LAW,), ("pca", *SUPERVISED)
    ),
    "taxicab": FeatureMap("taxicab", None, 1.0, False, (NO_LAW,), SUPERVISED),
}


# Entries of a table stay below this: sums of 2^36 records are then below 2^62 (noise/sums.py).
TABLE_LIMIT = 2**26


def feature_map(name: str) -> FeatureMap:
    """Return the feature map of a name: one of this library, or of an installed package.

    Other packages register maps in the entry-point group `privsketch.feature_maps`.

    Raises
    ------
    ParameterError
        If no installed package registers the name, or what it registers is not such a map.
    """
    return FEATURE_MAPS[name] if name in FEATURE_MAPS else _registered_map(name)


@cache
def _registered_map(name: str) -> FeatureMap:
    """Import a registered map, check its shape and take a copy of its table.

    Bounds and sums come from that one copy, so no later change of the table can part them.
    """
    plugin = find_plugin("feature_maps", name)
    if plugin is None:
        names = ", ".join(map(repr, [*FEATURE_MAPS, *plugin_names("feature_maps")]))
        raise ParameterError(
            "feature_map",
            name,
            f"expected one of {names}",
            "install the package that registers this map, if there is one",
        )
    part = _checked_part(plugin)
    table = np.array(part.table)
    if table.shape != (TABLE_SIZE, 2) or table.dtype != np.int32:
        raise _wrong_map(plugin, f"its table must be an array ({TABLE_SIZE}, 2) of int32")
    if not 0 < int(np.abs(table.astype(np.int64)).max()) < TABLE_LIMIT:
        raise _wrong_map(plugin, f"entries of its table must be below {TABLE_LIMIT}, and not all 0")
    table.flags.writeable = False
    return replace(part, build_table=lambda: table, origin=plugin.origin)


def _checked_part(plugin: Plugin) -> FeatureMap:
    """Return the object of a plugin if it is a feature map with a table; raise otherwise."""
    part = plugin.part
    # A subclass could state bounds of its own; privacy rests on those of the table.
    if type(part) is not FeatureMap:
        raise _wrong_map(plugin, f"expected a FeatureMap, got {type(part).__name__}")
    if part.name != plugin.name:
        raise _wrong_map(plugin, f"the map is named {part.name!r}")
    if not part.has_table or part.tasks != CLUSTERING:
        raise _wrong_map(plugin, "only maps with a table, for clusters and mixtures, are supported")
    laws = part.laws
    if not isinstance(laws, tuple) or not laws or not set(laws) <= set(FOURIER_LAWS):
        raise _wrong_map(plugin, f"laws must be a tuple of {', '.join(map(repr, FOURIER_LAWS))}")
    is_number = isinstance(part.amplitude, float | int)
    if not is_number or not 0 < part.amplitude < np.inf or type(part.dithered) is not bool:
        raise _wrong_map(plugin, "amplitude must be a positive number, and dithered a bool")
    return part


def _wrong_map(plugin: Plugin, problem: str) -> ParameterError:
    return ParameterError(
        f"`feature_map={plugin.name!r}`, registered by {plugin.origin}: {problem}"
    )


HARMONIC_TOLERANCE = 1e-3  # of the first harmonic; those of the Fourier table are below 2.1e-5


@cache
def require_known_harmonics(feature_map: FeatureMap) -> None:
    """Refuse a table whose harmonics planners and learners would misjudge.

    Learners read the first harmonic. They take the others of a dithered map for noise, as large
    as that of signs, whose odd order h has the amplitude 1 / h (features/waves.py). Smaller
    harmonics only make them cautious. A map without dither must have none.
    """
    cosine, sine = feature_map.table.astype(np.float64).T
    waves = np.fft.fft(cosine + 1j * sine) / (TABLE_SIZE * feature_map.amplitude)
    is_first = abs(waves[1] - 1) <= HARMONIC_TOLERANCE
    waves[1] = 0.0
    orders = np.arange(TABLE_SIZE // 2)
    sizes = np.hypot(np.abs(waves[orders]), np.abs(waves[-orders]))
    allowed = np.full(len(orders), HARMONIC_TOLERANCE)
    if feature_map.dithered:
        allowed[3::2] += 1 / orders[3::2]
    if not is_first or bool((sizes > allowed).any()):
        raise ParameterError(
            f"`feature_map={feature_map.name!r}`: learners need a table whose first harmonic is "
            "the amplitude of the map; a dithered one may have odd harmonics of order h up to "
            "1 / h of that, one without dither none"
        )


class TableContribution(Contribution):
    """Contribution of features that are pairs from a table: a cosine and a sine for each."""

    maskable = True

    def __init__(self, bounds: PairBounds, n_features: int, dim: int) -> None:
        super().__init__(2 * n_features, dim, largest=bounds.linf, feature_l1=bounds.l1)
        self.bounds, self.n_features = bounds, n_features

    def l1(self, masks: Masks | None) -> int:
        """Return the bound for the features kept; masks keep equally many, except Poisson ones."""
        return self._kept(masks) * self.bounds.l1

    def l2_squared(self, masks: Masks | None, neighbours: Neighbours) -> int:
        """Return the squared norm; replacing a record can negate every feature: twice the norm."""
        factor = 1 if neighbours == "add-remove" else 4
        return factor * self._kept(masks) * self.bounds.l2_squared

    def linf(self, neighbours: Neighbours) -> int:
        """Return the largest component, which masks do not change."""
        return (1 if neighbours == "add-remove" else 2) * self.bounds.linf

    def feature_l2_squared(self) -> int | None:
        """Return the largest squared L2 norm of a pair."""
        return self.bounds.l2_squared

    def _kept(self, masks: Masks | None) -> int:
        return self.n_features if masks is None or masks.kept is None else masks.kept


class RepeatedContribution(Contribution):
    """Contribution of up to `times` records of one person: every norm that many times.

    The bound is attained by equal records. Masks and replacements have no known bound; both are
    refused before. `largest` stays that of one record: sums are bounded by the number of records.
    """

    def __init__(self, single: Contribution, times: int) -> None:
        feature_l1 = times * single.feature_l1
        super().__init__(single.n_values, single.dim, single.largest, feature_l1)
        self.single, self.times = single, times
        self.signed, self.divided_by_count = single.signed, single.divided_by_count

    def l1(self, masks: Masks | None) -> int:
        """Return the L1 norm of all records together."""
        return self.times * self.single.l1(masks)

    def l1_replaced(self, masks: Masks | None) -> int:
        """Return the L1 norm of all differences together."""
        return self.times * self.single.l1_replaced(masks)

    def l2_squared(self, masks: Masks | None, neighbours: Neighbours) -> int:
        """Return the squared L2 norm of all records together."""
        return self.times**2 * self.single.l2_squared(masks, neighbours)

    def mean_l2_squared(self, weight: int | Fraction, neighbours: Neighbours) -> int:
        """Return what `weight` times the coordinates of one record adds."""
        each = Fraction(weight) / self.times
        return self.times**2 * self.single.mean_l2_squared(each, neighbours)

    def linf(self, neighbours: Neighbours) -> int:
        """Return the largest component of all records together."""
        return self.times * self.single.linf(neighbours)


@lru_cache(maxsize=8)
def contribution_of(
    feature_map: FeatureMap,
    frequencies: Frequencies,
    domain: Domain,
    columns: Columns | None = None,
) -> Contribution:
    """Return the contribution of a design's map; its bounds are computed once.

    `columns` are the kinds and sizes of the columns of its schema.
    """
    dim = len(domain.half_widths)
    if feature_map.has_table:
        return TableContribution(feature_map.bounds, frequencies.n_features, dim)
    if feature_map.name == "quadratic":
        return QuadraticContribution(frequencies.matrix(domain).astype(np.int16))
    if feature_map.name == "cells":
        return CellContribution(frequencies.n_features, dim)
    if feature_map.name == "taxicab":
        return TaxicabContribution(taxicab_of(domain, columns))
    return MomentContribution(dim)


def amplitude_of(feature_map: FeatureMap, contribution: Contribution, turn_bits: int) -> float:
    """Return the integer that stands for a feature of modulus 1; squares are in squared radii."""
    if isinstance(contribution, QuadraticContribution):
        return value_unit(turn_bits, contribution.shift)
    if isinstance(contribution, TaxicabContribution):
        return float(contribution.largest)
    if isinstance(contribution, MomentContribution):
        return float(DIAGONAL * MOMENT_UNIT**2)
    return feature_map.amplitude
