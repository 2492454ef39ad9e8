"""Models of summaries: files, tables, pictures, and what they refuse."""

import json

import pytest

import privsketch as ps
from privsketch import ParameterError, SummaryModel
from privsketch._base import fingerprint
from tests.chance import fixed_noise
from tests.learning.test_regression import SCHEMA, design_of, visits
from tests.learning.test_summary import taxicab_of

pytest.importorskip("pandas")
KINDS = ("gaussian", "pure", "few", "plain")


@pytest.fixture(scope="module")
def models():
    with fixed_noise():
        gaussian = ps.sketch(visits(20_000), design_of())
        pure = ps.sketch(visits(20_000), taxicab_of(SCHEMA))
        numbers = ps.sketch(visits(2000)[["age", "pressure"]], design_of(ps.Ball(2, 300.0)))
        return {
            "gaussian": ps.learn_summary(gaussian, by="ward"),
            "pure": ps.learn_summary(pure, by="smoker"),
            "few": ps.learn_summary(ps.sketch(visits(5), design_of()), by="ward"),
            "plain": ps.learn_summary(numbers),
        }


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_is_what_was_saved(kind, models, tmp_path):
    model, path = models[kind], tmp_path / "model.json"
    model.save(path)
    found = ps.load(path)
    assert type(found) is SummaryModel
    assert found.to_bytes() == path.read_bytes()
    assert found.describe() == model.describe()
    assert found.table().equals(model.table())
    assert found.correlations().equals(model.correlations())


def altered(path, **changes):
    """The file with other fields, and a fingerprint that fits them."""
    whole = json.loads(path.read_text())
    content = {k: v for k, v in whole.items() if k not in ("format", "version", "fingerprint")}
    content.update(changes)
    whole.update(content, fingerprint=fingerprint(content))
    path.write_text(json.dumps(whole))
    return path


EYE = [[float(i == j) for j in range(12)] for i in range(12)]
BAD = {
    "a field too many": {"labels": [0, 1]},
    "no columns": {"columns": None},
    "a column too few": {"columns": ["age"]},
    "sums that are text": {"sums": "none"},
    "sums of one number": {"sums": [[1.0]]},
    "sums that are not symmetric": {"sums": [[0.0] * 11 + [1.0], *EYE[1:]]},
    "a sum that is too large": {"sums": [[1e200, *EYE[0][1:]], *EYE[1:]]},
    "a variance below 0": {"noise_variance": [[-value for value in row] for row in EYE]},
    "no constant": {"terms": [[0.0] * 12, *EYE[1:]]},
    "a constant that varies": {"terms": [[1.0] * 12, *EYE[1:]]},
    "terms that are missing": {"terms": None},
    "repetition of 0": {"repetition": 0.0},
    "tails as text": {"noise_kurtosis": "3"},
    "tails longer than any": {"noise_kurtosis": 4.0},
    "groups of a number": {"by": "age"},
    "groups by a number": {"by": 1},
    "records below 0": {"n_records": -1.0},
    "no receipt": {"receipt": None},
    "no schema of the groups": {"schema": None},
    "concerns that are text": {"concerns": "none"},
}


@pytest.mark.parametrize("name", BAD)
def test_a_damaged_file_is_refused(name, models, tmp_path):
    models["gaussian"].save(tmp_path / "model.json")
    with pytest.raises(ps.PrivsketchError, match=r"model\.json"):
        ps.load(altered(tmp_path / "model.json", **BAD[name]))


@pytest.mark.parametrize("kind", KINDS)
def test_any_field_may_be_anything(kind, models, tmp_path):
    """A file is read or refused, whatever one of its fields holds; what is read can be shown."""
    model, path = models[kind], tmp_path / "model.json"
    model.save(path)
    before = path.read_bytes()
    assert ps.load(altered(path, n_records=3.0)).n_records == 3.0
    size = model.dim + 1
    huge, nothing = [[1e59] * size] * size, [[0.0] * size] * size
    for name in model.field_names():
        for value in (None, True, 0, -1.5, "x", [], [[]], {}, [None], [1e308], huge, nothing):
            path.write_bytes(before)
            try:
                found = ps.load(altered(path, **{name: value}))
            except ps.PrivsketchError:
                continue
            found.describe()
            found.table()
            found.correlations()


def test_a_flipped_byte_is_seen(models):
    for place in (0, 40, 400, -3):
        data = bytearray(models["gaussian"].to_bytes())
        data[place] ^= 1
        with pytest.raises(ps.PrivsketchError, match="model"):
            SummaryModel.from_bytes(bytes(data))


def test_tables_begin_with_name_estimate_low_high(models):
    for model in models.values():
        assert list(model.table().columns[:4]) == ["name", "estimate", "low", "high"]
    found = models["gaussian"].table(by="ward")
    assert found.columns.names == ["ward", None]
    assert list(found.columns.levels[0]) == ["A", "B", "C", "other"]
    assert list(found["B"].columns) == ["estimate", "low", "high"]
    assert found.index.tolist()[:3] == ["records", "age", "income"]
    assert not any(name.startswith("ward=") for name in found.index)


def test_wider_levels_have_wider_intervals(models):
    for kind in ("gaussian", "pure"):
        narrow, wide = (models[kind].table(level=level).set_index("name") for level in (0.5, 0.99))
        for name in ("records", "age", "smoker"):
            assert wide.low[name] < narrow.low[name] < narrow.high[name] < wide.high[name]


def test_texts_say_units_and_what_is_drowned(models):
    text = models["gaussian"].describe()
    assert "pressure mmHg" in text
    assert "drowned in noise" in text  # label "other", which nobody has
    assert "third moments" in text
    assert "2020-0" in text
    assert "third moments" not in models["plain"].describe()
    heads, rows = models["gaussian"].shown_table("ward")
    assert heads == ["all records", "sd", "A", "B", "C", "other"]
    cells = dict(rows)
    assert " % (" in cells["smoker"][0]
    assert cells["income, geometric mean"][1].startswith("factor 2.")
    assert cells["day"][1].endswith(" days")
    assert all(cell in ("drowned in noise", "") for cell in cells["age"][5:])
    assert len(repr(models["gaussian"]).splitlines()) <= 10


def test_groups_are_drawn(models):
    pytest.importorskip("matplotlib")
    for field in ("age", "smoker"):
        axis = models["gaussian"].plot(field)
        assert len(axis.get_yticks()) == 4
        assert "by ward" in axis.get_xlabel()
    assert "ward=A in %" in models["gaussian"].plot("ward=A", by="smoker").get_xlabel()
    with pytest.raises(ParameterError, match="field"):
        models["gaussian"].plot("ward=A")
    with pytest.raises(ParameterError, match="by"):
        models["plain"].plot("x1")
