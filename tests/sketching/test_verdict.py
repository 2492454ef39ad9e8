"""A verdict is text that somebody else wrote: its form is checked, and alarms stay."""

import json
from dataclasses import replace

import pytest

import privsketch as ps
from privsketch import FileError, ParameterError
from privsketch._base import pack_sketch, unpack_sketch
from privsketch.sketching import Alarm, Verdict, combined_verdict

ALARM = Alarm("b", "weight: 2.205 times what the others have")
GOOD = {"alarms": [{"source": "b", "text": "odd"}], "compared": ["a", "b"], "reasons": ["few"]}


@pytest.fixture
def total(make_design, make_records):
    design = make_design()
    sites = [ps.sketch(make_records(200, seed=s), design, source=n) for s, n in enumerate("abc")]
    return ps.merge(sites, compare=False)


def with_header(sketch, change):
    """Return the file of a sketch whose header was changed by hand."""
    header, values = unpack_sketch(sketch.to_bytes(), "total")
    change(header)
    return pack_sketch(header, values)


def test_a_verdict_comes_back_as_it_was_written(total):
    told = replace(total, verdict=Verdict((ALARM,), ("a", "b"), ("few",)))
    again = ps.Sketch.from_bytes(told.to_bytes())
    assert again.verdict == told.verdict
    assert again.to_bytes() == told.to_bytes()
    assert "ALARM       b: weight" in again.describe()
    assert "2 of 3 sources" in again.describe()


@pytest.mark.parametrize(
    "value",
    [
        {**GOOD, "reasons": []},
        {**GOOD, "reasons": ["who knows"]},
        {**GOOD, "reasons": ["skipped", "few"]},
        {**GOOD, "reasons": "few"},
        {**GOOD, "compared": ["b", "a"]},
        {**GOOD, "compared": ["a", "a"]},
        {**GOOD, "compared": ["a", "z"]},
        {**GOOD, "compared": ["a", 1]},
        {**GOOD, "alarms": [{"source": "z", "text": "odd"}]},
        {**GOOD, "alarms": [{"source": "b", "text": ""}]},
        {**GOOD, "alarms": [{"source": "b", "text": "o" * 301}]},
        {**GOOD, "alarms": [{"source": "b", "text": 5}]},
        {**GOOD, "alarms": [{"source": "b", "text": "odd\x1b[2J"}]},
        {**GOOD, "alarms": [{"source": "b", "text": "line\nALARM"}]},
        {**GOOD, "alarms": [{"source": "b", "text": "odd", "more": 1}]},
        {**GOOD, "alarms": [{"source": "b", "text": f"odd {i}"} for i in range(101)]},
        {**GOOD, "alarms": 2 * [{"source": "b", "text": "odd"}]},
        {**GOOD, "more": 1},
        {"alarms": [], "compared": []},
        [],
        "fine",
    ],
    ids=lambda value: json.dumps(value)[:60],
)
def test_anything_else_is_refused(total, value):
    file = with_header(total, lambda header: header.update(verdict=GOOD))
    assert ps.Sketch.from_bytes(file).verdict.alarms == (Alarm("b", "odd"),)
    with pytest.raises(FileError):
        ps.Sketch.from_bytes(with_header(total, lambda header: header.update(verdict=value)))


def test_a_single_release_has_no_verdict(make_design, make_records):
    sketch = ps.sketch(make_records(200), make_design(), source="a")
    assert sketch.verdict is None
    value = {"alarms": [], "compared": ["a"], "reasons": []}
    with pytest.raises(FileError, match="single release"):
        ps.Sketch.from_bytes(with_header(sketch, lambda header: header.update(verdict=value)))


def test_alarms_stay_when_totals_are_merged():
    first = Verdict((ALARM,), ("a", "b", "c"))
    sealed = Verdict(reasons=("sealed",))
    parts = [("abc", first), ("de", sealed), ("f", None), ("gh", None)]
    both = combined_verdict(parts, Verdict((Alarm("f", "odd"),), ("f",)))
    assert both.alarms == (ALARM, Alarm("f", "odd"))
    assert both.compared == ("a", "b", "c", "f")
    assert both.reasons == ("sealed", "skipped")
    two = combined_verdict(parts[::2], Verdict(reasons=("few",)))
    assert two == Verdict((ALARM,), ("a", "b", "c"), ("few",))
    two.require_fits("abcf")


def test_long_and_strange_texts_are_cut_and_escaped():
    alarm = Alarm.about(["a", "b", "c"], "odd\n" + "x" * 400)
    assert alarm.source == "a"
    assert alarm.text.startswith("with 2 more as one total: odd\\n")
    assert len(alarm.text) == 300
    assert len(Alarm("n" * 500, "odd").describe()) < 80
    many = Verdict(tuple(Alarm("a", f"odd {i}") for i in range(100)))
    assert many.concerns()[-1] == "a source looks wrong: 95 more sources look wrong"
    with pytest.raises(ParameterError):
        Alarm("a", "odd\u202e")
