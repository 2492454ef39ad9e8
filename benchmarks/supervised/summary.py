"""How often intervals of a summary hold: generated records, new ones and new noise in each run.

    python -m benchmarks supervised summary                       1,000 runs of every case
    python -m benchmarks supervised summary --runs 400 --cases pure replace

True are means, shares and correlations of the population, and the numbers of records that were in
the sketch. One label is rare, with 2 % of the records. In the case "persons" a person has three
equal records. In the case "spreads" groups differ in their standard deviations, 0.5 to 2, which a
sketch of second moments cannot know: means in groups are then not covered as they should.

Columns of the table: coverage of 95 % intervals of means, of shares, of means in groups and the
least and largest over groups, of shares in groups, of correlations and covariances, of standard
deviations, and of sizes; and the share of means in groups that noise drowns.
"""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]

import privsketch as ps
from benchmarks.common import markdown, parser_of
from privsketch._base.types import Floats

WARDS = ("A", "B", "C", "D")
SHARES = np.array([0.5, 0.3, 0.18, 0.02])
OFFSETS = np.array([0.0, 0.8, -0.6, 0.5])  # of x in each ward
RATES = np.array([0.2, 0.5, 0.35, 0.7])  # of yes in each ward
SLOPE, LOG_SLOPE = 0.6, 0.3
SPREADS = np.array([0.5, 1.0, 1.5, 2.0])
COLUMNS = [
    ps.Number("x", -6, 6),
    ps.Number("y", -6, 6),
    ps.Number("z", 0.001, 1000, scale="log"),
    ps.Category("ward", WARDS),
    ps.Flag("ill"),
]


@dataclass(frozen=True)
class Case:
    """A release of the generated world."""

    n_records: int = 6000
    epsilon: float = 1.0
    delta: float = 1e-6
    neighbours: str = "add-remove"
    repetition: int = 1
    spreads: bool = False

    @property
    def design(self) -> ps.Design:
        """The design of the release."""
        rules: dict[str, Any] = {}
        if self.repetition > 1:
            rules = {"person": "person", "max_records": self.repetition}
        budget = ps.Budget(epsilon=self.epsilon, delta=self.delta, neighbours=self.neighbours)  # type: ignore[arg-type]
        return ps.Design.plan(
            task="regression",
            domain=ps.Schema(COLUMNS, **rules),
            budget=budget,
            n_records=self.n_records,
            random_state=0,
        )

    @property
    def deviations(self) -> Floats:
        """Standard deviation of x in each ward."""
        return SPREADS if self.spreads else np.ones(len(WARDS))


CASES = {
    "gaussian": Case(),
    "replace": Case(neighbours="replace"),
    "pure": Case(delta=0.0),
    "pure replace": Case(delta=0.0, neighbours="replace"),
    "few": Case(n_records=1500),
    "many": Case(n_records=50_000, epsilon=0.3),
    "persons": Case(n_records=18_000, repetition=3),
    "spreads": Case(n_records=50_000, spreads=True),
}


def draw(case: Case, rng: np.random.Generator) -> Any:
    """Draw a table."""
    size = case.n_records // case.repetition
    ward = rng.choice(len(WARDS), size, p=SHARES)
    x = OFFSETS[ward] + case.deviations[ward] * rng.normal(size=size)
    columns: dict[str, Any] = {
        "x": x,
        "y": SLOPE * x + rng.normal(size=size),
        "z": np.exp(LOG_SLOPE * x + rng.normal(size=size)),
        "ward": np.array(WARDS)[ward],
        "ill": rng.random(size) < RATES[ward],
    }
    if case.repetition > 1:
        columns["person"] = np.arange(size)
    return pd.DataFrame({name: np.repeat(c, case.repetition) for name, c in columns.items()})


@dataclass(frozen=True)
class Truth:
    """The population: means and deviations of x, y, log z, and correlations."""

    means: dict[str, float]
    groups: dict[tuple[str, str], float]  # by field and ward
    correlations: dict[tuple[str, str], tuple[float, float]]
    deviations: dict[str, float]


def truth_of(case: Case) -> Truth:
    """Return the population's values; no bound is within reach of its records."""
    mean = float(SHARES @ OFFSETS)
    variance = float(SHARES @ (case.deviations**2 + OFFSETS**2)) - mean**2
    slopes = {"x": 1.0, "y": SLOPE, "z": LOG_SLOPE}
    ends = {"x": float, "y": float, "z": math.exp}
    means = {name: ends[name](slope * mean) for name, slope in slopes.items()}
    means |= {f"ward={w}": float(share) for w, share in zip(WARDS, SHARES, strict=True)}
    means |= {"ward=other": 0.0, "ill": float(SHARES @ RATES)}
    groups: dict[tuple[str, str], float] = {}
    for ward, offset, rate in zip(WARDS, OFFSETS, RATES, strict=True):
        groups |= {(n, ward): ends[n](slope * offset) for n, slope in slopes.items()}
        groups["ill", ward] = float(rate)
    deviations = {"x": math.sqrt(variance)}
    deviations |= {n: math.sqrt(slopes[n] ** 2 * variance + 1) for n in ("y", "z")}
    pairs = {}
    for one, other in (("x", "y"), ("x", "z"), ("y", "z")):
        covariance = slopes[one] * slopes[other] * variance
        pairs[one, other] = covariance / deviations[one] / deviations[other], covariance
    return Truth(means, groups, pairs, {**deviations, "z": math.exp(deviations["z"])})


def run(case: Case, runs: int, seed: int = 0) -> dict[str, list[float]]:
    """Release, learn and compare with the truth, so many times; return hits by kind."""
    truth, design = truth_of(case), case.design
    hits: dict[str, list[float]] = defaultdict(list)
    for number in range(runs):
        table = draw(case, np.random.default_rng([seed, number]))
        model = ps.learn_summary(ps.sketch(table, design))
        compare(model, table, truth, hits)
    return hits


def compare(model: ps.SummaryModel, table: Any, truth: Truth, hits: dict[str, list[float]]) -> None:
    """Note which intervals of one model hold; NaN where there is none."""

    def note(kind: str, value: float, row: Any, prefix: str = "") -> None:
        low, high = row[f"{prefix}low"], row[f"{prefix}high"]
        hits[kind].append(math.nan if math.isnan(low) else float(low <= value <= high))

    whole, groups = model.table().set_index("name"), model.table(by="ward")
    for name, value in truth.means.items():
        kind = "shares" if name == "ill" or name.startswith("ward") else "means"
        note(kind, value, whole.loc[name])
    for name, value in truth.deviations.items():
        note("deviations", value, whole.loc[name], "sd_")
    for (name, ward), value in truth.groups.items():
        kind = "group shares" if name == "ill" else f"group {ward}"
        note(kind, value, groups[ward].loc[name])
    note("sizes", len(table), whole.loc["records"])
    for ward in WARDS:
        note("sizes", int((table.ward == ward).sum()), groups[ward].loc["records"])
    for _, row in model.correlations().iterrows():
        correlation, covariance = truth.correlations[row["name"], row["other"]]
        note("correlations", correlation, row)
        note("covariances", covariance, row, "covariance_")


def line_of(name: str, hits: dict[str, list[float]]) -> list[str]:
    """Return a line of the table."""

    def mean(kind: str) -> float:
        known = [hit for hit in hits[kind] if not math.isnan(hit)]
        return float(np.mean(known)) if known else math.nan

    groups = [f"group {ward}" for ward in WARDS]
    together = [hit for kind in groups for hit in hits[kind]]
    hits["group means"], by_group = together, [mean(kind) for kind in groups]
    known = [value for value in by_group if not math.isnan(value)]
    ends = f" [{min(known):.3f}, {max(known):.3f}]" if known else ""
    kinds = ("correlations", "covariances", "deviations", "sizes")
    return [
        name,
        *(f"{mean(kind):.3f}" for kind in ("means", "shares")),
        f"{mean('group means'):.3f}{ends}",
        f"{mean('group shares'):.3f}",
        *(f"{mean(kind):.3f}" for kind in kinds),
        f"{np.isnan(together).mean():.1%}",
    ]


HEADINGS = (
    *("case", "means", "shares", "group means", "group shares", "correlations", "covariances"),
    *("deviations", "sizes", "drowned"),
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the cases that are asked for, and print a table."""
    parser = parser_of(__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--cases", nargs="*", choices=sorted(CASES), default=list(CASES))
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")  # of designs with few records
    lines = []
    for name in options.cases:
        lines.append(line_of(name, run(CASES[name], options.runs)))
        print("; ".join(lines[-1]), flush=True)
    print(markdown(HEADINGS, lines))


if __name__ == "__main__":
    main()
