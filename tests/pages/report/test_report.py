"""The report: one HTML file that loads nothing, states what was spent, and believes no name."""

import html
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from markupsafe import escape

import privsketch as ps
from privsketch import Comparison
from privsketch.ledger import Cost
from privsketch.pages import (
    ClusterShares,
    ColumnChange,
    SourceComparison,
    comparison_page,
    save_report,
    spending_page,
)
from privsketch.pages import report_page as page_of
from tests import seams
from tests.html_page import Page

ATTACK = "<script>alert(1)</script>"


def study(make_design, *, sources=("north",), n_records=400, n_clusters=2, **choices):
    """A model of a small study and the sketch it was learned from."""
    design = make_design(**choices)
    rng = np.random.default_rng(0)
    parts = [
        ps.sketch(rng.choice([-2.0, 2.0], size=(n_records, design.dim)), design, source=source)
        for source in sources
    ]
    total = ps.merge(parts)
    return ps.learn_kmeans(total, n_clusters, n_init=1), total


@pytest.fixture(scope="module")
def example(make_design):
    return study(make_design)


@pytest.fixture(scope="module")
def page(example):
    return page_of(*example)


# ---------------------------------------------------------------- self-contained


def test_the_page_loads_nothing(page):
    links = set(re.findall(r"""https?://[^\s"'<>]*""", page))
    assert links <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert not re.search(r"@import|url\((?!#)", page)
    tags = set(Page(page).tags)
    assert tags.isdisjoint({"script", "link", "iframe", "img", "object", "embed", "base"})


def test_every_reference_leads_into_the_page(page):
    elements = Page(page).elements
    ids = [attrs["id"] for _, attrs in elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', page))
    assert used
    assert used <= set(ids)


def test_links_are_references_inside_the_page(page):
    for _, attrs in Page(page).elements:
        for name in ("href", "xlink:href", "src"):
            assert attrs.get(name, "#").startswith("#")


def test_templates_are_loaded_with_the_first_page():
    code = "import sys, privsketch.pages.report.html; sys.exit('jinja2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_page_is_one_complete_document(page):
    assert page.startswith("<!doctype html>")
    assert page.rstrip().endswith("</html>")
    assert page.count("<body") == page.count("<h1") == 1


@pytest.mark.slow
def test_the_saved_page_is_the_page(example, tmp_path):
    save_report(*example, tmp_path / "report.html", title="Größe")
    saved = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert saved == page_of(*example, title="Größe")


@pytest.mark.slow
def test_the_page_of_the_same_model_is_the_same(example):
    assert page_of(*example) == page_of(*example)


def test_report_writes_the_page_and_returns_its_path(example, tmp_path):
    model, sketch = example
    path = ps.report(model, tmp_path / "report.html", sketch=sketch)
    assert path == tmp_path / "report.html"
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")


# ---------------------------------------------------------------- what it states


def test_the_budget_the_unit_and_the_neighbours_are_stated(page):
    text = Page(page).text
    assert "epsilon = 1, delta = 1e-06" in text
    assert "protects one record" in text
    assert "whether any one record was in a table or not" in text
    assert "add-remove" in text


@pytest.mark.slow
def test_under_replace_the_page_says_so(make_design):
    text = Page(page_of(*study(make_design, neighbours="replace"))).text
    assert "hides what a record says" in text
    assert "the number of records is public" in text


def test_the_mechanism_and_its_scale_are_stated(example, page):
    receipt = example[1].receipt
    text = Page(page).text
    assert receipt.mechanism in text
    assert receipt.sensitivity_text in text
    assert f"scale {receipt.scale:.6g}" in text


@pytest.mark.slow
def test_every_holder_is_listed(make_design):
    sources = ("north", "south", "west")
    text = Page(page_of(*study(make_design, sources=sources))).text
    assert all(source in text for source in sources)
    assert "3 sketches added up" in text
    assert "do not add up" in text


@pytest.mark.slow
def test_a_receipt_of_two_parts_is_listed_in_full(make_design):
    model, sketch = study(make_design, sources=("north", "south"), delta=0.0, noise="laplace")
    text = Page(page_of(model, sketch)).text
    assert f"discrete Laplace noise on {2 * sketch.design.n_features} integers" in text
    assert "discrete Laplace noise on 1 integers" in text
    assert all(source in text for source in ("north", "south"))


@pytest.mark.slow
def test_added_costs_are_stated(make_design):
    design = make_design()
    parts = [ps.sketch(np.zeros((100, 3)), design, source="north") for _ in range(2)]
    total = ps.merge(parts, same_records=True)
    text = Page(page_of(ps.learn_kmeans(total, 1, n_init=1), total)).text
    assert "e 2 = 7.39" in text


@pytest.mark.slow
def test_the_largest_budgets_can_be_reported(make_design):
    design = make_design(epsilon=100.0)
    parts = [ps.sketch(np.zeros((10, 3)), design, source="north") for _ in range(8)]
    total = ps.merge(parts, same_records=True)
    text = Page(page_of(ps.learn_kmeans(total, 1, n_init=1), total)).text
    assert "e 800" in text


def test_an_insecure_sampler_is_shown(make_design, no_noise):
    assert "INSECURE" in page_of(*study(make_design))


# ---------------------------------------------------------------- every shape


@pytest.mark.mostly_slow(quick_every=14)
@pytest.mark.parametrize(
    "choices",
    [
        {"dim": 1},
        {"dim": 2},
        {"dim": 20},
        {"n_clusters": 1},
        {"dim": 1, "n_clusters": 1},
        {"n_components": 12, "n_clusters": 12},
        {"domain": ps.Ball(dim=3, radius=5.0, center=[1.0, 0.0, -1.0])},
        {"domain": ps.Box([-3, -3e-9, 0], [3, 3e9, 5])},
        {"delta": 0.0},
        {"feature_map": "one-bit"},
        {"count": "omitted"},
        {"n_records": 0},
        {"columns": ["Größe", "身長", "a" * 100]},
    ],
    ids=lambda choices: str(choices)[:50],
)
def test_a_report_of_every_shape_can_be_made(make_design, choices):
    model, sketch = study(make_design, **choices)
    text = Page(page_of(model, sketch)).text
    assert f"{model.n_clusters} cluster" in text


@pytest.mark.slow
def test_a_wide_table_is_cut_and_says_so(make_design):
    text = Page(page_of(*study(make_design, dim=60))).text
    assert "shows the 20 columns in which centers differ most. The model file has 40 more." in text


@pytest.mark.mostly_slow(quick_every=8)
@pytest.mark.parametrize("name", ["$", "$x$", "$a_$", r"$\frac{$", "cost_$_of_$", "a&b", '"', "%s"])
def test_column_names_are_not_formulas(make_design, name):
    page = page_of(*study(make_design, columns=[name, "b", "c"]))
    table, plots = page.split("<svg", 1)
    assert f'<th scope="col">{escape(name)} <small>' in table
    assert f">{html.escape(name, quote=False)}</text>" in plots


def test_without_matplotlib_the_page_has_no_plots(example, monkeypatch):
    seams.set(monkeypatch, "html.find_spec", lambda name: None)
    page = page_of(*example)
    assert "<svg" not in page
    assert "Plots need matplotlib" in page
    assert "epsilon = 1, delta = 1e-06" in Page(page).text


def test_with_matplotlib_the_page_has_plots(page):
    pytest.importorskip("matplotlib")
    assert page.count("<svg") == 3 + 2  # pairs of columns, and the fit


def test_the_report_leaves_matplotlib_as_it_was(example):
    matplotlib = pytest.importorskip("matplotlib")
    before = dict(matplotlib.rcParams)
    page_of(*example)
    assert {k: v for k, v in matplotlib.rcParams.items() if k != "backend"} == {
        k: v for k, v in before.items() if k != "backend"
    }


# ---------------------------------------------------------------- names are not believed


@pytest.mark.mostly_slow(quick_every=4)
@pytest.mark.parametrize(
    "attack", [ATTACK, '"><img src=x onerror=alert(1)>', "</style><b>", "&lt;"]
)
def test_a_malicious_title_is_escaped(example, page, attack):
    attacked = page_of(*example, title=attack)
    assert attack in Page(attacked).text
    assert Page(attacked).tags == Page(page).tags


@pytest.mark.slow
def test_a_malicious_column_name_is_escaped(make_design):
    attacked = page_of(*study(make_design, columns=[ATTACK, "b", "c"]))
    plain = page_of(*study(make_design, columns=["a", "b", "c"]))
    assert "<script" not in attacked
    assert ATTACK in Page(attacked).text
    assert set(Page(attacked).tags) == set(Page(plain).tags)


@pytest.mark.slow
@pytest.mark.mostly_slow(quick_every=2)
@pytest.mark.parametrize("sources", [(ATTACK,), (ATTACK, "south")])
def test_a_malicious_source_is_escaped(make_design, sources):
    attacked = page_of(*study(make_design, sources=sources))
    assert "<script" not in attacked
    assert ATTACK in Page(attacked).text


def test_a_malicious_receipt_is_escaped(example):
    model, sketch = example
    words = dict.fromkeys(("mechanism", "norm", "calibration", "sampler", "source"), ATTACK)
    attacked = page_of(replace(model, receipt=replace(model.receipt, **words)), sketch)
    assert "<script" not in attacked


NAMES = iter(range(10**6))


def hostile():
    """A name that would run a script, unlike all others."""
    return f"<script>alert({next(NAMES)})</script>\"'&"


def assert_harmless(page, names):
    """All names are there as text, and made no element and no attribute."""
    read = Page(page)
    assert "script" not in read.tags
    assert all(not name.startswith("on") for _, attrs in read.elements for name in attrs)
    shown = html.unescape(page)
    assert all(name in shown for name in names)


def test_a_hostile_name_in_every_place_of_a_report_is_text(monkeypatch):
    seams.set(monkeypatch, "html.find_spec", lambda name: None)  # plots shorten names
    column, label, other, flag, unit, person, title = (hostile() for _ in range(7))
    schema = ps.Schema(
        [ps.Number(column, 0, 1, unit=unit), ps.Category(other, [label, "b"]), ps.Flag(flag)],
        person=person,
    )
    texts = ("mechanism", "norm", "calibration", "sampler", "source", "assumption", "unit")
    words = {name: hostile() for name in texts}
    receipt = ps.Receipt(
        epsilon=1.0, delta=0.0, neighbours="add-remove", sensitivity=1.0, scale=1.0, **words
    )
    said = {name: hostile() for name in ("method", "reason")}
    model = ps.ClusterModel(
        centers=np.array([[-0.9, 0.7, 0.0, 0.0, 0.4], [0.9, 0.0, 0.7, 0.0, -0.4]]),
        weights=np.array([0.4, 0.6]),
        n_records=100.0,
        receipt=receipt,
        columns=schema.coordinates,
        schema=schema,
        concerns=(concern := hostile(),),
        **said,
    )
    names = (column, label, other, flag, unit, person, title, concern)
    assert_harmless(page_of(model, title=title), [*names, *words.values(), *said.values()])


def test_a_hostile_name_in_every_place_of_a_comparison_is_text(make_design):
    source, column, unit, note, alarm = (hostile() for _ in range(5))
    change = ColumnChange(column, 2.0, 0.0, unit)
    odd = SourceComparison(
        source, 9.0, True, 0.5, 3.0, 0.9, (column,), (change,), (f"{alarm} {unit}",)
    )
    shares = ClusterShares(np.zeros((1, 3)), np.ones((2, 1)), np.ones((2, 1)), ((0, 0),))
    design = make_design(columns=[column, "b", "c"])
    like = replace(odd, changes=(), alarms=())
    page = comparison_page(Comparison(design, (odd, like), shares, (note,)))
    assert_harmless(page, [source, column, unit, note, alarm])


def test_a_hostile_name_in_every_place_of_a_ledger_is_text(tmp_path):
    name, data_set, note, what, output, accounting = (hostile() for _ in range(6))
    ledger = ps.Ledger.create(tmp_path / "a.ledger")
    ledger.add("visits", epsilon=1)
    ledger.reserve("visits", Cost(0.1), what="x")
    page = spending_page(
        name,
        accounting,
        [replace(found, name=data_set, note=note) for found in ledger.datasets()],
        [replace(entry, data_set=data_set, what=what, output=output) for entry in ledger.entries()],
    )
    assert_harmless(page, [name, data_set, note, what, output, accounting])


# ---------------------------------------------------------------- refusals


def test_a_model_of_another_design_is_refused(example, make_design):
    _, other = study(make_design, random_state=8)
    with pytest.raises(ps.PrivsketchError, match="another design"):
        page_of(example[0], other)


def test_a_refused_report_leaves_no_file(example, make_design, tmp_path):
    _, other = study(make_design, random_state=8)
    with pytest.raises(ps.PrivsketchError):
        save_report(example[0], other, tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.mostly_slow(quick_every=12)
@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
@pytest.mark.parametrize("dim", [1, 2, 4])
def test_a_mixture_has_a_report_too(covariance_type, dim):
    rng = np.random.default_rng(1)
    records = rng.choice([-2.0, 2.0], size=(5000, 1)) + 0.5 * rng.normal(size=(5000, dim))
    design = ps.Design.plan(
        task="gaussian-mixture",
        n_components=2,
        domain=ps.Box(-5, 5, dim=dim),
        budget=ps.Budget(1.0, 1e-6),
        random_state=3,
    )
    sketch = ps.sketch(records, design)
    model = ps.learn_gaussian_mixture(sketch, 2, covariance_type=covariance_type)
    text = Page(page_of(model, sketch)).text
    assert "Private Gaussian mixture" in text
    assert "2 components" in text.replace("\n", " ") or "components" in text
    assert "±" in text
    assert "cluster" not in text.split("What it cost")[0]


def test_ellipses_have_the_axes_of_the_covariance():
    from privsketch.models import ellipse_of

    angle = np.radians(30)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    axes, degrees = ellipse_of(turn @ np.diag([1.0, 9.0]) @ turn.T)
    np.testing.assert_allclose(axes, [2.0, 6.0])
    assert degrees % 180 == pytest.approx(30)


def test_a_model_of_no_known_kind_has_no_report(example):
    with pytest.raises(ps.PrivsketchError, match="expected a model"):
        page_of(example[1], example[1])
