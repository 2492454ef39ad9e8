"""Accuracy of private Gaussian mixtures: one row of losses per setting.

    python -m benchmarks mixtures                 the acceptance table
    python -m benchmarks mixtures --others        more kinds of data and designs

The loss is the mean log-likelihood of fresh records under the reference minus that under
the mixture learned, in nats per record. The reference is the better of the mixture the
records come from and scikit-learn's GaussianMixture (3 starts) on the raw records. Every
repetition has its own records, its own frequencies and its own noise. Records outside the
box are sketched at its edge; fresh records are not clipped. The seed mixture puts a cluster
beyond the box now and then: "worst in" leaves out data sets with a mean outside the box or
within one standard deviation of its edge, and "cut" counts them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from sklearn.mixture import GaussianMixture

import privsketch as ps
from benchmarks.common import parser_of
from privsketch._base.types import Floats
from privsketch.design.size import CovarianceType, mixture_unknowns
from privsketch.learning.mixture.learner import learn_gaussian_mixture

N_RECORDS = 100_000
HALF_WIDTH = 8.0
SEED = 20190512


@dataclass(frozen=True)
class Truth:
    """The mixture records are drawn from."""

    weights: Floats
    means: Floats
    covariances: Floats  # (k, dim, dim)

    def draw(self, n: int, rng: np.random.Generator) -> Floats:
        """Independent records, (n, dim)."""
        label = rng.choice(len(self.weights), size=n, p=self.weights)
        factors = np.linalg.cholesky(self.covariances)
        normal = rng.normal(size=(n, self.means.shape[1]))
        return np.asarray(self.means[label] + np.einsum("nab,nb->na", factors[label], normal))

    def score(self, records: Floats) -> float:
        """Mean log-likelihood of records."""
        judge = GaussianMixture(len(self.weights), covariance_type="full")
        judge.weights_, judge.means_ = self.weights, self.means
        factors = np.linalg.inv(np.linalg.cholesky(self.covariances))
        judge.precisions_cholesky_ = np.swapaxes(factors, 1, 2)
        return float(judge.score(records))


def unequal_mixture(
    k: int, dim: int, covariance_type: str, rng: np.random.Generator, spread: float = 1.5
) -> Truth:
    """Means of the seed mixture, weights up to 1:4, variances between 0.5 and 2."""
    means = rng.normal(size=(k, dim)) * spread * k ** (1 / dim)
    weights = rng.uniform(1, 4, k)
    variances = rng.uniform(0.5, 2, (k, dim))
    if covariance_type == "spherical":
        variances = np.repeat(variances[:, :1], dim, axis=1)
    covariances = variances[:, :, None] * np.eye(dim)
    if covariance_type in ("full", "tied"):
        turns = np.linalg.qr(rng.normal(size=(k, dim, dim)))[0]
        covariances = turns @ covariances @ np.swapaxes(turns, 1, 2)
    if covariance_type == "tied":
        covariances = np.repeat(covariances[:1], k, axis=0)
    return Truth(weights / weights.sum(), means, covariances)


@dataclass(frozen=True)
class Setting:
    """One row of the table."""

    covariance_type: CovarianceType
    k: int
    dim: int
    epsilon: float
    bound: float = np.nan
    per_unknown: float | None = 4.0  # features; None for what the planner chooses
    spread: float = 1.5
    note: str = ""
    delta: float = 1e-6
    task: str = "gaussian-mixture"
    feature_map: str = "fourier"

    def design(self, seed: int) -> ps.Design:
        """Return the design of one repetition."""
        n_features = None
        if self.per_unknown is not None:
            unknowns = mixture_unknowns(self.k, self.dim, self.covariance_type)
            n_features = int(self.per_unknown * unknowns)
        is_mixture = self.task == "gaussian-mixture"
        return ps.Design.plan(
            task=self.task,
            covariance_type=self.covariance_type if is_mixture else None,
            n_components=self.k,
            domain=ps.Box(-HALF_WIDTH, HALF_WIDTH, dim=self.dim),
            budget=ps.Budget(self.epsilon, self.delta),
            n_features=n_features,
            feature_map=self.feature_map,
            random_state=seed,
        )


ACCEPTANCE = [
    Setting("diag", 5, 5, epsilon, bound)
    for epsilon, bound in ((100.0, 0.002), (1.0, 0.003), (0.3, 0.01))
] + [
    Setting("full", 5, 3, epsilon, bound)
    for epsilon, bound in ((100.0, 0.002), (1.0, 0.003), (0.3, 0.01))
]
OTHERS = [
    Setting("diag", 5, 5, 0.1),
    Setting("full", 5, 3, 0.1),
    Setting("diag", 5, 5, 1.0, per_unknown=None, note="planned size"),
    Setting("full", 5, 3, 1.0, per_unknown=None, note="planned size"),
    Setting("diag", 5, 5, 1.0, per_unknown=None, task="kmeans", note="planned for k-means"),
    Setting("full", 5, 3, 1.0, per_unknown=None, task="kmeans", note="planned for k-means"),
    Setting("diag", 5, 5, 1.0, feature_map="one-bit", note="one-bit"),
    Setting("full", 5, 3, 1.0, feature_map="one-bit", note="one-bit"),
    Setting("diag", 5, 5, 1.0, delta=0.0, per_unknown=None, note="pure"),
    Setting("full", 5, 3, 1.0, spread=0.7, note="heavy overlap"),
    Setting("full", 5, 3, 0.3, spread=0.7, note="heavy overlap"),
    Setting("tied", 5, 4, 1.0),
    Setting("spherical", 5, 5, 1.0),
    Setting("diag", 10, 10, 1.0),
    Setting("diag", 10, 10, 0.3),
    Setting("diag", 10, 10, 0.1),
    Setting("full", 10, 5, 1.0),
    Setting("diag", 20, 5, 1.0),
]


def reference(
    truth: Truth, records: Floats, kind: CovarianceType, seed: int
) -> Callable[[Floats], float]:
    """Return the better score of fresh records: scikit-learn's or the true mixture's."""
    plain = GaussianMixture(len(truth.weights), covariance_type=kind, n_init=3, random_state=seed)
    plain.fit(records)
    return lambda fresh: max(truth.score(fresh), float(plain.score(fresh)))


def measure(setting: Setting, repetitions: int, first_seed: int) -> str:
    """Median and worst loss, misfit, and seconds to sketch and to learn."""
    losses, misfits, learning, cut = [], [], [], []
    for seed in range(first_seed, first_seed + repetitions):
        rng = np.random.default_rng([seed, SEED])
        kind = setting.covariance_type
        truth = unequal_mixture(setting.k, setting.dim, kind, rng, setting.spread)
        records, fresh = truth.draw(N_RECORDS, rng), truth.draw(N_RECORDS, rng)
        widths = np.sqrt(np.diagonal(truth.covariances, axis1=1, axis2=2))
        cut.append(bool((np.abs(truth.means) + widths > HALF_WIDTH).any()))
        sketch = ps.sketch(records, setting.design(seed))
        start = time.perf_counter()
        model = learn_gaussian_mixture(sketch, setting.k, covariance_type=kind)
        learning.append(time.perf_counter() - start)
        misfits.append(model.misfit or 0.0)
        losses.append(reference(truth, records, kind, seed)(fresh) - model.score(fresh))
    inside = [loss for loss, is_cut in zip(losses, cut, strict=True) if not is_cut]
    return (
        f"{sketch.design.n_features:5d} {np.median(losses):9.5f} {max(losses):9.4f}"
        f" {max(inside, default=np.nan):9.4f} {sum(cut):4d}"
        f" {max(misfits):7.2f} {np.median(learning):8.2f} {max(learning):8.2f}"
    )


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--others", action="store_true", help="more kinds of data and designs")
    parser.add_argument("--epsilon", type=float, nargs="*", help="only rows with these")
    parser.add_argument("--covariance-type", choices=["full", "tied", "diag", "spherical"])
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    arguments = parser.parse_args()
    head = ["covariances", "k", "d", "eps", "bound", "m", "median", "worst", "worst in", "cut"]
    head += ["misfit", "learn s", "most s"]
    form = "{:22} {:>3} {:>3} {:>5} {:>6} {:>5} {:>9} {:>9} {:>9} {:>4} {:>7} {:>8} {:>8}"
    print(form.format(*head))
    for row in OTHERS if arguments.others else ACCEPTANCE:
        if arguments.epsilon and row.epsilon not in arguments.epsilon:
            continue
        if arguments.covariance_type not in (None, row.covariance_type):
            continue
        result = measure(row, arguments.repetitions, arguments.first_seed)
        limit = f"{row.bound:6.3f}" if np.isfinite(row.bound) else "     -"
        name = f"{row.covariance_type} {row.note}".strip()[:22]
        print(f"{name:22} {row.k:3d} {row.dim:3d} {row.epsilon:5g} {limit} {result}", flush=True)


if __name__ == "__main__":
    main()
