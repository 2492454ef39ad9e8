"""One clustering run: the records, the public facts about them, and the budget.

A method is a function of a run and of a number of clusters. It opens passes over the records,
obtains their number, cuts the budget into shares, and pays for every answer from one account. The
model that it returns carries the receipt of all answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from inspect import signature
from typing import Any, TypeVar

import numpy as np

from privsketch._base.errors import MANY, ParameterError, require_records
from privsketch._base.types import Block, Floats, Integers, WholeFloats
from privsketch.clustering.forecast import Forecast, PublicFacts
from privsketch.clustering.passes import Passes, Progress
from privsketch.design.plan import plan_design
from privsketch.facts.budget import Budget, checked_budget
from privsketch.facts.domain import Ball, Box, Domain, enclosing_ball, enclosing_box
from privsketch.facts.receipt import Receipt
from privsketch.facts.schema import Schema, schema_of
from privsketch.features.frequencies import public_seed
from privsketch.learning.concerns import RecordCount, noise_decided, unlisted_labels
from privsketch.ledger.cost import Cost
from privsketch.ledger.entry import STEP, Counted, LedgerName, OpenEntry, cost_of_budget, open_entry
from privsketch.models.base import Model
from privsketch.models.clusters import ClusterModel
from privsketch.noise.account import Account, Shares, part_receipt
from privsketch.sketching.build import sketch
from privsketch.sketching.engines.threads import threads_or_default
from privsketch.sketching.sketch import Sketch
from privsketch.tables.marks import Noter, noter_of
from privsketch.tables.memory import Selection
from privsketch.tables.persons import store_rows
from privsketch.tables.reading import names_persons, naming_columns, read_blocks
from privsketch.tables.table import OnSpark, Table

COUNT = "number of records"
PERSONS = "persons"
REST = "clusters"
COUNT_SHARE = Fraction(1, 50)  # of the budget, for a number of records that is not stated
_Model = TypeVar("_Model", bound=Model)


class Run:
    """Records, public facts and a budget, with the passes and the account of one run.

    Parameters
    ----------
    data : Table, array, frame, path or list of blocks
        The records. They are read several times.
    domain : Schema, Box or Ball
        With a schema, the attribute `domain` is that of encoded records: a ball where noise is
        Gaussian and pays for the norm, or where its L1 norm is smaller than that of the box; else
        a box.
    budget : Budget
    n_records : float, optional
        A public number, about the number of records.
    n_threads : int, optional
    source : str, optional
        Public name of the records, for the receipt.
    random_state : int, optional
        Seed of public randomness; the noise has none.
    progress : callable, optional
        See `Passes`.
    count : {"stated", "public"}
        What `n_records` is: a stated number, or under "replace" the exact one, which is public.
    names : list of str, optional
        Names of the columns of an array, for error messages.
    ledger : (path, name), optional
        Ledger that gets an entry before the run draws noise.
    """

    def __init__(
        self,
        data: Any,
        *,
        domain: Domain | Schema,
        budget: Budget,
        n_records: float | None = None,
        n_threads: int | None = None,
        source: str | None = None,
        random_state: int | None = None,
        progress: Progress | None = None,
        count: str = "stated",
        names: Sequence[str] | None = None,
        ledger: LedgerName | Counted = None,
    ) -> None:
        checked_budget(budget)
        self.ledger = ledger
        self.noter: Noter | None = None
        self.schema = schema_of(domain)
        if self.schema is not None:
            budget = self.schema.charged(budget)
            domain = _domain_of(self.schema, budget)
        if not isinstance(domain, Box | Ball):
            raise ParameterError("domain", domain, "expected a Schema, a Box or a Ball")
        if self.schema is None and budget.unit.person is not None:
            raise ParameterError(
                "budget: its unit is a person, and only a schema says which person has a record"
            )
        self.table, self.domain, self.budget = Table.of(data), domain, budget
        self.table.all_files  # noqa: B018 - every pass reads the files that are there now
        self._encoded: Table | None = None  # records that were read and encoded before
        if n_threads is not None and self.table.kind == "spark":
            raise ParameterError(
                f"`n_threads={n_threads}` with a Spark DataFrame: its workers use one thread each; "
                "leave it out"
            )
        self.n_records = None if n_records is None else require_records(n_records)
        self.names, self.n_threads = names, n_threads
        self.source, self.progress = source, progress
        self.seed = public_seed(random_state)
        self.count = count
        self._account: Account | None = None

    def cost(self) -> Cost:
        """Return the cost of the run, for a ledger."""
        return cost_of_budget(self.budget)

    def note_for(self, entry: OpenEntry) -> None:
        """Note the records that the first pass reads in an entry of a ledger."""
        self.noter = noter_of(entry.key, self.schema)
        if self.noter is not None:
            entry.set_marks_source(self.noter)

    def without_delta(self) -> None:
        """Spend no delta, for methods whose noise is pure."""
        if self._account is not None:
            raise ParameterError("shares: spending has begun, and the delta is part of it")
        self.budget = replace(self.budget, delta=0.0)

    def read(
        self,
        domain: Domain | None = None,
        *,
        max_bits: int | None = None,
        within: Box | None = None,
    ) -> Passes:
        """Open passes over the records, in the run's domain or in another one that contains it."""
        domain = domain or self.domain
        table, selection = self.table, self.selection(len(domain.half_widths))
        if names_persons(selection) or table.kind == "spark":
            table = self._encoded_records(selection)
            selection = table.selection(selection.dim, neighbours=self.budget.neighbours)
        return Passes(
            table,
            domain,
            selection,
            n_threads=self.n_threads,
            progress=self.progress,
            max_bits=max_bits,
            within=within,
        )

    def selection(self, dim: int) -> Selection:
        """Return what the first pass reads for a record of `dim` numbers."""
        return self.table.selection(
            dim, None, self.schema, neighbours=self.budget.neighbours, noter=self.noter
        )

    def _encoded_records(self, selection: Selection) -> Table:
        """Return records on Spark, or those of persons that count: the same ones in every pass."""
        if self._encoded is None and self.table.kind == "spark":
            from privsketch.sketching.engines.spark import spark_records

            if self.schema is None and self.names is not None:
                selection = replace(selection, names=tuple(self.names))
            with spark_records(self.table, selection, again=True) as records:
                self._encoded = Table(records, missing=self.table.missing)
        elif self._encoded is None:
            tell = self.progress or (lambda name, count: None)
            tell(PERSONS, 0)
            blocks = read_blocks(
                self.table,
                selection,
                n_threads=self.n_threads,
                progress=lambda count: tell(PERSONS, count),
            )
            self._encoded = Table(store_rows(blocks, selection.dim))
        return self._encoded

    @property
    def ball(self) -> Ball:
        """The smallest ball that holds all records."""
        return enclosing_ball(self.domain) if self.schema is None else self.schema.ball

    @property
    def box(self) -> Box:
        """The smallest box that holds all records."""
        return enclosing_box(self.domain) if self.schema is None else self.schema.box

    def require_one_record(self, method: str) -> None:
        """Refuse several records of a person for methods whose cost is known for one."""
        if self.budget.unit.max_records > 1:
            raise ParameterError(
                f"several records of a person (`max_records={self.budget.unit.max_records}`) with "
                f"`method={method!r}`: its cost is known for one record; keep one of each person"
            )

    def number(self, passes: Passes) -> float:
        """Return the number of records: stated, exact under "replace", or a noisy one.

        Charges: a fiftieth of the budget if it is neither stated nor public.
        """
        if self.n_records is not None:
            return self.n_records

        def work(records: WholeFloats) -> tuple[Integers, ...]:
            return (np.array([records.shape[0]], dtype=np.int64),)

        exact = passes.sums(work, COUNT)[0]
        if self.budget.neighbours == "replace":
            self.count = "public"
            return float(exact[0])
        self.count = "released"
        account = self.share({COUNT: COUNT_SHARE, REST: 1 - COUNT_SHARE})
        noisy, _ = account.counts(COUNT, exact)
        return min(max(float(noisy[0]), 1.0), MANY)  # noise may be larger than any table

    @property
    def left(self) -> Budget:
        """The rest of the budget that is not cut into shares yet, to plan with."""
        return self.budget if self._account is None else self._account.shares.part(REST)

    def share(self, weights: Mapping[str, Fraction]) -> Account:
        """Cut the rest of the budget into shares and return the account of the run.

        `weights` are parts of the rest and add up to 1. They may depend on released numbers,
        because the rest was fixed before.
        """
        if self._account is None:
            self._account = Account(Shares(self.budget, weights))
        else:
            self._account.cut(REST, weights)
        return self._account

    def sketch(
        self,
        blocks: Iterable[Block] | OnSpark,
        domain: Domain,
        n_clusters: int,
        n_records: float,
        *,
        missing: str = "error",
    ) -> Sketch:
        """Release a sketch for k-means, of blocks of records or of values derived from them.

        Charges: the share "sketch".
        """
        account = self.account
        design = plan_design(
            task="kmeans",
            n_components=n_clusters,
            domain=domain,
            budget=account.budget("sketch", many=True).without_person,
            n_records=n_records,
            random_state=self.seed,
            feature_map="fourier",
            noise=None if account.shares.is_pure else "gaussian",  # its rho is charged
        )
        engine = threads_or_default(self.n_threads)
        released = sketch(Table(blocks, missing=missing), design, engine=engine, ledger=STEP)
        account.charge(part_receipt("sketch", released.receipt), design.sum_noise.sums_law.rho)
        return released

    @property
    def account(self) -> Account:
        """The account that pays for all answers, once the budget is cut into shares."""
        if self._account is None:
            raise ParameterError("shares: the budget is not cut into shares yet")
        return self._account

    def receipt(self, mechanism: str) -> Receipt:
        """Return the receipt of all answers together."""
        return self.account.receipt(mechanism, self.source)

    def model(
        self,
        centers: Floats,
        sizes: Floats | None,
        *,
        method: str,
        mechanism: str,
        n_records: float | None = None,
        loss: str = "squares",
        concerns: tuple[str, ...] = (),
        count: str = "released",
        forecast: Forecast | None = None,
        seen: RecordCount | None = None,
        too_wide: tuple[str, ...] = (),
    ) -> ClusterModel:
        """Return the model of the clusters, with the receipt of the run.

        `centers` (k, dim) are in the units of the records. `sizes` are noisy numbers of records,
        or None for methods that release none; their sum takes the place of a missing `n_records`.
        `count` says what that number is: "released" unless it comes from `number`.
        `forecast` gives the cost ratio to expect. It is asked for the records that were `seen` for
        sure, by default those of the model: if noise decided, the model says that, not `concerns`.
        If the domain is `too_wide` for the records, the forecast does not hold, and there is none.
        """
        k = len(centers)
        counts = np.zeros(k) if sizes is None else np.maximum(sizes, 0.0)
        number = max(float(counts.sum()), 1.0) if n_records is None else n_records
        expected = None
        if forecast is not None:
            seen = seen or RecordCount(number)
            expected = float(forecast(PublicFacts(k, self.domain, self.budget, seen.sure)))
            by_noise = noise_decided(expected, seen, k, "cluster")
            unlisted = unlisted_labels(centers, shares_of(counts), self.schema)
            # Records that end up on the edge are near each other too; the edge says why.
            wide = () if concerns else too_wide
            concerns = tuple(by_noise) or (*wide, *concerns, *unlisted)
            if too_wide and not by_noise:
                expected = None
        if sizes is None:
            concerns = (*concerns, "weights are equal shares: this method releases none")
        domain = self.domain if self.schema is None else self.schema.box
        return ClusterModel(
            domain.project(centers),
            shares_of(counts),
            number,
            self.receipt(mechanism),
            method=method,
            loss=loss,
            domain=self.domain,
            columns=None if self.schema is None else self.schema.coordinates,
            schema=self.schema,
            concerns=concerns,
            count=count,
            expected_ratio=expected,
        )


def shares_of(sizes: Floats) -> Floats:
    """Return the shares of noisy numbers of records; equal ones if no number is above 0."""
    counts = np.maximum(sizes, 0.0)
    total = float(counts.sum())
    return counts / total if total > 0 else np.full(len(counts), 1 / len(counts))


def _domain_of(schema: Schema, budget: Budget) -> Domain:
    """Return the domain of encoded records for which noise is smallest."""
    ball, box = schema.ball, schema.box
    in_ball = math.sqrt(schema.dim) * ball.radius  # |x|_1 <= sqrt(d) |x|_2
    return ball if budget.delta > 0 or in_ball < float(box.half_widths.sum()) else box


RUN_OPTIONS = frozenset(signature(Run).parameters) - {"data"}


def clustered(
    method: Callable[..., _Model], data: Any, /, n_clusters: int, **options: Any
) -> _Model:
    """Run a method on `data`. Options of `Run` have their names there, the method gets all others.

    Charges: the budget, once.
    """
    run = Run(data, **{name: options.pop(name) for name in RUN_OPTIONS & options.keys()})
    dim, names = len(run.domain.half_widths), run.names if run.schema is None else None
    with (
        naming_columns(run.table, run.table.selection(dim, names, run.schema)),
        open_entry(
            run.ledger,
            run.cost,
            what="run",
            source=run.source,
            is_total=run.table.stops_nothing(run.schema),
        ).entered() as entry,
    ):
        run.note_for(entry)
        model = method(run, n_clusters, **options)
        entry.commit(model.receipt)
        return model
