"""Loops over pairs of atoms, compiled: costs of merges, and phases between two centers.

To reduce the number of atoms, `learning/pruning.py` considers to merge every pair of neighbours
into one atom. The code here adds up the change of the residual without storing it. Inner products
of derivatives (`learning/uncertainty.py`) are sums over cosines and sines of phases between two
centers, which follow from cosines and sines of the centers.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from privsketch._base.types import Floats, Indices
from privsketch.features.stream import PublicStream, Purpose
from privsketch.kernels import machine
from privsketch.kernels.builder import Routine, Value
from privsketch.kernels.decoder import ATOMS, AtomWriter, Evaluation, Shape, public_inputs, shape_of
from privsketch.kernels.kinds import FLOAT, I64, Arguments, Array, Kind
from privsketch.kernels.operations import fma

MERGE_INPUTS = (
    "frequencies",  # (dim, features), in turns per unit
    "exponents",  # (widths, features)
    "taper",  # (features,)
    "residual",  # (2, features), times the taper
    "atoms",  # (atoms, 2, features), times the taper
    "weights",  # (pairs, 3): weights of the new atom, of the first and of the second one
    "centers",  # (pairs, dim): centers of the new atoms
    "variances",  # (pairs, widths): variances of the new atoms
)
PHASE_INPUTS = (
    "real",  # (atoms, features)
    "imaginary",
    "own_real",  # (features,): the atom that phases are relative to
    "own_imaginary",
)


@cache
def compile_merges(kind: str) -> Evaluation:
    """Compile the function `price_merges` for numbers of a kind, "float" or "double".

    Its arguments are the numbers of tiles, of pairs over ATOMS, of columns and of widths, the
    inputs above, the (pairs,) indices of the first and of the second atoms, and an output of
    (pairs, lanes). The growth of the squared residual is added to the output lane by lane.
    """
    shape = shape_of(kind)
    merges = Evaluation(machine.compile_routine(_MergeWriter(shape).write()), shape)
    _check_merges(merges)
    return merges


def _check_merges(merges: Evaluation) -> None:
    """Compare the function with its definition."""
    shape, (tiles, n_pairs, n_atoms, dim, widths) = merges.shape, (3, 3 * ATOMS, 5, 3, 2)
    n_features = tiles * shape.tile
    sizes = {
        "frequencies": (dim, n_features),
        "exponents": (widths, n_features),
        "taper": (n_features,),
        "residual": (2, n_features),
        "atoms": (n_atoms, 2, n_features),
        "weights": (n_pairs, 3),
        "centers": (n_pairs, dim),
        "variances": (n_pairs, widths),
    }
    numbers = public_inputs(PublicStream(1, Purpose.CHECK_PAIRS), sizes)
    arrays = {name: machine.aligned(numbers[name].astype(shape.dtype)) for name in MERGE_INPUTS}
    members = np.arange(2 * n_pairs).reshape(2, n_pairs) * 3 % n_atoms
    prices = np.zeros((n_pairs, shape.lanes), shape.dtype)
    merges.code.function(
        *(tiles, n_pairs // ATOMS, dim, widths),
        *(array.ctypes.data for array in (*arrays.values(), *members, prices)),
    )
    inputs = {name: arrays[name].astype(np.float64) for name in MERGE_INPUTS}
    merges.require_agreement(prices, merge_definition(inputs, *members))


def merge_definition(inputs: dict[str, Floats], first: Indices, second: Indices) -> Floats:
    """Return the (pairs,) growth of the squared residual by each merge, in plain NumPy."""
    phases = 2 * np.pi * inputs["centers"] @ inputs["frequencies"]
    new = np.stack([np.cos(phases), np.sin(phases)], axis=1)
    new *= np.exp2(inputs["variances"] @ inputs["exponents"])[:, None]
    new *= inputs["taper"]
    own, of_first, of_second = inputs["weights"].T[:, :, None, None]
    atoms = inputs["atoms"]
    change = own * new - of_first * atoms[first] - of_second * atoms[second]
    return np.asarray((change * (change + 2 * inputs["residual"])).sum(axis=(1, 2)))


@cache
def compile_phases() -> Evaluation:
    """Compile the function `phases_between`, in single precision.

    Its arguments are the number of atoms, that of vectors per atom, the inputs above, and two
    outputs of the shape of the first. One output is products of the real parts plus those of the
    imaginary parts. The other is imaginary times own real minus real times own imaginary parts.
    """
    shape = shape_of("float")
    phases = Evaluation(machine.compile_routine(_phases_routine(shape)), shape)
    _check_phases(phases)
    return phases


def _phases_routine(shape: Shape) -> Routine:
    names = (*PHASE_INPUTS, "together", "apart")
    arguments: Arguments = dict.fromkeys(("atoms", "vectors"), I64)
    arguments |= {name: Array(FLOAT) for name in names}
    routine = Routine("phases_between", arguments, vector_bits=32 * shape.lanes)
    vector, n_vectors = FLOAT.vector(shape.lanes), routine.numbers["vectors"]
    with routine.loop(routine.numbers["atoms"]) as atom, routine.loop(n_vectors) as index:
        own = index * shape.lanes
        offset = own + atom * n_vectors * shape.lanes
        addresses = [
            (routine.pointers[name] + (own if name.startswith("own") else offset)).to(vector)
            for name in names
        ]
        real, imaginary, own_real, own_imaginary = (address.load() for address in addresses[:4])
        addresses[4].store(fma(real, own_real, imaginary * own_imaginary))
        addresses[5].store(fma(imaginary, own_real, -(real * own_imaginary)))
    return routine.finish()


def _check_phases(phases: Evaluation) -> None:
    """Compare the function with its definition."""
    n_atoms, n_features = 3, 2 * phases.shape.lanes
    stream = PublicStream(2, Purpose.CHECK_PAIRS)
    numbers = (2 * stream.uniform((2 * n_atoms + 2) * n_features) - 1).astype(np.float32)
    real, imaginary, own = np.split(numbers.reshape(-1, n_features), (n_atoms, 2 * n_atoms))
    outputs = np.zeros((2, n_atoms, n_features), np.float32)
    phases.code.function(
        n_atoms, 2, *(each.ctypes.data for each in (real, imaginary, *own, *outputs))
    )
    expected = (real + 1j * imaginary) * np.conj(own[0] + 1j * own[1])
    error = max(np.abs(outputs[0] - expected.real).max(), np.abs(outputs[1] - expected.imag).max())
    machine.require_agreement("phases", bool(error <= 4 * np.finfo(np.float32).eps))


class _MergeWriter(AtomWriter):
    """Writes the function `price_merges`."""

    def __init__(self, shape: Shape) -> None:
        inputs: dict[str, Kind | None] = dict.fromkeys(MERGE_INPUTS)
        super().__init__(
            "price_merges", shape, {**inputs, "first": I64, "second": I64, "prices": None}
        )

    def write(self) -> Routine:
        routine, pointers = self.routine, self.routine.pointers
        n_features = routine.numbers["tiles"] * self.shape.tile
        with routine.loop(routine.numbers["tiles"]) as t:
            place = t * self.shape.tile
            with routine.loop(routine.numbers["pairs"]) as pair:
                merges = self.atoms(pair)
                centers = [pointers["centers"] + merge * self.dim for merge in merges]
                variances = [pointers["variances"] + merge * self.widths for merge in merges]
                phases = self.dot(pointers["frequencies"] + place, centers, self.dim, n_features)
                damping = self.dot(
                    pointers["exponents"] + place, variances, self.widths, n_features
                )
                totals = [
                    (pointers["prices"] + m * self.shape.lanes).to(self.vector) for m in merges
                ]
                sums = [total.load() for total in totals]
                for k, (atom, v) in enumerate(self.places):
                    at = place + v * self.shape.lanes
                    taper = (pointers["taper"] + at).to(self.vector).load()
                    damp = self.power_of_two(damping[k]) * taper
                    parts = [each * damp for each in self.cosine_sine(phases[k])]
                    for part, each in enumerate(parts):
                        sums[atom] = self.grown(
                            merges[atom], each, at + n_features * part, n_features, sums[atom]
                        )
                for total, each in zip(totals, sums, strict=True):
                    total.store(each)
        return routine.finish()

    def grown(
        self, merge: Value, new: Value, place: Value, n_features: Value, total: Value
    ) -> Value:
        """Add the price of one vector of features of the new atom to that of a merge so far."""
        pointers, lanes = self.routine.pointers, self.shape.lanes
        weights = [(pointers["weights"] + merge * 3 + k).load().splat(lanes) for k in range(3)]
        change = weights[0] * new
        for name, weight in zip(("first", "second"), weights[1:], strict=True):
            row = (pointers[name] + merge).load() * n_features * 2
            old = (pointers["atoms"] + row + place).to(self.vector).load()
            change = fma(-weight, old, change)
        residual = (pointers["residual"] + place).to(self.vector).load()
        return fma(change, change + residual + residual, total)
