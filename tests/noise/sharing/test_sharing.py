"""Who adds how much noise to a total: draws, levels, costs, and faults that must be noticed.

Noise is not seeded. Statistical tests compare at six standard errors or more: 2e-9 each.
"""

import json
import math
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

import privsketch as ps
from privsketch.noise import (
    HEADROOM,
    INT64_MAX,
    INT64_MIN,
    LEDGER,
    Sharing,
    SumNoise,
    default_min_holders,
    epsilon_of_rho,
    gaussian_law,
    laplace_law,
    plan_sharing,
    rho_of_budget,
)
from privsketch.sketching import engine_sums
from privsketch.testing import Tape, moved, neighbouring_tables, replaced_noise, replay
from tests.chance import exact_answers

MANY = 8000  # components, each a study of its own
BUDGET = (0.1, 1e-6)


def gaussian_noise(n_words=MANY, l2_squared=10**12):
    law = gaussian_law(l2_squared, n_words, *BUDGET, "add-remove")
    return SumNoise(law, None, "omitted", 1, 1)


def laplace_noise(n_words=MANY):
    sums = laplace_law(10**12, n_words - 1, 0.09, "add-remove")
    return SumNoise(sums, laplace_law(1, 1, 0.01, "add-remove"), "released", 1, 1)


def design_of(**choices):
    facts = {
        "n_components": 3,
        "domain": ps.Box(-1, 1, dim=2),
        "budget": ps.Budget(epsilon=0.1, delta=1e-6),
        "n_records": 5000,
        "random_state": 1,
    }
    return ps.Design.plan(**(facts | choices))


def exact_words(sharing, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(-(2**50), 2**50, sharing.n_words)


def total_of(sharing, turnout, words=None):
    """What so many holders and all tellers add up, modulo 2^64."""
    words = np.zeros(sharing.n_words, dtype=np.int64) if words is None else words
    level = sharing.level_of(turnout)
    total = sum((sharing.draw_holder(words)[0][level] for _ in range(turnout)), np.int64(0))
    if sharing.by == "tellers":
        total = total + sum(sharing.draw_teller()[0] for _ in range(sharing.n_tellers))
    return total


# The noise of a total


@pytest.mark.slow
@pytest.mark.parametrize("dropouts", [False, True])
@pytest.mark.parametrize("n_holders", [3, 5, 50])
def test_a_total_has_the_noise_of_one_release_over_the_honest(n_holders, dropouts):
    """Within 3 standard errors of 2000 studies, measured on 8000: a false alarm in 5e8.

    A holder that adds too little by a fifth, and one level taken for another, are noticed.
    """
    sharing = plan_sharing(gaussian_noise(), n_holders=n_holders)
    turnout = sharing.min_holders if dropouts else n_holders
    assert (turnout < n_holders) == dropouts
    total = total_of(sharing, turnout).astype(float)
    central = sharing.noise.sums_law.variance
    needed = sharing.levels[sharing.level_of(turnout)]
    assert sharing.variance(turnout) == pytest.approx(central * turnout / needed)
    within = 3 * math.sqrt(2 / 2000)
    measured = np.mean(total**2) / central
    assert abs(measured / (turnout / needed) - 1) < within
    assert abs(measured / (0.8 * turnout / needed) - 1) > within
    other = sharing.levels[0] if dropouts else sharing.levels[-1]
    assert abs(measured / (turnout / other) - 1) > within


@pytest.mark.parametrize("turnout", [4, 5])
def test_tellers_add_whole_noises_and_holders_some(turnout):
    sharing = plan_sharing(laplace_noise(), n_holders=5, n_tellers=3)
    total = total_of(sharing, turnout)[:-1].astype(float)
    measured = np.mean(total**2) / sharing.noise.sums_law.variance
    expected = 3 + turnout / 10
    assert sharing.noises(turnout) == pytest.approx(expected, rel=1e-3)
    # The mean square of one Laplace variable varies by five times its square; of a sum, by less.
    assert abs(measured / expected - 1) < 6 * math.sqrt(5 / MANY)
    assert abs(measured / (expected + 1) - 1) > 6 * math.sqrt(5 / MANY)


@pytest.mark.slow
def test_tellers_add_cubes():
    design = design_of(budget=ps.Budget(epsilon=0.1), n_features=50, n_holders=3, sharing="tellers")
    assert design.noise == "cube"
    sharing = plan_sharing(design.sum_noise, n_holders=3)
    found = [np.mean(total_of(sharing, 3).astype(float) ** 2) for _ in range(100)]
    measured = np.mean(found) / sharing.noise.sums_law.variance
    # Components of a draw share their radius: one mean square varies by 4.8 / D, by less in a sum.
    assert abs(measured / 2.5 - 1) < 6 * math.sqrt(4.8 / sharing.n_words / 100)
    assert abs(measured / 3.5 - 1) > 6 * math.sqrt(4.8 / sharing.n_words / 100)


@pytest.mark.parametrize("by", ["holders", "tellers"])
def test_totals_are_those_of_the_records(by):
    """Without noise they are the sums, at every level."""
    sharing = plan_sharing(gaussian_noise(20), n_holders=9, by=by)
    words = exact_words(sharing)
    with exact_answers():
        drawn, receipt = sharing.draw_holder(words)
        assert (total_of(sharing, 7, words) == 7 * words).all()
    assert (drawn == words).all()
    assert receipt.sampler.startswith("INSECURE")


# Levels


def test_all_levels_cost_what_the_first_does():
    """What comes after y_1 is asked about y_1, and about no record: replayed on a neighbour."""
    sharing = plan_sharing(gaussian_noise(6), n_holders=9)
    words = exact_words(sharing)
    other = words.copy()
    other[0] += 10**6  # all that one record can move
    tape = Tape()
    one, receipt = tape.recorded(lambda: sharing.draw_holder(words))
    two, _ = tape.replayed(lambda: sharing.draw_holder(other))
    assert (one == two).all()
    assert len(tape.questions) == len(sharing.levels)
    pairs = list(zip(tape.questions, tape.again, strict=True))
    far, rho = moved(pairs[0][0].values, pairs[0][1], pairs[0][0].law)
    assert far == pytest.approx(1, abs=1e-12)
    assert float(rho) == pytest.approx(sharing.alone, rel=1e-11)
    assert receipt.rho == pytest.approx(sharing.alone, rel=1e-11)
    for place, (question, again) in enumerate(pairs[1:]):
        assert (question.values == pairs[place][0].answer).all()
        assert moved(question.values, again, question.law)[1] == 0


def increments(drawn):
    return np.diff(np.concatenate([np.zeros_like(drawn[:1]), drawn]), axis=0).astype(float)


def are_independent(drawn):
    """Whether noises that lie on top of each other look unrelated, at six standard errors."""
    related = np.corrcoef(increments(drawn))
    return np.abs(related - np.eye(len(related))).max() < 6 / math.sqrt(drawn.shape[1])


def test_layers_are_independent_and_one_used_twice_is_noticed():
    sharing = plan_sharing(gaussian_noise(), n_holders=9)
    nothing = np.zeros(sharing.n_words, dtype=np.int64)
    drawn, _ = sharing.draw_holder(nothing)
    assert are_independent(drawn)
    for parts, laws in zip(increments(drawn), sharing.holder_laws, strict=True):
        assert abs(np.mean(parts**2) / laws[0].variance - 1) < 6 * math.sqrt(2 / MANY)
    noise = drawn[0] / math.sqrt(sharing.holder_laws[0][0].variance)

    def again(values, law):
        return values + np.rint(noise * law.scale).astype(np.int64), law.scale

    with replaced_noise(again):
        reused, _ = sharing.draw_holder(nothing)
    assert not are_independent(reused)


def test_a_second_ballot_has_noise_of_its_own():
    """One that repeats noise would tell how sums differ; two that do not are a second draw."""
    sharing = plan_sharing(gaussian_noise(100), n_holders=5)
    words = exact_words(sharing)
    one, two = (sharing.draw_holder(words)[0] for _ in range(2))
    assert not (one == two).all(axis=1).any()


def test_every_turnout_has_enough_honest_noises():
    for n_holders, colluding, least in [(3, 1, 2), (5, 1, 4), (50, 17, 34), (50, 5, 6), (2, 1, 2)]:
        sharing = plan_sharing(
            gaussian_noise(3), n_holders=n_holders, colluding=colluding, min_holders=least
        )
        whole = Fraction(sharing.noise.sums_law.scale) ** 2
        for turnout in range(least, n_holders + 1):
            level = sharing.level_of(turnout)
            parts = [Fraction(laws[0].scale) ** 2 for laws in sharing.holder_laws[: level + 1]]
            assert (turnout - colluding) * sum(parts) > whole
            if level:  # the one before would be too little
                assert (turnout - colluding) * sum(parts[:-1]) < whole
        for turnout in (least - 1, n_holders + 1, 2.0):
            with pytest.raises(ps.PrivsketchError, match="turnout"):
                sharing.level_of(turnout)


def test_a_ledger_wants_entries_of_holders_and_not_of_tellers(monkeypatch, tmp_path):
    sharing = plan_sharing(laplace_noise(10), n_holders=5)
    monkeypatch.setenv(LEDGER, f"{tmp_path}/ledger")
    assert (sharing.draw_teller()[0] != 0).any()
    with pytest.raises(ps.PrivsketchError, match="no entry"):
        sharing.draw_holder(exact_words(sharing))


# Noise wraps


ENDS = [INT64_MAX, INT64_MIN, INT64_MAX - 5, 2**62, -(2**62)]


@pytest.mark.parametrize(
    "noise", [gaussian_noise(MANY, 10**24), laplace_noise(MANY)], ids=["gaussian", "laplace"]
)
@pytest.mark.parametrize("end", ENDS)
def test_noise_wraps_at_the_ends(noise, end):
    """Squares of Laplace noise vary by five times their mean's square; half of them is the fault.

    Six standard errors of 8000 words, for skewed squares 1e-8; the fault is 14 of them away.
    """
    sharing = plan_sharing(noise, n_holders=5)
    words = np.full(sharing.n_words, end)
    law = sharing.holder_laws[0][0]
    for saturates in (False, True):
        if saturates:  # the fault
            laws = [
                tuple(replace(one, wraps=False) for one in each) for each in sharing.holder_laws
            ]
            sharing.__dict__["holder_laws"] = tuple(laws)
        drawn = sharing.draw_holder(words)[0][:, :-1]  # a count's noise may well be zero
        first = (drawn[0] - words[:-1]).astype(float)
        near = abs(np.mean(first**2) / law.variance - 1) < 6 * math.sqrt(5 / MANY)
        stopped = bool(np.isin(drawn, [INT64_MIN, INT64_MAX]).any())
        is_end = abs(abs(end) - 2**63) < 2**40
        assert near == (not saturates or not is_end)
        assert stopped == (saturates and is_end)


def folded_gaussian(scale, modulus):
    z = np.arange(-40 * modulus, 40 * modulus)
    weights = np.exp(-(z**2) / (2 * scale**2))
    return np.bincount(z % modulus, weights / weights.sum(), modulus)


def worst_rho(law, other):
    orders = (1.1, 2, 4, 8)
    return max(
        math.log(np.sum(p**a * q ** (1 - a))) / (a - 1) / a
        for a in orders
        for p, q in ((law, other), (other, law))
    )


def test_terms_that_stop_at_the_ends_protect_less():
    """Modulus 64, two holders with scales of 1: enumerated. The first one's sum is beyond the end.

    Its words are then always the same, and the noise of the second is all there is.
    """
    modulus, scale = 64, 1.0
    one = folded_gaussian(scale, modulus)
    wrapped = np.real(np.fft.ifft(np.fft.fft(one) ** 2))
    allowed = 1 / (2 * 2 * scale**2) * 1.001  # with tau at scales of 1
    assert worst_rho(np.abs(wrapped) + 1e-18, np.abs(np.roll(wrapped, 1)) + 1e-18) <= allowed
    # saturated: 31 + z stops at 31 for z >= 0, and the sum at 40 + z nearly always
    stopped = np.zeros(modulus)
    z = np.arange(-30, 31)
    weights = np.exp(-(z**2) / (2 * scale**2))
    for step, chance in zip(z, weights / weights.sum(), strict=True):
        stopped[min(40 + step, 31) % modulus] += chance
    total = np.abs(np.real(np.fft.ifft(np.fft.fft(one) * np.fft.fft(stopped)))) + 1e-18
    assert worst_rho(total, np.roll(total, 1)) > 1.9 * allowed


# Costs, in numbers and words


def test_who_can_learn_what():
    rho = rho_of_budget(*BUDGET)
    sharing = plan_sharing(gaussian_noise(100), n_holders=50, colluding=5, min_holders=6)
    assert sharing.levels[0] == 45
    outside, pooled, half, single, alone = sharing.costs()
    assert outside.rho == pytest.approx(rho * 45 / 50)
    assert (pooled.epsilon, pooled.delta, pooled.rho) == (*BUDGET, rho)
    assert half.rho == pytest.approx(rho * 45 / 23)
    assert single.rho == pytest.approx(rho * 45)
    assert alone.rho == sharing.holder_laws[0][0].rho == pytest.approx(45 * rho, rel=1e-11)
    assert alone.epsilon == epsilon_of_rho(alone.rho, 1e-6)
    for share, epsilon in ((0.8, 0.113), (0.5, 0.145), (0.2, 0.235)):
        wide = plan_sharing(gaussian_noise(3), n_holders=15, colluding=5, min_holders=15)
        cost = wide.cost_of_honest(round(10 * share))
        assert cost.epsilon == pytest.approx(epsilon, abs=6e-4)
    # With a coarser level fewer noises are needed than are honest.
    few = sharing.costs(7)
    assert few[1].rho == pytest.approx(rho * sharing.levels[sharing.level_of(7)] / 2)
    text = sharing.describe()
    assert "all tellers together, or all other holders: epsilon = 0.7565" in text
    assert "p^2 rho" in text


def test_pure_noise_costs_epsilon_whoever_colludes():
    sharing = plan_sharing(laplace_noise(10), n_holders=50)
    whole, alone = sharing.costs()
    assert (whole.epsilon, whole.delta) == (0.1, 0.0)
    assert alone.epsilon == pytest.approx(0.1 * 10)
    assert alone.epsilon <= sharing.alone == 1.0
    assert sharing.cost_of_honest(1).epsilon == 0.1
    _, receipt = sharing.draw_holder(exact_words(sharing))
    assert receipt.epsilon == alone.epsilon
    assert [part.law for part in receipt.parts] == ["laplace", "laplace"]
    assert "one honest teller" in sharing.describe()
    own = plan_sharing(laplace_noise(10), n_holders=50, alone=0.3)
    assert own.costs()[1].epsilon == pytest.approx(0.3)


def test_gaussian_noise_of_tellers():
    sharing = plan_sharing(gaussian_noise(10), n_holders=50, by="tellers")
    assert sharing.noises(50) == pytest.approx(2.5)
    assert sharing.costs()[1].rho == pytest.approx(100 * rho_of_budget(*BUDGET))


def test_the_receipt_of_a_total_says_what_it_rests_on():
    sharing = plan_sharing(gaussian_noise(10), n_holders=50, colluding=5, min_holders=40)
    receipt = sharing.receipt(50, "spring")
    assert (receipt.epsilon, receipt.delta, receipt.source) == (*BUDGET, "study spring")
    assert receipt.rho == rho_of_budget(*BUDGET)
    assert receipt.assumption.startswith(
        "at least 45 of the 50 holders in this sum added noise and keep it secret (if only h of "
        "them do: rho x 45/h); one of the 2 tellers is honest, tallied once and destroyed its key; "
        "the ciphers hold"
    )
    assert ps.Receipt.from_json(json.loads(json.dumps(receipt.to_json()))) == receipt
    total = sharing.total(50, "spring")
    assert total.covers(receipt, sharing.noise)
    for wrong in ({"epsilon": 0.05}, {"assumption": ""}, {"rho": receipt.rho * 0.9}):
        assert not total.covers(replace(receipt, **wrong), sharing.noise)
    assert not total.covers(sharing.receipt(49, "spring"), sharing.noise)
    pure = plan_sharing(laplace_noise(10), n_holders=5).receipt(5, "spring")
    assert pure.assumption.startswith("one of the 2 tellers is honest, added its noise")


# Standard deviations of totals in records, for H = N, 0.9 N and N / 2 honest; m = 1600
TABLE = {5: (1586, 1774, 2508), 50: (1586, 1672, 2244), 1000: (1586, 1672, 2244)}


@pytest.mark.parametrize("n_holders", TABLE)
def test_the_table_of_the_design(n_holders):
    """Within 2 in 1000: released tables of cosines are a little larger than 1."""
    design = design_of(domain=ps.Box(-1, 1, dim=10), n_components=10, n_features=1600)
    for honest, expected in zip(
        (n_holders, 9 * n_holders // 10, n_holders // 2), TABLE[n_holders], strict=True
    ):
        sharing = plan_sharing(
            design.sum_noise,
            n_holders=n_holders,
            colluding=n_holders - honest,
            min_holders=n_holders,
        )
        deviation = math.sqrt(sharing.variance(n_holders)) / design.unit
        assert deviation == pytest.approx(expected, rel=2e-3)
    tellers = plan_sharing(design.sum_noise, n_holders=n_holders, by="tellers", alone=1e6)
    deviation = math.sqrt(tellers.variance(n_holders)) / design.unit
    assert deviation == pytest.approx(2244, rel=2e-3)


@pytest.mark.parametrize("n_holders", TABLE)
def test_the_table_of_pure_designs(n_holders):
    """Two cubes are 26,148 records, and what holders add lest tellers see exact sums 12 % more."""
    pure = ps.Budget(epsilon=0.1)
    design = design_of(
        domain=ps.Box(-1, 1, dim=10), n_components=10, n_features=1600, budget=pure, noise="cube"
    )
    assert design.noise_std == pytest.approx(18_490, rel=1e-3)
    sharing = plan_sharing(design.sum_noise, n_holders=n_holders)
    deviation = math.sqrt(sharing.variance(n_holders)) / design.unit
    assert deviation == pytest.approx(26_148 * math.sqrt(2.5 / 2), rel=1e-3)


# Facts of a study


def test_facts_as_json():
    for noise in (gaussian_noise(10), laplace_noise(10)):
        sharing = plan_sharing(noise, n_holders=20)
        facts = json.loads(json.dumps(sharing.to_json()))
        assert Sharing.from_json(facts, noise) == sharing
        with pytest.raises(ps.PrivsketchError, match="fields"):
            Sharing.from_json({**facts, "seed": 1}, noise)
        for name, value in [
            ("by", "nobody"),
            ("n_holders", 1),
            ("colluding", 20),
            ("min_holders", 21),
            ("n_tellers", 1),
            ("levels", [3.0]),
            ("alone", -1.0),
        ]:
            with pytest.raises(ps.PrivsketchError):
                Sharing.from_json({**facts, name: value}, noise)


def test_levels_that_are_not_paid_for_are_refused():
    """A file asks for less noise only by saying what that costs: more honest, or more alone."""
    noise = gaussian_noise(10)
    sharing = plan_sharing(noise, n_holders=20)
    facts = sharing.to_json()
    for levels in ([40, *facts["levels"]], facts["levels"][:-1], facts["levels"][::-1], []):
        with pytest.raises(ps.PrivsketchError, match=r"levels|alone"):
            Sharing.from_json({**facts, "levels": levels}, noise)
    with pytest.raises(ps.PrivsketchError, match="alone"):
        Sharing.from_json({**facts, "alone": facts["alone"] * 0.99}, noise)


def test_what_has_no_parts_is_refused():
    with pytest.raises(ps.PrivsketchError, match="no parts"):
        plan_sharing(laplace_noise(10), n_holders=5, by="holders")
    masked = design_of(masks="records:0.5")
    with pytest.raises(ps.PrivsketchError, match="masks"):
        plan_sharing(masked.sum_noise, n_holders=5)
    grid = design_of(feature_map="cells", noise="gaussian")
    with pytest.raises(ps.PrivsketchError, match="n_holders="):
        plan_sharing(grid.sum_noise, n_holders=500)
    signs = design_of(feature_map="one-bit", budget=ps.Budget(epsilon=0.1), noise="cube")
    with pytest.raises(ps.PrivsketchError, match="room"):
        plan_sharing(signs.sum_noise, n_holders=50)


def test_tellers_who_are_holders_know_their_noise():
    sharing = plan_sharing(gaussian_noise(3), n_holders=5, colluding=1, min_holders=4, n_tellers=4)
    sharing.require_tellers_counted(1)
    with pytest.raises(ps.PrivsketchError, match="colluding"):
        sharing.require_tellers_counted(3)
    with pytest.raises(ps.PrivsketchError, match="no noise"):
        sharing.draw_teller()


def test_defaults_leave_somebody_honest():
    for n_holders in (2, 3, 4, 5, 6, 7, 20, 50, 59):
        sharing = plan_sharing(gaussian_noise(3), n_holders=n_holders)
        assert sharing.colluding == math.ceil(n_holders / 3)
        assert sharing.min_holders == default_min_holders(n_holders, sharing.colluding)
        assert sharing.levels[-1] >= 1


# Room for the noise


def fits(n_holders, colluding, min_holders, reach):
    """Whether a study is made with noise of this reach, in parts of what integers have room for."""
    scale = reach * HEADROOM / 50
    law = replace(gaussian_noise(1).sums_law, scale=scale, variance=scale**2)
    try:
        plan_sharing(
            SumNoise(law, None, "omitted", 1, 1),
            n_holders=n_holders,
            colluding=colluding,
            min_holders=min_holders,
        )
    except ps.PrivsketchError as error:
        return "does not fit 64-bit" not in str(error)
    return True


@pytest.mark.slow
def test_noise_fits_at_every_turnout():
    """All small studies, and large ones whose levels are a grid; at N alone most would slip by."""
    missed = 0
    small = [(n, c, r) for n in range(2, 6) for c in range(n) for r in range(c + 1, n + 1)]
    for n_holders, colluding, min_holders in [*small, (100, 10, 20)]:
        limits = {"colluding": colluding, "min_holders": min_holders}
        sharing = plan_sharing(gaussian_noise(1), n_holders=n_holders, **limits)
        # By hand: variances of what holders draw, over that of one release.
        largest = max(
            Fraction(turnout, max(h for h in sharing.levels if h <= turnout - colluding))
            for turnout in range(min_holders, n_holders + 1)
        )
        most = 1 / math.sqrt(largest)
        assert fits(n_holders, reach=most * (1 - 1e-9), **limits)
        assert not fits(n_holders, reach=most * (1 + 1e-9), **limits)
        missed += sharing.noises(n_holders) * (most * (1 + 1e-9)) ** 2 < 1
    assert missed >= 10  # what a look at all holders alone would let pass


# A holder's words, from tables


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
@pytest.mark.parametrize("sharing", ["holders", "tellers"])
@pytest.mark.parametrize("feature_map", ["fourier", "cells"])
def test_no_neighbour_moves_a_holders_words_by_more_than_alone(sharing, neighbours, feature_map):
    """Replayed on neighbouring tables: same questions, and what they cost is within the receipt."""
    budget = ps.Budget(epsilon=0.5, delta=1e-6, neighbours=neighbours)
    design = design_of(budget=budget, n_holders=7, sharing=sharing, feature_map=feature_map)
    facts = plan_sharing(design.sum_noise, n_holders=7, by=sharing)

    def run(table):
        found = engine_sums(ps.Table(table, missing="center"), design)
        drawn, receipt = facts.draw_holder(design.sum_noise.weighted(found.sums, found.n_records))
        return SimpleNamespace(drawn=drawn, receipt=receipt)

    table = np.random.default_rng(0).uniform(-1, 1, size=(50, 2))
    shares = []
    for _, one, other in neighbouring_tables(table, design.domain, neighbours):
        found = replay(run, one, other)
        assert (found.first.drawn == found.second.drawn).all()
        shares.append(found.share_of_budget)
    assert 0.3 < max(shares) <= 1
