"""Parts of an experiment: each is run by itself, and what it found is kept.

A cell is a function and its parameters. Its rows are kept in a file whose name is a digest of all
that they depend on: the parameters, the sources of the library, and the versions of the libraries
below it. A run that was stopped goes on where it was; after a change of any of these cells run
again. Only noise, which has no seed, is not in the digest.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from papers.harness.rows import Row
from papers.harness.sources import sources_digest, versions_below
from papers.harness.workers import in_processes
from privsketch._base.errors import FileError, require_count
from privsketch._base.formats import write_file
from privsketch._base.threads import one_thread_of_kmeans

Progress = Callable[[float], None]  # the share that is done, 0 to 1


@dataclass(frozen=True)
class Found:
    """Rows of cells, and the seconds of one core that they took, now or when they were kept."""

    rows: list[Row]
    seconds: float


@dataclass(frozen=True)
class Cell:
    """A part of an experiment.

    `run` is a function of a module, called with the parameters, which are JSON values. `weight`
    is its time in a unit that all cells of a target share.
    """

    run: Callable[..., list[Row]]
    parameters: dict[str, Any]
    weight: float = 1.0

    @property
    def name(self) -> str:
        """The function with its module."""
        return f"{self.run.__module__}.{self.run.__qualname__}"

    @property
    def sources(self) -> str:
        """Digest of the code behind the rows."""
        return sources_digest(self.run.__module__)

    def digest(self) -> str:
        """Names all that the rows depend on."""
        content = {
            "run": self.run.__qualname__,
            "parameters": self.parameters,
            "sources": self.sources,
            "versions": versions_below(),
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Experiment:
    """`cells` are its parts for an effort, `summary` makes the rows of a file out of theirs."""

    cells: Callable[[str], Sequence[Cell]]
    summary: Callable[[Sequence[Row]], list[Row]] = list


def run_cells(
    cells: Sequence[Cell],
    folder: Path | None,
    progress: Progress,
    *,
    n_jobs: int = 1,
    again: bool = False,
) -> Found:
    """Rows of all cells, in their order; those that were kept in `folder` are not run.

    With `again` all of them are run. With one job they run in this process.
    """
    require_count("n_jobs", n_jobs)
    paths = [None if folder is None else folder / f"{cell.digest()}.json" for cell in cells]
    if folder is not None:
        make_folder(folder)
    kept = [None if path is None or again else _kept(path) for path in paths]
    found = {place: part for place, part in enumerate(kept) if part is not None}
    total, done = sum(cell.weight for cell in cells), sum(cells[place].weight for place in found)
    progress(min(done / total, 1.0))
    missing = [place for place in range(len(cells)) if place not in found]
    with closing(_finished(cells, missing, n_jobs)) as finished:
        for place, part in finished:
            found[place] = part
            path = paths[place]
            if path is not None:
                what = {"run": cells[place].name, "parameters": cells[place].parameters}
                write_file(path, json.dumps({**what, **asdict(part)}).encode())
            done += cells[place].weight
            progress(min(done / total, 1.0))
    progress(1.0)
    parts = [found[place] for place in range(len(cells))]
    return Found([row for part in parts for row in part.rows], sum(part.seconds for part in parts))


def make_folder(folder: Path) -> None:
    """Create a folder and its parents where they do not exist."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{folder}: {error.strerror or 'cannot be made'}") from None


def _kept(path: Path) -> Found | None:
    """Return an earlier result; a truncated or altered file counts as none."""
    try:
        content = json.loads(path.read_bytes())
        rows, seconds = content["rows"], float(content["seconds"])
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or 'cannot be read'}") from None
    right = isinstance(rows, list) and all(isinstance(row, dict) for row in rows)
    return Found(rows, seconds) if right else None


def _finished(
    cells: Sequence[Cell], places: Sequence[int], n_jobs: int
) -> Generator[tuple[int, Found], None, None]:
    """Cells as they come to their end."""
    if n_jobs == 1 or len(places) < 2:
        for place in places:
            yield place, _run(cells[place])
        return
    # The longest first: then the last ones are short, and all processes end at about one time.
    order = sorted(places, key=lambda place: -cells[place].weight)
    items = [(cells[place], cells[place].sources) for place in order]
    with closing(in_processes(_run_elsewhere, items, min(n_jobs, len(items)))) as finished:
        for place, part in finished:
            yield order[place], part


def _run_elsewhere(item: tuple[Cell, str]) -> Found:
    """Run a cell in a process that loaded the sources later than the one which asks for it."""
    cell, sources = item
    if cell.sources != sources:
        raise FileError(
            "sources of privsketch were changed after this run began; start it again, and parts "
            "that do not depend on them are kept"
        )
    return _run(cell)


def _run(cell: Cell) -> Found:
    start = time.process_time()
    try:
        with one_thread_of_kmeans():
            rows = cell.run(**cell.parameters)
    except Exception as error:
        error.add_note(f"in {cell.name} with {cell.parameters}")
        raise
    return Found(rows, time.process_time() - start)
