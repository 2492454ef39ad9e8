"""Regression beside AdaSSP on the sets of its paper: ten folds, their preprocessing, fresh noise.

    python -m benchmarks supervised adassp --data CHECKOUT            all sets, 6 draws a fold
    python -m benchmarks supervised adassp --data CHECKOUT --quick    four small sets, 1 draw

CHECKOUT is a copy of treforevans/uci_datasets on GitHub. Columns are standardised and rows have
norm 1, so records are in a public ball, means are 0 and there is no intercept, for AdaSSP as for
us; the number of records is released. `--mean released` shows what a regression with an intercept
has to pay on sets this small. The squared error of predictions, a mean over folds and
draws, is relative to targets between -1 and 1.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

import privsketch as ps
from benchmarks.common import markdown, parser_of
from benchmarks.supervised.baselines import adassp
from benchmarks.supervised.data import Fold, read_set
from benchmarks.supervised.results import publish, write_rows
from privsketch._base.types import Floats
from privsketch.design.regression import TARGET_SHARE

EPSILONS, DELTA = (0.1, 1.0), 1e-6
BOOSTS = (1, 3, 100)  # rounds; 1 is AdaSSP, 100 the default of the published code
Mean = Literal["omitted", "released"]
SEEN, HELD_OUT = "seen", "held out"


@dataclass(frozen=True)
class Published:
    """Mean squared errors that come with the paper: code/exp_results.mat of its repository."""

    trivial: float
    ols: float
    adassp: tuple[float, float]  # at epsilon 0.1 and 1
    kind: str = SEEN  # whether defaults of the learner were chosen while looking at this set


PUBLISHED = {
    "airfoil": Published(0.10332, 0.05333, (0.09121, 0.05880)),
    "autompg": Published(0.11337, 0.02211, (0.11794, 0.04490)),
    "autos": Published(0.12957, 0.02741, (0.12715, 0.10311)),
    "breastcancer": Published(0.19413, 0.13914, (0.19842, 0.19012)),
    "concrete": Published(0.12739, 0.04447, (0.13205, 0.06369)),
    "elevators": Published(0.03667, 0.00861, (0.02613, 0.01317)),
    "forest": Published(0.05640, 0.05713, (0.07260, 0.06244)),
    "housing": Published(0.11201, 0.03935, (0.09851, 0.06799)),
    "kin40k": Published(0.06336, 0.06325, (0.06393, 0.06325)),
    "pendulum": Published(0.02260, 0.01813, (0.03644, 0.02486)),
    "pol": Published(0.34482, 0.13489, (0.22362, 0.13982)),
    "protein": Published(0.16707, 0.11893, (0.12588, 0.11993)),
    "pumadyn32nm": Published(0.09347, 0.09411, (0.09575, 0.09551)),
    "servo": Published(0.18365, 0.07524, (0.21398, 0.15001)),
    "solar": Published(0.01178, 0.01056, (0.02083, 0.01348)),
    "tamielectric": Published(0.33433, 0.33436, (0.33464, 0.33442)),
    "yacht": Published(0.10526, 0.01760, (0.11773, 0.06280)),
    "bike": Published(0.10733, 0.02790, (0.04718, 0.02874), HELD_OUT),
    "concreteslump": Published(0.14945, 0.02445, (0.15831, 0.14055), HELD_OUT),
    "energy": Published(0.23517, 0.02324, (0.14772, 0.04289), HELD_OUT),
    "fertility": Published(0.09775, 0.08634, (0.11822, 0.10111), HELD_OUT),
    "gas": Published(0.11247, 0.02144, (0.08906, 0.04737), HELD_OUT),
    "machine": Published(0.12083, 0.03948, (0.12760, 0.06742), HELD_OUT),
    "parkinsons": Published(0.16969, 0.12783, (0.15430, 0.13301), HELD_OUT),
    "skillcraft": Published(0.04387, 0.02031, (0.03815, 0.02426), HELD_OUT),
    "sml": Published(0.21130, 0.01428, (0.13786, 0.04047), HELD_OUT),
    "stock": Published(0.05828, 0.01305, (0.06950, 0.03837), HELD_OUT),
    "wine": Published(0.05663, 0.02015, (0.06269, 0.03259), HELD_OUT),
}
QUICK = ("airfoil", "servo", "solar", "yacht")


@dataclass(frozen=True)
class Cell:
    """Mean squared errors on one set at one epsilon."""

    name: str
    epsilon: float
    ours: float
    worst_draw: float  # largest mean over folds of any draw
    boosted: tuple[float, ...]  # by rounds of boosting
    seconds: float  # to learn once

    @property
    def published(self) -> Published:
        """What the paper has for the set."""
        return PUBLISHED[self.name]

    @property
    def rival(self) -> float:
        """Published error of AdaSSP."""
        return self.published.adassp[EPSILONS.index(self.epsilon)]


def design_of(dim: int, n_records: int, epsilon: float, mean: Mean = "omitted") -> ps.Design:
    """Return the design for records in the unit ball and a target between -1 and 1."""
    return ps.Design.plan(
        task="regression",
        target="y",
        columns=[*(f"x{j + 1}" for j in range(dim)), "y"],
        domain=ps.Ball(dim=dim + 1, radius=math.sqrt(1 / (1 - TARGET_SHARE))),
        budget=ps.Budget(epsilon=epsilon, delta=DELTA),
        n_records=n_records,
        mean=mean,
        count="released",
        random_state=0,
    )


def predictions(x: Floats, y: Floats, new: Floats, design: ps.Design) -> tuple[Floats, float]:
    """Sketch, learn and predict; return predictions and the seconds that learning took."""
    weight = math.sqrt(TARGET_SHARE / (1 - TARGET_SHARE))
    sketch = ps.sketch(np.column_stack([x, weight * y]), design)
    start = time.perf_counter()
    model = ps.learn_regression(sketch)
    seconds = time.perf_counter() - start
    return model.predict(new) / weight, seconds


def measure(name: str, data: Fold, epsilon: float, draws: int, mean: Mean = "omitted") -> Cell:
    """Return the errors of all methods on one set."""
    n_folds, rng = data.tests.shape[1], np.random.default_rng(0)
    errors = np.empty((draws, n_folds, 1 + len(BOOSTS)))
    seconds = []
    for fold in range(n_folds):
        test = data.tests[:, fold]
        x, y, new, truth = data.x[~test], data.y[~test], data.x[test], data.y[test]
        design = design_of(x.shape[1], len(x), epsilon, mean)
        for draw in range(draws):
            found, took = predictions(x, y, new, design)
            seconds.append(took)
            others = [new @ adassp(x, y, epsilon, DELTA, rng, rounds) for rounds in BOOSTS]
            errors[draw, fold] = [float(np.square(p - truth).mean()) for p in (found, *others)]
    means = errors.mean(axis=(0, 1)).tolist()
    worst = float(errors[:, :, 0].mean(axis=1).max())
    return Cell(name, epsilon, means[0], worst, tuple(means[1:]), float(np.median(seconds)))


def summary(cells: Sequence[Cell]) -> list[str]:
    """Return what the cells say together, for sets that were seen and those that were not."""
    lines = []
    for kind in (SEEN, HELD_OUT):
        some = [cell for cell in cells if cell.published.kind == kind]
        if not some:
            continue
        below = sum(cell.ours < cell.rival for cell in some)
        logs = [math.log(cell.ours / cell.published.ols) for cell in some]
        rivals = [math.log(cell.rival / cell.published.ols) for cell in some]
        trivial = max(cell.ours / cell.published.trivial for cell in some)
        plain = sum(cell.ours < cell.boosted[0] for cell in some)
        boosted = sum(cell.ours < min(cell.boosted) for cell in some)
        lines.append(
            f"{kind}: below published AdaSSP in {below} of {len(some)} cells, below calibrated "
            f"AdaSSP in {plain}, below it and boosted AdaSSP in {boosted}; mean log ratio to OLS "
            f"{np.mean(logs):.3f} (published AdaSSP {np.mean(rivals):.3f}); at most {trivial:.2f} "
            "times the error of the trivial predictor"
        )
    return lines


HEADINGS = (
    *("set", "epsilon", "trivial", "OLS", "AdaSSP, published", "privsketch", "its worst draw"),
    *("AdaSSP, calibrated", *(f"boosted, T = {rounds}" for rounds in BOOSTS[1:]), "ms"),
)


def line_of(cell: Cell) -> list[str]:
    """Return a line of the table; the least error of the private methods is bold."""
    private = [cell.rival, cell.ours, cell.worst_draw, *cell.boosted]
    least = min(cell.rival, cell.ours, *cell.boosted)
    texts = [f"{error:.4f}" if error < 10 else f"{error:.1e}" for error in private]
    shown = [f"**{t}**" if e == least else t for t, e in zip(texts, private, strict=True)]
    public = [f"{cell.published.trivial:.4f}", f"{cell.published.ols:.4f}"]
    return [cell.name, f"{cell.epsilon:g}", *public, *shown, f"{1e3 * cell.seconds:.1f}"]


def table_of(cells: Sequence[Cell]) -> str:
    """Return the table of the cells as Markdown."""
    return markdown(HEADINGS, map(line_of, cells))


def rows_of(cells: Sequence[Cell]) -> list[list[Any]]:
    """Return the rows of the CSV file."""
    names = ["set", "kind", "epsilon", "trivial", "ols", "published", "ours", "worst_draw"]
    rows = [[*names, *(f"boosted_{rounds}" for rounds in BOOSTS), "seconds"]]
    for cell in cells:
        known = cell.published
        errors = (known.trivial, known.ols, cell.rival, cell.ours, cell.worst_draw)
        shown = [f"{error:.5g}" for error in (*errors, *cell.boosted)]
        rows.append([cell.name, known.kind, f"{cell.epsilon:g}", *shown, f"{cell.seconds:.2g}"])
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the sets that are asked for, and print tables."""
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="checkout of uci_datasets")
    parser.add_argument("--sets", nargs="*", choices=sorted(PUBLISHED), default=list(PUBLISHED))
    parser.add_argument("--draws", type=int, default=6)
    parser.add_argument("--mean", choices=("omitted", "released"), default="omitted")
    parser.add_argument("--quick", action="store_true", help="four small sets, one draw")
    parser.add_argument("--write", action="store_true", help="write results/supervised*")
    options = parser.parse_args(arguments)
    cells = []
    for name in QUICK if options.quick else options.sets:
        data = read_set(options.data, name)
        for epsilon in EPSILONS:
            draws = 1 if options.quick else options.draws
            cell = measure(name, data, epsilon, draws, options.mean)
            cells.append(cell)
            print("; ".join(line_of(cell)), flush=True)
    text = "\n".join([*(f"* {line}" for line in summary(cells)), "", table_of(cells)])
    print(text)
    if options.write:
        write_rows("adassp", rows_of(cells))
        publish("adassp", text)


if __name__ == "__main__":
    main()
