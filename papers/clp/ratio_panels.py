"""CLP Figures 4 and 5 as tables, words and pictures, from rows of ratio."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from papers.clp.ratio import DECODERS
from papers.clp.setting import CKM_SCALE, USABLE
from papers.harness.rows import Row, number, numbers, places, where
from papers.harness.views import View, aligned, plot_quartiles, rank_correlation, side_by_side
from papers.theory import CLP_LEAST_SIZE, acceptable_noise, clp_succeeds
from privsketch.models.drawing.axes import INK, PALETTE

_NAMES = {"cl-ompr": "CKM (the paper's decoder)", "joint": "joint decoder (ours)"}
_COLOR_LIMIT = 2.0  # of RSSE in Figure 5


def ratio_table(found: Sequence[Row]) -> str:
    """Figure 4: RSSE at every ratio, with the epsilon of the releases."""
    ratios, sizes = places(found, "nsr"), places(found, "n_records")
    lines = []
    for decoder in DECODERS:
        for n in sizes:
            own = [_at(found, decoder, n_records=n, nsr=ratio) for ratio in ratios]
            lines.append([f"{_NAMES[decoder]}, n = {n:g}", *map(_cell, own)])
    for n in sizes:
        own = [_at(found, DECODERS[0], n_records=n, nsr=ratio) for ratio in ratios]
        lines.append([f"epsilon, n = {n:g}", *(f"{number(row, 'epsilon'):.3g}" for row in own)])
    head = "RSSE: median (quartiles)" + f", m = {_sizes(found)[0]:g} k d"
    return aligned([head, *(f"NSR {ratio:.2g}" for ratio in ratios)], lines)


def ratio_comparison(found: Sequence[Row]) -> str:
    """Figure 4 in sentences."""
    first = found[0]
    rule = acceptable_noise(int(first["m"]), int(first["k"]), int(first["d"]))
    lines = [
        "The paper reports that RSSE follows the noise-to-signal ratio (NSR), so that it can be "
        "used to tune a mechanism, and derives NSR <= "
        f"m / (1000 k d) as the limit, {rule:g} here. {_exactness(found)}"
    ]
    return "\n".join([*lines, *(_against_rule(found, decoder, rule) for decoder in DECODERS)])


def _against_rule(found: Sequence[Row], decoder: str, rule: float) -> str:
    """Whether a decoder works up to the paper's ratio, whatever the number of records."""
    curves = {n: _curve(found, decoder, n) for n in places(found, "n_records")}
    limits = {n: usable_ratio(own) for n, own in curves.items()}
    told = ", ".join(f"{_limit(limit)} at n = {n:g}" for n, limit in limits.items())
    least = min(limits.values())
    verdict = "holds" if least > 0 and least >= rule * (1 - 1e-6) else "does NOT hold"
    correlation = min(rank_correlation(own, "nsr", "rsse") for own in curves.values())
    return (
        f"{_NAMES[decoder]}: the median RSSE stays below {USABLE:g} up to NSR {told}; the limit "
        f"{verdict} for all n. The rank correlation of NSR and median RSSE is at least "
        f"{correlation:.2f}."
    )


def _curve(found: Sequence[Row], decoder: str, n_records: float) -> list[Row]:
    own = where(found, decoder=decoder, n_records=n_records)
    return sorted(own, key=lambda row: number(row, "nsr"))


def ratio_figure(found: Sequence[Row]) -> Any:
    """Medians against the ratio with quartiles, a panel for each decoder."""
    titles = [_NAMES[decoder] for decoder in DECODERS]
    made, axes = side_by_side(9.2, 3.6, titles, across="NSR", up="RSSE")
    for axis, decoder in zip(axes, DECODERS, strict=True):
        for color, n in zip(PALETTE, places(found, "n_records"), strict=False):
            label = f"n = {n:.0e}".replace("e+0", "e")
            own = _curve(found, decoder, n)
            plot_quartiles(axis, own, "nsr", "rsse", color=color, marker="o", label=label)
        first = found[0]
        rule = acceptable_noise(int(first["m"]), int(first["k"]), int(first["d"]))
        axis.axvline(rule, color=INK, linewidth=0.8, linestyle=":", label="m / (1000 k d)")
        axis.axhline(USABLE, color=INK, linewidth=0.8, linestyle="--")
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_yticks([1, 1.2, 1.5, 2, 3, 4], ["1", "1.2", "1.5", "2", "3", "4"])
        axis.minorticks_off()
    axes[1].set_ylim(axes[0].get_ylim())
    axes[0].legend(frameon=False, fontsize=8)
    return made


def grid_table(found: Sequence[Row]) -> str:
    """Figure 5: RSSE by size and ratio; a star where the paper's rule promises success."""
    ratios = places(found, "nsr")
    blocks = []
    for decoder in DECODERS:
        lines = []
        for m in places(found, "m"):
            own = [_at(found, decoder, m=m, nsr=ratio) for ratio in ratios]
            cells = [f"{number(row, 'rsse'):.3f}{'*' if _promised(row) else ' '}" for row in own]
            lines.append([f"m = {_size(own[0]):g} k d", *cells])
        head = f"{_NAMES[decoder]}: RSSE"
        blocks.append(aligned([head, *(f"NSR {ratio:.2g}" for ratio in ratios)], lines))
    return "\n\n".join(blocks) + "\n(medians; * m >= 2 k d and NSR <= m / (1000 k d))"


def grid_comparison(found: Sequence[Row]) -> str:
    """Figure 5 in sentences."""
    lines = [
        "The paper reports failure below m = 2 k d and success where m >= 2 k d and NSR <= "
        f"m / (1000 k d). {_exactness(found)} Success here is a median RSSE below {USABLE:g}."
    ]
    for decoder in DECODERS:
        own = where(found, decoder=decoder)
        promised = [row for row in own if _promised(row)]
        small = [row for row in own if _size(row) < CLP_LEAST_SIZE]
        noisy = [row for row in own if _size(row) >= CLP_LEAST_SIZE and not _promised(row)]
        kept = sum(map(_succeeds, promised))
        verdict = "it holds" if kept == len(promised) else "it does NOT hold everywhere"
        lines.append(
            f"{_NAMES[decoder]}: {kept} of {len(promised)} cells that the rule promises succeed: "
            f"{verdict}; of those it gives up, {sum(map(_succeeds, small))} of {len(small)} with "
            f"m < 2 k d and {sum(map(_succeeds, noisy))} of {len(noisy)} with more noise do."
        )
    return "\n".join(lines)


def grid_figure(found: Sequence[Row]) -> Any:
    """Draw a map of RSSE for each decoder, with the paper's two lines."""
    import numpy as np

    titles = [_NAMES[decoder] for decoder in DECODERS]
    made, axes = side_by_side(9.6, 3.8, titles, across="NSR", up="m / (k d)")
    ratios, shown = places(found, "nsr"), _sizes(found)
    x, y = _edges(ratios), _edges(shown)
    for axis, decoder in zip(axes, DECODERS, strict=True):
        values = [
            [number(_at(found, decoder, m=m, nsr=ratio), "rsse") for ratio in ratios]
            for m in places(found, "m")
        ]
        mesh = axis.pcolormesh(x, y, np.array(values), cmap="viridis_r", vmin=1, vmax=_COLOR_LIMIT)
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.axhline(CLP_LEAST_SIZE, color="red", linestyle="--", linewidth=1.2)
        axis.plot(
            [CLP_LEAST_SIZE / 1000, y[-1] / 1000],
            [CLP_LEAST_SIZE, y[-1]],
            color="white",
            linewidth=1.5,
        )
        axis.set_xlim(x[0], x[-1])
        axis.set_ylim(y[0], y[-1])
        axis.set_yticks(shown, [f"{size:g}" for size in shown])
        axis.minorticks_off()
    made.colorbar(mesh, ax=axes, label="RSSE", extend="max")
    return made


def usable_ratio(own: Sequence[Row]) -> float:
    """Return the largest ratio up to which all medians are usable; 0 if the first is not."""
    last = 0.0
    for row in sorted(own, key=lambda row: number(row, "nsr")):
        if not _succeeds(row):
            break
        last = number(row, "nsr")
    return last


def _limit(value: float) -> str:
    return f"{value:.2g}" if value else "none that was tried"


def _exactness(found: Sequence[Row]) -> str:
    # One release has 2 m numbers; means over trials are closer.
    off = max(abs(number(row, "nsr_measured") / number(row, "nsr") - 1) for row in found)
    epsilons = numbers(found, "epsilon")
    return (
        f"Releases with epsilon from {min(epsilons):.2g} to {max(epsilons):.3g} have the ratios "
        f"that Lemma 26 gives to within {off:.0%}. Both decoders are told the width of the "
        f"clusters: frequencies have the scale {CKM_SCALE:g} sqrt(d), which suits the paper's."
    )


def _edges(middles: Sequence[float]) -> list[float]:
    """Edges of cells around middles on a logarithmic axis."""
    logs = [math.log(value) for value in middles]
    steps = [b - a for a, b in pairwise(logs)] or [math.log(2)]
    inner = [(a + b) / 2 for a, b in pairwise(logs)]
    return [math.exp(v) for v in [logs[0] - steps[0] / 2, *inner, logs[-1] + steps[-1] / 2]]


def _size(row: Row) -> float:
    return number(row, "m") / (number(row, "k") * number(row, "d"))


def _sizes(found: Sequence[Row]) -> list[float]:
    return sorted({_size(row) for row in found})


def _promised(row: Row) -> bool:
    # Ratios are read back with 6 digits.
    return clp_succeeds(number(row, "nsr") * (1 - 1e-6), *(int(row[c]) for c in ("m", "k", "d")))


def _succeeds(row: Row) -> bool:
    return number(row, "rsse") < USABLE


def _at(found: Sequence[Row], decoder: str, **values: float) -> Row:
    (row,) = where(found, decoder=decoder, **values)
    return row


def _cell(row: Row) -> str:
    return (
        f"{number(row, 'rsse'):.3f} ({number(row, 'rsse_low'):.2f}-{number(row, 'rsse_high'):.2f})"
    )


FIGURE4 = View(
    "Figure 4: RSSE against the noise-to-signal ratio", ratio_table, ratio_comparison, ratio_figure
)
FIGURE5 = View(
    "Figure 5: RSSE over size and noise-to-signal ratio of a sketch",
    grid_table,
    grid_comparison,
    grid_figure,
)
