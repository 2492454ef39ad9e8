"""What commands tell machines: one object by a schema of docs/json, for every command there is."""

import json
import re
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import jsonschema
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privsketch as ps
from privsketch.cli.main import main
from privsketch.ledger import Cost
from tests import seams
from tests.answers import SCHEMAS, validated
from tests.commands import DATA, INTEGRITY, USAGE, run, succeeded
from tests.json_examples import (
    answer,
    cases,
    check_answer,
    check_failure,
    check_has_json,
    check_replaces_nothing,
    commands,
    listed_commands,
)
from tests.schema_visitor import Visitor

pytestmark = pytest.mark.slow  # together more than a twentieth of a quick run

COST = ["--epsilon", 1, "--delta", "1e-6"]
BOX = ["--box", -4, 4]
KMEANS = ["data.npy", "-k", 2, *BOX, *COST]
# Runs of every command, at least one each, in a folder as `files` makes it. A new command gets a
# line here and a schema in docs/json.
SCHEMA = ["--schema", "schema.json"]
PERIOD = ["--period", "year", "--period-epsilon", 0.5]
EXAMPLES = {
    "demo": [["--records", 100, "-o", "demo"]],
    "schema draft": [
        ["table.parquet", "-o", "draft.json"],
        ["one.csv", "-o", "one.json"],
        ["table.parquet", "--look", "-o", "proposed.json"],
    ],
    "schema accept": [["guessed.json", "--columns", "age", "--yes"], ["guessed.json", "--yes"]],
    "schema edit": [["edited.json"]],
    "schema check": [["schema.json"], ["schema.json", "table.parquet"]],
    "check": [["schema.json", "table.parquet"], ["study.json", "data.npy"]],
    "bounds": [
        ["table.parquet", "--columns", "age", "--epsilon", 1, "--person", "patient", *more]
        for more in ([], ["--dry-run"])
    ],
    "plan": [
        ["-k", 2, *BOX, "--dim", 3, *COST],
        ["--task", "regression", *BOX, "--dim", 3, *COST],
    ],
    "design": [
        ["-k", 2, "--schema", "schema.json", *COST, "-o", "new.json"],
        ["-k", 2, *BOX, "--dim", 3, "--epsilon", 50, "--delta", 0, "-o", "weak.json"],
        ["--task", "pca", "-k", 1, "--ball", 4, "--dim", 3, *COST, "-o", "pca.json"],
        ["--task", "regression", "--target", "age", *SCHEMA, *COST, "-o", "line.json"],
        ["--task", "classification", *SCHEMA, *COST, "-o", "classes.json"],
    ],
    "sketch": [
        ["study.json", "data.npy", "-o", "new.sketch"],
        ["study.json", "data.npy", "--dry-run"],
    ],
    "merge": [["a.sketch", "b.sketch", "-o", "all.sketch"]],
    "compare": [["a.sketch", "b.sketch"], ["a.sketch", "b.sketch", "--report", "sources.html"]],
    "learn": [
        ["a.sketch", "--n-init", 1, "-o", "learned.json", "--report", "report.html"],
        ["a.sketch", "-k", 1],
        ["table.sketch", "-k", 1, "--task", "gaussian-mixture", "--n-init", 1],
        ["pca.sketch"],
        ["lines.sketch", "-o", "lines.json", "--report", "lines.html"],
        ["lines.sketch", "--task", "regression", "--target", "age", "--on", "day"],
        ["lines.sketch", "--task", "classification", "--target", "ward"],
        ["lines.sketch", "--task", "summary", "--by", "ward", "--report", "summary.html"],
    ],
    "regress": [
        ["table.parquet", *SCHEMA, *COST, "--target", "age", "-o", "r.json", "--report", "r.html"],
        ["table.parquet", *SCHEMA, *COST, "--target", "ward", "--on", "age", "-o", "c.json"],
        ["table.parquet", *SCHEMA, *COST, "--target", "ward=a", "-o", "label.json"],
        ["table.parquet", *SCHEMA, *COST, "--target", "age", "--dry-run"],
    ],
    "cluster": [
        [*KMEANS, "--method", "lloyd", "-o", "clusters.json", "--report", "clusters.html"],
        [*KMEANS, "--method", "lloyd", "--dry-run"],
        [*KMEANS, "--method", "sketch", "--dry-run"],
        [*KMEANS, "--method", "pipeline", "--records", 1e5, "--dry-run"],
        ["table.parquet", "--schema", "schema.json", "-k", 2, *COST, "-o", "units.json"],
    ],
    "ledger create": [["new.ledger"], ["zcdp.ledger", "--accounting", "zcdp"]],
    "ledger add": [
        ["my.ledger", "other", "--epsilon", 1, "--delta", 0],
        ["my.ledger", "yearly", "--epsilon", 1, "--delta", 0, *PERIOD],
    ],
    "ledger show": [
        ["my.ledger"],
        ["my.ledger", "visits", "--entries", "--report", "spending.html"],
        ["rho.ledger", "--entries"],
    ],
    "ledger approval": [["my.ledger", "visits", "--design", "study.json", "-o", "sheet.html"]],
    "ledger check": [["my.ledger"], ["rho.ledger", "--head", "@head"]],
    "ledger export": [["my.ledger"], ["rho.ledger", "-o", "export.json"]],
    "key make": [["new.key", "--no-passphrase"]],
    "key sign": [["study.json", "--key", "my.key"]],
    "key verify": [
        ["signed.json", "--trust", "my.pub"],
    ],
    "key trust": [["my.pub"], ["--list"], ["--forget", "my"]],
    "release": [
        *(
            ["data.npy", "-k", 1, "--ball", 4, "--epsilon", 1, *more]
            for more in (["-o", "rows.npy", "--publish-matrix", "m.npy"], ["--dry-run"])
        ),
    ],
    "inspect": [
        [name]
        for name in (
            *("study.json", "schema.json", "a.sketch", "model.json", "mixture.json", "pca.model"),
            "line.model",
            *("published.npy", "published.receipt.json", "my.pub"),
        )
    ],
}
SLOW = {"demo": pytest.mark.slow}
HEAD = {}  # of the ledger rho.ledger, which `make_files` makes
NEW_FILES = {"ledger create": 0, "key make": 0}  # the index of an argument that names a new file
COMMANDS = commands(main)  # without those of other distributions


def with_head(arguments):
    """Return the arguments with the ledger's head where "@head" stands."""
    return [HEAD.get(argument, argument) for argument in arguments]


def make_files():
    rng = np.random.default_rng(0)
    np.save("data.npy", rng.normal(size=(500, 3)))
    Path("one.csv").write_text("age;income\n1;2\n")
    age, ward = rng.uniform(20, 90, 600), rng.choice(["a", "b"], 600)
    day = np.datetime64("2020-01-01") + rng.integers(0, 365, 600)
    patient = [f"p{number // 2}" for number in range(600)]
    pq.write_table(
        pa.table({"age": age, "ward": ward, "day": pa.array(day), "patient": patient}),
        "table.parquet",
    )
    schema = ps.Schema(
        (
            ps.Number("age", 18, 100, unit="years"),
            ps.Category("ward", ("a", "b")),
            ps.Date("day", "2020-01-01", "2020-12-31"),
        ),
        person="patient",
    )
    schema.save("schema.json")
    marked = schema.to_json()
    for column in marked["columns"]:
        column["guessed"] = ["kind"]
    Path("guessed.json").write_text(json.dumps(marked))
    Path("edited.json").write_text(json.dumps(marked))
    budget = ps.Budget(1.0, 1e-6)
    box, ball = ps.Box(-4, 4, dim=3), ps.Ball(dim=3, radius=4.0)
    small = {"budget": budget, "n_features": 40, "random_state": 0}
    design = ps.Design.plan(n_components=2, domain=box, **small)
    design.save("study.json")
    first = ps.sketch("data.npy", design, source="a")
    first.save("a.sketch")
    ps.sketch("data.npy", design, source="b").save("b.sketch")
    ps.learn_kmeans(first, 2, n_init=1).save("model.json")
    ps.learn_gaussian_mixture(first, 2, covariance_type="spherical", n_init=1).save("mixture.json")
    of_table = ps.Design.plan(n_components=2, domain=schema, **small)
    ps.sketch("table.parquet", of_table, source="t").save("table.sketch")
    of_parts = ps.Design.plan(
        task="pca", n_components=1, domain=ball, budget=budget, random_state=0
    )
    parts = ps.sketch("data.npy", of_parts, source="p")
    parts.save("pca.sketch")
    ps.learn_pca(parts, 1).save("pca.model")
    of_lines = ps.Design.plan(task="regression", target="age", domain=schema, budget=budget)
    ps.sketch("table.parquet", of_lines, source="l").save("lines.sketch")
    ps.learn_regression(ps.Sketch.load("lines.sketch")).save("line.model")
    ledger = ps.Ledger.create("my.ledger")
    ledger.add("visits", epsilon=3, delta=1e-5)
    ps.sketch("data.npy", design, source="v", ledger=("my.ledger", "visits"))
    ledger = ps.Ledger.create("rho.ledger", "zcdp")
    ledger.add("visits", epsilon=3, delta=1e-5, person="patient", without_rho=0.25)
    ledger.reserve("visits", Cost(0.125, 1e-7, 1e-4, unit=schema.unit), what="a model")
    succeeded("key", "make", "my.key", "--no-passphrase")
    design.save("signed.json")
    succeeded("key", "sign", "signed.json", "--key", "my.key")
    succeeded("release", "data.npy", "-k", 1, "--ball", 4, "--epsilon", 1, "-o", "published.npy")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Records and what can be made of them; commands write beside them."""
    folder = tmp_path_factory.mktemp("files")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("PRIVSKETCH_HOME", str(folder / "home"))
        make_files()
        HEAD["@head"] = ps.Ledger("rho.ledger").head
        yield folder


# ---------------------------------------------------------------- the whole tree


def test_every_schema_is_one():
    for schema in SCHEMAS.values():
        jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_takes_json_and_has_a_schema_and_an_example(name):
    check_has_json(name, COMMANDS[name], EXAMPLES)


def test_every_command_is_listed_in_the_docs():
    page = Path(__file__).parents[2] / "docs" / "commands.md"
    assert sorted(listed_commands(page)) == sorted(COMMANDS)


@pytest.fixture
def saving_browser(monkeypatch):
    """A browser that saves a form as soon as it sees one."""

    def save(page):
        text = Path(url2pathname(urlsplit(page).path)).read_text(encoding="utf-8")
        visitor = Visitor(re.search(r"url=([^\"]+)", text)[1])
        visitor.enter()
        assert visitor.save(texts={"0.kind": "flag", "1.kind": "leave out", "2.kind": "leave out"})

    seams.set(monkeypatch, "editing.open_browser", save)


@pytest.mark.in_order
@pytest.mark.parametrize(("command", "arguments"), cases(EXAMPLES, SLOW))
def test_every_command_answers_by_its_schema(files, saving_browser, command, arguments):
    check_answer(command, *with_head(arguments))


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_command_fails_by_the_schema_of_failures(files, name):
    check_failure(name)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        case
        for case in cases(EXAMPLES)
        if case.values[0] in NEW_FILES or {"-o", "--report"} & set(case.values[1])
    ],
)
def test_no_command_replaces_a_file_unasked(files, name, arguments):
    new_file, is_folder = NEW_FILES.get(name), name == "demo"
    error = check_replaces_nothing(name, arguments, new_file=new_file, is_folder=is_folder)
    assert any(text in error for text in ("exists", "not empty"))


# ---------------------------------------------------------------- what answers hold


def test_a_sketch_tells_its_receipt_and_no_count_of_records(files):
    found = answer("sketch", "study.json", "data.npy", "-o", "s.sketch", "--source", "site")
    sketch = ps.Sketch.load("s.sketch")
    assert found["written"] == ["s.sketch"]
    assert found["fingerprint"] == sketch.design.fingerprint
    assert found["receipt"]["epsilon"] == found["cost"]["epsilon"] == 1.0
    assert found["source"] == "site"
    assert found["n_records"] == sketch.n_records  # a noisy one
    assert {"n_rows", "seconds", "clipped"}.isdisjoint(found)


def test_no_released_answer_has_the_exact_number_of_records(files, fixed_noise):
    """There are 487; noisy counts, which may meet that by chance, are left out."""
    np.save("odd.npy", np.random.default_rng(1).normal(size=(487, 3)))
    answers = [
        answer("sketch", "study.json", "odd.npy", "-o", "odd.sketch"),
        answer("cluster", "odd.npy", *KMEANS[1:], "--method", "lloyd", "-o", "odd.json"),
        answer("bounds", "odd.npy", "--columns", "0,1", "--epsilon", 1),
    ]
    answers[0].pop("n_records")
    answers[1]["model"].pop("n_records")

    def numbers(value):
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, list):
            return [number for one in value for number in numbers(one)]
        return [value] if isinstance(value, int | float) else []

    for found in answers:
        assert 487 not in numbers(found)
        assert "487" not in json.dumps([found.get("notes"), found.get("cautions")])


def test_a_model_is_told_as_its_file_has_it_and_in_units(files):
    found = answer("learn", "table.sketch", "-k", 2, "-o", "in-units.json")
    model = ps.ClusterModel.load("in-units.json")
    assert found["model"] == json.loads(Path("in-units.json").read_text())
    table = model.table()
    for row, one in zip(found["results"], table.to_dict("records"), strict=True):
        assert row["weight"] == one["weight"]
        assert row["values"]["age"] == pytest.approx(one["age"])
        assert row["values"]["day"] == str(one["day"].date())
        assert row["standard_errors"].keys() == row["values"].keys()
    assert found["concerns"] == list(model.concerns)
    assert found["model"]["cost_ratio"]["estimate"] == model.cost_ratio.estimate


def test_a_look_is_marked_as_private(files):
    found = answer("check", "schema.json", "table.parquet")
    assert found["private"] is True
    assert "holder" in found["notice"]
    assert (found["n_rows"], found["n_persons"]) == (600, 300)


def test_a_look_that_finds_faults_tells_them_beside_the_error(files):
    pq.write_table(pa.table({"age": [1.0], "ward": ["a"]}), "narrow.parquet")
    result = run("check", "schema.json", "narrow.parquet", "--json")
    assert result.exit_code == DATA
    found = validated(json.loads(result.stdout), "check")
    assert found["readable"] is False
    assert found["refusals"]
    assert found["error"]["kind"] == "data"


def test_a_schema_with_open_places_tells_them_beside_the_error(files):
    succeeded("schema", "draft", "table.parquet", "-o", "open.json")
    result = run("schema", "check", "open.json", "--json")
    assert result.exit_code == USAGE
    found = validated(json.loads(result.stdout), "schema-check")
    assert found["ready"] is False
    assert len(found["open"]) > 3
    result = run("schema", "check", "schema.json", "data.npy", "--json")
    assert result.exit_code == DATA
    assert validated(json.loads(result.stdout), "schema-check")["schema"] is not None


def test_a_ledger_with_problems_tells_them_beside_the_error(files):
    result = run("ledger", "check", "one.csv", "--json")
    assert result.exit_code == INTEGRITY
    found = validated(json.loads(result.stdout), "ledger-check")
    assert (found["is_whole"], found["head"]) == (False, None)
    assert "not a privsketch ledger" in found["problems"][0]
    assert found["error"]["kind"] == "integrity"
    assert "spent" not in result.stderr


def test_files_that_are_refused_are_told_beside_the_error(files):
    names = ["signed.json", "a.sketch", "missing.sketch"]
    result = run("key", "verify", *names, "--trust", "my.pub", "--json")
    assert result.exit_code == INTEGRITY
    found = validated(json.loads(result.stdout), "key-verify")
    assert [one["file"] for one in found["files"]] == names
    assert [one["is_valid"] for one in found["files"]] == [True, False, False]
    assert not found["is_valid"]
    assert found["error"]["kind"] == "integrity"
    assert "spent" not in result.stderr


def test_files_that_are_missing_are_no_wrong_signatures(files):
    result = run("key", "verify", "signed.json", "missing.sketch", "--trust", "my.pub", "--json")
    assert result.exit_code == DATA
    found = validated(json.loads(result.stdout), "key-verify")
    assert [one["is_valid"] for one in found["files"]] == [True, False]
    assert found["error"]["message"].startswith("missing.sketch: ")


def test_what_a_stranger_signed_is_told_to_machines(files):
    succeeded("key", "trust", "my.pub")
    assert answer("inspect", "signed.json")["signer"]["name"] == "my"
    ps.Key.generate("stranger").sign("b.sketch")
    found = answer("inspect", "b.sketch")
    assert found["signer"] is None
    assert any("not pinned" in text for text in found["cautions"])


def test_a_dry_run_tells_the_forecast_and_writes_nothing(files):
    before = sorted(Path().iterdir())
    found = answer("sketch", "study.json", "data.npy", "--dry-run")
    assert found["forecast"]["verdict"] in ("good", "rough", "hopeless")
    assert found["estimate"]["seconds_per_million_records"] > 0
    assert "written" not in found
    assert sorted(Path().iterdir()) == before


def test_a_dry_run_of_cluster_tells_how_many_records_are_enough(files):
    arguments = ["cluster", *KMEANS, "--method", "cells", "--dry-run"]
    found = answer(*arguments)
    assert found["expected_ratio"] is None
    assert found["enough_records"] > 10
    assert answer(*arguments, "--records", 1e6)["expected_ratio"] < 1.15


def test_cautions_are_told_to_machines_and_people(files):
    arguments = ["design", "-k", 2, *BOX, "--dim", 3, "--epsilon", 50, "--delta", 0, "--force"]
    result = succeeded(*arguments, "-o", "weak.json", "--json")
    (caution,) = [text for text in json.loads(result.stdout)["cautions"] if "epsilon" in text]
    assert caution in result.stderr


def test_numbers_that_are_not_finite_are_null():
    from privsketch.cli import plain

    values = {"a": np.float64("nan"), "b": (np.int64(1), float("inf")), 3: np.array([1.5, np.inf])}
    assert plain(values) == {"a": None, "b": [1, None], "3": [1.5, None]}


# ---------------------------------------------------------------- one object, whatever happens


@pytest.mark.parametrize(
    "arguments",
    [
        ["design", "-k", 2, *BOX, "--dim", 3, *COST],
        ["sketch", "study.json", "data.npy"],
        ["merge", "a.sketch"],
        ["learn", "a.sketch"],
        ["cluster", *KMEANS],
        ["release", "data.npy", "-k", 1, "--ball", 4, "--epsilon", 1],
        ["schema", "draft", "table.parquet"],
        ["ledger", "export", "my.ledger"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_result_and_an_answer_do_not_share_standard_output(files, spent, arguments):
    result = run(*arguments, "-o", "-", "--json")
    assert result.exit_code == USAGE
    assert validated(json.loads(result.stdout), "failure")["error"]["spent"] == "nothing"
    assert spent == []


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["--nonsense"], ["schema", "nonsense"]], ids=str
)
def test_where_there_is_no_command_there_is_a_failure(arguments):
    result = run(*arguments, "--json")
    assert result.exit_code == USAGE
    assert validated(json.loads(result.stdout), "failure")["error"]["kind"] == "usage"
    assert "nothing was spent" in result.stderr


def test_a_file_that_is_called_json_is_none(files):
    result = run("inspect", "--", "--json")
    assert result.exit_code == DATA
    assert result.stdout == ""
    titled = run("learn", "a.sketch", "-k", 1, "--title", "--json")  # which is the title
    assert titled.exit_code == 0
    assert titled.stdout.startswith("k-means")


def test_without_json_nothing_has_changed(files):
    assert run("inspect", "study.json").stdout.startswith("design ")
