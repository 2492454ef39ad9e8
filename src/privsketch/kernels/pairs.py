"""The decoders' loops over pairs of atoms: what a merge costs, and the phases between two centers.

When atoms are to go, every pair of neighbours is a candidate for one atom in their place
(`learning/pruning.py`): what that changes is summed up without being stored. Inner products
of derivatives (`learning/uncertainty.py`) are sums over cosines and sines of phases between two
centers, which follow from those of the centers themselves.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from privsketch._base.types import Floats, Indices
from privsketch.features.stream import PublicStream, Purpose
from privsketch.kernels import machine
from privsketch.kernels.builder import FLOAT, I64, Array, Kind, Routine, Value, fma
from privsketch.kernels.decoder import ATOMS, NUMBERS, AtomWriter, Evaluation, Shape, shape_of

MERGE_INPUTS = (
    "frequencies",  # (dim, features), in turns per unit
    "exponents",  # (widths, features)
    "taper",  # (features,)
    "residual",  # (2, features), with the taper
    "atoms",  # (atoms, 2, features), with the taper
    "weights",  # (pairs, 3): of the atom that is new, of the first and of the second one
    "centers",  # (pairs, dim), of the new atoms
    "variances",  # (pairs, widths)
)
PHASE_INPUTS = (
    "real",  # (atoms, features)
    "imaginary",
    "own_real",  # (features,) of the atom that phases are counted from
    "own_imaginary",
)


@cache
def compile_merges(kind: str) -> Evaluation:
    """The function `price_merges` for numbers of a kind, on this processor.

    Its arguments are the numbers of tiles, of pairs over ATOMS, of columns and of widths, the
    inputs above, the (pairs,) numbers of the first and of the second atoms, and an output of
    (pairs, lanes): what the squared length of the residual grows by, which is added to what is
    there lane by lane.
    """
    shape = shape_of(kind)
    module = _MergeWriter(shape).write()
    arguments = [machine.INTEGER] * len(NUMBERS) + [machine.POINTER] * (len(MERGE_INPUTS) + 3)
    merges = Evaluation(machine.compile_function(module, "price_merges", *arguments), shape)
    _check_merges(merges)
    return merges


def _check_merges(merges: Evaluation) -> None:
    """Compares the function with its definition."""
    shape, (tiles, n_pairs, n_atoms, dim, widths) = merges.shape, (3, 3 * ATOMS, 5, 3, 2)
    dtype: type[np.floating[Any]] = np.float32 if shape.kind == "float" else np.float64
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
    stream = PublicStream(1, Purpose.CHECK_PAIRS)
    numbers = {
        name: (2 * stream.uniform(math.prod(size)) - 1).reshape(size)
        for name, size in sizes.items()
    }
    numbers["exponents"] = -np.abs(numbers["exponents"])
    numbers["variances"] = np.abs(numbers["variances"])
    arrays = {name: machine.aligned(numbers[name].astype(dtype)) for name in MERGE_INPUTS}
    members = np.arange(2 * n_pairs).reshape(2, n_pairs) * 3 % n_atoms
    prices = np.zeros((n_pairs, shape.lanes), dtype)
    merges.code.function(
        *(tiles, n_pairs // ATOMS, dim, widths),
        *(array.ctypes.data for array in (*arrays.values(), *members, prices)),
    )
    inputs = {name: arrays[name].astype(np.float64) for name in MERGE_INPUTS}
    right = merge_definition(inputs, *members)
    error = np.abs(prices.sum(axis=1, dtype=np.float64) - right).max()
    agrees = bool(error <= 256 * float(np.finfo(dtype).eps) * np.abs(right).max())
    machine.require_agreement(f"{shape.kind!r} decoder", agrees)


def merge_definition(inputs: dict[str, Floats], first: Indices, second: Indices) -> Floats:
    """(pairs,) growth of the squared residual by each merge: the same in plain NumPy."""
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
    """The function `phases_between`, in single precision, on this processor.

    Its arguments are the number of atoms, that of vectors per atom, the inputs above, and two
    outputs like the first: products of the real parts plus those of the imaginary parts, and
    imaginary times own real less real times own imaginary parts.
    """
    shape = shape_of("float")
    arguments = [machine.INTEGER] * 2 + [machine.POINTER] * (len(PHASE_INPUTS) + 2)
    code = machine.compile_function(_phases_module(shape), "phases_between", *arguments)
    phases = Evaluation(code, shape)
    _check_phases(phases)
    return phases


def _phases_module(shape: Shape) -> Any:
    names = (*PHASE_INPUTS, "together", "apart")
    arguments: dict[str, Kind | Array] = dict.fromkeys(("atoms", "vectors"), I64)
    arguments |= {name: Array(FLOAT) for name in names}
    routine = Routine("phases_between", arguments, vector_bits=32 * shape.lanes)
    vector, n_vectors = FLOAT.vector(shape.lanes), routine.numbers["vectors"]
    with routine.loop(routine.numbers["atoms"]) as atom, routine.loop(n_vectors) as place:
        own = place * shape.lanes
        each = own + atom * n_vectors * shape.lanes
        at = [own if name.startswith("own") else each for name in names]
        places = [(routine.pointers[n] + k).to(vector) for n, k in zip(names, at, strict=True)]
        real, imaginary, own_real, own_imaginary = (each.load() for each in places[:4])
        places[4].store(fma(real, own_real, imaginary * own_imaginary))
        places[5].store(fma(imaginary, own_real, -(real * own_imaginary)))
    return routine.finish()


def _check_phases(phases: Evaluation) -> None:
    """Compares the function with its definition."""
    n_atoms, n_features = 3, 2 * phases.shape.lanes
    stream = PublicStream(2, Purpose.CHECK_PAIRS)
    numbers = (2 * stream.uniform((2 * n_atoms + 2) * n_features) - 1).astype(np.float32)
    real, imaginary, own = np.split(numbers.reshape(-1, n_features), (n_atoms, 2 * n_atoms))
    found = np.zeros((2, n_atoms, n_features), np.float32)
    phases.code.function(
        n_atoms, 2, *(each.ctypes.data for each in (real, imaginary, *own, *found))
    )
    turned = (real + 1j * imaginary) * np.conj(own[0] + 1j * own[1])
    error = max(np.abs(found[0] - turned.real).max(), np.abs(found[1] - turned.imag).max())
    machine.require_agreement("phases", bool(error <= 4 * np.finfo(np.float32).eps))


class _MergeWriter(AtomWriter):
    """Writes the function `price_merges`."""

    def __init__(self, shape: Shape) -> None:
        inputs: dict[str, Kind | None] = dict.fromkeys(MERGE_INPUTS)
        super().__init__(
            "price_merges", shape, {**inputs, "first": I64, "second": I64, "prices": None}
        )

    def write(self) -> Any:
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
        """The price of a merge so far, with that of one vector of features of its new atom."""
        pointers, lanes = self.routine.pointers, self.shape.lanes
        weights = [(pointers["weights"] + merge * 3 + k).load().splat(lanes) for k in range(3)]
        change = weights[0] * new
        for name, weight in zip(("first", "second"), weights[1:], strict=True):
            row = (pointers[name] + merge).load() * n_features * 2
            old = (pointers["atoms"] + row + place).to(self.vector).load()
            change = fma(-weight, old, change)
        residual = (pointers["residual"] + place).to(self.vector).load()
        return fma(change, change + residual + residual, total)
