"""ICASSP's Figure 2 as tables, words and pictures, from rows of snr."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from papers.harness.rows import Row, number, numbers, places, where
from papers.harness.views import View, aligned, rank_correlation, short, side_by_side
from papers.icassp.setting import GOOD, OUR_DECODER, PAPER_DECODER
from papers.theory import ICASSP_LEAST_SIZE, ICASSP_SIGNAL, ICASSP_UNKNOWNS
from privsketch.models.drawing.axes import FAINT, INK, PALETTE

_DECODERS = {PAPER_DECODER: "CL-OMPR, the paper's decoder", OUR_DECODER: "our joint decoder"}
_MARKERS = ("o", "s", "^", "D", "v")
_WORST = 3.0  # RSSE of the darkest colour
_PAPER_TRIALS = 40


def left_table(found: Sequence[Row]) -> str:
    """Medians of RSSE along every curve, at the predicted ratios."""
    blocks = []
    for decoder, title in _DECODERS.items():
        lines = [
            [str(row["series"])]
            + [f"{number(row, name):.4g}" for name in ("snr", "realised_snr", "signal", "epsilon")]
            + [short(number(row, name)) for name in ("rsse", "rsse_std")]
            for row in where(found, decoder=decoder)
        ]
        head = [title, "SNR (7)", "realised", "|z|^2", "epsilon", "RSSE", "std"]
        blocks.append(aligned(head, lines))
    return "\n\n".join(blocks)


def left_comparison(found: Sequence[Row]) -> str:
    """Whether the ratio tells the error, and whether |z|^2 is what the paper says."""
    first = found[0]
    signals = [number(row, name) for row in found for name in ("signal_low", "signal_high")]
    middle = float(np.median(numbers(found, "signal")))
    gaps = [number(row, "realised_snr") / number(row, "snr") for row in found]
    words = [
        f"Medians of {first['trials']} trials (the paper: {_PAPER_TRIALS}), "
        f"{first['records']} records, m = {number(first, 'size'):g} k d.",
        f"The paper takes |z|^2 = {ICASSP_SIGNAL} for all mixtures. Here the scale of the "
        f"frequencies is chosen for that on average, with knowledge of the mixture; measured "
        f"{middle:.3f}, in single trials {min(signals):.3f} to {max(signals):.3f}. The realised "
        f"ratio is {min(gaps):.2f} to {max(gaps):.2f} times the one that (7) predicts.",
    ]
    for decoder, title in _DECODERS.items():
        said = _told_by_ratio(where(found, decoder=decoder))
        words.append(f"{title[0].upper()}{title[1:]}: {said}")
    return "\n".join(words)


def _told_by_ratio(own: Sequence[Row]) -> str:
    """Whether RSSE of a decoder is that of the ratio, however this is reached."""
    ranks = rank_correlation(own, "snr", "rsse")
    away = _distances(own)
    farthest = max(away, default=0.0)
    verdict = "holds" if ranks < -0.9 and farthest < 0.25 else "holds in part"
    limit = _usable(where(own, series=own[0]["series"]))
    return (
        f"rank correlation of ratio and RSSE {ranks:.2f}; "
        f"curves of other alpha_r and sigma_xi lie within {100 * farthest:.0f} % of that of "
        f"alpha_r = 1 (half of the points within {100 * _middle(away):.1f} %): the paper's "
        f"claim that the ratio tells the error {verdict}. RSSE stays below {GOOD} from "
        f"{_from(limit)} on; at the largest ratio it is {short(number(_last(own), 'rsse'))}."
    )


def left_figure(found: Sequence[Row]) -> Any:
    """RSSE against the ratio, a panel for each decoder; the band is one standard deviation."""
    made, axes = _by_decoder("relative SSE")
    names = list(dict.fromkeys(str(row["series"]) for row in found))
    for axis, decoder in zip(axes, _DECODERS, strict=True):
        for place, name in enumerate(names):
            rows = _series(found, decoder, name)
            ratios, middle = numbers(rows, "snr"), np.array(numbers(rows, "rsse"))
            if place == 0:
                wide = np.array(numbers(rows, "rsse_std"))
                low, high = np.maximum(middle - wide, 0.5), middle + wide
                axis.fill_between(ratios, low, high, color=PALETTE[0], alpha=0.2, linewidth=0)
            axis.plot(
                ratios,
                middle,
                linestyle="-" if place == 0 else "none",
                color=PALETTE[place],
                marker=_MARKERS[place % len(_MARKERS)],
                markersize=4,
                linewidth=1.2,
                label=name,
            )
        axis.axhline(GOOD, color=INK, linewidth=0.8, linestyle=":")
        axis.set_xscale("log")
        axis.set_ylim(0.9, 6)
    axes[0].legend(frameon=False, fontsize=8)
    return made


def right_table(found: Sequence[Row]) -> str:
    """Means of RSSE on the grid, as in the paper."""
    blocks = []
    for decoder, title in _DECODERS.items():
        sizes, ratios, values = _grid(found, decoder)
        lines = [
            [f"{size:.3g}"] + [short(value) for value in line]
            for size, line in zip(sizes, values, strict=True)
        ]
        head = ["m/(kd), SNR"] + [f"{ratio:.3g}" for ratio in ratios]
        blocks.append(f"{title}: mean RSSE\n{aligned(head, lines)}")
    return "\n\n".join(blocks)


def right_comparison(found: Sequence[Row]) -> str:
    """Whether m = k d is a border, and whether the paper's rule tells where RSSE is below 1.2."""
    first = found[0]
    words = [
        f"Means of {first['trials']} trials (the paper: {_PAPER_TRIALS}), {first['records']} "
        f"records. The paper: fails below m = k d; RSSE below {GOOD} for m >= "
        f"{ICASSP_LEAST_SIZE:g} k d and SNR x m / (k d) >= {ICASSP_UNKNOWNS:g}."
    ]
    for decoder, title in _DECODERS.items():
        own = where(found, decoder=decoder)
        inside = [row for row in own if _ruled(row)]
        good = sum(_good(row) for row in inside)
        others = [row for row in own if not _ruled(row)]
        spared = sum(_good(row) for row in others)
        below = [number(row, "rsse_mean") for row in own if number(row, "size") < 1]
        border = f"the best below m = k d is {short(min(below))}" if below else "none below m = k d"
        verdict = "holds" if good == len(inside) else "does not hold everywhere"
        bound = _least_product(own)
        words.append(
            f"{title[0].upper()}{title[1:]}: {good} of the {len(inside)} points that the rule "
            f"promises are below {GOOD}: it {verdict}; so are {spared} of the other {len(others)}. "
            f"With m >= {ICASSP_LEAST_SIZE:g} k d all points are below {GOOD} whose SNR x m / "
            f"(k d) is at least {bound}; {border}."
        )
    return "\n".join(words)


def right_figure(found: Sequence[Row]) -> Any:
    """RSSE over ratio and size, interpolated, yellow where it is small."""
    from matplotlib.colors import LogNorm

    made, axes = _by_decoder("m / (k d)")
    drawn = None
    for axis, decoder in zip(axes, _DECODERS, strict=True):
        sizes, ratios, values = _grid(found, decoder)
        norm = LogNorm(1.0, _WORST)
        shown = np.clip(values, 1.0, _WORST)
        drawn = axis.pcolormesh(
            ratios, sizes, shown, norm=norm, cmap="viridis_r", shading="gouraud"
        )
        if min(values.shape) > 1 and shown.min() < GOOD < shown.max():
            axis.contour(ratios, sizes, shown, levels=[GOOD], colors=INK, linewidths=0.9)
            axis.plot([], [], color=INK, linewidth=0.9, label=f"measured: {GOOD}")
        axis.axhline(1.0, color="red", linestyle="--", linewidth=1.2, label="m = k d")
        wide = np.geomspace(max(ICASSP_LEAST_SIZE, sizes[0]), max(sizes[-1], ICASSP_LEAST_SIZE), 2)
        axis.plot(ICASSP_UNKNOWNS / wide, wide, color="white", lw=1.8, label="the paper's rule")
        axis.plot([ICASSP_UNKNOWNS / wide[0], ratios[-1]], [wide[0]] * 2, color="white", lw=1.8)
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlim(ratios[0], ratios[-1])
        axis.set_ylim(sizes[0], sizes[-1])
    axes[0].legend(fontsize=7, loc="lower right", facecolor=FAINT, framealpha=0.8)
    bar = made.colorbar(drawn, ax=axes, ticks=[1, GOOD, 1.5, 2, _WORST])
    bar.ax.set_yticklabels(["1", f"{GOOD:g}", "1.5", "2", f"{_WORST:g} or more"])
    bar.ax.minorticks_off()
    bar.set_label("relative SSE, mean")
    bar.outline.set_edgecolor(FAINT)
    return made


def _by_decoder(up: str) -> tuple[Any, list[Any]]:
    titles = [*_DECODERS.values()]
    return side_by_side(9.6, 3.9, titles, across="signal-to-noise ratio, predicted", up=up)


def _series(found: Sequence[Row], decoder: str, name: str) -> list[Row]:
    rows = where(found, decoder=decoder, series=name)
    return sorted(rows, key=lambda row: number(row, "snr"))


def _last(own: Sequence[Row]) -> Row:
    return max(own, key=lambda row: number(row, "snr"))


def _distances(own: Sequence[Row]) -> list[float]:
    """How far points of other curves are from the first one, relative, between its ends."""
    first = own[0]["series"]
    base = sorted(where(own, series=first), key=lambda row: number(row, "snr"))
    ratios, values = (np.log(numbers(base, name)) for name in ("snr", "rsse"))
    return [
        float(abs(np.expm1(np.log(number(row, "rsse")) - np.interp(ratio, ratios, values))))
        for row in own
        if row["series"] != first
        and ratios[0] <= (ratio := float(np.log(number(row, "snr")))) <= ratios[-1]
    ]


def _middle(values: Sequence[float]) -> float:
    return float(np.median(values)) if values else 0.0


def _usable(rows: Sequence[Row]) -> float | None:
    """Return the least ratio from which RSSE stays below 1.2."""
    limit = None
    for row in sorted(rows, key=lambda row: -number(row, "snr")):
        if number(row, "rsse") >= GOOD:
            break
        limit = number(row, "snr")
    return limit


def _from(limit: float | None) -> str:
    return "no ratio" if limit is None else f"SNR = {limit:.3g}"


def _good(row: Row) -> bool:
    return number(row, "rsse_mean") < GOOD


def _product(row: Row) -> float:
    return number(row, "snr") * number(row, "size")


def _ruled(row: Row) -> bool:
    """Whether the paper's rule promises success."""
    return number(row, "size") >= ICASSP_LEAST_SIZE and _product(row) >= ICASSP_UNKNOWNS


def _least_product(own: Sequence[Row]) -> str:
    """Return the least SNR x m / (k d) from which all points with m >= 10 k d are good."""
    bound = None
    rows = [row for row in own if number(row, "size") >= ICASSP_LEAST_SIZE]
    for row in sorted(rows, key=_product, reverse=True):
        if not _good(row):
            break
        bound = _product(row)
    return "more than any here" if bound is None else f"{bound:.3g}"


def _grid(found: Sequence[Row], decoder: str) -> tuple[list[float], list[float], Any]:
    """Sizes, ratios, and means of RSSE (sizes, ratios)."""
    rows = where(found, decoder=decoder)
    sizes, ratios = places(rows, "size"), places(rows, "snr")
    own = {(row["size"], row["snr"]): number(row, "rsse_mean") for row in rows}
    return sizes, ratios, np.array([[own[size, ratio] for ratio in ratios] for size in sizes])


LEFT = View(
    "Figure 2 (left): relative SSE against the signal-to-noise ratio",
    left_table,
    left_comparison,
    left_figure,
)
RIGHT = View(
    "Figure 2 (right): relative SSE over ratio and sketch size",
    right_table,
    right_comparison,
    right_figure,
)
