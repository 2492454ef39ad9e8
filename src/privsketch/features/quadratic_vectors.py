"""Vectors of quadratic features, drawn from a public stream.

- "orthobases": unions of orthonormal bases (CLP section 3.4), least noise;
- "normal": independent normal vectors of mean squared norm 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from privsketch._typing import Floats
from privsketch.features.stream import PublicStream

QUADRATIC_LAWS = ("orthobases", "normal")
VECTOR_BITS = 14  # binary digits of a vector of length 1
LARGEST_COORDINATE = 0.99 * (2**15 - 1)  # rounding lengthens vectors a little


def unrounded_vectors(
    stream: PublicStream, law: str, n_features: int, dim: int
) -> Iterator[Floats]:
    """Blocks of `dim` vectors, one basis or as many normal ones at a time."""
    even = dim * dim + dim % 2  # an even number of normals for each block
    for start in range(0, n_features, dim):
        block = stream.normal(even)[: dim * dim].reshape(dim, dim)
        block = _orthonormal(block) if law == "orthobases" else block / np.sqrt(float(dim))
        yield block[: n_features - start]


def vector_resolution(law: str, blocks: Iterable[Floats]) -> int:
    """Binary digits with which coordinates fit 16 bits, and norms 17."""
    if law == "orthobases":
        return VECTOR_BITS  # coordinates of unit vectors
    largest = max(
        max(float(np.abs(block).max()), float(np.sqrt(np.square(block).sum(axis=1).max())) / 2)
        for block in blocks
    )
    bits = VECTOR_BITS
    while largest * 2.0**bits > LARGEST_COORDINATE:
        bits -= 1
    return bits


def _orthonormal(rows: Floats) -> Floats:
    """Rows made orthonormal one after the other (Gram and Schmidt, modified).

    Sums are accumulated in a fixed order: those of a linear algebra library depend on the
    machine, and every holder must get the same integers.
    """
    rows = rows.copy()
    for i in range(len(rows)):
        row = rows[i]
        row /= np.sqrt(np.add.accumulate(row * row)[-1])
        rest = rows[i + 1 :]
        rest -= np.add.accumulate(rest * row, axis=1)[:, -1:] * row
    return rows
