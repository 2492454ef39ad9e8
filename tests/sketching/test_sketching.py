"""Before noise, a sketch is the same integers however its records are cut, ordered or read."""

import dataclasses

import numpy as np
import pytest

import privsketch as ps
from privsketch.features import Quantiser
from privsketch.kernels import ReferenceKernel
from privsketch.noise import saturating_add
from privsketch.sketching import exact_sums
from tests.chance import deviations, exact_answers
from tests.reading import sketch


def plan(**overrides):
    settings = {
        "n_components": 3,
        "domain": ps.Box(-4, 4, dim=5),
        "budget": ps.Budget(1.0, 1e-6),
        "random_state": 11,
        "n_features": 45,
    }
    return ps.Design.plan(**{**settings, **overrides})


DESIGNS = {
    "fourier, box": plan(),
    "one-bit, box": plan(feature_map="one-bit"),
    "fourier, ball": plan(domain=ps.Ball(dim=5, radius=4.0)),
    "fourier, cube": plan(budget=ps.Budget(1.0), noise="cube"),
}
RECORDS = np.random.default_rng(0).normal(size=(3_011, 5)) * 2


def exact_values(data, design, **options):
    """Everything that would be released, without the noise."""
    with exact_answers():
        return sketch(data, design, **options).values


def definition(design, records=RECORDS):
    """The same, one record at a time from the NumPy definition."""
    frequencies, domain = design.frequencies, design.domain
    kernel = ReferenceKernel(
        design.mapping,
        frequencies.matrix(domain),
        frequencies.offsets(domain),
        frequencies.turn_bits,
    )
    quantise = Quantiser(domain)
    sums = np.zeros(2 * design.n_features, dtype=np.int64)
    for record in records:
        sums += kernel.sums(quantise(record[None]))
    count = [len(records) * design.sum_noise.count_weight]
    return np.concatenate([sums * design.sum_noise.factor, count])


@pytest.mark.parametrize("name", DESIGNS)
def test_the_sketch_is_its_definition(name):
    design = DESIGNS[name]
    assert (exact_values(RECORDS[:300], design) == definition(design, RECORDS[:300])).all()


@pytest.mark.mostly_slow(quick_every=6)
@pytest.mark.parametrize("name", DESIGNS)
@pytest.mark.parametrize("n_threads", [1, 2, 5])
@pytest.mark.parametrize("cut", [1, 7, 1024, 10_000])
def test_blocks_threads_and_order_change_nothing(name, n_threads, cut):
    design = DESIGNS[name]
    whole = exact_values(RECORDS, design)
    shuffled = RECORDS[np.random.default_rng(cut).permutation(len(RECORDS))]
    blocks = (shuffled[first : first + cut] for first in range(0, len(shuffled), cut))
    assert (exact_values(blocks, design, n_threads=n_threads) == whole).all()


@pytest.mark.parametrize("name", DESIGNS)
def test_merged_parts_are_the_whole(name):
    design = DESIGNS[name]
    with exact_answers():
        parts = [ps.sketch(part, design) for part in np.array_split(RECORDS, 6)]
    assert (ps.merge(parts).values == exact_values(RECORDS, design)).all()


def test_one_record_changes_the_sums_by_its_own_features_only():
    # Float sketches fail this: a batch's matrix product rounds other records differently.
    design = DESIGNS["fourier, box"]
    with_it, without = exact_values(RECORDS, design), exact_values(RECORDS[1:], design)
    alone = exact_values(RECORDS[:1], design)
    assert (with_it - without == alone).all()


def test_moments_estimate_the_characteristic_function():
    design = plan(budget=ps.Budget(100.0, 1e-6))
    clipped = np.clip(RECORDS, -4, 4)
    truth = np.exp(1j * clipped @ design.radians().T).mean(axis=0)
    mean = ps.sketch(RECORDS, design).mean()
    noise = design.noise_std / len(RECORDS)
    assert np.abs(mean - truth).max() < 6 * noise + 5e-4


def test_one_bit_moments_have_the_dither_taken_back():
    design = plan(feature_map="one-bit", budget=ps.Budget(100.0, 1e-6), n_features=400)
    truth = np.exp(1j * np.clip(RECORDS, -4, 4) @ design.radians().T).mean(axis=0)
    mean = ps.sketch(RECORDS, design).mean()
    # Harmonics remain, but the first one is right: regression on the truth has slope 1.
    slope = np.vdot(truth, mean) / np.vdot(truth, truth)
    assert slope == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("count", ["released", "omitted"])
@pytest.mark.parametrize("noise", ["laplace", "gaussian", "cube"])
def test_counts(noise, count):
    budget = ps.Budget(5.0, 1e-6 if noise == "gaussian" else 0.0)
    released = ps.sketch(RECORDS, plan(budget=budget, noise=noise, count=count))
    assert released.exact_count is None
    assert len(released.sums) == 90
    if count == "omitted":
        assert released.n_records is None
        with pytest.raises(ps.PrivsketchError, match="count"):
            released.mean()
        assert released.mean(n_records=3000).shape == (45,)
    else:
        # In a cube of 91 numbers the count's tails are below those of Laplace noise.
        kind = "gaussian" if noise == "gaussian" else "laplace"
        spread = np.sqrt(released.design.sum_noise.count_variance)
        assert abs(released.n_records - len(RECORDS)) < deviations(kind=kind) * spread


def test_replace_publishes_the_count_and_doubles_the_noise():
    replace = plan(budget=ps.Budget(1.0, 1e-6, "replace"))
    released = ps.sketch(RECORDS, replace)
    assert released.n_records == released.exact_count == len(RECORDS)
    assert replace.noise_std == pytest.approx(2 * plan(count="omitted").noise_std, rel=1e-9)


def test_few_records():
    empty = np.empty((0, 5))
    assert len(ps.sketch(empty, plan()).sums) == 90
    assert np.isfinite(ps.sketch(empty, plan()).mean()).all()  # divides by at least 1
    replace = plan(budget=ps.Budget(1.0, 1e-6, "replace"))
    with pytest.raises(ps.PrivsketchError, match="no records"):
        ps.sketch(empty, replace)
    assert ps.sketch(RECORDS[:1], replace).exact_count == 1


def test_an_error_in_the_last_block_spends_nothing(spent):
    broken = RECORDS.copy()
    broken[-1, 2] = np.nan
    with pytest.raises(ps.PrivsketchError, match="missing"):
        ps.sketch(np.array_split(broken, 3), plan())
    assert spent == []


def test_progress_counts_every_record_once():
    seen = []
    ps.sketch(np.array_split(RECORDS, 4), plan(), progress=seen.append)
    assert sum(seen) == len(RECORDS)


@pytest.mark.parametrize(
    "options",
    [
        {"source": ""},
        {"source": 3},
        {"source": "a\nb"},
        {"missing": "drop"},
        {"n_threads": 0},
        {"columns": [0, 1]},
    ],
)
def test_bad_options(options):
    with pytest.raises(ps.PrivsketchError, match=next(iter(options))):
        sketch(RECORDS, plan(), **options)


def test_saturating_addition():
    top, bottom = 2**63 - 1, -(2**63)
    a = np.array([top, bottom, top, bottom, 5, top - 1], dtype=np.int64)
    b = np.array([1, -1, bottom, top, -7, 1], dtype=np.int64)
    assert saturating_add(a, b).tolist() == [top, bottom, -1, -1, -2, top]


def test_memory_does_not_grow_with_the_number_of_records():
    # Blocks are made on demand; at most a few may be alive at a time.
    alive, most = set(), 0

    class Block(np.ndarray):
        def __del__(self):
            alive.discard(id(self))

    def blocks():
        nonlocal most
        for _ in range(200):
            block = np.zeros((512, 5)).view(Block)
            alive.add(id(block))
            most = max(most, len(alive))
            yield block

    design = plan()
    total = exact_sums(blocks(), design, n_threads=2)
    assert total.n_records == 200 * 512
    assert most < 50


def test_designs_say_what_they_are():
    text = plan().describe()
    for word in ("add-remove", "one record", "epsilon = 1", "delta = 1e-06", "gaussian", "45"):
        assert word in text


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"noise": "gaussian", "budget": ps.Budget(1.0)}, "delta=0 with noise='gaussian'"),
        ({"noise": "uniform"}, "noise="),
        ({"task": "regression"}, "task="),
        ({"n_components": 0}, "n_components"),
        ({"n_components": 2.5}, "n_components"),
        ({"n_components": 200, "n_features": 20}, "n_components=200"),
        ({"n_features": -1}, "n_features"),
        ({"feature_map": "wavelet"}, "feature_map"),
        ({"masks": "uniform"}, "masks"),
        ({"frequencies": "gaussian"}, "frequency_scale"),
        ({"frequency_scale": (1, 2, 3)}, "frequency_scale"),
        ({"frequency_scale": -1}, "frequency_scale"),
        ({"count": "public"}, "count"),
        ({"count": "exact"}, "count"),
        ({"domain": ps.Box(-1, 1)}, "dim"),
        ({"domain": "everywhere"}, "domain"),
        ({"budget": 1.0}, "budget"),
        ({"n_records": 0}, "n_records"),
        ({"n_records": "many"}, "n_records"),
        ({"random_state": -1}, "random_state"),
        ({"random_state": 1.5}, "random_state"),
        ({"columns": ["a", "b"]}, "columns"),
        ({"columns": "abcde"}, "columns"),
        ({"columns": ["a", "a", "b", "c", "d"]}, "columns"),
    ],
)
def test_bad_plans(overrides, message):
    with pytest.raises(ps.PrivsketchError, match=message):
        plan(**overrides)


def test_a_plan_is_a_function_of_its_arguments():
    assert plan() == plan()
    assert plan().fingerprint == plan().fingerprint
    changed = [
        plan(random_state=12),
        plan(n_features=46),
        plan(budget=ps.Budget(1.0, 1e-7)),
        plan(count="omitted"),
        plan(frequency_scale=1.0),
    ]
    prints = {design.fingerprint for design in [plan(), *changed]}
    assert len(prints) == 6


def test_every_law_and_map_by_name():
    for law in ("adapted-radius", "gaussian"):
        design = plan(frequencies=law, frequency_scale=0.7)
        assert (design.frequencies.law, design.frequencies.scales) == (law, (0.7, 0.7))
    assert plan(frequency_scale=0.7).frequencies.law == "adapted-radius"
    assert plan(frequency_scale=(0.5, 2.0)).frequencies.law == "multi-scale"
    assert dataclasses.asdict(plan(feature_map="one-bit").frequencies)["dithered"] is True
