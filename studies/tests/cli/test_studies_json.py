"""Answers of `study` and `collector` commands to machines, by the schemas in studies/docs/json."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import privsketch as ps
from privsketch_studies.cli.collector import collector
from privsketch_studies.cli.study import study
from studies.tests.server import serving
from tests import seams
from tests.commands import run, succeeded
from tests.json_examples import (
    cases,
    check_answer,
    check_failure,
    check_has_json,
    check_replaces_nothing,
    commands,
    listed_commands,
)

CARDS = ["h0.card", "h1.card", "h2.card", "c.card", "d.card"]
SEAL = ["--key", "h0.key", "--accept-alone", 9, "--trust", "a.pub"]
STORE = ["--store", "collector.db"]
TOKEN = ["--token-file", "north.token"]
VISITS = ["--ledger", "my.ledger", "--dataset", "visits"]
TALLY = ["s.study", "h0.ballot", "h1.ballot", "--list", "s.closed"]
# Runs of every command, at least one each, in a folder as `files` makes it. A new command gets a
# line here and a schema in studies/docs/json.
EXAMPLES = {
    "study demo": [["--records", 300, "-o", "sealed"]],
    "collector demo": [["--records", 300, "-o", "collector"]],
    "study check": [
        ["s.study", "h0.ballot", "--key", "a.study.key", "--trust", "a.pub", "-o", "c.checked"],
        ["s.study", "h0.ballot", "a.tally", "s.closed", "a.checked", "--trust", "b.pub"],
    ],
    "inspect": [[name] for name in ("s.study", "h0.card", "h0.ballot", "s.closed", "a.tally")],
    "study enrol": [
        ["study.json", "--key", "my.key", "--accept-alone", 0.25, "-o", "my.card"],
        ["study.json", "--key", "my.key", "--teller", "-o", "my-teller.card"],
    ],
    "study make": [["study.json", *CARDS, "--colluding", 1, "--min-holders", 2, "-o", "t.study"]],
    "study show": [["s.study"], ["t.study", "--me", "a.pub"]],
    "study accept": [["t.study", "--key", "c.key"]],
    "study seal": [
        ["s.study", "data.npy", *SEAL, "-o", "again.ballot"],
        ["s.study", "data.npy", *SEAL, "--dry-run"],
        ["s.study", "data.npy", *SEAL, "--dry-run", *VISITS],
    ],
    "study close": [["s.study", "h0.ballot", "h1.ballot", "--key", "a.key", "-o", "again.closed"]],
    "study tally": [[*TALLY, "--key", "b.study.key", "-o", "b.tally"]],
    "study join": [["s.study", "a.tally", "b.tally", "-o", "total.sketch"]],
    "study destroy": [["s.study", "--tally", "a.tally", "--tally", "b.tally"]],
    "study rehearse": [["s.study"]],
    "study void": [["v.study", "--key", "e.key", "--study-key", "e.study.key", "-o", "e.void"]],
    "study settle": [
        ["v.study", "--holder", "h0", "--void", "e.void", "--trust", "e", *VISITS],
        ["s.study", "--holder", "h0", "--total", "total.sketch", *VISITS],
    ],
    "collector serve": [["--check", *STORE]],
    "collector add-member": [
        ["fresh", *STORE],
        ["max", "--makes-studies", "--token-file", "max.token", *STORE],
        ["rita", "--known", "--study", "heart", "--role", "reader", *STORE],
    ],
    "collector add-study": [["lungs", "study.json", "--owner", "olga", "--sealed", *STORE]],
    "collector renew-token": [["rita", *STORE]],
    "collector push": [["@heart", "a.sketch", *TOKEN], ["@heart", "a.sketch", *TOKEN]],
    "collector pull": [["@heart", "-o", "pulled", *TOKEN]],
    "collector show": [STORE],
    "collector check": [STORE],
    "collector backup": [["all.backup", *STORE]],
    "collector restore": [["made.backup", "--store", "restored.db"]],
    "collector revoke": [["rolf", *STORE]],
}
DEMOS = ("study demo", "collector demo")  # outputs of which are folders
SLOW = {
    "study demo": pytest.mark.slow,
    "collector demo": (pytest.mark.slow, pytest.mark.exhaustive),
}
NEW_FILES = {"collector backup": 0}  # the index of an argument that names a new file
NO_NEW_FILES = ("collector pull",)  # which keeps its folder up to date
ADDRESS = {}  # of a study at a collector that runs while these tests do
COMMANDS = {**commands(study, "study"), **commands(collector, "collector")}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return a folder with the files of a study and a collector; commands write beside them."""
    folder = tmp_path_factory.mktemp("files")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("PRIVSKETCH_HOME", str(folder / "home"))
        make_table()
        make_sealed()
        make_collector()
        with serving(str(folder / "collector.db")) as address:
            ADDRESS["@heart"] = f"{address}/studies/heart"
            yield folder


def make_table():
    """Make records, a design, a sketch, a ledger and a key."""
    np.save("data.npy", np.random.default_rng(0).normal(size=(500, 3)))
    design = ps.Design.plan(
        n_components=2,
        domain=ps.Box(-4, 4, dim=3),
        budget=ps.Budget(1.0, 1e-6),
        n_features=40,
        random_state=0,
    )
    design.save("study.json")
    ps.sketch("data.npy", design, source="a").save("a.sketch")
    ps.Ledger.create("my.ledger").add("visits", epsilon=3, delta=1e-5)
    succeeded("key", "make", "my.key", "--no-passphrase")


def make_sealed():
    """Make a study with two ballots and one of two tallies, and a study that will be void."""
    for name in ("h0", "h1", "h2", *"abcdef"):
        key = f"{name}.key"
        succeeded("key", "make", key, "--no-passphrase")
        role = ["--teller"] if len(name) == 1 else ["--accept-alone", 9]
        succeeded("study", "enrol", "study.json", "--key", key, *role, "-o", f"{name}.card")
    for file, tellers in (("s.study", "ab"), ("v.study", "ef")):
        cards = [*CARDS[:3], *(f"{name}.card" for name in tellers)]
        limits = ["--colluding", 1, "--min-holders", 2]
        succeeded("study", "make", "study.json", *cards, *limits, "-o", file)
        for name in tellers:
            succeeded("study", "accept", file, "--key", f"{name}.key")
    succeeded("key", "trust", "e.pub")
    for n, ledger in ((0, VISITS), (1, [])):
        key = ["--key", f"h{n}.key", "--accept-alone", 9, "--trust", "a.pub"]
        succeeded("study", "seal", "s.study", "data.npy", *key, *ledger, "-o", f"h{n}.ballot")
    for name in "ab":
        key = ["--key", f"{name}.study.key", "--trust", "a.pub", "-o", f"{name}.checked"]
        succeeded("study", "check", "s.study", "h0.ballot", "h1.ballot", *key)
    close = ["s.study", "h0.ballot", "h1.ballot", "--key", "a.key", "-o", "s.closed"]
    succeeded("study", "close", *close)
    succeeded("study", "tally", *TALLY, "--key", "a.study.key", "-o", "a.tally")


def make_collector():
    """Make a store with a study and a site."""
    succeeded("collector", "add-member", "olga", "--makes-studies", *STORE)
    succeeded("collector", "add-study", "heart", "study.json", "--owner", "olga", *STORE)
    site = ["--study", "heart", "--role", "site", "--token-file", "north.token"]
    succeeded("collector", "add-member", "north", *site, *STORE)
    for name in ("rita", "rolf"):
        succeeded("collector", "add-member", name, *STORE)
    succeeded("collector", "backup", "made.backup", *STORE)


@pytest.mark.parametrize("name", ["study", "collector"])
def test_the_command_line_lists_both_groups(name):
    assert f"  {name} " in run("--help").stdout
    assert "Usage:" in succeeded(name, "-h").stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_takes_json_and_has_a_schema_and_an_example(name):
    check_has_json(name, COMMANDS[name], EXAMPLES)


def test_every_command_is_listed_in_the_docs():
    page = Path(__file__).parents[2] / "docs" / "commands.md"
    assert sorted(listed_commands(page)) == sorted(COMMANDS)


@pytest.fixture
def one_process(monkeypatch):
    """The demo's commands run here: tests/check_wheel.py starts them in processes of their own."""

    def run_here(person, *arguments):
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(person.folder)
            patch.setenv("PRIVSKETCH_HOME", str(Path("state").resolve()))
            return succeeded(*arguments).stdout

    seams.set(monkeypatch, "demo.Person.run", run_here)
    seams.set(monkeypatch, "demo.ThreadPoolExecutor", lambda _: ThreadPoolExecutor(1))


@pytest.mark.in_order
@pytest.mark.parametrize(("command", "arguments"), cases(EXAMPLES, SLOW))
def test_every_command_answers_by_its_schema(files, one_process, command, arguments):
    check_answer(command, *(ADDRESS.get(argument, argument) for argument in arguments))


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_command_fails_by_the_schema_of_failures(files, name):
    check_failure(name)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        case
        for case in cases(EXAMPLES)
        if case.values[0] in NEW_FILES
        or ("-o" in case.values[1] and case.values[0] not in NO_NEW_FILES)
    ],
)
def test_no_command_replaces_a_file_unasked(files, name, arguments):
    new_file, is_folder = NEW_FILES.get(name), name in DEMOS
    error = check_replaces_nothing(name, arguments, new_file=new_file, is_folder=is_folder)
    if name not in ("study seal", "study tally"):  # which refuse to do again what was done before
        assert any(text in error for text in ("exists", "not empty"))
