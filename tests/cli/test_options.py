"""Options: each is on a page, and does what the parameter of the same name does."""

import json
import re
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privsketch as ps
from privsketch.cli.main import main
from tests.commands import DATA, USAGE, run, succeeded

ROOT = Path(__file__).parents[2]
PLUGINS = ("study", "collector")  # commands of another distribution, which has its own pages


def options(group=main, names=()):
    """Yield the name of each command of the library, and those of one of its options."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if name in PLUGINS:
            continue
        if isinstance(command, click.Group):
            yield from options(command, (*names, name))
            continue
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                yield " ".join((*names, name)), (*parameter.opts, *parameter.secondary_opts)


def test_every_option_is_on_a_page():
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    mentioned = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", text))
    assert [found for found in options() if mentioned.isdisjoint(found[1])] == []


def test_options_of_a_design_are_those_of_plan(tmp_path):
    choices = {"masks": "records:0.5", "count": "public", "frequencies": "gaussian"}
    written = [word for name, value in choices.items() for word in (f"--{name}", value)]
    file = tmp_path / "study.json"
    domain = ["-k", 2, "--box", -4, 4, "--dim", 3, "--epsilon", 1, "--delta", "1e-6"]
    numbers = ["--neighbours", "replace", "--records", 1000, "--scale", 0.5, "--features", 60]
    succeeded("design", *domain, *numbers, *written, "--seed", 7, "-o", file)
    assert ps.Design.load(file) == ps.Design.plan(
        n_components=2,
        domain=ps.Box(-4, 4, dim=3),
        budget=ps.Budget(1.0, 1e-6, "replace"),
        n_records=1000,
        frequency_scale=0.5,
        n_features=60,
        random_state=7,
        **choices,
    )


def test_a_design_for_components_may_have_a_mean(tmp_path):
    arguments = ["--task", "pca", "-k", 1, "--ball", 4, "--dim", 3, "--epsilon", 1, "--delta", 0]
    succeeded("design", *arguments, "--mean", "released", "-o", tmp_path / "study.json")
    succeeded("design", *arguments, "-o", tmp_path / "without.json")
    means = [ps.Design.load(tmp_path / name).to_json() for name in ("study.json", "without.json")]
    assert means[0] != means[1]


def test_a_design_for_regression_has_a_target_and_a_smaller_ball(tmp_path):
    study = ["--box", "0,0", "1,9", "--columns", "u,v", "--epsilon", 1, "--delta", 1e-6]
    for more, name in (([], "corner.json"), (["--clip", "uniform"], "uniform.json")):
        told = succeeded(
            *("design", "--task", "regression", "--target", "v", *study, *more),
            *("-o", tmp_path / name),
        )
        assert "for regression of v" in told.output
    corner, uniform = (ps.Design.load(tmp_path / f"{name}.json") for name in ("corner", "uniform"))
    assert corner.target == uniform.target == "v"
    assert corner.schema == uniform.schema
    assert uniform.domain.radius < corner.domain.radius


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--task", "kmeans"], "Missing option '-k' / '--components'"),
        (["--task", "regression", "-k", 2], "--components"),
        (["--task", "regression", "--target", "w"], "--target"),
        (["--task", "kmeans", "-k", 2, "--target", "v"], "--target"),
        (["--task", "pca", "-k", 1, "--clip", "uniform"], "--clip"),
    ],
)
def test_options_of_other_tasks_are_refused(tmp_path, arguments, message):
    study = ["--box", "0,0", "1,9", "--columns", "u,v", "--epsilon", 1, "--delta", 1e-6]
    refused = run("design", *arguments, *study, "-o", tmp_path / "study.json")
    assert refused.exit_code != 0
    assert message in refused.output
    assert not (tmp_path / "study.json").exists()


def test_bounds_protect_persons(tmp_path):
    file, people = tmp_path / "table.parquet", [f"p{n // 4}" for n in range(40)]
    pq.write_table(pa.table({"age": np.arange(40.0), "patient": [*people[:-1], None]}), file)

    def receipt(*arguments):
        command = ["bounds", file, "--columns", "age", "--epsilon", 1, "--json"]
        return json.loads(succeeded(*command, *arguments).stdout)["receipt"]

    person = ["--person", "patient", "--missing-person", "drop"]
    assert run("bounds", file, "--columns", "age", "--epsilon", 1, *person[:2]).exit_code == DATA
    one, three = receipt(*person), receipt(*person, "--max-records", 3)
    (part, *_), (larger, *_) = one["parts"], three["parts"]
    assert larger["sensitivity"] == 3 * part["sensitivity"]
    assert receipt("--rows-per-person", 4)["unit"] != receipt()["unit"]


@pytest.mark.parametrize(
    ("option", "command"), [("--sealed", "study"), ("--collector", "collector")]
)
def test_old_options_of_the_demo_name_the_new_command(option, command):
    result = run("demo", option)
    assert result.exit_code == USAGE
    assert f"privsketch {command} demo" in result.stderr


def test_frequencies_may_be_a_file_of_an_array(tmp_path):
    omega = np.random.default_rng(0).normal(size=(30, 3))
    np.save(tmp_path / "omega.npy", omega)
    np.save(tmp_path / "pickled.npy", np.array([{}], dtype=object), allow_pickle=True)
    domain = ["-k", 2, "--box", -4, 4, "--dim", 3, "--epsilon", 1, "--delta", "1e-6", "--seed", 7]
    file = tmp_path / "study.json"
    succeeded("design", *domain, "--frequencies", tmp_path / "omega.npy", "-o", file)
    assert ps.Design.load(file) == ps.Design.plan(
        n_components=2,
        domain=ps.Box(-4, 4, dim=3),
        budget=ps.Budget(1.0, 1e-6),
        frequencies=omega,
        random_state=7,
    )
    for name in ("pickled.npy", "missing.npy"):
        result = run("design", *domain, "--frequencies", tmp_path / name, "-o", "-")
        assert result.exit_code == USAGE
        assert "no file of a NumPy array" in result.output
