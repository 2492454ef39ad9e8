"""The released rows that are nearest to others, by unbiased squared distances.

Among rows of one release the noise adds the same amount to all distances from a query: ranks,
and so any nearest-neighbour classifier, are those of plain distances, and only the distances
that are returned differ. Among rows of several releases with different noise it does not: plain
distances would prefer the release with less noise, unbiased ones do not. No correction brings
back a rank that noise has changed. Post-processing: nothing is charged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privsketch._base.errors import ParameterError, require_count
from privsketch._base.types import Floats, Integers
from privsketch.projection.distances import Distances, Released, require_released

QUERIES, CANDIDATES = 128, 2**14  # distances that are in memory together


@dataclass(frozen=True, eq=False)
class NearestRows:
    """For every query its nearest rows, nearest first; all arrays are (n_queries, n_nearest).

    `rows` are their numbers in the release that they belong to, `releases` is the number of that
    release. Squared distances are unbiased for a given row, and often negative. Those of the
    nearest rows were selected for being small, so they are too small on average.
    """

    rows: Integers
    releases: Integers
    squared_distances: Floats


def nearest_rows(
    queries: Released, n_nearest: int, *, among: Released | Sequence[Released] | None = None
) -> NearestRows:
    """Nearest rows of each query.

    Parameters
    ----------
    queries : Released
        Released rows, or exact points of the released space.
    n_nearest : int
    among : Released or sequence of Released, optional
        Where to look: releases that used the same matrix as the queries. The queries themselves
        if left out. No row is its own neighbour, in whatever place the queries' own object is.
    """
    require_count("n_nearest", n_nearest)
    require_released("queries", queries)
    tables = _tables(queries if among is None else among)
    between = [Distances(queries, table) for table in tables]
    available = sum(len(table.values) - (table is queries) for table in tables)
    if n_nearest > available:
        raise ParameterError(f"`n_nearest={n_nearest}`: there are {max(available, 0)} other rows")
    count = len(queries.values)
    found = NearestRows(
        np.empty((count, n_nearest), dtype=np.int64),
        np.empty((count, n_nearest), dtype=np.int64),
        np.empty((count, n_nearest)),
    )
    for start in range(0, count, QUERIES):
        part = slice(start, min(start + QUERIES, count))
        best = _Best(part.stop - start)
        for number, distances in enumerate(between):
            for first in range(0, len(tables[number].values), CANDIDATES):
                block = distances.block(part, slice(first, first + CANDIDATES))
                if tables[number] is queries:
                    own = np.arange(start, part.stop)
                    here = (own >= first) & (own < first + block.shape[1])
                    block[np.flatnonzero(here), own[here] - first] = np.inf
                best.take(block, first, number, n_nearest)
        found.rows[part], found.releases[part] = best.rows, best.releases
        found.squared_distances[part] = best.squared
    return found


def _tables(among: Released | Sequence[Released]) -> list[Released]:
    if isinstance(among, Released):
        return [among]
    if not isinstance(among, Sequence):
        raise ParameterError(
            f"among: expected Released(values, noise), or a list, got {type(among).__name__}"
        )
    return [require_released("among", table) for table in among]


class _Best:
    """The nearest rows so far, sorted."""

    def __init__(self, n_queries: int) -> None:
        self.rows: Integers = np.empty((n_queries, 0), dtype=np.int64)
        self.releases: Integers = np.empty((n_queries, 0), dtype=np.int64)
        self.squared: Floats = np.empty((n_queries, 0))

    def take(self, block: Floats, first: int, release: int, n_nearest: int) -> None:
        """Look at the distances to the rows from `first` on of a release."""
        few = min(n_nearest, block.shape[1])
        chosen = np.argpartition(block, few - 1, axis=1)[:, :few]
        squared = np.concatenate([self.squared, np.take_along_axis(block, chosen, axis=1)], axis=1)
        rows = np.concatenate([self.rows, chosen + first], axis=1)
        releases = np.concatenate([self.releases, np.full_like(chosen, release)], axis=1)
        order = np.argsort(squared, axis=1, kind="stable")[:, :n_nearest]
        self.squared, self.rows, self.releases = (
            np.take_along_axis(values, order, axis=1) for values in (squared, rows, releases)
        )
