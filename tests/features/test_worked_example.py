"""The package that CONTRIBUTING.md has as an example: installed, it does what the page says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"


@pytest.fixture(scope="module")
def blocks():
    """The files of the example: its pyproject, its module and its test."""
    text = PAGE.read_text(encoding="utf-8")
    (project,) = re.findall(r"```toml\n(.*?)```\n", text, re.DOTALL)
    module, test = re.findall(r"```python\n(.*?)```\n", text, re.DOTALL)
    return {"pyproject.toml": project, "privsketch_triangle.py": module, "test_waves.py": test}


@pytest.fixture(scope="module")
def example(blocks):
    names = {}
    exec(blocks["privsketch_triangle.py"], names)
    return names


def test_the_table_is_a_triangle_wave_and_its_quarter_turn(example):
    table = example["triangle_table"]()
    turn = np.arange(65536) / 65536
    wave = 4 * np.abs(turn - 0.5) - 1
    np.testing.assert_array_equal(table[:, 0], example["TOP"] * wave)
    np.testing.assert_array_equal(table[:, 1], example["TOP"] * wave[np.arange(65536) - 16384])


def test_its_first_harmonic_is_what_a_sum_is_divided_by(example):
    turn = 2 * np.pi * np.arange(65536) / 65536
    cosine, sine = example["triangle_table"]().T
    amplitude = example["TRIANGLE"].amplitude
    assert 2 * np.mean(cosine * np.cos(turn)) == pytest.approx(amplitude, rel=1e-8)
    assert 2 * np.mean(sine * np.sin(turn)) == pytest.approx(amplitude, rel=1e-8)


def test_bounds_are_read_off_the_table(example):
    bounds = example["TRIANGLE"].bounds
    assert bounds.linf == example["TOP"]
    assert bounds.l1 == example["TOP"]  # |c| + |s| is the same at every phase
    assert bounds.l2_squared == example["TOP"] ** 2


@pytest.mark.slow
def test_the_package_installs_and_its_test_passes(blocks, tmp_path):
    source, site = tmp_path / "source", tmp_path / "site"
    source.mkdir()
    for name, text in blocks.items():
        (source / name).write_text(text, encoding="utf-8")
    install = ["--quiet", "--no-deps", "--no-build-isolation", "--target", site]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", *install]
    subprocess.run([*pip, source], check=True)
    paths = [str(site), *(path for path in sys.path if path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    test = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_waves.py"]
    done = subprocess.run(test, cwd=source, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    design = (
        "import sys, privsketch as ps; ps.Design.plan(n_components=2, domain=ps.Box(-1, 1, dim=2),"
    )
    design += " budget=ps.Budget(1.0), feature_map='triangle', random_state=0).save(sys.argv[1])"
    subprocess.run([sys.executable, "-c", design, tmp_path / "d.json"], env=environment, check=True)
    command = [sys.executable, "-m", "privsketch.cli.main", "inspect", tmp_path / "d.json"]
    missing = subprocess.run(command, capture_output=True, text=True)  # without the package
    assert missing.returncode == 5
    assert "triangle" in missing.stderr
