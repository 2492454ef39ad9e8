"""Tables of results in results/supervised.md: a section for each part, replaced by its next run."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "results"
OPENING = """# Regression and classification from second moments: results

Written by `python -m benchmarks supervised PART --write`; what the parts are is in
[the list of benchmarks](../README.md).
"""


def publish(part: str, text: str, folder: Path = RESULTS) -> None:
    """Write a part's section: replace the one that is there, or add it."""
    path = folder / "supervised.md"
    written = path.read_text(encoding="utf-8") if path.exists() else OPENING
    sections = re.split(r"(?m)^(?=## )", written)
    others = [one for one in sections[1:] if not one.startswith(f"## {part}\n")]
    own = f"## {part}\n\n{text.strip()}\n"
    ordered = sorted((*(one.strip() + "\n" for one in others), own))
    path.write_text("\n".join([sections[0].strip() + "\n", *ordered]), encoding="utf-8")


def write_rows(name: str, rows: Iterable[Sequence[object]], folder: Path = RESULTS) -> None:
    """Write a CSV file of a part; the first row has the names of its columns."""
    with (folder / f"supervised-{name}.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
