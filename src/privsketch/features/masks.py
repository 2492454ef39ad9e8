"""Masks: which features of a record, and which records, enter the sums (CLP section 5); and the
base class of all bounds on what a masked record adds to them.

A mask belongs to one record. It is drawn for that record alone, from the operating system's
generator, and never published. A mask that followed from the row number would change for all later
rows when a record leaves. Only the law of the masks is public; it is defined here.

- "uniform": `kept` of the m features of a record, every subset alike (r of m);
- "block": whole blocks of neighbouring features, `kept` features in all, which saves the
  work for the others; a block has as many features as a record has columns (structured
  frequencies: the power of two above, at least 64);
- "poisson": every feature with probability `rate`, independently;
- records: every record with probability `records`, independently, with any of these.

Sums are divided by the rates afterwards, so that their expectation stays the same.

A `Contribution` bounds what one record adds to the sums, in the norms that noise needs. Each
feature map has its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, Literal, get_args

from privsketch._base.errors import ParameterError, require_count
from privsketch.facts.budget import Neighbours
from privsketch.features.fixedpoint import RECORD_MAX

FeatureMasks = Literal["all", "uniform", "block", "poisson"]
FEATURE_MASKS: tuple[FeatureMasks, ...] = get_args(FeatureMasks)
RATE_BITS = 64  # a rate is a multiple of 2^-64, so that one comparison of 64 bits is exact


@dataclass(frozen=True)
class Masks:
    """Public law of the secret masks.

    Parameters
    ----------
    features : {"all", "uniform", "block", "poisson"}
        How features of a record are kept.
    kept : int, optional
        Number of features kept of every record, for "uniform" and "block".
    rate : float, optional
        Probability that a feature is kept, for "poisson".
    records : float
        Probability that a record is kept; 1 keeps all.

    Examples
    --------
    >>> import privsketch as ps
    >>> ps.Masks("uniform", kept=100)
    Masks(features='uniform', kept=100, rate=None, records=1.0)
    >>> ps.Masks.parse("poisson:0.1+records:0.5").describe()
    'each feature of a record with probability 0.1, each record with probability 0.5'
    """

    features: FeatureMasks = "all"
    kept: int | None = None
    rate: float | None = None
    records: float = 1.0

    def __post_init__(self) -> None:
        if self.features not in FEATURE_MASKS:
            names = ", ".join(map(repr, FEATURE_MASKS))
            raise ParameterError(f"masks: `features={self.features!r}`, expected one of {names}")
        if self.features in ("uniform", "block"):
            object.__setattr__(self, "kept", require_count("masks: kept", self.kept))
        elif self.kept is not None:
            raise ParameterError(
                f"masks: `kept={self.kept!r}` goes with 'uniform' and 'block' only"
            )
        if self.features == "poisson":
            object.__setattr__(self, "rate", _checked_rate("rate", self.rate))
        elif self.rate is not None:
            raise ParameterError(f"masks: `rate={self.rate!r}` goes with 'poisson' only")
        object.__setattr__(self, "records", _checked_rate("records", self.records))

    @classmethod
    def parse(cls, value: Masks | str | Mapping[str, Any] | None) -> Masks | None:
        """Parse masks that people write; return None if nothing is left out.

        Texts are parts joined by "+": "uniform:100", "block:512", "poisson:0.1" for
        features, "records:0.5" for records.
        """
        if isinstance(value, Mapping):
            unknown = set(value) - {field.name for field in fields(cls)}
            if unknown:
                raise ParameterError(f"masks: unknown {', '.join(sorted(map(str, unknown)))}")
            value = cls(**value)
        elif isinstance(value, str):
            value = _from_text(value)
        if value is None or value == cls():
            return None
        if not isinstance(value, cls):
            raise ParameterError("masks", value, _EXPECTED)
        return value

    def checked(self, n_features: int, block: int) -> Masks:
        """Return these masks if they fit a sketch of this size in blocks; raise otherwise."""
        kept = self.kept or 0
        if kept > n_features:
            raise ParameterError(
                f"masks: `kept={kept}` of {n_features} features; keep at most all of them"
            )
        if self.features == "block" and (n_features % block or kept % block):
            nearest = max(1, round(kept / block)) * block
            raise ParameterError(
                f"masks: blocks have {block} features in this design; `kept={kept}` and "
                f"`n_features={n_features}` must be multiples of it, such as {nearest} of "
                f"{max(-(-n_features // block) * block, nearest)}"
            )
        return self

    def feature_rate(self, n_features: int) -> float:
        """Return the probability that a feature of a kept record is kept."""
        if self.kept is not None:
            return self.kept / n_features
        return 1.0 if self.rate is None else self.rate

    def total_rate(self, n_features: int) -> float:
        """Return the probability that a feature of a record is kept."""
        return self.feature_rate(n_features) * self.records

    def describe(self) -> str:
        """Describe the masks in one line."""
        features = {
            "all": "",
            "uniform": f"{self.kept} features of a record, drawn uniformly",
            "block": f"{self.kept} features of a record, in whole blocks drawn uniformly",
            "poisson": f"each feature of a record with probability {self.rate:g}"
            if self.rate is not None
            else "",
        }[self.features]
        records = f"each record with probability {self.records:g}" if self.records < 1 else ""
        texts = [text for text in (features, records) if text]
        return ", ".join(texts) or "all features of all records"

    def to_json(self) -> dict[str, Any]:
        """Return the masks as plain JSON values."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


_EXPECTED = (
    "expected Masks(...), or a text like 'uniform:100', 'block:512', 'poisson:0.1', "
    "'records:0.5' or 'poisson:0.1+records:0.5'"
)


def _from_text(text: str) -> Masks:
    """Parse masks from parts like "uniform:100" joined by "+"."""
    options: dict[str, Any] = {}
    for part in text.split("+"):
        name, _, number = (piece.strip() for piece in part.partition(":"))
        if name in ("none", "all", "") and not number and "+" not in text:
            return Masks()
        try:
            if name in ("uniform", "block"):
                entry: dict[str, Any] = {"features": name, "kept": int(number)}
            elif name == "poisson":
                entry = {"features": name, "rate": float(number)}
            elif name == "records":
                entry = {"records": float(number)}
            else:
                raise ValueError(name)
        except ValueError:
            raise ParameterError("masks", text, _EXPECTED) from None
        if set(entry) & set(options):
            raise ParameterError("masks", text, "features or records are named twice")
        options.update(entry)
    return Masks(**options)


def _checked_rate(name: str, rate: Any) -> float:
    """Round a rate down to a multiple of 2^-64, for sampler and calibration alike."""
    try:
        value = float(rate)
    except (TypeError, ValueError):
        value = math.nan
    if isinstance(rate, bool) or not 2.0**-RATE_BITS <= value <= 1.0:
        raise ParameterError(f"masks: {name}={rate!r}, expected a probability above 0, up to 1")
    return math.floor(value * 2.0**RATE_BITS) / 2.0**RATE_BITS


@dataclass(frozen=True, eq=False)
class Contribution:
    """Bounds of what one record adds to the sums, before noise.

    `signed` says whether a record can add the opposite of what another one adds, `maskable` whether
    features can be masked, `divided_by_count` whether learners divide the sums by the number of
    records.

    Attributes
    ----------
    n_values : int
        Number of integers of a sketch, without mean and count.
    dim : int
        Number of columns.
    largest : int
        Largest component of one record.
    feature_l1 : int
        Largest L1 norm of one feature.
    """

    n_values: int
    dim: int
    largest: int
    feature_l1: int

    signed = True
    maskable = False
    divided_by_count = False

    def l1(self, masks: Masks | None) -> int:
        """Return the largest L1 norm of a masked record."""
        raise NotImplementedError

    def l1_replaced(self, masks: Masks | None) -> int:
        """Return the largest L1 norm of a difference of two masked records."""
        return 2 * self.l1(masks)

    def l2_squared(self, masks: Masks | None, neighbours: Neighbours) -> int:
        """Return the largest squared L2 norm of a masked record, or of a difference of two."""
        raise NotImplementedError

    def mean_l2_squared(self, weight: int | Fraction, neighbours: Neighbours) -> int:
        """Return what `weight` times the coordinates of a ball adds to `l2_squared`.

        A record has a norm of at most RECORD_MAX, a difference of two twice that.
        """
        factor = 1 if neighbours == "add-remove" else 2
        return math.ceil(Fraction(factor * weight * RECORD_MAX) ** 2)

    def linf(self, neighbours: Neighbours) -> int:
        """Return the largest component of a record, or of a difference of two."""
        raise NotImplementedError

    def l1_by_mask(self, masks: Masks | None) -> tuple[int, ...] | None:
        """Return the largest L1 norm for each of a few equally likely masks; None otherwise."""
        return None

    def feature_l2_squared(self) -> int | None:
        """Return the largest squared L2 norm of a feature, if all can attain it at once."""
        return None
