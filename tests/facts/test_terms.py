"""Terms: linear functions of encoded records are linear functions of what people read."""

import numpy as np
import pytest

import privsketch as ps
from privsketch.facts.terms import plain_terms, terms_of, terms_of_target, values_of_term

COLUMNS = {
    "number": (ps.Number("x", -3, 7, weight=2.0), [[-3.0], [0.0], [5.5]]),
    "log": (ps.Number("x", 10, 1000, scale="log"), [[10.0], [50.0], [1000.0]]),
    "log from 0": (ps.Number("x", 0, 1000, scale="log"), [[0.0], [1.0], [700.0]]),
    "date": (ps.Date("x", "2020-01-01", "2024-01-01"), [["2020-01-01"], ["2022-05-06"]]),
    "flag": (ps.Flag("x", weight=0.5), [["no"], ["yes"]]),
    "flag with missing": (ps.Flag("x", missing="category"), [["no"], ["yes"], [None]]),
    "category": (ps.Category("x", ["a", "b"]), [["a"], ["b"], ["z"]]),
    "cycle": (ps.Cycle("x", 24), [[0.0], [6.0], [15.0]]),
}
TERMS = {
    "number": [[-3], [0], [5.5]],
    "log": np.log([[10], [50], [1000]]),
    "log from 0": np.log1p([[0], [1], [700]]),
    "date": [[18262], [19118]],
    "flag": [[0], [1]],
    "flag with missing": [[1, 0], [0, 0], [0, 1]],
    "category": [[1, 0], [0, 0], [0, 1]],
    "cycle": [[1, 0], [0, 1], np.cos([5 * np.pi / 4, 3 * np.pi / 4])],
}
NAMES = {
    "log": ("log(x)",),
    "log from 0": ("log(1 + x / 1)",),
    "category": ("x=a", "x=other"),
    "cycle": ("x (cos)", "x (sin)"),
}
REFERENCE = {"x": "b"}


def terms_and_rows(kind):
    column, cells = COLUMNS[kind]
    schema = ps.Schema([column])
    reference = {"x": "yes"} if kind == "flag with missing" else REFERENCE
    return terms_of(schema, reference), ps.encode(ps.Table(cells), schema)


@pytest.mark.parametrize("kind", COLUMNS)
def test_terms_are_what_their_names_say(kind):
    terms, rows = terms_and_rows(kind)
    assert np.allclose(terms.values(rows), TERMS[kind])
    assert terms.names == NAMES.get(kind, terms.names)


@pytest.mark.parametrize("kind", COLUMNS)
def test_coefficients_of_terms_are_those_of_coordinates(kind):
    terms, rows = terms_and_rows(kind)
    coef = np.random.default_rng(0).normal(size=rows.shape[1])
    by_terms = coef @ terms.origin + terms.values(rows) @ (terms.effects @ coef)
    assert np.allclose(rows @ coef, by_terms)


def test_labels_are_compared_with_the_reference():
    assert terms_and_rows("category")[0].against == ("b", "b")
    assert terms_and_rows("flag")[0].against == ("no",)


def test_columns_stand_beside_each_other():
    schema = ps.Schema([ps.Number("a", 0, 10), ps.Category("w", ["u", "v"]), ps.Flag("f")])
    terms = terms_of(schema, {"w": "v"})
    assert terms.names == ("a", "w=u", "w=other", "f")
    rows = ps.encode([[2.0, "u", "yes"], [10.0, "v", "no"]], schema)
    assert np.allclose(terms.values(rows), [[2, 1, 0, 1], [10, 0, 0, 0]])


def test_a_label_is_a_target_by_its_share():
    schema = ps.Schema([ps.Category("w", ["u", "v"])])
    rows = ps.encode([["u"], ["v"]], schema)
    assert np.allclose(terms_of_target(schema, "w=v").values(rows), [[0], [1]])


def test_logarithmic_terms_have_values_between_their_bounds():
    column = ps.Number("x", 10, 1000, scale="log")
    values = values_of_term(column, np.log([[5.0, 100.0], [300.0, 5000.0]]))
    assert np.allclose(values, [[10, 100], [300, 1000]])
    linear = ps.Number("x", 10, 1000)
    assert np.allclose(values_of_term(linear, np.array([5.0])), 5.0)


def test_without_a_schema_columns_are_their_own_terms():
    rows = np.arange(6.0).reshape(3, 2)
    assert np.array_equal(plain_terms(["a", "b"]).values(rows), rows)
