"""The feature map that CONTRIBUTING.md adds as an example: its code does what it says."""

import re
from pathlib import Path

import numpy as np
import pytest

from privsketch.features.frequencies import FOURIER_LAWS
from privsketch.features.maps import FeatureMap

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"


@pytest.fixture(scope="module")
def example():
    """What the two pieces of code define, and the map."""
    text = PAGE.read_text(encoding="utf-8")
    definition, line = re.findall(r"   ```python\n(.*?)   ```\n", text, re.DOTALL)
    names = {"FeatureMap": FeatureMap, "FOURIER_LAWS": FOURIER_LAWS}
    exec(re.sub(r"^ {3}", "", definition, flags=re.MULTILINE), names)
    return names, eval(line.strip(), names)


def test_the_table_is_a_triangle_wave_and_its_quarter_turn(example):
    names, _ = example
    table = names["triangle_table"]()
    turn = np.arange(65536) / 65536
    wave = 4 * np.abs(turn - 0.5) - 1
    np.testing.assert_array_equal(table[:, 0], names["TOP"] * wave)
    np.testing.assert_array_equal(table[:, 1], names["TOP"] * wave[np.arange(65536) - 16384])


def test_its_first_harmonic_is_what_a_sum_is_divided_by(example):
    names, found = example
    turn = 2 * np.pi * np.arange(65536) / 65536
    cosine, sine = names["triangle_table"]().T
    assert 2 * np.mean(cosine * np.cos(turn)) == pytest.approx(found.amplitude, rel=1e-8)
    assert 2 * np.mean(sine * np.sin(turn)) == pytest.approx(found.amplitude, rel=1e-8)


def test_bounds_are_read_off_the_table(example):
    names, found = example
    assert found.bounds.linf == names["TOP"]
    assert found.bounds.l1 == names["TOP"]  # |c| + |s| is the same at every phase
    assert found.bounds.l2_squared == names["TOP"] ** 2
