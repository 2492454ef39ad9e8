"""What a target leaves behind: a CSV file, a picture if it is a figure, and words."""

from __future__ import annotations

import platform
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from papers.harness.cells import Cell, Experiment, Progress, make_folder, run_cells
from papers.harness.rows import Row, from_csv, to_csv
from papers.harness.views import View, to_png
from privsketch._base.errors import ParameterError
from privsketch._base.formats import require_writable, write_file

EFFORTS = ("full", "quick", "tiny")  # as in the paper, within two minutes, for tests
_WIDTH = 100


@dataclass(frozen=True)
class Target:
    """One figure or table of a paper: an experiment, and how its rows are shown.

    `seconds` are what two cores take for a full and for a quick run.
    """

    name: str
    paper: str
    experiment: Experiment
    view: View
    seconds: tuple[int, int]

    @property
    def short_paper(self) -> str:
        """The paper's short name, which begins all names of its targets."""
        return self.name.split("-")[0]


@dataclass(frozen=True)
class Outcome:
    """Words about a target, and the files that were written."""

    text: str
    files: tuple[Path, ...]


def run(
    target: Target,
    folder: Path,
    effort: str,
    progress: Progress,
    *,
    n_jobs: int = 1,
    again: bool = False,
) -> Outcome:
    """Run a target and write its files, which replace those of an earlier run.

    Parts that are done are kept in folder/cells: a run that was stopped goes on there, and one
    for which nothing has changed runs nothing. `again` runs all of them.
    """
    if effort not in EFFORTS:
        raise ParameterError(f"effort={effort!r}: expected one of {', '.join(map(repr, EFFORTS))}")
    figure = target.view.figure
    if figure is not None and find_spec("matplotlib") is None:
        raise ParameterError(
            f"target={target.name!r}: a figure needs matplotlib; pip install 'privsketch[plot]'"
        )
    make_folder(folder)
    kinds = ("csv", "txt") if figure is None else ("csv", "txt", "png")
    files = tuple(folder / f"{target.name}.{kind}" for kind in kinds)
    for path in files:
        require_writable(path)
    cells = target.experiment.cells(effort)
    kept = folder / "cells" / target.name
    found = run_cells(cells, kept, progress, n_jobs=n_jobs, again=again)
    content = to_csv(target.experiment.summary(found.rows))
    rows = from_csv(content)  # what is said and shown is what the file has
    text = words(target, rows, provenance(target, effort, cells, found.seconds))
    write_file(files[0], content.encode())
    write_file(files[1], (text + "\n").encode())
    if figure is not None:
        write_file(files[2], to_png(figure(rows)))
    return Outcome(text, files)


def words(target: Target, rows: Sequence[Row], made_by: str) -> str:
    """Table and comparison, with what they were made by."""
    comparison = target.view.comparison(rows).splitlines()
    return "\n".join(
        [
            f"{target.view.shows}; {target.paper}",
            "",
            target.view.table(rows),
            "",
            *(textwrap.fill(line, _WIDTH) for line in comparison),
            "",
            made_by,
        ]
    )


def provenance(target: Target, effort: str, cells: Sequence[Cell], seconds: float) -> str:
    """Return the command, its time, and the code that it ran, in one line."""
    command = f"python -m papers {target.name}" + (" --quick" if effort == "quick" else "")
    sources = "+".join(sorted({cell.sources[:12] for cell in cells}))
    time = duration(seconds)
    return f"{command}: {effort} run, {time} of one core; sources {sources}; {versions()}"


def duration(seconds: float) -> str:
    """Return a duration in a suitable unit."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def versions() -> str:
    """Return the versions that the numbers were made with."""
    names = ("privsketch", "numpy", "scipy", "scikit-learn", "matplotlib")
    known = [f"{name} {_version(name)}" for name in names if _version(name)]
    return ", ".join([*known, f"Python {platform.python_version()}"])


def _version(name: str) -> str | None:
    if name == "privsketch":
        from privsketch import __version__

        return __version__
    return version(name) if find_spec(name.replace("scikit-learn", "sklearn")) else None
