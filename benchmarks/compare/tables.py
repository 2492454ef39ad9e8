"""The comparison as words and pictures: medians, cells that others win, time and memory, plots."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.common import markdown
from benchmarks.compare.methods import BASELINES, OURS
from privsketch.models.drawing.axes import FAINT, INK, PALETTE, figure_of

Rows = Sequence[dict[str, str]]
_SPENDS = re.compile(r"spends ([0-9.]+) epsilon")


@dataclass(frozen=True)
class Cell:
    """All runs on one data set under one budget."""

    data: str
    epsilon: float
    delta: float
    rows: Rows

    def runs(self, method: str) -> list[float]:
        """RSSE of all runs that did not fail."""
        return [float(row["rsse"]) for row in self.rows if row["method"] == method and row["rsse"]]

    @property
    def medians(self) -> dict[str, float]:
        """Median RSSE of every method that was run."""
        names = dict.fromkeys(row["method"] for row in self.rows if row["rsse"])
        return {name: median(self.runs(name)) for name in names}

    @property
    def over_budget(self) -> set[str]:
        """Methods that spend more than the budget of the cell."""
        found = ((row["method"], _SPENDS.search(row["note"])) for row in self.rows)
        return {name for name, spent in found if spent and float(spent[1]) > 1}

    @property
    def best(self) -> str | None:
        """The method of lowest median among those that keep the budget."""
        fair = {name: at for name, at in self.medians.items() if name not in self.over_budget}
        return min(fair, key=lambda name: fair[name], default=None)

    @property
    def regret(self) -> float | None:
        """Median of "auto" over the lowest of those that keep the budget."""
        if self.best is None or "auto" not in self.medians:
            return None
        return self.medians["auto"] / self.medians[self.best]

    @property
    def chosen(self) -> list[str]:
        """What "auto" chose."""
        notes = {row["note"] for row in self.rows if row["method"] == "auto"}
        return sorted(note.removeprefix("chose ") for note in notes if note)


def cells_of(rows: Rows) -> list[Cell]:
    """Cells in the order in which data sets come first; delta before pure, then by epsilon."""
    grouped: dict[tuple[str, float, float], list[dict[str, str]]] = {}
    for row in rows:
        key = row["data"], float(row["epsilon"]), float(row["delta"])
        grouped.setdefault(key, []).append(row)
    names = list(dict.fromkeys(row["data"] for row in rows))
    order = sorted(grouped, key=lambda key: (names.index(key[0]), -key[2], key[1]))
    return [Cell(*key, grouped[key]) for key in order]


def methods_of(rows: Rows) -> list[str]:
    """Methods that were run: ours, baselines, then peers."""
    found = dict.fromkeys(row["method"] for row in rows)
    known = [name for name in (*OURS, *BASELINES) if name in found]
    return known + [name for name in found if name not in known]


def table_of_medians(rows: Rows) -> str:
    """Medians of RSSE; the lowest of each cell in bold, in brackets what breaks the budget.

    The last columns say what "auto" chose, and its median over the lowest.
    """
    names = methods_of(rows)
    lines = []
    for cell in cells_of(rows):
        texts = []
        for name in names:
            text = f"{cell.medians[name]:.4g}" if name in cell.medians else ""
            if name in cell.over_budget and text:
                text = f"({text})"
            texts.append(f"**{text}**" if name == cell.best else text)
        regret = "" if cell.regret is None else f"{cell.regret:.3f}"
        lines.append(
            [
                cell.data,
                f"{cell.epsilon:g}",
                f"{cell.delta:g}",
                *texts,
                *(", ".join(cell.chosen), regret),
            ]
        )
    return markdown(["data", "epsilon", "delta", *names, "auto chose", "regret of auto"], lines)


def losses(rows: Rows) -> list[str]:
    """Cells in which no method of ours has the lowest median, in words."""
    found = []
    for cell in cells_of(rows):
        ours = {name: at for name, at in cell.medians.items() if name in OURS}
        if not ours or cell.best is None or cell.best in OURS:
            continue
        mine = min(ours, key=lambda name: ours[name])
        lead = 100 * (1 - cell.medians[cell.best] / ours[mine])
        text = (
            f"{cell.data}, epsilon = {cell.epsilon:g}, delta = {cell.delta:g}: {cell.best} has "
            f"{cell.medians[cell.best]:.4g}, our best ({mine}) {ours[mine]:.4g}: {lead:.2g} % less"
        )
        if cell.best in cell.chosen:
            text += f'; "auto" chose {cell.best} there'
        found.append(text)
    return found


def table_of_costs(rows: Rows) -> str:
    """Median seconds of a run, and MB beyond the records, of every data set and method."""
    names = methods_of(rows)
    lines = []
    for data in dict.fromkeys(row["data"] for row in rows):
        texts = []
        for name in names:
            mine = [row for row in rows if row["data"] == data and row["method"] == name]
            seconds = [float(row["seconds"]) for row in mine if row["seconds"]]
            peaks = [float(row["peak_mb"]) for row in mine if row["peak_mb"]]
            parts = [f"{median(seconds):.2g} s"] if seconds else []
            texts.append(", ".join(parts + [f"{at:.0f} MB" for at in peaks[:1]]))
        lines.append([data, *texts])
    return markdown(["data", *names], lines)


def report(rows: Rows) -> str:
    """Everything in Markdown."""
    beaten = losses(rows)
    n_cells = len(cells_of(rows))
    notes = sorted(
        {f"{row['method']}: {row['note']}" for row in rows if row["kind"] == "peer" and row["note"]}
    )
    parts = [
        "RSSE, medians. Bold: the lowest of those that keep the budget; in brackets: what "
        "really spends more than the budget.",
        table_of_medians(rows),
        f"In {n_cells - len(beaten)} of {n_cells} cells a method of ours has the lowest median."
        + (" In these it has not:" if beaten else ""),
        "\n".join(f"* {line}" for line in beaten),
        "Seconds of a run on one thread (median), and memory beyond the records:",
        table_of_costs(rows),
        "What peers say:" if notes else "",
        "\n".join(f"* {line}" for line in notes),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def slug(name: str) -> str:
    """Return the name of a data set as part of a file name."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower().replace("%", "percent")).strip("-")


def plot(rows: Rows, folder: Path) -> list[Path]:
    """RSSE against epsilon, a picture for every data set: with a delta, and pure."""
    names = methods_of(rows)
    written = []
    for data in dict.fromkeys(row["data"] for row in rows):
        cells = [cell for cell in cells_of(rows) if cell.data == data]
        figure, axes = figure_of(8.4, 3.4, 1, 2)
        for panel, (title, is_pure) in zip(
            axes[0], (("delta = 0", True), ("delta > 0", False)), strict=True
        ):
            shown = [cell for cell in cells if (cell.delta == 0) == is_pure and cell.medians]
            for number, name in enumerate(names):
                points = [(c.epsilon, c.medians[name]) for c in shown if name in c.medians]
                if points:
                    _line(panel, points, name, number)
            panel.set_title(title, color=INK, fontsize=9)
            panel.set_xscale("log")
            panel.set_yscale("log")
            panel.set_xlabel("epsilon")
            epsilons = [cell.epsilon for cell in shown]
            panel.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
            panel.set_xticks([], minor=True)
            panel.grid(visible=True, which="both", color=FAINT, linewidth=0.4)
            if not shown:
                panel.set_axis_off()
        axes[0][0].set_ylabel("RSSE, median")
        lines: dict[str, object] = {}
        for panel in axes[0]:
            lines.update(dict(zip(*reversed(panel.get_legend_handles_labels()), strict=True)))
        order = [name for name in names if name in lines]
        figure.legend(
            [lines[name] for name in order],
            order,
            loc="outside right upper",
            fontsize=7,
            frameon=False,
        )
        figure.suptitle(data, fontsize=10, color=INK)
        path = folder / f"compare-{slug(data)}.png"
        save(figure, path)
        written.append(path)
    return written


def save(figure: Any, path: Path) -> None:
    """Write a figure as a PNG of few colours, which takes a fifth of the space."""
    from PIL import Image  # matplotlib comes with it

    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=90, format="png")
    with Image.open(buffer) as picture:
        picture.convert("RGB").quantize(64).save(path, optimize=True)


def _line(panel: Any, points: list[tuple[float, float]], name: str, number: int) -> None:
    """Ours are thick, baselines thin, peers dashed."""
    is_ours, is_peer = name in OURS, name not in (*OURS, *BASELINES)
    panel.plot(
        *zip(*points, strict=True),
        label=name,
        color=PALETTE[number % len(PALETTE)],
        linewidth=2.0 if is_ours else 1.0,
        linestyle="--" if is_peer else "-",
        marker="os^v<>DPX*+x"[number % 12],
        markersize=4,
        zorder=3 if is_ours else 2,
    )
