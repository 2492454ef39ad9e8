"""Totals whose noise is shared are sketches: they save, merge, and know how noisy they are."""

import json
import math

import numpy as np
import pytest

import privsketch as ps
from privsketch import FileError, MergeError
from privsketch._base import pack_sketch, unpack_sketch
from privsketch.learning import problem_of
from privsketch.noise import plan_sharing
from privsketch.pages import save_report
from privsketch.sketching import engine_sums, joined_sketch, why_impossible
from tests.chance import exact_answers

DOMAIN = ps.Box(-1, 1, dim=2)
CENTERS = np.array([[-0.5, -0.5], [0.5, 0.5], [0.5, -0.5]])
DELTA, PURE = ps.Budget(epsilon=1.0, delta=1e-6), ps.Budget(epsilon=1.0)


def design_of(sharing="holders", budget=DELTA, n_holders=5, **choices):
    return ps.Design.plan(
        n_components=3,
        domain=DOMAIN,
        budget=budget,
        n_records=4000,
        random_state=3,
        n_holders=n_holders,
        sharing=sharing,
        **choices,
    )


def records_of(place, n_records=4000):
    rng = np.random.default_rng(place)
    return CENTERS[rng.integers(3, size=n_records)] + 0.05 * rng.normal(size=(n_records, 2))


def joined(design, turnout=5, study="a1b2", first=0, **choices):
    """What sealed sums would give, without the seals."""
    sharing = plan_sharing(design.sum_noise, n_holders=design.n_holders, by=design.sharing)
    level = sharing.level_of(turnout)
    total, count = np.zeros(sharing.n_words, dtype=np.int64), 0
    for place in range(first, first + turnout):
        found = engine_sums(records_of(place), design)
        words = design.sum_noise.weighted(found.sums, found.n_records)
        total += sharing.draw_holder(words)[0][level]
        count += found.n_records
    if design.sharing == "tellers":
        total += sum(sharing.draw_teller()[0] for _ in range(sharing.n_tellers))
    names = [f"site-{place}" for place in range(first, first + turnout)]
    exact = count if design.count == "public" else None
    return joined_sketch(
        design, total, sharing, sources=names, study=study, exact_count=exact, **choices
    )


KINDS = {
    "holders": {},
    "tellers": {"sharing": "tellers"},
    "cube": {"sharing": "tellers", "budget": PURE},
    "laplace": {"sharing": "tellers", "budget": PURE, "noise": "laplace"},
    "cells": {"feature_map": "cells"},
    "cells by tellers": {"feature_map": "cells", "sharing": "tellers", "budget": PURE},
    "one-bit": {"feature_map": "one-bit", "sharing": "tellers", "budget": PURE},
    "replace": {"budget": ps.Budget(epsilon=1.0, delta=1e-6, neighbours="replace")},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_total_is_a_sketch(kind, tmp_path, fixed_noise):
    design = design_of(**KINDS[kind])
    total = joined(design)
    spread = math.sqrt(total.count_variance or design.n_values * total.noise_variance)
    assert abs(total.n_records - 20_000) <= (0 if design.count == "public" else 5 * spread)
    assert spread < 2500
    expected = {"holders": 5 / 3}.get(design.sharing, 2.5)
    if kind == "cells by tellers":
        expected = 2.25  # of scales below 1, discrete noise has less than scales say
    assert total.noise_variance == pytest.approx(expected * design.noise_std**2, rel=0.03)
    assert why_impossible(total) is None
    total.save(tmp_path / "total.sketch")
    again = ps.Sketch.load(tmp_path / "total.sketch")
    assert again.to_bytes() == total.to_bytes()
    assert again.shared == total.shared
    assert again.noise_variance == total.noise_variance
    assert "one noise for 5 holders" in again.describe()
    model = ps.learn_kmeans(again, n_clusters=3, random_state=0)
    distances = np.linalg.norm(model.centers[:, None] - CENTERS, axis=2).min(axis=0)
    assert distances.max() < 0.05


def test_learners_know_the_noise_of_a_total():
    design = design_of()
    total = joined(design)
    assert problem_of(total).noise_variance == total.noise_variance
    sites = ps.merge(ps.sketch(records_of(place), design, source=str(place)) for place in range(5))
    assert sites.noise_variance == pytest.approx(5 * design.noise_std**2)
    assert total.noise_variance == pytest.approx(sites.noise_variance / 3)
    # The sums differ by noise, of as much as both say.
    spread = math.sqrt(total.noise_variance + sites.noise_variance)
    difference = (total.sums - sites.sums) / design.unit
    assert abs(np.mean(difference**2) / spread**2 - 1) < 6 * math.sqrt(2 / len(difference))


def test_fewer_holders_have_a_level_of_their_own():
    design = design_of()
    total = joined(design, turnout=4)
    assert (total.shared[0].level, total.shared[0].needed) == (1, 2)
    assert total.noise_variance == pytest.approx(2 * design.noise_std**2)
    assert total.receipt.assumption.startswith("at least 2 of the 4 holders")


def test_totals_merge_with_other_holders():
    design = design_of()
    total, other = joined(design), ps.sketch(records_of(9), design, source="site-9")
    both = ps.merge([total, other])
    assert both.noise_variance == pytest.approx((5 / 3 + 1) * design.noise_std**2)
    assert abs(both.n_records - 24_000) < 8 * math.sqrt(both.count_variance)  # 1e-15
    assert both.receipt.epsilon == 1.0
    assert "at least 3 of the 5 holders" in both.receipt.assumption
    assert ps.Sketch.from_bytes(both.to_bytes()).to_bytes() == both.to_bytes()
    second = joined(design, turnout=4, study="c3d4", first=20)
    three = ps.merge([both, second])
    assert three.noise_variance == pytest.approx((5 / 3 + 1 + 2) * design.noise_std**2)
    assert ps.Sketch.from_bytes(three.to_bytes()).shared == total.shared + second.shared
    twice = ps.merge([total], weights=[2])
    assert twice.noise_variance == pytest.approx(4 * total.noise_variance)
    assert ps.Sketch.from_bytes(twice.to_bytes()).to_bytes() == twice.to_bytes()


def test_a_holder_of_a_total_is_not_added_again():
    design = design_of()
    total, one = joined(design), ps.sketch(records_of(2), design, source="site-2")
    with pytest.raises(MergeError, match="site-2"):
        ps.merge([total, one])
    with pytest.raises(MergeError, match="shared"):
        ps.merge([total, one], same_records=True)
    with pytest.raises(MergeError, match="twice"):
        ps.merge([total, total])


@pytest.mark.parametrize(
    "change",
    [
        {"turnout": 6},
        {"needed": 5},
        {"needed": 1},
        {"by": "tellers", "needed": 0},
        {"study": "other"},
        {"n_tellers": 1},
        {"alone": "much"},
        {"alone": 1e-9},
    ],
    ids=str,
)
def test_a_header_that_does_not_fit_its_receipt_is_refused(change):
    header, values = unpack_sketch(joined(design_of()).to_bytes(), "total")
    header = json.loads(json.dumps(header))
    header["shared"][0] |= change
    with pytest.raises(FileError):
        ps.Sketch.from_bytes(pack_sketch(header, values))


@pytest.mark.parametrize("alone", [5e-324, 1e-100, 1e-30, 1e30, 1e100, 1.7e308])
@pytest.mark.parametrize("kind", ["tellers", "cube", "laplace", "cells by tellers"])
def test_a_header_with_any_number_is_read_or_refused(kind, alone):
    """Files come from strangers: no number in them is met later, by a learner."""
    header, values = unpack_sketch(joined(design_of(**KINDS[kind])).to_bytes(), "total")
    header["shared"][0]["alone"] = alone
    try:
        total = ps.Sketch.from_bytes(pack_sketch(header, values))
    except FileError:
        return
    assert math.isfinite(total.noise_variance)
    assert math.isfinite(total.count_variance)
    assert why_impossible(total) is None


def test_a_total_is_not_one_without_its_header():
    header, values = unpack_sketch(joined(design_of()).to_bytes(), "total")
    for shared in ([], {}, [header["shared"][0]] * 2, [1]):
        with pytest.raises(FileError):
            ps.Sketch.from_bytes(pack_sketch({**header, "shared": shared}, values))


def test_what_is_no_total_is_refused():
    design = design_of()
    sharing = plan_sharing(design.sum_noise, n_holders=5)
    words = np.zeros(sharing.n_words, dtype=np.uint64)
    names = list("abcde")
    assert joined_sketch(design, words, sharing, sources=names, study="s").values.dtype == np.int64
    other = plan_sharing(design_of(n_features=100).sum_noise, n_holders=5)
    for change, message in [
        ({"words": words[1:]}, "words"),
        ({"words": words.astype(float)}, "words"),
        ({"sources": names[:3]}, "turnout"),
        ({"sources": ["a", *names[:4]]}, "twice"),
        ({"study": "a:b"}, "study"),
        ({"exact_count": 5}, "exact_count"),
        ({"sampler": "dice"}, "sampler"),
        ({"sharing": other}, "another design"),
    ]:
        facts = {"words": words, "sharing": sharing, "sources": names, "study": "s"} | change
        with pytest.raises(ps.PrivsketchError, match=message):
            joined_sketch(design, **facts)


def test_sums_that_no_records_have_are_noticed():
    design = design_of()
    total = joined(design)
    sharing = plan_sharing(design.sum_noise, n_holders=5)
    far = total.values.copy()
    far[0] += 2**50
    wrong = joined_sketch(design, far, sharing, sources=total.sources, study="x")
    assert "larger" in why_impossible(wrong)


def test_holders_of_a_sharing_design_can_release_by_themselves():
    """With all of the noise: the design says who shares, and a sketch has its own."""
    design = design_of(feature_map="cells")
    assert design.sum_noise.factor > 1
    with exact_answers():
        alone = ps.sketch(records_of(0), design)
    assert alone.n_records == 4000
    assert alone.noise_variance == design.noise_std**2


def test_a_report_tells_that_noise_is_shared(tmp_path):
    total = joined(design_of())
    save_report(ps.learn_kmeans(total, 3, n_init=1), total, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "holders in the total, with shared noise" in page
    assert "sketches added up" not in page


@pytest.mark.parametrize("kind", ["holders", "tellers", "cube", "laplace"])
def test_a_total_knows_what_its_study_foretold(kind):
    """For every turnout whose level leaves no more than those who may collude."""
    design = design_of(**KINDS[kind])
    sharing = plan_sharing(design.sum_noise, n_holders=5, by=design.sharing)
    for turnout in range(sharing.min_holders, 6):
        told = {cost.who: cost for cost in sharing.costs(turnout)}
        found = sharing.total(turnout, "any").costs(design.sum_noise)
        for cost in (found[0], found[-1]):
            assert cost.epsilon == pytest.approx(told[cost.who].epsilon, rel=1e-9)
            assert cost.delta == told[cost.who].delta
        assert found[-2].epsilon == pytest.approx(1.0)  # who may collude pays for the budget
        assert [cost.epsilon for cost in found] == sorted(cost.epsilon for cost in found)


def test_holders_who_are_all_needed_know_their_own_noise():
    design = design_of()
    sharing = plan_sharing(design.sum_noise, n_holders=5, colluding=0, min_holders=5)
    found = sharing.total(5, "any").costs(design.sum_noise)
    assert [cost.who for cost in found[:3]] == [
        "outsiders",
        "each of the other holders",
        "all tellers but one",
    ]
    assert found[1].rho == pytest.approx(found[0].rho * 5 / 4)


@pytest.mark.parametrize("kind", ["holders", "cube"])
def test_a_report_tells_what_those_who_took_part_risk(kind, tmp_path):
    total = joined(design_of(**KINDS[kind]))
    save_report(ps.learn_kmeans(total, 3, n_init=1), total, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count("Risks for participants") == 1
    for cost in total.shared[0].costs(total.design.sum_noise):
        number = cost.text.split(",")[0].removeprefix("epsilon = ")
        assert f"<td>{cost.who}</td><td>{number}</td>" in page
    alone = ps.sketch(records_of(0), design_of(), source="one")
    save_report(ps.learn_kmeans(alone, 3, n_init=1), alone, tmp_path / "report.html")
    assert "Risks for participants" not in (tmp_path / "report.html").read_text(encoding="utf-8")
