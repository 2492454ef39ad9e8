"""Plots of the released numbers of a sketch, and of the noise that hides some of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from privsketch._base.types import Floats
from privsketch.models.drawing.axes import ABOVE, GREY, INK, LEGEND, PALETTE


def draw_moduli(axis: Any, norms: Floats, moduli: Floats, *, encoded: bool) -> None:
    """Draw moduli of moments per record, as rings over the norms of their frequencies."""
    from matplotlib.ticker import LogLocator, NullFormatter

    rings = {"s": 30, "facecolors": "none", "edgecolors": GREY, "linewidths": 0.9}
    axis.scatter(norms, moduli, label="sketch", **rings)
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.xaxis.set_major_formatter("{x:g}")
    axis.xaxis.set_minor_formatter(NullFormatter())
    unit = "encoded records" if encoded else "radians per unit"
    axis.set_xlabel(f"frequency ({unit})")
    axis.set_ylabel("modulus per record")


def draw_sizes(axis: Any, sizes: Floats, unit: str) -> None:
    """Draw sizes of released numbers per record, the largest first."""
    from matplotlib.ticker import MaxNLocator

    ranks = np.arange(1, len(sizes) + 1)
    axis.scatter(ranks, np.sort(sizes)[::-1], s=14, color=GREY, lw=0, label="sketch")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_xlabel("released numbers, the largest first")
    axis.set_ylabel(f"size per record, in {unit}")


def draw_cells(
    axis: Any, counts: Floats, edges: list[Floats], noise: float, names: list[str]
) -> None:
    """Draw noisy numbers of records of the cells of one or two columns."""
    axis.set_xlabel(names[0])
    if counts.ndim == 1:
        axis.stairs(counts, edges[0], fill=True, color=GREY, label="sketch")
        band = {"color": PALETTE[1], "alpha": 0.15, "lw": 0}
        axis.axhspan(-noise, noise, label="hidden by privacy noise", **band)
        axis.set_ylabel("records of a cell")
        axis.legend(**LEGEND, loc="upper right")
        return
    most = max(float(counts.max()), noise)
    mesh = axis.pcolormesh(edges[0], edges[1], counts.T, cmap="Blues", vmin=0, vmax=most)
    axis.set_ylabel(names[1])
    bar = axis.figure.colorbar(mesh, ax=axis)
    bar.set_label(f"records of a cell (noise {noise:.2g})", color=INK)


def draw_noise(axis: Any, sizes: Floats, noise: float, both: float | None = None) -> None:
    """Draw the mean size of noise alone, and of noise and sampling together if known.

    Both are root mean squares in the units of `sizes`, which are on the axis already.
    """
    axis.set_yscale("log")
    if noise <= 0:  # of an insecure design
        return
    most = noise if both is None else both
    low = 0.5 * min(noise, float(sizes[sizes > 0].min(initial=noise)))
    axis.set_ylim(low, 2 * float(sizes.max(initial=most)))
    axis.axhspan(low, noise, color=PALETTE[1], alpha=0.15, lw=0, label="hidden by privacy noise")
    if both is not None:
        line = {"color": PALETTE[1], "linewidth": 1.2, "linestyle": "--"}
        axis.axhline(both, label="noise and sampling together", **line)
    axis.legend(**ABOVE, ncols=3)
