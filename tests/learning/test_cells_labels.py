"""Cells of tables with labels: an axis for each labelled column, and shares in place of widths."""

import itertools

import numpy as np
import pyarrow as pa
import pytest

import privsketch as ps
from privsketch.features import Quantiser, cell_counts
from privsketch.learning import (
    Components,
    boxes_of,
    expected_counts,
    likelihood_of,
    partition_of,
    value_and_gradient,
)

COLUMNS = [
    ps.Number("age", 0, 100),
    ps.Category("ward", ["a", "b", "c"]),
    ps.Flag("smoker"),
    ps.Flag("allergy", missing="category"),
]
SHARES = np.array([[0.8, 0.1, 0.1, 0.0], [0.05, 0.15, 0.7, 0.1], [0.1, 0.6, 0.1, 0.2]])
SMOKERS = np.array([0.9, 0.2, 0.5])


def table(n, seed=0):
    """Three clusters: places of age, shares of wards, of smokers and of allergies."""
    rng = np.random.default_rng(seed)
    z = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    wards = np.array(["a", "b", "c", "elsewhere"])
    ward = wards[(np.cumsum(SHARES[z], axis=1) < rng.random((n, 1))).sum(axis=1)]
    allergy = np.where(rng.random(n) < 0.2, None, rng.random(n) < 0.1 + 0.3 * z)
    age = np.clip(np.array([20.0, 50.0, 85.0])[z] + 5 * rng.normal(size=n), 0, 100)
    flags = {"smoker": rng.random(n) < SMOKERS[z], "allergy": pa.array(allergy)}
    return pa.table({"age": age, "ward": ward, **flags})


def plan(columns=COLUMNS, **choices):
    return ps.Design.plan(
        n_components=3,
        domain=ps.Schema(columns, missing="drop"),
        budget=choices.pop("budget", ps.Budget(1.0)),
        n_records=20_000,
        random_state=1,
        feature_map="cells",
        **choices,
    )


def test_a_labelled_column_has_a_cell_for_each_label():
    design = plan()
    assert design.cells[1:] == (4, 2, 3)  # with "other" and "missing"
    assert design.n_features == design.cells[0] * 24
    assert [axis.stop - axis.start for axis in design.axes] == [1, 4, 1, 3]
    assert ps.Design.from_bytes(design.to_bytes()) == design
    assert plan(COLUMNS[1:3]).cells == (4, 2)
    assert plan([ps.Cycle("hour", 24), COLUMNS[1]]).cells[2:] == (4,)


def test_old_grids_along_coordinates_are_still_read():
    value = plan().to_json()
    value["cells"] = [2, 2, 2, 2, 2, 3, 1, 1, 2]
    value["frequencies"]["n_features"] = 2**6 * 3
    design = ps.Design.from_json(value)
    assert len(design.axes) == design.dim == 9
    for cells in ([2, 3, 2, 3], [2, 4, 2], [2, 4, 2, 3, 1]):
        value["cells"], value["frequencies"]["n_features"] = cells, int(np.prod(cells))
        with pytest.raises(ps.FileError):
            ps.Design.from_json(value)


def test_tables_with_too_many_combinations_are_refused():
    many = [ps.Category(f"c{j}", [str(v) for v in range(40)]) for j in range(4)]
    with pytest.raises(ps.ParameterError, match="combinations"):
        plan(many)
    with pytest.raises(ps.ParameterError, match="mixtures are learned from grids of numbers"):
        plan(task="gaussian-mixture")


def test_cells_are_total_functions_of_the_quantised_record():
    # Of every record, encoded or not: the largest coordinate of a block, the first of equals.
    design = plan()
    rng = np.random.default_rng(2)
    records = rng.integers(-32767, 32768, (300, design.dim)).astype(np.int16)
    records[:100] = rng.integers(-1, 2, (100, design.dim))  # many equal ones
    wanted = np.zeros(design.cells, dtype=np.int64)
    for record in records.tolist():
        ward, allergy = record[1:5], record[6:9]
        age = (record[0] + 32767) * design.cells[0] // 65535
        smoker = (record[5] + 32767) * 2 // 65535
        wanted[age, ward.index(max(ward)), smoker, allergy.index(max(allergy))] += 1
    assert (cell_counts(records, design.cells, design.axes) == wanted.ravel()).all()


def test_sums_count_rows_of_the_table_on_every_engine(no_noise):
    data, design = table(500), plan()
    rows = data.to_pylist()
    wanted = np.zeros(design.cells, dtype=np.int64)
    quantised = Quantiser(design.domain)(np.asarray(ps.encode(data, design.schema)))
    for row, record in zip(rows, quantised.tolist(), strict=True):
        ward = ["a", "b", "c", "elsewhere"].index(row["ward"])
        allergy = {False: 0, True: 1, None: 2}[row["allergy"]]
        age = (record[0] + 32767) * design.cells[0] // 65535
        wanted[age, ward, int(row["smoker"]), allergy] += 1
    for engine in ("threads", ps.engines.Pool(2)):
        assert (ps.sketch(data, design, engine=engine).sums == wanted.ravel()).all()


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_a_record_changes_one_cell(neighbours, no_noise):
    # Every combination of labels takes the place of another, or none.
    missing = {"missing": "category"}
    schema = ps.Schema([ps.Category("ward", ["a", "b"], **missing), ps.Flag("smoker", **missing)])
    design = ps.Design.plan(
        n_components=2,
        domain=schema,
        budget=ps.Budget(1.0, neighbours=neighbours),
        feature_map="cells",
        n_records=100,
        random_state=1,
    )
    rows = list(itertools.product(["a", "b", "elsewhere", None], [True, False, None]))

    def counts(some):
        wards, smokers = zip(*some, strict=True)
        data = pa.table(
            {"ward": pa.array(wards, pa.string()), "smoker": pa.array(smokers, pa.bool_())}
        )
        return ps.sketch(data, design).sums

    whole = counts(rows)
    assert (whole == 1).all()  # as many cells as combinations
    linf, l1 = design.contribution.linf(neighbours), design.contribution.l1(None)
    for index in range(len(rows)):
        if neighbours == "add-remove":
            others = [rows[:index] + rows[index + 1 :]]
        else:
            others = [[*rows[:index], other, *rows[index + 1 :]] for other in rows]
            l1 = 2
        for neighbour in others:
            change = np.abs(counts(neighbour) - whole)
            assert change.sum() <= l1
            assert change.max(initial=0) <= linf


def drawn(design, seed=4):
    rng = np.random.default_rng(seed)
    shares = [rng.dirichlet(np.ones(g), 3) for g in design.cells[1:]]
    return Components(
        rng.uniform(200, 900, 4),
        rng.uniform(-0.5, 0.5, (3, 4)),
        rng.uniform(0.2, 0.5, (3, 4)),
        np.hstack(shares),
    )


def test_masses_are_products_with_shares(no_noise):
    from scipy.stats import norm

    design = plan()
    boxes, components = boxes_of(ps.sketch(table(100), design)), drawn(design)
    partition = partition_of(boxes)
    edges = np.linspace(-1, 1, design.cells[0] + 1)
    edges[0], edges[-1] = -np.inf, np.inf
    wanted = components.weights[-1] / boxes.n_boxes * np.ones(design.cells)
    for k in range(3):
        age = np.diff(norm.cdf(edges, components.centers[k, 0], components.widths[k, 0]))
        ward, smoker, allergy = np.split(components.shares[k], [4, 6])
        product = np.einsum("i,j,k,l->ijkl", age, ward, smoker, allergy)
        wanted = wanted + components.weights[k] * product
    np.testing.assert_allclose(expected_counts(partition, components), wanted.ravel(), rtol=2e-3)


def test_gradients_are_those_of_finite_differences(no_noise):
    design = plan()
    boxes, components = boxes_of(ps.sketch(table(3000), design)), drawn(design)
    partition = partition_of(boxes)
    likelihood = likelihood_of(boxes, np.full(boxes.n_boxes, 9.0))
    _, gradient = value_and_gradient(partition, likelihood, components)
    shares = components.shares
    for index in np.ndindex(shares.shape):
        step = np.zeros(shares.shape)
        step[index] = 1e-5
        ends = [
            Components(components.weights, components.centers, components.widths, shares + s * step)
            for s in (1, -1)
        ]
        up, down = (value_and_gradient(partition, likelihood, end)[0] for end in ends)
        assert gradient.shares[index] == pytest.approx((up - down) / 2e-5, rel=1e-4, abs=1e-3)


def test_clusters_have_the_shares_of_their_records(fixed_noise):
    data, design = table(20_000), plan(budget=ps.Budget(0.5))
    model = ps.learn_kmeans(ps.sketch(data, design), 3)
    records = np.asarray(ps.encode(data, design.schema), dtype=float)
    nearest = model.predict(records)
    means = np.stack([records[nearest == k].mean(axis=0) for k in range(3)])
    off = (model.centers - means) / (2 * design.domain.half_widths)
    assert np.sqrt(np.square(off).mean()) < 0.02  # two points of a share, or of a column's range
    assert np.mean(np.abs(model.centers - means) <= 3 * model.standard_errors + 1e-3) > 0.8
    assert ps.learn_kmeans(ps.sketch(data, design), "auto").n_clusters in (3, 4)


def test_tables_without_numbers(fixed_noise):
    columns = COLUMNS[1:]
    data, design = table(20_000).drop(["age"]), plan(columns)
    model = ps.learn_kmeans(ps.sketch(data, design), 3)
    records = np.asarray(ps.encode(data, design.schema), dtype=float)
    assert np.isfinite(model.standard_errors).all()
    mean = records.mean(axis=0)
    assert model.score(records) > -float(np.square(records - mean).sum())
    assert design.forecast().rsse_high >= design.forecast().rsse_low >= 1
    assert plan().forecast().rsse_low < 1.01


def test_mixtures_of_labels_are_not_learned_from_cells(no_noise):
    sketch = ps.sketch(table(100), plan())
    with pytest.raises(ps.ParameterError, match="feature_map='fourier'"):
        ps.learn_gaussian_mixture(sketch, 2)
