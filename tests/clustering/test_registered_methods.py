"""Methods that other packages register: found by name, checked, and named in receipts."""

from importlib.metadata import Distribution, EntryPoint

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.base import clone

import privsketch as ps
from privsketch import ParameterError
from privsketch._base import plugins
from privsketch.cli.main import main
from privsketch.clustering import Method, choose_method, cluster_with, method_names
from privsketch.clustering.baselines import lloyd
from privsketch.testing import check_method, neighbouring_tables, replay
from tests import seams

BOX = ps.Box(low=-1, high=1, dim=2)
ORIGIN = "quick-clusters 1.5"


def quick(run, n_clusters, *, noise="laplace"):
    """A method of another package: one round, with a default noise of its own."""
    return lloyd.cluster(run, n_clusters, noise=noise, n_rounds=1)


def leaking(run, n_clusters):
    """A method that uses an exact count of the records."""
    passes = run.read()
    count = passes.sums(lambda records: (np.array([len(records)]),), "count")[0]
    return lloyd.cluster(run, n_clusters, n_rounds=int(count[0]) % 2 + 1)


def failing(run, n_clusters):
    """A method whose error quotes a record."""
    raise RuntimeError(f"cannot cluster {np.vstack(list(run.read().blocks('all')))[0]}")


def empty(run, n_clusters):
    """A method that forgets to return its model."""


no_function = "not a method"


class Package(Distribution):
    """The metadata of a distribution that is not installed."""

    def read_text(self, filename):
        return "Metadata-Version: 2.1\nName: quick-clusters\nVersion: 1.5\n"

    def locate_file(self, path):
        return path


def entry_point(name, value):
    return EntryPoint(name, f"{__name__}:{value}", "privsketch.methods")._for(Package())


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    known = plugins._registered
    ours = {
        name: (entry_point(name, value),)
        for name, value in {
            "quick": "quick",
            "leaking": "leaking",
            "failing": "failing",
            "empty": "empty",
            "broken": "no_function",
            "missing": "nothing_of_this_name",
            "pipeline": "quick",
            "auto": "quick",
        }.items()
    }

    def with_package(group):
        return {**known(group), **ours} if group == "methods" else known(group)

    seams.set(monkeypatch, "plugins.registered", with_package)


def kmeans(method="quick", **options):
    facts = {"epsilon": 2.0, "delta": 0.0, "domain": BOX, "random_state": 0}
    return ps.PrivateKMeans(2, method=method, **{**facts, **options})


def records(n=200):
    return np.random.default_rng(0).choice([-0.5, 0.5], size=(n, 2))


def test_the_baselines_of_the_library_are_registered():
    names = {"lloyd", "grid", "sample-aggregate", "k-variates"}
    assert names < set(method_names())
    assert {Method.find(name).origin for name in names} == {None}
    takes_noise = {name for name in names if Method.find(name).takes_noise}
    assert takes_noise == {"lloyd", "sample-aggregate", "k-variates"}


def test_a_registered_method_is_used_by_its_name():
    model = kmeans().fit(records())
    assert model.method_ == model.model_.method == "quick"
    assert model.receipt_.plugins == (ORIGIN,)
    assert f"plugin      {ORIGIN}" in model.receipt_.describe()
    assert kmeans("lloyd").fit(records()).receipt_.plugins == ()
    found = cluster_with("quick", records(), 2, domain=BOX, budget=ps.Budget(2.0))
    assert found.receipt.plugins == (ORIGIN,)


def test_a_ledger_keeps_the_name_of_the_package(tmp_path):
    book = ps.Ledger.create(tmp_path / "book.ledger")
    book.add("patients", epsilon=10.0)
    kmeans(ledger=(tmp_path / "book.ledger", "patients")).fit(records())
    (entry,) = book.entries("patients")
    assert entry.receipt["plugins"] == [ORIGIN]


def test_names_of_the_library_cannot_be_replaced():
    assert Method.find("pipeline").origin is None
    with pytest.raises(ParameterError, match="method='auto'"):
        Method.find("auto")


@pytest.mark.parametrize("dim", [1, 3, 20])
def test_auto_never_chooses_a_registered_method(dim):
    box = ps.Box(-1, 1, dim=dim)
    facts = {"n_clusters": 3, "domain": box, "budget": ps.Budget(1.0)}
    for n_records in (None, 1e4):
        assert choose_method("auto", n_records=n_records, **facts).method in ("cells", "pipeline")


def test_noise_can_be_chosen_where_the_function_has_the_parameter(spent):
    parts = kmeans(options={"noise": "cube"}).fit(records()).receipt_.parts
    assert "cube" in parts[0].mechanism
    assert "Laplace" in kmeans().fit(records()).receipt_.parts[0].mechanism
    spent.clear()
    with pytest.raises(ParameterError, match=r"noise='cube' with .*'leaking'"):
        kmeans("leaking", options={"noise": "cube"}).fit(records())
    assert spent == []


def test_copies_of_an_estimator_name_the_same_method():
    estimator = clone(kmeans())
    assert estimator.get_params()["method"] == "quick"
    assert estimator.set_params(method="lloyd").fit(records()).method_ == "lloyd"


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("broken", f"{ORIGIN} registers an object that is not callable"),
        ("missing", f"{ORIGIN} registers .*nothing_of_this_name, which cannot be imported"),
        ("unknown", "expected one of .*'lloyd'.*'quick'"),
    ],
)
def test_what_is_no_method_is_refused_before_anything_is_spent(method, words, spent):
    with pytest.raises(ParameterError, match=words):
        kmeans(method).fit(records())
    with pytest.raises(ParameterError, match=words):
        cluster_with(method, records(), 2, domain=BOX, budget=ps.Budget(2.0))
    assert spent == []


def test_a_method_of_others_can_be_replayed_on_neighbouring_tables():
    for _, table, neighbour in neighbouring_tables(records(), BOX, "add-remove"):
        found = replay(lambda rows: kmeans(missing="center").fit(rows).model_, table, neighbour)
        np.testing.assert_array_equal(found.first.centers, found.second.centers)
        assert found.share_of_budget <= 1
    with pytest.raises(AssertionError, match=r"another law|questions than before"):
        replay(lambda rows: kmeans("leaking").fit(rows).model_, records(200), records(201))


def test_the_command_knows_registered_methods(tmp_path):
    np.save(tmp_path / "data.npy", records())
    model = tmp_path / "model.json"
    stated = ["-k", "2", "--epsilon", "2", "--delta", "0", "--box", "-1", "1", "-o", str(model)]
    command = ["cluster", str(tmp_path / "data.npy"), *stated, "--method"]
    result = CliRunner().invoke(main, [*command, "quick"])
    assert result.exit_code == 0, result.output
    assert ps.ClusterModel.load(model).receipt.plugins == (ORIGIN,)
    assert "quick" in CliRunner().invoke(main, ["cluster", "--help"]).output
    refused = CliRunner().invoke(main, [*command, "unknown"])
    assert refused.exit_code != 0
    assert "'quick'" in refused.output


def test_a_failure_names_the_package_and_quotes_nothing(tmp_path, monkeypatch):
    with pytest.raises(ps.PrivsketchError) as raised:
        kmeans("failing").fit(records())
    text = str(raised.value)
    assert f"method='failing': {ORIGIN} failed with RuntimeError at {__name__}, line " in text
    assert "0.5" not in text.replace(ORIGIN, "")
    assert raised.value.__context__ is None
    with pytest.raises(ParameterError, match=f"{ORIGIN} returned NoneType"):
        kmeans("empty").fit(records())
    np.save(tmp_path / "data.npy", records())
    stated = ["-k", "2", "--epsilon", "2", "--delta", "0", "--box", "-1", "1"]
    command = ["cluster", str(tmp_path / "data.npy"), *stated, "-o", str(tmp_path / "m.json")]
    failed = CliRunner().invoke(main, [*command, "--method", "failing"])
    assert failed.exit_code == 70
    assert ORIGIN in failed.stderr
    assert "please report it with this line" not in failed.stderr
    assert "nothing was spent" in failed.stderr
    monkeypatch.setenv("PRIVSKETCH_DEBUG", "1")
    with pytest.raises(RuntimeError, match="cannot cluster"):
        kmeans("failing").fit(records())


@pytest.mark.slow
def test_authors_can_check_their_methods():
    check_method("quick")
    with pytest.raises(AssertionError, match="record"):
        check_method("leaking")
