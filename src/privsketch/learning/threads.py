"""One thread for linear algebra.

Matrices of decoders are small: several threads cost more than they bring, on a busy machine
many times more.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController


def one_thread() -> Any:
    """A context in which matrix products use one thread."""
    return _controller().limit(limits=1)


@cache
def _controller() -> ThreadpoolController:
    # Looking for the libraries takes milliseconds; NumPy's and SciPy's are loaded by now.
    import scipy.linalg  # noqa: F401

    return ThreadpoolController()
