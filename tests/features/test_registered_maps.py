"""Feature maps of other packages: found by name, checked, planned, summed, learned and named."""

import dataclasses
from importlib.metadata import EntryPoint

import numpy as np
import pytest

import privsketch as ps
from privsketch.features import (
    FEATURE_MAPS,
    FOURIER_LAWS,
    TABLE_SIZE,
    FeatureMap,
    Quantiser,
    feature_map,
    maps,
    require_known_harmonics,
    table_index,
)
from privsketch.noise import plan_sharing
from privsketch.sketching import design_cost, exact_sums, joined_sketch
from tests import seams
from tests.chance import exact_answers
from tests.commands import USAGE, run, succeeded

TOP = 2**14
ORIGIN = "triangle-waves 1.2"
BUDGET = ps.Budget(epsilon=2.0, delta=1e-6)
RECORDS = np.random.default_rng(5).normal(size=(600, 2)) * 0.05 + np.repeat(
    [[0.2, 0.3], [0.8, 0.6]], 300, axis=0
)


def triangle_table():
    """The table of CONTRIBUTING.md: a triangle wave, and the wave a quarter of a turn later."""
    wave = np.abs(np.arange(TABLE_SIZE) - TABLE_SIZE // 2) - TABLE_SIZE // 4
    return np.stack([wave, np.roll(wave, TABLE_SIZE // 4)], axis=1).astype(np.int32)


TRIANGLE = FeatureMap("triangle", triangle_table, TOP * 8 / np.pi**2, True, FOURIER_LAWS)


class FakePoint:
    """An entry point whose distribution need not be installed."""

    def __init__(self, part):
        self.part, self.value = part, "triangle_waves:TRIANGLE"
        self.dist = type("Dist", (), {"name": "triangle-waves", "version": "1.2"})

    def load(self):
        return self.part


@pytest.fixture
def register(monkeypatch):
    """Registers a part as feature map under a name."""

    def register(part, name="triangle"):
        points = {name: (FakePoint(part),)}
        seams.set(monkeypatch, "plugins.registered", lambda group: points)
        maps._registered_map.cache_clear()

    yield register
    maps._registered_map.cache_clear()


@pytest.fixture
def plan(register):
    register(TRIANGLE)

    def plan(**options):
        given = {"n_components": 2, "domain": ps.Box([0, 0], [1, 1]), "budget": BUDGET}
        given |= {"n_records": 600, "n_features": 64, "random_state": 1}
        return ps.Design.plan(**{**given, "feature_map": "triangle", **options})

    return plan


def test_the_command_line_knows_a_registered_map(plan, tmp_path):
    """As CONTRIBUTING.md says; an unknown name gets the list."""
    file = tmp_path / "study.json"
    facts = ["-k", 2, "--box", 0, 1, "--dim", 2, "--epsilon", 2, "--delta", "1e-6"]
    numbers = ["--records", 600, "--features", 64, "--seed", 1]
    succeeded("design", *facts, *numbers, "--feature-map", "triangle", "-o", file)
    assert ps.Design.load(file) == plan(domain=ps.Box(0, 1, dim=2))
    refused = run("design", *facts, "--feature-map", "square", "-o", tmp_path / "other.json")
    assert refused.exit_code == USAGE
    for name in ("fourier", "second-moments", "triangle"):
        assert f"'{name}'" in refused.stderr


def test_a_registered_map_is_found_with_its_origin(register):
    register(TRIANGLE)
    found = feature_map("triangle")
    assert found.origin == ORIGIN
    assert found.bounds == TRIANGLE.bounds
    assert found is feature_map("triangle")


def test_names_of_the_library_win(register):
    register(dataclasses.replace(TRIANGLE, name="fourier"), "fourier")
    assert feature_map("fourier") is FEATURE_MAPS["fourier"]


def test_a_later_change_of_the_table_changes_neither_bounds_nor_sums(register):
    table = triangle_table()
    register(dataclasses.replace(TRIANGLE, build_table=lambda: table))
    found = feature_map("triangle")
    table *= 100
    np.testing.assert_array_equal(found.table, triangle_table())
    assert found.bounds.linf == TOP
    with pytest.raises(ValueError, match="read-only"):
        found.table[0] = 0


class Understated(FeatureMap):
    """A map that states bounds below those of its table."""

    @property
    def bounds(self):
        return maps.PairBounds(1, 1, 1)


def changed(**fields):
    return dataclasses.replace(TRIANGLE, **fields)


@pytest.mark.parametrize(
    ("part", "problem"),
    [
        (triangle_table, "expected a FeatureMap, got function"),
        (Understated(*dataclasses.astuple(TRIANGLE)), "expected a FeatureMap, got Understated"),
        (changed(name="wave"), "the map is named 'wave'"),
        (changed(build_table=None), "only maps with a table"),
        (changed(tasks=("pca",)), "only maps with a table"),
        (changed(laws=("normal",)), "laws must be"),
        (changed(laws=()), "laws must be"),
        (changed(amplitude=0.0), "amplitude must be"),
        (changed(build_table=lambda: triangle_table()[:-1]), "an array"),
        (changed(build_table=lambda: triangle_table().astype(np.int64)), "an array"),
        (changed(build_table=lambda: triangle_table() * 0), "not all 0"),
        (changed(build_table=lambda: triangle_table() * 2**12), "must be below"),
        (
            changed(build_table=lambda: np.full((TABLE_SIZE, 2), -(2**31), np.int32)),
            "must be below",
        ),
    ],
)
def test_what_is_no_such_map_is_refused_with_the_name_of_its_distribution(register, part, problem):
    register(part)
    with pytest.raises(ps.ParameterError, match=f"triangle-waves 1.2: .*{problem}"):
        feature_map("triangle")


def test_entries_up_to_the_limit_are_allowed(register):
    register(changed(build_table=lambda: triangle_table() * (2**12 - 1)))
    assert feature_map("triangle").bounds.linf == TOP * (2**12 - 1)


def test_the_limit_is_that_of_sums(plan, register):
    """A design of the largest entries that are allowed is not refused for its sums."""
    scale = 2**12 - 1
    register(
        changed(build_table=lambda: triangle_table() * scale, amplitude=scale * TRIANGLE.amplitude)
    )
    assert plan(noise="gaussian").contribution.largest == scale * TOP


@pytest.mark.parametrize("name", ["fourier", "one-bit"])
def test_harmonics_of_our_own_maps_are_known(name):
    require_known_harmonics(FEATURE_MAPS[name])


def sawtooth():
    wave = np.arange(TABLE_SIZE) - TABLE_SIZE // 2
    return np.stack([np.roll(wave, -TABLE_SIZE // 4), wave], axis=1).astype(np.int32)


@pytest.mark.parametrize(
    "part",
    [
        changed(dithered=False),  # a third harmonic that nothing averages out
        changed(amplitude=float(TOP)),  # not that of the first harmonic
        changed(build_table=lambda: triangle_table() + 2**12),  # a constant
        changed(build_table=lambda: triangle_table()[:, ::-1].copy()),  # turns the other way
        changed(build_table=sawtooth, amplitude=TABLE_SIZE / np.pi),  # even harmonics
    ],
)
def test_designs_refuse_harmonics_that_learners_would_misjudge(plan, register, part):
    register(part)
    with pytest.raises(ps.ParameterError, match="first harmonic"):
        plan()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"masks": "uniform:10"},
        {"masks": "block:8"},
        {"masks": "poisson:0.5"},
        {"frequencies": "structured", "domain": ps.Ball(2, 1.0)},
        {
            "frequencies": "structured",
            "domain": ps.Ball(5, 1.0),
            "n_features": 256,
            "masks": "block:128",
        },
        {"noise": "laplace"},
    ],
)
def test_sums_are_those_of_the_definition(plan, options, monkeypatch):
    """Every record looked up in the table; masks are drawn once and used for both."""

    design = plan(**options)
    records = np.resize(RECORDS, (300, design.dim))
    size, block = design.n_features, design.frequencies.block_size(design.dim)
    rng = np.random.default_rng(2)
    drawn = []

    def draw(count, rate_or_size, kept=None):
        shape = count if kept is None else (count, rate_or_size)
        drawn.append(rng.random(shape) < 0.5)
        return drawn[-1]

    seams.set(monkeypatch, "sums.subsets", draw)
    seams.set(monkeypatch, "sums.bernoulli", draw)
    found = exact_sums([records], design, n_threads=1)

    frequencies, domain = design.frequencies, design.domain
    matrix, offsets = frequencies.matrix(domain), frequencies.offsets(domain)
    index = table_index(Quantiser(domain)(records), matrix, offsets, frequencies.turn_bits)
    pairs = triangle_table().astype(np.int64)[index]  # (n, n_features, 2)
    if drawn:
        (mask,) = drawn
        mask = mask.reshape(len(records), -1)
        pairs *= np.repeat(mask, size // mask.shape[1], axis=1)[:, :, np.newaxis]
        assert mask.shape[1] in (size, size // block)
    np.testing.assert_array_equal(found.sums, pairs.sum(axis=0).T.reshape(-1))


def test_many_records_in_parts_have_the_same_sums(plan):
    design = plan(n_features=4000)
    many = np.resize(RECORDS, (1000, 2))
    parts = [exact_sums([many[k : k + 100]], design).sums for k in range(0, 1000, 100)]
    np.testing.assert_array_equal(exact_sums([many], design).sums, np.sum(parts, axis=0))


@pytest.mark.parametrize("noise", ["gaussian", "laplace", "cube"])
def test_sketches_are_named_saved_merged_and_learned(plan, tmp_path, noise):
    design = plan(noise=noise)
    design.save(tmp_path / "design.json")
    assert ps.Design.load(tmp_path / "design.json") == design

    sketches = []
    for source in ("a", "b"):
        made = ps.sketch(RECORDS, design, source=source)
        assert made.receipt.plugins == (ORIGIN,)
        made.save(tmp_path / source)
        sketches.append(ps.load(tmp_path / source))
        assert sketches[-1].receipt == made.receipt
    merged = ps.merge(sketches)
    assert merged.receipt.plugins == (ORIGIN,)
    merged.save(tmp_path / "merged")
    assert ps.load(tmp_path / "merged").receipt == merged.receipt
    assert f"plugin      {ORIGIN}" in merged.describe()
    assert ps.learn_kmeans(merged, 2, random_state=0).centers.shape == (2, 2)


def test_k_means_finds_the_clusters(plan):
    with exact_answers():
        made = ps.sketch(RECORDS, plan(budget=ps.Budget(epsilon=20.0, delta=1e-6)), source="a")
    centers = ps.learn_kmeans(made, 2, random_state=0).centers
    centers = centers[np.argsort(centers[:, 0])]
    np.testing.assert_allclose(centers, [[0.2, 0.3], [0.8, 0.6]], atol=0.05)


def test_a_mixture_of_unknown_harmonics_is_refused(plan):
    with pytest.raises(ps.ParameterError, match=f"of {ORIGIN}: mixtures"):
        plan(task="gaussian-mixture")
    made = ps.sketch(RECORDS, plan(), source="a")
    with pytest.raises(ps.ParameterError, match=f"of {ORIGIN}: mixtures"):
        ps.learn_gaussian_mixture(made, 2)


def test_sources_are_compared_without_a_model(plan):
    sketches = [ps.sketch(RECORDS, plan(), source=source) for source in ("a", "b", "c")]
    assert "only sketches of Fourier and one-bit features" in ps.compare(sketches).notes[0]


def test_plans_forecasts_and_costs_are_told(plan):
    design = plan(n_features=None)
    assert "triangle" in design.describe()
    assert design.forecast() is not None
    assert design_cost(design) > 0


def test_a_design_whose_map_is_not_installed_says_so(plan, register, tmp_path):
    path = tmp_path / "design.json"
    plan().save(path)
    register(TRIANGLE, name="another")
    with pytest.raises(ps.FileError, match=r"feature_map='triangle'.*install the package"):
        ps.Design.load(path)


def test_what_an_entry_point_names_is_imported(monkeypatch):
    point = EntryPoint("triangle", f"{__name__}:TRIANGLE", "privsketch.feature_maps")
    seams.set(monkeypatch, "plugins.registered", lambda group: {"triangle": (point,)})
    maps._registered_map.cache_clear()
    assert feature_map("triangle").bounds == TRIANGLE.bounds
    maps._registered_map.cache_clear()


def test_a_total_of_several_holders_names_the_map(plan):
    design = plan(n_holders=2, sharing="holders", noise="gaussian")
    sharing = plan_sharing(design.sum_noise, n_holders=2, by="holders")
    found = exact_sums([RECORDS], design)
    words = design.sum_noise.weighted(found.sums, found.n_records)
    level = sharing.level_of(2)
    drawn = [sharing.draw_holder(words)[0][level] for _ in range(2)]
    total = joined_sketch(design, sum(drawn), sharing, sources=["a", "b"], study="a1b2")
    assert total.receipt.plugins == (ORIGIN,)
    assert ps.Sketch.from_bytes(total.to_bytes()).receipt == total.receipt
