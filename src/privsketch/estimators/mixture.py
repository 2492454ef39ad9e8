"""Private Gaussian mixtures for one holder, as a scikit-learn estimator."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import DensityMixin
from sklearn.utils.validation import check_is_fitted

from privsketch._base.types import Floats
from privsketch.design.size import CovarianceType
from privsketch.estimators.base import PredictsLabels, PrivateLearner, ScoresRows, documented
from privsketch.estimators.kmeans import OF_DESIGNS
from privsketch.features.own import FrequencyLaw
from privsketch.learning.mixture.learner import MISFIT, check_choices, learn_gaussian_mixture


@documented
@dataclass(repr=False, eq=False, kw_only=True)
class PrivateGaussianMixture(
    PredictsLabels,
    ScoresRows,
    DensityMixin,  # type: ignore[misc]
    PrivateLearner,
):
    """Gaussian mixture with differential privacy for one record.

    `fit` releases one sketch of the records and learns the mixture from it. Every fitted attribute
    is a function of that release and of public facts, so all of them may be published, and so may
    samples of the mixture. What the methods say about a table (labels, probabilities, scores) is
    exact, and as sensitive as the table.

    Parameters
    ----------
    n_components : int
    covariance_type : {"full", "tied", "diag", "spherical"}
    {budget}
    {domain}
    neighbours : {"add-remove", "replace"}
    noise : {"gaussian", "cube", "laplace"}, optional
    n_features : int, optional
        Size of the sketch; a few numbers for every unknown if left out.
    n_records : float, optional
        Public order of magnitude of the number of records. Never taken from X.
    feature_map, frequencies, frequency_scale : optional
        As in `Design.plan`.
    n_init : int, optional
        Searches per fit at most; none is started after one that explains the sketch.
        Five if left out, one for very large sketches.
    {reading}
    {seed}

    Attributes
    ----------
    weights_ : (n_components,) float64
    means_ : (n_components, n_features_in_) float64
    covariances_, precisions_cholesky_ : float64
        In scikit-learn's shapes.
    standard_errors_ : (n_components, n_features_in_) float64
        Of the means.
    {concerns}
    converged_ : bool
        Whether the mixture explains the sketch about as well as noise and sampling allow.
    receipt_ : Receipt
        What the fit cost: one charge of (epsilon, delta).
    sketch_ : Sketch
        The release itself.
    model_ : GaussianMixtureModel
        The model learned from it.
    {seen}

    Examples
    --------
    >>> import numpy as np, privsketch as ps
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 2)) * 0.1 + rng.choice([-0.5, 0.5], size=(20_000, 1))
    >>> model = ps.PrivateGaussianMixture(2, epsilon=1.0, delta=1e-6,
    ...                                   domain=ps.Box(low=-1, high=1), random_state=0).fit(X)
    >>> model.receipt_.epsilon, model.receipt_.delta
    (1.0, 1e-06)
    >>> model.sample(5)[0].shape
    (5, 2)
    """

    n_components: int = field(default=1, kw_only=False)
    covariance_type: CovarianceType = "full"
    noise: str | None = None
    n_features: int | None = None
    feature_map: str = "fourier"
    frequencies: str | npt.ArrayLike | FrequencyLaw | None = None
    frequency_scale: float | tuple[float, float] | None = None
    n_init: int | None = None

    def fit(self, X: Any, y: object = None) -> Self:
        """Release a sketch of X and learn the mixture from it.

        Charges: epsilon and delta, once.

        {X}
        """
        budget, domain = self._public_facts(self.neighbours)
        table, domain, _ = self._table_in(X, domain)
        self._warn(domain, budget, self._public_records(table, domain))
        choices = {name: getattr(self, name) for name in ("covariance_type", *OF_DESIGNS)}
        design = self._planned("gaussian-mixture", self.n_components, domain, budget, **choices)
        # Before anything is spent.
        check_choices(design, self.n_components, self.covariance_type, self.n_init)
        model = learn_gaussian_mixture(
            self._released(table, design),
            self.n_components,
            covariance_type=self.covariance_type,
            n_init=self.n_init,
        )
        self.weights_ = model.weights
        self.means_ = model.means
        self.covariances_ = model.covariances
        self.standard_errors_ = model.standard_errors
        self.precisions_cholesky_ = _precisions_cholesky(model.covariances, self.covariance_type)
        self.converged_ = model.misfit is not None and model.misfit <= MISFIT
        self.model_ = model
        return self._finished(model.concerns)

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of each component for each row of X, (n, n_components)."""
        rows = self._completed(X)
        return self.model_.predict_proba(rows)

    def bic(self, X: Any) -> float:
        """Return the Bayesian information criterion for X (lower is better).

        It is as sensitive as `score`.
        """
        rows = self._completed(X)
        return self.model_.bic(rows)

    def aic(self, X: Any) -> float:
        """Return the Akaike information criterion for X (lower is better).

        It is as sensitive as `score`.
        """
        rows = self._completed(X)
        return self.model_.aic(rows)

    def sample(self, n_samples: int = 1) -> tuple[Floats, npt.NDArray[np.int64]]:
        """Draw synthetic records (n_samples, n_features_in_) and their components.

        They depend on the release alone, and are not clipped to the domain.
        """
        check_is_fitted(self, "model_")
        return self.model_.sample(n_samples, self.random_state)


def _precisions_cholesky(covariances: Floats, covariance_type: str) -> Floats:
    """Return the square roots of inverse covariances in scikit-learn's form: upper triangles."""
    if covariance_type in ("full", "tied"):
        factors = np.linalg.cholesky(covariances)
        return np.asarray(np.swapaxes(np.linalg.inv(factors), -1, -2))
    return np.asarray(1 / np.sqrt(covariances))
