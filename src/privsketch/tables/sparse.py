"""Sparse matrices of SciPy: blocks of their rows, dense or sparse.

Only stored entries are copied, a few rows at a time. Duplicate entries are added up, in the order
in which they are stored, so that a record does not depend on how other records are stored. Rows of
CSR matrices are read in place; other formats are converted to CSR once for each pass, which takes
as much memory again as the stored entries do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from privsketch._base.errors import RecordError
from privsketch._base.types import Block
from privsketch.tables.memory import Selection, array_columns, rows_per_block

_BLOCK_ENTRIES = 2**18  # 3 to 4 MB of values and column numbers, as much as other readers' blocks
_BLOCK_ROWS = 2**14  # at most, even of few entries: some results have a row for each record


def sparse_blocks(matrix: Any, selection: Selection) -> Iterator[Block]:
    """Yield blocks of dense rows."""
    numbers = array_columns(_width(matrix), selection)
    rows = _as_csr(matrix)
    step = rows_per_block(rows.shape[1])
    for first in range(0, rows.shape[0], step):
        block = _as_numbers(rows[first : first + step]).toarray()
        yield block if numbers is None else block[:, numbers]


def csr_blocks(matrix: Any, selection: Selection) -> Iterator[Any]:
    """Yield blocks of rows as new CSR arrays with sorted columns and no duplicates."""
    from scipy.sparse import csr_array

    numbers = array_columns(_width(matrix), selection)
    rows = _as_csr(matrix)
    first, n_rows = 0, rows.shape[0]
    while first < n_rows:
        # As many rows as fit into the entries of a block, but at least one.
        fits = np.searchsorted(rows.indptr, rows.indptr[first] + _BLOCK_ENTRIES, side="right") - 1
        last = min(max(int(fits), first + 1), first + _BLOCK_ROWS, n_rows)
        # A copy, so that changes do not reach the table.
        block = csr_array(_as_numbers(rows[first:last]), copy=True)
        if numbers is not None:
            block = csr_array(block[:, numbers])
        yield _sum_duplicates(block)
        first = last


def _as_csr(matrix: Any) -> Any:
    if matrix.dtype.kind not in "fiub":
        raise RecordError(f"a column is not numeric (sparse matrix of type {matrix.dtype})")
    if matrix.format == "csr":
        starts = matrix.indptr
        fits = len(starts) == matrix.shape[0] + 1 and starts[0] == 0
        fits = fits and starts[-1] <= min(len(matrix.indices), len(matrix.data))
        if not (
            fits and (np.diff(starts) >= 0).all() and _all_within(matrix.indices, matrix.shape[1])
        ):
            raise RecordError(_INVALID)
        return matrix
    return _csr_of_coo(matrix.tocoo())


_INVALID = "sparse matrix: its arrays do not fit together, or name a column that it does not have"


def _all_within(numbers: Any, size: int) -> bool:
    """Return whether 0 <= numbers < size; SciPy would write other numbers into wrong rows."""
    return len(numbers) == 0 or bool(numbers.min() >= 0 and numbers.max() < size)


def _csr_of_coo(matrix: Any) -> Any:
    """Convert a COO matrix to CSR, and keep duplicate entries.

    SciPy would add them up, in an order that depends on other rows.
    """
    from scipy.sparse import csr_array

    if not all(map(_all_within, matrix.coords, matrix.shape)):
        raise RecordError(_INVALID)
    order = np.argsort(matrix.coords[0], kind="stable")
    rows, columns = (numbers[order] for numbers in matrix.coords)
    starts = np.searchsorted(rows, np.arange(matrix.shape[0] + 1))
    return csr_array((matrix.data[order], columns, starts), shape=matrix.shape)


def _sum_duplicates(block: Any) -> Any:
    """Return CSR with sorted columns; duplicate entries are added up in their order.

    `sum_duplicates` sorts equal columns into any order, and sorts all rows if one needs it: the
    values of a record would depend on other records.
    """
    from scipy.sparse import csr_array

    rows = np.repeat(np.arange(block.shape[0]), np.diff(block.indptr))
    order = np.lexsort((block.indices, rows))  # stable
    rows, columns = rows[order], block.indices[order]
    new = np.ones(len(order), dtype=np.bool_)
    new[1:] = (np.diff(rows) != 0) | (np.diff(columns) != 0)
    values = np.zeros(int(new.sum()), dtype=block.data.dtype)
    np.add.at(values, np.cumsum(new) - 1, block.data[order])
    starts = np.searchsorted(rows[new], np.arange(block.shape[0] + 1))
    return csr_array((values, columns[new], starts), shape=block.shape)


def _as_numbers(rows: Any) -> Any:
    """Convert integers and flags to float64, so that sums of duplicate entries cannot overflow."""
    return rows if rows.dtype.kind == "f" else rows.astype(np.float64)


def _width(matrix: Any) -> int:
    if matrix.ndim != 2:
        raise RecordError(
            f"expected a sparse matrix with rows and columns (2 dimensions), got {matrix.ndim}"
        )
    return int(matrix.shape[1])
