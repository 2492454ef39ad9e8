"""Settings of methods: fields of KMeansOptions and --option of commands, with the same checks."""

from dataclasses import dataclass
from importlib.metadata import EntryPoint
from types import SimpleNamespace
from typing import Literal

import numpy as np
import pytest

import privsketch as ps
from privsketch._base import parsed_settings, settings_of
from tests import seams
from tests.commands import run, succeeded

CENTERS = np.array([[-0.5, -0.5], [0.5, 0.5]])
X = np.repeat(CENTERS, 500, axis=0)
BOX = ps.Box(-1, 1, dim=2)


def fit(method, delta=1e-6, **options):
    return ps.PrivateKMeans(
        2,
        epsilon=1.0,
        delta=delta,
        domain=BOX,
        method=method,
        n_records=1000,
        random_state=0,
        options=options,
    ).fit(X)


@pytest.mark.parametrize(
    ("method", "options", "n_parts"),
    [
        ("lloyd", {"n_rounds": 2}, 2),
        ("lloyd", {"n_rounds": 5, "start": "uniform", "noise": "gaussian"}, 5),
        ("partition-tree", {"n_trees": 1, "n_levels": 4}, 4),
        ("partition-tree", {"n_trials": 2, "n_swaps": 1}, 9),
        ("sample-aggregate", {"n_blocks": 20}, None),
        ("pipeline", {"n_rounds": 2}, 5),
    ],
)
def test_settings_reach_the_method_within_the_same_budget(method, options, n_parts):
    model = fit(method, **options)
    assert model.method_ == method
    assert model.receipt_.epsilon <= 1.0
    assert model.receipt_.delta <= 1e-6
    if n_parts is not None:
        assert len(model.receipt_.parts) == n_parts


@pytest.mark.parametrize(
    ("method", "options", "words"),
    [
        ("lloyd", {"n_rounds": 0}, "n_rounds=0"),
        ("lloyd", {"n_rounds": True}, "n_rounds=True"),
        ("lloyd", {"start": "records"}, "start='records'"),
        ("lloyd", {"n_trials": 2}, "option 'n_trials' of .*lloyd.*: noise, n_rounds, start"),
        ("cells", {"n_rounds": 2}, "its options are: none"),
        ("partition-tree", {"n_trials": 0}, "n_trials=0"),
        ("partition-tree", {"n_levels": 10**6}, "n_levels=1000000"),
        ("sample-aggregate", {"n_blocks": 10**9}, "n_blocks=1000000000"),
        ("pipeline", {"n_rounds": 1000}, "planned with one of"),
        ("sketch", {"n_rounds": 2}, "belongs to a method that reads records"),
        ("auto", {"start": "uniform"}, "belongs to a method that reads records"),
        ("lloyd", {"own": {"epsilon": 100.0}}, "option 'epsilon'"),
        ("lloyd", {"own": {"budget": ps.Budget(100.0)}}, "option 'budget'"),
        ("pipeline", {"own": {"plan": None}}, "option 'plan'"),
    ],
)
def test_other_settings_are_refused_before_anything_is_spent(method, options, words, monkeypatch):
    def draw(*_):
        raise AssertionError("noise was drawn")

    seams.set(monkeypatch, "mechanism.exact_sampler", draw)
    with pytest.raises(ps.ParameterError, match=words):
        fit(method, **options)


@dataclass(frozen=True)
class Depth:
    n_deep: int = 3
    share: float | None = None


def bisecting(
    run,
    n_clusters,
    *,
    required_by_us=None,
    mode: Literal["fast", "slow"] = "fast",
    depth: Depth | None = None,
    is_wide: bool = False,
):
    raise SystemExit((mode, depth, is_wide, required_by_us))


def decode_slowly(problem, n_clusters, rng, *, n_init, step: float = 0.5):
    raise SystemExit(step)


@pytest.fixture
def registered(monkeypatch):
    points = {
        "methods": {"bisecting": (EntryPoint("bisecting", f"{__name__}:bisecting", ""),)},
        "decoders": {"slow": (EntryPoint("slow", f"{__name__}:decode_slowly", ""),)},
    }
    for group in points.values():
        for (point,) in group.values():
            vars(point).update(dist=SimpleNamespace(name="other", version="1"))
    seams.set(monkeypatch, "plugins.registered", lambda group: points.get(group, {}))


def test_methods_of_others_declare_theirs(registered, tmp_path):
    with pytest.raises(SystemExit) as info:
        fit("bisecting", own={"mode": "slow", "n_deep": 5})
    assert info.value.code == ("slow", Depth(5), False, None)
    with pytest.raises(ps.ParameterError, match="required_by_us, mode, n_deep, share, is_wide"):
        fit("bisecting", own={"depth": 5})
    np.save(tmp_path / "x.npy", X)
    command = ["cluster", tmp_path / "x.npy", "-k", 2, "--box", -1, 1, "--epsilon", 1, "--delta", 0]
    command += ["-o", tmp_path / "m.json", "--method", "bisecting"]
    given = ["--option", "share=0.25", "--option", "is_wide=true", "--option", "required_by_us=x=y"]
    assert "mode" in run(*command, "--option", "wrong=1").output
    # The method ends the program with what it got.
    assert "('fast', Depth(n_deep=3, share=0.25), True, 'x=y')" in run(*command, *given).output


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("n_deep=12", 12),
        ("share=1e-3", 1e-3),
        ("mode=slow", "slow"),
        ("is_wide=false", False),
        ("required_by_us=3", "3"),
    ],
)
def test_values_are_read_by_their_types(text, value):
    settings = settings_of(bisecting)
    (read,) = parsed_settings(settings, [text], "bisecting").values()
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["n_deep=1.5"], "expected a whole number"),
        (["share=much"], "expected a number"),
        (["mode=medium"], "expected fast or slow"),
        (["is_wide=yes"], "expected true or false"),
        (["n_deep"], "like n_rounds=5"),
        (["=5"], "like n_rounds=5"),
        (["n_deep=1", "n_deep=2"], "given twice"),
        (["deep=1"], "its options are: required_by_us, mode, n_deep"),
    ],
)
def test_texts_that_are_no_values_are_refused(texts, words):
    with pytest.raises(ps.ParameterError, match=words):
        parsed_settings(settings_of(bisecting), texts, "bisecting")


def test_options_of_commands_are_those_of_estimators(tmp_path):
    np.save(tmp_path / "x.npy", X)
    command = ["cluster", tmp_path / "x.npy", "-k", 2, "--box", -1, 1, "--epsilon", 1]
    command += ["--delta", "1e-6", "-o", tmp_path / "m.json", "--force"]
    succeeded(*command, "--method", "lloyd", "--option", "n_rounds=2", "--option", "start=uniform")
    assert len(ps.load(tmp_path / "m.json").receipt.parts) == 2
    succeeded(*command, "--method", "sketch", "--option", "n_features=50", "--option", "n_init=1")
    assert "101 integers" in ps.load(tmp_path / "m.json").receipt.mechanism
    for options in (
        ["--option", "n_rounds=2"],  # of auto
        ["--method", "lloyd", "--option", "n_rounds=few"],
        ["--method", "lloyd", "--option", "epsilon=100"],
        ["--method", "sketch", "--option", "n_rounds=2"],
        ["--loss", "distances", "--method", "rounds", "--option", "n_rounds=2"],
    ):
        before = (tmp_path / "m.json").read_bytes()
        assert run(*command, *options).exit_code == 2, options
        assert (tmp_path / "m.json").read_bytes() == before


def test_decoders_of_others_declare_theirs(registered, tmp_path):
    design = ps.Design.plan(
        n_components=2, domain=BOX, budget=ps.Budget(1.0, 1e-6), feature_map="fourier"
    )
    ps.sketch(X, design).save(tmp_path / "a.sketch")
    command = ["learn", tmp_path / "a.sketch", "--decoder", "slow", "--option"]
    assert "0.125" in run(*command, "step=0.125").output
    assert "its options are: step" in run(*command, "n_init=3").output
    with pytest.raises(SystemExit, match="2"):
        ps.learn_kmeans(ps.sketch(X, design), 2, decoder=decode_slowly, options={"step": 2})
    assert (
        "--option does not go with"
        in run(
            "learn", tmp_path / "a.sketch", "--task", "gaussian-mixture", "--option", "step=1"
        ).output
    )


def test_own_settings_are_a_mapping():
    for own in (3, "n_points"):
        with pytest.raises(ps.ParameterError, match=r"own=.*expected a mapping of settings"):
            ps.KMeansOptions(own=own)
    with pytest.raises(ps.ParameterError, match=r"n_rounds=2\.5: expected a whole number or auto"):
        fit("lloyd", n_rounds=2.5)
