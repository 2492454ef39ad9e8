"""`ps.Table`: stated once, asked once, and silent about records."""

import pickle
import sys
import threading
from collections import Counter

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privsketch as ps
from privsketch.tables import files, kind_of
from tests.chance import exact_answers

SECRET = 0.8172635
BOX = ps.Box(-4, 4)
FACTS = {"epsilon": 1.0, "delta": 1e-6, "domain": BOX, "n_records": 1e3, "random_state": 0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two Parquet files of 500 records of 15 columns and a name."""
    path = tmp_path_factory.mktemp("tables")
    records = np.random.default_rng(0).normal(size=(1000, 15))
    for name, part in zip("ab", np.split(records, 2), strict=True):
        columns = {f"x{place}": column for place, column in enumerate(part.T)}
        pq.write_table(pa.table({**columns, "note": ["z"] * 500}), path / f"{name}.parquet")
    return path


def columns(dim):
    return [f"x{place}" for place in range(dim)]


def calls_while(run):
    """How often a kind was asked of each object, and which paths were looked up."""
    asked, kept, expansions = Counter(), [], Counter()
    is_inner = threading.local()
    codes = {kind_of.__code__: "data", files.expanded.__code__: "path"}

    def watch(frame, event, _):
        if event == "call" and frame.f_code is files.expanded.__code__:
            expansions[str(frame.f_locals["path"])] += 1
        if frame.f_code is kind_of.__code__:
            depth = getattr(is_inner, "depth", 0)
            if event == "call" and depth == 0:  # of a list it asks the first part itself
                data = frame.f_locals["data"]
                kept.append(data)  # so that no other object gets its id
                asked[id(data)] += 1
            is_inner.depth = depth + {"call": 1, "return": -1}.get(event, 0)

    assert codes
    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        run()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return asked, expansions


def runs(folder, design):
    path = str(folder)
    yield lambda: ps.sketch(path, design)
    yield lambda: ps.sketch([path], design)
    for dim in (2, 15):
        table = ps.Table(path, columns=columns(dim))
        yield lambda table=table: ps.PrivateKMeans(2, **FACTS).fit(table)
        frame = pd.read_parquet(path)[columns(dim)]
        yield lambda frame=frame: ps.PrivateKMeans(2, **FACTS).fit(frame)


def test_a_table_is_asked_once_what_it_is(folder):
    budget = ps.Budget(1.0, 1e-6)
    domain = ps.Box(-4, 4, dim=2, columns=columns(2))
    design = ps.Design.plan(n_components=2, domain=domain, budget=budget, columns=columns(2))
    for run in runs(folder, design):
        asked, expansions = calls_while(run)
        assert asked
        assert set(asked.values()) == {1}
        assert not expansions or expansions == {str(folder): 1}


def test_it_shows_no_record(folder):
    array = np.full((3, 2), SECRET)
    for data in (array, array.tolist(), pd.DataFrame(array), pa.table({"x": [SECRET]}), [array]):
        text = repr(ps.Table(data, columns=["x"], missing="center"))
        assert str(SECRET) not in text
        assert text.endswith("columns=('x',), missing='center')")
    assert repr(ps.Table(folder / "a.parquet")) == f"Table({str(folder / 'a.parquet')!r})"


def test_tables_are_values_that_do_not_change():
    table = ps.Table(np.zeros((3, 2)))
    assert table == table
    assert table != ps.Table(table.data)
    assert len({table, table}) == 1
    with pytest.raises(AttributeError):
        table.missing = "center"


def test_a_table_travels_as_its_data_do(folder):
    table = ps.Table(str(folder), columns=["x1", "x0"])
    assert len(table.all_files) == 2
    again = pickle.loads(pickle.dumps(table))
    assert (again.columns, again.all_files) == (table.columns, table.all_files)


def test_facts_that_are_stated_twice_or_wrongly(make_design):
    records = np.zeros((9, 3))
    table = ps.Table(records, columns=[0, 1, 2])
    for wrong in (
        lambda: ps.sketch(table, make_design(), columns=[2, 1, 0]),
        lambda: ps.check(table, make_design(), columns=[2, 1, 0]),
        lambda: ps.private_bounds(table, [0], epsilon=1.0),
    ):
        with pytest.raises(ps.ParameterError, match="columns: stated twice"):
            wrong()
    with pytest.raises(ps.ParameterError, match="columns: name the columns"):
        ps.private_bounds(records, epsilon=1.0)
    for wrong in (lambda: ps.Table(table), lambda: ps.Table([table, table])):
        with pytest.raises(ps.ParameterError, match="a Table of a Table"):
            wrong()
    with pytest.raises(ps.TableError, match="expected a list of column names"):
        ps.Table(records, columns="abc")
    with pytest.raises(ps.ParameterError, match="missing='drop'"):
        ps.Table(records, missing="drop")
    with pytest.raises(TypeError, match="missing"):
        ps.sketch(records, make_design(), missing="center")


def test_everything_that_reads_takes_a_table(folder, make_design, no_noise):
    records = pd.read_parquet(folder)[["x2", "x0", "x1"]]
    table = ps.Table(folder, columns=["x2", "x0", "x1"])
    design = make_design()
    assert (ps.sketch(table, design).values == ps.sketch(records.to_numpy(), design).values).all()
    assert ps.check(table, design).n_rows == 1000
    assert list(ps.private_bounds(table, epsilon=1.0).low) == ["x2", "x0", "x1"]
    schema = ps.Schema([ps.Number(name, -4, 4) for name in ("x2", "x0", "x1")])
    assert (ps.encode(table, schema) == ps.encode(records, schema)).all()


@pytest.mark.parametrize("method", ["sketch", "pipeline", "lloyd"])
def test_estimators_fit_files(folder, method):
    records, table = pd.read_parquet(folder)[columns(3)], ps.Table(folder, columns=columns(3))
    with exact_answers():
        here = ps.PrivateKMeans(2, method=method, **FACTS).fit(records)
        there = ps.PrivateKMeans(2, method=method, **FACTS).fit(table)
    assert here.cluster_centers_.tolist() == there.cluster_centers_.tolist()
    assert there.n_features_in_ == 3
    assert there.feature_names_in_.tolist() == columns(3)
    found = there.predict(table)
    assert found.tolist() == here.predict(records).tolist()


def test_estimators_say_what_a_table_lacks(folder):
    with pytest.raises(ps.ParameterError, match="state it in the estimator"):
        ps.PrivateKMeans(2, **FACTS).fit(ps.Table(folder, columns=["x0"], missing="center"))
    with pytest.raises(ps.ParameterError, match="the number of columns is not stated"):
        ps.PrivateKMeans(2, **FACTS).fit(ps.Table(folder))
    with pytest.raises(ps.RecordError, match="expected an array or a data frame"):
        ps.PrivateKMeans(2, **FACTS).fit(str(folder))
    schema = ps.Schema([ps.Number("x0", -4, 4), ps.Category("note", ["z"])])
    fitted = ps.PrivateKMeans(1, **{**FACTS, "domain": schema}).fit(ps.Table(folder))
    assert fitted.feature_names_in_.tolist() == ["x0", "note"]


def test_a_table_that_is_used_again_is_looked_at_again(folder, tmp_path, make_design, no_noise):
    """What it found out must not outlive a call: files are added, lists grow."""
    design = make_design(dim=2)
    first, second = np.zeros((30, 2)), np.ones((20, 2))
    np.save(tmp_path / "a.npy", first)
    in_folder, growing = ps.Table(tmp_path), [first]
    in_list = ps.Table(growing)
    for expected in (30, 50):
        assert in_folder.kind == "path"
        assert ps.sketch(in_folder, design).n_records == expected
        assert ps.sketch(in_list, design).n_records == expected
        np.save(tmp_path / "b.npy", second)
        growing.append(second)
