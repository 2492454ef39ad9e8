"""The law "mixed": frequencies for tables with categories, flags or cycles beside numbers.

A record has a label in each labelled column, and a cluster has shares p of the labels. The moment
of a cluster at a frequency is that of its numbers times a factor sum_l p_l exp(i phase_l) for each
labelled column that the frequency reads. Isotropic frequencies read all of them: the product is
tiny, for the numbers too. A frequency of this law reads

- all numbers, at a frequency of the multi-scale law in the space of the numbers alone;
- none of the other columns (a quarter of the features), at least one (half) or at least two (a
  quarter), in a random order. Tables without numbers have one more: a feature that reads nothing
  would be a count, and pairs of columns do not determine clusters of labels. Further columns are
  read as long as a plausible cluster keeps 1/6 of its energy for each column that must be read:
  several flags, or one category of ten values. With seven small columns that depend on each
  other, shares were off by 6 points where only one or two were read, and by 3 with this rule;
- of a labelled column that it reads, every label with a phase of its own, uniform on a circle. The
  factor then has the mean square sum_l p_l^2. On a line (a flag), the difference of the two phases
  is uniform;
- of a cycle that it reads, a uniform direction and a length between 1 and 8 radians over the
  radius, uniform on the logarithmic scale. These resolve eight harmonics of the circle, which the
  decoder's corners need.

Coordinates of labels lie between 0 and a corner, or on a line between its ends. Both are two
half-widths apart, so a phase of u turns is a frequency of u / 2 turns per half-width, with u
between -1/2 and 1/2: at most a quarter. The widths of labelled columns cancel, and their weights
have no influence on a sketch. The highest frequency of the numbers decides the resolution of the
integers. With the finest scales that a plan can have, a label still has four phases, whose mean
is 0.

Privacy does not depend on the law. A feature is a pair from a table at an integer phase, and its
bounds (features/maps.py) are the largest over all 65,536 pairs, so they hold for every integer
matrix, every seed and every list of columns. A law must only be public: it depends on the schema,
the seed and the scales of a design and on nothing else. A row of zeros would be safe too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from privsketch._base.elementary import TWO_PI, cosine_sine, exponential, natural_log
from privsketch._base.errors import ParameterError
from privsketch._base.types import Bits, Floats
from privsketch.facts.columns import Column, Cycle
from privsketch.facts.labels import Labelled
from privsketch.facts.schema import Schema
from privsketch.features.stream import PublicStream, Purpose

MIXED = "mixed"
Columns = tuple[tuple[str, int], ...]  # kind of each column, and its number of coordinates
KINDS = ("number", "labels", "cycle")
READ_NONE, READ_ONE = 0.25, 0.5  # shares of features; the rest reads two or more
# Of energy, by how many columns must be read: a factor of 6 for each.
MAX_LOSSES = (1.0, 6.0, 36.0, 216.0)
CYCLE_LOSS = 3.0  # for a cluster that takes about a third of the circle
N_SAMPLED = 2000  # frequencies that stand for all: energies are known to some percent
SHORTEST, LONGEST = 1.0, 8.0  # of a frequency of a cycle, in radians over the radius


def columns_of(schema: Schema) -> Columns:
    """Return the kinds and sizes of a schema's columns."""
    kinds = ((Labelled, "labels"), (Cycle, "cycle"), (Column, "number"))
    return tuple(
        (
            next(kind for parent, kind in kinds if isinstance(column, parent)),
            len(column.coordinates),
        )
        for column in schema.columns
    )


def checked_columns(value: Any, dim: int) -> Columns:
    """Return kinds and sizes of columns with `dim` coordinates in all; raise for anything else."""
    try:
        columns = tuple((kind, size) for kind, size in value)
    except (TypeError, ValueError):
        columns = ()
    is_known = all(kind in KINDS and type(size) is int and size >= 1 for kind, size in columns)
    if not columns or not is_known or sum(size for _, size in columns) != dim:
        raise ParameterError(f"frequencies: columns must be kinds and sizes, {dim} numbers in all")
    sizes = {"number": 1, "cycle": 2}
    if any(sizes.get(kind, size) != size for kind, size in columns):
        raise ParameterError("frequencies: a number has one coordinate, a cycle two")
    if all(kind == "number" for kind, _ in columns):
        raise ParameterError("frequencies: 'mixed' is for tables with labels or cycles")
    return columns


def losses(columns: Columns) -> tuple[float, ...]:
    """Return by what factor reading each other column lowers the energy of a plausible cluster.

    Shares that are uniform on the simplex of L labels have sum_l p_l^2 = 2 / (L + 1) on average.
    """
    return tuple(
        CYCLE_LOSS if kind == "cycle" else (max(size, 2) + 1) / 2
        for kind, size in columns
        if kind != "number"
    )


def columns_read(columns: Columns, uniform: Floats) -> Bits:
    """Return which of the other columns rows read, (n, n_others).

    A row of `uniform`, (n, 1 + n_others), says how many columns must be read, and in which order
    columns are tried.
    """
    factors, has_numbers = losses(columns), any(kind == "number" for kind, _ in columns)
    least = (uniform[:, 0] >= READ_NONE).astype(np.int64)
    least += uniform[:, 0] >= READ_NONE + READ_ONE
    least += not has_numbers
    most = np.array(MAX_LOSSES)[least]  # a power of NumPy's may be one bit off on another machine
    order = np.argsort(uniform[:, 1:], axis=1, kind="stable")
    loss, rows = np.ones(len(uniform)), np.arange(len(uniform))
    is_read = np.zeros(order.shape, dtype=bool)
    for rank, column in enumerate(order.T):
        with_it = loss * np.array(factors)[column]
        takes = (rank < least) | ((least > 0) & (with_it <= most))
        loss = np.where(takes, with_it, loss)
        is_read[rows, column] = takes
    return is_read


def sampled_reading(columns: Columns) -> Bits:
    """Return which columns the frequencies of a typical design read, (N_SAMPLED, n_others)."""
    n_choices = 1 + len(losses(columns))
    uniform = PublicStream(0, Purpose.READ_COLUMNS).uniform(N_SAMPLED * n_choices)
    return columns_read(columns, uniform.reshape(N_SAMPLED, n_choices))


def number_mask(columns: Columns) -> Bits:
    """Return a mask of the coordinates that are numbers, (dim,)."""
    kinds = [kind == "number" for kind, _ in columns]
    return np.repeat(kinds, [size for _, size in columns])


class LabelRows:
    """Frequencies of labels and cycles, in turns per half-width, row by row from a public stream.

    Uniform numbers of a row, in order: those of `columns_read`, then one for each coordinate of a
    labelled column or cycle, read or not.
    """

    def __init__(self, columns: Columns, stream: PublicStream) -> None:
        sizes = [size for _, size in columns]
        first = np.cumsum([0, *sizes[:-1]])
        self._read = [  # columns that a row may read, and their coordinates
            (kind, slice(start, start + size))
            for (kind, size), start in zip(columns, first, strict=True)
            if kind != "number"
        ]
        self._columns, self._is_number = columns, number_mask(columns)
        self._stream = stream

    def beside(self, numbers: Floats) -> Floats:
        """Return complete rows for the next rows of numbers, (n, dim)."""
        rows = np.zeros((len(numbers), len(self._is_number)))
        rows[:, self._is_number] = numbers
        n_choices = 1 + len(self._read)
        n_uniform = n_choices + int((~self._is_number).sum())
        uniform = self._stream.uniform(len(rows) * n_uniform).reshape(len(rows), n_uniform)
        is_read = columns_read(self._columns, uniform[:, :n_choices])
        place = n_choices
        for index, (kind, where) in enumerate(self._read):
            own = uniform[:, place : place + where.stop - where.start]
            place += own.shape[1]
            turns = (own - 0.5) * 0.5 if kind == "labels" else _of_cycle(own)
            rows[:, where] = np.where(is_read[:, index, np.newaxis], turns, 0.0)
        return rows


def _of_cycle(uniform: Floats) -> npt.NDArray[np.float64]:
    """Return frequencies of a cycle, (n, 2), from a direction and a length."""
    low, high = natural_log(np.array([SHORTEST, LONGEST]))
    length = exponential(low + (high - low) * uniform[:, 1]) / TWO_PI
    return np.stack([length * both for both in cosine_sine(uniform[:, 0])], axis=1)
