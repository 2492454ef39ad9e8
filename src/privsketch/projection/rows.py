"""Private projections of records: JLL Algorithm 1 in integers.

    record -> cut to the domain -> integers -> integer matrix -> + exact noise -> a few numbers

Between the quantised record and the noise no float is rounded: products of integers below 2^53 are
exact in float64, in any order. A `Projection` has the matrix and the noise; before a release it is
as secret as its matrix.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import BudgetError, ParameterError, RecordError, require_count
from privsketch._base.threads import checked_threads, chunks, in_threads
from privsketch._base.types import Floats
from privsketch.facts.budget import ONE_RECORD, Budget, checked_source
from privsketch.facts.budget import RECORD as WHOLE_RECORD
from privsketch.facts.domain import Box, Domain
from privsketch.facts.receipt import Receipt
from privsketch.facts.schema import Schema, domain_of_rows
from privsketch.features.frequencies import public_seed
from privsketch.ledger.cost import Cost
from privsketch.ledger.entry import Counted, LedgerName, OpenEntry, cost_of_receipt, open_entry
from privsketch.noise.mechanism import OWN_SAMPLER, add_noise
from privsketch.projection.calibration import (
    RowNoise,
    check_choices,
    fixed_before,
    is_fresh,
    paper_noise,
    realised,
    smaller_noise,
)
from privsketch.projection.matrix import (
    MATRIX_UNIT,
    Matrix,
    Protection,
    fresh_matrix,
    public_matrix,
)
from privsketch.tables.marks import noter_of
from privsketch.tables.reading import stable_parts

# Norms need eigenvalues of a matrix of this size, which take 0.3 s; twice as many 2 s
# (`python -m benchmarks constants projection MAX_PROJECTIONS`).
MAX_PROJECTIONS = 1024
MIN_ROW_EPSILON = 1e-9  # the noise is then some 1e9 times the change that it hides
_RELEASE_CHUNK_VALUES = 2**20  # 8 MB of float64 for each thread
_release_lock = Lock()


@dataclass(eq=False)
class Projection:
    """Matrix with the noise that makes projections by it private; `Projection.draw` makes one.

    Values of a release are in the units of the records, around the center of the domain:
    (record - center) P + noise.

    Attributes
    ----------
    matrix : Matrix
        P, in integers.
    seed : int or None
        Public seed of the matrix; None if nobody knew the matrix before.
    noise : RowNoise
        Noise of one released number.
    protection : Protection
        Protected change: a row or an element, and its size.
    budget : Budget
        Cost of one release.
    requested_calibration, requested_noise : str
        Calibration and noise as the caller stated them.
    was_used : bool
        Whether the matrix has been used: a fresh one serves once.
    process : int
        Process that drew the matrix; a copy elsewhere is not fresh.
    """

    matrix: Matrix = field(repr=False)
    seed: int | None
    noise: RowNoise
    protection: Protection
    budget: Budget
    requested_calibration: str
    requested_noise: str
    was_used: bool = False
    process: int = field(default_factory=os.getpid, repr=False)

    @classmethod
    def draw(
        cls,
        domain: Domain | Schema,
        n_components: int,
        *,
        epsilon: float,
        delta: float = 0.0,
        protect: str = "row",
        bound: float | None = None,
        bound_norm: str = "l2",
        noise: str = "auto",
        calibration: str = "auto",
        random_state: int | None = None,
    ) -> Projection:
        """Fix the noise and draw the matrix. Charges nothing: only a release does.

        Parameters
        ----------
        domain : Schema, or Box or Ball with its dimension
            Public bounds of the records; those outside are moved to its edge. With a schema,
            blocks of encoded records are released (`privsketch.tables.reading`).
        n_components : int
            Number of values that are released for each record.
        epsilon, delta : float
            Budget of one release. delta = 0 is pure differential privacy.
        protect : {"row", "element"}
            What is hidden: the whole record, or one entry of it.
        bound : float, optional
            Hide only changes of a row, or of an element, by at most this distance, as the paper
            does. If left out, it is the diameter of the domain, which hides the whole record.
        bound_norm : {"l2", "l1"}
            Norm of the distance `bound` of rows.
        noise : {"auto", "laplace", "gaussian"}
        calibration : {"auto", "realised", "fresh", "union", "paper"}
            "realised": private for this matrix, which may be public and used again. "fresh": the
            matrix is new and used once, with less noise from about ten components on. "auto": the
            less noisy one of the two that is allowed. "union", "paper": for comparison.
        random_state : int, optional
            Public seed of the matrix, which is then public; fresh if left out.
        """
        require_count("n_components", n_components)
        if n_components > MAX_PROJECTIONS:
            raise ParameterError(f"`n_components={n_components}`: at most {MAX_PROJECTIONS}")
        budget = Budget(epsilon, delta, "replace")
        if isinstance(domain, Schema):
            domain = domain_of_rows(domain, protect, bound)
        if budget.epsilon < MIN_ROW_EPSILON:
            raise ParameterError(
                "epsilon", epsilon, f"below {MIN_ROW_EPSILON:g} nothing is left of a record"
            )
        is_public = random_state is not None
        check_choices(budget, noise, calibration, is_public)
        protection = Protection.of(domain, protect, bound, bound_norm)
        change = protection.change()
        dim, k = len(change.widths), int(n_components)
        fixed = None
        if not is_public and is_fresh(dim, k, budget, noise, calibration):
            fixed = fixed_before(change, dim, k, budget, noise, calibration)
        seed = None if random_state is None else public_seed(random_state)
        matrix = fresh_matrix(dim, k) if seed is None else public_matrix(dim, k, seed)
        if calibration == "paper":
            row_noise = paper_noise(change, matrix, budget, protect)
        elif fixed is None:
            row_noise = realised(change, matrix, budget, noise)
        elif calibration == "auto":
            row_noise = smaller_noise(fixed, change, matrix, budget, noise)
        else:
            row_noise = fixed
        projection = cls(matrix, seed, row_noise, protection, budget, calibration, noise)
        projection._require_exact_products()
        # The fourth power of the scale must be a number.
        if not 1e-70 < row_noise.law.scale * projection.unit < 1e70:
            raise ParameterError(
                "domain: so large or small that noise has no size; use other units"
            )
        return projection

    def reused(self) -> Projection:
        """Return the same matrix with noise for any use, as "auto" needs after a release."""
        if self.requested_calibration == "auto":
            change = self.protection.change()
            noise = realised(change, self.matrix, self.budget, self.requested_noise)
            return replace(self, noise=noise, was_used=False)
        if self._may_be_reused:
            return self
        raise self._reuse_error()

    def _reuse_error(self) -> ParameterError:
        return ParameterError(
            "calibration",
            self.requested_calibration,
            "its matrix is fresh for one release only and has been used or copied",
            "draw another one, or use `calibration='realised'`",
        )

    @property
    def was_used_here(self) -> bool:
        """Whether the one release of a fresh matrix was made, or may be in another process."""
        return self.was_used or self.process != os.getpid()

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a copy, which shares the matrix: it is no longer fresh."""
        self.was_used = True
        return self.__dict__.copy()

    @property
    def _may_be_reused(self) -> bool:
        return self.noise.calibration == "realised" or self.matrix.is_public

    @property
    def dim(self) -> int:
        """Number of columns of a record."""
        return self.matrix.dim

    @property
    def n_components(self) -> int:
        """Number of columns of a released record."""
        return self.matrix.n_components

    @property
    def matrix_name(self) -> str:
        """Identifier of the matrix."""
        return self.matrix.name

    @property
    def unit(self) -> float:
        """Length of one integer that noise is added to, in the units of the records."""
        return float(2.0**self.noise.shift / (self.protection.units_per_length * MATRIX_UNIT))

    @property
    def noise_variance(self) -> float:
        """Variance of the noise of one released number."""
        return self.noise.law.variance * self.unit**2

    @property
    def noise_fourth_moment(self) -> float:
        """Fourth moment of the noise of one released number."""
        return self.noise.fourth_moment * self.unit**4

    def receipt(self, source: str | None = None, sampler: str = OWN_SAMPLER) -> Receipt:
        """Return the receipt of one release."""
        law = self.noise.law
        names = {"laplace": "discrete Laplace", "gaussian": "discrete Gaussian"}
        return replace(
            law.receipt(law.scale, source, sampler),
            mechanism=f"{names[law.kind]} noise on {law.n_components} projections of each record",
            unit=self.protection.unit_text,
            scale=law.scale * self.unit,
            sensitivity=float(law.sensitivity) * self.unit,
            norm=_norm_text(self.noise),
            calibration=f"{self.noise.calibration}: {self.noise.text}",
        )

    def releases(
        self,
        blocks: Iterable[npt.NDArray[Any]],
        *,
        source: str | None = None,
        missing_to_center: bool = False,
        n_threads: int | None = None,
        on_receipt: Callable[[Receipt], None] | None = None,
        ledger: LedgerName | Counted = None,
    ) -> Iterator[Floats]:
        """Release rows for blocks (n, dim) of records, in their order, in constant memory.

        Charges: epsilon and delta of the projection, once for all blocks together, as soon as
        the first of them is out. A matrix that is fresh for one release is refused a second time.
        """
        checked_threads(n_threads)
        source = None if source is None else checked_source(source)
        with _release_lock:
            if self.was_used_here and not self._may_be_reused:
                raise self._reuse_error()
            entry = open_entry(ledger, self.cost, what="rows", source=source)
            self.was_used = True
        return self._releases(blocks, source, missing_to_center, n_threads, on_receipt, entry)

    def cost(self) -> Cost:
        """Return the cost of a release, for a ledger."""
        if self.protection.unit_text != WHOLE_RECORD:
            raise BudgetError(
                f"the release protects {self.protection.unit_text}: a ledger counts what is "
                "revealed of whole records; nothing was spent"
            )
        return replace(cost_of_receipt(self.receipt(), ONE_RECORD), is_rows=True)

    def _releases(
        self,
        blocks: Iterable[npt.NDArray[Any]],
        source: str | None,
        missing_to_center: bool,
        n_threads: int | None,
        on_receipt: Callable[[Receipt], None] | None,
        entry: OpenEntry,
    ) -> Iterator[Floats]:
        if isinstance(blocks, np.ndarray):
            blocks = [blocks]
        quantise = self.protection.quantiser(missing_to_center=missing_to_center)
        matrix = self.matrix.integers.astype(np.float64)
        unit, noter = self.unit, noter_of(entry.key, None)

        def work(chunk: npt.NDArray[Any]) -> tuple[Floats, Receipt]:
            exact = np.empty((len(chunk), self.n_components), dtype=np.float64)
            for first in range(0, len(chunk), quantise.rows_at_once):
                rows = slice(first, first + quantise.rows_at_once)
                np.matmul(quantise.whole_numbers(chunk[rows]), matrix, out=exact[rows])
            integers = exact.astype(np.int64)
            integers >>= self.noise.shift
            with entry.entered():
                noisy, receipt = add_noise(integers, self.noise.law, source=source)
            if noter is not None:
                noter.see(chunk)
            return np.multiply(noisy, unit, dtype=np.float64), receipt

        rows = max(1, _RELEASE_CHUNK_VALUES // max(self.dim, self.n_components))
        is_first = True
        with entry.watching():
            results = in_threads(work, chunks(self._checked(blocks), rows), n_threads)
            for released, receipt in results:
                if is_first and on_receipt is not None:
                    on_receipt(self.receipt(source, receipt.sampler))
                is_first = False
                yield released
        entry.commit(self.receipt(source), None if noter is None else noter.marks)

    def _checked(self, blocks: Iterable[npt.NDArray[Any]]) -> Iterator[npt.NDArray[Any]]:
        """Yield blocks that are tables; other arrays could be broadcast and repeat records."""
        for block in stable_parts(blocks, held=isinstance(blocks, list | tuple)):
            # Subclasses are refused: np.matrix multiplies differently, masked arrays hide values.
            if (
                type(block) not in (np.ndarray, np.memmap)
                or block.ndim != 2
                or block.dtype.kind not in "fiub"
            ):
                raise RecordError("blocks: expected plain arrays of numbers (n_records, n_columns)")
            if block.shape[1] != self.dim:
                raise RecordError(
                    f"blocks: {block.shape[1]} columns, the projection has dim={self.dim}"
                )
            yield block

    def _require_exact_products(self) -> None:
        """Raise a ParameterError unless partial sums of products are below 2^53 for all records."""
        limits = self.protection.quantiser().limits
        longest = math.sqrt(float(np.square(limits.astype(np.float64)).sum()))
        if not isinstance(self.protection.domain, Box):
            longest = float(limits[0])
        columns = math.sqrt(float(np.square(self.matrix.integers.astype(np.float64)).sum(0).max()))
        if longest * columns * 1.001 >= 2.0**53:
            raise ParameterError("dim: too many columns for exact products; release fewer columns")


def _norm_text(noise: RowNoise) -> str:
    norm = "L1" if noise.law.kind == "laplace" else "L2"
    space = "records" if noise.calibration == "fresh" and norm == "L2" else "projections"
    if noise.calibration != "realised" and norm == "L1":
        space += "; of some matrices it is larger, which delta is for"
    return f"{norm} distance of {space}"
