"""Answers of commands that plan, release, learn and compare."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypedDict

from tools.answers.parts import (
    Answer,
    CheckingAnswer,
    Cost,
    Count,
    Description,
    Design,
    DesignFacts,
    DryRunAnswer,
    Estimate,
    Forecast,
    ModelFacts,
    NonNegative,
    PositiveCount,
    RealRunAnswer,
    ReceiptFacts,
    Schema,
    Sha256,
    SketchFacts,
    Verdict,
    WrittenFacts,
)

# ---------------------------------------------------------------- before a release


class SchemaDraftAnswer(Answer, WrittenFacts):
    """A draft of a schema."""

    n_columns: Count
    """Number of columns of the schema."""
    looked: bool
    """Whether records were read; then everything here is private."""
    left_out: dict[str, str]
    """Columns that a look left out, and why."""


class SchemaAcceptAnswer(Answer, WrittenFacts):
    """Guesses of a schema that were accepted."""

    accepted: dict[str, list[str]]
    """Fields whose marks were removed, by column; "persons" stands for the whole table."""
    left: list[str]
    """Columns whose guesses are still marked."""


class SchemaEditAnswer(Answer, WrittenFacts):
    """A schema that was edited on a page."""

    left: list[str]
    """Columns whose guesses are still marked."""


class SchemaCheckAnswer(CheckingAnswer):
    """Whether a schema can be used."""

    ready: bool
    """Whether the schema can be used; if not, there is an error."""
    open: list[str]
    """What is undecided or does not fit."""
    schema: Schema | None
    """The schema; null while something is undecided."""
    dim: int | None
    """Number of coordinates of an encoded record."""
    stops: list[str]
    """Rules by which the content of one record can stop a release; empty for a total schema."""


class CheckedColumn(TypedDict):
    """A column of a checked table, in exact numbers."""

    name: str
    """Name of the column."""
    kind: str
    """Kind by the schema, or "number"."""
    n_missing: Count
    """Number of missing cells."""
    n_infinite: Count
    """Number of infinite cells, which count as missing."""
    n_below: Count
    """Number of cells below the bounds."""
    n_above: Count
    """Number of cells above the bounds."""
    n_other: Count
    """Number of labels that the schema does not list."""
    quartiles: list[float | None] | None
    """Quartiles; seconds since 1970 for dates."""
    faults: dict[str, int]
    """Numbers of unreadable cells, by what is wrong with them."""
    looks_like: list[str]
    """Units that the values look like."""
    remarks: list[str]
    """Remarks in words."""
    unlisted: dict[str, int]
    """The most frequent labels that the schema does not list, with their numbers of cells."""
    is_found: bool
    """Whether the table has the column."""
    n_wrong: Count
    """Number of unreadable cells."""


class CheckAnswer(CheckingAnswer):
    """Exact facts about a table, for its holder alone."""

    private: Literal[True]
    """Everything here is exact: for the holder of the records alone."""
    notice: str
    """The same in words."""
    readable: bool
    """Whether a release would read this table; if not, there is an error."""
    alarms: list[str]
    """What would spoil a release that is possible, the worst last; with any, there is an error."""
    n_rows: Count
    """Number of rows of the table."""
    n_kept: Count
    """Number of rows that would be kept."""
    n_records: Count
    """Number of records that would count."""
    n_outside: Count
    """Number of rows that would be clipped to the bounds."""
    n_persons: int | None
    """Number of persons; null if records are protected."""
    n_kept_persons: int | None
    """Number of persons of whom a row would be kept."""
    median_rows: int | None
    """Median number of rows of a person."""
    max_rows: int | None
    """Largest number of rows of a person."""
    n_beyond: int | None
    """Number of persons with more rows than would count."""
    n_without_person: int | None
    """Number of rows that name no person."""
    refusals: list[str]
    """Why a release would be refused."""
    advice: list[str]
    """What to say about how the table is written, if that seems to be something else."""
    columns: list[CheckedColumn]
    """Facts about each column."""


class ProposedBounds(TypedDict):
    """Bounds of one column, from noisy counts."""

    name: str
    """Name of the column."""
    low: float | None
    """Proposed lower bound; null if there is none."""
    high: float | None
    """Proposed upper bound; null if there is none."""
    note: str
    """A remark on the proposal."""


class BoundsRelease(RealRunAnswer, ReceiptFacts):
    """A release."""

    columns: list[ProposedBounds]
    """Proposed bounds of the columns."""
    threshold: Count
    """Ranges with a smaller noisy number of values were disregarded."""


class BoundsDryRun(DryRunAnswer):
    """A dry run."""

    names: list[str]
    """Columns that bounds would be proposed for."""
    cost: Cost
    """What would be spent."""


BoundsAnswer = BoundsRelease | BoundsDryRun


class Alternative(TypedDict):
    """A design that would do the same."""

    name: str
    """Name of the alternative."""
    feature_map: str
    """Its feature map."""
    n_features: Count
    """Number of features."""
    frequencies: str
    """Law of the frequencies."""
    masks: str
    """Its masks, or "none"."""
    noise: str
    """Kind of noise."""
    noise_to_signal: float | None
    """Noise to signal of the whole sketch."""
    largest_part: str
    """Largest part of the noise to signal."""
    error_low: float | None
    """Expected error at best; null if infinite."""
    error_high: float | None
    """Expected error at worst; null if infinite."""
    verdict: Verdict
    """The forecast in one word."""
    nanoseconds_per_record: float | None
    """Time on one core, by a model."""
    bytes: Count
    """Size of the sketch."""
    options: str
    """Options for `privsketch design`."""


class PlanAnswer(Answer):
    """Alternatives to a design."""

    recommended: str
    """Name of the recommended alternative."""
    reasons: list[str]
    """Reasons for the recommendation."""
    alternatives: list[Alternative]
    """All alternatives, the planned design first."""


class DesignAnswer(Answer, WrittenFacts, DesignFacts):
    """A new design."""


# ---------------------------------------------------------------- releases and models


class SketchRelease(RealRunAnswer, WrittenFacts, SketchFacts):
    """A release."""


class SketchDryRun(DryRunAnswer, DesignFacts):
    """A dry run."""

    estimate: Estimate
    """What the sketch would take on this machine."""


SketchAnswer = SketchRelease | SketchDryRun


class MergeAnswer(Answer, WrittenFacts, SketchFacts):
    """The sum of several sketches."""


class ColumnChange(TypedDict):
    """A change of one column that explains a difference."""

    column: str
    """Name of the column."""
    factor: float
    """Factor of the values."""
    shift: float
    """Shift of the values."""
    unit: str
    """Unit that would explain the factor; empty if none does."""
    is_limit: bool
    """Whether a larger change would explain as much, because values end at the edge."""
    low: float | None
    """Value below which the source has none."""
    high: float | None
    """Value above which the source has none."""
    other_column: str
    """Column whose values the source has here; empty if it has those of the column."""
    possible: list[str]
    """Of a limit, mistakes of the unit that the schema states with this effect, in words."""


class ComparedSource(TypedDict):
    """How one source differs from the others."""

    source: str
    """Public name of the records."""
    n_records: float | None
    """Noisy or public number of records."""
    differs: bool
    """Whether it differs from the others beyond noise and sampling."""
    difference: NonNegative
    """Size of the difference, relative to what is compared."""
    misfit: float | None
    """Misfit after reweighting the others' clusters, relative to that of noise and sampling."""
    explained: Annotated[float, ("minimum", 0), ("maximum", 1)]
    """Share of the misfit that the changes explain."""
    columns: list[str]
    """Columns that differ."""
    changes: list[ColumnChange]
    """Changes of columns that explain the difference."""
    alarms: list[str]
    """What looks wrong, in words."""
    alarm: bool
    """Whether anything looks wrong."""
    words: str
    """The same in words."""


class LoneCluster(TypedDict):
    """A cluster that only one source has."""

    cluster: PositiveCount
    """Number of the cluster, from 1."""
    source: str
    """Public name of the records."""


class ComparedClusters(TypedDict):
    """Clusters of all sources, and the share of each source in them."""

    centers: list[list[float]]
    """One center for each cluster."""
    shares: list[list[float]]
    """Shares of each source's records in the clusters."""
    standard_errors: list[list[float]]
    """Standard errors of the shares."""
    alone: list[LoneCluster]
    """Clusters that only one source has."""


class CompareAnswer(Answer, WrittenFacts):
    """A comparison of sources."""

    design: str
    """Fingerprint of the design."""
    sources: Annotated[list[ComparedSource], ("minItems", 2)]
    """How each source differs from the others."""
    alarms: list[str]
    """Sources with an alarm."""
    clusters: ComparedClusters | None
    """Clusters of all sources; null if they were not learned."""


class LearnAnswer(Answer, WrittenFacts, ModelFacts):
    """A model learned from a sketch."""


class PipelinePlan(TypedDict):
    """Plan of the method "pipeline"."""

    directions: Literal["columns", "released", "random", "mean"]
    """Directions that the sketch is made along; "mean" for centers around the mean of all."""
    n_directions: Count
    """Number of directions."""
    rounds: list[Literal["plain", "probe"]]
    """Rounds after the start: those that move the centers, and those that look for clusters."""
    weights: dict[str, float]
    """Shares of the budget."""
    excess: float | None
    """Expected squared error over that of k-means without privacy, less 1."""


class ClusterRelease(RealRunAnswer, WrittenFacts, ModelFacts):
    """A release."""


class ClusterDryRun(DryRunAnswer):
    """A dry run."""

    looked_at: str
    """What was read of the files: no record."""
    method: str
    """The method that would be used."""
    reason: str | None
    """Why the method was chosen; null if the caller stated it."""
    dim: Count
    """Number of coordinates of a record."""
    cost: Cost
    """What would be spent."""
    design: NotRequired[Design]
    """The design of a sketch, if the method needs one."""
    forecast: NotRequired[Forecast]
    """What to expect of that design."""
    noise_std: NotRequired[float]
    """Standard deviation of the noise of one number of the sketch."""
    estimate: NotRequired[Estimate]
    """What the sketch would take on this machine."""
    plan: NotRequired[PipelinePlan]
    """Plan of the method "pipeline", if --records is stated."""
    expected_ratio: NotRequired[float | None]
    """Forecast of the cost over that without privacy; null unless --records is stated."""
    enough_records: NotRequired[float | None]
    """Number of records from which on the forecast is good; null if none is enough."""


ClusterAnswer = ClusterRelease | ClusterDryRun


class RegressRelease(RealRunAnswer, WrittenFacts, ModelFacts):
    """A release."""


class RegressDryRun(DryRunAnswer):
    """A dry run."""

    looked_at: str
    """What was read of the files: no record."""
    task: Literal["regression", "classification"]
    """What would be learned."""
    target: str
    """The column to explain."""
    dim: Count
    """Number of coordinates of a record."""
    cost: Cost
    """What would be spent."""
    design: Design
    """The design of the sketch."""
    forecast: Forecast
    """What to expect of it."""
    noise_std: float
    """Standard deviation of the noise of one number of the sketch."""
    estimate: Estimate
    """What the sketch would take on this machine."""


RegressAnswer = RegressRelease | RegressDryRun


class ReleaseRelease(RealRunAnswer, WrittenFacts, ReceiptFacts):
    """A release."""

    description: Description
    """The public description of the released rows."""


class ReleaseDryRun(DryRunAnswer, ReceiptFacts):
    """A dry run."""

    looked_at: str
    """What was read of the files: no record."""
    dim: Count
    """Number of columns of a record."""
    n_components: Count
    """Numbers that would be released for each record."""
    signal: float
    """Size of each number for a record at the edge of the domain."""
    noise: str
    """Kind of noise."""
    noise_std: float
    """Standard deviation of the noise of one number."""


ReleaseAnswer = ReleaseRelease | ReleaseDryRun


class DemoAnswer(Answer, WrittenFacts, ModelFacts):
    """The result of the demo."""

    fingerprint: Sha256
    """Fingerprint of the design."""
    n_clusters_found: Count | None
    """Number of clusters by `-k auto`; null in demos that do not determine it."""
    error_ratio: float
    """Squared error over that of k-means without privacy; the demo's records are public."""
    error_ratio_apart: float | None
    """In a sealed study: the median ratio if every hospital added noise of its own."""
    seconds: float
    """Duration of the demo."""
