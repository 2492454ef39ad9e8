"""A sketch in a study of OpenDP's: it costs what OpenDP is told, and OpenDP adds it up."""

import gc
import math
from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import privsketch as ps
from privsketch import ParameterError
from privsketch.facts import Unit, exact
from privsketch.sketching import make_column, make_sketch, table_domain
from privsketch.testing import moved, questions
from tests.workbooks import write_workbook

DISTANCES = (0, 1, 2, 5)
TABLE = np.random.default_rng(0).uniform(-1, 1, (200, 2))
GAUSSIAN = ps.Budget(epsilon=1.0, delta=1e-6)
PURE = ps.Budget(epsilon=0.3)


@pytest.fixture(autouse=True)
def features():
    dp.enable_features("contrib", "honest-but-curious")


def design(budget, **options):
    defaults = {"n_components": 2, "domain": ps.Box(-1, 1, dim=2), "random_state": 0}
    return ps.Design.plan(**{**defaults, "budget": budget, **options})


def replaced(budget):
    return ps.Budget(budget.epsilon, budget.delta, "replace", budget.unit)


PCA = {"task": "pca", "domain": ps.Ball(2, 1.0), "n_components": 1, "mean": "released"}
MANY = {"n_features": 40}
DESIGNS = {
    "gaussian": (GAUSSIAN, {}),
    "gaussian, replace": (replaced(GAUSSIAN), {}),
    "gaussian, no count": (GAUSSIAN, {"count": "omitted"}),
    "gaussian, one-bit": (GAUSSIAN, {"feature_map": "one-bit"}),
    "cells": (ps.Budget(0.5), {"feature_map": "cells"}),
    "gaussian, moments and mean": (GAUSSIAN, PCA),
    "gaussian, many values": (GAUSSIAN, {"n_features": 2100}),  # drawn by another sampler
    "gaussian, some features": (GAUSSIAN, {**MANY, "masks": "uniform:10"}),
    "gaussian, three rows each": (ps.Budget(1.0, 1e-6, unit=Unit(None, 3)), {}),
    "laplace": (PURE, {"noise": "laplace"}),
    "laplace, replace": (replaced(PURE), {"noise": "laplace"}),
    "laplace, moments and mean": (PURE, {**PCA, "noise": "laplace"}),
    "laplace, three rows each": (ps.Budget(0.3, unit=Unit(None, 3)), {"noise": "laplace"}),
    "cube": (PURE, {"noise": "cube"}),
    "cube, replace": (replaced(PURE), {"noise": "cube"}),
    "cube, three rows each": (ps.Budget(0.3, unit=Unit(None, 3)), {"noise": "cube"}),
}


@pytest.fixture(params=DESIGNS)
def any_design(request):
    budget, options = DESIGNS[request.param]
    return design(budget, **options)


# Masks are drawn anew for each table, so that two of them do not ask comparable questions.
UNMASKED = [name for name, (_, options) in DESIGNS.items() if "masks" not in options]


# ---------------------------------------------------------------- what a distance costs


def closed_form(plan, distance):
    """Cost from the noise itself: squared L2 over 2 sigma^2, or what the receipt's parts spend."""
    receipt = ps.sketch(TABLE, plan).receipt
    steps = Fraction(distance, plan.budget.unit.max_records)
    if plan.noise == "gaussian":
        return steps**2 * Fraction(receipt.sensitivity) ** 2 / (2 * Fraction(receipt.scale) ** 2)
    return steps * sum(exact(part.epsilon) for part in receipt.parts or (receipt,))


@pytest.mark.parametrize("distance", DISTANCES)
def test_costs_are_those_of_the_noise(any_design, distance):
    cost = Fraction(make_sketch(any_design).map(distance))
    expected = closed_form(any_design, distance)
    assert expected <= cost <= expected * (1 + Fraction(1, 2**48))


def dearest(run, table, distance, neighbours):
    """The largest cost, exactly, of moving the questions of a run by so many records."""
    dim, costs = table.shape[1], []
    for record in (np.eye(dim)[0], np.ones(dim) / math.sqrt(dim), np.full(dim, 0.01)):
        if neighbours == "add-remove":
            one, other = table, np.concatenate([table, np.tile(record, (distance, 1))])
        else:
            rest = table[distance:]
            one, other = (
                np.concatenate([rest, np.tile(sign * record, (distance, 1))]) for sign in (1, -1)
            )
        asked = [questions(lambda data=data: run(data)) for data in (one, other)]
        costs.append(sum(moved(a.values, b.values, a.law)[1] for a, b in zip(*asked, strict=True)))
    return max(costs)


def honest(plan, run, privacy_map):
    """Whether a map covers what tables at every distance cost."""
    return all(
        dearest(run, TABLE, distance, plan.budget.neighbours) <= Fraction(privacy_map(distance))
        for distance in DISTANCES
    )


@pytest.mark.parametrize("any_design", UNMASKED, indirect=True)
def test_no_tables_cost_more_than_their_distance(any_design):
    measurement = make_sketch(any_design)
    assert honest(any_design, measurement, measurement.map)


def test_a_map_without_the_square_is_found_out():
    """A Gaussian sketch of two records more costs four times that of one, by its own integers."""
    plan = design(GAUSSIAN, feature_map="one-bit")  # every record has the largest norm
    measurement = make_sketch(plan)
    assert not honest(plan, measurement, lambda distance: distance * measurement.map(1))
    worst = dearest(measurement, TABLE, 5, "add-remove")
    assert float(worst) == pytest.approx(measurement.map(5), rel=1e-9)


def test_pure_costs_are_reached():
    """Maps are not only safe: cube noise of a count moves by the whole budget."""
    measurement = make_sketch(design(PURE, noise="cube"))
    worst = dearest(measurement, TABLE, 5, "add-remove")
    assert float(worst) == pytest.approx(measurement.map(5), rel=1e-12)


@pytest.mark.parametrize("epsilon", [0.1, 0.3, 0.7, 1.0, 2.3])
def test_costs_are_rounded_up(epsilon):
    """0.3 is three tenths here, and a little less as a float."""
    measurement = make_sketch(design(ps.Budget(epsilon), noise="cube"))
    for distance in range(1, 40):
        cost, exactly = measurement.map(distance), distance * exact(epsilon)
        assert Fraction(cost) >= exactly > Fraction(math.nextafter(cost, 0))


MASKED = [{"masks": "records:0.5"}, {**MANY, "masks": "poisson:0.3"}]


@pytest.mark.parametrize("options", MASKED, ids=["records", "poisson"])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_subsampled_gaussian_noise_is_known_for_one_record(options, neighbours):
    measurement = make_sketch(design(ps.Budget(0.3, 1e-6, neighbours), **options))
    assert measurement.output_measure == dp.approximate(dp.max_divergence())
    assert measurement.map(0) == (0.0, 0.0)
    epsilon, delta = measurement.map(1)
    assert Fraction(epsilon) >= Fraction(3, 10)
    assert epsilon <= math.nextafter(0.3, 1)
    assert Fraction(delta) >= Fraction(1, 10**6)
    assert delta <= math.nextafter(1e-6, 1)
    with pytest.raises(dp.OpenDPException, match="only distances of 0 and 1"):
        measurement.map(2)


@pytest.mark.parametrize("options", MASKED, ids=["records", "poisson"])
def test_subsampled_pure_noise_costs_its_epsilon(options):
    measurement = make_sketch(design(ps.Budget(0.5), noise="laplace", **options))
    assert measurement.map(1) == pytest.approx(0.5, rel=1e-15)
    assert measurement.map(4) == pytest.approx(2.0, rel=1e-15)


# ---------------------------------------------------------------- other measures


def test_gaussian_noise_as_epsilon_and_delta():
    """OpenDP's conversion is not above the budget that the noise was made for."""
    plan = design(GAUSSIAN)
    measurement = make_sketch(plan, output_measure=dp.approximate(dp.max_divergence()))
    epsilon, delta = measurement.map(1)
    assert delta == 1e-6
    assert 1 - 1e-9 < epsilon <= 1
    assert measurement(TABLE).receipt.epsilon == 1.0


def test_pure_noise_as_others():
    plan = design(PURE, noise="cube")
    pair = make_sketch(plan, output_measure=dp.approximate(dp.max_divergence()))
    assert pair.map(1) == (make_sketch(plan).map(1), 0.0)
    rho = make_sketch(plan, output_measure=dp.zero_concentrated_divergence()).map(1)
    assert rho == pytest.approx(0.3**2 / 2, rel=1e-12)
    assert Fraction(rho) >= Fraction(9, 200)


@pytest.mark.parametrize(
    ("plan", "measure"),
    [
        ((GAUSSIAN, {}), dp.max_divergence()),
        ((GAUSSIAN, {"masks": "records:0.5"}), dp.zero_concentrated_divergence()),
        ((PURE, {}), dp.smoothed_max_divergence()),
    ],
)
def test_a_measure_without_an_argument_is_refused(plan, measure):
    with pytest.raises(ParameterError, match="output_measure"):
        make_sketch(design(plan[0], **plan[1]), output_measure=measure)


# ---------------------------------------------------------------- composed studies


def count_of(plan, scale, noise=dp.m.then_gaussian):
    return make_column(plan, 0) >> dp.t.then_count() >> noise(scale=scale)


def space_of(measurement):
    return measurement.input_domain, measurement.input_metric, measurement.output_measure


STUDIES = {
    "zCDP": (GAUSSIAN, dp.m.then_gaussian, lambda d, scale: Fraction(d**2) / (2 * scale**2)),
    "pure": (PURE, dp.m.then_laplace, lambda d, scale: Fraction(d) / scale),
}


@pytest.mark.parametrize("study", STUDIES)
def test_an_odometer_says_what_a_count_and_a_sketch_spend(study):
    budget, noise, count_cost = STUDIES[study]
    plan = design(budget)
    sketch, count = make_sketch(plan, source="a"), count_of(plan, 8.0, noise)
    odometer = dp.c.make_fully_adaptive_composition(*space_of(sketch))(TABLE)
    assert odometer.privacy_loss(1) == 0
    assert isinstance(odometer(count), int)
    released = odometer(sketch)
    assert isinstance(released, ps.Sketch)
    assert released.receipt == ps.sketch(TABLE, plan, source="a").receipt
    for distance in DISTANCES:
        spent = Fraction(odometer.privacy_loss(distance))
        total = count_cost(distance, 8) + Fraction(sketch.map(distance))
        assert total <= spent <= total * (1 + Fraction(1, 2**50))
        if study == "zCDP":
            total = count_cost(distance, 8) + closed_form(plan, distance)
            assert total <= spent <= total * (1 + Fraction(1, 2**48))


def test_a_sketch_learned_from_steers_the_next_question():
    """Adaptive: a model of the first release decides what is asked next, on the same table."""
    plan = design(ps.Budget(5.0, 1e-6))
    sketch = make_sketch(plan)
    odometer = dp.c.make_fully_adaptive_composition(*space_of(sketch))(TABLE)
    model = ps.learn_kmeans(odometer(sketch), n_clusters=2, random_state=0)
    bound = float(np.abs(model.centers[:, 0]).max())
    total = (
        make_column(plan, 0)
        >> dp.t.then_impute_constant(0.0)
        >> dp.t.then_clamp((-bound, bound))
        >> dp.t.then_sum()
        >> dp.m.then_gaussian(scale=10.0)
    )
    assert isinstance(odometer(total), float)
    spent = sketch.map(1) + total.map(1)
    assert odometer.privacy_loss(1) == pytest.approx(spent, rel=1e-15)


@pytest.mark.parametrize("study", STUDIES)
def test_a_filter_refuses_what_goes_beyond(study):
    budget, noise, _ = STUDIES[study]
    plan = design(budget)
    sketch, count = make_sketch(plan), count_of(plan, 8.0, noise)
    limit = dp.c.make_composition([count, sketch]).map(1)
    odometer = dp.c.make_fully_adaptive_composition(*space_of(sketch))
    filtered = dp.c.make_privacy_filter(odometer, d_in=1, d_out=limit)
    assert filtered.map(1) == limit
    answers = filtered(TABLE)
    answers(count)
    assert isinstance(answers(sketch), ps.Sketch)
    with pytest.raises(dp.OpenDPException, match="would exceed"):
        answers(sketch)
    below = dp.c.make_privacy_filter(odometer, d_in=1, d_out=math.nextafter(limit, 0))(TABLE)
    below(count)
    with pytest.raises(dp.OpenDPException, match="would exceed"):
        below(sketch)


def test_a_refused_sketch_is_kept_by_nobody():
    """OpenDP's filter computes an answer before it refuses it: the sketch must be gone."""
    sketch = make_sketch(design(GAUSSIAN), source="refused")
    odometer = dp.c.make_fully_adaptive_composition(*space_of(sketch))
    answers = dp.c.make_privacy_filter(odometer, d_in=1, d_out=sketch.map(1) / 2)(TABLE)
    with pytest.raises(dp.OpenDPException, match="would exceed") as caught:
        answers(sketch)
    assert "Sketch" not in str(caught.value)
    kept = sketch(TABLE)  # what is kept would be found
    gc.collect()
    alive = [thing for thing in gc.get_objects() if isinstance(thing, ps.Sketch)]
    assert [thing.ids for thing in alive if thing.sources == ("refused",)] == [kept.ids]


def test_adaptive_composition_has_as_many_questions_as_were_paid_for():
    plan = design(PURE)
    sketch, count = make_sketch(plan), count_of(plan, 8.0, dp.m.then_laplace)
    d_mids = [count.map(1), sketch.map(1)]
    composed = dp.c.make_adaptive_composition(*space_of(sketch), d_in=1, d_mids=d_mids)
    assert composed.map(1) == pytest.approx(0.125 + 0.3, rel=1e-15)
    answers = composed(TABLE)
    answers(count)
    assert isinstance(answers(sketch), ps.Sketch)
    with pytest.raises(dp.OpenDPException, match="out of queries"):
        answers(count)


def test_a_question_dearer_than_planned_is_refused():
    plan = design(PURE)
    sketch = make_sketch(plan)
    composed = dp.c.make_adaptive_composition(*space_of(sketch), d_in=2, d_mids=[sketch.map(1)])
    with pytest.raises(dp.OpenDPException, match="insufficient budget"):
        composed(TABLE)(sketch)


def test_two_designs_and_pairs_of_epsilon_and_delta_in_one_study():
    measure = dp.approximate(dp.max_divergence())
    masked = make_sketch(design(GAUSSIAN, masks="records:0.5"))
    plain = make_sketch(design(GAUSSIAN, **PCA), output_measure=measure)
    odometer = dp.c.make_fully_adaptive_composition(*space_of(masked))(TABLE)
    assert [odometer(part).design.task for part in (masked, plain)] == ["kmeans", "pca"]
    epsilon, delta = odometer.privacy_loss(1)
    assert epsilon == pytest.approx(2.0, rel=1e-9)
    assert delta == pytest.approx(2e-6, rel=1e-9)


def test_replaced_records_and_a_sum_of_a_public_size():
    plan = design(replaced(GAUSSIAN))
    sketch = make_sketch(plan)
    total = (
        make_column(plan, 1, n_records=len(TABLE))
        >> dp.t.then_metric_unbounded()
        >> dp.t.then_impute_constant(0.0)
        >> dp.t.then_clamp((-1.0, 1.0))
        >> dp.t.then_sum()
        >> dp.m.then_gaussian(scale=4.0)
    )
    odometer = dp.c.make_fully_adaptive_composition(*space_of(sketch))(TABLE)
    assert odometer(sketch).n_records == len(TABLE)
    odometer(total)
    expected = sketch.map(1) + 2**2 / (2 * 4**2)  # a number moves by at most 2
    assert odometer.privacy_loss(1) == pytest.approx(expected, rel=1e-9)
    with pytest.raises(dp.OpenDPException, match="not have the public number of records"):
        total(TABLE[1:])


def test_three_rows_of_a_person_cost_what_the_design_says():
    """On trust: d_in is the number of rows, as in OpenDP, and three of them are one person."""
    plan = design(ps.Budget(0.3, unit=Unit(None, 3)))
    sketch, count = make_sketch(plan), count_of(plan, 30.0, dp.m.then_laplace)
    answers = dp.c.make_fully_adaptive_composition(*space_of(sketch))(TABLE)
    answers(sketch)
    answers(count)
    assert answers.privacy_loss(3) == pytest.approx(0.3 + 0.1, rel=1e-12)
    assert answers.privacy_loss(1) == pytest.approx(0.1 + 0.1 / 3, rel=1e-12)


# ---------------------------------------------------------------- persons


VISITS = pd.DataFrame(
    {"patient": [f"p{i // 3}" for i in range(90)], "age": np.linspace(20, 80, 90)}
)


def of_persons(budget, **options):
    schema = ps.Schema([ps.Number("age", 0, 100)], person="patient", **options)
    return design(budget, domain=schema, n_features=20)


@pytest.mark.parametrize("max_records", [1, 2])
def test_persons_are_counted_as_persons(max_records):
    plan = of_persons(GAUSSIAN, max_records=max_records)
    sketch = make_sketch(plan)
    rho = plan.sum_noise.sums_law.rho
    assert [sketch.map(d) for d in (0, 1, 2)] == pytest.approx([0, rho, 4 * rho], rel=1e-15)
    odometer = dp.c.make_fully_adaptive_composition(*space_of(sketch))(VISITS)
    assert odometer(sketch).receipt.unit == "one person (patient)"
    odometer(sketch)
    assert odometer.privacy_loss(3) == pytest.approx(18 * rho, rel=1e-15)


@pytest.mark.parametrize("budget", [GAUSSIAN, PURE], ids=["gaussian", "cube"])
def test_no_persons_cost_more_than_their_number(budget):
    """Three rows of each count, so that which ones is not left to a secret key."""
    measurement = make_sketch(of_persons(budget, max_records=3))
    for distance in DISTANCES:
        new = pd.DataFrame({"patient": [f"n{i // 3}" for i in range(3 * distance)], "age": 99.0})
        asked = [questions(lambda t=t: measurement(t)) for t in (VISITS, pd.concat([VISITS, new]))]
        costs = (moved(a.values, b.values, a.law)[1] for a, b in zip(*asked, strict=True))
        cost, allowed = float(sum(costs)), measurement.map(distance)
        assert 0.95 * allowed <= cost <= allowed  # all rows alike: nearly the worst


@pytest.mark.parametrize("distance", [-1, 1.5, True, "1"])
def test_persons_come_in_whole_numbers(distance):
    with pytest.raises(dp.OpenDPException, match="expected a number of records or persons"):
        make_sketch(of_persons(PURE)).map(distance)


def test_persons_and_records_do_not_mix():
    persons, records = of_persons(PURE), design(PURE)
    with pytest.raises(ParameterError, match="it protects persons"):
        make_column(persons, "age")
    for other in (count_of(records, 8.0, dp.m.then_laplace), make_sketch(records)):
        with pytest.raises(dp.OpenDPException, match="MetricMismatch"):
            dp.c.make_composition([make_sketch(persons), other])
    with pytest.raises(dp.OpenDPException, match="MetricMismatch"):
        dp.c.make_composition([make_sketch(persons), make_sketch(of_persons(replaced(PURE)))])


# ---------------------------------------------------------------- tables


@pytest.mark.parametrize("kind", ["array", "rows", "pandas", "polars", "arrow", "parts", "csv"])
def test_tables_of_all_kinds_stand_in_one_study(kind, tmp_path):
    frame = pd.DataFrame(TABLE, columns=["x", "y"])
    frame.to_csv(tmp_path / "table.csv", index=False)
    table = {
        "array": TABLE,
        "rows": TABLE.tolist(),
        "pandas": frame,
        "polars": pl.from_pandas(frame),
        "arrow": pa.Table.from_pandas(frame),
        "parts": [TABLE[:50], TABLE[50:]],
        "csv": tmp_path / "table.csv",
    }[kind]
    plan = design(GAUSSIAN)
    column = make_column(plan, 1)
    assert np.allclose(column(table), TABLE[:, 1], rtol=0, atol=0)
    sketch = make_sketch(plan)
    answers = dp.c.make_fully_adaptive_composition(*space_of(sketch))(table)
    values = [
        [question.values.tolist() for question in questions(lambda: answers(sketch))]
        for _ in range(2)
    ]
    direct = [question.values.tolist() for question in questions(lambda: ps.sketch(TABLE, plan))]
    assert values == [direct, direct]


@pytest.mark.parametrize("make", [lambda: iter([TABLE]), lambda: [TABLE, iter([TABLE])]])
def test_a_table_that_is_used_up_is_refused(make):
    plan = design(GAUSSIAN)
    for part in (make_sketch(plan), make_column(plan, 0)):
        with pytest.raises(dp.OpenDPException, match="read again"):
            part(make())
    reader = pa.table({"x": TABLE[:, 0], "y": TABLE[:, 1]}).to_reader()
    with pytest.raises(dp.OpenDPException, match="read again"):
        make_sketch(plan)(reader)
    with pytest.raises(dp.OpenDPException, match="read again"):
        make_sketch(plan)(7)


def test_every_row_is_one_number_of_a_column():
    """Also one without a value, and one that a schema leaves out of the sketch."""
    schema = ps.Schema([ps.Number("age", 0, 100, missing="drop"), ps.Flag("smoker")])
    plan = design(GAUSSIAN, domain=schema, n_features=20)
    frame = pd.DataFrame({"age": [20.0, None, 40.0], "smoker": ["yes", "no", "no"]})
    column = make_column(plan, "age")
    assert np.array_equal(column(frame), [20.0, math.nan, 40.0], equal_nan=True)
    assert (column >> dp.t.then_count())(frame) == 3
    assert column(frame.iloc[:0]) == []
    assert [column.map(d) for d in DISTANCES] == list(DISTANCES)


def test_a_table_that_cannot_be_read_costs_nothing_and_tells_no_value():
    plan = design(GAUSSIAN)
    sketch = make_sketch(plan)
    table = np.array([[0.123456, 0.5], [math.nan, 0.654321]])
    answers = dp.c.make_fully_adaptive_composition(*space_of(sketch))(table)
    with pytest.raises(dp.OpenDPException, match="missing") as caught:
        answers(sketch)
    assert "123456" not in str(caught.value)
    assert "654321" not in str(caught.value)
    assert answers.privacy_loss(1) == 0
    assert isinstance(answers(make_sketch(plan, missing="center")), ps.Sketch)
    assert answers.privacy_loss(1) == sketch.map(1)


@pytest.mark.parametrize("n_records", [0, -1, 2.5])
def test_what_is_public_is_stated_where_it_is(n_records):
    with pytest.raises(ParameterError, match="n_records"):
        make_column(design(GAUSSIAN), 0, n_records=10)
    with pytest.raises(ParameterError, match="n_records"):
        make_column(design(replaced(GAUSSIAN)), 0)
    with pytest.raises(ParameterError, match="n_records"):
        make_column(design(replaced(GAUSSIAN)), 0, n_records=n_records)


def test_parameters_are_checked_before_any_record():
    plan = design(GAUSSIAN)
    for make in (make_sketch, lambda plan: make_column(plan, 0)):
        with pytest.raises(ParameterError, match="expected a Design"):
            make("design")
    with pytest.raises(ParameterError, match="source"):
        make_sketch(plan, source="")
    with pytest.raises(ParameterError, match="missing"):
        make_sketch(plan, missing="drop")


def test_opendp_is_asked_to_trust_us():
    dp.disable_features("honest-but-curious")
    with pytest.raises(dp.OpenDPException, match="honest-but-curious"):
        make_sketch(design(GAUSSIAN))
    dp.enable_features("honest-but-curious")
    assert table_domain() == make_sketch(design(GAUSSIAN)).input_domain


def test_a_record_of_a_sheet_takes_no_empty_rows_along(tmp_path):
    """A sheet ends with its last value: without that record, the rows before it would go too."""
    rows = [["x", "y"], [0.5, 0.5], [None, None], [None, None], [None, None], [0.25, 0.25]]
    write_workbook(tmp_path / "full.xlsx", {"s": rows})
    write_workbook(tmp_path / "cut.xlsx", {"s": rows[:2]})
    column = make_column(design(GAUSSIAN), 0)
    full, cut = column(tmp_path / "full.xlsx"), column(tmp_path / "cut.xlsx")
    assert len(full) - len(cut) == 1 <= column.map(1)
