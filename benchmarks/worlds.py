"""Methods on random studies: what "auto" loses against the best of them, and what each loses.

    python -m benchmarks worlds                        200 studies
    python -m benchmarks worlds --first 5000 --studies 50 --output worlds.jsonl
    python -m benchmarks worlds --sketches             waves, cells, and which the planner takes

A study is drawn from its number alone: a kind of records, columns, clusters, records, a budget with
or without a delta. Every method runs once, and its cost on the raw records over that of the best
of them is its *regret*; that of "auto" is the regret of what it would choose. Records lie in
[-1, 1]^d, which is all that methods are told beside the number of records.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.cluster import KMeans

import privsketch as ps
from benchmarks.cells import cities, cost, spread_centers
from benchmarks.common import parser_of
from privsketch._base.types import Floats
from privsketch.clustering.choose import choose_method

KINDS = ("gauss", "tight", "uneq", "uniform", "blob", "skew", "cities")
DIMS = (1, 2, 2, 2, 3, 3, 4, 5, 6, 7, 8, 12, 15, 20, 30, 40)
CELL_DIMS = 8  # beyond, a grid has two cells along each axis
GROUPS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "up to 4 columns": lambda study: study["dim"] <= 4,
    "5 columns and more, delta": lambda study: study["dim"] >= 5 and study["delta"] > 0,
    "5 to 7 columns, pure": lambda study: 5 <= study["dim"] <= 7 and study["delta"] == 0,
    "8 columns and more, pure": lambda study: study["dim"] >= 8 and study["delta"] == 0,
}


def drawn(number: int) -> tuple[dict[str, Any], Floats]:
    """Draw a study; return its facts and its records."""
    rng = np.random.default_rng([number, 620])
    study: dict[str, Any] = {
        "number": number,
        "dim": int(rng.choice(DIMS)),
        "n_clusters": int(rng.choice([2, 4, 8, 15])),
        "n_records": int(rng.choice([300, 1000, 3000, 10_000, 30_000])),
        "epsilon": float(rng.choice([0.1, 0.3, 1.0, 3.0])),
        "delta": float(rng.choice([0.0, 1e-6])),
        "kind": str(rng.choice(KINDS)),
    }
    size = study["n_records"], study["n_clusters"], study["dim"]
    return study, records_of(study["kind"], *size, rng)


def records_of(kind: str, n: int, k: int, dim: int, rng: np.random.Generator) -> Floats:
    """Draw records of a kind in [-1, 1]^d."""
    return np.clip(_records(kind, n, k, dim, rng), -1, 1)


def _records(kind: str, n: int, k: int, dim: int, rng: np.random.Generator) -> Floats:
    width = 0.208 * k ** (-1 / dim)
    normal = rng.standard_normal((n, dim))
    if kind == "gauss":
        return np.asarray(spread_centers(k, dim, rng)[rng.integers(k, size=n)] + width * normal)
    if kind == "tight":  # of any sizes, far narrower than they lie apart
        label = rng.choice(k, n, p=rng.dirichlet(np.ones(k)))
        return np.asarray(rng.uniform(-0.8, 0.8, (k, dim))[label] + 0.02 * normal)
    if kind == "uneq":  # weights 1:20, widths 1:4, stretched along the axes
        weights = rng.permutation(np.geomspace(1, 20, k))
        label = rng.choice(k, n, p=weights / weights.sum())
        widths = rng.permutation(np.geomspace(0.5, 2, k)) * width
        shapes = widths[:, None] * rng.uniform(0.5, 1.5, (k, dim))
        return np.asarray(spread_centers(k, dim, rng)[label] + shapes[label] * normal)
    if kind == "uniform":
        return rng.uniform(-1, 1, (n, dim))
    if kind == "blob":  # one Gaussian somewhere
        return np.asarray(0.15 * normal + rng.uniform(-0.5, 0.5, dim))
    if kind == "skew":  # logarithms are Gaussian: most records in one corner
        logs = rng.standard_normal((k, dim))[rng.integers(k, size=n)] + 0.5 * normal
        values = np.exp(logs)
        return np.asarray(2 * values / values.max(axis=0) - 1)
    return cities(normal, k, rng)


def measured(number: int) -> dict[str, Any]:
    """Return a study with the relative cost of every method, and the choice of "auto"."""
    study, records = drawn(number)
    k, dim, n = study["n_clusters"], study["dim"], study["n_records"]
    plain = KMeans(k, n_init=3, random_state=0).fit(records)
    budget = ps.Budget(study["epsilon"], study["delta"])
    methods = ["sketch", "pipeline", "lloyd"]
    if dim <= CELL_DIMS:
        methods += ["cells", "grid"]
    found = {}
    for method in methods:
        model = ps.PrivateKMeans(
            k,
            epsilon=budget.epsilon,
            delta=budget.delta,
            domain=ps.Box(-1, 1, dim=dim),
            method=method,
            n_records=n,
            random_state=number,
        ).fit(records)
        found[method] = cost(records, model.cluster_centers_) / max(plain.inertia_, 1e-12)
    choice = choose_method(
        "auto", n_clusters=k, domain=ps.Box(-1, 1, dim=dim), budget=budget, n_records=n
    )
    return {**study, "auto": choice.method, "ratios": found}


def sketched(number: int) -> dict[str, Any] | None:
    """Return a study with the relative cost of both feature maps; "auto" is the planned one."""
    study, records = drawn(number)
    k, dim = study["n_clusters"], study["dim"]
    if dim > CELL_DIMS:
        return None
    plain = KMeans(k, n_init=3, random_state=0).fit(records)

    def planned(feature_map: str | None) -> ps.Design:
        return ps.Design.plan(
            n_components=k,
            domain=ps.Box(-1, 1, dim=dim),
            budget=ps.Budget(study["epsilon"], study["delta"]),
            n_records=study["n_records"],
            random_state=number,
            feature_map=feature_map,
        )

    found = {}
    for name in ("fourier", "cells"):
        model = ps.learn_kmeans(ps.sketch(records, planned(name)), k)
        found[name] = cost(records, model.centers) / max(plain.inertia_, 1e-12)
    return {**study, "auto": planned(None).feature_map, "ratios": found}


def lines(studies: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a table of regrets by group and method, means of logarithms."""
    heads = (
        "studies",
        "method",
        "n",
        "mean",
        "median",
        "above 1.05",
        "above 1.3",
        "above 2",
        "most",
    )
    yield f"| {' | '.join(heads)} |"
    yield "|---|---" + "|---:" * (len(heads) - 2) + "|"
    for group, belongs in GROUPS.items():
        inside = [study for study in studies if belongs(study)]
        for method in ("auto", "sketch", "pipeline", "fourier", "cells", "grid", "lloyd"):
            regrets = []
            for study in inside:
                ratios = study["ratios"]
                taken = study["auto"] if method == "auto" else method
                if taken in ratios:
                    regrets.append(ratios[taken] / min(ratios.values()))
            if regrets:
                found = np.array(regrets)
                shares = [f"{np.mean(found > limit):.2f}" for limit in (1.05, 1.3, 2)]
                mean = float(np.exp(np.log(found).mean()))
                cells = [f"{mean:.3f}", f"{np.median(found):.3f}", *shares, f"{found.max():.1f}"]
                yield f"| {group} | {method} | {len(found)} | {' | '.join(cells)} |"


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--studies", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="number of the first study")
    parser.add_argument("--sketches", action="store_true", help="feature maps, not methods")
    parser.add_argument("--output", type=Path, help="file of lines of JSON to add to")
    parser.add_argument("--read", type=Path, nargs="*", help="files to make the table from")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ps.PrivsketchWarning)
    if arguments.read:
        text = "".join(path.read_text(encoding="utf-8") for path in arguments.read)
        studies = [json.loads(line) for line in text.splitlines()]
    else:
        studies = []
        for number in range(arguments.first, arguments.first + arguments.studies):
            study = sketched(number) if arguments.sketches else measured(number)
            if study is None:
                continue
            studies.append(study)
            if arguments.output is not None:
                with arguments.output.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(studies[-1]) + "\n")
    for line in lines(studies):
        print(line)


if __name__ == "__main__":
    main()
