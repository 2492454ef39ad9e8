"""Compiled loops over pairs of atoms: costs of merges, and phases between two centers.

To reduce the number of atoms, `learning/pruning.py` tries to merge pairs of neighbours. The cost
of a merge is the change of the squared residual, which is added up without being stored. Inner
products of derivatives (`learning/uncertainty.py`) are sums over cosines and sines of phases
between two centers, which follow from cosines and sines of the centers.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from privsketch._base.types import Floats, Indices
from privsketch.features.stream import PublicStream, Purpose
from privsketch.kernels import machine
from privsketch.kernels.atoms import (
    ATOMS,
    AtomWriter,
    Axes,
    Evaluation,
    Shape,
    public_inputs,
    shape_of,
    sizes_of,
)
from privsketch.kernels.builder import Routine, Value
from privsketch.kernels.kinds import FLOAT, I64, Arguments, Array, Kind
from privsketch.kernels.operations import fma

_MERGE_INPUTS: Axes = {
    "frequencies": ("dim", "features"),  # in turns per unit
    "exponents": ("widths", "features"),
    "taper": ("features",),
    "residual": (2, "features"),  # times the taper
    "atoms": ("atoms", 2, "features"),  # times the taper
    "weights": ("merges", 3),  # of the new, the first and the second atom
    "centers": ("merges", "dim"),  # of the new atoms
    "variances": ("merges", "widths"),  # of the new atoms
}
_PHASE_INPUTS = (
    "real",  # (atoms, features)
    "imaginary",
    "reference_real",  # (features,): the atom that phases are relative to
    "reference_imaginary",
)


@cache
def compile_merges(kind: str) -> Evaluation:
    """Compile the function `merge_costs` for numbers of type "float" or "double".

    Its arguments are the numbers of tiles, of groups of ATOMS pairs, of columns and of widths, the
    inputs above, the (pairs,) indices of the first and the second atoms, and an output of
    (pairs, lanes), to which the change of the squared residual is added lane by lane.
    """
    shape = shape_of(kind)
    merges = Evaluation(machine.compile_routine(_MergeWriter(shape).write()), shape)
    _check_merges(merges)
    return merges


def _check_merges(merges: Evaluation) -> None:
    """Compare the function with its definition."""
    shape, (tiles, n_merges, n_atoms, dim, widths) = merges.shape, (3, 3 * ATOMS, 5, 3, 2)
    lengths = {"features": tiles * shape.tile, "merges": n_merges, "atoms": n_atoms}
    sizes = sizes_of(_MERGE_INPUTS, {**lengths, "dim": dim, "widths": widths})
    numbers = public_inputs(PublicStream(1, Purpose.CHECK_PAIRS), sizes)
    arrays = {name: machine.aligned(numbers[name].astype(shape.dtype)) for name in sizes}
    members = np.arange(2 * n_merges).reshape(2, n_merges) * 3 % n_atoms
    costs = np.zeros((n_merges, shape.lanes), shape.dtype)
    merges.code.function(
        *(tiles, n_merges // ATOMS, dim, widths),
        *(array.ctypes.data for array in (*arrays.values(), *members, costs)),
    )
    inputs = {name: array.astype(np.float64) for name, array in arrays.items()}
    merges.require_agreement(costs, merge_definition(inputs, *members))


def merge_definition(inputs: dict[str, Floats], first: Indices, second: Indices) -> Floats:
    """Return the (pairs,) changes of the squared residual by each merge, in plain NumPy."""
    phases = 2 * np.pi * inputs["centers"] @ inputs["frequencies"]
    new = np.stack([np.cos(phases), np.sin(phases)], axis=1)
    new *= np.exp2(inputs["variances"] @ inputs["exponents"])[:, None]
    new *= inputs["taper"]
    weight, first_weight, second_weight = inputs["weights"].T[:, :, None, None]
    atoms = inputs["atoms"]
    change = weight * new - first_weight * atoms[first] - second_weight * atoms[second]
    return np.asarray((change * (change + 2 * inputs["residual"])).sum(axis=(1, 2)))


@cache
def compile_phases() -> Evaluation:
    """Compile the function `phases_between`, in single precision.

    Its arguments are the number of atoms, the number of vectors per atom, the inputs above, and two
    outputs shaped like `real`: the real and the imaginary part of each atom's features times the
    complex conjugate of the reference's.
    """
    shape = shape_of("float")
    phases = Evaluation(machine.compile_routine(_phases_routine(shape)), shape)
    _check_phases(phases)
    return phases


def _phases_routine(shape: Shape) -> Routine:
    names = (*_PHASE_INPUTS, "real_product", "imaginary_product")
    arguments: Arguments = dict.fromkeys(("atoms", "vectors"), I64)
    arguments |= {name: Array(FLOAT) for name in names}
    routine = Routine("phases_between", arguments, vector_bits=32 * shape.lanes)
    vector, n_vectors = FLOAT.vector(shape.lanes), routine.numbers["vectors"]
    with routine.loop(routine.numbers["atoms"]) as atom, routine.loop(n_vectors) as index:
        column = index * shape.lanes
        offset = column + atom * n_vectors * shape.lanes
        addresses = [
            (routine.pointers[name] + (column if "reference" in name else offset)).to(vector)
            for name in names
        ]
        x, y, reference_x, reference_y = (address.load() for address in addresses[:4])
        addresses[4].store(fma(x, reference_x, y * reference_y))
        addresses[5].store(fma(y, reference_x, -(x * reference_y)))
    return routine.finish()


def _check_phases(phases: Evaluation) -> None:
    """Compare the function with its definition."""
    n_atoms, n_features = 3, 2 * phases.shape.lanes
    stream = PublicStream(2, Purpose.CHECK_PAIRS)
    numbers = (2 * stream.uniform((2 * n_atoms + 2) * n_features) - 1).astype(np.float32)
    real, imaginary, reference = np.split(numbers.reshape(-1, n_features), (n_atoms, 2 * n_atoms))
    outputs = np.zeros((2, n_atoms, n_features), np.float32)
    arrays = (real, imaginary, *reference, *outputs)
    phases.code.function(n_atoms, 2, *(array.ctypes.data for array in arrays))
    expected = (real + 1j * imaginary) * np.conj(reference[0] + 1j * reference[1])
    error = max(np.abs(outputs[0] - expected.real).max(), np.abs(outputs[1] - expected.imag).max())
    machine.require_agreement("phases", bool(error <= 4 * np.finfo(np.float32).eps))


class _MergeWriter(AtomWriter):
    """Writer of the function `merge_costs`."""

    def __init__(self, shape: Shape) -> None:
        inputs: dict[str, Kind | None] = dict.fromkeys(_MERGE_INPUTS)
        super().__init__(
            "merge_costs", shape, {**inputs, "first": I64, "second": I64, "costs": None}
        )

    def write(self) -> Routine:
        routine, pointers = self.routine, self.routine.pointers
        n_features = routine.numbers["tiles"] * self.shape.tile
        with routine.loop(routine.numbers["tiles"]) as t:
            first = t * self.shape.tile
            with routine.loop(routine.numbers["pairs"]) as pair:
                merges = self.atoms(pair)
                centers = [pointers["centers"] + merge * self.dim for merge in merges]
                variances = [pointers["variances"] + merge * self.widths for merge in merges]
                phases = self.dot(pointers["frequencies"] + first, centers, self.dim, n_features)
                damping = self.dot(
                    pointers["exponents"] + first, variances, self.widths, n_features
                )
                totals = [
                    (pointers["costs"] + m * self.shape.lanes).to(self.vector) for m in merges
                ]
                sums = [total.load() for total in totals]
                for k, (atom, v) in enumerate(self.entries):
                    offset = first + v * self.shape.lanes
                    taper = (pointers["taper"] + offset).to(self.vector).load()
                    envelope = self.power_of_two(damping[k]) * taper
                    phasor = [part * envelope for part in self.cosine_sine(phases[k])]
                    for part, new in enumerate(phasor):
                        sums[atom] = self.add_cost(
                            sums[atom], merges[atom], new, offset + n_features * part, n_features
                        )
                for total, value in zip(totals, sums, strict=True):
                    total.store(value)
        return routine.finish()

    def add_cost(
        self, total: Value, merge: Value, new: Value, offset: Value, n_features: Value
    ) -> Value:
        """Add the cost of a merge over one vector of the new atom's features to a total."""
        pointers, lanes = self.routine.pointers, self.shape.lanes
        weights = [(pointers["weights"] + merge * 3 + k).load().splat(lanes) for k in range(3)]
        change = weights[0] * new
        for name, weight in zip(("first", "second"), weights[1:], strict=True):
            row = (pointers[name] + merge).load() * n_features * 2
            old = (pointers["atoms"] + row + offset).to(self.vector).load()
            change = fma(-weight, old, change)
        residual = (pointers["residual"] + offset).to(self.vector).load()
        return fma(change, change + residual + residual, total)
