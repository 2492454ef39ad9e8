"""A look at a table: counts by an oracle, the same from every reader, and marked in every line."""

import datetime
import tracemalloc
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privsketch as ps
from privsketch import ParameterError, RecordError
from privsketch.tables import CONVERSIONS, PersonCounts, ValueCounts
from tests import seams
from tests.reading import read_blocks
from tests.workbooks import write_workbook

SCHEMA = ps.Schema(
    [
        ps.Number("age", 18, 100),
        ps.Number("income", 0, 500_000, scale="log"),
        ps.Category("region", ["north", "south", "east"]),
        ps.Flag("smoker"),
        ps.Date("admitted", "2020-01-01", "2025-12-31"),
        ps.Cycle("hour", 24),
    ],
    missing="drop",
    person="patient",
    max_records=2,
)


def visits(n=600, seed=0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "patient": rng.geometric(0.02, n),
            "age": rng.normal(55, 30, n).round(1),
            "income": rng.lognormal(11, 1.5, n).round(2),
            "region": rng.choice(["north", "south", "west", "East "], n),
            "smoker": rng.random(n) < 0.3,
            "admitted": np.datetime64("2019-06-01") + rng.integers(0, 2700, n).astype("m8[D]"),
            "hour": rng.uniform(-1, 26, n).round(2),
        }
    )
    table["admitted"] = table["admitted"].astype("datetime64[s]")
    for name, share in (("age", 0.1), ("income", 0.2), ("admitted", 0.05)):
        table.loc[rng.random(n) < share, name] = None
    table.loc[rng.random(n) < 0.1, "region"] = None
    return table


def forms(table, folder):
    """The same table in all ways that have names."""
    table.to_csv(folder / "t.csv", index=False)
    table.to_csv(folder / "t.tsv", index=False, sep="\t")
    arrow = pa.Table.from_pandas(table, preserve_index=False)
    pq.write_table(arrow, folder / "t.parquet")
    objects = table.astype(object).where(table.notna(), None)
    return {
        "frame": table,
        "objects": objects,
        "arrow": arrow,
        "reader": lambda: arrow.to_reader(max_chunksize=100),
        "polars": pl.from_pandas(table),
        "csv": folder / "t.csv",
        "tsv": folder / "t.tsv",
        "parquet": folder / "t.parquet",
        "parts": [table[:200], table[200:]],
    }


# ---------------------------------------------------------------- counts


def test_counts_are_those_of_the_table(tmp_path):
    table = visits()
    found = ps.check(table, SCHEMA)
    by_name = {one.name: one for one in found.columns}
    kept = table.dropna()
    rows, kept_rows = table.groupby("patient").size(), kept.groupby("patient").size()
    assert (found.n_rows, found.n_kept) == (len(table), len(kept))
    assert found.n_persons == len(rows)
    assert found.n_kept_persons == len(kept_rows)
    assert found.max_rows == rows.max()
    assert found.median_rows == int(np.sort(rows)[(len(rows) - 1) // 2])
    assert found.n_beyond == (rows > 2).sum()
    assert found.n_records == np.minimum(kept_rows, 2).sum()
    assert found.refusals == ()
    for name in SCHEMA.names:
        assert by_name[name].n_missing == table[name].isna().sum()
        assert by_name[name].faults == {}
    for name, low, high in (("age", 18, 100), ("income", 0, 500_000), ("hour", 0, 24)):
        assert by_name[name].n_below == (table[name] < low).sum()
        assert by_name[name].n_above == (table[name] > high).sum()
        parts = [0.25, 0.5, 0.75]
        wanted = np.quantile(table[name].dropna(), parts, method="inverted_cdf")
        assert by_name[name].quartiles == pytest.approx(wanted.tolist(), rel=2.0**-8)
    assert by_name["admitted"].n_below == (table["admitted"] < "2020-01-01").sum()
    assert by_name["admitted"].n_above == (table["admitted"] > "2025-12-31").sum()
    others = ~table["region"].isin(["north", "south", "east"]) & table["region"].notna()
    assert by_name["region"].n_other == others.sum()
    assert f"{(table['region'] == 'East ').sum():,} labels are listed in other letters" in (
        found.describe()
    )
    assert "'east'" in found.describe()  # listed, and never there
    outside = (table["age"] < 18) | (table["age"] > 100) | (table["income"] > 500_000)
    outside |= (table["admitted"] < "2020-01-01") | (table["admitted"] > "2025-12-31")
    assert found.n_outside == outside.sum()
    frame = found.table()
    assert frame.index.name == "private"
    assert frame.loc["age", "n_below"] == by_name["age"].n_below


def test_all_readers_tell_the_same(tmp_path):
    told = {}
    for name, data in forms(visits(), tmp_path).items():
        told[name] = ps.check(data() if callable(data) else data, SCHEMA).describe()
    assert len(set(told.values())) == 1, {n: t for n, t in told.items() if t != told["frame"]}


def test_arrays_go_by_place():
    values = np.array([[20.0, 5.0], [120.0, np.nan], [30.0, -1.0], [np.inf, 2.0]])
    schema = ps.Schema([ps.Number("age", 18, 100), ps.Number("b", 0, 10)], missing="drop")
    for design, names in ((schema, ["age", "b"]), (ps.Box([18, 0], [100, 10]), ["0", "1"])):
        for data in (values, values.tolist(), [values[:2], values[2:]], iter([values])):
            found = ps.check(data, design)
            assert [one.name for one in found.columns] == names
            assert [(c.n_missing, c.n_below, c.n_above) for c in found.columns] == [
                (1, 0, 1),
                (1, 1, 0),
            ]
            assert found.columns[0].n_infinite == 1
    wide = np.column_stack([np.zeros(4), values])
    found = ps.check(wide, ps.Box([18, 0], [100, 10]), columns=[1, 2])
    assert [one.n_above for one in found.columns] == [1, 0]


def test_designs_with_and_without_names(make_design, tmp_path):
    table = pd.DataFrame({"b": [0.0, 9.0], "a": [9.0, 0.0], "c": [0.0, 0.0]})
    found = ps.check(table, make_design(columns=("a", "b", "c")))  # a box from -4 to 4
    assert [one.n_above for one in found.columns] == [1, 1, 0]
    table.loc[0, "b"] = np.nan
    by_place = ps.check(table, make_design())
    assert [(one.name, one.n_missing) for one in by_place.columns] == [("0", 1), ("1", 0), ("2", 0)]
    assert by_place.refusals
    assert ps.check(ps.Table(table, missing="center"), make_design()).refusals == ()
    named = ps.check(table, make_design(), columns=["c", "b", "a"])
    assert [one.name for one in named.columns] == ["c", "b", "a"]
    ball = ps.check(np.array([[3.0, 4.0], [3.0, 5.0]]), ps.Ball(2, 5.0))
    assert ball.n_outside == 1
    box = ps.Box([0, 0, 0], [1, 1, 1], columns=["a", "b", "c"], scale=True)
    assert ps.check(table, box).columns[0].n_above == 1


def test_what_cannot_be_asked():
    table = visits(10)
    for design, options in (
        ("schema.json", {}),
        (ps.Box(0, 1), {}),
        (SCHEMA, {"columns": ["age"]}),
        (SCHEMA, {"missing": "center"}),
        (ps.Box(0, 1, dim=2), {"columns": ["age"]}),
    ):
        with pytest.raises(ParameterError):
            ps.check(ps.Table(table, **options), design)


# ---------------------------------------------------------------- persons


@pytest.mark.parametrize("kind", [int, str])
def test_rows_of_persons_are_counted_in_pieces(monkeypatch, kind):
    seams.set(monkeypatch, "counts.CHUNK_ROWS", 300)
    seams.set(monkeypatch, "counts.PART_ROWS", 100)
    seams.set(monkeypatch, "spill.MEMORY_BYTES", 1000)
    rng = np.random.default_rng(0)
    person = rng.geometric(0.003, 5000) - 700
    kept = rng.random(5000) < 0.4
    names = person if kind is int else pa.array([f"p {p}" for p in person], pa.large_binary())
    counted = PersonCounts()
    for first in range(0, 5000, 70):
        counted.add(names[first : first + 70], kept[first : first + 70])
    table = pd.DataFrame({"person": person, "kept": kept}).groupby("person")["kept"]
    for found, expected in zip(counted.numbers(), (table.size(), table.sum()), strict=True):
        assert dict(zip(*map(np.ndarray.tolist, found), strict=True)) == dict(
            expected.value_counts()
        )


def test_rows_that_name_nobody():
    table = visits(50)
    table["patient"] = table["patient"].astype(object)
    table.loc[:6, "patient"] = None
    found = ps.check(table, SCHEMA)
    assert found.n_without_person == 7
    assert any("name no person" in text for text in found.refusals)
    dropped = ps.Schema(SCHEMA.columns, missing="drop", person="patient", missing_person="drop")
    assert ps.check(table, dropped).refusals == ()
    assert found.n_kept == len(table[7:].dropna())
    odd = ps.check(table.assign(patient=0.5), SCHEMA)
    assert any("neither a whole number nor text" in text for text in odd.refusals)
    assert odd.n_persons is None


# ---------------------------------------------------------------- cells


CELLS = [
    *("1", "1.5", "+5", " 7 ", "-0", "1e5", "1E+3", ".5", "1.", "inf", "-inf", "nan", "NaN"),
    *("Infinity", "0x10", "1_000", "1,5", "1 000", "1'000.5", "<5", "70 kg", "5%", "٣", "e5", "-"),
    *("", " ", "NA", " NA ", "n/a", "None", "null", "abc", "yes", "No", "TRUE", "f", "2", "0.0"),
    *("2020-01-31", "2020-13-01", "2020-02-30", "31.01.2020", "01/31/2020", "2020-01-31 12:30"),
    *("2020-01-31T12:30:00", "2020-01-31T12:30:00Z", "2020-01-31 12:30:00+02:00", "0000-00-00"),
    *("20200131", "2020-1-1", "9999-12-31", "1066-10-14", "north", "NORTH", "north ", "12:30"),
]
KINDS = [
    ps.Number("x", 0, 10),
    ps.Cycle("x", 24),
    ps.Flag("x"),
    ps.Flag("x", true="ja", false="nein"),
    ps.Date("x", "2000-01-01", "2030-01-01"),
    ps.Date("x", "2000-01-01", "2030-01-01", format="%d.%m.%Y"),
    ps.Category("x", ["north", "2", "NA"]),
]


def outcome_of_reading(data, column, **written):
    """What becomes of one cell when it is read for a release."""
    schema = ps.Schema([column, ps.Number("y", 0, 1)], missing="drop")
    try:
        blocks = read_blocks(data, schema.dim, schema=schema, **written)
        rows = sum(len(block) for block in blocks)
    except RecordError:
        return "wrong"
    return "read" if rows else "missing"


def outcome_of_check(data, column, **written):
    schema = ps.Schema([column, ps.Number("y", 0, 1)], missing="drop")
    found = ps.check(ps.Table(data, **written), schema)
    one = found.columns[0]
    assert bool(found.refusals) is bool(one.n_wrong)
    return "wrong" if one.n_wrong else "missing" if one.n_missing else "read"


@pytest.mark.parametrize("column", KINDS, ids=lambda column: column.describe())
def test_a_look_takes_cells_of_text_files_as_a_release_does(tmp_path, column):
    path, found = tmp_path / "t.csv", {}
    for cell in CELLS:
        path.write_text(f'x,y\n"{cell}",0\n')
        found[cell] = outcome_of_reading(path, column)
        assert outcome_of_check(path, column) == found[cell], cell
    # Cells of one kind are counted alike when they stand together; zones are a matter of all dates.
    together = [cell for cell in CELLS if not cell.endswith(("Z", "+02:00"))]
    path.write_text("x,y\n" + "".join(f'"{cell}",0\n' for cell in together))
    one = ps.check(path, ps.Schema([column, ps.Number("y", 0, 1)], missing="drop")).columns[0]
    assert one.n_wrong == sum(found[cell] == "wrong" for cell in together)
    assert one.n_missing == sum(found[cell] == "missing" for cell in together)


@pytest.mark.parametrize("column", KINDS[:2], ids=lambda column: column.describe())
def test_a_look_knows_the_decimal_mark(tmp_path, column):
    path = tmp_path / "t.csv"
    for cell in [*CELLS, "1,5", "-,5", "1,5e3", "1.5,0", "1,2,3"]:
        written = {"decimal": ",", "delimiter": ";"}
        path.write_text(f'x;y\n"{cell}";0\n')
        expected = outcome_of_reading(path, column, **written)
        assert outcome_of_check(path, column, **written) == expected, cell


@pytest.mark.parametrize("column", KINDS, ids=lambda column: column.describe())
def test_a_look_takes_cells_of_sheets_as_a_release_does(tmp_path, column):
    pytest.importorskip("python_calamine")
    path = tmp_path / "t.xlsx"
    texts = ["1", "1.5", "abc", "NA", "yes", "north", "2020-01-31", "31.01.2020"]
    for cell in [1, 2.5, True, None, *texts]:
        write_workbook(path, {"s": [["x", "y"], [cell, 0]]})
        assert outcome_of_check(path, column) == outcome_of_reading(path, column), repr(cell)


OBJECTS = [
    *(1, 2.5, True, None, float("nan"), float("inf"), "1", "yes", "north", "abc", "", (1, 2)),
    *(np.datetime64("2020-01-31"), np.timedelta64(5, "s"), pd.Timestamp("2020-01-31"), pd.NA),
    *(10**400, "2020-01-31", "31.01.2020", pd.NaT, b"x"),
]


@pytest.mark.parametrize("column", KINDS, ids=lambda column: column.describe())
def test_a_look_takes_objects_as_a_release_does(column):
    for cell in OBJECTS:
        table = pd.DataFrame({"x": pd.Series([cell], dtype=object), "y": [0.0]})
        assert outcome_of_check(table, column) == outcome_of_reading(table, column), repr(cell)


ARRAYS = {
    "integers": pa.array([1]),
    "floats": pa.array([1.0], pa.float32()),
    "booleans": pa.array([True]),
    "texts": pa.array(["1"]),
    "large texts": pa.array(["2020-01-31"], pa.large_string()),
    "words": pa.array(["1"]).dictionary_encode(),
    "days": pa.array([datetime.date(2020, 1, 31)]),
    "moments": pa.array([datetime.datetime(2020, 1, 31)], pa.timestamp("ns")),
    "moments in a zone": pa.array([datetime.datetime(2020, 1, 31)], pa.timestamp("s", "UTC")),
    "decimals": pa.array([Decimal("1.5")]),
    "bytes": pa.array([b"1"]),
    "times": pa.array([datetime.time(12)]),
    "lists": pa.array([[1]]),
    "structs": pa.array([{"a": 1}]),
    "nothing": pa.nulls(1),
}


@pytest.mark.parametrize("column", KINDS, ids=lambda column: column.describe())
def test_a_look_takes_types_as_a_release_does(column):
    for kind, array in ARRAYS.items():
        table = pa.table({"x": array, "y": [0.0]})
        assert outcome_of_check(table, column) == outcome_of_reading(table, column), kind


def test_all_faults_at_once_by_column_and_kind(tmp_path):
    rows = [
        "Age,income,region,smoker,admitted,hour,patient",
        '40,"1,5",north,ja,31.01.2020,3,1',
        "50,70 kg,north,nein,01.02.2020,x,",
        "60,<5,north,yes,02.02.2020,5,1",
        '70,"1,000,000",north,no,03.02.2020,,2',
    ]
    (tmp_path / "t.csv").write_text("\n".join(rows) + "\n")
    found = ps.check(tmp_path / "t.csv", SCHEMA)
    by_name = {one.name: one for one in found.columns}
    assert not by_name["age"].is_found
    assert by_name["income"].faults == {
        "numbers with marks between thousands": 1,
        "numbers with a decimal comma": 1,
        "limits such as < 5 in place of numbers": 1,
        "numbers with a unit or a remark": 1,
    }
    assert by_name["smoker"].n_wrong == 2
    assert by_name["admitted"].n_wrong == 4
    assert by_name["hour"].faults == {"text in place of numbers": 1}
    text = found.describe()
    assert "is it 'Age'?" in text
    assert "format='%d.%m.%Y' would read them" in text
    assert len(found.refusals) == 6  # a name, four columns, a row of nobody
    assert (found.n_rows, found.n_kept, found.n_records) == (4, 0, 0)


def test_a_file_that_breaks_off_is_counted_until_there(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "1,2\n" * 5 + "1,2,3\n")
    found = ps.check(path, ps.Box(0, 1, dim=2))
    assert "reading stopped" in found.refusals[0]
    both = ps.check([pd.DataFrame({"a": [1.0], "b": [1.0]}), path], ps.Box(0, 1, dim=2))
    assert both.n_rows == 1


# ---------------------------------------------------------------- other units


UNITS = [
    (ps.Number("height", 100, 220, unit="cm"), (67, 4), "inches instead of centimetres"),
    (ps.Number("height", 1.0, 2.2), (171, 9), "centimetres instead of metres"),
    (ps.Number("weight", 35, 130), (165, 30), "pounds instead of kilograms"),
    (ps.Number("weight", 35, 200), (75000, 9000), "grams instead of kilograms"),
    (ps.Number("temperature", 34, 42), (98.6, 1), "degrees Fahrenheit instead of degrees Celsius"),
    (ps.Number("fever", 34, 42), (310.2, 0.6), "kelvins instead of degrees Celsius"),
    (ps.Number("age", 18, 100), (55 * 12, 180), "months instead of years"),
    (ps.Number("age", 18, 100), (55 * 365, 4000), "days instead of years"),
    (ps.Number("age", 0, 110), (1970, 15), "years of birth instead of ages"),
    (ps.Number("glucose", 2, 25, unit="mmol/l"), (110, 25), "glucose in mg/dl instead of mmol/l"),
    (ps.Number("price", 0, 500), (12000, 4000), "cents instead of whole units"),
    (ps.Number("rate", 0, 1), (40, 15), "percent instead of shares"),
    (ps.Number("rate", 0, 100), (0.4, 0.15), "shares instead of percent"),
]


@pytest.mark.parametrize(("column", "law", "expected"), UNITS, ids=lambda value: str(value)[:30])
def test_another_unit_is_seen(column, law, expected):
    values = np.abs(np.random.default_rng(0).normal(*law, 2000))
    (one,) = ps.check(pd.DataFrame({column.name: values}), ps.Schema([column])).columns
    assert one.looks_like[0] == expected


@pytest.mark.parametrize(
    ("column", "law"),
    [
        (ps.Number("height", 100, 220), (171, 10)),
        (ps.Number("weight", 35, 200), (75, 15)),
        (ps.Number("age", 18, 100), (45, 20)),
        (ps.Number("income", 0, 500_000, scale="log"), (40_000, 15_000)),
        (ps.Number("glucose", 2, 25), (6, 1.5)),
        (ps.Number("rate", 0, 1), (0.2, 0.1)),
        (ps.Number("score", -10, 10), (3, 2)),
    ],
    ids=lambda value: str(value)[:24],
)
def test_the_right_unit_is_left_alone(column, law):
    values = np.random.default_rng(0).normal(*law, 2000)
    (one,) = ps.check(pd.DataFrame({column.name: values}), ps.Schema([column])).columns
    assert one.looks_like == ()


def test_conversions_come_in_pairs():
    values = np.array([1.0, 37.0, -5.0])
    for there, back in zip(CONVERSIONS[::2], CONVERSIONS[1::2], strict=True):
        assert (there.found, there.wanted) == (back.wanted, back.found)
        np.testing.assert_allclose(back(there(values)), values, atol=1e-9)


# ---------------------------------------------------------------- private, and small


def test_every_line_is_marked():
    found = ps.check(visits(), SCHEMA)
    lines = found.describe().splitlines()
    assert len(lines) > 10
    assert all(line.startswith("private: ") for line in lines)
    for shown in (repr(found), str(found), repr(found.columns[0])):
        assert "private" in shown
        assert not set("123456789") & set(shown.replace("6 columns", ""))


def test_nothing_is_spent(spent):
    ps.check(visits(), SCHEMA)
    assert spent == []


def test_memory_does_not_grow_with_the_table():
    def peak(n_blocks):
        rng = np.random.default_rng(0)
        blocks = (rng.normal(size=(5000, 4)) for _ in range(n_blocks))
        tracemalloc.start()
        ps.check(blocks, ps.Box(-1, 1, dim=4))
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    assert peak(40) < 1.5 * peak(10)


def test_quantiles_are_good_to_their_bits():
    values = np.random.default_rng(0).normal(size=10_001) * np.exp(np.arange(10_001) / 500)
    kept = ValueCounts()
    for part in np.array_split(values, 7):
        kept.add(part)
    expected = np.quantile(values, [0.25, 0.5, 0.75], method="inverted_cdf")
    np.testing.assert_allclose(kept.quartiles(), expected, rtol=2.0**-8)
    whole = ValueCounts()
    whole.add(np.array([0.0, -0.0, 100.0, 511.0, -3.0]))
    assert whole.sorted()[0].tolist() == [-3.0, 0.0, 0.0, 100.0, 511.0]


# ---------------------------------------------------------------- the worst at the end


@pytest.mark.parametrize("n_bad", [50, 51], ids=["half", "more"])
@pytest.mark.parametrize("what", ["outside", "unlisted", "missing", "unreadable", "left out"])
def test_more_than_half_is_an_alarm(what, n_bad):
    n_good = 100 - n_bad
    number = ps.Number("x", 0, 1, fill=0.5)
    column, bad, good = {
        "outside": (number, 2.0, 0.5),
        "unlisted": (ps.Category("x", ["a", "b"]), "c", "a"),
        "missing": (number, None, 0.5),
        "unreadable": (number, "?", 0.5),
        "left out": (ps.Number("x", 0, 1, missing="drop"), None, 0.5),
    }[what]
    table = pd.DataFrame({"x": pd.Series([bad] * n_bad + [good] * n_good, dtype=object)})
    found = ps.check(table, ps.Schema([column], unreadable="missing"))
    assert found.is_readable
    assert bool(found.alarms) == (n_bad > 50)
    last = found.describe().splitlines()[-1]
    assert ("alarm" in last) == (n_bad > 50)


def test_the_worst_alarm_is_the_last_one_and_a_refusal_is_worse():
    schema = ps.Schema([ps.Number("a", 0, 1), ps.Number("b", 0, 1), ps.Category("c", ["x"])])
    table = pd.DataFrame({"a": [5.0, 5.0, 5.0, 0.5], "b": [5.0] * 4, "c": ["x", "y", "y", "y"]})
    found = ps.check(table, schema)
    assert [text.split(":")[0] for text in found.alarms] == [f"column {n!r}" for n in "acb"]
    table.loc[0, "a"] = None
    assert "refused" in ps.check(table, schema).describe().splitlines()[-1]


def test_an_alarm_about_bounds_says_which_unit_the_values_look_like():
    table = pd.DataFrame({"weight": np.linspace(50e3, 120e3, 200)})
    found = ps.check(table, ps.Schema([ps.Number("weight", 30, 200, unit="kg")]))
    assert found.alarms[-1].endswith("it looks like grams instead of kilograms")


def test_a_table_of_which_nothing_counts_is_an_alarm():
    table = pd.DataFrame({"x": [None, None]}, dtype=float)
    found = ps.check(table, ps.Schema([ps.Number("x", 0, 1)], missing="drop"))
    assert found.alarms == ("no record would count",)
    assert ps.check(table[:0], ps.Schema([ps.Number("x", 0, 1)])).alarms == found.alarms


def test_unlisted_labels_are_the_same_from_every_reader(tmp_path):
    expected = {"west": 5, "abroad": 2, "moon": 1}
    texts = [label for label, count in expected.items() for _ in range(count)] + ["north"] * 20
    schema = ps.Schema([ps.Category("region", ["north"])])
    for name, data in forms(pd.DataFrame({"region": texts}), tmp_path).items():
        found = ps.check(data() if callable(data) else data, schema)
        assert found.columns[0].unlisted == expected, name


def test_listed_labels_that_differ_in_case_alone_are_told():
    """The schema is public, and so is this caution; it says what to do."""
    table = pd.DataFrame({"sex": ["F", "f", "M", "m"] * 5})
    found = ps.check(table, ps.Schema([ps.Category("sex", ["F", "M", "f", "m"])]))
    (remark,) = found.columns[0].remarks
    assert remark.startswith("labels that differ in upper and lower case alone: 'F', 'M', 'f', 'm'")
    assert "spell them alike in the table" in remark
    assert (
        ps.check(table, ps.Schema([ps.Category("sex", ["F", "M"])])).columns[0].remarks[-1]
        != remark
    )
