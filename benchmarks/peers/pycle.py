"""pycle, the compressive learning toolbox: `python -m benchmarks.peers.pycle`.

Random Fourier features, 10 k d of them, with its private sketch and the best of three searches by
its CL-OMPR. Its user must know the scale of the frequencies: it gets four times the variance that
clusters without privacy have, the best of 1, 4 and 16 times over the seed mixtures and the plane.
No private user has that number, so the peer is shown better than it is.
"""

from __future__ import annotations

import importlib
import importlib.metadata

import numpy as np

from benchmarks.peers.protocol import Found, PeerRefusal, Request, serve

PER_UNKNOWN, SCALE, SEARCHES = 10, 4.0, 3
MAX_UNKNOWNS, MAX_RECORDS = 200, 200_000  # beyond these a run takes minutes


def kmeans(records: np.ndarray, request: Request) -> Found:
    """Centers from a noisy sketch."""
    n, dim = records.shape
    unknowns = request.n_clusters * dim
    if unknowns > MAX_UNKNOWNS or n > MAX_RECORDS:
        raise PeerRefusal(f"{n} records, {unknowns} unknowns take minutes")
    sketching = importlib.import_module("pycle.sketching")
    learning = importlib.import_module("pycle.compressive_learning")
    np.random.seed(request.seed)
    covariance = SCALE * float(request.options["cluster_variance"]) * np.eye(dim)
    frequencies = sketching.drawFrequencies("AR", dim, PER_UNKNOWN * unknowns, Sigma=covariance)
    features = sketching.SimpleFeatureMap("complexExponential", frequencies)
    sketch = sketching.computeSketch_DP(records, features, request.epsilon, request.delta)
    solver = learning.CLOMP_CKM(features, request.n_clusters, np.array(request.bounds), sketch)
    solver.fit_several_times(SEARCHES)
    return Found(solver.get_centroids(), "told the width of the clusters")


if __name__ == "__main__":
    importlib.import_module("pycle.compressive_learning")
    try:
        version = importlib.metadata.version("pycle")
    except importlib.metadata.PackageNotFoundError:
        version = "of a checkout"
    serve(f"pycle {version}", {"kmeans": kmeans})
