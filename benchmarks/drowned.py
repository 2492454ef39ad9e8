"""Whether every method says that noise decided: random studies whose noise hides clusters or not.

    python -m benchmarks drowned                         until there are 100 of both; minutes
    python -m benchmarks drowned --studies 50            fewer of both
    python -m benchmarks drowned --table                 the table of what was measured

A study is drawn from its number alone: a method, a kind of records (benchmarks/worlds.py), columns,
clusters, records from none to 30,000, a budget. Its noise hides clusters if the public forecast of
the error, the cost over that without privacy less 1, is above 1, or if there are fewer records than
clusters; it leaves them alone if the forecast is below 0.05. Forecasts are made before the run, for
the true number of records; baselines have one of their own, for the records that they released.
For principal components the error is the share of the variance that is lost: above 0.5, below 0.01.
A run that was stopped goes on where it was: results are rows of a file.
"""

from __future__ import annotations

import csv
import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.cluster import KMeans

import privsketch as ps
from benchmarks.cells import cost
from benchmarks.common import markdown, parser_of
from benchmarks.worlds import records_of
from privsketch._base.types import Floats
from privsketch.clustering import (
    cluster_medians,
    cluster_sparse,
    cluster_with,
    clustered,
    forecast_run,
)
from privsketch.design.pca import PCAForecast
from privsketch.design.regression import RegressionForecast

RESULTS = Path(__file__).parent / "results" / "drowned.csv"
SKETCHES = ("fourier", "one-bit", "cells of a sketch", "mixture", "components")
LEARNERS: dict[str, Callable[..., Any]] = {
    "kmeans": ps.learn_kmeans,
    "mixture": ps.learn_gaussian_mixture,
    "components": ps.learn_pca,
}
MEDIAN_METHODS = {"rounds": "rounds", "median trees": "partition-tree"}
METHODS = (
    *SKETCHES,
    "pipeline",
    "cells",
    "partition-tree",
    "rounds",
    "median trees",
    "sparse",
    "lloyd",
    "grid",
    "sample-aggregate",
    "k-variates",
)
FIELDS = ("number", "method", "dim", "k", "n", "epsilon", "delta", "kind", "error", "ratio", "said")
HIDDEN, CLEAR = 1.0, 0.05
COMPONENTS_HIDDEN, COMPONENTS_CLEAR = 0.5, 0.01  # of principal components


def drawn(number: int) -> dict[str, Any]:
    """Draw the facts of a study."""
    rng = np.random.default_rng([number, 33])
    method = METHODS[number % len(METHODS)]
    is_small = rng.random() < 0.35
    dims = (2, 3) if "cells" in method or method == "grid" else (2, 3, 5, 8)
    is_pca = method == "components"
    dim = 40 if method == "sparse" else int(rng.choice(dims))
    return {
        "number": number,
        "method": method,
        "dim": 8 if is_pca else dim,
        "k": min(int(rng.choice([2, 3, 5])), 3 if is_pca else 5),  # directions without them remain
        "n": int(rng.choice([0, 1, 100, 300, 1000] if is_small else [10_000, 30_000])),
        "epsilon": float(rng.choice([0.05, 0.1, 0.3, 1.0, 3.0] if is_small else [0.3, 1.0, 3.0])),
        "delta": float(rng.choice([0.0, 1e-6])),
        "kind": str(rng.choice(["gauss", "tight", "uneq", "cities"])),
    }


def table_of(study: dict[str, Any]) -> Floats:
    """Draw the records of a study."""
    rng = np.random.default_rng([study["number"], 34])
    n, k, dim = study["n"], study["k"], study["dim"]
    if study["method"] == "components":  # k of them, half a radius long
        return 0.8 * rng.standard_normal((n, dim)) * np.where(np.arange(dim) < k, 1.0, 0.05)
    if study["method"] != "sparse":
        return records_of(study["kind"], n, k, dim, rng).reshape(n, dim)
    used = rng.random((k, dim)).argsort(axis=1)[:, :5]
    records = np.zeros((n, dim))
    np.put_along_axis(records, used[rng.integers(k, size=n)], rng.uniform(0.4, 1, (n, 5)), axis=1)
    return records


def planned(study: dict[str, Any]) -> ps.Design:
    """Plan the design of a study with a sketch."""
    method = study["method"]
    maps = {"fourier": "fourier", "one-bit": "one-bit", "cells of a sketch": "cells"}
    tasks = {"mixture": "gaussian-mixture", "components": "pca"}
    box = ps.Box(-1, 1, dim=study["dim"])
    ball = ps.Ball(dim=study["dim"], radius=math.sqrt(study["dim"]))
    return ps.Design.plan(
        task=tasks.get(method, "kmeans"),
        feature_map=maps.get(method),
        n_components=study["k"],
        domain=ball if method == "components" else box,
        budget=ps.Budget(study["epsilon"], study["delta"]),
        n_records=max(study["n"], 1000),
        random_state=study["number"],
    )


def measured(study: dict[str, Any]) -> dict[str, Any]:
    """Return a study with its forecast error, its true cost ratio, and whether noise decided."""
    method, k, n = study["method"], study["k"], study["n"]
    records, box = table_of(study), ps.Box(-1, 1, dim=study["dim"])
    budget = ps.Budget(study["epsilon"], study["delta"])
    facts = {"domain": box, "budget": budget, "n_records": max(n, 1000)}
    facts["random_state"] = study["number"]
    error: float | None = None
    model: Any
    if method in SKETCHES:
        design = planned(study)
        error = forecast_of_design(study, design)
        learner = LEARNERS.get(method, LEARNERS["kmeans"])
        model = learner(ps.sketch(records, design), k)
    else:
        model, name = run_of(method, records, k, facts), MEDIAN_METHODS.get(method, method)
        loss = "distances" if method in MEDIAN_METHODS else "squares"
        expected = forecast_run(name, k, box, budget, float(max(n, 1)), loss)
        ratio = model.expected_ratio
        if expected is not None and method != "sparse":
            ratio = expected.expected_ratio
        error = None if ratio is None else ratio - 1
    said = any(text.startswith("noise decided") for text in model.concerns)
    return {**study, "error": error, "ratio": true_ratio(study, records, model), "said": int(said)}


def forecast_of_design(study: dict[str, Any], design: ps.Design) -> float:
    """Return the forecast error of a design for the true number of records."""
    told = replace(design, n_records=float(max(study["n"], 1))).forecast()
    if isinstance(told, PCAForecast | RegressionForecast):
        return told.lost
    return math.sqrt((told.rsse_low - 1) * (told.rsse_high - 1))


def run_of(method: str, records: Floats, k: int, facts: dict[str, Any]) -> ps.ClusterModel:
    """Run a method that reads the records."""
    if method == "sparse":
        return clustered(cluster_sparse, records, k, n_nonzero=5, **facts)
    if method in MEDIAN_METHODS:
        return clustered(cluster_medians, records, k, method=MEDIAN_METHODS[method], **facts)
    return cluster_with(method, records, k, **facts)


def true_ratio(study: dict[str, Any], records: Floats, model: Any) -> float | None:
    """Return the k-means cost of a model on the records, over that of k-means."""
    if study["method"] == "components" or study["n"] <= study["k"]:
        return None
    plain = KMeans(study["k"], n_init=3, random_state=0).fit(records)
    centers = model.means if hasattr(model, "means") else model.centers
    return float(cost(records, centers) / plain.inertia_)


def group_of(row: dict[str, Any]) -> str:
    """Return whether the noise of a study hides clusters."""
    if int(row["n"]) < int(row["k"]):
        return "hidden"
    if row["error"] in (None, ""):
        return "between"
    is_components = row["method"] == "components"
    hidden, clear = (COMPONENTS_HIDDEN, COMPONENTS_CLEAR) if is_components else (HIDDEN, CLEAR)
    error = float(row["error"])
    return "hidden" if error > hidden else "clear" if error < clear else "between"


def print_table(rows: list[dict[str, Any]]) -> None:
    """Print how often each method said that noise decided, by what noise does."""
    lines = []
    for method in (*METHODS, "all"):
        own = [row for row in rows if method in (row["method"], "all")]
        cells = [method]
        for group in ("hidden", "between", "clear"):
            found = [row for row in own if group_of(row) == group]
            ratios = [float(row["ratio"]) for row in found if row["ratio"] not in (None, "")]
            median = f", {np.median(ratios):.2f}" if ratios else ""
            cells.append(f"{sum(int(row['said']) for row in found)} of {len(found)}{median}")
        lines.append(cells)
    heads = ("method", "noise hides clusters", "between", "noise leaves them alone")
    print(markdown(heads, lines))


def main() -> None:
    """Measure studies until there are enough of both groups, then print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("--studies", type=int, default=100, help="studies of both groups")
    parser.add_argument("--table", action="store_true", help="print the table only")
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    if arguments.output.exists():
        with arguments.output.open(newline="") as file:
            rows = list(csv.DictReader(file))
    warnings.simplefilter("ignore")
    while not arguments.table:
        groups = [group_of(row) for row in rows]
        if min(groups.count("hidden"), groups.count("clear")) >= arguments.studies:
            break
        row = measured(drawn(int(rows[-1]["number"]) + 1 if rows else 0))
        is_new = not rows
        rows.append(row)
        with arguments.output.open("a", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            if is_new:
                writer.writeheader()
            writer.writerow({name: _short(row[name]) for name in FIELDS})
    print_table(rows)


def _short(value: Any) -> Any:
    return f"{value:.4g}" if isinstance(value, float) else value


if __name__ == "__main__":
    main()
