"""Tables of released rows to files: Parquet, CSV, Arrow and .npy, told by their names.

Rows arrive in pieces and are gathered to a moderate size before they are written, so that
memory stays constant and a file does not consist of crumbs. Carried columns come first.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np

from privsketch._base.errors import AccessError
from privsketch._base.types import Floats
from privsketch.tables.memory import plain_kind

KINDS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".arrow": "arrow",
    ".ipc": "arrow",
    ".feather": "arrow",
    ".npy": "npy",
}
_GATHERED_BYTES = 2**23  # 8 MB: no crumbs in the file, and constant memory; by trial


class _Writer(Protocol):
    def write(self, released: Floats, carried: Any) -> None:
        """Add rows."""

    def finish(self) -> None:
        """Complete the table; the file stays open."""

    def abandon(self) -> None:
        """Give up the file."""


def table_kind(path: Path) -> str:
    """Return the kind of a table written under this name."""
    kind = KINDS.get(path.suffix.lower())
    if kind is None:
        raise AccessError(
            f"{path}: unknown kind of file; expected one of {', '.join(sorted(KINDS))}"
        )
    return kind


def require_carried(path: Path, names: Sequence[str], carried: Any) -> None:
    """Refuse carried columns that this kind of file cannot hold, before anything is released.

    `carried` is their Arrow schema, or None.
    """
    if not carried:
        return
    kind = table_kind(path)
    if kind == "npy":
        raise AccessError(f"{path}: an array has no room for carried columns; use .parquet or .csv")
    import pyarrow as pa

    for field in carried:
        if field.name in names:
            raise AccessError(
                f"{path}: carried column {field.name!r} has the name of a released one"
            )
        alone = pa.schema([field])
        try:
            if kind == "csv" and _is_binary(field.type):
                raise TypeError  # Arrow would notice only at bytes that are no text
            table = pa.table([pa.nulls(1, field.type)], schema=alone)
            if kind == "arrow":
                table = _values_alone(table)
            sink = _sink(kind, io.BytesIO(), alone)
            sink.write_table(table)
            sink.close()
        except (pa.ArrowException, TypeError, ValueError):
            raise AccessError(
                f"{path}: column {field.name!r} of type {field.type} cannot be carried into a file "
                "of this kind; leave it out, or turn it into text or numbers"
            ) from None


def _is_binary(column: Any) -> bool:
    import pyarrow.types as types

    column = plain_kind(column)
    return bool(
        types.is_binary(column)
        or types.is_large_binary(column)
        or types.is_fixed_size_binary(column)
    )


@contextmanager
def table_writer(
    output: Path, part: Path, names: Sequence[str], carried: Any
) -> Iterator[Callable[[Floats, Any], None]]:
    """Open a function that adds rows to the table `output`, which is written as `part` meanwhile.

    It takes released rows (n, n_components) and an Arrow batch of the carried columns, or None.
    `names` are those of the released columns, `carried` is the schema of the others. The file is
    complete and on disk at the end of the with block.
    """
    kind = table_kind(output)
    with _writing(output):
        # Nobody else reads a table before it is complete and has its receipt.
        stream = os.fdopen(os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600), "w+b")
    with stream:
        writer: _Writer
        with _writing(output):
            if kind == "npy":
                writer = _NpyWriter(stream, len(names))
            else:
                writer = _ArrowWriter(kind, stream, names, carried)

        def write(released: Floats, rows: Any) -> None:
            with _writing(output):
                writer.write(released, rows)

        try:
            yield write
        except BaseException:
            writer.abandon()
            raise
        with _writing(output):
            writer.finish()
            stream.flush()
            os.fsync(stream.fileno())


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (OSError, pa.ArrowException) as error:
        # Arrow's own words may quote a record.
        reason = getattr(error, "strerror", None) or "cannot be written"
        raise AccessError(f"{path}: {reason}") from None


class _NpyWriter:
    def __init__(self, stream: BinaryIO, n_components: int) -> None:
        self._stream, self._n_components, self._n_rows = stream, n_components, 0
        self._write_header()

    def _write_header(self) -> None:
        """Write the header, in which NumPy leaves room for the number of rows to grow."""
        np.lib.format.write_array_header_1_0(
            self._stream,
            {"descr": "<f8", "fortran_order": False, "shape": (self._n_rows, self._n_components)},
        )

    def write(self, released: Floats, carried: Any) -> None:
        self._stream.write(np.ascontiguousarray(released, dtype="<f8").data)
        self._n_rows += len(released)

    def finish(self) -> None:
        self._stream.seek(0)
        self._write_header()

    def abandon(self) -> None:
        pass


class _ArrowWriter:
    def __init__(self, kind: str, stream: BinaryIO, names: Sequence[str], carried: Any) -> None:
        import pyarrow as pa

        released = [pa.field(name, pa.float64(), nullable=False) for name in names]
        self._schema = pa.schema([*(carried or ()), *released])
        self._sink = _sink(kind, stream, self._schema)
        self._must_rebuild = kind == "arrow" and bool(carried)
        self._waiting: list[Any] = []
        self._n_bytes = 0

    def write(self, released: Floats, carried: Any) -> None:
        import pyarrow as pa

        columns = [] if carried is None else carried.columns
        columns = [*columns, *(pa.array(column) for column in np.ascontiguousarray(released.T))]
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        self._waiting.append(batch)
        self._n_bytes += batch.nbytes
        if self._n_bytes >= _GATHERED_BYTES:
            self._flush()

    def finish(self) -> None:
        self._flush()
        self._sink.close()

    def abandon(self) -> None:
        with suppress(Exception):  # Arrow would complain later about a file that is closed
            self._sink.close()

    def _flush(self) -> None:
        import pyarrow as pa

        if self._waiting:
            table = pa.Table.from_batches(self._waiting).combine_chunks()
            self._sink.write_table(_values_alone(table) if self._must_rebuild else table)
            self._waiting, self._n_bytes = [], 0


def _values_alone(table: Any) -> Any:
    """Copy the values to memory of their own.

    Arrow files hold buffers as they are: what lies under a null, or texts of rows that were
    removed, would be published. Parquet holds values only, so a table that went through it does.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    content = io.BytesIO()
    pq.write_table(table, content, compression=None)
    content.seek(0)
    return pa.Table.from_batches(pq.read_table(content).cast(table.schema).to_batches())


def _sink(kind: str, stream: BinaryIO, schema: Any) -> Any:
    import pyarrow as pa
    import pyarrow.csv as csv
    import pyarrow.parquet as pq

    if kind == "parquet":
        # Noisy numbers do not repeat: a dictionary of them would only take room.
        names = [field.name for field in schema if not pa.types.is_float64(field.type)]
        return pq.ParquetWriter(stream, schema, use_dictionary=names or False)
    if kind == "csv":
        return csv.CSVWriter(stream, schema)
    return pa.ipc.new_file(stream, schema)
