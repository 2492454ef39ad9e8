"""Designs for regression and classification: weights, the radius, what is refused, forecasts."""

import math

import numpy as np
import pytest

import privsketch as ps
from privsketch.design import describe_design
from privsketch.design.alternatives import alternatives
from privsketch.design.cautions import cautions
from privsketch.design.regression import noise_of
from privsketch.features import taxicab_shares, to_coordinates

BUDGET = ps.Budget(1.0, 1e-6)
NUMBERS = [ps.Number("a", 0, 1), ps.Number("b", -5, 5)]
CATEGORY = ps.Category("c", ["p", "q", "r"])
SCHEMA = ps.Schema([*NUMBERS, CATEGORY, ps.Number("y", 0, 100)])
ALL_KINDS = ps.Schema(
    [
        ps.Number("y", 0, 100, weight=3.0),
        ps.Date("day", "2020-01-01", "2021-01-01"),
        CATEGORY,
        ps.Flag("sick"),
        ps.Flag("seen", missing="category"),
        ps.Cycle("hour", 24),
    ]
)


def table_of_all_kinds(n=100):
    pa = pytest.importorskip("pyarrow")
    return pa.table(
        {
            "y": np.linspace(0, 100, n),
            "day": ["2020-03-01"] * n,
            "c": ["p", "q"] * (n // 2),
            "sick": [True, False] * (n // 2),
            "seen": pa.array([True, None] * (n // 2)),
            "hour": np.linspace(0, 24, n),
        }
    )


def plan(task="regression", domain=SCHEMA, **choices):
    facts = {"budget": BUDGET, "n_records": 5000, "random_state": 0, **choices}
    return ps.Design.plan(task=task, domain=domain, **facts)


class TestWeights:
    @pytest.mark.parametrize("target", ["y", "day", "sick"])
    def test_the_target_has_three_tenths_of_the_squared_radius(self, target):
        schema = plan(domain=ALL_KINDS, target=target).schema
        squares = {column.name: column.squared_radius for column in schema.columns}
        assert math.isclose(squares[target] / sum(squares.values()), 0.3, rel_tol=1e-14)
        others = {c.name: c.weight for c in schema.columns if c.name != target}
        assert others == {c.name: c.weight for c in ALL_KINDS.columns if c.name != target}

    @pytest.mark.parametrize("target", ["c", "sick", "seen"])
    def test_classes_have_it_too(self, target):
        design = plan("classification", ALL_KINDS, target=target)
        squares = {column.name: column.squared_radius for column in design.schema.columns}
        assert math.isclose(squares[target], 0.3 * design.domain.radius**2, rel_tol=1e-14)

    def test_vectors(self):
        design = plan(target="y")
        assert round(design.schema.columns[-1].weight, 9) == 1.008889064
        assert round(design.domain.radius**2, 9) == 3.392857143
        assert round(plan(target="y", clip="uniform").domain.radius ** 2, 9) == 2.419931908

    def test_without_a_target_weights_stay(self):
        assert plan(domain=ALL_KINDS).schema == ALL_KINDS
        assert plan(domain=ALL_KINDS).domain == ALL_KINDS.ball

    def test_planning_again_changes_no_weight(self):
        first = plan(target="y")
        again = plan(domain=first.schema, target="y")
        weights = [[c.weight for c in design.schema.columns] for design in (first, again)]
        np.testing.assert_allclose(*weights, rtol=1e-14)


class TestDomains:
    def test_a_box_becomes_numbers_of_one_scale(self):
        box = ps.Box([18, 0], [100, 500_000])
        design = plan(domain=box)
        assert [(c.name, c.low, c.high) for c in design.schema.columns] == [
            ("x1", 18, 100),
            ("x2", 0, 500_000),
        ]
        named = plan(domain=box, columns=["age", "income"], target="income")
        assert named.schema.names == ("age", "income")
        assert plan(domain=ps.Box(0, 1, columns=["u", "v"])).schema.names == ("u", "v")

    def test_arrays_are_read_by_position(self):
        rng = np.random.default_rng(0)
        records = rng.uniform([18, 0], [100, 500_000], size=(2000, 2))
        design = plan(domain=ps.Box([18, 0], [100, 500_000]), target="x2")
        sums = ps.sketch(records, design.without_noise(), insecure=True).second_moments()
        weights = [column.weight for column in design.schema.columns]
        encoded = ((records - [59, 250_000]) / [41, 250_000]) * weights
        np.testing.assert_allclose(sums, encoded.T @ encoded, atol=0.01 * len(records))

    def test_a_ball_has_no_weights(self):
        design = plan(domain=ps.Ball(3, 2.0), columns=["u", "v", "w"], target="w")
        assert design.schema is None
        assert design.domain == ps.Ball(3, 2.0)

    @pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
    def test_moments_mean_and_number_are_released(self, neighbours):
        design = plan(budget=ps.Budget(1.0, 1e-6, neighbours))
        assert (design.feature_map, design.mean) == ("second-moments", "released")
        assert design.noise == "gaussian"
        assert design.count == ("public" if neighbours == "replace" else "released")
        assert design.n_components == 0


class TestPureNoise:
    """Taxicab moments, whose noise does not grow with the number of columns."""

    @pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
    def test_taxicab_moments_of_the_box(self, neighbours):
        design = plan(budget=ps.Budget(1.0, 0.0, neighbours), target="y")
        assert (design.feature_map, design.noise, design.mean) == ("taxicab", "laplace", "omitted")
        assert design.count == ("public" if neighbours == "replace" else "omitted")
        assert design.domain == design.schema.box
        assert ps.Design.from_json(design.to_json()) == design
        lines = design.describe().splitlines()
        assert "center      the mean of the records, which the sums hold" in lines

    @pytest.mark.parametrize("target", ["y", "day", "sick"])
    def test_the_target_has_three_tenths_of_the_norm(self, target):
        design = plan(domain=ALL_KINDS, budget=ps.Budget(1.0), target=target)
        assert taxicab_shares(design.schema)[target] == pytest.approx(0.3, rel=1e-14)
        others = {c.name: c.weight for c in design.schema.columns if c.name != target}
        assert others == {c.name: c.weight for c in ALL_KINDS.columns if c.name != target}

    def test_vector(self):
        design = plan(budget=ps.Budget(1.0), target="y")
        assert design.schema.columns[-1].weight == pytest.approx(1.5, rel=1e-14)

    @pytest.mark.parametrize(
        "stated",
        [
            {"mean": "released"},
            {"count": "released"},
            {"clip": "uniform"},
            {"feature_map": "second-moments"},
            {"domain": ps.Ball(3, 1.0)},
        ],
        ids=str,
    )
    def test_what_belongs_to_a_ball_gets_one(self, stated):
        design = plan(budget=ps.Budget(1.0), **stated)
        assert (design.feature_map, design.noise) == ("second-moments", "laplace")

    def test_by_name_and_with_a_delta(self):
        assert plan(noise="laplace").feature_map == "taxicab"
        assert plan(feature_map="taxicab").noise == "laplace"
        for stated in ({"clip": "uniform"}, {"noise": "gaussian"}, {"mean": "released"}):
            with pytest.raises(ps.PrivsketchError, match=next(iter(stated))):
                plan(feature_map="taxicab", **stated)

    def test_the_noise_of_the_forecast_is_that_of_the_sketch(self):
        design = plan(domain=ALL_KINDS, budget=ps.Budget(1.0), target="y")
        sketch = ps.Sketch.from_bytes(ps.sketch(table_of_all_kinds(), design).to_bytes())
        std, gains, count_std = noise_of(design)
        change = to_coordinates(design.domain, design.column_kinds)
        released = np.square(change) @ sketch.taxicab_moments().variance @ np.square(change).T
        # Two numbers, the number and the flag, the number and the hour.
        for i, j in ((0, 1), (0, 6), (0, 10)):
            expected = std * gains[i] * gains[j]
            assert math.sqrt(released[1 + i, 1 + j]) == pytest.approx(expected, rel=1e-9)
        assert count_std == pytest.approx(math.sqrt(sketch.count_variance), rel=1e-12)

    def test_categories_need_far_fewer_records_than_in_a_ball(self):
        labels = [ps.Category(f"c{j}", list("abcdefgh")) for j in range(6)]
        facts = {"domain": ps.Schema([*NUMBERS, *labels]), "target": "a", "budget": ps.Budget(1.0)}
        taxicab, ball = plan(**facts), plan(**facts, feature_map="second-moments")
        fewer, more = (design.forecast().n_records_needed for design in (taxicab, ball))
        assert 3 * fewer < more

    def test_alternatives(self):
        study = {"task": "regression", "domain": SCHEMA, "target": "y", "budget": ps.Budget(1.0)}
        comparison = alternatives({**study, "n_records": 5000}, lambda design: 100.0)
        names = [choice.name for choice in comparison.alternatives]
        assert names == ["planned", "second moments of a ball"]
        assert all(choice.noise.total < math.inf for choice in comparison.alternatives)


class TestClipping:
    """Encoded records outside of a smaller ball are moved to it, along their radius."""

    def test_records_are_moved_into_the_ball(self):
        design = plan(target="y", clip="uniform").without_noise()
        rng = np.random.default_rng(1)
        table = {
            "a": rng.choice([0.0, 1.0], 400),
            "b": rng.choice([-5.0, 5.0, 0.0], 400),
            "c": rng.choice(["p", "q", "r", "z"], 400),
            "y": rng.choice([0.0, 100.0], 400),
        }
        pa = pytest.importorskip("pyarrow")
        sums = ps.sketch(pa.table(table), design, insecure=True).second_moments()
        w, corner = design.schema.columns[-1].weight, 1 / math.sqrt(2)
        labels = np.array(["p", "q", "r", "z"])
        simplex = corner * ((table["c"][:, np.newaxis] == labels) - 0.25)
        a, b, y = 2 * table["a"] - 1, table["b"] / 5, w * (table["y"] / 50 - 1)
        encoded = np.column_stack([a, b, simplex, y])
        norms = np.linalg.norm(encoded, axis=1, keepdims=True)
        radius = design.domain.radius
        assert (norms > radius).any()
        assert (norms < radius).any()
        clipped = encoded * np.minimum(1, radius / norms)
        np.testing.assert_allclose(sums, clipped.T @ clipped, atol=0.004 * len(a))
        # Records that stay where they are would be told from this.
        assert np.abs(sums - encoded.T @ encoded).max() > 0.1 * len(a)

    def test_a_check_tells_the_holder_how_many_are_moved(self):
        corners = np.array([[0.0, -5.0, 100.0], [0.5, 0.0, 50.0], [0.5, 0.0, 101.0]])
        schema = ps.Schema([*NUMBERS, ps.Number("y", 0, 100)])
        design = plan(domain=schema, target="y", clip="uniform")
        assert ps.check(corners, design).n_outside == 2  # a corner of the ball, and a bound
        assert ps.check(corners, plan(domain=schema, target="y")).n_outside == 1

    def test_a_smaller_ball_about_the_center_and_nothing_else(self):
        design = plan(target="y")
        content = design.to_json()

        def read(task="regression", **ball):
            domain = {**content["domain"], **ball}
            return ps.Design.from_json({**content, "task": task, "domain": domain})

        radius = content["domain"]["radius"]
        assert read(radius=radius / 2).domain.radius == radius / 2
        assert read(radius=radius) == design
        center = list(content["domain"]["center"])
        center[0] += 0.1
        for wrong in ({"radius": 1.01 * radius}, {"radius": radius / 2, "center": center}):
            with pytest.raises(ps.PrivsketchError, match="domain, columns or unit"):
                read(**wrong)

    def test_other_tasks_have_the_whole_ball(self):
        content = ps.Design.plan(
            task="pca", n_components=1, domain=SCHEMA, budget=BUDGET, n_records=5000
        ).to_json()
        content["domain"]["radius"] /= 2
        with pytest.raises(ps.PrivsketchError, match="domain, columns or unit"):
            ps.Design.from_json(content)

    def test_one_number_gains_nothing_beyond_its_corner(self):
        schema = ps.Schema([ps.Number("x", 0, 1), ps.Flag("f"), CATEGORY])
        design = plan("classification", schema, clip="uniform")
        assert design.domain.radius <= schema.radius


class TestRefusals:
    @pytest.mark.parametrize(
        ("choices", "message"),
        [
            ({"n_components": 3}, "n_components=3"),
            ({"target": "z"}, "target='z': is not the name of a column"),
            ({"target": "c"}, "target='c': is not a number"),
            ({"task": "classification", "target": "y"}, "target='y': is not a category"),
            ({"task": "classification", "domain": ps.Ball(3, 1.0)}, "needs a schema"),
            ({"domain": ps.Ball(3, 1.0), "target": "y"}, "columns="),
            ({"domain": ps.Ball(1, 1.0)}, "two columns"),
            ({"domain": ps.Schema([ps.Number("y", 0, 1)]), "target": "y"}, "two columns"),
            ({"domain": ps.Schema([CATEGORY, ps.Category("d", ["u"])])}, "no column"),
            ({"domain": ALL_KINDS, "target": "hour"}, "target='hour'"),
            ({"domain": ALL_KINDS, "target": "seen"}, "target='seen'"),
            ({"domain": ps.Ball(3, 1.0), "clip": "uniform"}, "clip='uniform'"),
            ({"clip": "round"}, "clip='round'"),
            ({"feature_map": "quadratic"}, "feature_map='quadratic'"),
            ({"n_features": 10}, "n_features"),
            ({"frequencies": "orthobases"}, "frequencies"),
            ({"frequency_scale": 1.0}, "frequency_scale"),
            ({"noise": "cube", "budget": ps.Budget(1.0)}, "noise='gaussian' or 'laplace'"),
            ({"masks": "records:0.5"}, "masks"),
            ({"covariance_type": "full"}, "covariance_type"),
            ({"task": "kmeans", "n_components": 2, "target": "y"}, "target='y' with task='kmeans'"),
            ({"task": "pca", "n_components": 2, "clip": "corner"}, "clip='corner' with task='pca'"),
            ({"task": "kmeans"}, "n_components"),
        ],
        ids=str,
    )
    def test_what_contradicts_itself(self, choices, message):
        with pytest.raises(ps.PrivsketchError, match=message):
            plan(**choices)

    def test_a_file_with_components_or_a_wrong_target(self):
        content = plan(target="y").to_json()
        for change in ({"n_components": 2}, {"target": "c"}, {"task": "pca", "n_components": 1}):
            with pytest.raises(ps.PrivsketchError):
                ps.Design.from_json({**content, **change})

    def test_clusters_and_components_without_a_number(self):
        sketch = ps.sketch(np.zeros((50, 2)), plan(domain=ps.Box(-1, 1, dim=2)))
        with pytest.raises(ps.PrivsketchError, match="clusters and mixtures need"):
            ps.learn_kmeans(sketch)
        with pytest.raises(ps.PrivsketchError, match="n_components"):
            ps.learn_pca(sketch)
        assert ps.learn_pca(sketch, 1).n_components == 1


class TestFiles:
    @pytest.mark.parametrize("choices", [{}, {"target": "y"}, {"target": "y", "clip": "uniform"}])
    def test_round_trip(self, choices, tmp_path):
        design = plan(**choices)
        design.save(tmp_path / "d.json")
        again = ps.Design.load(tmp_path / "d.json")
        assert again == design
        assert again.fingerprint == design.fingerprint
        assert ("target" in design.to_json()) == ("target" in choices)

    def test_the_target_is_part_of_the_fingerprint(self):
        stated, other = plan(target="a"), plan(target="b")
        assert len({stated.fingerprint, other.fingerprint, plan().fingerprint}) == 3

    def test_designs_of_other_tasks_have_no_target(self):
        design = ps.Design.plan(n_components=2, domain=ps.Box(-1, 1, dim=2), budget=BUDGET)
        assert "target" not in design.to_json()


def lost_share(variances, target, n_records, noise_std, r2=0.3):
    """The forecast's formula, written out for one predictor after the other."""
    explained, total = r2 * target * n_records, 0.0
    priors = [explained / len(variances) / (n_records * v) for v in variances]
    for variance, prior in zip(variances, priors, strict=True):
        a = n_records * variance
        noise = noise_std**2 * (1 + sum(priors) + prior) + (1 - r2) * target * a
        total += a * prior * noise / (noise + prior * a**2)
    return total / explained


class TestForecasts:
    @pytest.mark.parametrize(
        ("n_records", "lost"), [(353, 0.666265), (2000, 0.0632118), (20_000, 0.00119881)]
    )
    def test_vectors(self, n_records, lost):
        forecast = plan(target="y", n_records=n_records).forecast()
        assert forecast.lost == pytest.approx(lost, rel=5e-6)

    def test_the_number_of_records_that_is_enough(self):
        needed = plan(target="y").forecast().n_records_needed
        # The vector is the upper end of a search that stops within 1 %.
        low, high = 1.0, 1e12
        while high / low > 1.01:
            middle = math.sqrt(low * high)
            lost = plan(target="y", n_records=middle).forecast().lost
            low, high = (low, middle) if lost <= 0.1 else (middle, high)
        assert round(high, 2) == 1550.35
        assert low <= needed <= high
        at, before = (plan(target="y", n_records=n).forecast().lost for n in (needed, needed - 1))
        assert at <= 0.1 < before

    def test_the_formula_by_hand(self):
        design = plan("classification", ALL_KINDS, target="sick", n_records=3000)
        weight = design.schema.columns[3].weight
        # Number of weight 3, date, four labels, three labels, the circle of radius 1/2.
        variances = [0.9, 0.1, *[1 / 8] * 3, *[1 / 6] * 2, 1 / 8, 1 / 8]
        noise_std = design.noise_std * design.domain.radius**2 * 5 / 7
        for rate, r2 in ((None, None), (0.05, 0.1)):
            target = weight**2 * (rate or 0.2) * (1 - (rate or 0.2))
            expected = lost_share(variances, target, 3000, noise_std, r2 or 0.3)
            forecast = design.forecast(rate=rate, r2=r2)
            assert forecast.lost == pytest.approx(expected, rel=1e-12)
            assert (forecast.rate, forecast.r2) == (rate or 0.2, r2 or 0.3)

    def test_a_rare_class_and_a_weak_signal_need_more(self):
        design = plan("classification", ALL_KINDS, target="c")
        usual = design.forecast().n_records_needed
        assert design.forecast(rate=0.02).n_records_needed > 1.5 * usual
        assert design.forecast(r2=0.05).n_records_needed > 1.5 * usual
        assert plan("classification", ALL_KINDS).forecast().n_records_needed > usual

    def test_merged_holders_add_records_and_noise(self):
        one, five = plan(n_records=1000), plan(n_records=5000)
        merged = one.forecast(n_holders=5).lost
        assert five.forecast().lost < merged < one.forecast().lost
        shared = plan(n_records=1000, n_holders=5, sharing="holders").forecast().lost
        assert five.forecast().lost <= shared * 1.001 < merged

    def test_verdicts(self):
        assert plan(n_records=1e5).forecast().verdict == "good"
        assert plan(n_records=1000).forecast().verdict == "rough"
        assert plan(n_records=50).forecast().verdict == "hopeless"
        # A number of records that noise drowns, whatever is known of the columns.
        drowned = plan(n_records=20).sum_noise.count_variance ** 0.5
        assert drowned > 20 / 4

    def test_without_a_number_of_records_the_forecast_is_good(self):
        design = plan(n_records=None)
        assert design.forecast().verdict == "good"
        fewer = plan(n_records=0.97 * design.n_records)
        assert fewer.forecast().verdict == "rough"

    def test_353_records_get_a_caution_and_no_number(self):
        schema = ps.Schema([*NUMBERS, ps.Number("y", 0, 100)])
        design = plan(domain=schema, target="y", n_records=353)
        assert design.forecast().lost == pytest.approx(0.45, abs=0.005)
        assert 960 <= design.forecast().n_records_needed <= 970
        assert "noise hides much of" in design.forecast().describe()
        assert any("coefficients may be visibly off" in text for text in cautions(design))
        few = plan(domain=schema, target="y", n_records=60)
        assert any("describe the noise" in text for text in cautions(few))

    def test_columns_without_classes_have_no_rate(self):
        for domain in (ps.Ball(3, 1.0), SCHEMA):
            with pytest.raises(ps.PrivsketchError, match="no classes"):
                plan(domain=domain).forecast(rate=0.1)

    @pytest.mark.parametrize("stated", [{"rate": 0.1}, {"r2": 0.0}, {"r2": 1}, {"r2": "half"}])
    def test_what_cannot_be_assumed(self, stated):
        with pytest.raises(ps.PrivsketchError, match=next(iter(stated))):
            plan(target="y").forecast(**stated)

    def test_other_tasks_assume_neither(self):
        design = ps.Design.plan(n_components=2, domain=ps.Box(-1, 1, dim=2), budget=BUDGET)
        with pytest.raises(ps.PrivsketchError, match="rate, r2"):
            design.forecast(rate=0.1)

    def test_a_file_without_a_possible_target_has_a_forecast(self):
        content = plan().to_json()
        labels = ps.Schema([CATEGORY]).to_json()
        ball = ps.Schema([CATEGORY]).ball
        domain = {**content["domain"], "radius": ball.radius, "center": list(ball.center), "dim": 4}
        columns = [f"c={label}" for label in CATEGORY.labels]
        frequencies = {**content["frequencies"], "n_features": 10}
        facts = {"schema": labels, "domain": domain, "columns": columns, "frequencies": frequencies}
        assert ps.Design.from_json({**content, **facts}).forecast().lost == 0

    def test_an_insecure_design_loses_to_sampling_alone(self):
        design = plan(target="y", budget=None, insecure=True)
        assert 0 < design.forecast().lost < plan(target="y").forecast().lost


class TestWords:
    def test_a_description(self):
        lines = describe_design(plan(target="y", clip="uniform")).splitlines()
        assert lines[0].endswith("for regression of y")
        assert any(line.startswith("clipping    records farther than 1.556") for line in lines)
        assert any(line.startswith("center      the mean of the records") for line in lines)
        assert not any(line.startswith("clipping") for line in plan().describe().splitlines())
        assert "for classification of any column" in plan("classification").describe()

    def test_scaled_columns_need_no_caution(self, recwarn):
        plan(domain=ps.Box([18, 0], [100, 500_000]))
        assert [str(warning.message) for warning in recwarn] == []

    def test_alternatives(self):
        study = {"task": "regression", "domain": SCHEMA, "target": "y", "budget": BUDGET}
        comparison = alternatives({**study, "n_records": 5000}, lambda design: 100.0)
        assert [choice.name for choice in comparison.alternatives] == ["planned", "laplace noise"]
        planned = comparison.recommended
        assert planned.low < planned.design.forecast().lost < planned.high
