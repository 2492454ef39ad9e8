"""Every way to hand over a table gives the same integers; every bad table a clear error.

Sums are compared without noise, bit for bit. Blocks are made small, so that even
these little tables span many of them.
"""

import datetime
import decimal
import io
import re
import traceback
import zipfile
from decimal import Decimal
from itertools import pairwise

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from scipy import sparse

import privsketch as ps
from tests import seams
from tests.reading import sketch

NAMES = ("age", "bmi", "dose")
SECRET_NUMBER = 123.456789
SECRET_TEXT = "confidential"


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    seams.set(monkeypatch, "memory.BLOCK_VALUES", 256)
    seams.set(monkeypatch, "memory.WIDE_ROWS", 1)
    seams.set(monkeypatch, "sums.CHUNK_VALUES", 100)


@pytest.fixture
def design(make_design):
    return make_design()


@pytest.fixture
def named_design(make_design):
    return make_design(columns=NAMES)


@pytest.fixture
def records(make_records):
    return make_records()


@pytest.fixture
def table(records):
    return pa.table(dict(zip(NAMES, records.T, strict=True)))


@pytest.fixture
def integers(no_noise):
    """The exact integers of a table, the count included."""

    def read(data, design, **options):
        return sketch(data, design, **options).values.tolist()

    return read


# ---------------------------------------------------------------- arrays and lists


def test_the_last_integer_counts_the_records(records, design, integers):
    weight = design.sum_noise.count_weight
    assert integers(records, design)[-1] == len(records) * weight


def reversed_twice(array):
    return np.ascontiguousarray(array[::-1])[::-1]


def every_second_column(array):
    wide = np.full((array.shape[0], 2 * array.shape[1]), np.nan)
    wide[:, ::2] = array
    return wide[:, ::2]


def every_third_row(array):
    tall = np.full((3 * array.shape[0], array.shape[1]), np.nan)
    tall[::3] = array
    return tall[::3]


ARRAYS = {
    "fortran-ordered": np.asfortranarray,
    "negative-strides": reversed_twice,
    "every-second-column": every_second_column,
    "every-third-row": every_third_row,
    "float32": lambda array: array.astype(np.float32),
    "big-endian": lambda array: array.astype(">f8"),
    "long-double": lambda array: array.astype(np.longdouble),
    "nested-list": lambda array: array.tolist(),
    "list-of-tuples": lambda array: [tuple(row) for row in array],
    "list-of-rows": lambda array: list(array),
    "tuple-of-lists": lambda array: tuple(array.tolist()),
}


@pytest.mark.parametrize("form", ARRAYS.values(), ids=ARRAYS)
def test_layout_and_number_type_do_not_matter(form, records, design, integers):
    assert integers(form(records), design) == integers(records, design)


@pytest.mark.parametrize("kind", [np.int64, np.int8, np.uint64, np.uint8, np.float16])
def test_integers_are_read_as_the_numbers_they_are(kind, design, integers):
    whole = np.random.default_rng(1).integers(0, 5, size=(200, 3))
    assert integers(whole.astype(kind), design) == integers(whole.astype(np.float64), design)


def test_booleans_are_read_as_zero_and_one(design, integers):
    flags = np.random.default_rng(1).random((200, 3)) < 0.3
    assert integers(flags, design) == integers(flags.astype(np.float64), design)


def test_the_order_of_rows_does_not_matter(records, design, integers):
    shuffled = np.random.default_rng(2).permutation(records)
    assert integers(shuffled, design) == integers(records, design)


@pytest.mark.parametrize("n_threads", [1, 2, 3, 4])
def test_the_number_of_threads_does_not_matter(n_threads, records, design, integers):
    assert integers(records, design, n_threads=n_threads) == integers(records, design)


@pytest.mark.parametrize("values_per_block", [1, 7, 1024, 2**19])
def test_the_size_of_blocks_does_not_matter(
    values_per_block, records, design, integers, monkeypatch
):
    expected = integers(records, design)
    seams.set(monkeypatch, "memory.BLOCK_VALUES", values_per_block)
    seams.set(monkeypatch, "sums.CHUNK_VALUES", values_per_block)
    assert integers(records, design) == expected


# ---------------------------------------------------------------- files


def write_npy(path, table):
    np.save(path, np.column_stack([column.to_numpy() for column in table.columns]))


def write_fortran_npy(path, table):
    np.save(path, np.asfortranarray(np.column_stack([c.to_numpy() for c in table.columns])))


def write_csv(path, table):
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    lines = [",".join(table.column_names), *(",".join(map(repr, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")


def write_windows_csv(path, table):
    write_csv(path, table)
    text = path.read_text().replace("\n", "\r\n")
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())


def write_parquet(path, table):
    pq.write_table(table, path, row_group_size=130)


def write_arrow_file(path, table):
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=170)


def write_arrow_stream(path, table):
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=170)


def write_compressed_feather(path, table):
    pyarrow.feather.write_feather(table, path, compression="zstd", chunksize=300)


FILES = {
    "npy": ("records.npy", write_npy),
    "npy-fortran": ("records.npy", write_fortran_npy),
    "csv": ("records.csv", write_csv),
    "csv-windows": ("records.CSV", write_windows_csv),
    "parquet": ("records.parquet", write_parquet),
    "pq": ("records.pq", write_parquet),
    "arrow-file": ("records.arrow", write_arrow_file),
    "arrow-stream": ("records.arrow", write_arrow_stream),
    "ipc-stream": ("records.ipc", write_arrow_stream),
    "feather": ("records.feather", write_compressed_feather),
    "feather-stream": ("records.feather", write_arrow_stream),
}


@pytest.mark.parametrize(("name", "write"), FILES.values(), ids=FILES)
def test_every_kind_of_file_gives_the_same_integers(
    name, write, table, records, design, integers, tmp_path
):
    path = tmp_path / name
    write(path, table)
    assert integers(path, design) == integers(records, design)


def test_a_path_may_be_text(table, records, design, integers, tmp_path):
    write_parquet(tmp_path / "records.parquet", table)
    assert integers(str(tmp_path / "records.parquet"), design) == integers(records, design)


def test_several_files_are_one_table(table, records, design, integers, tmp_path):
    cuts = [0, 10, 400, 1000]
    kinds = [("a.npy", write_npy), ("b.csv", write_csv), ("c.parquet", write_parquet)]
    paths = [tmp_path / name for name, _ in kinds]
    for path, (_, write), low, high in zip(paths, kinds, cuts, cuts[1:], strict=False):
        write(path, table.slice(low, high - low))
    assert integers(paths, design) == integers(records, design)


@pytest.mark.parametrize(("name", "write"), FILES.values(), ids=FILES)
def test_a_file_without_records_is_an_empty_table(name, write, table, design, integers, tmp_path):
    path = tmp_path / name
    write(path, table.slice(0, 0))
    assert integers(path, design) == [0] * len(integers(np.zeros((1, 3)), design))


def test_float32_columns_of_a_file_give_the_same_integers(
    table, records, design, integers, tmp_path
):
    narrow = table.cast(pa.schema([(name, pa.float32()) for name in NAMES]))
    write_parquet(tmp_path / "narrow.parquet", narrow)
    assert integers(tmp_path / "narrow.parquet", design) == integers(records, design)


# ---------------------------------------------------------------- tables in memory


def pandas_frame(table):
    return pd.DataFrame({name: table[name].to_numpy() for name in table.column_names})


def duckdb_relation(table):
    return duckdb.connect().from_arrow(table)


class OnlyArrowArray:
    """A table that offers the Arrow array interface and nothing else."""

    def __init__(self, table):
        (self.batch,) = table.combine_chunks().to_batches()

    def __arrow_c_array__(self, requested_schema=None):
        return self.batch.__arrow_c_array__(requested_schema)


TABLES = {
    "pandas": pandas_frame,
    "pandas-shuffled-index": lambda table: pandas_frame(table).set_axis(range(1000, 0, -1)),
    "pandas-named-index": lambda table: pandas_frame(table).rename_axis("patient"),
    "pandas-text-index": lambda table: pandas_frame(table).set_axis([f"p{i}" for i in range(1000)]),
    "pandas-nullable": lambda table: pandas_frame(table).astype("Float64"),
    "pandas-arrow": lambda table: table.to_pandas(types_mapper=pd.ArrowDtype),
    "pandas-numbered-columns": lambda table: pandas_frame(table).set_axis([0, 1, 2], axis=1),
    "polars": pl.from_arrow,
    "duckdb": duckdb_relation,
    "pyarrow-table": lambda table: table,
    "pyarrow-chunked-table": lambda table: pa.concat_tables(
        [table[:17], table[17:300], table[300:]]
    ),
    "pyarrow-batch": lambda table: table.combine_chunks().to_batches()[0],
    "pyarrow-reader": lambda table: table.to_reader(max_chunksize=90),
    "arrow-array-interface": OnlyArrowArray,
}


@pytest.mark.parametrize("form", TABLES.values(), ids=TABLES)
def test_every_kind_of_table_gives_the_same_integers(form, table, records, design, integers):
    assert integers(form(table), design) == integers(records, design)


@pytest.mark.parametrize("form", TABLES.values(), ids=TABLES)
def test_columns_are_found_by_number(form, table, records, design, integers):
    assert integers(form(table), design, columns=[2, 0, -2]) == integers(
        records[:, [2, 0, 1]], design
    )


def test_an_index_with_the_name_of_a_column_is_not_a_column(table, records, design, integers):
    frame = pandas_frame(table)
    frame.index = pd.Index(frame["age"] + 1, name="age")
    assert integers(frame, design) == integers(records, design)


def test_whole_numbers_flags_and_decimals_of_tables_are_numbers(design, integers):
    mixed = pa.table(
        {
            "a": pa.array([1, 2, 3], pa.int8()),
            "b": pa.array([True, False, True]),
            "c": pa.array([decimal.Decimal("0.25")] * 3, pa.decimal128(5, 2)),
        }
    )
    plain = np.array([[1, 1, 0.25], [2, 0, 0.25], [3, 1, 0.25]])
    assert integers(mixed, design) == integers(plain, design)


# ---------------------------------------------------------------- blocks


def test_a_generator_of_uneven_blocks_is_one_table(records, design, integers):
    cuts = [0, 0, 1, 1, 400, 401, 1000, 1000]
    uneven = (records[low:high] for low, high in pairwise(cuts))
    assert integers(uneven, design) == integers(records, design)


def test_a_list_of_blocks_is_one_table(records, design, integers):
    assert integers([records[:3], records[3:]], design) == integers(records, design)


@pytest.mark.parametrize("form", [pandas_frame, pl.from_arrow, duckdb_relation, OnlyArrowArray])
@pytest.mark.parametrize("collect", [list, tuple, iter])
def test_an_iterable_of_tables_is_one_table(form, collect, table, records, design, integers):
    parts = collect([form(table[:300]), form(table[300:])])
    assert integers(parts, design) == integers(records, design)


def test_no_blocks_at_all_are_an_empty_table(design, integers):
    assert set(integers(iter([]), design)) == {0}


def test_an_empty_array_is_an_empty_table(design, integers):
    assert set(integers(np.empty((0, 3)), design)) == {0}


# ---------------------------------------------------------------- columns


@pytest.mark.parametrize("form", [pandas_frame, pl.from_arrow, duckdb_relation, OnlyArrowArray])
def test_columns_are_found_by_name_and_keep_the_order_asked_for(
    form, table, records, design, integers
):
    wide = table.append_column("note", pa.array(["x"] * 1000))
    chosen = integers(form(wide), design, columns=["dose", "age", "bmi"])
    assert chosen == integers(records[:, [2, 0, 1]], design)


@pytest.mark.parametrize(
    ("name", "write"), [FILES[k] for k in ("csv", "parquet", "arrow-file", "arrow-stream")]
)
def test_columns_of_files_are_found_by_name(
    name, write, table, records, design, integers, tmp_path
):
    wide = table.add_column(1, "note", pa.array([SECRET_TEXT] * 1000))
    write(tmp_path / name, wide)
    chosen = integers(tmp_path / name, design, columns=["dose", "age", "bmi"])
    assert chosen == integers(records[:, [2, 0, 1]], design)


def test_columns_of_an_array_are_found_by_number(records, design, integers):
    wide = np.column_stack([records, np.full(1000, np.nan)])
    assert integers(wide, design, columns=[1, 0, 2]) == integers(records[:, [1, 0, 2]], design)


def permuted(table):
    return table.select(["dose", "age", "bmi"])


@pytest.mark.parametrize("form", [pandas_frame, pl.from_arrow, duckdb_relation, OnlyArrowArray])
def test_the_design_says_which_column_is_which(form, table, records, named_design, integers):
    assert integers(form(permuted(table)), named_design) == integers(records, named_design)


@pytest.mark.parametrize("kind", ["csv", "parquet", "arrow-file", "arrow-stream"])
def test_the_design_says_which_column_of_a_file_is_which(
    kind, table, records, named_design, integers, tmp_path
):
    name, write = FILES[kind]
    write(tmp_path / name, permuted(table))
    assert integers(tmp_path / name, named_design) == integers(records, named_design)


def test_the_design_says_which_column_is_which_in_a_list_of_files(
    table, records, named_design, integers, tmp_path
):
    write_csv(tmp_path / "a.csv", permuted(table[:500]))
    write_csv(tmp_path / "b.csv", table[500:])
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    assert integers(paths, named_design) == integers(records, named_design)


@pytest.mark.parametrize("collect", [list, tuple, iter])
def test_the_design_says_which_column_is_which_in_every_table(
    collect, table, records, named_design, integers
):
    parts = collect([permuted(table[:500]), table[500:]])
    assert integers(parts, named_design) == integers(records, named_design)


UNNAMED = {
    "array": lambda records: records,
    "list": lambda records: records.tolist(),
    "tuple": lambda records: tuple(records.tolist()),
    "list-of-arrays": lambda records: [records[:10], records[10:]],
    "generator-of-arrays": lambda records: iter([records[:10], records[10:]]),
}


@pytest.mark.parametrize("form", UNNAMED.values(), ids=UNNAMED)
def test_tables_without_names_are_read_in_the_order_of_the_design(
    form, records, named_design, integers
):
    assert integers(form(records), named_design) == integers(records, named_design)


def test_npy_files_are_read_in_the_order_of_the_design(
    table, records, named_design, integers, tmp_path
):
    write_npy(tmp_path / "records.npy", table)
    assert integers(tmp_path / "records.npy", named_design) == integers(records, named_design)


# ---------------------------------------------------------------- missing values

WITH_HOLES = {
    "array": lambda array: array,
    "float32": lambda array: array.astype(np.float32),
    "pandas": lambda array: pd.DataFrame(array, columns=NAMES),
    "pandas-nullable": lambda array: pd.DataFrame(array, columns=NAMES).astype("Float64"),
    "polars": lambda array: pl.DataFrame(array, schema=list(NAMES)).fill_nan(None),
    "pyarrow": lambda array: pa.table(
        {n: pa.array(c, from_pandas=True) for n, c in zip(NAMES, array.T, strict=True)}
    ),
    "list": lambda array: array.tolist(),
}


def holes(records, value):
    rng = np.random.default_rng(4)
    return np.where(rng.random(records.shape) < 0.05, value, records)


@pytest.mark.parametrize("form", WITH_HOLES.values(), ids=WITH_HOLES)
@pytest.mark.parametrize(
    "domain", [ps.Box([-4, 0, -3], [4, 2, -1]), ps.Ball(dim=3, radius=4.0, center=[0.5, -1, 0])]
)
def test_missing_values_go_to_the_center_if_asked(form, domain, records, make_design, integers):
    design = make_design(domain=domain)
    with_holes = holes(records, np.nan)
    filled = np.where(np.isnan(with_holes), domain.center_vector, records)
    assert integers(form(with_holes), design, missing="center") == integers(filled, design)


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_infinite_values_go_to_the_center_if_asked(value, records, design, integers):
    with_holes = holes(records, value)
    filled = np.where(np.isinf(with_holes), 0.0, records)
    assert integers(with_holes, design, missing="center") == integers(filled, design)


def test_an_empty_csv_field_goes_to_the_center_if_asked(design, integers, tmp_path):
    (tmp_path / "holes.csv").write_text("age,bmi,dose\n1,,2\n,NA,3\n")
    filled = [[1, 0, 2], [0, 0, 3]]
    assert integers(tmp_path / "holes.csv", design, missing="center") == integers(filled, design)


def test_a_null_whole_number_goes_to_the_center_if_asked(design, integers):
    table = pa.table({"a": [1, None], "b": [2, 3], "c": [None, True]})
    filled = [[1, 2, 0], [0, 3, 1]]
    assert integers(table, design, missing="center") == integers(filled, design)


@pytest.mark.parametrize("value", [1e308, -1e308, 1e30])
def test_a_far_value_is_clipped_not_missing(value, design, integers):
    far, edge = np.array([[0.5, value, 1.0]]), np.array([[0.5, np.sign(value) * 4.0, 1.0]])
    assert integers(far, design) == integers(edge, design)


# ---------------------------------------------------------------- bad tables


def with_column(column, kind=None):
    """A table of two good columns and a bad one."""
    column = column if isinstance(column, pa.Array) else pa.array(column, kind)
    numbers = pa.array([SECRET_NUMBER] * len(column))
    return pa.table({"age": numbers, "bmi": numbers, "dose": column})


def filled(*shape):
    return np.full(shape, SECRET_NUMBER)


def with_value(value):
    array = filled(400, 3)
    array[333, 1] = value
    return array


def masked():
    return np.ma.masked_array(filled(20, 3), mask=np.eye(20, 3, dtype=bool))


DAY = datetime.date(2019, 10, 18)

BAD_TABLES = {
    "one dimension": (lambda: filled(3), "2 dimensions"),
    "no dimension": (lambda: np.array(SECRET_NUMBER), "2 dimensions"),
    "three dimensions": (lambda: filled(2, 3, 3), "2 dimensions"),
    "too few columns": (lambda: filled(5, 2), "2 columns.*dim=3"),
    "too many columns": (lambda: filled(5, 4), "4 columns.*dim=3"),
    "too many columns in pandas": (lambda: pd.DataFrame(filled(5, 4)), "4 columns.*dim=3"),
    "too few columns in polars": (lambda: pl.DataFrame({"a": [1.0]}), "1 columns.*dim=3"),
    "array of text": (lambda: np.array([[SECRET_TEXT] * 3]), "not numeric"),
    "array of objects": (lambda: np.full((5, 3), SECRET_TEXT, dtype=object), "not numeric"),
    "array of complex numbers": (lambda: filled(5, 3).astype(complex), "not numeric"),
    "array of dates": (lambda: np.full((5, 3), np.datetime64("2019-10-18")), "not numeric"),
    "list of text": (lambda: [[SECRET_TEXT, "1", "2"]], "not numeric"),
    "list with None": (lambda: [[SECRET_NUMBER, None, 1.0]], "not numeric|missing"),
    "ragged list": (lambda: [[SECRET_NUMBER, 1, 2], [1, 2]], "same length"),
    "flat list": (lambda: [SECRET_NUMBER] * 3, "2 dimensions"),
    "blocks of another width": (lambda: iter([filled(2, 3), filled(2, 4)]), "4 columns.*dim=3"),
    "blocks that are rows": (lambda: iter([filled(3), filled(3)]), "2 dimensions"),
    "NaN": (lambda: with_value(np.nan), "missing"),
    "plus infinity": (lambda: with_value(np.inf), "infinite"),
    "minus infinity": (lambda: with_value(-np.inf), "infinite"),
    "NaN in float32": (lambda: with_value(np.nan).astype(np.float32), "missing"),
    "NaN in pandas": (lambda: pd.DataFrame(with_value(np.nan)), "missing"),
    "NaN in polars": (lambda: pl.DataFrame(with_value(np.nan)), "missing"),
    "masked array": (masked, "missing|mask"),
    "null number": (lambda: with_column([1.0, None]), "missing"),
    "null whole number": (lambda: with_column([1, None]), "missing"),
    "null flag": (lambda: with_column([True, None]), "missing"),
    "pandas NA": (
        lambda: pd.DataFrame({"a": pd.array([1, None], "Int64"), "b": [1, 2], "c": [1, 2]}),
        "missing",
    ),
    "text column": (lambda: with_column([SECRET_TEXT]), "'dose' is not numeric"),
    "date column": (lambda: with_column([DAY]), "'dose' is not numeric"),
    "binary column": (lambda: with_column([SECRET_TEXT.encode()]), "'dose' is not numeric"),
    "list column": (lambda: with_column([[SECRET_NUMBER]]), "'dose' is not numeric"),
    "category column": (
        lambda: with_column(pa.array([SECRET_TEXT]).dictionary_encode()),
        "'dose' is not numeric",
    ),
    "text column in pandas": (lambda: with_column([SECRET_TEXT]).to_pandas(), "not numeric"),
    "date column in pandas": (lambda: with_column([DAY]).to_pandas(), "not numeric"),
    "object column in pandas": (
        lambda: with_column([1.0]).to_pandas().assign(dose=[object()]),
        "not numeric",
    ),
    "mixed column in pandas": (
        lambda: pd.DataFrame({"a": [1, SECRET_TEXT], "b": [1, 2], "c": [1, 2]}, dtype=object),
        "not numeric",
    ),
    "category column in pandas": (
        lambda: with_column([SECRET_TEXT]).to_pandas().astype({"dose": "category"}),
        "not numeric",
    ),
    "pandas series": (lambda: pd.Series([SECRET_NUMBER] * 3), "rows and columns"),
    "text column in polars": (lambda: pl.from_arrow(with_column([SECRET_TEXT])), "not numeric"),
    "date column in polars": (lambda: pl.from_arrow(with_column([DAY])), "not numeric"),
    "polars series": (lambda: pl.Series([SECRET_NUMBER] * 3), "table"),
    "pyarrow array": (lambda: pa.array([SECRET_NUMBER] * 3), "table"),
    "pyarrow chunked array": (lambda: pa.chunked_array([[SECRET_NUMBER] * 3]), "table"),
    "text column in duckdb": (
        lambda: duckdb.connect().sql(f"select 1 as a, 2 as b, '{SECRET_TEXT}' as c"),
        "not numeric",
    ),
    "duckdb query that fails on a record": (
        lambda: duckdb.connect().sql(
            f"select 1 as a, 2 as b, cast(t as double) as c from (values ('{SECRET_TEXT}')) v(t)"
        ),
        "table",
    ),
    "sparse complex matrix": (lambda: sparse.eye(5, 3).tocsr() * 1j, "not numeric"),
    "sparse vector": (lambda: sparse.coo_array(np.ones(3)), "2 dimensions"),
    "dict": (lambda: {"a": [SECRET_NUMBER]}, "cannot read records from dict"),
    "set": (lambda: {SECRET_NUMBER}, "cannot read records from set"),
    "bytes": (lambda: SECRET_TEXT.encode(), "cannot read records from bytes"),
    "number": (lambda: SECRET_NUMBER, "cannot read records from float"),
    "None": (lambda: None, "cannot read records from NoneType"),
    "list of dicts": (lambda: [{"a": SECRET_NUMBER}], "2 dimensions|not numeric"),
    "path in a mixed list": (lambda: [filled(2, 3), "nowhere.csv"], "no such file"),
}


@pytest.fixture
def refusal(spent):
    """The message of the error that a table gets, after checking that nothing leaked or cost."""

    def refuse(data, design, **options):
        with pytest.raises(ps.PrivsketchError) as caught:
            sketch(data, design, **options)
        everything = "".join(traceback.format_exception(caught.value))
        assert str(SECRET_NUMBER)[:6] not in everything
        assert SECRET_TEXT not in everything
        assert spent == []
        return str(caught.value)

    return refuse


def matches(pattern, message):
    return re.search(pattern, message) is not None


@pytest.mark.parametrize(("make", "message"), BAD_TABLES.values(), ids=BAD_TABLES)
def test_a_bad_table_gets_a_clear_error_and_spends_nothing(make, message, design, refusal):
    assert matches(message, refusal(make(), design))


BAD_COLUMNS = {
    "unknown name": (["age", "bmi", "weight"], "'weight' is unknown"),
    "unknown number": ([0, 1, 3], "3 is not a column"),
    "named twice": (["age", "bmi", "age"], "twice"),
    "too few": (["age", "bmi"], "2 named.*dim=3"),
    "too many": (["age", "bmi", "dose", "x"], "4 named.*dim=3"),
    "one text": ("age", "expected a list"),
    "no list": (3, "expected a list"),
    "list of lists": ([["age"], ["bmi"], ["dose"]], "columns"),
}


@pytest.mark.parametrize("form", [pandas_frame, pl.from_arrow, duckdb_relation, OnlyArrowArray])
@pytest.mark.parametrize(("columns", "message"), BAD_COLUMNS.values(), ids=BAD_COLUMNS)
def test_bad_columns_get_a_clear_error(form, columns, message, table, design, refusal):
    assert matches(message, refusal(form(table), design, columns=columns))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["age", "bmi", "dose"], "no column names"),
        ([0, 1, 3], "3 is not a column"),
        ([0, 1, -4], "-4 is not a column"),
        ([0, 1, 1], "twice"),
        ([0, 1, 2.0], "column numbers"),
        ([0, 1, True], "column numbers|twice"),
    ],
)
def test_bad_column_numbers_of_an_array_get_a_clear_error(
    columns, message, records, design, refusal
):
    assert matches(message, refusal(records, design, columns=columns))


def test_a_text_column_chosen_by_name_gets_a_clear_error(table, design, refusal):
    wide = table.append_column("note", pa.array([SECRET_TEXT] * 1000))
    for form in (pl.from_arrow, OnlyArrowArray):
        message = refusal(form(wide), design, columns=["age", "bmi", "note"])
        assert matches("'note' is not numeric|not numeric", message)


def test_a_table_without_the_columns_of_the_design_is_refused(named_design, table, refusal):
    other = table.rename_columns(["a", "b", "c"])
    assert matches("'age' is unknown", refusal(other, named_design))


@pytest.mark.parametrize("form", [pa.Table.to_pandas, lambda table: table, OnlyArrowArray])
def test_two_columns_of_one_name_are_refused(form, design, refusal):
    table = pa.table([pa.array([SECRET_NUMBER])] * 3, names=["age", "age", "dose"])
    if form is pa.Table.to_pandas:
        data = pd.DataFrame(filled(1, 3), columns=["age", "age", "dose"])
    else:
        data = form(table)
    assert matches("'age' is not unique", refusal(data, design))


@pytest.mark.parametrize("missing", ["centre", None, "drop"])
def test_an_unknown_way_with_missing_values_is_refused(missing, records, design, refusal):
    assert matches("missing=", refusal(records, design, missing=missing))


@pytest.mark.parametrize("n_threads", [0, -1, 1.5, True, "2"])
def test_a_bad_number_of_threads_is_refused(n_threads, records, design, refusal):
    assert matches("n_threads=", refusal(records, design, n_threads=n_threads))


@pytest.mark.parametrize("source", ["", 7, "line\nbreak", "x" * 201])
def test_a_bad_source_is_refused(source, records, design, refusal):
    assert matches("source=", refusal(records, design, source=source))


def test_something_else_than_a_design_is_refused(records, refusal):
    assert matches("expected a Design", refusal(records, {"epsilon": 1}))


def test_an_empty_table_is_refused_where_the_count_is_public(make_design, refusal):
    replace = make_design(neighbours="replace")
    assert matches("no records", refusal(np.empty((0, 3)), replace))


# ---------------------------------------------------------------- bad files


def npz_in_disguise():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("records.npy", b"")
    return buffer.getvalue()


def npy_bytes(array, **options):
    buffer = io.BytesIO()
    np.save(buffer, array, **options)
    return buffer.getvalue()


HEAD = f"age,bmi,dose\n1,2,{SECRET_NUMBER}\n"
BAD_FILES = {
    "empty npy": ("x.npy", b"", "not a valid .npy"),
    "npz named npy": ("x.npy", npz_in_disguise(), "not a valid .npy"),
    "pickle in npy": ("x.npy", npy_bytes(np.array([[{}]]), allow_pickle=True), "not a valid .npy"),
    "text in npy": ("x.npy", npy_bytes(np.array([[SECRET_TEXT] * 3])), "not numeric"),
    "structured npy": ("x.npy", npy_bytes(np.zeros(3, [("a", float)])), "2 dimensions"),
    "one dimension in npy": ("x.npy", npy_bytes(filled(9)), "2 dimensions"),
    "NaN in npy": ("x.npy", npy_bytes(with_value(np.nan)), "missing"),
    "foreign npy": ("x.npy", b"\x93NUMPY" + bytes(200), "not a valid .npy"),
    "empty csv": ("x.csv", b"", "not valid CSV"),
    "csv with text": ("x.csv", f"{HEAD}1,2,{SECRET_TEXT}\n".encode(), "not numeric"),
    "csv with a date": ("x.csv", f"{HEAD}1,2,2019-10-18\n".encode(), "not numeric"),
    "csv with an empty field": ("x.csv", f"{HEAD}1,,3\n".encode(), "missing"),
    "csv with NA": ("x.csv", f"{HEAD}1,NA,3\n".encode(), "missing"),
    "csv with nan": ("x.csv", f"{HEAD}1,nan,3\n".encode(), "missing"),
    "csv with inf": ("x.csv", f"{HEAD}1,inf,3\n".encode(), "infinite"),
    "csv with a short row": ("x.csv", f"{HEAD}1,2\n".encode(), "not valid CSV"),
    "csv with a long row": ("x.csv", f"{HEAD}1,2,3,4\n".encode(), "not valid CSV"),
    "csv with other separators": (
        "x.csv",
        HEAD.replace(",", ";").encode(),
        "1 columns.*delimiter=';'",
    ),
    "csv with too many columns": ("x.csv", b"a,b,c,d\n1,2,3,4\n", "4 columns.*dim=3"),
    "csv with a name twice": ("x.csv", b"a,b,a\n1,2,3\n", "name is not unique"),
    "csv in another encoding": ("x.csv", "âge,b,c\n1,2,3\n".encode("latin-1"), "UTF-8.*encoding"),
    "csv of zero bytes": ("x.csv", bytes(100), "CSV|columns"),
    "csv without a header line": ("x.csv", f"{SECRET_NUMBER},2,3\n4,5,6\n".encode(), "header"),
    "empty parquet": ("x.parquet", b"", "not a valid Parquet"),
    "foreign parquet": ("x.parquet", HEAD.encode(), "not a valid Parquet"),
    "empty arrow": ("x.arrow", b"", "not a valid Arrow"),
    "foreign arrow": ("x.arrow", HEAD.encode(), "not a valid Arrow"),
    "arrow of zero bytes": ("x.arrow", bytes(64), "not a valid Arrow"),
    "old feather": ("x.feather", b"FEA1" + bytes(60) + b"FEA1", "not a valid Arrow"),
    "unknown kind": ("x.ods", HEAD.encode(), "unknown kind of file.*[.]parquet"),
    "no suffix": ("records", HEAD.encode(), "unknown kind of file"),
}


@pytest.mark.parametrize(("name", "content", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_bad_file_gets_a_clear_error_and_spends_nothing(
    name, content, message, design, refusal, tmp_path
):
    (tmp_path / name).write_bytes(content)
    said = refusal(tmp_path / name, design)
    assert matches(message, said)


def test_a_csv_without_a_header_line_does_not_show_its_first_record(design, refusal, tmp_path):
    (tmp_path / "x.csv").write_text(f"{SECRET_NUMBER},2,3\n4,5,6\n")
    refusal(tmp_path / "x.csv", design, columns=["age", "bmi", "dose"])


@pytest.mark.parametrize("suffix", ["npy", "parquet", "csv", "arrow", "feather"])
def test_a_missing_file_is_refused(suffix, design, refusal, tmp_path):
    assert matches("no such file", refusal(tmp_path / f"nowhere.{suffix}", design))


@pytest.mark.parametrize("suffix", ["npy", "parquet", "csv", "arrow"])
def test_an_empty_folder_is_refused(suffix, design, refusal, tmp_path):
    folder = tmp_path / f"folder.{suffix}"
    folder.mkdir()
    assert matches("no data file", refusal(folder, design))


@pytest.mark.parametrize("kind", ["npy", "parquet", "arrow-file", "feather"])
@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.9, 0.999])
def test_a_truncated_file_is_refused(kind, share, table, design, refusal, tmp_path):
    name, write = FILES[kind]
    write(tmp_path / name, table)
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[: int(share * len(whole))])
    assert matches("not a valid", refusal(tmp_path / name, design))


def stream_cuts(table):
    """Lengths of all beginnings of an Arrow stream that end between two messages."""
    sizes = []
    for n_batches in range(4):
        sink = io.BytesIO()
        writer = pa.ipc.new_stream(sink, table.schema)
        for batch in table.to_batches(max_chunksize=250)[:n_batches]:
            writer.write_batch(batch)
        sizes.append(sink.tell())
    return sizes


@pytest.mark.parametrize("n_batches", [0, 1, 2, 3])
@pytest.mark.parametrize("extra", [0, 1, 5, 100])
def test_a_truncated_arrow_stream_is_refused(n_batches, extra, table, design, refusal, tmp_path):
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=250)
    path = tmp_path / "x.arrow"
    path.write_bytes(sink.getvalue()[: stream_cuts(table)[n_batches] + extra])
    assert matches("not a valid Arrow", refusal(path, design))


@pytest.mark.slow
@pytest.mark.parametrize("bad", [SECRET_TEXT, ""])
def test_a_bad_value_far_down_in_a_csv_spends_nothing(bad, design, refusal, tmp_path):
    row = f"1.0,2.0,{SECRET_NUMBER}\n"
    n_rows = 5 * 2**20 // len(row)  # more than the first block of the reader
    path = tmp_path / "long.csv"
    path.write_text("age,bmi,dose\n" + row * n_rows + f"1.0,2.0,{bad}\n")
    assert matches("not numeric|missing", refusal(path, design))


def test_a_bad_last_file_spends_nothing(table, design, refusal, tmp_path):
    write_csv(tmp_path / "good.csv", table)
    (tmp_path / "bad.csv").write_text(f"age,bmi,dose\n1,2,{SECRET_TEXT}\n")
    refusal([tmp_path / "good.csv", tmp_path / "bad.csv"], design)


def test_the_error_of_a_generator_comes_through_and_spends_nothing(records, design, spent):
    def broken():
        yield records
        raise ConnectionError("the database went away")

    with pytest.raises(ConnectionError):
        ps.sketch(broken(), design)
    assert spent == []


def test_progress_adds_up_to_the_number_of_records(records, design, no_noise):
    seen = []
    ps.sketch(records, design, progress=seen.append)
    assert sum(seen) == len(records)


def test_an_empty_list_is_a_table_without_records(design, no_noise):
    assert not ps.sketch([], design).sums.any()


def test_cells_of_object_columns_are_read_one_by_one(design, no_noise):
    # A type inferred from all cells would let one record change how the others are read:
    # Arrow rounds decimals differently when one of them needs more digits.
    cells = [Decimal(2 * k + 1) / Decimal(2**16) for k in range(3_000)]
    frame = pd.DataFrame({"a": cells, "b": cells, "c": cells}, dtype=object)
    one_more = pd.concat([frame, pd.DataFrame([[Decimal("1e-21")] * 3], columns=list("abc"))])
    added = ps.sketch(one_more, design).values - ps.sketch(frame, design).values
    alone = ps.sketch(np.full((1, 3), 1e-21), design).values
    assert (added == alone).all()
    huge = pd.DataFrame({"a": [2**70], "b": [None], "c": [True]}, dtype=object)
    wanted = np.array([[4.0, 0.0, 1.0]])
    released = ps.sketch(ps.Table(huge, missing="center"), design)
    assert (released.values == ps.sketch(wanted, design).values).all()


@pytest.mark.parametrize("first", ["0.731,NA,2", "1,2,3", "nan,a,b", "0.1,0.2,0.3"])
def test_a_record_is_not_taken_for_a_header(first, tmp_path, design, refusal):
    (tmp_path / "x.csv").write_text(f"{first}\n1,2,3\n")
    message = refusal(tmp_path / "x.csv", design)
    assert "header" in message
    assert "0.731" not in message


def test_csv_headers_that_are_fine(tmp_path, design, no_noise):
    rows = "0.5,1.5,2.5\n-1,0,1\n"
    wanted = ps.sketch([[0.5, 1.5, 2.5], [-1, 0, 1]], design).values
    for header in ("a,b,c", ",b,c", "\ufeffa,b,c", '"a","b","x, y"', '"a\nb",c,d', "\n\na,b,c"):
        (tmp_path / "x.csv").write_text(f"{header}\n{rows}", encoding="utf-8")
        assert (ps.sketch(tmp_path / "x.csv", design).values == wanted).all()
    (tmp_path / "x.csv").write_text(f"0,1,2\n{rows}")  # nobody can tell: somebody says it
    assert (ps.sketch(ps.Table(tmp_path / "x.csv", header=True), design).values == wanted).all()
    (tmp_path / "x.csv").write_text("a,b,c")
    assert not ps.sketch(tmp_path / "x.csv", design).sums.any()


def test_tables_separated_by_tabs_and_compressed_ones(tmp_path, design, no_noise):
    import gzip

    wanted = ps.sketch([[0.5, 1.5, 2.5], [-1, 0, 1]], design).values
    text = "a,b,c\n0.5,1.5,2.5\n-1,0,1\n"
    (tmp_path / "x.tsv").write_text(text.replace(",", "\t"))
    for name, content in (("x.csv.gz", text), ("x.tsv.gz", text.replace(",", "\t"))):
        with gzip.open(tmp_path / name, "wt") as stream:
            stream.write(content)
    for name in ("x.tsv", "x.csv.gz", "x.tsv.gz"):
        assert (ps.sketch(tmp_path / name, design).values == wanted).all()
