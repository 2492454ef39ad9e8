"""Public streams: what each is for, and that no two uses of a seed share a word."""

from __future__ import annotations

import ast
import itertools
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

import privsketch
from privsketch.features import PublicStream, Purpose, public_generator

ROOT = Path(privsketch.__file__).parent
# Files and models depend on these: docs/format.md, and what a decoder gives for a sketch.
FIXED = {
    "FREQUENCIES": 0,
    "OFFSETS": 1,
    "KMEANS_DECODER": 2,
    "MIXTURE_DECODER": 3,
    "STRUCTURED_FREQUENCIES": 4,
    "PCA_DECODER": 5,
    "CELLS_DECODER": 6,
    "PROJECTION": 101,
}


def test_numbers_that_files_and_models_depend_on_stay():
    assert {name: Purpose[name].value for name in FIXED} == FIXED


def test_no_two_purposes_share_a_number():
    numbers = [member.value for member in Purpose.__members__.values()]  # aliases included
    assert len(set(numbers)) == len(numbers) > 20


def test_no_two_streams_of_a_seed_share_a_word():
    parts = [(purpose, 0) for purpose in Purpose] + [(Purpose.TREE_TRIALS, n) for n in (1, 2, 150)]
    drawn = [PublicStream(7, purpose, part).uniform(1000) for purpose, part in parts]
    for one, other in itertools.combinations(drawn, 2):
        assert not np.intersect1d(one, other).size


@pytest.mark.parametrize("purpose", [Purpose.FREQUENCIES, Purpose.KMEANS_DECODER])
def test_a_stream_is_philox_with_the_seed_and_the_purpose_as_key(purpose):
    words = np.random.Philox(key=np.array([7, purpose.value], dtype=np.uint64))
    assert np.array_equal(
        PublicStream(7, purpose).uniform(5), ((words.random_raw(5) >> 12) + 0.5) * 2.0**-52
    )
    same = np.random.Philox(key=np.array([7, purpose.value], dtype=np.uint64))
    expected = np.random.Generator(same).standard_normal(5)
    assert np.array_equal(public_generator(7, purpose).standard_normal(5), expected)


def uses_of_streams(source: str) -> list[str]:
    """What each call that opens a public stream names as its purpose; "" for anything else."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func).rpartition(".")[2]
        if name in ("PublicStream", "public_generator"):
            text = ast.unparse(node.args[1]) if len(node.args) > 1 else ""
            known = text.startswith("Purpose.") and text[8:] in Purpose.__members__
            found.append(text[8:] if known else "")
        elif name == "Philox":
            found.append("")
    return found


def test_every_stream_has_a_purpose_that_no_other_file_uses():
    files = defaultdict(set)
    for path in sorted(ROOT.rglob("*.py")):
        where = str(path.relative_to(ROOT))
        if where == "features/stream.py":  # the only one that knows the generator
            continue
        for purpose in uses_of_streams(path.read_text(encoding="utf-8")):
            files[purpose].add(where)
    assert files.pop("", set()) == set()
    assert {purpose: where for purpose, where in files.items() if len(where) > 1} == {}
    assert set(files) == set(Purpose.__members__), "a purpose that nothing uses, or an unknown one"


def test_a_number_a_sum_or_a_generator_of_its_own_is_caught():
    for planted in ("PublicStream(0, 504)", "PublicStream(0, Purpose.SPREAD + n)", "Philox(key=0)"):
        assert uses_of_streams(planted) == [""]
    assert uses_of_streams("PublicStream(seed, Purpose.SPREAD)") == ["SPREAD"]
