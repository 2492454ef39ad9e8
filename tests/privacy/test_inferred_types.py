"""What a library infers from all cells of a column must not change what a record says.

Pandas, polars and Arrow choose types by looking at everything: one record more, and whole numbers
become floats, numbers become text, microseconds nanoseconds, decimals get more digits. Each pair of
tables here differs in one record, or in one person, that does so; a run is recorded on the one and
replayed on the other, and nothing but that record may move.
"""

import datetime as dt
import io
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import privsketch as ps
from privsketch import RecordError
from privsketch.tables import persons
from privsketch.testing import replay
from tests import seams
from tests.reading import read_blocks

_FixedKey = persons.Key


@pytest.fixture(autouse=True)
def fixed_key(monkeypatch):
    seams.set(monkeypatch, "persons.Key", lambda: _FixedKey((3, 1, 4, 1)))
    seams.set(monkeypatch, "dask.Key", persons.Key)


def sketched(schema, **options):
    design = ps.Design.plan(
        domain=schema, budget=ps.Budget(2.0, 1e-6), n_components=2, n_records=50, random_state=3
    )
    return lambda table: ps.sketch(table, design, source="here", **options)


def require_one_record(schema, before, after, **options):
    found = replay(sketched(schema, **options), before, after)
    assert (found.first.sums == found.second.sums).all()
    assert 0 < found.largest_move <= 1


def as_read(*lines):
    return pd.read_csv(io.StringIO("\n".join(lines)))


LABELS = ps.Schema(
    [
        ps.Category("ward", [1, 2, "x"]),
        ps.Category("ok", ["true", "false"]),
        ps.Flag("flag"),
        ps.Category("code", ["01", "02", "1e5"]),
    ]
)
WHO = {"person": "who"}


@pytest.mark.parametrize("new", ["ER,maybe,no,else", "7,True,1.0,9", ",,,"])
@pytest.mark.parametrize("cells", ["1,True,1,01", "1.0,False,0,100000"])
def test_labels_of_a_csv_that_pandas_has_read(cells, new):
    lines = ["ward,ok,flag,code", *[cells] * 20, *["2,False,0,02"] * 20]
    schema = LABELS if new != ",,," else ps.Schema(LABELS.columns, missing="drop")
    before, after = as_read(*lines), as_read(*lines, new)
    if new == ",,,":  # which adds nothing, whatever its gaps do to the types of others
        found = replay(sketched(schema), before, after)
        assert found.largest_move == 0
    else:
        require_one_record(schema, before, after)


def test_labels_are_the_same_in_all_ways_in(tmp_path):
    lines = ["ward,ok,flag,code", "1.0,TRUE,1.0,01", "2,false,No,2.0", "x,True,0,1e5"]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    frame = as_read(*lines)
    ways = [tmp_path / "t.csv", frame, frame.astype(object), pa.Table.from_pandas(frame)]
    found = [np.concatenate(list(read_blocks(way, LABELS.dim, schema=LABELS))) for way in ways]
    for one in found[1:]:
        assert one.tobytes() == found[0].tobytes()
    shares = [column.shares(found[0][:, place]).argmax(axis=1) for column, place in LABELS.places()]
    assert [place.tolist() for place in shares] == [[0, 1, 2], [0, 1, 0], [1, 0, 0], [0, 1, 2]]


def test_large_labels_and_a_gap():
    schema = ps.Schema([ps.Category("c", [10**17, 2 * 10**17])], missing="drop")
    before = pd.DataFrame({"c": [10**17, 2 * 10**17] * 20})
    after = pd.DataFrame({"c": [*before["c"], None]})
    assert before["c"].dtype != after["c"].dtype
    assert replay(sketched(schema), before, after).largest_move == 0


def test_dates_of_which_one_has_nanoseconds():
    schema = ps.Schema([ps.Date("day", "2020-01-01", "2021-01-01")], **WHO)
    rng = np.random.default_rng(0)
    times = pd.to_datetime("2020-01-01") + pd.to_timedelta(rng.integers(0, 10**13, 400), unit="us")
    before = pd.DataFrame({"who": np.arange(400) % 100, "day": times.astype("datetime64[us]")})
    fine = pd.Timestamp("2020-05-01 00:00:00.000000001")
    after = pd.concat([before, pd.DataFrame({"who": [1000], "day": [fine]})], ignore_index=True)
    assert before["day"].dtype != after["day"].dtype
    require_one_record(schema, before, after)
    require_one_record(schema, before, after.astype({"day": object}))


@pytest.mark.parametrize("library", ["arrow", "polars", "pandas categories"])
def test_decimals_of_which_one_has_many_digits(library):
    schema = ps.Schema([ps.Number("dose", 0, 10)], **WHO)
    rng = np.random.default_rng(0)
    doses = [Decimal(int(n)) / 1000 for n in rng.integers(0, 10_000, 400)]
    who = [n % 100 for n in range(400)]

    def table(who, doses):
        if library == "arrow":
            return pa.table({"who": who, "dose": doses})
        if library == "polars":
            return pl.DataFrame({"who": who, "dose": doses})
        cells = pd.Series(doses, dtype=object).astype("category")
        return pd.DataFrame({"who": who, "dose": cells})

    more = Decimal("1.2345678901234567891")
    require_one_record(schema, table(who, doses), table([*who, 1000], [*doses, more]))


def test_plain_decimals_have_no_schema_and_the_same_fault():
    rng = np.random.default_rng(0)
    doses = [Decimal(int(n)) / 1000 for n in rng.integers(0, 10_000, 400)]
    found = [
        np.concatenate(list(read_blocks(pa.table({"x": cells}), 1)))[:400]
        for cells in (doses, [*doses, Decimal("1.2345678901234567891")])
    ]
    assert found[0].tobytes() == found[1].tobytes()


def test_categories_of_dates_and_moments():
    schema = ps.Schema([ps.Date("day", "2020-01-01", "2021-01-01")])
    moments = [dt.datetime(2020, 6, 1, 18), dt.datetime(2020, 7, 1, 6)] * 10
    tables = [
        pd.DataFrame({"day": pd.Series(cells, dtype=object).astype("category")})
        for cells in (moments, [*moments, dt.date(2020, 3, 1)])
    ]
    require_one_record(schema, *tables)


@pytest.mark.parametrize("cells", [[1e17, 1.5], [3.0, 4.0]])
def test_a_cell_under_a_mask(cells):
    schema = ps.Schema([ps.Category("c", ["100000000000000000", "1.5", 3])], missing="drop")
    values = np.array(cells * 10)[:, np.newaxis]
    before = np.ma.array(values, mask=False)
    after = np.ma.array([*values, [7.0]], mask=[*[[False]] * 20, [True]])
    assert replay(sketched(schema), before, after).largest_move == 0


def test_numbers_of_persons_with_and_without_a_point(tmp_path):
    """Pandas writes 7.0 where another person's number is missing."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"who": [7, 8, 9, 10] * 5, "x": rng.random(20)})
    frame[:10].to_csv(tmp_path / "a.csv", index=False)
    frame[10:].astype({"who": float}).to_csv(tmp_path / "b.csv", index=False)
    schema = ps.Schema([ps.Number("x", 0, 1)], **WHO)
    files = [tmp_path / "a.csv", tmp_path / "b.csv"]
    assert sum(len(block) for block in read_blocks(files, 1, schema=schema)) == 4


@pytest.mark.parametrize(
    ("one", "other"),
    [("7", "7.0"), ("7", "007"), (" 7", "7"), ("+7", "7"), ("é", "e\u0301"), ("-7", "-07.")],
)
def test_spellings_of_one_person(one, other):
    frame = pd.DataFrame({"who": [one, other, "x"], "x": [0.1, 0.2, 0.3]})
    schema = ps.Schema([ps.Number("x", 0, 1)], **WHO)
    assert sum(len(block) for block in read_blocks(frame, 1, schema=schema)) == 2


@pytest.mark.parametrize(("one", "other"), [("P1", "p1"), ("7", "7.5"), ("-7", "7"), ("7", "70")])
def test_spellings_of_two_persons(one, other):
    frame = pd.DataFrame({"who": [one, other], "x": [0.1, 0.2]})
    schema = ps.Schema([ps.Number("x", 0, 1)], **WHO)
    assert sum(len(block) for block in read_blocks(frame, 1, schema=schema)) == 2


@pytest.mark.parametrize("kind", ["float32", "float16"])
def test_numbers_that_stand_for_several_persons_are_refused(kind):
    largest = {"float32": 2**24, "float16": 2**11}[kind]
    frame = pd.DataFrame({"who": np.array([1, largest], dtype=kind), "x": [0.1, 0.2]})
    with pytest.raises(RecordError, match="neither a whole number"):
        list(read_blocks(frame, 1, schema=ps.Schema([ps.Number("x", 0, 1)], **WHO)))


def test_large_numbers_with_and_without_a_sign_do_not_meet():
    tables = [
        pa.table({"who": pa.array([number], kind), "x": [0.5]})
        for number, kind in ((2**64 - 1, pa.uint64()), (-1, pa.int64()))
    ]
    schema = ps.Schema([ps.Number("x", 0, 1)], **WHO)
    with pytest.raises(RecordError, match="one type"):
        list(read_blocks(tables, 1, schema=schema))
    alone = pa.table({"who": pa.array([2**64 - 1, 2**63, 5], pa.uint64()), "x": [0.1, 0.2, 0.3]})
    assert sum(len(block) for block in read_blocks(alone, 1, schema=schema)) == 3


def test_dask_refuses_persons_of_two_kinds_wherever_they_meet(tmp_path):
    schema = ps.Schema([ps.Number("x", 0, 1)], **WHO)
    rng = np.random.default_rng(0)
    run = sketched(schema, engine="dask")
    for number in range(8):
        for name, who in (("a", [number]), ("b", [str(number)])):
            frame = pd.DataFrame({"who": who, "x": rng.random(1)})
            frame.to_parquet(tmp_path / f"{name}.parquet")
        with pytest.raises(RecordError, match="one type"):
            run([tmp_path / "a.parquet", tmp_path / "b.parquet"])


@pytest.mark.parametrize("schema_person", ["who", None])
def test_a_frame_that_is_filled_again(schema_person):
    """Frames of a generator are encoded before the next one is made of the same memory."""
    schema = ps.Schema([ps.Number("x", 0, 1)], person=schema_person)
    room = np.zeros(3)

    def frames():
        for number in range(5):
            room[:] = number / 10
            yield pd.DataFrame({"who": np.arange(3) + 3 * number, "x": room}, copy=False)

    found = np.sort(np.concatenate(list(read_blocks(frames(), 1, schema=schema)))[:, 0])
    np.testing.assert_allclose(found, np.repeat(np.arange(5) / 5 - 1, 3))


def test_dates_with_and_without_a_zone_in_one_column(tmp_path):
    schema = ps.Schema([ps.Date("day", "2020-01-01", "2020-01-03")])
    cells = ["2020-01-01", "2020-01-02T01:00:00+01:00", "2020-01-03T00:00:00Z", "2020-01-02 12:00"]
    found = []
    for block in (cells, cells[:1], cells[1:]):
        pd.DataFrame({"day": block}).to_csv(tmp_path / "t.csv", index=False)
        found.append(np.concatenate(list(read_blocks(tmp_path / "t.csv", 1, schema=schema)))[:, 0])
    assert found[0].tolist() == [-1.0, 0.0, 1.0, 0.5]
    assert np.concatenate(found[1:]).tolist() == found[0].tolist()


def test_a_tie_of_hashes_is_settled_by_values(monkeypatch):
    """Whatever the order of rows and of persons."""
    seams.set(
        monkeypatch,
        "persons.row_hashes",
        lambda values, key: np.zeros(len(values), dtype=np.uint64),
    )
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"who": np.arange(60) % 20, "x": rng.random(60)})
    for most in (1, 2):
        schema = ps.Schema([ps.Number("x", 0, 1)], max_records=most, **WHO)
        found = set()
        for seed in range(5):
            rows = frame.sample(frac=1, random_state=seed)
            blocks = np.concatenate(list(read_blocks(rows, 1, schema=schema)))
            found.add(np.sort(blocks[:, 0]).tobytes())
        assert len(found) == 1


@pytest.mark.parametrize("first", [2**53, 2**60, 2**64])
@pytest.mark.parametrize("new", ["walk-in", None])
def test_long_numbers_of_persons_keep_all_their_digits(first, new):
    """One id that is a word makes objects of all others."""
    numbers = [first + step for step in range(40)]
    before = pd.DataFrame({"who": numbers, "x": np.linspace(0, 1, 40)})
    who = pd.Series([*numbers, new], dtype=object)
    after = pd.DataFrame({"who": who, "x": [*before["x"], 0.5]})
    schema = ps.Schema([ps.Number("x", 0, 1)], missing_person="drop", **WHO)
    found = [len(np.concatenate(list(read_blocks(t, 1, schema=schema)))) for t in (before, after)]
    assert found == [40, 40 + (new is not None)]


def test_a_file_whose_chunks_pandas_reads_as_numbers_and_as_text():
    who = pd.Series([*[5, 6, 7] * 3, *["5", "6", "7", "unknown"]], dtype=object)
    frame = pd.DataFrame({"who": who, "x": np.linspace(0, 1, len(who))})
    schema = ps.Schema([ps.Number("x", 0, 1)], **WHO)
    assert len(np.concatenate(list(read_blocks(frame, 1, schema=schema)))) == 4


@pytest.mark.parametrize(
    ("one", "other"), [("1e3", "1000"), ("1E5", "100000"), ("-0", "0"), (".0", "0"), ("1e0", "1")]
)
def test_numbers_in_other_spellings_are_one_person(one, other):
    test_spellings_of_one_person(one, other)


@pytest.mark.parametrize(
    ("one", "other"), [("\u0661", "1"), ("1e20", "100000000000000000000"), ("1.5e0", "1")]
)
def test_what_only_looks_like_a_number_is_none(one, other):
    test_spellings_of_two_persons(one, other)


def test_bytes_name_the_same_persons_as_text():
    names = ["007", "0042", "é", " 7", "NA"]
    kinds = [pa.string(), pa.binary(), pa.large_binary()]
    schema = ps.Schema([ps.Number("x", 0, 1)], missing_person="drop", **WHO)
    tables = [
        pa.table(
            {
                "who": pa.array([n if kind == pa.string() else n.encode() for n in names], kind),
                "x": [0.1] * 5,
            }
        )
        for kind in kinds
    ]
    assert len(np.concatenate(list(read_blocks(tables, 1, schema=schema)))) == 3
    fixed = pa.table({"who": pa.array([b"ab"], pa.binary(2)), "x": [0.1]})
    with pytest.raises(RecordError, match="not numbers or text"):
        list(read_blocks(fixed, 1, schema=schema))
    damaged = pa.table({"who": pa.array([b"\xff\xfe"], pa.binary()), "x": [0.1]})
    with pytest.raises(RecordError, match="cannot be read"):
        list(read_blocks(damaged, 1, schema=schema))


def test_a_decimal_comma_in_labels_and_persons(tmp_path):

    schema = ps.Schema([ps.Category("ward", [1, 2]), ps.Flag("ok"), ps.Number("x", 0, 9)], **WHO)
    lines = ["who;ward;ok;x", "1;1;1;0,5", "2;2;0;1,5", "3;1;1;2"]
    gaps = ["who;ward;ok;x", "1,0;1,0;1,0;0,5", "2,0;2,0;0,0;1,5"]
    for name, content in (("a", lines), ("b", gaps)):
        (tmp_path / f"{name}.csv").write_text("\n".join(content) + "\n")
    written = {"delimiter": ";", "decimal": ","}
    files = [tmp_path / "a.csv", tmp_path / "b.csv"]
    found = np.concatenate(list(read_blocks(files, schema.dim, schema=schema, **written)))
    assert len(found) == 3
    assert (found[:, 2] == 0).all()  # nothing is "other"


@pytest.mark.parametrize(
    ("format", "cells"),
    [
        ("%G-W%V-%u", ["2020-W10-3", "2020-W11-1"]),
        ("%d.%m.%Y", ["01.02.2020", "31.12.2020"]),
        ("%d.%m.%Y %H:%M:%S.%f", ["01.02.2020 10:00:00.25", "02.02.2020 00:00:00.5"]),
    ],
)
def test_dates_have_one_reading_in_text_and_in_objects(tmp_path, format, cells):
    schema = ps.Schema([ps.Date("day", "2020-01-01", "2021-01-01", format=format)])
    text = pd.DataFrame({"day": cells})
    text.to_csv(tmp_path / "t.csv", index=False)
    objects = pd.DataFrame({"day": pd.Series([*cells, dt.date(2020, 5, 5)], dtype=object)})
    found = [
        np.concatenate(list(read_blocks(data, 1, schema=schema)))[:2]
        for data in (text, tmp_path / "t.csv", objects)
    ]
    assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()
    assert (np.abs(found[0]) < 1).all()


@pytest.mark.parametrize("zone", ["", "Z", "+01:00"])
@pytest.mark.parametrize("digits", ["", ".1", ".123456", ".1234567", ".123456789", ".999999999"])
def test_digits_below_a_microsecond_are_cut_in_every_way_in(tmp_path, digits, zone):
    """A moment of 1969 too: cut, not rounded towards 1970."""
    schema = ps.Schema([ps.Date("day", "1960-01-01", "2021-01-01")])
    cells = [
        f"2020-01-31 12:00:00{digits}{zone}",
        f"1969-12-31T23:59:59{digits}{zone}",
        "2020-01-01",
    ]
    moments = pd.Series(pd.to_datetime(cells, utc=True, format="ISO8601"))
    plain = moments.dt.tz_localize(None)
    text = pd.DataFrame({"day": cells})
    text.to_csv(tmp_path / "t.csv", index=False)
    pd.DataFrame({"day": plain}).to_csv(tmp_path / "p.csv", index=False)
    ways = [
        *(text, text.astype(object), pa.Table.from_pandas(text), pl.DataFrame({"day": cells})),
        *(tmp_path / "t.csv", tmp_path / "p.csv", pd.DataFrame({"day": moments})),
        *(pd.DataFrame({"day": plain}), pd.DataFrame({"day": plain.astype(object)})),
        pa.table({"day": pa.array(plain.to_numpy("datetime64[ns]"))}),
    ]
    found = [np.concatenate(list(read_blocks(way, 1, schema=schema))) for way in ways]
    for one in found[1:]:
        assert one.tobytes() == found[0].tobytes()


def test_a_date_has_no_more_than_nine_digits():
    schema = ps.Schema([ps.Date("day", "1960-01-01", "2021-01-01")])
    for cell in ("2020-01-31 12:00:00.1234567891", "2020-01-31 12:00:00.1234567x"):
        with pytest.raises(RecordError, match="no date"):
            list(read_blocks(pd.DataFrame({"day": [cell]}), 1, schema=schema))


@pytest.mark.parametrize("cell", ["31.02.2020", "1.2.20", "29.02.2021"])
@pytest.mark.parametrize("kind", ["text", "objects"])
def test_dates_that_are_none_are_refused(cell, kind):
    schema = ps.Schema([ps.Date("day", "2020-01-01", "2021-01-01", format="%d.%m.%Y")])
    frame = pd.DataFrame({"day": pd.Series([cell], dtype=object if kind == "objects" else "str")})
    with pytest.raises(RecordError, match="no date"):
        list(read_blocks(frame, 1, schema=schema))


def test_rows_that_are_mappings_have_no_order():
    schema = ps.Schema([ps.Category("c", ["a"])])
    for rows in ([{"c": "a"}], [{"a"}]):
        with pytest.raises(RecordError, match="no order"):
            ps.encode(rows, schema)


# ---------------------------------------------------------------- doors beside the schema


def test_a_unit_without_its_schema_is_refused():
    from privsketch.clustering import clustered
    from privsketch.clustering.baselines.lloyd import cluster
    from privsketch.facts import Unit

    budget = ps.Budget(1.0, 1e-6, unit=Unit("who"))
    box = ps.Box(0, 1, dim=2)
    with pytest.raises(ps.PrivsketchError, match="only a schema"):
        ps.Design.plan(domain=box, budget=budget, n_components=2)
    with pytest.raises(ps.PrivsketchError, match="only a schema"):
        clustered(cluster, np.zeros((5, 2)), 2, domain=box, budget=budget)
    content = ps.Design.plan(domain=box, budget=ps.Budget(1.0, 1e-6), n_components=2).to_json()
    for unit in ({"person": "who", "max_records": 1}, {"person": 3, "max_records": 1}):
        content["budget"]["unit"] = unit
        with pytest.raises(ps.PrivsketchError):
            ps.Design.from_json(content)


@pytest.mark.parametrize("value", [0, -1, 0.001, 1.5, True, "3"])
def test_a_unit_is_a_whole_number_of_records(value):
    from privsketch.facts import Unit

    with pytest.raises(ps.PrivsketchError):
        Unit(None, value)


@pytest.mark.parametrize("noise", ["laplace", "cube", "laplace-joint"])
def test_pure_rounds_refuse_several_records_of_a_replacement(noise, spent):
    from privsketch.clustering import clustered
    from privsketch.clustering.baselines.lloyd import cluster
    from privsketch.facts import Unit

    budget = ps.Budget(1.0, 0.0, "replace", unit=Unit(None, 3))
    with pytest.raises(ps.PrivsketchError, match="max_records=3"):
        clustered(
            cluster, np.zeros((5, 2)), 2, domain=ps.Box(0, 1, dim=2), budget=budget, noise=noise
        )
    assert not spent


def test_a_bound_of_the_table_is_none_of_encoded_records():
    schema = ps.Schema([ps.Number("x", 0, 1e-3)])
    with pytest.raises(ps.PrivsketchError, match="no distance there"):
        ps.Projection.draw(schema, 1, epsilon=1.0, delta=1e-6, bound=5e-4)
