"""Commands that fail or are stopped: nothing is left behind, and what was spent is said once."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import numpy as np
import pytest

import privsketch as ps
from privsketch import AccessError, ClusterModel
from privsketch.cli import Stop, stoppable
from privsketch.cli.shell import progress
from tests import seams
from tests.commands import DATA, USAGE, modules_after, run, wait_until_it_listens

PRIVSKETCH = Path(sys.executable).parent / "privsketch"
NOTHING = "nothing was spent"
COST = ["--epsilon", "1", "--delta", "1e-6"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("data.npy", np.random.default_rng(0).normal(size=(500, 3)))
    ps.Design.plan(
        n_components=2, domain=ps.Box(-4, 4, dim=3), budget=ps.Budget(1.0, 1e-6), random_state=0
    ).save("study.json")
    return tmp_path


def names(folder):
    return {path.name for path in folder.iterdir()}


SPENDING = {
    "sketch": ["sketch", "study.json", "data.npy", "-o", "out.sketch"],
    "cluster": [
        "cluster",
        "data.npy",
        "-k",
        2,
        "--box",
        -4,
        4,
        *COST,
        "--method",
        "lloyd",
        "-o",
        "out.json",
    ],
    "regress": ["regress", "data.npy", "--target", "x1", "--box", -4, 4, *COST, "-o", "out.reg"],
    "release": ["release", "data.npy", "-k", 1, "--ball", 4, "--epsilon", 1, "-o", "out.npy"],
}


def interrupting(monkeypatch, lost):
    """A bar that is interrupted when it first moves; a library may lose the exception."""

    @contextmanager
    def bar(*_):
        def advance(*_):
            with suppress(KeyboardInterrupt) if lost else nullcontext():
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(1)

        yield advance

    for name in ("record_bar", "pass_bars"):
        monkeypatch.setattr(progress, name, bar)


@pytest.mark.parametrize("lost", [False, True], ids=["raised", "lost"])
@pytest.mark.parametrize("command", SPENDING.values(), ids=SPENDING)
def test_after_an_interrupt_nothing_is_written(folder, monkeypatch, command, lost):
    before = names(folder)
    interrupting(monkeypatch, lost)
    result = run(*command)
    assert result.exit_code == 1
    assert result.stderr.count("spent") == 1
    assert "Traceback" not in result.output
    assert names(folder) == before


@pytest.mark.parametrize("what", ["sketch", "regress", "cluster"])
def test_an_interrupt_that_is_lost_while_noise_is_drawn_stops_the_command(
    folder, monkeypatch, what
):
    from privsketch.noise import mechanism

    right = mechanism._require_usable

    def lose(law):
        with suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)
        right(law)

    seams.set(monkeypatch, "mechanism.require_usable", lose)
    before = names(folder)
    result = run(*SPENDING[what])
    assert result.exit_code == 1
    # A sketch that is not written has told nobody anything; a run goes on from its own numbers.
    told = "the budget counts as spent" if what == "cluster" else NOTHING
    assert result.stderr.count(told) == 1
    assert names(folder) == before


def test_an_interrupt_that_became_another_error_is_still_one(folder, monkeypatch):
    def fails(*_, **__):
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)
        except KeyboardInterrupt:
            raise ImportError("partially initialised") from None

    monkeypatch.setattr(ps.Design, "from_bytes", fails)
    result = run(*SPENDING["sketch"])
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert result.stderr.count(NOTHING) == 1


@pytest.mark.parametrize("command", SPENDING.values(), ids=SPENDING)
def test_a_failure_says_in_its_one_line_what_it_cost(folder, command):
    holes = np.load("data.npy")
    holes[-1, 0] = np.nan
    np.save("data.npy", holes)
    result = run(*command)
    assert result.exit_code == DATA
    (line,) = result.stderr.splitlines()
    where = "table: column 'x1':" if command[0] == "regress" else "column number 0 (from 0) has a"
    assert line.startswith(f"Error: {where} missing")
    assert line.endswith(NOTHING)


def test_a_failure_after_the_model_was_written_says_that(folder, monkeypatch):
    def full(*_):
        raise AccessError("report.html: no space left")

    seams.set(monkeypatch, "formats.write_file", full)
    result = run(*SPENDING["cluster"], "--report", "report.html")
    assert result.exit_code == DATA
    assert "out.json was written before that: the budget counts as spent" in result.stderr
    assert ClusterModel.load("out.json").n_clusters == 2


def test_a_wrong_option_spends_nothing(folder):
    result = run(*SPENDING["cluster"], "--loss", "distances")
    assert result.exit_code == USAGE
    assert NOTHING in result.stderr


def test_other_commands_write_nothing_and_do_not_speak_of_spending(folder, monkeypatch):
    def stop(*_, **__):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)

    run(*SPENDING["sketch"])
    seams.set(monkeypatch, "html.report_page", stop)
    before = names(folder)
    result = run("learn", "out.sketch", "-k", 2, "-o", "model.json", "--report", "report.html")
    assert result.exit_code == 1
    assert "spent" not in result.stderr
    assert names(folder) == before


def test_a_model_and_its_report_are_two_files(folder):
    run(*SPENDING["sketch"])
    result = run("learn", "out.sketch", "-k", 2, "-o", "both", "--report", "both")
    assert result.exit_code == DATA
    assert "given twice" in result.stderr
    Path("notes.txt").write_text("mine")
    result = run("learn", "out.sketch", "-k", 2, "-o", "notes.txt")
    assert result.exit_code == DATA
    assert "--force" not in result.stderr
    assert Path("notes.txt").read_text() == "mine"


# ---------------------------------------------------------------- signals


def test_when_it_is_too_late_a_signal_changes_nothing():
    with stoppable(None) as stop:
        stop.finish()
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
        stop.raise_if_stopped()
    assert not stop.was_signalled


def test_the_last_moment_to_stop():
    with stoppable(None) as stop:
        with suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(1)
        with pytest.raises(KeyboardInterrupt):
            stop.finish()


def test_a_process_that_has_begun_nothing_ends_at_once():
    program = (
        "from privsketch.cli.shell.stopping import Stop; import os, signal\n"
        "Stop('early').install(); os.kill(os.getpid(), signal.SIGINT); print('went on')"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr == f"Aborted! {NOTHING}\n"


def test_the_signals_are_given_back():
    before = signal.getsignal(signal.SIGINT)
    run("--version")
    assert signal.getsignal(signal.SIGINT) is before
    assert not isinstance(before, Stop)


@pytest.mark.mostly_slow(quick_every=6)
@pytest.mark.parametrize("after", [0, 0.15, 0.45, 0.8, 1.2, 1.7])
@pytest.mark.parametrize("engine", ["threads", "pool"])
def test_real_interrupts(folder, after, engine):
    """benchmarks/interruptions.py has many more."""
    process = subprocess.Popen(
        [PRIVSKETCH, *map(str, SPENDING["sketch"]), "--engine", engine],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_until_it_listens(process)
    time.sleep(after)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    said = process.communicate()[1]
    assert "Traceback" not in said
    if process.returncode == 0:  # it was too late
        assert ps.Sketch.load("out.sketch").design.dim == 3
    else:
        assert said.count("nothing was spent") == 1
        assert names(folder) == {"data.npy", "study.json"}


# ---------------------------------------------------------------- standard output


def test_a_minus_is_standard_output(folder):
    made = run("design", "-k", 2, "--box", -4, 4, "--dim", 3, *COST, "-o", "-")
    Path("piped.json").write_bytes(made.stdout_bytes)
    design = ps.Design.load("piped.json")
    assert "written to standard output" in made.stderr
    sketched = run("sketch", "piped.json", "data.npy", "-o", "-", "--source", "site")
    Path("piped.sketch").write_bytes(sketched.stdout_bytes)
    released = ps.Sketch.load("piped.sketch")
    assert released.design == design
    assert released.sources == ("site",)
    merged = run("merge", "piped.sketch", "-o", "-")
    Path("merged.sketch").write_bytes(merged.stdout_bytes)
    assert (ps.Sketch.load("merged.sketch").values == released.values).all()
    learned = run("learn", "piped.sketch", "-k", 2, "-o", "-", "--report", "report.html")
    Path("model.json").write_bytes(learned.stdout_bytes)
    assert ps.ClusterModel.load("model.json").n_clusters == 2
    assert "written to report.html" in learned.stderr
    clustered = run(*SPENDING["cluster"][:-1], "-")
    Path("clusters.json").write_bytes(clustered.stdout_bytes)
    assert ClusterModel.load("clusters.json").n_clusters == 2
    assert clustered.exit_code == 0
    assert "-" not in names(folder)


@pytest.mark.slow
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_pipe_that_is_closed_early_may_have_been_read(folder, unbuffered):
    ps.Design.plan(
        n_components=2,
        domain=ps.Box(-4, 4, dim=3),
        budget=ps.Budget(1.0, 1e-6),
        n_features=60_000,
        random_state=0,
    ).save("study.json")
    process = subprocess.Popen(
        [PRIVSKETCH, *map(str, SPENDING["sketch"][:-1]), "-"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    assert process.stdout.read(10) == b"\x89privsk\n\x02\x00"
    process.stdout.close()
    said = process.stderr.read().decode()
    assert process.wait() != 0
    assert "part of the result may have been written: the budget counts as spent" in said
    assert "Traceback" not in said
    assert "nothing was spent" not in said


def test_a_sketch_without_a_name_has_a_source_of_its_own(folder):
    sources = set()
    for number in range(2):
        result = run(*SPENDING["sketch"][:-1], "-")
        Path(f"{number}.sketch").write_bytes(result.stdout_bytes)
        sources.update(ps.Sketch.load(f"{number}.sketch").sources)
    assert len(sources) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        [*SPENDING["release"][:-1], "-"],
        [*SPENDING["cluster"], "--report", "-"],
    ],
)
def test_what_must_be_a_file_is_no_stream(folder, arguments):
    before = names(folder)
    result = run(*arguments)
    assert result.exit_code == USAGE
    assert "name a file" in result.stderr
    assert NOTHING in result.stderr
    assert names(folder) == before


# ---------------------------------------------------------------- headers


def test_the_shell_says_whether_there_is_a_header(folder):
    records = np.load("data.npy")
    np.savetxt("bare.csv", records, delimiter=",")
    for command in (
        ["sketch", "study.json", "bare.csv", "-o", "a.sketch"],
        ["cluster", "bare.csv", "-k", 2, "--box", -4, 4, *COST, "-o", "a.json"],
        ["release", "bare.csv", "-k", 1, "--ball", 4, "--epsilon", 1, "-o", "a.npy"],
    ):
        refused = run(*command)
        assert refused.exit_code == DATA
        assert "--no-header for a record" in refused.stderr
        assert f"{records[0, 0]:.4f}" not in refused.stderr
        assert run(*command, "--no-header").exit_code == 0
        run(*command, "--header", "--force")
        wrong = run(*command, "--header", "--columns", "a,b,c", "--force")
        assert wrong.exit_code == DATA
        assert f"{records[0, 0]:.4f}" not in wrong.stderr  # even so it may be a record
    assert len(np.load("a.npy")) == len(records) - 1  # because somebody said so


@pytest.mark.slow
def test_names_of_a_header_are_published_where_somebody_states_them(folder):
    Path("named.csv").write_text("age,bmi\n" + "1,2\n" * 200)
    common = ["named.csv", "--epsilon", 1, "--box", 0, 3]
    for columns, published in ((None, False), ("age,bmi", True)):
        more = [] if columns is None else ["--columns", columns]
        for command in (
            ["cluster", *common, "-k", 2, "--delta", "1e-6", "-o", "m.json", "--report", "r.html"],
            ["cluster", *common, "-k", 2, "--delta", "1e-6", "-o", "m.json", "--method", "sketch"],
            ["release", *common, "-k", 1, "-o", "rows.npy"],
        ):
            result = run(*command, *more, "--force")
            assert result.exit_code == 0, result.output
            name = "rows.receipt.json" if command[0] == "release" else "m.json"
            assert ("bmi" in Path(name).read_text()) == published
        assert ("bmi" in Path("r.html").read_text()) == published


def test_an_interrupt_while_workers_start_comes_afterwards():
    from tests import seams

    _interrupts_later = seams.get("pool.interrupts_later")

    seen = []

    def interrupted():
        with _interrupts_later():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)
            seen.append("went on")

    with stoppable(None) as stop:
        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert stop.was_signalled
    assert seen == ["went on"]


@pytest.mark.parametrize("method", ["lloyd", "sketch", "pipeline"])
def test_words_of_a_header_are_in_no_error_of_a_command(folder, method):
    Path("words.csv").write_text("secretsmith,hiddenjones\n1,2\n1,abc\n")
    for command in (
        ["cluster", "words.csv", "-k", 1, "--box", 0, 3, *COST, "--method", method, "-o", "m.json"],
        ["release", "words.csv", "-k", 1, "--box", 0, 3, "--epsilon", 1, "-o", "rows.npy"],
    ):
        result = run(*command)
        assert result.exit_code == DATA
        assert "hiddenjones" not in result.output
        assert "secretsmith" not in result.output


def test_a_sketch_does_not_replace_its_own_records(folder):
    before = Path("data.npy").read_bytes()
    result = run("sketch", "study.json", "data.npy", "-o", "data.npy", "--force")
    assert result.exit_code == DATA
    assert "given twice" in result.stderr
    assert Path("data.npy").read_bytes() == before


@pytest.mark.slow
def test_a_second_interrupt_ends_a_pool_all_the_same(folder):
    for pause in (0.01, 0.05):
        process = subprocess.Popen(
            [PRIVSKETCH, *map(str, SPENDING["sketch"]), "--engine", "pool"],
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        wait_until_it_listens(process)
        time.sleep(1)
        for _ in range(3):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
            time.sleep(pause)
        said = process.communicate(timeout=60)[1]
        assert "Traceback" not in said


@pytest.mark.slow
def test_a_job_that_ignores_interrupts_goes_on(folder):
    line = f"trap '' INT; exec {PRIVSKETCH} sketch study.json data.npy -o out.sketch"
    process = subprocess.Popen(["sh", "-c", line], stdout=subprocess.PIPE, start_new_session=True)
    wait_until_it_listens(process)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert ps.Sketch.load("out.sketch").design.dim == 3


@pytest.mark.parametrize("what", ["sketch", "cluster", "regress", "release"])
def test_a_dry_run_needs_no_output_and_minds_none(folder, what):
    command = SPENDING[what]
    without = [word for word in command if word not in ("-o", command[-1])]
    dry = run(*without, "--dry-run")
    assert dry.exit_code == 0, dry.output
    assert "nothing was spent" in dry.stdout
    Path(command[-1]).write_text("old")
    assert run(*command, "--dry-run").exit_code == 0
    missing = run(*without)
    assert missing.exit_code == USAGE
    assert "Missing option '-o'" in missing.stderr


@pytest.mark.parametrize("what", ["cluster", "release"])
def test_a_domain_of_other_columns_says_how_to_choose_them(folder, what):
    command = [word for word in SPENDING[what] if word not in ("--box", "--ball", -4, 4)]
    result = run(*command, "--box", "0,0", "1,1")
    assert result.exit_code == DATA
    assert "name the columns to use with --columns" in result.stderr


def test_what_listens_first_imports_only_the_standard_library():
    """Signals that come before it listens end in a traceback: it must be there at once."""
    loaded = {
        name.partition(".")[0] for name in modules_after("import privsketch.cli.shell.stopping")
    }
    assert loaded - set(sys.stdlib_module_names) == {"privsketch", "lazy_loader"}
