"""Totals whose noise is shared: error of k-means beside one holder's, and noise for each holder.

    python -m benchmarks sealed                  all settings, some minutes
    python -m benchmarks sealed --draws 10       quicker, and less sure

All ways see the same exact sums, made once; noise is drawn again and again by the same functions
as in a study, only that sums are not sealed. *One* is a single holder of all records. *Holders* add
parts of one noise: all are honest, or a third collude, or those and a third do not take part.
*Tellers* are two, with what holders add lest tellers see exact sums. *Apart* is a sketch of each.
Errors are root mean squares over centers and draws, in units of the records. Parts of all holders
should cost what one does, but for 5 %; the standard error of that ratio is printed beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

import privsketch as ps
from benchmarks.common import markdown, parser_of
from privsketch._typing import Floats, Integers
from privsketch.noise.laws import SharingKind
from privsketch.noise.mechanism import add_noise
from privsketch.noise.sharing.plan import Sharing, plan_sharing
from privsketch.sketching.build import engine_sums
from privsketch.sketching.joined import joined_sketch
from privsketch.sketching.merge import merge

SEED, ALLOWED = 20261117, 1.05


@dataclass(frozen=True)
class Setting:
    """One study."""

    n_holders: int
    n_records: int  # of each
    epsilon: float
    delta: float = 1e-6


SETTINGS = [Setting(5, 4000, 0.1), Setting(50, 2000, 0.1), Setting(5, 4000, 0.3, 0.0)]
CENTERS = np.array([[-0.6, -0.5], [0.6, -0.5], [0.0, 0.6], [0.6, 0.5], [-0.6, 0.5]])
WIDTH = 0.08


def design_of(setting: Setting, sharing: SharingKind) -> ps.Design:
    return ps.Design.plan(
        n_components=len(CENTERS),
        domain=ps.Box(-1, 1, dim=2),
        budget=ps.Budget(setting.epsilon, setting.delta),
        n_records=setting.n_records,
        random_state=1,
        n_holders=setting.n_holders,
        sharing=sharing,
    )


def words_of(setting: Setting, design: ps.Design) -> list[Integers]:
    """Exact integers of every holder."""
    rng = np.random.default_rng(SEED)
    found = []
    for _ in range(setting.n_holders):
        near = CENTERS[rng.integers(len(CENTERS), size=setting.n_records)]
        sums = engine_sums(near + WIDTH * rng.standard_normal(near.shape), design)
        found.append(design.sum_noise.weighted(sums.sums, sums.n_records))
    return found


def total_of(
    design: ps.Design, sharing: Sharing, words: list[Integers], n_words: int | None = None
) -> ps.Sketch:
    """What a study of the first so many holders joins to."""
    turnout = n_words or len(words)
    level = sharing.level_of(turnout)
    total = np.zeros(sharing.n_words, dtype=np.int64)
    for one in words[:turnout]:
        total += sharing.draw_holder(one)[0][level]
    if sharing.by == "tellers":
        for _ in range(sharing.n_tellers):
            total += sharing.draw_teller()[0]
    names = [f"holder-{place}" for place in range(turnout)]
    return joined_sketch(design, total, sharing, sources=names, study="benchmark")


def apart(design: ps.Design, words: list[Integers]) -> ps.Sketch:
    """Sketches that holders release by themselves, merged."""
    merged: list[ps.Sketch] = []
    for place, one in enumerate(words):
        name, noise, start = f"holder-{place}", design.sum_noise, 0
        noisy, receipts = [], []
        for law in noise.laws:
            values, receipt = add_noise(one[start : start + law.n_components], law, source=name)
            noisy.append(values)
            receipts.append(receipt)
            start += law.n_components
        # Who merges looks at sums and costs; of two laws one receipt is enough here.
        ids = (f"id-{place}",)
        merged.append(ps.Sketch(np.concatenate(noisy), design, receipts[0], ids, (name,)))
    return merge(merged)


def squared_error(sketch: ps.Sketch) -> float:
    """Mean square over centers, the cheapest way to match them."""
    model = ps.learn_kmeans(sketch, n_clusters=len(CENTERS), random_state=0)
    squares: Floats = np.square(model.centers[:, None] - CENTERS).sum(axis=2)
    rows, columns = linear_sum_assignment(squares)
    return float(squares[rows, columns].mean())


def errors_of(setting: Setting, draws: int) -> dict[str, Floats]:
    """Squared errors of every way, one for each draw."""
    n = setting.n_holders
    sharing: SharingKind = "holders" if setting.delta > 0 else "tellers"
    design = design_of(setting, sharing)
    words, noise = words_of(setting, design), design.sum_noise
    everything = [sum(words[1:], words[0])]
    ways: dict[str, Callable[[], ps.Sketch]] = {
        "one": lambda: apart(design, everything),
        "apart": lambda: apart(design, words),
        "tellers": lambda: total_of(design, plan_sharing(noise, n_holders=n, by="tellers"), words),
    }
    if sharing == "holders":
        honest = plan_sharing(noise, n_holders=n, colluding=0, min_holders=n)
        usual = plan_sharing(noise, n_holders=n)
        ways["holders, all honest"] = lambda: total_of(design, honest, words)
        ways["holders, a third colludes"] = lambda: total_of(design, usual, words)
        ways["and a third is missing"] = lambda: total_of(design, usual, words, usual.min_holders)
    return {
        name: np.array([squared_error(way()) for _ in range(draws)]) for name, way in ways.items()
    }


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--draws", type=int, default=100)
    draws = parser.parse_args().draws
    failed = False
    for setting in SETTINGS:
        found = errors_of(setting, draws)
        one = found["one"]
        lines = []
        for name, squares in found.items():
            ratio = math.sqrt(squares.mean() / one.mean())
            spreads = [np.std(each) / each.mean() / 2 for each in (squares, one)]
            error = ratio * math.hypot(*spreads) / math.sqrt(draws)
            failed |= name == "holders, all honest" and ratio - 3 * error > ALLOWED
            cells = f"{math.sqrt(squares.mean()):.4f}", f"{ratio:.3f} +- {error:.3f}"
            lines.append((name, *cells))
        print(f"\n{setting}\n", flush=True)
        print(markdown(["who adds noise", "error of centers", "over that of one"], lines))
    print("\nmore than 5 % beyond one holder" if failed else "\nwithin 5 % of one holder")
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
