"""What notebooks show: all facts of a description, escaped, nothing loaded and nothing run."""

import re
from dataclasses import replace

import numpy as np
import pytest

import privsketch as ps
from privsketch._base import MAX_HTML_ROWS, described, shown, table
from tests.html_page import Page

EVIL = "<script>alert('x')</script>"


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A result of each kind; whoever named sources and columns means harm."""
    rng = np.random.default_rng(0)
    records = rng.normal(size=(2000, 2)) * 0.1 + rng.choice([-0.5, 0.5], size=(2000, 1))
    plan = {"budget": ps.Budget(1.0, 1e-6), "n_components": 2, "n_records": 2000}
    columns = [EVIL, 'a" onmouseover="alert(1)']
    design = ps.Design.plan(domain=ps.Box(-1, 1, dim=2), columns=columns, random_state=0, **plan)
    sketch = ps.sketch(records, design, source=EVIL)
    clusters = replace(ps.learn_kmeans(sketch, 2), concerns=(EVIL,))
    pca = ps.Design.plan(task="pca", domain=ps.Ball(dim=2, radius=1.0), columns=columns, **plan)
    ledger = ps.Ledger.create(tmp_path_factory.mktemp("ledger") / "budget.ledger")
    ledger.add(EVIL, epsilon=2.0, delta=1e-5)
    sites = [sketch, *(ps.sketch(records, design, source=f"{name}{EVIL}") for name in "ab")]
    return {
        "composition": ps.compose([sketch.receipt] * 3),
        "comparison": ps.compare(sites),
        "ledger": ledger,
        "design": design,
        "sketch": sketch,
        "receipt": sketch.receipt,
        "clusters": clusters,
        "mixture": ps.learn_gaussian_mixture(sketch, 2),
        "components": ps.learn_pca(ps.sketch(records, pca), 1),
        "schema": ps.Schema([ps.Number(EVIL, 0, 1), ps.Category("careful", ["<b>", "c"])]),
    }


NAMES = ["design", "sketch", "receipt", "clusters", "mixture", "components", "schema"]


@pytest.mark.parametrize("name", [*NAMES, "composition", "comparison", "ledger"])
def test_names_are_not_believed_and_nothing_is_loaded(results, name):
    shown = results[name]._repr_html_()
    assert "<script" not in shown.lower()
    assert "alert(&#x27;x&#x27;)" in shown or name in ("receipt", "composition")
    # Of all tags, those that only lay out, with no attribute but their style.
    for tag, rest in re.findall(r"<(\w+)([^>]*)>", shown):
        assert tag in {"div", "table", "tr", "th", "td", "b"}
        assert re.fullmatch(r'( style="[^"<>]*")?', rest), rest
    assert "url(" not in shown
    # The notebook's own colours, light or dark.
    assert not re.findall(r"(?<![-\w])(color|background):(?!inherit|none)", shown)


@pytest.mark.parametrize("name", NAMES)
def test_every_fact_of_the_description_is_there(results, name):
    result = results[name]
    text = " ".join(Page(f"<main>{result._repr_html_()}</main>").text.split())
    lines = result.describe().splitlines()
    if name in ("clusters", "mixture", "components"):
        lines = [*result._opening_lines(), *result.closing_lines()]
    if name == "sketch":  # of the receipt, its cost
        lines = lines[: lines.index("", lines.index("") + 1)]
    for line in filter(None, lines):
        assert " ".join(line[13:].split()) in text


def test_numbers_are_those_of_the_model(results):
    model = results["clusters"]
    text = Page(f"<main>{model._repr_html_()}</main>").text
    for weight, row in zip(model.weights, model.shown_rows(model.centers)[1], strict=True):
        for cell in (f"{weight:.1%}", *row):
            assert cell in text


def test_many_columns_are_rows_and_very_many_are_counted():
    upright = table("cluster", ["1"], ["a", "b"], [["x", "y"]])
    assert upright.index(">b<") < upright.index(">1<")
    names = [f"column {j}" for j in range(MAX_HTML_ROWS + 3)]
    turned = table("cluster", ["1"], names, [[f"cell {j}" for j in range(MAX_HTML_ROWS + 3)]])
    assert turned.index(">1<") < turned.index(">column 0<") < turned.index(">cell 0<")
    assert f"column {MAX_HTML_ROWS - 1}<" in turned
    assert f"column {MAX_HTML_ROWS}<" not in turned
    assert "3 more rows" in turned


def test_lines_go_on_and_warnings_come_first():
    page = described(
        "T", ["one         first", "            second", "careful     beware", "  - an item"]
    )
    assert "first\nsecond" in page
    assert page.index("Careful: beware") < page.index("first") < page.index("- an item")
    # A column of that name is no warning.
    assert "Careful" not in shown("T", [("careful", "a number")])


def test_costs_sources_and_limits_are_told(results):
    def text(name):
        return " ".join(Page(f"<main>{results[name]._repr_html_()}</main>").text.split())

    for line in results["composition"].describe().splitlines():
        assert " ".join(line[12:].split()) in text("composition")
    for one, shares in zip(
        results["comparison"].sources, results["comparison"].clusters.shares, strict=True
    ):
        assert one.words() in text("comparison")
        assert f"{shares[0]:.0%}" in text("comparison")
    assert "epsilon = 2, delta = 1e-05" in text("ledger")


def test_parts_of_a_receipt_are_told(results):
    receipt = results["receipt"]
    total = receipt + receipt
    assert total._repr_html_().count("discrete Gaussian noise") >= 2
