"""Persons added, removed and replaced, with all their rows: every method, reader and engine again.

A run is recorded on a table and replayed on a neighbouring one (`privsketch.testing.replay`): what
it asks of the noise may differ by what the laws declare, for any key, and the results must be the
same. Missing values, equal rows, rows at the bounds and beyond are among what changes. Planted
rules that let another person's rows decide must be caught.
"""

import zlib
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privsketch as ps
from privsketch.clustering import TreeSettings, cluster_by_tree, cluster_medians, clustered
from privsketch.clustering.baselines import aggregate, grid, lloyd, variates
from privsketch.clustering.pipeline import method as pipeline
from privsketch.sketching import engine_sums
from privsketch.tables import persons
from privsketch.testing import replay
from tests import seams
from tests.privacy.test_replay import SharedDraws
from tests.taxicab import taxicab_design

COLUMNS = [
    ps.Number("age", 0, 100),
    ps.Number("dose", 0, 10, scale="log", weight=2.0),
    ps.Category("at", ["a", "b"]),
    ps.Flag("smoker"),
]
DROP = ps.Schema(COLUMNS, missing="drop", person="who")
FILL = ps.Schema(
    [
        ps.Number("age", 0, 100, fill=50),
        ps.Number("dose", 0, 10, scale="log", weight=2.0, missing="center"),
        ps.Category("at", ["a", "b"], missing="category"),
        ps.Flag("smoker", fill=True),
    ],
    person="who",
)


@pytest.fixture(autouse=True)
def fixed_key(monkeypatch, request):
    """The same key in both runs, as `for every key` asks; another one for every test."""
    seed = zlib.crc32(request.node.name.encode())
    words = np.random.default_rng(seed).integers(0, 2**64, 4, dtype=np.uint64)
    seams.set(monkeypatch, "persons.Key", lambda: _FixedKey(tuple(map(int, words))))
    seams.set(monkeypatch, "dask.Key", persons.Key)
    seams.set(monkeypatch, "spark.Key", persons.Key)
    seams.set(monkeypatch, "aggregate.drawn_words", SharedDraws())


_FixedKey = persons.Key


# ---------------------------------------------------------------- tables


def visits(seed=0, n_persons=30):
    """Rows in no order, one to six of each person, some with missing values."""
    rng = np.random.default_rng(seed)
    who = np.repeat(np.arange(n_persons), 1 + np.arange(n_persons) % 6)
    n = len(who)
    side = who % 2
    frame = pd.DataFrame(
        {
            "who": who,
            "age": 30.0 + 40 * side + rng.normal(0, 5, n),
            "dose": np.exp(rng.normal(0, 1, n)),
            "at": np.where(rng.random(n) < 0.8, np.array(["a", "b"])[side], "else"),
            "smoker": rng.random(n) < 0.5,
        }
    )
    frame.loc[rng.random(n) < 0.15, "age"] = np.nan
    frame.loc[rng.random(n) < 0.1, "at"] = None
    return frame.sample(frac=1, random_state=seed)


def rows_of(who, *rows):
    names = ["age", "dose", "at", "smoker"]
    return pd.DataFrame([{"who": who, **dict(zip(names, row, strict=True))} for row in rows])


EXTREME = (1e300, -5.0, "else", True)
NEW = {
    "one row": [(0.0, 10.0, "b", False)],
    "equal rows": [EXTREME] * 7,
    "many rows": [(float(age), 1.0, "a", age % 2 == 0) for age in range(40)],
    "missing rows": [(None, 1.0, "a", True), (20.0, None, None, False), (np.inf, 2.0, "b", True)],
}
CHANGES = ["nobody", "removed", "removed alone", *NEW]


def pair_of(change, neighbours, seed=0):
    """Neighbouring tables: one person with all their rows."""
    table = visits(seed)
    if change == "nobody":
        return table[:0], rows_of(5, *NEW["many rows"])
    if change == "removed":  # who has six rows
        return table, table[table["who"] != 5]
    if change == "removed alone":
        return table, table[table["who"] != 6]
    new = rows_of(1000 if neighbours == "add-remove" else 5, *NEW[change])
    rest = table if neighbours == "add-remove" else table[table["who"] != 5]
    both = pd.concat([new[: len(new) // 2], rest, new[len(new) // 2 :]], ignore_index=True)
    return table, both.astype(table.dtypes.to_dict())


# ---------------------------------------------------------------- methods


@dataclass(frozen=True)
class Method:
    """How something is released from a frame, by a schema."""

    name: str
    run: object
    delta: float = 0.0
    options: dict = field(default_factory=dict, hash=False)
    many: bool = True  # whether several records of a person may count

    def __call__(self, table, schema, neighbours):
        budget = ps.Budget(2.0, self.delta, neighbours)
        if self.run == "taxicab":
            design = taxicab_design(schema, budget)
            return ps.sketch(table, design, source="here", engine=ps.engines.Threads(n_threads=1))
        if self.run == "sketch":
            design = ps.Design.plan(
                domain=schema,
                budget=budget,
                n_components=2,
                n_records=30,
                random_state=3,
                **{"n_features": 20, **self.options},
            )
            return ps.sketch(table, design, source="here", engine=ps.engines.Threads(n_threads=1))
        return clustered(
            self.run,
            table,
            2,
            domain=schema,
            budget=budget,
            n_records=30,
            random_state=3,
            n_threads=1,
            **self.options,
        )


TREE = {"settings": TreeSettings(n_dimensions=2, n_levels=2, threshold=3, n_swaps=2)}
SKETCHES = [
    Method("sketch", "sketch", 1e-6),
    Method("sketch, cube", "sketch"),
    Method("sketch, laplace", "sketch", 0.0, {"noise": "laplace"}),
    Method("sketch, one-bit", "sketch", 1e-6, {"feature_map": "one-bit"}),
    Method("sketch, structured", "sketch", 1e-6, {"frequencies": "structured", "n_features": 32}),
    Method("pca", "sketch", 1e-6, {"task": "pca", "n_features": None, "mean": "released"}),
    Method("pca, laplace", "sketch", 0.0, {"task": "pca", "n_features": None}),
    Method(
        "pca, quadratic",
        "sketch",
        1e-6,
        {"task": "pca", "n_features": 40, "feature_map": "quadratic"},
    ),
    Method("regression, taxicab", "taxicab"),
]
RUNS = [
    Method("pipeline", pipeline.cluster, 1e-6),
    Method("pipeline, pure", pipeline.cluster),
    Method("lloyd", lloyd.cluster, 1e-6),
    Method("lloyd, cube", lloyd.cluster, 0.0, {"noise": "cube"}),
    Method("lloyd, laplace", lloyd.cluster, 0.0, {"noise": "laplace"}),
    Method("grid", grid.cluster),
    Method("tree", cluster_by_tree, 0.0, TREE, many=False),
    Method("medians", cluster_medians, 1e-6, many=False),
    Method("aggregate", aggregate.cluster, 1e-6, {"n_blocks": 3}, many=False),
    Method("variates", variates.cluster, 1e-6, many=False),
]
ALL = [*SKETCHES, *RUNS]
NAMES = [method.name for method in ALL]


def result_of(released):
    if isinstance(released, ps.Sketch):
        return released.sums
    centers = released.means if hasattr(released, "means") else released.centers
    return np.concatenate([centers.ravel(), released.weights])


def require_private(method, schema, neighbours, change, seed=0):
    found = replay(
        lambda table: method(table, schema, neighbours), *pair_of(change, neighbours, seed)
    )
    assert (result_of(found.first) == result_of(found.second)).all()
    assert found.first.receipt.unit.startswith("one person (who)")
    return found


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("method", ALL, ids=NAMES)
def test_one_person_moves_one_record(method, change):
    require_private(method, DROP, "add-remove", change)


@pytest.mark.parametrize("change", NEW)
@pytest.mark.parametrize("method", ALL, ids=NAMES)
def test_one_person_is_replaced(method, change):
    """Nothing is dropped here: the number of persons is public."""
    require_private(method, FILL, "replace", change)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("method", [one for one in ALL if one.many], ids=lambda one: one.name)
def test_several_records_of_a_person(method, change):
    schema = ps.Schema(COLUMNS, missing="drop", person="who", max_records=3)
    require_private(method, schema, "add-remove", change)


def test_the_bound_of_several_records_is_reached():
    """Equal rows: three of them move Gaussian sums by all that is declared."""
    schema = ps.Schema(COLUMNS, missing="drop", person="who", max_records=3)
    moves = {
        method.name: require_private(method, schema, "add-remove", "equal rows").largest_move
        for method in SKETCHES
    }
    assert moves["sketch"] > 0.98
    assert moves["sketch, laplace"] > 0.5
    assert moves["sketch, one-bit"] > 0.98
    assert moves["regression, taxicab"] == 1.0  # at the edge of every column


def test_a_bound_on_trust_has_the_same_norms():
    """Up to three rows of a person, none of which is left out."""
    schema = ps.Schema(COLUMNS, missing="drop", rows_per_person=3)
    table = visits()
    new = rows_of(0, *[EXTREME] * 3)
    for method in (*SKETCHES[:3], RUNS[0], RUNS[2]):
        found = replay(
            lambda rows, method=method: method(rows, schema, "add-remove"),
            table,
            pd.concat([table, new], ignore_index=True),
        )
        assert "taken on trust" in found.first.receipt.assumption
    four = pd.concat([table, rows_of(0, *[EXTREME] * 4)], ignore_index=True)
    with pytest.raises(AssertionError, match="more than a law declares"):
        replay(lambda rows: SKETCHES[0](rows, schema, "add-remove"), table, four)


@pytest.mark.parametrize("method", [one for one in RUNS if not one.many], ids=lambda one: one.name)
def test_several_records_are_refused_by_name(method, spent):
    schema = ps.Schema(COLUMNS, missing="drop", person="who", max_records=2)
    with pytest.raises(ps.PrivsketchError, match="max_records=2"):
        method(visits(), schema, "add-remove")
    assert not spent


@pytest.mark.parametrize("method", RUNS, ids=lambda one: one.name)
def test_dropping_is_refused_where_the_number_is_public(method, spent):
    with pytest.raises(ps.PrivsketchError, match="missing='drop'"):
        method(visits(), DROP, "replace")
    assert not spent


# ---------------------------------------------------------------- ways in, and engines


def as_file(frame, folder, kind):
    path = folder / f"t.{kind}"
    if kind == "parquet":
        table = pa.Table.from_pandas(frame, preserve_index=False)
        pq.write_table(table, path, row_group_size=11)
    else:
        frame.to_csv(path, index=False)
    return path


WAYS = {
    "frame": lambda frame, folder: frame,
    "arrow": lambda frame, folder: pa.Table.from_pandas(frame, preserve_index=False),
    "parquet": lambda frame, folder: as_file(frame, folder, "parquet"),
    "csv": lambda frame, folder: as_file(frame, folder, "csv"),
    "parts": lambda frame, folder: [frame[:13], frame[13:]],
    "text": lambda frame, folder: frame.assign(who="p" + frame["who"].astype(str)),
}


@pytest.mark.mostly_slow(quick_every=3)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("change", CHANGES)
def test_every_way_in(tmp_path, monkeypatch, way, change):
    seams.set(monkeypatch, "persons.CHUNK_BYTES", 400)  # several chunks
    seams.set(monkeypatch, "memory.BLOCK_VALUES", 40)
    seams.set(monkeypatch, "memory.WIDE_ROWS", 1)
    seams.set(monkeypatch, "spill.MEMORY_BYTES", 500)  # most of them in a file

    def run(table):
        return SKETCHES[0](WAYS[way](table, tmp_path), DROP, "add-remove")

    found = replay(run, *pair_of(change, "add-remove"))
    assert (found.first.sums == found.second.sums).all()


def sums_of(engine, data, schema):
    design = ps.Design.plan(
        domain=schema, budget=ps.Budget(1.0, 1e-6), n_components=2, n_records=30, random_state=3
    )
    two = {"pool": ps.engines.Pool(2), "dask": ps.engines.Dask(n_workers=2)}
    return engine_sums(data, design, engine=two.get(engine, engine))


@pytest.mark.usefixtures("warm_pool")
@pytest.mark.slow
@pytest.mark.parametrize("max_records", [1, 2])
@pytest.mark.parametrize("engine", ["threads", "pool", "dask", "dask frame"])
def test_all_engines_keep_the_same_number_of_records(tmp_path, engine, max_records):
    """Keys differ between processes' runs; with one kept row each, numbers must not."""
    import dask.dataframe as dd

    schema = ps.Schema(COLUMNS, missing="drop", person="who", max_records=max_records)
    table = visits(n_persons=200)
    complete = table.dropna()
    wanted = complete.groupby("who").size().clip(upper=max_records).sum()
    data = as_file(table, tmp_path, "parquet")
    if engine == "dask frame":
        data = dd.from_pandas(table.reset_index(drop=True), npartitions=5)
    found = sums_of(engine.split()[0], data, schema)
    assert found.n_records == wanted
    here = sums_of("threads", table, schema)
    assert (found.sums == here.sums).all()  # with the key that this test has fixed


@pytest.mark.parametrize("max_records", [1, 2])
def test_spark_keeps_the_same_records(spark, tmp_path, max_records):
    schema = ps.Schema(COLUMNS, missing="drop", person="who", max_records=max_records)
    table = visits(n_persons=200)
    here = sums_of("threads", table, schema)
    frame = spark.createDataFrame(table.astype({"at": object})).repartition(4)
    for data in (frame, as_file(table, tmp_path, "parquet")):
        found = sums_of("spark", data, schema)
        assert found.n_records == here.n_records
        assert (found.sums == here.sums).all()
    if max_records == 1:
        named = frame.withColumn("who", frame["who"].cast("string"))
        assert sums_of("spark", named, schema).n_records == here.n_records


@pytest.mark.parametrize("change", ["removed", "many rows", "missing rows"])
def test_one_person_on_spark_moves_one_record(spark, change):
    def run(table):
        frame = spark.createDataFrame(table.astype({"at": object})).repartition(3)
        return clustered(
            lloyd.cluster,
            frame,
            2,
            domain=DROP,
            budget=ps.Budget(2.0, 1e-6),
            n_records=30,
            random_state=3,
            n_rounds=1,
        )

    found = replay(run, *pair_of(change, "add-remove"))
    assert (found.first.centers == found.second.centers).all()


def test_persons_of_two_kinds_are_refused_on_spark(spark, tmp_path):
    schema = ps.Schema([ps.Number("x", 0, 1)], person="who")
    for name, who in (("a", [1, 2]), ("b", ["1", "3"])):
        frame = pd.DataFrame({"who": who, "x": [0.5, 0.25]})
        frame.to_parquet(tmp_path / f"{name}.parquet")
    with pytest.raises(ps.PrivsketchError, match="one type"):
        sums_of("spark", [tmp_path / "a.parquet", tmp_path / "b.parquet"], schema)


# ---------------------------------------------------------------- planted faults


def times_caught(change):
    """In how many of ten tables a replay fails."""
    caught = 0
    for seed in range(10):
        try:
            require_private(SKETCHES[0], DROP, "add-remove", change, seed)
        except AssertionError:
            caught += 1
    return caught


def others_decide(right):
    """The key of a row depends on how many rows there are."""

    def hashes(values, key):
        return right(values, key) ^ np.uint64(0x9E3779B97F4A7C15 * len(values) % 2**64)

    return hashes


def first_come(right):
    """The first row of all that are read decides the order of the others."""

    def hashes(values, key):
        return right(values, key) ^ right(values[:1], key)

    return hashes


@pytest.mark.parametrize("rule", [others_decide, first_come], ids=lambda rule: rule.__name__)
def test_a_rule_that_lets_others_decide_is_caught(monkeypatch, rule):
    assert times_caught("many rows") == 0
    seams.set(monkeypatch, "persons.row_hashes", rule(persons.row_hashes))
    assert times_caught("many rows") >= 8


def test_persons_who_share_a_hash_would_be_caught(monkeypatch):
    """If hashes stood for persons, some would push others out: whoever has more rows, mostly."""

    def few(ids, key):
        return (ids.view(np.uint64) % np.uint64(7)) << np.uint64(60)

    seams.set(monkeypatch, "persons.person_hashes", few)
    assert times_caught("many rows") >= 2


def test_a_row_for_each_nobody_would_be_caught(monkeypatch):
    """Rows without a person must not be persons each."""
    schema = ps.Schema(COLUMNS, missing="drop", person="who", missing_person="drop")
    table = visits()
    nobody = rows_of(None, *NEW["many rows"])
    both = pd.concat([table, nobody], ignore_index=True)
    found = replay(lambda rows: SKETCHES[0](rows, schema, "add-remove"), table, both)
    assert found.largest_move == 0


def test_keeping_more_than_declared_is_caught(monkeypatch):
    right = seams.get("persons.reduced")
    seams.set(
        monkeypatch, "persons.reduced", lambda words, texts, most: right(words, texts, most + 1)
    )
    with pytest.raises(AssertionError, match="more than a law declares"):
        require_private(SKETCHES[0], DROP, "add-remove", "equal rows")
