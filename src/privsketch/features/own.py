"""Frequencies of one's own: an array, or a law that gives one, as public integers of a design.

An array has radians per unit of a record, as learners use them. It is rounded once to the 16-bit
integers of other frequencies, and these are stored in the design: holders need neither the array
nor the law. Privacy does not depend on them, as bounds are read off the table of features. They are
public and must not depend on records.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from privsketch._base.elementary import TWO_PI
from privsketch._base.errors import ParameterError
from privsketch._base.plugins import find_plugin
from privsketch._base.settings import require_call
from privsketch._base.types import Floats
from privsketch.facts.domain import Domain
from privsketch.features.fixedpoint import (
    FREQUENCY_MAX,
    MIN_TURN_BITS,
    RECORD_BITS,
    finest_turn_bits,
)
from privsketch.features.radii import RadialLaw
from privsketch.features.stream import Purpose, public_generator

OWN_LAW = "own"  # the law's name in design files
MAX_OWN_ENTRIES = 2**21  # 4 MB of a design, which is part of every sketch
MIN_SEEN = 1e-3  # singular value, over the largest, from which on a direction is seen
FrequencyLaw = Callable[[int, Domain, np.random.Generator], Any]


@dataclass(frozen=True)
class OwnMatrix:
    """Integer frequencies that a design stores: little-endian 16-bit integers, row by row.

    `half_widths` are those of the domain whose records they are for.
    """

    integers: bytes
    half_widths: tuple[float, ...]
    turn_bits: int

    @cached_property
    def n_directions(self) -> int:
        """Number of directions of a record that the frequencies see, in units of the domain.

        Rounding leaves a little of every direction, which is less than MIN_SEEN of the largest.
        """
        sizes = np.linalg.svd(self.matrix.astype(np.float64), compute_uv=False)
        return int((sizes > MIN_SEEN * sizes.max()).sum())

    @cached_property
    def matrix(self) -> npt.NDArray[np.int16]:
        """The integers, (n_features, dim), read-only."""
        values = np.frombuffer(self.integers, dtype="<i2").astype(np.int16)
        values = values.reshape(-1, len(self.half_widths))
        values.flags.writeable = False
        return values

    @cached_property
    def radial_law(self) -> OwnLengths:
        """Law of the lengths: that of these frequencies."""
        per_unit = TWO_PI * 2.0 ** (RECORD_BITS - self.turn_bits) / np.array(self.half_widths)
        lengths = np.linalg.norm(self.matrix * per_unit, axis=1)
        return OwnLengths(_scales(lengths), None, tuple(np.sort(lengths).tolist()))

    def to_json(self) -> str:
        """Return the integers as base64."""
        return base64.b64encode(self.integers).decode("ascii")

    @classmethod
    def from_json(cls, value: Any, n_features: int, domain: Domain, turn_bits: int) -> OwnMatrix:
        """Return the matrix from `to_json`; raise for anything else."""
        half_widths = tuple(domain.half_widths.tolist())
        _require_entries(n_features, len(half_widths))
        try:
            integers = base64.b64decode(value, validate=True)
        except (TypeError, ValueError, binascii.Error):
            integers = b""
        if len(integers) != 2 * n_features * len(half_widths):
            raise ParameterError("frequencies: values are not 16-bit integers for all features")
        own = cls(integers, half_widths, turn_bits)
        if int(own.matrix.min()) < -FREQUENCY_MAX or not own.matrix.any():
            raise ParameterError("frequencies: values out of range, or all 0")
        return own


@dataclass(frozen=True)
class OwnLengths(RadialLaw):
    """Radial law of given frequencies: means over their lengths, not over a law of scales."""

    lengths: tuple[float, ...] = ()

    def _powers(self, width: float) -> Floats:
        return np.square(np.array(self.lengths) * width)  # x = |w|^2 width^2

    def band_share(self, width: float) -> float:
        """Return the mean of x exp(-x)."""
        x = self._powers(width)
        return float(np.mean(x * np.exp(-x)))

    def squared_band_share(self, width: float) -> float:
        """Return the mean of (x exp(-x))^2."""
        x = self._powers(width)
        return float(np.mean(np.square(x * np.exp(-x))))

    def energy_share(self, width: float) -> float:
        """Return the mean of exp(-x)."""
        return float(np.mean(np.exp(-self._powers(width))))


def is_own(frequencies: Any) -> bool:
    """Return whether frequencies are an array or a law of one's own, not the name of ours."""
    return frequencies is not None and not isinstance(frequencies, str)


def require_law(law: FrequencyLaw) -> None:
    """Raise a ParameterError for a callable that is no law."""
    require_call(law, "frequencies: your law", "n_features", "domain", "rng")


def frequency_law(name: str) -> FrequencyLaw | None:
    """Return the law that an installed package registers in `privsketch.frequency_laws`, or None.

    A law is a callable ``law(n_features, domain, rng)``. It returns an array (n_features, dim) in
    radians per unit of a record; `rng` is a public stream of the design's seed.
    """
    plugin = find_plugin("frequency_laws", name)
    if plugin is None:
        return None
    if not callable(plugin.part):
        raise ParameterError(
            f"`frequencies={name!r}`: {plugin.origin} registers an object that is not callable; "
            "expected a function law(n_features, domain, rng)"
        )
    what = f"`frequencies={name!r}` of {plugin.origin}"
    require_call(plugin.part, what, "n_features", "domain", "rng")
    return plugin.part  # type: ignore[no-any-return]


def own_matrix(given: Any, n_features: int, domain: Domain, seed: int) -> OwnMatrix:
    """Round an array, or what a law gives, to the integers of a design."""
    if callable(given):
        given = given(n_features, domain, public_generator(seed, Purpose.OWN_FREQUENCIES))
    radians = checked_array(given, len(domain.half_widths))
    if len(radians) != n_features:
        raise ParameterError(
            f"frequencies: {len(radians)} rows for `n_features={n_features}`; leave n_features out "
            "for an array, and return as many rows from a law"
        )
    turns = radians * (domain.half_widths / TWO_PI)
    turn_bits = finest_turn_bits(float(np.abs(turns).max()))
    if turn_bits is None:
        largest = FREQUENCY_MAX * 2.0 ** (RECORD_BITS - MIN_TURN_BITS)
        column = int(np.abs(turns).max(axis=0).argmax())
        limit = largest * TWO_PI / float(domain.half_widths[column])
        raise ParameterError(
            f"frequencies: an entry of column {column} is too large for the fixed-point format; "
            f"in this domain its entries may have up to {limit:.4g} radians per unit"
        )
    integers = np.rint(turns * 2.0 ** (turn_bits - RECORD_BITS)).astype("<i2")
    if not integers.any():
        raise ParameterError(
            "frequencies: all entries are so small that they are 0 in the fixed-point format, and "
            "no feature sees a record"
        )
    return OwnMatrix(integers.tobytes(), tuple(domain.half_widths.tolist()), turn_bits)


def checked_array(given: Any, dim: int) -> Floats:
    """Return an array of frequencies (n_features, dim); raise a ParameterError for anything else.

    It is public, so errors may say what is in it.
    """
    expected = f"expected a real array (n_features, {dim}), in radians per unit of a record"
    try:
        array = np.asarray(given)
    except (TypeError, ValueError):
        raise ParameterError(f"frequencies: {expected}, not {type(given).__name__}") from None
    if array.dtype.kind not in "fiu":
        raise ParameterError(f"frequencies: {expected}, not one of dtype {array.dtype}")
    if array.ndim != 2 or array.shape[1] != dim or len(array) == 0:
        raise ParameterError(f"frequencies: {expected}, not one of shape {array.shape}")
    _require_entries(*array.shape)
    floats = array.astype(np.float64)
    if not np.isfinite(floats).all():
        row = int(np.argmin(np.isfinite(floats).all(axis=1)))
        raise ParameterError(f"frequencies: row {row} has an entry that is NaN or infinite")
    if not floats.any():
        raise ParameterError("frequencies: all entries are 0, so that no feature sees a record")
    return floats


def _require_entries(n_features: int, dim: int) -> None:
    if n_features * dim > MAX_OWN_ENTRIES:
        raise ParameterError(
            f"frequencies: {n_features} of {dim} columns are too many to be stored in a design; "
            f"{MAX_OWN_ENTRIES // dim} fit"
        )


def _scales(lengths: Floats) -> tuple[float, float]:
    """Return the finest and the widest scale: those whose frequencies are so long on average."""
    seen = lengths[lengths > 0]
    return float(np.sqrt(2) / seen.max()), float(np.sqrt(2) / seen.min())
