"""Principal components of real sketches: what models say, their files and their pages."""

import json
from dataclasses import replace

import numpy as np
import pytest

import privsketch as ps
from privsketch import PCAModel, learn_pca
from privsketch._base import document
from privsketch.learning import TOO_FEW, problem_of_pca
from privsketch.pages import report_page, save_report
from tests import seams
from tests.chance import exact_answers, fixed_noise
from tests.oracles import missed_variance

pytestmark = pytest.mark.usefixtures("fixed_noise")
NAMES = ["age", "<script>alert(1)</script>", "bmi", "x$y$", "e", "f"]
SPREAD = np.array([0.5, 0.3, 0.03, 0.03, 0.03, 0.03])
CENTER = 0.2


def plan(**choices):
    settings = {
        "task": "pca",
        "n_components": 2,
        "domain": ps.Ball(dim=6, radius=2.5, center=0.0),
        "budget": ps.Budget(1.0, 1e-6),
        "n_records": 30_000,
        "random_state": 3,
    }
    return ps.Design.plan(**{**settings, **choices})


@pytest.fixture(scope="module")
def records():
    rng = np.random.default_rng(0)
    axes = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    return (rng.normal(size=(30_000, 6)) * SPREAD) @ axes.T + CENTER


@pytest.fixture(scope="module")
def example(records):
    with fixed_noise():
        sketch = ps.sketch(records, plan(columns=NAMES, mean="released"), source="north")
    return learn_pca(sketch), sketch


def exact_sketch(records, **choices):
    with exact_answers():
        return ps.sketch(records, plan(**choices))


def about(records, center):
    return (records - center).T @ (records - center) / len(records)


@pytest.mark.parametrize("feature_map", ["second-moments", "quadratic"])
@pytest.mark.parametrize("mean", [None, "released"])
def test_a_problem_is_the_sums_of_the_records(records, feature_map, mean):
    domain = ps.Ball(dim=6, radius=2.5, center=0.1)
    sketch = exact_sketch(records, feature_map=feature_map, mean=mean, domain=domain)
    problem = problem_of_pca(sketch)
    inside = domain.project(records) - 0.1
    sums = inside.T @ inside
    if feature_map == "quadratic":
        expected = np.einsum("jk,jk->j", problem.vectors @ sums, problem.vectors)
        found = problem.values
    else:
        expected, found = sums, problem.matrix
    # Records have 9 bits here, or 15 with features of 21.
    assert np.allclose(found, expected, rtol=2e-3, atol=3e-4 * np.trace(sums))
    assert (problem.mean is None) == (mean is None)
    if mean is not None:
        assert np.allclose(problem.mean / len(records), inside.mean(axis=0), atol=1e-4)
    assert problem.n_records == pytest.approx(30_000)
    assert problem.radius == 2.5


@pytest.mark.slow
@pytest.mark.parametrize("feature_map", ["second-moments", "quadratic"])
def test_noise_variances_are_those_of_the_release(feature_map):
    # An empty table: what is released is noise. False alarms below 1e-6 for 5 deviations.
    choices = {"feature_map": feature_map, "n_features": None, "mean": "released"}
    if feature_map == "quadratic":
        choices["n_features"] = 60
    domain = ps.Ball(dim=6, radius=0.7)
    design = plan(domain=domain, **choices)
    sketches = [ps.sketch(np.zeros((0, 6)), design) for _ in range(700)]
    problems = [problem_of_pca(sketch) for sketch in sketches]
    first = problems[0]
    if feature_map == "quadratic":
        samples = [(np.ravel([p.values for p in problems]), first.noise_variance)]
    else:
        rows, columns = np.triu_indices(6, 1)
        samples = [
            (np.ravel([np.diag(p.matrix) for p in problems]), first.diagonal_variance),
            (np.ravel([p.matrix[rows, columns] for p in problems]), first.off_diagonal_variance),
        ]
    samples.append((np.ravel([p.mean for p in problems]), first.mean_variance))
    for values, variance in samples:
        tolerance = 5 * np.sqrt(2 / len(values))  # 11 % at most
        wrong = np.abs(np.mean(values**2) / (np.array([0.7, 1.0, 1.3]) * variance) - 1)
        assert (wrong < tolerance).tolist() == [False, True, False]


def test_about_the_center_and_about_the_mean(records):
    plain = learn_pca(ps.sketch(records, plan()))
    centered = learn_pca(ps.sketch(records, plan(mean="released")))
    assert (plain.centered, centered.centered) == (False, True)
    assert np.allclose(plain.mean, 0.0)
    assert np.allclose(centered.mean, CENTER, atol=0.02)
    assert missed_variance(about(records, 0.0), plain.components) < 0.01
    assert missed_variance(np.cov(records.T), centered.components) < 0.01
    assert "not their mean" in plain.describe()


@pytest.mark.parametrize("feature_map", ["second-moments", "quadratic"])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("method", ["auto", "convex"])
def test_components_and_variances(records, feature_map, delta, method):
    design = plan(feature_map=feature_map, budget=ps.Budget(2.0, delta))
    model = learn_pca(ps.sketch(records, design), method=method)
    truth = about(records, 0.0)
    assert missed_variance(truth, model.components) < 0.01
    lengths = np.linalg.eigvalsh(truth)[::-1]
    count = model.n_records / len(records)  # has little of a pure budget
    assert np.allclose(model.explained_variance * count, lengths[:2], rtol=0.1)
    assert model.total_variance * count == pytest.approx(lengths.sum(), rel=0.1)
    assert model.explained_variance_ratio.sum() == pytest.approx(
        lengths[:2].sum() / lengths.sum(), abs=0.05
    )


def test_merged_sketches_serve_like_one(records):
    design = plan()
    parts = [ps.sketch(records[i::3], design, source=str(i)) for i in range(3)]
    whole = ps.merge(parts)
    assert problem_of_pca(whole).diagonal_variance == pytest.approx(
        3 * problem_of_pca(parts[0]).diagonal_variance
    )
    assert missed_variance(about(records, 0.0), learn_pca(whole).components) < 0.01


def test_learning_twice_gives_the_same(example):
    model, sketch = example
    again = learn_pca(sketch)
    assert np.array_equal(model.components, again.components)
    assert np.array_equal(model.standard_errors, again.standard_errors)


def test_without_a_count_variances_are_of_the_planned_number(records):
    model = learn_pca(ps.sketch(records, plan(count="omitted")))
    assert model.n_records == 30_000
    assert any("planned for" in text for text in model.concerns)
    assert missed_variance(about(records, 0.0), model.components) < 0.01


def test_the_error_of_the_count_is_part_of_the_errors(records):
    sketch = ps.sketch(records, plan(budget=ps.Budget(0.5, 0.0)))
    problem = problem_of_pca(sketch)
    deviation = np.sqrt(problem.count_variance) / problem.n_records
    model = learn_pca(sketch)
    assert np.all(model.standard_errors >= deviation * model.explained_variance * 0.99)


def test_clusters_have_no_components(make_design):
    design = make_design()
    sketch = ps.sketch(np.zeros((10, design.dim)), design)
    with pytest.raises(ps.PrivsketchError, match="task='pca'"):
        learn_pca(sketch)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"n_components": 7}, "n_components=7"),
        ({"n_components": 0}, "n_components=0"),
        ({"n_components": "many"}, "or 'auto'"),
        ({"method": "magic"}, "method='magic'"),
    ],
)
def test_wrong_choices(example, arguments, words):
    with pytest.raises(ps.PrivsketchError, match=words):
        learn_pca(example[1], **arguments)
    with pytest.raises(ps.PrivsketchError, match="expected a Sketch"):
        learn_pca("sketch")


def test_concerns_in_words(records):
    drowned = learn_pca(ps.sketch(records[:20], plan()))
    assert drowned.concerns == (TOO_FEW,)
    weak = learn_pca(ps.sketch(records[:2000] * 0.1, plan()))
    assert any("stand out of the noise" in text for text in weak.concerns)
    narrow = learn_pca(ps.sketch(100 * records, plan()))
    assert any("edge of the domain" in text for text in narrow.concerns)
    wide = learn_pca(ps.sketch(records, plan(domain=ps.Ball(6, 40.0), budget=ps.Budget(20, 1e-6))))
    assert any("near the center" in text for text in wide.concerns)
    fine = learn_pca(ps.sketch(records, plan()))
    assert fine.concerns == ()


# --- the model and its file --------------------------------------------------------------------


def test_a_model_comes_back_from_its_file(example, tmp_path):
    model, _ = example
    model.save(tmp_path / "model.json")
    again = PCAModel.load(tmp_path / "model.json")
    for name in PCAModel.field_names():
        assert np.array_equal(getattr(model, name), getattr(again, name)), name
    assert again.describe() == model.describe()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("components", [[1.0, 0.0]]),
        ("components", [[2.0, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0]]),
        ("components", []),
        ("explained_variance", [1.0]),
        ("explained_variance", [-1.0, 1.0]),
        ("standard_errors", [None, 1.0]),
        ("mean", [0.0]),
        ("centered", 1),
        ("n_standing_out", -1),
        ("n_standing_out", 1.5),
        ("method", "magic"),
        ("lost_variance", -1.0),
        ("expected_residual", 0.0),
        ("columns", ["a"]),
    ],
)
def test_files_that_are_no_model_are_refused(example, tmp_path, field, value):
    example[0].save(tmp_path / "model.json")
    content = json.loads((tmp_path / "model.json").read_text())
    for name in ("format", "version", "fingerprint"):
        content.pop(name)
    (tmp_path / "model.json").write_bytes(document(PCAModel.KIND, {**content, field: value}))
    with pytest.raises(ps.PrivsketchError):
        PCAModel.load(tmp_path / "model.json")


def test_transform_and_back(example, records):
    model, _ = example
    coordinates = model.transform(records[:20])
    assert np.allclose(coordinates, (records[:20] - model.mean) @ model.components.T)
    assert np.allclose(model.transform(model.inverse_transform(coordinates)), coordinates)
    with pytest.raises(ps.PrivsketchError, match="6 columns"):
        model.transform(np.zeros((3, 5)))
    with pytest.raises(ps.PrivsketchError, match="2 columns"):
        model.inverse_transform(np.zeros((3, 5)))


# --- the page ----------------------------------------------------------------------------------


def test_the_page_believes_no_name_and_states_the_cost(example, tmp_path):
    model, sketch = example
    page = report_page(model, sketch)
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "Private principal components" in page
    assert "the directions in which records vary" in page
    assert page.count("<svg") == 1
    assert f"{model.explained_variance[0]:.4g}" in page
    save_report(model, sketch, tmp_path / "report.html", title="Größe")
    assert "<h1>Größe</h1>" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_concerns_are_on_the_page(example):
    model, sketch = example
    page = report_page(replace(model, concerns=("a <b> concern",)), sketch)
    assert "Careful: a &lt;b&gt; concern." in page


def test_the_page_of_another_design_is_refused(example, records):
    other = ps.sketch(records, plan())
    with pytest.raises(ps.PrivsketchError, match="another design"):
        report_page(example[0], other)


def test_without_matplotlib_the_page_has_no_plots(example, monkeypatch):
    seams.set(monkeypatch, "html.find_spec", lambda name: None)
    page = report_page(*example)
    assert "<svg" not in page
    assert "Plots need matplotlib" in page


def test_many_columns_and_one_component():
    rng = np.random.default_rng(1)
    domain = ps.Ball(dim=70, radius=1.0)
    design = plan(domain=domain, n_components=1, feature_map="second-moments")
    sketch = ps.sketch(rng.normal(size=(5000, 70)) * 0.05, design)
    page = report_page(learn_pca(sketch), sketch)
    assert "20 more columns" in page
