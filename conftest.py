"""Examples in README, docs and docstrings show the same noisy numbers in every run."""

import pytest

from tests.chance import fixed_noise


@pytest.fixture(autouse=True)
def _fixed_noise_of_examples(request):
    if not isinstance(request.node, pytest.DoctestItem):
        yield
        return
    with fixed_noise():
        yield
