"""The comparison with other systems: adapters, resuming, tables, and budgets that add up.

Peers are stood in for by small modules of the same names and calls, so that their adapters are
tested without them; diffprivlib itself is asked where it can be imported.
"""

import importlib
import importlib.util
import re
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import privsketch as ps
from privsketch import ParameterError
from privsketch.clustering import clustered, method_names
from privsketch.clustering.baselines import lloyd
from privsketch.facts import exact

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def module(name):
    return importlib.import_module(name)


@pytest.fixture
def protocol():
    return module("benchmarks.peers.protocol")


@pytest.fixture
def request_for(tmp_path, protocol):
    """A request for centers of 200 records."""
    records = np.random.default_rng(0).uniform(2, 4, (200, 2))
    np.save(tmp_path / "records.npy", records)

    def made(**changes):
        told = {
            "task": "kmeans",
            "records": str(tmp_path / "records.npy"),
            "n_clusters": 3,
            "epsilon": 2.0,
            "delta": 0.0,
            "domain": {"low": [2.0, 2.0], "high": [4.0, 4.0]},
            "seed": 7,
            "options": {"cluster_variance": 0.25},
        }
        return protocol.Request(**{**told, **changes})

    return made


@pytest.fixture
def ask(tmp_path, monkeypatch, protocol):
    """Ask a Python script, or an adapter by its module, with stand-ins on the path."""
    opened = []
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def made(request, script=None, adapter=None, patience=30.0):
        command = [sys.executable, "-m", f"benchmarks.peers.{adapter}"]
        if script is not None:
            (tmp_path / "peer.py").write_text(script)
            command = [sys.executable, str(tmp_path / "peer.py")]
        opened.append(protocol.Peer(command, patience))
        return opened[-1].ask(request)

    yield made
    for peer in opened:
        peer.close()


def stand_in(folder, files):
    """A package made of these files."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)
        (path.parent / "__init__.py").touch()


# --- the protocol ------------------------------------------------------------------------

OWN = """
import numpy as np
from benchmarks.peers.protocol import Found, PeerRefusal, serve

def fit(records, request):
    print("a peer may print what it likes")
    if request.delta:
        raise PeerRefusal("no delta")
    if request.seed == 13:
        raise ValueError("bad luck")
    held = np.ones(2**22)  # 32 MB
    return Found(records[: request.n_clusters] * held[0], f"epsilon {request.epsilon}", 1.5)

serve("mine 1.0", {"kmeans": fit})
"""


def test_a_peer_of_ones_own_is_asked_for_centers(ask, request_for):
    answer = ask(request_for(), OWN)
    records = np.load(request_for().records)
    np.testing.assert_array_equal(answer.centers, records[:3])  # JSON keeps every bit
    assert (answer.version, answer.remark, answer.spends) == ("mine 1.0", "epsilon 2.0", 1.5)
    assert answer.seconds > 0
    assert 30 < answer.peak_mb < 100


def test_memory_is_told_of_the_first_run_only(tmp_path, protocol, request_for):
    (tmp_path / "peer.py").write_text(OWN)
    peer = protocol.Peer([sys.executable, str(tmp_path / "peer.py")])
    try:
        assert peer.version() == "mine 1.0"
        with pytest.raises(protocol.PeerRefusal, match="no delta"):
            peer.ask(request_for(delta=1e-6))
        assert peer.ask(request_for()).peak_mb is not None
        assert peer.ask(request_for()).peak_mb is None
    finally:
        peer.close()


@pytest.mark.parametrize(
    ("script", "seed", "message"),
    [
        (OWN, 13, "ValueError: bad luck"),
        ("import there_is_no_such_module", 0, "ModuleNotFoundError"),
        ("input(); print('hello')", 0, "no JSON object"),
        ("input(); print('{}')", 0, "protocol"),
        ('input(); print(\'{"centers": [[NaN]], "seconds": 1, "spends": 1}\')', 0, "finite"),
        ("input()", 0, "it said nothing"),
    ],
)
def test_a_peer_that_fails_is_told_apart(ask, request_for, protocol, script, seed, message):
    with pytest.raises(protocol.PeerError, match=message):
        ask(request_for(seed=seed), script)


def test_a_peer_that_does_not_answer_is_given_up(ask, request_for, protocol):
    with pytest.raises(protocol.PeerTimeoutError, match=r"0\.2 s"):
        ask(request_for(), "import time; time.sleep(60)", patience=0.2)
    with pytest.raises(protocol.PeerError, match="cannot be started"):
        protocol.Peer(["/there/is/no/such/command"]).ask(request_for())


def test_a_domain_is_a_box_and_a_ball(request_for):
    box = request_for()
    assert box.ball[0].tolist() == [3.0, 3.0]
    assert box.ball[1] == pytest.approx(np.sqrt(2))
    ball = request_for(domain={"center": [1.0, 0.0], "radius": 2.0})
    assert [side.tolist() for side in ball.bounds] == [[-1.0, -2.0], [3.0, 2.0]]
    told = module("benchmarks.compare.runs").domain_as_json
    assert told(ps.Box([2, 2], [4, 4])) == box.domain
    assert told(ps.Ball(2, 2.0, [1.0, 0.0])) == ball.domain


# --- adapters ----------------------------------------------------------------------------

DIFFPRIVLIB = """
import numpy as np
class KMeans:
    def __init__(self, n_clusters, *, epsilon, bounds, random_state):
        self.told = np.array([[n_clusters, epsilon], bounds[0], bounds[1], [random_state, 0]])
    def fit(self, X):
        self.cluster_centers_ = self.told
        return self
class PCA:
    def __init__(self, n_components, *, epsilon, data_norm, centered, random_state):
        assert centered
        self.told = [epsilon, data_norm]
    def fit(self, X):
        self.components_ = np.array([self.told, X.mean(axis=0)])
        return self
"""


def test_diffprivlib_is_asked_as_stated_and_corrected(tmp_path, ask, request_for, protocol):
    stand_in(tmp_path, {"diffprivlib/models.py": DIFFPRIVLIB})
    (tmp_path / "diffprivlib/__init__.py").write_text("__version__ = 'stand-in'")
    spent = module("benchmarks.peers.diffprivlib").spend(2)
    stated = ask(request_for(), adapter="diffprivlib")
    assert stated.centers.tolist() == [[3, 2.0], [2.0, 2.0], [4.0, 4.0], [7, 0]]
    assert stated.spends == pytest.approx(spent)
    assert stated.version == "diffprivlib stand-in"
    corrected = ask(request_for(options={"corrected": True}), adapter="diffprivlib")
    assert corrected.centers[0, 1] * spent == pytest.approx(2.0)
    assert corrected.spends == 1
    parts = ask(request_for(task="pca"), adapter="diffprivlib")
    records = np.load(request_for().records)
    expected = [[2.0, np.sqrt(2)], records.mean(axis=0) - 3.0]
    np.testing.assert_allclose(parts.centers, expected, atol=1e-12)
    with pytest.raises(protocol.PeerRefusal, match="pure"):
        ask(request_for(delta=1e-6), adapter="diffprivlib")


def test_google_is_asked_about_the_origin(tmp_path, ask, request_for, protocol):
    params = """
from collections import namedtuple
Data = namedtuple("Data", "datapoints radius")
DifferentialPrivacyParam = namedtuple("DifferentialPrivacyParam", "epsilon delta")
"""
    algorithm = """
from types import SimpleNamespace
def private_lsh_clustering(k, data, budget):
    assert abs(data.datapoints).max() <= 1
    row = [budget.epsilon, budget.delta]
    return SimpleNamespace(centers=[row, [data.radius, k]])
"""
    files = {"clustering_params.py": params, "clustering_algorithm.py": algorithm}
    stand_in(tmp_path, {f"clustering/{name}": text for name, text in files.items()})
    answer = ask(request_for(delta=1e-6), adapter="google")
    np.testing.assert_allclose(answer.centers - 3, [[2.0, 1e-6], [np.sqrt(2), 3]], atol=1e-12)
    with pytest.raises(protocol.PeerRefusal, match="delta"):
        ask(request_for(), adapter="google")


def test_pycle_is_told_the_scale_and_its_size(tmp_path, ask, request_for, protocol):
    sketching = """
import numpy as np
def drawFrequencies(kind, d, m, Sigma):
    return np.array([d, m, Sigma[0, 0]])
def SimpleFeatureMap(name, frequencies):
    return frequencies
def computeSketch_DP(records, features, epsilon, delta):
    return np.array([len(records), epsilon, delta])
"""
    learning = """
import numpy as np
class CLOMP_CKM:
    def __init__(self, features, k, bounds, sketch):
        assert bounds.shape == (2, 2)
        self.told = np.array([features, sketch])
    def fit_several_times(self, n):
        pass
    def get_centroids(self):
        return self.told
"""
    files = {"pycle/sketching.py": sketching, "pycle/compressive_learning.py": learning}
    stand_in(tmp_path, files)
    answer = ask(request_for(), adapter="pycle")
    assert answer.centers.tolist() == [[2, 60, 1.0], [200, 2.0, 0.0]]
    assert "told the width" in answer.remark
    with pytest.raises(protocol.PeerRefusal, match="minutes"):
        ask(request_for(n_clusters=101), adapter="pycle")


# --- runs --------------------------------------------------------------------------------


@pytest.fixture
def setting():
    """Two tight clusters, one budget without delta."""
    datasets = module("benchmarks.datasets")
    cells = module("benchmarks.compare.cells")
    data = datasets.DataSet("two", 2, ps.Box(-1, 1, dim=2), datasets.tight_plane(2, 400, 0.05))
    return cells.Setting(data, [(1.0, 0.0)], 2)


@pytest.fixture
def peers(tmp_path):
    (tmp_path / "peer.py").write_text(OWN)
    method = module("benchmarks.compare.methods").PeerMethod
    return [
        method("mine", (sys.executable, str(tmp_path / "peer.py"))),
        method("broken", (sys.executable, "-c", "import nothing_like_this")),
    ]


def small_run(monkeypatch, store, setting, peers):
    runs = module("benchmarks.compare.runs")
    monkeypatch.setattr(runs, "OURS", ("sketch",))
    monkeypatch.setattr(runs, "BASELINES", ("grid", "lloyd uniform"))
    work = runs.tasks([setting], peers, 5, store)
    runs.run_all(work, store, 2, 30.0)
    return work


@pytest.mark.slow
def test_what_has_its_row_is_not_run_again(tmp_path, monkeypatch, setting, peers):
    store = module("benchmarks.compare.runs").Store(tmp_path / "compare.csv")
    store.begin()
    work = small_run(monkeypatch, store, setting, peers)
    assert [task.seed for task in work] == [0, 1]  # as many repetitions as the setting allows
    rows = store.rows()
    assert len(rows) == len(store.done()) == 2 * 5
    by_method = {row["method"]: row for row in rows if row["seed"] == "0"}
    assert [by_method[name]["kind"] for name in ("sketch", "grid", "lloyd uniform", "mine")] == [
        *("ours", "baseline", "baseline", "peer")
    ]
    assert float(by_method["grid"]["rsse"]) > 0.9
    assert (by_method["grid"]["n"], by_method["grid"]["d"]) == ("400", "2")
    # Memory once for each method, time always.
    assert by_method["sketch"]["peak_mb"]
    assert all(not row["peak_mb"] for row in rows if row["seed"] == "1")
    assert by_method["mine"]["note"] == "spends 1.50 epsilon; mine 1.0; epsilon 1.0"
    # A peer that fails leaves a row that says so, and the others run on.
    assert by_method["broken"]["rsse"] == ""
    assert by_method["broken"]["note"].startswith("failed: the process ended: ModuleNotFound")
    assert small_run(monkeypatch, store, setting, peers) == []
    assert store.rows() == rows
    kept = [
        line for line in store.path.read_text().splitlines(True) if ",grid,baseline,1," not in line
    ]
    store.path.write_text("".join(kept))
    (again,) = small_run(monkeypatch, store, setting, peers)
    assert (again.seed, again.own, again.asked) == (1, (("grid", 1.0, 0.0),), ())
    assert store.done() == {tuple(row[name] for name in store.key) for row in rows}


@pytest.mark.slow
def test_a_method_that_refuses_a_cell_leaves_the_others(tmp_path, monkeypatch, setting):
    runs = module("benchmarks.compare.runs")
    right = runs.fitted

    def refusing(method, *facts):
        if method == "grid":
            raise ParameterError("n_records=400: too many cells")
        return right(method, *facts)

    monkeypatch.setattr(runs, "fitted", refusing)
    store = runs.Store(tmp_path / "compare.csv")
    store.begin()
    small_run(monkeypatch, store, setting, [])
    assert {row["method"] for row in store.rows()} == {"sketch", "lloyd uniform"}
    assert {row["seed"] for row in store.rows()} == {"0", "1"}


def test_a_peer_that_is_slow_is_not_asked_again(setting):
    runs, methods = module("benchmarks.compare.runs"), module("benchmarks.compare.methods")
    slow = methods.PeerMethod("slow", (sys.executable, "-c", "import time; time.sleep(60)"))
    asked = tuple((slow, epsilon, 0.0) for epsilon in (1.0, 2.0, 3.0))
    added = []
    task = runs.Task(setting.data, 0, (), asked)
    runs.ask_peers(task, np.zeros((5, 2)), 1.0, 0.3, lambda *row: added.append(row))
    assert [row[3] for row in added] == [None] * 3
    assert added[0][4] == "failed: no answer in 0.3 s"
    assert added[2][4] == "failed: no answer in 0.3 s under another budget"


def test_peers_that_do_not_start_are_left_out_with_a_message(tmp_path):
    told = []
    (tmp_path / "peer.py").write_text(OWN)
    given = {"mine": [sys.executable, str(tmp_path / "peer.py")]}
    found = module("benchmarks.compare.methods").peer_methods(
        tmp_path / "python", given, told.append
    )
    assert [method.name for method in found] == ["mine"]
    assert [line.split(" ")[0] for line in told] == ["diffprivlib", "pycle", "google", "mine:"]
    assert all("left out: cannot be started" in line for line in told[:3])
    with pytest.raises(SystemExit, match="NAME=COMMAND"):
        module("benchmarks.compare.__main__").parsed_peers(["no command"])
    assert module("benchmarks.compare.__main__").parsed_peers(["a=b 'c d'"]) == {"a": ["b", "c d"]}


def test_a_receipt_over_the_budget_stops_the_run():
    require = module("benchmarks.compare.methods").require_within
    model = clustered(
        lloyd.cluster, np.zeros((5, 2)), 1, domain=ps.Box(-1, 1, dim=2), budget=ps.Budget(0.5, 1e-6)
    )
    require(model.receipt, ps.Budget(0.5, 1e-6))
    for budget in (ps.Budget(0.49, 1e-6), ps.Budget(0.5, 1e-7), ps.Budget(0.5)):
        with pytest.raises(RuntimeError, match="receipt"):
            require(model.receipt, budget)


@pytest.mark.slow
def test_every_method_of_the_package_joins_in():
    methods, cells = module("benchmarks.compare.methods"), module("benchmarks.compare.cells")
    assert set(method_names()) <= {*methods.OURS, *methods.BASELINES}
    data = cells.QUICK[1].data
    records = data.make(np.random.default_rng(0))[:1000]
    for name in (*methods.OURS, *methods.BASELINES):
        assert methods.kind_of(name) == ("ours" if name in methods.OURS else "baseline")
        assert methods.serves(name, 0.0, 2)
        assert methods.fitted(name, data, records, 1.0, 0.0, 0).centers.shape == (15, 2)
    names = [setting.data.name for setting in cells.GRID]
    assert len(set(names)) == len(names)
    for setting in cells.FRESH:
        records = setting.data.make(np.random.default_rng(0))
        inside = setting.data.domain.project(records)
        moved = np.any(inside != records, axis=1).mean()
        assert moved < 0.01, setting.data.name  # its box is a fair one


# --- tables ------------------------------------------------------------------------------


def rows_of(*runs):
    fields = ("data", "epsilon", "delta", "method", "rsse", "note")
    rest = {"kind": "peer", "seconds": "0.5", "peak_mb": "12"}
    return [{**dict(zip(fields, run, strict=True)), **rest} for run in runs]


ROWS = rows_of(
    ("a", "1", "0", "auto", "1.3", "chose grid"),
    ("a", "1", "0", "sketch", "1.2", ""),
    ("a", "1", "0", "grid", "1.0", ""),
    ("a", "1", "0", "grid", "1.1", ""),
    ("a", "1", "0", "grid", "9.0", ""),
    ("a", "1", "0", "mine", "0.5", "spends 1.21 epsilon; mine"),
    ("a", "1", "0", "mine", "", "failed: no"),
    ("a", "0.1", "1e-06", "sketch", "1.5", ""),
    ("a", "0.1", "1e-06", "mine", "1.6", "spends 0.90 epsilon; mine"),
)


def test_the_lowest_median_is_bold_unless_it_breaks_the_budget():
    lines = module("benchmarks.compare.tables").table_of_medians(ROWS).splitlines()
    heads = "data | epsilon | delta | auto | sketch | grid | mine | auto chose | regret of auto"
    assert lines[0] == f"| {heads} |"
    assert lines[2] == "| a | 0.1 | 1e-06 |  | **1.5** |  | 1.6 |  |  |"
    assert lines[3] == "| a | 1 | 0 | 1.3 | 1.2 | **1.1** | (0.5) | grid | 1.182 |"  # 1.3 / 1.1


def test_cells_that_others_win_are_named():
    tables = module("benchmarks.compare.tables")
    (line,) = tables.losses(ROWS)
    assert line.startswith("a, epsilon = 1, delta = 0: grid has 1.1, our best (sketch) 1.2")
    assert line.endswith('8.3 % less; "auto" chose grid there')
    text = tables.report(ROWS)
    assert "In 1 of 2 cells a method of ours has the lowest median" in text
    assert "| a | 0.5 s, 12 MB | 0.5 s, 12 MB | 0.5 s, 12 MB | 0.5 s, 12 MB |" in text


def test_a_picture_for_every_data_set(tmp_path):
    (path,) = module("benchmarks.compare.tables").plot(ROWS, tmp_path)
    assert path.name == "compare-a.png"
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size < 40_000
    assert module("benchmarks.compare.tables").slug("64 in R^100, 1 % outliers") == (
        "64-in-r-100-1-percent-outliers"
    )


def test_other_tasks_have_tables_too(tmp_path):
    tasks = module("benchmarks.compare.tasks")
    cell = {"task": "pca", "data": "x", "delta": "0"}
    rows = [
        {**dict(zip(("epsilon", "method", "loss"), run, strict=True)), "kind": kind, **cell}
        for kind, *run in (
            ("ours", "1", "auto", "0.01"),
            ("baseline", "1", "covariance", "0.04"),
            ("ours", "1", "auto", "0.03"),
            ("ours", "2", "auto", "0.03"),
            ("baseline", "2", "covariance", "0.02"),
        )
    ]
    failed = {**rows[0], "method": "mine", "loss": "", "note": "failed: no answer in 9 s"}
    text = tasks.report([*rows, failed])
    assert "| x | 1 | 0 | **2** | 4 |" in text
    assert "* pca, x, 2, 0: covariance 2, ours 3" in text
    assert text.count("ours") == 2  # the line above it, and this one
    assert "* mine on x: failed: no answer in 9 s" in text
    # Components turned within their plane hold the same variance; others hold less.
    records = np.random.default_rng(0).normal(size=(5000, 3)) * [3.0, 2.0, 1.0]
    best = np.linalg.eigh(records.T @ records)[1][:, ::-1].T
    turned = np.array([[0.6, 0.8], [-0.8, 0.6]]) @ best[:2]
    assert tasks.lost_variance(records, turned) == pytest.approx(0, abs=1e-12)
    assert tasks.lost_variance(records, best[[0, 2]]) == pytest.approx(3 / 13, abs=0.02)


# --- budgets that add up -----------------------------------------------------------------


def test_the_fault_of_diffprivlib():
    # Shares of Su et al. exchanged: a coordinate gets what is for the count, and back.
    spend = module("benchmarks.peers.diffprivlib").spend
    for dim in range(2, 1001):
        for_coordinate, for_count = lloyd.split(dim)
        assert spend(dim) == pytest.approx(float(dim * for_count + for_coordinate), rel=1e-12)
    printed = {2: 0.91, 10: 1.21, 20: 1.52, 100: 2.66}
    assert {dim: round(spend(dim), 2) for dim in printed} == printed


def test_shares_of_rounds_add_up_exactly():
    for dim in range(2, 1001):
        for n_rounds in (1, 5, 7):
            for kind in ("laplace", "laplace-joint", "cube", "gaussian"):
                shares = lloyd.round_shares(kind, n_rounds, dim)
                assert sum(shares.values(), Fraction(0)) == 1


@pytest.mark.parametrize(("dim", "k"), [(2, 1), (2, 64), (10, 10), (100, 33), (1000, 4)])
def test_receipts_of_rounds_add_up(dim, k):
    for noise in ("laplace", "cube", "gaussian"):
        budget = ps.Budget(1 / 3, 1e-6 if noise == "gaussian" else 0.0)
        receipt = clustered(
            lloyd.cluster,
            np.zeros((3, dim)),
            k,
            domain=ps.Box(-1, 1, dim=dim),
            budget=budget,
            noise=noise,
            n_rounds=3,
            start="uniform",
        ).receipt
        assert receipt.delta == budget.delta
        assert exact(receipt.epsilon) <= exact(budget.epsilon)
        assert receipt.epsilon == pytest.approx(budget.epsilon, rel=1e-12)
        if noise != "gaussian":
            total = sum(exact(part.epsilon) for part in receipt.parts)
            assert total <= exact(budget.epsilon)
            assert float(total) == pytest.approx(budget.epsilon, rel=1e-12)


@pytest.mark.skipif(
    importlib.util.find_spec("diffprivlib") is None, reason="diffprivlib is not installed"
)
def test_diffprivlib_itself_has_the_fault(monkeypatch):
    spend = module("benchmarks.peers.diffprivlib").spend
    k_means = importlib.import_module("diffprivlib.models.k_means")
    charged = []
    for name in ("GeometricFolded", "LaplaceBoundedDomain"):
        real = getattr(k_means, name)

        def counted(*, epsilon, real=real, **options):
            charged.append((real.__name__, epsilon))
            return real(epsilon=epsilon, **options)

        monkeypatch.setattr(k_means, name, counted)
    for dim in (2, 10, 20):
        charged.clear()
        records = np.random.default_rng(0).uniform(-1, 1, (500, dim))
        bounds = (np.full(dim, -1.0), np.full(dim, 1.0))
        fit = k_means.KMeans(1, epsilon=1.0, bounds=bounds, random_state=0).fit(records)
        # One cluster: all that is charged adds up.
        total = sum(epsilon for _, epsilon in charged)
        assert total == pytest.approx(spend(dim), rel=1e-9)
        assert len(charged) == fit.n_iter_ * (dim + 1)


def test_what_is_installed_for_peers_is_what_the_readme_says():
    told = (BENCHMARKS / "peers" / "requirements.txt").read_text()
    readme = (BENCHMARKS / "README.md").read_text()
    for package in ("diffprivlib", "scikit-learn", "pycle"):
        (version,) = re.findall(rf"^{package}==(\S+)$", told, re.MULTILINE)
        assert f"{package} {version}" in readme
