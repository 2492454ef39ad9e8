"""Answers of commands on ledgers, keys and files."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from tools.answers.parts import (
    Accounting,
    Answer,
    CheckingAnswer,
    Count,
    DateTime,
    Description,
    DesignFacts,
    Fraction,
    Key,
    ModelFacts,
    Neighbours,
    NonNegative,
    PositiveCount,
    ReceiptFacts,
    Schema,
    Sha256,
    SketchFacts,
    WrittenFacts,
)

# ---------------------------------------------------------------- ledgers


class LedgerLimit(TypedDict):
    """What all releases may cost together."""

    epsilon: Fraction
    """Largest epsilon."""
    delta: Fraction
    """Largest delta."""
    rho: Fraction | None
    """Largest sum of rho; null for basic accounting."""
    without_rho: Fraction
    """Share that is reserved for releases without a rho."""


class LedgerSums(TypedDict):
    """Sums over the entries of a data set."""

    epsilon: Fraction
    """Sum of epsilon."""
    delta: Fraction
    """Sum of delta."""
    rho: Fraction
    """Sum of rho."""
    epsilon_without_rho: Fraction
    """Sum of epsilon over releases without a rho."""
    delta_without_rho: Fraction
    """Sum of delta over releases without a rho."""


class LedgerRemainder(TypedDict):
    """What the next release may cost."""

    epsilon: Fraction
    """Largest epsilon."""
    delta: Fraction
    """Largest delta."""
    rho: Fraction | None
    """Largest rho; null for basic accounting."""
    pure_epsilon: Fraction | None
    """Largest epsilon of a release without a rho; null for basic accounting."""


class LedgerPeriod(TypedDict):
    """A limit for each calendar year, quarter or month."""

    every: Literal["year", "quarter", "month"]
    """Part of the calendar, in UTC."""
    epsilon: Fraction
    """Largest epsilon within a period."""
    delta: Fraction
    """Largest delta within a period."""
    rho: Fraction | None
    """Largest sum of rho; null for basic accounting."""
    spent: LedgerSums
    """Sums over the entries of the present period."""
    left: LedgerRemainder
    """What the next release may cost in the present period."""


class DataSet(TypedDict):
    """A data set of a ledger."""

    name: str
    """Name of the data set."""
    note: str
    """A note for people."""
    time: DateTime
    """When it was added, UTC."""
    neighbours: Neighbours
    """Which change of the table stays hidden."""
    person: str | None
    """The column that names persons; null if records are protected."""
    limit: LedgerLimit
    """What all releases may cost together."""
    spent: LedgerSums
    """Sums over all entries."""
    left: LedgerRemainder
    """What the next release may cost."""
    n_entries: Count
    """Number of releases, with those that were only reserved."""
    n_open: Count
    """Number of entries that were reserved and never committed; they count."""
    alone: LedgerSums
    """Sums over ballots in sealed studies, if everyone else in their studies colludes."""
    n_refusals: Count
    """Number of releases that were refused because of what records say; they cost nothing."""
    max_refusals: Count
    """Largest number of such refusals."""
    period: LedgerPeriod | None
    """Limit for each part of the calendar; null without one."""


class SpendingStep(TypedDict):
    """Share of the limit that is used from one entry on."""

    time: DateTime
    """Time of the entry, UTC."""
    entry: str
    """Id of the entry."""
    used: NonNegative
    """Share of the limit that is used from then on."""


class ShownDataSet(DataSet):
    """A data set of a ledger, with its spending over time."""

    used: NonNegative
    """Share of the limit that is used."""
    spending: list[SpendingStep]
    """Spending over time, one step for each entry."""


class EntryUnit(TypedDict):
    """What an entry protects."""

    person: str | None
    """The column that names persons; null if records are protected."""
    max_records: PositiveCount
    """Number of records of a person that count."""


class EntryCharge(TypedDict):
    """What an entry counts under the neighbours of its data set."""

    epsilon: Fraction
    """Its epsilon."""
    delta: Fraction
    """Its delta."""
    rho: Fraction | None
    """Its rho; null if none is known."""


class EntryCost(EntryCharge):
    """What an entry costs, as the release states it."""

    neighbours: Neighbours
    """Which change of the table stays hidden."""
    unit: EntryUnit
    """What is protected."""


class Entry(TypedDict):
    """One release, or a reservation for one."""

    id: Annotated[str, ("pattern", "^[0-9a-f]{16}$")]
    """Id of the entry."""
    data_set: str
    """Name of its data set."""
    time: DateTime
    """When it was reserved, UTC."""
    time_committed: DateTime | None
    """When it was committed, UTC; null if it was not."""
    state: Literal["reserved", "committed"]
    """State of the entry."""
    cost: EntryCost
    """What the release costs."""
    charged: EntryCharge
    """Cost that it counts under the neighbours of the data set."""
    what: str
    """What is released."""
    source: str | None
    """Public name of the records."""
    output: str | None
    """Where the result went."""
    receipt: dict[str, Any] | None
    """Receipt of the release, once it is committed."""
    alone: EntryCost | None
    """Of a ballot: its cost if everyone else in its study colludes; else null."""


class LedgerFacts(TypedDict):
    """The ledger of a command."""

    ledger: str
    """File of the ledger."""


class LedgerCreateAnswer(Answer, WrittenFacts, LedgerFacts):
    """A new ledger."""

    accounting: Accounting
    """What decides at a limit: sums of epsilon and delta, or of rho."""


class LedgerAddAnswer(Answer, LedgerFacts):
    """A new data set."""

    data_set: DataSet
    """The data set."""


class LedgerShowAnswer(Answer, WrittenFacts, LedgerFacts):
    """What was spent, and what is left."""

    accounting: Accounting
    """What decides at a limit: sums of epsilon and delta, or of rho."""
    head: Sha256
    """Hash of the last line, for `ledger check --head`."""
    data_sets: list[ShownDataSet]
    """The data sets."""
    entries: list[Entry] | None
    """Entries of these data sets, with --entries; else null."""


class LedgerApprovalAnswer(Answer, WrittenFacts, LedgerFacts):
    """A sheet on which somebody approves a release."""

    data_set: str
    """Name of the data set."""
    allowed: bool
    """Whether the limits allow the release."""
    words: str
    """What would be left, or why the release would be refused."""


class LedgerCheckAnswer(CheckingAnswer, LedgerFacts):
    """Whether a ledger is intact."""

    is_whole: bool
    """Whether the ledger is intact; if not, there is an error."""
    problems: list[str]
    """What is wrong."""
    head: Sha256 | None
    """Hash of the last line; null unless the ledger is intact."""
    n_lines: Count
    """Number of lines; 0 unless the ledger is intact."""


class LedgerExport(TypedDict):
    """The content of an export."""

    format: Literal["privsketch-ledger-export"]
    """Kind of the file."""
    version: Literal[1]
    """Version of the format."""
    accounting: Accounting
    """What decides at a limit: sums of epsilon and delta, or of rho."""
    time: DateTime
    """Time of the export, UTC."""
    n_lines: Count
    """Number of lines of the ledger."""
    head: Sha256
    """Hash of the last line."""
    data_sets: list[DataSet]
    """The data sets."""
    entries: list[Entry]
    """All entries."""


class LedgerExportAnswer(Answer, WrittenFacts, LedgerFacts):
    """An export of a ledger, without its secrets."""

    export: LedgerExport | None
    """The export; null if it was written to a file (-o)."""


# ---------------------------------------------------------------- keys and files


class KeyMakeAnswer(Answer, WrittenFacts, Key):
    """A new key."""

    key_file: str
    """File of the private key."""
    public_file: str
    """File of the public key."""
    has_passphrase: bool
    """Whether a passphrase locks the private key."""


class KeySignAnswer(Answer, WrittenFacts):
    """A signature."""

    file: str
    """The signed file."""
    signature_file: str
    """File of the signature."""
    kind: str
    """Kind of the signed file: design, sketch, ..."""
    signer: Key
    """The key that signed."""


class VerifiedFile(TypedDict):
    """Whether one file is valid."""

    file: str
    """The file."""
    is_valid: bool
    """Whether a trusted key signed it; a file of a sealed study must also fit its study."""
    kind: str | None
    """Kind of the file: design, sketch, ...; null unless it is valid."""
    signer: Key | None
    """The key that signed; null unless the file is valid."""
    problem: str | None
    """Why the file is refused; null if it is valid."""


class KeyVerifyAnswer(CheckingAnswer):
    """Whether files are signed by trusted keys."""

    is_valid: bool
    """Whether all files are valid; if not, there is an error."""
    files: Annotated[list[VerifiedFile], ("minItems", 1)]
    """The files, in the order of the arguments."""
    written: NotRequired[list[str]]
    """Files that were written, in this order."""


class KeyTrustAnswer(Answer):
    """The trusted keys."""

    folder: str
    """Folder of the pinned keys."""
    pinned: Key | None
    """The key that this command pinned."""
    forgotten: Key | None
    """The key that this command forgot."""
    keys: list[Key]
    """All keys that are pinned now."""


class InspectedFile(Answer):
    """What a file contains."""

    table: str | None
    """The released table that the file describes; null for other files."""
    file: str
    """The file that was read."""
    signer: Key | None
    """Who signed the file; null if that is not known."""


class InspectedSketch(InspectedFile, DesignFacts, SketchFacts):
    """A sketch."""

    kind: Literal["sketch", "INSECURE-sketch"]
    """Kind of the file."""


class InspectedDesign(InspectedFile, DesignFacts):
    """A design."""

    kind: Literal["design", "INSECURE-design"]
    """Kind of the file."""


class InspectedModel(InspectedFile, ModelFacts):
    """A model."""

    kind: Literal[
        "cluster-model",
        "gaussian-mixture-model",
        "pca-model",
        "regression-model",
        "classifier-model",
        "summary-model",
        "INSECURE-cluster-model",
        "INSECURE-gaussian-mixture-model",
        "INSECURE-pca-model",
        "INSECURE-regression-model",
        "INSECURE-classifier-model",
        "INSECURE-summary-model",
    ]
    """Kind of the file."""


class InspectedRelease(InspectedFile, ReceiptFacts):
    """A receipt of released rows."""

    kind: Literal["release"]
    """Kind of the file."""
    description: Description
    """The public description of the released rows."""


class InspectedKey(InspectedFile, Key):
    """A public key."""

    kind: Literal["public-key"]
    """Kind of the file."""


class InspectedSchema(InspectedFile):
    """A schema."""

    kind: Literal["schema"]
    """Kind of the file."""
    schema: Schema
    """The schema as in its file."""


InspectAnswer = (
    InspectedSketch
    | InspectedDesign
    | InspectedModel
    | InspectedRelease
    | InspectedKey
    | InspectedSchema
)
