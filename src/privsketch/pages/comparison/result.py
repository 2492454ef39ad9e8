"""The result of a comparison: a verdict on every source, in words, as JSON and as a picture."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from privsketch._base.notebook import shown, table
from privsketch._base.types import Floats
from privsketch.design.recipe import Design
from privsketch.facts.units import digits, field_columns, field_text, field_values
from privsketch.pages.comparison.reference import column_names

MAX_SHOWN_SOURCES = 30  # sources in a description: a screen of lines
MAX_SHOWN_FIELDS = 6  # fields of a center in a description: a line or two
MAX_SHOWN_CLUSTERS = 8  # clusters in a description: 8 characters each beside names, in a line
MAX_EXPLAINED_MISFIT = 2.0  # misfit up to which other shares of clusters explain a source


@dataclass(frozen=True)
class ColumnChange:
    """A change of a column: one source has `factor * value + shift` where others have `value`.

    Attributes
    ----------
    column : str
    factor, shift : float
    unit : str
        Mistake of units that has this effect; empty for a shift, and for a limit.
    is_limit : bool
        Whether the values end at the edge of the domain, so that a larger change has this effect,
        too: the true one is unknown.
    low, high : float or None
        Values at which the source's values are cut.
    other_column : str
        Column whose values the source has here; empty if it has those of the column.
    possible : tuple of str
        Of a limit, mistakes of the unit that the schema states with this effect, in words.
    """

    column: str
    factor: float
    shift: float
    unit: str
    is_limit: bool = False
    low: float | None = None
    high: float | None = None
    other_column: str = ""
    possible: tuple[str, ...] = ()

    def describe(self) -> str:
        """Return the change in words."""
        if self.other_column:
            return f"{self.column}: has the values of {self.other_column}"
        for name, cut in (("below", self.low), ("above", self.high)):
            if cut is not None:
                return f"{self.column}: no values {name} {cut:.4g}, which the others have"
        if self.is_limit:
            possible = f" ({', or '.join(self.possible)})" if self.possible else ""
            return f"{self._limit_words()}: the values end at the edge of the domain{possible}"
        parts = []
        if self.factor != 1.0:
            parts.append(f"{self.factor:.4g} times")
        if self.shift != 0.0:
            parts.append(f"{'plus' if self.shift > 0 else 'minus'} {abs(self.shift):.4g}")
        unit = f" ({self.unit})" if self.unit else ""
        return f"{self.column}: {' and '.join(parts)} what the others have{unit}"

    def _limit_words(self) -> str:
        """Return the least change in words, with two digits that do not say too much."""
        if self.factor > 1.0:
            words = f"at least {_rounded(self.factor, math.floor):.4g} times"
        elif self.factor < 1.0:
            words = f"at most {_rounded(self.factor, math.ceil):.4g} times"
        else:
            sign = "plus" if self.shift > 0 else "minus"
            words = f"{sign} at least {_rounded(abs(self.shift), math.floor):.4g}"
        return f"{self.column}: {words} what the others have"


@dataclass(frozen=True)
class SourceComparison:
    """The comparison of one source with the others.

    Attributes
    ----------
    source : str
    n_records : float or None
        Number of records: noisy, public, or unknown.
    differs : bool
        Whether the source differs from the sum of the others beyond noise and sampling.
    difference : float
        Size of the difference between the mean features, relative to the size of these features.
        The parts of noise and sampling are subtracted.
    misfit : float or None
        Chi-square of a fit by the others' clusters with other shares, relative to what noise and
        sampling explain. None without a fit.
    explained : float
        Share of the misfit that `changes` explain.
    columns : tuple of str
        Columns in which the difference is largest.
    changes : tuple of ColumnChange
        The shift, or the factors, that explain the difference best.
    alarms : tuple of str
        What looks wrong: changes of few columns that explain the difference, records that are all
        the same, or other sources with the same records or noise.
    """

    source: str
    n_records: float | None
    differs: bool
    difference: float
    misfit: float | None = None
    explained: float = 0.0
    columns: tuple[str, ...] = ()
    changes: tuple[ColumnChange, ...] = ()
    alarms: tuple[str, ...] = ()

    @property
    def is_alarm(self) -> bool:
        """Whether the source looks wrong."""
        return bool(self.alarms)

    @property
    def has_own_shares(self) -> bool:
        """Whether other shares of the others' clusters explain the source."""
        return self.misfit is not None and self.misfit <= MAX_EXPLAINED_MISFIT

    def words(self) -> str:
        """Return the verdict on one line."""
        if self.is_alarm:
            return "; ".join(self.alarms)
        if not self.differs:
            return "like the others"
        along = f", mostly in {', '.join(self.columns)}" if self.columns else ""
        if self.misfit is None:
            return f"differs{along}"
        if self.has_own_shares:
            return f"other shares of the same clusters{along}"
        return f"differs; no shift or unit explains it{along}"

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as plain JSON values."""
        facts = dict(vars(self))
        facts["alarms"] = list(self.alarms)
        facts["columns"] = list(self.columns)
        facts["changes"] = [
            {**vars(change), "possible": list(change.possible)} for change in self.changes
        ]
        return {**facts, "alarm": self.is_alarm, "words": self.words()}


@dataclass(frozen=True, eq=False)
class ClusterShares:
    """Shares of common clusters at each source.

    Attributes
    ----------
    centers : (k, dim) float64
        Centers of the clusters of all sources together, as records are encoded.
    shares, errors : (n_sources, k) float64
        Shares of the clusters at each source, and their standard errors.
    alone : tuple of (int, int)
        Pairs of a cluster and the only source that has it.
    """

    centers: Floats
    shares: Floats
    errors: Floats
    alone: tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class Comparison:
    """A comparison of sketches of several sources, made by `compare`.

    Attributes
    ----------
    design : Design
        The design of all sketches.
    sources : tuple of SourceComparison
        The verdict on each source, in the order of the sketches.
    clusters : ClusterShares or None
        Shares of common clusters at each source; None if the feature map finds no clusters.
    notes : tuple of str
        Sources whose records count more often than once, what was not compared, and what noise
        hides.
    hidden : str
        What noise hides, for `compare`, which makes it a note; empty if that is nothing.
    """

    design: Design
    sources: tuple[SourceComparison, ...]
    clusters: ClusterShares | None
    notes: tuple[str, ...] = ()
    hidden: str = ""

    @property
    def alarms(self) -> tuple[SourceComparison, ...]:
        """Sources that look wrong."""
        return tuple(source for source in self.sources if source.is_alarm)

    def alarm_lines(self) -> list[str]:
        """Return a line for each alarm."""
        who = "one of the two, " if len(self.sources) == 2 and len(self.alarms) == 1 else ""
        return [f"{who}{alarm.source}: {alarm.words()}" for alarm in self.alarms]

    def cluster_lines(self) -> list[str]:
        """Return a line for each cluster that only one source has."""
        if self.clusters is None:
            return []
        lines = []
        for cluster, source in self.clusters.alone:
            share = self.clusters.shares[source, cluster]
            center = center_text(self.design, self.clusters.centers[cluster])
            lines.append(
                f"only {self.sources[source].source} has cluster {cluster + 1}, {share:.0%} of its "
                f"records: {center}"
            )
        return lines

    def merge_lines(self) -> list[str]:
        """Return lines beside a total's verdict: clusters of one source, differences."""
        lines = [f"clusters    {line}" for line in self.cluster_lines()]
        differing = [item for item in self.sources if item.differs and not item.is_alarm]
        shares = [item for item in differing if item.has_own_shares]
        unlike = [item for item in differing if not item.has_own_shares]
        is_pair = len(self.sources) == 2
        if is_pair and shares:  # one of the two has no fit of its own
            unlike, shares = [], differing
        if unlike:
            others = "each other" if is_pair else "the others"
            columns = f" (mostly in {', '.join(unlike[0].columns)})" if unlike[0].columns else ""
            along = columns if len(unlike) == 1 else ""
            names = _names([item.source for item in unlike])
            lines.append(
                f"sources     unlike {others}: {names}{along}; privsketch compare says more"
            )
        if shares:
            names = _names([item.source for item in shares])
            lines.append(f"sources     other shares of the same clusters: {names}")
        if not lines and not self.alarms:
            lines = ["sources     no differences beyond noise and sampling"]
        return lines

    def __str__(self) -> str:
        """Return the description: what is printed is for people."""
        return self.describe()

    def describe(self) -> str:
        """Return the comparison in plain words, on several lines."""
        width = max(6, min(24, max(len(item.source) for item in self.sources)))
        lines = [f"{'source':<{width}}  {'records':>9}  {'difference':>10}  verdict"]
        for item in self.sources[:MAX_SHOWN_SOURCES]:
            count = "-" if item.n_records is None else f"{item.n_records:,.0f}"
            difference = f"{item.difference:.0%}" if item.differs else "-"
            name = shortened(item.source, width)
            mark = "ALARM " if item.is_alarm else ""
            lines.append(f"{name:<{width}}  {count:>9}  {difference:>10}  {mark}{item.words()}")
        if len(self.sources) > MAX_SHOWN_SOURCES:
            lines.append(f"... and {len(self.sources) - MAX_SHOWN_SOURCES} more sources")
        lines += self.cluster_lines()
        if self.clusters is not None and len(self.sources) <= MAX_SHOWN_SOURCES:
            lines += ["", *self._share_lines(width)]
        if len(self.sources) == 2:
            lines.append("with two sources, a comparison cannot tell which of them is wrong")
        return "\n".join([*lines, *self.notes])

    def _share_lines(self, width: int) -> list[str]:
        if self.clusters is None:
            return []
        k = min(self.clusters.shares.shape[1], MAX_SHOWN_CLUSTERS)
        more = "  ..." if k < self.clusters.shares.shape[1] else ""
        head = "".join(f"{f'{c + 1}':>8}" for c in range(k))
        lines = [f"{'shares of clusters':<{width + 11}}{head}{more}"]
        for item, shares in zip(self.sources, self.clusters.shares, strict=True):
            name = shortened(item.source, width)
            lines.append(f"{name:<{width + 11}}" + "".join(f"{s:>8.0%}" for s in shares[:k]))
        return lines

    def _repr_html_(self) -> str:
        facts = [
            (item.source, f"{'ALARM ' * item.is_alarm}{item.words()}")
            for item in self.sources[:MAX_SHOWN_SOURCES]
        ]
        more = len(self.sources) - MAX_SHOWN_SOURCES
        facts += [("", f"{more} more sources")] if more > 0 else []
        facts += [("", line) for line in (*self.cluster_lines(), *self.notes)]
        return shown("Comparison of sources", facts, *self._share_table())

    def _share_table(self) -> list[str]:
        if self.clusters is None:
            return []
        clusters = [f"{c + 1}" for c in range(self.clusters.shares.shape[1])]
        shares = [[f"{share:.0%}" for share in row] for row in self.clusters.shares]
        sources = [item.source for item in self.sources]
        return [table("shares of clusters", sources, clusters, shares)]

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as plain JSON values."""
        clusters = None
        if self.clusters is not None:
            clusters = {
                "centers": self.clusters.centers.tolist(),
                "shares": self.clusters.shares.tolist(),
                "standard_errors": self.clusters.errors.tolist(),
                "alone": [
                    {"cluster": cluster + 1, "source": self.sources[source].source}
                    for cluster, source in self.clusters.alone
                ],
            }
        return {
            "design": self.design.fingerprint,
            "sources": [item.to_json() for item in self.sources],
            "alarms": [item.source for item in self.alarms],
            "clusters": clusters,
            "notes": list(self.notes),
        }

    def plot(self) -> Any:
        """Draw the differences of the sources and their shares of clusters; needs matplotlib."""
        from privsketch.pages.comparison.page import picture_of

        return picture_of(self)


def _rounded(size: float, whole: Callable[[float], int]) -> float:
    """Return a positive number with two digits, rounded by `whole`."""
    unit = 10.0 ** (math.floor(math.log10(size)) - 1)
    return whole(size / unit) * unit


def shortened(name: str, width: int) -> str:
    """Return a name of at most `width` characters."""
    return name if len(name) <= width else name[: width - 1] + "…"


def _names(sources: Sequence[str]) -> str:
    return ", ".join(sources[:8]) + (", ..." if len(sources) > 8 else "")


def center_text(design: Design, center: Floats) -> str:
    """Return the first fields of a center in the units of the table."""
    if design.schema is None:
        pairs = zip(column_names(design), center, strict=True)
        texts = [f"{name} {digits(float(value))}" for name, value in pairs]
    else:
        fields = field_values(design.schema, center[np.newaxis])[0]
        texts = [
            f"{name} {field_text(column, float(value))}"
            for column, span in field_columns(design.schema)
            for name, value in zip(column.fields, fields[span], strict=True)
        ]
    more = ", ..." if len(texts) > MAX_SHOWN_FIELDS else ""
    return ", ".join(texts[:MAX_SHOWN_FIELDS]) + more
