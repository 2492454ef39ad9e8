"""Centers without a sketch: their file, what they say of rows, and their report."""

import json
import re
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import privsketch as ps
from privsketch import ClusterModel, Receipt
from privsketch._base import fingerprint
from privsketch.clustering import cluster_with
from privsketch.noise import Account, Shares
from privsketch.pages import report_page, save_report
from tests import seams
from tests.html_page import Page

pytestmark = pytest.mark.usefixtures("fixed_noise")
ATTACK = "<script>alert(1)</script>"
SHARES = {"start": Fraction(1, 4), "radius 0": Fraction(1, 8), "round 0": Fraction(5, 8)}


def spent_receipt(delta=1e-6, source="north"):
    """A receipt of three steps that share a budget."""
    account = Account(Shares(ps.Budget(1.0, delta), SHARES))
    for name in SHARES:
        if delta > 0:
            account.gaussian(name, np.zeros(3, dtype=np.int64), 1)
        else:
            account.laplace(name, np.zeros(3, dtype=np.int64), 1)
    return account.receipt("k-means: three steps", source)


def some_model(n_clusters=3, dim=2, seed=0, **changes):
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(n_clusters))
    fields = {
        "centers": rng.uniform(-1, 1, (n_clusters, dim)),
        "weights": weights,
        "n_records": 1234.5,
        "receipt": spent_receipt(),
        "method": "pipeline",
        "reason": "many columns",
        "columns": tuple(f"c{j}" for j in range(dim)),
        "domain": ps.Box(-1, 1, dim=dim),
        "concerns": ("a cluster is small",),
    }
    return ClusterModel(**{**fields, **changes})


# ---------------------------------------------------------------- the file


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"columns": None, "domain": None, "concerns": (), "reason": ""},
        {"domain": ps.Ball(dim=2, radius=3.0, center=[0.25, 1.0])},
        {"loss": "distances"},
        {"n_records": 7},
        {"columns": ("Größe", '"quoted"\n')},
    ],
    ids=lambda changes: str(changes)[:40],
)
def test_a_model_is_what_was_saved(tmp_path, changes):
    model = some_model(**changes)
    model.save(tmp_path / "model.json")
    found = ClusterModel.load(tmp_path / "model.json")
    for name in ClusterModel.field_names():
        np.testing.assert_array_equal(getattr(found, name), getattr(model, name), err_msg=name)
    found.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "model.json").read_bytes()


@pytest.fixture
def saved(tmp_path):
    some_model().save(tmp_path / "model.json")
    return tmp_path / "model.json"


def altered(path, **changes):
    """The file with other fields, and a fingerprint that fits them."""
    whole = json.loads(path.read_text())
    content = {k: v for k, v in whole.items() if k not in ("format", "version", "fingerprint")}
    content.update(changes)
    whole.update(content, fingerprint=fingerprint(content))
    path.write_text(json.dumps(whole))
    return path


BAD_FIELDS = {
    "no center": {"centers": [], "weights": []},
    "no column": {"centers": [[], [], []]},
    "centers of one dimension": {"centers": [1.0, 2.0, 3.0]},
    "centers of different lengths": {"centers": [[1.0, 2.0], [1.0], [0.0, 0.0]]},
    "a center that is text": {"centers": [["a", "b"]] * 3},
    "a center that is missing": {"centers": [[None, 1.0]] * 3},
    "a weight too few": {"weights": [0.5, 0.5]},
    "weights that are one number": {"weights": 1.0},
    "records as text": {"n_records": "many"},
    "records below 0": {"n_records": -1.0},
    "no receipt": {"receipt": None},
    "no method": {"method": None},
    "a reason that is a number": {"reason": 1},
    "another loss": {"loss": "cubes"},
    "a loss that is a list": {"loss": ["squares"]},
    "a column too many": {"columns": ["a", "b", "c"]},
    "columns that are numbers": {"columns": [1, 2]},
    "a domain of other columns": {"domain": {"kind": "box", "low": 0.0, "high": 1.0, "dim": 3}},
    "a domain of no kind": {"domain": {"kind": "star", "low": 0.0, "high": 1.0, "dim": 2}},
    "a domain that is text": {"domain": "box"},
    "concerns that are text": {"concerns": "none"},
    "a field too many": {"labels": [0, 1]},
}


@pytest.mark.parametrize("changes", BAD_FIELDS.values(), ids=BAD_FIELDS)
def test_a_damaged_file_is_refused(saved, changes):
    with pytest.raises(ps.PrivsketchError, match=r"model\.json"):
        ClusterModel.load(altered(saved, **changes))


def test_the_altered_file_would_be_read_if_it_were_right(saved):
    assert ClusterModel.load(altered(saved, n_records=3.0)).n_records == 3.0


@pytest.mark.parametrize("place", [0, 40, 400, -3])
def test_a_flipped_byte_is_seen(saved, place):
    data = bytearray(saved.read_bytes())
    data[place] ^= 1
    saved.write_bytes(bytes(data))
    with pytest.raises(ps.PrivsketchError, match=r"model\.json"):
        ClusterModel.load(saved)


def test_a_cut_file_a_newer_one_and_one_of_another_kind_are_refused(saved, tmp_path):
    text = saved.read_text()
    for name, changed, words in (
        ("cut", text[: len(text) // 2], "JSON"),
        ("newer", text.replace('"version": 2', '"version": 3'), "newer"),
        ("other", text.replace("cluster-model", "pca-model"), "cluster-model"),
    ):
        (tmp_path / name).write_text(changed)
        with pytest.raises(ps.PrivsketchError, match=words):
            ClusterModel.load(tmp_path / name)


# ---------------------------------------------------------------- what it says


def test_rows_belong_to_the_nearest_center():
    model = some_model(n_clusters=7, dim=5)
    rows = np.random.default_rng(1).normal(size=(400, 5))
    squares = ((rows[:, np.newaxis] - model.centers) ** 2).sum(axis=2)
    np.testing.assert_array_equal(model.predict(rows), squares.argmin(axis=1))


@pytest.mark.parametrize(
    "rows", [np.zeros((3, 4)), np.zeros(2), [[np.nan, 0.125]], [["0.125", "x"]]], ids=str
)
def test_rows_that_do_not_fit_are_refused_without_being_quoted(rows):
    with pytest.raises(ps.PrivsketchError) as caught:
        some_model().predict(rows)
    assert "0.125" not in str(caught.value)


def test_the_description_says_method_reason_domain_and_cost():
    text = some_model().describe()
    assert "k-means     3 clusters of about 1234 records" in text
    assert "k-means     1 cluster of about" in some_model(1).describe()
    assert "method      pipeline, because many columns" in text
    assert "domain      box" in text
    assert "careful     a cluster is small" in text
    assert "epsilon = 1, delta = 1e-06" in text
    assert "k-medians" in some_model(loss="distances").describe()


# ---------------------------------------------------------------- the report


SHAPES = [(1, 1), (4, 1), (1, 2), (2, 2), (2, 3), (3, 12), (13, 3), (60, 4), (10, 784)]


@pytest.mark.mostly_slow(quick_every=14)
@pytest.mark.parametrize(
    ("n_clusters", "dim", "kind"),
    [
        *((*shape, "box") for shape in SHAPES),
        *((*shape, kind) for shape in ((5, 2), (3, 13)) for kind in ("ball", "none")),
    ],
)
def test_a_report_of_every_shape_can_be_made(n_clusters, dim, kind):
    domains = {"box": ps.Box(-1, 1, dim=dim), "ball": ps.Ball(dim=dim, radius=9.0), "none": None}
    page = report_page(some_model(n_clusters, dim, domain=domains[kind]))
    assert f"{n_clusters} cluster" in Page(page).text
    assert "nan" not in Page(page).text.lower().split()
    assert len(page) < 2e6


def test_centers_that_coincide_and_weights_of_nothing_can_be_shown():
    for dim in (2, 20):
        model = some_model(4, dim, centers=np.zeros((4, dim)), weights=np.zeros(4), n_records=1.0)
        assert "4 clusters" in Page(report_page(model)).text


def test_the_page_loads_nothing_and_is_the_same_twice(tmp_path):
    model = some_model()
    page = report_page(model)
    links = set(re.findall(r"""https?://[^\s"'<>]*""", page))
    assert links <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert not re.search(r"@import|url\((?!#)", page)
    assert set(Page(page).tags).isdisjoint({"script", "link", "iframe", "img", "object", "embed"})
    save_report(model, None, tmp_path / "report.html", title="Größe")
    saved = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert saved == report_page(model, title="Größe")
    assert "<h1>Größe</h1>" in saved


def test_the_page_states_cost_method_reason_and_what_is_public():
    text = Page(report_page(some_model())).text
    for words in (
        "epsilon, with delta = 1e-06",
        "protects one record",
        "whether any one record was in a table or not",
        "many columns",
        "k-means: three steps",
        "bounds of the records",
        "a cluster is small",
    ):
        assert words in text


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_shares_of_the_page_are_those_that_were_paid(delta):
    text = Page(report_page(some_model(receipt=spent_receipt(delta)))).text
    for name, share in SHARES.items():
        assert f"{name} {float(share):.1%} discrete" in text
    assert ("Shares of rho" if delta else "Shares of epsilon") in text


def test_a_receipt_without_parts_is_one_step():
    receipt = Receipt("grid: noisy counts", 0.5, 0.0, "replace")
    text = Page(report_page(some_model(receipt=receipt))).text
    assert "grid 100.0% noisy counts" in text
    assert "what any one record said" in text


@pytest.mark.slow
def test_names_are_not_believed():
    plain = Page(report_page(some_model()))
    attacked = report_page(
        some_model(
            columns=(ATTACK, "b"),
            method=ATTACK,
            reason=ATTACK,
            concerns=(ATTACK,),
            receipt=replace(spent_receipt(source=ATTACK), mechanism=ATTACK),
        ),
        title=ATTACK,
    )
    assert "<script" not in attacked
    assert Page(attacked).tags == plain.tags
    assert Page(attacked).text.count(ATTACK) >= 6


def test_of_many_columns_those_are_shown_in_which_centers_differ():
    centers = np.zeros((2, 300))
    centers[1, 7::15] = 0.5
    text = Page(report_page(some_model(2, 300, centers=centers))).text
    shown = re.findall(r"\b(c\d+) -1 to 1", text)
    assert shown == [f"c{j}" for j in range(7, 300, 15)]


def test_without_matplotlib_the_page_has_no_plots(monkeypatch):
    seams.set(monkeypatch, "html.find_spec", lambda name: None)
    page = report_page(some_model())
    assert "<svg" not in page
    assert "Plots need matplotlib" in page


def test_a_sketch_goes_with_models_of_sketches_only(make_design):
    released = ps.sketch(np.zeros((100, 3)), make_design(), source="north")
    with pytest.raises(ps.PrivsketchError, match="not learned from a sketch"):
        report_page(some_model(), released)
    page = report_page(ps.learn_kmeans(released, 1, n_init=1))
    assert "The sketch was not at hand" in page


@pytest.mark.slow
def test_a_number_of_records_is_called_what_it_is(tmp_path):
    options = {"domain": ps.Box(-1, 1, dim=2), "random_state": 0}
    table = np.zeros((60, 2))
    for method in ("sample-aggregate", "k-variates"):
        for neighbours, n_records, words in (
            ("add-remove", 500, "as stated"),
            ("add-remove", None, "noisy"),
            ("replace", None, "public"),
        ):
            budget = ps.Budget(1.0, 1e-6, neighbours)
            model = cluster_with(method, table, 2, budget=budget, n_records=n_records, **options)
            assert f"records ({words})" in report_page(model, None)
            model.save(tmp_path / "model.json")
            assert ClusterModel.load(tmp_path / "model.json").count == model.count
    model = cluster_with("lloyd", table, 2, budget=ps.Budget(1.0, 1e-6), n_records=500, **options)
    assert "records (noisy)" in report_page(model, None)
