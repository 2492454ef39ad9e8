"""Google's private clustering by LSH trees: `python -m benchmarks.peers.google`.

It is not on the package index. Clone github.com/google/differential-privacy, make an environment
with scikit-learn, absl-py and dp-accounting, and put the checkout's `learning` folder, which has
the package `clustering`, on PYTHONPATH.
"""

from __future__ import annotations

import importlib

import numpy as np

from benchmarks.peers.protocol import Found, PeerRefusal, Request, serve


def kmeans(records: np.ndarray, request: Request) -> Found:
    """Centers by k-means on a noisy tree of hashes."""
    if request.delta == 0:
        raise PeerRefusal("needs delta > 0")
    params = importlib.import_module("clustering.clustering_params")
    algorithm = importlib.import_module("clustering.clustering_algorithm")
    np.random.seed(request.seed)
    center, radius = request.ball
    data = params.Data(np.asarray(records, dtype=np.float64) - center, radius)
    budget = params.DifferentialPrivacyParam(epsilon=request.epsilon, delta=request.delta)
    result = algorithm.private_lsh_clustering(request.n_clusters, data, budget)
    return Found(np.asarray(result.centers) + center)


if __name__ == "__main__":
    importlib.import_module("clustering.clustering_algorithm")
    serve("Google's LSH trees, of a checkout", {"kmeans": kmeans})
