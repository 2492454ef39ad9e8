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


def one_thread_of_kmeans() -> Any:
    """A context in which scikit-learn's k-means uses one thread too.

    Its threads are limited only once they are loaded, which may be after the others.
    """
    import sklearn.cluster  # noqa: F401
    from threadpoolctl import threadpool_limits

    return threadpool_limits(limits=1)


@cache
def _controller() -> ThreadpoolController:
    # Looking for the libraries takes milliseconds; NumPy's and SciPy's are loaded by now.
    import scipy.linalg  # noqa: F401

    return ThreadpoolController()
