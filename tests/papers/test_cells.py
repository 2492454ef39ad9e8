"""Parts of an experiment: kept, taken up again, and run elsewhere without being lost."""

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import papers
import privsketch
from papers.harness import cells, sources
from papers.harness.cells import Cell, run_cells
from papers.harness.sources import digest_of
from privsketch import FileError, ParameterError, PrivsketchError
from privsketch.estimators import base  # noqa: F401  # it has an error of its own

LIBRARY = Path(privsketch.__file__).parent
PAPERS = Path(papers.__file__).parent


# Planted cells. They leave a line in a file, so that a test can count them in any process.


def noted(log, name, **more):
    with open(log, "a") as stream:
        stream.write(f"{name}\n")
    return [{"name": name, "half": half, "value": 0.1} for half in (0, 1)]


def refusing(log, name):
    noted(log, name)
    raise ParameterError("epsilon=-1: planted")


def failing_once(log, name):
    first = name not in lines(log)
    rows = noted(log, name)
    if first:
        raise ZeroDivisionError("planted")
    return rows


def dying_once(log, name):
    first = name not in lines(log)
    rows = noted(log, name)
    if first:
        os._exit(3)
    return rows


def threads_of(log, name):
    from threadpoolctl import threadpool_info

    return [{"name": name, "threads": max(one["num_threads"] for one in threadpool_info())}]


def endless(log, name):
    noted(log, f"{name} {os.getpid()}")
    time.sleep(600)


def lines(log):
    return Path(log).read_text().splitlines() if Path(log).exists() else []


class Plant:
    """A log, a folder for what is kept, and cells that write to that log."""

    def __init__(self, folder):
        self.log, self.folder, self.shares = folder / "log", folder / "cells", []

    def cell(self, name, run=noted, weight=1.0, **more):
        return Cell(run, {"log": str(self.log), "name": name, **more}, weight)

    def run(self, some, **choices):
        return run_cells(some, self.folder, self.shares.append, **choices)

    @property
    def ran(self):
        return lines(self.log)


@pytest.fixture
def plant(tmp_path):
    return Plant(tmp_path)


def names(found):
    return [row["name"] for row in found.rows if row.get("half", 0) == 0]


@pytest.mark.slow
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_rows_come_in_the_order_of_the_cells_and_are_kept(plant, n_jobs):
    # The last weigh most: in processes they are the first to begin.
    some = [plant.cell(f"{place}", weight=1.0 + place) for place in range(5)]
    first = plant.run(some, n_jobs=n_jobs)
    assert names(first) == ["0", "1", "2", "3", "4"]
    assert [row["half"] for row in first.rows] == [0, 1] * 5
    assert sorted(plant.ran) == ["0", "1", "2", "3", "4"]
    if n_jobs == 2:
        assert plant.ran[0] in ("4", "3")
    assert plant.shares == sorted(plant.shares)
    assert plant.shares[-1] == 1.0
    again = plant.run(some, n_jobs=n_jobs)
    assert again == first
    assert len(plant.ran) == 5
    plant.run(some, again=True)
    assert len(plant.ran) == 10


def test_only_what_is_new_runs(plant):
    plant.run([plant.cell("a"), plant.cell("b")])
    found = plant.run([plant.cell("c"), plant.cell("b"), plant.cell("a", more=[1, 2])])
    assert names(found) == ["c", "b", "a"]
    assert plant.ran == ["a", "b", "c", "a"]


def test_nothing_is_kept_without_a_folder(plant):
    for _ in range(2):
        run_cells([plant.cell("a")], None, plant.shares.append)
    assert plant.ran == ["a", "a"]


def test_a_file_cut_short_anywhere_counts_as_none(plant):
    some = [plant.cell("a")]
    whole = plant.run(some)
    (path,) = plant.folder.iterdir()
    content = path.read_bytes()
    damaged = [content[:size] for size in range(0, len(content), 9)]
    damaged += [b"[]", b"7", b'{"rows": 7, "seconds": 1}', b'{"rows": [7], "seconds": 1}']
    damaged += [b'{"rows": [], "seconds": null}', b"\xff\xfe"]
    for count, part in enumerate(damaged, start=2):
        path.write_bytes(part)
        assert plant.run(some).rows == whole.rows
        assert len(plant.ran) == count
    assert json.loads(path.read_bytes())["parameters"]["name"] == "a"


def test_a_folder_that_cannot_be_made_is_an_error_before_anything_runs(plant):
    plant.folder.write_text("a file")
    with pytest.raises(FileError, match="cells"):
        plant.run([plant.cell("a")])
    assert plant.ran == []


def test_an_impossible_number_of_jobs(plant):
    with pytest.raises(ParameterError, match="n_jobs=0"):
        plant.run([plant.cell("a")], n_jobs=0)


@pytest.mark.slow
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_cells_have_one_thread(plant, n_jobs):
    found = plant.run([plant.cell("a", threads_of), plant.cell("b", threads_of)], n_jobs=n_jobs)
    assert [row["threads"] for row in found.rows] == [1, 1]


@pytest.mark.slow
def test_our_errors_arrive_as_they_are_and_other_parts_are_kept(plant):
    # The planted one weighs most: it begins first, and beside it one of the others.
    some = [plant.cell("a"), plant.cell("bad", refusing, weight=9.0), plant.cell("b")]
    with pytest.raises(ParameterError, match="epsilon=-1: planted") as caught:
        plant.run(some, n_jobs=2)
    assert any("refusing" in note and "'bad'" in note for note in caught.value.__notes__)
    done = [name for name in plant.ran if name != "bad"]
    assert len(list(plant.folder.iterdir())) == len(done) >= 1
    plant.run([some[0], some[2]])
    assert sorted(plant.ran) == ["a", "b", "bad"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("planted", "error"), [(failing_once, ZeroDivisionError), (dying_once, ParameterError)]
)
def test_a_run_goes_on_where_it_was(plant, planted, error):
    # "bad" is the last to begin: "a" is done by then, "b" at least under way.
    some = [plant.cell("a"), plant.cell("bad", planted, weight=0.5), plant.cell("b")]
    with pytest.raises(error, match=r"planted|n_jobs=2: a process ended"):
        plant.run(some, n_jobs=2)
    kept = len(list(plant.folder.iterdir()))
    assert kept >= 1
    before = len(plant.ran)
    assert names(plant.run(some, n_jobs=2)) == ["a", "bad", "b"]
    assert len(plant.ran) == before + 3 - kept


def every_error(kind):
    return [kind, *(one for below in kind.__subclasses__() for one in every_error(below))]


@pytest.mark.parametrize("kind", every_error(PrivsketchError))
def test_our_errors_survive_the_way_between_processes(kind):
    error = kind("x=1: expected 2")
    back = pickle.loads(pickle.dumps(error))
    assert (type(back), str(back)) == (kind, str(error))
    assert "x=1: expected 2" in str(back)


# A process that runs cells that never end, beside one that does.
SCRIPT = """
import sys
from pathlib import Path
import test_cells
if __name__ == "__main__":
    plant = test_cells.Plant(Path(sys.argv[1]))
    some = [plant.cell("done", weight=9.0)]
    some += [plant.cell("long", test_cells.endless), plant.cell("too", test_cells.endless)]
    plant.run(some, n_jobs=2)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_ended_leaves_no_process_and_keeps_what_is_done(plant, tmp_path, number):
    (tmp_path / "script.py").write_text(SCRIPT)
    path = os.pathsep.join([str(Path(__file__).parent), str(LIBRARY.parent), str(PAPERS.parent)])
    with subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py"), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_for(lambda: len(plant.ran) == 3)
        process.send_signal(number)  # to it alone, not to its children
        _, words = process.communicate(timeout=60)
    assert process.returncode != 0
    assert words.count("Traceback") <= 1  # its own
    assert len(list(plant.folder.iterdir())) == 1
    for line in plant.ran:
        if " " in line:
            wait_for(lambda line=line: not is_alive(int(line.split()[1])))


def wait_for(condition):
    for _ in range(1200):
        if condition():
            return
        time.sleep(0.05)
    pytest.fail("waited for a minute")


def is_alive(number):
    try:
        status = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        try:
            os.kill(number, 0)
        except ProcessLookupError:
            return False
        return not Path("/proc").exists()
    return status != "Z"


def test_sources_that_change_during_a_run_are_noticed(plant):
    with pytest.raises(FileError, match="changed after this run began"):
        cells._run_elsewhere((plant.cell("a"), "another digest"))
    assert plant.ran == []


def test_a_digest_names_what_rows_depend_on(plant, monkeypatch):
    cell = plant.cell("a", more=1)
    same = plant.cell("a", more=1, weight=7.0)
    other = [plant.cell("b", more=1), plant.cell("a", more=2), plant.cell("a", refusing, more=1)]
    assert cell.digest() == same.digest()
    assert len({one.digest() for one in [cell, *other]}) == 4
    before = cell.digest()
    for name in ("python", "numpy", "scipy", "scikit-learn", "llvmlite", "opendp"):
        assert name in sources.versions_below()
        changed = {**sources.versions_below(), name: "0"}
        with monkeypatch.context() as context:
            context.setattr(cells, "versions_below", lambda changed=changed: changed)
            assert cell.digest() != before


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    """A copy of papers and library that tests may change."""
    folder = tmp_path_factory.mktemp("copy")
    for name, source in {"papers": PAPERS, "privsketch": LIBRARY}.items():
        shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.mark.parametrize(
    ("path", "counts"),
    [
        ("privsketch/noise/samplers.py", True),
        ("privsketch/clustering/pipeline/method.py", True),
        ("privsketch/__init__.py", True),
        ("privsketch/projection/__init__.py", True),
        ("privsketch/report/drawing.py", False),
        ("privsketch/cli/main.py", False),
        ("papers/jll/table.py", True),  # its own module
        ("papers/jll/setting.py", True),  # imported by it
        ("papers/jll/spread.py", False),
        ("papers/jll/table_panels.py", False),
        ("papers/jll/targets.py", False),
        ("papers/bal/runs.py", False),
        ("papers/harness/cells.py", False),
        ("papers/harness/results.py", False),
        ("papers/harness/targets.py", False),
        ("papers/__main__.py", False),
    ],
)
def test_a_change_of_sources_counts_where_it_can_change_rows(path, counts, copied):
    def digest():
        papers = copied / "papers"
        return digest_of(papers / "jll" / "table.py", papers, copied / "privsketch")

    changed = copied / path
    before, content = digest(), changed.read_bytes()
    assert before == digest_of(PAPERS / "jll" / "table.py", PAPERS, LIBRARY)
    changed.write_bytes(content + b"\n# changed\n")
    assert (digest() != before) == counts
    changed.write_bytes(content)
    assert digest() == before


def test_code_that_is_moved_and_not_changed_keeps_its_digest(copied):
    papers, library = copied / "papers", copied / "privsketch"
    before = digest_of(papers / "jll" / "table.py", papers, library)
    moved = library / "noise" / "elsewhere.py"
    (library / "noise" / "samplers.py").rename(moved)
    assert digest_of(papers / "jll" / "table.py", papers, library) == before
    moved.rename(library / "noise" / "samplers.py")


def test_imports_are_followed_however_they_are_written(tmp_path):
    papers, library = tmp_path / "papers", tmp_path / "library"
    room = papers / "one"
    for folder in (room, papers / "harness", library):
        folder.mkdir(parents=True)
    (room / "a.py").write_text("from papers.one import b\nfrom papers.harness import cells\n")
    (room / "b.py").write_text("def f():\n    from papers.one.c import x\n")
    (room / "c.py").write_text("import papers.one.d\n")
    (room / "d.py").write_text("from papers.one.a import y\n")
    (room / "e.py").write_text("")
    (papers / "harness" / "cells.py").write_text("")
    counted = {**dict.fromkeys("abcd", True), "e": False, "../harness/cells": False}
    for name, counts in counted.items():
        before = digest_of(room / "a.py", papers, library)
        with open(room / f"{name}.py", "a") as stream:
            stream.write("# changed\n")
        assert (digest_of(room / "a.py", papers, library) != before) == counts
