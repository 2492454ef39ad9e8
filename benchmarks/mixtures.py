"""Accuracy of private Gaussian mixtures: one row of losses per setting.

    python -m benchmarks mixtures                 the acceptance table
    python -m benchmarks mixtures --others        more kinds of data and designs
    python -m benchmarks mixtures --labels 30     random tables with categories and flags
    python -m benchmarks mixtures --thin          thin clouds, and shapes that do not fit

The loss is the mean log-likelihood of fresh records under the reference minus that under
the mixture learned, in nats per record. The reference is the better of the mixture the
records come from and scikit-learn's GaussianMixture (3 starts) on the raw records. Every
repetition has its own records, its own frequencies and its own noise. Records outside the
box are sketched at its edge; fresh records are not clipped. The seed mixture puts a cluster
beyond the box now and then: "worst in" leaves out data sets with a mean outside the box or
within one standard deviation of its edge, and "cut" counts them.

Tables with labels have components whose columns are independent. Their shares, and the means of
their numbers, are compared with those that records are drawn with: errors of shares in percentage
points, and how often intervals of 90 % hold.

Thin tables have four clusters of 20,000 records in all. Half of the columns are copies of others or
sums of them with a jitter of 1 % or 0.2 % of the domain, or hardly vary; or all columns repeat the
first, are whole numbers or skewed. The loss there is against scikit-learn's mixture of the same
type, and beside it stands the loss of one Gaussian of that type, both fitted to the raw records.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.mixture import GaussianMixture

import privsketch as ps
from benchmarks.common import parser_of
from privsketch._base.types import Floats
from privsketch.design.size import CovarianceType, mixture_unknowns
from privsketch.learning.mixture.learner import learn_gaussian_mixture

N_RECORDS = 100_000
HALF_WIDTH = 8.0
SEED = 20190512
NINETY = 1.6449  # standard errors of a 90 % interval
WHAT = "means", "standard_errors"


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


def measure_labels(number: int) -> tuple[float, float, float, float, float]:
    """Return rms error of shares, how often shares and numbers hold, misfit, and seconds."""
    import pyarrow as pa

    rng = np.random.default_rng([number, SEED])
    k, dim, n = int(rng.integers(2, 8)), int(rng.integers(2, 6)), int(10 ** rng.uniform(4, 5.2))
    weight, epsilon = (0.3, 1.0)[number % 2], float(10 ** rng.uniform(-0.7, 0.3))
    component = rng.choice(k, n, p=rng.dirichlet(np.full(k, 5.0)))
    means, widths = rng.uniform(-0.7, 0.7, (k, dim)), rng.uniform(0.06, 0.2, (k, dim))
    numbers = means[component] + widths[component] * rng.standard_normal((n, dim))
    truth = {f"x{j}": column for j, column in enumerate(means.T)}
    cells: dict[str, Any] = dict(zip(truth, np.clip(numbers, -1, 1).T, strict=True))
    columns: list[Any] = [ps.Number(name, -1, 1) for name in cells]
    for name in [f"c{j}" for j in range(rng.integers(1, 4))]:
        values = [f"v{j}" for j in range(rng.integers(2, 13))]
        shares = rng.dirichlet(np.full(len(values), 0.6), k)
        drawn = (np.cumsum(shares, axis=1)[component] < rng.random((n, 1))).sum(axis=1)
        cells[name] = np.array(values)[np.minimum(drawn, len(values) - 1)]
        columns.append(ps.Category(name, values, weight=weight))
        truth |= {f"{name}={value}": column for value, column in zip(values, shares.T, strict=True)}
    for name in [f"f{j}" for j in range(rng.integers(0, 3))]:
        truth[name] = rng.random(k)
        cells[name] = rng.random(n) < truth[name][component]
        columns.append(ps.Flag(name, weight=weight))
    design = ps.Design.plan(
        n_components=k,
        domain=ps.Schema(columns),
        budget=ps.Budget(epsilon, 1e-6),
        n_records=n,
        random_state=number,
    )
    sketch = ps.sketch(pa.table(cells), design)
    start = time.process_time()
    model = learn_gaussian_mixture(sketch, k, covariance_type="diag")
    seconds = time.process_time() - start
    right = np.stack(list(truth.values()), axis=1)
    found, errors = (model.table(what)[list(truth)].to_numpy() for what in WHAT)
    rows, order = linear_sum_assignment(np.square(right[:, None] - found).sum(axis=2))
    off = np.abs(found[order] - right[rows])
    holds = off < NINETY * errors[order]
    rms = 100 * float(np.sqrt(np.square(off[:, dim:]).mean()))
    return rms, holds[:, dim:].mean(), holds[:, :dim].mean(), model.misfit or 0.0, seconds


THIN = ("blobs", "copies", "close copies", "one column", "constants", "sums", "integers", "money")
THIN_BUDGETS = {"1": ps.Budget(1.0, 1e-6), "0.1": ps.Budget(0.1, 1e-6), "pure 1": ps.Budget(1.0)}


def thin_records(name: str, dim: int, n: int, seed: int) -> tuple[Floats, Floats]:
    """Return records and fresh ones in the box from -1 to 1."""
    rng = np.random.default_rng([seed, SEED])
    k, half = 4, (dim + 1) // 2
    centers, widths = rng.uniform(-0.6, 0.6, (k, dim)), rng.uniform(0.05, 0.2, (k, dim))
    turns = np.linalg.qr(rng.standard_normal((k, dim, dim)))[0]
    factors, shares = rng.uniform(-0.7, 0.7, (half, dim - half)), rng.dirichlet(np.full(k, 5.0))
    results = []
    for _ in range(2):
        label = rng.choice(k, n, p=shares)
        steps, jitter = rng.standard_normal((n, dim)) * widths[label], rng.standard_normal((n, dim))
        if name == "blobs":
            steps = np.einsum("nab,nb->na", turns[label], steps)
        x = centers[label] + steps
        repeated = {
            "copies": x[:, : dim - half] + 0.02 * jitter[:, half:],
            "close copies": x[:, : dim - half] + 0.004 * jitter[:, half:],
            "constants": 0.3 + 0.01 * jitter[:, half:],
            "sums": x[:, :half] @ factors + 0.01 * jitter[:, half:],
        }
        if name in repeated:
            x[:, half:] = repeated[name]
        elif name == "one column":
            x = x[:, :1] + 0.01 * jitter
        elif name == "integers":
            x = np.round(10 * x) / 10 + 0.006 * jitter
        elif name == "money":
            x = 2 * np.exp(2 * x - 2) - 1
        results.append(np.clip(x, -1, 1))
    return results[0], results[1]


def print_thin(first: int, repetitions: int) -> None:
    """Print the mean losses of a mixture and of one Gaussian without noise for each thin table."""
    heads = " ".join(f"{name:>9}" for name in THIN_BUDGETS)
    print(f"table         d type  {heads}    one", flush=True)
    seeds = range(first, first + repetitions)
    kinds: tuple[CovarianceType, ...] = ("full", "diag")
    for name, dim, kind in ((t, d, c) for t in THIN for d in (2, 5, 10) for c in kinds):
        losses = np.zeros((len(THIN_BUDGETS) + 1, repetitions))
        for seed in seeds:
            records, fresh = thin_records(name, dim, 20_000, seed)
            plain = GaussianMixture(4, covariance_type=kind, n_init=2, random_state=seed)
            best = plain.fit(records).score(fresh)
            one = GaussianMixture(1, covariance_type=kind).fit(records)
            losses[-1, seed - first] = best - one.score(fresh)
            for row, budget in zip(losses, THIN_BUDGETS.values(), strict=False):
                design = ps.Design.plan(
                    task="gaussian-mixture",
                    covariance_type=kind,
                    n_components=4,
                    domain=ps.Box(-1, 1, dim=dim),
                    budget=budget,
                    n_records=len(records),
                    random_state=seed,
                )
                model = learn_gaussian_mixture(ps.sketch(records, design), 4, covariance_type=kind)
                row[seed - first] = best - model.score(fresh)
        cells = " ".join(f"{loss:9.3f}" for loss in losses.mean(axis=1)[:-1])
        print(f"{name:12} {dim:2d} {kind:5} {cells} {losses[-1].mean():6.2f}", flush=True)


def print_labels(first: int, n_tables: int) -> None:
    """Print a line for each table, and the means of all."""
    form = "{:>5} {:10.2f} {:11.2f} {:12.2f} {:7.2f} {:8.2f}"
    print("table shares rms shares hold numbers hold  misfit  learn s")
    results = []
    for number in range(first, first + n_tables):
        results.append(measure_labels(number))
        print(form.format(number, *results[-1]), flush=True)
    print(form.format("mean", *np.mean(results, axis=0)))


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--others", action="store_true", help="more kinds of data and designs")
    parser.add_argument("--epsilon", type=float, nargs="*", help="only rows with these")
    parser.add_argument("--covariance-type", choices=["full", "tied", "diag", "spherical"])
    parser.add_argument("--labels", type=int, help="number of random tables with labels")
    parser.add_argument("--thin", action="store_true", help="tables with thin clouds")
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.labels:
        print_labels(arguments.first_seed, arguments.labels)
        return
    if arguments.thin:
        print_thin(arguments.first_seed, arguments.repetitions)
        return
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
