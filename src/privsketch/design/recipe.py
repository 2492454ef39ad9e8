"""The public recipe that all holders of a study share.

A design determines how records become a sketch: domain, feature map, frequencies, noise and budget.
It is fixed before any record is read and contains nothing about the records. Sketches can be added
only if their designs have the same fingerprint. Noise scales are not stored but computed from the
budget: a file can request less noise only by stating a larger budget.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import FileError, ParameterError, require_count
from privsketch._base.formats import (
    canonical_json,
    document,
    document_content,
    document_kind,
    fingerprint,
    marked_kind,
    read_file,
    reading,
    require_fields,
    unmarked_kind,
    write_file,
)
from privsketch._base.notebook import described
from privsketch.design.validity import require_design
from privsketch.facts.budget import INFINITE, ONE_RECORD, Budget, NoBudget, Unit
from privsketch.facts.domain import Domain, domain_from_json, domain_to_json
from privsketch.facts.labels import Labelled
from privsketch.facts.schema import Schema
from privsketch.features.cells import grid_axes
from privsketch.features.frequencies import Frequencies, frequencies_from_json, frequencies_to_json
from privsketch.features.maps import (
    SUPERVISED,
    FeatureMap,
    amplitude_of,
    contribution_of,
    feature_map,
)
from privsketch.features.masks import Contribution, Masks
from privsketch.features.mixed import Columns, columns_of
from privsketch.features.own import FrequencyLaw
from privsketch.features.taxicab import Taxicab, taxicab_of
from privsketch.features.waves import SIGN_VARIANCE
from privsketch.noise.mechanism import NoiseKind
from privsketch.noise.sharing.plan import planned_noises
from privsketch.noise.sums import CountMode, SharingKind, SumNoise, plan_sum_noise

if TYPE_CHECKING:
    from privsketch.design.forecast import Forecast
    from privsketch.design.pca import PCAForecast
    from privsketch.design.regression import RegressionForecast


@dataclass(frozen=True)
class Design:
    """Public recipe of one study. `Design.plan` makes one, `Design.load` reads one.

    Attributes
    ----------
    task : {"kmeans", "gaussian-mixture", "pca", "regression", "classification"}
    n_components : int
        Number of clusters, Gaussians or principal components that the size is planned for; 0 for
        regression and classification.
    domain : Box or Ball
    budget : Budget
        Cost of the sketch of one holder; that of an insecure design says that there is none.
    feature_map : {"fourier", "one-bit", "cells", "quadratic", "second-moments", "taxicab"}
    frequencies : Frequencies
        How the public random matrix is drawn, and its checksum.
    noise : {"gaussian", "laplace", "cube", "none"}
    count : {"released", "omitted", "public"}
        Whether a number of records is part of the sketch.
    n_records : float
        Public number of records of one holder that the size is planned for.
    columns : tuple of str, optional
    masks : Masks, optional
    mean : {"omitted", "released"}
        Whether the mean of the records is part of the sketch.
    schema : Schema, optional
        How tables are encoded; `domain` and `columns` are then those of encoded records.
    cells : tuple of int, optional
        Number of cells along each axis, for the feature map "cells".
    n_holders : int, optional
        Number of holders that share the noise of their total.
    sharing : {"holders", "tellers"}, optional
        Who adds that noise: each holder a part of it, or each teller all of it. The plan is then
        for the total of all holders; `n_records` is still that of one holder.
    insecure : bool
        Whether sketches have no noise, and so no privacy: for research on public or made-up
        records. The name of the kind of their files begins with INSECURE. Holders have to ask for
        it themselves (`ps.sketch(..., insecure=True)`), and nothing else takes them.
    target : str, optional
        Column that regression or classification is planned to predict; any column if left out.

    Examples
    --------
    >>> import privsketch as ps
    >>> design = ps.Design.plan(task="kmeans", n_components=10,
    ...                         domain=ps.Box(low=-8, high=8, dim=10),
    ...                         budget=ps.Budget(epsilon=0.5, delta=1e-6),
    ...                         n_records=100_000, random_state=7)
    >>> design.n_features, design.noise, design.count
    (1120, 'gaussian', 'released')
    """

    task: str
    n_components: int
    domain: Domain
    budget: Budget
    feature_map: str
    frequencies: Frequencies
    noise: NoiseKind
    count: CountMode
    n_records: float
    columns: tuple[str, ...] | None = None
    masks: Masks | None = None
    mean: str = "omitted"
    schema: Schema | None = None
    cells: tuple[int, ...] | None = None
    n_holders: int | None = None
    sharing: SharingKind | None = None
    insecure: bool = False
    target: str | None = None

    def __post_init__(self) -> None:
        if self.masks == Masks():
            object.__setattr__(self, "masks", None)
        require_design(self)

    @classmethod
    def plan(
        cls,
        *,
        task: str = "kmeans",
        n_components: int | None = None,
        covariance_type: str | None = None,
        domain: Domain | Schema,
        budget: Budget | None = None,
        n_records: float | None = None,
        random_state: int | None = None,
        n_features: int | None = None,
        feature_map: str | None = None,
        noise: str | None = None,
        masks: Masks | str | Mapping[str, Any] | None = None,
        frequencies: str | npt.ArrayLike | FrequencyLaw | None = None,
        frequency_scale: float | tuple[float, float] | None = None,
        count: str | None = None,
        mean: str | None = None,
        columns: list[str] | tuple[str, ...] | None = None,
        n_holders: int | None = None,
        sharing: str | None = None,
        insecure: bool = False,
        target: str | None = None,
        clip: str | None = None,
    ) -> Design:
        """Choose a design from public facts alone.

        Parameters
        ----------
        task : {"kmeans", "gaussian-mixture", "pca", "regression", "classification"}
            Task that the size of the sketch is chosen for. Mixtures can be learned from a sketch
            for clusters, and clusters from one for mixtures; `describe` says how many. Principal
            components, regression and classification all need second moments.
        n_components : int
            Number of clusters, Gaussians or principal components that the sketch should carry.
            More can be learned from it later, with less certainty. Regression and classification
            have none: leave it out.
        covariance_type : {"spherical", "diag", "tied", "full"}, optional
            Shape of the Gaussians that the size of a sketch for mixtures is chosen for. It is not
            stored, and learners may use another shape. If left out, full up to five columns, where
            that is cheap, and diagonal beyond.
        domain : Schema, Box or Ball
            Public kinds and bounds of columns, or the set in which records lie. Principal
            components need a Ball if there is no schema. For regression, a Box becomes a schema of
            numbers that are scaled by their bounds, named by `columns` or else x1, x2, ...
        budget : Budget
            Largest cost of the sketch. Only an insecure design has none.
        n_records : float, optional
            Public order of magnitude of the number of records of one holder. It affects size,
            noise and forecast. If left out, a sufficient number is assumed.
        random_state : int, optional
            Public seed of the frequencies, which is stored; drawn if left out.
        n_features : int, optional
            Size of the sketch. If left out, the size of least predicted error from these public
            facts, within the time it costs: 8 * n_components * dim for k-means with Gaussian
            noise, more where noise dominates. Pure noise grows faster with the size, and leads to
            fewer features.
        feature_map : str, optional
            "fourier", "one-bit", "cells", "quadratic", "second-moments" or "taxicab".
            If left out, Fourier features for clusters and mixtures. Clusters of up to 8 columns of
            numbers get "cells", noisy counts of a grid, if noise is expected to cost Fourier
            features more than a twentieth and no stated parameter requires them. Principal
            components get the map of least predicted error: all second moments if these are
            affordable, else quadratic features. Regression and classification get second moments,
            and with Laplace noise "taxicab" if there is a schema or a Box, which hold the mean and
            the number of records: stating `mean`, or `clip="uniform"`, asks for the others.
        noise : {"gaussian", "cube", "laplace"}, optional
            If left out, the noise of least predicted error: nearly always Gaussian if delta > 0,
            else the cube, which is pure.
        masks : Masks or str, optional
            Secret subsampling of features or records: `Masks("uniform", kept=100)`, or
            "uniform:100", "block:512", "poisson:0.1", "records:0.5", joined by "+". It saves work
            where it leaves out blocks or records, but never noise. No masks if left out.
        frequencies : str, array or callable, optional
            Law of the frequencies: "multi-scale", or "mixed" for a schema with categories, flags
            or cycles. If `frequency_scale` is one number, "adapted-radius" or "gaussian".
            "structured" is faster for many columns, and reads all labels at once. For quadratic
            features "orthobases" or "normal". Other names are laws that packages register. An
            array (n_features, dim), in radians per unit of a record, or a law
            ``law(n_features, domain, rng)`` that returns one, is rounded and stored in the design.
            It must not depend on records.
        frequency_scale : float or (float, float), optional
            Scale of the features in the records' units, between the width of clusters and the
            distance of neighbouring ones: one number for a single scale, two for a log-uniform
            range. If left out, the range follows from the domain, the number of clusters and the
            noise, and serves clusters of any likely width.
        count : {"released", "omitted", "public"}, optional
            Whether a noisy number of records is part of the sketch. If left out, it is released
            unless that costs the sums much, which is rare. Under "replace" it is public and exact.
        mean : {"omitted", "released"}, optional
            Whether the mean of the records is released too, so that principal components can be
            centered: 3 % more Gaussian noise, 25 % more Laplace noise. If omitted, components are
            those around the domain's center. Regression and classification release it unless
            "omitted" is stated, or the sums hold it.
        columns : list of str, optional
            Names of the columns of a record, in order.
        n_holders : int, optional
            Number of holders, if only their total is shown and they share its noise; state it with
            `sharing`. `n_records` is still that of one holder.
        sharing : {"holders", "tellers"}, optional
            Who adds the noise of the total: each holder a part of it, which needs Gaussian noise,
            or each teller all of it. If left out, each sketch has noise of its own.
        insecure : bool
            Plan a design without noise, and so without privacy, for research on public or made-up
            records. State neither budget nor noise with it.
        target : str, optional
            For regression and classification: the column to predict. It gets a larger weight in
            the schema of the design, whatever weight it had there, and so less noise: 30 % of the
            squared radius, or of the L1 norm of "taxicab". If left out, weights stay as they are,
            and any column can be predicted.
        clip : {"corner", "uniform"}, optional
            For regression and classification with a schema or a Box: the ball that encoded records
            are moved into. "corner", the default, holds all of them. "uniform" is smaller, with
            less noise: it holds nearly all records whose numbers are spread evenly between their
            bounds. Records outside are moved towards the middle, in all columns alike, which bends
            coefficients: if 1, 5 or 20 % of the records are moved, by up to 0.7, 2 or 6 % of the
            largest one. Take it to predict where the forecast is not good, not for intervals.
        """
        parameters = {name: value for name, value in locals().items() if name != "cls"}
        from privsketch.design.cautions import stated_cautions, warn_of
        from privsketch.design.forecast import missed_directions
        from privsketch.design.plan import plan_design

        planned = plan_design(**parameters)
        missed = missed_directions(planned)
        warn_of([] if missed is None else [missed])
        if not insecure:
            stated = domain if planned.schema is None else planned.schema
            warn_of(stated_cautions(stated, planned.budget, n_records, planned.columns))
        return planned

    def without_noise(self) -> Design:
        """Return the insecure design with the same features, to see what noise does. For research.

        Its sketches are exact sums (`ps.sketch(..., insecure=True)`), a public number of records
        is a part of them, and nobody shares noise.
        """
        return replace(
            self,
            budget=NoBudget(self.budget.unit),
            noise="none",
            count="released" if self.count == "public" else self.count,
            n_holders=None,
            sharing=None,
            insecure=True,
        )

    @property
    def dim(self) -> int:
        """Number of columns of a record."""
        return len(self.domain.half_widths)

    @property
    def n_features(self) -> int:
        """Number of features; a sketch has two integers for each, or one for components."""
        return self.frequencies.n_features

    @property
    def mapping(self) -> FeatureMap:
        """The feature map."""
        return feature_map(self.feature_map)

    @cached_property
    def column_kinds(self) -> Columns | None:
        """Kinds and sizes of the columns of the schema, if there is one."""
        return None if self.schema is None else columns_of(self.schema)

    @property
    def axes(self) -> tuple[slice, ...]:
        """Coordinates of each axis of a grid: one, or those of all labels of a category."""
        return grid_axes(len(self.cells or ()), self.dim, self.column_kinds)

    @property
    def taxicab(self) -> Taxicab:
        """Integers that stand for the columns, for the feature map "taxicab"."""
        if self.feature_map != "taxicab":
            raise ParameterError(f"`feature_map={self.feature_map!r}` has no taxicab moments")
        return taxicab_of(self.domain, self.column_kinds)

    @property
    def has_labels(self) -> tuple[bool, ...]:
        """Whether each axis of a grid has a cell for each label of a category or flag."""
        labelled = {}
        for column, place in () if self.schema is None else self.schema.places():
            if isinstance(column, Labelled):
                labelled[place.start, place.stop] = len(column.labels)
        pairs = zip(self.axes, self.cells or (), strict=True)
        return tuple(labelled.get((axis.start, axis.stop)) == g for axis, g in pairs)

    @property
    def contribution(self) -> Contribution:
        """Bounds on the contribution of one record to the sums."""
        return contribution_of(self.mapping, self.frequencies, self.domain, self.column_kinds)

    @property
    def n_values(self) -> int:
        """Number of integers of a sketch that are sums of features."""
        return self.contribution.n_values

    @cached_property
    def sum_noise(self) -> SumNoise:
        """Calibrated noise of one holder's sketch, or of the total if noise is shared."""
        return plan_sum_noise(
            self.contribution,
            self.budget,
            kind=self.noise,
            count=self.count,
            n_records=self.n_records * (self.n_holders or 1),
            masks=self.masks,
            mean=self.mean == "released",
            sharing=self.sharing,
            n_holders=self.n_holders or 1,
        )

    @property
    def amplitude(self) -> float:
        """Integer that stands for a feature of modulus 1, or for the square of the radius."""
        return amplitude_of(self.mapping, self.contribution, self.frequencies.turn_bits)

    @property
    def unit(self) -> float:
        """Mean amount that a record's feature of modulus 1 adds to the released integers."""
        rate = 1.0 if self.masks is None else self.masks.total_rate(self.n_features)
        return self.amplitude * self.sum_noise.factor * rate

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise of one holder's sketch per real component, in records."""
        return math.sqrt(self.sum_noise.sums_law.variance) / self.unit

    @property
    def record_rate(self) -> float:
        """Probability that a record is kept by the masks."""
        return 1.0 if self.masks is None else self.masks.records

    @property
    def masking_variance(self) -> float:
        """Variance that feature masks add to a real component of modulus 1, for each record.

        Leaving out records has another effect: see `Sketch.repetition`.
        """
        if self.masks is None:
            return 0.0
        square = 1 + SIGN_VARIANCE if self.mapping.dithered else 1.0  # of a feature's modulus
        missing = (1 / self.masks.feature_rate(self.n_features) - 1) / self.masks.records
        return missing * square / (2 if self.mapping.has_table else 1)

    def radians(self) -> npt.NDArray[np.float64]:
        """Return the frequencies in radians per unit of a record, (n_features, dim)."""
        return self.frequencies.radians(self.domain)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the design; equal for all holders of a study."""
        return fingerprint(self.to_json())

    def to_json(self) -> dict[str, Any]:
        """Return the design as plain JSON values."""
        return {
            "task": self.task,
            "n_components": self.n_components,
            "domain": domain_to_json(self.domain),
            "budget": _budget_to_json(self.budget),
            "feature_map": self.feature_map,
            "frequencies": frequencies_to_json(self.frequencies),
            "noise": self.noise,
            "count": self.count,
            "n_records": self.n_records,
            "columns": None if self.columns is None else list(self.columns),
            # Optional fields appear only if used: designs without them keep their fingerprint.
            **({} if self.masks is None else {"masks": self.masks.to_json()}),
            **({} if self.mean == "omitted" else {"mean": self.mean}),
            **({} if self.schema is None else {"schema": self.schema.to_json()}),
            **({} if self.cells is None else {"cells": list(self.cells)}),
            **({} if self.n_holders is None else {"n_holders": self.n_holders}),
            **({} if self.sharing is None else {"sharing": self.sharing}),
            **({"insecure": True} if self.insecure else {}),
            **({} if self.target is None else {"target": self.target}),
        }

    @classmethod
    def from_json(cls, value: Any, what: str = "design") -> Design:
        """Return the design from `to_json`; raise FileError for anything else."""
        optional: dict[str, Any] = {"masks": None, "mean": "omitted", "schema": None, "cells": None}
        optional |= {"n_holders": None, "sharing": None, "insecure": False, "target": None}
        if isinstance(value, dict):
            value = {**optional, **value}
        fields = require_fields(value, cls.__dataclass_fields__, what)
        columns, schema, cells = fields["columns"], fields["schema"], fields["cells"]
        with reading(what):
            domain = domain_from_json(fields["domain"])
            design = cls(
                **{
                    **fields,
                    "domain": domain,
                    "budget": _budget_from_json(fields["budget"], what),
                    "frequencies": frequencies_from_json(fields["frequencies"], domain),
                    "columns": None if columns is None else tuple(str(name) for name in columns),
                    "masks": None if fields["masks"] is None else Masks.parse(fields["masks"]),
                    "schema": None if schema is None else Schema.from_json(schema),
                    "cells": None if cells is None else tuple(cells),
                }
            )
            if canonical_json({**optional, **design.to_json()}) != canonical_json(value):
                raise ParameterError("a value has the wrong type")
        return design

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the design as JSON."""
        write_file(path, self.to_bytes())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Design:
        """Read a design written by `save`."""
        return cls.from_bytes(read_file(path), os.fspath(path))

    def to_bytes(self) -> bytes:
        """Return the bytes of a design file."""
        return document(marked_kind("design", insecure=self.insecure), self.to_json())

    @classmethod
    def from_bytes(cls, data: bytes, what: str = "design") -> Design:
        """Return the design from `to_bytes`; raise FileError unless it is complete and intact."""
        kind = document_kind(data, what) or ""
        unmarked = kind if unmarked_kind(kind) == "design" else "design"
        design = cls.from_json(document_content(data, unmarked, what), what)
        if kind != marked_kind("design", insecure=design.insecure):
            raise FileError(f"{what}: content and kind disagree on privacy; the file was altered")
        return design

    def forecast(
        self,
        *,
        n_holders: int | None = None,
        rate: float | None = None,
        r2: float | None = None,
    ) -> Forecast | PCAForecast | RegressionForecast:
        """Return the expected accuracy of this design, from public facts alone. Charges nothing.

        Parameters
        ----------
        n_holders : int, optional
            The forecast is for merged sketches of so many holders with `n_records` records each. If
            left out, it is for one holder or, if noise is shared, for the total of all holders.
        rate : float, optional
            For classes and flags: the likely share of the class, 0.2 if left out. A rare class
            needs more records.
        r2 : float, optional
            For regression and classification: the share of the target's variance that the columns
            are likely to explain, 0.3 if left out.
        """
        from privsketch.design.forecast import forecast
        from privsketch.design.pca import pca_forecast
        from privsketch.design.regression import regression_forecast

        noise_ratio = None
        if n_holders is None:
            n_holders = self.n_holders or 1
            if self.sharing is not None:
                noise_ratio = planned_noises(self.sharing, n_holders)
        n_holders = require_count("n_holders", n_holders)
        key = n_holders, noise_ratio, rate, r2
        if key not in self._forecasts:
            if self.task in SUPERVISED:
                compute: Any = partial(regression_forecast, rate=rate, r2=r2)
            elif (rate, r2) == (None, None):
                compute = pca_forecast if self.task == "pca" else forecast
            else:
                raise ParameterError(
                    "rate, r2: only for `task='regression'` and 'classification', and the design "
                    f"has `task={self.task!r}`; leave them out"
                )
            self._forecasts[key] = compute(self, n_holders=n_holders, noise_ratio=noise_ratio)
        return self._forecasts[key]

    @cached_property
    def _forecasts(self) -> dict[Any, Forecast | PCAForecast | RegressionForecast]:
        """Forecasts by number of holders, noise ratio, rate and r2."""
        return {}

    def describe(self) -> str:
        """Return the design as several lines of text."""
        from privsketch.design.cautions import describe_design

        return describe_design(self)

    def _repr_html_(self) -> str:
        return described("Design", self.describe().splitlines())


_BUDGET_FIELDS = ("epsilon", "delta", "neighbours")
_UNIT_FIELDS = ("person", "max_records")


def _budget_to_json(budget: Budget) -> dict[str, Any]:
    fields = {name: getattr(budget, name) for name in _BUDGET_FIELDS}
    if isinstance(budget, NoBudget):
        fields["epsilon"] = INFINITE
    if budget.unit != ONE_RECORD:
        fields["unit"] = {name: getattr(budget.unit, name) for name in _UNIT_FIELDS}
    return fields


def _budget_from_json(value: Any, what: str) -> Budget:
    has_unit = isinstance(value, dict) and "unit" in value
    fields = dict(require_fields(value, (*_BUDGET_FIELDS, *["unit"] * has_unit), what))
    if has_unit:
        unit = require_fields(fields["unit"], _UNIT_FIELDS, what)
        require_count("max_records", unit["max_records"])
        fields["unit"] = Unit(**unit)
    if fields["epsilon"] == INFINITE:
        return NoBudget(fields.get("unit", ONE_RECORD))  # all other fields are compared with it
    return Budget(**fields)
