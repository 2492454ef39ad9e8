"""The beginning of a schema: names and types, and no record."""

import datetime
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privsketch as ps
from privsketch.tables import drafted, misfits, names_a_person, open_places
from tests.commands import DATA, INTEGRITY, contents, refused, run, succeeded

SECRET = "4711"


@pytest.fixture
def table():
    return pa.table(
        {
            "patient_id": [4711, 4711],
            "age": [4711.0, 4711.0],
            "region": ["4711", "4711"],
            "kind": pa.array(["4711", "4711"]).dictionary_encode(),
            "smoker": [True, False],
            "admitted": [datetime.date(1999, 1, 1)] * 2,
            "moment": pa.array([datetime.datetime(1999, 1, 1)] * 2),
            "photo": [b"4711", b"4711"],
        }
    )


@pytest.fixture
def parquet(table, folder):
    pq.write_table(table, folder / "data.parquet")  # whose statistics have the values, too
    return folder / "data.parquet"


KINDS = ["number", "number", "category", "category", "flag", "date", "date", None]


def test_types_of_a_file_give_kinds_and_no_value(parquet, monkeypatch):
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", None)
    draft = drafted(parquet)
    assert [column["kind"] for column in draft["columns"]] == KINDS
    assert SECRET not in json.dumps(draft)
    assert "1999" not in json.dumps(draft)
    by_name = {column["name"]: column for column in draft["columns"]}
    assert by_name["age"]["low"] is by_name["age"]["high"] is None
    assert by_name["region"]["values"] is None
    assert by_name["admitted"]["first"] is None
    assert all(column["note"] for column in draft["columns"])
    assert "person" in by_name["patient_id"]["note"]
    assert "person" not in by_name["age"]["note"]


def test_of_text_files_names_alone(folder):
    (folder / "data.csv").write_text("patient_id,age\n4711,4711\n")
    draft = drafted(folder / "data.csv")
    assert [(column["name"], column["kind"]) for column in draft["columns"]] == [
        ("patient_id", None),
        ("age", None),
    ]
    assert SECRET not in json.dumps(draft)
    np.save(folder / "data.npy", np.full((3, 2), 4711.0))
    assert [column["name"] for column in drafted(folder / "data.npy")["columns"]] == ["0", "1"]


@pytest.mark.parametrize(
    "name",
    ["id", "ID", "patient_id", "PatientID", "userId", "customer", "Person", "case-id", "mrn"],
)
def test_names_that_look_like_persons(name):
    assert names_a_person(name)


@pytest.mark.parametrize("name", ["age", "width", "paid", "humidity", "region", "grid", "hidden"])
def test_names_that_do_not(name):
    assert not names_a_person(name)


def test_all_that_is_open_is_told_at_once(parquet):
    draft = drafted(parquet)
    found = open_places(draft)
    assert len(found) == 2 + 2 + 1 + 1 + 2 + 2 + 1
    draft["columns"] = draft["columns"][1:3]
    draft["columns"][0].update(low=100, high=18)
    draft["columns"][1].update(values=["a", "a"])
    wrong = open_places(draft)
    assert len(wrong) == 2
    assert "are they swapped?" in wrong[0]
    assert "occurs twice" in wrong[1]
    draft["columns"][0].update(low=18, high=100)
    draft["columns"][1].update(values=["a", "b"])
    assert open_places(draft) == []
    assert ps.Schema.from_json(draft).names == ("age", "region")
    draft["person"] = "age"
    assert len(open_places(draft)) == 1
    assert open_places([]) == open_places({}) == ['a schema is an object with "columns", a list']
    assert len(open_places({"columns": [5, {"kind": "circle", "name": "x"}, {}]})) == 3


def test_names_and_types_are_compared(parquet, folder):
    schema = ps.Schema(
        [
            ps.Number("region", 0, 1),
            ps.Date("age", "2000-01-01", "2001-01-01"),
            ps.Flag("smokes"),
            ps.Number("height", 0, 1),
        ],
        person="photo",
    )
    found = misfits(schema, parquet)
    assert [text.split("column ")[1].split(" ")[0] for text in found] == [
        "'smokes'",
        "'height'",
        "'region'",
        "'age'",
    ]
    (folder / "data.csv").write_text("region,age,photo\n4711,4711,1\n")
    assert len(misfits(schema, folder / "data.csv")) == 2
    np.save(folder / "data.npy", np.zeros((3, 2)))
    assert len(misfits(schema, folder / "data.npy")) == 1


# ---------------------------------------------------------------- commands


def test_from_a_draft_to_a_schema(parquet, folder):
    told = succeeded("schema", "draft", "data.parquet", "-o", "schema.json").stdout
    assert "no record was read" in told
    draft = json.loads((folder / "schema.json").read_text())
    assert draft == drafted(parquet)
    exists = refused(folder, "schema", "draft", "data.parquet", "-o", "schema.json", code=DATA)
    assert "--force" in exists
    assert "11 things to mend" in refused(folder, "schema", "check", "schema.json")
    told = run("schema", "check", "schema.json").stdout
    assert told.count("open ") >= 11
    draft["columns"] = [draft["columns"][1]]
    draft["columns"][0].update(low=18, high=100)
    draft["person"] = "patient_id"
    (folder / "schema.json").write_text(json.dumps(draft))
    before = contents(folder)
    told = succeeded("schema", "check", "schema.json", "data.parquet").stdout
    assert "one person (patient_id)" in told
    assert "nothing is open" in told
    assert SECRET not in told
    assert contents(folder) == before
    (folder / "other.csv").write_text("Age,patient_id\n1,2\n")
    misfit = refused(folder, "schema", "check", "schema.json", "other.csv", code=DATA)
    assert "1 thing to mend" in misfit
    succeeded("schema", "draft", "other.csv", "-o", "schema.json", "--force")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("schema", "check", "nothing.json"), DATA),
        (("schema", "check", "data.parquet"), INTEGRITY),
        (("schema", "draft", "nothing.csv", "-o", "s.json"), DATA),
        (("schema", "draft", "data.parquet", "-o", "no/where.json"), DATA),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_one_line(parquet, folder, arguments, code):
    assert refused(folder, *arguments, code=code)
