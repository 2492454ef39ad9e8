"""diffprivlib's models: `python -m benchmarks.peers.diffprivlib` where it is installed.

KMeans of version 0.6.6 hands the share of a count to every coordinate and that of a coordinate to
the count. With q = (4 d 0.225^2)^(1/3) it spends (1 + d q) / (d + q) of the epsilon it states: 0.91
at d = 2, 1.21 at d = 10, 2.66 at d = 100. Option "corrected" hands it epsilon over that number.
It also skips the noise of empty clusters, for which no epsilon makes up.
"""

from __future__ import annotations

import importlib
import warnings

import numpy as np

from benchmarks.peers.protocol import Found, PeerRefusal, Request, serve

RHO = 0.225


def spend(dim: int) -> float:
    """Return the true cost of a stated epsilon of 1 in `dim` columns."""
    q = float((4 * dim * RHO**2) ** (1 / 3))
    return (1 + dim * q) / (dim + q)


def kmeans(records: np.ndarray, request: Request) -> Found:
    """Centers by noisy rounds of Lloyd's."""
    _require_pure(request)
    spends = spend(records.shape[1])
    epsilon = request.epsilon
    if request.options.get("corrected"):
        epsilon, spends = epsilon / spends, 1.0
    fit = importlib.import_module("diffprivlib.models").KMeans(
        request.n_clusters, epsilon=epsilon, bounds=request.bounds, random_state=request.seed
    )
    centers = fit.fit(np.array(records, dtype=np.float64)).cluster_centers_
    return Found(centers, "no noise for empty clusters", spends)


def pca(records: np.ndarray, request: Request) -> Found:
    """Components about the center of the domain."""
    _require_pure(request)
    center, radius = request.ball
    fit = importlib.import_module("diffprivlib.models").PCA(
        request.n_clusters,
        epsilon=request.epsilon,
        data_norm=radius,
        centered=True,
        random_state=request.seed,
    )
    return Found(fit.fit(np.array(records - center, dtype=np.float64)).components_)


def logistic(records: np.ndarray, request: Request) -> Found:
    """Coefficients and intercept of a logistic regression of the last column on the others."""
    _require_pure(request)
    _, radius = request.ball
    fit = importlib.import_module("diffprivlib.models").LogisticRegression(
        epsilon=request.epsilon, data_norm=radius, random_state=request.seed
    )
    fit.fit(np.array(records[:, :-1], dtype=np.float64), records[:, -1].astype(int))
    return Found(np.append(fit.coef_[0], fit.intercept_)[np.newaxis])


def _require_pure(request: Request) -> None:
    if request.delta > 0:
        raise PeerRefusal("pure differential privacy only")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    version = importlib.import_module("diffprivlib").__version__
    importlib.import_module("diffprivlib.models")
    serve(f"diffprivlib {version}", {"kmeans": kmeans, "pca": pca, "logistic": logistic})
