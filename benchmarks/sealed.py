"""Totals whose noise is shared: its variance, and error of k-means beside one holder's.

    python -m benchmarks sealed                  all of it, half an hour
    python -m benchmarks sealed variance         noise of totals alone, two minutes
    python -m benchmarks sealed error --draws 10 error of centers, quicker and less sure

*Variance* of the noise of a total, over that of one release, is |S| / H: of so many studies each,
with all holders and with as few as a total may have. It must be within 3 standard errors.

*Error* of centers: all ways see the same records, drawn anew for each group of draws; noise is
drawn by the same functions as in a study, only that sums are not sealed. *One* is a single holder
of all records. *Holders* add parts of one noise: all are honest, or a third collude, or those and a
third do not take part. *Tellers* are two, with what holders add lest tellers see exact sums.
*Apart* is a sketch of each. Errors are root mean squares over centers and draws, in units of the
records. Parts of all holders should cost what one does, but for 5 %: the ratio with three standard
errors, from pairs of the same records, must stay below that. The other ways get fewer draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

import privsketch as ps
from benchmarks.common import markdown, parser_of
from privsketch._base.types import Floats, Integers
from privsketch.noise.mechanism import add_noise
from privsketch.noise.sharing.plan import Sharing, plan_sharing
from privsketch.noise.sums import SharingKind
from privsketch.sketching.build import engine_sums
from privsketch.sketching.joined import joined_sketch
from privsketch.sketching.merge import add_sketches

SEED, ALLOWED = 20261117, 1.05
HONEST = "holders, all honest"
COMPARED = ("one", HONEST)
GROUP = 8  # draws of noise for each draw of records
OTHERS = 16  # ways that are not compared get one draw in so many


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


def words_of(setting: Setting, design: ps.Design, seed: int) -> list[Integers]:
    """Exact integers of every holder."""
    rng = np.random.default_rng((SEED, seed))
    found = []
    for _ in range(setting.n_holders):
        near = CENTERS[rng.integers(len(CENTERS), size=setting.n_records)]
        sums = engine_sums(near + WIDTH * rng.standard_normal(near.shape), design)
        found.append(design.sum_noise.weighted(sums.sums, sums.n_records))
    return found


def total_of(
    design: ps.Design, sharing: Sharing, words: list[Integers], n_words: int | None = None
) -> ps.Sketch:
    """Return the joined total of a sealed study of these holders."""
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
    return add_sketches(merged)


def squared_error(sketch: ps.Sketch) -> float:
    """Mean square over centers, the cheapest way to match them."""
    model = ps.learn_kmeans(sketch, n_clusters=len(CENTERS), random_state=0)
    squares: Floats = np.square(model.centers[:, None] - CENTERS).sum(axis=2)
    rows, columns = linear_sum_assignment(squares)
    return float(squares[rows, columns].mean())


Way = Callable[[list[Integers]], ps.Sketch]


def ways_of(setting: Setting, design: ps.Design, sharing: SharingKind) -> dict[str, Way]:
    """How the words of all holders become a sketch; the first two are compared."""
    n, noise = setting.n_holders, design.sum_noise
    tellers = plan_sharing(noise, n_holders=n, by="tellers")
    ways: dict[str, Way] = {"one": lambda words: apart(design, [sum(words[1:], words[0])])}
    if sharing == "holders":
        honest = plan_sharing(noise, n_holders=n, colluding=0, min_holders=n)
        ways[HONEST] = lambda words: total_of(design, honest, words)
    ways["apart"] = lambda words: apart(design, words)
    ways["tellers"] = lambda words: total_of(design, tellers, words)
    if sharing == "holders":
        usual = plan_sharing(noise, n_holders=n)
        ways["holders, a third colludes"] = lambda words: total_of(design, usual, words)
        ways["and a third is missing"] = lambda words: total_of(
            design, usual, words, usual.min_holders
        )
    return ways


def errors_of(setting: Setting, draws: int) -> dict[str, Floats]:
    """Squared errors of every way, one for each draw; draws of two ways have the same records."""
    sharing: SharingKind = "holders" if setting.delta > 0 else "tellers"
    design = design_of(setting, sharing)
    ways = ways_of(setting, design, sharing)
    found: dict[str, list[float]] = {name: [] for name in ways}
    for draw in range(draws):
        if draw % GROUP == 0:
            words = words_of(setting, design, draw // GROUP)
        for name, way in ways.items():
            if name in COMPARED or HONEST not in ways or draw % OTHERS == 0:
                found[name].append(squared_error(way(words)))
    return {name: np.array(squares) for name, squares in found.items()}


def ratio_of(squares: Floats, one: Floats) -> tuple[float, float]:
    """Root of the ratio of two means, and its standard error; from pairs, if they are as many."""
    ratio = math.sqrt(squares.mean() / one.mean())
    if len(squares) == len(one):
        differences = squares / squares.mean() - one / one.mean()
        return ratio, ratio * float(np.std(differences)) / 2 / math.sqrt(len(one))
    spreads = [np.std(each) / each.mean() / math.sqrt(len(each)) for each in (squares, one)]
    return ratio, ratio * math.hypot(*spreads) / 2


def measure_errors(draws: int) -> bool:
    """Tables of errors; whether parts of all holders cost what one does, but for 5 %."""
    is_good = True
    for setting in SETTINGS:
        found = errors_of(setting, draws if setting.delta > 0 else draws // OTHERS)
        lines = []
        for name, squares in found.items():
            ratio, error = ratio_of(squares, found["one"])
            is_good &= name != HONEST or ratio + 3 * error < ALLOWED
            cells = f"{math.sqrt(squares.mean()):.4f}", f"{ratio:.3f} +- {error:.3f}"
            lines.append((name, str(len(squares)), *cells))
        print(f"\n{setting}\n")
        names = ["who adds noise", "draws", "error of centers", "over that of one"]
        print(markdown(names, lines), flush=True)
    print("\nwithin 5 % of one holder" if is_good else "\nnot known to be within 5 % of one holder")
    return is_good


def measure_variance(studies: int) -> bool:
    """Return a table of variances of totals, and whether all are as expected."""
    is_good, lines = True, []
    design = ps.Design.plan(
        n_components=2,
        domain=ps.Box(-1, 1, dim=2),
        budget=ps.Budget(0.1, 1e-6),
        n_features=4,
        noise="gaussian",
        random_state=1,
    )
    for n_holders in (3, 5, 50):
        sharing = plan_sharing(design.sum_noise, n_holders=n_holders)
        nothing = [np.zeros(sharing.n_words, dtype=np.int64)] * n_holders
        for turnout in (n_holders, sharing.min_holders):
            found = np.array(
                [
                    total_of(design, sharing, nothing, turnout).values.astype(np.float64)
                    for _ in range(studies)
                ]
            )
            ratios = np.square(found / design.sum_noise.sums_law.scale).mean(axis=1)
            expected = turnout / sharing.levels[sharing.level_of(turnout)]
            error = float(ratios.std()) / math.sqrt(studies)
            away = (ratios.mean() - expected) / error
            is_good &= abs(away) <= 3
            cells = f"{expected:.4f}", f"{ratios.mean():.4f} +- {error:.4f}", f"{away:+.1f}"
            lines.append((str(n_holders), str(turnout), *cells))
    names = ["holders", "take part", "|S| / H", f"variance, {studies} studies", "standard errors"]
    print(markdown(names, lines), flush=True)
    return is_good


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("what", nargs="?", choices=["variance", "error"])
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--studies", type=int, default=2000)
    options = parser.parse_args()
    is_good = True
    if options.what != "error":
        is_good &= measure_variance(options.studies)
    if options.what != "variance":
        is_good &= measure_errors(options.draws)
    return int(not is_good)


if __name__ == "__main__":
    raise SystemExit(main())
