"""Structured frequencies: sign flips and Walsh-Hadamard transforms instead of a dense matrix.

A block of P = 2^p >= dim frequencies has two sign vectors D1, D2 and P integer radii r.
With H the +-1 Walsh-Hadamard matrix in natural order, and a quantised record x with zeros
behind its dim coordinates, feature j of the block has the phase

    r_j y_j modulo 2^32 in units of 2^-32 turns,    y = H D1 H D2 x,

which takes O(P log P) steps for all P features instead of O(P dim). Nothing is rounded: the
phases are those of the dense integer matrix r_j (H D1 H D2)_jk, bit for bit. (Structured
orthogonal features: Yu et al., 2016, and for sketches Chatalic et al., 2018, with three
transforms; with two, means of features are already closer to their expectation than those
of as many independent frequencies: tests/kernels/test_hadamard.py.)

Two facts make the matrix cheap to know exactly. H D1 H has the entry h[j xor k] in row j and
column k, where h = H d1 is the transform of the diagonal of D1; and D1 has an odd number of
minus signs, so every h is 2 modulo 4 and no row can vanish, whatever columns are left out.

Precision. A frequency's wanted norm becomes an integer multiple of its row's norm, which is
at most P and about sqrt(P dim). The norm is thus off by at most P 2^-18 turns per half-width
of the domain: 2^-12 for P = 64, 2^-8 for P = 1024, 2^-4 for P = 16,384. In relative terms, at
a scale of half a half-width the most frequent norm is 41 steps for P = dim = 1024 and 2.5 for
16,384; coarser than 2 steps is refused. The integers that result are exact, for holders and
learners alike: rounding changes the law of the radii a little, never a phase.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from privsketch._base.elementary import TWO_PI
from privsketch._base.errors import ParameterError, require_count
from privsketch._base.types import Integers
from privsketch.facts.domain import Domain
from privsketch.features.fixedpoint import RECORD_BITS
from privsketch.features.radii import RadialLaw
from privsketch.features.stream import PublicStream, Purpose

TURN_BITS = 32  # a turn is 2^32: phases wrap as 32-bit integers do
# Blocks below this size have too few directions: with P = 2, all frequencies are along the axes.
MIN_BLOCK_SIZE = 64
MAX_STRUCTURED_DIM = 2**15  # squared norms of such domains are exact (features/fixedpoint.py)
# At the widest scale, norm 1 / scale in steps of the integer radius. At 2, one frequency in 32
# of that scale lies below half a step and is raised to one.
MIN_STEPS = 2.0
# A quarter turn per unit of a quantised coordinate, the limit of dense frequencies too; it
# leaves entries of the matrix within 32 bits.
MAX_INTEGER_NORM = 2.0**30
_ROW_BLOCK_VALUES = 2**20  # 4 MB of int32

_Integer = TypeVar("_Integer", np.int32, np.int64)


@dataclass(frozen=True, eq=False)
class StructuredBlocks:
    """Integers of structured frequencies, read-only.

    Attributes
    ----------
    signs1, signs2 : (n_blocks, size) int8, +1 or -1
        D1, between the transforms, and D2, applied to the record.
    radii : (n_blocks, size) int32, at least 1
    dim : int
        Columns of a record; `size` is a power of two of at least `dim`.
    n_features : int
        Features in use; the last block may have more than are left.
    """

    signs1: npt.NDArray[np.int8]
    signs2: npt.NDArray[np.int8]
    radii: npt.NDArray[np.int32]
    dim: int
    n_features: int

    @property
    def size(self) -> int:
        """Number of features of a whole block, a power of two."""
        return int(self.radii.shape[1])

    def block_features(self, block: int) -> slice:
        """Return the slice of the features of a block."""
        first = block * self.size
        return slice(first, min(first + self.size, self.n_features))

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return len(self.radii)

    def phases(self, quantised: npt.NDArray[np.int16]) -> npt.NDArray[np.uint32]:
        """Return phases (n, n_features) of records (n, dim) in units of 2^-32 turns."""
        padded = np.zeros((len(quantised), 1, self.size), dtype=np.int32)
        padded[:, 0, : self.dim] = quantised
        y = fwht(self.signs1 * fwht(self.signs2 * padded))
        return (self.radii * y).reshape(len(quantised), -1)[:, : self.n_features].view(np.uint32)

    def dense(self) -> npt.NDArray[np.int32]:
        """Return the same frequencies as a matrix, (n_features, dim)."""
        matrix = np.empty((self.n_features, self.dim), dtype=np.int32)
        columns = np.arange(self.dim)
        rows = max(1, _ROW_BLOCK_VALUES // self.dim)
        for block in range(self.n_blocks):
            h = fwht(self.signs1[block].astype(np.int32))
            used = self.block_features(block)
            for first in range(0, used.stop - used.start, rows):
                j = np.arange(first, min(first + rows, used.stop - used.start))
                entries = h[j[:, np.newaxis] ^ columns] * self.signs2[block, : self.dim]
                entries *= self.radii[block, j, np.newaxis]
                matrix[used.start + j[0] : used.start + j[-1] + 1] = entries
        return matrix


def draw_blocks(
    seed: int, n_features: int, dim: int, scales: tuple[float, float] | RadialLaw, half_width: float
) -> StructuredBlocks:
    """Draw blocks whose norms follow the radial law of dense frequencies.

    Parameters
    ----------
    seed : int
        Public seed of the design.
    n_features, dim : int
        Rows and columns of the matrix that the blocks represent.
    scales : (low, high) or RadialLaw
        Two scales are the ends of a log-uniform law.
    half_width : float
        Half the width of the domain, the same along every axis: `common_half_width`.

    Each block draws its numbers from the stream in one piece (scales, radii, D1, D2). So more
    features add blocks and keep the others.
    """
    n_features, dim = require_count("n_features", n_features), require_count("dim", dim)
    if dim > MAX_STRUCTURED_DIM:
        raise ParameterError(f"`dim={dim}`: expected at most {MAX_STRUCTURED_DIM}")
    law = (scales if isinstance(scales, RadialLaw) else RadialLaw(scales)).checked()
    size = block_size(dim)
    integer_norm = half_width / TWO_PI * 2.0 ** (TURN_BITS - RECORD_BITS)  # of 1 rad per unit
    if integer_norm / law.scales[1] < MIN_STEPS * np.sqrt(float(size * dim)):
        raise ParameterError(
            "frequency_scale",
            law.scales,
            f"too wide for structured frequencies of {dim} columns in a domain of half-width "
            f"{half_width:g}, whose norms are multiples of about "
            f"{np.sqrt(size * dim) / integer_norm:.3g}",
            "use smaller scales or dense frequencies",
        )
    n_blocks = -(-n_features // size)
    uniform = PublicStream(seed, Purpose.STRUCTURED_FREQUENCIES).uniform(n_blocks * 4 * size)
    for_scale, for_radius, for_signs1, for_signs2 = uniform.reshape(n_blocks, 4, size).swapaxes(
        0, 1
    )
    radius, scale = law.drawn(for_scale, for_radius)
    lengths = radius / scale * integer_norm
    if not lengths.max() <= MAX_INTEGER_NORM:
        raise ParameterError(
            "frequency_scale",
            law.scales,
            "too fine for this domain (a frequency of "
            f"{lengths.max() / 2.0 ** (TURN_BITS - RECORD_BITS):.3g} turns per half-width does "
            "not fit the fixed-point format)",
            "use a larger scale",
        )
    signs1, signs2 = _signs(for_signs1), _signs(for_signs2)
    signs1[:, -1] *= -signs1.prod(axis=1, dtype=np.int8)  # an odd number of minus signs
    norms = np.sqrt(squared_row_norms(signs1, dim).astype(np.float64))
    radii = np.maximum(np.rint(lengths / norms), 1.0).astype(np.int32)
    for array in (signs1, signs2, radii):
        array.flags.writeable = False
    return StructuredBlocks(signs1, signs2, radii, dim, n_features)


def block_size(dim: int) -> int:
    """Return the size of a block: the power of two that holds a record, at least 64."""
    return max(MIN_BLOCK_SIZE, 1 << (dim - 1).bit_length())


def common_half_width(domain: Domain) -> float:
    """Return the half-width that all axes of a domain share; raise when they differ.

    A block's transforms mix all columns with the same weight, so structured frequencies
    are isotropic in quantised units, and in the records' own units only if those agree.
    """
    half_widths = domain.half_widths
    widest, narrowest = float(half_widths.max()), float(half_widths.min())
    if widest - narrowest > 1e-9 * widest:  # bounds such as 0.1 and 0.3 leave rounding errors
        raise ParameterError(
            f"`frequencies='structured'`: the sides of the box differ (half-widths {narrowest:g} "
            f"to {widest:g}), but structured frequencies need equal ones; scale the records "
            "with Box.to_unit and use Box(-1, 1), or use dense frequencies"
        )
    return widest


def squared_row_norms(signs1: npt.NDArray[np.int8], dim: int) -> Integers:
    """Return exact squared norms of the rows of H D1 H D2, of their first `dim` columns.

    sum over k < dim of h[j xor k]^2 is a convolution over xor, which H turns into a
    product. All values stay below size^4 = 2^60.
    """
    size = signs1.shape[-1]
    squares = np.square(fwht(signs1.astype(np.int64)))
    used = (np.arange(size) < dim).astype(np.int64)
    return np.asarray(fwht(fwht(squares) * fwht(used)) // size)


def fwht(x: npt.NDArray[_Integer]) -> npt.NDArray[_Integer]:
    """Transform the last axis, a power of two, by H; integers keep their type and may wrap.

    H_jk = (-1)^(number of ones in j and k), unnormalised: applied twice it multiplies by
    the length.
    """
    size = x.shape[-1]
    step = 1
    while step < size:
        pairs = x.reshape(*x.shape[:-1], size // (2 * step), 2, step)
        a, b = pairs[..., 0, :], pairs[..., 1, :]
        x = np.stack([a + b, a - b], axis=-2).reshape(x.shape)
        step *= 2
    return x


def _signs(uniform: npt.NDArray[np.float64]) -> npt.NDArray[np.int8]:
    """Map the top bit of a word to a sign: -1 if it is set."""
    return np.where(uniform < 0.5, 1, -1).astype(np.int8)
