"""Arithmetic of atoms in compiled code: phases, cosines, sines and envelopes.

Two kernels compute with atoms: the cost of a model and its derivatives (`kernels/decoder.py`), and
the costs of merges (`kernels/pairs.py`). Both handle one tile of frequencies and two atoms at a
time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from privsketch._base.types import Floats
from privsketch.features.stream import PublicStream
from privsketch.kernels import machine
from privsketch.kernels.builder import Pointer, Routine, Value
from privsketch.kernels.kinds import DOUBLE, FLOAT, I32, I64, Arguments, Array, Kind
from privsketch.kernels.operations import fma, maximum, polynomial, rint

ATOMS = 2  # atoms of a pair, which share the loads of the frequencies
Axes = Mapping[str, tuple[str | int, ...]]  # names or lengths of the axes of arrays
LENGTHS = ("tiles", "pairs", "dim", "widths")


@dataclass(frozen=True)
class Shape:
    """Number type, lanes of one vector, and vectors per tile of frequencies."""

    kind: str  # "float" or "double"
    lanes: int
    vectors: int

    @property
    def tile(self) -> int:
        """Frequencies per tile."""
        return self.lanes * self.vectors

    @property
    def dtype(self) -> type[np.floating[Any]]:
        """NumPy's type of the numbers."""
        return np.float32 if self.kind == "float" else np.float64


@dataclass(frozen=True)
class Evaluation:
    """A compiled function and its shape."""

    code: machine.Code
    shape: Shape

    def require_agreement(self, values: Floats, expected: Floats) -> None:
        """Refuse the function if values, added up over lanes, are not close to the expected ones.

        The largest rounding error, with vectors of any width, was 42 units of the last place.
        """
        with np.errstate(invalid="ignore"):
            error = np.abs(values.sum(axis=-1, dtype=np.float64) - expected).max()
        tolerance = 256 * float(np.finfo(self.shape.dtype).eps) * np.abs(expected).max()
        machine.require_agreement(f"{self.shape.kind!r} decoder", bool(error <= tolerance))


def sizes_of(arrays: Axes, lengths: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Return the sizes of arrays whose named axes have these lengths."""
    return {
        name: tuple(lengths[axis] if isinstance(axis, str) else axis for axis in axes)
        for name, axes in arrays.items()
    }


def public_inputs(stream: PublicStream, sizes: Mapping[str, tuple[int, ...]]) -> dict[str, Floats]:
    """Draw inputs for a check: numbers in [-1, 1], negative exponents and positive variances."""
    numbers = {
        name: (2 * stream.uniform(math.prod(size)) - 1).reshape(size)
        for name, size in sizes.items()
    }
    numbers["exponents"] = -np.abs(numbers["exponents"])
    numbers["variances"] = np.abs(numbers["variances"])
    return numbers


def shape_of(kind: str) -> Shape:
    """Return the shape for numbers of a kind, "float" or "double", on this processor."""
    lanes = machine.vector_bits() // (32 if kind == "float" else 64)
    return Shape(kind, lanes, vectors=4 if machine.vector_bits() == 512 else 2)


class AtomWriter:
    """Writer of the arithmetic of a pair of atoms; lists have an entry for each atom and vector."""

    def __init__(
        self,
        name: str,
        shape: Shape,
        inputs: Mapping[str, Kind | None],
        numbers: Sequence[str] = LENGTHS,
    ) -> None:
        self.number = FLOAT if shape.kind == "float" else DOUBLE
        arguments: Arguments = dict.fromkeys(numbers, I64)
        arguments |= {key: Array(kind or self.number) for key, kind in inputs.items()}
        bits = self.number.number_bits * shape.lanes
        self.routine, self.shape = Routine(name, arguments, vector_bits=bits), shape
        self.vector = self.number.vector(shape.lanes)
        self.entries = [(atom, v) for atom in range(ATOMS) for v in range(shape.vectors)]
        self.dim, self.widths = (self.routine.numbers[name] for name in ("dim", "widths"))

    def atoms(self, pair: Value) -> list[Value]:
        """Return the indices of the atoms of a pair."""
        return [pair * ATOMS + atom for atom in range(ATOMS)]

    def vectors(self, start: Pointer) -> list[Pointer]:
        """Return the addresses of the vectors of a tile."""
        return [(start + v * self.shape.lanes).to(self.vector) for v in range(self.shape.vectors)]

    def dot(
        self, rows: Pointer, columns: list[Pointer], length: Value, stride: Value | int
    ) -> list[Value]:
        """Compute dot products of every frequency's row with every atom's, of this length.

        Rows are `stride` numbers apart.
        """
        sums = [self.routine.constant(self.vector, 0.0)] * len(self.entries)
        with self.routine.loop(length, sums) as j:
            row = [address.load() for address in self.vectors(rows + j * stride)]
            factors = [(column + j).load().splat(self.shape.lanes) for column in columns]
            for entry, (atom, v) in enumerate(self.entries):
                sums[entry] = fma(factors[atom], row[v], sums[entry])
        return sums

    def cosine_sine(self, turns: Value) -> tuple[Value, Value]:
        """Compute cosine and sine of a phase in turns, by half angles: 1 - 2 sin^2, 2 sin cos."""
        n_terms = 5 if self.number == FLOAT else 9  # the error is below a rounding
        r = turns - rint(turns)
        square = r * r
        half_sine = polynomial(square, _coefficients("half sine", n_terms)) * r
        half_cosine = polynomial(square, _coefficients("half cosine", n_terms))
        doubled = half_sine + half_sine
        return fma(-doubled, half_sine, 1.0), doubled * half_cosine

    def power_of_two(self, x: Value) -> Value:
        """Compute 2^x for x <= 0; far below 0, the result is a tiny constant."""
        return power_of_two(x, self.number)


def power_of_two(x: Value, number: Kind) -> Value:
    """Compute 2^x for x <= 0, floats or doubles; far below 0, the result is a tiny constant.

    The smallest normal number would be too small: its products with phasors would be denormal. A
    processor would then take five times as long for frequencies far above those of wide clusters.
    """
    single = number == FLOAT
    integer, mantissa_bits = (I32, 23) if single else (I64, 52)
    kind = x.kind
    x = maximum(x, -60.0 if single else -500.0)
    rounded = rint(x)
    coefficients = _coefficients("power of two", 7 if single else 12)
    mantissa = polynomial(x - rounded, coefficients)
    exponent = rounded.signed_to(integer) << mantissa_bits
    return (mantissa.bits_as(exponent.kind) + exponent).bits_as(kind)


# Functions that polynomials approximate, and their intervals: sin(pi r) / r and cos(pi r) as
# functions of r^2, and 2^x.
_FUNCTIONS: dict[str, tuple[Callable[[Floats], Floats], float, float]] = {
    "half sine": (lambda x: np.sin(np.pi * np.sqrt(x)) / np.sqrt(x), 0.0, 0.25),
    "half cosine": (lambda x: np.cos(np.pi * np.sqrt(x)), 0.0, 0.25),
    "power of two": (np.exp2, -0.5, 0.5),
}


@cache
def _coefficients(name: str, n_terms: int) -> list[float]:
    """Return coefficients, lowest first, of a near-best polynomial for one of the functions."""
    function, low, high = _FUNCTIONS[name]
    grid = np.polynomial.chebyshev.chebpts1(4 * n_terms) * (high - low) / 2 + (high + low) / 2
    series = np.polynomial.Chebyshev.fit(grid, function(grid), n_terms - 1, domain=[low, high])
    return [float(c) for c in series.convert(kind=np.polynomial.Polynomial).coef]
