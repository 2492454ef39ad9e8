"""Checks of designs: contradictory facts, and more components than a sketch can carry."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from privsketch._base.errors import (
    ParameterError,
    require_gaussian_delta,
    require_one_of,
    require_records,
)
from privsketch._base.formats import INSECURE
from privsketch.facts.budget import NoBudget, checked_budget
from privsketch.facts.columns import Column, Date, Number
from privsketch.facts.domain import Ball, Box, Domain
from privsketch.facts.labels import Flag, Labelled
from privsketch.facts.schema import Schema
from privsketch.features.cells import checked_cells
from privsketch.features.maps import CLUSTERING, FEATURE_MAPS, SUPERVISED, require_known_harmonics
from privsketch.features.mixed import MIXED, columns_of
from privsketch.features.moments import moment_count
from privsketch.noise.mechanism import NOISE_KINDS
from privsketch.noise.sharing.plan import MAX_HOLDERS
from privsketch.noise.sums import COUNT_MODES, SHARING_KINDS

if TYPE_CHECKING:
    from privsketch.design.recipe import Design

TASKS = (*CLUSTERING, "pca", *SUPERVISED)
MEAN_MODES = ("omitted", "released")


def require_design(design: Design) -> None:
    """Raise a ParameterError if the facts of a design contradict each other."""
    require_one_of("task", design.task, TASKS)
    if isinstance(design.n_components, bool) or not isinstance(design.n_components, int):
        raise ParameterError("n_components", design.n_components, "expected an integer")
    if design.domain.dim is None:
        raise ParameterError("domain: dim is missing; state `dim=`, the number of columns")
    _require_privacy(design)
    if design.noise == "gaussian":
        require_gaussian_delta(design.budget.delta)
    require_one_of("count", design.count, COUNT_MODES)
    require_records(design.n_records)
    if design.columns is not None and len(design.columns) != design.dim:
        raise ParameterError(
            f"columns: {len(design.columns)} names for a domain of dim={design.dim}"
        )
    if design.columns is not None and len(set(design.columns)) != design.dim:
        raise ParameterError("columns: a name occurs twice; rename one of them")
    if design.frequencies.dithered != design.mapping.dithered:
        raise ParameterError("frequencies: dither does not go with the feature map")
    _require_map(design)
    if design.schema is not None:
        _require_schema(design, design.schema)
    elif design.budget.unit.person is not None:
        raise ParameterError(
            "budget: its unit is a person, and only a schema says which records are whose; "
            "state a schema with `person=` as the domain"
        )
    if design.masks is not None:
        design.masks.checked(design.n_features, design.frequencies.block_size(design.dim))
    require_sharing(design.sharing, design.n_holders)
    if design.mean not in MEAN_MODES:
        raise ParameterError("mean", design.mean, "expected 'omitted' or 'released'")
    if design.mean == "released" and not design.mapping.for_components:
        raise ParameterError("`mean='released'`: only for `task='pca'` and tasks with a target")
    require_target(design.task, design.target, design.schema, design.columns)
    if design.task in SUPERVISED:
        if design.n_components != 0:
            raise stated_components(design.task, design.n_components)
    elif design.task == "pca":
        require_components(design.n_components, design.dim, design.n_values)
    elif design.cells is not None:
        require_cells(design.n_components, design.n_features, "n_components")
    else:
        require_features(design.n_components, design.dim, design.n_features, "n_components")
    _ = design.sum_noise  # raises an error if the noise cannot be drawn for this budget and size


def _require_privacy(design: Design) -> None:
    """Raise a ParameterError unless all facts agree on whether there is any privacy."""
    if type(design.insecure) is not bool:
        raise ParameterError("insecure", design.insecure, "expected True or False")
    if not design.insecure:
        require_one_of("noise", design.noise, NOISE_KINDS)
        checked_budget(design.budget)
        return
    if design.noise != "none" or type(design.budget) is not NoBudget or design.sharing is not None:
        raise ParameterError(
            "insecure: such a design has neither a budget nor noise, and no holders that share it"
        )


def require_private(design: Design, what: str) -> None:
    """Raise a ParameterError for an insecure design, which `what` does not take."""
    if design.insecure:
        raise ParameterError(
            f"design: it is {INSECURE}, for research: its sketches have no noise, and {what} does "
            "not take it; plan a design with a budget"
        )


def _require_schema(design: Design, schema: Schema) -> None:
    """Raise a ParameterError if domain, names or unit differ from those of the schema."""
    fits = design.domain in (schema.box, schema.ball) and design.columns == schema.coordinates
    if design.task in SUPERVISED and design.columns == schema.coordinates:
        fits = fits or is_smaller_ball(design.domain, schema.ball)
    if not fits or schema.charged(design.budget) != design.budget:
        raise ParameterError("schema: domain, columns or unit are those of another one")


def is_smaller_ball(domain: Domain, ball: Ball) -> bool:
    """Return whether a domain is a ball about the center of another one, and smaller."""
    if not isinstance(domain, Ball) or domain.radius >= ball.radius:
        return False
    return domain == Ball(dim=ball.dim, radius=domain.radius, center=ball.center_vector)


def stated_components(task: str, n_components: object) -> ParameterError:
    """Return the error for a number of components where a task has none."""
    return ParameterError(
        f"`n_components={n_components!r}` with `task={task!r}`: such a sketch has no components; "
        "leave it out"
    )


def possible_targets(
    task: str, schema: Schema | None, columns: Sequence[str] | None
) -> tuple[str, ...]:
    """Return the names of the columns that a task can predict; all are numbers without a schema."""
    if schema is None:
        return tuple(columns or ()) if task == "regression" else ()
    return tuple(column.name for column in schema.columns if _can_be_target(task, column))


def _can_be_target(task: str, column: Column) -> bool:
    """Return whether a task can predict a column. Regression predicts the share of a flag."""
    if task == "classification":
        return isinstance(column, Labelled)
    return isinstance(column, Number | Date) or (isinstance(column, Flag) and column.is_line)


def kinds_of_targets(task: str) -> str:
    """Return the kinds of columns that a task can predict, in words."""
    return "a category or a flag" if task == "classification" else "a number, a date or a flag"


def require_target(
    task: str, target: str | None, schema: Schema | None, columns: Sequence[str] | None
) -> None:
    """Raise a ParameterError for a stated target that the task cannot predict.

    `columns` are the names of the coordinates of a record.
    """
    if target is None:
        return
    if task not in SUPERVISED:
        raise ParameterError(
            f"`target={target!r}` with `task={task!r}`: only `task='regression'` and "
            "'classification' have a target; leave it out"
        )
    possible, kinds = possible_targets(task, schema, columns), kinds_of_targets(task)
    if target in possible:
        return
    is_column = target in ((columns or ()) if schema is None else schema.names)
    problem = f"is not {kinds}" if is_column else "is not the name of a column"
    shown = ", ".join(map(repr, possible[:6])) + (", ..." if len(possible) > 6 else "")
    advice = f"one of {shown}" if possible else "state a schema, or the names with `columns=`"
    raise ParameterError("target", target, f"{problem}; `task={task!r}` predicts {kinds}", advice)


def require_sharing(sharing: str | None, n_holders: int | None) -> None:
    """Raise a ParameterError unless both shared noise and a number of holders are stated."""
    if (sharing is None) != (n_holders is None):
        raise ParameterError(
            f"`n_holders={n_holders}` with `sharing={sharing!r}`: they go together; leave both out "
            "for sketches that holders release by themselves"
        )
    if sharing is None:
        return
    if type(n_holders) is not int or not 2 <= n_holders <= MAX_HOLDERS:
        expected = f"expected at least 2 holders that share noise, at most {MAX_HOLDERS}"
        raise ParameterError("n_holders", n_holders, expected)
    require_one_of("sharing", sharing, SHARING_KINDS)


def _require_map(design: Design) -> None:
    """Raise a ParameterError if the map does not fit the task, the frequencies or the domain."""
    if design.task not in design.mapping.tasks:
        names = ", ".join(map(repr, maps_for(design.task)))
        raise ParameterError(
            f"`feature_map={design.feature_map!r}` with `task={design.task!r}`: expected {names}"
        )
    own = design.frequencies.own
    if own is not None and own.half_widths != tuple(design.domain.half_widths.tolist()):
        raise ParameterError("frequencies: those of one's own are for another domain")
    is_known = design.frequencies.law in design.mapping.laws
    if not is_known and not (own is not None and design.mapping.has_table):
        laws = ", ".join(map(repr, design.mapping.laws))
        raise ParameterError(
            f"`frequencies={design.frequencies.law!r}` with `feature_map={design.feature_map!r}`: "
            f"expected one of {laws}"
        )
    if design.frequencies.law == MIXED:
        _require_mixed(design)
    if design.feature_map == "taxicab":
        _require_taxicab(design)
    elif design.mapping.for_components and not isinstance(design.domain, Ball):
        radius = float(np.linalg.norm(design.domain.half_widths))
        raise ParameterError(
            f"`task={design.task!r}` needs a Ball: its noise grows with the largest norm of a "
            f"record. The ball around this box has radius {radius:.4g}; a smaller one, to which "
            "few records are moved, gives less noise"
        )
    if design.mapping.origin is not None:
        _require_registered_map(design)
    is_matrix = design.feature_map == "second-moments"
    if is_matrix and design.n_features != moment_count(design.dim):
        raise ParameterError("n_features: second moments have dim (dim + 1) / 2 of them")
    if (design.feature_map == "cells") != (design.cells is not None):
        raise ParameterError("cells: only `feature_map='cells'` has them, and it needs them")
    if design.cells is not None:
        _require_cells(design, design.cells)


def _require_mixed(design: Design) -> None:
    """Raise a ParameterError unless frequencies for labels are those of the schema's columns."""
    schema = design.schema
    if schema is None or design.domain != schema.box:
        raise ParameterError("`frequencies='mixed'` needs a schema, and the box of its records")
    if design.frequencies.columns != columns_of(schema):
        raise ParameterError("frequencies: columns are not those of the schema")


def _require_registered_map(design: Design) -> None:
    """Raise a ParameterError for a registered map whose harmonics learners would misread."""
    require_known_harmonics(design.mapping)
    if design.task == "gaussian-mixture" and design.mapping.dithered:
        raise unknown_harmonics(design)


def unknown_harmonics(design: Design) -> ParameterError:
    """Return the error for mixtures of a dithered map with other harmonics than those of signs."""
    return ParameterError(
        f"`feature_map={design.feature_map!r}` of {design.mapping.origin}: mixtures are fitted to "
        "the harmonics of 'one-bit' and of no other dithered map; use `task='kmeans'` and "
        "learn_kmeans, or `feature_map='one-bit'`"
    )


def _require_taxicab(design: Design) -> None:
    """Raise a ParameterError unless a design with taxicab moments has what they are proved for."""
    what = "with `feature_map='taxicab'`"
    if not isinstance(design.domain, Box):
        raise ParameterError(f"a Ball {what}: it bounds each column; state a schema or a Box")
    if design.schema is not None and design.domain != design.schema.box:
        raise ParameterError(f"domain {what}: expected the box of the schema's records")
    if design.n_features != moment_count(1 + design.dim):
        raise ParameterError(f"n_features {what}: expected (dim + 1) (dim + 2) / 2 of them")
    if design.noise != "laplace" and not design.insecure:
        raise ParameterError(
            f"`noise={design.noise!r}` {what}: its bounds are for `noise='laplace'`; "
            "with a delta and Gaussian noise use `feature_map='second-moments'`"
        )
    if design.masks is not None:
        raise ParameterError(f"masks {what}: their cost is not known; use no masks")
    if design.mean == "released":
        raise ParameterError(f"`mean='released'` {what}: the sums hold the mean; leave it out")
    if design.count == "released" and not design.insecure:
        raise ParameterError(
            f"`count='released'` {what}: the sums hold the count; use `count='omitted'`"
        )


def _require_cells(design: Design, cells: tuple[int, ...]) -> None:
    """Raise a ParameterError for a grid of the wrong size, or with masks or cube noise."""
    widths = [axis.stop - axis.start for axis in design.axes]
    if any(width > 1 and g != width for g, width in zip(cells, widths, strict=False)):
        raise ParameterError("cells: a category has a cell for each of its labels")
    if math.prod(checked_cells(cells, len(widths))) != design.n_features:
        raise ParameterError("n_features: expected the number of all cells")
    if design.masks is not None:
        raise ParameterError(
            "masks with `feature_map='cells'`: a record is in one cell, so there is nothing to "
            "leave out; use no masks"
        )
    if design.noise == "cube":
        raise ParameterError(
            "`noise='cube'` with `feature_map='cells'`: its noise grows with their number; use "
            "`noise='laplace'`, which is pure too and the least there is"
        )


def require_features(n_components: int, dim: int, n_features: int, name: str) -> None:
    """Raise a ParameterError for more components than a sketch of this size can determine."""
    if n_components < 1:
        raise ParameterError(f"{name}={n_components}: expected at least 1")
    max_components = 2 * n_features // (dim + 1)  # of dim + 1 unknowns; a feature has two numbers
    if n_components > max_components:
        raise ParameterError(
            f"{name}={n_components}: a sketch of {n_features} features in {dim} dimensions can "
            f"carry at most {max_components} components; plan a design with more features"
        )


def require_cells(n_components: int, n_cells: int, name: str) -> None:
    """Raise a ParameterError for more clusters than cells."""
    if not 1 <= n_components <= n_cells:
        raise ParameterError(
            f"{name}={n_components}: expected 1 to {n_cells}, the number of cells; plan a design "
            "with more cells"
        )


def require_components(n_components: int, dim: int, n_values: int) -> None:
    """Raise a ParameterError for more components than columns, or than the values determine."""
    if not 1 <= n_components <= dim:
        raise ParameterError(
            f"`n_components={n_components}`: expected 1 to {dim}, the number of columns"
        )
    unknowns = pca_unknowns(n_components, dim)
    if unknowns > n_values:
        raise ParameterError(
            f"`n_components={n_components}` has {unknowns} unknowns in {dim} columns, the sketch "
            f"{n_values} numbers; ask for fewer components, or plan a design with "
            f"`n_features={2 * unknowns}` or more"
        )


def pca_unknowns(rank: int, dim: int) -> int:
    """Return the number of free numbers of a matrix of this rank plus an isotropic one."""
    if rank >= dim:
        return moment_count(dim)
    return rank * dim - rank * (rank - 1) // 2 + 1


def maps_for(task: str) -> list[str]:
    """Return the names of the feature maps for a task."""
    return [name for name, mapping in FEATURE_MAPS.items() if task in mapping.tasks]
