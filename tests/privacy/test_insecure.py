"""Insecure designs: every way in which a site could be brought to publish exact sums.

A sketch without noise needs two people: whoever wrote the design, and the caller of `sketch`. Each
test below is an attack by the first one alone, or a mix-up that would let exact sums pass for
private ones.
"""

import copy
import dataclasses
import hashlib
import json
import math
import pickle
import re
from pathlib import Path

import numpy as np
import pytest

import privsketch as ps
from privsketch._base import canonical_json, fingerprint, pack_sketch, unpack_sketch
from privsketch.clustering import cluster_with
from privsketch.design import plan_design
from privsketch.facts import NO_NOISE
from privsketch.noise import add_noise, insecure_noise, no_noise
from privsketch.pages import comparison_page
from privsketch.pages.report.html import report_page
from privsketch.testing import Tape, exact_answer, questions, replaced_noise
from tests import seams
from tests.answers import validated
from tests.commands import BUDGET, contents, run, succeeded

ROOT = Path(ps.__file__).parent
X = np.random.default_rng(0).uniform(-1, 1, size=(500, 2))
SECURE = ps.Design.plan(
    n_components=2,
    domain=ps.Box(-1, 1, dim=2),
    budget=ps.Budget(epsilon=1.0, delta=1e-6),
    n_records=500,
    feature_map="fourier",
    random_state=0,
)
INSECURE = SECURE.without_noise()


def exact_sketch(source="a", **options):
    return ps.sketch(X, INSECURE, source=source, insecure=True, **options)


# ---------------------------------------------------------------- what it is for


def test_the_sums_are_exact():
    released = exact_sketch()
    asked = questions(lambda: ps.sketch(X, SECURE))  # records what the noise function is given
    assert released.values[:-1].tolist() == asked[0].values[:-1].tolist()
    assert released.n_records == 500
    assert released.noise_variance == 0


@pytest.mark.parametrize("n", [0, 1])
def test_empty_tables_have_exact_sums_too(n):
    released = ps.sketch(X[:n], INSECURE, insecure=True)
    assert released.n_records == n
    ps.learn_kmeans(released, 2).describe()


@pytest.mark.parametrize(
    "options",
    [
        {"task": "gaussian-mixture"},
        {"feature_map": "one-bit"},
        {"feature_map": "cells"},
        {"task": "pca", "domain": ps.Ball(2, 2.0), "mean": "released"},
        {"task": "pca", "domain": ps.Ball(2, 2.0), "feature_map": "quadratic"},
        {"masks": "uniform:40", "n_features": 80},
        {"domain": ps.Schema([ps.Number("x", -1, 1), ps.Number("y", -1, 1)], person="who")},
    ],
)
def test_it_is_planned_without_a_budget(options):
    facts = {"n_components": 2, "domain": ps.Box(-1, 1, dim=2), "random_state": 1}
    design = ps.Design.plan(**{**facts, **options, "insecure": True})
    assert design.insecure
    assert design.noise == "none"
    assert math.isinf(design.budget.epsilon)
    assert "INSECURE" in design.describe()
    assert ps.Design.from_bytes(design.to_bytes()) == design
    private = ps.Design.plan(**{**facts, **options}, budget=ps.Budget(1.0, 1e-6))
    assert private.without_noise().insecure
    assert private.fingerprint != private.without_noise().fingerprint


@pytest.mark.parametrize(
    "options",
    [
        {"budget": ps.Budget(1.0)},
        {"noise": "gaussian"},
        {"noise": "none"},
        {"n_holders": 3},
        {"sharing": "tellers", "n_holders": 3},
        {"count": "public"},
        {"insecure": "yes"},
        {"insecure": 1},
    ],
)
def test_contradictory_plans_are_refused(options):
    facts = {"n_components": 2, "domain": ps.Box(-1, 1, dim=2), "insecure": True}
    with pytest.raises(ps.ParameterError):
        ps.Design.plan(**{**facts, **options})


def test_a_plan_without_a_budget_is_refused_as_before():
    with pytest.raises(ps.ParameterError, match="budget"):
        ps.Design.plan(n_components=2, domain=ps.Box(-1, 1, dim=2))
    with pytest.raises(ps.ParameterError, match="noise"):
        plan_design(
            n_components=2, domain=ps.Box(-1, 1, dim=2), budget=ps.Budget(1.0), noise="none"
        )


# ---------------------------------------------------------------- the caller has to ask


def test_an_ordinary_sketch_is_refused_in_words_before_a_record_is_read():
    def unread():
        raise AssertionError("a record was read")
        yield

    with pytest.raises(
        ps.BudgetError, match="INSECURE: whoever made it left out the noise"
    ) as info:
        ps.sketch(unread(), INSECURE)
    assert "exact sums of your records" in str(info.value)
    assert "No record was read" in str(info.value)


@pytest.mark.parametrize("insecure", [1, "true", np.True_, None])
def test_consent_is_true_and_nothing_like_it(insecure):
    with pytest.raises(ps.ParameterError, match="insecure"):
        ps.sketch(X, INSECURE, insecure=insecure)


def test_a_private_design_is_not_made_insecure_by_its_caller():
    with pytest.raises(ps.ParameterError, match="has noise"):
        ps.sketch(X, SECURE, insecure=True)


@pytest.mark.parametrize("limits", [{"max_epsilon": 100.0}, {"max_delta": 0.5}])
def test_no_limit_of_a_holder_allows_it(limits):
    with pytest.raises(ps.BudgetError, match="infinite"):
        exact_sketch(**limits)


@pytest.mark.parametrize("engine", ["threads", ps.engines.Pool(n_workers=2)])
def test_engines_do_not_matter(engine):
    with pytest.raises(ps.BudgetError):
        ps.sketch(X, INSECURE, engine=engine)
    with pytest.raises(ps.BudgetError):
        ps.sketch(X, pickle.loads(pickle.dumps(INSECURE)), engine=engine)
    released = exact_sketch(engine=engine)
    assert released.values.tolist() == exact_sketch().values.tolist()


def test_an_engine_of_others_that_is_asked_does_not_consent():
    class Curious:
        def sums(self, table, work, progress):
            with pytest.raises(ps.BudgetError):
                ps.sketch(X, INSECURE)
            with pytest.raises(ps.BudgetError):
                add_noise(np.arange(3), no_noise(3), source=None)
            return ps.engines.Threads(1).sums(table, work, progress)

    # Not inside of the caller's own consent either: the block is about one draw.
    exact_sketch(engine=Curious())


@pytest.mark.parametrize("name", ["PRIVSKETCH_INSECURE", "PRIVSKETCH_SKETCH_INSECURE"])
def test_the_environment_does_not_consent(monkeypatch, tmp_path, name):
    monkeypatch.setenv(name, "1")
    with pytest.raises(ps.BudgetError):
        ps.sketch(X, INSECURE)
    INSECURE.save(tmp_path / "study.json")
    np.save(tmp_path / "x.npy", X)
    result = run("sketch", tmp_path / "study.json", tmp_path / "x.npy", "-o", tmp_path / "a")
    assert result.exit_code == BUDGET


# ---------------------------------------------------------------- the one noise function


def test_the_law_without_noise_draws_only_with_consent():
    values = np.array([1, 2, 3])
    with pytest.raises(ps.BudgetError, match="only the caller of sketch"):
        add_noise(values, no_noise(3), source=None)
    with insecure_noise():
        noisy, receipt = add_noise(values, no_noise(3), source=None)
    assert noisy.tolist() == [1, 2, 3]
    assert receipt.epsilon == math.inf
    assert receipt.sampler == NO_NOISE


@pytest.mark.parametrize("kind", ["laplace", "gaussian", "cube", "choice", "zoom"])
def test_consent_is_about_that_law_alone(kind):
    law = dataclasses.replace(no_noise(3), kind=kind)
    with insecure_noise(), pytest.raises(ps.ParameterError, match="must be positive"):
        add_noise(np.arange(3), law, source=None)


def test_a_release_of_a_design_without_consent_stops_at_the_noise_function():
    # By hand, and by a pickle whose noise was exchanged behind a design that looks private.
    with pytest.raises(ps.BudgetError):
        INSECURE.sum_noise.release(np.zeros(INSECURE.n_values, np.int64), 0, source=None)
    forged = copy.copy(SECURE)
    forged.__dict__["sum_noise"] = INSECURE.sum_noise
    forged = pickle.loads(pickle.dumps(forged))
    assert not forged.insecure
    with pytest.raises(ps.BudgetError):
        ps.sketch(X, forged)


def test_only_sketch_gives_consent():
    users = {
        str(path.relative_to(ROOT))
        for path in ROOT.rglob("*.py")
        if re.search(r"\binsecure_noise\(\)", path.read_text(encoding="utf-8"))
    }
    assert users == {"noise/mechanism.py", "sketching/build.py"}


def test_a_planted_flaw_is_seen(monkeypatch):
    """If `sketch` forgot to ask, the test of refusals would notice."""
    seams.set(monkeypatch, "build.require_consent", lambda design, insecure: None)
    with pytest.raises(ps.BudgetError, match="only the caller"):  # the second line of defence
        ps.sketch(X, INSECURE)


# ---------------------------------------------------------------- ledgers


def test_a_ledger_refuses_it(tmp_path, monkeypatch):
    ledger = ps.Ledger.create(tmp_path / "ledger")
    ledger.add("patients", epsilon=10.0, delta=1e-3)
    before = contents(tmp_path)
    for stated in ((ledger.path, "patients"), ledger.path):
        with pytest.raises(ps.BudgetError, match="get no release"):
            exact_sketch(ledger=stated)
    monkeypatch.setenv("PRIVSKETCH_LEDGER", str(ledger.path))
    with pytest.raises(ps.BudgetError, match="PRIVSKETCH_LEDGER is set"):
        exact_sketch()
    with insecure_noise(), pytest.raises(ps.BudgetError):
        add_noise(np.arange(3), no_noise(3), source=None)
    assert contents(tmp_path) == before


def test_no_accounting_takes_its_cost():
    receipt = exact_sketch().receipt
    with pytest.raises(ps.BudgetError, match="no cost that could be added up"):
        ps.compose([receipt])
    private = ps.sketch(X, SECURE, source="a").receipt
    for parts in ((receipt, private), (private, receipt), (receipt, receipt)):
        with pytest.raises(ps.BudgetError, match="no cost that could be added up"):
            parts[0] + parts[1]
        with pytest.raises(ps.BudgetError):
            sum(parts)


# ---------------------------------------------------------------- files


def altered(change):
    value = copy.deepcopy(INSECURE.to_json())
    change(value)
    kind = "design"
    text = {"format": f"privsketch-{kind}", "version": 2, **value}
    return json.dumps({**text, "fingerprint": fingerprint(value)}).encode()


@pytest.mark.parametrize(
    "change",
    [
        lambda value: None,  # only the kind of the file
        lambda value: value.pop("insecure"),
        lambda value: value.update(insecure=False),
        lambda value: value.update(insecure=0),
        lambda value: value.update(insecure=None),
        lambda value: value.update(noise="gaussian"),
        lambda value: value.update(budget=SECURE.to_json()["budget"]),
        lambda value: value.update(insecure=False, budget=SECURE.to_json()["budget"]),
        lambda value: (value.pop("insecure"), value["budget"].update(epsilon=1.0)),
        lambda value: (value.pop("insecure"), value["budget"].update(epsilon=1e308)),
        lambda value: value["budget"].update(epsilon="infinity"),
        lambda value: value["budget"].update(delta=1e-6),
        lambda value: value["budget"].update(neighbours="replace"),
    ],
)
def test_a_design_that_hides_what_it_is_is_refused(change):
    with pytest.raises(ps.PrivsketchError):
        ps.Design.from_bytes(altered(change))


def test_a_private_design_cannot_call_itself_insecure():
    data = SECURE.to_bytes().replace(b"privsketch-design", b"privsketch-INSECURE-design")
    with pytest.raises(ps.FileError, match="disagree on privacy"):
        ps.Design.from_bytes(data)


def test_an_older_version_knows_neither_file():
    # Versions before this one take these fields, these kinds and this magic, and nothing else.
    assert b'"format": "privsketch-INSECURE-design"' in INSECURE.to_bytes()[:60]
    assert not exact_sketch().to_bytes().startswith(b"\x89privsk\n")
    assert b'{"INSECURE":' in exact_sketch().to_bytes()[:32]


def header_and_values():
    header, values = unpack_sketch(exact_sketch().to_bytes(), "sketch")
    return copy.deepcopy(header), values


def without_flag(header):
    del header["INSECURE"]


def with_private_design(header):
    header["design"] = SECURE.to_json()


def with_finite_cost(header):
    header["receipt"]["epsilon"] = 1.0


def with_private_sampler(header):
    header["receipt"]["sampler"] = "exact integer sampler, operating-system entropy"


ALL = (without_flag, with_private_design, with_finite_cost, with_private_sampler)


@pytest.mark.parametrize(
    "changes",
    [*((change,) for change in ALL), ALL[:2], ALL[1:], ALL[:1] + ALL[2:], ALL],
    ids=lambda changes: "+".join(change.__name__ for change in changes),
)
def test_a_sketch_whose_header_drops_a_flag_is_refused(changes):
    header, values = header_and_values()
    for change in changes:
        change(header)
    with pytest.raises(ps.PrivsketchError):
        ps.Sketch.from_bytes(pack_sketch(header, values))


def test_a_total_of_shared_noise_is_refused():
    header, values = header_and_values()
    shared = {"by": "holders", "study": "s", "turnout": 1, "needed": 1, "n_tellers": 2}
    for total in (shared, {}):
        with pytest.raises(ps.FileError, match="no noise that holders could share"):
            ps.Sketch.from_bytes(pack_sketch({**header, "shared": [total]}, values))


def test_a_magic_that_was_exchanged_is_refused():
    for data, old, new in (
        (exact_sketch().to_bytes(), b"\x89privIN\n", b"\x89privsk\n"),
        (ps.sketch(X, SECURE).to_bytes(), b"\x89privsk\n", b"\x89privIN\n"),
    ):
        body = data[:-32].replace(old, new, 1)
        with pytest.raises(ps.FileError, match="disagree on privacy"):
            ps.Sketch.from_bytes(body + hashlib.sha256(body).digest())


def test_receipts_agree_with_themselves():
    value = exact_sketch().receipt.to_json()
    assert value["epsilon"] == "infinite"
    assert ps.Receipt.from_json(value) == exact_sketch().receipt
    private = ps.sketch(X, SECURE).receipt.to_json()
    for wrong in (
        {**value, "epsilon": 1.0},
        {**value, "sampler": private["sampler"]},
        {**private, "epsilon": "infinite"},
        {**private, "sampler": NO_NOISE},
    ):
        with pytest.raises(ps.ParameterError):
            ps.Receipt.from_json(wrong)


def test_models_and_pages_of_it_say_so(tmp_path):
    released = exact_sketch()
    model = ps.learn_kmeans(released, 2)
    assert b'"format": "privsketch-INSECURE-cluster-model"' in model.to_bytes()[:70]
    for told in (repr(INSECURE), repr(released), repr(model), model.describe()):
        assert "INSECURE" in told
    for told in (INSECURE._repr_html_(), released._repr_html_(), model._repr_html_()):
        assert "INSECURE" in told
    assert "INSECURE" in released.describe().splitlines()[0]
    page = Path(ps.report(model, tmp_path / "page.html", sketch=released)).read_text()
    assert '<div class="note insecure" role="alert"><b>INSECURE.' in page
    assert "can hardly tell" not in page
    model.save(tmp_path / "model.json")
    assert ps.load(tmp_path / "model.json") is not None
    data = model.to_bytes().replace(b"privsketch-INSECURE-cluster", b"privsketch-cluster")
    with pytest.raises(ps.FileError, match="privacy"):
        ps.ClusterModel.from_bytes(data)
    private = ps.learn_kmeans(ps.sketch(X, SECURE), 2)
    page = Path(ps.report(private, tmp_path / "b.html", sketch=ps.sketch(X, SECURE))).read_text()
    assert "INSECURE" not in page


@pytest.mark.parametrize("task", ["kmeans", "gaussian-mixture", "pca"])
def test_nothing_on_a_page_of_it_claims_privacy(task):
    design = ps.Design.plan(
        task=task,
        n_components=2,
        domain=ps.Ball(dim=2, radius=2.0),
        insecure=True,
        random_state=0,
    )
    released = ps.sketch(X, design, insecure=True)
    learn = {"kmeans": ps.learn_kmeans, "pca": ps.learn_pca}.get(task, ps.learn_gaussian_mixture)
    model = learn(released)
    for page in (report_page(model, released), report_page(model)):
        assert "<title>INSECURE: " in page
        assert "Learned from an INSECURE sketch" in page
        for claim in ("Private ", "differential", "privacy noise", "of the noise, the components",
                      "protects one", "Unit of protection"):  # fmt: skip
            assert claim not in page


def test_comparisons_of_it_say_so():
    comparison = ps.compare([exact_sketch(name) for name in "abc"])
    assert "<b>INSECURE.</b>" in comparison_page(comparison)


# ---------------------------------------------------------------- sketches do not mix


def test_merging_with_private_sketches_is_refused():
    private = ps.sketch(X, SECURE, source="b")
    for pair in ([exact_sketch(), private], [private, exact_sketch()]):
        with pytest.raises(ps.PrivsketchError, match="INSECURE"):
            ps.merge(pair)
    forged = dataclasses.replace(exact_sketch(), design=SECURE)
    with pytest.raises(ps.PrivsketchError):
        ps.merge([forged, private])
    total = ps.merge([exact_sketch("a"), exact_sketch("b")])
    assert not total.receipt.is_private
    assert ps.Sketch.from_bytes(total.to_bytes()).values.tolist() == total.values.tolist()
    twice = ps.merge([exact_sketch("a"), exact_sketch("a")], same_records=True)
    assert not ps.Sketch.from_bytes(twice.to_bytes()).receipt.is_private


# ---------------------------------------------------------------- other ways to a sketch


def test_opendp_refuses_it():
    opendp = pytest.importorskip("opendp.prelude")
    from privsketch.sketching.opendp import make_column, make_sketch

    opendp.enable_features("contrib", "honest-but-curious")
    for make in (lambda: make_sketch(INSECURE), lambda: make_column(INSECURE, 0)):
        with pytest.raises(ps.ParameterError, match="OpenDP does not take it"):
            make()


def test_no_estimator_and_no_method_takes_it():
    budget = INSECURE.budget
    with pytest.raises(ps.PrivsketchError):
        ps.PrivateKMeans(2, epsilon=math.inf, delta=0.0, domain=ps.Box(-1, 1), method="sketch").fit(
            X
        )
    with pytest.raises(ps.PrivsketchError):
        ps.PrivateKMeans(
            2, epsilon=1.0, delta=0.0, domain=ps.Box(-1, 1), options={"insecure": True}
        ).fit(X)
    with pytest.raises(ps.PrivsketchError):
        ps.PrivateKMeans(
            2, epsilon=1.0, delta=0.0, domain=ps.Box(-1, 1), options={"noise": "none"}
        ).fit(X)
    with pytest.raises(ps.PrivsketchError):
        plan_design(n_components=2, domain=ps.Box(-1, 1, dim=2), budget=budget)
    for method in ("lloyd", "cells", "pipeline", "partition-tree", "sample-aggregate"):
        with pytest.raises(ps.PrivsketchError):
            cluster_with(method, X, 2, domain=ps.Box(-1, 1, dim=2), budget=budget, n_records=500)


def test_a_budget_of_everything_is_no_budget():
    for epsilon in (math.inf, 1e308, 101):
        with pytest.raises(ps.ParameterError, match="epsilon"):
            ps.Budget(epsilon)


def test_replaced_noise_is_not_its_receipt():
    """Noise that a test replaces stays marked, and cannot be taken for a release without any."""
    with replaced_noise(Tape(answer=exact_answer).record):
        replaced = ps.sketch(X, SECURE, source="a")
    assert replaced.receipt.sampler != NO_NOISE
    assert replaced.receipt.is_private


# ---------------------------------------------------------------- signatures and commands


def test_nobody_signs_it(tmp_path):
    key = ps.Key.generate("owner")
    for data in (INSECURE.to_bytes(), exact_sketch().to_bytes()):
        for kind in ("design", "sketch"):
            with pytest.raises(ps.PrivsketchError, match="INSECURE"):
                key.signature(data, kind)
    succeeded("key", "make", "--no-passphrase", tmp_path / "me.key")
    INSECURE.save(tmp_path / "study.json")
    result = run("key", "sign", tmp_path / "study.json", "--key", tmp_path / "me.key")
    assert result.exit_code != 0
    assert "INSECURE" in result.output
    np.save(tmp_path / "x.npy", X)
    for command in (
        ["sketch", tmp_path / "study.json", tmp_path / "x.npy", "-o", tmp_path / "a.sketch"],
        ["design", "-k", 2, "--box", 0, 1, "--dim", 2, "-o", tmp_path / "b.json"],
    ):
        before = contents(tmp_path)
        result = run(*command, "--insecure", "--key", tmp_path / "me.key")
        assert result.exit_code != 0
        assert "signature" in result.output
        assert contents(tmp_path) == before


def test_commands_need_the_same_consent(tmp_path):
    np.save(tmp_path / "x.npy", X)
    design, sketch = tmp_path / "study.json", tmp_path / "a.sketch"
    domain = ["-k", 2, "--box", -1, 1, "--dim", 2]
    told = succeeded("design", *domain, "--insecure", "--seed", 0, "-o", design)
    assert "INSECURE" in told.stdout
    told = succeeded("design", *domain, "--insecure", "-o", tmp_path / "b.json", "--json")
    assert "INSECURE" in validated(json.loads(told.stdout), "design")["cautions"][0]
    assert run("design", *domain, "--insecure", "--epsilon", 1, "-o", "-").exit_code != 0
    missing = run("design", *domain, "-o", "-")
    assert "Missing option '--epsilon'" in missing.output
    before = contents(tmp_path)
    for options in ([], ["--dry-run"], ["--force"], ["--max-epsilon", 1000]):
        refusal = run("sketch", design, tmp_path / "x.npy", "-o", sketch, *options)
        assert refusal.exit_code == BUDGET
        assert "whoever made it left out the noise" in refusal.stderr
        assert "nothing was spent" in refusal.stderr
    assert contents(tmp_path) == before
    told = succeeded("sketch", design, tmp_path / "x.npy", "-o", sketch, "--insecure", "--json")
    facts = validated(json.loads(told.stdout), "sketch")
    assert facts["cost"]["epsilon"] == "infinite"
    assert "INSECURE" in facts["cautions"][0]
    model = tmp_path / "model.json"
    told = succeeded("learn", sketch, "-o", model, "--report", tmp_path / "page.html")
    assert told.stdout.startswith("INSECURE")
    again = ["-o", model, "--force", "--json"]  # a result of its kind is replaced
    validated(json.loads(succeeded("learn", sketch, *again).stdout), "learn")
    for path, kind in ((design, "design"), (sketch, "sketch"), (model, "cluster-model")):
        told = validated(json.loads(succeeded("inspect", path, "--json").stdout), "inspect")
        assert told["kind"] == f"INSECURE-{kind}"
    total = ["-o", tmp_path / "total.sketch", "--json"]
    validated(json.loads(succeeded("merge", sketch, *total).stdout), "merge")
    SECURE.save(tmp_path / "secure.json")
    refusal = run("sketch", tmp_path / "secure.json", tmp_path / "x.npy", "-o", "-", "--insecure")
    assert refusal.exit_code != 0


def test_canonical_json_has_no_infinity():
    canonical_json(INSECURE.to_json())
    canonical_json(exact_sketch().receipt.to_json())
