"""Reports of tables with a schema: units and nothing else, on any screen, and no name believed."""

import re
from dataclasses import replace
from datetime import date

import numpy as np
import pytest

import privsketch as ps
from privsketch import Box
from privsketch.facts import digits, field_errors, field_values, step_text
from privsketch.pages import (
    MAX_PART_COLUMNS,
    PAGE_VERSION,
    Parts,
    center_rows,
    field_text,
    report_page,
    share_text,
    tables_of,
    width_rows,
)
from tests.chance import fixed_noise
from tests.html_page import Page

pytestmark = pytest.mark.usefixtures("fixed_noise")
ATTACK = "<script>alert(1)</script>"
KINDS = ("k-means", "mixture", "components", "lloyd")


def schema_of(name="age", label="north", unit="years"):
    return ps.Schema(
        [
            ps.Number(name, 18, 100, unit=unit),
            ps.Number("income", 1000, 100_000, scale="log"),
            ps.Category("region", [label, "south"]),
            ps.Flag("smoker"),
            ps.Date("admitted", "2020-01-01", "2025-12-31"),
            ps.Cycle("hour", 24),
        ],
        missing="drop",
        person="patient_id",
    )


def table(schema, n_records=600):
    rng = np.random.default_rng(0)
    group = rng.integers(0, 2, n_records)
    first, other = schema.columns[2].labels[:2]
    values = {
        "patient_id": np.arange(n_records),
        schema.names[0]: np.array([30.0, 75.0])[group] + rng.normal(size=n_records),
        "income": np.array([3000.0, 50_000.0])[group],
        "region": np.array([first, other], dtype=object)[group],
        "smoker": rng.random(n_records) < np.array([0.9, 0.2])[group],
        "admitted": np.datetime64("2021-06-01") + 900 * group,
        "hour": np.array([4.0, 15.0])[group],
    }
    import pandas as pd

    return pd.DataFrame(values)


def study(kind, schema):
    """A model of one kind, and its sketch if it has one."""
    records = table(schema)
    budget = ps.Budget(20.0, 1e-6)
    if kind == "lloyd":
        options = {"epsilon": 20.0, "delta": 1e-6, "domain": schema, "n_records": 600}
        return ps.PrivateKMeans(2, method="lloyd", **options).fit(records).model_, None
    task = "pca" if kind == "components" else "kmeans"
    design = ps.Design.plan(
        task=task, n_components=2, domain=schema, budget=budget, n_records=600, random_state=1
    )
    sketch = ps.sketch(records, design, source="north")
    if kind == "components":
        return ps.learn_pca(sketch, 2), sketch
    if kind == "mixture":
        return ps.learn_gaussian_mixture(sketch, 2, covariance_type="diag", n_init=1), sketch
    return ps.learn_kmeans(sketch, 2, n_init=1), sketch


@pytest.fixture(scope="module")
def studies():
    with fixed_noise():
        return {kind: study(kind, schema_of()) for kind in KINDS}


@pytest.fixture(scope="module")
def pages(studies):
    return {kind: report_page(*found) for kind, found in studies.items()}


# ---------------------------------------------------------------- what every page tells


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_unit_relation_budget_and_missing_values_are_told(pages, kind):
    text = Page(pages[kind]).text
    for words in (
        "one person (patient_id)",
        "neighbours add-remove (hides whether a person is there)",
        "epsilon = 20, delta = 1e-06",
        "whether any one person was in a table or not",
        "all rows of a person lie at one holder",
        "Missing values of any column: such records were left out",
        "one record of each counts",
    ):
        assert words in text
    assert "any one record" not in text


@pytest.mark.parametrize("kind", KINDS)
def test_date_and_versions_are_told(studies, kind):
    text = Page(report_page(*studies[kind], day=date(2026, 1, 31))).text
    told = f"Page of 2026-01-31 , version {PAGE_VERSION}, by privsketch {ps.__version__}"
    assert told in text


@pytest.mark.parametrize("kind", KINDS)
def test_bounds_are_told_in_units(pages, kind):
    text = Page(pages[kind]).text
    for words in ("18 to 100 years", "2020-01-01 to 2025-12-31", "share of yes"):
        assert words in text


# ---------------------------------------------------------------- units and nothing else


@pytest.mark.parametrize("kind", ["k-means", "mixture", "lloyd"])
def test_no_coordinate_is_shown(studies, pages, kind):
    """Nothing of the table is negative, and nothing but shares, hours and errors is below 1."""
    model, _ = studies[kind]
    text = Page(pages[kind]).text.split("Does the model explain")[0].split("What it cost")[0]
    assert not re.search(r"[-−]\d*\.\d", text)
    centers = model.centers if hasattr(model, "centers") else model.means
    numbers = set(re.findall(r"[\d.]+", text))
    for coordinate in centers[:, :2].ravel():
        assert f"{abs(coordinate):.4f}" not in numbers


@pytest.mark.parametrize("kind", ["k-means", "mixture", "lloyd"])
def test_values_are_those_of_the_table(studies, pages, kind):
    model, _ = studies[kind]
    text = Page(pages[kind]).text
    centers = model.centers if hasattr(model, "centers") else model.means
    errors = model.standard_errors
    if errors is not None:
        errors = field_errors(model.schema, centers, errors)
    for k, row in enumerate(field_values(model.schema, centers)):
        for field, column in ((0, 0), (5, 3), (6, 4)):
            error = None if errors is None else errors[k, field]
            told = " ".join(field_text(model.schema.columns[column], row[field], error)).strip()
            assert told in text


def test_planted_clusters_are_found_in_words(pages):
    words = re.findall(r"<li>.*?<b>(.*?)</b></li>", pages["k-means"])
    assert len(words) == 2
    young, old = sorted(words, key=lambda text: "oldest" in text)
    assert "youngest" in young
    assert "mostly north" in young or "lowest income" in young
    assert "oldest" in old


def test_components_are_told_as_steps_in_units(studies, pages):
    text = Page(pages["components"]).text
    model = studies["components"][0]
    assert f"{model.explained_variance[0]:.4g}" not in text
    assert f"{model.total_variance:.4g}" not in text
    assert f"{model.explained_variance_ratio[0]:.1%} ±" in text
    age = float(model.loadings()[1][0, 0])
    assert step_text(model.schema.columns[0], age) in text
    assert re.search(r"[+−][\d.]+ (days|years)", text)


# ---------------------------------------------------------------- cells


def parts(schema, centers, errors=None, widths=None):
    centers = np.array(centers, dtype=float)
    weights = np.full(len(centers), 1 / len(centers))
    return Parts("cluster", centers, weights, errors, widths, (), schema.box, schema)


def test_places_are_between_the_public_bounds_whatever_the_centers_are():
    schema = ps.Schema([ps.Number("age", 18, 100, weight=3.0), ps.Flag("smoker")])
    rows, hidden = center_rows(parts(schema, [[0.0, 0.25], [0.03, -0.5]]))
    assert hidden == 0
    assert [cell.position for cell in rows[0].cells] == pytest.approx([0.5, 0.505])
    assert [cell.text for cell in rows[0].cells] == ["59.0", "59.4"]
    assert [cell.position for cell in rows[1].cells] == pytest.approx([0.75, 0.0])


def test_logarithmic_columns_are_placed_by_ratios():
    schema = ps.Schema([ps.Number("income", 100, 10_000, scale="log")])
    cell = center_rows(parts(schema, [[0.0]]))[0][0].cells[0]
    assert (cell.text, cell.position) == ("1,000", pytest.approx(0.5))


def test_categories_are_bars_of_all_labels_and_many_are_summed_up():
    labels = [f"v{i}" for i in range(12)]
    schema = ps.Schema([ps.Category("ward", labels)])
    shares = np.zeros(13)
    shares[:12] = np.arange(12, 0, -1) / 78
    rows, _ = center_rows(parts(schema, [shares * schema.columns[0].corner]))
    assert [row.name for row in rows] == [*labels[:8], "5 further values"]
    assert all(row.is_share and row.category == "ward" for row in rows)
    assert sum(row.cells[0].position for row in rows) == pytest.approx(1.0)
    assert rows[0].cells[0].text == "15 %"


@pytest.mark.parametrize(
    ("days", "told"),
    [
        (None, ("2022-03-05", "")),
        (3.0, ("2022-03-05", "± 3.0 days")),
        (40.0, ("2022-03", "± 40 days")),
        (300.0, ("2022", "± 300 days")),
        (800.0, ("2022", "± 2.2 years")),
    ],
)
def test_dates_are_told_as_far_as_they_are_known(days, told):
    column = ps.Date("admitted", "2020-01-01", "2025-12-31")
    assert field_text(column, column.value_of("2022-03-05"), days) == told


def test_digits_end_where_errors_begin():
    assert field_text(ps.Number("age", 0, 100), 47.4683, 0.91) == ("47.47", "± 0.91")
    assert field_text(ps.Number("income", 0, 1e6), 58_373.7, 2710.8) == ("58,400", "± 2,700")
    assert share_text(0.6099, 0.04) == ("61 %", "± 4")
    assert share_text(0.0623, 0.004) == ("6.2 %", "± 0.4")


def test_numbers_have_no_powers_of_ten_and_no_minus_before_zero():
    assert [digits(value) for value in (0, 30.5, 40_221.4, 1_234_567.8, -5.55555)] == [
        "0",
        "30.50",
        "40,220",
        "1,235,000",
        "-5.556",
    ]
    assert digits(-0.001, 0.5) == "0.00"
    assert digits(-3.0, 700.0) == "0"


def test_a_cycle_that_is_not_known_is_all_around():
    schema = ps.Schema([ps.Cycle("hour", 24)])
    errors = np.full((2, 2), 0.2)
    rows, _ = center_rows(parts(schema, [[0.0, 0.001], [0.0, 0.5]], errors))
    assert [cell.text for cell in rows[0].cells] == ["all around", "6.0"]


def test_spread_is_in_units_and_of_columns_that_have_one():
    schema = schema_of()
    centers = np.zeros((1, schema.dim))
    centers[0, -2] = 0.5
    rows = width_rows(parts(schema, centers, widths=np.full((1, schema.dim), 0.1)))
    assert [row.name for row in rows] == ["age", "income", "admitted", "hour"]
    assert rows[0].cells[0].text == "4.1"
    assert rows[2].cells[0].text == "110 days"


# ---------------------------------------------------------------- it fits


def test_a_wide_table_is_turned_and_a_small_one_is_not():
    small = ps.Schema([ps.Number("a", 0, 1), ps.Number("b", 0, 1)])
    wide = ps.Schema([ps.Number(f"c{j}", 0, 1) for j in range(20)])
    upright = tables_of(parts(small, np.zeros((3, 2)))).centers
    turned = tables_of(parts(wide, np.zeros((3, 20)))).centers
    assert len(upright.rows) == 3
    assert len(turned.rows) == 20 + 2  # with shares and nearest others
    assert not turned.is_folding


def test_more_clusters_than_fit_are_folded():
    wide = ps.Schema([ps.Number(f"c{j}", 0, 1) for j in range(20)])
    table = tables_of(parts(wide, np.zeros((MAX_PART_COLUMNS + 1, 20)))).centers
    assert table.is_folding
    assert table.classes == "parts folding"


@pytest.mark.parametrize("kind", KINDS)
def test_every_cell_says_what_it_is_where_there_is_no_head(pages, kind):
    """On a phone the head of a table is hidden: cells carry its words."""
    for cells in re.findall(r'<table class="[^"]*parts.*?</table>', pages[kind], re.DOTALL):
        body = cells.split("<tbody>")[1]
        assert body.count("<td") == body.count("<td data-k=")


@pytest.mark.parametrize("kind", KINDS)
def test_pages_are_for_every_screen_paper_and_ear(pages, kind):
    page = pages[kind]
    for words in ("prefers-color-scheme:dark", "@media print", "max-width:640px", "viewport"):
        assert words in page
    for tag, attrs in Page(page).elements:
        if tag == "th":
            assert attrs.get("scope") in ("row", "col", "rowgroup")
        if tag == "svg":
            assert attrs["role"] == "img"
            assert attrs["aria-label"]
    # Plots follow the page into the dark, with all of their text.
    assert "#24292f" not in page.split("</style>", 1)[1]
    for style in re.findall(r'<text style="([^"]*)"', page):
        assert "fill: var(--ink)" in style
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("kind", KINDS)
def test_steps_of_the_budget_are_folded(pages, kind):
    cost = pages[kind].split("What it cost")[1]
    assert cost.index("<details>") < cost.index("<table")


# ---------------------------------------------------------------- names are not believed


@pytest.mark.parametrize("kind", KINDS)
def test_names_values_and_units_are_escaped(studies, kind):
    model, sketch = studies[kind]
    attacked = schema_of(ATTACK, f"{ATTACK}2", f"{ATTACK}3")
    columns = attacked.coordinates
    page = report_page(replace(model, schema=attacked, columns=columns), sketch, title=ATTACK)
    assert "<script" not in page
    text = Page(page).text
    for name in (ATTACK, f"{ATTACK}2", f"{ATTACK}3"):
        assert name in text


def test_distances_are_explained_with_a_schema_only(pages):
    assert "the whole range of a number is 2" in pages["k-means"]
    plain = Parts(
        "cluster", np.zeros((2, 2)), np.ones(2) / 2, None, None, ["a", "b"], Box(-1, 1, dim=2), None
    )
    assert "whole range" not in " ".join(tables_of(plain).legend)
