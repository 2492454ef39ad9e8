"""A design in plain words, with what it promises to carry and what to think about."""

from __future__ import annotations

from privsketch.design.capacity import capacity
from privsketch.design.forecast import cautions
from privsketch.design.recipe import Design
from privsketch.features.frequencies import NO_LAW
from privsketch.features.quadratic_vectors import QUADRATIC_LAWS

_COUNTS = {
    "released": "a noisy one is part of the sketch",
    "omitted": "not part of the sketch",
    "public": "public",
}
_MOST_NAMES = 12


def describe_design(design: Design) -> str:
    """Several lines, each with a heading of twelve characters."""
    columns = design.columns
    names = "by position" if columns is None else ", ".join(columns[:_MOST_NAMES])
    more = ", ..." if columns is not None and len(columns) > _MOST_NAMES else ""
    lines = [
        f"design      {design.fingerprint[:16]} for {design.task}, "
        f"{design.n_components} components",
        f"records     {design.domain.describe()}; planned for {design.n_records:g} of them",
        f"columns     {names}{more}",
        f"features    {_features(design)}",
        f"noise       {design.noise}, standard deviation {design.noise_std:.4g} "
        f"{'records' if design.map.has_table else 'squared radii'} per number",
        f"forecast    {design.forecast().describe()}",
    ]
    if design.masks is not None:
        lines.append(f"masks       {design.masks.describe()}; secret, drawn for each record")
    if design.task == "pca":
        lines.append(f"center      {_CENTERS[design.mean]}")
    else:
        lines.append(f"size        {capacity(design)}")
    lines += [f"count       {_COUNTS[design.count]}", f"budget      {design.budget.describe()}"]
    return "\n".join(lines + [f"careful     {text}" for text in cautions(design)])


def _features(design: Design) -> str:
    recipe = design.frequencies
    if recipe.law == NO_LAW:
        return f"{design.n_features} ({design.feature_map})"
    start = f"{design.n_features} ({design.feature_map}), "
    if recipe.law in QUADRATIC_LAWS:
        return f"{start}vectors {recipe.law}, public seed {recipe.seed}"
    low, high = recipe.scales
    scale = f"{low:g}" if low == high else f"{low:g} to {high:g}"
    return f"{start}frequencies {recipe.law} at scales {scale}, public seed {recipe.seed}"


_CENTERS = {
    "released": "the mean of the records, a noisy one of which is part of the sketch",
    "omitted": "that of the domain: components are those around it, not around the mean",
}
