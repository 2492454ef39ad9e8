"""Every way in gives the records of an oracle that reads the same table cell by cell.

The oracle is Python on the cells as they were generated; it shares nothing with the readers but the
documented places of values. Blocks are small, so that their ends fall everywhere.
"""

import datetime as dt
import gzip
import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import privsketch as ps
from privsketch import RecordError
from privsketch.sketching import dask_parts
from privsketch.tables import read_blocks as part_blocks
from privsketch.tables import read_parts
from tests import seams
from tests.reading import read_blocks, selection_of

SOME = settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
REGIONS = ["north", "south", "NA"]  # a listed value is never missing
COLUMNS = [
    ps.Number("age", 0, 100),
    ps.Category("region", REGIONS),
    ps.Flag("smoker"),
    ps.Date("day", "2020-01-01", "2021-12-31"),
    ps.Cycle("hour", 24),
    ps.Category("code", [1, 2, 30]),
]
DROP = ps.Schema(COLUMNS, missing="drop")
FILLED = ps.Schema(
    [
        ps.Number("age", 0, 100, missing="center"),
        ps.Category("region", REGIONS, missing="category"),
        ps.Flag("smoker", fill=True),
        ps.Date("day", "2020-01-01", "2021-12-31", fill="2021-01-01"),
        ps.Cycle("hour", 24, fill=6),
        ps.Category("code", [1, 2, 30], fill=30),
    ]
)
ROWS = st.lists(
    st.tuples(
        st.one_of(st.none(), st.floats(-50, 150), st.sampled_from([math.inf, -0.0])),
        st.one_of(st.none(), st.sampled_from([*REGIONS, "North", "else", 'é,"\n', "null"])),
        st.one_of(st.none(), st.booleans()),
        st.one_of(st.none(), st.dates(dt.date(2019, 1, 1), dt.date(2023, 1, 1))),
        st.one_of(st.none(), st.floats(-30, 60)),
        st.one_of(st.none(), st.integers(0, 31)),
    ),
    max_size=20,
)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    seams.set(monkeypatch, "memory.BLOCK_VALUES", 40)
    seams.set(monkeypatch, "memory.WIDE_ROWS", 1)
    seams.set(monkeypatch, "files.FILE_VALUES", 40)
    seams.set(monkeypatch, "files.SENT_VALUES", 40)
    seams.set(monkeypatch, "text.BLOCK_BYTES", 2**10)


# ---------------------------------------------------------------- the oracle


def is_missing(cell, listed=()):
    if cell is None or (isinstance(cell, float) and not math.isfinite(cell)):
        return True
    spelled = ("", "na", "nan", "null", "none", "n/a")
    return isinstance(cell, str) and cell not in listed and cell.lower() in spelled


def corner(place, n_labels):
    return [math.sqrt(0.5) if other == place else 0.0 for other in range(n_labels)]


def one_record(row, filled):
    age, region, smoker, day, hour, code = row
    missing = [is_missing(cell, REGIONS) for cell in row]
    if any(missing) and not filled:
        return None
    found = [0.0 if missing[0] else (min(max(age, 0.0), 100.0) - 50) / 50]
    n_regions = 5 if filled else 4
    place = 4 if missing[1] else REGIONS.index(region) if region in REGIONS else 3
    found += corner(place, n_regions)
    found.append(0.5 if missing[2] or smoker else -0.5)
    when = dt.date(2021, 1, 1) if missing[3] else day
    first, last = dt.date(2020, 1, 1).toordinal(), dt.date(2021, 12, 31).toordinal()
    where = min(max(when.toordinal(), first), last)
    found.append((where - (first + last) / 2) / ((last - first) / 2))
    turn = 2 * math.pi * (6.0 if missing[4] else hour) / 24
    found += [math.cos(turn) / 2, math.sin(turn) / 2]
    number = 30 if missing[5] else code
    return found + corner([1, 2, 30].index(number) if number in (1, 2, 30) else 3, 4)


def by_hand(rows, filled):
    records = [one_record(row, filled) for row in rows]
    kept = [record for record in records if record is not None]
    return np.array(kept).reshape(-1, 14 if filled else 13)


# ---------------------------------------------------------------- ways in


NAMES = [column.name for column in COLUMNS]


def arrow(rows):
    columns = list(zip(*rows, strict=True)) or [[] for _ in NAMES]
    kinds = [pa.float64(), pa.string(), pa.bool_(), pa.date32(), pa.float64(), pa.int64()]
    arrays = [pa.array(list(cells), kind) for cells, kind in zip(columns, kinds, strict=True)]
    return pa.table(dict(zip(NAMES, arrays, strict=True)))


def csv_bytes(rows):
    def cell(value):
        if value is None:
            return ""
        if isinstance(value, bool):
            return {True: "yes", False: "No"}[value]
        if isinstance(value, float):
            return repr(value)
        written = str(value)
        return (
            '"' + written.replace('"', '""') + '"' if any(c in written for c in ',"\n') else written
        )

    lines = [",".join([*NAMES, "note"])]
    lines += [",".join([*map(cell, row), "x"]) for row in rows]
    return ("\n".join(lines) + "\n").encode()


def ways(rows, folder):
    table = arrow(rows)
    yield "arrow", table
    yield "arrow, other order", table.select(NAMES[::-1])
    yield "polars", pl.from_arrow(table)
    frame = table.to_pandas()
    yield "pandas", frame
    yield "pandas, own types", table.to_pandas(types_mapper=pd.ArrowDtype)
    yield (
        "pandas, objects",
        pd.DataFrame(
            {name: pd.Series(table.column(name).to_pylist(), dtype=object) for name in NAMES}
        ),
    )
    category = frame.assign(region=frame["region"].astype("category"))
    yield "pandas, categories", category
    pq.write_table(table, folder / "t.parquet", row_group_size=3)
    yield "parquet", folder / "t.parquet"
    pyarrow.feather.write_feather(table, folder / "t.feather")
    yield "feather", folder / "t.feather"
    (folder / "t.csv").write_bytes(csv_bytes(rows))
    yield "csv", folder / "t.csv"
    (folder / "t.csv.gz").write_bytes(gzip.compress(csv_bytes(rows)))
    yield "csv, compressed", folder / "t.csv.gz"
    if rows:
        yield "rows", [list(row) for row in rows]
        yield "objects", np.array(rows, dtype=object)


def joined(blocks, dim):
    return np.concatenate([np.empty((0, dim)), *(np.asarray(block) for block in blocks)])


@pytest.mark.slow
@given(ROWS, st.booleans())
@SOME
def test_all_readers_give_the_records_of_the_oracle(tmp_path, rows, filled):
    schema = FILLED if filled else DROP
    wanted = by_hand(rows, filled)
    chosen = selection_of(schema.dim, None, None, schema=schema)
    first = None
    for name, data in ways(rows, tmp_path):
        found = joined(read_blocks(data, schema.dim, schema=schema), schema.dim)
        assert found.shape == wanted.shape, name
        np.testing.assert_allclose(found, wanted, atol=1e-12, err_msg=name)
        first = found if first is None else first
        assert found.tobytes() == first.tobytes(), name  # and all of them the same bits
        parts = [part_blocks(part, chosen) for part in read_parts(ps.Table(data), chosen)]
        cut = joined([block for part in parts for block in part], schema.dim)
        assert cut.tobytes() == first.tobytes(), name


@pytest.mark.slow
def test_dask_gives_the_same_records(tmp_path):
    import dask.dataframe as dd

    rows = [
        (20.0, "north", True, dt.date(2020, 5, 1), 3.0, 2),
        (None, "x", False, None, 4.0, 1),
    ] * 9
    schema, frame = FILLED, arrow(rows).to_pandas(date_as_object=False)
    chosen = selection_of(schema.dim, None, None, schema=schema)
    parts = dask_parts(ps.Table(dd.from_pandas(frame, npartitions=3)), chosen)
    assert len(parts.keys) == 3
    design = ps.Design.plan(domain=schema, n_components=2, budget=ps.Budget(1, 1e-6))
    from tests.chance import exact_answers

    with exact_answers():
        here, there = (
            ps.sketch(data, design) for data in (frame, dd.from_pandas(frame, npartitions=3))
        )
    assert (here.sums == there.sums).all()


# ---------------------------------------------------------------- faults


SECRET = "Ludwig"
FAULTS = {
    "text for a number": ({"age": ["1", SECRET]}, "'age'.*number"),
    "no flag": ({"smoker": ["yes", SECRET]}, "'smoker' is a flag"),
    "no flag, a number": ({"smoker": [1, 7]}, "'smoker' is a flag"),
    "no date": ({"day": ["2020-01-01", SECRET]}, "'day': a cell is no date"),
    "a number for a date": ({"day": [1, 2]}, "'day' is int64"),
    "a date for a number": ({"age": pd.to_datetime(["2020-01-01"] * 2)}, "'age' is timestamp"),
    "missing": ({"hour": [1.0, None]}, "'hour': missing"),
    "infinite": ({"hour": [1.0, math.inf]}, "'hour': missing or infinite"),
    "a cell that is a list": ({"region": [["a"], "b"]}, "'region'"),
}


def good_frame():
    return pd.DataFrame(
        {
            "age": [20.0, 30.0],
            "region": ["north", "south"],
            "smoker": [True, False],
            "day": pd.to_datetime(["2020-05-01", "2021-05-01"]),
            "hour": [1.0, 2.0],
            "code": [1, 2],
        }
    )


@pytest.mark.parametrize("case", FAULTS)
@pytest.mark.parametrize("way", ["frame", "csv"])
def test_faults_name_the_column_and_no_value(tmp_path, spent, case, way):
    columns, words = FAULTS[case]
    frame = good_frame().assign(**{name: pd.Series(cells) for name, cells in columns.items()})
    data = frame
    if way == "csv":
        if case in ("a number for a date", "a date for a number", "a cell that is a list"):
            pytest.skip("text files have no types")
        frame.to_csv(tmp_path / "t.csv", index=False)
        data, words = tmp_path / "t.csv", words.replace(".*number", ".*not numeric")
    design = ps.Design.plan(domain=ps.Schema(COLUMNS), n_components=2, budget=ps.Budget(1.0, 1e-6))
    with pytest.raises(RecordError, match=words) as caught:
        ps.sketch(data, design)
    error = caught.value
    while error is not None:
        assert SECRET not in str(error)
        error = error.__cause__ or error.__context__
    assert not spent


def test_a_name_that_the_table_lacks(tmp_path, spent):
    design = ps.Design.plan(domain=ps.Schema(COLUMNS), n_components=2, budget=ps.Budget(1.0, 1e-6))
    for name in NAMES:
        with pytest.raises(RecordError, match=f"'{name}' is unknown"):
            ps.sketch(good_frame().drop(columns=name), design)
    with pytest.raises(RecordError, match="'patient' is unknown"):
        list(read_blocks(good_frame(), 13, schema=ps.Schema(COLUMNS, person="patient")))
    with pytest.raises(RecordError, match="the schema names 6 of them"):
        ps.sketch(good_frame(), design, columns=["age"])
    with pytest.raises(ps.PrivsketchError, match="the schema says it"):
        ps.sketch(ps.Table(good_frame(), missing="center"), design)
    assert not spent


@pytest.mark.parametrize(
    ("cells", "wanted"),
    [
        (["01.02.2020", "31.12.2021"], "%d.%m.%Y"),
        (["2020-02-01 00:00:00", "2021-12-31T00:00:00"], None),
        (["2020-02-01T01:00:00+01:00", "2021-12-31T00:00:00Z"], None),
    ],
)
def test_dates_as_people_write_them(tmp_path, cells, wanted):
    schema = ps.Schema([ps.Date("day", "2020-02-01", "2021-12-31", format=wanted)])
    frame = pd.DataFrame({"day": cells})
    frame.to_csv(tmp_path / "t.csv", index=False)
    for data in (frame, tmp_path / "t.csv", frame.astype(object)):
        np.testing.assert_array_equal(joined(read_blocks(data, 1, schema=schema), 1), [[-1], [1]])


def test_words_of_flags():
    schema = ps.Schema([ps.Flag("f", true="J", false="N"), ps.Flag("g")])
    frame = pd.DataFrame({"f": ["J", "n", "true"], "g": ["Y", "0", " FALSE "]})
    found = joined(read_blocks(frame, 2, schema=schema), 2)
    np.testing.assert_array_equal(found, [[0.5, 0.5], [-0.5, -0.5], [0.5, -0.5]])
