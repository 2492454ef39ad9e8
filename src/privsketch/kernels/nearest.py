"""Sums of records over clusters, where each record belongs to its nearest center.

`ReferenceClusters` is the definition, in NumPy. `CompiledClusters` returns the same integers from
compiled code. Records and centers are integers in float64, so small that all products, squares and
sums are below 2^53 and exact in any order. The contribution of a record depends on that record and
on public numbers alone.

The compiled code computes several records at a time, one in each lane. The score of a center is a
product with the columns of these records, which are transposed first. Scores determine the nearest
center and the length of the residual, because |x - c|^2 is |x|^2 plus the score. Then the code goes
through the records one by one; it computes their residuals along the columns, cuts them to the
radius and adds them up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import ParameterError, RecordError
from privsketch._base.threads import cached_once
from privsketch._base.types import Integers, WholeFloats
from privsketch.features.stream import PublicStream, Purpose
from privsketch.kernels import machine
from privsketch.kernels.builder import Pointer, Routine, Value, select
from privsketch.kernels.kinds import DOUBLE, I64, Arguments, Array, Kind
from privsketch.kernels.operations import absolute, exact_fma, lane_sum, sqrt, trunc, vector_of

Norm = Literal[1, 2]
Mode = Literal["sums", "residuals", "lengths"]
MODES: tuple[Mode, ...] = ("sums", "residuals", "lengths")
LANES, VECTORS = 8, 2  # shape of a group of records
CENTERS = 4  # centers of a group, which share the loads of the records
MAX_UNIT = 2**20  # of residuals: their squared lengths are rounded by less than 1
SCRATCH = 4  # numbers of a record besides its coordinates: cluster, length or factor, weight, bin
_CLUSTER_NUMBERS: dict[str, Kind] = {
    "n": I64,
    "dim": I64,
    "groups": I64,  # of centers
    "n_edges": I64,
    "unit": DOUBLE,
    "weight": DOUBLE,
}
_CLUSTER_ARRAYS = (
    "records",  # (n, dim)
    "doubled",  # (groups, dim, CENTERS): centers times -2
    "squares",  # (groups, CENTERS): their squared lengths
    "centers",  # (k, dim)
    "radii",  # (groups, CENTERS), at least 1
    "edges",  # (n_edges,), without the last one
    "scratch",  # (dim + SCRATCH, records of a group)
    "sums",  # (k, dim)
    "counts",  # (k,), or one for each cluster and bin
)
_NEVER = math.inf  # score of the padding of the last group: not below any other


def nearest(records: WholeFloats, centers: WholeFloats) -> npt.NDArray[np.intp]:
    """Return the index of the nearest center, the first of equals; exact for integers."""
    scores = records @ (-2 * centers.T)
    scores += np.vecdot(centers, centers)
    return np.asarray(scores.argmin(axis=1))


def lengths(points: WholeFloats, norm: Norm) -> WholeFloats:
    """Return L1 lengths, or squared L2 lengths, of integers (n, dim)."""
    if norm == 1:
        return np.asarray(np.abs(points).sum(axis=1))
    return np.asarray(np.vecdot(points, points))


@dataclass(frozen=True)
class ReferenceClusters:
    """Definition, in plain NumPy, of sums over the records nearest to each center.

    Of equally near centers, the first one counts. Records come in blocks (n, dim), at most 2^32 of
    them in all. Coordinates of records and centers are below 2^20.
    """

    centers: WholeFloats

    def sums(self, blocks: Iterable[WholeFloats]) -> tuple[Integers, Integers]:
        """Return the sum of the records of each cluster, (k, dim), and their number, (k,)."""
        records = np.concatenate(list(blocks))
        member = self._member(nearest(records, self.centers))
        return (member @ records).astype(np.int64), member.sum(axis=1).astype(np.int64)

    def residuals(
        self, blocks: Iterable[WholeFloats], radii: WholeFloats, unit: int, weight: int, norm: Norm
    ) -> tuple[Integers, Integers]:
        """Return the sum of cut residuals of each cluster, (k, dim), and of weights, (k,).

        A residual z = x - c is measured in units of its cluster's radius r and cut there: terms of
        the sums are unit z / max(r, |z|) and weight min(1, r / |z|), each rounded towards 0. One
        record moves the first sum by at most `unit` in the norm, whatever the radii, and the second
        by at most the weight. Radii are whole numbers from 1 on, `unit` is at most 2^20.
        """
        records = np.concatenate(list(blocks))
        label = nearest(records, self.centers)
        residuals = records - self.centers[label]
        length, radius = lengths(residuals, norm), radii[label]
        # Factors and products are rounded, by parts in 10^15, which may lengthen a residual. Its L1
        # length and its squared length are whole numbers and far below 10^15, so that they stay
        # within `unit` and its square.
        longest = np.maximum(radius, length if norm == 1 else np.sqrt(length))
        terms = np.trunc(residuals * (unit / longest)[:, np.newaxis])
        weights = np.trunc(weight * (radius / longest))
        member = self._member(label)
        return (member @ terms).astype(np.int64), (member @ weights).astype(np.int64)

    def lengths(self, blocks: Iterable[WholeFloats], edges: WholeFloats, norm: Norm) -> Integers:
        """Count residuals by cluster and bin, (k, n_bins), by their L1 or squared L2 lengths.

        A bin holds lengths above the previous edge, up to its own edge. The first bin has no lower
        end, and the last one no upper end.
        """
        records = np.concatenate(list(blocks))
        label = nearest(records, self.centers)
        length = lengths(records - self.centers[label], norm)
        bins = np.minimum(np.searchsorted(edges, length, side="left"), len(edges) - 1)
        shape = len(self.centers), len(edges)
        return np.bincount(label * len(edges) + bins, minlength=math.prod(shape)).reshape(shape)

    def _member(self, label: npt.NDArray[np.intp]) -> WholeFloats:
        """Return a (k, n) matrix with a one for each record in the row of its cluster."""
        member = np.zeros((len(self.centers), len(label)))
        member[label, np.arange(len(label))] = 1.0
        return member


class CompiledClusters:
    """Compiled equivalent of `ReferenceClusters`; safe to call from several threads."""

    def __init__(self, centers: WholeFloats) -> None:
        centers = np.asarray(centers, dtype=np.float64)
        self._k, self._dim = centers.shape
        groups = -(-self._k // CENTERS)
        padded = np.zeros((groups * CENTERS, self._dim))
        padded[: self._k] = -2 * centers
        squares = np.full(groups * CENTERS, _NEVER)
        squares[: self._k] = np.vecdot(centers, centers)
        # Group, then column, then center: the order in which the code reads.
        tiled = padded.reshape(groups, CENTERS, self._dim).transpose(0, 2, 1)
        self._groups, self._doubled = groups, machine.aligned(tiled)
        self._squares, self._centers = machine.aligned(squares), machine.aligned(centers)

    def __reduce__(self) -> tuple[Any, ...]:
        return CompiledClusters, (np.array(self._centers),)  # addresses belong to one process

    def sums(self, blocks: Iterable[WholeFloats]) -> tuple[Integers, Integers]:
        """See `ReferenceClusters`."""
        return self._clusters(compile_clusters("sums", 2), blocks)

    def residuals(
        self, blocks: Iterable[WholeFloats], radii: WholeFloats, unit: int, weight: int, norm: Norm
    ) -> tuple[Integers, Integers]:
        """See `ReferenceClusters`."""
        # A radius that is no number of 1 or more would undo the bound on what a record adds.
        is_whole = radii.shape == (self._k,) and bool(
            (radii >= 1).all() and np.isfinite(radii).all()
        )
        if not is_whole or not 1 <= unit <= MAX_UNIT:
            raise ParameterError("radii: expected a finite number from 1 on for each center")
        return self._clusters(compile_clusters("residuals", norm), blocks, radii, unit, weight)

    def lengths(self, blocks: Iterable[WholeFloats], edges: WholeFloats, norm: Norm) -> Integers:
        """See `ReferenceClusters`."""
        return self._histogram(compile_clusters("lengths", norm), blocks, edges)

    def _clusters(
        self,
        code: machine.Code,
        blocks: Iterable[WholeFloats],
        radii: WholeFloats | None = None,
        unit: int = 1,
        weight: int = 1,
    ) -> tuple[Integers, Integers]:
        sums, counts = np.zeros((self._k, self._dim)), np.zeros(self._k)
        self._run(code, blocks, np.zeros(0), sums, counts, radii, (unit, weight))
        return sums.astype(np.int64), counts.astype(np.int64)  # below 2^53

    def _histogram(
        self, code: machine.Code, blocks: Iterable[WholeFloats], edges: WholeFloats
    ) -> Integers:
        counts = np.zeros((self._k, len(edges)))
        self._run(code, blocks, np.ascontiguousarray(edges[:-1]), np.zeros(0), counts)
        return counts.astype(np.int64)

    def _run(
        self,
        code: machine.Code,
        blocks: Iterable[WholeFloats],
        edges: WholeFloats,
        sums: WholeFloats,
        counts: WholeFloats,
        radii: WholeFloats | None = None,
        units: tuple[int, int] = (1, 1),
    ) -> None:
        scratch = machine.aligned(np.empty((self._dim + SCRATCH) * LANES * VECTORS))
        padded = machine.aligned(np.ones(self._groups * CENTERS))
        if radii is not None:
            padded[: self._k] = radii
        numbers = self._dim, self._groups, len(edges), *map(float, units)
        arrays = (self._doubled, self._squares, self._centers, padded, edges, scratch, sums, counts)
        addresses = [array.ctypes.data for array in arrays]
        for block in blocks:
            records = np.ascontiguousarray(block, dtype=np.float64)
            if records.shape[1:] != (self._dim,):
                raise RecordError(f"blocks: expected tables of {self._dim} columns")
            code.function(len(records), *numbers, records.ctypes.data, *addresses)


@cached_once
def compile_clusters(mode: Mode, norm: Norm) -> machine.Code:
    """Compile the function for one of the sums of `ReferenceClusters`."""
    code = machine.compile_routine(clusters_routine(mode, norm))
    _check(code, mode, norm)
    return code


def _check(code: machine.Code, mode: Mode, norm: Norm) -> None:
    """Compare the function with the definition, on public records.

    Some records have few distinct coordinates, so that there are ties; others have large ones.
    """
    stream = PublicStream(0, Purpose.CHECK_NEAREST)

    def integers(n: int, dim: int, largest: int) -> WholeFloats:
        return np.rint((stream.uniform(n * dim) * 2 - 1) * largest).reshape(n, dim)

    for n, dim, k, largest in ((37, 2, 3, 2), (50, 11, 9, 2**18), (16, 8, 1, 2**15), (3, 3, 6, 1)):
        centers, records = integers(k, dim, largest), integers(n, dim, largest)
        centers[k // 2] = centers[0]
        records[-1], records[0] = largest, -largest
        halves = np.array_split(records, 2)
        reference, compiled = ReferenceClusters(centers), CompiledClusters(centers)
        radius = int(0.8 * largest * dim ** (1 / norm)) + 1
        radii = np.maximum(np.rint(stream.uniform(k) * 2 * radius), 1.0)
        edges = np.array([float(radius // 2), radius, 2.0 * radius]) ** norm
        if mode == "lengths":
            counts = compiled._histogram(code, halves, edges)
            agrees = np.array_equal(counts, reference.lengths([records], edges, norm))
        else:
            if mode == "residuals":
                expected = reference.residuals([records], radii, 2**20, 1000, norm)
            else:
                expected = reference.sums([records])
            sums = compiled._clusters(code, halves, radii, 2**20, 1000)
            agrees = all(np.array_equal(a, b) for a, b in zip(sums, expected, strict=True))
        machine.require_agreement("nearest centers", agrees)


@dataclass(frozen=True)
class _Group:
    """Writer of the code for a group of neighbouring records; `lanes` is 0 for a single record."""

    routine: Routine
    mode: Mode
    norm: Norm
    first: Value
    lanes: int
    vectors: int

    def write(self) -> None:
        squared_norms = self.transpose()
        best, label, radius = self.nearest()
        self.store("cluster", label)
        if self.mode != "sums":
            if self.norm == 2:
                length = [a + b for a, b in zip(squared_norms, best, strict=True)]
            else:
                length = self.l1_lengths()
            if self.mode == "lengths":
                self.store("bin", self.bins(length))
            else:
                unit, weight = (self.spread(self.routine.numbers[n]) for n in ("unit", "weight"))
                longest = self.longest(length, radius)
                self.store("factor", [unit / value for value in longest])
                shares = [r / value for r, value in zip(radius, longest, strict=True)]
                self.store("weight", [trunc(weight * share) for share in shares])
        with self.routine.loop(self.size) as r:
            self.add(r)

    # --- numbers of all records of the group ---------------------------------------------------

    @property
    def size(self) -> int:
        return max(self.lanes, 1) * self.vectors

    def spread(self, number: Value) -> Value:
        """Return the number for every record of a vector."""
        return number.splat(self.lanes) if self.lanes else number

    def constants(self, kind: Kind, number: float) -> list[Value]:
        return [self.routine.constant(kind.vector(self.lanes), number)] * self.vectors

    def column(self, j: Value) -> list[Pointer]:
        """Return the addresses of the vectors of a column in `scratch`."""
        start = self.routine.pointers["scratch"] + j * self.size
        kind, lanes = DOUBLE.vector(self.lanes), max(self.lanes, 1)
        return [(start + v * lanes).to(kind) for v in range(self.vectors)]

    def address(self, name: str) -> Pointer:
        """Return the address of a number of every record in `scratch`, after the coordinates."""
        row = self.routine.numbers["dim"] + ("cluster", "factor", "weight", "bin").index(name)
        return self.routine.pointers["scratch"] + row * self.size

    def store(self, name: str, values: list[Value]) -> None:
        for v, value in enumerate(values):
            (self.address(name) + v * max(self.lanes, 1)).to(value.kind).store(value)

    def transpose(self) -> list[Value]:
        """Store the columns of the records in `scratch`; return squared lengths of records."""
        dim, records = self.routine.numbers["dim"], self.routine.pointers["records"]
        rows = [records + (self.first + r) * dim for r in range(self.size)]
        squares = self.constants(DOUBLE, 0.0)
        with self.routine.loop(dim, squares) as j:
            for v, target in enumerate(self.column(j)):
                numbers = [(row + j).load() for row in rows[v * self.lanes :][: self.lanes or 1]]
                value = vector_of(numbers) if self.lanes else numbers[0]
                target.store(value)
                squares[v] = exact_fma(value, value, squares[v])
        return squares

    def nearest(self) -> tuple[list[Value], list[Value], list[Value]]:
        """Return the least score |c|^2 - 2 x c of each record, its center's index and radius."""
        routine, pointers, dim = self.routine, self.routine.pointers, self.routine.numbers["dim"]
        n, has_radii = self.vectors, self.mode == "residuals"
        best = self.constants(DOUBLE, _NEVER) + self.constants(I64, 0)  # scores, then centers
        best += self.constants(DOUBLE, 1.0) if has_radii else []
        with routine.loop(routine.numbers["groups"], best) as group:
            squares = [(pointers["squares"] + group * CENTERS + c).load() for c in range(CENTERS)]
            scores = [self.spread(square) for square in squares for _ in range(n)]
            with routine.loop(dim, scores) as j:
                column = [pointer.load() for pointer in self.column(j)]
                start = pointers["doubled"] + (group * dim + j) * CENTERS
                for c in range(CENTERS):
                    doubled = self.spread((start + c).load())
                    for v, x in enumerate(column):
                        index = c * n + v
                        scores[index] = exact_fma(x, doubled, scores[index])
            for index, score in enumerate(scores):
                c, v = divmod(index, n)
                is_nearer = self.is_nearer(score, best[v])
                best[v] = select(is_nearer, score, best[v])
                center = self.spread(group * CENTERS + c)
                best[n + v] = select(is_nearer, center, best[n + v])
                if has_radii:
                    radius = self.spread((pointers["radii"] + group * CENTERS + c).load())
                    best[2 * n + v] = select(is_nearer, radius, best[2 * n + v])
        return best[:n], best[n : 2 * n], best[2 * n :]

    def is_nearer(self, score: Value, best: Value) -> Value:
        """Return whether a center is nearer than the best one so far; a tie changes nothing."""
        return score < best

    def l1_lengths(self) -> list[Value]:
        """Compute the L1 lengths of the residuals."""
        with self.routine.loop(self.size) as r:
            record, center, _ = self.rows(r)
            total = [self.routine.constant(DOUBLE, 0.0)]
            for lanes, j in self.columns(total):
                kind = DOUBLE.vector(lanes)
                residual = (record + j).to(kind).load() - (center + j).to(kind).load()
                length = absolute(residual)
                total[0] += lane_sum(length) if lanes else length
            (self.address("factor") + r).store(total[0])
        start, kind = self.address("factor"), DOUBLE.vector(self.lanes)
        return [(start + v * max(self.lanes, 1)).to(kind).load() for v in range(self.vectors)]

    def bins(self, length: list[Value]) -> list[Value]:
        """Count the edges below each length."""
        routine, count = self.routine, self.constants(I64, 0)
        with routine.loop(routine.numbers["n_edges"], count, may_be_empty=True) as e:
            edge = self.spread((routine.pointers["edges"] + e).load())
            for v, value in enumerate(length):
                count[v] = select(self.is_below(edge, value), count[v] + 1, count[v])
        return count

    def is_below(self, edge: Value, length: Value) -> Value:
        """Return whether an edge is below a length; an edge belongs to the bin below it."""
        return edge < length

    def longest(self, length: list[Value], radius: list[Value]) -> list[Value]:
        """Return the length of each residual, or the radius if that is longer."""
        found = []
        for value, least in zip(length, radius, strict=True):
            value = value if self.norm == 1 else sqrt(value)
            found.append(select(least < value, value, least))
        return found

    # --- one record ----------------------------------------------------------------------------

    def rows(self, r: Value) -> tuple[Pointer, Pointer, Pointer]:
        """Return the addresses of a record, of its center and of the sum of its cluster."""
        pointers, dim = self.routine.pointers, self.routine.numbers["dim"]
        cluster = (self.address("cluster").to(I64) + r).load()
        record = pointers["records"] + (self.first + r) * dim
        return record, pointers["centers"] + cluster * dim, pointers["sums"] + cluster * dim

    def columns(self, carried: list[Value] | None = None) -> Iterator[tuple[int, Value]]:
        """Loop over columns, `LANES` at a time, then one by one; yield lanes and column."""
        dim = self.routine.numbers["dim"]
        filled = dim // LANES * LANES
        for lanes, start, stop in ((LANES, dim.constant(0), filled), (0, filled, dim)):
            with self.routine.loop(
                stop, carried, start=start, step=lanes or 1, may_be_empty=True
            ) as j:
                yield lanes, j

    def add(self, r: Value) -> None:
        """Add the contribution of one record."""
        routine = self.routine
        place = (self.address("cluster").to(I64) + r).load()
        if self.mode == "lengths":
            place = place * (routine.numbers["n_edges"] + 1)
            place = place + (self.address("bin").to(I64) + r).load()
        count, weight = routine.pointers["counts"] + place, routine.constant(DOUBLE, 1.0)
        if self.mode == "residuals":
            weight = (self.address("weight") + r).load()
        count.store(count.load() + weight)
        if self.mode == "lengths":
            return
        record, center, total = self.rows(r)
        factor = (self.address("factor") + r).load()
        for lanes, j in self.columns():
            kind = DOUBLE.vector(lanes)
            value, target = (record + j).to(kind).load(), (total + j).to(kind)
            if self.mode == "residuals":
                residual = value - (center + j).to(kind).load()
                value = trunc(residual * (factor.splat(lanes) if lanes else factor))
            target.store(target.load() + value)


def clusters_routine(mode: Mode, norm: Norm) -> Routine:
    """Write the function `clusters`, whose arguments are above.

    It adds to `sums` and `counts`; for "lengths", to `counts` alone.
    """
    arguments: Arguments = {**_CLUSTER_NUMBERS, **dict.fromkeys(_CLUSTER_ARRAYS, Array(DOUBLE))}
    routine = Routine("clusters", arguments, vector_bits=machine.vector_bits())
    n, size = routine.numbers["n"], LANES * VECTORS
    grouped = n // size * size
    with routine.loop(grouped, step=size, may_be_empty=True) as first:
        _Group(routine, mode, norm, first, LANES, VECTORS).write()
    with routine.loop(n, start=grouped, may_be_empty=True) as first:
        _Group(routine, mode, norm, first, 0, 1).write()
    return routine.finish()
