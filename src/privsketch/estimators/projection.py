"""Private release of projected records, as a scikit-learn transformer."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from inspect import signature
from operator import attrgetter
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from privsketch._base.errors import MissingError, ParameterError, RecordError
from privsketch._base.threads import checked_threads
from privsketch._base.types import Floats
from privsketch.estimators.base import PrivateEstimator, documented
from privsketch.estimators.validation import seen, validated
from privsketch.facts.budget import Budget, Neighbours
from privsketch.facts.domain import Domain
from privsketch.facts.receipt import Receipt, compose_sequential
from privsketch.facts.schema import Schema, domain_of_rows, require_rows, schema_of
from privsketch.ledger.entry import Counted, counted_refusals
from privsketch.projection.description import ReleaseDescription
from privsketch.projection.rows import Projection
from privsketch.tables.reading import read_points
from privsketch.tables.table import Table, checked_missing

_DRAWING_PARAMETERS = tuple(signature(Projection.draw).parameters)


@documented
@dataclass(repr=False, eq=False, kw_only=True)
class PrivateProjection(ClassNamePrefixFeaturesOutMixin, TransformerMixin, PrivateEstimator):  # type: ignore[misc]
    """Random projections of records with noise that hides each of them.

    `fit` draws a matrix and charges nothing. `transform` releases a table: every record is cut
    to the domain, projected and noised, and what comes out may be published row by row. Every
    call draws new noise and charges epsilon and delta again, for the records of its table.
    Noise hides a record behind the domain, not behind other records: it does not shrink with
    their number. docs/projection.md.

    A parameter that is changed after `fit` counts from the next `transform` on, which then draws
    anew as `fit` does: another matrix, unless `random_state` is given.

    Parameters
    ----------
    n_components : int
        Numbers that are released for each record.
    epsilon : float
        Privacy budget of one `transform`; no default.
    delta : float
        0 for pure differential privacy; no default.
    domain : Schema, Box or Ball
        Public facts about the table, or bounds of the records; no default. Noise grows with its
        diameter; records outside are moved to its edge. The `dim` of a box or a ball may be left
        out. A schema must have a rule or a fill value for every missing cell: no row is left out.
    protect : {"row", "element"}
        What is hidden: all that a record says, or one entry of it.
    bound : float, optional
        Hide only changes of a row, or of an element, by at most this distance; the diameter
        of the domain, which hides all of it, if left out.
    bound_norm : {"l2", "l1"}
        Distance of rows that `bound` speaks of.
    noise : {"auto", "laplace", "gaussian"}
    calibration : {"auto", "realised", "fresh", "union", "paper"}
        "realised": private at the very matrix that was drawn; any number of releases.
        "fresh": less noise from about ten components on, but a matrix of nobody's knowledge,
        for one release: a second `transform` is refused. "auto": the less noisy of the two
        that is allowed for the first release, "realised" for all later ones. "union" and
        "paper" are for comparison.
    {reading}
    random_state : int, optional
        Public seed of the matrix; drawn by the operating system if left out. The noise has
        no seed.

    Attributes
    ----------
    components_ : (n_components_, n_features_in_) float64
        The matrix: a release is (records - center of the domain) @ components_.T + noise. It
        is secret until the first release unless it comes from a public seed or the
        calibration is "realised", and public afterwards.
    n_components_ : int
    noise_variance_, noise_fourth_moment_ : float
        Moments of the noise of one number, in the latest release or in the first one to come.
    receipt_ : Receipt
        Cost of all calls of `transform` since `fit` together, if they were about the same
        records: epsilons and deltas add. There is none before the first call.
    receipts_ : tuple of Receipt
        Cost of each call.
    description_ : ReleaseDescription
        Public description of the latest release; distances need it.
    projection_ : Projection
        Matrix and noise of the latest release, or of the first one to come.
    {seen}

    Notes
    -----
    A copy of a fitted estimator, by `pickle`, by `copy` or in a worker process, counts its own
    releases only. A fresh matrix that has been copied is no longer fresh: neither the copy nor
    the original gets its one release then. `clone` copies parameters only, and is safe.

    Examples
    --------
    >>> import numpy as np, privsketch as ps
    >>> X = np.random.default_rng(0).normal(size=(1000, 20))
    >>> projection = ps.PrivateProjection(10, epsilon=4.0, delta=1e-6, domain=ps.Ball(radius=6.0))
    >>> projection.fit_transform(X).shape
    (1000, 10)
    >>> projection.receipt_.epsilon, projection.receipt_.unit
    (4.0, 'one record')
    """

    n_components: int = field(default=2, kw_only=False)
    protect: str = "row"
    bound: float | None = None
    bound_norm: str = "l2"
    noise: str = "auto"
    calibration: str = "auto"

    def _public_facts(self, neighbours: Neighbours) -> tuple[Budget, Domain | Schema]:
        """Return budget and domain; a schema must give a row for every record."""
        schema = schema_of(self.domain)
        if schema is not None:
            require_rows(schema)
        return super()._public_facts(neighbours)

    def fit(self, X: Any, y: object = None) -> Self:
        """Draw the matrix for tables with the columns of X.

        Charges: nothing. Of X it takes the number and the names of columns; it refuses what
        `transform` would refuse.

        {X}
        """
        self._fitted_table(X)
        return self

    def transform(self, X: Any) -> Floats:
        """Release the rows of X, (n_records, n_components_) float64.

        Charges: epsilon and delta, at every call; nothing if an error stops it. An error after
        the checks of X counts a fresh matrix as used all the same.
        """
        check_is_fitted(self, "projection_")
        budget, domain = self._public_facts("replace")
        self._check_choices()
        with counted_refusals(self.ledger, what="rows"):
            table = self._read(X, domain, reset=False)
        if self._drawn_by != self._drawing_choices():
            self._warn(domain, budget, len(table))
            self._draw(domain, table.shape[1])
        return self._release(table, self._next_projection())

    def fit_transform(self, X: Any, y: object = None) -> Floats:
        """Draw a matrix and release the rows of X with it.

        Charges: epsilon and delta, once.
        """
        return self._release(self._fitted_table(X), self.projection_)

    def _fitted_table(self, X: Any) -> npt.NDArray[Any]:
        # One record is replaced by another, and the number of records is public.
        budget, domain = self._public_facts("replace")
        self._check_choices()
        with counted_refusals(self.ledger, what="rows"):
            if isinstance(domain, Schema):
                seen(self, X, domain)
            table = self._read(X, domain, reset=True)
            if len(table) == 0:
                raise RecordError(
                    "X: the table has no records; the number of records is public and must be at "
                    "least 1"
                )
            if self.missing == "error" and not np.isfinite(table).all():
                column = int(np.argmin(np.isfinite(table).all(axis=0)))
                names = self._columns()
                raise MissingError(column, None if names is None else names[column])
        # From here on the columns are those of X: an older matrix must not be used on them.
        self.__dict__.pop("projection_", None)
        self._warn(domain, budget, len(table))
        self._draw(domain, table.shape[1])
        self.receipts_: tuple[Receipt, ...] = ()
        return np.asarray(table)

    def _read(self, X: Any, domain: Domain | Schema, *, reset: bool) -> npt.NDArray[Any]:
        """Return the records to release; their number is public, so a sheet has to state it."""
        if isinstance(X, Table):
            self._require_missing(X)
        if isinstance(domain, Schema):
            return read_points(X, domain, neighbours="replace")[0]
        return np.asarray(validated(self, X, reset=reset, neighbours="replace"))

    def _draw(self, domain: Domain | Schema, dim: int) -> None:
        """Draw matrix and noise for records of `dim` coordinates."""
        if isinstance(domain, Schema):
            domain = domain_of_rows(domain, self.protect, self.bound)
        choices = self._drawing_choices()
        self.projection_ = Projection.draw(**{**choices, "domain": domain.with_dim(dim)})
        self._drawn_by = choices

    def _drawing_choices(self) -> dict[str, Any]:
        """Return the parameters that determine matrix and noise; the others are about reading."""
        return {name: getattr(self, name) for name in _DRAWING_PARAMETERS}

    def _check_choices(self) -> None:
        """Check parameters that would stop a release when its matrix counts as used already."""
        checked_threads(self.n_threads)
        checked_missing(self.missing)

    def _next_projection(self) -> Projection:
        projection = self.projection_
        if not projection.was_used_here:
            return projection
        try:
            return projection.reused()
        except ParameterError:
            raise ParameterError(
                "calibration",
                projection.requested_calibration,
                "its matrix is fresh for one release only and has been used, or the estimator "
                "was copied since",
                "fit again, or use `calibration='realised'`",
            ) from None

    def _release(self, table: npt.NDArray[Any], projection: Projection) -> Floats:
        receipts: list[Receipt] = []
        released = np.empty((len(table), projection.n_components), dtype=np.float64)
        first = 0
        for rows in projection.releases(
            [table],
            missing_to_center=self.missing == "center",
            n_threads=self.n_threads,
            on_receipt=receipts.append,
            ledger=Counted(self.ledger),
        ):
            released[first : first + len(rows)] = rows
            first += len(rows)
        # Set both at the very end: the projection is that of the last receipt.
        self.projection_, self.receipts_ = projection, (*self.receipts_, *receipts)
        self._n_released = len(table)
        return released

    @property
    def receipt_(self) -> Receipt:
        """Cost of all releases since `fit` together."""
        parts = self.receipts_
        if not parts:
            raise AttributeError("receipt_: nothing was charged yet; call transform to release")
        if len(parts) == 1:
            return parts[0]
        if len({part.unit for part in parts}) > 1:
            raise AttributeError(
                "receipt_: the releases since fit protect different units, and their costs have no "
                "sum; receipts_ has each"
            )
        return compose_sequential(f"{len(parts)} releases of projected records", parts, None)

    @property
    def description_(self) -> ReleaseDescription:
        """Public description of the latest release."""
        if not self.receipts_:
            raise AttributeError("description_: nothing was released yet; call transform")
        names = getattr(self, "feature_names_in_", None)
        plain = ReleaseDescription.of(
            self.projection_,
            self.receipts_[-1],
            n_records=self._n_released,
            record=None if names is None else tuple(map(str, names)),
        )
        return replace(plain, columns=tuple(map(str, self.get_feature_names_out())))

    @property
    def components_(self) -> Floats:
        """The matrix, (n_components_, n_features_in_)."""
        return np.ascontiguousarray(self.projection_.matrix.values.T)

    # Attributes of the current projection.
    n_components_ = property(attrgetter("projection_.n_components"))
    noise_variance_ = property(attrgetter("projection_.noise_variance"))
    noise_fourth_moment_ = property(attrgetter("projection_.noise_fourth_moment"))

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components_)
