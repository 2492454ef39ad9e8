"""Schemas: what they refuse, what designs and receipts say of them, and their file."""

import json
import math

import numpy as np
import pandas as pd
import pytest

import privsketch as ps
from privsketch.clustering import Run
from privsketch.facts import schema_of
from tests.chance import exact_answers

AGE = ps.Number("age", 18, 100)
COLUMNS = [
    AGE,
    ps.Number("income", 0, 500_000, scale="log", unit="EUR"),
    ps.Category("region", ["north", "south", "east", "west"]),
    ps.Flag("smoker"),
    ps.Date("admitted", "2020-01-01", "2025-12-31"),
    ps.Cycle("hour", 24),
]


def make(columns=COLUMNS, **more):
    return ps.Schema(columns, **{"missing": "drop", "person": "patient_id", **more})


def plan(schema, neighbours="add-remove", **more):
    budget = ps.Budget(1.0, 1e-6, neighbours)
    choices = {"n_components": 3, "n_records": 1000, "random_state": 1, **more}
    return ps.Design.plan(domain=schema, budget=budget, **choices)


BAD = {
    "a column twice": (lambda: ps.Schema([AGE, AGE]), "twice"),
    "no column": (lambda: ps.Schema([]), "expected a list"),
    "no columns": (lambda: ps.Schema(["age"]), "expected a list"),
    "the same coordinate": (
        lambda: ps.Schema([ps.Category("a", ["b"]), ps.Number("a=b", 0, 1)]),
        "same name",
    ),
    "person in the record": (lambda: ps.Schema([AGE], person="age"), "column of the record"),
    "several without persons": (lambda: ps.Schema([AGE], max_records=2), "person="),
    "both bounds": (lambda: ps.Schema([AGE], person="p", rows_per_person=3), "max_records"),
    "none counts": (lambda: ps.Schema([AGE], person="p", max_records=0), "whole number"),
    "rule": (lambda: ps.Schema([AGE], missing="mean"), "expected one of"),
    "middle of a category": (
        lambda: ps.Schema([ps.Category("c", ["a"])], missing="center"),
        "no middle",
    ),
    "middle of a cycle": (lambda: ps.Schema([ps.Cycle("h", 24)], missing="center"), "no middle"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_is_our_error(case):
    make_bad, words = BAD[case]
    with pytest.raises(ps.PrivsketchError, match=words):
        make_bad()


def test_the_file_is_what_people_write(tmp_path):
    schema = make()
    schema.save(tmp_path / "schema.json")
    assert ps.Schema.load(tmp_path / "schema.json") == schema
    content = json.loads((tmp_path / "schema.json").read_text())
    content["columns"][0]["note"] = "whatever people note"
    (tmp_path / "schema.json").write_text(json.dumps(content))
    assert ps.Schema.load(tmp_path / "schema.json") == schema


FILES = {
    "open kind": ({"columns": [{"name": "age", "kind": None}]}, "kind is open"),
    "open bound": (
        {"columns": [{"name": "age", "kind": "number", "low": None, "high": 1}]},
        "'low' is open",
    ),
    "unknown kind": ({"columns": [{"name": "a", "kind": "text"}]}, "none of"),
    "unknown field": (
        {"columns": [{"name": "a", "kind": "number", "lo": 0, "high": 1}]},
        "unknown or missing",
    ),
    "unknown part": ({"columns": [], "persons": "x"}, "not a field of a schema"),
    "no columns": ({"missing": "drop"}, "columns"),
    "swapped": (
        {"columns": [{"name": "a", "kind": "number", "low": 2, "high": 1}]},
        "swapped",
    ),
}


@pytest.mark.parametrize("case", FILES)
def test_files_that_are_no_schema(tmp_path, case):
    content, words = FILES[case]
    (tmp_path / "s.json").write_text(json.dumps(content))
    with pytest.raises(ps.PrivsketchError, match=words):
        ps.Schema.load(tmp_path / "s.json")


def test_a_design_keeps_its_schema_and_the_fingerprint_covers_it(tmp_path):
    design = plan(make())
    design.save(tmp_path / "d.json")
    again = ps.Design.load(tmp_path / "d.json")
    assert again == design
    assert again.schema == make()
    other = [
        make([*COLUMNS[:5], ps.Cycle("hour", 24, weight=1.001)]),
        make([ps.Number("age", 18, 101), *COLUMNS[1:]]),
        make([ps.Number("age", 18, 100, unit="years"), *COLUMNS[1:]]),
        make([ps.Number("age", 18, 100, fill=40), *COLUMNS[1:]]),
        make(max_records=2),
        make(person="person"),
        make(missing_person="drop"),
        make(missing="error"),
        make([*COLUMNS[1:], AGE]),
    ]
    prints = {design.fingerprint, *(plan(schema).fingerprint for schema in other)}
    assert len(prints) == 1 + len(other)


@pytest.mark.parametrize("change", ["domain", "columns", "unit", "schema"])
def test_a_design_of_another_schema_is_refused(tmp_path, change):
    content = plan(make()).to_json()
    if change == "domain":
        content["domain"]["high"] = [2.0, *content["domain"]["high"][1:]]
    elif change == "columns":
        content["columns"] = ["x", *content["columns"][1:]]
    elif change == "unit":  # less noise than its persons need
        content["budget"]["unit"]["max_records"] = 3
    else:
        content["schema"]["person"] = "somebody"
    with pytest.raises(ps.PrivsketchError):
        ps.Design.from_json(content)


def test_the_norm_is_that_of_corners_of_simplices():
    many = ps.Schema([AGE, ps.Category("c", [str(v) for v in range(99)])])
    assert many.radius == pytest.approx(math.sqrt(1 + 0.5 * 99 / 100))
    diagonal = float(np.linalg.norm(many.box.half_widths))
    assert many.radius < diagonal / 2.5  # a cube would pay for all its corners
    assert plan(many, task="pca", n_components=2).domain == many.ball


def test_what_does_not_go_with_replacing():
    for schema, words in (
        (make(), "missing='drop'"),
        (make(missing="error", missing_person="drop"), "missing='drop'"),
        (make(missing="error", max_records=2), "max_records=2"),
        (ps.Schema([AGE], rows_per_person=4), "rows_per_person=4"),
    ):
        with pytest.raises(ps.PrivsketchError, match=words):
            plan(schema, "replace")
    assert plan(make(missing="error"), "replace").count == "public"


def test_several_records_of_a_person_need_more_noise():
    """Every norm is multiplied by their number; what one record adds to the sums is not."""
    for more in ({}, {"noise": "laplace"}, {"noise": "cube"}, {"task": "pca", "mean": "released"}):
        one, three = (plan(make(max_records=c), n_features=66, **more) for c in (1, 3))
        laws = [(d.sum_noise.sums_law, d.sum_noise.count_law) for d in (one, three)]
        factor = three.sum_noise.factor / one.sum_noise.factor
        ratio = laws[1][0].sensitivity / laws[0][0].sensitivity / factor
        assert ratio == pytest.approx(3, rel=2e-3)
        if laws[0][1] is not None:
            assert laws[1][1].sensitivity == 3 * laws[0][1].sensitivity
    with pytest.raises(ps.PrivsketchError, match="masks"):
        plan(make(max_records=3), masks="records:0.5")


def test_units_are_told():
    design = plan(make())
    assert "one person (patient_id)" in design.describe()
    assert "all rows of a person lie at one holder" in design.describe()
    frame = pd.DataFrame({"age": [30.0] * 4, "patient_id": [1, 1, 2, 3]})
    released = ps.sketch(frame, plan(ps.Schema([AGE], person="patient_id")))
    assert released.receipt.unit == "one person (patient_id)"
    assert released.receipt.assumption == "all rows of a person lie at one holder"
    assert "hides whether a person is there" in released.receipt.describe()
    merged = ps.merge([released, ps.sketch(frame, released.design)])
    assert merged.receipt.unit == "one person (patient_id)"
    assert "all rows of a person lie at one holder" in merged.receipt.assumption
    trusted = ps.sketch(frame, plan(ps.Schema([AGE], rows_per_person=2)))
    assert trusted.receipt.unit == "one person (at most 2 rows each)"
    assert "taken on trust" in trusted.receipt.assumption


def test_receipts_of_persons_survive_files(tmp_path):
    frame = pd.DataFrame({"age": [30.0] * 4, "patient_id": [1, 1, 2, 3]})
    released = ps.sketch(frame, plan(ps.Schema([AGE], person="patient_id", max_records=2)))
    released.save(tmp_path / "s.sketch")
    again = ps.Sketch.load(tmp_path / "s.sketch")
    assert again.receipt == released.receipt
    assert again.design == released.design


def test_a_box_with_names_scales_its_columns():
    box = ps.Box(low=[18, 0], high=[100, 500_000], columns=["age", "income"], scale=True)
    assert schema_of(box) == ps.Schema([AGE, ps.Number("income", 0, 500_000)])
    assert plan(box).domain == ps.Box(low=[-1, -1], high=[1, 1])
    plain = ps.Box(low=[18, 0], high=[100, 500_000], columns=["age", "income"])
    assert schema_of(plain) is None
    design = plan(plain, frequency_scale=(100.0, 1e5))
    assert design.columns == ("age", "income")
    assert design.domain == plain.plain
    with pytest.raises(ps.PrivsketchError, match="names"):
        ps.Box(0, 1, dim=2, scale=True)
    with pytest.raises(ps.PrivsketchError, match="3 names"):
        ps.Box([0, 0], [1, 1], columns=["a", "b", "c"])


def test_models_carry_the_schema(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": np.repeat([30.0, 70.0], 500) + rng.normal(0, 3, 1000),
            "region": np.repeat(["north", "south"], 500),
            "admitted": np.repeat(pd.to_datetime(["2021-07-01", "2024-07-01"]), 500),
        }
    )
    schema = ps.Schema([AGE, COLUMNS[2], COLUMNS[4]])
    with exact_answers():
        released = ps.sketch(frame, plan(schema, n_components=2, random_state=0))
    model = ps.learn_kmeans(released, 2)
    model.save(tmp_path / "m.json")
    table = ps.load(tmp_path / "m.json").table().sort_values("age")
    assert table["age"].round(-1).tolist() == [30, 70]
    assert table["region=north"].round().tolist() == [1, 0]
    assert [day.year for day in table["admitted"]] == [2021, 2024]
    assert "age = -0" not in model.describe()
    assert "2021" in model.describe()
    errors = model.table("standard_errors")
    assert (errors["age"] > 0).all()
    assert (errors["age"] < 20).all()
    mixture = ps.learn_gaussian_mixture(released, 2, covariance_type="diag")
    made_up = mixture.sample_table(100, random_state=0)
    assert set(made_up["region"]) <= {"north", "south", "east", "west", "other"}
    assert made_up["age"].between(18, 100).all()
    assert mixture.covariance_table(0).shape == (7, 7)


def test_methods_pay_for_the_norm_of_corners():
    """Of many labels a ball is smaller than the box, in both norms; of numbers it is not in L1."""
    labels = ps.Schema([AGE, ps.Category("c", [str(v) for v in range(99)])])
    numbers = ps.Schema(
        [AGE, *(ps.Number(f"x{j}", 0, 1) for j in range(5)), ps.Category("c", ["a"])]
    )
    frame = pd.DataFrame({"age": [30.0], "c": ["1"], **{f"x{j}": [0.5] for j in range(5)}})
    for schema, delta, wanted in (
        (labels, 1e-6, labels.ball),
        (labels, 0.0, labels.ball),
        (numbers, 1e-6, numbers.ball),
        (numbers, 0.0, numbers.box),
    ):
        run = Run(frame, domain=schema, budget=ps.Budget(1.0, delta))
        assert run.domain == wanted
        passes = run.read()
        assert passes.l2_squared * passes.unit**2 <= np.square(wanted.half_widths).sum() * (
            1 + 1e-9
        )
