"""Sparse matrices of SciPy: blocks of their rows, dense or as they are.

Only stored entries are copied, a few rows at a time. Entries stored twice are added up, as SciPy
does. Rows of CSR matrices are read where they lie; other formats are turned into CSR once for
each pass, which takes as much memory again as the stored entries do.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from privsketch.errors import RecordError
from privsketch.readers.selection import Selection, rows_per_block
from privsketch.readers.tables import Block, array_places

_BLOCK_ENTRIES = 2**18
_BLOCK_ROWS = 2**14


def is_sparse(data: Any) -> bool:
    """Whether this is a sparse matrix or sparse array of SciPy."""
    # Whoever has one has loaded the module; nobody else should wait for it.
    sparse = sys.modules.get("scipy.sparse")
    return sparse is not None and bool(sparse.issparse(data))


def sparse_blocks(matrix: Any, chosen: Selection) -> Iterator[Block]:
    """Blocks of dense rows."""
    rows, places = _by_rows(matrix), array_places(_width(matrix), chosen)
    step = rows_per_block(rows.shape[1])
    for first in range(0, rows.shape[0], step):
        block = _as_numbers(rows[first : first + step]).toarray()
        yield block if places is None else block[:, places]


def csr_blocks(matrix: Any, chosen: Selection) -> Iterator[Any]:
    """Blocks of rows as CSR arrays of their own, columns in order and each of them once."""
    from scipy.sparse import csr_array

    rows, places = _by_rows(matrix), array_places(_width(matrix), chosen)
    first, n_rows = 0, rows.shape[0]
    while first < n_rows:
        # As many rows as have so many entries, but one at least.
        fits = np.searchsorted(rows.indptr, rows.indptr[first] + _BLOCK_ENTRIES, side="right") - 1
        last = min(max(int(fits), first + 1), first + _BLOCK_ROWS, n_rows)
        # A copy: what is done to it is not done to the table.
        block = csr_array(_as_numbers(rows[first:last]), copy=True)
        if places is not None:
            block = csr_array(block[:, places])
        block.sum_duplicates()
        yield block
        first = last


def _by_rows(matrix: Any) -> Any:
    if matrix.dtype.kind not in "fiub":
        raise RecordError(f"a column is not numeric (sparse matrix of type {matrix.dtype})")
    return matrix if matrix.format == "csr" else matrix.tocsr()


def _as_numbers(rows: Any) -> Any:
    """Integers and flags as float64, so that entries stored twice cannot overflow."""
    return rows if rows.dtype.kind == "f" else rows.astype(np.float64)


def _width(matrix: Any) -> int:
    if matrix.ndim != 2:
        raise RecordError(
            f"expected a sparse matrix with rows and columns (2 dimensions), got {matrix.ndim}"
        )
    return int(matrix.shape[1])
