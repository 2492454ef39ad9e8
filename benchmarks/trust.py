"""Whether a model may be believed: intervals that cover, numbers of clusters that are right.

    python -m benchmarks trust                 both tables of benchmarks/README.md
    python -m benchmarks trust --ratio         foretold k-means costs; see `ratios`
    python -m benchmarks trust --errors        standard errors on the data sets of `regret` that
                                               are seen, and on random studies of `worlds`

Coverage: how often center +- 1.645 standard errors contains the true coordinate, over simulated
tables and releases; 0.90 is ideal. True are the k-means centers of the population (of 400,000
fresh records), which are what a model estimates; where clusters overlap, as seed mixtures do in
two dimensions, they are not the means of the clusters, whose coverage is the second number.

Standard errors (`--errors`): how often two of them reach from a center to the optimum next to it,
which Lloyd's algorithm on the raw records finds from there, and how long two errors are relative
to the scatter of a cluster. One sketch of each data set and map: waves, and cells up to five
columns. Budgets are drawn: epsilon .3 to 10, with a delta or pure.

Number of clusters: data sets of k = 3 to 12 well separated clusters (centers at least six widths
apart), sketches planned for 16, and what `n_clusters="auto"` with at most 20 answers.
"""

from __future__ import annotations

import json
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.cluster import KMeans

import privsketch as ps
from benchmarks import worlds
from benchmarks.common import markdown, parser_of
from benchmarks.datasets import DataSet, Maker, reference_error, squared_error
from benchmarks.ratios import print_tables as ratio_tables
from benchmarks.regret.data import SEEN
from privsketch._base.types import Floats
from privsketch.models.base import nearest

REAL = {"pixels", "patches", "breast cancer", "digits", "digits, 10 columns", "iris", "wine"}
REAL |= {"diabetes"}  # and all tables of packages
LARGE = 4_000_000  # clusters x features x columns: what a search does within some seconds
MOST_COLUMNS = 5  # of cells
FIRST_WORLD = 7000  # number of a study that no other benchmark has


def coverage(
    k: int, dim: int, n: int, epsilon: float, delta: float, repetitions: int
) -> tuple[float, float]:
    """Share of the coordinates inside their 90 % intervals: k-means centers, means."""
    hits: tuple[list[float], list[float]] = ([], [])
    for seed in range(repetitions):
        rng = np.random.default_rng([seed, k, dim, 31])
        truth = rng.normal(size=(k, dim)) * 1.5 * k ** (1 / dim)
        records = truth[rng.integers(k, size=n)] + rng.normal(size=(n, dim))
        design = ps.Design.plan(
            n_components=k,
            domain=ps.Box(-12, 12, dim=dim),
            budget=ps.Budget(epsilon, delta),
            n_records=n,
            random_state=seed,
        )
        model = ps.learn_kmeans(ps.sketch(records, design), k)
        if model.standard_errors is None:
            raise SystemExit("this fit is too large for standard errors")
        fresh = truth[rng.integers(k, size=400_000)] + rng.normal(size=(400_000, dim))
        population = KMeans(k, init=model.centers, n_init=1, tol=1e-9, max_iter=1000).fit(fresh)
        for found, goal in zip(hits, (population.cluster_centers_, truth), strict=True):
            distances = np.square(model.centers[:, None] - goal).sum(axis=2)
            misses = np.abs(model.centers - goal[distances.argmin(axis=1)])
            found.append(float(np.mean(misses < 1.645 * model.standard_errors)))
    return float(np.mean(hits[0])), float(np.mean(hits[1]))


def measured(
    name: str, records: Floats, domain: ps.Box | ps.Ball, k: int, feature_map: str
) -> dict[str, Any] | None:
    """Return how often two errors hold on one sketch; None if it is refused or large."""
    number = zlib.crc32(name.encode())
    rng = np.random.default_rng([number, 4711])
    epsilon, delta = float(rng.choice([0.3, 1.0, 3.0, 10.0])), float(rng.choice([0.0, 1e-6]))
    design = ps.Design.plan(
        n_components=k,
        domain=domain,
        budget=ps.Budget(epsilon, delta),
        n_records=len(records),
        feature_map=feature_map,
        random_state=number,
    )
    if feature_map != "cells" and k * design.n_features * design.dim > LARGE:
        return None
    try:
        model = ps.learn_kmeans(ps.sketch(records, design), k)
    except ps.PrivsketchError:  # more clusters than the sketch can have
        return None
    records, ratio = domain.project(records), model.cost_ratio
    if ratio is None:
        raise SystemExit("a model of a sketch foretells its ratio")
    optimum = KMeans(k, init=model.centers, n_init=1, tol=0, max_iter=3000).fit(records)
    plain = max(min(reference_error(records, k, 0), optimum.inertia_), 1e-12)
    found = {
        "name": name,
        "map": feature_map,
        "budget": [epsilon, delta],
        "ratio": squared_error(records, model.centers) / plain,
        "foretold": [ratio.low, ratio.estimate, ratio.high],
        "concerns": list(model.concerns),
    }
    if model.standard_errors is None:
        return found
    away = np.abs(model.centers - optimum.cluster_centers_)
    offsets = records - optimum.cluster_centers_[nearest(records, optimum.cluster_centers_)]
    width = max(float(np.sqrt(np.square(offsets).mean())), 1e-12)
    return {
        **found,
        "held": (away <= 2 * model.standard_errors).ravel().tolist(),
        "length": float(np.median(2 * model.standard_errors)) / width,
    }


def _same(records: Floats) -> Maker:
    return lambda rng: records


def error_studies(only: str, n_worlds: int) -> Iterator[dict[str, Any]]:
    """Yield a sketch for each data set that is here, or random study, and map."""
    cases: list[tuple[str, DataSet]] = []
    for data in SEEN:
        if data.is_here:
            cases.append(("real" if data.needs or data.name in REAL else "made", data))
    for number in range(FIRST_WORLD, FIRST_WORLD + n_worlds):
        study, records = worlds.drawn(number)
        box, name = ps.Box(-1, 1, dim=study["dim"]), f"{study['kind']} {number}"
        cases.append(("random", DataSet(name, study["n_clusters"], box, _same(records))))
    for kind, data in cases:
        if only not in data.name:
            continue
        rng = np.random.default_rng(zlib.crc32(data.name.encode()))
        records = np.asarray(data.make(rng), dtype=np.float64)
        for feature_map in ("fourier", "cells"):
            if feature_map == "cells" and len(data.domain.half_widths) > MOST_COLUMNS:
                continue
            name = data.name
            found = measured(name, records, data.domain, data.n_clusters, feature_map)
            if found is not None:
                yield {**found, "kind": kind}


def error_lines(studies: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the table of standard errors."""
    heads = ["map", "records", "sketches", "with errors", "coordinates held", "mean of sketches"]
    heads += ["lowest tenth", "two errors, in widths", "ratio inside", "ratio above"]
    rows = []
    for feature_map in ("fourier", "cells"):
        for kind in ("real", "made", "random"):
            own = [s for s in studies if (s["map"], s["kind"]) == (feature_map, kind)]
            told = [study for study in own if "held" in study]
            if not told:
                continue
            shares = [np.mean(study["held"]) for study in told]
            lows, _, highs = np.transpose([study["foretold"] for study in own])
            ratios = np.array([study["ratio"] for study in own])
            numbers = (
                np.mean(np.concatenate([study["held"] for study in told])),
                np.mean(shares),
                np.quantile(shares, 0.1),
                np.median([study["length"] for study in told]),
                np.mean((lows <= ratios) & (ratios <= highs)),
                np.mean(ratios > highs),
            )
            texts = [f"{number:.2f}" for number in numbers]
            rows.append([feature_map, kind, f"{len(own)}", f"{len(told)}", *texts])
    yield markdown(heads, rows)


def print_errors(only: str, n_worlds: int, output: Path | None) -> None:
    """Print the table of standard errors, from new sketches."""
    warnings.simplefilter("ignore", ps.PrivsketchWarning)
    studies = []
    for study in error_studies(only, n_worlds):
        studies.append(study)
        if output is not None:
            with output.open("a", encoding="utf-8") as file:
                file.write(json.dumps(study) + "\n")
    for line in error_lines(studies):
        print(line)


def separated(k: int, dim: int, n: int, kind: str, rng: np.random.Generator) -> Floats:
    """Clusters of width about 1 whose centers are at least six apart."""
    scale = 2.25 * k ** (1 / dim)
    while True:
        centers = rng.normal(size=(k, dim)) * scale
        distances = np.linalg.norm(centers[:, None] - centers, axis=2) + 99 * np.eye(k)
        if distances.min() >= 6:
            break
        scale *= 1.02
    share = np.linspace(1, 5 if kind == "weights 1:5" else 1, k)
    label = rng.choice(k, size=n, p=share / share.sum())
    noise = rng.normal(size=(n, dim))
    if kind == "widths 0.5-1.2":
        noise *= np.linspace(0.5, 1.2, k)[label, None]
    elif kind == "heavy tails":
        noise *= 0.7 / np.sqrt(rng.chisquare(5, size=(n, 1)) / 5)
    elif kind == "uniform":
        noise = rng.uniform(-1.7, 1.7, (n, dim))
    return np.asarray(centers[label] + noise)


def right_numbers(kind: str, dim: int, epsilon: float, delta: float) -> tuple[int, list[int]]:
    """How many of ten data sets, k = 3 to 12, get their k, and what they all got."""
    found = []
    for k in range(3, 13):
        records = separated(k, dim, 100_000, kind, np.random.default_rng([k, dim, 77]))
        half_width = float(np.ceil(np.abs(records).max()))  # made up here, public in a study
        design = ps.Design.plan(
            n_components=16,
            domain=ps.Box(-half_width, half_width, dim=dim),
            budget=ps.Budget(epsilon, delta),
            n_records=len(records),
            random_state=k,
        )
        model = ps.learn_kmeans(ps.sketch(records, design), "auto", max_clusters=20)
        found.append(model.n_clusters)
    return sum(k == number for k, number in zip(range(3, 13), found, strict=True)), found


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--repetitions", type=int, default=20, help="tables per coverage")
    parser.add_argument("--ratio", action="store_true", help="foretold k-means costs instead")
    parser.add_argument("--errors", action="store_true", help="standard errors instead")
    parser.add_argument("--only", default="", help="data sets with this in their names")
    parser.add_argument("--worlds", type=int, default=60, help="random studies, for --errors")
    parser.add_argument("--output", type=Path, help="file of lines of JSON to add to")
    arguments = parser.parse_args()
    if arguments.ratio:
        ratio_tables()
        return
    if arguments.errors:
        print_errors(arguments.only, arguments.worlds, arguments.output)
        return
    print("coverage of 90 % intervals")
    for k, dim, n, epsilon, delta in (
        (10, 10, 100_000, 1.0, 1e-6),
        (10, 10, 100_000, 0.1, 1e-6),
        (10, 10, 100_000, 0.3, 0.0),
        (4, 8, 10_000, 1.0, 1e-6),
        (4, 8, 10_000, 0.5, 0.0),
        (5, 2, 10_000, 1.0, 1e-6),
        (20, 20, 100_000, 0.3, 1e-6),
    ):
        shares = coverage(k, dim, n, epsilon, delta, arguments.repetitions)
        told = f"k={k:<3} d={dim:<3} n={n:<7} eps={epsilon:<5} delta={delta:<6g}"
        print(f"{told} {shares[0]:.3f}, of the means {shares[1]:.3f}", flush=True)
    print("right numbers of clusters, out of ten")
    for kind in ("equal", "weights 1:5", "widths 0.5-1.2", "heavy tails", "uniform"):
        for dim, epsilon, delta in ((2, 1.0, 1e-6), (5, 1.0, 1e-6), (10, 1.0, 1e-6), (5, 1.0, 0.0)):
            right, found = right_numbers(kind, dim, epsilon, delta)
            print(
                f"{kind:15} d={dim:<3} eps={epsilon} delta={delta:<6g} {right:2}/10 {found}",
                flush=True,
            )


if __name__ == "__main__":
    main()
