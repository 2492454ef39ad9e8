"""Private principal components for one holder, as a scikit-learn estimator."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted

from privsketch._base.errors import ParameterError, RecordError, require_count, require_one_of
from privsketch._base.types import Floats
from privsketch.estimators.base import PrivateLearner, ScoresRows, documented
from privsketch.learning.pca.learner import check_choices, learn_pca

DEFAULT_MAX_COMPONENTS = 10  # of n_components="auto"; by trial
MAPS = {"auto": None, "sketch": "quadratic", "covariance": "second-moments"}


@documented
@dataclass(repr=False, eq=False, kw_only=True)
class PrivatePCA(
    ScoresRows,
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    PrivateLearner,
):
    """Principal components with differential privacy for one record.

    `fit` releases noisy second moments of the records, or sums of their squares along random
    directions, and learns the components from that. Every fitted attribute is a function of
    that release and of public facts, so all of them may be published. What `transform` says
    about a table is exact, and as sensitive as the table.

    Parameters
    ----------
    n_components : int or "auto"
        "auto" takes the number from the release as well, at no cost: the components that
        stand out of the noise.
    max_components : int, optional
        Number that the release is planned for with "auto", which finds no more than twice as
        many or three more; ten, or as many as there are columns, if left out.
    {budget}
    domain : Schema or Ball
        Public facts about the table, or bounds of the records; no default. Noise grows with the
        square of the radius, with a schema that of the ball around all encoded records. Records
        outside are moved to its edge. The `dim` of a ball may be left out.
    center : bool
        False: components of the second moments about the center of the domain, which costs
        nothing; give the ball a public center near the mean. True: the mean is released too,
        out of the same budget, and components are about it. That takes some 3 % more Gaussian
        or 25 % more Laplace noise.
    method : {"auto", "sketch", "covariance"}
        What is released: sums of squares along random directions, all second moments, or
        whichever is predicted to lose less variance. A matrix is better with delta > 0;
        for pure privacy, many columns and few components the sketch is.
    neighbours : {"add-remove", "replace"}
    noise : {"gaussian", "laplace", "cube"}, optional
        The one of least predicted loss if left out.
    n_features : int, optional
        Size of the sketch, where there is one; of least predicted loss if left out.
    n_records : float, optional
        Public order of magnitude of the number of records. Never taken from X.
    {reading}
    {seed}

    Attributes
    ----------
    components_ : (n_components_, n_features_in_) float64
        Orthonormal rows, in order of variance.
    explained_variance_, explained_variance_ratio_ : (n_components_,) float64
        Variance of the records along each component, and as share of the total.
    standard_errors_ : (n_components_,) float64
        Standard errors of the explained variances.
    singular_values_ : (n_components_,) float64
        Square roots of the explained variances times the noisy number of records.
    mean_ : (n_features_in_,) float64
        The released mean, or the center of the domain: what `transform` takes off.
    noise_variance_ : float
        Mean variance per direction of what the components leave.
    n_components_ : int
    {concerns}
    receipt_ : Receipt
        What the fit cost: one charge of (epsilon, delta).
    sketch_ : Sketch
        The release itself.
    model_ : PCAModel
        The model learned from it.
    {seen}

    Examples
    --------
    >>> import numpy as np, privsketch as ps
    >>> from privsketch.estimators.pca import PrivatePCA
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(50_000, 4)) * [0.3, 0.1, 0.02, 0.02]
    >>> pca = PrivatePCA(2, epsilon=1.0, delta=1e-6, domain=ps.Ball(radius=1.0)).fit(X)
    >>> pca.receipt_.epsilon, pca.receipt_.delta
    (1.0, 1e-06)
    >>> pca.transform(X).shape
    (50000, 2)
    """

    n_components: int | str = field(default=2, kw_only=False)
    max_components: int | None = None
    center: bool = False
    method: str = "auto"
    noise: str | None = None
    n_features: int | None = None

    def fit(self, X: Any, y: object = None) -> Self:
        """Release second moments of X and learn the components from them.

        Charges: epsilon and delta, once.

        {X}
        """
        budget, domain = self._public_facts(self.neighbours)
        self._check_choices()
        table, domain, dim = self._table_in(X, domain)
        design = self._planned(
            "pca",
            self._planned_components(dim),
            domain,
            budget,
            feature_map=MAPS[self.method],
            mean="released" if self.center else None,
            n_features=self.n_features,
            noise=self.noise,
        )
        self._warn(domain, budget, self._public_records(table, domain))
        model = learn_pca(self._released(table, design), self.n_components)
        self.components_ = model.components
        self.explained_variance_ = model.explained_variance
        self.explained_variance_ratio_ = model.explained_variance_ratio
        self.standard_errors_ = model.standard_errors
        self.singular_values_ = np.sqrt(model.explained_variance * model.n_records)
        self.mean_ = model.mean
        self.noise_variance_ = model.noise_variance
        self.n_components_ = model.n_components
        self.model_ = model
        return self._finished(model.concerns)

    def _check_choices(self) -> None:
        """Check the parameters before a table is read."""
        check_choices(self.n_components, "auto")
        require_one_of("method", self.method, MAPS)
        if not isinstance(self.center, bool | np.bool_):
            raise ParameterError("center", self.center, "expected True or False")
        if self.max_components is not None:
            require_count("max_components", self.max_components)
            if self.n_components != "auto":
                raise ParameterError(
                    "max_components", self.max_components, "only with `n_components='auto'`"
                )

    def _planned_components(self, dim: int) -> int:
        if not isinstance(self.n_components, str):
            return int(self.n_components)
        most = DEFAULT_MAX_COMPONENTS if self.max_components is None else self.max_components
        return min(int(most), dim)

    def transform(self, X: Any) -> Floats:
        """Return the coordinates of the rows of X along the components, (n, n_components_).

        They are exact, and as sensitive as the rows of X themselves.
        """
        rows = self._completed(X)
        return self.model_.transform(rows)

    def inverse_transform(self, X: Any) -> Floats:
        """Return the points with these coordinates along the components, (n, n_features_in_)."""
        check_is_fitted(self, "model_")
        try:
            rows = check_array(X, dtype=np.float64)
        except (ValueError, TypeError, OverflowError):
            raise RecordError("X: expected a table of finite numbers") from None
        return self.model_.inverse_transform(rows)

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components_)
