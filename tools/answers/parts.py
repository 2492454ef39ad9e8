"""Types of the parts and fields that answers of several commands share (see `tools.answers`)."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypedDict

Count = Annotated[int, ("minimum", 0)]
PositiveCount = Annotated[int, ("minimum", 1)]
NonNegative = Annotated[float, ("minimum", 0)]
Positive = Annotated[float, ("exclusiveMinimum", 0)]
Epsilon = Positive | Literal["infinite"]  # infinite where there is no noise: INSECURE
Sha256 = Annotated[str, ("pattern", "^[0-9a-f]{64}$")]
KeyFingerprint = Annotated[str, ("pattern", "^[0-9a-f]{32}$")]
Fraction = Annotated[str, ("pattern", "^[0-9]+(/[0-9]+)?$")]  # an exact number
DateTime = Annotated[str, ("format", "date-time")]  # UTC
Seconds = Annotated[str, ("pattern", "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$")]
Neighbours = Literal["add-remove", "replace"]
Accounting = Literal["basic", "zcdp"]
Verdict = Literal["good", "rough", "hopeless"]


class Error(TypedDict):
    """Why the command failed."""

    kind: Literal["usage", "data", "budget", "integrity", "interrupted", "internal"]
    """Kind of the failure; docs/commands.md lists them."""
    exit_code: Literal[1, 2, 3, 4, 5, 70]
    """Exit code of the command."""
    message: str
    """The sentence on standard error."""
    spent: Literal["nothing", "counts as spent"]
    """Whether the command spent any budget."""


class Cost(TypedDict):
    """The privacy cost of a release."""

    epsilon: Epsilon
    """Total epsilon; "infinite" if there is no privacy."""
    delta: NonNegative
    """Total delta; 0 is pure differential privacy."""
    neighbours: Neighbours
    """Which change of a table stays hidden."""
    unit: str
    """What is protected: one record, or one person."""


class Receipt(TypedDict):
    """What was spent, on what, with which noise. Later versions may add fields."""

    mechanism: str
    """What was released, with which noise."""
    epsilon: Epsilon
    """Total epsilon; "infinite" if there is no privacy."""
    delta: NonNegative
    """Total delta."""
    neighbours: Neighbours
    """Which change of a table stays hidden."""
    source: str | None
    """The holder's public name of the records; null if there are several or none."""
    law: NotRequired[str]
    """Law of the noise; empty for receipts with parts."""
    sensitivity: NotRequired[float | None]
    """How far one unit moves what was released, in the norm."""
    norm: NotRequired[str]
    """Norm of the sensitivity."""
    rho: NotRequired[float | None]
    """The release is rho-zCDP; null if no rho is known."""
    scale: NotRequired[float | None]
    """Scale of the noise."""
    calibration: NotRequired[str]
    """How the noise follows from the sensitivity."""
    sampler: str
    """What drew the noise; INSECURE marks noise that a test replaced, or that was left out."""
    unit: str
    """What is protected."""
    composition: Literal["single", "sequential", "parallel", "concentrated"]
    """How the parts add up."""
    assumption: str
    """An assumption about the table that nobody checks."""
    parts: list[Receipt]
    """Shares of one release, steps of a run, or releases of several holders."""
    plugins: NotRequired[Annotated[list[str], ("minItems", 1)]]
    """Distributions, with their versions, whose parts took part."""


class SchemaColumn(TypedDict):
    """A column of a schema; further fields depend on its kind (docs/tables.md)."""

    kind: Any
    name: Any


class Schema(TypedDict):
    """The public description of a table, as in its file (docs/tables.md)."""

    columns: list[SchemaColumn]
    """Kinds and bounds of the columns."""
    missing: str
    """What happens to missing values."""


class Design(TypedDict):
    """The design as in its file (docs/format.md)."""

    task: Any
    n_components: Any
    domain: Any
    budget: Any
    feature_map: Any
    frequencies: Any
    noise: Any
    count: Any
    n_records: Any
    columns: Any
    insecure: NotRequired[Any]
    target: NotRequired[Any]


class Forecast(TypedDict):
    """What to expect of a design, from public facts; null stands for infinite numbers."""

    verdict: Verdict
    """The forecast in one word."""
    n_records_needed: float | None
    """Number of records of one holder from which on the verdict would be good."""
    noise_to_signal: NotRequired[float | None]
    """Squared noise over squared signal."""
    rsse_low: NotRequired[float | None]
    """Squared error of the centers relative to k-means without privacy, at best."""
    rsse_high: NotRequired[float | None]
    """Squared error of the centers relative to k-means without privacy, at worst."""
    lost: NotRequired[float | None]
    """Share of the components' variance, or of what columns tell about a target, lost to noise."""
    r2: NotRequired[float]
    """Share of the target's variance that the other columns are assumed to explain."""
    rate: NotRequired[float | None]
    """Share of the records that a class is assumed to have; null for other targets."""


class Estimate(TypedDict):
    """What a sketch takes on this machine, measured with public numbers."""

    seconds_per_million_records: float
    """Time on this machine, without reading files."""
    n_threads: PositiveCount
    """Number of threads of the measurement."""
    memory: Count
    """Approximate memory in bytes."""
    file_size: Count
    """Approximate size of the sketch in bytes."""


Values = dict[str, float | str | None]


class WeightedResult(TypedDict):
    """A cluster, or a Gaussian of a mixture."""

    weight: float
    """Share of the records."""
    values: Values
    """Center or mean by field, in the units of the table; shares of labels, dates as texts."""
    standard_errors: Values | None
    """Standard errors of the values, in days for dates; null if they are not known."""


class ComponentResult(TypedDict):
    """A principal component."""

    variance: float
    """Variance along the component."""
    share: float
    """Share of the total variance."""
    values: Values
    """Loadings by field, in the units of the table."""


class CoefficientResult(TypedDict):
    """A coefficient of a regression, or of one class of a classifier, in the units of the table."""

    name: str
    """Name of the term: a column, or a label such as ward=A."""
    estimate: float | None
    """Estimate without shrinkage, for reports; null if noise drowns it."""
    low: float | None
    """Lower end of the 95 % interval."""
    high: float | None
    """Upper end of the 95 % interval."""
    against: str | None
    """Label that the term's label is compared with."""
    identified: float
    """Share of the coefficient that stands out of the noise; below 0.9 there is no interval."""
    coef: float
    """Coefficient for predictions, drawn towards 0 where noise is large."""
    label: NotRequired[str]
    """Class of a classifier, of whose probability this is a difference."""


class SummaryResult(TypedDict):
    """A mean or a share of all records or of a group, in the units of the table."""

    name: str
    """Name of the column, or of a label such as ward=A; "records" for the number of records."""
    group: str | None
    """Label of the group; null for all records."""
    estimate: float | None
    """Mean or share, days since 1970-01-01 for dates; null if noise drowns it."""
    low: float | None
    """Lower end of the 95 % interval."""
    high: float | None
    """Upper end of the 95 % interval."""


class CostRatio(TypedDict):
    """k-means cost of the centers over that of k-means on the records, with a 90 % interval."""

    estimate: float
    """Estimate from the sketch."""
    low: float
    """Lower end of the interval."""
    high: float
    """Upper end of the interval."""


class Model(TypedDict):
    """The model as in its file (docs/format.md), in encoded coordinates if it has a schema."""

    format: Literal[
        "privsketch-cluster-model",
        "privsketch-gaussian-mixture-model",
        "privsketch-pca-model",
        "privsketch-regression-model",
        "privsketch-classifier-model",
        "privsketch-summary-model",
        "privsketch-INSECURE-cluster-model",
        "privsketch-INSECURE-gaussian-mixture-model",
        "privsketch-INSECURE-pca-model",
        "privsketch-INSECURE-regression-model",
        "privsketch-INSECURE-classifier-model",
        "privsketch-INSECURE-summary-model",
    ]
    version: Any
    fingerprint: Any
    receipt: Receipt
    concerns: Any
    columns: Any
    schema: Any
    n_records: Any
    cost_ratio: NotRequired[CostRatio | None]
    """Of clusters: how good they are, estimated from a sketch; null for other methods."""
    expected_ratio: NotRequired[float | None]
    """Of clusters: the same as a forecast, for methods without a sketch."""


class Description(TypedDict):
    """The public description of released rows: the file beside them."""

    columns: Any
    carried: list[str]
    """Columns that were copied UNPROTECTED."""
    dim: Any
    n_records: PositiveCount
    """Number of rows, which is public."""
    domain: Any
    protect: Any
    noise: Any
    noise_variance: Any
    receipt: Receipt


class Key(TypedDict):
    """A public key."""

    name: str
    """Name of its holder."""
    fingerprint: KeyFingerprint
    """32 hex digits that identify the key, to be compared by phone."""


# Objects to which later versions may add fields. All others are closed.
OPEN = (Receipt, SchemaColumn, Schema, Design, Model, Description)


# ---------------------------------------------------------------- fields that answers share


class Header(TypedDict):
    """Fields of every answer."""

    command: str
    """The command that was run."""
    version: str
    """Version of privsketch."""
    time: Seconds
    """When the command ended, UTC. Its duration would tell the number of records."""


class Answer(Header):
    """The answer of a command that succeeds, or fails with nothing to tell but the error."""

    cautions: list[str]
    """Reasons to think again, from public facts."""
    notes: list[str]
    """What to know about the result."""


class CheckingAnswer(Header):
    """An answer that is given beside an error, too; remarks are left out then."""

    cautions: NotRequired[list[str]]
    """Reasons to think again, from public facts."""
    notes: NotRequired[list[str]]
    """What to know about the result."""
    error: NotRequired[Error]
    """Why the command failed."""


class DryRunAnswer(CheckingAnswer):
    """What a release would be like."""

    dry_run: Literal[True]
    """Nothing was released."""
    allowed: bool | None
    """Whether the ledger would allow the release; null without a ledger."""


class RealRunAnswer(Answer):
    """A release that was made."""

    dry_run: Literal[False]
    """The release was made."""


class WrittenFacts(TypedDict):
    """Files of a command that writes some."""

    written: list[str]
    """Files that were written, in this order."""


class ReceiptFacts(TypedDict):
    """Facts of a receipt."""

    source: str | None
    """The holder's public name of the records; null if there are several or none."""
    cost: Cost
    """What was spent, or would be."""
    receipt: Receipt
    """What was spent, on what, with which noise."""


class DesignFacts(TypedDict):
    """Facts of a design."""

    fingerprint: Sha256
    """Fingerprint of the design, the same for all holders of a study."""
    design: Design
    """The design as in its file."""
    noise_std: float
    """Standard deviation of the noise of one number."""
    forecast: Forecast
    """What to expect of the design."""
    cost: Cost
    """What was spent, or would be."""


class Alarm(TypedDict):
    """A source of a total that looks wrong."""

    source: str
    """Name of the source; the first one if it was compared as a total of several."""
    text: str
    """Why it looks wrong, in one line."""


class TotalVerdict(TypedDict):
    """What a comparison of the parts of a total said."""

    alarms: list[Alarm]
    """Sources that look wrong."""
    compared: list[str]
    """Sources whose own sketches were compared."""
    reasons: list[Literal["few", "many", "sealed", "skipped"]]
    """Why the other sources were not compared (docs/format.md)."""


class SketchFacts(ReceiptFacts):
    """Facts of a sketch; its numbers are in its file."""

    fingerprint: Sha256
    """Fingerprint of the design, the same for all holders of a study."""
    ids: list[str]
    """Names of the releases in the sketch."""
    sources: list[str]
    """Public names of their records."""
    weights: list[PositiveCount]
    """How often the records of each release count."""
    verdict: TotalVerdict | None
    """What a comparison of the parts said; null for a single release."""
    n_values: Count
    """Number of values in the file."""
    n_records: float | None
    """The noisy number of records, or the public one; null if the design omits it."""
    noise_std: float
    """Standard deviation of the noise of one number."""


class ModelFacts(ReceiptFacts):
    """Facts of a model."""

    model: Model
    """The model as in its file."""
    results: list[WeightedResult | ComponentResult | CoefficientResult | SummaryResult]
    """Clusters, Gaussians, components, coefficients, or means and shares, in units of the table."""
    concerns: list[str]
    """Reasons to doubt the model."""


class FailureAnswer(TypedDict):
    """Any command that fails, with --json."""

    command: str | None
    """The command that was run; null if there is no such command."""
    version: NotRequired[str]
    """Version of privsketch."""
    time: NotRequired[Seconds]
    """When the command ended, UTC."""
    error: Error
    """Why the command failed."""
