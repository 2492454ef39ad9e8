"""A schema proposed from records: kinds, round bounds and labels, each of them a marked guess."""

import datetime
import json
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privsketch as ps
from privsketch.facts import guesses_in, without_guesses
from privsketch.tables import MIN_LABEL, proposed, round_bounds
from tests.visits import SCHEMA, visits
from tests.workbooks import write_workbook

N = 400


def propose(path, neighbours="add-remove"):
    return proposed(path, neighbours, progress=lambda n: None)


def columns_of(found):
    """Kinds and fields of the proposed columns, by name."""
    others = ("name", "note", "guessed")
    return {
        column["name"]: {field: value for field, value in column.items() if field not in others}
        for column in found.schema["columns"]
    }


def mixed(n=N, seed=0):
    rng = np.random.default_rng(seed)
    days = np.datetime64("2021-02-03") + rng.integers(0, 800, n).astype("m8[D]")
    return pd.DataFrame(
        {
            "row": np.arange(n),
            "patient_id": rng.integers(0, n // 3, n),
            "visit_id": rng.permutation(10 * n)[:n],
            "age": rng.normal(50, 10, n).round(1),
            "income": rng.lognormal(10, 2, n).round(2),
            "children": rng.poisson(1.2, n),
            "sex": rng.choice(["f", "m"], n),
            "code": rng.choice([1, 2], n),
            "smoker": rng.choice(["ja", "Nein"], n),
            "alive": rng.choice(["yes", "no"], n),
            "ill": rng.integers(0, 2, n),
            "hour": rng.integers(0, 24, n),
            "day": days.astype(str),
            "born": [f"{d.day:02d}.{d.month:02d}.{d.year - 50}" for d in pd.to_datetime(days)],
            "note": [f"text {i}" for i in range(n)],
            "same": "x",
            "empty": None,
        }
    )


EXPECTED = {
    "income": {"kind": "number", "low": 0, "scale": "log"},
    "children": {"kind": "number", "low": 0},
    "sex": {"kind": "category", "values": ["f", "m"]},
    "code": {"kind": "category", "values": ["1", "2"]},
    "smoker": {"kind": "flag", "true": "ja", "false": "nein"},
    "alive": {"kind": "flag"},
    "ill": {"kind": "flag"},
    "hour": {"kind": "cycle", "period": 24, "start": 0},
    "day": {"kind": "date", "first": "2021-01-01", "last": "2024-01-01"},
    "born": {"kind": "date", "first": "1971-01-01", "last": "1974-01-01", "format": "%d.%m.%Y"},
}


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet", "xlsx"])
def test_what_a_person_would_write(folder, suffix):
    table, path = mixed(), folder / f"t.{suffix}"
    data = path
    if suffix == "csv":
        table.to_csv(path, index=False)
    elif suffix == "tsv":
        table.to_csv(path, index=False, sep="\t")
        data = ps.Table(path, quotes=True)
    elif suffix == "xlsx":
        pytest.importorskip("python_calamine")
        cells = table.astype(object).where(table.notna(), "").to_numpy().tolist()
        write_workbook(path, {"a": [list(table), *cells]})
    else:
        table.to_parquet(path)
    found = propose(data)
    columns = columns_of(found)
    assert found.schema["person"] == "patient_id"
    assert found.left_out.keys() == {"row", "visit_id", "note", "same", "empty"}
    assert columns["age"]["low"] <= 25
    assert columns["age"]["high"] >= 75
    for name, facts in EXPECTED.items():
        assert facts.items() <= columns[name].items(), name
    # Of each it reads nearly all cells, and moves nearly none.
    schema = ps.Schema.from_json(without_guesses(found.schema))
    look = ps.check(data, schema)
    assert look.is_readable
    assert look.alarms == ()
    for one in look.columns:
        outside = one.n_below + one.n_above if one.kind != "cycle" else 0
        assert outside + one.n_other + one.n_wrong + one.n_missing <= 0.02 * N, one.name


def test_every_value_from_the_records_is_marked(folder):
    """What two tables of the same names and types propose differs in marked fields alone."""
    unmarked = []
    for seed in (0, 1):
        table = mixed(seed=seed)
        table["age"] += 100 * seed
        table["sex"] = table["sex"].replace({"m": "w"} if seed else {})
        table.to_csv(folder / "t.csv", index=False)
        schema = propose(folder / "t.csv").schema
        for facts in (schema, *schema["columns"]):
            for field in facts.pop("guessed"):
                facts.pop(field)
            facts.pop("note")  # of the kind, which is marked
        unmarked.append(json.dumps(schema))
    assert unmarked[0] == unmarked[1]
    with pytest.raises(ps.ParameterError, match="guess"):
        ps.Schema.from_json(propose(folder / "t.csv").schema)


def test_a_label_of_few_rows_is_not_proposed(folder):
    texts = ["common"] * 50 + ["usual"] * MIN_LABEL + ["Gaucher"] * (MIN_LABEL - 1)
    pd.DataFrame({"disease": texts}).to_csv(folder / "t.csv", index=False)
    found = propose(folder / "t.csv")
    assert columns_of(found)["disease"]["values"] == ["common", "usual"]
    assert "Gaucher" not in json.dumps(found.schema)


@pytest.mark.parametrize("name", ["pat_no", "patnr", "PatNo", "pid", "case_nr", "patient_id"])
def test_names_of_persons_are_known(folder, name):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({name: [f"P{i}" for i in rng.integers(200, size=500)], "age": 50.5})
    table["age"] += rng.normal(size=500)
    table.to_csv(folder / "t.csv", index=False)
    assert propose(folder / "t.csv").schema["person"] == name


def test_a_column_that_may_name_persons_is_doubted(folder):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"who": [f"w{i}" for i in rng.integers(200, size=500)]})
    table["age"] = 50 + rng.normal(size=500)
    table["note"] = [f"text {i}" for i in range(500)]  # one each: names nobody
    table.to_csv(folder / "t.csv", index=False)
    found = propose(folder / "t.csv")
    assert found.schema["person"] is None
    assert found.doubts.keys() == {"who"}
    assert '"person"' in found.doubts["who"]


def test_a_code_of_few_rows_is_no_label(folder):
    for rare, kind in ((MIN_LABEL, "category"), (MIN_LABEL - 1, "number")):
        pd.DataFrame({"code": [5] * 99 + [37] * rare}).to_csv(folder / "t.csv", index=False)
        assert columns_of(propose(folder / "t.csv"))["code"]["kind"] == kind


def test_labels_that_differ_in_case_are_told(folder):
    pd.DataFrame({"sex": ["m", "M", "f"] * 20}).to_csv(folder / "t.csv", index=False)
    assert "'M', 'm'" in propose(folder / "t.csv").doubts["sex"]


def test_a_draft_of_a_look_is_total_under_either_relation(folder):
    mixed().to_csv(folder / "t.csv", index=False)
    for neighbours in ("add-remove", "replace"):
        found = propose(folder / "t.csv", neighbours)
        schema = ps.Schema.from_json(without_guesses(found.schema))
        assert schema.is_total
        schema.charged(ps.Budget(1.0, 1e-6, neighbours))


def test_real_visits_are_proposed_nearly_as_people_wrote_them(folder):
    visits(600).to_csv(folder / "t.csv", index=False)
    found = propose(folder / "t.csv")
    columns = columns_of(found)
    assert list(columns) == list(SCHEMA.names)
    assert [facts["kind"] for facts in columns.values()] == [one.KIND for one in SCHEMA.columns]
    assert found.schema["person"] == SCHEMA.person
    assert guesses_in(found.schema).keys() == {None, *SCHEMA.names}


def test_a_table_without_names_or_rows(folder):
    np.save(folder / "t.npy", np.random.default_rng(0).uniform(-3, 3, (200, 2)))
    assert [one["low"] for one in columns_of(propose(folder / "t.npy")).values()] == [-3, -3]
    (folder / "t.csv").write_text("a,b\n")
    assert propose(folder / "t.csv").schema["columns"] == []
    (folder / "one.csv").write_text("a,b\n5,x\n")
    assert propose(folder / "one.csv").schema["columns"] == []
    (folder / "far.csv").write_text("a,b\n-1e308,1e-300\n1e308,2e-300\n")
    assert propose(folder / "far.csv").left_out.keys() == {"a", "b"}  # too large, too near


def test_more_rows_than_are_kept(folder, monkeypatch):
    from tests import seams

    seams.set(monkeypatch, "propose.MAX_ROWS", 64)
    mixed(1000).to_csv(folder / "t.csv", index=False)
    columns = columns_of(propose(folder / "t.csv"))
    assert columns["sex"] == {"kind": "category", "values": ["f", "m"]}
    assert columns["day"]["first"] == "2021-01-01"  # rows from all of the table


# ---------------------------------------------------------------- round bounds


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.linspace(18, 97, 500), (0, 100, "linear")),
        (np.linspace(91, 187, 500), (90, 190, "linear")),
        (np.linspace(-4.2, 3.1, 500), (-5, 4, "linear")),
        (np.linspace(2019, 2023, 5), (2019, 2023, "linear")),
        (np.append(np.linspace(18, 97, 500), 9999), (0, 100, "linear")),  # a wrong digit
        (np.append(np.linspace(18, 97, 500), -999), (0, 100, "linear")),
        (np.repeat([0.0, 1.0, 2.0], 50), (0, 2, "linear")),
        (np.full(5, 7.0), (7, 8, "linear")),
        (np.zeros(5), (0, 1, "linear")),
        (np.full(5, -0.25), (-0.25, -0.2, "linear")),
        (np.geomspace(10, 400_000, 500), (0, 500_000, "log")),
    ],
    ids=str,
)
def test_bounds_are_round_and_beyond_nearly_all(values, expected):
    low, high, scale = round_bounds(values)
    assert (low, high) == pytest.approx(expected[:2])
    assert scale == expected[2]
    assert ((values < low) | (values > high)).mean() <= 0.01
    assert low < high


def test_no_type_of_a_column_stops_a_look(folder):
    """What has no kind in a schema is left out, whatever the column is called."""
    n = 60
    moments = [datetime.datetime(2020, 1, 1) + datetime.timedelta(days=i) for i in range(n)]
    arrays = {
        "patient_bytes_id": pa.array([b"x%d" % i for i in range(n)]),
        "lists": pa.array([[1, 2]] * n),
        "structs": pa.array([{"a": 1}] * n),
        "spans": pa.array([datetime.timedelta(seconds=i) for i in range(n)]),
        "times": pa.array([datetime.time(1, i % 60) for i in range(n)]),
        "nothing": pa.nulls(n),
        "decimals": pa.array([Decimal(i) / 7 for i in range(n)]),
        "large": pa.array([2**64 - 1 - 3 ** (i % 30) for i in range(n)], pa.uint64()),
        "codes": pa.array(["a", "b", "c"] * 20).dictionary_encode(),
        "zoned": pa.array(moments, pa.timestamp("us", "Europe/Paris")),
        "moments": pa.array(moments),
        "flags": pa.array([True, False] * 30),
    }
    pq.write_table(pa.table(arrays), folder / "t.parquet")
    found = propose(folder / "t.parquet")
    kinds = {name: facts["kind"] for name, facts in columns_of(found).items()}
    assert kinds == {
        "decimals": "number", "large": "number", "codes": "category", "zoned": "date",
        "moments": "date", "flags": "flag",
    }  # fmt: skip
    ps.Schema.from_json(without_guesses(found.schema))


def test_a_doubt_about_spellings_says_what_to_do(folder):
    pd.DataFrame({"sex": ["F", "f", "M", "m"] * 20}).to_csv(folder / "t.csv", index=False)
    doubt = propose(folder / "t.csv").doubts["sex"]
    assert "'F', 'M', 'f', 'm'" in doubt
    assert "spell them alike in the table" in doubt
