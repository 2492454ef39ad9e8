"""Masses of Gaussians in boxes, and sums with their derivatives: the inner loop of cells, compiled.

The mass of an axis-parallel Gaussian in a box is a product of one factor for each axis, of which
many boxes share the same. A table has the factors of all intervals in reach, and their derivatives
by the center and by the logarithm of the width. Boxes come in tiles of neighbours, components in
groups, one in each lane. Groups whose components are all far from a tile are left out: their mass
there is 0, because factors end REACH widths from a center.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.special import erfcx, ndtr

from privsketch._base.types import Floats
from privsketch.features.stream import PublicStream, Purpose
from privsketch.kernels import machine
from privsketch.kernels.atoms import power_of_two
from privsketch.kernels.builder import Pointer, Routine, Value, select
from privsketch.kernels.kinds import DOUBLE, I64, Arguments, Array
from privsketch.kernels.operations import absolute, clip, fma, lane_sum, polynomial

REACH = 5.0  # widths from the center; beyond lie 6e-7 of the mass
DERIVATIVES, SQUARES, MOMENTS = range(3)  # what tables hold
PARTS = 3  # of a factor: its value, and its derivatives by center and log width
_MIDDLE, _N_TERMS = 4.0, 16  # of the polynomial of the tail, whose error is below 1e-14
_ROOT = 1 / math.sqrt(2 * math.pi)


@dataclass(frozen=True)
class MassCode:
    """Compiled functions for boxes of some axes; `lanes` components are a group.

    Attributes
    ----------
    factors : function
        Fills tables; arguments are those of `_factors_routine`.
    sums, products, contract : function
        Sums over components, masses one by one, and sums over boxes; arguments are those of the
        routines below.
    """

    lanes: int
    factors: machine.Code
    sums: machine.Code
    products: machine.Code
    contract: machine.Code


@cache
def compile_masses(is_label: tuple[bool, ...]) -> MassCode:
    """Compile the functions for boxes whose axes are numbers or labels."""
    lanes = machine.vector_bits() // 64
    code = MassCode(
        lanes,
        _compiled_factors(lanes),
        machine.compile_routine(_sums_routine(lanes, len(is_label))),
        machine.compile_routine(_products_routine(lanes, len(is_label))),
        machine.compile_routine(_contract_routine(lanes, is_label)),
    )
    _check(code, is_label)
    return code


@cache
def _compiled_factors(lanes: int) -> machine.Code:
    return machine.compile_routine(_factors_routine(lanes))


def _doubles(names: tuple[str, ...]) -> Arguments:
    return {name: Array(DOUBLE) for name in names}


def _integers(names: tuple[str, ...]) -> Arguments:
    return {name: Array(I64) for name in names}


def _factors_routine(lanes: int) -> Routine:
    """Write the function that fills tables, piece by piece: some intervals of an axis for a group.

    `lower` and `upper` (n_intervals,) are ends of intervals; `centers` and `inverse_widths` have
    the form (groups, dim, lanes), `tables` (groups, n_intervals, PARTS, lanes). Mode SQUARES stores
    the squares of all numbers; MOMENTS stores integrals of the coordinate in place of derivatives
    by the center.
    """
    arguments: Arguments = dict.fromkeys(("pieces", "dim", "n_intervals", "mode"), I64)
    arguments |= _integers(("group", "axis", "begin", "end"))
    arguments |= _doubles(("lower", "upper", "centers", "inverse_widths", "tables"))
    routine = Routine("factors", arguments, vector_bits=64 * lanes)
    numbers, pointers, vector = routine.numbers, routine.pointers, DOUBLE.vector(lanes)
    has_squares, has_moments = (
        (routine.constant(I64, mode - 1) < numbers["mode"]) for mode in (SQUARES, MOMENTS)
    )
    with routine.loop(numbers["pieces"], may_be_empty=True) as piece:
        group, axis, begin, end = (
            (pointers[name] + piece).load() for name in ("group", "axis", "begin", "end")
        )
        place = (group * numbers["dim"] + axis) * lanes
        center = (pointers["centers"] + place).to(vector).load()
        inverse = (pointers["inverse_widths"] + place).to(vector).load()
        with routine.loop(end, start=begin, may_be_empty=True) as interval:
            edges = [(pointers[name] + interval).load().splat(lanes) for name in ("lower", "upper")]
            (z, below, density), (y, above, other) = (
                _normal((edge - center) * inverse) for edge in edges
            )
            mass, fall = above - below, density - other
            by_center = select(has_moments, center * mass + fall / inverse, fall * inverse)
            row = pointers["tables"] + (group * numbers["n_intervals"] + interval) * PARTS * lanes
            for part, value in enumerate((mass, by_center, z * density - y * other)):
                stored = select(has_moments, value, select(has_squares, value * value, value))
                (row + part * lanes).to(vector).store(stored)
    return routine.finish()


def _normal(z: Value) -> tuple[Value, Value, Value]:
    """Return z cut at REACH, the standard normal distribution there, and its slope by z."""
    z = clip(z, z.constant(-REACH), z.constant(REACH))
    density = power_of_two(z * z * (-0.5 * math.log2(math.e)), DOUBLE) * _ROOT
    length = absolute(z)
    tail = density * polynomial((length - _MIDDLE) / (length + _MIDDLE), _tail_coefficients())
    below = select(z < 0.0, tail, tail.constant(1.0) - tail)
    return z, below, select(length < REACH, density, z.constant(0.0))


@cache
def _tail_coefficients() -> list[float]:
    """Return coefficients of tail over density as a polynomial of (z - 4) / (z + 4)."""
    end = (REACH - _MIDDLE) / (REACH + _MIDDLE)
    grid = np.polynomial.chebyshev.chebpts1(4 * _N_TERMS) * (end + 1) / 2 + (end - 1) / 2
    z = _MIDDLE * (1 + grid) / (1 - grid)
    ratio = math.sqrt(math.pi / 2) * erfcx(z / math.sqrt(2))
    series = np.polynomial.Chebyshev.fit(grid, ratio, _N_TERMS - 1, domain=[-1, end])
    return [float(c) for c in series.convert(kind=np.polynomial.Polynomial).coef]


_SHARED = ("tile_begins", "list_begins", "groups", "index")


def _sums_routine(lanes: int, dim: int) -> Routine:
    """Write the function that adds up the masses of all components in every box.

    Boxes of tile t are those from `tile_begins[t]` on; its groups those of `groups` from
    `list_begins[t]` on. `index` (n_boxes, dim) has the intervals of boxes, `parts` (dim,) which
    part of a factor is taken along each axis, `weights` the form (groups, lanes).
    """
    arguments: Arguments = dict.fromkeys(("tiles", "n_intervals"), I64)
    arguments |= _integers((*_SHARED, "parts")) | _doubles(("tables", "weights", "sums"))
    routine = Routine("sums", arguments, vector_bits=64 * lanes)
    pointers, vector = routine.pointers, DOUBLE.vector(lanes)
    stride = routine.numbers["n_intervals"] * PARTS * lanes
    with routine.loop(routine.numbers["tiles"]) as tile:
        (first_box, last_box), (first, last) = _ranges(pointers, tile)
        with routine.loop(last_box, start=first_box) as box:
            rows = _part_rows(pointers, box, dim, lanes)
            total = [routine.constant(vector, 0.0)]
            with routine.loop(last, total, start=first, may_be_empty=True) as item:
                group = (pointers["groups"] + item).load()
                offset = group * stride
                values = [(row + offset).to(vector).load() for row in rows]
                weight = (pointers["weights"] + group * lanes).to(vector).load()
                total[0] = fma(math.prod(values[1:], start=values[0]), weight, total[0])
            (pointers["sums"] + box).store(lane_sum(total[0]))
    return routine.finish()


def _products_routine(lanes: int, dim: int) -> Routine:
    """Write the function that stores products of factors of some boxes, (boxes, groups, lanes).

    Boxes are those from `first` to before `last`, `parts` (dim,) is as above.
    """
    arguments: Arguments = dict.fromkeys(("first", "last", "n_groups", "n_intervals"), I64)
    arguments |= _integers(("groups", "index", "parts")) | _doubles(("tables", "products"))
    routine = Routine("products", arguments, vector_bits=64 * lanes)
    numbers, pointers, vector = routine.numbers, routine.pointers, DOUBLE.vector(lanes)
    stride, n_groups = numbers["n_intervals"] * PARTS * lanes, numbers["n_groups"]
    with routine.loop(numbers["last"], start=numbers["first"]) as box:
        rows = _part_rows(pointers, box, dim, lanes)
        with routine.loop(n_groups, may_be_empty=True) as item:
            offset = (pointers["groups"] + item).load() * stride
            values = [(row + offset).to(vector).load() for row in rows]
            place = ((box - numbers["first"]) * n_groups + item) * lanes
            product = math.prod(values[1:], start=values[0])
            (pointers["products"] + place).to(vector).store(product)
    return routine.finish()


def _contract_routine(lanes: int, is_label: tuple[bool, ...]) -> Routine:
    """Write the function that adds up, over boxes, `values` times masses and their derivatives.

    `totals` (groups, 1 + 2 dim, lanes) gets sums for the mass, then for the derivatives by center
    and by log width of each axis, without weights. `by_label` (groups, n_intervals, lanes) gets
    those for the share of a label, which is the factor of an interval.
    """
    dim = len(is_label)
    arguments: Arguments = dict.fromkeys(("tiles", "n_intervals"), I64)
    arguments |= _integers(_SHARED) | _doubles(("tables", "values", "totals", "by_label"))
    routine = Routine("contract", arguments, vector_bits=64 * lanes)
    pointers, vector = routine.pointers, DOUBLE.vector(lanes)
    n_intervals = routine.numbers["n_intervals"]
    with routine.loop(routine.numbers["tiles"]) as tile:
        (first_box, last_box), (first, last) = _ranges(pointers, tile)
        with routine.loop(last, start=first, may_be_empty=True) as item:
            group = (pointers["groups"] + item).load()
            offset = group * n_intervals * PARTS * lanes
            totals = [
                (pointers["totals"] + (group * (1 + 2 * dim) + k) * lanes).to(vector)
                for k in range(1 + 2 * dim)
            ]
            sums = [total.load() for total in totals]
            with routine.loop(last_box, sums, start=first_box) as box:
                rows = [row + offset for row in _rows(pointers, box, dim, lanes)]
                values = [row.to(vector).load() for row in rows]
                before = [(pointers["values"] + box).load().splat(lanes)]
                for value in values:
                    before.append(before[-1] * value)
                sums[0] = sums[0] + before[-1]
                after: Value | None = None
                for axis in range(dim - 1, -1, -1):
                    rest = before[axis] if after is None else before[axis] * after
                    after = values[axis] if after is None else after * values[axis]
                    if is_label[axis]:
                        interval = (pointers["index"] + (box * dim + axis)).load()
                        place = (group * n_intervals + interval) * lanes
                        label = (pointers["by_label"] + place).to(vector)
                        label.store(label.load() + rest)
                        continue
                    for kind in (0, 1):
                        slope = (rows[axis] + (1 + kind) * lanes).to(vector).load()
                        k = 1 + kind * dim + axis
                        sums[k] = fma(rest, slope, sums[k])
            for total, value in zip(totals, sums, strict=True):
                total.store(value)
    return routine.finish()


def _ranges(
    pointers: dict[str, Pointer], tile: Value
) -> tuple[tuple[Value, Value], tuple[Value, Value]]:
    """Return the boxes of a tile, and the places of its groups in their list."""
    boxes, items = (
        ((pointers[name] + tile).load(), (pointers[name] + tile + 1).load())
        for name in ("tile_begins", "list_begins")
    )
    return boxes, items


def _rows(pointers: dict[str, Pointer], box: Value, dim: int, lanes: int) -> list[Pointer]:
    """Return the addresses, for group 0, of the factors of a box along each axis."""
    intervals = [(pointers["index"] + (box * dim + axis)).load() for axis in range(dim)]
    return [pointers["tables"] + interval * PARTS * lanes for interval in intervals]


def _part_rows(pointers: dict[str, Pointer], box: Value, dim: int, lanes: int) -> list[Pointer]:
    """Return the addresses of `_rows` for the part that is taken along each axis."""
    return [
        row + (pointers["parts"] + axis).load() * lanes
        for axis, row in enumerate(_rows(pointers, box, dim, lanes))
    ]


def factors_definition(
    lower: Floats, upper: Floats, centers: Floats, inverse_widths: Floats
) -> Floats:
    """Return factors and derivatives, (..., PARTS), of intervals and components in plain NumPy."""
    z, y = (np.clip((edge - centers) * inverse_widths, -REACH, REACH) for edge in (lower, upper))
    density, other = (_ROOT * np.exp(-0.5 * x * x) * (np.abs(x) < REACH) for x in (z, y))
    by_center = (density - other) * inverse_widths
    return np.stack([ndtr(y) - ndtr(z), by_center, z * density - y * other], axis=-1)


def sums_definition(factors: list[Floats], weights: Floats) -> Floats:
    """Return sums over components, (n_boxes,), of factors (n_boxes, components, PARTS) by axis."""
    return np.asarray(math.prod(factor[..., 0] for factor in factors) @ weights)


def contract_definition(factors: list[Floats], values: Floats) -> tuple[Floats, Floats, Floats]:
    """Return sums over boxes for the masses, and for both derivatives (dim, components)."""
    mass = values @ math.prod(factor[..., 0] for factor in factors)
    slopes = [
        [
            values @ math.prod(f[..., part if e == d else 0] for e, f in enumerate(factors))
            for d in range(len(factors))
        ]
        for part in (1, 2)
    ]
    return mass, np.array(slopes[0]), np.array(slopes[1])


def _check(code: MassCode, is_label: tuple[bool, ...]) -> None:
    """Compare the functions with their definitions, on a few boxes and two groups."""
    dim, lanes, n_boxes, n_each, groups = len(is_label), code.lanes, 24, 4, 2
    stream = PublicStream(0, Purpose.CHECK_MASSES)

    def drawn(*shape: int) -> Floats:
        return machine.aligned(2 * stream.uniform(math.prod(shape)).reshape(shape) - 1)

    n_intervals = n_each * dim
    lower = drawn(n_intervals)
    upper = machine.aligned(lower + np.abs(drawn(n_intervals)))
    lower[0], upper[-1] = -np.inf, np.inf
    centers, inverse = drawn(groups, dim, lanes), machine.aligned(2 + drawn(groups, dim, lanes))
    inverse[:, :, 0] = 1e3  # far too narrow for most intervals
    interval = np.arange(n_boxes * dim, dtype=np.int64).reshape(n_boxes, dim)
    index = machine.aligned(interval * 7 % n_each + n_each * np.arange(dim))
    tables = np.zeros((groups, n_intervals, PARTS, lanes))
    pieces = np.array([(g, d, d * n_each, (d + 1) * n_each) for g in range(groups)
                       for d in range(dim)]).T.copy()  # fmt: skip
    numbers = (pieces.shape[1], dim, n_intervals, 0)
    data = (*pieces, lower, upper, centers, inverse, tables)
    code.factors.function(*numbers, *(array.ctypes.data for array in data))
    axis = np.repeat(np.arange(dim), n_each)
    told = factors_definition(lower[:, None], upper[:, None],
                              *(a[:, axis] for a in (centers, inverse)))  # fmt: skip
    error = np.abs(np.moveaxis(tables, 2, 3) - told).max()
    machine.require_agreement("masses", bool(error <= 1e-10))
    weights, values = drawn(groups, lanes), drawn(n_boxes)
    tile_begins, list_begins = np.array([0, 10, n_boxes]), np.array([0, 2, 4])
    in_order = np.array([0, 1, 1, 0])
    shared = (tile_begins, list_begins, in_order, index)
    sums, products = np.zeros(n_boxes), np.zeros((n_boxes - 3, groups, lanes))
    parts = np.zeros(dim, np.int64)
    code.products.function(
        *(3, n_boxes, groups, n_intervals),
        *(array.ctypes.data for array in (in_order[2:], index, parts, tables, products)),
    )
    totals, by_label = (
        np.zeros((groups, 1 + 2 * dim, lanes)),
        np.zeros((groups, n_intervals, lanes)),
    )
    for function, arrays in (
        (code.sums.function, (*shared, parts, tables, weights, sums)),
        (code.contract.function, (*shared, tables, values, totals, by_label)),
    ):
        function(2, n_intervals, *(array.ctypes.data for array in arrays))
    flat = np.moveaxis(tables, 0, 2).reshape(n_intervals, PARTS, -1)
    factors = [np.moveaxis(flat[index[:, d]], 1, 2) for d in range(dim)]
    mass, *slopes = contract_definition(factors, values)
    numbers_told = ~np.array(is_label)
    found = np.moveaxis(totals, 1, 0).reshape(1 + 2 * dim, -1)
    pairs = [(sums, sums_definition(factors, weights.ravel())), (found[0], mass)]
    own = math.prod(factor[3:, :, 0] for factor in factors).reshape(products.shape)
    pairs += [(products, own[:, ::-1])]
    pairs += [
        (found[1 + k * dim : 1 + (k + 1) * dim][numbers_told], slope[numbers_told])
        for k, slope in enumerate(slopes)
    ]
    for d in np.flatnonzero(is_label):
        rest = math.prod([f[..., 0] for e, f in enumerate(factors) if e != d], start=np.ones(1))
        weighted = np.broadcast_to(rest * values[:, None], (n_boxes, groups * lanes))
        for column in range(d * n_each, (d + 1) * n_each):
            here = index[:, d] == column
            pairs.append((by_label[:, column].ravel(), weighted[here].sum(axis=0)))
    for one, other in pairs:
        scale = max(float(np.abs(other).max(initial=0.0)), 1e-30)
        agrees = bool(np.abs(one - other).max(initial=0.0) <= 1e-11 * scale)
        machine.require_agreement("masses", agrees)
