"""The law of frequencies for tables with labels: its bits, its law, and where it is refused."""

import json
import math
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import privsketch as ps
from privsketch.features import draw_frequencies, frequencies_from_json, frequencies_to_json
from privsketch.features import frequencies as module

SCHEMA = ps.Schema(
    [
        ps.Number("age", 0, 100),
        ps.Category("ward", ["a", "b"]),
        ps.Flag("smoker"),
        ps.Cycle("hour", 24),
        ps.Number("dose", 0, 9, weight=0.5),
    ],
    missing="drop",
)
COLUMNS = (("number", 1), ("labels", 3), ("labels", 1), ("cycle", 2), ("number", 1))
# As docs/format.md has it: seed 42, scales 0.25 to 2, six features.
VECTOR = [
    [-6401, 0, 0, 0, 0, 0, 0, -1229],
    [-26462, 4253, 2915, -5889, 0, 19388, -17918, 9997],
    [973, -3406, 7307, 1571, 0, -1121, -18655, -734],
    [-1558, 0, 0, 0, 0, 0, 0, -3252],
    [-7121, 0, 0, 0, 5930, 7232, -3041, -6061],
    [-12588, 3195, -1338, -2390, 3601, 0, 0, 8544],
]
CHECKSUM = "226ba6403676ab926bc96b6f587338ce6c9f2d937f8e32c00749892a47c5769f"


def draw(columns=COLUMNS, domain=SCHEMA.box, n=6, scales=(0.25, 2.0), seed=42):
    return draw_frequencies(
        domain,
        law="mixed",
        n_features=n,
        scales=scales,
        seed=seed,
        dithered=False,
        columns=columns,
    )


def words(seed, part):
    """Philox4x64-10 in Python integers: key (seed, 0), counter (0, 0, 0, part), from 1 on."""
    mask = 2**64 - 1
    counter = 0
    while True:
        counter += 1
        x, key = [counter, 0, 0, part], [seed, 0]
        for _ in range(10):
            a, b = 0xD2E7470EE14C6C93 * x[0], 0xCA5A826395121157 * x[2]
            x = [(b >> 64) ^ x[1] ^ key[0], b & mask, (a >> 64) ^ x[3] ^ key[1], a & mask]
            key = [(key[0] + 0x9E3779B97F4A7C15) & mask, (key[1] + 0xBB67AE8584CAA73B) & mask]
        yield from x


def uniforms(seed, part):
    return (((word >> 12) + 0.5) / 2**52 for word in words(seed, part))


def unrounded_rows(columns, half_widths, n, scales, seed):
    """The law by docs/format.md, one number after the other: turns per half-width."""
    half = {}
    for (kind, _), where in zip(columns, places(columns), strict=True):
        half |= {j: half_widths[j] for j in where if kind == "number"}
    others = [(kind, where) for (kind, _), where in zip(columns, places(columns), strict=True)]
    others = [(kind, where) for kind, where in others if kind != "number"]
    main, side = uniforms(seed, 0), uniforms(seed, 1)
    low, high = map(math.log, scales)
    scale = [math.exp(low + u * (high - low)) for u in islice(main, n)]
    radius = [math.sqrt(-2 * math.log(u)) for u in islice(main, n)]
    for j in range(n):
        row = [0.0] * sum(size for _, size in columns)
        normals = []
        while len(normals) < len(half):
            u, v = next(main), next(main)
            length = math.sqrt(-2 * math.log(u))
            normals += [length * math.cos(2 * math.pi * v), length * math.sin(2 * math.pi * v)]
        norm = math.sqrt(sum(g * g for g in normals[: len(half)]))
        for g, place in zip(normals, half, strict=False):
            row[place] = g * radius[j] / (scale[j] * norm) * half[place] / (2 * math.pi)
        how_many, *ranks = islice(side, 1 + len(others))
        least = (how_many >= 0.25) + (how_many >= 0.75) + (not half)
        read, loss = [], 1.0
        for index in sorted(range(len(others)), key=ranks.__getitem__):
            kind, where = others[index]
            with_it = loss * (3 if kind == "cycle" else (max(len(where), 2) + 1) / 2)
            if len(read) < least or (least and with_it <= 6**least):
                read.append(index)
                loss = with_it
        for index, (kind, where) in enumerate(others):
            own = list(islice(side, len(where)))
            if index not in read:
                continue
            if kind == "cycle":
                length = 8 ** own[1] / (2 * math.pi)
                turn = 2 * math.pi * own[0]
                own = [length * math.cos(turn), length * math.sin(turn)]
            else:
                own = [(u - 0.5) / 2 for u in own]
            for place, value in zip(where, own, strict=True):
                row[place] = value
        yield row


def places(columns):
    first = 0
    for _, size in columns:
        yield range(first, first + size)
        first += size


TABLES = {
    "numbers and others": (COLUMNS, SCHEMA.box),
    "one category": ((("labels", 4),), ps.Box(0, 0.7, dim=4)),
    "a flag and a number": ((("labels", 1), ("number", 1)), ps.Box(-1, 1, dim=2)),
    "labels only": (
        (("labels", 3), ("labels", 1), ("cycle", 2), ("labels", 9)),
        ps.Box(-0.5, 0.5, dim=15),
    ),
    "two cycles": ((("cycle", 2), ("cycle", 2)), ps.Box(-1, 1, dim=4)),
}


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("scales", [(0.25, 2.0), (0.001, 2.0)])
def test_integers_are_those_of_the_format(table, scales):
    columns, box = TABLES[table]
    recipe = draw(columns, box, n=400, scales=scales, seed=2**63 + 5)
    unit = 2.0 ** (recipe.turn_bits - 15)
    rows = list(unrounded_rows(columns, box.half_widths, 400, scales, 2**63 + 5))
    wanted = [[round(value * unit) for value in row] for row in rows]
    assert recipe.matrix(box).tolist() == wanted
    # The finest resolution at which all fit into 16 bits.
    highest = max(abs(value) for row in rows for value in row) * unit
    assert highest <= 2**15 - 1
    assert 2 * highest > 2**15 - 1 or recipe.turn_bits == 32


def test_the_vector_of_the_format():
    recipe = draw()
    text = (Path(__file__).parents[2] / "docs" / "format.md").read_text(encoding="utf-8")
    assert all("".join(f"{value:7}" for value in row) in text for row in VECTOR)
    assert CHECKSUM in text
    assert recipe.turn_bits == 30
    assert recipe.matrix(SCHEMA.box).tolist() == VECTOR
    assert recipe.checksum == CHECKSUM


def test_numbers_alone_are_those_of_the_multi_scale_law():
    numbers = ps.Box([-1, -0.5], [1, 0.5])
    plain = draw_frequencies(
        numbers, law="multi-scale", n_features=50, scales=(0.25, 2.0), seed=42, dithered=False
    )
    mixed = draw(n=50)
    assert mixed.turn_bits == plain.turn_bits
    assert (mixed.matrix(SCHEMA.box)[:, [0, 7]] == plain.matrix(numbers)).all()


@pytest.mark.parametrize("block_values", [1, 50, 333])
def test_blocks_of_rows_change_nothing(block_values):
    recipe = draw(n=200)
    (whole,) = module._turns(recipe, SCHEMA.box)
    blocks = list(module._turns(recipe, SCHEMA.box, block_values))
    assert len(blocks) > 1
    assert (np.concatenate(blocks) == whole).all()


N = 20_000  # features; tests are of one public seed, and would fail for one in a million


def test_phases_of_labels_are_uniform_and_independent():
    (turns,) = module._turns(draw(n=N), SCHEMA.box, 2**22)
    ward, smoker, hour = turns[:, 1:4], turns[:, 4], turns[:, 5:7]
    read = ward.any(axis=1)
    # From corner to corner, and from no to yes, a coordinate moves by two half-widths.
    phases = 2 * ward[read]
    for phase in (*phases.T, 2 * smoker[smoker != 0]):
        assert stats.kstest(phase, "uniform", (-0.5, 1)).pvalue > 1e-6
    assert np.abs(np.corrcoef(phases.T) - np.eye(3)).max() < 5 / math.sqrt(read.sum())
    shares = np.array([0.7, 0.2, 0.1])
    factor = np.abs(np.exp(2j * np.pi * phases) @ shares) ** 2
    assert abs(factor.mean() - 0.54) < 5 * factor.std() / math.sqrt(read.sum())
    length = 2 * np.pi * np.linalg.norm(hour[hour.any(axis=1)], axis=1)
    assert stats.kstest(np.log(length), "uniform", (0, math.log(8))).pvalue > 1e-6
    angle = np.arctan2(*hour[hour.any(axis=1)].T)
    assert stats.kstest(angle, "uniform", (-np.pi, 2 * np.pi)).pvalue > 1e-6


def test_columns_that_are_read():
    def counts(table):
        columns, box = TABLES[table]
        (turns,) = module._turns(draw(columns, box, n=N), box, 2**22)
        read = [turns[:, list(where)].any(axis=1) for where in places(columns)]
        labelled = [mask for (kind, _), mask in zip(columns, read, strict=True) if kind != "number"]
        return np.array(labelled).T

    def holds(share, wanted):
        return abs(share - wanted) < 5 * math.sqrt(wanted * (1 - wanted) / N) + 1e-12

    # Losses of energy are 2 (three labels), 1.5 (a flag) and 3 (a cycle), at most 6 or 36.
    read = counts("numbers and others")
    ward, smoker, hour = read.T
    assert holds((read.sum(axis=1) == 0).mean(), 0.25)
    assert holds(read.all(axis=1).mean(), 0.25)
    assert holds((read.sum(axis=1) == 2).mean(), 0.5)  # any two lose at most 6, all three lose 9
    for pair in (ward & smoker & ~hour, ward & hour & ~smoker, smoker & hour & ~ward):
        assert holds(pair.mean(), 0.5 / 3)
    read = counts("labels only")  # with a category of nine labels, which loses 5
    assert read.any(axis=1).all()  # no row of zeros, which would be a count
    assert counts("one category").all()
    assert holds(counts("a flag and a number").mean(), 0.75)


def test_half_a_turn_fits_at_the_finest_scales_of_a_plan():
    # 2048 is the widest range of scales that plans have.
    recipe = draw(n=2000, scales=(1 / 2048, 1.0))
    ward = recipe.matrix(SCHEMA.box)[:, 1:4]
    phases = 2 * ward[ward.any(axis=1)] * 2.0 ** (15 - recipe.turn_bits)
    assert len(np.unique(phases % 1)) >= 4
    assert abs(np.exp(2j * np.pi * phases).mean()) < 0.08


def test_recipes_survive_json():
    recipe = draw()
    value = frequencies_to_json(recipe)
    assert frequencies_from_json(json.loads(json.dumps(value))) == recipe
    wrong = [
        {"columns": []},
        {"columns": [["number", 8]]},
        {"columns": [["number", 1]] * 8},
        {"columns": [["labels", 1.0]]},
        {"columns": [["cycle", 3]]},
        {"columns": [["label", 3]]},
        {"columns": [["labels", -3]]},
        {"columns": [3]},
        {"columns": "labels"},
        {"law": "multi-scale"},
    ]
    for change in wrong:
        with pytest.raises(ps.ParameterError):
            frequencies_from_json({**value, **change})
    with pytest.raises(ps.ParameterError):
        frequencies_from_json({name: value[name] for name in value if name != "columns"})


# ---- designs


def plan(domain=SCHEMA, frequencies="mixed", **choices):
    return ps.Design.plan(
        n_components=3,
        domain=domain,
        budget=ps.Budget(1.0, 1e-6),
        n_records=10_000,
        random_state=3,
        frequencies=frequencies,
        **choices,
    )


@pytest.mark.parametrize("feature_map", ["fourier", "one-bit"])
@pytest.mark.parametrize("task", ["kmeans", "gaussian-mixture"])
def test_designs_carry_the_columns_of_the_schema(feature_map, task):
    design = plan(feature_map=feature_map, task=task)
    assert design.frequencies.columns == COLUMNS
    assert ps.Design.from_bytes(design.to_bytes()) == design
    assert plan(feature_map=feature_map, task=task).fingerprint == design.fingerprint


def test_schemas_with_labels_get_the_law():
    assert plan(frequencies=None).frequencies == plan().frequencies
    assert plan(frequencies=None, frequency_scale=(0.1, 1.0)).frequencies.law == "mixed"
    assert plan(frequencies=None, frequency_scale=0.5).frequencies.law == "adapted-radius"
    smooth = ps.Schema([ps.Number("age", 0, 100), ps.Date("day", "2020-01-01", "2021-01-01")])
    design = plan(smooth, frequencies=None, feature_map="fourier")
    assert design.frequencies.law == "multi-scale"
    assert "Gaussians" not in plan().describe().partition("careful")[2]


def test_other_laws_have_no_columns():
    assert plan(frequencies="multi-scale").frequencies.columns is None
    assert plan(frequencies="adapted-radius", frequency_scale=0.5).frequencies.columns is None
    # Transforms mix all coordinates: fast frequencies read every column.
    structured = plan(frequencies="structured")
    assert structured.frequencies.law == "structured"
    assert structured.frequencies.columns is None


def test_the_law_needs_labels_and_the_columns_of_the_schema():
    with pytest.raises(ps.ParameterError, match="needs a schema with a category"):
        plan(ps.Box(-1, 1, dim=3))
    value = plan().to_json()
    value["frequencies"]["columns"][1:3] = [["labels", 1], ["labels", 3]]
    with pytest.raises(ps.FileError, match="columns are not those of the schema"):
        ps.Design.from_json(value)


def test_the_law_depends_on_public_facts_alone():
    # Neither the number of records nor a weight of labels moves a phase by more than rounding.
    heavy = [ps.Category("ward", ["a", "b"], weight=9.0), *SCHEMA.columns[2:]]
    other = ps.Schema([SCHEMA.columns[0], *heavy], missing="drop")
    one, two = (
        draw(COLUMNS, schema.box, n=300).matrix(schema.box)[:, 1:4] for schema in (SCHEMA, other)
    )
    assert (one == two).all()


def test_sensitivity_is_that_of_any_matrix():
    mixed, plain = plan(n_features=200), plan(n_features=200, frequencies="multi-scale")
    assert mixed.noise_std == plain.noise_std
    for neighbours in ("add-remove", "replace"):
        bounds = [
            (one.l1(None), one.l2_squared(None, neighbours), one.linf(neighbours))
            for one in (mixed.contribution, plain.contribution)
        ]
        assert bounds[0] == bounds[1]
