"""Curves that constants of the code were read off, a file for each folder of the library.

A curve sets one constant to several values and measures what becomes of it. The comment beside the
constant names the command that prints its curve:

    python -m benchmarks constants                    all curves, by folder
    python -m benchmarks constants learning N_STARTS  one of them, measured now
    python -m benchmarks constants learning --write   all of a folder, into results/constants.md
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import markdown

RESULTS = Path(__file__).parents[1] / "results" / "constants.md"


@dataclass(frozen=True)
class Curve:
    """One constant and what is measured at several of its values.

    Parameters
    ----------
    constant : str
        Module and name: "privsketch.learning.refine.OVERVIEW_STARTS".
    values : tuple
        Values to try; the one in use is among them.
    measure : callable
        Called with nothing while the constant has one of the values; returns numbers by name.
    about : str
        One sentence: what is measured, on which data, and what speaks for the value in use.
    """

    constant: str
    values: tuple[Any, ...]
    measure: Callable[[], Mapping[str, float]]
    about: str

    @property
    def module(self) -> str:
        """Module that defines the constant."""
        return self.constant.rpartition(".")[0]

    @property
    def name(self) -> str:
        """Name of the constant in its module."""
        return self.constant.rpartition(".")[2]

    @property
    def value(self) -> Any:
        """The value in use."""
        return getattr(importlib.import_module(self.module), self.name)

    def table(self) -> str:
        """Measure at all values; return a table, the value in use in bold."""
        used = self.value
        rows: dict[Any, Mapping[str, float]] = {}
        for value in self.values:
            with constant_set(self.constant, value):
                rows[value] = self.measure()
        columns = list(next(iter(rows.values())))
        lines = [
            [f"**{value}**" if value == used else str(value), *(f"{row[c]:.4g}" for c in columns)]
            for value, row in rows.items()
        ]
        return f"{self.about}\n\n{markdown([self.name, *columns], lines)}"


@contextmanager
def constant_set(constant: str, value: Any) -> Iterator[None]:
    """Set a constant in its module and in all loaded modules that import it."""
    module, _, name = constant.rpartition(".")
    used = getattr(importlib.import_module(module), name)
    users = [
        vars(loaded)
        for key, loaded in list(sys.modules.items())
        if key.startswith("privsketch") and vars(loaded).get(name) is used
    ]
    for names in users:
        names[name] = value
    try:
        yield
    finally:
        for names in users:
            names[name] = used


def curves(folder: str) -> tuple[Curve, ...]:
    """Return the curves of a folder of the library."""
    listed: tuple[Curve, ...] = importlib.import_module(f"benchmarks.constants.{folder}").CURVES
    return listed


def folders() -> list[str]:
    """Return the folders that have curves."""
    names = (module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]))
    return sorted(name for name in names if name != "__main__")


def write(folder: str, tables: Mapping[str, str]) -> None:
    """Replace the tables of a folder in results/constants.md."""
    text = RESULTS.read_text(encoding="utf-8") if RESULTS.is_file() else "# Constants\n"
    head, *sections = text.split("\n## ")
    by_title = {section.partition("\n")[0]: section for section in sections}
    for name, table in tables.items():
        by_title[f"{folder}: {name}"] = f"{folder}: {name}\n\n{table}\n"
    body = "\n## ".join([head.rstrip("\n") + "\n", *(by_title[t] for t in sorted(by_title))])
    RESULTS.write_text(body.rstrip("\n") + "\n", encoding="utf-8")
