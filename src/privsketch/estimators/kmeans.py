"""Private k-means for one holder, as a scikit-learn estimator."""

from __future__ import annotations

import os
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from privsketch.budget import Budget, Neighbours
from privsketch.design import Design
from privsketch.domain import Ball, Box, Domain
from privsketch.errors import ParameterError, RecordError
from privsketch.learning.kmeans import learn_kmeans
from privsketch.sketching.release import sketch


class PrivateKMeans(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """K-means with differential privacy for one record.

    `fit` releases one sketch of the records and learns the clusters from it. Every
    fitted attribute is a function of that release and of public facts, so all of them
    may be published. There is no `labels_` and no `inertia_`: they would be exact
    statements about records.

    Parameters
    ----------
    n_clusters : int
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
        Size of the sketch; 4 * n_clusters * number of columns if left out.
    n_records : float, optional
        Public order of magnitude of the number of records. Never taken from X.
    feature_map, frequencies, frequency_scale : optional
        As in `Design.plan`.
    decoder : {"joint", "cl-ompr"}
    n_init : int, optional
        Searches per fit; the one that explains the sketch best is kept. Three if left
        out, one for very large sketches.
    missing : {"error", "center"}
    n_threads : int, optional
    random_state : int, optional
        Governs public randomness only (frequencies, starts of the search). The noise
        has no seed, so two fits differ.

    Attributes
    ----------
    cluster_centers_ : (n_clusters, n_features_in_) float64
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
        n_clusters: int = 8,
        *,
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
        for name in ("epsilon", "delta", "domain"):
            if getattr(self, name) is None:
                raise ParameterError(
                    f"{name}: PrivateKMeans needs epsilon=, delta= (0 for pure differential "
                    "privacy) and domain= (public bounds of the records); none is taken from X"
                )
        if not isinstance(self.domain, Box | Ball):
            raise ParameterError(f"domain={self.domain!r}: expected a Box or a Ball")
        budget = Budget(self.epsilon, self.delta, self.neighbours)  # type: ignore[arg-type]
        table = self._validated(X, reset=True)
        design = Design.plan(
            task="kmeans",
            n_components=self.n_clusters,
            domain=self.domain.with_dim(table.shape[1]),
            budget=budget,
            n_records=self.n_records,
            random_state=self.random_state,
            n_features=self.n_features,
            noise=self.noise,
            feature_map=self.feature_map,
            frequencies=self.frequencies,
            frequency_scale=self.frequency_scale,
            columns=self._column_names(),
        )
        released = sketch(table, design, missing=self.missing, n_threads=self.n_threads)
        model = learn_kmeans(released, self.n_clusters, decoder=self.decoder, n_starts=self.n_init)
        self.sketch_ = released
        self.model_ = model
        self.receipt_ = released.receipt
        self.cluster_centers_ = model.centers
        self.weights_ = model.weights
        self.width_ = model.width
        return self

    def _column_names(self) -> list[str] | None:
        """Names of the columns, which are public, for the model and its report."""
        names = [str(name) for name in getattr(self, "feature_names_in_", [])]
        return names if names and len(set(names)) == len(names) else None

    def predict(self, X: Any) -> npt.NDArray[np.int64]:
        """Index of the nearest centre for each row of X.

        The labels are exact: as sensitive as the rows of X themselves.
        """
        check_is_fitted(self)
        table = self._validated(X, reset=False)
        if self.missing == "center":
            center = self.sketch_.design.domain.center_vector
            table = np.where(np.isfinite(table), table, center)
        return self.model_.predict(table)

    def fit_predict(self, X: Any, y: object = None, **kwargs: Any) -> npt.NDArray[np.int64]:
        """`fit(X)`, then `predict(X)`. Charges once; the labels are not private."""
        return self.fit(X).predict(X)

    def _validated(self, X: Any, *, reset: bool) -> npt.NDArray[Any]:
        """X as an array, with errors that never quote a value of a record."""
        if getattr(getattr(X, "dtype", None), "kind", "f") not in "fiubOc":
            raise RecordError(_NOT_NUMERIC)  # dates would be converted silently
        if isinstance(X, str | bytes | os.PathLike):
            raise RecordError("X: expected an array or a data frame; privsketch.sketch reads files")
        keep_missing = reset or self.missing == "center"  # fit has its own rule for them
        try:
            array = validate_data(
                self,
                X,
                reset=reset,
                dtype=[np.float64, np.float32],
                ensure_all_finite=not keep_missing,
                ensure_min_samples=0 if reset else 1,
            )
        except (ValueError, TypeError, OverflowError) as error:
            text = str(error)
            if isinstance(error, TypeError) and "sparse" in text.lower():
                raise  # scikit-learn's own words for sparse input; they quote nothing
            kind = _CellError if isinstance(error, TypeError) else RecordError
            raise kind(_without_values(text)) from None
        return np.asarray(array)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        tags.input_tags.allow_nan = self.missing == "center"
        return tags


_NOT_NUMERIC = (
    "X: a column is not numeric; argument must be neither a string nor another object but a "
    "number in every cell"
)


class _CellError(RecordError, TypeError):
    """Cells of no number type: scikit-learn's contract asks for a TypeError."""


# Messages of scikit-learn that name shapes and columns only.
_HARMLESS = ("X has ", "Found array with ", "The feature names should match", "Input X contains ")
_OURS = (
    (
        "1D array",
        "Expected 2D array, got 1D array instead. Reshape your data: "
        "X.reshape(-1, 1) for one column, X.reshape(1, -1) for one record",
    ),
    ("scalar array", "Expected 2D array, got a scalar. Reshape your data into a table"),
    ("Complex data", "Complex data not supported: X must be a table of real numbers"),
    ("dim 3", "Found array with dim 3. X must be a table with rows and columns"),
)


def _without_values(text: str) -> str:
    """What scikit-learn objects to, without the records it may quote."""
    for sign, ours in _OURS:
        if sign in text:
            return ours
    if text.startswith(_HARMLESS):
        return text
    return _NOT_NUMERIC
