"""Threads, processes and a Dask cluster give the same integers, and noise is drawn once.

Sums are compared without noise, bit for bit. Files are cut into small parts, so that even
little tables keep several workers busy.
"""

import gc
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from distributed import Client, LocalCluster

import privsketch as ps
from privsketch import ParameterError, RecordError
from privsketch.cli.main import main
from privsketch.sketching import Work, add_outcomes, part_sums
from privsketch.sketching.engines import dask as dask_engine
from privsketch.tables import Selection, read_parts
from privsketch.tables import read_blocks as part_blocks
from tests import seams
from tests.reading import selection_of, sketch

pytestmark = pytest.mark.usefixtures("warm_pool")
NAMES = ("age", "bmi", "dose")
SECRET = "confidential"
N_RECORDS = 2_000


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    seams.set(monkeypatch, "files.FILE_VALUES", 300)
    seams.set(monkeypatch, "files.SENT_VALUES", 300)


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


@pytest.fixture
def expected(exact, records):
    return exact(records)


@pytest.fixture(scope="module")
def client():
    """A cluster of two processes with one thread each; not the current client."""
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs="CRITICAL"
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(params=["threads of Dask", "cluster"])
def place(request):
    """Options that say where Dask works."""
    if request.param == "cluster":
        return {"engine": ps.engines.Dask(request.getfixturevalue("client"))}
    return {}


@pytest.fixture(scope="module")
def frame(records):
    """Columns in another order, and one that is no part of a record."""
    table = pd.DataFrame(records, columns=NAMES)[list(reversed(NAMES))]
    return table.assign(name=SECRET)


@pytest.fixture(scope="module")
def files(records, tmp_path_factory):
    """The records in one file of every kind, in this order."""
    folder = tmp_path_factory.mktemp("files")
    pieces = np.array_split(records, 5)
    tables = [pa.table(dict(zip(NAMES, piece.T, strict=True))) for piece in pieces]
    paths = [folder / name for name in ("a.npy", "b.parquet", "c.arrow", "d.feather", "e.csv")]
    np.save(paths[0], pieces[0])
    pq.write_table(tables[1], paths[1], row_group_size=70)
    for path, table, new in (
        (paths[2], tables[2], pa.ipc.new_file),
        (paths[3], tables[3], pa.ipc.new_stream),
    ):
        with new(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=70)
    tables[4].to_pandas().to_csv(paths[4], index=False)
    return paths


# ---------------------------------------------------------------- parts


def test_parts_of_files_are_the_whole_in_order(files, records):
    chosen = selection_of(3, None, NAMES)
    cut = list(read_parts(ps.Table(files), chosen))
    found = [np.concatenate(list(part_blocks(pickle.loads(pickle.dumps(p)), chosen))) for p in cut]
    assert np.concatenate(found).tolist() == records.tolist()
    # A stream and a CSV file are read as a whole, everything else in stretches.
    counts = [sum(part.path == path.absolute() for part in cut) for path in files]
    assert [count > 2 for count in counts] == [True, True, True, False, False]


def test_small_blocks_travel_together(records):
    chosen = selection_of(3, None, NAMES)
    cut = list(read_parts(ps.Table(iter(np.array_split(records, 400))), chosen))
    assert 400 / 30 < len(cut) < 400 / 15
    assert np.concatenate([b for part in cut for b in part.blocks]).tolist() == records.tolist()


def test_columns_are_chosen_once(records):
    chosen = selection_of(3, [2, 0, 1], None)
    (part,) = read_parts(ps.Table(records[:50]), chosen)
    assert (
        np.concatenate(list(part_blocks(part, chosen))).tolist() == records[:50, [2, 0, 1]].tolist()
    )


# ---------------------------------------------------------------- the same integers


@pytest.mark.slow
def test_a_pool_reads_files(exact, expected, files):
    assert exact(files, engine=ps.engines.Pool(2)) == expected


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["array", "blocks", "polars"])
def test_a_pool_gets_blocks(exact, expected, records, kind):
    table = {
        "array": records,
        "blocks": iter(np.array_split(records, 9)),
        "polars": pl.DataFrame(dict(zip(reversed(NAMES), records.T[::-1], strict=True))),
    }[kind]
    assert exact(table, engine=ps.engines.Pool(2)) == expected


@pytest.mark.mostly_slow(quick_every=2)
def test_dask_reads_files(exact, expected, files, place):
    assert exact(files, **{"engine": "dask", **place}) == expected


@pytest.mark.parametrize("engine", [None, "dask"])
def test_a_dask_frame(exact, expected, frame, place, engine):
    assert exact(dd.from_pandas(frame, npartitions=19), **{"engine": engine, **place}) == expected


def test_a_dask_frame_of_parquet_files(exact, frame, files, place):
    table = dd.read_parquet(files[1])
    assert exact(table, **place) == exact(files[1])


@pytest.mark.parametrize("chunks", [(90, 3), (150, 2), (2_000, 1), (700, 3)], ids=str)
def test_a_dask_array_however_it_is_chunked(exact, expected, records, place, chunks):
    assert exact(da.from_array(records, chunks=chunks), **place) == expected


def test_a_dask_array_with_unknown_chunks(exact, expected, frame, place):
    table = dd.from_pandas(frame[list(NAMES)], npartitions=5).to_dask_array()
    assert np.isnan(table.shape[0])
    assert exact(table, **place) == expected


@pytest.mark.slow
def test_tables_that_are_already_on_the_cluster(exact, expected, frame, records, client):
    for table in (dd.from_pandas(frame, npartitions=4), da.from_array(records, chunks=(500, 2))):
        kept = client.persist(table)
        assert exact(kept, engine=ps.engines.Dask(client)) == expected


def test_integers_and_masked_values_keep_their_meaning(exact, records, place):
    whole = (records * 3).astype(np.int32)
    assert exact(da.from_array(whole, chunks=(300, 2)), **place) == exact(whole)
    masked = np.ma.masked_greater(records, 2.0)
    lazily = da.ma.masked_greater(da.from_array(records, chunks=(300, 2)), 2.0)
    assert exact(lazily, missing="center", **place) == exact(masked, missing="center")


def test_empty_partitions(exact, frame, place):
    table = dd.from_pandas(frame, npartitions=10)
    few = table[table["age"] > 3.5]
    assert exact(few, **place) == exact(frame[frame["age"] > 3.5])


@pytest.mark.parametrize("columns", [["dose", "age", "bmi"], [2, 0, 1]], ids=str)
def test_columns_asked_for(exact, frame, make_design, place, columns):
    other = make_design()
    table = dd.from_pandas(frame, npartitions=3)
    options = {"design": other, "columns": columns}
    assert exact(table, **options, **place) == exact(frame, **options)


def test_columns_by_number_for_a_schema(exact, frame, place):
    schema = ps.Schema([ps.Number("a", -4, 4), ps.Number("b", -4, 4)])
    design = ps.Design.plan(
        n_components=2, domain=schema, budget=ps.Budget(1.0, 1e-6), random_state=0
    )
    options = {"design": design, "columns": [1, 0]}
    table = dd.from_pandas(frame, npartitions=3)
    assert exact(table, **options, **place) == exact(frame, **options)


def test_columns_of_an_array(exact, records, place):
    wide = np.hstack([records, records[:, :2] * 2])
    table = da.from_array(wide, chunks=(200, 2))
    assert exact(table, columns=[4, 0, -3], **place) == exact(wide[:, [4, 0, 2]])


def test_missing_values_go_to_the_center(exact, frame, place):
    holes = frame.mask(frame == frame.iloc[7, 0])
    table = dd.from_pandas(holes, npartitions=4)
    assert exact(table, missing="center", **place) == exact(holes, missing="center")
    assert exact(holes, missing="center") != exact(frame)


@pytest.mark.parametrize("engine", ["pool", "dask"])
def test_no_records_at_all(exact, design, make_design, engine, tmp_path):
    np.save(tmp_path / "empty.npy", np.empty((0, 3)))
    for data in ([], [tmp_path / "empty.npy"]):
        assert exact(data, engine=engine) == [0] * (2 * design.n_features + 1)
    replace = make_design(neighbours="replace")
    with pytest.raises(RecordError, match="no records"):
        ps.sketch([], replace, engine=engine)


def test_no_records_in_dask_tables(exact, design, frame, place):
    empty = dd.from_pandas(frame, npartitions=4)
    for table in (empty[empty["age"] > 1e9], da.zeros((0, 3))):
        assert exact(table, **place) == [0] * (2 * design.n_features + 1)


# ---------------------------------------------------------------- noise, progress, memory


@pytest.mark.mostly_slow(quick_every=3)
@pytest.mark.parametrize("engine", ["threads", "pool", "dask"])
def test_noise_is_drawn_once_and_progress_counts_every_record(spent, design, files, engine):
    done = []
    released = ps.sketch(files, design, engine=engine, progress=done.append)
    assert len(spent) == 1
    assert released.receipt.epsilon == design.budget.epsilon
    assert sum(done) == N_RECORDS
    if engine != "threads":
        assert len(done) == len(list(read_parts(ps.Table(files), selection_of(3, None, NAMES))))


def test_noise_is_drawn_once_for_a_cluster(spent, design, frame, client):
    done = []
    table = dd.from_pandas(frame, npartitions=20)
    ps.sketch(table, design, engine=ps.engines.Dask(client), progress=done.append)
    assert len(spent) == 1
    assert (len(done), sum(done)) == (20, N_RECORDS)


def test_real_noise_is_drawn_in_this_process(design, frame, client):
    released = ps.sketch(
        dd.from_pandas(frame, npartitions=4), design, engine=ps.engines.Dask(client)
    )
    assert "INSECURE" not in released.receipt.describe()


@pytest.mark.slow
def test_a_pool_holds_few_parts_at_a_time(exact):
    made, done, most = 0, 0, 0

    def blocks():
        nonlocal made, most
        for _ in range(60):
            made += 1
            most = max(most, made - done)
            yield np.zeros((100, 3))

    def count(_):
        nonlocal done
        done += 1

    exact(blocks(), engine=ps.engines.Pool(2), progress=count)
    assert (made, done) == (60, 60)
    assert most <= 2 * 2 + 1


# ---------------------------------------------------------------- workers that die


@pytest.mark.slow
def test_a_worker_that_dies_in_a_task(exact, expected, records, client, tmp_path):
    times = tmp_path / "times"

    def deadly(chunk, block_info):
        """The first attempt at one chunk kills the process that makes it."""
        if block_info[0]["chunk-location"][0] == 30:
            with times.open("a") as stream:
                stream.write("tried\n")
            if times.read_text().count("tried") == 1:
                os.kill(os.getpid(), signal.SIGKILL)
        return chunk

    table = da.from_array(records, chunks=(50, 3)).map_blocks(deadly, dtype=records.dtype)
    done = []
    before = set(client.run(os.getpid).values())
    assert exact(table, engine=ps.engines.Dask(client), progress=done.append) == expected
    assert times.read_text().count("tried") == 2
    assert sum(done) == N_RECORDS
    client.wait_for_workers(2, timeout=60)
    assert len(before & set(client.run(os.getpid).values())) == 1


@pytest.mark.slow
def test_a_worker_killed_from_outside(exact, expected, records, client, tmp_path):
    client.wait_for_workers(2, timeout=60)
    victim = min(client.run(os.getpid).values())
    is_dead = tmp_path / "is_dead"

    def last_waits(chunk, block_info):
        """The last chunk is not there before the victim is dead, so that it dies midway."""
        if block_info[0]["chunk-location"][0] == 39:
            deadline = time.monotonic() + 60
            while not is_dead.exists() and time.monotonic() < deadline:
                time.sleep(0.005)
        return chunk

    def kill_once(_):
        if not is_dead.exists():
            os.kill(victim, signal.SIGKILL)
            is_dead.touch()

    table = da.from_array(records, chunks=(50, 3)).map_blocks(last_waits, dtype=records.dtype)
    assert exact(table, engine=ps.engines.Dask(client), progress=kill_once) == expected
    client.wait_for_workers(2, timeout=60)
    assert victim not in client.run(os.getpid).values()


def die(work, part):
    os._exit(1)


@pytest.mark.slow
def test_a_pool_that_loses_a_process_spends_nothing(spent, design, records, monkeypatch):
    seams.set(monkeypatch, "pool.part_sums", die)
    with pytest.raises(RecordError, match="__main__"):
        ps.sketch(records, design, engine=ps.engines.Pool(n_workers=1))
    assert spent == []


# ---------------------------------------------------------------- what stays private


def assert_nothing_is_left(client):
    """What a client gives up is forgotten when the message has arrived, which takes a moment."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        tasks = client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))
        data = client.run(lambda dask_worker: len(dask_worker.data))
        if tasks == 0 and not any(data.values()):
            return
    raise AssertionError((tasks, data))


@pytest.mark.slow
def test_nothing_stays_on_the_cluster(exact, frame, client):
    table = dd.from_pandas(frame, npartitions=10)
    exact(table, engine=ps.engines.Dask(client))
    assert_nothing_is_left(client)
    frame = frame.copy()
    frame.loc[0, "age"] = np.nan
    with pytest.raises(RecordError):
        exact(dd.from_pandas(frame, npartitions=10), engine=ps.engines.Dask(client))
    assert_nothing_is_left(client)


@pytest.mark.slow
def test_names_of_tasks_are_random(exact, frame, client):
    table = dd.from_pandas(frame, npartitions=10)
    for _ in range(2):
        exact(table, engine=ps.engines.Dask(client))
    seen = client.run_on_scheduler(
        lambda dask_scheduler: [str(entry[0]) for entry in dask_scheduler.transition_log]
    )
    ours = {key for key in seen if key.startswith("privsketch")}
    assert ours
    assert all(re.fullmatch(r"privsketch-(sums|told|tree)-[0-9a-f]{32}", key) for key in ours)
    work = Work(None, Selection(2, None, None))
    keys = [set(dask_engine._computation({}, list("ab"), work).graph) for _ in range(2)]
    assert not keys[0] & keys[1]


def test_sums_add_up_in_a_tree():
    work = Work(None, Selection(2, None, None))
    computation = dask_engine._computation({}, list(range(100)), work)
    added = [task[1] for task in computation.graph.values() if task[0] is add_outcomes]
    assert max(map(len, added)) == 8
    assert len(added) == 13 + 2 + 1
    below = [key for keys in added for key in keys]
    assert len(below) == len(set(below)) == 100 + 13 + 2  # everything enters once


# ---------------------------------------------------------------- errors


def assert_quotes_nothing(error):
    while error is not None:
        assert SECRET not in str(error)
        error = error.__cause__ or error.__context__


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["pool", "dask"])
def test_a_bad_file_is_our_error(spent, design, files, tmp_path, engine):
    bad = tmp_path / "bad.csv"
    bad.write_text(f"age,bmi,dose\n1,2,{SECRET}\n")
    with pytest.raises(RecordError, match="not numeric") as caught:
        ps.sketch([*files, bad], design, engine=engine)
    assert_quotes_nothing(caught.value)
    assert spent == []


def test_missing_values_in_a_worker(spent, design, frame, place):
    frame = frame.copy()
    frame.loc[77, "bmi"] = np.nan
    with pytest.raises(RecordError, match="missing='center'"):
        ps.sketch(dd.from_pandas(frame, npartitions=10), design, **place)
    assert spent == []


def test_text_in_a_worker(spent, design, frame, place):
    table = dd.from_pandas(frame.assign(dose=SECRET), npartitions=3)
    with pytest.raises(RecordError, match="'dose' is not numeric") as caught:
        ps.sketch(table, design, **place)
    assert_quotes_nothing(caught.value)
    assert spent == []


def test_an_error_of_a_task_before_ours_is_not_quoted(spent, design, frame, place):
    def fail(part):
        raise TypeError(SECRET)

    table = dd.from_pandas(frame, npartitions=3)
    table = table.map_partitions(fail, meta=table._meta)
    with pytest.raises(RecordError, match="TypeError") as caught:
        ps.sketch(table, design, **place)
    assert_quotes_nothing(caught.value)
    assert spent == []


def test_an_unforeseen_error_in_a_worker_is_not_quoted(design, monkeypatch):
    def fail(*_, **__):
        raise KeyError(SECRET)

    seams.set(monkeypatch, "work.exact_sums", fail)
    outcome = pickle.loads(
        pickle.dumps(part_sums(Work(design, Selection(design.dim, None, None)), None))
    )
    assert isinstance(outcome, RecordError)
    assert "KeyError" in str(outcome)
    assert SECRET not in str(outcome)


def test_workers_of_another_version_refuse(design):
    outcome = part_sums(
        replace(Work(design, Selection(design.dim, None, None)), version="0.0.1"), None
    )
    assert "0.0.1" in str(outcome)
    assert add_outcomes([outcome]) is outcome


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        (lambda: "flink", "engine='flink'"),
        (lambda: object(), "engine: got object"),
        (lambda: ps.engines.Pool, "engine: got Pool"),
        (lambda: ps.engines.Pool(0), "n_workers=0"),
        (lambda: ps.engines.Pool(1.5), "n_workers=1.5"),
        (lambda: ps.engines.Dask(n_workers=0), "n_workers=0"),
        (lambda: ps.engines.Dask(8786), "client: got int"),
        (lambda: ps.engines.Dask("nonsense://"), "no Dask scheduler answers at 'nonsense://'"),
    ],
)
def test_engines_that_there_are_not(spent, design, files, engine, message):
    with pytest.raises(ParameterError, match=re.escape(message)):
        ps.sketch(files, design, engine=engine())
    assert spent == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--workers", "2"], "--workers 2 with --engine threads"),
        (["--scheduler", "tcp://127.0.0.1:1"], "--scheduler tcp://127.0.0.1:1 with --engine thr"),
        (["--engine", "pool", "--threads", "2"], "--threads 2 with --engine pool"),
        (["--engine", "dask", "--threads", "2"], "--threads 2 with --engine dask"),
        (["--engine", "cuda", "--workers", "2"], "--workers 2 with --engine cuda"),
        (["--engine", "pool", "--workers", "0"], "--workers 0"),
    ],
)
def test_options_that_do_not_go_together(spent, study, files, options, message, tmp_path):
    arguments = [str(study), *map(str, files), "-o", str(tmp_path / "x.sketch"), *options]
    ran = CliRunner().invoke(main, ["sketch", *arguments])
    assert ran.exit_code == 2
    assert message in ran.stderr
    assert spent == []


def test_a_cluster_decides_how_many_workers_it_has(design, files, client):
    with pytest.raises(ParameterError, match="n_workers"):
        ps.sketch(files, design, engine=ps.engines.Dask(client, n_workers=2))


@pytest.mark.parametrize("engine", ["threads", "pool"])
def test_dask_tables_need_dask(design, records, engine):
    with pytest.raises(ParameterError, match="engine='dask'"):
        ps.sketch(da.from_array(records), design, engine=engine)


def test_tables_that_dask_cannot_read(design, records):
    for data in (records, iter([records]), pd.DataFrame(records, columns=NAMES)):
        with pytest.raises(RecordError, match="engine='pool'"):
            ps.sketch(data, design, engine="dask")
    table = da.from_array(records)
    with pytest.raises(RecordError, match="alone"):
        ps.sketch([table, table], design)
    with pytest.raises(RecordError, match="Dask Series"):
        ps.sketch(dd.from_pandas(pd.Series([1.0, 2.0]), npartitions=1), design)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (da.zeros((4, 2)), "2 columns"),
        (da.zeros(4), "reshape"),
        (da.zeros((4, 3), dtype=complex), "not numeric"),
    ],
)
def test_dask_arrays_of_the_wrong_kind(design, table, message):
    with pytest.raises(RecordError, match=message):
        ps.sketch(table, design)


@pytest.mark.slow
def test_a_file_given_twice(design, files, tmp_path):
    for engine in ("pool", "dask"):
        with pytest.raises(RecordError, match="twice"):
            ps.sketch([files[0], files[0]], design, engine=engine)


def test_without_dask(design, files, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ParameterError, match=re.escape("pip install 'privsketch[dask]'")):
        ps.sketch(files, design, engine="dask")


# ---------------------------------------------------------------- which cluster


@pytest.mark.slow
def test_the_current_client_is_used(exact, expected, frame, client):
    def count():
        return client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.transition_counter)

    table = dd.from_pandas(frame, npartitions=4)
    before = count()
    exact(table)
    assert count() == before
    with client.as_current():
        assert exact(table) == expected
    assert count() > before


@pytest.mark.parametrize("address", ["nonsense://", "tcp://127.0.0.1:1"])
def test_a_scheduler_that_does_not_answer_leaves_no_client_open(files, design, address):
    # The garbage collector would close it, in the middle of whatever else begins.
    with dask.config.set({"distributed.comm.timeouts.connect": "200ms"}):  # noqa: SIM117
        with pytest.raises(ps.PrivsketchError, match="no Dask scheduler answers at"):
            ps.sketch(files, design, engine=ps.engines.Dask(client=address))
    clients = [each for each in gc.get_objects() if type(each) is Client]
    assert all(each.status in ("closed", "newly-created", "running") for each in clients)


def test_an_address_is_enough(exact, expected, files, client):
    address = client.scheduler.address
    assert exact(files, engine=ps.engines.Dask(address)) == expected
    with pytest.raises(ValueError, match="No clients"):
        Client.current()


# ---------------------------------------------------------------- command line


@pytest.fixture
def study(design, files, tmp_path):
    design.save(tmp_path / "study.json")
    return ["sketch", str(tmp_path / "study.json"), *map(str, files), "-o"]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["pool", "dask"])
def test_engines_of_the_command_line(no_noise, study, expected, tmp_path, engine):
    output = tmp_path / "out.sketch"
    options = ["--engine", engine, "--workers", "2"]
    told = CliRunner().invoke(main, [*study, str(output), *options])
    assert told.exit_code == 0, told.output
    assert ps.Sketch.load(output).values.tolist() == expected


def test_the_command_line_finds_a_scheduler(no_noise, study, expected, tmp_path, client):
    output = tmp_path / "out.sketch"
    options = ["--engine", "dask", "--scheduler", client.scheduler.address]
    assert CliRunner().invoke(main, [*study, str(output), *options]).exit_code == 0
    assert ps.Sketch.load(output).values.tolist() == expected


def test_errors_of_the_command_line(spent, study, tmp_path, monkeypatch):
    def refused(*options):
        told = CliRunner().invoke(main, [*study, str(tmp_path / "out.sketch"), *options])
        assert told.exit_code == 2
        return told.output

    assert "--workers 2 with --engine threads" in refused("--workers", "2")
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert "pip install 'privsketch[dask]'" in refused("--engine", "dask")
    assert spent == []


@pytest.mark.slow
def test_dask_is_not_imported_unless_needed():
    code = (
        "import sys, numpy as np, privsketch as ps, privsketch.sketching.build;"
        "design = ps.Design.plan(n_components=1, domain=ps.Box(-1, 1, dim=2),"
        " budget=ps.Budget(1.0, 1e-6));"
        "ps.sketch(np.zeros((5, 2)), design);"
        "print([m for m in sys.modules if m in ('dask', 'distributed', 'multiprocessing.pool')])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["threads", "pool", "dask"])
def test_masks_are_drawn_by_whoever_reads(engine, files, make_design, no_noise):
    # Fresh ones each time: a record is kept with probability 1/2, and counted by the one count.
    masked = make_design(columns=NAMES, masks="records:0.5", noise="gaussian")
    counts = [ps.sketch(files, masked, engine=engine).n_records for _ in range(2)]
    spread = np.sqrt(N_RECORDS)  # of 2 B(n, 1/2)
    assert all(abs(count - N_RECORDS) < 6 * spread for count in counts)  # false alarm 1e-8
    assert not all(count == N_RECORDS for count in counts)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["pool", "dask"])
def test_components_and_structured_frequencies_on_other_engines(engine, files, no_noise):
    domain = ps.Ball(3, 8.0)
    settings = {"domain": domain, "budget": ps.Budget(1.0, 1e-6), "columns": NAMES}
    designs = [
        ps.Design.plan(task="pca", n_components=2, mean="released", random_state=1, **settings),
        ps.Design.plan(
            task="pca", n_components=2, feature_map="quadratic", random_state=1, **settings
        ),
        ps.Design.plan(n_components=2, frequencies="structured", random_state=1, **settings),
    ]
    for one in designs:
        local = ps.sketch(files, one).values.tolist()
        assert ps.sketch(files, one, engine=engine).values.tolist() == local
