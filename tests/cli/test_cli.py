"""The command line: the life of a sketch through files, and what goes wrong on the way."""

import json
import re
import subprocess
import sys
from dataclasses import replace

import click
import numpy as np
import pytest

import privsketch as ps
from privsketch.cli.main import main
from tests.commands import DATA, INTEGRITY, USAGE, refused, run, succeeded

COMMANDS = (
    *("demo", "cluster", "regress", "release", "schema", "check", "bounds"),
    *("plan", "design", "sketch", "merge", "compare", "learn"),
    *("ledger", "inspect", "key"),
)
DESIGN = {
    "-k": "2",
    "--box": "-4 4",
    "--dim": "3",
    "--epsilon": "1",
    "--delta": "1e-6",
    "--records": "1000",
    "--seed": "7",
}


def design_arguments(**changes):
    """Arguments of `privsketch design`; None leaves an option out."""
    stated = {name if name.startswith("-") else f"--{name}": v for name, v in changes.items()}
    options = {**DESIGN, **stated}
    pairs = ((name, value) for name, value in options.items() if value is not None)
    return ["design", *(word for name, value in pairs for word in (name, *str(value).split()))]


def write_table(path, seed=0, n_records=300, header="a,b,c"):
    rng = np.random.default_rng(seed)
    centers = np.array([[-2.0, -2.0, -2.0], [2.0, 2.0, 2.0]])
    records = centers[rng.integers(2, size=n_records)] + 0.3 * rng.normal(size=(n_records, 3))
    lines = [header, *(",".join(map(repr, row)) for row in records.tolist())]
    path.write_text("\n".join(lines) + "\n")
    return records


@pytest.fixture
def study(folder):
    """A folder with a design and the tables of two sites."""
    assert run(*design_arguments(), "-o", "study.json").exit_code == 0
    write_table(folder / "site-1.csv", seed=1)
    write_table(folder / "site-2.csv", seed=2)
    return folder


@pytest.fixture
def sketches(study):
    for name in ("site-1", "site-2"):
        assert run("sketch", "study.json", f"{name}.csv", "-o", f"{name}.sketch").exit_code == 0
    return study


def refused_in_one_line(folder, *arguments, code=USAGE):
    line = refused(folder, *arguments, code=code)
    assert run(*arguments).stderr.strip() == line
    return line


# ---------------------------------------------------------------- the whole story


@pytest.mark.slow
def test_the_whole_story(sketches):
    merged = run("merge", "site-1.sketch", "site-2.sketch", "-o", "all.sketch")
    assert merged.exit_code == 0
    assert "epsilon = 1, delta = 1e-06" in merged.stdout
    learned = run("learn", "all.sketch", "-k", 2, "-o", "model.json", "--report", "report.html")
    assert learned.exit_code == 0
    assert "written to model.json" in learned.stdout
    assert "written to report.html" in learned.stdout
    assert (sketches / "report.html").read_text().startswith("<!doctype html>")
    for name, word in (
        ("study.json", "design"),
        ("site-1.sketch", "sketch"),
        ("all.sketch", "2 release(s): site-1, site-2"),
        ("model.json", "k-means"),
    ):
        told = run("inspect", name)
        assert told.exit_code == 0
        assert word in told.stdout
        assert "epsilon = 1" in told.stdout
        assert "one record" in told.stdout


def test_the_clusters_of_a_clear_case_are_found(study, fixed_noise):
    write_table(study / "large.csv", n_records=20_000)
    run("sketch", "study.json", "large.csv", "-o", "large.sketch")
    assert run("learn", "large.sketch", "-o", "model.json", "--n-init", 1).exit_code == 0
    centers = ps.ClusterModel.load("model.json").centers
    assert np.allclose(np.sort(centers, axis=0), [[-2, -2, -2], [2, 2, 2]], atol=0.3)


def test_the_number_of_clusters_may_come_from_the_sketch(study, fixed_noise):
    write_table(study / "large.csv", n_records=20_000)
    run("sketch", "study.json", "large.csv", "-o", "large.sketch")
    learned = run("learn", "large.sketch", "-k", "auto", "--max-clusters", 4, "-o", "model.json")
    assert learned.exit_code == 0
    assert ps.ClusterModel.load("model.json").n_clusters == 2
    assert "precision   standard errors" in learned.stdout


@pytest.mark.slow
def test_the_same_sketch_gives_clusters_and_a_mixture(study, fixed_noise):
    arguments = design_arguments(task="gaussian-mixture", **{"covariance-type": "diag"})
    assert run(*arguments, "-o", "mixture.json").exit_code == 0
    write_table(study / "large.csv", n_records=20_000)
    run("sketch", "mixture.json", "large.csv", "-o", "large.sketch")
    mixed = ("--covariance-type", "diag", "-o", "mixture-model.json", "--report", "mixture.html")
    learned = run("learn", "large.sketch", "-k", 2, *mixed)
    assert learned.exit_code == 0, learned.output
    model = ps.GaussianMixtureModel.load("mixture-model.json")
    assert np.allclose(np.sort(model.means, axis=0), [[-2, -2, -2], [2, 2, 2]], atol=0.3)
    assert "Private Gaussian mixture" in (study / "mixture.html").read_text()
    assert "covariances diag" in run("inspect", "mixture-model.json").stdout
    clusters = run("learn", "large.sketch", "--task", "kmeans", "-k", 2, "-o", "model.json")
    assert clusters.exit_code == 0
    assert ps.ClusterModel.load("model.json").n_clusters == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-k", "auto", "--task", "gaussian-mixture"), "a number of Gaussians"),
        (("--covariance-type", "full"), "--covariance-type does not go with --task kmeans"),
        (("--task", "gaussian-mixture", "--decoder", "joint"), "--decoder does not go"),
        (("--task", "gaussian-mixture", "--max-clusters", "3"), "--max-clusters does not go"),
        (("-k", "several"), "not a whole number or auto"),
        (("-k", "3", "--max-clusters", "5"), "--max-clusters 5:"),
    ],
)
def test_options_that_do_not_go_together_are_refused(sketches, arguments, words):
    assert words in refused(sketches, "learn", "site-1.sketch", *arguments)


def test_a_model_never_replaces_a_design(sketches):
    before = (sketches / "study.json").read_bytes()
    assert "study.json" in refused(
        sketches, "learn", "site-1.sketch", "-o", "study.json", code=DATA
    )
    assert (sketches / "study.json").read_bytes() == before


def test_a_sketch_is_named_after_its_file_unless_told(sketches):
    assert ps.Sketch.load("site-1.sketch").sources == ("site-1",)
    run("sketch", "study.json", "site-1.csv", "-o", "x.sketch", "--source", "north")
    assert ps.Sketch.load("x.sketch").sources == ("north",)


def test_the_command_line_gives_what_python_gives(study, no_noise):
    run("sketch", "study.json", "site-1.csv", "site-2.csv", "-o", "both.sketch", "--threads", 1)
    design = ps.Design.load("study.json")
    tables = [write_table(study / "x.csv", seed=seed) for seed in (1, 2)]
    expected = ps.sketch(np.concatenate(tables), design)
    assert ps.Sketch.load("both.sketch").values.tolist() == expected.values.tolist()


def test_columns_are_found_by_the_names_in_the_design(folder, no_noise):
    run(*design_arguments(columns="a,b,c", dim=None), "-o", "study.json")
    records = write_table(folder / "permuted.csv", header="c,a,b")
    assert run("sketch", "study.json", "permuted.csv", "-o", "p.sketch").exit_code == 0
    expected = ps.sketch(records[:, [1, 2, 0]], ps.Design.load("study.json"))
    assert ps.Sketch.load("p.sketch").values.tolist() == expected.values.tolist()


def test_columns_are_found_by_the_names_given(study, no_noise):
    records = write_table(study / "permuted.csv", header="c,a,b")
    run("sketch", "study.json", "permuted.csv", "-o", "p.sketch", "--columns", "a, b,c")
    expected = ps.sketch(records[:, [1, 2, 0]], ps.Design.load("study.json"))
    assert ps.Sketch.load("p.sketch").values.tolist() == expected.values.tolist()


def test_force_replaces_a_sketch(sketches):
    before = ps.Sketch.load("site-1.sketch").ids
    again = run("sketch", "study.json", "site-1.csv", "-o", "site-1.sketch", "--force")
    assert again.exit_code == 0
    assert ps.Sketch.load("site-1.sketch").ids != before


def test_costs_add_for_the_same_records_if_told(sketches):
    run("sketch", "study.json", "site-1.csv", "-o", "again.sketch", "--source", "site-1")
    told = run("merge", "site-1.sketch", "again.sketch", "--same-records", "-o", "all.sketch")
    assert told.exit_code == 0
    assert ps.Sketch.load("all.sketch").receipt.epsilon == 2.0


def test_missing_values_are_centerd_if_told(study):
    (study / "holes.csv").write_text("a,b,c\n1,,2\n")
    told = run("sketch", "study.json", "holes.csv", "-o", "h.sketch", "--missing", "center")
    assert told.exit_code == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"delta": "0"},
        {"delta": "0", "noise": "laplace"},
        {"neighbours": "replace"},
        {"feature-map": "one-bit"},
        {"frequencies": "gaussian", "scale": "0.5"},
        {"scale": "0.1,2"},
        {"count": "omitted"},
        {"box": None, "ball": "3", "center": "1,0,-1"},
        {"box": "-4,-4,-1 4,4,1", "dim": None},
        {"box": "-4 4", "dim": None, "columns": "a,b,c"},
        {"features": "64"},
    ],
    ids=str,
)
def test_designs_of_every_kind_can_be_made(folder, changes):
    made = run(*design_arguments(**changes), "-o", "study.json")
    assert made.exit_code == 0, made.stderr
    assert ps.Design.load("study.json").dim == 3
    assert "one record" in made.stdout


# ---------------------------------------------------------------- help


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)], ids=str)
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_every_command_explains_itself(command, flag):
    told = run(*command, flag)
    assert told.exit_code == 0
    assert "Usage:" in told.stdout


def test_help_lists_every_command():
    assert all(name in run("--help").stdout for name in COMMANDS)
    names = main.list_commands(click.Context(main))
    assert [name for name in names if name in main.commands] == [*COMMANDS]
    lines = run("--help").stdout.splitlines()
    assert len(lines) <= 30
    assert max(map(len, lines)) <= 80
    assert "..." not in "".join(lines[1:])


@pytest.mark.parametrize(
    ("old", "new"), [("keygen", "key make"), ("seal", "study seal"), ("serve", "collector serve")]
)
def test_old_names_of_commands_say_the_new_one(folder, old, new):
    assert f"privsketch {new}" in refused(folder, old, "file")


@pytest.mark.parametrize("command", [[], *[[name] for name in COMMANDS]])
def test_help_shows_examples_as_written(command):
    text = run(*command, "--help").stdout
    assert "\\b" not in text
    assert "\b" not in text


def test_the_version_is_told():
    told = run("--version")
    assert told.exit_code == 0
    assert ps.__version__ in told.stdout


def test_the_command_line_starts_without_heavy_imports():
    heavy = ["numpy", "scipy", "sklearn", "pyarrow", "opendp", "matplotlib", "rich", "llvmlite"]
    code = (
        "import sys, privsketch.cli.main as cli\n"
        "from click.testing import CliRunner\n"
        "assert CliRunner().invoke(cli.main, ['--help']).exit_code == 0\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


# ---------------------------------------------------------------- errors of design

BAD_DESIGNS = {
    "epsilon zero": ({"epsilon": "0"}, "--epsilon 0.0:"),
    "epsilon negative": ({"epsilon": "-1"}, "--epsilon -1.0:"),
    "epsilon above 100": ({"epsilon": "101"}, "--epsilon 101.0:"),
    "epsilon nan": ({"epsilon": "nan"}, "--epsilon nan:"),
    "epsilon infinite": ({"epsilon": "inf"}, "--epsilon inf:"),
    "delta one": ({"delta": "1"}, "--delta 1.0:"),
    "delta negative": ({"delta": "-1e-9"}, "--delta -1e-09:"),
    "delta nan": ({"delta": "nan"}, "--delta nan:"),
    "gaussian without delta": (
        {"delta": "0", "noise": "gaussian"},
        "--delta 0 with --noise gaussian",
    ),
    "no dim": ({"dim": None}, "dim"),
    "dim zero": ({"dim": "0"}, "--dim 0:"),
    "dim against columns": ({"columns": "a,b"}, "columns"),
    "column twice": ({"columns": "a,b,b"}, "twice"),
    "box turned around": ({"box": "4 -4"}, "low"),
    "ball of no size": ({"box": None, "ball": "0"}, "radius"),
    "ball of negative size": ({"box": None, "ball": "-1"}, "radius"),
    "center of another width": ({"box": None, "ball": "1", "center": "0,0"}, "center"),
    "no records": ({"records": "0"}, "--records"),
    "too few features": ({"features": "2"}, "n_components"),
    "too many features": ({"features": "99999999"}, "--features"),
    "law without scale": ({"frequencies": "gaussian"}, "--scale"),
    "scale too fine": ({"scale": "1e-9"}, "--scale"),
    "scale negative": ({"scale": "-1"}, "--scale"),
    "scale turned around": ({"scale": "2,1"}, "--scale"),
    "public count": ({"count": "public"}, "count"),
    "negative seed": ({"seed": "-1"}, "--seed -1:"),
}


@pytest.mark.parametrize(("changes", "word"), BAD_DESIGNS.values(), ids=BAD_DESIGNS)
def test_a_bad_design_gets_one_clear_line(folder, changes, word):
    line = refused_in_one_line(folder, *design_arguments(**changes), "-o", "study.json")
    assert word in line


BAD_USAGE = {
    "unknown task": ({"task": "nothing"}, "--task"),
    "unknown covariances": ({"covariance-type": "oval"}, "--covariance-type"),
    "no domain": ({"box": None}, "one of --schema FILE, --box LOW HIGH and --ball RADIUS"),
    "both domains": ({"ball": "3"}, "one of --schema FILE, --box LOW HIGH and --ball RADIUS"),
    "box of text": ({"box": "low high"}, "'low' is not a number"),
    "center of text": ({"box": None, "ball": "3", "center": "x"}, "'x' is not a number"),
    "scale of text": ({"scale": "x"}, "'x' is not a number"),
    "epsilon of text": ({"epsilon": "one"}, "--epsilon"),
    "no epsilon": ({"epsilon": None}, "--epsilon"),
    "no delta": ({"delta": None}, "--delta"),
    "unknown noise": ({"noise": "uniform"}, "--noise"),
    "unknown neighbours": ({"neighbours": "none"}, "--neighbours"),
}


@pytest.mark.parametrize(("changes", "word"), BAD_USAGE.values(), ids=BAD_USAGE)
def test_wrong_usage_gets_a_clear_line(folder, changes, word):
    assert word in refused(folder, *design_arguments(**changes), "-o", "study.json")


@pytest.mark.parametrize("output", ["nowhere/study.json", "file/study.json", "", "."])
def test_a_design_that_cannot_be_written_is_an_error(folder, output):
    (folder / "file").write_text("old")
    refused(folder, *design_arguments(), "-o", output, code=DATA)


# ---------------------------------------------------------------- errors of sketch

BAD_DATA = {
    "missing file": ("nowhere.csv", None, "no such file"),
    "unknown kind": ("data.ods", b"a,b,c\n", "unknown kind"),
    "too few columns": ("data.csv", b"a,b\n1,2\n", "2 columns"),
    "text": ("data.csv", b"a,b,c\n1,2,confidential\n", "not numeric"),
    "missing value": ("data.csv", b"a,b,c\n1,,3\n", "missing"),
    "empty csv": ("data.csv", b"", "CSV"),
    "empty npy": ("data.npy", b"", ".npy"),
    "damaged npy": ("data.npy", b"\x93NUMPY\x01\x00", ".npy"),
    "zip named npy": ("data.npy", b"PK\x05\x06" + bytes(18), ".npy"),
    "damaged parquet": ("data.parquet", b"PAR1" + bytes(20) + b"PAR1", "Parquet"),
    "empty arrow": ("data.arrow", b"", "Arrow"),
}


@pytest.mark.parametrize(("name", "content", "word"), BAD_DATA.values(), ids=BAD_DATA)
def test_bad_data_get_one_clear_line_and_spend_nothing(study, spent, name, content, word):
    if content is not None:
        (study / name).write_bytes(content)
    line = refused_in_one_line(study, "sketch", "study.json", name, "-o", "out.sketch", code=DATA)
    assert word in line
    assert "confidential" not in line
    assert spent == []


def test_an_existing_sketch_is_not_replaced(sketches, spent):
    before = (sketches / "site-1.sketch").read_bytes()
    line = refused_in_one_line(
        sketches, "sketch", "study.json", "site-1.csv", "-o", "site-1.sketch", code=DATA
    )
    assert "spend the budget again" in line
    assert (sketches / "site-1.sketch").read_bytes() == before
    assert spent == []


@pytest.mark.parametrize("output", ["nowhere/out.sketch", "site-1.csv/out.sketch"])
def test_a_missing_folder_is_found_before_anything_is_spent(study, spent, output):
    refused_in_one_line(study, "sketch", "study.json", "site-1.csv", "-o", output, code=DATA)
    assert spent == []


def test_force_does_not_spend_on_a_folder(study, spent):
    (study / "out").mkdir()
    refused_in_one_line(
        study, "sketch", "study.json", "site-1.csv", "-o", "out", "--force", code=DATA
    )
    assert spent == []


@pytest.mark.parametrize(
    ("options", "word", "code"),
    [
        (["--columns", "a,b,x"], "'x' is unknown", DATA),
        (["--columns", "a,b,b"], "twice", DATA),
        (["--columns", "a,b"], "2 named", DATA),
        (["--threads", "0"], "--threads 0:", USAGE),
        (["--source", "x" * 201], "--source x", USAGE),
    ],
    ids=str,
)
def test_bad_options_of_sketch_spend_nothing(study, spent, options, word, code):
    arguments = ["sketch", "study.json", "site-1.csv", "-o", "out.sketch", *options]
    assert word in refused_in_one_line(study, *arguments, code=code)
    assert spent == []


def test_a_sketch_of_an_altered_design_is_refused(study, spent):
    text = (study / "study.json").read_text()
    (study / "study.json").write_text(text.replace('"epsilon": 1.0', '"epsilon": 50.0'))
    arguments = ["sketch", "study.json", "site-1.csv", "-o", "out.sketch"]
    line = refused_in_one_line(study, *arguments, code=INTEGRITY)
    assert "altered" in line
    assert spent == []


def test_sketch_needs_data(study):
    assert "DATA" in refused(study, "sketch", "study.json", "-o", "out.sketch")


# ---------------------------------------------------------------- errors of the others


def test_sketches_of_different_studies_do_not_merge(sketches):
    run(*design_arguments(epsilon="2"), "-o", "other.json")
    run("sketch", "other.json", "site-2.csv", "-o", "other.sketch")
    line = refused_in_one_line(
        sketches, "merge", "site-1.sketch", "other.sketch", "-o", "all.sketch", code=INTEGRITY
    )
    assert "same study" in line


def test_the_same_sketch_does_not_merge_with_itself(sketches):
    line = refused_in_one_line(
        sketches, "merge", "site-1.sketch", "site-1.sketch", "-o", "all.sketch", code=INTEGRITY
    )
    assert "twice" in line


def test_the_same_source_does_not_merge(sketches):
    run("sketch", "study.json", "site-1.csv", "-o", "again.sketch", "--source", "site-1")
    line = refused_in_one_line(
        sketches, "merge", "site-1.sketch", "again.sketch", "-o", "all.sketch", code=INTEGRITY
    )
    assert "'site-1' occurs more than once" in line


@pytest.mark.parametrize("k", [1000, 0, -1])
def test_too_many_or_no_clusters_are_refused(sketches, k):
    line = refused_in_one_line(
        sketches, "learn", "site-1.sketch", "-k", k, "-o", "model.json", "--report", "r.html"
    )
    assert f"n_clusters={k}" in line


@pytest.mark.parametrize(
    "options",
    [["-o", "nowhere/model.json"], ["-o", "model.json", "--report", "nowhere/report.html"]],
    ids=["model", "report"],
)
def test_learn_writes_all_or_nothing(sketches, options):
    refused_in_one_line(sketches, "learn", "site-1.sketch", *options, "--n-init", 1, code=DATA)


@pytest.mark.parametrize("command", ["merge", "learn", "inspect"])
def test_a_corrupted_sketch_is_refused(sketches, command):
    data = bytearray((sketches / "site-1.sketch").read_bytes())
    data[len(data) // 2] ^= 1
    (sketches / "bad.sketch").write_bytes(data)
    options = [] if command == "inspect" else ["-o", "out"]
    line = refused_in_one_line(sketches, command, "bad.sketch", *options, code=INTEGRITY)
    assert "bad.sketch: truncated or corrupted" in line


FOREIGN = {
    "text": b"hello\n",
    "json": b'{"format": "other"}',
    "json list": b"[1, 2]",
    "json without format": b"{}",
    "empty": b"",
    "binary": bytes(range(256)),
}


@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN)
def test_a_foreign_file_is_refused(folder, content):
    (folder / "foreign").write_bytes(content)
    assert "foreign: " in refused_in_one_line(folder, "inspect", "foreign", code=INTEGRITY)


@pytest.mark.parametrize("command", ["sketch", "merge", "learn", "inspect"])
def test_a_missing_input_is_refused(folder, command):
    options = {"sketch": ["data.csv", "-o", "out"], "inspect": []}.get(command, ["-o", "out"])
    line = refused_in_one_line(folder, command, "nowhere", *options, code=DATA)
    assert "nowhere: " in line


def test_a_model_is_not_a_sketch(sketches):
    run("learn", "site-1.sketch", "-o", "model.json", "--n-init", 1)
    assert json.loads((sketches / "model.json").read_text())
    line = refused_in_one_line(sketches, "learn", "model.json", code=INTEGRITY)
    assert "not a privsketch sketch" in line


def test_a_demo_that_cannot_write_is_an_error(folder):
    (folder / "file").write_text("old")
    refused(folder, "demo", "--records", 100, "-o", "file", code=DATA)


@pytest.mark.slow
def test_files_of_value_are_not_replaced_unawares(study):
    before = (study / "study.json").read_bytes()
    refused = run(*design_arguments(), "-o", "study.json")
    assert refused.exit_code == DATA
    assert "--force" in refused.output
    assert (study / "study.json").read_bytes() == before
    assert run(*design_arguments(seed="8"), "-o", "study.json", "--force").exit_code == 0
    assert (study / "study.json").read_bytes() != before

    assert run("sketch", "study.json", "site-1.csv", "-o", "s1.sketch").exit_code == 0
    assert run("sketch", "study.json", "site-2.csv", "-o", "s2.sketch").exit_code == 0
    contents = {path.name: path.read_bytes() for path in study.iterdir()}
    assert run("merge", "s1.sketch", "s2.sketch", "-o", "s1.sketch").exit_code == DATA
    assert run("learn", "s1.sketch", "-o", "s1.sketch").exit_code == DATA
    assert run("learn", "s1.sketch", "--report", "site-1.csv").exit_code == DATA
    assert {path.name: path.read_bytes() for path in study.iterdir()} == contents
    for output in (["-o", "model.json"], ["--report", "report.html"]):
        learn = ["learn", "s1.sketch", "--n-init", 1, *output]
        assert run(*learn).exit_code == 0
        before = (study / output[1]).read_bytes()
        assert "--force" in refused_in_one_line(study, *learn, code=DATA)
        assert (study / output[1]).read_bytes() == before
        assert run(*learn, "--force").exit_code == 0
    for output in (["-o", "s1.sketch"], ["--report", "site-1.csv"]):  # which are no results of it
        assert run("learn", "s1.sketch", *output, "--force").exit_code == DATA


def test_a_holder_can_insist_on_the_design_agreed_upon(study):
    fingerprint = ps.Design.load("study.json").fingerprint
    arguments = ["sketch", "study.json", "site-1.csv", "-o", "s1.sketch", "--expect"]
    for wrong in ("0" * 16, fingerprint[:15], fingerprint[:4], "x", "", fingerprint + "0"):
        assert run(*arguments, wrong).exit_code == INTEGRITY
        assert not (study / "s1.sketch").exists()
    assert run(*arguments, fingerprint[:16]).exit_code == 0
    assert run(*arguments, fingerprint.upper(), "--force").exit_code == 0


def test_columns_of_an_array_are_named_by_number(study):
    np.save("wide.npy", np.zeros((50, 5)))
    command = ["sketch", "study.json", "wide.npy", "-o", "s1.sketch", "--columns"]
    assert run(*command, "4,0,2").exit_code == 0


def test_the_same_file_twice_is_refused(study):
    result = run("sketch", "study.json", "site-1.csv", "./site-1.csv", "-o", "s1.sketch")
    assert result.exit_code == DATA
    assert "twice" in result.output


def test_errors_speak_the_language_of_the_shell(study):
    (study / "bad.csv").write_text("a,b,c\n1,,2\n")
    result = run("sketch", "study.json", "bad.csv", "-o", "bad.sketch")
    assert "--missing center" in result.output
    assert "missing='center'" not in result.output


# ---------------------------------------------------------------- plans


def plan_arguments(**changes):
    """Arguments of `privsketch plan` for the same study; it has no seed."""
    return ["plan", *design_arguments(seed=None, **changes)[1:]]


def test_plan_compares_designs_and_reads_nothing(folder):
    told = run(*plan_arguments())
    assert told.exit_code == 0, told.output
    lines = told.stdout.splitlines()
    assert lines[0].split()[:3] == ["alternative", "features", "error,"]
    recommended = [line for line in lines if line.startswith("->")]
    assert len(recommended) == 1
    for words in ("cube noise", "half the features", "one-bit", "block:", "records:0.1", " kB"):
        assert words in told.stdout
    assert any(line.startswith("recommended  planned: --features") for line in lines)
    assert "more private: delta = 0" in told.stdout
    assert list(folder.iterdir()) == []


def test_plan_offers_no_gaussian_noise_to_pure_studies(folder):
    told = run(*plan_arguments(delta="0"))
    assert told.exit_code == 0
    assert "gaussian" not in told.stdout
    assert "laplace" in told.stdout


def test_plan_for_machines(folder):
    told = run(*plan_arguments(), "--json", "--rate", "0.25")
    assert told.exit_code == 0
    found = json.loads(told.stdout)
    assert {"recommended", "reasons", "alternatives"} <= set(found)
    first = found["alternatives"][0]
    assert found["recommended"] == first["name"] == "planned"
    assert first["verdict"] == "good"
    assert any(one["masks"] == "records:0.25" for one in found["alternatives"])


def test_plan_tells_options_that_design_takes(folder):
    for one in json.loads(run(*plan_arguments(), "--json").stdout)["alternatives"]:
        output = f"{one['name']}.json"
        made = run(*design_arguments(), *one["options"].split(), "-o", output)
        assert made.exit_code == 0, made.output
        design = ps.Design.load(output)
        facts = (design.feature_map, design.n_features, design.noise, design.frequencies.law)
        told = tuple(one[name] for name in ("feature_map", "n_features", "noise", "frequencies"))
        assert facts == told
        assert (design.masks is None) == (one["masks"] == "none")


def test_plan_has_all_columns_where_there_is_room(folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    told = run(*plan_arguments())
    lines = told.stdout.splitlines()
    assert lines[0].split()[:3] == ["alternative", "map", "frequencies"]
    assert "noise-to-signal" in lines[0]
    assert "COLUMNS" not in told.stdout


def test_plan_has_colours_where_the_terminal_has(folder, monkeypatch):
    """And the same table without them; a dumb terminal is as wide as any other."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.delenv("NO_COLOR", raising=False)
    plain = run(*plan_arguments()).stdout
    assert "noise-to-signal" in plain.splitlines()[0]
    monkeypatch.setenv("FORCE_COLOR", "1")  # as a terminal has it
    assert run(*plan_arguments()).stdout == plain
    monkeypatch.setenv("TERM", "xterm-256color")
    coloured = run(*plan_arguments()).stdout
    assert coloured != plain
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain


def narrow_studies():
    """Options of studies of all kinds, and whether there is something to be careful about."""
    cluster = {"dim": "8", "records": "1e5"}
    pca = {"task": "pca", "box": None, "ball": "1", "dim": "20", "components": "5"}
    return {
        "kmeans": cluster,
        "pure": {**cluster, "delta": "0"},
        "hopeless": {**cluster, "epsilon": "0.01", "delta": "0", "records": "100"},
        "mixture": {**cluster, "task": "gaussian-mixture", "covariance-type": "full"},
        "pca": pca,
        "pca, pure": {**pca, "delta": "0"},
        "regression": {"-k": None, "task": "regression", "dim": "20", "records": "500"},
        "many columns": {**cluster, "dim": "300", "components": "30"},
        "careless": {**cluster, "epsilon": "20", "delta": "0.1", "dim": "2", "box": "18,0 100,5e5"},
        "schema": {"box": None, "dim": None, "schema": "table.json"},
    }


@pytest.mark.parametrize("name", narrow_studies())
def test_plan_fits_a_terminal_and_loses_nothing(folder, monkeypatch, name):
    ps.Schema(
        [ps.Number("systolic blood pressure", 60, 260), ps.Category("ward", ["a", "b", "c"])],
        person="patient",
    ).save("table.json")
    arguments = plan_arguments(**narrow_studies()[name])
    found = json.loads(run(*arguments, "--json").stdout)
    monkeypatch.setenv("COLUMNS", "40")  # no table is that narrow
    told = run(*arguments)
    assert told.exit_code == 0, told.output
    assert max(map(len, told.output.splitlines())) <= 80
    # Words are those of the reasons, on as many lines as they need.
    words = " ".join(told.stdout.split())
    cautions = " ".join(told.stderr.split())
    for reason in found["reasons"]:
        assert reason in words or reason.removeprefix("careful: ") in cautions
    lines = told.stdout.splitlines()
    first = [line[: lines[0].index("features")] for line in lines[1 : lines.index("")]]
    names = " ".join(" ".join(first).split())
    planned = found["alternatives"][0]
    for one in found["alternatives"]:
        assert one["name"] in names
        assert f" {one['n_features']} " in words
        for choice in ("feature_map", "frequencies", "masks", "noise"):
            if one[choice] != planned[choice] and one[choice] != "none":
                assert one[choice].replace("+", " + ") in names
        if one["name"] == found["recommended"]:
            assert f"recommended {one['name']}: {one['options']}" in words


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"box": None}, "--box LOW HIGH and --ball RADIUS"),
        ({"dim": None}, "--dim"),
        ({"epsilon": "-1"}, "epsilon"),
        ({"rate": "1"}, "--rate"),
    ],
)
def test_plans_that_cannot_be_made(folder, changes, message):
    assert message in refused(folder, *plan_arguments(**changes))


# --- principal components, masks, weights ----------------------------------------------------


@pytest.fixture
def components(folder):
    """A study of principal components with sketches of two sites."""
    made = run(*design_arguments(task="pca", box=None, ball=8, mean="released"), "-o", "pca.json")
    assert made.exit_code == 0, made.output
    for site in (1, 2):
        write_table(folder / f"site-{site}.csv", seed=site, n_records=20_000)
        done = run("sketch", "pca.json", f"site-{site}.csv", "-o", f"site-{site}.sketch")
        assert done.exit_code == 0, done.output
    return folder


def test_principal_components_from_the_shell(fixed_noise, components):
    merged = run("merge", "site-1.sketch", "site-2.sketch", "-o", "all.sketch")
    assert merged.exit_code == 0
    learned = run("learn", "all.sketch", "-k", "1", "-o", "pca-model.json", "--report", "r.html")
    assert learned.exit_code == 0, learned.output
    model = ps.PCAModel.load(components / "pca-model.json")
    assert np.abs(model.components[0]) == pytest.approx(np.full(3, 3**-0.5), abs=0.05)
    assert "pca" in (components / "r.html").read_text().lower()
    for file in ("pca.json", "all.sketch", "pca-model.json"):
        assert run("inspect", file).exit_code == 0
    again = run("learn", "all.sketch", "-k", "auto", "--method", "convex", "-o", "auto.json")
    assert again.exit_code == 0, again.output


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--task", "kmeans", "-k", "2"], "principal components"),
        (["--task", "gaussian-mixture", "-k", "2"], "principal components"),
        (["--decoder", "joint"], "--decoder"),
        (["--covariance-type", "full"], "--covariance-type"),
        (["--n-init", "3"], "--n-init"),
        (["-k", "4"], "columns"),
    ],
)
def test_what_a_sketch_of_components_cannot_be_asked(components, options, word):
    refused = run("learn", "site-1.sketch", *options)
    assert refused.exit_code == 2
    assert word in refused.output


def test_clusters_cannot_be_asked_for_components(sketches):
    refused = run("learn", "site-1.sketch", "--task", "pca", "-k", "2")
    assert refused.exit_code == 2
    assert "pca" in refused.output
    refused = run("learn", "site-1.sketch", "--method", "convex")
    assert refused.exit_code == 2
    assert "--method" in refused.output


def test_nothing_is_learned_from_what_no_records_led_to(sketches):
    forged = ps.Sketch.load(sketches / "site-1.sketch")
    replace(forged, values=50 * forged.values).save(sketches / "forged.sketch")
    told = refused(sketches, "learn", "forged.sketch", "-o", "model.json", code=INTEGRITY)
    assert "the sketch of source 'site-1' cannot come from records" in told


def test_a_sketch_with_weights_needs_a_word(sketches):
    arguments = ["site-1.sketch", "site-2.sketch", "--weights", "3,1", "-o", "w.sketch"]
    succeeded("merge", *arguments)
    design = ps.Design.load(sketches / "study.json")
    ps.sketch(np.zeros((50, 3)), design, source="c").save(sketches / "c.sketch")
    for command in (["merge", "-o", "no.sketch"], ["compare"]):
        told = refused(sketches, *command, "w.sketch", "c.sketch", code=INTEGRITY)
        assert "'site-1' has a weight" in told
        assert "--allow-weights" in told
    allowed = succeeded("compare", "w.sketch", "c.sketch", "--allow-weights").stdout
    assert "the records of site-1 count 3 times each" in allowed
    allowed = succeeded("merge", "w.sketch", "c.sketch", "--allow-weights", "-o", "all.sketch")
    assert "the records of site-1 count 3 times each" in allowed.stdout


def test_weights_from_the_shell(sketches):
    total = run("merge", "site-1.sketch", "site-2.sketch", "--weights", "3,1", "-o", "w.sketch")
    assert total.exit_code == 0
    assert ps.Sketch.load(sketches / "w.sketch").weights == (3, 1)
    assert "the records of site-1 count 3 times each" in total.stdout
    for weights in ("3", "1,x", "0,1", "1.5,1"):
        refused = run(
            "merge", "site-1.sketch", "site-2.sketch", "--weights", weights, "-o", "no.sketch"
        )
        assert refused.exit_code == 2
        assert not (sketches / "no.sketch").exists()


@pytest.mark.parametrize("masks", ["uniform:20", "block:30", "poisson:0.3", "records:0.5"])
def test_masks_from_the_shell(study, masks):
    made = run(*design_arguments(masks=masks, features=60), "-o", "masked.json")
    assert made.exit_code == 0, made.output
    assert "secret" in made.output
    done = run("sketch", "masked.json", "site-1.csv", "-o", "masked.sketch")
    assert done.exit_code == 0, done.output
    assert "secret masks" in done.output
