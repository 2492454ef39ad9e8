"""Private k-medians for one holder, as a scikit-learn estimator."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Self

from sklearn.base import ClusterMixin

from privsketch._base.errors import require_count
from privsketch.clustering.medians import checked_method, cluster_medians
from privsketch.clustering.run import clustered
from privsketch.estimators.base import (
    MeasuresDistances,
    PredictsLabels,
    PrivateLearner,
    centers_of,
    documented,
)


@documented
@dataclass(repr=False, eq=False, kw_only=True)
class PrivateKMedians(
    PredictsLabels,
    MeasuresDistances,
    ClusterMixin,  # type: ignore[misc]
    PrivateLearner,
):
    """K-medians with differential privacy for one record.

    Centers make the sum of distances small, not that of squared distances as in k-means: a few
    records far away hardly move them. `fit` reads the records several times, and every answer
    has noise. Every fitted attribute is a function of the answers and of public facts, so all of
    them may be published. There is no `labels_` and no `inertia_`: they would be exact
    statements about records.

    Parameters
    ----------
    n_clusters : int
    {budget}
    {domain}
    neighbours : {"add-remove", "replace"}
    method : {"rounds", "partition-tree"}
        "rounds": k-means centers of one sketch, then noisy steps to medians. "partition-tree":
        that of Balcan et al. (2017), corrected; always pure (docs/medians.md compares them).
    n_records : float, optional
        Public order of magnitude of the number of records. Never taken from X: if left out,
        a noisy number is paid for with a fiftieth of the budget ("replace": it is public).
    {reading}
    {seed}

    Attributes
    ----------
    cluster_centers_ : (n_clusters, n_features_in_) float64
    weights_ : (n_clusters,) float64
        Share of the records in each cluster.
    {concerns}
    {clusters}
    {seen}

    Examples
    --------
    >>> import numpy as np, privsketch as ps
    >>> X = np.repeat([[-0.5, -0.5], [0.5, 0.5]], 5000, axis=0)
    >>> X[:200] = -1.0  # a mean would follow them
    >>> model = ps.PrivateKMedians(n_clusters=2, epsilon=1.0, delta=0.0,
    ...                            domain=ps.Box(low=-1, high=1), random_state=0).fit(X)
    >>> model.receipt_.epsilon, model.receipt_.delta
    (1.0, 0.0)
    >>> int((model.predict(X)[:5000] == model.predict(X)[0]).sum())
    5000
    """

    n_clusters: int = field(default=8, kw_only=False)
    method: str = "rounds"

    def fit(self, X: Any, y: object = None) -> Self:
        """Learn the medians of X.

        Charges: epsilon and delta, once; no delta with "partition-tree".

        {X}
        """
        budget, domain = self._public_facts(self.neighbours)
        require_count("n_clusters", self.n_clusters)
        checked_method(self.method)
        facts = self._run_facts()
        table, domain, _ = self._table_in(X, domain)
        self._warn(domain, budget, self._public_records(table, domain))
        model = clustered(
            cluster_medians,
            table,
            self.n_clusters,
            domain=domain,
            budget=budget,
            n_records=self.n_records,
            method=self.method,
            names=self._columns(),
            **facts,
        )
        self.receipt_ = model.receipt
        self.cluster_centers_ = centers_of(model)
        self.weights_ = model.weights
        self.model_ = replace(model, columns=self._columns())
        return self._finished(model.concerns)

    def score(self, X: Any, y: object = None) -> float:
        """Return minus the k-medians cost of X: the sum of distances to the nearest centers.

        It is an exact statement about X, as sensitive as its rows. For the records of `fit` it is a
        release without a charge: publish scores of other records only.
        """
        rows = self._completed(X)
        return self.model_.score(rows)
