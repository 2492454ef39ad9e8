"""What the figures of ICASSP share: the mixture, the paper's mechanism, its signal-to-noise ratio.

ICASSP is Schellekens, Chatalic, Houssiau, de Montjoye, Jacques and Gribonval, "Differentially
Private Compressive k-Means" (2019). All its records come from k Gaussians of width 1 with means
~ N(0, (1.5 k^(1/d))^2 I), k = d = 10. Its release has Laplace noise, hides the replacement of a
record, and is decoded by CL-OMPR.

The paper draws frequencies at a scale that makes |z|^2, the squared norm of the expected sketch,
about 0.35 for every mixture: a scale that fits the records. Here it is the one for which |z|^2 is
0.35 on average over mixtures, in closed form: knowledge that a user has not. Our own curves do
without it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from papers.theory import ICASSP_SIGNAL, icassp_noise, icassp_snr
from privsketch._base.errors import ParameterError
from privsketch._base.types import Floats, Integers
from privsketch.design.recipe import Design
from privsketch.facts.budget import Budget
from privsketch.facts.domain import Box
from privsketch.features.masks import Masks
from privsketch.learning.kmeans.learner import learn_kmeans
from privsketch.noise.mechanism import add_noise, saturating_add
from privsketch.sketching.sketch import Sketch, merged_receipt

PAPER = "ICASSP 2019"
N_CLUSTERS = DIM = 10
HALF_WIDTH = 8.0  # of the public box, the same for all methods; farther records are moved to it
GOOD = 1.2  # the paper's "good clustering results": RSSE below
PAPER_DECODER, OUR_DECODER = "cl-ompr", "joint"
PAPER_STARTS = 3  # searches of CL-OMPR; the paper gives 3 to k-means and no number for CL-OMPR
_SEED = 2019
_ROWS = 50_000  # records at a time
Table = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Mixture:
    """Records (n, dim) of one trial, and the means (k, dim) that they are spread around."""

    table: Table = field(repr=False)
    means: Floats


def box(d: int) -> Box:
    """Where records lie, a public fact."""
    return Box(low=-HALF_WIDTH, high=HALF_WIDTH, dim=d)


def mixture(trial: int, n_records: int, k: int = N_CLUSTERS, d: int = DIM) -> Mixture:
    """Return the records of a trial, the same in every call."""
    rng = np.random.default_rng([_SEED, trial])
    means = spread(k, d) * rng.normal(size=(k, d))
    label = rng.integers(k, size=n_records, dtype=np.int16)
    table = rng.standard_normal((n_records, d), dtype=np.float32)
    single = means.astype(np.float32)
    for first in range(0, n_records, _ROWS):
        table[first : first + _ROWS] += single[label[first : first + _ROWS]]
    return Mixture(table, means)


def spread(k: int, d: int) -> float:
    """Return standard deviation of the coordinates of the means."""
    return 1.5 * float(k ** (1 / d))


def expected_signal(scale: float, k: int, d: int) -> float:
    """|z|^2, the average over mixtures, for radii with density r exp(-r^2 / 2) at a scale.

    A pair of clusters adds E exp(-|w|^2 v), with v = 1 for a cluster and itself and
    v = 1 + spread^2 for two; E exp(-v r^2 / scale^2) = 1 / (1 + 2 v / scale^2).
    """
    apart = 1 + spread(k, d) ** 2
    return (1 / (1 + 2 / scale**2)) / k + (1 / (1 + 2 * apart / scale**2)) * (1 - 1 / k)


def oracle_scale(k: int = N_CLUSTERS, d: int = DIM) -> float:
    """Return the scale of the paper's frequencies, where expected_signal is 0.35."""
    from scipy.optimize import brentq

    return float(brentq(lambda scale: expected_signal(scale, k, d) - ICASSP_SIGNAL, 1e-2, 1e2))


def sketch_law(frequencies: Floats, means: Floats) -> npt.NDArray[np.complex128]:
    """Return E exp(i w.x) over the mixture, (n_features,); |z|^2 is its mean square."""
    width = np.exp(-np.vecdot(frequencies, frequencies) / 2)
    return np.asarray(width * np.exp(1j * (frequencies @ means.T)).mean(axis=1))


def noise_for(snr: float, n_records: float, rate: float) -> float | None:
    """sigma_xi that gives this ratio in (6) with |z|^2 = 0.35; None if no noise is too much."""
    square = rate * n_records * ICASSP_SIGNAL / snr - (1 - rate * ICASSP_SIGNAL)
    return math.sqrt(square) if square > 0 else None


def rate_for(snr: float, n_records: float, sigma_xi: float) -> float:
    """alpha_r that gives this ratio in (6) with |z|^2 = 0.35."""
    return snr * (1 + sigma_xi**2) / (ICASSP_SIGNAL * (n_records + snr))


def epsilon_for(sigma_xi: float, n_records: float, n_features: int, rate: float) -> float:
    """Epsilon whose noise, by Proposition 1, has this sigma_xi; six digits."""
    return float(f"{icassp_noise(n_records, n_features, rate, 1.0) / sigma_xi:.6g}")


def predicted_snr(design: Design, n_records: float, n_devices: int = 1) -> float:
    """(7): the ratio of the paper's release with |z|^2 = 0.35."""
    rate = 1.0 if design.masks is None else design.masks.feature_rate(design.n_features)
    each = n_records / n_devices
    sigma_xi = icassp_noise(each, design.n_features, rate, design.budget.epsilon)
    return icassp_snr(n_per_device=each, n_devices=n_devices, feature_rate=rate, sigma_xi=sigma_xi)


def paper_design(
    data: Mixture, n_features: int, *, seed: int, kept: int | None = None, in_blocks: bool = False
) -> Design:
    """Return the paper's mechanism with a budget of 1; `kept` features of a record are used."""
    k, d = data.means.shape
    masks = None
    if kept is not None and kept < n_features:
        masks = Masks("block" if in_blocks else "uniform", kept=kept)
    return Design.plan(
        n_components=k,
        domain=box(d),
        budget=Budget(1.0, neighbours="replace"),
        n_records=len(data.table),
        random_state=seed,
        n_features=n_features,
        noise="laplace",
        masks=masks,
        frequency_scale=oracle_scale(k, d),
    )


def at_epsilon(design: Design, epsilon: float) -> Design:
    """Return the design with another budget: exact sums serve both."""
    return replace(design, budget=replace(design.budget, epsilon=epsilon))


def devices_sketch(sums: Integers, design: Design, n_records: int) -> Sketch:
    """Add up the releases of L devices, whose exact sums are (L, 2 n_features).

    Every device adds its own noise. A record is on one device, so that a neighbour changes one
    row. For Laplace noise; the number of records is public.

    Charges: the budget of the design, once for every device.
    """
    noise = design.sum_noise
    if design.noise != "laplace" or design.count != "public":
        raise ParameterError("design: expected Laplace noise and neighbours='replace'")
    if len(sums) == 1:
        values, receipt = noise.release(sums[0], n_records, source="device 0")
        return Sketch(values, design, receipt, ("0",), ("device 0",), n_records)
    rows, receipt = add_noise(sums, noise.sums_law, source=None)
    names = tuple(f"device {number}" for number in range(len(sums)))
    receipts = [replace(receipt, source=name) for name in names]
    total = np.zeros(sums.shape[1], dtype=np.int64)
    for row in rows:
        total = saturating_add(total, row)
    ids = tuple(str(number) for number in range(len(sums)))
    return Sketch(total, design, merged_receipt(receipts), ids, names, n_records)


def learned(sketch: Sketch, decoder: str) -> Floats:
    """Centres of a sketch. Charges nothing."""
    starts = PAPER_STARTS if decoder == PAPER_DECODER else None
    return learn_kmeans(sketch, decoder=decoder, n_init=starts).centers


def objective(table: Table, centers: Floats) -> float:
    """Mean squared distance of records to the nearest centre."""
    total = 0.0
    for some in _blocks(table):
        total += float(
            (_scores(some, centers).min(axis=1) + np.vecdot(some, some)).sum(dtype=float)
        )
    return total / len(table)


def without_privacy(data: Mixture, n_first: int = 200_000, n_rounds: int = 5) -> Floats:
    """Centres of k-means, 3 starts; of more than `n_first` records, those first.

    Rounds of Lloyd's on all records finish what the first of them began.
    """
    from sklearn.cluster import KMeans

    k = len(data.means)
    fit = KMeans(k, n_init=3, random_state=0).fit(data.table[:n_first])
    centers = np.asarray(fit.cluster_centers_, dtype=np.float64)
    for _ in range(n_rounds if len(data.table) > n_first else 0):
        sums, counts = np.zeros_like(centers), np.zeros(k)
        for some in _blocks(data.table):
            label = _scores(some, centers).argmin(axis=1)
            counts += np.bincount(label, minlength=k)
            for column in range(centers.shape[1]):
                sums[:, column] += np.bincount(label, some[:, column], minlength=k)
        centers = np.where(
            counts[:, np.newaxis] > 0, sums / np.maximum(counts, 1)[:, np.newaxis], centers
        )
    return centers


def _blocks(table: Table) -> Iterator[Table]:
    for first in range(0, len(table), _ROWS):
        yield table[first : first + _ROWS]


def _scores(some: Table, centers: Floats) -> Table:
    """Squared distances less the squared norms of the records, (n, k)."""
    scores = some @ (-2 * centers.T).astype(np.float32)
    scores += np.vecdot(centers, centers).astype(np.float32)
    return scores
