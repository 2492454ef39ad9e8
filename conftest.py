"""What all tests share. Examples in docs and docstrings have the same noise in every run."""

import pytest

from tests.chance import fixed_noise

pytest_plugins = ["tests.fixtures", "tests.tiers"]


@pytest.fixture(autouse=True)
def _fixed_noise_of_examples(request):
    if not isinstance(request.node, pytest.DoctestItem):
        yield
        return
    with fixed_noise():
        yield
