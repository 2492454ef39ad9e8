"""Every test of the service runs on SQLite, and once more, slowly, on PostgreSQL."""

import pytest

from studies.tests.server import World, fresh_database, postgresql


@pytest.fixture(scope="session")
def server():
    """A PostgreSQL of this run's own."""
    with postgresql() as address:
        if address is None:
            pytest.skip("no PostgreSQL 15 here")
        yield address


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def place(request, tmp_path):
    """Where a store is, which is empty."""
    if request.param == "sqlite":
        return str(tmp_path / "collector.db")
    return fresh_database(request.getfixturevalue("server"))


@pytest.fixture
def world(place):
    """A store with a study and its people."""
    made = World(place)
    yield made
    made.store.close()
