"""What a neighbouring table may change of one record, in integers.

- "entry": one coordinate, by at most its width;
- "l1", "l2": the whole record, by at most a stated distance;
- "box": the whole record, to any other one of its box.

Only one row of a table changes, so its number of rows plays no role.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from privsketch._base.errors import ParameterError
from privsketch._base.types import Integers
from privsketch.facts.budget import UNIT, number_text
from privsketch.facts.domain import Ball, Box, Domain
from privsketch.features.fixedpoint import FAR
from privsketch.kernels.quantiser import CompiledQuantiser
from privsketch.projection.matrix import (
    Matrix,
    box_to_one,
    box_to_two_squared,
    spectral_squared,
    two_to_one_squared,
)

Kind = Literal["entry", "l1", "l2", "box"]
PROTECTS = ("row", "element")
BOUND_NORMS = ("l2", "l1")
_MAX_BITS = 20  # of a coordinate; with the 16 of a matrix 36, and 17 are left below 2^53
_MIN_UNITS = 8  # of the half-width of the narrowest column


@dataclass(frozen=True, eq=False)
class Change:
    """Differences v of neighbouring records: `widths` bound coordinates, `radius` the distance.

    `radius` is the largest L2 norm of v; for "l1" it is the largest L1 norm too.
    """

    kind: Kind
    widths: Integers
    radius: int

    def l1(self, matrix: Matrix) -> int:
        """At least the largest L1 norm of v P."""
        p = matrix.integers
        if self.kind == "entry":
            return int((self.widths * np.abs(p).sum(axis=1)).max())
        if self.kind == "l1":
            return self.radius * int(np.abs(p).sum(axis=1).max())
        bound = _ceil_sqrt(self.radius**2 * two_to_one_squared(matrix.gram))
        exact = box_to_one(p, self.widths) if self.kind == "box" else None
        return bound if exact is None else min(bound, exact)

    def l1_at_least(self, matrix: Matrix) -> float:
        """At most the largest L1 norm of v P, at once: a mean over sign vectors."""
        if self.kind in ("entry", "l1"):
            return self.l1(matrix)
        lengths = np.sqrt(np.square(matrix.integers.astype(np.float64)).sum(axis=1))
        if self.kind == "box":
            # E |sum_j s_j p_j| >= |p|_2 / sqrt 2 for random signs (Khintchine)
            return float((self.widths * lengths).sum() / math.sqrt(2))
        return float(self.radius * np.linalg.norm(lengths))

    def l2_squared(self, matrix: Matrix) -> int:
        """At least the largest squared L2 norm of v P."""
        p = matrix.integers
        squares = (p * p).sum(axis=1)
        if self.kind == "entry":
            # Python integers: products of two squares pass 2^63.
            return max(int(w) ** 2 * int(s) for w, s in zip(self.widths, squares, strict=True))
        if self.kind == "l1":
            return self.radius**2 * int(squares.max())
        bound = self.radius**2 * spectral_squared(matrix.gram)
        if self.kind == "box":
            bound = min(bound, box_to_two_squared(p, self.widths))
        return bound

    @property
    def spread(self) -> int:
        """Over how many rows of P a difference may spread: rounding errors add up over them."""
        return 1 if self.kind in ("entry", "l1") else len(self.widths)


@dataclass(frozen=True)
class Protection:
    """What is protected, where records are cut, and how finely they are quantised."""

    domain: Domain
    protect: str
    bound: float | None
    bound_norm: str
    bits: int

    @classmethod
    def of(cls, domain: Domain, protect: str, bound: float | None, bound_norm: str) -> Protection:
        """Check what is asked for. Coordinates are cut one by one unless distances count.

        A record outside a ball is moved as a whole: changing one of its entries would change
        all of them. Where entries count, the box around the ball takes its place.
        """
        if protect not in PROTECTS:
            raise ParameterError("protect", protect, "expected 'row' or 'element'")
        if bound_norm not in BOUND_NORMS:
            raise ParameterError("bound_norm", bound_norm, "expected 'l2' or 'l1'")
        if bound is not None:
            valid = isinstance(bound, int | float | np.number) and not isinstance(bound, bool)
            if not (valid and 0 < float(bound) < math.inf):
                raise ParameterError("bound", bound, "expected a number above 0, or None")
            bound = float(bound)
        elif bound_norm == "l1":
            raise ParameterError("bound_norm='l1': only with `bound=`, the distance it measures")
        if protect == "element" and bound_norm == "l1":
            raise ParameterError("bound_norm='l1': one element has no norm; leave it out")
        if isinstance(domain, Ball) and (protect == "element" or bound_norm == "l1"):
            center, half = domain.center_vector, domain.half_widths
            domain = Box(low=center - half, high=center + half)
        dim = len(domain.half_widths)
        # Squared norms must stay exact in float64.
        bits = min(_MAX_BITS, math.floor((53 - math.log2(dim)) / 2 - math.log2(FAR)))
        made = cls(domain, protect, bound, bound_norm, bits)
        narrow = np.flatnonzero(made.quantiser().limits < _MIN_UNITS)
        if len(narrow):
            raise ParameterError(
                f"domain: column {narrow[0]} is so narrow beside the widest one that nothing of it "
                "would be released; scale columns to similar widths first"
            )
        return made

    def quantiser(self, *, missing_to_center: bool = False) -> CompiledQuantiser:
        """Records to integers, the same unit in all columns."""
        return CompiledQuantiser(
            self.domain, missing_to_center=missing_to_center, bits=self.bits, common_unit=True
        )

    @property
    def units_per_length(self) -> float:
        """Integers per unit of the records."""
        return float(2.0**self.bits / self.domain.half_widths.max())

    @property
    def reach(self) -> float:
        """Largest distance of a record from the center of the domain."""
        if isinstance(self.domain, Ball):
            return self.domain.radius
        return float(np.linalg.norm(self.domain.half_widths))

    def change(self) -> Change:
        """What a neighbour may change, rounding included.

        Rounding moves a coordinate by at most half a unit, cutting back to a ball by one more:
        a distance grows by at most sqrt(dim), or 3 sqrt(dim), units. The last unit is for what
        floats do to a number after it is read, `_read_apart` for what reading does.
        """
        limits = self.quantiser().limits
        dim = len(limits)
        diameter = self._diameter(limits)
        if self.bound is None:
            kind: Kind = "entry" if self.protect == "element" else "box"
            if isinstance(self.domain, Ball):
                kind = "l2"
            widths = 2 * limits
            return Change(kind, widths, int(widths.max()) if kind == "entry" else diameter)
        stated = self.bound * self.units_per_length
        apart = self._read_apart
        if self.protect == "element":
            widths = np.minimum(2 * limits, _ceil(stated + apart) + 2)
            return Change("entry", widths, int(widths.max()))
        if self.bound_norm == "l1":
            most = _ceil(stated + dim * (1 + apart)) + 1
            return Change("l1", 2 * limits, min(most, 2 * int(limits.sum())))
        is_ball = isinstance(self.domain, Ball)
        most = _ceil(stated + ((3 if is_ball else 1) + apart) * math.sqrt(dim)) + 1
        if most < diameter:
            return Change("l2", 2 * limits, most)
        return Change("l2" if is_ball else "box", 2 * limits, diameter)

    @property
    def _hides_all(self) -> bool:
        """Whether a bound on rows is no less than the diameter of the domain."""
        change = self.change()
        return change.kind == "l2" and change.radius == self._diameter(self.quantiser().limits)

    def _diameter(self, limits: Integers) -> int:
        if isinstance(self.domain, Ball):
            return 2 * int(limits[0])
        return _ceil_sqrt(4 * _squared_length(limits))

    @property
    def _read_apart(self) -> float:
        """By how many units two equal coordinates may differ after they are read as float64.

        Whole numbers beyond 2^53, decimals and texts are rounded to the next float before the
        center is subtracted; floats of 64 or fewer bits are not.
        """
        reach = np.abs(self.domain.center_vector) + FAR * self.domain.half_widths
        return float(2 * np.spacing(reach.max()) * self.units_per_length)

    @property
    def unit_in_words(self) -> str:
        """The unit of protection, for receipts."""
        if self.protect == "element":
            if self.bound is None or (self.change().widths == 2 * self.quantiser().limits).all():
                return "one entry of one record"
            return f"a change of one entry of one record by at most {number_text(self.bound)}"
        if self.bound is None or self.change().kind == "box" or self._hides_all:
            return UNIT
        norm = "Euclidean" if self.bound_norm == "l2" else "L1"
        return f"a change of one record by at most {number_text(self.bound)} in {norm} distance"


def _ceil(value: float) -> int:
    """At least `value`, whatever its last bits."""
    return math.ceil(min(value, 2.0**60) * (1 + 1e-12))


def _ceil_sqrt(square: int) -> int:
    root = math.isqrt(square)
    return root if root * root == square else root + 1


def _squared_length(values: Integers) -> int:
    return sum(int(value) ** 2 for value in values)
