"""A design in plain words, with what it promises to carry and what to think about."""

from __future__ import annotations

from privsketch.design import Design
from privsketch.planning.capacity import capacity
from privsketch.planning.forecast import cautions, forecast

_COUNTS = {
    "released": "a noisy one is part of the sketch",
    "omitted": "not part of the sketch",
    "public": "public",
}
_MOST_NAMES = 12


def describe_design(design: Design) -> str:
    """Several lines, each with a heading of twelve characters."""
    low, high = design.frequencies.scales
    scale = f"{low:g}" if low == high else f"{low:g} to {high:g}"
    columns = design.columns
    names = "by position" if columns is None else ", ".join(columns[:_MOST_NAMES])
    more = ", ..." if columns is not None and len(columns) > _MOST_NAMES else ""
    lines = [
        f"design      {design.fingerprint[:16]} for {design.task}, "
        f"{design.n_components} components",
        f"records     {design.domain.describe()}; planned for {design.n_records:g} of them",
        f"columns     {names}{more}",
        f"features    {design.n_features} ({design.feature_map}), frequencies "
        f"{design.frequencies.law} at scales {scale}, public seed {design.frequencies.seed}",
        f"noise       {design.noise}, standard deviation {design.noise_std:.4g} records per number",
        f"forecast    {forecast(design).describe()}",
        f"size        {capacity(design)}",
        f"count       {_COUNTS[design.count]}",
        f"budget      {design.budget.describe()}",
    ]
    return "\n".join(lines + [f"careful     {text}" for text in cautions(design)])
