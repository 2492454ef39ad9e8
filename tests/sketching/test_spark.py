"""Spark gives the integers of threads, counts every record once, and quotes none of them.

One session for all tests. Sums are compared without noise, bit for bit; what Java and the workers
write to their standard error is in a file that must not have a record in it, and has one where a
planted failure is not ours to hide.
"""

import datetime as dt
import os
import pickle
import signal
import time
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import privsketch as ps
from privsketch import MissingError, ParameterError, PrivsketchError, RecordError
from privsketch.cli.main import main
from privsketch.clustering import Passes, PipelinePlan, Run, cells, cluster_medians, clustered
from privsketch.clustering.baselines import grid, lloyd
from privsketch.clustering.pipeline import method as pipeline
from privsketch.kernels import CompiledClusters, CompiledQuantiser
from privsketch.sketching import spark_records
from privsketch.sketching.engines import session
from privsketch.sketching.engines import spark as spark_engine
from privsketch.tables import kind_of
from tests import seams
from tests.reading import read_blocks, selection_of, sketch

NAMES = ("age", "bmi", "dose")
SECRET = "confidential"
N_RECORDS = 2_000


@pytest.fixture(scope="module")
def design(make_design):
    return make_design(columns=NAMES)


@pytest.fixture(scope="module")
def records(make_records):
    return make_records(N_RECORDS)


@pytest.fixture
def exact(design, no_noise):
    """A function that gives what would be released, without the noise."""

    def exact(data, **options):
        return sketch(data, options.pop("design", design), **options).values.tolist()

    return exact


@pytest.fixture(scope="module")
def table(records):
    """Columns in another order, and one that is no part of a record."""
    frame = pd.DataFrame(records, columns=NAMES)[list(reversed(NAMES))]
    return frame.assign(name=SECRET)


@pytest.fixture(scope="module")
def frame(spark, table):
    return spark.createDataFrame(table).repartition(5)


@pytest.fixture
def said(spark):
    """A function that gives what Java and the workers have said since the test began."""
    log = Path(spark.conf.get("spark.privsketch.log"))
    start = log.stat().st_size
    return lambda: log.read_bytes()[start:].decode(errors="replace")


def read_back(frame, chosen):
    """Records as the workers read them, in any order."""
    with spark_records(ps.Table(frame), chosen) as found:
        parts = found.each(lambda blocks: [np.asarray(block, np.float64) for block in blocks])
    return np.concatenate([np.empty((0, chosen.dim)), *(block for part in parts for block in part)])


def in_order(rows):
    return rows[np.lexsort(rows.T)]


# ---------------------------------------------------------------- the same integers


@pytest.mark.parametrize("engine", [None, "spark"])
def test_a_frame(exact, frame, records, engine):
    assert exact(frame, engine=engine) == exact(records)


@pytest.mark.parametrize("most", ["0", "7"])
def test_batches_of_any_size(spark, exact, frame, records, most):
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, most)
    try:
        assert exact(frame) == exact(records)
    finally:
        spark.conf.set(name, before)


def test_more_partitions_than_are_collected(exact, frame, records, monkeypatch):
    seams.set(monkeypatch, "spark.MAX_PARTS", 3)
    done = []
    found = exact(frame, progress=done.append)
    assert found == exact(records)
    counts = [count for count in done if count]
    assert (len(counts), sum(counts)) == (3, N_RECORDS)


@pytest.fixture(scope="module")
def files(records, tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    np.save(folder / "a.npy", records[:900])
    rest = pd.DataFrame(records[900:], columns=NAMES)
    rest[:700].to_parquet(folder / "b.parquet", row_group_size=100)
    rest[700:].to_csv(folder / "c.csv", index=False)
    return sorted(folder.iterdir())


def test_files_are_read_by_workers(spark, exact, files, records, monkeypatch):
    seams.set(monkeypatch, "files.FILE_VALUES", 600)
    done = []
    assert exact(files, engine="spark", progress=done.append) == exact(records)
    assert sum(done) == N_RECORDS
    assert exact(files[0], engine=ps.engines.Spark(spark)) == exact(records[:900])
    assert exact([], engine="spark") == exact(records[:0])


def test_the_command(spark, files, design, tmp_path):
    design.save(tmp_path / "study.json")
    command = ["sketch", str(tmp_path / "study.json"), *map(str, files), "--engine", "spark"]
    ran = CliRunner().invoke(main, [*command, "-o", str(tmp_path / "x.sketch")])
    assert ran.exit_code == 0, ran.output
    assert ps.load(tmp_path / "x.sketch").receipt.epsilon == design.budget.epsilon


def test_empty_frames_and_partitions(spark, exact, frame, records, make_design):
    zeros = exact(records[:0])
    nothing = spark.createDataFrame([], "age double, bmi double, dose double")
    no_partitions = spark.createDataFrame(spark.sparkContext.emptyRDD(), nothing.schema)
    for empty in (frame.where("age > 1e9"), nothing, no_partitions):
        assert exact(empty) == zeros
    few = records[records[:, 0] > 3.5]
    assert exact(frame.where("age > 3.5")) == exact(few)
    with pytest.raises(RecordError, match="no records"):
        ps.sketch(nothing, make_design(columns=NAMES, neighbours="replace"))


@pytest.mark.parametrize("columns", [["dose", "age", "bmi"], [2, 0, 1]], ids=str)
def test_columns_asked_for(exact, frame, table, make_design, columns):
    options = {"design": make_design(), "columns": columns}
    assert exact(frame, **options) == exact(table, **options)


def test_names_that_differ_little_or_have_points(spark, exact, records, make_design):
    wide = np.hstack([records[:50], records[:50] * 2])
    names = ["a", "A", "a.b", "`", "ä b", "select"]
    frame = spark.createDataFrame(wide.tolist(), names)
    wanted = ["A", "a.b", "`"]
    found = exact(frame, design=make_design(), columns=wanted)
    assert found == exact(wide[:, 1:4], design=make_design())


def test_masks_on_spark(frame, make_design, no_noise):
    design = make_design(columns=NAMES, masks="records:0.5", noise="gaussian")
    counts = {ps.sketch(frame, design).values[-1] for _ in range(4)}
    assert len(counts) > 1  # of 2,000 records, four times the same half by a chance below 1e-4


def test_noise_is_drawn_once(spent, design, frame):
    done = []
    released = ps.sketch(frame, design, progress=done.append)
    assert len(spent) == 1
    assert released.receipt.epsilon == design.budget.epsilon
    assert sum(done) == N_RECORDS


def test_sums_leave_no_file_behind(spark, table, design, no_noise):
    """Where Spark keeps what does not stay in memory: a shuffle is there, our sums are not."""
    folder = Path(spark.conf.get("spark.local.dir"))

    def new_files():
        return [path for path in folder.rglob("*") if path.is_file() and path not in known]

    plain = spark.createDataFrame(table)
    known = set(folder.rglob("*"))
    ps.sketch(plain, design)
    facts = {"domain": ps.Box(-4, 4, dim=3), "budget": ps.Budget(1.0, 1e-6)}
    clustered(lloyd.cluster, ps.Table(plain, columns=NAMES), 2, n_rounds=1, **facts)
    assert new_files() == []
    assert plain.repartition(3).count() == N_RECORDS
    assert new_files()


def test_columns_by_number_for_a_schema(exact, frame, table):
    schema = ps.Schema([ps.Number("a", -4, 4), ps.Number("b", -4, 4)])
    plan = {"n_components": 2, "budget": ps.Budget(1.0, 1e-6), "random_state": 0}
    options = {"design": ps.Design.plan(domain=schema, **plan), "columns": [1, 0]}
    assert exact(frame, **options) == exact(table, **options)


# ---------------------------------------------------------------- passes


def planned(directions, n_directions):
    """A pipeline of four passes, or three."""
    names = ["sketch", "radius 0", "round 0", *(["subspace"] * (directions == "released"))]
    weights = tuple((name, Fraction(1, len(names))) for name in names)
    return PipelinePlan(directions, n_directions, ("plain",), weights, 0.1)


METHODS = {
    "pipeline": (pipeline.cluster, {"plan": planned("columns", 3)}),
    "lloyd": (lloyd.cluster, {"n_rounds": 2}),
    "cells": (cells.cluster, {}),
    "grid": (grid.cluster, {}),
    "medians": (cluster_medians, {}),
}


@pytest.mark.parametrize("name", METHODS)
def test_methods_run_their_passes_there(name, frame, table, no_noise):
    method, options = METHODS[name]
    facts = {
        "domain": ps.Box(-4, 4, dim=3),
        "budget": ps.Budget(1.0, 1e-6),
        "n_records": 2e3,
        "random_state": 1,
        **options,
    }
    told = []
    here = clustered(method, ps.Table(table, columns=NAMES), 2, **facts)
    frame = ps.Table(frame, columns=NAMES)
    there = clustered(method, frame, 2, progress=lambda *seen: told.append(seen), **facts)
    assert here.centers.tolist() == there.centers.tolist()
    assert here.receipt == there.receipt
    assert sum(count for _, count in told) % N_RECORDS == 0


def test_released_directions_and_persons(spark, no_noise, monkeypatch):
    """A pipeline with a sketch of second moments, of one record of each person."""
    rng = np.random.default_rng(0)
    n, dim = 900, 12
    table = pd.DataFrame(rng.normal(size=(n, dim)), columns=[f"x{i}" for i in range(dim)])
    table["who"] = [f"p{i // 3}" for i in range(n)]
    schema = ps.Schema([ps.Number(f"x{i}", -4, 4) for i in range(dim)], person="who")
    key = spark_engine.Key()
    seams.set(monkeypatch, "spark.Key", lambda: key)
    seams.set(monkeypatch, "persons.Key", lambda: key)
    facts = {"domain": schema, "budget": ps.Budget(1.0, 1e-6), "n_records": 300, "random_state": 1}
    facts["plan"] = planned("released", 2)
    here = clustered(pipeline.cluster, table, 2, **facts)
    there = clustered(pipeline.cluster, spark.createDataFrame(table).repartition(3), 2, **facts)
    assert here.centers.tolist() == there.centers.tolist()


def test_estimators_take_a_frame(spark, frame, table, no_noise):
    numbers = frame.select(*NAMES)
    facts = {"epsilon": 1.0, "delta": 1e-6, "n_records": 2e3, "random_state": 0}
    for estimator in (
        ps.PrivatePCA(2, domain=ps.Ball(radius=4.0), **facts),
        ps.PrivateKMeans(2, domain=ps.Box(-4, 4), method="sketch", **facts),
    ):
        models = [estimator.fit(X).model_ for X in (table[list(NAMES)], numbers)]
        assert estimator.feature_names_in_.tolist() == list(NAMES)
        one, other = (
            np.asarray(getattr(m, "components", getattr(m, "centers", 0))) for m in models
        )
        assert one.tolist() == other.tolist()
    with pytest.raises(RecordError, match="Spark"):
        estimator.predict(numbers)
    with pytest.raises(ParameterError, match="n_threads"):
        ps.PrivateKMeans(2, domain=ps.Box(-4, 4), method="lloyd", n_threads=2, **facts).fit(numbers)
    for method in ("k-variates", "sample-aggregate", "partition-tree"):
        with pytest.raises(ParameterError, match="on Spark"):
            ps.PrivateKMeans(2, domain=ps.Box(-4, 4), method=method, **facts).fit(numbers)


def test_work_travels_without_records_and_addresses():
    box = ps.Box(-4, 4, dim=3)
    points = np.random.default_rng(0).normal(size=(50, 3))
    for quantise in (CompiledQuantiser(box), CompiledQuantiser(box, bits=9, common_unit=True)):
        again = pickle.loads(pickle.dumps(quantise))
        assert again.whole_numbers(points).tolist() == quantise.whole_numbers(points).tolist()
        assert again._line_tables.addresses != quantise._line_tables.addresses
    clusters = CompiledClusters(np.rint(points[:3] * 100))
    again = pickle.loads(pickle.dumps(clusters))
    whole = [np.rint(points * 100)]
    assert all((a == b).all() for a, b in zip(again.sums(whole), clusters.sums(whole), strict=True))
    passes = Passes(points, box, progress=print)
    assert pickle.loads(pickle.dumps(passes))._table is None


def test_frames_that_differ_between_passes_are_refused(spark, frame, design, exact):
    from pyspark.sql import functions

    drawn = frame.withColumn("age", functions.rand())
    facts = {"domain": ps.Box(-4, 4, dim=3), "budget": ps.Budget(1.0, 1e-6)}
    with pytest.raises(RecordError, match="random columns"):
        clustered(lloyd.cluster, ps.Table(drawn, columns=NAMES), 2, **facts)
    assert len(exact(drawn)) == 2 * design.n_features + 1  # one pass sees one of them


def test_a_source_that_grows_between_passes_is_noticed(spark, tmp_path, no_noise):
    frame = spark.createDataFrame(np.zeros((50, 2)).tolist(), ["x", "y"])
    bigger = spark.createDataFrame(np.zeros((60, 2)).tolist(), ["x", "y"])
    run = Run(frame, domain=ps.Box(-1, 1, dim=2), budget=ps.Budget(1.0, 1e-6))
    passes = run.read()
    run.number(passes)
    records = replace(passes._table.data, frame=bigger.toDF("c0", "c1"))
    passes._table = ps.Table(records)
    with pytest.raises(RecordError, match="number has changed since the first"):
        lloyd.cluster_sums(passes, np.zeros((2, 2)))


def test_the_guide_s_example(spark, tmp_path, make_design):
    guide = Path(__file__).parents[2] / "docs" / "guide.md"
    blocks = guide.read_text(encoding="utf-8").split("```python\n")
    (code,) = (block.partition("```")[0] for block in blocks if "from pyspark" in block)
    table = pd.DataFrame(np.zeros((50, 2)), columns=["x", "y"])
    table.to_parquet(tmp_path / "visits.parquet")
    schema = ps.Schema([ps.Number("x", -1, 1), ps.Number("y", -1, 1)])
    known = {"ps": ps, "design": make_design(dim=2), "schema": schema}
    exec(code.replace("visits.parquet", str(tmp_path / "visits.parquet")), known)
    assert known["released"].receipt.epsilon == 1.0
    assert known["model"].method_ == "lloyd"


# ---------------------------------------------------------------- workers that die or fail


def test_a_worker_that_dies_is_counted_once(spark, exact, frame, records, tmp_path):
    tries = tmp_path / "tries"

    def deadly(block):
        """The first attempt at some part kills the process that works on it."""
        with tries.open("a") as stream:
            stream.write("x")
        if len(tries.read_text()) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        yield block

    with spark_records(ps.Table(frame), selection_of(3, None, NAMES)) as found:
        done = []
        assert exact(found.mapped(deadly), progress=done.append) == exact(records)
    assert sum(done) == N_RECORDS
    assert len(tries.read_text()) > 5


def test_a_planted_failure_shows_no_record(spark, design, spent, frame, said, capfd):
    def fail(block):
        raise KeyError(f"{SECRET} {block[0]}")

    with (
        spark_records(ps.Table(frame), selection_of(3, None, NAMES)) as found,
        pytest.raises(RecordError, match="KeyError") as caught,
    ):
        ps.sketch(found.mapped(fail), design)
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
    assert SECRET not in str(caught.value)
    assert SECRET not in said() + "".join(capfd.readouterr())
    assert spent == []


def failing(frame):
    from pyspark.sql import functions

    broken = functions.udf(lambda name: {}[name], "double")
    return {
        "cast": frame.withColumn("age", functions.col("name").cast("double")),
        "function": frame.withColumn("age", broken("name")),
    }


@pytest.mark.parametrize("name", ["cast", "function"])
def test_failures_before_ours_are_not_quoted(spark, design, spent, frame, said, capfd, name):
    frame = failing(frame.coalesce(1))[name]
    with pytest.raises(RecordError, match="a task on a Spark worker failed") as caught:
        ps.sketch(frame, design)
    assert caught.value.__context__ is None
    assert SECRET not in str(caught.value)
    assert SECRET not in said() + "".join(capfd.readouterr())
    assert spent == []
    if name == "function":
        return
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException):  # loggers are as they were: what is not ours is told
        frame.collect()
    assert SECRET in said() + "".join(capfd.readouterr())


def test_a_worker_of_another_version(spark, frame):
    with spark_records(ps.Table(frame), selection_of(3, None, NAMES)) as found:
        old = replace(found, reading=replace(found.reading, version="0.0.1"))
        with pytest.raises(RecordError, match=r"the driver 0\.0\.1"):
            old.each(lambda blocks: sum(map(len, blocks)))


def test_somebody_who_stops_it_leaves_no_job(spark, frame, design, tmp_path):
    woke = tmp_path / "woke"

    def slow(block):
        time.sleep(30)
        woke.touch()
        yield block

    def stop(_):
        raise KeyboardInterrupt

    with (
        spark_records(ps.Table(frame), selection_of(3, None, NAMES)) as found,
        pytest.raises(KeyboardInterrupt),
    ):
        ps.sketch(found.mapped(slow), design, progress=stop)
    assert spark.sparkContext.statusTracker().getActiveJobsIds() == []
    assert not woke.exists()  # as it would if the job had gone on to its end


@pytest.mark.parametrize(("words", "told"), session.CAUSES.items())
def test_causes_are_told_in_our_words(words, told):
    error = session.spark_error(RuntimeError(f"{SECRET} {words} {SECRET}"))
    assert told in str(error)
    assert SECRET not in str(error)


# ---------------------------------------------------------------- refused


def test_a_missing_value_has_the_name_of_its_column(spark, spent, records, make_design):
    holes = records[:100].copy()
    holes[7, 1] = np.nan
    frame = spark.createDataFrame(holes.tolist(), list(NAMES))
    with pytest.raises(MissingError, match="column 'bmi'"):
        ps.sketch(frame, make_design(dim=3))
    assert spent == []


def test_types_that_are_no_columns(spark, design, make_design):
    from pyspark.ml.linalg import Vectors

    vectors = spark.createDataFrame([(Vectors.dense([1.0, 2.0]),)], ["features"])
    with pytest.raises(RecordError, match=r"'features' is vector.*vector_to_array"):
        ps.sketch(vectors, make_design(dim=1))
    for kind, value in {
        "array<double>": [1.0],
        "struct<a:double>": (1.0,),
        "map<string,double>": {"a": 1.0},
    }.items():
        nested = spark.createDataFrame([(value,)], f"x {kind}")
        with pytest.raises(RecordError, match=r"'x' is .*: *|columns of their own"):
            ps.sketch(nested, make_design(dim=1))
    inside = spark.createDataFrame([((1.0,),)], "x struct<a:double>").select("x.a")
    assert ps.sketch(inside, make_design(dim=1)).receipt.epsilon == 1.0
    for kind in ("string", "date", "timestamp", "binary"):
        empty = spark.createDataFrame([], f"x {kind}")
        with pytest.raises(RecordError, match="'x' is not numeric"):
            ps.sketch(empty, make_design(dim=1))
    twice = spark.createDataFrame([(1.0, 2.0, 3.0)], ["age", "bmi", "bmi"])
    with pytest.raises(RecordError, match="not unique"):
        ps.sketch(twice, make_design(dim=3))


def test_frames_that_are_no_tables(spark, design, frame):
    with pytest.raises(RecordError, match="a stream, which never ends"):
        ps.sketch(spark.readStream.format("rate").load(), design)
    with pytest.raises(RecordError, match="expected a Spark DataFrame"):
        ps.sketch(frame.rdd, design)
    with pytest.raises(ParameterError, match="engine='spark'"):
        ps.sketch(frame, design, engine="threads")
    with pytest.raises(RecordError, match="Spark DataFrame"):
        ps.sketch([frame, frame], design)
    with pytest.raises(RecordError, match="cannot read records from ndarray"):
        ps.sketch(np.zeros((2, 3)), design, engine="spark")
    with pytest.raises(ParameterError, match="has its own session"):
        ps.sketch(frame, design, engine=ps.engines.Spark(spark))
    with pytest.raises(ParameterError, match="another master"):
        ps.sketch([], design, engine=ps.engines.Spark(session="spark://elsewhere:7077"))
    with pytest.raises(ParameterError, match="got int"):
        ps.sketch([], design, engine=ps.engines.Spark(session=3))
    with pytest.raises(ParameterError, match="engine='pool' with a Spark"):
        ps.sketch(frame, design, engine=ps.engines.Pool(3))


@pytest.mark.parametrize(
    ("module", "words"),
    [("pyspark.sql.connect.dataframe", "Spark Connect"), ("pyspark.pandas.frame", "to_spark")],
)
def test_other_frames_of_pyspark(design, module, words):
    pytest.importorskip("pyspark")
    data = type("DataFrame", (), {"__module__": module})()
    assert kind_of(data) == "spark"
    with pytest.raises(PrivsketchError, match=words):
        ps.sketch(data, design)


# ---------------------------------------------------------------- every type of column


DAY = dt.date(2021, 3, 14)
NOON = dt.datetime(2021, 3, 14, 2, 30, tzinfo=dt.UTC)
SCHEMA = ps.Schema(
    [
        ps.Number("amount", -1e3, 1e3),
        ps.Category("at", ["a", "b", "7"], missing="category"),
        ps.Category("code", [1, 2, 30], missing="category"),
        ps.Flag("flag", fill=True),
        ps.Date("day", "2020-01-01", "2022-12-31"),
        ps.Date("time", "2020-01-01", "2022-12-31"),
        ps.Date("clock", "2020-01-01", "2022-12-31"),
    ],
    missing="center",
)
TYPES = (
    "amount decimal(20,6), at string, code smallint, flag boolean, day date, time timestamp, "
    "clock timestamp_ntz, beside array<int>"
)


def typed_rows(n=40):
    rng = np.random.default_rng(0)
    rows = []
    for number in range(n):
        moved = dt.timedelta(hours=7 * number)
        row = [
            Decimal(int(rng.integers(-(10**9), 10**9))).scaleb(-6),
            "ab7x "[number % 5],
            number % 31,
            number % 2 == 0,
            DAY + dt.timedelta(days=number),
            NOON + moved,
            NOON.replace(tzinfo=None) + moved,
        ]
        if number % 6 == 5:
            row[number // 6 % len(row)] = None
        rows.append(tuple(row))
    return rows


def test_columns_of_every_type(spark):
    """In a session whose clock is not ours, cells are what they are in an Arrow table."""
    rows = typed_rows()
    frame = spark.createDataFrame([(*row, [1]) for row in rows], TYPES).repartition(3)
    kinds = [pa.decimal128(20, 6), pa.string(), pa.int16(), pa.bool_(), pa.date32()]
    kinds += [pa.timestamp("us", "UTC"), pa.timestamp("us")]
    columns = [
        pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)
    ]
    wanted = np.concatenate(
        list(read_blocks(pa.table(columns, names=SCHEMA.names), SCHEMA.dim, schema=SCHEMA))
    )
    found = read_back(frame, selection_of(SCHEMA.dim, None, None, schema=SCHEMA))
    assert in_order(found).tolist() == in_order(wanted).tolist()


@pytest.mark.parametrize(
    ("kind", "values"),
    {
        "tinyint": [-128, 127, None],
        "smallint": [-(2**15), 2**15 - 1, None],
        "int": [-(2**31), 2**31 - 1, None],
        "bigint": [-(2**63), 2**63 - 1, 2**53 + 1, None],
        "float": [0.1, float("inf"), float("nan"), -0.0, None],
        "double": [0.1, 5e-324, float("-inf"), float("nan"), -0.0, None],
        "decimal(38,10)": [Decimal("0.1"), Decimal(10) ** 27, None],
        "boolean": [True, False, None],
        "void": [None, None],
    }.items(),
)
def test_numbers_of_every_type(spark, kind, values):
    """Null is missing, as NaN is; every number is the float64 that Python makes of it."""
    frame = spark.createDataFrame([(value, 0.5) for value in values], f"x {kind}, y double")
    found = in_order(read_back(frame, selection_of(2, None, None)))
    floats = [np.nan if value is None else float(value) for value in values]
    if kind == "float":
        floats = np.array(floats, np.float32).astype(float).tolist()
    wanted = in_order(np.array([[value, 0.5] for value in floats]))
    assert np.array_equal(found, wanted, equal_nan=True)


def test_files_of_spark_are_read_alike_by_threads(spark, tmp_path):
    """What Spark wrote, Spark and threads read as the same records."""
    rows = [row[:-1] for row in typed_rows()]  # times without a zone are not what INT96 holds
    names = SCHEMA.names[:-1]
    schema = ps.Schema(SCHEMA.columns[:-1], missing="center")
    frame = spark.createDataFrame(rows, TYPES.partition(", clock")[0])
    frame.write.parquet(str(tmp_path / "out"))
    assert pq.read_schema(next((tmp_path / "out").glob("*.parquet"))).names == list(names)
    chosen = selection_of(schema.dim, None, None, schema=schema)
    here = np.concatenate(
        list(read_blocks(sorted((tmp_path / "out").glob("*.parquet")), schema.dim, schema=schema))
    )
    assert in_order(read_back(frame, chosen)).tolist() == in_order(here).tolist()
