"""The form for a schema: what its fields say, and what is wrong beside the field where it is."""

import pytest

import privsketch as ps
from privsketch.facts import guesses_in, without_guesses
from privsketch.pages import content_of, form_page, texts_of
from tests.html_page import Page
from tests.visits import SCHEMA

EVERY = ps.Schema(
    [
        *SCHEMA.columns,
        ps.Flag("smoker", "ja", "nein", missing="category"),
        ps.Flag("alive", fill=True),
        ps.Cycle("hour", 24, fill=3, weight=0.5),
        ps.Number("stay", 0, 12.5, missing="center"),
        ps.Date("born", "1930-01-01", "2010-12-31", format="%d.%m.%Y", fill="1970-01-01"),
        ps.Category("ward", ["A, B", "C & <D>"], fill="other"),
    ],
    missing="drop",
    person="patient_id",
    missing_person="drop",
    unreadable="missing",
)


def said(content, **changed):
    """The schema and the errors of a form in which some fields were changed."""
    fields = {name.replace("_", "."): text for name, text in changed.items()}
    return content_of(content, texts_of(content) | fields, accepts=True)


def test_a_form_that_nobody_changed_says_the_same_schema():
    content, errors = said(EVERY.to_json())
    assert errors == {}
    assert ps.Schema.from_json(content) == EVERY


@pytest.mark.parametrize(
    ("place", "text", "words"),
    [
        ("0.number.low", "200", "is not below high=100"),
        ("0.number.low", "", "write a value"),
        ("0.number.high", "12,5", "write a number"),
        ("0.number.high", "inf", "finite"),
        ("0.kind", "", "choose a kind"),
        ("0.kind", "circle", "choose a kind"),
        ("0.weight", "0", "1e-6"),
        ("6.category.values", "a\na", "occurs twice"),
        ("6.category.values", " \n", "write a value"),
        ("7.date.first", "soon", "2020-01-31"),
        ("7.date.last", "2019-01-01", ""),
        ("8.flag.true", "nein", "is also the word for false"),
        ("9.fill", "perhaps", "write yes or no"),
        ("10.cycle.period", "-3", "above 0"),
        ("10.missing", "center", ""),
        ("11.missing", "fill", ""),
        ("missing", "center", ""),
        ("person", "age", "is also a column"),
        ("max_records", "0", "whole number"),
        ("rows_per_person", "3", ""),
    ],
)
def test_an_error_stands_beside_its_field(place, text, words):
    content = EVERY.to_json()
    texts = texts_of(content) | {place: text}
    _, errors = content_of(content, texts, accepts=True)
    assert len(errors) == 1
    (where, error), = errors.items()  # fmt: skip
    assert words in error
    page = Page(form_page("s.json", content, texts, errors, token="t"))
    by_id = {attributes.get("id"): attributes for _, attributes in page.elements}
    assert error in page.text
    if where:
        assert by_id[where]["aria-invalid"] == "true"
        assert f"{where}-error" in by_id[where]["aria-describedby"].split()
        assert f"{where}-error" in by_id
    alone = {"6.category.values", "7.date.last", "rows_per_person", "11.missing", "missing"}
    assert where == place or place in alone


def test_another_kind_has_fields_of_its_own():
    content, errors = said(EVERY.to_json(), **{"0.kind": "category", "0.category.values": "a\nb"})
    assert errors == {}
    assert content["columns"][0] == {"kind": "category", "name": "age", "values": ["a", "b"]}
    content, errors = said(EVERY.to_json(), **{"0.kind": "leave out"})
    assert errors == {}
    assert [one["name"] for one in content["columns"]] == list(EVERY.names[1:])


def test_a_table_without_columns_is_no_schema():
    plain = ps.Schema([ps.Flag("x")]).to_json()
    _, errors = said(plain, **{"0.kind": "leave out"})
    assert "every column" in errors[""]


def test_guesses_stay_marked_where_nobody_changed_them():
    content = SCHEMA.to_json() | {"guessed": ["person"]}
    content["columns"][0]["guessed"] = ["low", "high"]
    content["columns"][1]["guessed"] = ["high"]
    texts = texts_of(content) | {"0.number.low": "20", "1.number.high": "1000000"}
    kept, errors = content_of(content, texts, accepts=False)
    assert errors == {}
    assert guesses_in(kept) == {None: {"person": "patient_id"}, "age": {"high": 100.0}}
    accepted, _ = content_of(content, texts, accepts=True)
    assert guesses_in(accepted) == {}
    assert ps.Schema.from_json(accepted).columns[0].low == 20


def test_a_list_stays_marked_while_a_guess_is_left_in_it():
    content = {"columns": [{"kind": "category", "name": "who", "values": ["ann", "bob", "eve"],
                            "guessed": ["values"]}]}  # fmt: skip
    for lines, is_left in (("ann\nbob", True), ("ann\nbob\nnew", True), ("new\nold", False)):
        texts = texts_of(content) | {"0.category.values": lines}
        kept, errors = content_of(content, texts, accepts=False)
        assert errors == {}
        assert bool(guesses_in(kept)) == is_left
        assert kept["columns"][0]["values"] == lines.split()


def test_spaces_that_a_form_cannot_show_change_no_guess():
    content = {"columns": [{"kind": "flag", "name": "x", "true": "ja ", "guessed": ["true"]}],
               "person": " patient", "guessed": ["person"]}  # fmt: skip
    kept, _ = content_of(content, texts_of(content), accepts=False)
    assert (kept["person"], kept["guessed"]) == (" patient", ["person"])
    assert kept["columns"][0]["true"] == "ja "
    assert kept["columns"][0]["guessed"] == ["true"]


def test_a_draft_with_open_places_can_be_filled_in():
    draft = {
        "note": "for you",
        "columns": [{"name": "a", "kind": None, "note": "?"}, {"name": "b", "kind": "number",
                    "low": None, "high": None, "note": "bounds"}],
        "missing": "drop", "unreadable": "missing", "person": None, "missing_person": "drop",
    }  # fmt: skip
    _, errors = said(draft)
    assert errors.keys() == {"0.kind", "1.number.low", "1.number.high"}
    content, errors = said(draft, **{"0.kind": "flag", "1.number.low": "0", "1.number.high": "2.5"})
    assert errors == {}
    assert ps.Schema.from_json(content).is_total
    assert content["note"] == "for you"
    assert content["columns"][1]["note"] == "bounds"


def test_the_page_shows_texts_as_texts():
    evil = "<script>alert(1)</script>\"'&"
    content = {"columns": [{"kind": "category", "name": evil, "values": [evil, "</textarea>"]}],
               "guessed": ["person"]}  # fmt: skip
    page = form_page(evil, content, texts_of(content), {"": evil}, token="t")
    assert "<script" not in page
    assert page.count("</textarea>") == page.count("<textarea")
    found = Page(page)
    assert "script" not in found.tags
    assert evil in found.text
    # And they come back as they were.
    assert content_of(content, texts_of(content), accepts=True)[0] == {
        **without_guesses(content), "missing": "error", "unreadable": "error",
        "missing_person": "error",
    }  # fmt: skip
