"""A design in plain words: what it is, what it can carry, and what to think about."""

from __future__ import annotations

from collections.abc import Sequence

from privsketch._base.formats import as_line
from privsketch.design.cautions import cautions
from privsketch.design.forecast import expected_harmonics
from privsketch.design.recipe import Design
from privsketch.design.size import (
    carried_clusters,
    carried_gaussians,
    choose_size,
    kmeans_unknowns,
    largest_size,
    relative_error,
)
from privsketch.features.frequencies import NO_LAW
from privsketch.features.quadratic import QUADRATIC_LAWS
from privsketch.noise.sharing.plan import planned_noises

_COUNTS = {
    "released": "a noisy one is part of the sketch",
    "omitted": "not part of the sketch",
    "public": "public",
}
_SHARING = {
    "holders": "each of {} holders adds a part of the noise of their total",
    "tellers": "two tellers add the noise of the total of {} holders, each all of it",
}
_MAX_NAMES = 12  # of columns that are named, a line or two; by trial
_CENTERS = {
    "released": "the mean of the records, a noisy one of which is part of the sketch",
    "omitted": "that of the domain: components are those around it, not around the mean",
}


def kmeans_cost(design: Design) -> float:
    """Predicted excess error of k-means from this design over that of one for k-means alone.

    Both for the same budget and number of records; below 1 if this design is larger
    and that helps.
    """
    k, dim = design.n_components, design.dim
    largest, n_unknowns = largest_size("kmeans", k, dim)
    harmonics = 0.0
    if design.mapping.dithered:
        law, radii = design.frequencies.law, design.frequencies.radial_law
        harmonics = expected_harmonics(law, radii, design.domain, k, design.n_records)
    alone = choose_size(
        largest=largest,
        n_unknowns=n_unknowns,
        n_features=None,
        feature_map=design.mapping,
        budget=design.budget,
        noise=None,
        count=design.count,
        n_records=design.n_records,
        harmonics=harmonics,
    )
    error = relative_error(
        design.n_features,
        kmeans_unknowns(k, dim),
        design.noise_std**2 + harmonics,
        design.n_records,
        largest,
    )
    return float(error) / alone.error


def capacity(design: Design) -> str:
    """In words, one line."""
    dim, size = design.dim, design.n_values // 2  # numbers count, of which a feature has two
    full = carried_gaussians(dim, size, "full")
    line = (
        f"carries up to {carried_clusters(dim, size)} clusters, "
        f"{carried_gaussians(dim, size, 'diag')} diagonal or {full} full Gaussians"
    )
    if design.task == "kmeans":
        return line
    return (
        f"{line}; k-means from it has {kmeans_cost(design):.2g} times the excess error "
        "of a sketch for k-means alone"
    )


def describe_design(design: Design, *, said: Sequence[str] = ()) -> str:
    """Several lines, each with a heading of twelve characters; no cautions that were `said`."""
    lines = [
        f"design      {design.fingerprint[:16]} for {design.task}, "
        f"{design.n_components} components",
        *_record_lines(design),
        f"features    {_features(design)}",
        f"noise       {design.noise}, standard deviation {design.noise_std:.4g} "
        f"{'squared radii' if design.mapping.for_components else 'records'} per number",
        f"forecast    {design.forecast().describe()}",
    ]
    if design.sharing is not None and design.n_holders is not None:
        alone = design.forecast(n_holders=design.n_holders).describe()
        lines[-1:] = [
            f"sharing     {_SHARING[design.sharing].format(design.n_holders)}; the total has the "
            f"noise of {planned_noises(design.sharing, design.n_holders):.3g} releases, not of "
            f"{design.n_holders}",
            f"{lines[-1]}, in that total",
            f"without     {alone}, with noise for each by itself",
        ]
    if design.masks is not None:
        lines.append(f"masks       {design.masks.describe()}; secret, drawn for each record")
    if design.task == "pca":
        lines.append(f"center      {_CENTERS[design.mean]}")
    else:
        lines.append(f"size        {capacity(design)}")
    count = _COUNTS[design.count]
    if design.cells is not None and design.count == "omitted":
        count = "a noisy one, that of all cells together"
    lines += [f"count       {count}", f"budget      {design.budget.describe()}"]
    if design.budget.unit.assumption:
        lines.append(f"assuming    {design.budget.unit.assumption}")
    lines += [f"careful     {text}" for text in cautions(design) if text not in said]
    return "\n".join(lines)


def _record_lines(design: Design) -> list[str]:
    """Where records lie and what their columns are, or the schema."""
    planned = f"planned for {design.n_records:g} of them"
    if design.n_holders is not None:
        planned = f"planned for {design.n_records:g} of each of {design.n_holders} holders"
    columns, schema = design.columns, design.schema
    if schema is not None:
        lines = schema.describe().splitlines()
        told = [f"{'' if place else 'table':<11} {line}" for place, line in enumerate(lines)]
        return [*told, f"records     {schema.dim} numbers each; {planned}"]
    names = "by position" if columns is None else ", ".join(map(as_line, columns[:_MAX_NAMES]))
    more = ", ..." if columns is not None and len(columns) > _MAX_NAMES else ""
    return [
        f"records     {design.domain.describe()}; {planned}",
        f"columns     {names}{more}",
    ]


def _features(design: Design) -> str:
    recipe = design.frequencies
    if design.cells is not None:
        return f"{design.n_features} cells, {' x '.join(map(str, design.cells))}"
    if recipe.law == NO_LAW:
        return f"{design.n_features} ({design.feature_map})"
    start = f"{design.n_features} ({design.feature_map}), "
    if recipe.law in QUADRATIC_LAWS:
        return f"{start}vectors {recipe.law}, public seed {recipe.seed}"
    low, high = recipe.scales
    scale = f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"
    if recipe.tail is not None:
        scale += f" ({recipe.tail.share:.0%} of them below {recipe.tail.below:.4g})"
    return f"{start}frequencies {recipe.law} at scales {scale}, public seed {recipe.seed}"
