"""Commands that fail: what kind of failure it was, its exit code, and what was spent."""

import json
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner

import privsketch as ps
from privsketch._base import errors
from privsketch.cli import EXIT_CODES, Spending, Stop
from privsketch.cli.main import main
from tests import seams
from tests.answers import validated
from tests.commands import BUDGET, DATA, INTEGRITY, USAGE, run, times_told

PRIVSKETCH = Path(sys.executable).parent / "privsketch"
INTERRUPTED, INTERNAL = 1, 70
NOTHING, COUNTS = "nothing was spent", "the budget counts as spent"
SECRET = "secretsmith"
COST = ["--epsilon", 1, "--delta", "1e-6"]
DESIGN = ["design", "-k", 2, "--box", 0, 1, "--dim", 2, *COST]
SKETCH = ["sketch", "study.json", "data.npy", "-o", "out.sketch"]
CLUSTER = ["cluster", "data.npy", "-k", 2, "--box", -4, 4, *COST, "--method", "lloyd"]
CLUSTER += ["-o", "out.json"]
RELEASE = ["release", "data.npy", "-k", 1, "--ball", 4, "--epsilon", 1, "-o", "out.npy"]
BOUNDS = ["bounds", "data.npy", "--columns", "0", "--epsilon", 1]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("data.npy", np.random.default_rng(0).normal(size=(200, 3)))
    ps.Design.plan(
        n_components=2,
        domain=ps.Box(-4, 4, dim=3),
        budget=ps.Budget(1.0, 1e-6),
        n_features=20,
        random_state=0,
    ).save("study.json")
    Path("foreign").write_text("hello")
    return tmp_path


def failed(*arguments):
    """Exit code, standard error, and the error that machines are told, which agree."""
    words = run(*arguments)
    result = run(*arguments, "--json")
    assert words.exit_code == result.exit_code
    error = validated(json.loads(result.stdout), "failure")["error"]
    assert error["exit_code"] == EXIT_CODES[error["kind"]] == result.exit_code
    sentence = {"nothing": NOTHING, "counts as spent": COUNTS}[error["spent"]]
    for one in (words, result):
        assert one.stderr.count("spent") == one.stderr.count(sentence) == times_told(arguments)
        assert "Traceback" not in one.output
    return result.exit_code, result.stderr, error


FAILURES = {
    "an option that is missing": (["cluster", "data.npy"], USAGE),
    "a parameter": ([*SKETCH, "--threads", 0], USAGE),
    "a wrong word": ([*RELEASE, "--protect", "everything"], USAGE),
    "options that do not go together": ([*CLUSTER, "--loss", "distances"], USAGE),
    "no columns": ([*BOUNDS[:3], "0", "--epsilon", 0], USAGE),
    "plan": (["plan", "-k", 2, "--box", 0, 1, "--dim", 2, "--epsilon", 0, "--delta", 0], USAGE),
    "no file of records": (["sketch", "study.json", "none.npy", "-o", "out.sketch"], DATA),
    "no design": (["sketch", "none.json", "data.npy", "-o", "out.sketch"], DATA),
    "no sketch": (["learn", "none.sketch"], DATA),
    "no folder": ([*SKETCH[:-1], "nowhere/out.sketch"], DATA),
    "a column that is not there": ([*BOUNDS[:3], "7", "--epsilon", 1], DATA),
    "an output that exists": ([*DESIGN, "-o", "foreign"], DATA),
    "no design to look by": (["check", "none.json", "data.npy"], DATA),
    "no table to draft": (["schema", "draft", "none.csv", "-o", "s.json"], DATA),
    "a demo in a file": (["demo", "-o", "foreign"], DATA),
    "a foreign design": (["sketch", "foreign", "data.npy", "-o", "out.sketch"], INTEGRITY),
    "a foreign sketch": (["merge", "foreign", "-o", "all.sketch"], INTEGRITY),
    "a foreign file": (["inspect", "foreign"], INTEGRITY),
    "another design": ([*SKETCH, "--expect", "0" * 16], INTEGRITY),
    "a foreign schema": (["schema", "check", "foreign"], INTEGRITY),
    "no limit": (["ledger", "add", "none.ledger", "visits", "--delta", 0], USAGE),
    "no ledger": (["ledger", "check", "none.ledger"], DATA),
    "a ledger that exists": (["ledger", "create", "foreign"], DATA),
    "a foreign ledger": (["ledger", "show", "foreign"], INTEGRITY),
    "a ledger that is none": (["ledger", "show", "none.ledger"], DATA),
    "a folder for a ledger": (["ledger", "show", "."], DATA),
    "a key by another name": (["key", "make", "site", "--no-passphrase"], USAGE),
    "no folder for a key": (["key", "make", "nowhere/site.key", "--no-passphrase"], DATA),
    "nothing to sign": (["key", "sign", "none.json", "--key", "foreign"], DATA),
    "a foreign key": (["key", "trust", "foreign"], INTEGRITY),
}


@pytest.mark.parametrize(("arguments", "code"), FAILURES.values(), ids=FAILURES)
def test_kinds_of_failure(folder, spent, arguments, code):
    found, _, error = failed(*arguments)
    assert found == code
    assert error["spent"] == "nothing"
    assert spent == []


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ParameterError("one"), USAGE),
        (errors.RecordError("one"), DATA),
        (errors.MissingError(1), DATA),
        (errors.AccessError("one"), DATA),
        (errors.BudgetError("one"), BUDGET),
        (errors.FileError("one"), INTEGRITY),
        (errors.MergeError("one"), INTEGRITY),
        (errors.SignatureError("one"), INTEGRITY),
        (errors.KernelError("one"), INTERNAL),
        (click.ClickException("one"), USAGE),
        (click.BadParameter("one"), USAGE),
        (OSError(28, "words of whoever raised it"), DATA),
        (OSError("a message without a number"), INTERNAL),
        (ValueError("one"), INTERNAL),
        (MemoryError(), INTERNAL),
        (click.Abort(), INTERRUPTED),
        (KeyboardInterrupt(), INTERRUPTED),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_every_error_has_its_exit_code(folder, monkeypatch, error, code):
    def fails(*_, **__):
        raise error

    seams.set(monkeypatch, "signing.load_design", fails)
    assert failed(*SKETCH)[0] == code
    seams.set(monkeypatch, "files.from_bytes", fails)
    assert failed("inspect", "study.json")[0] == code  # of a command that can spend nothing


def test_no_error_of_ours_is_forgotten():
    def below(kind):
        yield kind
        for one in kind.__subclasses__():
            yield from below(one)

    internal = {errors.PrivsketchError, errors.KernelError}
    ours = [one for one in below(errors.PrivsketchError) if one.__module__.startswith("privsketch")]
    for kind in ours:
        assert pickle.loads(pickle.dumps(kind)) is kind  # workers send errors
        is_internal = kind in internal or issubclass(kind, errors.KernelError)
        assert (kind.kind == "internal") == is_internal, kind


# ---------------------------------------------------------------- errors that are not ours


@pytest.fixture
def broken(folder, monkeypatch):
    """A bug whose message holds a cell of the table."""

    def fails(*_, **__):
        raise KeyError(f"{SECRET} is 47")

    monkeypatch.setattr(ps, "sketch", fails)
    monkeypatch.delenv("PRIVSKETCH_DEBUG", raising=False)


def test_an_internal_error_quotes_no_record(broken):
    code, said, error = failed(*SKETCH)
    assert code == INTERNAL
    assert SECRET not in said + json.dumps(error)
    (line,) = said.splitlines()
    assert line.startswith("Error: internal error KeyError at privsketch.cli.sketch, line ")
    assert "please report" in line
    assert line.endswith(NOTHING)


def test_whoever_looks_for_a_bug_is_warned_of_records(broken, monkeypatch):
    monkeypatch.setenv("PRIVSKETCH_DEBUG", "1")
    result = run(*SKETCH, "--json")
    assert result.exit_code == INTERNAL
    first, *rest = result.stderr.splitlines()
    assert "may contain records" in first
    assert rest[0].startswith("Traceback")
    assert SECRET in result.stderr
    assert SECRET not in result.stdout


def test_the_system_speaks_for_itself(folder, monkeypatch):
    def full(*_, **__):
        raise OSError(28, SECRET, "spill")

    monkeypatch.setattr(ps, "sketch", full)
    code, said, _ = failed(*SKETCH)
    assert code == DATA
    assert "spill: No space left on device" in said
    assert SECRET not in said


# ---------------------------------------------------------------- what was spent


def breaking(monkeypatch, where, error):
    def fails(*_, **__):
        raise error

    monkeypatch.setattr(where, fails)


@pytest.mark.parametrize(
    "error", [errors.AccessError("full"), KeyError(SECRET)], ids=["ours", "not"]
)
def test_a_run_that_fails_after_its_first_noisy_number_was_paid_for(folder, monkeypatch, error):
    breaking(monkeypatch, "privsketch.models.clusters.ClusterModel.save", error)
    _, said, told = failed(*CLUSTER)
    assert told["spent"] == "counts as spent"
    assert f"noisy numbers may have been made: {COUNTS}" in said
    assert SECRET not in said


def test_a_sketch_that_is_not_written_has_cost_nothing(folder, monkeypatch, spent):
    breaking(monkeypatch, "privsketch.sketching.sketch.Sketch.save", errors.AccessError("full"))
    assert failed(*SKETCH)[2]["spent"] == "nothing"
    assert spent  # though noise was drawn, nobody has seen it


def test_what_stands_in_a_file_was_paid_for(folder, monkeypatch):
    breaking(monkeypatch, "privsketch.cli.release._write_matrix", errors.AccessError("full"))
    _, said, told = failed(*RELEASE, "--publish-matrix", "m.npy", "--force")
    assert told["spent"] == "counts as spent"
    assert f"out.npy was written before that: {COUNTS}" in said


def test_bounds_that_nobody_could_read_may_have_been_read(folder, monkeypatch):
    breaking(
        monkeypatch, "privsketch.tables.survey.bounds.Bounds.describe", errors.AccessError("closed")
    )
    _, said, told = failed(*BOUNDS)
    assert told["spent"] == "counts as spent"
    assert f"part of the result may have been written: {COUNTS}" in said


@pytest.mark.slow
def test_a_demo_has_sketches_to_pay_for(folder, monkeypatch):
    breaking(monkeypatch, "privsketch.cli.demo_steps.save_report", errors.AccessError("full"))
    result = run("demo", "--records", 100, "-o", "demo", "--json")
    assert json.loads(result.stdout)["error"]["spent"] == "counts as spent"
    assert COUNTS in result.stderr


def test_an_entry_of_a_ledger_counts_whatever_follows():
    spending = Spending(Stop())
    assert (spending.is_spent, spending.sentence()) == (False, NOTHING)
    spending.mark_noise_drawn()
    assert not spending.is_spent
    spending.mark_reserved()
    assert spending.is_spent
    assert spending.sentence().endswith(f"a ledger may have an entry for it: {COUNTS}")


@pytest.fixture
def ledger(folder, monkeypatch):
    """A ledger in which everything is entered; its limit allows one sketch."""
    book = ps.Ledger.create(folder / "budget.ledger")
    book.add("visits", epsilon=1.5, delta=1e-5)
    monkeypatch.setenv("PRIVSKETCH_LEDGER", str(folder / "budget.ledger"))
    return book


def test_what_a_ledger_refuses_costs_nothing(ledger, spent):
    assert run(*SKETCH).exit_code == 0
    before = len(spent)
    code, _, error = failed(*SKETCH, "--force")
    assert (code, error["kind"], error["spent"]) == (BUDGET, "budget", "nothing")
    assert len(spent) == before


@pytest.mark.parametrize("error", [errors.AccessError("full"), KeyboardInterrupt()], ids=repr)
def test_a_sketch_that_was_entered_counts_though_nothing_is_written(ledger, monkeypatch, error):
    breaking(monkeypatch, "privsketch.sketching.sketch.Sketch.save", error)
    result = run(*SKETCH, "--json")
    assert json.loads(result.stdout)["error"]["spent"] == "counts as spent"
    assert f"a ledger may have an entry for it: {COUNTS}" in result.stderr
    assert len(ledger.entries("visits")) == 1


def test_an_interrupt_while_the_entry_is_made_counts(ledger, monkeypatch):
    reserve = ps.Ledger.reserve

    def interrupted(*arguments, **options):
        reserve(*arguments, **options)
        raise KeyboardInterrupt  # which came while the disk was busy

    monkeypatch.setattr(ps.Ledger, "reserve", interrupted)
    result = run(*SKETCH, "--json")
    assert json.loads(result.stdout)["error"]["spent"] == "counts as spent"
    assert len(ledger.entries("visits")) == 1


# ---------------------------------------------------------------- interrupts, closed pipes


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_is_told_to_machines(folder, monkeypatch, number):
    def stop(*_, **__):
        os.kill(os.getpid(), number)
        time.sleep(1)

    monkeypatch.setattr(ps, "sketch", stop)
    code, said, error = failed(*SKETCH)
    assert (code, error["kind"]) == (INTERRUPTED, "interrupted")
    assert "Aborted!" in said


def test_an_interrupt_before_the_first_import_is_told_to_machines():
    program = (
        "from privsketch.cli.shell.stopping import Stop; import os, signal\n"
        "Stop('early').install(); os.kill(os.getpid(), signal.SIGTERM)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, "--json"], capture_output=True, text=True
    )
    assert ended.returncode == INTERRUPTED
    assert validated(json.loads(ended.stdout), "failure")["error"]["spent"] == "nothing"


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [BOUNDS, [*BOUNDS, "--json"]], ids=["words", "json"])
def test_an_answer_that_nobody_takes_is_a_failure(folder, arguments):
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(
        [PRIVSKETCH, *map(str, arguments)], stdout=writing, stderr=subprocess.PIPE, text=True
    )
    os.close(writing)
    assert ended.returncode == DATA
    assert ended.stderr.startswith("Error: standard output: Broken pipe")
    assert COUNTS in ended.stderr  # the bounds were made, and may have been read
    assert "Traceback" not in ended.stderr


# Commands that spend, with all files they write: some follow after the first words.
WRITING = {
    "sketch": (SKETCH, ["out.sketch"]),
    "cluster": ([*CLUSTER, "--report", "out.html"], ["out.json", "out.html"]),
    "release": (
        [*RELEASE, "--publish-matrix", "matrix.npy"],
        ["out.npy", "out.receipt.json", "matrix.npy"],
    ),
}


@pytest.mark.parametrize("name", WRITING)
def test_words_that_nobody_takes_stop_no_result(folder, name):
    arguments, written = WRITING[name]
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(
        [PRIVSKETCH, *map(str, arguments)], stdout=writing, stderr=subprocess.PIPE, text=True
    )
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert [file for file in written if not Path(file).exists()] == []


def test_an_answer_for_machines_that_nobody_takes_is_a_failure(folder):
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(
        [PRIVSKETCH, *map(str, SKETCH), "--json"], stdout=writing, stderr=subprocess.PIPE, text=True
    )
    os.close(writing)
    assert ended.returncode == DATA
    assert f"out.sketch was written before that: {COUNTS}" in ended.stderr


def unread(*arguments):
    """A command whose standard output is read to its first line."""
    running = subprocess.Popen(
        [PRIVSKETCH, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    running.stdout.readline()
    running.stdout.close()
    told = running.stderr.read()
    running.stderr.close()
    return running.wait(), told


@pytest.mark.parametrize("arguments", [["ledger", "show"], ["ledger", "export"]], ids=" ".join)
def test_a_reader_who_has_seen_enough_hears_nothing(folder, arguments):
    ledger = ps.Ledger.create("long.ledger")
    for number in range(10):
        ledger.add(f"{number}", epsilon=1, note="x" * 10_000)  # more than a pipe holds
    assert unread(*arguments, "long.ledger") == (INTERRUPTED, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["ledger", "show", "secret"],
        ["inspect", "secret"],
        ["sketch", "study.json", "secret.csv", "-o", "out.sketch"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_file_that_cannot_be_read_is_no_wrong_option(folder, monkeypatch, arguments):
    """The exit code is that of data, whoever notices; root can read everything, so it is said."""
    names = {os.path.abspath(name) for name in ("secret", "secret.csv")}
    for name in names:
        Path(name).write_text("a,b,c\n1,2,3\n")
        Path(name).chmod(0)
    monkeypatch.setattr(os, "access", refusing(os.access, names))
    monkeypatch.setattr(os, "open", refusing_to_open(os.open, names))
    monkeypatch.setattr("sqlite3.connect", no_connection)
    code, said, _ = failed(*arguments)
    assert code == DATA
    assert "Permission denied" in said or "cannot be read" in said


def refusing(access, names):
    return lambda path, *mode, **more: (
        os.path.abspath(path) not in names and access(path, *mode, **more)
    )


def refusing_to_open(open_file, names):
    def opened(path, *mode, **more):
        if os.path.abspath(path) in names:
            raise PermissionError(13, "Permission denied", str(path))
        return open_file(path, *mode, **more)

    return opened


def no_connection(*_, **__):
    error = sqlite3.OperationalError("unable to open database file")
    error.sqlite_errorname = "SQLITE_CANTOPEN"
    raise error


@pytest.mark.parametrize("arguments", [["--json"], ["--json", "--nonsense"]], ids=" ".join)
def test_a_group_without_a_command_fails_like_others(folder, arguments):
    result = run(*arguments)
    assert result.exit_code == USAGE
    assert validated(json.loads(result.stdout), "failure")["error"]["kind"] == "usage"
    assert result.stderr.count(NOTHING) == 1


def test_names_do_not_steer_a_terminal(folder):
    """What stands in a shared folder may be called anything."""
    name = "site\x1b[2J\x9b31m.sketch"
    for command in (["inspect", name], [name], ["merge", name, "-o", "all.sketch"]):
        told = CliRunner().invoke(main, command, color=True)  # else click takes some of it away
        assert "site\\x1b[2J\\x9b31m.sketch" in told.stderr
        assert not {"\x1b", "\x9b"} & set(told.output)
    sketched = [*map(str, SKETCH[:-1]), name, "--source", "site"]
    shown = CliRunner().invoke(main, sketched, color=True)
    assert shown.exit_code == 0
    assert "written to site\\x1b[2J" in shown.stdout


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no such device")
@pytest.mark.parametrize("command", [["inspect", "missing"], ["inspect", "--wrong"]])
@pytest.mark.parametrize("unbuffered", ["", "1"])  # what is kept is tried again when Python ends
def test_a_failure_that_nobody_hears_is_still_one(folder, command, unbuffered):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [PRIVSKETCH, *command, "--json"],
            stdout=subprocess.PIPE,
            stderr=full,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    error = validated(json.loads(done.stdout), "failure")["error"]
    assert done.returncode == error["exit_code"] == EXIT_CODES[error["kind"]] in (DATA, USAGE)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="names of files are bytes on Linux")
def test_answers_are_text_whatever_files_are_called(folder):
    name = os.fsdecode(b"out\xff.sketch")
    for encoding in ("utf-8", "ascii"):
        done = subprocess.run(
            [PRIVSKETCH, *map(str, SKETCH[:-1]), name, "--source", "s", "--force", "--json"],
            stdout=subprocess.PIPE, env={**os.environ, "PYTHONIOENCODING": encoding},
        )  # fmt: skip
        assert done.returncode == 0
        assert json.loads(done.stdout.decode("ascii"))["written"] == [name]
