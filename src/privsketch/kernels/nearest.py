"""Records to sums over clusters: every record counts for its nearest center.

`ReferenceClusters` is the definition, in NumPy; `CompiledClusters` gives the same integers from
compiled code. Records and centers are whole numbers in float64, so small that all products, squares
and sums are below 2^53: exact, in any order and with any grouping of multiplications and additions.
What a record adds depends on that record and on public numbers alone.

The compiled code takes some records at a time, each in a lane of its own. Scores of all centers
are products with columns of these records, which are turned into vectors first; the nearest center
and the length of the residual come from them without the residual, |x - c|^2 being |x|^2 plus the
score. Only then are residuals computed, record by record along the columns, cut, and added up.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import RecordError
from privsketch._base.threads import cached_once
from privsketch._base.types import Integers, Whole
from privsketch.features.stream import PublicStream, Purpose
from privsketch.kernels import machine
from privsketch.kernels.builder import (
    DOUBLE,
    I64,
    Array,
    Kind,
    Pointer,
    Routine,
    Value,
    exact_fma,
    lanes_added,
    magnitude,
    select,
    square_root,
    truncated,
    vector_of,
)

Norm = Literal[1, 2]
Mode = Literal["sums", "residuals", "lengths"]
MODES: tuple[Mode, ...] = ("sums", "residuals", "lengths")
LANES, VECTORS = 8, 2  # of records that are handled together
CENTERS = 4  # that are scored together: they share the loads of the records
SCRATCH = 3  # numbers of a record besides its coordinates: cluster or bin, length or factor, weight
NUMBERS: dict[str, Kind] = {
    "n": I64,
    "dim": I64,
    "groups": I64,  # of centers
    "n_edges": I64,
    "radius": DOUBLE,
    "weight": DOUBLE,
}
ARRAYS = (
    "records",  # (n, dim)
    "doubled",  # (groups, dim, CENTERS): centers times -2
    "squares",  # (groups, CENTERS): their squared lengths
    "centers",  # (k, dim)
    "edges",  # (n_edges,), all but the last one
    "scratch",  # (dim + SCRATCH, records handled together)
    "sums",  # (k, dim)
    "counts",  # (k,), or of bins
)
_NEVER = math.inf  # score of what fills up the last of these groups: not below any other


class Clusters(Protocol):
    """Sums over records, each of which is in the cluster of its nearest center.

    Of several centers that are as near it is the first. Records come in blocks (n, dim), at most
    2^32 of them altogether; coordinates of records and centers are below 2^20.
    """

    def sums(self, blocks: Iterable[Whole]) -> tuple[Integers, Integers]:
        """Per cluster the sum of its records, (k, dim), and their number, (k,)."""

    def residuals(
        self, blocks: Iterable[Whole], radius: int, weight: int, norm: Norm
    ) -> tuple[Integers, Integers]:
        """Per cluster the sum of cut residuals, (k, dim), and of weights, (k,).

        A residual x - c longer than the radius counts less, by f = radius / length: the sums are
        of f (x - c) and of f weight, each rounded towards 0. One record moves the first by at
        most the radius in the norm, and the second by at most the weight.
        """

    def lengths(self, blocks: Iterable[Whole], edges: Whole, norm: Norm) -> Integers:
        """How many residuals are in each bin, by their L1 lengths or squared L2 ones.

        A bin is what is above the edge before its own and not above its own; the first and the
        last have no other end.
        """


def nearest(records: Whole, centers: Whole) -> npt.NDArray[np.intp]:
    """Index of the nearest center, the first of several: exact for whole numbers."""
    scores = records @ (-2 * centers.T)
    scores += np.vecdot(centers, centers)
    return np.asarray(scores.argmin(axis=1))


def lengths(points: Whole, norm: Norm) -> Whole:
    """L1 lengths, or squared L2 ones, of whole numbers (n, dim)."""
    if norm == 1:
        return np.asarray(np.abs(points).sum(axis=1))
    return np.asarray(np.vecdot(points, points))


@dataclass(frozen=True)
class ReferenceClusters:
    """The definition, in plain NumPy."""

    centers: Whole

    def sums(self, blocks: Iterable[Whole]) -> tuple[Integers, Integers]:
        """See `Clusters`."""
        records = np.concatenate(list(blocks))
        member = self._member(nearest(records, self.centers))
        return (member @ records).astype(np.int64), member.sum(axis=1).astype(np.int64)

    def residuals(
        self, blocks: Iterable[Whole], radius: int, weight: int, norm: Norm
    ) -> tuple[Integers, Integers]:
        """See `Clusters`."""
        records = np.concatenate(list(blocks))
        label = nearest(records, self.centers)
        residuals = records - self.centers[label]
        length = lengths(residuals, norm)
        kept = np.full(len(records), float(weight))
        far = np.flatnonzero(length > (radius if norm == 1 else float(radius) ** 2))
        if len(far):
            # A product rounded up to the next integer makes a length too long by parts in 10^15:
            # lengths, and squares, are integers far below that, so that they stay within.
            factor = radius / (length[far] if norm == 1 else np.sqrt(length[far]))
            residuals[far] = np.trunc(residuals[far] * factor[:, np.newaxis])
            kept[far] = np.trunc(weight * factor)
        member = self._member(label)
        return (member @ residuals).astype(np.int64), (member @ kept).astype(np.int64)

    def lengths(self, blocks: Iterable[Whole], edges: Whole, norm: Norm) -> Integers:
        """See `Clusters`."""
        records = np.concatenate(list(blocks))
        found = lengths(records - self.centers[nearest(records, self.centers)], norm)
        places = np.searchsorted(edges, found, side="left")
        return np.bincount(np.minimum(places, len(edges) - 1), minlength=len(edges))

    def _member(self, label: npt.NDArray[np.intp]) -> Whole:
        """A one for each record in the row of its cluster, (k, n)."""
        member = np.zeros((len(self.centers), len(label)))
        member[label, np.arange(len(label))] = 1.0
        return member


class CompiledClusters:
    """The same from compiled code; safe to call from several threads."""

    def __init__(self, centers: Whole) -> None:
        centers = np.asarray(centers, dtype=np.float64)
        self._k, self._dim = centers.shape
        groups = -(-self._k // CENTERS)
        padded = np.zeros((groups * CENTERS, self._dim))
        padded[: self._k] = -2 * centers
        squares = np.full(groups * CENTERS, _NEVER)
        squares[: self._k] = np.vecdot(centers, centers)
        # Group, then column, then center: the order in which they are read.
        tiled = padded.reshape(groups, CENTERS, self._dim).transpose(0, 2, 1)
        self._groups, self._doubled = groups, machine.aligned(tiled)
        self._squares, self._centers = machine.aligned(squares), machine.aligned(centers)

    def __reduce__(self) -> tuple[Any, ...]:
        return CompiledClusters, (np.array(self._centers),)  # where arrays lie is not kept

    def sums(self, blocks: Iterable[Whole]) -> tuple[Integers, Integers]:
        """See `Clusters`."""
        return self._clusters(compile_clusters("sums", 2), blocks, 0, 1)

    def residuals(
        self, blocks: Iterable[Whole], radius: int, weight: int, norm: Norm
    ) -> tuple[Integers, Integers]:
        """See `Clusters`."""
        return self._clusters(compile_clusters("residuals", norm), blocks, radius, weight)

    def lengths(self, blocks: Iterable[Whole], edges: Whole, norm: Norm) -> Integers:
        """See `Clusters`."""
        return self._histogram(compile_clusters("lengths", norm), blocks, edges)

    def _clusters(
        self, code: machine.Code, blocks: Iterable[Whole], radius: int, weight: int
    ) -> tuple[Integers, Integers]:
        sums, counts = np.zeros((self._k, self._dim)), np.zeros(self._k)
        self._run(code, blocks, float(radius), float(weight), sums, counts, None)
        return sums.astype(np.int64), counts.astype(np.int64)  # below 2^53

    def _histogram(self, code: machine.Code, blocks: Iterable[Whole], edges: Whole) -> Integers:
        counts = np.zeros(len(edges))
        self._run(code, blocks, 0.0, 0.0, None, counts, np.ascontiguousarray(edges[:-1]))
        return counts.astype(np.int64)

    def _run(
        self,
        code: machine.Code,
        blocks: Iterable[Whole],
        radius: float,
        weight: float,
        sums: Whole | None,
        counts: Whole,
        edges: Whole | None,
    ) -> None:
        scratch = machine.aligned(np.empty((self._dim + SCRATCH) * LANES * VECTORS))
        n_edges, edge_place = (0, None) if edges is None else (len(edges), edges.ctypes.data)
        numbers = self._dim, self._groups, n_edges, radius, weight
        centers = [each.ctypes.data for each in (self._doubled, self._squares, self._centers)]
        outputs = None if sums is None else sums.ctypes.data, counts.ctypes.data
        for block in blocks:
            records = np.ascontiguousarray(block, dtype=np.float64)
            if records.shape[1:] != (self._dim,):
                raise RecordError(f"blocks: expected tables of {self._dim} columns")
            places = records.ctypes.data, *centers, edge_place, scratch.ctypes.data, *outputs
            code.function(len(records), *numbers, *places)


@cached_once
def compile_clusters(mode: Mode, norm: Norm) -> machine.Code:
    """The function for one of the sums of `Clusters`, on this processor."""
    numbers = [machine.INTEGER] * 4 + [ctypes.c_double] * 2
    arguments = [*numbers, *[machine.POINTER] * len(ARRAYS)]
    code = machine.compile_function(clusters_module(mode, norm), "clusters", *arguments)
    _check(code, mode, norm)
    return code


def _check(code: machine.Code, mode: Mode, norm: Norm) -> None:
    """Compares the function with the definition, on public records.

    Coordinates are few, so that there are ties, and large.
    """
    stream = PublicStream(0, Purpose.CHECK_NEAREST)

    def numbers(*shape: int, most: int) -> Whole:
        return np.rint((stream.uniform(int(np.prod(shape))) * 2 - 1) * most).reshape(shape)

    for n, dim, k, most in ((37, 2, 3, 2), (50, 11, 9, 2**18), (16, 8, 1, 2**15), (3, 3, 6, 1)):
        centers, records = numbers(k, dim, most=most), numbers(n, dim, most=most)
        centers[k // 2] = centers[0]
        records[-1], records[0] = most, -most
        halves = np.array_split(records, 2)
        known, compiled = ReferenceClusters(centers), CompiledClusters(centers)
        radius, weight = int(0.8 * most * dim ** (1 / norm)) + 1, 1000
        edges = np.array([float(radius // 2), radius, 2.0 * radius]) ** norm
        found: tuple[Integers, ...]
        right: tuple[Integers, ...]
        if mode == "lengths":
            found = (compiled._histogram(code, halves, edges),)
            right = (known.lengths([records], edges, norm),)
        elif mode == "residuals":
            found = compiled._clusters(code, halves, radius, weight)
            right = known.residuals([records], radius, weight, norm)
        else:
            found = compiled._clusters(code, halves, 0, 1)
            right = known.sums([records])
        agrees = all(np.array_equal(a, b) for a, b in zip(found, right, strict=True))
        machine.require_agreement("nearest centers", agrees)


def clusters_module(mode: Mode, norm: Norm) -> Any:
    """The module of the function `clusters`, whose arguments are above.

    It adds to `sums` and `counts`, to the latter alone for "lengths".
    """
    arguments: dict[str, Kind | Array] = {**NUMBERS, **dict.fromkeys(ARRAYS, Array(DOUBLE))}
    routine = Routine("clusters", arguments, vector_bits=machine.vector_bits())
    n, together = routine.numbers["n"], LANES * VECTORS
    grouped = n // together * together
    with routine.loop(grouped, step=together, may_be_empty=True) as first:
        _Group(routine, mode, norm, first, LANES, VECTORS).write()
    with routine.loop(n, start=grouped, may_be_empty=True) as first:
        _Group(routine, mode, norm, first, 0, 1).write()
    return routine.finish()


@dataclass(frozen=True)
class _Group:
    """Writes what happens to some neighbouring records; `lanes` is 0 for a single one."""

    routine: Routine
    mode: Mode
    norm: Norm
    first: Value
    lanes: int
    vectors: int

    def write(self) -> None:
        squared_norms = self.turn()
        best, label = self.nearest()
        self.keep("cluster", label)
        if self.mode != "sums":
            if self.norm == 2:
                length = [a + b for a, b in zip(squared_norms, best, strict=True)]
            else:
                length = self.l1_lengths()
            if self.mode == "lengths":
                self.keep("cluster", self.bins(length))
            else:
                factor = self.factors(length)
                weight = self.spread(self.routine.numbers["weight"])
                self.keep("factor", factor)
                self.keep("weight", [truncated(weight * each) for each in factor])
        with self.routine.loop(self.together) as r:
            self.add(r)

    # --- numbers of all records of the group ---------------------------------------------------

    @property
    def together(self) -> int:
        return max(self.lanes, 1) * self.vectors

    def spread(self, number: Value) -> Value:
        """The number for every record of a vector."""
        return number.splat(self.lanes) if self.lanes else number

    def constants(self, kind: Kind, number: float) -> list[Value]:
        return [self.routine.constant(kind.vector(self.lanes), number)] * self.vectors

    def column(self, j: Value) -> list[Pointer]:
        """Where the vectors of a column lie in `scratch`."""
        start = self.routine.pointers["scratch"] + j * self.together
        kind, lanes = DOUBLE.vector(self.lanes), max(self.lanes, 1)
        return [(start + v * lanes).to(kind) for v in range(self.vectors)]

    def place(self, name: str) -> Pointer:
        """Where a number of every record lies in `scratch`, behind the coordinates."""
        row = self.routine.numbers["dim"] + ("cluster", "factor", "weight").index(name)
        return self.routine.pointers["scratch"] + row * self.together

    def keep(self, name: str, values: list[Value]) -> None:
        for v, value in enumerate(values):
            (self.place(name) + v * max(self.lanes, 1)).to(value.kind).store(value)

    def turn(self) -> list[Value]:
        """Puts the columns of the records into `scratch`; their squared lengths."""
        dim, records = self.routine.numbers["dim"], self.routine.pointers["records"]
        rows = [records + (self.first + r) * dim for r in range(self.together)]
        squares = self.constants(DOUBLE, 0.0)
        with self.routine.loop(dim, squares) as j:
            for v, place in enumerate(self.column(j)):
                numbers = [(row + j).load() for row in rows[v * self.lanes :][: self.lanes or 1]]
                value = vector_of(numbers) if self.lanes else numbers[0]
                place.store(value)
                squares[v] = exact_fma(value, value, squares[v])
        return squares

    def nearest(self) -> tuple[list[Value], list[Value]]:
        """The least score |c|^2 - 2 x c of each record, and whose it is."""
        routine, pointers, dim = self.routine, self.routine.pointers, self.routine.numbers["dim"]
        # Scores, then centers.
        both = self.constants(DOUBLE, _NEVER) + self.constants(I64, 0)
        with routine.loop(routine.numbers["groups"], both) as group:
            squares = [(pointers["squares"] + group * CENTERS + c).load() for c in range(CENTERS)]
            scores = [self.spread(square) for square in squares for _ in range(self.vectors)]
            with routine.loop(dim, scores) as j:
                column = [place.load() for place in self.column(j)]
                start = pointers["doubled"] + (group * dim + j) * CENTERS
                for c in range(CENTERS):
                    doubled = self.spread((start + c).load())
                    for v, x in enumerate(column):
                        place = c * self.vectors + v
                        scores[place] = exact_fma(x, doubled, scores[place])
            for place, score in enumerate(scores):
                c, v = divmod(place, self.vectors)
                nearer = self.is_nearer(score, both[v])
                both[v] = select(nearer, score, both[v])
                number = self.spread(group * CENTERS + c)
                both[self.vectors + v] = select(nearer, number, both[self.vectors + v])
        return both[: self.vectors], both[self.vectors :]

    def is_nearer(self, score: Value, best: Value) -> Value:
        """Whether a center is nearer; if it is as near, the first one stays."""
        return score < best

    def l1_lengths(self) -> list[Value]:
        """L1 lengths of the residuals."""
        with self.routine.loop(self.together) as r:
            record, center, _ = self.rows(r)
            total = [self.routine.constant(DOUBLE, 0.0)]
            for lanes, j in self.columns(total):
                kind = DOUBLE.vector(lanes)
                residual = (record + j).to(kind).load() - (center + j).to(kind).load()
                length = magnitude(residual)
                total[0] += lanes_added(length) if lanes else length
            (self.place("factor") + r).store(total[0])
        start, kind = self.place("factor"), DOUBLE.vector(self.lanes)
        return [(start + v * max(self.lanes, 1)).to(kind).load() for v in range(self.vectors)]

    def bins(self, length: list[Value]) -> list[Value]:
        """How many edges are below each length."""
        routine, place = self.routine, self.constants(I64, 0)
        with routine.loop(routine.numbers["n_edges"], place, may_be_empty=True) as e:
            edge = self.spread((routine.pointers["edges"] + e).load())
            for v, each in enumerate(length):
                place[v] = select(self.is_below(edge, each), place[v] + 1, place[v])
        return place

    def is_below(self, edge: Value, length: Value) -> Value:
        """Whether a length is beyond an edge, which belongs to the bin before it."""
        return edge < length

    def factors(self, length: list[Value]) -> list[Value]:
        """What residuals are multiplied by: 1 within the radius."""
        radius = self.spread(self.routine.numbers["radius"])
        limit = radius if self.norm == 1 else radius * radius
        found = []
        for each in length:
            shrunk = radius / (each if self.norm == 1 else square_root(each))
            found.append(select(limit < each, shrunk, each.constant(1.0)))
        return found

    # --- one record ----------------------------------------------------------------------------

    def rows(self, r: Value) -> tuple[Pointer, Pointer, Pointer]:
        """Where the coordinates of a record, of its center and of the sum lie."""
        pointers, dim = self.routine.pointers, self.routine.numbers["dim"]
        cluster = (self.place("cluster").to(I64) + r).load()
        record = pointers["records"] + (self.first + r) * dim
        return record, pointers["centers"] + cluster * dim, pointers["sums"] + cluster * dim

    def columns(self, carried: list[Value] | None = None) -> Iterator[tuple[int, Value]]:
        """Loops over columns: so many at a time from a number on, then one by one."""
        dim = self.routine.numbers["dim"]
        filled = dim // LANES * LANES
        for lanes, start, stop in ((LANES, dim.constant(0), filled), (0, filled, dim)):
            with self.routine.loop(
                stop, carried, start=start, step=lanes or 1, may_be_empty=True
            ) as j:
                yield lanes, j

    def add(self, r: Value) -> None:
        """Adds what one record contributes."""
        routine = self.routine
        cluster = (self.place("cluster").to(I64) + r).load()
        count, weight = routine.pointers["counts"] + cluster, routine.constant(DOUBLE, 1.0)
        if self.mode == "residuals":
            weight = (self.place("weight") + r).load()
        count.store(count.load() + weight)
        if self.mode == "lengths":
            return
        record, center, total = self.rows(r)
        factor = (self.place("factor") + r).load()
        for lanes, j in self.columns():
            kind = DOUBLE.vector(lanes)
            value, target = (record + j).to(kind).load(), (total + j).to(kind)
            if self.mode == "residuals":
                residual = value - (center + j).to(kind).load()
                value = truncated(residual * (factor.splat(lanes) if lanes else factor))
            target.store(target.load() + value)
