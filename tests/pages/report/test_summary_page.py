"""The page of a summary: the first table of a study, in an HTML file."""

import numpy as np
import pytest

import privsketch as ps
from tests.chance import fixed_noise
from tests.html_page import Page

pd = pytest.importorskip("pandas")
SCHEMA = ps.Schema(
    [
        ps.Number("age", 0, 120, unit="years"),
        ps.Number("crp", 0.1, 500, scale="log"),
        ps.Category("ward", ["north", "<b>south</b>"]),
        ps.Flag("smoker"),
    ]
)


def page_of(tmp_path, n_records=20_000, by="ward"):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "age": rng.normal(55, 12, n_records),
            "crp": np.exp(rng.normal(1, 1, n_records)),
            "ward": rng.choice(["north", "<b>south</b>"], n_records),
            "smoker": rng.random(n_records) < 0.25,
        }
    )
    design = ps.Design.plan(
        task="regression",
        domain=SCHEMA,
        budget=ps.Budget(epsilon=1.0, delta=1e-6),
        n_records=20_000,
        random_state=0,
    )
    with fixed_noise():
        sketch = ps.sketch(table, design)
    page = ps.report(ps.learn_summary(sketch, by=by), tmp_path / "page.html", sketch=sketch)
    return page.read_text(encoding="utf-8")


def test_the_page_has_groups_and_says_what_it_cannot(tmp_path):
    page = page_of(tmp_path)
    text = Page(page).text
    for words in ("age years", "crp geometric mean", "drowned in noise", "third moments"):
        assert words in text
    assert " %" in page
    assert "&lt;b&gt;south" in page
    assert "<b>south" not in page


def test_without_groups_there_is_nothing_about_them(tmp_path):
    page = page_of(tmp_path, by=None)
    assert "third moments" not in page
    assert "all records" in page


def test_a_handful_of_records_has_a_page_too(tmp_path):
    page = page_of(tmp_path, n_records=3)
    assert page.count("drowned in noise") > 10
