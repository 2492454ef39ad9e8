"""Fill in a design: sketch size, noise, frequencies, count.

Every choice depends on the task, the domain, the budget, the public order of magnitude
of the number of records and what was asked for by name; none on a record.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from privsketch._base.errors import (
    ParameterError,
    require_count,
    require_gaussian_delta,
    require_one_of,
)
from privsketch.design.cells import count_of_cells, noise_of_cells, plan_cells
from privsketch.design.forecast import expected_range, harmonics_in_search
from privsketch.design.pca import plan_pca
from privsketch.design.recipe import Design
from privsketch.design.regimes import enough_records
from privsketch.design.scales import default_radii, main_band
from privsketch.design.size import (
    checked_covariance_type,
    choose_count,
    choose_size,
    default_covariance_type,
    largest_size,
    noise_variance,
)
from privsketch.design.validity import TASKS, maps_for
from privsketch.facts.budget import Budget
from privsketch.facts.domain import Ball, Box, Domain
from privsketch.facts.schema import Schema, schema_of
from privsketch.features.cells import MAX_CELL_COLUMNS
from privsketch.features.frequencies import NO_LAW, draw_frequencies, public_seed
from privsketch.features.hadamard import block_size as structured_size
from privsketch.features.maps import feature_map as map_named
from privsketch.features.masks import Masks
from privsketch.features.radii import RadialLaw
from privsketch.noise.mechanism import NOISE_KINDS, NoiseKind
from privsketch.noise.sharing.plan import planned_noises
from privsketch.noise.sums import COUNT_MODES, MAX_RECORDS, SHARING_KINDS, CountMode, SharingKind

# Waves see clusters of any width if noise lets them, a grid those that are no narrower than its
# cells: it is for studies in which waves are expected to lose that much to noise. Of 221 random
# ones of up to 8 columns (benchmarks/worlds.py) a sketch that is chosen so lost 1.07 on average
# against the better of both, waves alone 1.33 (and 268 in one study), grids alone 1.21 (and 106).
LOST = 0.05


def plan_design(
    *,
    task: str = "kmeans",
    covariance_type: str | None = None,
    n_components: int,
    domain: Domain | Schema,
    budget: Budget,
    n_records: float | None = None,
    random_state: int | None = None,
    n_features: int | None = None,
    feature_map: str | None = None,
    noise: str | None = None,
    masks: Masks | str | Mapping[str, Any] | None = None,
    frequencies: str | None = None,
    frequency_scale: float | Sequence[float] | None = None,
    count: str | None = None,
    mean: str | None = None,
    columns: Sequence[str] | None = None,
    n_holders: int | None = None,
    sharing: str | None = None,
    drawn: bool = True,
) -> Design:
    """See `Design.plan`.

    With drawn=False, for plans that compare designs: frequencies that nothing depends on are not
    drawn, and such a design makes no sketch.
    """
    if task not in TASKS:
        raise ParameterError("task", task, f"this version plans {', '.join(map(repr, TASKS))}")
    if not isinstance(budget, Budget):
        raise ParameterError("budget", budget, "expected a Budget")
    schema = schema_of(domain)
    if schema is not None:
        if columns is not None and tuple(columns) != schema.coordinates:
            raise ParameterError("columns: the schema has them; leave them out")
        budget, columns = schema.charged(budget), schema.coordinates
        # Structured frequencies need one width for all coordinates, which a ball has.
        is_ball = task == "pca" or frequencies == "structured"
        domain = schema.ball if is_ball else schema.box
    if not isinstance(domain, Box | Ball):
        raise ParameterError("domain", domain, "expected a Schema, a Box or a Ball")
    if isinstance(domain, Box) and domain.columns is not None:
        columns = domain.columns if columns is None else columns
        domain = domain.plain
    n_components = require_count("n_components", n_components)
    dim = len(domain.half_widths)
    n_features = None if n_features is None else require_count("n_features", n_features)
    shape = checked_covariance_type(covariance_type)
    if task != "gaussian-mixture" and shape is not None:
        raise ParameterError(
            f"`covariance_type={covariance_type!r}` with `task={task!r}`: it steers the size of a "
            "sketch for `task='gaussian-mixture'`; leave it out"
        )
    chosen_masks = Masks.parse(masks)
    count_mode = _count_mode(count)
    kind = _noise_kind(noise, budget)
    shared = _sharing_kind(sharing, n_holders)
    noises = 1.0  # of the total, in noises of one release; records are those of all holders
    if shared is not None and n_holders is not None:
        noises = planned_noises(shared, n_holders)
        if shared == "holders":
            require_gaussian_delta(budget.delta)
            kind = kind or "gaussian"
    names = None if columns is None else _column_names(columns)
    if task == "pca":
        if frequency_scale is not None:
            raise ParameterError("frequency_scale: quadratic features have no scale; leave it out")
        needed = n_features or 9 * n_components * dim
        size = _public_size(n_records, n_components, dim, needed, budget.epsilon, n_holders, noises)
        return plan_pca(
            n_components=n_components,
            domain=domain,
            budget=budget,
            n_records=size,
            seed=random_state,
            n_features=n_features,
            map_name=feature_map,
            noise=kind,
            masks=chosen_masks,
            law="normal" if frequencies == "gaussian" else frequencies,
            count=count_mode,
            mean=mean or "omitted",
            columns=names,
            schema=schema,
            n_holders=n_holders,
            sharing=shared,
        )
    shape = shape or default_covariance_type(n_components, dim)
    largest, n_unknowns = largest_size(task, n_components, dim, shape)
    chosen_map = map_named(feature_map or "fourier")
    # What speaks of waves asks for them; shared noise has its own law.
    stated = (n_features, kind, chosen_masks, frequencies, frequency_scale, shared)
    is_open = feature_map is None and all(each is None for each in stated)
    if chosen_map.for_components:
        known = ", ".join(map(repr, maps_for(task)))
        raise ParameterError(
            f"`feature_map={chosen_map.name!r}` with `task={task!r}`: expected one of {known}"
        )
    if frequencies is not None and frequencies not in chosen_map.laws:
        known = ", ".join(map(repr, chosen_map.laws))
        raise ParameterError("frequencies", frequencies, f"expected one of {known}")
    common: dict[str, Any] = {
        "task": task,
        "n_components": n_components,
        "domain": domain,
        "budget": budget,
        "masks": chosen_masks,
        "mean": mean or "omitted",
        "columns": names,
        "schema": schema,
        "n_holders": n_holders,
        "sharing": shared,
    }
    facts = n_records, n_components, dim, largest, budget.epsilon, n_holders, noises
    grid = partial(  # before the size of waves is chosen
        _plan_grid,
        **common,
        n_records=_public_size(*facts),
        seed=random_state,
        size=n_features,
        noise=kind,
        count=count_mode,
        noises=noises,
    )

    if chosen_map.name == "cells":
        if frequency_scale is not None:
            raise ParameterError("frequency_scale: cells have no scale; leave it out")
        return grid()
    law, scales = _frequency_law(frequencies, frequency_scale)
    block = structured_size(dim) if law == "structured" else dim
    if chosen_masks is not None:
        if n_features is None and chosen_masks.kept is not None:
            n_features = -(-largest // block) * block
        chosen_masks.checked(n_features or largest, block if n_features else 1)
    size = _public_size(
        n_records, n_components, dim, n_features or largest, budget.epsilon, n_holders, noises
    )
    in_all = size * (n_holders or 1)
    is_smooth = schema is None or schema.is_smooth
    harmonics = 0.0
    if chosen_map.dithered:
        radii = main_band(domain, n_components) if scales is None else RadialLaw(scales).checked()
        harmonics = harmonics_in_search(law, radii, domain, n_components, in_all)
    chosen = choose_size(
        largest=largest,
        n_unknowns=n_unknowns,
        n_features=n_features,
        feature_map=chosen_map,
        budget=budget,
        noise=kind,
        count=count_mode or ("public" if budget.neighbours == "replace" else "released"),
        n_records=in_all,
        masks=chosen_masks,
        noises=noises,
        harmonics=harmonics,
        # Clusters of labels are piles at corners, of which a small sketch with pure noise loses
        # some: 1.08 to 1.20 times the cost of k-means instead of 1.10 to 1.42, in eight studies.
        all_features=not is_smooth,
    )
    if n_features is None:
        n_features = chosen.n_features
        if law == "structured" and n_features > block:
            n_features = -(-n_features // block) * block  # a part of a block costs as much
    chosen_count = count_mode or choose_count(
        chosen_map, n_features, budget, chosen.noise, in_all, chosen_masks
    )
    law_of_scales: tuple[float, float] | RadialLaw | None = scales
    if law_of_scales is None:
        noise_facts = (chosen_map, n_features, budget, chosen.noise, chosen_count, in_all)
        law_of_scales = default_radii(
            domain,
            n_components,
            n_features=n_features,
            n_records=in_all,
            # A phasor varies by at most 1, half of it along each axis.
            variance=noises * noise_variance(*noise_facts, chosen_masks) + in_all / 2 + harmonics,
            is_smooth=is_smooth,
        )
    planned = Design(
        **common,
        feature_map=chosen_map.name,
        frequencies=draw_frequencies(
            domain,
            law=law,
            n_features=n_features,
            scales=law_of_scales,
            seed=public_seed(random_state),
            dithered=chosen_map.dithered,
            drawn=drawn,
        ),
        noise=chosen.noise,
        count=chosen_count,
        n_records=size,
    )
    return grid() if is_open and is_smooth and _is_for_cells(planned) else planned


def _is_for_cells(planned: Design) -> bool:
    """Whether a grid is expected to tell more than waves, from what is expected of these."""
    few = isinstance(planned.domain, Box) and planned.dim <= MAX_CELL_COLUMNS
    if planned.task != "kmeans" or not few:
        return False
    least, _ = expected_range(planned, planned.n_records)
    return least > 1 + LOST


def _plan_grid(
    *,
    domain: Domain,
    budget: Budget,
    n_components: int,
    n_records: float,
    seed: int | None,
    size: int | None,
    noise: NoiseKind | None,
    count: CountMode | None,
    n_holders: int | None,
    noises: float,
    **fields: Any,
) -> Design:
    """A histogram over a grid. Laplace noise, the least even with a delta (docs/theory.md)."""
    kind = noise or "laplace"
    noise_std, in_all = noise_of_cells(budget, kind), n_records * (n_holders or 1)
    noise_std *= math.sqrt(noises)
    cells = plan_cells(domain.half_widths, n_components, in_all, noise_std, size)
    number = math.prod(cells)
    if count is None and budget.neighbours == "replace":
        count = "public"
    elif count is None:
        count = count_of_cells(number, in_all, noise_std)
    return Design(
        domain=domain,
        budget=budget,
        n_components=n_components,
        n_records=n_records,
        feature_map="cells",
        frequencies=draw_frequencies(
            domain,
            law=NO_LAW,
            n_features=number,
            scales=(1.0, 1.0),
            seed=public_seed(seed),
            dithered=False,
        ),
        noise=kind,
        count=count,
        cells=cells,
        n_holders=n_holders,
        **fields,
    )


def _sharing_kind(sharing: str | None, n_holders: int | None) -> SharingKind | None:
    if (sharing is None) != (n_holders is None):
        raise ParameterError(
            f"`n_holders={n_holders}` with `sharing={sharing!r}`: they go together; leave both out "
            "for sketches that holders release by themselves"
        )
    if sharing is None:
        return None
    if n_holders is None or require_count("n_holders", n_holders) < 2:
        raise ParameterError("n_holders", n_holders, "expected at least 2 that share noise")
    return require_one_of("sharing", sharing, SHARING_KINDS)


def _noise_kind(noise: str | None, budget: Budget) -> NoiseKind | None:
    if noise in (None, "auto"):
        return None
    kind = require_one_of("noise", noise, NOISE_KINDS)
    if kind == "gaussian":
        require_gaussian_delta(budget.delta)
    return kind


def _count_mode(count: str | None) -> CountMode | None:
    if count is not None and count not in COUNT_MODES:
        raise ParameterError("count", count, f"expected one of {', '.join(map(repr, COUNT_MODES))}")
    return count


def _frequency_law(
    law: str | None,
    scale: float | Sequence[float] | None,
) -> tuple[str, tuple[float, float] | None]:
    """The law of that name and its scales; None for those that follow from the plan."""
    if scale is None:
        if law not in (None, "multi-scale", "structured"):
            raise ParameterError(
                f"`frequencies={law!r}` needs `frequency_scale=`, between the width and the "
                "distance of clusters; the multi-scale law needs none"
            )
        return law or "multi-scale", None
    try:
        given = np.asarray(scale, dtype=np.float64)
    except (TypeError, ValueError):
        given = np.full(3, np.nan)
    if given.ndim == 0:
        return law or "adapted-radius", (float(given), float(given))
    if given.shape != (2,) or law not in (None, "multi-scale", "structured"):
        raise ParameterError(
            "frequency_scale", scale, "expected one number, or two for the multi-scale law"
        )
    return law or "multi-scale", (float(given[0]), float(given[1]))


def _public_size(
    n_records: float | None,
    n_components: int,
    dim: int,
    n_features: int,
    epsilon: float,
    n_holders: int | None,
    noises: float,
) -> float:
    """The public number of records to plan for; if none is given, one that would suffice."""
    if n_records is None:
        enough = enough_records(n_features, n_components, dim, epsilon) * math.sqrt(noises)
        return float(min(math.ceil(enough / (n_holders or 1)), MAX_RECORDS))
    try:
        size = float(n_records)
    except (TypeError, ValueError):
        raise ParameterError("n_records", n_records, "expected a number") from None
    if isinstance(n_records, bool) or not 1 <= size <= MAX_RECORDS:
        raise ParameterError(
            "n_records", n_records, f"expected a public order of magnitude, from 1 to {MAX_RECORDS}"
        )
    return size


def _column_names(columns: Sequence[str]) -> tuple[str, ...]:
    names = tuple(columns)
    if isinstance(columns, str) or not all(isinstance(name, str) for name in names):
        raise ParameterError("columns: expected a list of column names")
    return names
