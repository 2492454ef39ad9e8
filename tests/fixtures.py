"""Fixtures that tests of both distributions share: noise left out or noted, small studies."""

import importlib.util
import os
import shutil
import signal
import sys
from concurrent.futures import ProcessPoolExecutor

import hypothesis
import numpy as np
import pytest

import privsketch as ps
from privsketch.testing import exact_answer, replaced_noise
from tests import seams
from tests.chance import exact_answers, fixed_noise

# What people set for themselves changes no test: those of terminals say what they need, and no
# command of a test writes to somebody's ledger. `PRIVSKETCH_SCREENSHOTS` is for tests.
OF_TERMINALS = {
    *("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"),
    *("TTY_COMPATIBLE", "TTY_INTERACTIVE"),
}
for name in [*os.environ]:
    ours = name.startswith("PRIVSKETCH_") and name != "PRIVSKETCH_SCREENSHOTS"
    if ours or name in OF_TERMINALS:
        del os.environ[name]
os.environ["TERM"] = "dumb"

# Hypothesis tries the same examples in every run, and has all the time that it takes.
hypothesis.settings.register_profile("same", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("same")


@pytest.fixture(autouse=True)
def _new_tally(monkeypatch):
    """Tests of one process fit the same records; what they cost together is nobody's business."""
    if "privsketch.ledger.entry" in sys.modules:
        from privsketch.ledger import ProcessCosts

        seams.set(monkeypatch, "entry.PROCESS_COSTS", ProcessCosts())


@pytest.fixture
def no_noise():
    """Releases made in this test are the exact integers, marked INSECURE in their receipts."""
    with exact_answers():
        yield


@pytest.fixture(name="fixed_noise")
def _fixed_noise():
    """Noise and masks are the same in every run of this test."""
    with fixed_noise():
        yield


@pytest.fixture
def spent():
    """A list that grows by one law for every noise call; it stays empty if nothing was spent."""
    laws = []

    def record(values, law):
        laws.append(law)
        return exact_answer(values, law), law.scale

    with replaced_noise(record):
        yield laws


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """A session of Spark's, two workers that try four times; `spark_log` is all that it says."""
    if shutil.which("java") is None or importlib.util.find_spec("pyspark") is None:
        pytest.skip("Spark needs Java and PySpark")
    from pyspark.sql import SparkSession

    folder = tmp_path_factory.mktemp("spark")
    builder = SparkSession.builder.master("local[2,4]")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "3",
        "spark.sql.session.timeZone": "America/Los_Angeles",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.privsketch.log": str(folder / "log"),
        # A short life: no second compiler, no threads that collect garbage.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
    }.items():
        builder = builder.config(name, value)
    before = {name: os.environ.get(name) for name in ("PYSPARK_PYTHON", "PYTHONPATH")}
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Workers find what this process does, the tests' own functions included.
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    handler, error = signal.getsignal(signal.SIGINT), os.dup(2)
    with (folder / "log").open("wb") as log:
        os.dup2(log.fileno(), 2)  # of Java and the workers from now on
    try:
        session = builder.getOrCreate()
    finally:
        os.dup2(error, 2)
        os.close(error)
        signal.signal(signal.SIGINT, handler)
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})
    yield session
    session.stop()


class WarmPool(ProcessPoolExecutor):
    """A pool whose processes stay until the tests end."""

    def shutdown(self, wait=True, *, cancel_futures=False):
        """Leave the processes to the next test."""


@pytest.fixture(scope="session")
def _warm_pools():
    pools = []
    yield pools
    for pool in pools:
        ProcessPoolExecutor.shutdown(pool)


@pytest.fixture
def warm_pool(_warm_pools, monkeypatch):
    """Releases with `engine="pool"` share two processes with all tests that use this fixture.

    Starting them costs more than most tests. A pool that lost a process is replaced.
    """

    def pool(n_workers, **options):
        if not _warm_pools or _warm_pools[-1]._broken:
            _warm_pools.append(WarmPool(2, **options))
        return _warm_pools[-1]

    seams.set(monkeypatch, "pool.ProcessPoolExecutor", pool)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder, in which commands run."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def few_bits(monkeypatch):
    """Coordinates of two bits and a sign, integers from -3 to 3, for methods that read records."""
    seams.set(monkeypatch, "passes.MAX_BITS", 2)


@pytest.fixture(scope="session")
def make_design():
    """A function that plans a small study; keyword arguments as in Design.plan, plus dim."""

    def make(*, dim=3, epsilon=1.0, delta=1e-6, neighbours="add-remove", **overrides):
        choices = {
            "n_components": 2,
            "domain": ps.Box(-4, 4, dim=dim),
            "n_records": 1000,
            "random_state": 7,
            **overrides,
        }
        return ps.Design.plan(budget=ps.Budget(epsilon, delta, neighbours), **choices)

    return make


@pytest.fixture(scope="session")
def make_records():
    """A function that gives synthetic records, (n, dim) float64 with float32 values."""

    def make(n_records=1000, dim=3, seed=0):
        rng = np.random.default_rng(seed)
        # Some lie outside the domain, and every value has an exact 32-bit form.
        return rng.normal(scale=1.5, size=(n_records, dim)).astype(np.float32).astype(np.float64)

    return make
