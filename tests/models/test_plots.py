"""Pictures of models and sketches show the numbers that these have."""

import sys
from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse

import privsketch as ps
from privsketch import ClusterModel, GaussianMixtureModel, ParameterError, PCAModel, Receipt
from privsketch.models import INTERVAL, MAX_TABLE_ROWS

RECEIPT = Receipt("noise", 1.0, 1e-6, "add-remove")
SCHEMA = ps.Schema(
    [
        ps.Number("age", 0, 100, unit="years"),
        ps.Number("income", 100, 1_000_000, scale="log", unit="EUR"),
        ps.Category("ward", ["a", "b"]),
        ps.Flag("smoker"),
        ps.Date("admission", "2020-01-01", "2024-12-31"),
        ps.Cycle("hour", 24),
    ]
)


@pytest.fixture(autouse=True)
def no_windows():
    import matplotlib.pyplot as plt

    mpl.use("Agg")
    yield
    plt.close("all")


@pytest.fixture
def ax():
    return Figure().subplots()


def some_clusters(dim=2, n_clusters=3, **changes):
    rng = np.random.default_rng(0)
    facts = {
        "centers": rng.uniform(-0.8, 0.8, size=(n_clusters, dim)),
        "weights": np.full(n_clusters, 1 / n_clusters),
        "n_records": 1000.0,
        "receipt": RECEIPT,
        "method": "sketch",
        "standard_errors": rng.uniform(0.01, 0.1, size=(n_clusters, dim)),
        "axis_widths": rng.uniform(0.05, 0.3, size=(n_clusters, dim)),
        "domain": ps.Box(-1, 1, dim=dim),
    }
    return ClusterModel(**{**facts, **changes})


def some_mixture(**changes):
    rng = np.random.default_rng(1)
    roots = rng.normal(size=(2, 3, 3))
    facts = {
        "weights": np.array([0.3, 0.7]),
        "means": rng.normal(size=(2, 3)),
        "covariances": roots @ np.swapaxes(roots, 1, 2) + np.eye(3),
        "covariance_type": "full",
        "standard_errors": np.full((2, 3), 0.1),
        "residual": None,
        "expected_residual": None,
        "n_records": 1000.0,
        "design_fingerprint": "",
        "receipt": RECEIPT,
        "columns": ("a", "b", "c"),
    }
    return GaussianMixtureModel(**{**facts, **changes})


def some_components(dim=4, schema=None):
    rng = np.random.default_rng(2)
    rows = np.linalg.qr(rng.normal(size=(dim, 2)))[0].T
    return PCAModel(
        components=rows,
        explained_variance=np.array([3.0, 1.0]),
        standard_errors=np.array([0.2, 0.1]),
        mean=np.zeros(dim),
        centered=False,
        total_variance=5.0,
        noise_variance=0.25,
        lost_variance=0.01,
        n_standing_out=2,
        residual=1.0,
        expected_residual=1.0,
        n_records=1000.0,
        method="eigenvectors",
        design_fingerprint="",
        receipt=RECEIPT,
        schema=schema,
    )


def encoded_clusters():
    rng = np.random.default_rng(3)
    records = pd.DataFrame(
        {
            "age": [40.0, 70.0],
            "income": [1000.0, 100_000.0],
            "ward": ["a", "b"],
            "smoker": [True, False],
            "admission": np.array(["2021-01-01", "2023-01-01"], dtype="datetime64[D]"),
            "hour": [6.0, 18.0],
        }
    )
    points = ps.encode(records, SCHEMA)
    return some_clusters(
        dim=SCHEMA.dim,
        n_clusters=2,
        centers=points,
        standard_errors=rng.uniform(0.01, 0.02, size=points.shape),
        schema=SCHEMA,
        columns=SCHEMA.coordinates,
        domain=SCHEMA.box,
    )


def dots(axis):
    return np.asarray(axis.collections[0].get_offsets())


def intervals(axis):
    """Lengths of the error bars, a list of them for each direction."""
    lines = [found.get_segments() for found in axis.collections[1:]]
    return [[np.abs(line[1] - line[0]).max() for line in each] for each in lines]


def texts(axis):
    return [text.get_text() for text in axis.texts]


def test_two_columns_have_dots_ellipses_and_intervals(ax):
    model = some_clusters()
    assert model.plot(ax=ax) is ax
    np.testing.assert_allclose(dots(ax), model.centers)
    for ellipse, center, width in zip(ax.patches, model.centers, model.axis_widths, strict=True):
        assert isinstance(ellipse, Ellipse)
        np.testing.assert_allclose(ellipse.center, center)
        turned = abs(np.cos(np.radians(ellipse.angle))) < 0.5
        sizes = (ellipse.height, ellipse.width) if turned else (ellipse.width, ellipse.height)
        np.testing.assert_allclose(sizes, 2 * width)
    expected = 2 * INTERVAL * model.standard_errors
    np.testing.assert_allclose(intervals(ax), expected.T)
    assert texts(ax) == ["1", "2", "3"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x1", "x2")


def test_a_mixture_has_the_ellipses_of_its_covariances(ax):
    model = some_mixture()
    model.plot(["c", "a"], ax=ax)
    np.testing.assert_allclose(dots(ax), model.means[:, [2, 0]])
    for ellipse, covariance in zip(ax.patches, model.covariances, strict=True):
        angle = np.radians(ellipse.angle)
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        halves = np.diag([ellipse.width / 2, ellipse.height / 2]) ** 2
        np.testing.assert_allclose(turn @ halves @ turn.T, covariance[np.ix_([2, 0], [2, 0])])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("c", "a")


def test_what_is_not_known_is_not_drawn(ax):
    model = some_clusters(standard_errors=None, axis_widths=None)
    model.plot(ax=ax)
    assert list(ax.patches) == []
    assert len(ax.collections) == 1


def test_one_column_has_a_height_for_each_center(ax):
    model = some_clusters()
    model.plot("x2", ax=ax)
    bars = [(bar.get_x(), bar.get_width()) for bar in ax.patches]
    widths = model.axis_widths[:, 1]
    expected = np.column_stack([model.centers[:, 1] - widths, 2 * widths])
    np.testing.assert_allclose(bars, expected)
    np.testing.assert_allclose(dots(ax)[:, 0], model.centers[:, 1])
    assert len(set(dots(ax)[:, 1])) == 3


def test_axes_are_in_the_units_of_the_table(ax):
    encoded_clusters().plot(["age", "income"], ax=ax)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("age, years", "income, EUR")
    assert [tick.get_text() for tick in ax.get_xticklabels()] == [
        "0",
        "20",
        "40",
        "60",
        "80",
        "100",
    ]
    up = {tick.get_text(): tick.get_position()[1] for tick in ax.get_yticklabels()}
    assert dots(ax)[0, 1] == pytest.approx(up["1,000"])
    assert dots(ax)[1, 1] == pytest.approx(up["100,000"])


def test_all_columns_are_a_table_of_words(ax):
    model = encoded_clusters()
    model.plot(ax=ax)
    names, rows = model.shown_rows(model.centers, model.standard_errors)
    assert [tick.get_text() for tick in ax.get_yticklabels()] == list(names)
    assert texts(ax) == [row[j] for j in range(len(names)) for row in rows]
    shades = np.asarray(ax.images[0].get_array())[..., 3]
    by_name = dict(zip(names, shades / shades.max(), strict=True))
    np.testing.assert_allclose(by_name["age years"], [0.4, 0.7], atol=1e-4)
    np.testing.assert_allclose(by_name["ward=a"], [1, 0], atol=1e-4)
    np.testing.assert_allclose(by_name["income EUR"], [0.25, 0.75], atol=1e-4)
    np.testing.assert_allclose(by_name["hour"], 0)  # round a circle there is no more or less


def test_a_category_is_told_in_words_also_beside_a_number(ax):
    encoded_clusters().plot(["ward", "age"], ax=ax)
    assert [tick.get_text() for tick in ax.get_yticklabels()][::3] == ["ward=a", "age years"]


def test_of_very_many_columns_those_are_shown_in_which_centers_differ(ax):
    centers = np.zeros((2, MAX_TABLE_ROWS + 20))
    centers[0, 15:] = 0.1
    model = some_clusters(dim=MAX_TABLE_ROWS + 20, n_clusters=2, centers=centers)
    model.plot(ax=ax)
    shown = [tick.get_text() for tick in ax.get_yticklabels()]
    assert shown == [f"x{j}" for j in range(16, 16 + MAX_TABLE_ROWS)]


@pytest.mark.parametrize("columns", ["nobody", ["x1", "nobody"], [], ["x1", "x1"]])
def test_columns_that_are_not_there(columns):
    with pytest.raises(ParameterError, match="columns"):
        some_clusters().plot(columns)


def test_names_are_no_formulas(ax):
    model = some_clusters(columns=("$\\frac{1}{0}$", "b" * 50))
    model.plot(ax=ax)
    ax.figure.savefig("/dev/null", format="png")
    assert ax.get_xlabel() == r"\$\frac{1}{0}\$"
    assert len(ax.get_ylabel()) < 20


def test_variances_and_loadings(ax):
    model = some_components()
    model.plot(ax=ax)
    np.testing.assert_allclose([bar.get_height() for bar in ax.patches], [3.0, 1.0])
    other = Figure().subplots()
    model.plot("loadings", ax=other)
    expected = [f"{value:.3f}" for value in model.components.T.ravel()]
    assert texts(other) == expected
    cells = np.asarray(other.images[0].get_array())
    is_blue = cells[..., 2] > cells[..., 0]
    np.testing.assert_array_equal(is_blue, model.components.T >= 0)
    with pytest.raises(ParameterError, match="what"):
        model.plot("everything")


def test_with_a_schema_variances_are_shares(ax):
    model = some_components(dim=SCHEMA.dim, schema=SCHEMA)
    model.plot(ax=ax)
    np.testing.assert_allclose([bar.get_height() for bar in ax.patches], [60.0, 20.0])
    other = Figure().subplots()
    model.plot("loadings", ax=other)
    names, words, _ = model.readable_loadings()
    assert texts(other) == [row[j] for j in range(len(names)) for row in words]


def test_a_sketch_shows_what_the_noise_hides(ax, make_design):
    design = make_design(n_features=2000)
    sketch = ps.sketch(np.zeros((0, design.dim)), design)
    sketch = replace(sketch, values=np.append(sketch.values[:-1], design.sum_noise.count_unit * 50))
    sketch.plot(ax=ax)
    band = ax.patches[0]
    top = band.get_y() + band.get_height()
    # Of no records only noise is there: 2,000 squares have a mean within 13 %, six deviations.
    squares = np.abs(sketch.moments()) ** 2
    assert (50 * top) ** 2 == pytest.approx(squares.mean(), rel=0.134)
    np.testing.assert_allclose(dots(ax)[:, 1], np.sqrt(squares) / 50)
    np.testing.assert_allclose(dots(ax)[:, 0], np.linalg.norm(design.radians(), axis=1))
    both = ax.lines[0].get_ydata()[0]
    assert both**2 - top**2 == pytest.approx(1 / 50)  # phases of 50 records


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_a_sketch_for_principal_components(ax, delta):
    design = ps.Design.plan(
        task="pca", domain=ps.Ball(dim=8, radius=1.0), budget=ps.Budget(1.0, delta), n_components=2
    )
    sketch = ps.sketch(np.random.default_rng(0).normal(size=(500, 8)) * 0.1, design)
    sketch.plot(ax=ax)
    values = np.abs(sketch.sums) / design.unit / sketch.n_records
    np.testing.assert_allclose(dots(ax)[:, 1], np.sort(values)[::-1])


def test_a_new_figure_is_one_that_notebooks_show():
    import matplotlib.pyplot as plt

    axis = some_clusters().plot()
    assert plt.gcf() is axis.figure


@pytest.mark.parametrize("make", [some_clusters, some_mixture, some_components])
def test_without_matplotlib_the_advice_is_to_install_it(monkeypatch, make):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ParameterError, match=r"privsketch\[plot\]"):
        make().plot()
