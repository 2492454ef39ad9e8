"""Sketches of tables with labels: sums by the law "mixed" are the same integers everywhere."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privsketch as ps
from privsketch.features import Quantiser, taxicab_sums
from privsketch.noise import plan_sharing
from privsketch.sketching import engine_sums, has_kernel, joined_sketch, why_impossible
from tests.taxicab import taxicab_design

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


# ---------------------------------------------------------------- taxicab moments of the same table

TAXICAB = taxicab_design(ps.Schema(COLUMNS, missing="drop"))


@pytest.fixture
def files(tmp_path):
    """The table as a folder of small files."""
    for part in range(4):
        rows = table().slice(part * N // 4, N // 4)
        pq.write_table(rows, tmp_path / f"part-{part}.parquet", row_group_size=30)
    return tmp_path


def test_every_engine_has_the_same_taxicab_moments(files, no_noise):
    wanted = ps.sketch(table(), TAXICAB).values
    encoded = Quantiser(TAXICAB.domain)(np.asarray(ps.encode(table(), TAXICAB.schema)))
    assert (taxicab_sums(encoded, TAXICAB.taxicab) == wanted).all()
    for engine in (
        ps.engines.Threads(n_threads=2),
        ps.engines.Pool(2),
        ps.engines.Dask(),
    ):
        assert (ps.sketch(files, TAXICAB, engine=engine).values == wanted).all()
    assert not has_kernel(TAXICAB)  # a device leaves it to threads


def test_spark_has_the_same_taxicab_moments(spark, no_noise):
    frame = spark.createDataFrame(table().to_pandas()).repartition(5)
    assert (ps.sketch(frame, TAXICAB).values == ps.sketch(table(), TAXICAB).values).all()


def test_totals_of_tellers_are_taxicab_moments(fixed_noise, tmp_path):
    design = taxicab_design(
        ps.Schema(COLUMNS, missing="drop"), sharing="tellers", n_holders=4, n_records=100
    )
    sharing = plan_sharing(design.sum_noise, n_holders=4, by="tellers")
    level, total = sharing.level_of(4), np.zeros(sharing.n_words, dtype=np.int64)
    for place in range(4):
        found = engine_sums(table().slice(place * N // 4, N // 4), design)
        words = design.sum_noise.weighted(found.sums, found.n_records)
        total += sharing.draw_holder(words)[0][level]
    total += sum(sharing.draw_teller()[0] for _ in range(sharing.n_tellers))
    names = [f"site-{place}" for place in range(4)]
    joined = joined_sketch(design, total, sharing, sources=names, study="a1b2")
    assert why_impossible(joined) is None
    assert abs(joined.n_records - N) < 10 * np.sqrt(joined.count_variance)
    matrix, variance = joined.taxicab_moments()
    single = ps.sketch(table(), design.without_noise(), insecure=True).taxicab_moments().matrix
    assert (np.abs(matrix - single) < 20 * np.sqrt(variance)).all()
    law = design.sum_noise.sums_law
    assert variance[0, 0] == pytest.approx(joined.noises(law) * law.variance)
    joined.save(tmp_path / "total.sketch")
    assert ps.Sketch.load(tmp_path / "total.sketch").to_bytes() == joined.to_bytes()


def test_what_no_records_can_have_led_to():
    released = ps.sketch(table(), TAXICAB)
    assert why_impossible(released) is None
    for place, value in ((0, -(2**40)), (1, 2**50), (TAXICAB.dim + 1, 2**50)):
        values = released.values.copy()
        values[place] = value
        assert why_impossible(replace(released, values=values)) is not None


def test_other_learners_say_what_the_sketch_is_for():
    released = ps.sketch(table(), TAXICAB)
    with pytest.raises(ps.ParameterError, match="task='regression'"):
        ps.learn_kmeans(released, 2)
    with pytest.raises(ps.ParameterError, match="taxicab"):
        ps.learn_pca(released, 2)
    with pytest.raises(ps.ParameterError, match="taxicab_moments"):
        released.moments()
