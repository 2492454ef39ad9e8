"""Principal components of counts, holders, weights, masks and means together; few records."""

import numpy as np
import pytest

import privsketch as ps
from privsketch import learn_pca
from privsketch.learning import TOO_FEW
from privsketch.pages import report_page

pytestmark = pytest.mark.usefixtures("fixed_noise")
DEVIATIONS = np.array([0.3, 0.2, 0.05, 0.05])
SIZE = 2000  # records of a holder
N_RELEASES = 320


def plan(dim=4, **choices):
    settings = {
        "task": "pca",
        "n_components": 2,
        "domain": ps.Ball(dim=dim, radius=1.5),
        "budget": ps.Budget(3.0, 1e-6),
        "n_records": SIZE,
        "random_state": 1,
    }
    return ps.Design.plan(**{**settings, **choices})


def draw(n_records, rng, deviations=DEVIATIONS, mean=0.0):
    return rng.normal(size=(n_records, len(deviations))) * deviations + mean


def releases(design, weights, mean=0.0):
    """Models of merged holders, each of other records."""
    rng = np.random.default_rng(0)
    for _ in range(N_RELEASES):
        holders = [
            ps.sketch(draw(SIZE, rng, mean=mean), design, source=str(i))
            for i in range(len(weights))
        ]
        yield learn_pca(ps.merge(holders, weights=weights))


JOINT = [  # every feature map, kind of budget, count, mean and mask, in few
    ({"count": "omitted", "masks": "records:0.2"}, [1, 4]),
    ({"budget": ps.Budget(20.0, 0.0), "masks": "records:0.3"}, [1, 3]),
    ({"feature_map": "quadratic", "masks": "records:0.2"}, [1, 1]),
    ({"mean": "released"}, [1, 3]),
    ({"mean": "released", "budget": ps.Budget(3.0, 1e-6, "replace")}, [1]),
]
MORE = [
    ({}, [1]),
    ({"count": "omitted"}, [1] * 5),
    ({"masks": "records:0.1"}, [1]),
    ({"budget": ps.Budget(5.0, 0.0), "masks": "records:0.1"}, [1, 1]),
    ({"budget": ps.Budget(3.0, 1e-6, "replace"), "masks": "records:0.2"}, [1, 2]),
    ({}, [1, 20]),
    ({"feature_map": "quadratic"}, [1, 20]),
    ({"feature_map": "quadratic", "budget": ps.Budget(20.0, 0.0)}, [2, 5]),
    ({"mean": "released", "budget": ps.Budget(20.0, 0.0), "feature_map": "second-moments"}, [1]),
    ({"mean": "released", "budget": ps.Budget(20.0, 0.0), "feature_map": "quadratic"}, [1]),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("choices", "weights"),
    [
        JOINT[0],
        *(pytest.param(*case, marks=pytest.mark.audit) for case in JOINT[1:]),
        *(pytest.param(*case, marks=pytest.mark.exhaustive) for case in MORE),
    ],
)
def test_variances_and_errors_are_right(choices, weights):
    # 640 numbers, nearly independent: their root mean square varies by 3 %, the share within
    # 90 % intervals by 1.2 %; 0.97 to 1.15 and 0.86 to 0.92 were seen in 600. By chi-square and
    # binomial tails false alarms are below 1e-6: errors of 0.7 or 1.4 times the right size are
    # refused.
    mean = np.array([0.3, 0.2, 0.1, 0.0]) if "mean" in choices else 0.0
    second = np.diag(DEVIATIONS**2)
    scores, told = [], []
    for model in releases(plan(**choices), weights, mean):
        true = np.einsum("kj,jl,kl->k", model.components, second, model.components)
        scores.append((model.explained_variance - true) / model.standard_errors)
        told.append(model.n_records)
        assert not any("edge of the domain" in text for text in model.concerns)
    assert np.mean(told) == pytest.approx(sum(weights) * SIZE, rel=0.05)
    spread = np.sqrt(np.mean(np.square(scores)))
    inside = np.mean(np.abs(scores) < 1.645)
    assert 0.75 < spread < 1.33
    assert 0.78 < inside < 0.98


# --- how many stand out ------------------------------------------------------------------------


SIGNALS = np.array([0.3, 0.25, 0.2, 0.15, 0.1])


@pytest.mark.slow
@pytest.mark.parametrize("feature_map", ["second-moments", "quadratic"])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_auto_finds_all_that_stand_out_and_no_others(feature_map, delta):
    # All are more than ten standard errors. 36 chances of a false alarm of one in thirty: a third
    # of them once in a billion.
    alarms = 0
    for rank in [*range(1, 6)] * 3:
        rng = np.random.default_rng([rank, 30])
        deviations = np.r_[SIGNALS[:rank], np.full(8 - rank, 0.02)]
        records = draw(50_000, rng, deviations) @ np.linalg.qr(rng.normal(size=(8, 8)))[0]
        for planned in (1, 2, 3):
            most = max(2 * planned, planned + 3)
            design = plan(
                dim=8,
                domain=ps.Ball(dim=8, radius=1.0),
                budget=ps.Budget(1.0, delta),
                n_records=50_000,
                n_components=planned,
                feature_map=feature_map,
            )
            found = learn_pca(ps.sketch(records, design), "auto").n_components
            assert min(rank, most) <= found <= most, (rank, planned)
            alarms += found > rank
    assert alarms < 12


def test_what_stands_out_beyond_the_number_asked_for_is_said():
    rng = np.random.default_rng(31)
    records = draw(50_000, rng, np.r_[SIGNALS[:4], np.full(4, 0.02)])
    sketch = ps.sketch(records, plan(dim=8, domain=ps.Ball(dim=8, radius=1.0)))
    model = learn_pca(sketch, 2)
    assert model.n_standing_out >= 4
    assert "more components stand out of the noise" in model.describe()
    assert "more components stand out of the noise" in report_page(model, sketch)
    assert "misfit" not in model.describe()
    assert model.misfit < 5  # 9 numbers beyond the unknowns; in thousands if two were left out
    all_of_them = learn_pca(sketch, "auto")
    assert "more component" not in all_of_them.describe()
    features = plan(dim=8, domain=ps.Ball(dim=8, radius=1.0), feature_map="quadratic")
    sketch = ps.sketch(records, features)
    assert "misfit" in report_page(learn_pca(sketch), sketch)


# --- few records -------------------------------------------------------------------------------


@pytest.mark.mostly_slow(quick_every=2)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("n_records", [0, 1, 5])
def test_too_few_records_to_say_anything(n_records, delta):
    design = plan(dim=6, domain=ps.Ball(dim=6, radius=2.5), budget=ps.Budget(1.0, delta))
    # One release in a hundred has a count of four deviations, or a component by chance.
    said, most = 0, 2.5**2 * (1 + 1e-9)
    for seed in range(10):
        rng = np.random.default_rng(seed)
        sketch = ps.sketch(draw(n_records, rng, np.full(6, 0.5)), design)
        model = learn_pca(sketch)
        assert model.total_variance <= most
        assert (model.explained_variance <= most).all()
        assert (model.standard_errors <= most).all()
        assert not any("edge of the domain" in text for text in model.concerns)
        assert model.concerns or model.n_standing_out > 0
        said += model.concerns == (TOO_FEW,)
    assert said >= 7


def test_one_public_record():
    design = plan(budget=ps.Budget(1.0, 1e-6, "replace"))
    assert learn_pca(ps.sketch(np.zeros((1, 4)), design)).concerns == (TOO_FEW,)
