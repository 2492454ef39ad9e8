"""Frequencies of one's own: arrays and laws, stored in the design as public integers."""

import base64
import copy
import json
from importlib.metadata import EntryPoint

import numpy as np
import pytest

import privsketch as ps
from tests import seams

BOX = ps.Box([-2, 0], [2, 1])
OMEGA = np.random.default_rng(0).normal(size=(40, 2)) * [1.5, 6.0]


def plan(frequencies=OMEGA, **options):
    return ps.Design.plan(
        **{
            "n_components": 2,
            "domain": BOX,
            "budget": ps.Budget(epsilon=1.0, delta=1e-6),
            "n_records": 1e4,
            "random_state": 3,
            "frequencies": frequencies,
            **options,
        }
    )


def test_an_array_becomes_the_integers_of_the_design():
    design = plan()
    assert design.n_features == 40
    assert design.frequencies.law == "own"
    integers = design.frequencies.matrix(BOX)
    assert integers.dtype == np.int16
    # The finest resolution at which the largest entry fits.
    assert np.abs(integers.astype(int)).max() > 2**14
    half_step = np.pi * 2.0 ** (15 - design.frequencies.turn_bits) / BOX.half_widths
    assert (np.abs(design.radians() - OMEGA) <= half_step * (1 + 1e-9)).all()


def test_sums_are_those_of_the_table_at_the_rounded_frequencies():
    X = np.random.default_rng(1).uniform([-2, 0], [2, 1], size=(200, 2))
    design = plan(budget=ps.Budget(epsilon=100.0, delta=1e-6))
    released = ps.sketch(X, design)
    phases = (X - BOX.center_vector) @ design.radians().T
    expected = np.exp(1j * phases).sum(axis=0)
    # Noise, and the rounding of records to 2^-15 half-widths.
    assert np.abs(released.moments() - expected).max() < 8 * design.noise_std + 0.2


def test_they_are_part_of_the_file_and_of_the_fingerprint(tmp_path):
    design, other = plan(), plan(OMEGA + [[0.01, 0.0]] * 40)
    assert design.fingerprint == plan().fingerprint != other.fingerprint
    design.save(tmp_path / "design.json")
    loaded = ps.load(tmp_path / "design.json")
    assert loaded == design
    assert loaded.fingerprint == design.fingerprint
    X = np.zeros((50, 2))
    ps.sketch(X, loaded, source="a").save(tmp_path / "a.sketch")
    merged = ps.merge([ps.load(tmp_path / "a.sketch"), ps.sketch(X, design, source="b")])
    assert merged.design == design


def test_clusters_are_found_with_them():
    centers = np.array([[-1.0, 0.3], [1.0, 0.7]])
    rng = np.random.default_rng(2)
    X = centers[rng.integers(2, size=20_000)] + 0.05 * rng.normal(size=(20_000, 2))
    omega = rng.normal(size=(200, 2)) * [1.5, 6.0]
    for feature_map in ("fourier", "one-bit"):
        design = plan(omega, feature_map=feature_map)
        model = ps.learn_kmeans(ps.sketch(X, design), 2)
        order = np.argsort(model.centers[:, 0])
        np.testing.assert_allclose(model.centers[order], centers, atol=0.08)


def test_a_law_gives_them_from_the_public_seed():
    def law(n_features, domain, rng):
        assert domain == BOX
        return rng.normal(size=(n_features, 2)) / domain.half_widths

    design = plan(law)
    assert design.fingerprint == plan(law).fingerprint != plan(law, random_state=4).fingerprint
    assert design.n_features == plan("multi-scale").n_features
    assert plan(law, n_features=30).n_features == 30
    with pytest.raises(ps.ParameterError, match="3 rows for n_features=30"):
        plan(lambda *_: OMEGA[:3], n_features=30)


def test_a_package_registers_a_law(monkeypatch):
    point = EntryPoint("spiral", f"{__name__}:spiral", "privsketch.frequency_laws")
    known = {"frequency_laws": {"spiral": (point,)}}
    seams.set(monkeypatch, "plugins.registered", lambda group: known.get(group, {}))
    design = plan("spiral", n_features=20)
    np.testing.assert_allclose(design.radians(), spiral(20, BOX, None), atol=0.01)
    # The design has the integers: who reads it needs no package.
    known.clear()
    assert ps.Design.from_bytes(design.to_bytes()) == design
    with pytest.raises(ps.ParameterError, match="expected one of 'multi-scale'"):
        plan("spiral")


def spiral(n_features, domain, rng):
    angle = np.linspace(0, 20, n_features)
    return angle[:, np.newaxis] * np.stack([np.cos(angle), np.sin(angle)], axis=1)


@pytest.mark.parametrize(
    ("frequencies", "words"),
    [
        (np.ones((4, 3)), r"array \(n_features, 2\).* not one of shape \(4, 3\)"),
        (np.ones(4), r"not one of shape \(4,\)"),
        (np.ones((0, 2)), r"not one of shape \(0, 2\)"),
        (np.ones((4, 2), complex), "not one of dtype complex128"),
        (np.ones((4, 2), bool), "not one of dtype bool"),
        ([[1.0, "x"]], "not one of dtype"),
        ([[1.0], [1.0, 2.0]], "not list"),
        (3.0, r"not one of shape \(\)"),
        (np.array([[1.0, 2.0], [np.nan, 0.0]]), "row 1 has an entry that is NaN or infinite"),
        (np.array([[1.0, -np.inf]]), "row 0 has an entry that is NaN or infinite"),
        (np.zeros((4, 2)), "all entries are 0"),
        (np.array([[1.0, 1e7]]), r"column 1 is too large .* up to 1.029e\+05 radians"),
        (np.ones((2**20 + 1, 2)), "too many to be stored in a design; 1048576 fit"),
    ],
)
def test_what_is_no_array_of_frequencies_is_refused_in_words(frequencies, words):
    with pytest.raises(ps.ParameterError, match=words):
        plan(frequencies)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"frequency_scale": 1.0}, "leave it out"),
        ({"n_features": 39}, "n_features=39 with 40 frequencies"),
        ({"feature_map": "cells"}, "are for features of waves"),
        ({"task": "pca", "domain": ps.Ball(2, 1.0)}, "are for features of waves"),
    ],
)
def test_facts_that_contradict_an_array_are_refused(options, words):
    with pytest.raises(ps.ParameterError, match=words):
        plan(**options)


@pytest.mark.parametrize(
    "change",
    [
        lambda recipe: recipe.pop("values"),
        lambda recipe: recipe.update(values="AAAA"),
        lambda recipe: recipe.update(values=recipe["values"][:-4] + "****"),
        lambda recipe: recipe.update(values=recipe["values"][::-1]),
        lambda recipe: recipe.update(values=base64.b64encode(b"\x00\x80" * 80).decode()),  # -2^15
        lambda recipe: recipe.update(values=base64.b64encode(bytes(160)).decode()),
        lambda recipe: recipe.update(turn_bits=16),
        lambda recipe: recipe.update(turn_bits=33),
        lambda recipe: recipe.update(law="multi-scale"),
        lambda recipe: recipe.update(n_features=20),
        lambda recipe: recipe.update(n_features=2**20),
        lambda recipe: recipe.update(tail=[0.1, 0.5]),
    ],
)
def test_altered_files_are_refused(change):
    value = copy.deepcopy(plan().to_json())
    change(value["frequencies"])
    with pytest.raises(ps.PrivsketchError):
        ps.Design.from_json(value).radians()


def test_noise_is_that_of_as_many_frequencies_of_ours():
    ours = plan("multi-scale", n_features=40)
    assert plan().sum_noise == ours.sum_noise
    assert json.loads(plan().to_bytes())["budget"] == json.loads(ours.to_bytes())["budget"]


def test_estimators_take_them():
    X = np.random.default_rng(1).uniform([-2, 0], [2, 1], size=(500, 2))
    model = ps.PrivateKMeans(
        2, epsilon=1.0, delta=1e-6, domain=BOX, options={"frequencies": OMEGA}
    ).fit(X)
    assert model.sketch_.design.frequencies.law == "own"
    assert "frequencies=an array of shape (40, 2)" in model.receipt_.mechanism
    assert ps.Sketch.from_bytes(model.sketch_.to_bytes()).design == model.sketch_.design


@pytest.mark.parametrize("law", [lambda n_features, domain: OMEGA, dict, lambda: OMEGA])
def test_a_law_that_cannot_be_called_as_one_is_refused(law):
    with pytest.raises(ps.ParameterError, match="frequencies: your law: "):
        plan(law)


@pytest.mark.parametrize(
    ("omega", "n_seen"),
    [
        (np.ones((40, 2)), 1),
        (np.linspace(1, 3, 40)[:, None] * [1.0, 2**0.5], 1),  # of full rank by its rounding
        (OMEGA * [1.0, 0.0], 1),
        (OMEGA, 2),
    ],
)
@pytest.mark.filterwarnings("ignore::privsketch.PrivsketchWarning")
def test_frequencies_that_miss_directions_are_never_called_good(omega, n_seen):
    design = plan(omega, n_records=1e6)
    exact = plan(omega, n_records=1e6, budget=None, insecure=True)
    X = np.random.default_rng(0).uniform([-2, 0], [2, 1], size=(500, 2))
    released = ps.sketch(X, exact, insecure=True)
    model = ps.learn_kmeans(released, 2)
    text = f"the frequencies see only {n_seen} of 2 directions"
    for described in (design.describe(), exact.describe(), model.describe()):
        assert (text in described) == (n_seen < 2)
    assert (design.forecast().verdict == "hopeless") == (n_seen < 2)
    assert ("good" in design.describe()) == (n_seen == 2)
    assert "so few records" not in design.describe()
    if n_seen < 2:
        assert model.cost_ratio is None
        assert "no number of records" in design.forecast().describe()


def test_a_plan_with_them_warns():
    with pytest.warns(ps.PrivsketchWarning, match="see only 1 of 2 directions"):
        plan(np.ones((40, 2)))
