"""CLP Figures 4 and 5 as tables, words and pictures, from rows of clp_ratio."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from papers.clp.ratio import DECODERS
from papers.clp.setting import CKM_SCALE, USABLE
from papers.harness.rows import Row, number
from papers.harness.views import View, aligned
from privsketch.design.regimes import CLP_LEAST_SIZE, acceptable_noise, clp_succeeds
from privsketch.report.drawing import INK, PALETTE, figure_of

_NAMES = {"cl-ompr": "CKM (the paper's decoder)", "joint": "joint decoder (ours)"}
_COLOR_LIMIT = 2.0  # of RSSE in Figure 5


def ratio_table(found: Sequence[Row]) -> str:
    """Figure 4: RSSE at every ratio, with the epsilon of the releases."""
    ratios, sizes = _values(found, "nsr"), _values(found, "n_records")
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
    for decoder in DECODERS:
        limits = []
        for n in _values(found, "n_records"):
            own = sorted(_of(found, decoder, n_records=n), key=lambda row: number(row, "nsr"))
            limits.append((n, usable_ratio(own), _rank_correlation(own)))
        told = ", ".join(f"{_limit(limit)} at n = {n:g}" for n, limit, _ in limits)
        known = [limit for _, limit, _ in limits if limit > 0]
        verdict = (
            "the limit holds"
            if known and len(known) == len(limits) and min(known) >= rule * (1 - 1e-6)
            else "the limit does NOT hold"
        )
        correlation = min(value for _, _, value in limits)
        lines.append(
            f"{_NAMES[decoder]}: the median RSSE stays below {USABLE:g} up to NSR {told}; "
            f"{verdict} for all n. The rank correlation of NSR and median RSSE is "
            f"at least {correlation:.2f}."
        )
    return "\n".join(lines)


def ratio_figure(found: Sequence[Row]) -> Any:
    """Medians against the ratio with quartiles, a panel for each decoder."""
    made, axes = figure_of(9.2, 3.6, 1, len(DECODERS))
    for axis, decoder in zip(axes[0], DECODERS, strict=True):
        for color, n in zip(PALETTE, _values(found, "n_records"), strict=False):
            own = sorted(_of(found, decoder, n_records=n), key=lambda row: number(row, "nsr"))
            places = [number(row, "nsr") for row in own]
            middle, low, high = (
                [number(row, name) for row in own] for name in ("rsse", "rsse_low", "rsse_high")
            )
            label = f"n = {n:.0e}".replace("e+0", "e")
            axis.plot(places, middle, "-o", color=color, markersize=4, linewidth=1.5, label=label)
            axis.fill_between(places, low, high, color=color, alpha=0.15, linewidth=0)
        first = found[0]
        rule = acceptable_noise(int(first["m"]), int(first["k"]), int(first["d"]))
        axis.axvline(rule, color=INK, linewidth=0.8, linestyle=":", label="m / (1000 k d)")
        axis.axhline(USABLE, color=INK, linewidth=0.8, linestyle="--")
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_yticks([1, 1.2, 1.5, 2, 3, 4], ["1", "1.2", "1.5", "2", "3", "4"])
        axis.minorticks_off()
        axis.set_xlabel("NSR")
        axis.set_title(_NAMES[decoder], fontsize=9)
    axes[0, 1].set_ylim(axes[0, 0].get_ylim())
    axes[0, 0].set_ylabel("RSSE")
    axes[0, 0].legend(frameon=False, fontsize=8)
    return made


def grid_table(found: Sequence[Row]) -> str:
    """Figure 5: RSSE by size and ratio; a star where the paper's rule promises success."""
    ratios = _values(found, "nsr")
    blocks = []
    for decoder in DECODERS:
        lines = []
        for m in _values(found, "m"):
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
        own = _of(found, decoder)
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
    """A map of RSSE for each decoder, with the paper's two lines."""
    import numpy as np

    made, axes = figure_of(9.6, 3.8, 1, len(DECODERS))
    ratios, sizes = _values(found, "nsr"), _values(found, "m")
    own = {str(d): {(number(r, "m"), number(r, "nsr")): r for r in _of(found, d)} for d in DECODERS}
    for axis, decoder in zip(axes[0], DECODERS, strict=True):
        values = [[number(own[decoder][m, ratio], "rsse") for ratio in ratios] for m in sizes]
        x, y = _edges(ratios), _edges([_size(own[decoder][m, ratios[0]]) for m in sizes])
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
        shown = [_size(own[decoder][m, ratios[0]]) for m in sizes]
        axis.set_yticks(shown, [f"{size:g}" for size in shown])
        axis.minorticks_off()
        axis.set_xlabel("NSR")
        axis.set_title(_NAMES[decoder], fontsize=9)
    axes[0, 0].set_ylabel("m / (k d)")
    made.colorbar(mesh, ax=axes[0].tolist(), label="RSSE", extend="max")
    return made


def usable_ratio(own: Sequence[Row]) -> float:
    """The largest ratio up to which all medians are usable; 0 if the first is not."""
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
    low, high = (choose(number(row, "epsilon") for row in found) for choose in (min, max))
    return (
        f"Releases with epsilon from {low:.2g} to {high:.3g} have the ratios that Lemma 26 gives "
        f"to within {off:.0%}. Both decoders are told the width of the clusters: frequencies have "
        f"the scale {CKM_SCALE:g} sqrt(d), which suits the paper's."
    )


def _rank_correlation(own: Sequence[Row]) -> float:
    from scipy.stats import spearmanr

    return float(spearmanr([number(r, "nsr") for r in own], [number(r, "rsse") for r in own])[0])


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


def _values(found: Sequence[Row], column: str) -> list[float]:
    return sorted({number(row, column) for row in found})


def _of(found: Sequence[Row], decoder: str, **values: float) -> list[Row]:
    return [
        row
        for row in found
        if row["decoder"] == decoder and all(number(row, n) == v for n, v in values.items())
    ]


def _at(found: Sequence[Row], decoder: str, **values: float) -> Row:
    (row,) = _of(found, decoder, **values)
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
