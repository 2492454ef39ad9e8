"""What several test files share: sums without noise, a look at what is spent, small studies."""

import numpy as np
import pytest

import privsketch as ps
from privsketch.testing import exact_answer, replaced_noise, without_noise


@pytest.fixture
def no_noise():
    """Releases made in this test are the exact integers, marked INSECURE in their receipts."""
    with without_noise():
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


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder, in which commands run."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def few_bits(monkeypatch):
    """Coordinates of two bits and a sign, integers from -3 to 3, for methods that read records."""
    monkeypatch.setattr("privsketch.clustering.passes._MOST_BITS", 2)


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
