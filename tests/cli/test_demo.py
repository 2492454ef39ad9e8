"""The demo: one run of it, in units that people know, and what it says about itself."""

import re
from pathlib import Path

import numpy as np
import pytest

import privsketch as ps
from privsketch.cli import SCHEMA, kept_records
from privsketch.facts import field_names, field_values
from tests import seams
from tests.chance import fixed_noise
from tests.commands import run, succeeded

KINDS = ("csv", "parquet")
_GROUPS = seams.get("story.GROUPS")


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a demo, with its files in `out`, and what the demo says."""
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch, fixed_noise():
        patch.chdir(folder)
        ps.Ledger.create("holder.ledger").add("records", epsilon=3, delta=1e-5)
        patch.setenv("PRIVSKETCH_LEDGER", str(folder / "holder.ledger"))
        return folder, succeeded("demo", "--records", 5000, "-o", "out")


@pytest.fixture
def demo(finished, monkeypatch):
    """What the demo says; the working folder is its own."""
    monkeypatch.chdir(finished[0])
    return finished[1]


def test_it_tells_the_whole_story(finished, demo):
    files = {path.name for path in (finished[0] / "out").iterdir()}
    sites = {"site-1.csv", *(f"site-{i}.parquet" for i in range(2, 6))}
    sketches = {f"site-{i}.{end}" for i in range(1, 6) for end in ("sketch", "ledger")}
    models = {"model.json", "mixture.json", "report.html", "mixture.html", "synthetic.csv"}
    models |= {
        "pressure-schema.json",
        "pressure.json",
        "pressure.sketch",
        "regression.json",
        "regression.html",
    }
    assert files == {"schema.json", "study.json", "all.sketch", *models, *sites, *sketches}
    assert len(ps.Sketch.load("out/all.sketch").ids) == 5
    for words in ("one person (patient_id)", "kg/m2", "mmol/l", "ward=surgery", "such records"):
        assert words in demo.stdout
    assert max(map(len, demo.stdout.splitlines())) < 400


def test_it_is_as_good_as_it_says(demo):
    """Means of what was planted, in units, within a few standard errors."""
    assert float(re.search(r"squared error ([\d.]+) times", demo.stdout)[1]) < 1.05
    assert "6 clusters are told apart" in demo.stdout
    model = ps.ClusterModel.load("out/model.json")
    found = field_values(SCHEMA, model.centers)[:, :6]
    for group in _GROUPS:
        away = np.abs(found - group) / np.ptp(_GROUPS, axis=0)
        assert away.max(axis=1).min() < 0.15
    with open("out/synthetic.csv", encoding="utf-8") as file:
        synthetic = file.read().splitlines()
    assert len(synthetic) == 1001
    assert ",".join(f'"{name}"' for name in SCHEMA.names) == synthetic[0]


def test_both_pages_tell_the_same_shares(demo):
    """Shares of wards and smokers, which were 4 and 32 points off and contradicted each other.

    Five joint errors of 36 shares have 2e-5 false alarms.
    """
    clusters = ps.ClusterModel.load("out/model.json")
    mixture = ps.GaussianMixtureModel.load("out/mixture.json")
    tables = [model.table().sort_values(["age", "bmi"]) for model in (clusters, mixture)]
    shares = [table.filter(regex="ward|smoker").to_numpy() for table in tables]
    errors = [
        model.table("standard_errors").loc[table.index].filter(regex="ward|smoker").to_numpy()
        for model, table in zip((clusters, mixture), tables, strict=True)
    ]
    assert np.all(np.abs(shares[0] - shares[1]) < 5 * np.hypot(*errors))
    planted = seams.get("story.GROUP_TRAITS")
    truth = np.insert(planted[np.argsort(planted[:, 0])][:, 6:11], 4, 0.0, axis=1)
    for found, error in zip(shares, errors, strict=True):
        assert np.all(np.abs(found - truth) < 5 * error)
        assert np.sqrt(np.mean((found - truth) ** 2)) < 0.035


def test_its_commands_can_be_typed(finished, demo):
    folder, told = finished[0], demo.stdout
    typed = [line.split()[2:] for line in told.splitlines() if line.startswith("  $ privsketch ")]
    command = next(words for words in typed if words[0] == "design")
    (folder / "schema.json").write_bytes((folder / "out" / "schema.json").read_bytes())
    assert run(*command).exit_code == 0
    assert ps.Design.load("study.json") == ps.Design.load("out/study.json")
    for words in typed:
        if words[0] == "learn":
            in_folder = [f"out/{word}" if "." in word else word for word in words]
            assert run(*in_folder, "--force").exit_code == 0


def test_it_keeps_ledgers_and_not_the_holder_s(demo):
    assert "the ledger of site-1 has epsilon = 1, delta = 2e-06 left" in demo.output
    assert ps.Ledger("holder.ledger").entries() == []
    assert "the ledger of site-1 has epsilon = 0.5, delta = 1e-06 left" in demo.output
    assert len(ps.Ledger("out/site-2.ledger").entries()) == 2


def test_it_ends_with_a_regression(demo):
    """Groups were planted, not slopes: the truth is what least squares finds on all records."""
    model = ps.RegressionModel.load("out/regression.json")
    assert model.target == "systolic"
    paths = sorted(path for path in Path("out").glob("site-*.*") if path.suffix[1:] in KINDS)
    records = np.concatenate([kept_records(path) for path in paths])
    kept = [field_names(SCHEMA).index(name) for name in ("age", "bmi", "smoker", "systolic")]
    values = field_values(SCHEMA, records)[:, kept]  # without rows in which another column lacks
    wide = np.column_stack([np.ones(len(values)), values[:, :3]])
    truth = np.linalg.lstsq(wide, values[:, 3], rcond=None)[0][1:]
    assert model.names == ("age", "bmi", "smoker")
    assert model.is_identified.all()
    assert np.all(np.abs(model.estimate - truth) < 5 * model.standard_errors)
