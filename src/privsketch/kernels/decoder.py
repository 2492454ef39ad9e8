"""The cost of a model and its derivatives: the inner loop of decoders, compiled.

The code handles one tile of frequencies at a time. It computes the phase, cosine and sine of every
atom, their weighted sum (the model), the weighted residual, and the products of the residual with
every atom's derivatives. Cosines and sines of a tile stay in the first-level cache; separate NumPy
calls would move all of them through memory six times.

Arrays have the layout of `learning/refine.py`: rows of a tile are neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from privsketch._base.types import Floats
from privsketch.features.stream import PublicStream, Purpose
from privsketch.kernels import machine
from privsketch.kernels.builder import Pointer, Routine, Value
from privsketch.kernels.kinds import DOUBLE, FLOAT, I32, I64, Arguments, Array, Kind
from privsketch.kernels.operations import fma, maximum, polynomial, rint

ATOMS = 2  # atoms of a pair, which share the loads of the frequencies
Axes = Mapping[str, tuple[str | int, ...]]  # names or lengths of the axes of arrays
_EVALUATION_NUMBERS = ("tiles", "pairs", "dim", "widths")
_INPUTS: Axes = {
    "frequencies": ("tiles", "dim", "tile"),  # in turns per unit
    "exponents": ("tiles", "widths", "tile"),  # factors of variances in log2(envelope)
    "moments": ("tiles", 2, "tile"),  # cosines and sines
    "squared_taper": ("tiles", 1, "tile"),
    "weights": ("atoms",),
    "centers": ("atoms", "dim"),
    "variances": ("atoms", "widths"),  # if all atoms share one width, the first row is used
}
_OUTPUTS: Axes = {
    "scratch": ("atoms", 2, "tile"),
    "totals": (2, "tiles", "lanes"),  # cost; half its derivative by a shared width over log 2
    "by_weight": ("atoms", "lanes"),  # half the derivative, added to the contents lane by lane
    "by_center": ("atoms", "dim", "lanes"),  # likewise, over 2 pi and the weight
    "by_variance": ("atoms", "widths", "lanes"),  # likewise, over log 2 and the weight
}


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


@cache
def compile_evaluation(kind: str, atom_widths: bool) -> Evaluation:
    """Compile the function `evaluate` for numbers of a kind, "float" or "double".

    Its arguments are the numbers, inputs and outputs above. With `atom_widths`, every atom has its
    own envelope. Otherwise an envelope of one width, for all atoms and directions, multiplies the
    model, and `by_variance` is unused.
    """
    shape = shape_of(kind)
    routine = _EvaluationWriter(shape, atom_widths).write()
    evaluation = Evaluation(machine.compile_routine(routine), shape)
    _check(evaluation, atom_widths)
    return evaluation


def _check(evaluation: Evaluation, atom_widths: bool) -> None:
    """Compare the function with its definition, at a few thousand phases."""
    shape, lengths = evaluation.shape, {"tiles": 8, "pairs": 4, "dim": 3, "widths": 1}
    if atom_widths:
        lengths["widths"] = 2
    arguments = tuple(lengths.values())
    lengths |= {"atoms": 4 * ATOMS, "tile": shape.tile, "lanes": shape.lanes}
    inputs = public_inputs(PublicStream(0, Purpose.CHECK_DECODER), sizes_of(_INPUTS, lengths))
    inputs["frequencies"] *= 4  # phases of up to a dozen turns
    inputs["variances"] *= 3
    inputs["variances"][-1] *= 10_000  # an atom that is damped to nothing
    outputs = {name: np.zeros(size) for name, size in sizes_of(_OUTPUTS, lengths).items()}
    arrays = {
        name: machine.aligned(array.astype(shape.dtype))
        for name, array in {**inputs, **outputs}.items()
    }
    evaluation.code.function(*arguments, *(array.ctypes.data for array in arrays.values()))
    expected = definition({name: arrays[name].astype(np.float64) for name in _INPUTS}, atom_widths)
    for name, values in expected.items():
        evaluation.require_agreement(arrays[name], values)


def definition(inputs: dict[str, Floats], atom_widths: bool) -> dict[str, Floats]:
    """Return the amounts that the function adds to its outputs, over lanes, in plain NumPy."""
    phases = 2 * np.pi * np.einsum("tdj,ad->taj", inputs["frequencies"], inputs["centers"])
    atoms = np.stack([np.cos(phases), np.sin(phases)])  # (2, tiles, atoms, tile)
    exponents, variances = inputs["exponents"], inputs["variances"]
    if not atom_widths:
        variances = np.broadcast_to(variances[:1], variances.shape)
    atoms *= np.exp2(np.einsum("twj,aw->taj", exponents, variances))
    model = np.einsum("a,ptaj->tpj", inputs["weights"], atoms)
    difference = model - inputs["moments"]
    weighted = difference * inputs["squared_taper"]
    slopes = np.einsum("tpj,tpj,tj->t", weighted, model, exponents[:, 0])
    real, imaginary = weighted[:, np.newaxis, 0], weighted[:, np.newaxis, 1]
    along = atoms[0] * real + atoms[1] * imaginary
    across = atoms[0] * imaginary - atoms[1] * real
    outputs = {
        "totals": np.stack(
            [
                np.einsum("tpj,tpj->t", weighted, difference),
                np.zeros(len(model)) if atom_widths else slopes,
            ]
        ),
        "by_weight": along.sum(axis=(0, 2)),
        "by_center": np.einsum("taj,tdj->ad", across, inputs["frequencies"]),
    }
    if atom_widths:
        outputs["by_variance"] = np.einsum("taj,twj->aw", along, inputs["exponents"])
    return outputs


class AtomWriter:
    """Writer of the arithmetic of a pair of atoms; lists have an entry for each atom and vector."""

    def __init__(self, name: str, shape: Shape, inputs: Mapping[str, Kind | None]) -> None:
        self.number = FLOAT if shape.kind == "float" else DOUBLE
        arguments: Arguments = dict.fromkeys(_EVALUATION_NUMBERS, I64)
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
        """Compute 2^x for x <= 0; far below 0, the result is a tiny constant.

        The smallest normal number would be too small: its products with phasors would be denormal.
        A processor would then take five times as long for frequencies far above those of wide
        clusters.
        """
        single = self.number == FLOAT
        integer, mantissa_bits = (I32, 23) if single else (I64, 52)
        x = maximum(x, -60.0 if single else -500.0)
        rounded = rint(x)
        coefficients = _coefficients("power of two", 7 if single else 12)
        mantissa = polynomial(x - rounded, coefficients)
        exponent = rounded.signed_to(integer) << mantissa_bits
        return (mantissa.bits_as(exponent.kind) + exponent).bits_as(self.vector)


class _EvaluationWriter(AtomWriter):
    """Writer of the function `evaluate`.

    For every tile and pair of atoms, the function stores features in `scratch` and adds up the
    model. Then it computes the residual, and adds the derivatives of every pair to the outputs lane
    by lane.
    """

    def __init__(self, shape: Shape, atom_widths: bool) -> None:
        super().__init__("evaluate", shape, dict.fromkeys((*_INPUTS, *_OUTPUTS)))
        self.atom_widths = atom_widths

    def write(self) -> Routine:
        routine, pointers, tile = self.routine, self.routine.pointers, self.shape.tile
        with routine.loop(routine.numbers["tiles"]) as t:
            frequencies = pointers["frequencies"] + t * self.dim * tile
            exponents = pointers["exponents"] + t * self.widths * tile
            zero = routine.constant(self.vector, 0.0)
            model = [zero] * (2 * self.shape.vectors)  # cosines, then sines
            with routine.loop(routine.numbers["pairs"], model) as pair:
                self.forward(self.atoms(pair), frequencies, exponents, model)
            weighted = self.residual(t, model, exponents)
            with routine.loop(routine.numbers["pairs"]) as pair:
                self.backward(self.atoms(pair), frequencies, exponents, weighted)
        return routine.finish()

    def halves(self, start: Pointer) -> list[tuple[Pointer, Pointer]]:
        """Return the addresses of the vectors of cosines and sines of a tile."""
        sines = self.vectors(start + self.shape.tile)
        return list(zip(self.vectors(start), sines, strict=True))

    def scratch(self, atom: Value) -> list[tuple[Pointer, Pointer]]:
        """Return the addresses of the cosines and sines of an atom."""
        return self.halves(self.routine.pointers["scratch"] + atom * (2 * self.shape.tile))

    # --- forward -------------------------------------------------------------------------------

    def forward(
        self, atoms: list[Value], frequencies: Pointer, exponents: Pointer, model: list[Value]
    ) -> None:
        """Store the features of two atoms and add them, weighted, to the model."""
        pointers, vectors = self.routine.pointers, self.shape.vectors
        centers = [pointers["centers"] + atom * self.dim for atom in atoms]
        phases = self.dot(frequencies, centers, self.dim, self.shape.tile)
        if self.atom_widths:
            variances = [pointers["variances"] + atom * self.widths for atom in atoms]
            damping = self.dot(exponents, variances, self.widths, self.shape.tile)
        for entry, (atom, v) in enumerate(self.entries):
            phasor = self.cosine_sine(phases[entry])
            if self.atom_widths:
                envelope = self.power_of_two(damping[entry])
                phasor = phasor[0] * envelope, phasor[1] * envelope
            for target, part in zip(self.scratch(atoms[atom])[v], phasor, strict=True):
                target.store(part)
            weight = (pointers["weights"] + atoms[atom]).load().splat(self.shape.lanes)
            for k, part in zip((v, vectors + v), phasor, strict=True):
                model[k] = fma(weight, part, model[k])

    # --- backward ------------------------------------------------------------------------------

    def residual(self, t: Value, model: list[Value], exponents: Pointer) -> list[Value]:
        """Store the totals of a tile; return the residual times taper^2 and shared envelope."""
        pointers, first = self.routine.pointers, t * self.shape.tile
        tapers = self.vectors(pointers["squared_taper"] + first)
        moments = self.halves(pointers["moments"] + first * 2)
        variance = pointers["variances"].load().splat(self.shape.lanes)
        cost = slope = self.routine.constant(self.vector, 0.0)
        weighted = list(model)
        for v, powers in enumerate(self.vectors(exponents)):
            taper = tapers[v].load()
            if not self.atom_widths:
                exponent = powers.load()
                envelope = self.power_of_two(exponent * variance)
            for part in range(2):
                k = part * self.shape.vectors + v
                value = model[k] if self.atom_widths else model[k] * envelope
                difference = value - moments[v][part].load()
                weighted[k] = difference * taper
                cost = fma(weighted[k], difference, cost)
                if not self.atom_widths:
                    slope = fma(weighted[k] * exponent, value, slope)
                    weighted[k] = weighted[k] * envelope
        totals, tiles = pointers["totals"], self.routine.numbers["tiles"]
        (totals + t * self.shape.lanes).to(self.vector).store(cost)
        (totals + (tiles + t) * self.shape.lanes).to(self.vector).store(slope)
        return weighted

    def backward(
        self, atoms: list[Value], frequencies: Pointer, exponents: Pointer, weighted: list[Value]
    ) -> None:
        """Add the derivatives of two atoms to the outputs."""
        pointers, vectors, lanes = self.routine.pointers, self.shape.vectors, self.shape.lanes
        along, across = [], []
        for atom, v in self.entries:
            cosine, sine = (pointer.load() for pointer in self.scratch(atoms[atom])[v])
            real, imaginary = weighted[v], weighted[vectors + v]
            along.append(fma(cosine, real, sine * imaginary))
            across.append(fma(cosine, imaginary, -(sine * real)))
        for atom in range(ATOMS):
            target = (pointers["by_weight"] + atoms[atom] * lanes).to(self.vector)
            total = target.load()
            for v in range(vectors):
                total = total + along[atom * vectors + v]
            target.store(total)
        self.scatter("by_center", frequencies, across, atoms, self.dim)
        if self.atom_widths:
            self.scatter("by_variance", exponents, along, atoms, self.widths)

    def scatter(
        self, name: str, rows: Pointer, values: list[Value], atoms: list[Value], length: Value
    ) -> None:
        """Add the products of the tile's rows with `values` to the output `name`."""
        lanes, vectors = self.shape.lanes, self.shape.vectors
        outputs = [self.routine.pointers[name] + atom * length * lanes for atom in atoms]
        with self.routine.loop(length) as j:
            row = [address.load() for address in self.vectors(rows + j * self.shape.tile)]
            for atom in range(ATOMS):
                target = (outputs[atom] + j * lanes).to(self.vector)
                total = target.load()
                for v in range(vectors):
                    total = fma(values[atom * vectors + v], row[v], total)
                target.store(total)


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
