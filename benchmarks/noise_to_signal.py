"""Expected and measured noise-to-signal ratio of real releases, one table.

    python -m benchmarks noise_to_signal        1,000 releases of every combination, 5 minutes

Every feature map and relation of neighbours with every kind of masks and noise that is
allowed for them, against both references of CLP Lemma 26: the law that records come from (a
new table for every release), and the records at hand (one table). Records are drawn from
thirty points, so the law, and with it the reference, is known exactly. "away" is the
distance between measured and expected in standard errors; about one row in twenty is beyond
2 by chance.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np

import privsketch as ps
from privsketch._base.types import Floats
from privsketch.design.forecast import feature_and_record_rate
from privsketch.design.noise_to_signal import NoiseToSignal, ReferenceKind, noise_parts

RESULTS = Path(__file__).parent / "results" / "noise_to_signal.csv"
DIM, N_FEATURES, N_POINTS, N_RECORDS = 2, 20, 30, 200
MASKS = ("none", "uniform:6", "block:6", "poisson:0.3", "records:0.4", "poisson:0.6+records:0.6")
WHOLE_MASKS = ("none", "records:0.4")  # a matrix is released whole
NOISES = ("gaussian", "laplace", "cube")
MAPS = ("fourier", "one-bit", "quadratic", "second-moments")
SUSPICIOUS = 4.5  # of 200 rows none should be so far away: the chance is about 1e-3


@dataclass(frozen=True)
class Cell:
    """One combination with what was expected and measured."""

    map: str
    masks: str
    noise: str
    reference: ReferenceKind
    expected: NoiseToSignal
    measured: float
    standard_error: float

    @property
    def away(self) -> float:
        """Measured less expected, in standard errors."""
        return (self.measured - self.expected.total) / self.standard_error


def design_of(map_name: str, masks: str, noise: str, neighbours: str) -> ps.Design:
    """Return a small design; raise an error if the combination is not allowed."""
    is_pca = map_name in ("quadratic", "second-moments")
    return ps.Design.plan(
        task="pca" if is_pca else "kmeans",
        n_components=1 if is_pca else 2,
        domain=ps.Ball(DIM, 4.0),
        budget=ps.Budget(3.0, 1e-3, neighbours),  # type: ignore[arg-type]
        n_records=N_RECORDS,
        random_state=3,
        n_features=None if map_name == "second-moments" else N_FEATURES,
        feature_map=map_name,
        masks=masks,
        noise=noise,
    )


ONE_THREAD = ps.engines.Threads(1)


def features_of(points: Floats, design: ps.Design) -> Floats:
    """(points, values) exact features, in units of modulus 1: sketches of single records."""
    exact = design.without_noise()
    sketches = [
        ps.sketch(point[np.newaxis], exact, engine=ONE_THREAD, insecure=True) for point in points
    ]
    return np.stack([sketch.sums / exact.unit for sketch in sketches])


def measure(
    design: ps.Design, plain: ps.Design, masks: str, reference: ReferenceKind, n_releases: int
) -> Cell:
    """Release again and again; `plain` is the same design without masks."""
    points = np.random.default_rng(11).normal(scale=1.3, size=(N_POINTS, DIM))
    rng = np.random.default_rng([len(masks), len(design.noise), len(design.feature_map)])
    features = features_of(points, plain)
    chosen = rng.integers(N_POINTS, size=N_RECORDS)
    over = features if reference == "law" else features[chosen]
    target = over.mean(axis=0)
    signal, energy = np.square(target).sum(), np.square(over).sum(axis=1).mean()
    ratios = np.empty(n_releases)
    for i in range(n_releases):
        if reference == "law":
            chosen = rng.integers(N_POINTS, size=N_RECORDS)
        released = ps.sketch(points[chosen], design, engine=ONE_THREAD)
        estimate = released.sums / (design.unit * N_RECORDS)
        ratios[i] = np.square(estimate - target).sum() / signal
    alpha, beta = feature_and_record_rate(design)
    expected = noise_parts(
        n_records=N_RECORDS,
        n_features=design.n_features,
        signal=float(signal),
        energy=float(energy),
        noise_variance=design.n_values / design.n_features * (design.noise_std * beta) ** 2,
        feature_rate=alpha,
        record_rate=beta,
        reference=reference,
    )
    return Cell(
        design.feature_map,
        masks,
        design.noise,
        reference,
        expected,
        float(ratios.mean()),
        float(ratios.std(ddof=1) / math.sqrt(n_releases)),
    )


def cells(neighbours: str, n_releases: int) -> Iterator[Cell]:
    """All combinations that are allowed."""
    for map_name in MAPS:
        for noise in NOISES:
            plain = design_of(map_name, "none", noise, neighbours)
            for masks in MASKS if map_name != "second-moments" else WHOLE_MASKS:
                try:
                    design = design_of(map_name, masks, noise, neighbours)
                except ps.PrivsketchError:
                    continue  # not allowed
                for reference in get_args(ReferenceKind):
                    yield measure(design, plain, masks, reference, n_releases)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--releases", type=int, default=1000)
    n_releases = parser.parse_args().releases
    start, rows = time.perf_counter(), []
    print(f"{'neighbours':10s} {'map':14s} {'masks':23s} {'noise':8s} {'reference':9s}"
          f"{'expected':>9s} {'measured':>9s}    away")  # fmt: skip
    for neighbours in ("add-remove", "replace"):
        for cell in cells(neighbours, n_releases):
            print(f"{neighbours:10s} {cell.map:14s} {cell.masks:23s} {cell.noise:8s} "
                  f"{cell.reference:9s}{cell.expected.total:9.5f} {cell.measured:9.5f} "
                  f"{cell.away:+7.2f}", flush=True)  # fmt: skip
            rows.append((neighbours, cell))
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("w", newline="") as stream:
        writer = csv.writer(stream)
        parts = ("finite", "sampled", "masked", "private")
        writer.writerow(["neighbours", "map", "masks", "noise", "reference", *parts, "expected",
                         "measured", "standard_error"])  # fmt: skip
        for neighbours, cell in rows:
            found = [f"{getattr(cell.expected, part):.6g}" for part in parts]
            writer.writerow([neighbours, cell.map, cell.masks, cell.noise, cell.reference, *found,
                             f"{cell.expected.total:.6g}", f"{cell.measured:.6g}",
                             f"{cell.standard_error:.3g}"])  # fmt: skip
    away = np.array([cell.away for _, cell in rows])
    print(f"{len(rows)} combinations, {n_releases} releases each, "
          f"{time.perf_counter() - start:.0f} s; root mean square distance "
          f"{np.sqrt(np.mean(away**2)):.2f}, largest {np.abs(away).max():.2f}")  # fmt: skip
    if np.abs(away).max() > SUSPICIOUS:
        sys.exit("some releases are not as noisy as expected")


if __name__ == "__main__":
    main()
