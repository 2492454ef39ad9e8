"""Real tables that come inside of packages: columns with public bounds, scaled to [-1, 1].

Packages (requirements-data.txt) are not imported, their files are read; a table whose package is
not installed is left out. Rows with a missing value are dropped, and of long tables every
repetition has MOST rows of its own. Bounds are what somebody who knows the kind of table would
state: the range of a scale, 0 to 100 for shares in percent, else round numbers around what is
usual; values beyond are moved to the bound. Where they are `_log`, money and counts are taken as
log(1 + value), and bounds are still in units of the table.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np

import privsketch as ps
from benchmarks.datasets import DataSet
from privsketch._typing import Floats

MOST = 30_000  # records of a table
PYDATASET = "pydataset/resources.tar.gz:resources/rdata/csv/"


class _Log(NamedTuple):
    low: float
    high: float


Bounds = tuple[float, float] | _Log


def _log(low: float, high: float) -> _Log:
    return _Log(low, high)


def _all(names: str, bounds: Bounds) -> dict[str, Bounds]:
    """Columns with the same bounds."""
    return dict.fromkeys(names.split(), bounds)


@dataclass(frozen=True)
class Table:
    """Columns of a file of an installed package."""

    file: str  # PACKAGE/PATH, or PACKAGE/PATH:MEMBER of an archive
    columns: Mapping[str, Bounds]
    delimiter: str = ","
    quote: str = '"'

    @property
    def package(self) -> str:
        """What must be installed."""
        return self.file.partition("/")[0]

    def read(self) -> Floats:
        """Complete rows in units of the table."""
        spec = find_spec(self.package)
        if spec is None or spec.origin is None:
            raise FileNotFoundError(f"{self.package} is not installed")
        name, _, member = self.file.partition("/")[2].partition(":")
        content = (Path(spec.origin).parent / name).read_bytes()
        if member:
            with tarfile.open(fileobj=io.BytesIO(content)) as archive:
                inside = archive.extractfile(member)
                content = b"" if inside is None else inside.read()
        values = self._from_json(content) if name.endswith(".json") else self._from_csv(content)
        return np.asarray(values[np.isfinite(values).all(axis=1)])

    def _from_csv(self, content: bytes) -> Floats:
        import pyarrow as pa
        from pyarrow import csv

        names = list(self.columns)
        table = csv.read_csv(
            io.BytesIO(content),
            parse_options=csv.ParseOptions(delimiter=self.delimiter, quote_char=self.quote),
            convert_options=csv.ConvertOptions(
                include_columns=names, column_types=dict.fromkeys(names, pa.float64())
            ),
        )
        return np.stack([column.to_numpy() for column in table.columns], axis=1)

    def _from_json(self, content: bytes) -> Floats:
        rows = json.loads(content)
        return np.array([[row[name] for name in self.columns] for row in rows], dtype=np.float64)

    def scaled(self, values: Floats) -> Floats:
        """Values with their bounds at -1 and 1; what is beyond them stays beyond."""
        columns = []
        for column, bounds in zip(values.T, self.columns.values(), strict=True):
            low, high = bounds
            if isinstance(bounds, _Log):
                column, low, high = np.log1p(column), np.log1p(low), np.log1p(high)
            columns.append(2 * (column - low) / (high - low) - 1)
        return np.stack(columns, axis=1)

    def make(self, rng: np.random.Generator) -> Floats:
        """Records in [-1, 1]^d, at most MOST."""
        records = np.clip(self.scaled(self.read()), -1, 1)
        if len(records) <= MOST:
            return np.asarray(records)
        return np.asarray(records[rng.choice(len(records), MOST, replace=False)])


TABLES: dict[str, tuple[int, str, Table]] = {  # clusters, what it is, where it is
    "penguins": (
        3,
        "bills, flippers and masses of three species",
        Table(
            "palmerpenguins/data/penguins.csv",
            {
                "bill_length_mm": (30, 60),
                "bill_depth_mm": (10, 25),
                "flipper_length_mm": (150, 250),
                "body_mass_g": (2000, 7000),
            },
        ),
    ),
    "airports": (
        12,
        "places of airports of the USA",
        Table("vega_datasets/_data/airports.csv", {"latitude": (10, 75), "longitude": (-180, -60)}),
    ),
    "cars": (
        3,
        "power, weight and thirst of cars",
        Table(
            "vega_datasets/_data/cars.json",
            {
                "Miles_per_Gallon": (0, 50),
                "Displacement": (0, 500),
                "Horsepower": (0, 250),
                "Weight_in_lbs": (1000, 6000),
                "Acceleration": (5, 30),
            },
        ),
    ),
    "weather": (
        5,
        "days in Seattle: rain, temperatures, wind",
        Table(
            "vega_datasets/_data/seattle-weather.csv",
            {
                "precipitation": _log(0, 100),
                "temp_max": (-10, 40),
                "temp_min": (-15, 30),
                "wind": (0, 10),
            },
        ),
    ),
    "countries": (
        6,
        "length of life, people and product of countries, 1952 to 2007",
        Table(
            "gapminder/gapminder.csv",
            {"lifeExp": (20, 90), "pop": _log(1e4, 2e9), "gdpPercap": _log(200, 2e5)},
        ),
    ),
    "medical visits": (
        10,
        "visits, insurance and health of 20,190 people (RAND)",
        Table(
            "statsmodels/datasets/randhie/randhie.csv",
            {
                "mdvis": _log(0, 100),
                "lncoins": (0, 5),
                "lpi": (0, 8),
                "fmde": (0, 10),
                "disea": (0, 60),
                **_all("idp physlm hlthg hlthf hlthp", (0, 1)),
            },
        ),
    ),
    "marriages": (
        6,
        "6,366 answers about marriages (Fair)",
        Table(
            "statsmodels/datasets/fair/fair.csv",
            {
                "rate_marriage": (1, 5),
                "age": (15, 45),
                "yrs_married": (0, 25),
                "children": (0, 6),
                "religious": (1, 4),
                "educ": (8, 20),
                "occupation": (1, 6),
                "occupation_husb": (1, 6),
            },
        ),
    ),
    "election": (
        4,
        "944 voters of 1996: views, age, education, income",
        Table(
            "statsmodels/datasets/anes96/anes96.csv",
            {
                "popul": _log(0, 10_000),
                "TVnews": (0, 7),
                **_all("selfLR ClinLR DoleLR", (1, 7)),
                "PID": (0, 6),
                "age": (18, 100),
                "educ": (1, 7),
                "income": (1, 24),
            },
            "\t",
            "'",
        ),
    ),
    "schools": (
        3,
        "303 districts of California: shares in percent, pay, experience",
        Table(
            "statsmodels/datasets/star98/star98.csv",
            {
                **_all(
                    "LOWINC PERASIAN PERBLACK PERHISP PERMINTE PCTAF PCTCHRT PCTYRRND", (0, 100)
                ),
                "AVYRSEXP": (0, 30),
                "AVSALK": (30, 80),
                "PERSPENK": (2, 10),
                "PTRATIO": (10, 40),
            },
        ),
    ),
    "diamonds": (
        8,
        "sizes, shapes and prices of diamonds",
        Table(
            f"{PYDATASET}ggplot2/diamonds.csv",
            {
                "carat": (0, 5),
                "depth": (50, 75),
                "table": (50, 75),
                "price": _log(100, 20_000),
                **_all("x y z", (0, 10)),
            },
        ),
    ),
    "movies": (
        12,
        "year, length, votes and shares of ratings of films",
        Table(
            f"{PYDATASET}ggplot2/movies.csv",
            {
                "year": (1890, 2010),
                "length": (0, 250),
                "rating": (1, 10),
                "votes": _log(0, 200_000),
                **_all("r1 r2 r3 r4 r5 r6 r7 r8 r9 r10", (0, 100)),
            },
        ),
    ),
    "baseball": (
        8,
        "seasons of batters: logarithms of counts",
        Table(
            f"{PYDATASET}plyr/baseball.csv",
            {
                **_all("g r rbi bb so", _log(0, 200)),
                **_all("X2b X3b hr sb", _log(0, 100)),
                "ab": _log(0, 1000),
                "h": _log(0, 300),
            },
        ),
    ),
    "earthquakes": (
        7,
        "places, depths and strengths near Fiji",
        Table(
            f"{PYDATASET}datasets/quakes.csv",
            {"lat": (-40, -10), "long": (160, 190), "depth": (0, 700), "mag": (4, 7)},
        ),
    ),
    "traits": (
        5,
        "25 answers on a scale of 6 about oneself",
        Table(
            f"{PYDATASET}psych/bfi.csv",
            _all(" ".join(f"{trait}{j}" for trait in "ACENO" for j in range(1, 6)), (1, 6)),
        ),
    ),
    "food": (
        8,
        "23,972 households of Spain: share of food, money, age, size",
        Table(
            f"{PYDATASET}Ecdat/BudgetFood.csv",
            {"wfood": (0, 1), "totexp": _log(1e4, 1e7), "age": (15, 100), "size": (1, 15)},
        ),
    ),
    "biopsies": (
        2,
        "nine marks of 1 to 10 of 683 tumours",
        Table(
            f"{PYDATASET}MASS/biopsy.csv",
            _all(" ".join(f"V{j}" for j in range(1, 10)), (1, 10)),
        ),
    ),
    "computers": (
        10,
        "prices and parts of 6,259 computers",
        Table(
            f"{PYDATASET}Ecdat/Computers.csv",
            {
                "price": (500, 5500),
                "speed": (0, 100),
                "hd": _log(50, 3000),
                "ram": _log(1, 64),
                "screen": (14, 17),
                "ads": (0, 400),
                "trend": (1, 36),
            },
        ),
    ),
    "nitrogen": (
        8,
        "hours at a road: nitrogen oxides, traffic, wind",
        Table(
            f"{PYDATASET}robustbase/NOxEmissions.csv",
            {"LNOx": (0, 7), "LNOxEm": (4, 9), "sqrtWS": (0, 4)},
        ),
    ),
    "tuna": (
        12,
        "prices of five brands in 13,705 purchases",
        Table(
            f"{PYDATASET}Ecdat/Tuna.csv",
            _all("price.skw price.cosw price.sko price.coso price.pw", (0, 1)),
        ),
    ),
}
REAL: list[DataSet] = [
    DataSet(name, k, ps.Box(-1, 1, dim=len(table.columns)), table.make, about, needs=table.package)
    for name, (k, about, table) in TABLES.items()
]
