"""Private k-means for one holder, as a scikit-learn estimator."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import check_is_fitted

from privsketch.budget import Neighbours
from privsketch.design import Design
from privsketch.domain import Domain
from privsketch.estimators.validation import column_names, completed, public_facts, validated
from privsketch.learning.kmeans import check_choices, learn_kmeans
from privsketch.sketching.release import sketch

DEFAULT_MAX_CLUSTERS = 20


class PrivateKMeans(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """K-means with differential privacy for one record.

    `fit` releases one sketch of the records and learns the clusters from it. Every
    fitted attribute is a function of that release and of public facts, so all of them
    may be published. There is no `labels_` and no `inertia_`: they would be exact
    statements about records.

    Parameters
    ----------
    n_clusters : int or "auto"
        "auto" takes the number from the release as well, at no cost.
    max_clusters : int, optional
        Largest number that "auto" considers, and that the sketch is planned for; 20 if
        left out.
    epsilon : float
        Privacy budget of one `fit`; no default.
    delta : float
        0 for pure differential privacy; no default.
    domain : Box or Ball
        Public bounds of the records; no default. Its `dim` may be left out.
    neighbours : {"add-remove", "replace"}
    noise : {"gaussian", "cube", "laplace"}, optional
        Gaussian if delta > 0, else the cube.
    n_features : int, optional
        Size of the sketch; of least predicted error if left out.
    n_records : float, optional
        Public order of magnitude of the number of records. Never taken from X.
    feature_map, frequencies, frequency_scale : optional
        As in `Design.plan`.
    decoder : {"joint", "cl-ompr"}
    n_init : int, optional
        Most searches per fit; fewer are made if one explains the sketch. Six if left out,
        two for very large sketches.
    missing : {"error", "center"}
    n_threads : int, optional
    random_state : int, optional
        Governs public randomness only (frequencies, starts of the search). The noise
        has no seed, so two fits differ.

    Attributes
    ----------
    cluster_centers_ : (n_clusters, n_features_in_) float64
    standard_errors_ : (n_clusters, n_features_in_) float64 or None
        Of the centres' coordinates; None for fits too large to tell.
    concerns_ : tuple of str
        Reasons to doubt the clusters, in words; empty if there are none.
    weights_ : (n_clusters,) float64
        Share of the records in each cluster.
    width_ : float
        Standard deviation of the clusters per coordinate.
    receipt_ : Receipt
        What the fit cost: one charge of (epsilon, delta).
    sketch_ : Sketch
        The release itself.
    model_ : KMeansModel
        The model learned from it.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Defined when X has string column names.

    Examples
    --------
    >>> import numpy as np, privsketch as ps
    >>> X = np.repeat([[-0.5, -0.5], [0.5, 0.5]], 5000, axis=0)
    >>> model = ps.PrivateKMeans(n_clusters=2, epsilon=1.0, delta=1e-6,
    ...                          domain=ps.Box(low=-1, high=1), random_state=0).fit(X)
    >>> model.receipt_.epsilon, model.receipt_.delta
    (1.0, 1e-06)
    >>> int((model.predict(X)[:5000] == model.predict(X)[0]).sum())
    5000
    """

    def __init__(
        self,
        n_clusters: int | str = 8,
        *,
        max_clusters: int | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        domain: Domain | None = None,
        neighbours: Neighbours = "add-remove",
        noise: str | None = None,
        n_features: int | None = None,
        n_records: float | None = None,
        feature_map: str = "fourier",
        frequencies: str | None = None,
        frequency_scale: float | tuple[float, float] | None = None,
        decoder: str = "joint",
        n_init: int | None = None,
        missing: str = "error",
        n_threads: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.max_clusters = max_clusters
        self.epsilon = epsilon
        self.delta = delta
        self.domain = domain
        self.neighbours = neighbours
        self.noise = noise
        self.n_features = n_features
        self.n_records = n_records
        self.feature_map = feature_map
        self.frequencies = frequencies
        self.frequency_scale = frequency_scale
        self.decoder = decoder
        self.n_init = n_init
        self.missing = missing
        self.n_threads = n_threads
        self.random_state = random_state

    def fit(self, X: Any, y: object = None) -> Self:
        """Release a sketch of X and learn the clusters from it.

        Charges: epsilon and delta, once.

        Parameters
        ----------
        X : array or data frame of shape (n_records, n_columns)
        y : ignored
        """
        budget, domain = public_facts(self)
        largest = self.max_clusters
        if isinstance(self.n_clusters, str) and self.n_clusters == "auto":
            largest = DEFAULT_MAX_CLUSTERS if largest is None else largest
        check_choices(self.n_clusters, largest, self.decoder, self.n_init, "n_init")
        table = validated(self, X, reset=True)
        design = Design.plan(
            task="kmeans",
            n_components=self.n_clusters if largest is None else largest,  # type: ignore[arg-type]
            domain=domain.with_dim(table.shape[1]),
            budget=budget,
            n_records=self.n_records,
            random_state=self.random_state,
            n_features=self.n_features,
            noise=self.noise,
            feature_map=self.feature_map,
            frequencies=self.frequencies,
            frequency_scale=self.frequency_scale,
            columns=column_names(self),
        )
        released = sketch(table, design, missing=self.missing, n_threads=self.n_threads)
        # What was paid for stays, even if learning is interrupted.
        self.sketch_, self.receipt_ = released, released.receipt
        model = learn_kmeans(
            released,
            self.n_clusters,
            max_clusters=largest,
            decoder=self.decoder,
            n_starts=self.n_init,
        )
        self.model_ = model
        self.cluster_centers_ = model.centers
        self.standard_errors_ = model.standard_errors
        self.concerns_ = model.concerns
        self.weights_ = model.weights
        self.width_ = model.width
        return self

    def predict(self, X: Any) -> npt.NDArray[np.int64]:
        """Index of the nearest centre for each row of X.

        The labels are exact: as sensitive as the rows of X themselves.
        """
        check_is_fitted(self, "model_")
        return self.model_.predict(completed(self, X))

    def fit_predict(self, X: Any, y: object = None, **kwargs: Any) -> npt.NDArray[np.int64]:
        """`fit(X)`, then `predict(X)`. Charges once; the labels are not private."""
        return self.fit(X).predict(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        tags.input_tags.allow_nan = self.missing == "center"
        return tags
