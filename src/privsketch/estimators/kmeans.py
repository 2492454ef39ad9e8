"""Private k-means for one holder, as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClusterMixin
from sklearn.utils.validation import check_is_fitted

from privsketch._base.errors import ParameterError
from privsketch._base.settings import keywords
from privsketch.clustering.choose import (
    Choice,
    Method,
    choose_method,
    cluster_with,
    method_names,
    method_of,
)
from privsketch.clustering.limits import require_searchable
from privsketch.estimators.base import (
    MeasuresDistances,
    PredictsLabels,
    PrivateLearner,
    centers_of,
    documented,
)
from privsketch.estimators.validation import option_text, validated
from privsketch.facts.budget import Budget
from privsketch.facts.domain import Domain
from privsketch.facts.schema import Schema, schema_of
from privsketch.features.own import FrequencyLaw
from privsketch.learning.kmeans.learner import (
    DEFAULT_MAX_CLUSTERS,
    Decoder,
    check_choices,
    learn_kmeans,
)
from privsketch.models.clusters import ClusterModel

# Options that methods may have: their own settings.
OF_METHODS = (
    *("noise", "n_rounds", "start", "n_blocks", "n_trials", "n_dimensions", "n_trees"),
    *("n_levels", "threshold", "n_swaps", "own"),
)
OF_DESIGNS = ("n_features", "noise", "feature_map", "frequencies", "frequency_scale")
_BLOCK_VALUES = 2**22  # numbers of the records that `predict` reads together: 32 MB


@dataclass(frozen=True, kw_only=True)
class KMeansOptions:
    """Options that only some methods of `PrivateKMeans` need.

    Parameters
    ----------
    max_clusters : int, optional
        Largest number that n_clusters="auto" considers, and that the sketch is planned for; 20 by
        default.
    n_nonzero : int, optional
        Public bound on the number of entries of a record that are not 0; of more, the largest
        count. Methods "pipeline" and "partition-tree" then release sparse centers.
    noise : {"gaussian", "cube", "laplace"}, optional
        Noise of a sketch, of Lloyd's rounds, of averages or seeds; by default Gaussian if
        delta > 0, else the cube.
    n_features : int, optional
        Size of the sketch; by default that of least predicted error.
    feature_map, frequencies, frequency_scale : optional
        Features of the sketch, as in `Design.plan`.
    decoder : {"joint", "cl-ompr"}, str or callable
        How a sketch is searched, as in `learn_kmeans`.
    n_init : int, optional
        Largest number of searches in a sketch; they end when one explains it. By default six, two
        for very large sketches.
    n_rounds : int or "auto", optional
        Noisy rounds of "lloyd", "pipeline" and sparse centers.
    start : {"packing", "uniform"}, optional
        Public start of "lloyd".
    n_blocks : int, optional
        Blocks of "sample-aggregate".
    n_trials : int, optional
        Independent trials of "partition-tree", one of which is chosen.
    n_dimensions, n_trees, n_levels, threshold, n_swaps : int, optional
        Dimensions of the projection, and trees, levels, split threshold and swaps of a trial of
        "partition-tree".
    own : mapping, optional
        Further settings by name, such as those of a method that another package registers.

    Examples
    --------
    >>> import privsketch as ps
    >>> ps.KMeansOptions(n_features=500, noise="laplace").given()
    {'noise': 'laplace', 'n_features': 500}
    """

    max_clusters: int | None = None
    n_nonzero: int | None = None
    noise: str | None = None
    n_features: int | None = None
    feature_map: str = "fourier"
    frequencies: str | npt.ArrayLike | FrequencyLaw | None = None
    frequency_scale: float | tuple[float, float] | None = None
    decoder: str | Decoder = "joint"
    n_init: int | None = None
    n_rounds: int | str | None = None
    start: str | None = None
    n_blocks: int | None = None
    n_trials: int | None = None
    n_dimensions: int | None = None
    n_trees: int | None = None
    n_levels: int | None = None
    threshold: int | None = None
    n_swaps: int | None = None
    own: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.own is not None and not isinstance(self.own, Mapping):
            expected = "expected a mapping of settings by name, such as {'n_points': 31}"
            raise ParameterError("own", self.own, expected)

    @classmethod
    def of(cls, options: KMeansOptions | Mapping[str, Any] | None) -> KMeansOptions:
        """Return options that are given as such, as a mapping, or not at all."""
        if isinstance(options, KMeansOptions):
            return options
        known = [field.name for field in fields(cls)]
        if options is not None and not isinstance(options, Mapping):
            raise ParameterError(
                f"options: expected a KMeansOptions or a mapping of {', '.join(known)}"
            )
        unknown = [name for name in options or () if name not in known]
        if unknown:
            raise ParameterError(f"options: {unknown[0]!r} is none of {', '.join(known)}")
        return cls(**(options or {}))

    def settings_for(self, method: Method) -> dict[str, Any]:
        """Return the options that a method's function gets; refuse those that it does not have."""
        given = {name: value for name, value in self.given().items() if name in OF_METHODS}
        given |= given.pop("own", {})
        if "noise" in given and not method.takes_noise:
            del given["noise"]
        return keywords(method.settings, given, f"`method={method.name!r}`")

    def given(self) -> dict[str, Any]:
        """Return the options that differ from their defaults."""
        values = {field.name: (getattr(self, field.name), field.default) for field in fields(self)}
        return {
            name: value
            for name, (value, default) in values.items()
            if (value is not None if default is None else value != default)
        }


@documented
@dataclass(repr=False, eq=False, kw_only=True)
class PrivateKMeans(
    PredictsLabels,
    MeasuresDistances,
    ClusterMixin,  # type: ignore[misc]
    PrivateLearner,
):
    """K-means with differential privacy for one record.

    Every fitted attribute is a function of what `fit` released and of public facts, so all
    of them may be published. There is no `labels_` and no `inertia_`: they would be exact
    statements about records, as `predict` and `score` are.

    Parameters
    ----------
    n_clusters : int or "auto"
        "auto" takes the number from the release as well, at no cost.
    {budget}
    {domain}
    method : {"auto", "sketch", "pipeline", "cells", "partition-tree", "lloyd", "grid", \
            "sample-aggregate", "k-variates"}
        "sketch" releases one sketch and learns from it. "pipeline" starts with a sketch of all
        columns or along few directions, or around the mean of all records where noise would hide
        clusters, and improves its centers in noisy rounds.
        "cells" counts records of a grid, and looks again where they are many: pure, for up to
        five columns.
        "partition-tree" is the method of Balcan et al. (2017), "lloyd" noisy rounds of Lloyd's,
        "grid" a noisy histogram, "sample-aggregate" the average of many small runs (Nissim et
        al., 2007), "k-variates" noisy seeds (Nock et al., 2016). "auto" takes the one whose
        forecast is best, from public facts alone; the receipt says which, and why. Packages can
        register more methods by entry points of the group `privsketch.methods`.
    neighbours : {"add-remove", "replace"}
    n_records : float, optional
        Public order of magnitude of the number of records. Never taken from X, unless
        neighbours="replace" makes their number public. Methods that need one pay for a noisy
        one without it.
    options : KMeansOptions or mapping, optional
        Options that only some methods need: the size and noise of a sketch, its search, the largest
        number of clusters for "auto", the entries of sparse records.
    {reading}
    {seed}

    Attributes
    ----------
    cluster_centers_ : (n_clusters, n_features_in_) float64
        In the units of X if all its columns are numbers; else, with a schema, those of encoded
        records, whose coordinates `model_.columns` names.
    method_ : str
        The method that was used.
    standard_errors_ : (n_clusters, n_features_in_) float64 or None
        Of the centers' coordinates; None for fits too large to tell, and for methods other
        than "sketch".
    {concerns}
    weights_ : (n_clusters,) float64
        Share of the records in each cluster.
    width_ : float or None
        Standard deviation of the clusters per coordinate; method "sketch" only.
    sketch_ : Sketch or None
        The release itself; method "sketch" only.
    {clusters}
    {seen}

    Examples
    --------
    >>> import numpy as np, privsketch as ps
    >>> X = np.repeat([[-0.5, -0.5], [0.5, 0.5]], 5000, axis=0)
    >>> model = ps.PrivateKMeans(n_clusters=2, epsilon=1.0, delta=1e-6,
    ...                          domain=ps.Box(low=-1, high=1), random_state=0).fit(X)
    >>> model.method_, model.receipt_.epsilon, model.receipt_.delta
    ('cells', 1.0, 0.0)
    >>> int((model.predict(X)[:5000] == model.predict(X)[0]).sum())
    5000
    """

    n_clusters: int | str = field(default=8, kw_only=False)
    method: str = "auto"
    options: KMeansOptions | Mapping[str, Any] | None = None

    def fit(self, X: Any, y: object = None) -> Self:
        """Learn the clusters of X.

        Charges: epsilon and delta, once.

        {X}
        """
        budget, domain = self._public_facts(self.neighbours)
        options = KMeansOptions.of(self.options)
        largest = options.max_clusters
        if isinstance(self.n_clusters, str) and self.n_clusters == "auto":
            largest = DEFAULT_MAX_CLUSTERS if largest is None else largest
        check_choices(self.n_clusters, largest, options.decoder, options.n_init)
        facts = self._run_facts()
        table, domain, _ = self._table_in(X, domain, sparse=True)
        n_records = self._public_records(table, domain)
        count = "public" if self.n_records is None and n_records is not None else "stated"
        choice = self._choice(options, domain, budget, n_records)
        self._warn(domain, budget, n_records)
        if choice.method == "sketch":
            model = self._from_sketch(table, domain, budget, n_records, choice, largest)
        else:
            own = options.settings_for(method_of(choice.method, options.n_nonzero))
            model = cluster_with(
                choice,
                table,
                int(self.n_clusters),
                domain=domain,
                budget=budget,
                n_records=n_records,
                n_nonzero=options.n_nonzero,
                count=count,
                names=self._columns(),
                **facts,
                **own,
            )
            self.sketch_ = None
        self.receipt_ = model.receipt
        self.method_ = model.method
        self.cluster_centers_ = centers_of(model)
        self.weights_ = model.weights
        self.width_ = model.width
        self.standard_errors_ = model.standard_errors
        self.model_ = replace(model, columns=self._columns())
        return self._finished(model.concerns)

    def _choice(
        self,
        options: KMeansOptions,
        domain: Domain | Schema,
        budget: Budget,
        n_records: float | None,
    ) -> Choice:
        """Return the method; options that only sketches have choose a sketch."""
        given = options.given()
        given.pop("n_nonzero", None)
        reads = isinstance(self.method, str) and self.method in method_names()[2:]
        of_method = [name for name in OF_METHODS if name != "noise" and given.pop(name, None)]
        if of_method and not reads:
            raise ParameterError(
                f"option {of_method[0]!r} with `method={self.method!r}`: it belongs to a method "
                "that reads records; state which, such as `method='lloyd'`"
            )
        if reads:
            options.settings_for(method_of(self.method, options.n_nonzero))
        if isinstance(self.n_clusters, str):
            given["n_clusters"] = self.n_clusters
        if reads and Method.find(self.method).takes_noise:
            given.pop("noise", None)
        stated = [option_text(name, value) for name, value in given.items()]
        if given and options.n_nonzero is not None:
            raise ParameterError(
                f"`n_nonzero={options.n_nonzero!r}` with {stated[0]}: that is an option of "
                "sketches, and they have no sparse centers"
            )
        if given and self.method == "auto":
            return Choice("sketch", f"{stated[0]} is an option of sketches")
        if given and reads:
            others = ", or one whose noise can be chosen, such as 'lloyd'"
            raise ParameterError(
                f"{stated[0]} with `method={self.method!r}`: that is an option of sketches; leave "
                f"it out, or use `method='sketch'`{others if [*given] == ['noise'] else ''}"
            )
        number = 1 if isinstance(self.n_clusters, str) else self.n_clusters
        return choose_method(
            self.method,
            n_clusters=number,
            domain=domain.box if isinstance(domain, Schema) else domain,
            budget=budget,
            n_records=n_records,
            n_nonzero=options.n_nonzero,
        )

    def _from_sketch(
        self,
        table: Any,
        domain: Domain | Schema,
        budget: Budget,
        n_records: float | None,
        choice: Choice,
        largest: int | None,
    ) -> ClusterModel:
        """Release a sketch and learn the clusters from it."""
        options = KMeansOptions.of(self.options)
        number: Any = self.n_clusters if largest is None else largest
        name = "n_clusters" if largest is None else "max_clusters"
        require_searchable("sketch", number, name=name)
        choices = {name: getattr(options, name) for name in OF_DESIGNS}
        design = self._planned("kmeans", number, domain, budget, n_records=n_records, **choices)
        released = self._released(table, design)
        self.receipt_ = choice.annotate(released.receipt)
        model = learn_kmeans(
            released,
            self.n_clusters,
            max_clusters=largest,
            decoder=options.decoder,
            n_init=options.n_init,
        )
        return replace(model, reason=choice.reason, receipt=self.receipt_)

    def predict(self, X: Any) -> npt.NDArray[np.int64]:
        """Return the index of the nearest center for each row of X.

        The labels are exact: as sensitive as the rows of X themselves. Rows that a schema leaves
        out have the label -1.
        """
        check_is_fitted(self, "model_")
        if schema_of(self._fitted_domain) is not None:
            return super().predict(X)
        return np.concatenate([self.model_.predict(block) for block in self._blocks(X)])

    def score(self, X: Any, y: object = None) -> float:
        """Return minus the k-means cost of X: the sum of squared distances to nearest centers.

        It is an exact statement about X, as sensitive as its rows. For the records of `fit` it is a
        release without a charge: publish scores of other records only.
        """
        check_is_fitted(self, "model_")
        return sum(self.model_.score(block) for block in self._blocks(X))

    def _blocks(self, X: Any) -> Iterator[npt.NDArray[Any]]:
        if schema_of(self._fitted_domain) is not None:
            yield self._completed(X)
            return
        table = validated(self, X, reset=False, sparse=True)
        if hasattr(table, "tocsr"):
            table = table.tocsr()
        rows = max(1, _BLOCK_VALUES // table.shape[1])
        for first in range(0, table.shape[0], rows):
            yield self._filled(table[first : first + rows])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
