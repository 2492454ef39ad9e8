"""Factors of categories, flags and cycles in the moments of atoms.

A block has public corners with waves e_l(w). An atom with shares r_l of its records there has the
factor `C = sum_l r_l e_l(w)`, which is linear in the shares. Factors may be 0, so that products of
all factors but one are computed from those before and after it, never by division.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privsketch._base.types import Floats, Indices, Real

Complex = NDArray[np.complexfloating[Any, Any]]


def parts_of(ends: Indices) -> list[slice]:
    """Return the slices of the corners of each block."""
    return [slice(a, b) for a, b in zip([0, *ends.tolist()], ends.tolist(), strict=False)]


def as_complex(rows: Real) -> Complex:
    """Return rows (n, 2 m) of real parts, then imaginary parts, as complex numbers (n, m)."""
    m = rows.shape[-1] // 2
    result = np.empty((*rows.shape[:-1], m), np.result_type(rows.dtype, np.complex64))
    result.real, result.imag = rows[..., :m], rows[..., m:]
    return result


def as_real(rows: Complex) -> Real:
    """Return complex rows (n, m) as real parts, then imaginary parts, (n, 2 m)."""
    return np.concatenate([rows.real, rows.imag], axis=-1)


def factors(labels: Real, ends: Indices, shares: Floats) -> list[Complex]:
    """Return the factors of every block, (n_atoms, m) each.

    `labels`, (n_corners, 2, m), are the waves of the corners of all blocks, which end at `ends`.
    """
    rows = labels.reshape(len(labels), 2 * labels.shape[2])
    mixed = shares.astype(labels.dtype)
    return [as_complex(mixed[:, part] @ rows[part]) for part in parts_of(ends)]


def other_factors(gaussians: Real, each: list[Complex]) -> Iterator[Complex]:
    """Yield for each block the product of all other factors, (n_atoms, m).

    `gaussians`, (n_atoms, 2 m), are the factors of the numbers.
    """
    after = [np.ones_like(each[-1])]
    for factor in each[:0:-1]:
        after.append(after[-1] * factor)
    before = as_complex(gaussians)
    for factor in each:
        yield before * after.pop()
        before = before * factor


def products_with_waves(others: Complex, slopes: Real, waves: Real) -> Floats:
    """Return `Re sum_j conj(slope_j) other_kj e_lj` for atoms k and corners l of a block."""
    weighted = others * as_complex(slopes).conj()
    weighted.imag *= -1
    return np.asarray(as_real(weighted) @ waves.reshape(len(waves), -1).T, dtype=np.float64)
