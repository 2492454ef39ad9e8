"""Sparse records, read several times and never made dense.

A record is cut to the domain and keeps its `n_nonzero` largest entries, the first ones among
equals. This number is public: a record moves few sums, and these by no more than the domain allows.
All steps are in integers, record by record. Work functions get CSR arrays of whole numbers in
float64; their products and sums below 2^53 are exact in any order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from privsketch._base.errors import MissingError, ParameterError, require_count
from privsketch._base.threads import in_threads
from privsketch._base.types import Integers, WholeFloats
from privsketch.clustering.passes import Passes, added
from privsketch.facts.domain import Ball, Box, Domain
from privsketch.features.fixedpoint import CLIP_HALF_WIDTHS
from privsketch.tables.memory import Selection
from privsketch.tables.reading import read_sparse_blocks

SparseWork = Callable[[Any], tuple[Integers, ...]]
_MAX_ENTRY_BITS = 18  # as in clustering/passes.py: sums of 2^40 records stay below 2^58


class SparsePasses(Passes):
    """A sparse table that can be read as often as needed; other parameters are as in `Passes`."""

    def __init__(
        self,
        data: Any,
        domain: Domain,
        n_nonzero: int,
        selection: Selection | None = None,
        **options: Any,
    ) -> None:
        super().__init__(data, domain, selection, **options)
        require_count("n_nonzero", n_nonzero)
        _require_zero(domain)
        self.n_nonzero = min(n_nonzero, self.dim)
        # Squared lengths of records before they are cut, and of centers, stay exact.
        n_terms = max(self.dim, int(CLIP_HALF_WIDTHS) ** 2 * self.n_nonzero)
        self.bits = min(_MAX_ENTRY_BITS, math.floor((52 - math.log2(n_terms)) / 2))
        self._low, self._high, self._radius = _whole_limits(domain, self.unit)
        largest = np.sort(np.maximum(self._high, -self._low))[::-1][: self.n_nonzero]
        self._largest_limits = largest.astype(np.int64)

    @property
    def linf(self) -> int:
        """Largest magnitude of an entry."""
        return self._radius or int(self._largest_limits[0])

    @property
    def l2_squared(self) -> int:
        """Largest squared length of a record."""
        return self._radius**2 if self._radius else int((self._largest_limits**2).sum())

    @property
    def l2_replaced(self) -> int:
        """Largest squared distance of two records, in one cluster or in two.

        Records with the same sign in each column do not point apart.
        """
        same_sign = ((self._low >= 0) | (self._high <= 0)).all()
        return (2 if same_sign else 4) * self.l2_squared

    @property
    def l1(self) -> int:
        """Largest sum of magnitudes of a record."""
        return self.l1_over(self.n_nonzero)

    def l1_over(self, n_columns: int) -> int:
        """Return the largest sum of magnitudes of a record over `n_columns` columns."""
        count = min(self.n_nonzero, n_columns)
        if self._radius:
            return math.isqrt(count * self._radius**2)
        return int(self._largest_limits[:count].sum())

    @property
    def unit(self) -> float:
        """Length of one integer, in the units of the records."""
        return _largest_entry(self.domain) / 2.0**self.bits

    @property
    def limits(self) -> Integers:
        """Radius of the ball that holds all records, for every coordinate, (dim,)."""
        return np.full(self.dim, math.isqrt(self.l2_squared) + 1)

    def sums(self, work: SparseWork, name: str) -> tuple[Integers, ...]:
        """Add up the results of `work` on quantised CSR records (n, dim), in one pass."""
        from scipy.sparse import csr_array

        total: tuple[Integers, ...] | None = None
        for sums in in_threads(
            lambda block: work(self.quantised(block)), self.blocks(name), self._n_threads
        ):
            total = sums if total is None else added(total, sums)
        return work(csr_array((0, self.dim), dtype=np.float64)) if total is None else total

    def _read(self) -> Iterator[Any]:
        return read_sparse_blocks(self._table, self._selection)

    def quantised(self, block: Any) -> Any:
        """Quantise CSR records (n, dim), their columns in order, to whole numbers."""
        from scipy.sparse import csr_array

        values = np.asarray(block.data, dtype=np.float64)
        missing = ~np.isfinite(values)
        if missing.any():
            if not self._selection.to_center:
                raise MissingError(int(block.indices[missing].min()))
            values = np.where(missing, 0.0, values)
        columns = block.indices
        with np.errstate(over="ignore"):
            units = np.rint(values / self.unit)
        units = np.clip(units, self._low[columns], self._high[columns])
        rows = np.repeat(np.arange(block.shape[0]), np.diff(block.indptr))
        largest = self._largest(rows, columns, units)
        rows, columns, units = rows[largest], columns[largest], units[largest]
        if self._radius is not None:
            units = self._cut_to_ball(rows, units, block.shape[0])
        starts = np.searchsorted(rows, np.arange(block.shape[0] + 1))
        return csr_array((units, columns, starts), shape=block.shape)

    def _largest(self, rows: Any, columns: Any, units: WholeFloats) -> Any:
        """Return the indices of the largest nonzero entries of each row, in order."""
        nonzero = np.flatnonzero(units)
        number = np.bincount(rows[nonzero])
        long = nonzero[(number > self.n_nonzero)[rows[nonzero]]]
        if len(long) == 0:
            return nonzero
        ordered = long[np.lexsort((columns[long], -np.abs(units[long]), rows[long]))]
        first = np.searchsorted(rows[ordered], rows[ordered], side="left")
        excess = ordered[np.arange(len(ordered)) - first >= self.n_nonzero]
        return np.setdiff1d(nonzero, excess, assume_unique=True)

    def _cut_to_ball(self, rows: Any, units: WholeFloats, n_rows: int) -> WholeFloats:
        radius = float(self._radius or 0)
        squared = np.bincount(rows, weights=units * units, minlength=n_rows)
        outside = squared > radius**2
        factor = np.where(outside, radius / np.sqrt(np.maximum(squared, 1.0)), 1.0)
        return np.asarray(np.trunc(units * factor[rows]))


def _require_zero(domain: Domain) -> None:
    """Raise a ParameterError unless 0, the value of entries not stored, is in the domain."""
    if isinstance(domain, Ball):
        if np.any(domain.center_vector != 0):
            raise ParameterError("domain: a ball of sparse records has its center at 0")
    elif np.any(np.less(0, domain.low)) or np.any(np.greater(0, domain.high)):
        raise ParameterError(
            "domain: entries that are not stored are 0, which a column does not allow; use a box "
            "with low <= 0 <= high"
        )


def _largest_entry(domain: Domain) -> float:
    if isinstance(domain, Ball):
        return domain.radius
    return float(max(np.max(np.abs(domain.low)), np.max(np.abs(domain.high))))


def _whole_limits(domain: Domain, unit: float) -> tuple[WholeFloats, WholeFloats, int | None]:
    """Return the smallest and largest entry of each column, (dim,), and the radius of a ball."""
    dim = len(domain.half_widths)
    if isinstance(domain, Box):
        low = np.ceil(np.broadcast_to(np.divide(domain.low, unit), (dim,)))
        return low, np.floor(np.broadcast_to(np.divide(domain.high, unit), (dim,))), None
    radius = math.floor(domain.radius / unit) - 1
    far = np.full(dim, CLIP_HALF_WIDTHS * (radius + 1))
    return -far, far, radius
