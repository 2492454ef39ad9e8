"""What commands say on stderr of a domain and a budget that were stated; once."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.commands import succeeded

STUDY = ("-k", 2, "--box", "18,0", "100,500000")
LOOSE = ("--epsilon", 11, "--delta", 1e-3, "--records", 1e4)
TIGHT = ("--epsilon", 1, "--delta", 1e-6, "--records", 1e4)


@pytest.fixture
def table(tmp_path):
    file = tmp_path / "data.npy"
    np.save(file, np.array([[30.0, 1e4], [60.0, 2e5]] * 50))
    return file


def cautions(result):
    """First words of what is careful on stderr; nothing of it is on stdout as well."""
    lines = [line for line in result.stderr.splitlines() if line.startswith("careful ")]
    texts = [line.removeprefix("careful").strip() for line in lines]
    assert not any(text in result.stdout for text in texts)
    return [text.split()[0] for text in texts]


def commands(folder, table):
    """Every command in which a domain is stated, with an output of its own."""
    out = folder / "out"
    return {
        "design": ("design", "-o", out, "--force"),
        "plan": ("plan",),
        "plan in words for machines": ("plan", "--json"),
        "cluster": ("cluster", table, "-o", out, "--force", "--method", "lloyd"),
        "cluster by a sketch": ("cluster", table, "-o", out, "--force", "--method", "sketch"),
        "cluster, dry": ("cluster", table, "--dry-run", "--method", "sketch"),
    }


@pytest.mark.parametrize("name", commands(Path(), Path()))
def test_commands_say_it_once_on_stderr(tmp_path, table, name):
    command = commands(tmp_path, table)[name]
    if "--json" in command:
        result = succeeded(*command, *STUDY, *LOOSE)
        assert result.stderr.count("careful") == 3
        json.loads(result.stdout)
        return
    dim = ("--dim", 2) if command[0] != "cluster" else ()
    assert cautions(succeeded(*command, *STUDY, *LOOSE)) == ["columns", "epsilon", "delta"]
    assert cautions(succeeded(*command, *STUDY, *TIGHT)) == ["columns"]
    even = ("-k", 2, "--box", 0, 500000, *dim)
    assert cautions(succeeded(*command, *even, *TIGHT)) == []
    unknown = ("--epsilon", 1, "--delta", 1e-3)
    assert cautions(succeeded(*command, *even, *unknown)) == []


def test_columns_are_named(tmp_path):
    names = ("--columns", "age,income")
    told = succeeded("design", *STUDY, *names, *TIGHT, "-o", tmp_path / "study.json").stderr
    assert "82 (age) to 5e+05 (income)" in told
    # Whoever gets the design reads it in its description.
    assert "5e+05 (income)" in succeeded("inspect", tmp_path / "study.json").stdout


def test_released_rows(tmp_path, table):
    rows = ("release", table, "-k", 1, "--box", "18,0", "100,500000", "--protect", "row")
    told = succeeded(*rows, "--epsilon", 11, "-o", tmp_path / "rows.npy")
    assert [line.split()[:2] for line in told.stderr.splitlines()[:2]] == [
        ["careful", "columns"],
        ["careful", "epsilon"],
    ]
    assert "careful     epsilon" in told.stdout  # in the receipt, which stays with the rows
