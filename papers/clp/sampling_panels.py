"""CLP Figures 6 and 7 as tables, words and pictures, from rows of sampling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from papers.clp.sampling import DELTA, STRATEGIES, calibrated_noise, sampled_noise
from papers.harness.rows import Row, number, numbers, places, where
from papers.harness.views import View, aligned, side_by_side
from privsketch.models.drawing.axes import INK, PALETTE

_RELATIONS = ("add-remove", "replace")
_NAMES = {
    "records": "records, coin flips",
    "uniform": "features, r of m",
    "poisson": "features, coin flips",
}
_TITLES = {"laplace": "Laplace noise", "gaussian": f"Gaussian noise, delta = {DELTA:g}"}
_STYLES = {"records": ("--", "s"), "uniform": ("-", "o"), "poisson": (":", "^")}
_FAR = 1.5  # a ratio is told as larger from this factor on


def noise_table(found: Sequence[Row]) -> str:
    """Figure 6: the formula, our calibration and releases, by epsilon."""
    epsilons = places(found, "epsilon")
    lines = []
    for neighbours in _RELATIONS:
        for beta in reversed(places(found, "beta")):
            own = _by(found, "epsilon", neighbours=neighbours, beta=beta)
            for name, column in (("(23)", "paper"), ("ours", "ours"), ("measured", "measured")):
                if column == "paper" and neighbours == "replace":
                    continue  # the paper has none
                cells = [f"{number(own[epsilon], column):.3g}" for epsilon in epsilons]
                lines.append([f"{neighbours}, beta = {beta:g}, {name}", *cells])
    head = "NSR of the noise, m^3 / (n^2 |z|^2) = 1"
    return aligned([head, *(f"epsilon {epsilon:.2g}" for epsilon in epsilons)], lines)


def noise_comparison(found: Sequence[Row]) -> str:
    """Figure 6 in sentences."""
    first = where(found, neighbours="add-remove")
    exact = max(abs(number(row, "ours") / number(row, "paper") - 1) for row in first)
    off = max(abs(number(row, "measured") / number(row, "ours") - 1) for row in found)
    sampled = [row for row in found if number(row, "beta") < 1]
    gains = [row for row in sampled if number(row, "ours") < _whole(row) * (1 - 1e-9)]
    small, large = (
        choose(number(row, "ours") / _whole(row) for row in first if number(row, "beta") < 1)
        for choose in (min, max)
    )
    squares = max(number(row, "beta") ** -2 for row in sampled)
    verdict = (
        "so leaving out records never reduces the noise"
        if not gains
        else f"which is NOT so in {len(gains)} of {len(sampled)} cells"
    )
    other = max(number(row, "ours") / number(row, "paper") for row in found)
    return "\n".join(
        [
            "The paper reports that noise is the same with and without sampled records for "
            "epsilon far below beta, that its ratio grows by up to 1 / beta^2 for large epsilon, "
            "and is never below that without sampling.",
            f"Our calibration for add-remove agrees with (23) to {max(exact, 1e-5):.0e}, and noise "
            f"of releases of an empty table with it to {off:.0%}. The price of sampling goes from "
            f"a factor {small:.3f} to {large:.3g} (1 / beta^2 is {squares:g} at most), {verdict}.",
            "(23) is for add-remove. Under replace the loss of both directions together counts, "
            f"and the ratio is up to {other:.1f} times that of (23).",
        ]
    )


def noise_figure(found: Sequence[Row]) -> Any:
    """Lines by formula, marks measured."""
    titles = ["add-remove: (23), and releases", "replace: ours, and releases"]
    made, axes = side_by_side(9.2, 3.6, titles, across="epsilon", up="NSR of the noise")
    low, high = (choose(places(found, "epsilon")) for choose in (min, max))
    fine = [low * (high / low) ** (i / 200) for i in range(201)]
    for axis, neighbours in zip(axes, _RELATIONS, strict=True):
        for color, beta in zip(PALETTE, places(found, "beta"), strict=False):
            own = _by(found, "epsilon", neighbours=neighbours, beta=beta)
            if neighbours == "add-remove":
                line = [sampled_noise(epsilon, beta) for epsilon in fine]
            else:
                line = [calibrated_noise(epsilon, beta, neighbours) for epsilon in fine]
            axis.plot(fine, line, color=color, linewidth=1.5, label=f"beta = {beta:g}")
            marks = numbers([*own.values()], "measured")
            axis.plot(list(own), marks, "o", color=color, markersize=4)
        axis.set_xscale("log")
        axis.set_yscale("log")
    axes[0].legend(frameon=False, fontsize=8)
    return made


def _whole(row: Row) -> float:
    """Return the ratio at the same epsilon and relation without sampling."""
    return calibrated_noise(number(row, "epsilon"), 1.0, str(row["neighbours"]))


def total_table(found: Sequence[Row]) -> str:
    """Figure 7: expected ratios, with measured ones in brackets."""
    rates = places(found, "rate")
    lines = []
    for noise in _noises(found):
        for epsilon in places(found, "epsilon"):
            for strategy in STRATEGIES:
                own = _by(found, "rate", noise=noise, epsilon=epsilon, strategy=strategy)
                cells = [
                    f"{number(own[rate], 'ours'):.3g} ({number(own[rate], 'measured'):.3g})"
                    for rate in rates
                ]
                lines.append([f"{noise}, epsilon = {epsilon:g}, {_NAMES[strategy]}", *cells])
    head = "NSR: expected (measured)"
    return aligned([head, *(f"alpha beta = {rate:g}" for rate in rates)], lines)


def total_comparison(found: Sequence[Row]) -> str:
    """Figure 7 in sentences."""
    off = max(abs(number(row, "measured") / number(row, "ours") - 1) for row in found)
    known = [row for row in found if not math.isnan(number(row, "paper"))]
    laplace = where(known, noise="laplace")
    exact = max(abs(number(row, "ours") / number(row, "paper") - 1) for row in laplace)
    first = found[0]
    lines = [
        "The paper reports that at equal work, m = "
        f"{first['m']} and n = {first['n_records']}, leaving out features has a smaller ratio than "
        "leaving out records for moderate epsilon, and about the same one otherwise.",
        f"With its Laplace noise our expectation is its formula to {exact:.1e}; releases agree "
        f"with expectations to {off:.0%} in all cells, a mean over {first['releases']} each.",
    ]
    for noise in _noises(found):
        for strategy in ("uniform", "poisson"):
            cells = _against_records(found, noise, strategy)
            better = sum(value < 1 / _FAR for value in cells)
            worse = sum(value > _FAR for value in cells)
            lines.append(
                f"{_TITLES[noise]}, {_NAMES[strategy]}: the ratio is {min(cells):.2g} to "
                f"{max(cells):.2g} times that of sampled records, smaller by more than {_FAR:g} in "
                f"{better} and larger in {worse} of {len(cells)} cells; the paper's advice, shown "
                "for Laplace noise, " + ("holds." if not worse else "does NOT hold.")
            )
    flips = where(known, noise="gaussian", strategy="poisson")
    if flips:
        factor = max(number(row, "paper") / number(row, "ours") for row in flips)
        lines.append(
            "The paper's bound for coin flips of features with Gaussian noise, which is that of "
            f"the worst mask, has a ratio up to {factor:.3g} times ours."
        )
    return "\n".join(lines)


def total_figure(found: Sequence[Row]) -> Any:
    """Draw expected lines and measured marks, a panel for each noise."""
    noises = _noises(found)
    titles = [_TITLES[noise] for noise in noises]
    made, axes = side_by_side(9.8, 4.0, titles, across="alpha beta", up="NSR")
    for axis, noise in zip(axes, noises, strict=True):
        for color, epsilon in zip(PALETTE, places(found, "epsilon"), strict=False):
            for strategy, (style, marker) in _STYLES.items():
                own = _by(found, "rate", noise=noise, epsilon=epsilon, strategy=strategy)
                rates = sorted(own)
                line = [number(own[rate], "ours") for rate in rates]
                marks = [number(own[rate], "measured") for rate in rates]
                axis.plot(rates, line, style, color=color, linewidth=1.5)
                axis.plot(rates, marks, marker, color=color, markersize=4, fillstyle="none")
            axis.plot([], [], "-", color=color, label=f"epsilon = {epsilon:g}")
        for strategy, (style, marker) in _STYLES.items():
            axis.plot([], [], style, color=INK, marker=marker, markersize=4, label=_NAMES[strategy])
        axis.set_xscale("log")
        axis.set_yscale("log")
    axes[-1].legend(frameon=False, fontsize=7)
    return made


def _against_records(found: Sequence[Row], noise: str, strategy: str) -> list[float]:
    """Ratios of a strategy over those of sampled records, where anything is left out."""
    cells = []
    for epsilon in places(found, "epsilon"):
        own, records = (
            _by(found, "rate", noise=noise, epsilon=epsilon, strategy=name)
            for name in (strategy, "records")
        )
        cells += [number(own[r], "ours") / number(records[r], "ours") for r in own if r < 1]
    return cells


def _noises(found: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(str(row["noise"]) for row in found))


def _by(found: Sequence[Row], column: str, **values: str | float) -> dict[float, Row]:
    """Rows with these values by a column."""
    return {number(row, column): row for row in where(found, **values)}


FIGURE6 = View(
    "Figure 6: noise against epsilon for sampled records",
    noise_table,
    noise_comparison,
    noise_figure,
)
FIGURE7 = View(
    "Figure 7: noise-to-signal ratio with features or records left out",
    total_table,
    total_comparison,
    total_figure,
)
