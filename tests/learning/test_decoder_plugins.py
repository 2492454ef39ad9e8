"""Decoders that other packages register: found by name, checked, and named in receipts."""

from importlib.metadata import EntryPoint
from types import SimpleNamespace

import numpy as np
import pytest

import privsketch as ps
from privsketch.testing import check_decoder
from tests import seams

CENTERS = np.array([[-0.5, -0.5], [0.5, 0.5]])


class Distribution:
    name, version = "strange-decoders", "1.2"


def decode_known(problem, n_clusters, rng, *, n_init):
    """Return the true centers of the sketch below, whatever it says."""
    assert n_clusters == 2
    assert n_init >= 1
    assert isinstance(rng, np.random.Generator)
    assert problem.frequencies.shape == (len(problem.moments), 2)
    return SimpleNamespace(centers=CENTERS, weights=[2500, 2500], axis_widths=0.01)


def decode_points(problem, n_clusters, rng, *, n_init):
    return SimpleNamespace(centers=CENTERS[::-1], weights=[2500, 2500])


def decode_nothing(problem, n_clusters, rng, *, n_init):
    return None


def decode_too_few(problem, n_clusters, rng, *, n_init):
    return SimpleNamespace(centers=CENTERS[:1], weights=[5000])


def decode_negative(problem, n_clusters, rng, *, n_init):
    return SimpleNamespace(centers=CENTERS, weights=[5001, -1])


def decode_infinite(problem, n_clusters, rng, *, n_init):
    return SimpleNamespace(centers=CENTERS * np.inf, weights=[2500, 2500])


def decode_wrong(problem, n_clusters, rng, *, n_init):
    return SimpleNamespace(centers=-CENTERS + [0.5, 0.0], weights=[2500, 2500])


def decode_failing(problem, n_clusters, rng, *, n_init):
    raise RuntimeError("no luck")


NOT_CALLABLE = 3


@pytest.fixture
def registered(monkeypatch):
    """Register functions of this file as if another distribution did."""

    def register(**values):
        points = {
            name: (EntryPoint(name, f"{__name__}:{value}", "privsketch.decoders"),)
            for name, value in values.items()
        }
        for (point,) in points.values():
            vars(point).update(dist=Distribution())
        known = {"decoders": points}
        seams.set(monkeypatch, "plugins.registered", lambda group: known.get(group, {}))

    return register


@pytest.fixture(scope="module")
def sketch():
    X = np.repeat(CENTERS, 2500, axis=0)
    design = ps.Design.plan(
        n_components=2,
        domain=ps.Box(-1, 1, dim=2),
        budget=ps.Budget(epsilon=1.0, delta=1e-6),
        feature_map="fourier",
        random_state=0,
    )
    return ps.sketch(X, design)


@pytest.mark.parametrize("function", ["decode_known", "decode_points"])
def test_a_registered_decoder_is_found_and_named_in_the_receipt(registered, sketch, function):
    registered(known=function)
    model = ps.learn_kmeans(sketch, 2, decoder="known")
    assert model.decoder == "known"
    np.testing.assert_allclose(model.centers, CENTERS)
    np.testing.assert_allclose(model.weights, 0.5)
    assert model.receipt.plugins == ("strange-decoders 1.2",)
    assert model.receipt.epsilon == sketch.receipt.epsilon
    # The library computes the fit. No study says how far the centers of such a decoder are off.
    assert model.residual > 0
    assert model.standard_errors is None
    assert model.cost_ratio is None


def test_our_names_come_first(registered, sketch):
    registered(joint="decode_nothing")
    assert ps.learn_kmeans(sketch, 2).receipt.plugins == ()


@pytest.mark.parametrize(
    "function", ["decode_nothing", "decode_too_few", "decode_negative", "decode_infinite"]
)
def test_results_that_are_no_clusters_are_refused(registered, sketch, function):
    registered(strange=function)
    with pytest.raises(ps.ParameterError, match=r"'strange' of strange-decoders 1.2 must return"):
        ps.learn_kmeans(sketch, 2, decoder="strange")


def test_a_part_that_is_no_function_is_refused(registered, sketch):
    registered(three="NOT_CALLABLE")
    with pytest.raises(ps.ParameterError, match="registers int, which is not callable"):
        ps.learn_kmeans(sketch, 2, decoder="three")


def test_an_unknown_name_lists_the_registered_ones(registered, sketch):
    registered(known="decode_known")
    with pytest.raises(ps.ParameterError, match="'joint', 'cl-ompr', 'known'"):
        ps.learn_kmeans(sketch, 2, decoder="unknown")


def test_authors_can_check_their_decoders(registered):
    registered(known="decode_known", too_few="decode_too_few", wrong="decode_wrong")
    check_decoder("known")
    with pytest.raises(ps.PrivsketchError):
        check_decoder("too_few")
    with pytest.raises(AssertionError, match="clusters are missed"):
        check_decoder("wrong")


def test_a_function_is_a_decoder_without_a_registration(sketch, tmp_path):
    model = ps.learn_kmeans(sketch, 2, decoder=decode_points)
    np.testing.assert_allclose(model.centers, CENTERS)
    assert model.decoder == f"{__name__}.decode_points"
    assert model.receipt.plugins == (f"{model.decoder}, given by the caller",)
    model.save(tmp_path / "model.json")
    assert ps.load(tmp_path / "model.json").decoder == model.decoder


@pytest.mark.parametrize(
    "function", [decode_nothing, decode_too_few, decode_negative, decode_infinite]
)
def test_what_a_function_returns_is_checked(sketch, function):
    with pytest.raises(ps.ParameterError, match=r"your decoder must return.*; correct it"):
        ps.learn_kmeans(sketch, 2, decoder=function)


@pytest.mark.parametrize(
    "result",
    [
        {"centers": CENTERS, "weights": [1e300, 1.0]},
        {"centers": CENTERS + 0.1j, "weights": [1.0, 1.0]},
        {"centers": CENTERS, "weights": [1.0, 1.0 + 0j]},
        {"centers": CENTERS, "weights": [1.0, 1.0], "axis_widths": -0.1},
    ],
)
def test_numbers_that_no_model_can_have_are_refused(sketch, result):
    def decode(problem, n_clusters, rng, *, n_init):
        return SimpleNamespace(**result)

    with pytest.raises(ps.ParameterError, match="weights in records, from 0 to 2\\^63"):
        ps.learn_kmeans(sketch, 2, decoder=decode)


def test_a_decoder_that_finds_no_records_says_so(sketch):
    def decode(problem, n_clusters, rng, *, n_init):
        return SimpleNamespace(centers=CENTERS, weights=[0.0, 0.0])

    model = ps.learn_kmeans(sketch, 2, decoder=decode)
    assert "your decoder gave no cluster any records: weights are equal shares" in model.concerns


def takes_no_n_init(problem, n_clusters, rng):
    return None


def takes_more(problem, n_clusters, rng, step, *, n_init):
    return None


@pytest.mark.parametrize("decoder", [takes_no_n_init, takes_more, dict, np.add])
def test_a_function_that_cannot_be_called_as_a_decoder_is_refused_before_a_release(sketch, decoder):
    with pytest.raises(ps.ParameterError, match="decoder: your decoder: "):
        ps.learn_kmeans(sketch, 2, decoder=decoder)
    estimator = ps.PrivateKMeans(
        2, epsilon=1.0, delta=0.0, domain=ps.Box(-1, 1), options={"decoder": decoder}
    )
    with pytest.raises(ps.ParameterError, match="your decoder"):
        estimator.fit(np.zeros((10, 2)))
    assert not hasattr(estimator, "receipt_")


def test_options_are_a_mapping_and_have_the_types_that_a_decoder_declares(sketch):
    def decode(problem, n_clusters, rng, *, n_init, n_points: int = 3, step: float | None = None):
        return decode_points(problem, n_clusters, rng, n_init=n_init)

    for options in (5, ["n_points"]):
        with pytest.raises(ps.ParameterError, match="expected a mapping of options"):
            ps.learn_kmeans(sketch, 2, decoder=decode, options=options)
    for value in ("x", 3.5, True):
        with pytest.raises(ps.ParameterError, match=r"n_points=.*expected a whole number"):
            ps.learn_kmeans(sketch, 2, decoder=decode, options={"n_points": value})
    allowed = {"n_points": np.int64(31), "step": 1}
    assert ps.learn_kmeans(sketch, 2, decoder=decode, options=allowed).n_clusters == 2
    assert ps.learn_kmeans(sketch, 2, decoder=decode, options={"step": None}).n_clusters == 2


def test_a_callable_object_is_named_after_its_class(sketch):
    class Known:
        def __call__(self, problem, n_clusters, rng, *, n_init):
            return decode_points(problem, n_clusters, rng, n_init=n_init)

    assert ps.learn_kmeans(sketch, 2, decoder=Known()).decoder.endswith("Known")
    with pytest.raises(ps.ParameterError, match="or a callable"):
        ps.learn_kmeans(sketch, 2, decoder=3)


def test_authors_can_check_functions():
    def decode_known_in_problem(problem, n_clusters, rng, *, n_init):
        return SimpleNamespace(centers=CENTERS, weights=[200, 200])

    def decode_at_random(problem, n_clusters, rng, *, n_init):
        return SimpleNamespace(
            centers=CENTERS + np.random.default_rng().normal(0, 0.01, (2, 2)), weights=[200, 200]
        )

    check_decoder(decode_known_in_problem)
    with pytest.raises(AssertionError, match="give other centers"):
        check_decoder(decode_at_random)


def test_a_decoder_that_fails_is_named_with_its_package(registered, sketch):
    registered(failing="decode_failing")
    with pytest.raises(ps.PrivsketchError, match=r"strange-decoders 1.2 failed with RuntimeError"):
        ps.learn_kmeans(sketch, 2, decoder="failing")
    with pytest.raises(RuntimeError, match="no luck"):  # of the caller
        ps.learn_kmeans(sketch, 2, decoder=decode_failing)
