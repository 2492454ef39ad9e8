"""Descriptions of designs: what a design is, what it can carry, and cautions about it.

Cautions about a domain and a budget are shown where a person states these: in `Design.plan`, `fit`
of an estimator, a command. Designs that the library plans internally, for a share of a budget or
for a comparison, come from `plan_design`, which shows none. All texts use public facts only.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from privsketch._base.errors import PrivsketchWarning
from privsketch._base.formats import INSECURE, as_line, count_text
from privsketch.design.forecast import MANY_COLUMNS, expected_harmonics, missed_directions
from privsketch.design.mixed import mixed_space
from privsketch.design.recipe import Design
from privsketch.design.size import (
    choose_size,
    largest_size,
    relative_error,
    supported_clusters,
    supported_gaussians,
)
from privsketch.design.validity import is_smaller_ball
from privsketch.facts.budget import Budget, delta_caution, epsilon_caution
from privsketch.facts.domain import Box, Domain
from privsketch.facts.schema import Schema, schema_of
from privsketch.features.frequencies import NO_LAW
from privsketch.features.maps import SUPERVISED
from privsketch.features.quadratic import QUADRATIC_LAWS
from privsketch.noise.sharing.plan import planned_noises

# Ratio of the widest to the narrowest column above which the narrow one hardly counts: the widest
# has a hundred times its weight in the squared distances of k-means.
UNEVEN_RATIO = 10.0
_WIDTH_ERROR = 1e-9  # rounding error of widths, which are differences: 28.1 - 18.1 < 10
_LARGE_DELTA = 0.1  # smallest product of delta and number of records that counts as large
_FOR_RESEARCH = (
    "a design for research: its sketches are exact sums, without noise and without privacy"
)
_MAX_SHOWN_NAMES = 12  # names of columns that fit two lines of 80 characters
_COUNT_TEXTS = {
    "released": "a noisy one is part of the sketch",
    "omitted": "not part of the sketch",
    "public": "public",
}
_SHARING_TEXTS = {
    "holders": "each of {} holders adds a part of the noise of their total",
    "tellers": "two tellers add the noise of the total of {} holders, each all of it",
}
_CENTER_TEXTS = {
    "released": "the mean of the records, a noisy one of which is part of the sketch",
    "omitted": "that of the domain: components are those around it, not around the mean",
}


class _Words(NamedTuple):
    """Words of a task: what is learned, and of what fewer would help."""

    result: str
    fewer_of_rough: str
    fewer: str


_CLUSTER_WORDS = _Words("centers", "clusters", "clusters")
_TASK_WORDS = {
    "pca": _Words("components", "of them", "components"),
    **dict.fromkeys(SUPERVISED, _Words("coefficients", "columns", "columns")),
}


def uneven_columns(domain: Domain | Schema, names: Sequence[str] | None = None) -> str | None:
    """Return a caution if columns of a box differ tenfold in width; None otherwise."""
    if not isinstance(domain, Box) or domain.dim is None:
        return None
    widths = 2 * domain.half_widths
    wide, narrow = int(np.argmax(widths)), int(np.argmin(widths))
    if widths[wide] < UNEVEN_RATIO * (1 - _WIDTH_ERROR) * widths[narrow]:
        return None
    names = domain.columns if names is None else names
    widest, narrowest = (
        f"column {index}" if names is None else as_line(names[index]) for index in (wide, narrow)
    )
    return (
        f"columns differ tenfold or more in width, from {widths[narrow]:.4g} ({narrowest}) to "
        f"{widths[wide]:.4g} ({widest}), and distances are measured in their units: the widest "
        "decide what is near; if all should count alike, describe them by a schema (ps.Schema, "
        "--schema schema.json) or scale them by their bounds (ps.Box(..., columns=[...], "
        "scale=True))"
    )


def stated_cautions(
    domain: Domain | Schema,
    budget: Budget,
    n_records: object,
    names: Sequence[str] | None = None,
) -> list[str]:
    """Return cautions about a domain and a budget.

    `n_records` is a public number, or None if it is not stated. Encoded columns of a schema differ
    in width only by their weights and need no caution.
    """
    schema = schema_of(domain)
    unit = budget.unit if schema is None else schema.unit
    texts = [
        uneven_columns(domain, names) if schema is None else None,
        epsilon_caution(budget.epsilon, unit.text),
        delta_caution(budget.delta, n_records),
    ]
    return [text for text in texts if text is not None]


def warn_of(cautions: Sequence[str]) -> None:
    """Issue each caution as a `PrivsketchWarning` at the line that called this package."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] != "privsketch":
            break
        level, frame = level + 1, frame.f_back
    for text in cautions:
        warnings.warn(text, PrivsketchWarning, stacklevel=level)


def cautions(design: Design) -> list[str]:
    """Return all cautions about a design."""
    texts = []
    verdict, words = design.forecast().verdict, _TASK_WORDS.get(design.task, _CLUSTER_WORDS)
    missed = missed_directions(design)
    if missed is not None:
        texts.append(missed)
    if design.insecure or missed is not None:
        verdict = "good"  # what a budget could mend is not at fault
    if verdict == "rough":
        texts.append(
            f"{words.result} may be visibly off: more records or holders, a larger epsilon or "
            f"fewer {words.fewer_of_rough} make the study better"
        )
    if verdict == "hopeless":
        texts.append(
            "with so few records for this budget a fit would describe the noise; more records, a "
            f"larger epsilon, delta > 0 or fewer {words.fewer} help"
        )
    stated = design.domain if design.schema is None else design.schema
    texts += stated_cautions(stated, design.budget, design.n_records, design.columns)
    large = design.budget.delta * design.n_records >= _LARGE_DELTA
    if large and delta_caution(design.budget.delta, design.n_records) is None:
        texts.append("delta should be far below 1 / number of records")
    if design.dim > MANY_COLUMNS and not design.mapping.for_components:
        texts.append(
            f"with more than {MANY_COLUMNS} columns learning is slow and often gets stuck; "
            "project the records first, by a public random matrix for instance"
        )
    return texts


def kmeans_cost(design: Design) -> float:
    """Return the predicted excess error of k-means over that of a design for k-means alone.

    Both designs have the same budget and number of records. The ratio is below 1 if this design is
    larger and its size helps.
    """
    k, dim, n_free_shares = design.n_components, design.dim, 0
    space = mixed_space(design.domain, design.frequencies.columns)
    if space is not None:
        dim, n_free_shares = space.n_numbers, space.n_free_shares
    largest, n_unknowns = largest_size("kmeans", k, dim, n_free_shares=n_free_shares)
    harmonics = 0.0
    if design.mapping.dithered:
        law, radii = design.frequencies.law, design.frequencies.radial_law
        harmonics = expected_harmonics(law, radii, design.domain, k, design.n_records, space=space)
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
        n_unknowns,
        design.noise_std**2 + harmonics,
        design.n_records,
        largest,
    )
    return float(error) / alone.error


def _capacity(design: Design) -> str:
    """Return a line about the number of components that the sketch can carry."""
    dim, size = design.dim, design.n_values // 2  # a feature has two numbers
    full = supported_gaussians(dim, size, "full")
    line = (
        f"supports up to {supported_clusters(dim, size)} clusters, "
        f"{supported_gaussians(dim, size, 'diag')} diagonal or {full} full Gaussians"
    )
    if design.task == "kmeans" or design.insecure:
        return line
    return (
        f"{line}; k-means from it has {kmeans_cost(design):.2g} times the excess error "
        "of a sketch for k-means alone"
    )


def describe_design(design: Design, *, shown: Sequence[str] = ()) -> str:
    """Return lines with headings of twelve characters, without the cautions in `shown`."""
    lines = [f"{INSECURE}    {_FOR_RESEARCH}"] if design.insecure else []
    lines += [
        f"design      {design.fingerprint[:16]} for {_purpose(design)}",
        *_record_lines(design),
        f"features    {_features(design)}",
        f"noise       {design.noise}, standard deviation {design.noise_std:.4g} "
        f"{_noise_unit(design)} per number",
        f"forecast    {design.forecast().describe()}",
    ]
    if design.sharing is not None and design.n_holders is not None:
        alone = design.forecast(n_holders=design.n_holders).describe()
        lines[-1:] = [
            f"sharing     {_SHARING_TEXTS[design.sharing].format(design.n_holders)}; the total has "
            f"the noise of {planned_noises(design.sharing, design.n_holders):.3g} releases, not of "
            f"{design.n_holders}",
            f"{lines[-1]}, in that total",
            f"without     {alone}, with noise for each by itself",
        ]
    if design.masks is not None:
        lines.append(f"masks       {design.masks.describe()}; secret, drawn for each record")
    if design.mapping.for_components:
        lines.append(f"center      {_center(design)}")
    else:
        lines.append(f"size        {_capacity(design)}")
    count = _COUNT_TEXTS[design.count]
    if design.cells is not None and design.count == "omitted":
        count = "a noisy one, that of all cells together"
    if design.feature_map == "taxicab" and design.count == "omitted":
        count = "a noisy one, which the sums hold"
    if design.insecure:
        count = count.replace("a noisy one", "an exact one")
    lines += [f"count       {count}", f"budget      {design.budget.describe()}"]
    if design.budget.unit.assumption:
        lines.append(f"assuming    {design.budget.unit.assumption}")
    lines += [f"careful     {text}" for text in cautions(design) if text not in shown]
    return "\n".join(lines)


def _noise_unit(design: Design) -> str:
    """Return what the noise of a released number is measured in."""
    if design.feature_map == "taxicab":
        return "squared L1 norms"
    return "squared radii" if design.mapping.for_components else "records"


def _purpose(design: Design) -> str:
    """Return the task with its number of components, or with its target."""
    if design.task not in SUPERVISED:
        return f"{design.task}, {count_text(design.n_components, 'component')}"
    return f"{design.task} of {'any column' if design.target is None else as_line(design.target)}"


def _center(design: Design) -> str:
    """Return about which point moments are learned."""
    if design.feature_map == "taxicab":
        return "the mean of the records, which the sums hold"
    if design.task in SUPERVISED and design.mean == "omitted":
        return "that of the domain: models are those around it, not around the mean"
    return _CENTER_TEXTS[design.mean]


def _clipping(schema: Schema, radius: float) -> str:
    """Return that encoded records are moved into a ball that does not hold all of them."""
    return (
        f"records farther than {radius:.4g} from the middle, {radius / schema.radius:.0%} of the "
        "largest distance, are moved towards it, which bends coefficients"
    )


def _record_lines(design: Design) -> list[str]:
    """Return the lines about the domain and its columns, or about the schema."""
    planned = f"planned for {design.n_records:g} of them"
    if design.n_holders is not None:
        planned = f"planned for {design.n_records:g} of each of {design.n_holders} holders"
    columns, schema = design.columns, design.schema
    if schema is not None:
        lines = schema.describe().splitlines()
        table = [f"{'' if index else 'table':<11} {line}" for index, line in enumerate(lines)]
        lines = [*table, f"records     {schema.dim} numbers each; {planned}"]
        if is_smaller_ball(design.domain, schema.ball):
            lines.append(f"clipping    {_clipping(schema, float(design.domain.half_widths[0]))}")
        return lines
    names = "by position"
    if columns is not None:
        names = ", ".join(map(as_line, columns[:_MAX_SHOWN_NAMES]))
        names += ", ..." if len(columns) > _MAX_SHOWN_NAMES else ""
    return [f"records     {design.domain.describe()}; {planned}", f"columns     {names}"]


def _features(design: Design) -> str:
    recipe = design.frequencies
    if design.cells is not None:
        return f"{design.n_features} cells, {' x '.join(map(str, design.cells))}"
    if recipe.law == NO_LAW:
        return f"{design.n_features} ({design.feature_map})"
    start = f"{design.n_features} ({design.feature_map}), "
    if recipe.law in QUADRATIC_LAWS:
        return f"{start}vectors {recipe.law}, public seed {recipe.seed}"
    if recipe.own is not None:
        return f"{start}frequencies of its own, which it stores"
    low, high = recipe.scales
    scale = f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"
    if recipe.tail is not None:
        scale += f" ({recipe.tail.share:.0%} of them below {recipe.tail.below:.4g})"
    return f"{start}frequencies {recipe.law} at scales {scale}, public seed {recipe.seed}"
