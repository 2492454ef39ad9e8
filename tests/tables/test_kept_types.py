"""How a library keeps cells is not what they are.

Every Arrow type that frames export for text, labels and numbers, in the place of a label, a flag, a
person, a number and a column that nobody reads: it is read as its plain twin is, or refused by an
error of ours, wherever a table can be handed in.
"""

from __future__ import annotations

import decimal
from functools import cache

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import privsketch as ps
from privsketch import PrivsketchError
from tests import seams
from tests.chance import exact_answers

duckdb = pytest.importorskip("duckdb")

N = 24
COLUMNS = {
    "age": [float(n % 7) for n in range(N)],
    "ward": [["a", "b", "other", None][n % 4] for n in range(N)],
    "smokes": [["yes", "no"][n % 2] for n in range(N)],
    "who": [f"p{n}" for n in range(N)],  # one row each: which of them counts is not left to a key
    "rest": [["x", "y", "z"][n % 3] for n in range(N)],
    "other": [float(n % 5) for n in range(N)],
}
SCHEMA = ps.Schema(
    (ps.Number("age", 0, 10), ps.Category("ward", ("a", "b")), ps.Flag("smokes")),
    missing="drop",
    person="who",
)
TEXTS, NUMBERS = ("ward", "smokes", "who", "rest"), ("age",)


# ---------------------------------------------------------------- every way in


@cache
def designs() -> tuple[ps.Design, ps.Design]:
    common = {"n_components": 2, "budget": ps.Budget(1.0, 1e-6), "n_features": 20}
    common |= {"random_state": 0, "n_records": 1000}
    plain = ps.Box(0, 10, dim=2, columns=["age", "other"])
    return ps.Design.plan(domain=SCHEMA, **common), ps.Design.plan(domain=plain, **common)


def kmeans() -> ps.PrivateKMeans:
    return ps.PrivateKMeans(2, epsilon=50, delta=1e-6, domain=SCHEMA, random_state=0)


@cache
def fitted() -> ps.PrivateKMeans:
    return kmeans().fit(pa.table(COLUMNS))


ENTRIES = {
    "sketch": lambda table: ps.sketch(table, designs()[0]).values.tolist(),
    "sketch of numbers": lambda table: ps.sketch(table, designs()[1]).values.tolist(),
    "check": lambda table: ps.check(table, SCHEMA).describe(),
    "encode": lambda table: ps.encode(table, SCHEMA).tolist(),
    "predict": lambda table: fitted().predict(table).tolist(),
    "fit": lambda table: kmeans().fit(table).cluster_centers_.tolist(),
    "bounds": lambda table: ps.private_bounds(table, ["age"], epsilon=1.0).describe(),
}
PLAIN = ("sketch of numbers", "bounds")  # which read numbers alone


def outcome(entry, table):
    """What an entry makes of a table; None if it is refused by an error of ours."""
    with exact_answers():
        try:
            return repr(ENTRIES[entry](table))  # NaN is no NaN
        except PrivsketchError:
            return None


@cache
def expected(entry):
    return outcome(entry, pa.table(COLUMNS))


def require_alike(table, what):
    for entry in ENTRIES:
        assert outcome(entry, table) == expected(entry), f"{what}: {entry}"


def refused_entries(table):
    """Entries that refuse a table, `check` by what it says; anything else is as of the twin."""
    refused = set()
    for entry in ENTRIES:
        found = outcome(entry, table)
        if found is None or (entry == "check" and found != expected(entry)):
            refused.add(entry)
        else:
            assert found == expected(entry), entry
    return refused


# ---------------------------------------------------------------- Arrow


def kept_texts(values):
    """An array of texts in every type that keeps them."""
    plain = pa.array(values, pa.string())
    codes = plain.dictionary_encode()
    words = codes.dictionary
    views = pa.array(words.to_pylist(), pa.string_view())
    yield "large", plain.cast(pa.large_string())
    yield "view", pa.array(values, pa.string_view())
    for index in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"):
        yield f"codes {index}", pa.DictionaryArray.from_arrays(codes.indices.cast(index), words)
    yield (
        "codes of large",
        pa.DictionaryArray.from_arrays(codes.indices, words.cast(pa.large_string())),
    )
    yield "codes of views", pa.DictionaryArray.from_arrays(codes.indices.cast("uint32"), views)
    places = pa.array(range(len(values)), pa.int32())
    yield "codes of codes", pa.DictionaryArray.from_arrays(places, codes)
    yield "runs", pc.run_end_encode(plain)
    yield "json", pa.ExtensionArray.from_storage(pa.json_(), plain)


def kept_numbers(values):
    """The same of whole numbers."""
    for kind in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"):
        yield kind, pa.array(values, pa.float64()).cast(kind)
    yield "half", pa.array(np.array(values, np.float16))
    yield "float", pa.array(values, pa.float32())
    whole = [decimal.Decimal(int(value)) for value in values]
    for kind in (pa.decimal32, pa.decimal64, pa.decimal128, pa.decimal256):
        yield str(kind(5, 2)), pa.array(whole, kind(5, 2))
    for kind in (pa.float64(), pa.float32(), pa.int64(), pa.uint8(), pa.decimal128(5, 2)):
        plain = pa.array(whole, pa.decimal128(5, 2)).cast(kind)
        yield f"codes of {kind}", plain.dictionary_encode()
    yield "runs", pc.run_end_encode(pa.array(values, pa.float64()))


ARROW = [
    (column, name)
    for columns, kept in ((TEXTS, kept_texts), (NUMBERS, kept_numbers))
    for column in columns
    for name, _ in kept(COLUMNS[column])
]


@pytest.mark.mostly_slow(quick_every=4)
@pytest.mark.parametrize(("column", "name"), ARROW)
def test_arrow_types(column, name):
    kept = kept_numbers if column in NUMBERS else kept_texts
    array = dict(kept(COLUMNS[column]))[name]
    require_alike(pa.table({**COLUMNS, column: array}), f"{column} as {array.type}")


NO_CELLS = {
    "list": pa.array([["x"]] * N),
    "struct": pa.array([{"x": 1}] * N),
    "time": pa.array([1] * N, pa.duration("s")),
    "codes of lists": pa.DictionaryArray.from_arrays(
        pa.array([0] * N, pa.int8()), pa.array([["x"]])
    ),
}


@pytest.mark.parametrize("name", NO_CELLS)
@pytest.mark.parametrize("column", [*TEXTS, *NUMBERS])
def test_what_holds_no_such_cells_is_refused_by_us(column, name):
    refused = refused_entries(pa.table({**COLUMNS, column: NO_CELLS[name]}))
    readers = {"sketch", "check", "encode", "predict", "fit"}
    wanted = {
        "rest": set(),
        "who": {"sketch", "check", "fit"},  # others read no persons
        "age": {*readers, *PLAIN},
    }
    assert refused == wanted.get(column, readers)


# ---------------------------------------------------------------- frames


def frames():
    """Frames of three libraries, each with one column in a type of its own."""
    for column in TEXTS:
        values = COLUMNS[column]
        words = sorted({value for value in values if value is not None})
        for kind in (pl.Categorical, pl.Enum(words)):
            frame = pl.DataFrame(COLUMNS).with_columns(pl.col(column).cast(kind))
            yield f"polars {kind}, {column}", frame
        for kind in ("string[pyarrow]", "string[python]", "category", "object"):
            yield f"pandas {kind}, {column}", pd.DataFrame(COLUMNS).astype({column: kind})
        codes = pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string()))
        cells = pd.array(values, dtype=codes)
        yield f"pandas {codes}, {column}", pd.DataFrame(COLUMNS).assign(**{column: cells})
    for kind in (pl.UInt8, pl.UInt16, pl.UInt64, pl.Int8, pl.Float32, pl.Decimal(10, 2)):
        yield f"polars {kind}, age", pl.DataFrame(COLUMNS).with_columns(pl.col("age").cast(kind))
    for kind in ("Int64", "UInt8", "Float32", "category", "object"):
        yield f"pandas {kind}, age", pd.DataFrame(COLUMNS).astype({"age": kind})


FRAMES = dict(frames())


@pytest.mark.mostly_slow(quick_every=4)
@pytest.mark.parametrize("name", FRAMES)
def test_frames(name):
    require_alike(FRAMES[name], name)


CASTS = {
    "ward": "enum('a', 'b', 'other')",
    "smokes": "enum('yes', 'no')",
    "rest": "enum('x', 'y', 'z')",
    "age": "utinyint",
    "other": "decimal(9, 2)",
}


@pytest.mark.parametrize("column", CASTS)
def test_duckdb(column):
    connection = duckdb.connect()
    connection.register("visits", pa.table(COLUMNS))
    cells = [f"{c}::{CASTS[c]} as {c}" if c == column else c for c in COLUMNS]
    relation = connection.sql(f"select {', '.join(cells)} from visits")
    require_alike(relation.to_arrow_table(), CASTS[column])
    require_alike(relation, CASTS[column])


@pytest.mark.parametrize("column", [*TEXTS, *NUMBERS])
def test_objects_of_polars_are_refused_by_us(column):
    objects = pl.Series(column, COLUMNS[column], dtype=pl.Object)
    frame = pl.DataFrame(COLUMNS).with_columns(objects)
    assert bool(refused_entries(frame)) == (column != "rest")


@pytest.mark.parametrize("name", ["polars Categorical, ward", "polars Categorical, rest"])
def test_files_of_polars(name, tmp_path):
    FRAMES[name].write_parquet(tmp_path / "visits.parquet")
    FRAMES[name].write_ipc(tmp_path / "visits.arrow")
    for file in ("visits.parquet", "visits.arrow"):
        for entry in ("sketch", "check", "encode"):
            assert outcome(entry, tmp_path / file) == expected(entry), f"{file}: {entry}"


def test_an_estimator_of_numbers_refuses_what_is_no_array():
    model = ps.PrivateKMeans(2, epsilon=50, delta=1e-6, domain=ps.Box(0, 10))
    relation = duckdb.connect().sql("select 'secret' as age, 1.0 as other")
    with pytest.raises(ps.PrivsketchError) as caught:
        model.fit(relation)
    assert "secret" not in str(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize("entry", ["encode", "check", "predict", "sketch"])
def test_errors_of_libraries_become_ours_and_quote_nothing(entry, monkeypatch):
    def broken(*_):
        raise pa.ArrowInvalid("cell 'secret'")

    fitted()  # before anything breaks
    seams.set(monkeypatch, "cells.plain_array", broken)
    if entry == "check":  # which goes on, and says so
        told = ENTRIES[entry](pa.table(COLUMNS))
    else:
        with pytest.raises(PrivsketchError) as caught:
            ENTRIES[entry](pa.table(COLUMNS))
        told = str(caught.value)
        assert caught.value.__context__ is None
    assert "secret" not in told
    assert "cannot be read by the schema" in told
