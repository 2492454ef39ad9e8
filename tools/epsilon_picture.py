"""Draw docs/images/epsilon.png: what a reader may come to believe, for several values of epsilon.

Bayes' rule, and nothing else: under epsilon, the odds of a belief about one person change by a
factor of at most e^epsilon. Run `python -m tools.epsilon_picture`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

OUTPUT = Path(__file__).parents[1] / "docs" / "images" / "epsilon.png"
PRIORS = ((0.01, "1 in 100"), (0.1, "1 in 10"), (0.5, "1 in 2"))
EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)


def highest_belief(prior: float, epsilon: float) -> float:
    """Return the largest probability that somebody who began with `prior` may end with."""
    odds = prior / (1 - prior) * np.exp(epsilon)
    return float(odds / (1 + odds))


def draw() -> None:
    """Draw the picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(9.5, 3.1), sharey=True)
    for axis, (prior, words) in zip(axes, PRIORS, strict=True):
        beliefs = [100 * highest_belief(prior, epsilon) for epsilon in EPSILONS]
        positions = np.arange(len(EPSILONS))
        axis.bar(positions, beliefs, color="#9bb8d9", width=0.72)
        axis.bar(positions, 100 * prior, color="#33608c", width=0.72)
        for position, belief in zip(positions, beliefs, strict=True):
            text = f"{belief:.0f} %" if belief >= 9.5 else f"{belief:.1f} %"
            axis.text(position, belief + 2, text, ha="center", fontsize=9)
        axis.set_xticks(positions, [f"{epsilon:g}" for epsilon in EPSILONS])
        axis.set_ylim(0, 112)
        axis.set_xlabel("epsilon")
        axis.set_title(f"guess beforehand: {words}", fontsize=10)
        axis.spines[["top", "right", "left"]].set_visible(False)
        axis.tick_params(left=False, labelleft=False)
    axes[0].set_ylabel("guess afterwards, at most")
    figure.tight_layout()
    figure.savefig(OUTPUT, dpi=130)


if __name__ == "__main__":
    draw()
