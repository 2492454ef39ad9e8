"""Marks of guesses: no schema with one becomes a `Schema`, whatever it is read by."""

import copy
import json

import pytest

import privsketch as ps
from privsketch._base import document
from privsketch.facts import guesses_in, without_guesses

COLUMN = {"kind": "number", "name": "age", "low": 0, "high": 110}
PLAIN = {"columns": [COLUMN, {"kind": "flag", "name": "smoker"}], "missing": "drop"}


def marked(field="low", *, where="column"):
    content = copy.deepcopy(PLAIN)
    facts = content if where == "table" else content["columns"][0]
    facts["guessed"] = [field]
    return content


@pytest.mark.parametrize("content", [marked(), marked("person", where="table")], ids=["c", "t"])
def test_no_way_from_a_mark_to_a_schema(content, tmp_path):
    (tmp_path / "s.json").write_text(json.dumps(content))
    for read in (
        lambda: ps.Schema.from_json(content),
        lambda: ps.Schema.from_bytes(json.dumps(content).encode()),
        lambda: ps.Schema.load(tmp_path / "s.json"),
        lambda: ps.load(tmp_path / "s.json"),
    ):
        with pytest.raises(ps.PrivsketchError, match="privsketch schema accept"):
            read()
    assert ps.Schema.from_json(without_guesses(content)) == ps.Schema.from_json(PLAIN)


@pytest.mark.parametrize("mark", ["low", {"low": True}, [1], True, 0, ""], ids=repr)
def test_a_mark_of_no_form_is_a_mark(mark):
    content = copy.deepcopy(PLAIN)
    content["columns"][0]["guessed"] = mark
    with pytest.raises(ps.ParameterError, match="guess"):
        ps.Schema.from_json(content)


def test_a_mark_in_a_design_is_found(tmp_path):
    """With a fingerprint that fits, as a program of somebody's own would write it."""
    design = ps.Design.plan(
        n_components=1, domain=ps.Schema.from_json(PLAIN), budget=ps.Budget(1.0, 1e-6),
        n_features=20, random_state=0,
    )  # fmt: skip
    content = design.to_json()
    content["schema"]["columns"][0]["guessed"] = ["low"]
    with pytest.raises(ps.PrivsketchError, match="guess"):
        ps.Design.from_json(content)
    (tmp_path / "d.json").write_bytes(document("design", content))
    for read in (ps.load, ps.Design.load):
        with pytest.raises(ps.PrivsketchError, match="guess"):
            read(tmp_path / "d.json")


def test_objects_have_no_marks():
    """A column that a program makes is stated by that program."""
    for kind in (ps.Number, ps.Category, ps.Flag, ps.Date, ps.Cycle):
        with pytest.raises(TypeError):
            kind("x", guessed=["low"])
    with pytest.raises(TypeError):
        ps.Schema([ps.Flag("x")], guessed=["person"])


def test_marks_are_taken_off_by_column():
    content = marked() | {"guessed": ["person"]}
    content["columns"][1]["guessed"] = ["kind"]
    assert guesses_in(content) == {
        None: {"person": None}, "age": {"low": 0}, "smoker": {"kind": "flag"}
    }  # fmt: skip
    assert list(guesses_in(without_guesses(content, ["age"]))) == [None, "smoker"]
    assert list(guesses_in(without_guesses(content, [None]))) == ["age", "smoker"]
    assert guesses_in(without_guesses(content)) == {}
    assert list(guesses_in(content)) == [None, "age", "smoker"]  # which stays as it was


def test_a_column_without_a_name_hides_no_guess_about_the_table():
    content = {
        "columns": [{"kind": "flag", "name": "", "guessed": ["kind"]}],
        "guessed": ["person"],
    }
    assert guesses_in(content).keys() == {None, ""}
    assert guesses_in(without_guesses(content, [""])).keys() == {None}
