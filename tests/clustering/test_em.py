"""Noisy rounds of EM: what a record adds, how far it can move the sums, and what is learned."""

import math
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.mixture import GaussianMixture

import privsketch as ps
from privsketch import FileError, GaussianMixtureModel, ParameterError, RecordError
from privsketch.clustering import (
    WHOLE_SHARE,
    Gaussians,
    Passes,
    Run,
    clustered,
    responsibilities,
    whitenings,
)
from privsketch.clustering.baselines import em
from privsketch.clustering.baselines import em as em_shares
from privsketch.pages import picture_of
from privsketch.testing import replay
from tests import seams
from tests.oracles import resave

RELATIONS = ["add-remove", "replace"]
TYPES = ["full", "tied", "diag", "spherical"]


def domains(dim):
    sides = np.linspace(1, 3, dim)
    return {
        "ball": ps.Ball(dim, 2.0, center=0.5),
        "box": ps.Box([-1.0] * dim, [1.0] * dim),
        "long box": ps.Box(list(-sides), list(2 * sides)),
    }


def table_of(domain, n_records, seed=0):
    dim = len(domain.half_widths)
    rng = np.random.default_rng(seed)
    return domain.center_vector + domain.half_widths * rng.uniform(-1.2, 1.2, (n_records, dim))


def passes_of(table, domain, **options):
    return Passes(table, domain, max_bits=em._bits(domain), n_threads=1, **options)


def some_state(passes, k, seed=0):
    """Random parameters as a round may leave them."""
    rng = np.random.default_rng(seed)
    dim, radius = passes.dim, math.sqrt(passes.l2_squared)
    spread = rng.normal(size=(k, dim, dim)) * radius / 4
    covariances = em._positive(
        spread @ spread.transpose(0, 2, 1), 0.01 * radius / math.sqrt(dim), radius
    )
    means = passes.quantised(table_of(passes.domain, k, seed + 1))
    return Gaussians(rng.dirichlet(np.ones(k)), means, covariances)


# --- responsibilities ---------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [1, 2, 5, 20])
@pytest.mark.parametrize("k", [1, 2, 7])
@pytest.mark.parametrize("shape", ["ball", "long box"])
def test_shares_are_those_of_densities(shape, k, dim):
    domain = domains(dim)[shape]
    passes = passes_of(np.zeros((0, dim)), domain)
    state = some_state(passes, k, seed=dim)
    records = passes.quantised(table_of(domain, 300))
    logs = [
        multivariate_normal(mean, covariance).logpdf(records)
        for mean, covariance in zip(state.means, state.covariances, strict=True)
    ]
    expected = softmax(np.reshape(logs, (k, -1)) + np.log(state.weights)[:, np.newaxis], axis=0)
    found = responsibilities(records, whitenings(state))
    assert (found == np.rint(found)).all()
    assert (found >= 0).all()
    excess = expected * WHOLE_SHARE - found
    # Rounded down, after what a whitening to 30 bits does.
    assert (excess > -0.01).all()
    assert (excess < 1.01).all()


def test_shares_never_add_up_to_more_than_one():
    """Whatever the rounding: equal components, extreme weights, records far away from all."""
    rng = np.random.default_rng(0)
    for trial in range(60):
        k, dim = int(rng.integers(1, 30)), int(rng.integers(1, 6))
        domain = ps.Box(-1, 1, dim=dim)
        passes = passes_of(np.zeros((0, dim)), domain)
        state = some_state(passes, k, seed=trial)
        if trial % 3 == 0:
            same = np.zeros(k, dtype=int)
            state = Gaussians(np.full(k, 1 / k), state.means[same], state.covariances[same])
        if trial % 3 == 1:
            state = Gaussians(np.eye(k)[0], state.means, state.covariances)
        total = responsibilities(
            passes.quantised(table_of(domain, 200, trial)), whitenings(state)
        ).sum(axis=0)
        assert total.max() <= WHOLE_SHARE
        assert total.min() > WHOLE_SHARE - k


def test_powers_of_one_half():
    exponents = np.concatenate([np.linspace(0, 60, 4001), [0.0, 1.0, np.nextafter(1, 0), 59.999]])
    found = em_shares._power_of_half(exponents)
    np.testing.assert_allclose(found, np.exp2(-exponents), rtol=1e-14)
    assert (found <= 1).all()
    assert em_shares._power_of_half(np.array([1e9]))[0] == 2.0**-60


@pytest.mark.parametrize("dim", [1, 2, 3, 8, 17, 40])
@pytest.mark.parametrize("shape", ["ball", "box"])
def test_a_row_has_the_same_shares_in_any_block(shape, dim):
    """Alone, at any place of any block, wherever the block lies in memory."""
    domain = domains(dim)[shape]
    passes = passes_of(np.zeros((0, dim)), domain)
    state = some_state(passes, 5, seed=dim)
    records = passes.quantised(table_of(domain, 67, seed=3))
    together = responsibilities(records, whitenings(state))
    for row in range(len(records)):
        np.testing.assert_array_equal(
            responsibilities(records[[row]], whitenings(state))[:, 0], together[:, row]
        )
    rng = np.random.default_rng(0)
    for size in (2, 3, 4, 5, 7, 8, 9, 15, 16, 31, 33, 64):
        rows = rng.choice(len(records), size)
        np.testing.assert_array_equal(
            responsibilities(records[rows], whitenings(state)), together[:, rows]
        )
    strided = np.asfortranarray(np.repeat(records, 2, axis=0))[::2]
    np.testing.assert_array_equal(responsibilities(strided, whitenings(state)), together)
    shifted = np.empty(records.size + 1)[1:].reshape(records.shape)
    shifted[:] = records
    np.testing.assert_array_equal(responsibilities(shifted, whitenings(state)), together)


def test_whitened_records_stay_exact_in_many_columns():
    """Whole numbers below 2^53, also in as many columns as there can be."""
    for dim in (1, 2, 1000, 2**15):
        for domain in (ps.Ball(dim, 1.0), ps.Box(-1, 1, dim=dim)):
            passes = passes_of(np.zeros((0, dim)), domain)
            longest = int(passes.limits.sum())
            if isinstance(domain, ps.Ball):  # of an L1 norm
                longest = math.isqrt(dim * passes.l2_squared) + 1
            assert longest * 2**em_shares._WHITE_BITS < 2**53
            # Of a piece of 2^19 values, all of it in one component.
            rows = max(1, 2**19 // dim)
            assert rows * WHOLE_SHARE * int(passes.limits[0]) ** 2 < 2**53
            # 2^26 records fit 64 bits.
            assert 2**26 * WHOLE_SHARE * em.Scale.of(passes, True).count < 2**63


# --- how far one record moves the sums ----------------------------------------------------------


def contribution(record, domain, state, kind, dim):
    """What one quantised record adds to the integers that get noise."""
    passes = passes_of(record, domain)
    pairs = em._pairs(dim, kind)
    asked = []

    def noisy(name, values, *, l1, l2_squared, l2_replaced):
        assert l2_replaced == 2 * l2_squared
        asked.append(values)
        return values.astype(float), 1.0

    sums = em.component_sums(passes, state, pairs, "round")
    em._released(SimpleNamespace(noisy=noisy), "round", passes, sums, pairs)
    return asked[0].astype(object).reshape(-1)


def edge_records(domain, dim, rng):
    half = domain.half_widths
    steps = [np.eye(dim)[0] * 2 * half, 2 * half, -2 * half, half / math.sqrt(dim)]
    steps += [direction * half for direction in rng.normal(size=(6, dim))]
    return [domain.center_vector + step for step in steps]


@pytest.mark.parametrize("dim", [1, 2, 5])
@pytest.mark.parametrize("kind", ["full", "diag"])
@pytest.mark.parametrize("shape", ["ball", "box", "long box"])
def test_no_record_moves_the_sums_by_more_than_the_noise_is_for(shape, kind, dim):
    domain = domains(dim)[shape]
    passes = passes_of(np.zeros((0, dim)), domain)
    has_pairs = kind == "full" and dim > 1
    scale, rng = em.Scale.of(passes, has_pairs), np.random.default_rng(0)
    worst = {"l1": 0.0, "l2": 0.0}
    for k in (1, 3):
        state = some_state(passes, k, seed=k)
        records = edge_records(domain, dim, rng)
        added = [contribution(record[np.newaxis], domain, state, kind, dim) for record in records]
        nothing = contribution(np.zeros((0, dim)), domain, state, kind, dim)
        assert not nothing.any()
        for one in added:
            l1, l2 = sum(map(abs, one)), sum(value**2 for value in one)
            assert l1 <= scale.l1
            assert l2 <= scale.l2_squared
            worst["l1"], worst["l2"] = (
                max(worst["l1"], l1 / scale.l1),
                max(worst["l2"], math.sqrt(l2 / scale.l2_squared)),
            )
            for other in added:  # two records that replace each other
                assert sum(map(abs, one - other)) <= 2 * scale.l1
                assert sum(value**2 for value in one - other) <= 2 * scale.l2_squared
                assert sum(one * other) >= 0  # which is why
    assert worst["l1"] > 0.98
    assert worst["l2"] > 0.98 if shape == "ball" or kind == "full" or dim == 1 else 0.7


def test_no_ascent_finds_a_record_that_moves_the_sums_further():
    """Records that climb the norm of what they add, coordinate by coordinate."""
    dim, domain = 3, ps.Ball(3, 1.0)
    passes = passes_of(np.zeros((0, dim)), domain)
    scale, rng = em.Scale.of(passes, True), np.random.default_rng(1)
    state = some_state(passes, 2)
    found = 0.0
    for _ in range(3):
        record, best = np.zeros(dim), 0.0
        for step in np.geomspace(1.0, 0.01, 40):
            trial = domain.project([record + step * rng.normal(size=dim)])[0]
            added = contribution(trial[np.newaxis], domain, state, "full", dim)
            l2 = float(sum(value**2 for value in added)) / scale.l2_squared
            assert l2 <= 1
            assert sum(map(abs, added)) <= scale.l1
            if l2 > best:
                record, best = trial, l2
        found = max(found, best)
    assert found > 0.8


def share_of_budget(one, other, k, domain, budget, *, check=True, **options):
    """What a pair of tables costs, over the budget, with the noise of the first run frozen."""

    def run(table):
        return clustered(
            em.learn, table, k, domain=domain, budget=budget, random_state=0, **options
        )

    found = replay(run, one, other, check=check)
    first, second = found.first, found.second
    np.testing.assert_array_equal(first.means, second.means)
    np.testing.assert_array_equal(first.covariances, second.covariances)
    assert (first.n_records, first.receipt) == (second.n_records, second.receipt)
    np.testing.assert_array_equal(first.standard_errors, second.standard_errors)
    assert (first.receipt.epsilon, first.receipt.delta) == (budget.epsilon, budget.delta)
    return found.share_of_budget


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("kind", TYPES)
def test_the_worst_record_costs_the_budget_and_no_more(kind, delta, relation):
    dim, domain = 3, ps.Box(-1, 1, dim=3)
    budget = ps.Budget(0.8, delta, relation)
    rng = np.random.default_rng(0)
    rest, corner = rng.uniform(-1, 1, size=(30, dim)), np.full((1, dim), 9.0)
    one = np.concatenate([rest, corner])
    other = rest if relation == "add-remove" else np.concatenate([rest, -corner])
    options = {"covariance_type": kind, "n_rounds": 3}
    spent = share_of_budget(one, other, 1, domain, budget, **options)
    assert 0.05 < spent <= 1
    if relation == "add-remove" and (kind in ("full", "tied") or not delta):
        assert spent > 0.97
    assert 0 < share_of_budget(one, other, 3, domain, budget, **options) <= 1


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("shape", ["ball", "long box"])
def test_no_record_costs_more_than_the_budget(shape, relation):
    domain = domains(2)[shape]
    budget = ps.Budget(1.0, 1e-6, relation)
    rng = np.random.default_rng(1)
    for n in (0, 1, 40):
        rest = domain.center_vector + rng.normal(size=(n, 2))
        for new in ([1e300, 1e300], [np.nan, 9.0], [0.0, -9.0]):
            one = np.concatenate([rest, [new]])
            other = rest if relation == "add-remove" else np.concatenate([rest, [[0.3, 0.2]]])
            tables = [ps.Table(table, missing="center") for table in (one, other)]
            assert share_of_budget(*tables, 2, domain, budget, n_rounds=2) <= 1


@pytest.mark.parametrize("planted", ["count", "mean", "square"])
def test_the_audit_catches_a_part_that_is_forgotten(planted, monkeypatch):
    right = em.Scale.of

    def wrong(passes, has_pairs):
        scale, squared = right(passes, has_pairs), passes.l2_squared
        lost = {
            "count": scale.count**2,
            "mean": scale.mean**2 * squared,
            "square": em.DIAGONAL**2 * squared**2,
        }[planted]
        return em.Scale(scale.count, scale.mean, scale.l2_squared - WHOLE_SHARE**2 * lost, scale.l1)

    seams.set(monkeypatch, "em.Scale.of", wrong)
    one = np.array([[0.0, 1.0], [9.0, 0.0]])
    options = {"domain": ps.Ball(2, 1.0), "budget": ps.Budget(1.0, 1e-6), "n_rounds": 2}
    assert share_of_budget(one, one[:1], 1, check=False, **options) > 1.4


def test_sums_saturate_and_never_wrap():
    dim, domain = 2, ps.Box(-1, 1, dim=2)
    passes, pairs = passes_of(np.zeros((0, 2)), domain), em._pairs(2, "full")
    asked = []

    def noisy(name, values, *, l1, l2_squared, l2_replaced):
        assert l2_replaced == 2 * l2_squared
        asked.append(values)
        return values.astype(float), 1.0

    sums = np.full((1, 1 + dim + 3), 2**50, dtype=np.int64)
    for table in (sums, -sums, sums + 5):
        em._released(SimpleNamespace(noisy=noisy), "round", passes, table, pairs)
    high, low, near = asked
    assert (high > 0).all()
    assert (low < 0).all()
    assert high[0, 0] == 2**63 - 1
    assert low[0, 0] == -(2**63)
    factor = em.Scale.of(passes, True).count
    assert (np.abs(near.astype(object) - high.astype(object)) <= 5 * factor).all()


# --- what is learned ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mixture():
    rng = np.random.default_rng(2)
    places = np.array([[-0.5, -0.4], [0.5, 0.4], [0.4, -0.5]])
    shapes = rng.normal(size=(3, 2, 2)) * 0.08
    label = rng.choice(3, size=4000, p=[0.5, 0.3, 0.2])
    noise = np.einsum("nij,nj->ni", shapes[label], rng.normal(size=(4000, 2)))
    return np.clip(places[label] + noise, -1, 1)


@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize("kind", TYPES)
def test_without_noise_it_is_em(kind, mixture):
    domain, k, n_rounds = ps.Box(-1, 1, dim=2), 3, 6
    model = clustered(
        em.learn,
        mixture,
        k,
        domain=domain,
        budget=ps.Budget(1.0, 1e-6),
        covariance_type=kind,
        n_rounds=n_rounds,
        random_state=1,
    )
    start = em.start_centers(domain, k, "packing", 1)
    variance = (0.25 * math.sqrt(2)) ** 2 / 2
    precision = {
        "full": np.tile(np.eye(2) / variance, (k, 1, 1)),
        "tied": np.eye(2) / variance,
        "diag": np.full((k, 2), 1 / variance),
        "spherical": np.full(k, 1 / variance),
    }[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it has not converged
        exact = GaussianMixture(
            k,
            covariance_type=kind,
            weights_init=np.full(k, 1 / k),
            means_init=start,
            precisions_init=precision,
            max_iter=n_rounds,
            tol=0.0,
            reg_covar=0.0,
        ).fit(mixture)
    assert exact.n_iter_ == n_rounds
    # Responsibilities have 10 bits and records 10.
    np.testing.assert_allclose(model.weights, exact.weights_, atol=3e-3)
    np.testing.assert_allclose(model.means, exact.means_, atol=5e-3)
    np.testing.assert_allclose(model.covariances, exact.covariances_, atol=3e-3)
    assert model.n_records == pytest.approx(4000, rel=3e-3)
    assert (model.residual, model.expected_residual, model.misfit) == (None, None, None)


@pytest.mark.usefixtures("no_noise")
def test_a_domain_with_a_center_moves_all_means(mixture):
    here, there = (
        clustered(
            em.learn,
            mixture + shift,
            2,
            domain=ps.Ball(2, 1.5, center=list(shift)),
            budget=ps.Budget(1.0, 1e-6),
            n_rounds=3,
            random_state=0,
        )
        for shift in (np.zeros(2), np.array([8.0, -16.0]))
    )
    np.testing.assert_allclose(there.means - [8.0, -16.0], here.means, atol=2e-3)
    np.testing.assert_allclose(there.covariances, here.covariances, atol=2e-3)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("n", [0, 1, 30])
def test_whatever_the_noise_there_is_a_mixture(n, kind, delta):
    table = np.random.default_rng(0).uniform(-1, 1, size=(n, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = clustered(
            em.learn,
            table,
            2,
            domain=ps.Box([-1] * 3, [1, 1, 40]),
            budget=ps.Budget(0.1, delta),
            covariance_type=kind,
            n_rounds=3,
        )
    assert model.weights.sum() == pytest.approx(1.0)
    assert (model.weights >= 0).all()
    assert np.isfinite(model.means).all()
    assert np.linalg.eigvalsh(model.covariance_matrices()).min() > 0
    assert (model.standard_errors > 0).all()
    assert model.n_records >= 1
    assert model.receipt.epsilon == pytest.approx(0.1, rel=1e-12)


def test_enough_records_outweigh_the_noise(mixture, fixed_noise):
    table = np.tile(mixture, (10, 1))
    model = clustered(
        em.learn, table, 3, domain=ps.Ball(2, 1.5), budget=ps.Budget(4.0, 1e-6), random_state=1
    )
    assert model.n_records == pytest.approx(len(table), rel=0.05)
    far = np.linalg.norm(model.means[:, np.newaxis] - [[-0.5, -0.4]], axis=2)
    assert far.min() < 0.1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_components": 0}, "n_components=0"),
        ({"n_rounds": 0}, "n_rounds=0"),
        ({"covariance_type": "round"}, "covariance_type='round': expected one of 'spherical'"),
    ],
)
def test_refusals(options, words, spent):
    run = Run(np.zeros((5, 2)), domain=ps.Ball(2, 1.0), budget=ps.Budget(1.0))
    with pytest.raises(ParameterError, match=words):
        em.learn(run, **{"n_components": 2, **options})
    assert spent == []


def test_missing_values_are_refused_before_anything_is_spent(spent):
    with pytest.raises(RecordError, match="missing"):
        clustered(em.learn, [[np.nan, 0.0]], 1, domain=ps.Ball(2, 1.0), budget=ps.Budget(1.0))
    assert spent == []


# --- its file, its report, its estimator --------------------------------------------------------


def fitted(X, **options):
    settings = {
        "epsilon": 2.0,
        "delta": 1e-6,
        "domain": ps.Box(-1, 1),
        "method": "em",
        "random_state": 0,
        "n_threads": 1,
    }
    return ps.PrivateGaussianMixture(**{"n_components": 2, **settings, **options}).fit(X)


@pytest.mark.parametrize("kind", TYPES)
def test_the_file_has_all_of_a_model(kind, tmp_path, mixture):
    model = fitted(mixture[:200], covariance_type=kind).model_
    path = tmp_path / "model.json"
    model.save(path)
    again = GaussianMixtureModel.load(path)
    for name in ("weights", "means", "covariances", "standard_errors"):
        np.testing.assert_array_equal(getattr(again, name), getattr(model, name))
    for name in ("covariance_type", "residual", "expected_residual", "n_records", "receipt"):
        assert getattr(again, name) == getattr(model, name)
    assert again.design_fingerprint == ""
    assert again.describe() == model.describe()
    assert "misfit" not in model.describe()


@pytest.mark.parametrize(
    "change",
    [
        {"residual": 1.0},
        {"expected_residual": 1.0},
        {"design_fingerprint": "abc"},
        {"n_records": None},
        {"design_fingerprint": None},
    ],
)
def test_a_file_that_has_half_of_a_fit_is_refused(change, tmp_path, mixture):
    path = tmp_path / "model.json"
    fitted(mixture[:200]).model_.save(path)
    resave(path, lambda content: content.update(change))
    with pytest.raises(FileError, match=r"must be|residual"):
        GaussianMixtureModel.load(path)


def test_a_report_is_of_a_sketch(mixture):
    with pytest.raises(ParameterError, match=r"report: .*of a sketch.*GaussianMixtureModel"):
        picture_of(fitted(mixture[:200]).model_)


@pytest.mark.parametrize(
    "option",
    [
        {"noise": "cube"},
        {"n_features": 50},
        {"feature_map": "one-bit"},
        {"frequencies": "structured"},
        {"frequency_scale": 2.0},
        {"n_init": 2},
    ],
)
def test_options_of_sketches_are_refused(option, mixture, spent):
    name, value = next(iter(option.items()))
    with pytest.raises(ParameterError, match=f"{name}={value!r} with method='em'"):
        fitted(mixture[:50], **option)
    assert spent == []


def test_an_unknown_method_is_refused(mixture, spent):
    for method in ("EM", "auto", None, ["em"]):
        with pytest.raises(ParameterError, match=r"method=.*'sketch', 'em'"):
            fitted(mixture[:50], method=method)
    assert spent == []


def test_the_estimator_has_all_attributes(mixture, fixed_noise):
    model = fitted(mixture, epsilon=20.0)  # so much that no weight is 0
    assert model.get_params()["method"] == "em"
    again = clone(model)
    assert again.get_params() == model.get_params()
    sketched = fitted(mixture[:500], method="sketch", n_features=60)
    fitted_names = {name for name in vars(sketched) if name.endswith("_")}
    assert {name for name in vars(model) if name.endswith("_")} == fitted_names
    assert model.sketch_ is None
    assert model.converged_ is False
    assert model.receipt_ == model.model_.receipt
    assert (model.receipt_.epsilon, model.receipt_.delta) == (20.0, 1e-6)
    assert "EM" in model.receipt_.mechanism
    np.testing.assert_allclose(model.predict_proba(mixture).sum(axis=1), 1.0)
    assert model.sample(5)[0].shape == (5, 2)
    exact = multivariate_normal(model.means_[0], model.covariances_[0]).logpdf(mixture[:5])
    other = multivariate_normal(model.means_[1], model.covariances_[1]).logpdf(mixture[:5])
    expected = np.logaddexp(*(np.array([exact, other]) + np.log(model.weights_)[:, np.newaxis]))
    np.testing.assert_allclose(model.score_samples(mixture[:5]), expected)


def test_names_of_columns_are_kept(mixture, tmp_path):
    frame = pd.DataFrame(mixture[:300], columns=["age", "dose"])
    model = fitted(frame)
    assert list(model.feature_names_in_) == ["age", "dose"]
    assert model.model_.columns == ("age", "dose")
    model.model_.save(tmp_path / "model.json")
    assert GaussianMixtureModel.load(tmp_path / "model.json").columns == ("age", "dose")
    assert fitted(mixture[:300]).model_.columns is None


def test_missing_values_go_to_the_center(mixture):
    table = mixture[:200].copy()
    table[3, 1] = np.nan
    with pytest.raises((RecordError, ValueError)):
        fitted(table)
    assert np.isfinite(fitted(table, missing="center").means_).all()
