"""How much noise a released number gets by each calibration: a table of docs/projection.md.

    python -m benchmarks projection_noise

Standard deviations at epsilon = 1, delta = 1e-6 for rows that differ by at most 1. Calibrations
to the matrix at hand ("realised") depend on it: medians over public matrices of seeds 0, 1, ...,
with the 5 % and 95 % quantiles. The others are fixed before a matrix is drawn. The delta of the
printed scale is what it really has for a fresh matrix.
"""

from __future__ import annotations

import math

import numpy as np

import privsketch as ps
from benchmarks.common import parser_of
from privsketch.noise.fresh import half_normal_tail

SIZES = ((3, 2), (10, 3), (50, 10), (100, 20), (500, 50))


def drawn(
    dim: int, n_components: int, calibration: str, noise: str, seed: int | None = None
) -> ps.Projection:
    """Return a projection whose domain is wide enough to play no role."""
    return ps.Projection.draw(
        ps.Ball(dim=dim, radius=3.0),
        n_components,
        epsilon=1.0,
        delta=1e-6,
        bound=1.0,
        noise=noise,
        calibration=calibration,
        random_state=seed,
    )


def at_hand(dim: int, n_components: int, noise: str, n_seeds: int) -> str:
    """Median over matrices, and where nine in ten lie."""
    found = [
        math.sqrt(drawn(dim, n_components, "realised", noise, seed).noise_variance)
        for seed in range(n_seeds)
    ]
    low, median, high = np.quantile(found, [0.05, 0.5, 0.95])
    return f"{median:.3g} ({low:.3g} - {high:.3g})"


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="matrices of each size")
    arguments = parser.parse_args()
    titles = ("d, k", "JLL Theorem 5 (its true delta)", "union bound, corrected", "B Laplace")
    print("|", " | ".join([*titles, "B Gaussian", "A Laplace (pure)", "A Gaussian"]), "|")
    print("|---" * 7 + "|")
    for dim, k in SIZES:
        paper = drawn(dim, k, "paper", "laplace")
        # Receipts add the chance that an entry of the matrix is not accurate, d k 2^-69.
        failure = half_normal_tail(k, k * math.sqrt(2 * math.log(2 * k)))
        cells = [f"{dim}, {k}", f"{math.sqrt(paper.noise_variance):.2f} ({failure:.2g})"]
        for calibration, noise in (
            ("union", "laplace"),
            ("fresh", "laplace"),
            ("fresh", "gaussian"),
        ):
            fixed = drawn(dim, k, calibration, noise)
            cells.append(f"{math.sqrt(fixed.noise_variance):.2f}")
        cells += [at_hand(dim, k, noise, arguments.seeds) for noise in ("laplace", "gaussian")]
        print("|", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
