"""The cost of a model and its derivatives: the inner loop of decoders, compiled.

The code handles one tile of frequencies at a time. It computes the phase, cosine and sine of every
atom, their weighted sum (the model), the weighted residual, and the products of the residual with
every atom's derivatives. Cosines and sines of a tile stay in the first-level cache; separate NumPy
calls would move all of them through memory six times.

With labels, atoms are products: a Gaussian in the numbers, times a factor for each block of
corners (a category or a flag). The factor of a block mixes the phasors of its corners, which are
public, by the atom's shares. Derivatives by the shares need the product of all other factors. It
comes from the products before and after the block, not from a division: labels that are mixed have
factors of 0.

Arrays have the layout of `learning/refine.py`: rows of a tile are neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from privsketch._base.types import Floats
from privsketch.features.stream import PublicStream, Purpose
from privsketch.kernels import machine
from privsketch.kernels.atoms import (
    ATOMS,
    LENGTHS,
    AtomWriter,
    Axes,
    Evaluation,
    Shape,
    public_inputs,
    shape_of,
    sizes_of,
)
from privsketch.kernels.builder import Pointer, Routine, Value, select
from privsketch.kernels.kinds import I64, Kind
from privsketch.kernels.operations import fma

_INPUTS: Axes = {
    "frequencies": ("tiles", "dim", "tile"),  # in turns per unit
    "exponents": ("tiles", "widths", "tile"),  # factors of variances in log2(envelope)
    "moments": ("tiles", 2, "tile"),  # cosines and sines
    "squared_taper": ("tiles", 1, "tile"),
    "weights": ("atoms",),
    "centers": ("atoms", "dim"),
    "variances": ("atoms", "widths"),  # if all atoms share one width, the first row is used
}
_LABEL_NUMBERS = ("corners", "blocks")
_LABEL_INPUTS: Axes = {
    "labels": ("tiles", "corners", 2, "tile"),  # cosines and sines of the corners' phases
    "ends": ("blocks",),  # int64: one past the last corner of each block
    "shares": ("atoms", "corners"),
}
_OUTPUTS: Axes = {
    "scratch": ("atoms", 2, "tile"),
    "totals": (2, "tiles", "lanes"),  # cost; half its derivative by a shared width over log 2
    "by_weight": ("atoms", "lanes"),  # half the derivative, added to the contents lane by lane
    "by_center": ("atoms", "dim", "lanes"),  # likewise, over 2 pi and the weight
    "by_variance": ("atoms", "widths", "lanes"),  # likewise, over log 2 and the weight
}
_LABEL_OUTPUTS: Axes = {
    **_OUTPUTS,
    "scratch": ("atoms", "parts", "tile"),  # parts = 2 (2 blocks + 1)
    "by_share": ("atoms", "corners", "lanes"),  # half the derivative over the weight
}


@cache
def compile_evaluation(kind: str, atom_widths: bool, labels: bool = False) -> Evaluation:
    """Compile the function `evaluate` for numbers of a kind, "float" or "double".

    Its arguments are the numbers, inputs and outputs above. With `atom_widths`, every atom has its
    own envelope. Otherwise one envelope for all atoms multiplies the model. Without labels it has
    one width for all directions, and `by_variance` is unused. With labels it has `widths` of them,
    and half the derivatives by them, over log 2, are added to the first row of `by_variance`.
    """
    shape = shape_of(kind)
    writer = _LabelWriter if labels else _EvaluationWriter
    evaluation = Evaluation(machine.compile_routine(writer(shape, atom_widths).write()), shape)
    _check(evaluation, atom_widths, labels)
    return evaluation


def _check(evaluation: Evaluation, atom_widths: bool, labels: bool) -> None:
    """Compare the function with its definition, at a few thousand phases."""
    shape, lengths = evaluation.shape, {"tiles": 8, "pairs": 4, "dim": 3, "widths": 1}
    axes, outputs = _INPUTS, _OUTPUTS
    if atom_widths or labels:
        lengths["widths"] = 2
    if labels:
        axes, outputs = {**_INPUTS, **_LABEL_INPUTS}, _LABEL_OUTPUTS
        lengths |= {"corners": 7, "blocks": 3}
    arguments = tuple(lengths.values())
    lengths |= {"atoms": 4 * ATOMS, "tile": shape.tile, "lanes": shape.lanes, "parts": 14}
    inputs = public_inputs(PublicStream(0, Purpose.CHECK_DECODER), sizes_of(axes, lengths))
    inputs["frequencies"] *= 4  # phases of up to a dozen turns
    inputs["variances"] *= 3
    if labels:
        inputs["ends"][:] = 2, 3, 7
    inputs["variances"][-1] *= 10_000  # an atom that is damped to nothing
    zeros = {name: np.zeros(size) for name, size in sizes_of(outputs, lengths).items()}
    arrays = {
        name: machine.aligned(array.astype(np.int64 if name == "ends" else shape.dtype))
        for name, array in {**inputs, **zeros}.items()
    }
    evaluation.code.function(*arguments, *(array.ctypes.data for array in arrays.values()))
    expected = definition({name: arrays[name].astype(np.float64) for name in axes}, atom_widths)
    for name, values in expected.items():
        evaluation.require_agreement(arrays[name], values)


def definition(inputs: dict[str, Floats], atom_widths: bool) -> dict[str, Floats]:
    """Return the amounts that the function adds to its outputs, over lanes, in plain NumPy."""
    phases = 2 * np.pi * np.einsum("tdj,ad->taj", inputs["frequencies"], inputs["centers"])
    exponents, variances = inputs["exponents"], inputs["variances"]
    if not atom_widths:
        variances = np.broadcast_to(variances[:1], variances.shape)
    atoms = np.exp(1j * phases) * np.exp2(np.einsum("twj,aw->taj", exponents, variances))
    has_labels = "labels" in inputs
    blocks, factors = [], []
    if has_labels:
        corners = inputs["labels"][:, :, 0] + 1j * inputs["labels"][:, :, 1]
        starts = inputs["ends"][:-1].astype(int)
        blocks = np.split(np.arange(corners.shape[1]), starts)
        factors = [
            np.einsum("tlj,al->taj", corners[:, block], inputs["shares"][:, block])
            for block in blocks
        ]
    whole = math.prod(factors, start=atoms)
    model = np.einsum("a,taj->tj", inputs["weights"], whole)
    difference = model - (inputs["moments"][:, 0] + 1j * inputs["moments"][:, 1])
    weighted = difference.conj() * inputs["squared_taper"][:, 0]
    products = whole * weighted[:, np.newaxis]
    slopes = np.einsum("tj,twj->tw", (weighted * model).real, exponents)
    costs = (weighted * difference).real.sum(axis=1)
    in_totals = np.zeros(len(costs)) if atom_widths or has_labels else slopes[:, 0]
    outputs = {
        "totals": np.stack([costs, in_totals]),
        "by_weight": products.real.sum(axis=(0, 2)),
        "by_center": -np.einsum("taj,tdj->ad", products.imag, inputs["frequencies"]),
    }
    if atom_widths:
        outputs["by_variance"] = np.einsum("taj,twj->aw", products.real, exponents)
    elif has_labels:
        outputs["by_variance"] = np.zeros(variances.shape)
        outputs["by_variance"][0] = slopes.sum(axis=0)
    if has_labels:
        by_share = []
        for number, block in enumerate(blocks):
            others = math.prod(factors[:number] + factors[number + 1 :], start=atoms)
            rest = others * weighted[:, np.newaxis]
            by_share.append(np.einsum("taj,tlj->al", rest, corners[:, block]).real)
        outputs["by_share"] = np.hstack(by_share)
    return outputs


class _Rows(NamedTuple):
    """Rows of one tile of frequencies."""

    tile: Value  # its index
    frequencies: Pointer
    exponents: Pointer


class _EvaluationWriter(AtomWriter):
    """Writer of the function `evaluate`.

    For every tile and pair of atoms, the function stores features in `scratch` and adds up the
    model. Then it computes the residual, and adds the derivatives of every pair to the outputs lane
    by lane.
    """

    lengths: Sequence[str] = LENGTHS
    arrays: Mapping[str, Kind | None] = dict.fromkeys((*_INPUTS, *_OUTPUTS))

    def __init__(self, shape: Shape, atom_widths: bool) -> None:
        super().__init__("evaluate", shape, self.arrays, self.lengths)
        self.atom_widths = atom_widths

    def write(self) -> Routine:
        routine, pointers, tile = self.routine, self.routine.pointers, self.shape.tile
        with routine.loop(routine.numbers["tiles"]) as t:
            frequencies = pointers["frequencies"] + t * self.dim * tile
            exponents = pointers["exponents"] + t * self.widths * tile
            rows = _Rows(t, frequencies, exponents)
            zero = routine.constant(self.vector, 0.0)
            model = [zero] * (2 * self.shape.vectors)  # cosines, then sines
            with routine.loop(routine.numbers["pairs"], model) as pair:
                self.forward(rows, self.atoms(pair), model)
            weighted = self.residual(rows, model)
            with routine.loop(routine.numbers["pairs"]) as pair:
                self.backward(rows, self.atoms(pair), weighted)
        return routine.finish()

    def halves(self, start: Pointer) -> list[tuple[Pointer, Pointer]]:
        """Return the addresses of the vectors of cosines and sines of a tile."""
        sines = self.vectors(start + self.shape.tile)
        return list(zip(self.vectors(start), sines, strict=True))

    def scratch(self, atom: Value) -> list[tuple[Pointer, Pointer]]:
        """Return the addresses of the cosines and sines of an atom."""
        return self.halves(self.routine.pointers["scratch"] + atom * (2 * self.shape.tile))

    features = scratch  # of the complete atom

    # --- forward -------------------------------------------------------------------------------

    def forward(self, rows: _Rows, atoms: list[Value], model: list[Value]) -> None:
        """Store the features of two atoms and add them, weighted, to the model."""
        for atom, v, phasor in self.gaussians(rows, atoms):
            _store(self.scratch(atoms[atom])[v], phasor)
            self.add_weighted(model, atoms[atom], v, phasor)

    def gaussians(
        self, rows: _Rows, atoms: list[Value]
    ) -> Iterator[tuple[int, int, tuple[Value, Value]]]:
        """Yield the Gaussian features of two atoms, with their places in `entries`."""
        pointers = self.routine.pointers
        centers = [pointers["centers"] + atom * self.dim for atom in atoms]
        phases = self.dot(rows.frequencies, centers, self.dim, self.shape.tile)
        if self.atom_widths:
            variances = [pointers["variances"] + atom * self.widths for atom in atoms]
            damping = self.dot(rows.exponents, variances, self.widths, self.shape.tile)
        for entry, (atom, v) in enumerate(self.entries):
            phasor = self.cosine_sine(phases[entry])
            if self.atom_widths:
                envelope = self.power_of_two(damping[entry])
                phasor = phasor[0] * envelope, phasor[1] * envelope
            yield atom, v, phasor

    def add_weighted(
        self, model: list[Value], atom: Value, v: int, phasor: tuple[Value, Value]
    ) -> None:
        """Add one vector of an atom's features, weighted, to the model."""
        weight = (self.routine.pointers["weights"] + atom).load().splat(self.shape.lanes)
        for k, part in zip((v, self.shape.vectors + v), phasor, strict=True):
            model[k] = fma(weight, part, model[k])

    # --- backward ------------------------------------------------------------------------------

    def residual(self, rows: _Rows, model: list[Value]) -> list[Value]:
        """Store the totals of a tile; return the residual times taper^2 and shared envelope."""
        pointers, t = self.routine.pointers, rows.tile
        first = t * self.shape.tile
        tapers = self.vectors(pointers["squared_taper"] + first)
        moments = self.halves(pointers["moments"] + first * 2)
        variance = pointers["variances"].load().splat(self.shape.lanes)
        cost = slope = self.routine.constant(self.vector, 0.0)
        weighted = list(model)
        for v, powers in enumerate(self.vectors(rows.exponents)):
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

    def backward(self, rows: _Rows, atoms: list[Value], weighted: list[Value]) -> None:
        """Add the derivatives of two atoms to the outputs."""
        pointers, vectors, lanes = self.routine.pointers, self.shape.vectors, self.shape.lanes
        along, across = [], []
        for atom, v in self.entries:
            cosine, sine = (pointer.load() for pointer in self.features(atoms[atom])[v])
            real, imaginary = weighted[v], weighted[vectors + v]
            along.append(fma(cosine, real, sine * imaginary))
            across.append(fma(cosine, imaginary, -(sine * real)))
        for atom in range(ATOMS):
            target = (pointers["by_weight"] + atoms[atom] * lanes).to(self.vector)
            total = target.load()
            for v in range(vectors):
                total = total + along[atom * vectors + v]
            target.store(total)
        self.scatter("by_center", rows.frequencies, across, atoms, self.dim)
        if self.atom_widths:
            self.scatter("by_variance", rows.exponents, along, atoms, self.widths)

    def scatter(
        self, name: str, rows: Pointer, values: list[Value], atoms: list[Value], length: Value
    ) -> None:
        """Add the products of the tile's rows with `values` to the output `name`."""
        lanes, vectors = self.shape.lanes, self.shape.vectors
        outputs = [self.routine.pointers[name] + atom * length * lanes for atom in atoms]
        with self.routine.loop(length) as j:
            row = [address.load() for address in self.vectors(rows + j * self.shape.tile)]
            for atom in range(len(atoms)):
                target = (outputs[atom] + j * lanes).to(self.vector)
                total = target.load()
                for v in range(vectors):
                    total = fma(values[atom * vectors + v], row[v], total)
                target.store(total)


class _LabelWriter(_EvaluationWriter):
    """Writer of the function `evaluate` for atoms with labels.

    The scratch of an atom holds its Gaussian and, for every block, the block's factor and the
    product of all factors so far.
    """

    lengths = (*LENGTHS, *_LABEL_NUMBERS)
    arrays: Mapping[str, Kind | None] = {
        **dict.fromkeys((*_INPUTS, *_LABEL_INPUTS, *_LABEL_OUTPUTS)),
        "ends": I64,
    }

    def __init__(self, shape: Shape, atom_widths: bool) -> None:
        super().__init__(shape, atom_widths)
        self.corners, self.blocks = (self.routine.numbers[name] for name in _LABEL_NUMBERS)

    def part(self, atom: Value, number: Value) -> list[tuple[Pointer, Pointer]]:
        """Return the addresses of a part of an atom's scratch."""
        first = atom * (self.blocks * 2 + 1) + number
        return self.halves(self.routine.pointers["scratch"] + first * (2 * self.shape.tile))

    def features(self, atom: Value) -> list[tuple[Pointer, Pointer]]:
        return self.part(atom, self.blocks * 2)

    def labels(self, rows: _Rows, corner: Value) -> list[tuple[Value, Value]]:
        """Load the phasors of a corner."""
        first = (rows.tile * self.corners + corner) * (2 * self.shape.tile)
        halves = self.halves(self.routine.pointers["labels"] + first)
        return [(cosine.load(), sine.load()) for cosine, sine in halves]

    def forward(self, rows: _Rows, atoms: list[Value], model: list[Value]) -> None:
        routine, lanes = self.routine, self.shape.lanes
        zero = routine.constant(I64, 0)
        for atom, v, phasor in self.gaussians(rows, atoms):
            _store(self.part(atoms[atom], zero)[v], phasor)
        shares = [routine.pointers["shares"] + atom * self.corners for atom in atoms]
        starts = [zero]
        with routine.loop(self.blocks, starts) as block:
            end = (routine.pointers["ends"] + block).load()
            sums = [routine.constant(self.vector, 0.0)] * (2 * len(self.entries))
            with routine.loop(end, sums, start=starts[0]) as corner:
                phasors = self.labels(rows, corner)
                factors = [(share + corner).load().splat(lanes) for share in shares]
                for k, (atom, v) in enumerate(self.entries):
                    for half in range(2):
                        place = 2 * k + half
                        sums[place] = fma(factors[atom], phasors[v][half], sums[place])
            starts[0] = end
            for k, (atom, v) in enumerate(self.entries):
                factor = sums[2 * k], sums[2 * k + 1]
                before, here, after = (
                    self.part(atoms[atom], block * 2 + number)[v] for number in range(3)
                )
                _store(here, factor)
                _store(after, _product(_load(before), factor))
        for atom, v in self.entries:
            self.add_weighted(model, atoms[atom], v, _load(self.features(atoms[atom])[v]))

    def residual(self, rows: _Rows, model: list[Value]) -> list[Value]:
        """Store the cost of a tile; return the residual times taper^2 and shared envelope."""
        pointers, first = self.routine.pointers, rows.tile * self.shape.tile
        zero = self.routine.constant(self.vector, 0.0)
        if not self.atom_widths:
            damping = [zero] * self.shape.vectors
            with self.routine.loop(self.widths, damping) as j:
                variance = (pointers["variances"] + j).load().splat(self.shape.lanes)
                for v, address in enumerate(self.vectors(rows.exponents + j * self.shape.tile)):
                    damping[v] = fma(variance, address.load(), damping[v])
        weighted, slopes, cost = list(model), [zero] * self.shape.vectors, zero
        for v, moments in enumerate(self.halves(pointers["moments"] + first * 2)):
            taper = self.vectors(pointers["squared_taper"] + first)[v].load()
            envelope = None if self.atom_widths else self.power_of_two(damping[v])
            for half in range(2):
                k = half * self.shape.vectors + v
                value = model[k] if envelope is None else model[k] * envelope
                difference = value - moments[half].load()
                weighted[k] = difference * taper
                cost = fma(weighted[k], difference, cost)
                slopes[v] = fma(weighted[k], value, slopes[v])
                if envelope is not None:
                    weighted[k] = weighted[k] * envelope
        totals, tiles = pointers["totals"], self.routine.numbers["tiles"]
        for row, total in ((rows.tile, cost), (tiles + rows.tile, zero)):
            (totals + row * self.shape.lanes).to(self.vector).store(total)
        if not self.atom_widths:
            first_atom = [self.routine.constant(I64, 0)]
            self.scatter("by_variance", rows.exponents, slopes, first_atom, self.widths)
        return weighted

    def backward(self, rows: _Rows, atoms: list[Value], weighted: list[Value]) -> None:
        """Add the derivatives of two atoms to the outputs, those by shares from the last block."""
        super().backward(rows, atoms, weighted)
        routine, vectors, lanes = self.routine, self.shape.vectors, self.shape.lanes
        by_share = [routine.pointers["by_share"] + atom * self.corners * lanes for atom in atoms]
        # The conjugate residual times the factors of all later blocks, and the end of this block.
        later = [part for _, v in self.entries for part in (weighted[v], -weighted[vectors + v])]
        later.append(self.corners)
        with routine.loop(self.blocks, later) as step:
            block, end = self.blocks - 1 - step, later.pop()
            is_first = block < 1
            previous = select(is_first, block, block - 1)
            start = (routine.pointers["ends"] + previous).load()
            start = select(is_first, start.constant(0), start)
            others = []
            for k, (atom, v) in enumerate(self.entries):
                before = _load(self.part(atoms[atom], block * 2)[v])
                here = _load(self.part(atoms[atom], block * 2 + 1)[v])
                rest = later[2 * k], later[2 * k + 1]
                real, imaginary = _product(before, rest)
                others.append((real, -imaginary))
                later[2 * k], later[2 * k + 1] = _product(here, rest)
            with routine.loop(end, start=start) as corner:
                phasors = self.labels(rows, corner)
                for atom in range(ATOMS):
                    target = (by_share[atom] + corner * lanes).to(self.vector)
                    total = target.load()
                    for v in range(vectors):
                        for half in range(2):
                            other = others[atom * vectors + v][half]
                            total = fma(other, phasors[v][half], total)
                    target.store(total)
            later.append(start)


def _load(addresses: tuple[Pointer, Pointer]) -> tuple[Value, Value]:
    return addresses[0].load(), addresses[1].load()


def _store(addresses: tuple[Pointer, Pointer], parts: tuple[Value, Value]) -> None:
    for address, part in zip(addresses, parts, strict=True):
        address.store(part)


def _product(a: tuple[Value, Value], b: tuple[Value, Value]) -> tuple[Value, Value]:
    """Multiply complex numbers."""
    return fma(a[0], b[0], -(a[1] * b[1])), fma(a[0], b[1], a[1] * b[0])
