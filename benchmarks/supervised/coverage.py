"""How often intervals of a regression hold: generated records, new ones and new noise in each run.

    python -m benchmarks supervised coverage                  1,000 runs of every case
    python -m benchmarks supervised coverage --runs 300 --cases plain replace

Records are linear with errors of one variance. True are the coefficients of the population. Pure
cases have taxicab moments. A case whose coefficients are not identified is flagged by
the model itself; the table says in how many runs, and how often a run has no intervals at all.

Columns of the table: coverage of 95 % intervals of all coefficients that have one, and the least
and largest over coefficients; of the posterior; of prediction intervals for new records; of
partial correlations, and of R^2 of the model itself; root mean square errors of the estimate and of
the posterior mean.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import privsketch as ps
from benchmarks.common import markdown, parser_of
from benchmarks.supervised.results import publish
from privsketch._base.types import Floats
from privsketch.models.regression import RegressionModel

WIDTH = 1.959963984540054  # of a 95 % interval, in standard errors
N_NEW = 2000  # records whose targets are predicted
SLOPES = np.array([0.22, -0.15, 0.1, 0.0, 0.07, -0.05, 0.12, 0.03])
STEPS = np.array([0.0, 0.15, -0.1, 0.05, 0.1, -0.05, 0.0, 0.08])  # of labels


@dataclass(frozen=True)
class Case:
    """A generated world, and a release of it."""

    n_records: int = 20_000
    n_numbers: int = 5
    labels: tuple[float, ...] = ()  # shares of the labels of a category
    offset: float = 0.0  # of all numbers from the middle of their bounds
    stretch: float = 1.0  # of numbers before they are clipped
    residual: float = 0.12  # standard deviation of the errors
    epsilon: float = 1.0
    delta: float = 1e-6
    neighbours: str = "add-remove"
    persons: bool = False  # several rows each, one of which counts, and missing values

    @property
    def schema(self) -> ps.Schema:
        """Schema in which all columns have the same weight: the planner weights the target."""
        columns: list[Any] = [ps.Number(f"x{j + 1}", -1, 1) for j in range(self.n_numbers)]
        if self.labels:
            names = [f"l{j}" for j in range(len(self.labels))]
            rule: Any = "category" if self.persons else None
            columns.append(ps.Category("label", names[: -1 or None], missing=rule))
        columns.append(ps.Number("y", -1, 1))
        if not self.persons:
            return ps.Schema(columns)
        return ps.Schema(columns, missing="drop", person="person")


CASES = {
    "plain": Case(),
    "replace": Case(neighbours="replace"),
    "labels": Case(n_numbers=4, labels=(0.4, 0.3, 0.2, 0.1)),
    "off center": Case(offset=0.4),
    "eps .1": Case(epsilon=0.1),
    "pure": Case(labels=(0.4, 0.3, 0.2, 0.1), delta=0.0),
    "pure, eps .3": Case(n_records=50_000, labels=(0.4, 0.3, 0.2, 0.1), epsilon=0.3, delta=0.0),
    "persons": Case(n_numbers=1, labels=(0.5, 0.3, 0.2), persons=True),
    "1 % clipped": Case(offset=0.25, stretch=0.8),
    "rare labels": Case(
        n_numbers=4, labels=(0.4, 0.3, 0.2, 0.09955, 0.00015, 0.00015, 0.00015, 0.0)
    ),
    "6 % clipped": Case(offset=0.25, stretch=0.9),
    "weak": Case(n_records=10_000, epsilon=0.1),
    "mostly weak": Case(n_records=5000, n_numbers=8, epsilon=0.2),
    "drowned": Case(n_records=3000, n_numbers=8, epsilon=0.1),
}


@dataclass
class Tally:
    """What the runs of a case said."""

    hits: dict[str, list[Any]] = field(default_factory=dict)

    def add(self, name: str, value: Any) -> None:
        """Note the outcome of one run."""
        self.hits.setdefault(name, []).append(value)

    def mean(self, name: str) -> float:
        """Return the mean over runs and coefficients; NaN without any."""
        values = np.concatenate([np.ravel(one) for one in self.hits.get(name, [np.nan])])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return float(np.nanmean(values))

    def rates(self, name: str) -> Floats:
        """Return means over runs for each coefficient."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return np.asarray(np.nanmean(np.array(self.hits[name], dtype=np.float64), axis=0))


def draw(case: Case, n_records: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return numbers and labels (n, n_numbers [+ 1]) and means of targets (n,), not clipped."""
    common = rng.uniform(-1, 1, (n_records, 1))
    numbers = 0.7 * rng.uniform(-1, 1, (n_records, case.n_numbers)) + 0.3 * common
    numbers = case.offset + (1 - case.offset if case.stretch == 1 else case.stretch) * numbers
    target = (numbers - case.offset) @ SLOPES[: case.n_numbers]
    if case.labels:
        labels = rng.choice(len(case.labels), size=n_records, p=case.labels)
        target = target + STEPS[labels]
        numbers = np.column_stack([numbers, labels])
    return numbers, target


def table_of(case: Case, rows: Floats, targets: Floats, rng: np.random.Generator) -> Any:
    """Return records as a table of the schema's columns."""
    import pandas as pd  # type: ignore[import-untyped]

    columns: dict[str, Any] = {f"x{j + 1}": rows[:, j] for j in range(case.n_numbers)}
    if case.labels:
        names = np.array([f"l{j}" for j in range(len(case.labels))], dtype=object)
        columns["label"] = names[rows[:, case.n_numbers].astype(int)]
    columns["y"] = targets
    if case.persons:
        columns["person"] = rng.integers(0, len(rows) // 3, len(rows))
        columns["x1"] = np.where(rng.random(len(rows)) < 0.03, np.nan, columns["x1"])
        columns["label"] = np.where(rng.random(len(rows)) < 0.05, None, columns["label"])
    return pd.DataFrame(columns)


def true_values(case: Case, model: RegressionModel) -> Floats:
    """Return the population's coefficients of the terms of a model; NaN where there are none.

    A label "missing" stands for the mean of the others, "other" for the last one.
    """
    truth = dict(zip((f"x{j + 1}" for j in range(case.n_numbers)), SLOPES, strict=False))
    steps = {f"l{j}": STEPS[j] for j in range(len(case.labels))}
    if case.labels:
        steps["other"] = steps.pop(f"l{len(case.labels) - 1}")
        steps["missing"] = float(np.dot(case.labels, STEPS[: len(case.labels)]))
    for name, against in zip(model.names, model.against, strict=True):
        if against:
            truth[name] = steps[name.partition("=")[2]] - steps[against]
    return np.array([truth[name] for name in model.names])


def true_partial(case: Case, rng: np.random.Generator) -> Floats:
    """Return partial correlations of numbers in the population without clipping."""
    rows, means = draw(case, 400_000, rng)
    numbers = rows[:, : case.n_numbers]
    if case.labels:
        labels = rows[:, case.n_numbers, None] == np.arange(1, len(case.labels))
        numbers = np.column_stack([numbers, labels[:, labels.any(axis=0)]])
    covariance = np.cov(np.column_stack([numbers, means]).T)
    covariance[-1, -1] += case.residual**2
    inverse = np.linalg.inv(covariance)
    partial = -inverse[:-1, -1] / np.sqrt(np.diag(inverse)[:-1] * inverse[-1, -1])
    return np.asarray(partial[: case.n_numbers])


def run(case: Case, runs: int, seed: int = 0) -> Tally:
    """Release, learn and compare with the truth, so many times."""
    budget = ps.Budget(epsilon=case.epsilon, delta=case.delta, neighbours=case.neighbours)  # type: ignore[arg-type]
    design = ps.Design.plan(
        task="regression",
        target="y",
        domain=case.schema,
        budget=budget,
        n_records=case.n_records,
        random_state=0,
    )
    partial = true_partial(case, np.random.default_rng(seed))
    new, means = draw(case, N_NEW, np.random.default_rng([seed, runs]))
    encoded = None
    tally = Tally()
    for number in range(runs):
        rng = np.random.default_rng([seed, number])
        rows, targets = draw(case, case.n_records, rng)
        targets += case.residual * rng.normal(size=case.n_records)
        model = ps.learn_regression(ps.sketch(table_of(case, rows, targets, rng), design), "y")
        compare(case, model, tally, partial)
        outside = np.abs(np.column_stack([rows[:, : case.n_numbers], targets])) > 1
        tally.add("clipped", float(outside.any(axis=1).mean()))
        if case.persons:
            continue
        if encoded is None:
            table = table_of(case, new, means, rng).drop(columns="y")
            encoded = ps.encode(table, model.schema)  # type: ignore[arg-type]
        answers = means + case.residual * rng.normal(size=N_NEW)
        interval = model.predict_interval(encoded)
        held = (interval[:, 0] <= answers) & (answers <= interval[:, 1])
        tally.add("prediction", float(held.mean()))
        if not model.drowned:
            left = case.residual**2 + float(np.square(model.predict(encoded) - means).mean())
            r2 = 1 - left / (case.residual**2 + float(means.var()))
            tally.add("r2", float(abs(model.r2 - max(r2, 0.0)) <= WIDTH * model.r2_error))
    return tally


def compare(case: Case, model: RegressionModel, tally: Tally, partial: Floats) -> None:
    """Note which intervals of one model hold."""
    truth = true_values(case, model)
    interval = model.interval()
    held = np.where(
        np.isnan(interval[:, 0]), np.nan, (interval[:, 0] <= truth) & (truth <= interval[:, 1])
    )
    by_name = dict(zip(model.names, held, strict=True))
    for name, value in by_name.items():
        tally.add(f"term {name}", value)
    tally.add("estimate", held)
    identified = model.is_identified
    spread = np.sqrt(np.diag(model.spread))
    tally.add(
        "posterior", np.where(identified, np.abs(model.coef - truth) <= WIDTH * spread, np.nan)
    )
    tally.add("posterior rmse", np.where(identified, (model.coef - truth) ** 2, np.nan))
    estimate = np.full(len(truth), np.nan) if model.estimate is None else model.estimate
    tally.add("rmse", np.where(identified, (estimate - truth) ** 2, np.nan))
    # Missing labels make another population, whose partial correlations are not those of `draw`.
    numbers = () if case.persons else model.names[: case.n_numbers]
    for name, value in zip(numbers, partial, strict=False):
        _, low, high = model.partial_correlation(name)
        tally.add("partial", np.nan if math.isnan(low) else float(low <= value <= high))
    tally.add("flagged", float(bool(model.concerns)))
    tally.add("drowned", float(model.drowned))


def line_of(name: str, tally: Tally) -> list[str]:
    """Return a line of the table."""
    terms = [tally.mean(key) for key in tally.hits if key.startswith("term ")]
    known = [value for value in terms if not math.isnan(value)]
    ends = f" [{min(known):.3f}, {max(known):.3f}]" if known else ""
    names = ("posterior", "prediction", "partial", "r2")
    errors = [math.sqrt(tally.mean(key)) for key in ("rmse", "posterior rmse")]
    return [
        name,
        f"{tally.mean('estimate'):.3f}{ends}",
        *(f"{tally.mean(key):.3f}" for key in names),
        " / ".join(f"{error:.4f}" for error in errors),
        f"{tally.mean('clipped'):.1%}",
        f"{tally.mean('flagged'):.1%}",
        f"{tally.mean('drowned'):.1%}",
    ]


HEADINGS = (
    *("case", "coefficients", "posterior", "prediction", "partial r", "R^2"),
    *("rmse, posterior rmse", "clipped", "flagged", "no intervals"),
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the cases that are asked for, and print a table."""
    parser = parser_of(__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--cases", nargs="*", choices=sorted(CASES), default=list(CASES))
    parser.add_argument("--write", action="store_true", help="write results/supervised.md")
    options = parser.parse_args(arguments)
    lines = []
    for name in options.cases:
        lines.append(line_of(name, run(CASES[name], options.runs)))
        print("; ".join(lines[-1]), flush=True)
    print(markdown(HEADINGS, lines))
    if options.write:
        publish("coverage", markdown(HEADINGS, lines))


if __name__ == "__main__":
    main()
