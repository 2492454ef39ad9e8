"""Secret masks: their law, what they are worth, and that their cost is what receipts say."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import binom, chi2

import privsketch as ps
from privsketch import Masks, ParameterError
from privsketch.features import PairBounds, TableContribution, feature_map
from privsketch.kernels import CompiledKernel, ReferenceKernel
from privsketch.noise import LogMoments, gaussian_noise, laplace_noise
from privsketch.sketching import exact_sums
from privsketch.sketching import sums as drawing
from tests import seams
from tests.chance import exact_answers

FALSE_ALARM = 1e-6


def plan(**overrides):
    settings = {
        "n_components": 2,
        "domain": ps.Ball(4, 1.0),
        "budget": ps.Budget(1.0, 1e-6),
        "n_features": 24,
        "random_state": 2,
    }
    return ps.Design.plan(**{**settings, **overrides})


# --- the law of the masks ----------------------------------------------------------------------


@pytest.mark.parametrize("rate", [2.0**-64, 0.003, 0.1, 1 / 3, 0.5, 255 / 256, 1 - 2.0**-53])
def test_bits_have_their_rate(rate):
    n = 400_000
    count = int(drawing.bernoulli(n, rate).sum())
    assert binom.cdf(count, n, rate) > FALSE_ALARM / 2 or count == 0
    assert binom.sf(count - 1, n, rate) > FALSE_ALARM / 2
    if 0.01 < rate < 0.9:  # strong enough to see a rate that is 3 % off
        assert binom.sf(count - 1, n, 0.97 * rate) < 1e-3 or binom.cdf(count, n, 1.03 * rate) < 1e-3


def test_bits_are_exact_to_the_last_of_64(monkeypatch):
    # The threshold in bytes; random numbers just below and at it.
    rate = float.fromhex("0x1.23456789abcdep-1")
    threshold = int(rate * 2.0**64)
    for number, expected in (
        (threshold - 1, True),
        (threshold, False),
        (0, True),
        (2**64 - 1, False),
    ):
        first, rest = divmod(number, 2**56)
        answers = iter([bytes([first]), np.array([rest << 8], dtype=np.uint64).tobytes()])
        seams.set(monkeypatch, "sums.os.urandom", lambda n, a=answers: next(a)[:n])
        assert drawing.bernoulli(1, rate)[0] == expected


def test_subsets_are_uniform():
    n, size, kept = 60_000, 5, 2
    chosen = drawing.subsets(n, size, kept)
    assert (chosen.sum(axis=1) == kept).all()
    codes = chosen @ (1 << np.arange(size))
    counts = np.array(
        [np.sum(codes == sum(1 << i for i in c)) for c in itertools.combinations(range(size), kept)]
    )
    expected = n / len(counts)
    statistic = ((counts - expected) ** 2 / expected).sum()
    assert chi2.sf(statistic, len(counts) - 1) > FALSE_ALARM
    assert drawing.subsets(3, 4, 4).all()


def test_masks_are_never_the_same_twice():
    assert (drawing.bernoulli(256, 0.5) != drawing.bernoulli(256, 0.5)).any()  # chance 2^-256
    assert (drawing.subsets(64, 64, 32) != drawing.subsets(64, 64, 32)).any()


def test_masks_say_what_they_are():
    assert ps.Masks.parse("uniform:7") == ps.Masks("uniform", kept=7)
    assert ps.Masks.parse({"features": "poisson", "rate": 0.5}) == ps.Masks("poisson", rate=0.5)
    assert ps.Masks.parse(" block:8 + records:0.5 ").records == 0.5
    assert ps.Masks.parse(None) is ps.Masks.parse("none") is ps.Masks.parse(ps.Masks()) is None
    for bad in (ps.Masks, "uniform", "poisson:x", b"uniform:7"):
        with pytest.raises(ParameterError, match="masks"):
            ps.Masks.parse(bad)
    for arguments in ({"kept": 3}, {"rate": 0.5}, {"features": "poisson"}, {"features": "odd"}):
        with pytest.raises(ParameterError, match="masks"):
            ps.Masks(**arguments)
    with pytest.raises(ParameterError, match="kept"):
        ps.Masks("uniform", kept=True)


def test_rates_are_multiples_of_2_to_the_minus_64():
    rate = ps.Masks("poisson", rate=1e-17).rate
    assert rate * 2.0**64 == math.floor(1e-17 * 2.0**64)


# --- sums --------------------------------------------------------------------------------------

LAWS = [
    "uniform:9",
    "block:8",
    "poisson:0.4",
    "records:0.5",
    "poisson:0.5+records:0.5",
    "block:12+records:0.7",
]


@pytest.mark.mostly_slow(quick_every=6)
@pytest.mark.parametrize("masks", LAWS)
@pytest.mark.parametrize("feature", ["fourier", "one-bit", "quadratic"])
def test_masked_sums_estimate_the_whole_ones(feature, masks):
    pca = {"task": "pca"} if feature == "quadratic" else {}
    design = plan(feature_map=feature, masks=masks, **pca)
    whole = plan(feature_map=feature, masks=None, **pca)
    rng = np.random.default_rng(5)
    X = np.tile(rng.uniform(-0.4, 0.4, (40, 4)), (500, 1))
    everything = exact_sums([X], whole).sums / whole.amplitude
    rate = design.masks.total_rate(design.n_features)
    found = exact_sums([X], design)
    error = found.sums / design.amplitude / rate - everything
    squares = 500 * np.square(per_record(whole, X[:40])).sum(axis=0)
    spread = np.sqrt(squares * (1 / rate - 1))
    assert np.abs(error / np.maximum(spread, 1e-9)).max() < 6  # chance below 1e-7 for 48 numbers
    assert np.abs(error).max() > 0
    kept = binom(len(X), design.masks.records)
    assert kept.cdf(found.n_kept) > FALSE_ALARM / 2
    assert kept.sf(found.n_kept - 1) > FALSE_ALARM / 2
    assert found.n_records == len(X)


def per_record(design, records):
    return np.array([exact_sums([x[None]], design).sums for x in records]) / design.amplitude


@pytest.mark.parametrize("masks", LAWS)
def test_a_record_adds_its_features_or_nothing(masks):
    design, whole = plan(masks=masks), plan()
    x = np.array([[0.3, -0.2, 0.1, 0.5]])
    features = exact_sums([x], whole).sums.reshape(2, -1)
    numbers = set()
    for _ in range(30):
        found = exact_sums([x], design).sums.reshape(2, -1)
        kept = (found == features).all(axis=0)
        assert (found[:, ~kept] == 0).all()  # cosine and sine together
        numbers.add(int(kept.sum()))
        if masks.startswith("block") and kept.any():
            assert (kept.reshape(-1, 4).all(axis=1) | ~kept.reshape(-1, 4).any(axis=1)).all()
    fixed = {"uniform:9": {9}, "block:8": {8}}.get(masks)
    assert numbers == fixed if fixed else len(numbers) > 1


@pytest.mark.parametrize("name", ["fourier", "one-bit", "quadratic"])
@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (33, 10), (64, 17), (100, 2)])
def test_compiled_masks_equal_the_definition(name, shape):
    rng = np.random.default_rng(7)
    m, dim = shape
    limit = 32767 if name != "quadratic" else 16000 // dim
    frequencies = rng.integers(-limit, limit + 1, (m, dim)).astype(np.int16)
    offsets = rng.integers(0, 2**20, m).astype(np.uint32)
    definition = ReferenceKernel(feature_map(name), frequencies, offsets, 27)
    kernel = CompiledKernel(definition)
    for n in (0, 1, 5, 700):
        records = rng.integers(-9000, 9001, (n, dim)).astype(np.int16)
        kept = rng.random((n, m)) < 0.3
        assert (kernel.sums(records, kept) == definition.sums(records, kept)).all()
        whole = definition.sums(records)
        assert (kernel.sums(records) == whole).all()
        assert (kernel.sums(records, np.ones_like(kept)) == whole).all()


def test_masks_that_keep_everything_change_nothing():
    X = np.random.default_rng(1).uniform(-0.5, 0.5, (300, 4))
    whole = exact_sums([X], plan()).sums
    for masks in ("uniform:24", "block:24", "poisson:1"):
        assert (exact_sums([X], plan(masks=masks)).sums == whole).all()


@pytest.mark.parametrize("frequencies", ["multi-scale", "structured"])
@pytest.mark.parametrize("masks", ["uniform:64", "block:64", "poisson:0.5"])
def test_structured_frequencies_can_be_masked(frequencies, masks):
    dim = 64 if frequencies == "structured" else 32
    design = plan(domain=ps.Ball(dim, 1.0), n_features=128, masks=masks, frequencies=frequencies)
    X = np.random.default_rng(1).uniform(-0.1, 0.1, (50, dim))
    found = ps.sketch(X, design)
    assert found.moments().shape == (128,)


# --- releases ----------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_released_counts_estimate_all_records(noise):
    X = np.zeros((40_000, 4))
    design = plan(masks="records:0.25", noise=noise)
    with exact_answers():
        released = ps.sketch(X, design)
    spread = math.sqrt(40_000 * 0.75 / 0.25)
    assert abs(released.n_records - 40_000) < 6 * spread
    if noise == "laplace":
        assert released.n_records == 40_000  # has a share of its own, outside of the sampling
    # Moments are of all records, whatever was kept.
    assert abs(released.moments()[0].real - 40_000) < 6 * spread


def test_masked_designs_survive_their_file(tmp_path):
    design = plan(masks="poisson:0.3+records:0.5", noise="laplace")
    design.save(tmp_path / "study.json")
    loaded = ps.Design.load(tmp_path / "study.json")
    assert loaded == design
    assert loaded.fingerprint == design.fingerprint != plan(noise="laplace").fingerprint
    assert "each record with probability 0.5" in loaded.describe()
    released = ps.sketch(np.zeros((10, 4)), design)
    assert "secret masks" in released.receipt.describe()
    released.save(tmp_path / "a.sketch")
    assert (ps.Sketch.load(tmp_path / "a.sketch").values == released.values).all()


def test_altered_masks_do_not_pass_for_the_design(tmp_path):
    text = plan(masks="poisson:0.3").to_json()
    for masks in ({"features": "poisson"}, {"features": "all", "rate": 0.5}, [1], "poisson:0.3"):
        with pytest.raises(ps.PrivsketchError):
            ps.Design.from_json({**text, "masks": masks})


def test_clusters_from_a_masked_sketch(fixed_noise):
    rng = np.random.default_rng(0)
    centers = rng.uniform(-0.5, 0.5, (4, 2))
    X = centers[rng.integers(0, 4, 100_000)] + rng.normal(0, 0.03, (100_000, 2))
    for masks in ("uniform:40", "block:40", "poisson:0.4", "records:0.5"):
        design = ps.Design.plan(
            n_components=4,
            domain=ps.Box(-1, 1, dim=2),
            budget=ps.Budget(1.0, 1e-6),
            masks=masks,
            n_features=100,
            random_state=0,
        )
        model = ps.learn_kmeans(ps.sketch(X, design), 4)
        distance = np.linalg.norm(model.centers[:, None] - centers[None], axis=2)
        assert distance.min(axis=0).max() < 0.03


# --- what masks cost: tiny cases by enumeration --------------------------------------------------


def log_likelihoods(signs, alpha, beta, b, grid):
    """ln P(output | one record) for every output of the grid, all masks enumerated.

    The record adds `signs` (m, 2) where its mask keeps a feature; discrete Laplace noise.
    Constants that no record changes are left out.
    """
    m = len(signs)
    total = np.zeros(len(grid))
    for mask in itertools.product([0, 1], repeat=m):
        weight = beta * math.prod(alpha if bit else 1 - alpha for bit in mask)
        shift = (signs * np.array(mask)[:, None]).reshape(-1)
        total += weight * np.exp(-np.abs(grid - shift).sum(axis=1) / b)
    total += (1 - beta) * np.exp(-np.abs(grid).sum(axis=1) / b)
    return np.log(total)


@pytest.mark.parametrize("relation", ["add-remove", "replace"])
@pytest.mark.parametrize(("alpha", "beta"), [(0.4, 1.0), (1.0, 0.3), (0.4, 0.3), (0.05, 0.9)])
@pytest.mark.parametrize("m", [1, 2, 3])
def test_laplace_loss_of_tiny_cases_is_epsilon(m, alpha, beta, relation):
    epsilon = 0.9
    bounds = feature_map("one-bit").bounds  # features are pairs of +1 and -1
    masks = Masks("poisson", rate=alpha, records=beta)
    law = laplace_noise(TableContribution(bounds, m, 1), 2 * m, epsilon, relation, masks)
    # Beyond +-1 ratios no longer change.
    grid = np.array(list(itertools.product([-2, -1, 0, 1, 2], repeat=2 * m)))
    there = log_likelihoods(np.ones((m, 2)), alpha, beta, law.scale, grid)
    if relation == "add-remove":
        other = -np.abs(grid).sum(axis=1) / law.scale
    else:
        other = log_likelihoods(-np.ones((m, 2)), alpha, beta, law.scale, grid)
    loss = np.abs(there - other).max()
    assert loss <= epsilon
    assert loss > 0.9999 * epsilon  # no more noise than needed
    # The same grid refutes noise that is one percent too small.
    less = 0.99 * law.scale
    there = log_likelihoods(np.ones((m, 2)), alpha, beta, less, grid)
    other = log_likelihoods(-np.ones((m, 2)), alpha, beta, less, grid)
    if relation == "add-remove":
        other = -np.abs(grid).sum(axis=1) / less
    assert np.abs(there - other).max() > epsilon


def discrete_gaussian(sigma, reach):
    z = np.arange(-reach, reach + 1)
    weights = np.exp(-(z**2) / (2 * sigma**2))
    return weights / weights.sum()


def subsampled(law, rate, shift):
    """A feature that is kept at the rate and then shifted, on the same grid."""
    return (1 - rate) * law + rate * np.roll(law, shift)


@pytest.mark.parametrize("shift", [1, 3])
@pytest.mark.parametrize("rate", [0.01, 0.2, 1.0])
def test_log_moments_of_discrete_noise_by_enumeration(rate, shift):
    sigma, orders = 4.0, (2, 3, 5, 8)
    law = discrete_gaussian(sigma, 100)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(law > 0, subsampled(law, rate, shift) / law, 0.0)
    expected = [math.log(float((law * ratio**a).sum())) for a in orders]
    assert LogMoments(rate, orders).at(shift**2 / sigma**2) == pytest.approx(expected, abs=1e-10)
    # The other direction is never worse.
    kept = subsampled(law, rate, shift)
    inside = slice(20, -20)  # where no weight underflows or wraps around
    law, kept = law[inside], kept[inside]
    back = law / kept
    for a, value in zip(orders, expected, strict=True):
        assert math.log(float((kept * back**a).sum())) <= value + 1e-10


@pytest.mark.parametrize("relation", ["add-remove", "replace"])
@pytest.mark.parametrize(("alpha", "beta"), [(0.3, 1.0), (1.0, 0.3), (0.3, 0.5)])
@pytest.mark.parametrize("m", [1, 2, 3])
def test_gaussian_loss_of_tiny_cases_is_within_the_budget(m, alpha, beta, relation):
    # Features with one part only, so that few dimensions are enumerated.
    epsilon, delta = 0.5, 1e-2
    bounds = PairBounds(l1=1, l2_squared=1, linf=1)
    masks = Masks("poisson", rate=alpha, records=beta)
    if alpha == 1:
        masks = Masks(records=beta)
    found = TableContribution(bounds, m, 1)
    law = gaussian_noise(found, 2 * m, epsilon, delta, relation, masks)
    reach = math.ceil(9 * law.scale)
    one = discrete_gaussian(law.scale, reach)
    nobody = product([one] * m)
    sides = {}
    for sign in (1, -1):
        masked = product([subsampled(one, alpha, sign)] * m)
        sides[sign] = (1 - beta) * nobody + beta * masked
    pairs = [(sides[1], nobody), (nobody, sides[1])]
    if relation == "replace":
        pairs = [(sides[1], sides[-1]), (sides[-1], sides[1])]
    spent = [float(np.maximum(p - math.exp(epsilon) * q, 0).sum()) for p, q in pairs]
    assert max(spent) <= delta
    # Conversions lose something, not everything; "replace" is two steps of add-remove.
    assert max(spent) > delta * (0.15 if relation == "add-remove" else 0.02)


def product(laws):
    total = laws[0]
    for law in laws[1:]:
        total = np.multiply.outer(total, law)
    return total


def test_masks_attached_to_rows_would_leak():
    # Why masks are drawn per record: alternating ones move the sums by O(n) when one leaves.
    features = np.tile([[1, 1], [-1, -1]], (50, 1))
    rows = np.tile([[1, 0], [0, 1]], (50, 1))
    before, after = (features * rows).sum(axis=0), (features[1:] * rows[:-1]).sum(axis=0)
    assert before.tolist() == [50, -50]
    assert after.tolist() == [-50, 49]


def test_uniform_numbers_are_exact(monkeypatch):
    # Bound 3: words 0 leaves no remainder and must be drawn again; 1 is kept.
    words = iter(
        [np.array([0, 2**32 - 1], np.uint32), np.array([0], np.uint32), np.array([1], np.uint32)]
    )
    seams.set(monkeypatch, "sums.os.urandom", lambda n: next(words).tobytes())
    assert drawing._below(2, 3).tolist() == [0, 2]


def test_many_features_are_masked_a_few_records_at_a_time():
    from privsketch.sketching import MASK_BYTES, RecordSums

    design = plan(n_features=6000, masks="poisson:0.5")
    assert RecordSums(design).max_records * 6000 <= MASK_BYTES


def test_designs_with_empty_masks_have_none():
    from dataclasses import replace

    assert replace(plan(), masks=Masks()).masks is None


def test_poisson_features_are_never_worse_than_none():
    # Orders of the divergence that are tried end; very small budgets fall back on no masks.
    for epsilon in (1e-4, 1e-3, 5e-3, 0.1):
        found = TableContribution(feature_map("fourier").bounds, 100, 1)
        masked = gaussian_noise(found, 200, epsilon, 1e-6, "add-remove", Masks("poisson", rate=0.5))
        plain = gaussian_noise(found, 200, epsilon, 1e-6, "add-remove", None)
        assert masked.scale <= plain.scale * (1 + 1e-8)


def test_sampled_records_are_a_smaller_sample():
    design = plan(masks="records:0.25")
    released = ps.sketch(np.zeros((100, 4)), design)
    assert released.repetition == 4
    assert released.masking_variance == 0
    other = ps.sketch(np.zeros((100, 4)), design, source="b")
    # Weights 1 and 3: records vary like 10 / 4 of them, and so do what masks leave out.
    assert ps.merge([released, other], weights=[1, 3]).repetition == 10
    assert ps.merge([released, other]).repetition == 4


@pytest.mark.slow
def test_standard_errors_of_masked_and_weighted_sketches(fixed_noise, monkeypatch):
    # Of noise and sampling alone: those of a model allow for what the fit may miss as well.
    seams.set(monkeypatch, "clusters.errors_of", lambda model, shifts, excess, design: shifts)
    # Ten releases of two clusters each: the mean square of errors over their standard errors.
    rng = np.random.default_rng(3)
    centers = np.array([[-0.5, 0.0], [0.5, 0.0]])
    settings = {
        "n_components": 2,
        "domain": ps.Box(-1, 1, dim=2),
        "budget": ps.Budget(5.0, 1e-6),
        "n_records": 20_000,
        "n_features": 60,
    }
    for masks, weights in (("records:0.1", [1, 1]), (None, [1, 20]), ("poisson:0.2", [1, 1])):
        ratios = []
        for seed in range(10):
            design = ps.Design.plan(**settings, masks=masks, random_state=seed)
            sites = []
            for site in "ab":
                X = centers[rng.integers(0, 2, 20_000)] + rng.normal(0, 0.1, (20_000, 2))
                sites.append(ps.sketch(X, design, source=site))
            model = ps.learn_kmeans(ps.merge(sites, weights=weights), 2)
            order = np.argsort(model.centers[:, 0])
            errors = (model.centers[order] - centers) / model.standard_errors[order]
            ratios.extend(errors.ravel())
            assert model.concerns == ()
        # 40 squares, nearly independent: their mean deviates by 0.22 from 1.
        assert 0.3 < np.mean(np.square(ratios)) < 2.4


def test_receipts_of_one_feature_s_sensitivity_say_so(make_design):
    for noise, delta in (("laplace", 0.0), ("gaussian", 1e-6)):
        design = make_design(noise=noise, delta=delta, masks="poisson:0.2", n_features=50)
        receipt = ps.sketch(np.zeros((3, 3)), design).receipt
        words = " ".join(part.calibration for part in (receipt, *receipt.parts))
        assert "of one feature" in words
