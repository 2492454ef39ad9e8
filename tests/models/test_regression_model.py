"""Models of regression and classification: files, tables, pictures, and what they refuse."""

import json

import numpy as np
import pytest

import privsketch as ps
from privsketch import ClassifierModel, ParameterError, RegressionModel
from privsketch._base import fingerprint
from tests.chance import fixed_noise
from tests.learning.test_classifier import ON, SCHEMA, patients
from tests.learning.test_regression import design_of


@pytest.fixture(scope="module")
def models():
    with fixed_noise():
        sketch = ps.sketch(patients(20_000), design_of(SCHEMA))
        few = ps.sketch(patients(5), design_of(SCHEMA))
        return {
            "regression": ps.learn_regression(sketch, "age"),
            "drowned": ps.learn_regression(few, "age"),
            "classifier": ps.learn_classifier(sketch, "ill", ON),
            "classes": ps.learn_classifier(sketch, "stage", ON),
        }


KINDS = ("regression", "drowned", "classifier", "classes")


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_is_what_was_saved(kind, models, tmp_path):
    model, path = models[kind], tmp_path / "model.json"
    model.save(path)
    found = ps.load(path)
    assert type(found) is type(model)
    for name in model.field_names():
        np.testing.assert_array_equal(getattr(found, name), getattr(model, name), err_msg=name)
    assert found.to_bytes() == path.read_bytes()
    assert found.describe() == model.describe()
    rows = np.zeros((3, model.dim))
    np.testing.assert_array_equal(found.predict(rows), model.predict(rows))


def altered(path, **changes):
    """The file with other fields, and a fingerprint that fits them."""
    whole = json.loads(path.read_text())
    content = {k: v for k, v in whole.items() if k not in ("format", "version", "fingerprint")}
    content.update(changes)
    whole.update(content, fingerprint=fingerprint(content))
    path.write_text(json.dumps(whole))
    return path


SHARED = {
    "a field too many": {"labels": [0, 1]},
    "no target": {"target": ""},
    "no columns": {"columns": None},
    "a column too few": {"columns": ["age"]},
    "identified as text": {"identified": "all"},
    "identified beyond 1": {"identified": [2.0]},
    "one coefficient": {"coef": [1.0]},
    "a coefficient that is text": {"coef": ["a"]},
    "a center that is missing": {"center": [None]},
    "references of no label": {"references": ["Z"]},
    "references as text": {"references": "A"},
    "another target's schema": {"target_schema": {"columns": []}},
    "no schema of the target": {"target_schema": None},
    "records below 0": {"n_records": -1.0},
    "no receipt": {"receipt": None},
    "concerns that are text": {"concerns": "none"},
}
BAD = {
    "regression": {
        "an estimate that is gone": {"estimate": None},
        "an intercept that is text": {"intercept": "1"},
        "an intercept error that is gone": {"intercept_error": None},
        "a variance below 0": {"residual_variance": -1.0},
        "a share that is text": {"r2": "0.5"},
        "names of residuals that are numbers": {"residual_names": [1, 2]},
        "a covariance of one number": {"covariance": [[1.0]]},
    },
    "classifier": {
        "one class": {"classes": ["yes"]},
        "classes that are numbers": {"classes": [0, 1]},
        "a class too many": {"classes": ["no", "yes", "missing"]},
        "drowned as text": {"drowned": "no"},
        "drowned twice": {"drowned": [True, False]},
        "a calibration of one number": {"calibration": [1.0]},
        "groups without shares": {"groups": ["a", "b", "c", "d", "e", "f"]},
        "a variance below 0": {"covariance": [[[-1.0] * 4] * 4]},
    },
}
CASES = [(kind, name) for kind, bad in BAD.items() for name in {**SHARED, **bad}]


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_a_damaged_file_is_refused(kind, name, models, tmp_path):
    models[kind].save(tmp_path / "model.json")
    changes = {**SHARED, **BAD[kind]}[name]
    with pytest.raises(ps.PrivsketchError, match=r"model\.json"):
        ps.load(altered(tmp_path / "model.json", **changes))


@pytest.mark.parametrize("kind", KINDS)
def test_the_altered_file_would_be_read_if_it_were_right(kind, models, tmp_path):
    models[kind].save(tmp_path / "model.json")
    assert ps.load(altered(tmp_path / "model.json", n_records=3.0)).n_records == 3.0


@pytest.mark.parametrize("kind", KINDS)
def test_any_field_may_be_anything(kind, models, tmp_path):
    """A file is read or refused, whatever one of its fields holds."""
    models[kind].save(tmp_path / "model.json")
    before = (tmp_path / "model.json").read_bytes()
    for name in models[kind].field_names():
        for value in (None, True, 0, -1.5, "x", [], [[]], {}, [None], [["x"]], [1e308, -1e308]):
            (tmp_path / "model.json").write_bytes(before)
            try:
                found = ps.load(altered(tmp_path / "model.json", **{name: value}))
            except ps.PrivsketchError:
                continue
            found.describe()
            found.predict(np.zeros((2, found.dim)))


@pytest.mark.parametrize("place", [0, 40, 400, -3])
def test_a_flipped_byte_is_seen(place, models, tmp_path):
    data = bytearray(models["regression"].to_bytes())
    data[place] ^= 1
    with pytest.raises(ps.PrivsketchError, match="model"):
        RegressionModel.from_bytes(bytes(data))


def test_a_regression_is_no_classifier(models):
    with pytest.raises(ps.PrivsketchError, match="not a privsketch classifier-model"):
        ClassifierModel.from_bytes(models["regression"].to_bytes())


def test_tables_begin_with_name_estimate_low_high(models):
    for model in models.values():
        for what in ("coefficients", "residuals", "partial correlations", "classes"):
            try:
                shown = model.table(what)
            except ParameterError:
                continue
            assert list(shown.columns[:4]) == ["name", "estimate", "low", "high"]
    shown = models["regression"].table().set_index("name")
    assert shown.against["ward=B"] == "A"
    assert (shown.low < shown.estimate)[shown.identified > 0.9].all()
    assert models["drowned"].table()[["estimate", "low", "high"]].isna().all(axis=None)


def test_levels_are_checked(models):
    narrow, wide = (models["regression"].interval(level) for level in (0.5, 0.99))
    kept = models["regression"].is_identified
    assert (wide[kept, 1] > narrow[kept, 1]).all()
    for level in (0, 1, 95, "high"):
        with pytest.raises(ParameterError, match="level"):
            models["regression"].interval(level)


def test_predictions_have_intervals(models):
    model, fresh = models["regression"], patients(4000, seed=1)
    rows = ps.encode(fresh.drop(columns="age"), model.schema)
    interval = model.predict_interval(rows)
    held = (interval[:, 0] < fresh.age) & (fresh.age < interval[:, 1])
    assert 0.93 < held.mean() < 0.99
    assert model.score(rows, fresh.age) == pytest.approx(model.r2, abs=4 * model.r2_error)


def test_rows_that_do_not_fit_are_refused(models):
    for kind in ("regression", "classifier"):
        with pytest.raises(ParameterError, match="encode it first"):
            models[kind].predict(np.zeros((2, 99)))
    rows = np.zeros((2, models["regression"].dim))
    with pytest.raises(ParameterError, match="as X has rows"):
        models["regression"].score(rows, [1.0])
    with pytest.raises(ParameterError, match="not a list of numbers"):
        models["regression"].score(rows, ["a", "b"])
    with pytest.raises(ParameterError, match="as X has rows"):
        models["classifier"].score(np.zeros((2, models["classifier"].dim)), ["yes"])


def test_flags_may_be_written_in_several_ways(models):
    model = models["classifier"]
    rows = np.zeros((2, model.dim))
    truth = model.predict(rows)
    for y in (truth, truth.astype(int), np.where(truth, "yes", "no")):
        assert model.score(rows, y) == 1.0


def test_plots_can_be_drawn(models):
    pytest.importorskip("matplotlib").use("Agg")
    for kind, what in (
        *(("regression", "coefficients"), ("regression", "residuals")),
        *(("drowned", "coefficients"), ("drowned", "residuals")),
        *(("classifier", "calibration"), ("classifier", "coefficients")),
        *(("classes", "calibration"), ("classes", "coefficients")),
    ):
        axis = models[kind].plot(what)
        axis.figure.canvas.draw()
    axis = models["classes"].plot("calibration", label="late")
    assert "late" in axis.get_xlabel()
    with pytest.raises(ParameterError, match="label"):
        models["classes"].plot("calibration", label="cured")


def test_notebooks_and_prompts_show_models(models):
    for model in models.values():
        assert "<table" in model._repr_html_()
        assert len(repr(model).splitlines()) <= 10
    assert "too few records" in repr(models["drowned"])
