"""A request for a design: the parameters that a person states, checked once.

Planners take a request and choose what it leaves open. Nothing in it depends on a record.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, get_args

import numpy as np

from privsketch._base.errors import (
    ParameterError,
    require_count,
    require_gaussian_delta,
    require_one_of,
    require_records,
)
from privsketch.design.mixed import MixedSpace, mixed_space
from privsketch.design.recipe import Design
from privsketch.design.size import (
    CovarianceType,
    checked_covariance_type,
    default_covariance_type,
    largest_size,
    require_searchable_mixture,
)
from privsketch.design.validity import TASKS, maps_for, require_sharing, stated_components
from privsketch.facts.budget import MAX_EPSILON, Budget, NoBudget, checked_budget
from privsketch.facts.columns import Number
from privsketch.facts.domain import Ball, Box, Domain
from privsketch.facts.schema import Schema, schema_of
from privsketch.features.frequencies import (
    LAWS,
    Frequencies,
    draw_frequencies,
    public_seed,
    store_frequencies,
)
from privsketch.features.maps import SUPERVISED, FeatureMap
from privsketch.features.maps import feature_map as map_named
from privsketch.features.masks import Masks
from privsketch.features.mixed import MIXED, Columns, columns_of
from privsketch.features.own import OWN_LAW, checked_array, frequency_law, is_own, require_law
from privsketch.features.radii import RadialLaw
from privsketch.noise.mechanism import NOISE_KINDS, NoiseKind
from privsketch.noise.sharing.plan import planned_noises
from privsketch.noise.sums import COUNT_MODES, MAX_RECORDS, CountMode, SharingKind

ClipMode = Literal["corner", "uniform"]
CLIP_MODES: tuple[ClipMode, ...] = get_args(ClipMode)
_NEGLIGIBLE_DELTA = (
    1e-6  # with the largest epsilon: next to no noise, as insecure designs have none
)
RECORDS_PER_UNKNOWN = 1000.0  # CLP: noise-to-signal at most m / (1000 k d)
# Parameters that rule out a free choice of cells if stated; shared noise has its own law.
_WAVE_FIELDS = ("n_features", "noise", "masks", "frequencies", "frequency_scale", "sharing")
_SCALE_FREE = (None, "multi-scale", MIXED, "structured")  # laws whose scales the planner can choose


def enough_records(n_features: int, n_components: int, dim: int, epsilon: float) -> float:
    """Return n_0 of CLP (29): the number of records that suffices for k-means with any masks."""
    unknowns = RECORDS_PER_UNKNOWN * n_components * dim
    return max(unknowns, math.sqrt(unknowns * n_features) / epsilon)


@dataclass(frozen=True, kw_only=True)
class Request:
    """Parameters of `Design.plan`, checked and in their own types.

    The constructor accepts values as people write them. It raises `ParameterError` for values that
    are invalid or contradict each other.

    Attributes
    ----------
    domain, budget, columns
        With a schema, those of encoded records.
    schema : Schema, optional
        The schema, if the domain was given as one.
    frequencies : str, optional
        Name of the law; never None for Fourier and one-bit features. The constructor accepts
        frequencies of one's own too, which are then `own`.
    own : array or callable, optional
        Frequencies of one's own: an array, or a law that returns one.
    frequency_scale : (float, float), optional
        Ends of the range of scales; None if the planner chooses them.
    is_map_open : bool
        Whether the planner may choose cells instead of Fourier features: no parameter names a map
        or belongs to only one of them.
    insecure : bool
        Whether the design has no noise. `budget` then only serves to choose its size.
    noise_ratio : float
        Variance of the noise of the total over that of one release; above 1 if noise is shared.
    drawn : bool
        False for plans that only compare designs. Planners then do not draw frequencies unless the
        comparison depends on them, and such a design makes no sketch.
    """

    domain: Domain
    n_components: int = None  # type: ignore[assignment]
    budget: Budget = None  # type: ignore[assignment]
    task: str = "kmeans"
    covariance_type: CovarianceType | None = None
    n_records: float | None = None
    random_state: int | None = None
    n_features: int | None = None
    feature_map: str | None = None
    noise: NoiseKind | None = None
    masks: Masks | None = None
    frequencies: Any = None
    frequency_scale: tuple[float, float] | None = None
    count: CountMode | None = None
    mean: str | None = None
    columns: tuple[str, ...] | None = None
    n_holders: int | None = None
    sharing: SharingKind | None = None
    insecure: bool = False
    target: str | None = None
    clip: ClipMode | None = None
    drawn: bool = True
    schema: Schema | None = field(init=False)
    is_map_open: bool = field(init=False)
    noise_ratio: float = field(init=False, default=1.0)
    own: Any = field(init=False, default=None)

    def __post_init__(self) -> None:
        settle = partial(object.__setattr__, self)
        if self.task not in TASKS:
            tasks = ", ".join(map(repr, TASKS))
            raise ParameterError("task", self.task, f"this version plans {tasks}")
        if self.insecure is not False:
            self._settle_insecure(settle)
        checked_budget(self.budget)
        self._settle_domain(settle)
        self._settle_supervised(settle)
        if self.task not in SUPERVISED:
            expected = "a whole number of clusters, Gaussians or components, at least 1"
            settle("n_components", require_count("n_components", self.n_components, expected))
        if self.task == "gaussian-mixture":
            require_searchable_mixture(self.n_components)
        if self.n_features is not None:
            settle("n_features", require_count("n_features", self.n_features))
        settle("covariance_type", checked_covariance_type(self.covariance_type))
        if self.task != "gaussian-mixture" and self.covariance_type is not None:
            raise ParameterError(
                f"`covariance_type={self.covariance_type!r}` with `task={self.task!r}`: it only "
                "affects the size of a sketch for `task='gaussian-mixture'`; leave it out"
            )
        settle("masks", Masks.parse(self.masks))
        if self.count is not None:
            settle("count", require_one_of("count", self.count, COUNT_MODES))
        self._settle_noise(settle)
        if self.columns is not None:
            settle("columns", _column_names(self.columns))
        settle(
            "is_map_open",
            all(getattr(self, name) is None for name in ("feature_map", *_WAVE_FIELDS)),
        )
        self._settle_frequencies(settle)
        if self.n_records is not None:
            settle("n_records", require_records(self.n_records))

    def _settle_insecure(self, settle: Any) -> None:
        """Settle the budget that the size of a design without noise is chosen for."""
        if self.insecure is not True:
            raise ParameterError("insecure", self.insecure, "expected True or False")
        for name in ("budget", "noise", "n_holders", "sharing"):
            if getattr(self, name) is not None:
                raise ParameterError(
                    f"{name}: a design with `insecure=True` has no budget, no noise and nothing "
                    "to share; leave it out"
                )
        settle("budget", Budget(MAX_EPSILON, _NEGLIGIBLE_DELTA))

    def _settle_supervised(self, settle: Any) -> None:
        """Settle what only tasks with a target have, and refuse what they have not."""
        if self.task not in SUPERVISED:
            if self.clip is not None:
                raise ParameterError(
                    f"`clip={self.clip!r}` with `task={self.task!r}`: only `task='regression'` and "
                    "'classification' have it; leave it out"
                )
            return
        if self.n_components is not None:
            raise stated_components(self.task, self.n_components)
        settle("n_components", 0)
        if self.clip is not None:
            require_one_of("clip", self.clip, CLIP_MODES)
        if self.clip == "uniform" and self.schema is None:
            raise ParameterError(
                "`clip='uniform'` with a Ball: it follows from bounds of columns; state a schema "
                "or a Box, or a smaller radius"
            )

    def _settle_domain(self, settle: Any) -> None:
        schema = schema_of(self.domain)
        if schema is None and self.task in SUPERVISED and isinstance(self.domain, Box):
            schema = _schema_of_box(self.domain, self.columns)
        settle("schema", schema)
        if schema is not None:
            if self.columns is not None and tuple(self.columns) != schema.coordinates:
                raise ParameterError("columns: the schema has them; leave them out")
            settle("budget", schema.charged(self.budget))
            settle("columns", schema.coordinates)
            # Structured frequencies need one width for all coordinates, which a ball has.
            is_ball = self.task in ("pca", *SUPERVISED) or self.frequencies == "structured"
            settle("domain", schema.ball if is_ball else schema.box)
        if not isinstance(self.domain, Box | Ball):
            raise ParameterError("domain", self.domain, "expected a Schema, a Box or a Ball")
        if isinstance(self.domain, Box) and self.domain.columns is not None:
            if self.columns is None:
                settle("columns", self.domain.columns)
            settle("domain", self.domain.plain)

    def _settle_noise(self, settle: Any) -> None:
        noise = None if self.noise in (None, "auto") else self.noise
        settle("noise", noise and require_one_of("noise", noise, NOISE_KINDS))
        if self.noise == "gaussian":
            require_gaussian_delta(self.budget.delta)
        require_sharing(self.sharing, self.n_holders)
        if self.sharing is None or self.n_holders is None:
            return
        settle("noise_ratio", planned_noises(self.sharing, self.n_holders))
        if self.sharing == "holders":
            require_gaussian_delta(self.budget.delta)
            settle("noise", self.noise or "gaussian")

    def _settle_own(self, settle: Any) -> None:
        """Settle frequencies of one's own: an array, a law, or the name of a registered one."""
        given = self.frequencies
        if isinstance(given, str) and given not in LAWS:
            given = frequency_law(given) or given
        if not is_own(given):
            return
        mapping = map_named(self.feature_map or "fourier")
        if self.task in ("pca", *SUPERVISED) or not mapping.has_table:
            raise ParameterError(
                "frequencies: those of one's own are for features of waves, such as "
                "`feature_map='fourier'` and 'one-bit'; for others state the name of a law"
            )
        if self.frequency_scale is not None:
            raise ParameterError(
                "frequency_scale: frequencies of one's own have their scale; leave it out"
            )
        if callable(given):
            require_law(given)
        else:
            given = checked_array(given, self.dim)
            if self.n_features not in (None, len(given)):
                raise ParameterError(
                    f"`n_features={self.n_features}` with {len(given)} frequencies: leave it out"
                )
            settle("n_features", len(given))
        settle("own", given)
        settle("frequencies", OWN_LAW)

    def _settle_frequencies(self, settle: Any) -> None:
        self._settle_own(settle)
        if self.own is not None:
            return
        if self.task in ("pca", *SUPERVISED):
            if self.frequency_scale is not None:
                raise ParameterError(
                    "frequency_scale: quadratic features and second moments have no scale; leave "
                    "it out"
                )
            if self.frequencies == "gaussian":
                settle("frequencies", "normal")
            return
        mapping = map_named(self.feature_map or "fourier")
        if mapping.for_components:
            names = ", ".join(map(repr, maps_for(self.task)))
            raise ParameterError(
                f"`feature_map={mapping.name!r}` with `task={self.task!r}`: expected one of {names}"
            )
        if self.frequencies is not None:
            require_one_of("frequencies", self.frequencies, mapping.laws)
        if mapping.name != "cells":
            default = self._default_law(mapping)
            law, scales = _frequency_law(self.frequencies, self.frequency_scale, default)
            settle("frequencies", law)
            settle("frequency_scale", scales)
        elif self.frequency_scale is not None:
            raise ParameterError("frequency_scale: cells have no scale; leave it out")

    def _default_law(self, mapping: FeatureMap) -> str:
        """Return the law that is planned if none is named; refuse "mixed" without labels."""
        has_labels = self.schema is not None and not self.schema.is_smooth
        if self.frequencies == MIXED and not has_labels:
            raise ParameterError(
                "`frequencies='mixed'` needs a schema with a category, a flag or a cycle; use "
                "'multi-scale'"
            )
        return MIXED if has_labels and MIXED in mapping.laws else "multi-scale"

    @property
    def dim(self) -> int:
        """Number of columns of a record."""
        return len(self.domain.half_widths)

    @property
    def space(self) -> MixedSpace | None:
        """Numbers and other columns of the table, for the law "mixed"."""
        return mixed_space(self.domain, self._columns)

    @property
    def _columns(self) -> Columns | None:
        is_mixed = self.frequencies == MIXED and self.schema is not None
        return columns_of(self.schema) if is_mixed and self.schema is not None else None

    @property
    def largest_size(self) -> tuple[int, int]:
        """Largest number of features that is worth its time, and the number of unknowns."""
        dim, n_free_shares = self.dim, 0
        if self.space is not None:
            dim, n_free_shares = self.space.n_numbers, self.space.n_free_shares
        shape = self.covariance_type or default_covariance_type(self.n_components, dim)
        return largest_size(self.task, self.n_components, dim, shape, n_free_shares)

    def public_size(self, n_features: int) -> float:
        """Return the number of records of one holder: stated, or else sufficient."""
        if self.n_records is not None:
            return self.n_records
        enough = enough_records(n_features, self.n_components, self.dim, self.budget.epsilon)
        enough *= math.sqrt(self.noise_ratio)
        return float(min(math.ceil(enough / (self.n_holders or 1)), MAX_RECORDS))

    def draw(
        self,
        law: str,
        n_features: int,
        scales: tuple[float, float] | RadialLaw = (1.0, 1.0),
        *,
        dithered: bool = False,
        drawn: bool = True,
    ) -> Frequencies:
        """Draw the frequencies of a design from the public seed, or store one's own."""
        if self.own is not None:
            seed = public_seed(self.random_state)
            return store_frequencies(
                self.domain, self.own, n_features=n_features, seed=seed, dithered=dithered
            )
        return draw_frequencies(
            self.domain,
            law=law,
            n_features=n_features,
            scales=scales,
            seed=public_seed(self.random_state),
            dithered=dithered,
            drawn=drawn,
            columns=self._columns,
        )

    def design(self, **choices: Any) -> Design:
        """Return the design of the stated parameters and a planner's choices."""
        budget = self.budget
        if self.insecure:
            budget, choices["noise"] = NoBudget(self.budget.unit), "none"
        facts: dict[str, Any] = {
            "task": self.task,
            "n_components": self.n_components,
            "domain": self.domain,
            "budget": budget,
            "columns": self.columns,
            "masks": self.masks,
            "mean": self.mean or "omitted",
            "schema": self.schema,
            "n_holders": self.n_holders,
            "sharing": self.sharing,
            "insecure": self.insecure,
            "target": self.target,
        }
        return Design(**{**facts, **choices})


def _schema_of_box(box: Box, columns: Sequence[str] | None) -> Schema:
    """Return the numbers of a box as a schema, in which each is scaled by its bounds."""
    dim = len(box.half_widths)
    names = _column_names(columns or box.columns or [f"x{j + 1}" for j in range(dim)])
    if len(names) != dim:
        raise ParameterError(f"columns: {len(names)} names for a domain of dim={dim}")
    bounds = zip(names, np.broadcast_to(box.low, dim), np.broadcast_to(box.high, dim), strict=True)
    return Schema(tuple(Number(name, float(low), float(high)) for name, low, high in bounds))


def _column_names(columns: Sequence[str]) -> tuple[str, ...]:
    names = tuple(columns)
    if isinstance(columns, str) or not all(isinstance(name, str) for name in names):
        raise ParameterError("columns: expected a list of column names")
    return names


def _frequency_law(
    law: str | None, scale: Any, default: str
) -> tuple[str, tuple[float, float] | None]:
    """Return the law and its scales; None if the planner chooses the scales."""
    if scale is None:
        if law not in _SCALE_FREE:
            raise ParameterError(
                f"`frequencies={law!r}` needs `frequency_scale=`, between the width and the "
                "distance of clusters; the multi-scale law needs none"
            )
        return law or default, None
    try:
        scales = np.asarray(scale, dtype=np.float64)
    except (TypeError, ValueError):
        scales = np.full(3, np.nan)
    if scales.ndim == 0:
        return law or "adapted-radius", (float(scales), float(scales))
    if scales.shape != (2,) or law not in _SCALE_FREE:
        raise ParameterError(
            "frequency_scale", scale, "expected one number, or two for the multi-scale law"
        )
    return law or default, (float(scales[0]), float(scales[1]))
