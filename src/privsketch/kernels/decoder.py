"""The decoders' inner loop as LLVM assembly: all atoms at all frequencies, and back.

For a tile of frequencies at a time: the phase, cosine and sine of every atom, their
weighted sum (the model), the weighted residual, and the products of the residual with
every atom's derivatives. Cosines and sines of one tile stay in the first-level cache,
where separate NumPy calls would move all of them through memory six times.

Weights and layout of the arguments are those of `evaluation.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privsketch.kernels.machine import Writer, float_vector, integer_vector

ATOMS = 2  # handled together: they share the loads of the frequencies


@dataclass(frozen=True)
class Shape:
    """Number type, lanes of one vector, vectors per tile of frequencies."""

    kind: str  # "float" or "double"
    lanes: int
    vectors: int

    @property
    def tile(self) -> int:
        """Frequencies per tile."""
        return self.lanes * self.vectors


def evaluation_source(shape: Shape, *, own_widths: bool) -> str:
    """LLVM assembly of `evaluate`; `own_widths`: every atom has an envelope of its own.

    For every tile t and pair of atoms p: features, stored in `scratch`, and the model;
    then the residual; then for every pair again the three kinds of derivatives, added
    to `by_weight`, `by_center`, `by_variance` lane by lane.
    """
    return _Evaluation(shape, own_widths).source()


class _Evaluation:
    """The text of the function, part by part."""

    def __init__(self, shape: Shape, own_widths: bool) -> None:
        self.w = Writer()
        self.shape = shape
        self.own_widths = own_widths
        self.vector = f"<{shape.lanes} x {shape.kind}>"
        self.size = 4 if shape.kind == "float" else 8
        self.suffix = f"v{shape.lanes}f{8 * self.size}"
        # Every atom of the pair with every vector of the tile.
        self.places = [(atom, v) for atom in range(ATOMS) for v in range(shape.vectors)]

    def constant(self, value: float) -> str:
        return float_vector(value, self.shape.lanes, self.shape.kind)

    def fma(self, a: str, b: str, c: str) -> str:
        kind = self.vector
        return self.w.value(
            f"call {kind} @llvm.fma.{self.suffix}({kind} {a}, {kind} {b}, {kind} {c})"
        )

    def multiply(self, a: str, b: str) -> str:
        return self.w.value(f"fmul {self.vector} {a}, {b}")

    def address(self, base: str, index: str | int) -> str:
        return self.w.value(f"getelementptr {self.shape.kind}, ptr {base}, i64 {index}")

    def load(self, base: str, index: str | int) -> str:
        place = self.address(base, index)
        return self.w.value(f"load {self.vector}, ptr {place}, align {self.size}")

    def store(self, value: str, base: str, index: str | int) -> None:
        place = self.address(base, index)
        self.w.line(f"  store {self.vector} {value}, ptr {place}, align {self.size}")

    def broadcast(self, base: str, index: str | int) -> str:
        place = self.address(base, index)
        scalar = self.w.value(f"load {self.shape.kind}, ptr {place}, align {self.size}")
        return self.w.splat(scalar, self.shape.kind, self.shape.lanes)

    def times(self, a: str, b: str | int) -> str:
        return self.w.value(f"mul i64 {a}, {b}")

    def plus(self, a: str, b: str | int) -> str:
        return self.w.value(f"add i64 {a}, {b}")

    def source(self) -> str:
        w, vectors, tile = self.w, self.shape.vectors, self.shape.tile
        kind = self.vector
        w.line(f"declare {kind} @llvm.fma.{self.suffix}({kind}, {kind}, {kind})")
        w.line(f"declare {kind} @llvm.nearbyint.{self.suffix}({kind})")
        w.line(f"declare {kind} @llvm.maxnum.{self.suffix}({kind}, {kind})")
        pointers = "frequencies exponents moments squared_taper envelope weights centers variances"
        outputs = "scratch model by_weight by_center by_variance"
        w.line(
            "define void @evaluate(i64 %tiles, i64 %pairs, i64 %dim, i64 %widths, "
            + ", ".join(f"ptr noalias %{name}" for name in f"{pointers} {outputs}".split())
            + ") #0 {"
        )
        w.line("entry:")
        w.line("  br label %tile")
        w.line("tile:")
        w.line("  %t = phi i64 [0, %entry], [%t_next, %tile_end]")
        tile_frequencies = self.address("%frequencies", self.times(self.times("%t", "%dim"), tile))
        tile_exponents = self.address("%exponents", self.times(self.times("%t", "%widths"), tile))
        w.line("  br label %forward")
        w.line("forward:")
        w.line("  %p = phi i64 [0, %tile], [%p_next, %features]")
        sums = {}
        for part in "ri":
            for v in range(vectors):
                sums[part, v] = f"%sum_{part}{v}"
                w.line(
                    f"  {sums[part, v]} = phi {kind} [zeroinitializer, %tile], "
                    f"[%new_{part}{v}, %features]"
                )
        first = self.times("%p", ATOMS)
        atoms = [self.plus(first, atom) for atom in range(ATOMS)]
        centers = [self.address("%centers", self.times(atom, "%dim")) for atom in atoms]
        variances = [self.address("%variances", self.times(atom, "%widths")) for atom in atoms]
        phases = self.dot("phase", tile_frequencies, centers, "%dim", "forward")
        before = "phase_end"
        if self.own_widths:
            damping = self.dot("damping", tile_exponents, variances, "%widths", before)
        w.line("  br label %features")
        w.line("features:")
        new = dict(sums)
        for place, (atom, v) in enumerate(self.places):
            cosine, sine = self.cosine_sine(phases[place])
            if self.own_widths:
                damp = self.power_of_two(damping[place])
                cosine, sine = self.multiply(cosine, damp), self.multiply(sine, damp)
            room = self.plus(self.times(atoms[atom], 2 * tile), v * self.shape.lanes)
            self.store(cosine, "%scratch", room)
            self.store(sine, "%scratch", self.plus(room, tile))
            weight = self.broadcast("%weights", atoms[atom])
            new["r", v] = self.fma(weight, cosine, new["r", v])
            new["i", v] = self.fma(weight, sine, new["i", v])
        zero = self.constant(-0.0)
        for (part, v), value in new.items():
            w.line(f"  %new_{part}{v} = fadd {kind} {value}, {zero}")
        w.line("  %p_next = add i64 %p, 1")
        more = w.value("icmp ult i64 %p_next, %pairs")
        w.line(f"  br i1 {more}, label %forward, label %residual")
        w.line("residual:")
        weighted = self.residual()
        w.line("  br label %backward")
        self.backward(weighted, tile_frequencies, tile_exponents)
        w.line("tile_end:")
        w.line("  %t_next = add i64 %t, 1")
        more = w.value("icmp ult i64 %t_next, %tiles")
        w.line(f"  br i1 {more}, label %tile, label %done")
        w.line("done:")
        w.line("  ret void")
        w.line("}")
        return w.finish(8 * self.size * self.shape.lanes)

    def dot(self, name: str, rows: str, columns: list[str], length: str, before: str) -> list[str]:
        """Dot products of every frequency of the tile with every atom's row, over `length`."""
        w, kind, tile = self.w, self.vector, self.shape.tile
        w.line(f"  br label %{name}_loop")
        w.line(f"{name}_loop:")
        w.line(f"  %{name}_j = phi i64 [0, %{before}], [%{name}_next, %{name}_loop]")
        running = [f"%{name}_{atom}_{v}" for atom, v in self.places]
        for value in running:
            w.line(f"  {value} = phi {kind} [zeroinitializer, %{before}], [{value}n, %{name}_loop]")
        row = self.address(rows, self.times(f"%{name}_j", tile))
        loaded = [self.load(row, v * self.shape.lanes) for v in range(self.shape.vectors)]
        factors = [self.broadcast(column, f"%{name}_j") for column in columns]
        for value, (atom, v) in zip(running, self.places, strict=True):
            w.line(
                f"  {value}n = call {kind} @llvm.fma.{self.suffix}({kind} {factors[atom]}, "
                f"{kind} {loaded[v]}, {kind} {value})"
            )
        w.line(f"  %{name}_next = add i64 %{name}_j, 1")
        more = w.value(f"icmp ult i64 %{name}_next, {length}")
        w.line(f"  br i1 {more}, label %{name}_loop, label %{name}_end")
        w.line(f"{name}_end:")
        return [f"{value}n" for value in running]

    def nearest_integer(self, x: str) -> str:
        kind = self.vector
        return self.w.value(f"call {kind} @llvm.nearbyint.{self.suffix}({kind} {x})")

    def polynomial(self, x: str, coefficients: list[float]) -> str:
        value = self.constant(coefficients[-1])
        for coefficient in coefficients[-2::-1]:
            value = self.fma(value, x, self.constant(coefficient))
        return value

    def cosine_sine(self, turns: str) -> tuple[str, str]:
        """Of a phase in turns, by half angles: 1 - 2 sin^2 and 2 sin cos."""
        w, kind = self.w, self.vector
        r = w.value(f"fsub {kind} {turns}, {self.nearest_integer(turns)}")
        square = self.multiply(r, r)
        n_terms = 6 if self.shape.kind == "float" else 10
        half_sine = self.multiply(self.polynomial(square, _half_sine(n_terms)), r)
        half_cosine = self.polynomial(square, _half_cosine(n_terms))
        doubled = w.value(f"fadd {kind} {half_sine}, {half_sine}")
        cosine = self.fma(w.value(f"fneg {kind} {doubled}"), half_sine, self.constant(1.0))
        return cosine, self.multiply(doubled, half_cosine)

    def power_of_two(self, x: str) -> str:
        """2^x for x <= 0; the least normal number far below."""
        w, kind, lanes = self.w, self.vector, self.shape.lanes
        single = self.shape.kind == "float"
        integer = "i32" if single else "i64"
        lowest = self.constant(-126.0 if single else -1022.0)
        x = w.value(f"call {kind} @llvm.maxnum.{self.suffix}({kind} {x}, {kind} {lowest})")
        whole = self.nearest_integer(x)
        fraction = w.value(f"fsub {kind} {x}, {whole}")
        mantissa = self.polynomial(fraction, _power_of_two(7 if single else 12))
        steps = w.value(f"fptosi {kind} {whole} to <{lanes} x {integer}>")
        shift = integer_vector(23 if single else 52, lanes).replace("i32", integer)
        bits = w.value(f"shl <{lanes} x {integer}> {steps}, {shift}")
        raw = w.value(f"bitcast {kind} {mantissa} to <{lanes} x {integer}>")
        scaled = w.value(f"add <{lanes} x {integer}> {raw}, {bits}")
        return w.value(f"bitcast <{lanes} x {integer}> {scaled} to {kind}")

    def residual(self) -> dict[tuple[str, int], str]:
        """Store the model of the tile; the residual times taper^2 and the shared envelope."""
        w, kind, tile, lanes = self.w, self.vector, self.shape.tile, self.shape.lanes
        place = self.times("%t", tile)
        weighted = {}
        for v in range(self.shape.vectors):
            envelope = self.load("%envelope", self.plus(place, v * lanes))
            taper = self.load("%squared_taper", self.plus(place, v * lanes))
            factor = self.multiply(taper, envelope)
            for half, part in enumerate("ri"):
                position = self.plus(self.times(place, 2), half * tile + v * lanes)
                model = self.multiply(f"%new_{part}{v}", envelope)
                self.store(model, "%model", position)
                observed = self.load("%moments", position)
                difference = w.value(f"fsub {kind} {model}, {observed}")
                weighted[part, v] = self.multiply(difference, factor)
        return weighted

    def backward(
        self, weighted: dict[tuple[str, int], str], frequencies: str, exponents: str
    ) -> None:
        w, tile, lanes = self.w, self.shape.tile, self.shape.lanes
        w.line("backward:")
        last = "by_variance" if self.own_widths else "by_center"
        w.line(f"  %b = phi i64 [0, %residual], [%b_next, %{last}_end]")
        first = self.times("%b", ATOMS)
        atoms = [self.plus(first, atom) for atom in range(ATOMS)]
        along, across = [], []
        for atom, v in self.places:
            room = self.plus(self.times(atoms[atom], 2 * tile), v * lanes)
            cosine = self.load("%scratch", room)
            sine = self.load("%scratch", self.plus(room, tile))
            real, imaginary = weighted["r", v], weighted["i", v]
            along.append(self.fma(cosine, real, self.multiply(sine, imaginary)))
            turned = w.value(f"fneg {self.vector} {self.multiply(sine, real)}")
            across.append(self.fma(cosine, imaginary, turned))
        for atom in range(ATOMS):
            place = self.times(atoms[atom], lanes)
            total = self.load("%by_weight", place)
            for v in range(self.shape.vectors):
                mine = along[atom * self.shape.vectors + v]
                total = w.value(f"fadd {self.vector} {total}, {mine}")
            self.store(total, "%by_weight", place)
        self.scatter("by_center", frequencies, across, atoms, "%dim", "backward")
        if self.own_widths:
            self.scatter("by_variance", exponents, along, atoms, "%widths", "by_center_end")
        w.line("  %b_next = add i64 %b, 1")
        more = w.value("icmp ult i64 %b_next, %pairs")
        w.line(f"  br i1 {more}, label %backward, label %tile_end")

    def scatter(
        self, name: str, rows: str, values: list[str], atoms: list[str], length: str, before: str
    ) -> None:
        """Add the products of the tile's rows with `values` to the output `name`."""
        w, tile, lanes = self.w, self.shape.tile, self.shape.lanes
        outputs = [
            self.address(f"%{name}", self.times(self.times(atom, length), lanes)) for atom in atoms
        ]
        w.line(f"  br label %{name}_loop")
        w.line(f"{name}_loop:")
        w.line(f"  %{name}_j = phi i64 [0, %{before}], [%{name}_next, %{name}_loop]")
        row = self.address(rows, self.times(f"%{name}_j", tile))
        loaded = [self.load(row, v * lanes) for v in range(self.shape.vectors)]
        for atom in range(ATOMS):
            place = self.times(f"%{name}_j", lanes)
            total = self.load(outputs[atom], place)
            for v in range(self.shape.vectors):
                total = self.fma(values[atom * self.shape.vectors + v], loaded[v], total)
            self.store(total, outputs[atom], place)
        w.line(f"  %{name}_next = add i64 %{name}_j, 1")
        more = w.value(f"icmp ult i64 %{name}_next, {length}")
        w.line(f"  br i1 {more}, label %{name}_loop, label %{name}_end")
        w.line(f"{name}_end:")


def _fit(
    function: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    low: float,
    high: float,
    n_terms: int,
) -> list[float]:
    """Coefficients, lowest first, of a near-best polynomial on an interval."""
    grid = np.polynomial.chebyshev.chebpts1(4 * n_terms) * (high - low) / 2 + (high + low) / 2
    values = function(grid)
    fitted = np.polynomial.Chebyshev.fit(grid, values, n_terms - 1, domain=[low, high])
    return [float(c) for c in fitted.convert(kind=np.polynomial.Polynomial).coef]


def _half_sine(n_terms: int) -> list[float]:
    # sin(pi r) / r as a function of r^2.
    return _fit(lambda x: np.sin(np.pi * np.sqrt(x)) / np.sqrt(x), 0.0, 0.25, n_terms)


def _half_cosine(n_terms: int) -> list[float]:
    return _fit(lambda x: np.cos(np.pi * np.sqrt(x)), 0.0, 0.25, n_terms)


def _power_of_two(n_terms: int) -> list[float]:
    return _fit(np.exp2, -0.5, 0.5, n_terms)
