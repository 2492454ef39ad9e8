"""JLL Table 1 beside what was measured, and what the numbers say."""

from __future__ import annotations

import math
from collections.abc import Sequence

from papers.harness.rows import Row, number, where
from papers.harness.views import View, aligned
from papers.jll.setting import DISTANCE, SIZES
from papers.jll.table import PRINTED, projected_distance

_NAMES = {
    ("none", "none", "none"): "none",
    ("element", "paper", "seed 0"): "  paper's scale, paper's matrix",
    ("element", "paper", "fresh"): "  paper's scale, fresh matrices",
    ("element", "auto", "fresh"): "  ours, delta = 1e-6",
    ("row", "paper", "seed 0"): "  paper's scale, paper's matrix",
    ("row", "paper", "fresh"): "  paper's scale, fresh matrices",
    ("row", "union", "fresh"): "  union bound, delta = 1e-6",
    ("row", "auto", "fresh"): "  ours, delta = 1e-6",
    ("whole record", "auto", "fresh"): "whole record: ours, delta = 1e-6",
}
TOLERANCE = 0.03


def table(found: Sequence[Row]) -> str:
    """Tabulate printed and measured accuracies, then the range of single releases."""
    headings = ["accuracy of k-means", *(f"d = {d}, k = {k}" for d, k in SIZES)]
    means, ranges = [], []
    for protect in ("none", "element", "row", "whole record"):
        if protect in PRINTED:
            means.append(
                [f"{_title(protect)}printed", *(f"{value:.4f}" for value in PRINTED[protect])]
            )
        for key in [key for key in _NAMES if key[0] == protect]:
            cells = [row for row in found if _key(row) == key]
            name = "none, measured" if protect == "none" else _NAMES[key]
            means.append([name, *map(_mean, cells)])
            if protect != "none":
                first = f"{protect}-wise: " if protect in PRINTED else ""
                ranges.append([first + _NAMES[key].strip(), *map(_range, cells)])
    return (
        aligned(headings, means)
        + "\n(mean and its standard error; 'whole record' has no bound on the change)\n\n"
        + aligned(["5 to 95 % of single releases", *headings[1:]], ranges)
        + "\n\n"
        + aligned(["standard deviation of noise", *headings[1:]], _noise(found))
    )


def _noise(found: Sequence[Row]) -> list[list[str]]:
    """Means over matrices."""
    lines = []
    for protect in ("element", "row", "whole record"):
        for key in [key for key in _NAMES if key[0] == protect and key[2] == "fresh"]:
            cells = [row for row in found if _key(row) == key]
            first = f"{protect}-wise: " if protect in PRINTED else ""
            name = first + _NAMES[key].strip().removesuffix(", fresh matrices")
            lines.append([name, *(f"{number(row, 'noise_std'):.2f}" for row in cells)])
    return lines


def comparison(found: Sequence[Row]) -> str:
    """State the results in sentences."""
    own = where(found, matrix="seed 0")
    fresh = where(found, matrix="fresh", calibration="paper")
    places = [number(row, "share_below_printed") for row in fresh]
    plain = max(map(abs, _gaps(where(found, protect="none"), "mean")))
    gaps = _gaps(own, "mean")
    verdict = "within" if max(map(abs, gaps)) <= TOLERANCE else "NOT within"
    by_row, by_element = (
        ", ".join(f"{number(row, 'epsilon'):.4g}" for row in where(own, protect=protect))
        for protect in ("row", "element")
    )
    lines = [
        f"Without privacy the printed accuracies are met to {plain:.4f}. With the paper's scales, "
        f"records and matrix (random_state=0) the eight private ones are {verdict} {TOLERANCE:g}: "
        f"differences from {min(gaps):+.4f} to {max(gaps):+.4f}, root mean square "
        f"{_rms(gaps):.4f}.",
        "With fresh matrices, which the proofs need, the root mean square difference is "
        f"{_rms(_gaps(fresh, 'mean')):.3f} for means and {_rms(_gaps(fresh, 'median')):.3f} for "
        f"medians: {min(places):.0%} to {max(places):.0%} of single releases are below the printed "
        "number.",
        "The paper's matrix moves the centres from 4 to "
        f"{', '.join(f'{projected_distance(d, k):.2f}' for d, k in SIZES)} apart; the root mean "
        "square over all matrices is 4. As much or more has probability "
        f"{', '.join(f'{_as_far(d, k):.1%}' for d, k in SIZES)}.",
        "For the paper's matrix, which anybody can compute, its scales have epsilon = "
        f"{by_row} row-wise and {by_element} element-wise, not 4. With fresh matrices the printed "
        "scales have epsilon = 4 and delta = "
        f"{_deltas(fresh, 'element')} element-wise, {_deltas(fresh, 'row')} row-wise.",
    ]
    for dim, k in SIZES[2:]:
        ours, union = (_cell(found, dim, k, "row", name) for name in ("auto", "union"))
        gap = number(ours, "mean") - number(union, "mean")
        error = math.hypot(number(ours, "standard_error"), number(union, "standard_error"))
        lines.append(
            f"Rows at d = {dim}, k = {k}, delta = 1e-6: ours {number(ours, 'mean'):.4f}, union "
            f"bound {number(union, 'mean'):.4f}, difference {gap:+.4f} ± {error:.4f}."
        )
    whole = [number(row, "mean") for row in where(found, protect="whole record")]
    lines.append(
        "A bound of 1 does not hide the cluster of a record: centres are 4 apart, so that this "
        f"costs about 4 epsilon = 16. Hiding a whole record leaves accuracies from "
        f"{min(whole):.2f} to {max(whole):.2f}, where 0.5 is guessing."
    )
    return "\n".join(lines)


def _as_far(dim: int, k: int) -> float:
    """Probability that a Gaussian matrix moves two centres as far apart: chi-squared over k."""
    from scipy.stats import chi2

    return float(chi2.sf(k * (projected_distance(dim, k) / DISTANCE) ** 2, k))


def _deltas(fresh: Sequence[Row], protect: str) -> str:
    deltas = [number(row, "delta") for row in where(fresh, protect=protect)]
    # Below this, rounding of the integrals behind a delta is as large.
    return ", ".join(f"{delta:.2g}" if delta > 1e-17 else "below 1e-17" for delta in deltas)


def _gaps(found: Sequence[Row], column: str) -> list[float]:
    return [number(row, column) - number(row, "printed") for row in found]


def _rms(values: Sequence[float]) -> float:
    return math.sqrt(sum(value * value for value in values) / len(values))


def _key(row: Row) -> tuple[str, str, str]:
    return str(row["protect"]), str(row["calibration"]), str(row["matrix"])


def _title(protect: str) -> str:
    return "none, " if protect == "none" else f"{protect}-wise, "


def _cell(found: Sequence[Row], dim: int, k: int, protect: str, calibration: str) -> Row:
    (row,) = where(found, d=dim, k=k, protect=protect, calibration=calibration, matrix="fresh")
    return row


def _mean(row: Row) -> str:
    if row["protect"] == "none":
        return f"{number(row, 'mean'):.4f}"
    return f"{number(row, 'mean'):.4f} ± {number(row, 'standard_error'):.4f}"


def _range(row: Row) -> str:
    return f"{number(row, 'low'):.3f} to {number(row, 'high'):.3f}"


TABLE1 = View("Table 1: accuracy of k-means after a release", table, comparison)
