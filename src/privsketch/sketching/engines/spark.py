"""Spark: partitions of a DataFrame, or files, are summed on its workers, and the driver adds up.

Every task sends integers and a count, never a record, straight to the driver: a tree of sums would
need a shuffle, which leaves sums without noise on workers' disks. Where a schema names persons,
their rows may lie in any partition, and encoded records are shuffled once to bring them together.
Noise is added later, by whoever called. A task that is repeated, after a worker died or because it
was slow, enters the sum once: Spark keeps one result for each partition.

Tasks return errors and never raise. What makes a DataFrame may fail in its own words, which quote
records; Spark's loggers are silent while our jobs run, and the error that is raised is ours.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from privsketch import __version__
from privsketch._base.errors import ParameterError, PrivsketchError, RecordError
from privsketch._base.types import Block
from privsketch.sketching.engines.session import collected, opened_session, require_spark
from privsketch.sketching.engines.work import Progress, Work, block_sums, files_alone, quietly
from privsketch.sketching.sums import ExactSums, add_exact
from privsketch.tables.files import FilePart
from privsketch.tables.memory import Selection, selected_names
from privsketch.tables.persons import (
    CHUNK_BYTES,
    Key,
    RowSelection,
    mixed_persons_error,
    sort_chunks,
)
from privsketch.tables.reading import names_persons, part_persons, read_blocks
from privsketch.tables.table import OnSpark, Table

MAX_PARTS = 512  # results that the driver waits for; each costs a task about 10 ms
_PLACE_BITS = 16  # of a person's hash, by which rows are brought together
_OUTCOME = "part int, outcome binary"
_ROW = "place int, words binary, person binary, error binary"
Blocks = Iterator[Block]


@dataclass(frozen=True)
class Spark:
    """A cluster of Spark, which must be the holder's own.

    Parameters
    ----------
    session : SparkSession or str, optional
        For files: a session, or a master like "spark://host:7077" of one that is started and
        stopped again. By default the active session, or one as Spark is set up.
    """

    session: Any = None

    def sums(self, table: Table, work: Work, progress: Progress | None = None) -> ExactSums:
        """Return the exact sums of a Spark DataFrame, or of files that the workers can read."""
        unnoted = replace(work, selection=replace(work.selection, noter=None))
        with spark_records(table, work.selection, self.session) as records:
            parts = [work.nothing]
            for exact in records.each(partial(block_sums, unnoted), tick=progress):
                parts.append(exact)
                if progress is not None:
                    progress(exact.n_records)
        return add_exact(parts)


# ---------------------------------------------------------------- records on Spark


@dataclass(frozen=True, eq=False)
class SparkRecords(OnSpark):
    """Records that can be read as often as needed, by Spark's workers.

    A row of `frame` is one of the table, or names a part of files. `key` is there where a schema
    names persons: with the same one, the same rows count in every pass.
    """

    frame: Any
    reading: Reading
    key: Key | None = None

    def each(
        self, compute: Callable[[Blocks], Any], *, note: bool = True, tick: Progress | None = None
    ) -> list[Any]:
        """Return what `compute` makes of the records of every part.

        It runs on the workers, and what it gives must add up to the same however records are cut
        into parts. `tick` is called with 0 now and then, and may raise to stop the work. Rows are
        noted for a ledger where there is one, but for those of persons; unless they were before.
        """
        reading = self.reading if note else self.reading.unnoted()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of Spark, about versions of pandas
            rows = self.frame.coalesce(MAX_PARTS)
            if self.key is None:
                rows = _mapped(rows, _Summing(reading, compute), _OUTCOME)
            else:
                rows = _mapped(rows, _Sorting(reading, self.key), _ROW)
                rows = rows.repartition("place").coalesce(MAX_PARTS)
                rows = _mapped(rows, _Joining(reading, self.key, compute), _OUTCOME)
        outcomes = collected(self.frame.sparkSession, rows, tick)
        if isinstance(outcomes, PrivsketchError):
            raise outcomes  # here, where no foreign error is its context
        kinds = {is_text for _, _, is_text in outcomes} - {None}
        if len(kinds) > 1:
            raise mixed_persons_error()
        noter = reading.selection.noter
        if noter is not None:
            for _, marks, _ in outcomes:
                noter.add(marks)
        return [value for value, _, _ in outcomes]

    def mapped(self, change: Callable[[Block], Iterable[Block]]) -> SparkRecords:
        """Return these records, changed block by block when they are read."""
        return replace(self, reading=replace(self.reading, changes=(*self.reading.changes, change)))


@dataclass(frozen=True)
class Reading:
    """How a worker reads its part; small, and public but for the key of a ledger's marks."""

    names: tuple[str, ...]
    selection: Selection
    parts: tuple[FilePart, ...] | None = None
    changes: tuple[Callable[[Block], Iterable[Block]], ...] = ()
    version: str = __version__

    def unnoted(self) -> Reading:
        """Return this reading without marks."""
        return replace(self, selection=replace(self.selection, noter=None))

    def tables(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield tables for readers: batches with the names of their columns, or parts of files."""
        for batch in batches:
            if self.parts is None:
                yield batch.rename_columns(list(self.names))
            else:
                for index in batch.column(0).to_pylist():
                    yield self.parts[index]

    def blocks(self, batches: Iterable[Any], selection: Selection) -> Blocks:
        """Yield the records of a partition."""
        return self.changed(
            chain.from_iterable(read_blocks(each, selection) for each in self.tables(batches))
        )

    def changed(self, blocks: Blocks) -> Blocks:
        """Yield blocks after all changes."""
        for change in self.changes:
            blocks = chain.from_iterable(map(change, blocks))
        return blocks

    @property
    def max_records(self) -> int:
        """How many records of a person count."""
        return 1 if self.selection.schema is None else self.selection.schema.max_records


# ---------------------------------------------------------------- tasks


@dataclass(frozen=True)
class _Summing:
    """A partition to what is computed from it."""

    reading: Reading
    compute: Callable[[Blocks], Any]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        def outcome() -> Any:
            selection = self.reading.selection
            own = None if selection.noter is None else selection.noter.fresh()
            value = self.compute(self.reading.blocks(batches, replace(selection, noter=own)))
            return value, () if own is None else own.marks.values, None

        yield _batch(quietly(self.reading.version, outcome))


@dataclass(frozen=True)
class _Sorting:
    """A partition to rows that could count, with the place that brings a person's together."""

    reading: Reading
    key: Key

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        reading, selection = self.reading, self.reading.selection
        tables = reading.tables(batches)
        pieces = chain.from_iterable(part_persons(each, selection) for each in tables)
        chunks = sort_chunks(pieces, selection.dim, reading.max_records, self.key)
        kinds = pa.int32(), pa.binary(), pa.binary(), pa.binary()
        while True:
            chunk = quietly(reading.version, lambda: next(chunks, None))
            if chunk is None:
                return
            if isinstance(chunk, PrivsketchError):
                cells = [[0], [None], [None], [pickle.dumps(chunk)]]
                columns = [pa.array(c, kind) for c, kind in zip(cells, kinds, strict=True)]
                yield pa.record_batch(columns, names=["place", "words", "person", "error"])
                return
            n_rows, width = chunk.words.shape
            places = (chunk.words[:, 0] >> np.uint64(64 - _PLACE_BITS)).astype(np.int32)
            ends = np.arange(n_rows + 1, dtype=np.int32) * (8 * width)
            buffers = [None, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(chunk.words))]
            texts = pa.nulls(n_rows, kinds[2])
            if chunk.texts is not None:
                texts = chunk.texts.cast(kinds[2])
            yield pa.record_batch(
                [
                    pa.array(places),
                    pa.Array.from_buffers(kinds[1], n_rows, buffers),
                    texts,
                    pa.nulls(n_rows, kinds[3]),
                ],
                names=["place", "words", "person", "error"],
            )


@dataclass(frozen=True)
class _Joining:
    """All rows of some persons to what is computed from those that count."""

    reading: Reading
    key: Key
    compute: Callable[[Blocks], Any]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        def outcome() -> Any:
            dim = self.reading.selection.dim
            rows = RowSelection(dim, self.reading.max_records, key=self.key)
            kinds = set()
            for words, texts in _rows_together(batches, dim + 2):
                kinds.add(texts is not None)
                rows.append_rows(words, texts)
            value = self.compute(self.reading.changed(rows.blocks(n_threads=1)))
            return value, (), kinds.pop() if kinds else None

        yield _batch(quietly(self.reading.version, outcome))


def _rows_together(batches: Iterable[Any], width: int) -> Iterator[tuple[Any, Any]]:
    """Yield words (n, width) and persons of many batches at a time; numbers of persons are null."""
    import pyarrow as pa

    waiting: list[Any] = []
    n_rows = 0

    def together() -> tuple[Any, Any]:
        table = pa.Table.from_batches(waiting).combine_chunks()
        for error in table.column("error").drop_null().to_pylist():
            raise pickle.loads(error)  # noqa: S301 - of a task of ours
        packed = table.column("words").chunk(0).cast(pa.large_binary())
        words = np.frombuffer(b"".join(packed.to_pylist()), dtype=np.uint64)
        persons = table.column("person").chunk(0)
        if 0 < persons.null_count < len(persons):
            raise mixed_persons_error()
        texts = None if persons.null_count else persons.cast(pa.large_binary())
        return words.reshape(-1, width).copy(), texts

    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            n_rows += batch.num_rows
        if n_rows * 8 * width >= CHUNK_BYTES:
            yield together()
            waiting, n_rows = [], 0
    if waiting:
        yield together()


def _batch(outcome: Any) -> Any:
    """Return one row: the number of the part, and its outcome."""
    import pyarrow as pa
    from pyspark import TaskContext

    context = TaskContext.get()
    part = -1 if context is None else context.partitionId()
    columns = [pa.array([part], pa.int32()), pa.array([pickle.dumps(outcome)], pa.binary())]
    return pa.record_batch(columns, names=["part", "outcome"])


def _mapped(rows: Any, task: Callable[[Iterator[Any]], Iterator[Any]], schema: str) -> Any:
    """Map rows to another schema; Spark wants a function that has a name."""

    def privsketch(batches: Iterator[Any]) -> Iterator[Any]:
        return task(batches)

    return rows.mapInArrow(privsketch, schema)


# ---------------------------------------------------------------- tables and files


@contextmanager
def spark_records(
    table: Table, selection: Selection, session: Any = None, *, again: bool = False
) -> Iterator[SparkRecords]:
    """Give records of a Spark DataFrame, or of files; `again` if they are read several times."""
    require_spark()
    if isinstance(table.data, SparkRecords):
        yield table.data
    elif table.kind == "spark":
        if session is not None:
            raise ParameterError("session: a Spark DataFrame has its own session; leave it out")
        yield _frame_records(table.data, selection, again)
    else:
        tables = "a Spark DataFrame"
        parts = tuple(files_alone(table, replace(selection, noter=None), "spark", tables))
        key = Key() if names_persons(selection) else None
        with opened_session(session) as session:
            n_parts = min(max(len(parts), 1), MAX_PARTS)
            frame = session.range(0, len(parts), 1, n_parts)
            yield SparkRecords(frame, Reading((), selection, parts), key)


def _frame_records(frame: Any, selection: Selection, again: bool) -> SparkRecords:
    """Return records of a frame; refuse columns here that no reader would take."""
    _require_frame(frame, again)
    available = [field.name for field in frame.schema.fields]
    names = selected_names(available, selection, "table")
    selection = replace(selection, columns=tuple(names), names=None)
    fields = [frame.schema.fields[available.index(name)] for name in names]
    for _ in read_blocks(_empty_table(fields), replace(selection, noter=None)):
        pass
    # By place: names may have points in them, or differ from others in capitals alone.
    places = [f"c{index}" for index in range(len(available))]
    plain = frame.toDF(*places).select(*(places[available.index(name)] for name in names))
    key = Key() if names_persons(selection) else None
    return SparkRecords(plain, Reading(tuple(names), selection), key)


def _require_frame(frame: Any, again: bool) -> None:
    """Refuse what is no table of Spark's that can be read by its workers, and read again."""
    module = type(frame).__module__
    if module.startswith("pyspark.sql.connect"):
        raise RecordError(
            "a DataFrame of Spark Connect: its driver is somewhere else, and would see sums before "
            "noise; use a session of this process, or the paths of files"
        )
    if module.startswith("pyspark.pandas"):
        raise RecordError("table: a pandas frame on Spark; use frame.to_spark()")
    if not hasattr(type(frame), "mapInArrow"):
        raise RecordError(
            f"cannot read records from a Spark {type(frame).__name__}: expected a Spark DataFrame"
        )
    if frame.isStreaming:
        raise RecordError(
            "table: a stream, which never ends; sketch the table that it is written to"
        )
    if again and not frame._jdf.queryExecution().analyzed().deterministic():
        raise RecordError(
            "records are read several times, and the table has random columns, which Spark may "
            "draw anew each time; write it to files first, or use frame.checkpoint()"
        )


def _empty_table(fields: list[Any]) -> Any:
    """Return a table without rows, of the types that workers will see."""
    import pyarrow as pa

    return pa.table({field.name: pa.array([], _arrow_type(field)) for field in fields})


def _arrow_type(field: Any) -> Any:
    import pyarrow as pa

    kind = field.dataType
    name = type(kind).__name__
    if name == "DecimalType":
        return pa.decimal128(kind.precision, kind.scale)
    known = {
        "ByteType": pa.int8(),
        "ShortType": pa.int16(),
        "IntegerType": pa.int32(),
        "LongType": pa.int64(),
        "FloatType": pa.float32(),
        "DoubleType": pa.float64(),
        "BooleanType": pa.bool_(),
        "StringType": pa.string(),
        "CharType": pa.string(),
        "VarcharType": pa.string(),
        "BinaryType": pa.binary(),
        "DateType": pa.date32(),
        "TimestampType": pa.timestamp("us", "UTC"),
        "TimestampNTZType": pa.timestamp("us"),
        "NullType": pa.null(),
    }
    if name in known:
        return known[name]
    advice = "select what is inside of it as columns of their own"
    if name == "VectorUDT":
        advice = "pyspark.ml.functions.vector_to_array gives an array, whose entries are columns"
    raise RecordError(
        f"table: column {field.name!r} is {kind.simpleString()}, and a cell is one value; {advice}"
    )
