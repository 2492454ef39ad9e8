"""Sketches of tables with labels: sums by the law "mixed" are the same integers everywhere."""

import numpy as np
import pyarrow as pa
import pytest

import privsketch as ps
from privsketch.features import Quantiser

COLUMNS = [
    ps.Number("age", 0, 100),
    ps.Category("ward", ["a", "b"]),
    ps.Flag("smoker"),
    ps.Flag("allergy", missing="category"),
    ps.Cycle("hour", 24),
]
N = 400


def table():
    rng = np.random.default_rng(5)
    return pa.table(
        {
            "age": rng.uniform(-10, 110, N),
            "ward": rng.choice(["a", "b", "elsewhere"], N),
            "smoker": rng.random(N) < 0.3,
            "allergy": pa.array(rng.choice([True, False, None], N)),
            "hour": rng.uniform(0, 24, N),
        }
    )


def planned(columns=COLUMNS, **choices):
    return ps.Design.plan(
        n_components=2,
        domain=ps.Schema(columns, missing="drop"),
        budget=ps.Budget(1.0, 1e-6),
        n_records=1000,
        random_state=4,
        **{"frequencies": "mixed", "n_features": 60, **choices},
    )


def python_sums(design, records):
    """Sums of features by Python's integers, a record and a frequency at a time."""
    frequencies, domain = design.frequencies, design.domain
    bits, cosines_sines = frequencies.turn_bits, design.mapping.table.tolist()
    matrix = frequencies.matrix(domain).tolist()
    offsets = frequencies.offsets(domain).tolist()
    sums = [[0, 0] for _ in matrix]
    for record in Quantiser(domain)(records).tolist():
        for j, (row, offset) in enumerate(zip(matrix, offsets, strict=True)):
            phase = sum(f * q for f, q in zip(row, record, strict=True))
            index = ((phase + offset + (1 << (bits - 17))) >> (bits - 16)) % 2**16
            for part in (0, 1):
                sums[j][part] += cosines_sines[index][part]
    return np.array(sums).T.reshape(-1) * design.sum_noise.factor


DESIGNS = {
    "fourier": planned(),
    "one-bit": planned(feature_map="one-bit"),
    "labels only": planned(COLUMNS[1:4]),  # phases have all 32 bits
    "cube": planned(noise="cube"),
    "replace": ps.Design.plan(
        n_components=2,
        domain=ps.Schema(
            [ps.Number("age", 0, 100), ps.Category("ward", ["a", "b"], missing="category")]
        ),
        budget=ps.Budget(1.0, 1e-6, neighbours="replace"),
        frequencies="mixed",
        random_state=4,
        n_features=60,
    ),
}


@pytest.mark.parametrize("name", DESIGNS)
def test_sums_are_those_of_python_integers(name, no_noise):
    design = DESIGNS[name]
    records = np.asarray(ps.encode(table(), design.schema))
    wanted = python_sums(design, records)
    assert (ps.sketch(table(), design).sums == wanted).all()


def test_other_processes_have_the_same_sums(no_noise):
    wanted = ps.sketch(table(), DESIGNS["fourier"]).values.tolist()
    engine = ps.engines.Pool(2)
    assert ps.sketch(table(), DESIGNS["fourier"], engine=engine).values.tolist() == wanted


def test_block_masks_keep_whole_features(no_noise):
    # Blocks have as many features as a record has coordinates, ten here, whatever the law is.
    design = planned(n_features=90, masks="block:90")
    assert (
        ps.sketch(table(), design).sums == ps.sketch(table(), planned(n_features=90)).sums
    ).all()


def test_fast_frequencies_read_every_label(no_noise):
    # Transforms mix all coordinates: "structured" stays isotropic, in the ball.
    design = planned(frequencies="structured", n_features=None)
    assert isinstance(design.domain, ps.Ball)
    assert (design.frequencies.matrix(design.domain) != 0).any(axis=0).all()
