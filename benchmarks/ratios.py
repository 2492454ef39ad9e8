"""Cost ratios that models foretell: what they are fitted to, and how often they are right.

    python -m benchmarks ratios                                20 data sets, 10 runs each, and
                                                               k far from what was planned for
    python -m benchmarks ratios --calibrate --output rows.jsonl
    python -m benchmarks ratios --calibrate --mixed --output rows.jsonl
                                                               tables with categories and flags
    python -m benchmarks ratios --calibrate --read rows.jsonl  constants of learning/kmeans/model.py

A *ratio* is the k-means cost of a model's centers on the raw records over what scikit-learn's
KMeans reaches on them with three starts. Constants are fitted to random studies with the records
of `worlds` and skewed ones: eight kinds, any numbers of columns, clusters and records, any budget,
sketches of three maps, planned for the number of clusters that is asked for or for another one, in
domains that fit or are too wide. The data sets of the table are others, twelve of them real, and
took no part in that. Tables with categories and flags are those of `labels`, with other numbers.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy.optimize import lsq_linear
from scipy.stats import spearmanr
from sklearn import datasets
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.feature_extraction.image import extract_patches_2d
from sklearn.preprocessing import scale

import privsketch as ps
from benchmarks import cells, labels
from benchmarks.common import markdown, parser_of
from benchmarks.datasets import (
    along_a_curve,
    correlated,
    reference_error,
    seed_mixture,
    squared_error,
    stretched,
)
from benchmarks.worlds import DIMS, KINDS, records_of
from privsketch._base.types import Floats
from privsketch.learning.kmeans import model as kmeans_model
from privsketch.learning.kmeans.model import Calibration, signs_of

LEAST, MOST = 0.004, 20.0  # of the excess: less is chance, more is lost anyway
LARGE = 2_000_000  # clusters x features x columns: what a search does within some seconds
N_KNOTS, WINDOW = 8, 0.2  # scores with quantiles, and the share of studies around each
# Signs of a score, and whether it rises with them. A sign that a kind of sketch lacks is left out.
RISES = {
    "waves": {
        "error": True,
        "fisher": True,
        "hopeless": True,
        "stands out": False,
        "unexplained": True,
        "fill": True,
        "fineness": False,
        "columns": None,
        "skew": True,
    },
    "cells": {
        "error": True,
        "fisher": True,
        "hopeless": True,
        "stands out": False,
        "is hidden": False,
        "unexplained": True,
        "fill": True,
        "fineness": False,
        "columns": None,
        "skew": True,
    },
}
RISES["mixed"] = RISES["waves"]
EVERY_SKEWED = 4  # one study of so many has skewed columns in bounds that are perhaps too wide
MIXED_TABLES = 20_000  # number of the first table of `labels` that no other benchmark has


def drawn(number: int) -> tuple[dict[str, Any], Floats]:
    """Draw a random study; return its facts and its records."""
    rng = np.random.default_rng([number, 2020])
    dim = int(rng.choice(DIMS))
    study: dict[str, Any] = {
        "number": number,
        "dim": dim,
        "n_clusters": int(rng.choice([2, 4, 8, 15])),
        "n_records": int(rng.choice([300, 1000, 3000, 10_000, 30_000, 100_000])),
        "epsilon": float(rng.choice([0.1, 0.3, 1.0, 3.0, 10.0])),
        "delta": float(rng.choice([0.0, 1e-6])),
        "kind": str(rng.choice(KINDS)),
    }
    maps = ["fourier"] * 4 + ["one-bit"] + (["cells"] * 4 if dim <= 6 else [])
    study["feature_map"] = str(rng.choice(maps))
    same = rng.random() < 0.5
    study["planned"] = study["n_clusters"] if same else int(rng.choice([2, 3, 5, 8, 12, 20]))
    same = rng.random() < 0.5
    study["asked"] = study["planned"] if same else int(rng.choice([2, 3, 4, 6, 10, 20, 40]))
    study["half_width"] = float(rng.choice([1.0, 1.0, 1.5, 3.0]))
    is_stretched = rng.random() < 1 / 3
    size = study["n_records"], study["n_clusters"], study["dim"]
    if number % EVERY_SKEWED == 0:
        study["kind"], study["half_width"] = "tails", 1.0
        return study, skewed(*size, rng)
    records = records_of(study["kind"], *size, rng)
    if is_stretched:
        records = records * rng.uniform(0.1, 1, dim)
    return study, records


def skewed(n: int, k: int, dim: int, rng: np.random.Generator) -> Floats:
    """Draw records as money and counts are: most of them in a corner of [-1, 1]^d, few far away."""
    width = float(rng.choice([0.7, 1.0, 1.5, 2.0]))
    kind = rng.integers(3)
    if kind == 0:  # logarithms have one Gaussian, whose columns are correlated
        values = np.exp(
            width * (0.8 * rng.standard_normal((n, dim)) + 0.6 * rng.normal(size=(n, 1)))
        )
    elif kind == 1:  # or clusters
        middles = width * rng.standard_normal((k, dim))
        values = np.exp(middles[rng.integers(k, size=n)] + 0.4 * rng.standard_normal((n, dim)))
    else:  # Pareto's law, with a tail of power -3.5 / width
        values = rng.random((n, dim)) ** (-width / 3.5) - 1
    highs = values.max(axis=0) * float(rng.choice([1.0, 1.0, 3.0, 10.0]))
    is_plain = np.arange(dim) >= max(1, round(dim * float(rng.choice([1.0, 1.0, 0.5]))))
    result = 2 * values / highs - 1
    result[:, is_plain] = np.clip(0.25 * rng.standard_normal((n, dim))[:, is_plain], -1, 1)
    return np.asarray(result)


def drawn_table(number: int) -> tuple[dict[str, Any], Any, ps.Schema]:
    """Draw a random table with categories and flags; return its facts, rows and schema."""
    import pyarrow as pa

    whole = labels.drawn(MIXED_TABLES + number)
    rng = np.random.default_rng([number, 2021])
    table = pa.table(whole.columns)
    table = table.slice(0, int(rng.choice([300, 1000, 3000, 10_000, 30_000, 100_000])))
    k = whole.n_clusters
    planned = k if rng.random() < 0.5 else int(rng.choice([2, 3, 5, 8, 12, 20]))
    study: dict[str, Any] = {
        "number": number,
        "dim": whole.schema.dim,
        "n_clusters": k,
        "n_records": len(table),
        "epsilon": float(rng.choice([0.1, 0.3, 1.0, 3.0, 10.0])),
        "delta": float(rng.choice([0.0, 1e-6])),
        "kind": f"mixed, {whole.kind}",
        "feature_map": str(rng.choice(["fourier"] * 4 + ["one-bit"])),
        "planned": planned,
        "asked": planned if rng.random() < 0.5 else int(rng.choice([2, 3, 4, 6, 10, 20])),
    }
    return study, table, whole.schema


def measured(
    study: dict[str, Any], records: Any, domain: ps.Box | ps.Schema, largest: float = math.inf
) -> dict[str, Any] | None:
    """Return a study's signs, the forecast of its model and the ratio; None if it is refused.

    `records` are rows of numbers, or a table for a schema. A search `largest` or more is one for as
    many clusters as were planned for, or none.
    """
    design = ps.Design.plan(
        n_components=study["planned"],
        domain=domain,
        budget=ps.Budget(study["epsilon"], study["delta"]),
        n_records=len(records),
        feature_map=study["feature_map"],
        random_state=study["number"],
    )
    asked, size = study["asked"], design.n_features * design.dim
    if asked * size > largest:
        asked = study["planned"]
    if asked * size > 2 * largest:
        return None
    sketch = ps.sketch(records, design)
    try:
        model, signs = learned(sketch, asked)
    except ps.PrivsketchError:  # more clusters than the sketch can have
        return None
    if isinstance(domain, ps.Schema):
        records = np.asarray(ps.encode(records, domain), dtype=np.float64)
    plain = max(reference_error(records, asked, 0), 1e-12)
    if model.density is None or model.cost_ratio is None:
        raise SystemExit("a model of a sketch foretells its ratio")
    foretold = model.cost_ratio
    return {
        **study,
        "asked": asked,
        "ratio": squared_error(records, model.centers) / plain,
        "foretold": [foretold.low, foretold.estimate, foretold.high],
        "concerns": list(model.concerns),
        "signs": signs,
    }


def learned(sketch: ps.Sketch, n_clusters: int) -> tuple[ps.ClusterModel, dict[str, float]]:
    """Return a model, and the signs of its cost ratio, which models do not keep."""
    kept = []

    def keep(*given: Any) -> dict[str, float]:
        kept.append(signs_of(*given))
        return kept[-1]

    with patch.object(kmeans_model, "signs_of", keep):
        model = ps.learn_kmeans(sketch, n_clusters)
    return model, kept[-1]


def random_studies(first: int, n_studies: int) -> Iterator[dict[str, Any]]:
    """Random studies, all but those that are refused."""
    for number in range(first, first + n_studies):
        study, records = drawn(number)
        half = study["half_width"]
        found = measured(study, records, ps.Box(-half, half, dim=study["dim"]), LARGE)
        if found is not None:
            yield found


def random_tables(first: int, n_studies: int) -> Iterator[dict[str, Any]]:
    """Random tables with categories and flags, all but those that are refused."""
    for number in range(first, first + n_studies):
        found = measured(*drawn_table(number), LARGE)
        if found is not None:
            yield found


def fitted(studies: list[dict[str, Any]], rises: dict[str, bool | None]) -> Calibration:
    """Weights by least squares, of their known signs; quantiles of ratios around scores."""
    ratios = np.array([study["ratio"] for study in studies])
    goals = np.log(np.clip(ratios - 1, LEAST, MOST))
    rows = np.array([[study["signs"][name] for name in rises] for study in studies])
    low = [0.0 if up else -np.inf for up in rises.values()]
    high = [0.0 if up is False else np.inf for up in rises.values()]
    means = rows.mean(axis=0)
    found = lsq_linear(rows - means, goals - goals.mean(), (low, high)).x
    constant = float(goals.mean() - means @ found)
    scores = constant + rows @ found
    order = np.argsort(scores)
    scores, logs = scores[order], np.log(ratios[order])
    around = int(WINDOW * len(scores) / 2)
    middles = np.linspace(around, len(scores) - 1 - around, N_KNOTS).astype(int)
    windows = [slice(at - around, at + around + 1) for at in middles]
    quantiles = np.array([np.quantile(logs[window], (0.05, 0.5, 0.95)) for window in windows])
    quantiles = np.maximum.accumulate(quantiles, axis=0)
    knots = [float(np.median(scores[window])) for window in windows]

    def rounded(values: Any) -> tuple[float, ...]:
        return tuple(round(float(value), 4) for value in values)

    weights = zip(rises, rounded(found), strict=True)
    return Calibration(
        round(constant, 4),
        {name: weight for name, weight in weights if weight},
        rounded(knots),
        *map(rounded, quantiles.T),
    )


@dataclass(frozen=True)
class Other:
    """A data set that took no part in the calibration."""

    name: str
    make: Callable[[], Floats]


def _components(records: Floats, n: int) -> Floats:
    return np.asarray(PCA(n, random_state=0).fit_transform(records))


def _pixels(name: str, with_places: bool = False) -> Floats:
    """Every fourth pixel: three colours, with its place or without."""
    image = np.asarray(datasets.load_sample_image(name), dtype=np.float64)[::2, ::2] / 255
    colours = image.reshape(-1, 3)
    if not with_places:
        return colours
    places = np.indices(image.shape[:2]).reshape(2, -1).T / max(image.shape)
    return np.hstack([places, colours])


def _patches(name: str, n: int) -> Floats:
    image = np.asarray(datasets.load_sample_image(name), dtype=np.float64).mean(axis=2) / 255
    patches = extract_patches_2d(image, (6, 6), max_patches=50_000, random_state=0)
    return _components(patches.reshape(len(patches), -1), n)


def _made(kind: str, n: int, k: int, dim: int) -> Callable[[], Floats]:
    return lambda: cells.records_of(kind, n, k, dim, np.random.default_rng(7))


REAL = (
    Other("iris", lambda: datasets.load_iris().data),
    Other("petals of iris", lambda: datasets.load_iris().data[:, 2:]),
    Other("wine", lambda: scale(datasets.load_wine().data)),
    Other("wine, 3 components", lambda: _components(scale(datasets.load_wine().data), 3)),
    Other(
        "breast cancer, 5 components",
        lambda: _components(scale(datasets.load_breast_cancer().data), 5),
    ),
    Other("diabetes", lambda: scale(datasets.load_diabetes().data)),
    Other("digits, 10 components", lambda: _components(datasets.load_digits().data, 10)),
    Other("digits, 3 components", lambda: _components(datasets.load_digits().data, 3)),
    Other("colours of a temple", lambda: _pixels("china.jpg")),
    Other("colours of a flower", lambda: _pixels("flower.jpg")),
    Other("places and colours", lambda: _pixels("flower.jpg", with_places=True)),
    Other("patches of a temple", lambda: _patches("china.jpg", 8)),
)
MADE = (
    Other("moons", _made("moons", 10_000, 3, 2)),
    Other("filaments", _made("filaments", 10_000, 10, 3)),
    Other("heavy tails", _made("heavy", 20_000, 8, 3)),
    Other("flowers", _made("flowers", 5000, 3, 4)),
    Other("correlated", lambda: correlated(10, 10, 30_000)(np.random.default_rng(7))),
    Other("seed mixture", lambda: seed_mixture(6, 12, 50_000)(np.random.default_rng(7))),
    Other("stretched", lambda: stretched(7, 6, 21_000)(np.random.default_rng(7))),
    Other("along a curve", lambda: along_a_curve(20, 20_000, 0.02)(np.random.default_rng(7))),
)
OTHERS = (*REAL, *MADE)
N_RUNS = 10


@cache
def _records_of(other: Other) -> Floats:
    return np.asarray(other.make(), dtype=np.float64)


def box_of(records: Floats, slack: float = 1.0) -> ps.Box:
    """Return a box around records, which would be public in a real study."""
    low, high = records.min(axis=0), records.max(axis=0)
    middle, half = (low + high) / 2, slack * (high - low) / 2
    return ps.Box(middle - half, middle + half)


def run_of(other: Other, run: int) -> dict[str, Any] | None:
    """One run on a data set: budget, map and numbers of clusters are drawn from its number."""
    place = OTHERS.index(other)
    records = _records_of(other)
    rng = np.random.default_rng([place, run, 77])
    n, dim = records.shape
    numbers = [k for k in (2, 3, 4, 6, 8, 10, 15, 20, 40) if 10 * k <= n]
    asked = int(rng.choice(numbers))
    maps = ["fourier"] * 4 + ["one-bit"] + (["cells"] * 4 if dim <= 5 else [])
    study: dict[str, Any] = {
        "name": other.name,
        "number": 100 * place + run,
        "dim": dim,
        "n_records": n,
        "epsilon": float(rng.choice([0.3, 1.0, 3.0, 10.0])),
        "delta": float(rng.choice([0.0, 1e-6])),
        "feature_map": str(rng.choice(maps)),
        "asked": asked,
        "planned": asked if rng.random() < 0.5 else int(rng.choice(numbers)),
    }
    box = box_of(records, float(rng.choice([1.0, 1.0, 1.5, 2.0])))
    found = measured(study, records, box)
    # More clusters than a sketch can have are refused: it is asked for what it was planned for.
    return found or measured({**study, "asked": study["planned"]}, records, box)


def _holds(study: dict[str, Any]) -> bool:
    low, _, high = study["foretold"]
    return bool(low <= study["ratio"] <= high)


def lines(studies: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the table, and statements about all runs."""
    rows = []
    for other in OTHERS:
        own = [study for study in studies if study["name"] == other.name]
        if own:
            ratios = np.array([study["ratio"] for study in own])
            middles = np.array([study["foretold"][1] for study in own])
            highs = np.array([study["foretold"][2] for study in own])
            rows.append(
                [
                    other.name,
                    f"{own[0]['n_records']}",
                    f"{own[0]['dim']}",
                    f"{ratios.min():.2f}, {np.median(ratios):.2f}, {ratios.max():.2f}",
                    f"{middles.min():.2f}, {np.median(middles):.2f}, {middles.max():.2f}",
                    f"{np.median(highs):.2f}",
                    f"{sum(map(_holds, own))}/{len(own)}",
                ]
            )
    heads = ["data", "n", "d", "ratio: least, median, most", "foretold", "high end", "inside"]
    yield markdown(heads, rows)
    for name, chosen in (("all", OTHERS), ("real", REAL), ("made", MADE)):
        names = {other.name for other in chosen}
        own = [study for study in studies if study["name"] in names]
        if own:
            pairs = [(study["ratio"], study["foretold"][1]) for study in own]
            rank = float(spearmanr(pairs).statistic)
            inside = float(np.mean([_holds(study) for study in own]))
            above = float(np.mean([study["ratio"] > study["foretold"][2] for study in own]))
            yield (
                f"{name}: {len(own)} runs, the 90 % interval holds {inside:.0%} of the ratios, "
                f"{above:.0%} are above it; rank correlation {rank:.2f}"
            )


def signals() -> Iterator[str]:
    """Numbers of clusters far from what a design was planned for, on real records."""
    heads = ["k", "ratio", "foretold", "careful"]
    for name in ("patches of a temple", "colours of a temple"):
        other = next(other for other in REAL if other.name == name)
        records = _records_of(other)
        design = ps.Design.plan(
            n_components=8,
            domain=box_of(records),
            budget=ps.Budget(1.0, 1e-6),
            n_records=len(records),
            n_features=14 * 2 * (records.shape[1] + 1),
            random_state=0,
        )
        sketch = ps.sketch(records, design)
        rows = []
        for k in (2, 4, 8, 13, 40):
            model = ps.learn_kmeans(sketch, k)
            plain = KMeans(k, n_init=3, random_state=0).fit(records)
            ratio = squared_error(records, model.centers) / plain.inertia_
            told = "" if model.cost_ratio is None else model.cost_ratio.describe().split(" that")[0]
            rows.append([f"{k}", f"{ratio:.3f}", told, "; ".join(model.concerns) or "-"])
        yield f"{name}: {design.n_features} features"
        yield markdown(heads, rows)


def _evaluated(output: Path | None) -> Iterator[dict[str, Any]]:
    for other in OTHERS:
        for run in range(N_RUNS):
            found = run_of(other, run)
            if found is not None:
                _keep(found, output)
                yield found


def _keep(study: dict[str, Any], output: Path | None) -> None:
    if output is not None:
        with output.open("a", encoding="utf-8") as file:
            file.write(json.dumps(study) + "\n")


def print_tables(output: Path | None = None) -> None:
    """Print forecasts for all data sets, and for numbers of clusters that were not planned."""
    warnings.simplefilter("ignore", ps.PrivsketchWarning)
    for line in (*lines(list(_evaluated(output))), *signals()):
        print(line)


def _kind_of(study: dict[str, Any]) -> str:
    if study["kind"].startswith("mixed"):
        return "mixed"
    return "cells" if study["feature_map"] == "cells" else "waves"


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--calibrate", action="store_true", help="print constants of a model")
    parser.add_argument("--mixed", action="store_true", help="tables with categories and flags")
    parser.add_argument("--studies", type=int, default=1215, help="random ones to calibrate with")
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    parser.add_argument("--output", type=Path, help="file of lines of JSON to add to")
    parser.add_argument("--read", type=Path, nargs="*", help="files to read studies from")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ps.PrivsketchWarning)
    if arguments.read:
        text = "".join(path.read_text(encoding="utf-8") for path in arguments.read)
        studies = [json.loads(line) for line in text.splitlines()]
    elif arguments.calibrate:
        studies = []
        draw = random_tables if arguments.mixed else random_studies
        for study in draw(arguments.first, arguments.studies):
            _keep(study, arguments.output)
            studies.append(study)
    else:
        print_tables(arguments.output)
        return
    if not arguments.calibrate:
        for line in lines(studies):
            print(line)
        return
    for kind, rises in RISES.items():
        own = [study for study in studies if _kind_of(study) == kind]
        if own:
            print(f"{kind}, {len(own)} studies: {fitted(own, rises)}")


if __name__ == "__main__":
    main()
