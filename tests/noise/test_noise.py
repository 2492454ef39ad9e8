"""What is drawn is what was calibrated: right scale accepted, wrong scales rejected.

Statistical tests make a few comparisons each, at 1e-7: they raise a false alarm in at most 1e-6 of
the runs. Wrong scales are rejected but for less than that.
"""

import ast
import dataclasses
import math
import secrets
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import privsketch as ps
from privsketch.facts import compose_sequential, exact
from privsketch.noise import (
    MIN_BULK_VALUES,
    OPENDP_SAMPLER,
    OWN_SAMPLER,
    NoiseLaw,
    add_noise,
    cube_law,
    draw_cube,
    gaussian_law,
    laplace_law,
    mechanism,
    watch_noise,
)
from tests import seams

_insecure_sampler = seams.get("mechanism.insecure_sampler")
_coin = seams.get("samplers.coin")
_geometric = seams.get("samplers.geometric")


FALSE_ALARM = 1e-7  # of one comparison; squares of Laplace noise are skewed, twice that
Z = float(stats.norm.isf(FALSE_ALARM / 2))
N = 40_000


def draw(law):
    noisy, _ = add_noise(np.zeros(law.n_components, dtype=np.int64), law, source=None)
    return noisy


def looks_like(samples, law, factor=1.0):
    """Whether independent samples have the variance of the law at `factor` times its scale."""
    excess = {"laplace": 3.0, "gaussian": 0.0}[law.kind]
    variance = law.variance * factor**2
    deviation = variance * math.sqrt((2 + excess) / len(samples))
    return abs(np.mean(samples.astype(float) ** 2) - variance) < Z * deviation


LAWS = [
    laplace_law(1_000, N, 0.5, "add-remove"),
    laplace_law(46_340 * 400, N, 0.1, "replace"),
    gaussian_law(10_000, N, 1.0, 1e-6, "add-remove"),
    gaussian_law(400 * 2**30, N, 0.1, 1e-8, "replace"),
]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: f"{law.kind}-{law.scale:.3g}")
def test_right_scale_is_accepted_and_wrong_ones_are_rejected(law):
    samples = draw(law)
    assert abs(samples.mean()) < Z * math.sqrt(law.variance / N)
    assert looks_like(samples, law)
    assert not looks_like(samples, law, 0.9)
    assert not looks_like(samples, law, 1.1)


@pytest.mark.slow
def test_cube_scale_is_accepted_and_wrong_ones_are_rejected():
    # Components share one radius, so the mean square over components is one sample per draw;
    # its relative variance is that of R^2, about 4 / D, plus 4 / (5 D) from the components.
    d, draws = 100, 400
    law = cube_law(32_767, d, 0.5, "add-remove")
    squares = np.array([np.mean(draw(law).astype(float) ** 2) for _ in range(draws)])
    deviation = law.variance * math.sqrt(4.8 / d / draws)
    assert abs(squares.mean() - law.variance) < Z * deviation
    for factor in (0.9, 1.1):
        wrong = law.variance * factor**2
        assert abs(squares.mean() - wrong) > Z * wrong * math.sqrt(4.8 / d / draws)


def chi_square_rejects(counts, probabilities):
    total = counts.sum()
    keep = probabilities * total >= 10
    observed = np.append(counts[keep], counts[~keep].sum())
    expected = np.append(probabilities[keep], max(1 - probabilities[keep].sum(), 1e-12)) * total
    statistic = float(np.sum((observed - expected) ** 2 / expected))
    return bool(stats.chi2.sf(statistic, len(observed) - 1) < FALSE_ALARM)


@pytest.mark.slow
def test_geometric_law():
    rate = exact(0.3) / 2
    samples = np.array([_geometric(rate, secrets.randbelow) for _ in range(N)])
    counts = np.bincount(samples, minlength=200)[:200]
    for factor, rejected in ((1.0, False), (0.9, True), (1.1, True)):
        q = math.exp(-0.15 * factor)
        assert chi_square_rejects(counts, (1 - q) * q ** np.arange(200)) is rejected


@pytest.mark.mostly_slow(quick_every=4)
@pytest.mark.parametrize("rate", ["0", "0.01", "0.5", "1"])
def test_coin_probability(rate):
    from fractions import Fraction

    heads = sum(_coin(Fraction(rate), secrets.randbelow) for _ in range(N))
    p = math.exp(-float(rate))
    assert abs(heads - N * p) <= Z * math.sqrt(N * p * (1 - p))


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 2])
def test_cube_law_exactly(d):
    sensitivity, epsilon = 3, 0.8
    reach = 40
    axis = np.arange(-reach, reach + 1)
    norm = np.abs(axis) if d == 1 else np.maximum(*np.abs(np.meshgrid(axis, axis)))

    def law(eps):
        weights = np.exp(-eps * norm / sensitivity)
        return (weights / weights.sum()).ravel()

    counts = np.zeros(norm.shape, dtype=np.int64)
    for _ in range(N):
        z = np.array(draw_cube(d, sensitivity, epsilon)) + reach
        if (z >= 0).all() and (z <= 2 * reach).all():
            counts[tuple(z)] += 1
    assert not chi_square_rejects(counts.ravel(), law(epsilon))
    assert chi_square_rejects(counts.ravel(), law(0.9 * epsilon))
    assert chi_square_rejects(counts.ravel(), law(1.1 * epsilon))


def test_cube_sampler_has_the_exact_law_over_all_coins():
    # With a scripted source every path has a known probability: R's law needs no statistics.
    # P(R) ~ (2R + 1)^D q^R must come out of proposal times acceptance.
    d, q = 3, math.exp(-0.4)
    r = np.arange(60)
    proposal = np.array([math.comb(k + d, d) for k in r]) * q**r
    acceptance = np.prod([(2 * r + 1) / (2 * r + 2 * i) for i in range(1, d + 1)], axis=0)
    wanted = (2.0 * r + 1) ** d * q**r
    assert np.allclose(proposal * acceptance / (proposal * acceptance).sum(), wanted / wanted.sum())


def test_noise_saturates_instead_of_wrapping():
    top = np.full(50, 2**63 - 1, dtype=np.int64)
    for law in (
        laplace_law(1, 50, 0.1, "add-remove"),
        cube_law(1000, 50, 0.1, "add-remove"),
        gaussian_law(100, 50, 1.0, 1e-6, "add-remove"),
    ):
        noisy, _ = add_noise(top, law, source=None)
        assert noisy.min() > 2**62


@pytest.mark.parametrize("scale", [0.0, math.inf, math.nan, -1.0])
def test_no_noise_is_not_a_noise_scale(scale):
    law = NoiseLaw("laplace", 2, 1, 1.0, 0.0, "add-remove", scale, 1.0)
    with pytest.raises(ps.PrivsketchError, match="scale"):
        add_noise(np.zeros(2, dtype=np.int64), law, source=None)


def test_two_releases_never_share_noise():
    law = LAWS[1]
    a, b = draw(law).astype(float), draw(law).astype(float)
    assert abs(np.corrcoef(a, b)[0, 1]) < Z / math.sqrt(N) * 1.1


def test_a_replaced_sampler_marks_the_receipt():
    law = laplace_law(5, 3, 1.0, "add-remove")
    with _insecure_sampler(lambda values, law: (values.copy(), law.scale)):
        noisy, receipt = add_noise(np.arange(3), law, source="x")
    assert noisy.tolist() == [0, 1, 2]
    assert "INSECURE" in receipt.sampler
    assert "INSECURE" not in add_noise(np.arange(3), law, source="x")[1].sampler


@pytest.mark.parametrize(
    ("noise", "delta", "count", "calls"),
    [
        ("gaussian", 1e-6, "released", 1),
        ("gaussian", 1e-6, "omitted", 1),
        ("cube", 0.0, "released", 1),
        ("cube", 0.0, "omitted", 1),
        ("laplace", 0.0, "released", 2),
        ("laplace", 0.0, "omitted", 1),
    ],
)
def test_a_sketch_charges_its_budget_once(noise, delta, count, calls, spent):
    design = ps.Design.plan(
        n_components=2,
        domain=ps.Box(-1, 1, dim=2),
        budget=ps.Budget(0.3, delta),
        noise=noise,
        count=count,
        random_state=1,
    )
    receipt = ps.sketch(np.zeros((5, 2)), design).receipt
    assert len(spent) == calls
    assert sum(exact(law.epsilon) for law in spent) == exact(0.3)
    assert sum(exact(law.delta) for law in spent) == exact(delta)
    assert (receipt.epsilon, receipt.delta) == (0.3, delta)


# What wraps a sketch for OpenDP names its spaces and passes measurements on; none of these draws.
WRAPPERS = {
    "domains": {"atom_domain", "user_domain", "vector_domain"},
    "measurements": {"make_user_measurement"},
    "measures": {"approximate", "max_divergence", "zero_concentrated_divergence"},
    "metrics": {"change_one_distance", "symmetric_distance", "user_distance"},
    "mod": {"Domain", "Measure", "Measurement", "Metric", "Transformation"},
    "transformations": {"make_user_transformation"},
    "combinators": {
        "make_approximate",
        "make_fix_delta",
        "make_pureDP_to_zCDP",
        "make_zCDP_to_approxDP",
    },
}
WRAPPER_NAMES = {f"opendp.{part}.{name}" for part, names in WRAPPERS.items() for name in names}


def test_only_the_noise_room_draws_noise():
    """No other file may reach OpenDP or the samplers; `secrets` elsewhere only names things."""
    root = Path(mechanism.__file__).parents[1]
    for path in root.rglob("*.py"):
        inside = path.parent.name == "noise"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            for name in names:
                if not inside:
                    wraps = path.parts[-2:] == ("sketching", "opendp.py") and name in WRAPPER_NAMES
                    assert wraps or not name.startswith("opendp"), path
                    assert not name.startswith("privsketch.noise.samplers"), path
                if name == "random" or name.startswith("random."):
                    raise AssertionError(f"{path} imports random")
    sources = [p.read_text(encoding="utf-8") for p in (root / "noise").glob("*.py")]
    assert not any(
        "seed" in ast.unparse(node.args)
        for text in sources
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef)
    )


def test_receipts_name_the_sampler_that_drew():
    def sampler(law, size):
        return add_noise(np.zeros(size, dtype=np.int64), law, source=None)[1].sampler

    for make in (
        lambda n: laplace_law(1, n, 1.0, "add-remove"),
        lambda n: gaussian_law(1, n, 1.0, 1e-6, "add-remove"),
    ):
        assert "OpenDP" in sampler(make(10), 10)
        assert "OpenDP" in sampler(make(MIN_BULK_VALUES - 1), MIN_BULK_VALUES - 1)
        assert "privsketch" in sampler(make(MIN_BULK_VALUES), MIN_BULK_VALUES)
    assert "privsketch" in sampler(cube_law(10, 4, 1.0, "add-remove"), 4)


def test_parts_with_different_samplers_name_both():
    parts = [
        add_noise(np.zeros(n, dtype=np.int64), laplace_law(1, n, 0.5, "add-remove"), source=None)[1]
        for n in (1, MIN_BULK_VALUES, 1)
    ]
    named = compose_sequential("both", parts, None).sampler
    assert named == f"{OPENDP_SAMPLER}; {OWN_SAMPLER}"
    with _insecure_sampler(lambda values, law: (values, law.scale)):
        parts.append(
            add_noise(
                np.zeros(1, dtype=np.int64), laplace_law(1, 1, 0.5, "add-remove"), source=None
            )[1]
        )
    assert compose_sequential("all", parts, None).sampler.startswith("INSECURE")


def test_a_long_sketch_with_a_count_keeps_its_receipt(tmp_path):
    design = ps.Design.plan(
        n_components=2,
        domain=ps.Box(-1, 1, dim=2),
        budget=ps.Budget(1.0),
        n_features=3000,
        noise="laplace",
        n_records=100,
        random_state=0,
    )
    released = ps.sketch(np.zeros((5, 2)), design)
    assert [part.sampler for part in released.receipt.parts] == [OWN_SAMPLER, OPENDP_SAMPLER]
    released.save(tmp_path / "x.sketch")
    assert ps.Sketch.load(tmp_path / "x.sketch").receipt == released.receipt


def test_watchers_are_told_before_noise_is_drawn():
    seen = []
    law = laplace_law(1, 1, 1.0, "add-remove")

    def sampler(values, law):
        seen.append("drawn")
        return values, law.scale

    with watch_noise(lambda: seen.append("told")), _insecure_sampler(sampler):
        add_noise(np.zeros(1, dtype=np.int64), law, source=None)
    add_noise(np.zeros(1, dtype=np.int64), law, source=None)
    assert seen == ["told", "drawn"]


def test_a_kind_without_a_sampler_is_refused():
    """A law that somebody adds must not be answered with the noise of another one."""
    law = dataclasses.replace(gaussian_law(1, 2, 1.0, 1e-6, "add-remove"), kind="student")
    with pytest.raises(ps.ParameterError, match="no sampler"):
        add_noise(np.zeros(2, dtype=np.int64), law, source=None)
