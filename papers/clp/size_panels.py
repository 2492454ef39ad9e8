"""CLP Figure 8 as a table of usable epsilons, words and a picture, from rows of size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from papers.clp.setting import USABLE
from papers.clp.size import CKM, CUBE, DELTA, DIM, KNOWN, NO_SIZE, PIPELINE, PRINTED, UNKNOWN, K
from papers.harness.rows import Row, number, numbers, places, where
from papers.harness.views import View, aligned
from papers.theory import CLP_LEAST_SIZE, CLP_UNKNOWNS
from privsketch.models.drawing.axes import INK, PALETTE, figure_of

_CURVES = {0.0: (CKM, KNOWN, UNKNOWN, CUBE, PIPELINE), DELTA: (CKM, KNOWN, UNKNOWN)}
_NAMES = {
    CKM: "CKM, as in the paper",
    KNOWN: "ours, width known",
    UNKNOWN: "ours, width unknown",
    CUBE: "ours, cube noise, width unknown",
    PIPELINE: "ours, pipeline, width unknown",
}
_LAWS = {0.0: "Laplace noise", DELTA: "Gaussian noise"}
_SOLID, _DASHED, _DOTTED = ("-", "o"), ("--", "s"), (":", "^")
# Rows of the picture: title, delta, and the curves with their lines and marks.
_PANELS = (
    ("Laplace noise, width known", 0.0, {CKM: _SOLID, KNOWN: _DASHED}),
    ("pure, width unknown", 0.0, {UNKNOWN: _DOTTED, CUBE: ("-.", "D")}),
    (f"delta = {DELTA:g}", DELTA, {CKM: _SOLID, KNOWN: _DASHED, UNKNOWN: _DOTTED}),
)
_TOP = 6.0  # of RSSE in the picture
_MAX_LINES = 5


def table(found: Sequence[Row]) -> str:
    """Usable epsilons, then the median RSSE at the best size for every epsilon."""
    sizes = _record_counts(found)
    lines = [
        ["printed, Laplace noise", *(f"{PRINTED[n]:g}" if n in PRINTED else "-" for n in sizes)]
    ]
    for delta, curve in _shown(found):
        values = [_told(found, n, delta, curve) for n in sizes]
        lines.append([_title(delta, curve), *values])
    blocks = [aligned([f"usable epsilon (RSSE < {USABLE:g})", *(f"n = {n}" for n in sizes)], lines)]
    for n in sizes:
        for delta in _CURVES:
            epsilons = places(where(found, n_records=n, delta=delta), "epsilon")
            lines = [
                [_title(delta, curve), *(_cell(best(found, n, delta, curve, e)) for e in epsilons)]
                for where, curve in _shown(found)
                if where == delta
            ]
            head = f"n = {n}, RSSE at the best m (m)"
            blocks.append(aligned([head, *(f"epsilon {e:.3g}" for e in epsilons)], lines))
    return "\n\n".join(blocks)


def comparison(found: Sequence[Row]) -> str:
    """State the results in sentences."""
    unknowns = K * DIM
    signals = numbers(where(found, curve=CKM, delta=0.0), "signal")
    signal = sum(signals) / len(signals)
    trials = min(int(row["trials"]) for row in found)
    lines = [
        "The paper expects useful sketches with Laplace noise from epsilon = "
        f"{', '.join(f'{value:g}' for value in PRINTED.values())} on for n = "
        f"{', '.join(str(n) for n in PRINTED)}, which 'correspond quite well to what is observed'. "
        "These follow from n >= sqrt(2000) k d / epsilon, in which constants were dropped: Lemma "
        "26 with Lemma 7 has 8 m^3 / (n^2 epsilon^2 |z|^2), and |z|^2 / m is "
        f"{signal:.2f} for the frequencies used here, so that NSR <= m / (1000 k d) at m = 2 k d "
        f"asks for epsilon = {with_constants(10_000, signal, unknowns):.2f} at n = 10000, "
        f"{math.sqrt(8 / signal):.1f} times as much.",
        f"Medians of {trials} trials; usable means a median RSSE below {USABLE:g} at the best m of "
        "those tried, from that epsilon on.",
    ]
    for curve in _CURVES[0.0]:
        if where(found, curve=curve):
            lines.append(_against_printed(found, curve))
    gains = []
    for n in _record_counts(found):
        pure, other = (usable(found, n, delta, KNOWN) for delta in (0.0, DELTA))
        if not math.isnan(pure + other):
            gains.append(f"{pure / other:.2g} at n = {n}")
    if gains:
        lines.append(
            f"The paper reports that delta = {DELTA:g} improves utility and makes the choice of m "
            "easier. With known width the usable pure epsilon, over that with delta, is "
            f"{', '.join(gains)}. {_sizes_that_work(found)}"
        )
    return "\n".join(lines)


def figure(found: Sequence[Row]) -> Any:
    """RSSE against m: pure with a known width and without, and with delta; a column for each n."""
    sizes = _record_counts(found)
    made, axes = figure_of(3.7 * len(sizes) + 2.4, 8.2, len(_PANELS), len(sizes))
    for line, (title, delta, styles) in enumerate(_PANELS):
        for axis, n in zip(axes[line], sizes, strict=True):
            every = where(found, n_records=n, delta=delta)
            own = [row for row in every if row["m"] != NO_SIZE]
            _draw(axis, own, styles)
            axis.set_title(f"n = {n:.0e}".replace("e+0", "e") + f", {title}", fontsize=9)
        axes[line, 0].set_ylabel("RSSE")
    for axis in axes[-1]:
        axis.set_xlabel("m / (k d)")
    styles = {curve: style for _, _, some in _PANELS for curve, style in some.items()}
    lines = [
        axes[0, 0].plot([], [], style, color=INK, marker=marker, markersize=3.5)[0]
        for style, marker in styles.values()
    ]
    names = [_NAMES[curve] for curve in styles]
    made.legend(lines, names, loc="outside right center", frameon=False, fontsize=8)
    return made


def _draw(axis: Any, own: Sequence[Row], styles: dict[str, tuple[str, str]]) -> None:
    """One panel: a colour for each epsilon, a style for each curve."""
    epsilons = _some(places(own, "epsilon"))
    for color, epsilon in zip(PALETTE, epsilons, strict=False):
        for curve, (style, marker) in styles.items():
            rows = where(own, curve=curve, epsilon=epsilon)
            rows.sort(key=lambda row: number(row, "m"))
            sizes, values = [m / (K * DIM) for m in numbers(rows, "m")], numbers(rows, "rsse")
            look = {"color": color, "marker": marker, "markersize": 3.5, "linewidth": 1.3}
            axis.plot(sizes, values, style, **look)
        axis.plot([], [], "-", color=color, label=f"epsilon = {epsilon:.3g}")
    axis.axhline(USABLE, color=INK, linewidth=0.8, linestyle=":")
    axis.axvline(CLP_LEAST_SIZE, color="red", linewidth=0.8, linestyle="--")
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_ylim(0.95, _TOP)
    axis.set_yticks([1, 1.2, 1.5, 2, 3, 5], ["1", "1.2", "1.5", "2", "3", "5"])
    axis.minorticks_off()
    sizes = [m / (K * DIM) for m in places(own, "m")]
    axis.set_xticks(sizes, [f"{size:g}" for size in sizes])
    axis.legend(framealpha=0.8, edgecolor="none", fontsize=7, loc="upper right")


def usable(found: Sequence[Row], n: int, delta: float, curve: str) -> float:
    """Return the least epsilon whose median RSSE at the best m is below the limit, or nan."""
    own = where(found, n_records=n, delta=delta, curve=curve)
    least = math.nan
    for epsilon in reversed(places(own, "epsilon")):
        if number(best(own, n, delta, curve, epsilon), "rsse") >= USABLE:
            break
        least = epsilon
    return least


def best(found: Sequence[Row], n: int, delta: float, curve: str, epsilon: float) -> Row:
    """Return the row of least median RSSE over sizes."""
    own = where(found, n_records=n, delta=delta, curve=curve, epsilon=epsilon)
    return min(own, key=lambda row: number(row, "rsse"))


def with_constants(n: int, signal: float, unknowns: int) -> float:
    """Least epsilon at m = 2 k d by Lemma 26 and NSR <= m / (1000 k d), nothing dropped.

    The noise has the ratio 8 m^2 / (n^2 epsilon^2 signal), signal = |z|^2 / m.
    """
    m = CLP_LEAST_SIZE * unknowns
    return math.sqrt(8 * m * CLP_UNKNOWNS * unknowns / signal) / n


def _against_printed(found: Sequence[Row], curve: str) -> str:
    """Whether the usable epsilons of a pure curve are at most the printed ones."""
    sizes = [n for n in _record_counts(found) if n in PRINTED]
    values = {n: usable(found, n, 0.0, curve) for n in sizes}
    # Read back with 6 digits.
    met = [n for n in sizes if values[n] <= PRINTED[n] * (1 + 1e-5)]
    at = [f"{_told(found, n, 0.0, curve)} at n = {n}" for n in sizes]
    rsse = [
        f"{number(best(found, n, 0.0, curve, printed), 'rsse'):.3f}"
        for n in sizes
        if (printed := _nearest(found, n, curve)) is not None
    ]
    verdict = (
        "at least as small as printed for every n"
        if len(met) == len(sizes)
        else f"NOT as small as printed for n = {', '.join(str(n) for n in sizes if n not in met)}"
    )
    told = f" (RSSE at the printed epsilon {', '.join(rsse)})" if rsse else ""
    return f"{_title(0.0, curve)}: usable epsilon {', '.join(at)}, {verdict}{told}."


def _nearest(found: Sequence[Row], n: int, curve: str) -> float | None:
    """Return the epsilon of the rows that equals the printed one."""
    epsilons = places(where(found, n_records=n, delta=0.0, curve=curve), "epsilon")
    same = [e for e in epsilons if math.isclose(e, PRINTED[n], rel_tol=1e-5)]
    return same[0] if same else None


def _sizes_that_work(found: Sequence[Row]) -> str:
    """How many sizes are usable for CKM, at epsilons at which one of them is, by delta."""
    parts = []
    for delta, law in _LAWS.items():
        works = total = 0
        for n in _record_counts(found):
            every = where(found, n_records=n, delta=delta)
            for epsilon in places(every, "epsilon"):
                medians = numbers(where(every, curve=CKM, epsilon=epsilon), "rsse")
                if min(medians) < USABLE:
                    works += sum(median < USABLE for median in medians)
                    total += len(medians)
        parts.append(f"{works} of {total} with {law}")
    return (
        "Where CKM works at one size at least, it does at "
        + " and ".join(parts)
        + " of the sizes tried."
    )


def _told(found: Sequence[Row], n: int, delta: float, curve: str) -> str:
    """Return a usable epsilon; "<=" if it is the least one that was tried."""
    value = usable(found, n, delta, curve)
    epsilons = numbers(where(found, n_records=n, delta=delta, curve=curve), "epsilon")
    if math.isnan(value):
        return f"> {max(epsilons):.3g}" if epsilons else "-"
    return f"<= {value:.3g}" if value == min(epsilons) else f"{value:.3g}"


def _some(epsilons: Sequence[float]) -> list[float]:
    """Few enough epsilons for a picture, the last among them."""
    step = math.ceil(len(epsilons) / _MAX_LINES)
    return sorted(epsilons[::-1][::step])


def _shown(found: Sequence[Row]) -> list[tuple[float, str]]:
    return [
        (delta, curve)
        for delta, curves in _CURVES.items()
        for curve in curves
        if where(found, curve=curve, delta=delta)
    ]


def _title(delta: float, curve: str) -> str:
    if curve in (CUBE, PIPELINE):
        return _NAMES[curve]
    return f"{_NAMES[curve]}, {_LAWS[delta]}"


def _cell(row: Row) -> str:
    size = "" if int(row["m"]) == NO_SIZE else f" ({row['m']})"
    return f"{number(row, 'rsse'):.3f}{size}"


def _record_counts(found: Sequence[Row]) -> list[int]:
    return [int(n) for n in places(found, "n_records")]


FIGURE8 = View("Figure 8: RSSE against the size of a private sketch", table, comparison, figure)
