"""Constants that were read off a curve name it, and every curve is about a constant that exists."""

import re
from pathlib import Path

import pytest

from benchmarks.constants import Curve, constant_set, curves, folders

ROOT = Path(__file__).parents[2]
COMMAND = re.compile(r"benchmarks constants ([a-z]+)(?: ([A-Z]\w+))?")
CURVES = [(folder, curve) for folder in folders() for curve in curves(folder)]


def commentless(text):
    """Return a source on one line, without the marks of comments."""
    return re.sub(r"\s+#?\s*", " ", text)


@pytest.mark.parametrize(("folder", "curve"), CURVES, ids=lambda v: getattr(v, "name", v))
def test_a_curve_has_the_value_in_use(folder, curve):
    assert curve.value in curve.values
    assert len(curve.values) > 2
    source = ROOT.joinpath("src", *curve.module.split(".")).with_suffix(".py")
    source = source if source.is_file() else source.with_suffix("") / "__init__.py"
    assert f"benchmarks constants {folder}" in commentless(source.read_text())


def test_commands_in_comments_have_a_curve():
    listed = {(folder, curve.name) for folder, curve in CURVES}
    named = set()
    for source in (ROOT / "src").rglob("*.py"):
        named |= set(COMMAND.findall(commentless(source.read_text())))
    assert named
    assert {(folder, name) for folder, name in named if name} <= listed
    assert {folder for folder, _ in named} <= {folder for folder, _ in listed}


def test_a_constant_is_set_wherever_it_is_imported():
    from privsketch.learning import refine

    before = refine.OVERVIEW_STARTS
    seen = []
    curve = Curve(
        "privsketch.learning.refine.OVERVIEW_STARTS",
        (before, before + 1),
        lambda: seen.append(refine.OVERVIEW_STARTS) or {"value": refine.OVERVIEW_STARTS},
        "What the constant is.",
    )
    assert f"**{before}** | {before}" in curve.table()
    assert seen == [before, before + 1]
    assert before == refine.OVERVIEW_STARTS
    with pytest.raises(ZeroDivisionError), constant_set(curve.constant, 0):
        _ = 1 / refine.OVERVIEW_STARTS
    assert before == refine.OVERVIEW_STARTS
