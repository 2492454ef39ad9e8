"""What a comparison says: of every source, of clusters, in words, as JSON and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from privsketch._base.notebook import shown, table
from privsketch._base.types import Floats
from privsketch.design.recipe import Design
from privsketch.facts.units import digits, field_columns, field_values, written

SHOWN_SOURCES = 30  # in words
SHOWN_FIELDS = 6  # of a center, in words
EXPLAINED_MISFIT = 2.0  # up to which own shares are said to explain a source


@dataclass(frozen=True)
class ColumnChange:
    """A column of one source is `factor * value + shift` where the others have `value`.

    `unit` says which unit would have that effect; empty for a shift.
    """

    column: str
    factor: float
    shift: float
    unit: str

    def describe(self) -> str:
        """In words."""
        parts = []
        if self.factor != 1.0:
            parts.append(f"{self.factor:.4g} times")
        if self.shift != 0.0:
            parts.append(f"{'plus' if self.shift > 0 else 'minus'} {abs(self.shift):.4g}")
        unit = f" ({self.unit})" if self.unit else ""
        return f"{self.column}: {' and '.join(parts)} what the others have{unit}"


@dataclass(frozen=True)
class SourceComparison:
    """One source beside the others.

    Attributes
    ----------
    source : str
    n_records : float or None
        Noisy, public, or unknown.
    differs : bool
        Whether it differs from the sum of the others beyond noise and sampling.
    difference : float
        By how much: the size of the difference of the features of a record on average, over the
        size of these features; noise and sampling are taken off.
    misfit : float or None
        What is left if it has shares of its own of the others' clusters, over what noise and
        sampling leave. None if that was not looked at.
    explained : float
        Share of the misfit that `changes` explain.
    columns : tuple of str
        Along which the difference is largest.
    changes : tuple of ColumnChange
        A shift, or factors, that come nearest to explaining it.
    is_alarm : bool
        Whether they explain it, and are a shift or factors of units.
    """

    source: str
    n_records: float | None
    differs: bool
    difference: float
    misfit: float | None
    explained: float
    columns: tuple[str, ...]
    changes: tuple[ColumnChange, ...]
    is_alarm: bool

    @property
    def has_own_shares(self) -> bool:
        """Whether other shares of the others' clusters explain it, noise and sampling aside."""
        return self.misfit is not None and self.misfit <= EXPLAINED_MISFIT

    def words(self) -> str:
        """The verdict, one line."""
        if self.is_alarm:
            return "; ".join(change.describe() for change in self.changes)
        if not self.differs:
            return "like the others"
        along = f", most in {', '.join(self.columns)}" if self.columns else ""
        if self.misfit is None:
            return f"differs{along}"
        if self.has_own_shares:
            return f"other shares of the same clusters{along}"
        return f"differs, no shift or unit explains it{along}"

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "source": self.source,
            "n_records": self.n_records,
            "differs": self.differs,
            "difference": self.difference,
            "misfit": self.misfit,
            "explained": self.explained,
            "columns": list(self.columns),
            "changes": [dict(vars(change)) for change in self.changes],
            "alarm": self.is_alarm,
            "words": self.words(),
        }


@dataclass(frozen=True, eq=False)
class ClusterShares:
    """Shares of the clusters of all sources together at each of them, with standard errors.

    `centers` (k, dim) as records are encoded, `shares` and `errors` (n_sources, k); `alone` are
    pairs of a cluster and the only source that has it, by their numbers.
    """

    centers: Floats
    shares: Floats
    errors: Floats
    alone: tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class Comparison:
    """Sketches of several sources beside each other; made by `compare`, a function of them alone.

    Attributes
    ----------
    design : Design
        Of all sketches.
    sources : tuple of SourceComparison
        What was found of each, in the order of the sketches.
    clusters : ClusterShares or None
        How large the clusters of all are at each source; None without a map that has clusters.
    notes : tuple of str
        Whose records count more often than once, and what could not be looked at, in words.
    """

    design: Design
    sources: tuple[SourceComparison, ...]
    clusters: ClusterShares | None
    notes: tuple[str, ...] = ()

    @property
    def alarms(self) -> tuple[SourceComparison, ...]:
        """Sources that a shift or a unit's factor explains."""
        return tuple(one for one in self.sources if one.is_alarm)

    def alarm_lines(self) -> list[str]:
        """A line for each alarm."""
        who = "one of the two, " if len(self.sources) == 2 else ""
        return [f"{who}{one.source}: {one.words()}" for one in self.alarms]

    def cluster_lines(self) -> list[str]:
        """A line for each cluster that only one source has."""
        if self.clusters is None:
            return []
        found = []
        for cluster, source in self.clusters.alone:
            share = self.clusters.shares[source, cluster]
            center = center_text(self.design, self.clusters.centers[cluster])
            found.append(
                f"only {self.sources[source].source} has cluster {cluster + 1}, {share:.0%} of its "
                f"records: {center}"
            )
        return found

    def merge_lines(self) -> list[str]:
        """What who merges should know: alarms, clusters of one source, who differs."""
        lines = [f"ALARM       {line}" for line in self.alarm_lines()]
        lines += [f"clusters    {line}" for line in self.cluster_lines()]
        differing = [one for one in self.sources if one.differs and not one.is_alarm]
        unlike = [one.source for one in differing if not one.has_own_shares]
        if unlike:
            lines.append(
                f"sources     unlike the others: {_names(unlike)}; privsketch compare says more"
            )
        shares = [one.source for one in differing if one.has_own_shares]
        if shares:
            lines.append(f"sources     other shares of the same clusters: {_names(shares)}")
        return lines or ["sources     like each other, but for noise and sampling"]

    def describe(self) -> str:
        """The comparison in plain words, several lines."""
        width = max(6, min(24, max(len(one.source) for one in self.sources)))
        lines = [f"{'source':<{width}}  {'records':>9}  {'unlike':>6}  verdict"]
        for one in self.sources[:SHOWN_SOURCES]:
            count = "-" if one.n_records is None else f"{one.n_records:,.0f}"
            unlike = f"{one.difference:.0%}" if one.differs else "-"
            name = one.source if len(one.source) <= width else one.source[: width - 1] + "…"
            mark = "ALARM " if one.is_alarm else ""
            lines.append(f"{name:<{width}}  {count:>9}  {unlike:>6}  {mark}{one.words()}")
        if len(self.sources) > SHOWN_SOURCES:
            lines.append(f"... and {len(self.sources) - SHOWN_SOURCES} more sources")
        lines += self.cluster_lines()
        if self.clusters is not None and len(self.sources) <= SHOWN_SOURCES:
            lines += ["", *self._share_lines(width)]
        if len(self.sources) == 2:
            lines.append("two sketches can tell that they differ, not which of them is odd")
        return "\n".join([*lines, *self.notes])

    def _share_lines(self, width: int) -> list[str]:
        if self.clusters is None:
            return []
        k = min(self.clusters.shares.shape[1], 8)
        more = "  ..." if k < self.clusters.shares.shape[1] else ""
        head = "".join(f"{f'{c + 1}':>8}" for c in range(k))
        lines = [f"{'shares of clusters':<{width + 11}}{head}{more}"]
        for one, shares in zip(self.sources, self.clusters.shares, strict=True):
            name = one.source if len(one.source) <= width else one.source[: width - 1] + "…"
            lines.append(f"{name:<{width + 11}}" + "".join(f"{s:>8.0%}" for s in shares[:k]))
        return lines

    def _repr_html_(self) -> str:
        facts = [
            (one.source, f"{'ALARM ' * one.is_alarm}{one.words()}")
            for one in self.sources[:SHOWN_SOURCES]
        ]
        more = len(self.sources) - SHOWN_SOURCES
        facts += [("", f"{more} more sources")] if more > 0 else []
        facts += [("", line) for line in (*self.cluster_lines(), *self.notes)]
        return shown("Sources beside each other", facts, *self._share_table())

    def _share_table(self) -> list[str]:
        if self.clusters is None:
            return []
        clusters = [f"{c + 1}" for c in range(self.clusters.shares.shape[1])]
        shares = [[f"{share:.0%}" for share in row] for row in self.clusters.shares]
        return [table("shares of clusters", [one.source for one in self.sources], clusters, shares)]

    def to_json(self) -> dict[str, Any]:
        """The comparison as plain JSON values."""
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
            "sources": [one.to_json() for one in self.sources],
            "alarms": [one.source for one in self.alarms],
            "clusters": clusters,
            "notes": list(self.notes),
        }

    def plot(self) -> Any:
        """A matplotlib figure: how unlike the sources are, and their shares of clusters."""
        from privsketch.pages.comparison.page import picture_of

        return picture_of(self)


def _names(sources: Sequence[str]) -> str:
    return ", ".join(sources[:8]) + (", ..." if len(sources) > 8 else "")


def center_text(design: Design, center: Floats) -> str:
    """A center in the units of the table, its first columns."""
    if design.schema is None:
        names: Sequence[str] = design.columns or [f"column {j + 1}" for j in range(design.dim)]
        told = [f"{n} {digits(float(x))}" for n, x in zip(names, center, strict=True)]
    else:
        fields = field_values(design.schema, center[np.newaxis])[0]
        told = [
            f"{name} {written(column, float(value))}"
            for column, place in field_columns(design.schema)
            for name, value in zip(column.fields, fields[place], strict=True)
        ]
    more = ", ..." if len(told) > SHOWN_FIELDS else ""
    return ", ".join(told[:SHOWN_FIELDS]) + more
