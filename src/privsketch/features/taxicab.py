"""Taxicab moments: second moments whose L1 norm does not grow with the number of columns.

A record becomes a vector u of integers: a constant w_0, then one for each coordinate. Their
magnitudes add up to at most L, whatever the record is. A sketch has the sums over records of
u_i^2 and, for i < j, of 2 u_i u_j. Those of a record have an L1 norm of |u|_1^2 <= L^2, so Laplace
noise of scale L^2 / epsilon is pure, and the noise of an entry u_i u_j is half of that. The count
and the sums of u are among them, times w_0^2 and 2 w_0.

| column | integers | its part of L |
|---|---|---|
| number, date | from -w to w | w |
| flag (one coordinate) | -w or w | w |
| category of any number of labels | w for its label, 0 for the others | w |
| cycle | w times cosine and sine | floor(w sqrt 2) + 1 |

A category has one label at most, whatever the quantised record is: that of its largest coordinate
if it is above the middle, the first of equals. A cycle's integers are shortened if their magnitudes
add up to more than its part, as those of no point of the circle do.

`Taxicab` has the integers w, and L is the sum of what they allow, so that rounding them costs no
privacy. L is 4096 or little more for up to some thousand columns, of which each has at least 1, and
designs whose sums of 2^36 records could reach 2^62 are refused.
Products are added up in floats, exactly for up to 2^28 records at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import ParameterError
from privsketch._base.types import Floats
from privsketch.facts.budget import Neighbours
from privsketch.facts.domain import Domain
from privsketch.facts.schema import Schema
from privsketch.features.fixedpoint import RECORD_BITS
from privsketch.features.masks import Contribution, Masks
from privsketch.features.mixed import Columns, columns_of
from privsketch.features.moments import moment_count

UNIT = 4096  # L before rounding
INTERCEPT_SHARE, TARGET_SHARE = 0.1, 0.3  # of L, for the constant and for a stated target
_NORMS = {"number": 1.0, "labels": math.sqrt(8.0), "cycle": math.sqrt(2.0)}  # in half-widths


def taxicab_norm(kind: str, size: int, half_width: float) -> float:
    """Return the part of L of a column, before it is scaled: its weight for a category.

    A label's coordinate goes from 0 to w / sqrt 2, so that half of its width is w / sqrt 8. A flag
    on a line, from -w/2 to w/2, is a number.
    """
    return _NORMS["number" if size == 1 else kind] * half_width


def taxicab_shares(schema: Schema) -> dict[str, float]:
    """Return the part of L of each column of a schema, by its weight; the constant has the rest.

    Examples
    --------
    >>> import privsketch as ps
    >>> shares = taxicab_shares(ps.Schema([ps.Number("age", 18, 100), ps.Flag("smoker")]))
    >>> {name: round(share, 3) for name, share in shares.items()}
    {'age': 0.6, 'smoker': 0.3}
    """
    norms = _norms(schema)
    total = math.fsum(norms.values())
    return {name: (1 - INTERCEPT_SHARE) * norm / total for name, norm in norms.items()}


def taxicab_weight(schema: Schema, target: str, share: float = TARGET_SHARE) -> float:
    """Return the weight with which a column of a schema has this share of L.

    Examples
    --------
    >>> import privsketch as ps
    >>> columns = [ps.Number(name, 0, 1) for name in ("a", "b", "y")]
    >>> columns.append(ps.Category("region", ["north", "east", "south"]))
    >>> round(taxicab_weight(ps.Schema(columns), "y"), 12)
    1.5
    """
    norms = _norms(schema)
    rest = math.fsum(norm for name, norm in norms.items() if name != target)
    if target not in norms or rest == 0:
        raise ParameterError("target", target, "expected one of several columns of the schema")
    if not 0 < share < 1 - INTERCEPT_SHARE:
        raise ParameterError("share", share, f"expected between 0 and {1 - INTERCEPT_SHARE:g}")
    weight = next(column.weight for column in schema.columns if column.name == target)
    return weight * rest * share / (1 - INTERCEPT_SHARE - share) / norms[target]


def _norms(schema: Schema) -> dict[str, float]:
    """Return the part of L of each column, before they are scaled."""
    return {
        column.name: taxicab_norm(kind, size, float(column.highest[0] - column.lowest[0]) / 2)
        for column, (kind, size) in zip(schema.columns, columns_of(schema), strict=True)
    }


@dataclass(frozen=True)
class Taxicab:
    """The public integers of a design: w of the constant, and of each column with its coordinates.

    Attributes
    ----------
    intercept : int
        The constant w_0.
    columns : tuple of (str, int, int)
        Kind of each column, its number of coordinates, and its integer w.
    """

    intercept: int
    columns: tuple[tuple[str, int, int], ...]

    @property
    def dim(self) -> int:
        """Number of coordinates of a record."""
        return sum(size for _, size, _ in self.columns)

    @property
    def norms(self) -> tuple[int, ...]:
        """Largest sum of magnitudes in each column."""
        return tuple(
            math.isqrt(2 * weight**2) + 1 if kind == "cycle" else weight
            for kind, _, weight in self.columns
        )

    @property
    def norm(self) -> int:
        """Largest sum L of all magnitudes of a record."""
        return self.intercept + sum(self.norms)

    @property
    def signed_norm(self) -> int:
        """Part of L of the columns with one coordinate each."""
        return sum(weight for _, size, weight in self.columns if size == 1)

    @property
    def weights(self) -> npt.NDArray[np.int64]:
        """Largest magnitude of each coordinate, (dim,)."""
        weights = [weight for _, _, weight in self.columns]
        return np.repeat(np.array(weights, dtype=np.int64), [size for _, size, _ in self.columns])

    @property
    def is_rounded(self) -> npt.NDArray[np.bool_]:
        """Whether values between the largest magnitudes are rounded, (dim,): not of labels."""
        kinds = [kind != "labels" for kind, _, _ in self.columns]
        return np.repeat(kinds, [size for _, size, _ in self.columns])

    def blocks(self) -> Iterator[tuple[str, slice, int, int]]:
        """Yield kind, coordinates, w and part of L of columns with several coordinates."""
        first = 0
        for (kind, size, weight), norm in zip(self.columns, self.norms, strict=True):
            if size > 1:
                yield kind, slice(first, first + size), weight, norm
            first += size


@lru_cache(maxsize=8)
def taxicab_of(domain: Domain, columns: Columns | None) -> Taxicab:
    """Return the integers of a box; `columns` are those of its schema.

    A box without a schema has numbers alone, which get even shares, whatever their units are.
    """
    half_widths = domain.half_widths
    if columns is None:
        columns, half_widths = (("number", 1),) * len(half_widths), np.ones(len(half_widths))
    first = np.cumsum([0, *(size for _, size in columns[:-1])])
    halves = [float(half) for half in half_widths[first]]
    norms = [
        taxicab_norm(kind, size, half) for (kind, size), half in zip(columns, halves, strict=True)
    ]
    scale = UNIT * (1 - INTERCEPT_SHARE) / math.fsum(norms)
    return Taxicab(
        round(UNIT * INTERCEPT_SHARE),
        tuple(
            (kind, size, max(1, round(scale * (half if kind == "cycle" else norm))))
            for (kind, size), half, norm in zip(columns, halves, norms, strict=True)
        ),
    )


def taxicab_records(quantised: npt.NDArray[Any], layout: Taxicab) -> npt.NDArray[np.int64]:
    """Return the integers u of quantised records (n, dim), with the constant first, (n, 1 + dim).

    Magnitudes of a row add up to at most `layout.norm`, for any 16-bit integers.
    """
    wide = quantised.astype(np.int64)
    integers = np.empty((len(wide), 1 + layout.dim), dtype=np.int64)
    integers[:, 0] = layout.intercept
    # To the nearest: 2^15 - 1 gives w itself, and -2^15 gives -w.
    coordinates = integers[:, 1:]
    coordinates[:] = (wide * layout.weights + 2 ** (RECORD_BITS - 1)) >> RECORD_BITS
    rows = np.arange(len(wide))
    for kind, place, weight, norm in layout.blocks():
        block = coordinates[:, place]
        if kind == "cycle":
            total = np.maximum(np.abs(block).sum(axis=1, keepdims=True), norm)
            block[:] = np.sign(block) * (np.abs(block) * norm // total)
            continue
        label = wide[:, place].argmax(axis=1)
        is_above = wide[rows, place.start + label] > 0
        block[:] = 0
        block[rows[is_above], label[is_above]] = weight
    return integers


def taxicab_sums(quantised: npt.NDArray[Any], layout: Taxicab) -> npt.NDArray[np.int64]:
    """Sum u_i^2 and 2 u_i u_j over records, upper triangle row by row."""
    integers = taxicab_records(quantised, layout).astype(np.float64)
    first, second = np.triu_indices(1 + layout.dim)
    entries = (integers.T @ integers)[first, second].astype(np.int64)
    return np.asarray(entries * triangle_weights(1 + layout.dim))


def triangle_weights(size: int) -> npt.NDArray[np.int64]:
    """Return 1 for the diagonal of a symmetric matrix and 2 beside it, upper triangle by rows."""
    first, second = np.triu_indices(size)
    return np.where(first == second, 1, 2).astype(np.int64)


def symmetric(entries: Floats, size: int) -> Floats:
    """Return the symmetric matrix (size, size) of the entries of its upper triangle."""
    matrix = np.zeros((size, size))
    matrix[np.triu_indices(size)] = entries
    return np.asarray(matrix + np.triu(matrix, 1).T)


def to_coordinates(domain: Domain, columns: Columns | None) -> Floats:
    """Return the matrix T that maps u to (1, z), (1 + dim, 1 + dim).

    z is a record less the center: the middle of the bounds, or for a category the centroid of its
    corners, as in `Schema.ball`. Sums M of u u' become sums T M T' of (1, z)(1, z)'.

    Parameters
    ----------
    domain : Box
        The design's domain.
    columns : tuple of (str, int), optional
        Kinds and sizes of the columns of its schema (`columns_of`); None for a box without one.
    """
    layout, half_widths = taxicab_of(domain, columns), domain.half_widths
    matrix = np.zeros((1 + layout.dim, 1 + layout.dim))
    matrix[0, 0] = 1 / layout.intercept
    np.fill_diagonal(matrix[1:, 1:], half_widths / layout.weights)
    for kind, place, weight, _ in layout.blocks():
        if kind == "labels":
            corner = 2 * half_widths[place]
            rows = np.arange(1 + place.start, 1 + place.stop)
            matrix[rows, rows] = corner / weight
            matrix[rows, 0] = -corner / (place.stop - place.start) / layout.intercept
    return matrix


class TaxicabContribution(Contribution):
    """Contribution of all u_i^2 and 2 u_i u_j of a record."""

    divided_by_count = True

    def __init__(self, layout: Taxicab) -> None:
        square = layout.norm**2
        n_values = moment_count(1 + layout.dim)
        super().__init__(n_values, layout.dim, largest=square, feature_l1=square)
        self.layout = layout

    def l1(self, masks: Masks | None) -> int:
        """Return L^2: the entries are those of u u', off the diagonal once for both."""
        return self.largest

    def l1_replaced(self, masks: Masks | None) -> int:
        """Return the largest L1 norm of u u' - v v', which is below that of both together.

        The constant w_0 is the same in u and v. Let x, y be the columns of one coordinate, with
        magnitudes of sum N at most, and p, q the others, of norms up to C = L - w_0 - N. With
        s = |x + y|_1 and t = |x - y|_1 the parts of u u' - v v' have norms up to

            2 w_0 t + 2 w_0 (2 C)       beside the constant
            s t <= (2 N - t) t          x x' - y y' = ((x + y)(x - y)' + (x - y)(x + y)') / 2,
                                        and |x_i + y_i| + |x_i - y_i| = 2 max(|x_i|, |y_i|)
            2 C (|x|_1 + |y|_1)         x p' - y q', twice; at most 4 C N
            2 C^2                       p p' - q q'

        The sum is largest at t = N + min(N, w_0).
        """
        constant, signed = self.layout.intercept, self.layout.signed_norm
        others = self.layout.norm - constant - signed
        change = signed + min(signed, constant)
        return (
            2 * constant * (change + 2 * others)
            + (2 * signed - change) * change
            + 4 * others * signed
            + 2 * others**2
        )

    def l2_squared(self, masks: Masks | None, neighbours: Neighbours) -> int:
        """Return the square of the L1 norm, which bounds it. Designs have Laplace noise."""
        norm = self.l1(masks) if neighbours == "add-remove" else self.l1_replaced(masks)
        return norm**2

    def linf(self, neighbours: Neighbours) -> int:
        """Return the L1 norm, which bounds it. Designs have Laplace noise."""
        return self.l1(None) if neighbours == "add-remove" else self.l1_replaced(None)
