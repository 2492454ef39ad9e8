"""Clusters of random tables with categories and flags: shares, their errors, and the cost.

    python -m benchmarks labels --output labels.csv                100 random tables
    python -m benchmarks labels --first 40 --studies 8 --output labels.csv
    python -m benchmarks labels --real --output labels.csv         three real tables as well
    python -m benchmarks labels --read labels.csv other.csv        tables from files of results

A study is drawn from its number alone, its noise is not. There are four kinds of tables. In
"product" tables the columns of a cluster are independent, in "correlated" ones its numbers are not,
in "dependent" ones labels follow a number inside of a cluster, and "messy" ones have spikes,
skewed and whole numbers. Files are appended to, line by line: a run that was stopped goes on, and
studies that a file has are not repeated.

The truth about a cluster is that of the records nearest to its released center. Errors of shares
are in percentage points, those of numbers in percent of a column's range, over clusters of at
least 1 % of the records. A study is *usable* if k noises of the sketch are below 0.8 of the
records. Real tables are files of pydataset (requirements-data.txt).
"""

from __future__ import annotations

import csv
import io
import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.cluster import KMeans

import privsketch as ps
from benchmarks.common import markdown, parser_of
from benchmarks.datasets import squared_error
from benchmarks.regret.real.table import PYDATASET, Table
from privsketch._base.types import Floats

KINDS = ("product", "correlated", "dependent", "messy")
BUDGETS = ((0.1, 1e-6), (0.2, 1e-6), (0.5, 1e-6), (1.0, 1e-6), (2.0, 1e-6), (1.0, 0.0))
COUNTED_KINDS = ("product", "correlated")  # whose number of clusters is known
USABLE = 0.8  # k noises over the records
LEAST_SHARE = 0.01  # of a cluster whose errors count
NINETY = 1.6449  # standard errors of a 90 % interval
REFERENCE_RECORDS = 20_000  # of k-means with several starts; the best goes on with all


@dataclass(frozen=True)
class Study:
    """A table with what is public about it."""

    name: str
    kind: str
    n_clusters: int
    epsilon: float
    delta: float
    seed: int
    schema: ps.Schema
    columns: dict[str, Any]  # cells by column


def drawn(number: int) -> Study:
    """Draw a study from its number."""
    rng = np.random.default_rng([number, 3303])
    kind, weight = KINDS[number % 4], (0.3, 1.0)[number // 4 % 2]
    k, n = int(rng.integers(2, 11)), int(5e3 * 40 ** rng.random())
    epsilon, delta = BUDGETS[rng.integers(len(BUDGETS))]
    z = rng.choice(k, n, p=0.4 / k + 0.6 * rng.dirichlet(np.full(k, 3.0)))
    numbers = _numbers(kind, z, k, int(rng.integers(3, 9)), rng)
    columns: dict[str, Any] = {}
    described: list[Any] = []
    for j, values in enumerate(numbers.T):
        columns[f"x{j}"] = values
        described.append(ps.Number(f"x{j}", 0, 100))
    # What labels follow inside of a cluster of a "dependent" table: whether a number is high.
    means = np.bincount(z, numbers[:, 0], k) / np.maximum(np.bincount(z, minlength=k), 1)
    group = 2 * z + (numbers[:, 0] > means[z]) if kind == "dependent" else z
    for j in range(int(rng.integers(1, 4))):
        values = [f"v{i}" for i in range(int(rng.integers(1, 20)))]
        shares = rng.dirichlet(np.full(len(values) + 1, rng.uniform(0.3, 1.5)), 2 * k)
        columns[f"c{j}"] = np.array([*values, "unlisted"])[_labels(shares[group], rng)]
        described.append(ps.Category(f"c{j}", values, weight=weight))
    for j in range(int(rng.integers(0, 3))):
        columns[f"f{j}"] = rng.random(n) < rng.beta(0.7, 0.7, 2 * k)[group]
        described.append(ps.Flag(f"f{j}", weight=weight))
    schema = ps.Schema(described)
    return Study(f"{number}", kind, k, epsilon, delta, number, schema, columns)


def _numbers(kind: str, z: Any, k: int, dim: int, rng: np.random.Generator) -> Floats:
    """Return numbers (n, dim) between 0 and 100 for records of clusters z."""
    centers, widths = rng.uniform(15, 85, (k, dim)), rng.uniform(3, 10, (k, dim))
    noise = rng.standard_normal((len(z), dim))
    if kind == "correlated":
        for cluster in range(k):
            rotation, _ = np.linalg.qr(rng.standard_normal((dim, dim)))
            noise[z == cluster] = noise[z == cluster] * rng.uniform(0.3, 1.7, dim) @ rotation
    if kind == "messy":
        noise[:, 0] = np.exp(0.8 * noise[:, 0]) - 1  # skewed
    values = centers[z] + widths[z] * noise
    if kind == "messy":
        values[:, 1] = 20 * np.rint(values[:, 1] / 20)  # six whole numbers
        values[rng.random(len(z)) < 0.15, 2] = 0.0  # a spike
    return np.asarray(np.clip(values, 0, 100))


def _labels(shares: Floats, rng: np.random.Generator) -> Any:
    """Return a label for each row of shares."""
    index = (np.cumsum(shares, axis=1) < rng.random((len(shares), 1))).sum(axis=1)
    return np.minimum(index, shares.shape[1] - 1)


# Columns of real tables: the file, its columns, the number of clusters that is asked for.
REAL: dict[str, tuple[str, list[Any], int]] = {
    "diamonds": (
        "ggplot2/diamonds.csv",
        [
            ps.Number("carat", 0.2, 5, scale="log"),
            ps.Number("price", 300, 20_000, scale="log"),
            ps.Number("depth", 50, 75),
            ps.Number("table", 50, 75),
            ps.Category("cut", ["Fair", "Good", "Very Good", "Premium", "Ideal"]),
            ps.Category("color", list("DEFGHIJ")),
            ps.Category("clarity", ["I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"]),
        ],
        8,
    ),
    "health insurance": (
        "Ecdat/HI.csv",
        [
            ps.Number("whrswk", 0, 80),
            ps.Number("experience", 0, 60),
            ps.Number("husby", 0, 100),
            ps.Number("kidslt6", 0, 4),
            ps.Number("kids618", 0, 6),
            ps.Category(
                "education",
                ["<9years", "9-11years", "12years", "13-15years", "16years", ">16years"],
            ),
            ps.Category("race", ["white", "black"]),
            ps.Category("region", ["northcentral", "south", "west"]),
            *(ps.Flag(name) for name in ("hhi", "whi", "hhi2", "hispanic")),
        ],
        6,
    ),
    "medical care in Viet Nam": (
        "Ecdat/VietNamI.csv",
        [
            ps.Number("lnhhexp", 0, 5.5),
            ps.Number("age", 0, 5),
            ps.Number("illness", 0, 6),
            ps.Number("illdays", 0, 30),
            ps.Number("pharvis", 0, 10),
            ps.Category("educ", [str(level) for level in range(10)]),
            *(ps.Flag(name) for name in ("injury", "insurance", "married")),
            ps.Category("sex", ["male", "female"]),
        ],
        6,
    ),
}
REAL_EPSILONS = (0.2, 1.0)


def real_studies() -> Iterator[tuple[str, Callable[[], Study]]]:
    """Yield names of real studies with what reads them; none without pydataset."""
    for seed, (name, (file, described, k)) in enumerate(REAL.items()):
        for epsilon in REAL_EPSILONS:
            full = f"{name} {epsilon:g}"

            def read(
                full: str = full, file: str = file, described: Any = described, k: int = k,
                epsilon: float = epsilon, seed: int = seed,
            ) -> Study:  # fmt: skip
                from pyarrow import csv as arrow_csv

                content = Table(PYDATASET + file, {}).content()
                table = arrow_csv.read_csv(io.BytesIO(content))
                schema = ps.Schema(described)
                columns = {column: table[column] for column in schema.names}
                return Study(full, "real", k, epsilon, 1e-6, seed, schema, columns)

            yield full, read


def measured(study: Study) -> dict[str, Any]:
    """Sketch the table of a study, learn clusters, and compare them with its records."""
    import pyarrow as pa

    table, k = pa.table(study.columns), study.n_clusters
    design = ps.Design.plan(
        n_components=k,
        domain=study.schema,
        budget=ps.Budget(study.epsilon, study.delta),
        n_records=len(table),
        random_state=study.seed,
    )
    sketch = ps.sketch(table, design)
    start = time.process_time()
    model = ps.learn_kmeans(sketch)
    seconds = time.process_time() - start
    found = None
    if study.kind in COUNTED_KINDS:
        found = ps.learn_kmeans(sketch, "auto").n_clusters
    records = np.asarray(ps.encode(table, study.schema), dtype=np.float64)
    forecast: Any = design.forecast()
    noise = k * math.sqrt(sketch.noise_variance) / len(table)
    return {
        "study": study.name,
        "kind": study.kind,
        "weight": study.schema.columns[-1].weight,
        "k": k,
        "n": len(table),
        "epsilon": study.epsilon,
        "delta": study.delta,
        "labels": "+".join(
            str(len(column.labels)) for column in study.schema.columns if hasattr(column, "labels")
        ),
        "features": design.n_features,
        "law": design.frequencies.law,
        "noise": round(noise, 4),
        "usable": int(noise < USABLE),
        "says": int(any("noise" in text for text in model.concerns)),
        "forecast_low": round(forecast.rsse_low, 5),
        "forecast_high": round(forecast.rsse_high, 5),
        "cost": round(squared_error(records, model.centers) / reference_cost(records, k), 5),
        "ratio_low": "" if model.cost_ratio is None else round(model.cost_ratio.low, 4),
        "ratio_high": "" if model.cost_ratio is None else round(model.cost_ratio.high, 4),
        "misfit": "" if model.misfit is None else round(model.misfit, 3),
        "auto": "" if found is None else found,
        "seconds": round(seconds, 2),
        **errors(model, records),
    }


def reference_cost(records: Floats, k: int) -> float:
    """Return the cost of k-means without privacy: three starts on a part, the best on all."""
    some = np.random.default_rng(0).permutation(len(records))[:REFERENCE_RECORDS]
    first = KMeans(k, n_init=3, random_state=0).fit(records[some]).cluster_centers_
    return float(KMeans(k, init=first, n_init=1, max_iter=50).fit(records).inertia_)


def errors(model: ps.ClusterModel, records: Floats) -> dict[str, Any]:
    """Return errors of shares and numbers, and how often intervals of 90 % hold."""
    nearest = model.predict(records)
    counts = np.bincount(nearest, minlength=model.n_clusters)
    schema = model.schema
    assert schema is not None
    off, told = [], []
    for cluster in np.flatnonzero(counts >= max(LEAST_SHARE * len(records), 1)):
        truth = records[nearest == cluster].mean(axis=0)
        off.append(model.centers[cluster] - truth)
        unknown = np.full(len(truth), np.nan)
        told.append(unknown if model.standard_errors is None else model.standard_errors[cluster])
    range_of = 2 * schema.box.half_widths  # a share of 1, or the range of a number
    offsets, widths = np.array(off) / range_of, NINETY * np.array(told) / range_of
    holds = np.abs(offsets) <= widths + 1e-9
    is_label = np.concatenate(
        [np.full(len(c.coordinates), isinstance(c, ps.Category | ps.Flag)) for c in schema.columns]
    )
    found: dict[str, Any] = {}
    for name, own in (("shares", is_label), ("numbers", ~is_label)):
        found[name] = round(100 * float(np.sqrt(np.square(offsets[:, own]).mean())), 3)
        found[f"{name}_most"] = round(100 * float(np.abs(offsets[:, own]).max()), 2)
        found[f"{name}_hold"] = round(float(holds[:, own].mean()), 4)
    return found


def lines(rows: list[dict[str, str]]) -> Iterator[str]:
    """Yield tables of the results, by kind."""

    def of(part: list[dict[str, str]], name: str) -> Floats:
        return np.array([float(row[name]) for row in part if row[name] != ""])

    def cells(name: str, part: list[dict[str, str]]) -> list[str]:
        shares, cost = of(part, "shares"), of(part, "cost")
        counted = [row for row in part if row["auto"] != ""]
        away = [abs(int(row["auto"]) - int(row["k"])) for row in counted]
        exact = f"{away.count(0)} ({sum(a <= 1 for a in away)}) of {len(away)}" if away else ""
        return [
            name,
            str(len(part)),
            f"{np.sqrt(np.square(shares).mean()):.2f}",
            f"{np.median(shares):.2f}",
            f"{of(part, 'shares_hold').mean():.0%} ({of(part, 'shares_hold').min():.0%})",
            f"{of(part, 'numbers_hold').mean():.0%}",
            f"{np.median(cost):.3f} / {cost.mean():.3f} / {cost.max():.2f}",
            f"{np.median(of(part, 'misfit')):.2f}",
            exact,
            f"{np.median(of(part, 'seconds')):.2f}",
        ]

    usable = [row for row in rows if row["usable"] == "1"]
    groups = {"all usable": usable}
    groups |= {kind: [row for row in usable if row["kind"] == kind] for kind in (*KINDS, "real")}
    groups |= {f"weight {w:g}": [r for r in usable if float(r["weight"]) == w] for w in (0.3, 1)}
    groups["pure"] = [row for row in usable if float(row["delta"]) == 0]
    groups["not usable"] = [row for row in rows if row["usable"] != "1"]
    heads = (
        *("studies", "number", "rms error of shares, points", "median", "shares hold (least)"),
        *("numbers hold", "cost: median / mean / worst", "misfit, median"),
        *("k auto: exact (within 1)", "seconds, median"),
    )
    yield markdown(heads, [cells(name, part) for name, part in groups.items() if part])
    drowned = groups["not usable"]
    yield ""
    yield f"not usable: {sum(row['says'] == '1' for row in drowned)} of {len(drowned)} say so"
    inside = [
        float(row["forecast_low"]) <= float(row["cost"]) <= float(row["forecast_high"])
        for row in usable
    ]
    below = [float(row["cost"]) < float(row["forecast_low"]) for row in usable]
    predicted = [r for r in usable if r["ratio_low"]]
    held = [float(r["ratio_low"]) <= float(r["cost"]) <= float(r["ratio_high"]) for r in predicted]
    yield (
        f"cost of usable studies inside of the forecast: {np.mean(inside):.0%}, below it: "
        f"{np.mean(below):.0%}; inside of the model's 90 % interval: {np.mean(held):.0%}"
    )


def _rows(paths: list[Path]) -> list[dict[str, str]]:
    rows = []
    for path in paths:
        if path.exists():
            with path.open(encoding="utf-8", newline="") as file:
                rows += list(csv.DictReader(file))
    return rows


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--studies", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="number of the first study")
    parser.add_argument("--real", action="store_true", help="real tables after the random ones")
    parser.add_argument("--output", type=Path, default=Path("labels.csv"), help="file to add to")
    parser.add_argument("--read", type=Path, nargs="*", help="files to make the table from")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ps.PrivsketchWarning)
    if arguments.read:
        print("\n".join(lines(_rows(arguments.read))))
        return
    numbers = range(arguments.first, arguments.first + arguments.studies)
    makers: list[tuple[str, Callable[[], Study]]] = [
        (str(number), partial(drawn, number)) for number in numbers
    ]
    makers += real_studies() if arguments.real else []
    done = {row["study"] for row in _rows([arguments.output])}
    for name, make in makers:
        if name in done:
            continue
        row = measured(make())
        is_new = not arguments.output.exists()
        with arguments.output.open("a", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(row))
            if is_new:
                writer.writeheader()
            writer.writerow(row)
    names = {name for name, _ in makers}
    found = [row for row in _rows([arguments.output]) if row["study"] in names]
    print("\n".join(lines(found)))


if __name__ == "__main__":
    main()
