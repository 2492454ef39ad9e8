"""What all targets of CLP share: records, designs, releases from shared sums, and RSSE.

CLP is Chatalic, Schellekens, Houssiau, de Montjoye, Jacques and Gribonval, "Compressive Learning
with Privacy Guarantees" (2021). Its section 6 clusters "data generated according to Gaussian
mixtures"; ours are those of ICASSP: k Gaussians N(mu, I) of equal weight, with
mu ~ N(0, (1.5 k^(1/d))^2 I).

Frequencies of CKM "typically are i.i.d. Gaussians" whose scale "must be adapted to the data"; CLP
has no private way to do so. Here both decoders are told that clusters have width 1. Normal
frequencies of scale t are about sqrt(d) / t long, and tell most about centres at t = sqrt(d) times
the width (design/size.py), which is what our decoder gets. Dirac atoms need longer
scales: CKM gets 1.5 sqrt(d), the best of several for it, tried on other records than those of the
targets. Curves without that oracle have the multi-scale law of `Design.plan`.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from privsketch._base.types import Floats
from privsketch.design.recipe import Design
from privsketch.facts.budget import Budget
from privsketch.facts.domain import Box
from privsketch.learning.kmeans.learner import learn_kmeans
from privsketch.sketching.sketch import Sketch
from privsketch.sketching.sums import ExactSums, exact_sums

PAPER = "CLP 2021"
SEPARATION = 1.5  # of the centres, times k^(1/d)
HALF_WIDTH = 8.0  # of the box; centres have a standard deviation of about 2
KMEANS_STARTS = 3  # of the reference: "w.r.t. k-means with 3 trials", Figure 4
CKM_STARTS = 3  # the best of as many searches
USABLE = 1.2  # RSSE below which a sketch counts as useful, as in ICASSP
# Scales of normal frequencies in units of sqrt(d) and of the clusters' width.
CKM_SCALE, JOINT_SCALE = 1.5, 1.0
_SEED = 2021  # far from the seeds of frequencies


@dataclass(frozen=True, eq=False)
class Records:
    """A table (n, d), the centres (k, d) that it was drawn around, and the SSE of k-means."""

    table: npt.NDArray[np.float32] = field(repr=False)
    centers: Floats = field(repr=False)
    sse: float

    @property
    def size(self) -> tuple[int, int]:
        """Numbers of records and columns."""
        return self.table.shape[0], self.table.shape[1]

    def rsse(self, centers: Floats) -> float:
        """SSE of centres over that of k-means on the same records."""
        return squared_error(self.table, centers) / self.sse


def centers_of(k: int, dim: int, trial: int) -> Floats:
    """Return the mixture of a trial."""
    rng = np.random.default_rng([_SEED, k, dim, trial])
    return rng.normal(scale=SEPARATION * k ** (1 / dim), size=(k, dim))


def draw_table(
    centers: Floats, n_records: int, rng: np.random.Generator
) -> npt.NDArray[np.float32]:
    """Draw records around the centres, with a standard deviation of 1."""
    k, dim = centers.shape
    table = rng.standard_normal((n_records, dim), dtype=np.float32)
    table += centers.astype(np.float32)[rng.integers(k, size=n_records)]
    return table


def draw_records(n_records: int, k: int, dim: int, trial: int) -> Records:
    """Return the records of a trial and their k-means clustering."""
    from sklearn.cluster import KMeans

    centers = centers_of(k, dim, trial)
    table = draw_table(centers, n_records, np.random.default_rng([_SEED, trial, n_records]))
    fit = KMeans(k, n_init=KMEANS_STARTS, random_state=trial).fit(table)
    best = np.asarray(fit.cluster_centers_, dtype=np.float64)
    return Records(table, centers, squared_error(table, best))


def squared_error(table: npt.NDArray[np.float32], centers: Floats) -> float:
    """Sum of squared distances to the nearest centre."""
    offset = centers.mean(axis=0)  # small numbers lose fewer digits
    near = (centers - offset).astype(np.float32)
    total, rows = 0.0, 2**16
    for first in range(0, len(table), rows):
        some = table[first : first + rows] - offset.astype(np.float32)
        scores = some @ (-2 * near.T)
        scores += np.vecdot(near, near)
        least = scores.min(axis=1)
        least += np.vecdot(some, some)
        total += float(least.sum(dtype=np.float64))
    return total


def box(dim: int) -> Box:
    """Where records lie; one in several thousand is moved to the edge."""
    return Box(low=-HALF_WIDTH, high=HALF_WIDTH, dim=dim)


def design_of(
    k: int,
    dim: int,
    n_features: int,
    n_records: int,
    seed: int,
    *,
    scale: float | None,
    budget: Budget,
    noise: str,
    **options: Any,
) -> Design:
    """Return a design for k-means; `scale` in units of sqrt(d), None if the width is unknown."""
    return Design.plan(
        n_components=k,
        domain=box(dim),
        budget=budget,
        n_records=n_records,
        random_state=seed,
        n_features=n_features,
        frequencies=None if scale is None else "gaussian",
        frequency_scale=None if scale is None else scale * math.sqrt(dim),
        noise=noise,
        **options,
    )


def sums_of(table: npt.NDArray[np.floating[Any]], design: Design) -> ExactSums:
    """Exact sums, which do not depend on noise or budget."""
    return exact_sums([table], design, n_threads=1)


def release(exact: ExactSums, design: Design, budget: Budget | None = None) -> Sketch:
    """Release these sums as `sketch` does, at the design's budget or another one.

    Charges: the budget, each time. Records here are drawn by a public program.
    """
    if budget is not None and budget != design.budget:
        design = replace(design, budget=budget)
    identity = secrets.token_hex(16)
    values, receipt = design.sum_noise.release(
        exact.sums, exact.n_records, n_kept=exact.n_kept, source=identity
    )
    public = exact.n_records if design.count == "public" else None
    return Sketch(values, design, receipt, (identity,), (identity,), public)


def decoded(released: Sketch, k: int, decoder: str) -> Floats:
    """Centres by a decoder, "cl-ompr" being the paper's."""
    starts = CKM_STARTS if decoder == "cl-ompr" else None
    return np.asarray(learn_kmeans(released, k, decoder=decoder, n_init=starts).centers)


def signal_of(exact: ExactSums, design: Design) -> float:
    """|z|^2 of the records' mean features, over all m of them; features have modulus 1."""
    mean = exact.sums / (design.unit * exact.n_records)
    return float(mean @ mean)
