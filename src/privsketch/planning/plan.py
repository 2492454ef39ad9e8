"""Fill in a design: sketch size, noise, frequencies, count.

Every choice depends on the task, the domain, the budget and what was asked for by
name; none on a record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from privsketch.budget import Budget
from privsketch.design import TASKS, Design
from privsketch.domain import Ball, Box, Domain
from privsketch.errors import ParameterError
from privsketch.features.frequencies import default_scales, draw_frequencies, public_seed
from privsketch.features.maps import feature_map
from privsketch.noise.mechanism import NOISE_KINDS, NoiseKind
from privsketch.noise.sums import COUNT_MODES, CountMode

FEATURES_PER_UNKNOWN = 4  # 2 per coordinate of a centre suffice without noise, 4 with
MIN_FEATURES = 50  # fewer leave small problems to the luck of the frequencies


def plan_design(
    *,
    task: str,
    n_components: int,
    domain: Domain,
    budget: Budget,
    n_records: float | None,
    random_state: int | None,
    n_features: int | None,
    feature_map_name: str,
    noise: str | None,
    masks: str | None,
    frequencies: str | None,
    frequency_scale: float | Sequence[float] | None,
    count: str | None,
    columns: Sequence[str] | None,
) -> Design:
    """See `Design.plan`."""
    if task not in TASKS:
        raise ParameterError(f"task={task!r}: this version plans {', '.join(map(repr, TASKS))}")
    if masks not in (None, "none"):
        raise ParameterError(f"masks={masks!r}: this version has no subsampling; leave masks out")
    if not isinstance(domain, Box | Ball):
        raise ParameterError(f"domain={domain!r}: expected a Box or a Ball")
    if not isinstance(budget, Budget):
        raise ParameterError(f"budget={budget!r}: expected a Budget")
    n_components = _as_count("n_components", n_components)
    dim = len(domain.half_widths)
    if n_features is None:
        n_features = max(MIN_FEATURES, FEATURES_PER_UNKNOWN * n_components * dim)
    n_features = _as_count("n_features", n_features)
    law, scales = _frequency_law(frequencies, frequency_scale, domain, n_components)
    chosen_map = feature_map(feature_map_name)
    return Design(
        task=task,
        n_components=n_components,
        domain=domain,
        budget=budget,
        feature_map=chosen_map.name,
        frequencies=draw_frequencies(
            domain,
            law=law,
            n_features=n_features,
            scales=scales,
            seed=public_seed(random_state),
            dithered=chosen_map.dithered,
        ),
        noise=_noise_kind(noise, budget),
        count=_count_mode(count, budget),
        n_records=_public_size(n_records, n_components, dim, n_features, budget.epsilon),
        columns=None if columns is None else _column_names(columns),
    )


def _as_count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ParameterError(f"{name}={value!r}: expected an integer of at least 1")
    return int(value)


def _noise_kind(noise: str | None, budget: Budget) -> NoiseKind:
    if noise in (None, "auto"):
        return "gaussian" if budget.delta > 0 else "cube"
    if noise not in NOISE_KINDS:
        known = ", ".join(map(repr, NOISE_KINDS))
        raise ParameterError(f"noise={noise!r}: expected one of {known}")
    return noise


def _count_mode(count: str | None, budget: Budget) -> CountMode:
    if count is None:
        return "public" if budget.neighbours == "replace" else "released"
    if count not in COUNT_MODES:
        raise ParameterError(
            f"count={count!r}: expected one of {', '.join(map(repr, COUNT_MODES))}"
        )
    return count


def _frequency_law(
    law: str | None,
    scale: float | Sequence[float] | None,
    domain: Domain,
    n_components: int,
) -> tuple[str, tuple[float, float]]:
    if scale is None:
        if law not in (None, "multi-scale"):
            raise ParameterError(
                f"frequencies={law!r} needs frequency_scale=, between the width and the "
                "distance of clusters; the multi-scale law needs none"
            )
        return "multi-scale", default_scales(domain, n_components)
    try:
        given = np.asarray(scale, dtype=np.float64)
    except (TypeError, ValueError):
        given = np.full(3, np.nan)
    if given.ndim == 0:
        return law or "adapted-radius", (float(given), float(given))
    if given.shape != (2,) or law not in (None, "multi-scale"):
        raise ParameterError(
            f"frequency_scale={scale!r}: expected one number, or two for the multi-scale law"
        )
    return "multi-scale", (float(given[0]), float(given[1]))


def _public_size(
    n_records: float | None, n_components: int, dim: int, n_features: int, epsilon: float
) -> float:
    """The public number of records to plan for; if none is given, one that would suffice.

    CLP section 6: a noise-to-signal ratio of m / (1000 k d) needs
    n = max(1000 k d, sqrt(1000 k d m) / epsilon).
    """
    if n_records is None:
        unknowns = 1000.0 * n_components * dim
        return float(np.ceil(max(unknowns, np.sqrt(unknowns * n_features) / epsilon)))
    try:
        return float(n_records)
    except (TypeError, ValueError):
        raise ParameterError(f"n_records={n_records!r}: expected a number") from None


def _column_names(columns: Sequence[str]) -> tuple[str, ...]:
    names = tuple(columns)
    if isinstance(columns, str) or not all(isinstance(name, str) for name in names):
        raise ParameterError("columns: expected a list of column names")
    return names
