"""The numbers of docs/epsilon.md: what a year costs, and what a guess can become."""

import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

import privsketch as ps
from tests.commands import run, succeeded
from tools.epsilon_picture import highest_belief

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "epsilon.md").read_text(encoding="utf-8")
YEAR = re.findall(r"^\| (\d+)[^|]*\| ([\d.]+) \| ([\d.]+) \|$", PAGE, re.MULTILINE)


def test_a_year_of_publications_costs_what_the_page_says():
    design = ps.Design.plan(
        n_components=3,
        domain=ps.Box(-1, 1, dim=10),
        budget=ps.Budget(0.5, 1e-6),
        noise="gaussian",
        random_state=0,
    )
    receipt = ps.sketch(np.zeros((10, 10)), design).receipt
    assert [int(row[0]) for row in YEAR] == [1, 4, 12, 52]
    for number, plain, better in YEAR:
        assert float(plain) == 0.5 * int(number)
        total = ps.compose([receipt] * int(number), delta=1e-6).best.epsilon
        assert float(better) == pytest.approx(total, abs=0.006)


def test_a_guess_becomes_what_the_page_says():
    assert "At 1 a guess of 1 in 10 can become 1 in 4" in PAGE
    assert highest_belief(0.1, 1.0) == pytest.approx(0.25, abs=0.02)
    # By enumeration: the two-point mechanism that spends all of epsilon on one answer.
    for epsilon in (0.1, 1.0, 8.0):
        yes = np.exp(epsilon) / (1 + np.exp(epsilon))
        for prior in (0.01, 0.1, 0.5):
            posterior = prior * yes / (prior * yes + (1 - prior) * (1 - yes))
            assert highest_belief(prior, epsilon) == pytest.approx(posterior)


ADVICE = "privsketch --explain epsilon"


def test_the_page_can_be_read_without_the_sources(folder):
    """It is in the wheel, and a command prints all of it in the width of a terminal."""
    said = succeeded("--explain", "epsilon").stdout
    assert max(map(len, said.splitlines())) <= 80
    words = " ".join(said.split())
    headings = re.findall(r"^##? (.*)$", PAGE, re.MULTILINE)
    assert len(headings) > 4
    assert all(heading in words for heading in headings)
    assert all(number in words for row in YEAR for number in row)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["force-include"] == {"docs/epsilon.md": "privsketch/epsilon.md"}


def test_delta_is_a_part_of_the_page():
    words = " ".join(succeeded("--explain", "delta").stdout.split())
    part = PAGE.split("## What delta is")[1].split("##")[0]
    assert words.startswith("What delta is")
    assert " ".join(part.replace("*", "").split()) in words
    assert "What happens over a year" not in words


ASKING = [
    ["cluster", "t.csv", "-k", 2],
    ["plan", "-k", 2],
    ["release", "t.csv", "-k", 1],
    ["bounds", "t.csv", "--columns", "x"],
    ["ledger", "add", "my.ledger", "visits", "--delta", 0],
]


@pytest.mark.parametrize("command", ASKING, ids=lambda words: words[0])
def test_who_is_asked_for_epsilon_is_told_where_to_read_what_it_is(folder, command):
    (folder / "t.csv").write_text("x\n1\n")
    assert ADVICE in run("--help").stdout
    assert ADVICE in run(*command).stderr
    with pytest.raises(ps.ParameterError, match=ADVICE):
        ps.PrivateKMeans(2, domain=ps.Box(0, 1)).fit(np.zeros((5, 2)))
    assert "docs/epsilon.md" in (ROOT / "README.md").read_text(encoding="utf-8")
