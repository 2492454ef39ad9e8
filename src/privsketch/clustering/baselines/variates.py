"""Private seeding: k-variates++ of Nock, Canyasse, Boreli and Nielsen (2016), assumption-free.

As in k-means++, each of k steps draws a record with probability in proportion to its squared
distance to the centers so far, and releases it with noise as the next center. The published noise
is smaller but relies on two constants of the spread of the records; taking these from the records
voids the guarantee. Here nothing is assumed: the release of a step has a density that is a mixture
of noise densities, each centered at a point of the domain. Any two such mixtures are at most as far
apart as two points, so a step costs what noise for the diameter of the domain costs, whatever the
probabilities are. That holds for both relations, and even for a holder of one record. It is a lot
of noise.

Laplace noise is for the L1 diameter of the domain, cube noise for the longest side of a box or the
diameter of a ball, Gaussian noise for the L2 diameter (Renyi divergences of mixtures are at most
the largest of their parts).
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from privsketch._base.errors import require_count
from privsketch._base.threads import chunks
from privsketch._base.types import Integers, WholeFloats
from privsketch.clustering.baselines.points import (
    RANDOM_ROWS,
    PointNoise,
    noise_of_run,
    noisy_points,
    point_forecast,
    point_variance,
)
from privsketch.clustering.passes import Passes
from privsketch.clustering.run import Run
from privsketch.models.clusters import ClusterModel


def cluster(run: Run, n_clusters: int, *, noise: PointNoise | None = None) -> ClusterModel:
    """Release centers, each from one pass over the records.

    `noise` is by default "gaussian" if there is a delta, else "cube" or "laplace". The number of
    records goes into the model. There is no public randomness here.

    Charges: the budget, once; without its delta where the noise is pure.
    """
    require_count("n_clusters", n_clusters)
    run.require_one_record("k-variates")
    domain, kind = run.domain, noise_of_run(run, noise, 1)
    passes = run.read()
    number = run.number(passes)
    names = [f"center {index + 1}" for index in range(n_clusters)]
    account = run.share(dict.fromkeys(names, Fraction(1, n_clusters)))
    centers = np.zeros((0, passes.dim))
    for name in names:
        record = drawn_record(passes, centers, name)[np.newaxis]
        noisy = noisy_points(account, name, passes, record, kind)
        inside = passes.quantised(noisy * passes.unit + domain.center_vector)
        centers = np.concatenate([centers, inside])
    return run.model(
        centers * passes.unit + domain.center_vector,
        None,
        method="k-variates",
        mechanism=f"k-variates++: {n_clusters} noisy records",
        n_records=number,
        count=run.count,
        forecast=lambda facts: point_forecast(
            facts, point_variance(facts, kind, 1, 1 / n_clusters)
        ),
    )


def drawn_record(
    passes: Passes, centers: WholeFloats, name: str, *, rows: int = RANDOM_ROWS
) -> Integers:
    """Draw a record by its squared distance to the nearest center, in one pass; 0 without records.

    Exponential variables over the squared distances are smallest at each record with the right
    probability. No guarantee depends on it, nor on who knows the draw.
    """
    rng = np.random.default_rng()  # no public seed: two fits draw two records
    best, record = np.inf, np.zeros(passes.dim)
    for block in chunks(passes.blocks(name), rows):
        records = passes.quantised(block)
        squared = np.ones(len(records)) if len(centers) == 0 else np.full(len(records), np.inf)
        for center in centers:
            steps = records - center
            np.minimum(squared, np.vecdot(steps, steps), out=squared)
        # A record at a center has a small weight instead of none: all records may lie at centers.
        times = rng.exponential(size=len(records)) / np.maximum(squared, 1e-9)
        first = int(times.argmin())
        if times[first] < best:
            best, record = float(times[first]), records[first]
    return record.astype(np.int64)
