"""Accuracy of private principal components: one row of losses per setting.

    python -m benchmarks pca                 the acceptance table
    python -m benchmarks pca --others        other sizes, budgets, spectra and centers

The loss is the share of the variance along the best k components of the raw records, clipped
to the ball, that the components learned do not hold: 100 % minus "captured variance". Records
have k equal eigenvalues and 5 % of their variance spread evenly, or eigenvalues that fall like
a power of their number, and lie half a radius from the center, root mean square. Every
repetition has its own records, directions and noise. "forecast" is what `lost_variance`
predicts from public facts, for the reference records; "told" what the models say of themselves.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import privsketch as ps
from benchmarks.common import parser_of
from privsketch._base.types import Floats
from privsketch.design.pca import predicted_loss
from privsketch.learning.pca.learner import learn_pca

SEED = 20110727


@dataclass(frozen=True)
class Setting:
    """One row of the table."""

    feature_map: str | None
    delta: float
    epsilon: float = 0.1
    n_features: int | None = None
    bound: float = np.nan  # of the median loss
    dim: int = 20
    k: int = 3
    n_records: int = 100_000
    power: float | None = None
    centered: bool = False
    method: str = "auto"

    def design(self, seed: int) -> ps.Design:
        """Return the design of one repetition."""
        return ps.Design.plan(
            task="pca",
            n_components=self.k,
            domain=ps.Ball(self.dim, 1.0),
            budget=ps.Budget(self.epsilon, self.delta),
            n_records=self.n_records,
            n_features=self.n_features,
            feature_map=self.feature_map,
            mean="released" if self.centered else None,
            random_state=seed,
        )

    def records(self, rng: np.random.Generator) -> npt.NDArray[np.float32]:
        """Return records in the unit ball, (n, dim)."""
        spectrum = np.full(self.dim, 0.05 / self.dim)
        spectrum[: self.k] += 0.95 / self.k
        if self.power is not None:
            spectrum = np.arange(1.0, self.dim + 1) ** -self.power
            spectrum /= spectrum.sum()
        axes = np.linalg.qr(rng.normal(size=(self.dim, self.dim)))[0]
        factor = (axes * np.sqrt(0.25 * spectrum)).astype(np.float32)
        records = rng.standard_normal((self.n_records, self.dim), dtype=np.float32) @ factor.T
        if self.centered:
            records += 0.2 * axes[:, -1].astype(np.float32)
        length = np.linalg.norm(records, axis=1, keepdims=True)
        return np.asarray(records / np.maximum(length, 1.0))

    @property
    def words(self) -> str:
        """The setting in words."""
        noise = "gaussian" if self.delta else "pure"
        data = "" if self.power is None else f", power {self.power:g}"
        data += ", centered" if self.centered else ""
        data += "" if self.method == "auto" else f", {self.method}"
        return (
            f"{noise:9s} {self.dim:4d} {self.k:3d} {self.n_records:8d} {self.epsilon:5g}"
            f"  {self.feature_map or 'planned'}{data}"
        )


FEATURES, MATRIX = "quadratic", "second-moments"
ACCEPTANCE = [
    Setting(FEATURES, 1e-6, n_features=540, bound=0.005),
    Setting(FEATURES, 1e-6, n_features=180),
    Setting(FEATURES, 0.0, n_features=120, bound=0.007),
    Setting(FEATURES, 0.0, n_features=140, bound=0.007),
    Setting(FEATURES, 0.0, n_features=220),
    Setting(MATRIX, 1e-6, bound=0.002),
    Setting(MATRIX, 0.0),
    Setting(FEATURES, 0.0, n_features=1200, bound=0.01, dim=100, k=5, n_records=1_000_000),
    Setting(MATRIX, 1e-6, dim=100, k=5, n_records=1_000_000),
]
OTHERS = [
    *(Setting(None, delta, epsilon) for delta in (1e-6, 0.0) for epsilon in (0.03, 0.3, 1.0)),
    *(Setting(None, delta, centered=True) for delta in (1e-6, 0.0)),
    *(
        Setting(name, delta, 1.0, n_features=180 if name == FEATURES else None, power=power)
        for power in (2.0, 1.0)
        for name in (FEATURES, MATRIX)
        for delta in (1e-6, 0.0)
    ),
    Setting(FEATURES, 1e-6, n_features=540, method="convex"),
    Setting(FEATURES, 0.0, n_features=140, method="convex"),
    Setting(MATRIX, 0.0, dim=100, k=5, n_records=1_000_000),
    Setting(FEATURES, 0.0, n_features=200, dim=50, k=1),
    Setting(FEATURES, 0.0, 1.0, n_features=1000, dim=50, k=8),
    Setting(MATRIX, 1e-6, dim=8, k=2),
    Setting(MATRIX, 0.0, dim=8, k=2),
]


def best_variance(second: Floats, k: int) -> float:
    """Variance along the best k components."""
    return float(np.linalg.eigvalsh(second)[::-1][:k].sum())


def measure(setting: Setting, repetitions: int, first_seed: int) -> tuple[str, float]:
    """Median and worst loss, forecast, what models say, and seconds to learn."""
    losses, told, seconds, numbers = [], [], [], []
    for seed in range(first_seed, first_seed + repetitions):
        rng = np.random.default_rng([seed, SEED])
        records = setting.records(rng)
        design = setting.design(seed)
        sketch = ps.sketch(records, design)
        start = time.perf_counter()
        model = learn_pca(sketch, method=setting.method)
        seconds.append(time.perf_counter() - start)
        second = np.asarray(records.T @ records, dtype=np.float64) / len(records)
        if setting.centered:
            mean = records.mean(axis=0, dtype=np.float64)
            second = second - np.outer(mean, mean)
        held = float(np.trace(model.components @ second @ model.components.T))
        losses.append(1 - held / best_variance(second, setting.k))
        told.append(model.lost_variance)
        numbers.append(model.n_standing_out)
    median = float(np.median(losses))
    row = (
        f"{design.feature_map:15s} {design.noise:8s} {len(sketch.values):6d}"
        f" {100 * median:9.4f} {100 * max(losses):9.4f} {100 * predicted_loss(design):9.4f}"
        f" {100 * float(np.median(told)):9.4f} {np.median(numbers):9.0f}"
        f" {np.median(seconds):8.3f}"
    )
    return row, median


def main() -> None:
    """Print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("--others", action="store_true", help="other settings")
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    arguments = parser.parse_args()
    print("losses in % of the variance along the best k components")
    print(
        f"{'noise':9s} {'dim':>4s} {'k':>3s} {'records':>8s} {'eps':>5s}  {'setting':30s}"
        f" {'map':15s} {'law':8s} {'values':>6s} {'median':>9s} {'worst':>9s} {'forecast':>9s}"
        f" {'told':>9s} {'stand out':>9s} {'seconds':>8s}"
    )
    for setting in OTHERS if arguments.others else ACCEPTANCE:
        large = setting.n_records * setting.dim > 10**7
        repetitions = max(3, arguments.repetitions // 3) if large else arguments.repetitions
        row, median = measure(setting, repetitions, arguments.seed)
        verdict = (
            "" if np.isnan(setting.bound) else f"  {'ok' if median <= setting.bound else 'BAD'}"
        )
        print(f"{setting.words:62s} {row}{verdict}", flush=True)


if __name__ == "__main__":
    main()
