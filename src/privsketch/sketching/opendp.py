"""Sketches as OpenDP measurements, for its odometers and filters.

OpenDP composes measurements that have the same input domain, input metric and output measure.

- The domain is that of all tables that `privsketch.sketch` reads and that can be read again. It
  does not depend on a design: any number of sketches, and OpenDP's own statistics of a column
  (`make_column`), can be in one study.
- The metric counts what the budget protects: rows that are added or removed (`SymmetricDistance`)
  or replaced (`ChangeOneDistance`), or persons, where a schema names them. OpenDP's
  statistics do not know persons, and OpenDP refuses to mix the two.
- The measure is that of the noise: zero-concentrated divergence for Gaussian noise, max divergence
  for pure noise. Subsampled Gaussian noise is accounted for as a pair of epsilon and delta.

Costs are exact fractions, rounded up to floats; OpenDP adds them up. Noise is drawn by
`privsketch.sketch`, as always.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from privsketch._base.errors import ParameterError, RecordError, require_count
from privsketch._base.types import Floats
from privsketch.design.recipe import Design
from privsketch.design.validity import require_private
from privsketch.facts.budget import Neighbours, checked_source, exact
from privsketch.sketching.build import sketch
from privsketch.tables.reading import read_blocks
from privsketch.tables.table import Table, checked_missing

if TYPE_CHECKING:
    from opendp.mod import Domain, Measure, Measurement, Metric, Transformation

TABLE = "table of privsketch"


def table_domain() -> Domain:
    """Return OpenDP's domain of tables that can be read several times.

    They are all that `privsketch.sketch` reads (arrays, frames, paths, lists of them), except
    iterators, which can be read only once.
    """
    from opendp.domains import user_domain

    return user_domain(TABLE, _is_table)


def make_sketch(
    design: Design,
    *,
    source: str | None = None,
    missing: str = "error",
    output_measure: Measure | None = None,
) -> Measurement:
    """Make an OpenDP measurement that takes a table and releases a `Sketch`.

    OpenDP's features "contrib" and "honest-but-curious" must be enabled: it cannot check the
    privacy of code that is not its own.

    Charges, when it is invoked: epsilon and delta of the design, once.

    Parameters
    ----------
    design : Design
        Tables are read by its schema, or its columns; files as `privsketch.sketch` reads them
        without options for their format.
    source : str, optional
        Name of the set of records, as in `privsketch.sketch`.
    missing : {"error", "center"}
        What to do with missing values of a design without a schema.
    output_measure : Measure, optional
        Measure of the cost. By default, `zero_concentrated_divergence()` for Gaussian noise,
        `max_divergence()` for pure noise, `approximate(max_divergence())` for Gaussian noise with
        masks of records or Poisson masks of features. OpenDP's own casts give
        `approximate(max_divergence())`, at the delta of the design, for all of them, and
        `zero_concentrated_divergence()` for pure noise.

    Notes
    -----
    For d records more or less (or replaced, under "replace"), a design that spends rho or epsilon
    on one costs d^2 rho or d epsilon. If a schema names persons, d is a number of persons. If a
    person is only assumed to have at most c rows, d counts rows, and c rows cost what the design
    says. Pairs of epsilon and delta are for d = 1 only; larger distances are refused.

    Examples
    --------
    >>> import opendp.prelude as dp, privsketch as ps
    >>> from privsketch.sketching.opendp import make_sketch
    >>> dp.enable_features("contrib", "honest-but-curious")
    >>> design = ps.Design.plan(n_components=2, domain=ps.Box(-1, 1, dim=2),
    ...                         budget=ps.Budget(epsilon=0.5), random_state=0)
    >>> measurement = make_sketch(design)
    >>> measurement.map(1), measurement.map(2)
    (0.5, 1.0)
    >>> measurement([[0.1, 0.2], [-0.3, 0.4]]).receipt.epsilon
    0.5
    """
    from opendp.measurements import make_user_measurement

    _require_design(design)
    if source is not None:
        checked_source(source)
    checked_missing(missing, design.schema)

    def release(data: Any) -> Any:
        return sketch(_checked_table(data).stating(missing=missing), design, source=source)

    measure, privacy_map = _cost(design)
    measurement = make_user_measurement(
        table_domain(), _metric(design), measure, release, privacy_map
    )
    if output_measure is None or output_measure == measure:
        return measurement
    return _cast(measurement, output_measure, design)


def make_column(
    design: Design, column: str | int, *, n_records: int | None = None
) -> Transformation:
    """Make a transformation from a table to a column, for OpenDP's own statistics of that column.

    The vector has a number for each row of the table, NaN if it is missing, even for rows that a
    schema leaves out of a sketch: one row is one number, so distances do not change.

    Parameters
    ----------
    design : Design
        Distances count what it protects, which must be records: a person may have any number of
        rows.
    column : str or int
        Name or number of a column of numbers; it need not be one of the design's.
    n_records : int, optional
        The public number of rows, under "replace": tables of another size are refused.

    Examples
    --------
    >>> import opendp.prelude as dp, privsketch as ps
    >>> from privsketch.sketching.opendp import make_column
    >>> dp.enable_features("contrib", "honest-but-curious")
    >>> design = ps.Design.plan(n_components=2, domain=ps.Box(-1, 1, dim=2), budget=ps.Budget(0.5))
    >>> count = make_column(design, 0) >> dp.t.then_count() >> dp.m.then_laplace(scale=10.0)
    >>> count.map(1)
    0.1
    """
    from opendp.domains import atom_domain, vector_domain
    from opendp.transformations import make_user_transformation

    _require_design(design)
    if design.budget.unit.person is not None:
        raise ParameterError(
            "design: it protects persons, who may have any number of rows in a column; use a "
            "design that protects records for OpenDP's statistics"
        )
    if (n_records is not None) != (design.budget.neighbours == "replace"):
        raise ParameterError(
            "n_records",
            n_records,
            "required under `neighbours='replace'`, where the number of records is public; not "
            "allowed under 'add-remove', where it is private",
        )
    if n_records is not None:
        n_records = require_count("n_records", n_records)
    metric = _metric(design)

    def values(data: Any) -> Floats:
        # "center": empty rows of a sheet are no numbers, as the last record could take them along.
        table = _checked_table(data).stating(columns=[column], missing="center")
        blocks = read_blocks(table, table.selection(1, neighbours=design.budget.neighbours))
        parts = [np.asarray(block, dtype=np.float64).ravel() for block in blocks]
        cells = np.concatenate([np.empty(0), *parts])
        if n_records is not None and len(cells) != n_records:
            raise RecordError(f"the table does not have the public number of records, {n_records}")
        return cells

    vectors = vector_domain(atom_domain(T="f64", nan=True), size=n_records)
    return make_user_transformation(
        table_domain(), metric, vectors, metric, values, lambda distance: distance
    )


# ---------------------------------------------------------------- tables


def _is_table(data: Any) -> bool:
    """Return whether a table can be read several times."""
    # Streams of pyarrow are iterators too.
    return not any(
        part.kind == "other" or isinstance(part.data, Iterator) for part in Table.of(data).leaves
    )


def _checked_table(data: Any) -> Table:
    """Return the table; OpenDP does not check whether it is in the domain."""
    if not _is_table(data):
        raise RecordError(
            f"a {type(data).__name__} cannot be read several times: a study needs a table that can "
            "be read again; pass an array, a frame, a path, or a list of them"
        )
    return Table.of(data)


def _require_design(design: object) -> None:
    if not isinstance(design, Design):
        raise ParameterError(f"design: expected a Design, got {type(design).__name__}")
    require_private(design, "OpenDP")


# ---------------------------------------------------------------- distances


def _metric(design: Design) -> Metric:
    """Return OpenDP's distance between tables: in records, or in persons of a schema."""
    from opendp.metrics import change_one_distance, symmetric_distance, user_distance

    neighbours, person = design.budget.neighbours, design.budget.unit.person
    if person is not None:
        return user_distance(f"{_CHANGES[neighbours]} of privsketch, by column {person!r}")
    return symmetric_distance() if neighbours == "add-remove" else change_one_distance()


_CHANGES: dict[Neighbours, str] = {
    "add-remove": "persons added or removed",
    "replace": "persons replaced",
}


# ---------------------------------------------------------------- costs


def _cost(design: Design) -> tuple[Measure, Callable[[Any], Any]]:
    """Return the measure of a design's noise, and the cost of a distance in it."""
    from opendp.measures import approximate, max_divergence, zero_concentrated_divergence

    noise, unit = design.sum_noise, design.budget.unit
    laws = [law for law in (noise.sums_law, noise.count_law) if law is not None]
    # Distances count the persons of a schema; without a schema they count rows, and norms are
    # those of max_records equal rows.
    per_step = 1 if unit.person is not None else unit.max_records
    if design.noise != "gaussian":
        epsilon = sum((exact(law.epsilon) for law in laws), Fraction(0)) / per_step
        return max_divergence(), lambda distance: _round_up(_steps(distance) * epsilon)
    rhos = [law.zcdp for law in laws if law.zcdp is not None]
    if len(rhos) == len(laws):
        rho = sum((Fraction(part) for part in rhos), Fraction(0)) / per_step**2
        return zero_concentrated_divergence(), lambda d: _round_up(_steps(d) ** 2 * rho)
    # With records or features left out at random, only epsilon and delta are known.
    pair = (_round_up(exact(design.budget.epsilon)), _round_up(exact(design.budget.delta)))

    def cost_of_step(distance: Any) -> tuple[float, float]:
        if _steps(distance) > 1:
            raise ParameterError(
                f"distance of {distance}: masks are accounted for as epsilon and delta of one "
                "record; only distances of 0 and 1 have a known cost"
            )
        return pair if distance else (0.0, 0.0)

    return approximate(max_divergence()), cost_of_step


def _steps(distance: Any) -> int:
    """Return a distance as a number of records or persons; user metrics accept any object."""
    if isinstance(distance, bool) or not isinstance(distance, int) or distance < 0:
        raise ParameterError("distance: expected a number of records or persons, 0 or more")
    return distance


def _round_up(value: Fraction) -> float:
    """Return the least float that is not below `value`."""
    number = float(value)
    return number if Fraction(number) >= value else math.nextafter(number, math.inf)


def _cast(measurement: Measurement, measure: Measure, design: Design) -> Measurement:
    """Return this release under another measure, by OpenDP's own conversions."""
    from opendp.combinators import (
        make_approximate,
        make_fix_delta,
        make_pureDP_to_zCDP,
        make_zCDP_to_approxDP,
    )
    from opendp.measures import approximate, max_divergence, zero_concentrated_divergence

    is_pure = measurement.output_measure == max_divergence()
    if is_pure and measure == zero_concentrated_divergence():
        return make_pureDP_to_zCDP(measurement)
    if is_pure and measure == approximate(max_divergence()):
        return make_approximate(measurement)
    is_concentrated = measurement.output_measure == zero_concentrated_divergence()
    if is_concentrated and measure == approximate(max_divergence()):
        return make_fix_delta(make_zCDP_to_approxDP(measurement), design.budget.delta)
    raise ParameterError(
        f"output_measure: the cost of this noise in {measure} is not known; leave it out for "
        f"{measurement.output_measure}, and use OpenDP's own casts"
    )
