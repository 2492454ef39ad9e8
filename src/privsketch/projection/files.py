"""Release of files of records to a file of rows and its receipt, in constant memory.

Row i of the output belongs to row i of the input. Both files are written under temporary names and
renamed when they are complete, the receipt first: no table is ever without its receipt.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from privsketch._base.errors import AccessError, RecordError
from privsketch._base.formats import require_writable, temporary_beside
from privsketch._base.types import Block, Floats
from privsketch.facts.budget import checked_source
from privsketch.facts.receipt import Receipt
from privsketch.ledger.entry import LedgerName
from privsketch.projection.description import ReleaseDescription, released_names
from privsketch.projection.rows import Projection
from privsketch.tables.carried import RecordFiles
from privsketch.tables.reading import naming_columns
from privsketch.tables.writing import KINDS, require_carried, table_writer


def receipt_path(table: Path) -> Path:
    """Return the path of the receipt of a released table: released.receipt.json beside it."""
    return table.with_suffix(".receipt.json")


def receipt_beside(table: Path) -> Path | None:
    """Return the receipt beside a released table; None without a receipt, or for other files."""
    if not (table.suffix.lower() in KINDS and table.is_file()):
        return None
    receipt = receipt_path(table)
    return receipt if receipt.is_file() else None


def release_files(
    records: RecordFiles,
    projection: Projection,
    output: Path,
    *,
    source: str | None = None,
    missing_to_center: bool = False,
    n_threads: int | None = None,
    progress: Callable[[int], None] | None = None,
    finish: Callable[[], None] | None = None,
    ledger: LedgerName = None,
) -> tuple[ReleaseDescription, int]:
    """Release all records to `output`; return the description and the number of rows.

    An existing file is replaced. `finish` is called when both files are complete, before they are
    renamed: the last chance to stop.

    Charges: epsilon and delta of the projection, once. After an error there is no file, and
    nothing to charge for. Carried columns are copied without any protection.
    """
    source = checked_source(source or output.stem)
    receipt_file = receipt_path(output)
    names = released_names(projection.n_components)
    require_carried(output, names, records.carried)
    _require_own_receipt(output)
    for path in (output, receipt_file):
        require_writable(path)
    table, receipt = temporary_beside(output), temporary_beside(receipt_file)
    receipts: list[Receipt] = []
    try:
        with (
            naming_columns(records.table, records.selection),
            table_writer(output, table, names, records.carried) as write,
        ):
            n_rows = _copy(
                records,
                lambda blocks: projection.releases(
                    blocks,
                    source=source,
                    missing_to_center=missing_to_center,
                    n_threads=n_threads,
                    on_receipt=receipts.append,
                    ledger=ledger,
                ),
                write,
                progress,
            )
        if n_rows == 0:
            raise RecordError(
                "the table has no records: their number is public here, and must be at least 1"
            )
        carried = records.selection.carried
        if carried:
            unprotected = f"columns copied without protection: {', '.join(carried)}"
            receipts[0] = replace(receipts[0], assumption=unprotected)
        description = ReleaseDescription.of(
            projection,
            receipts[0],
            n_records=n_rows,
            record=records.record_names,
            carried=carried,
        )
        description.save(receipt)
        if finish is not None:
            finish()
        _rename_both(table, output, receipt, receipt_file)
    finally:
        for path in (table, receipt):
            with suppress(OSError):
                path.unlink(missing_ok=True)
    return description, n_rows


def _copy(
    records: RecordFiles,
    releases: Callable[[Iterator[Block]], Iterator[Floats]],
    write: Callable[[Floats, Any], None],
    progress: Callable[[int], None] | None,
) -> int:
    """Write every released row with the carried columns of its record; return their number."""
    pending = _PendingRows()

    def blocks() -> Iterator[Block]:
        for block, batch in records.rows():
            if batch is not None:
                pending.batches.append(batch)
            yield block

    n_rows = 0
    for released in releases(blocks()):
        rows = pending.take(len(released)) if records.selection.carried else None
        write(released, rows)
        n_rows += len(released)
        if progress is not None:
            progress(len(released))
    return n_rows


@dataclass
class _PendingRows:
    """Rows read but not yet written, because threads read ahead."""

    batches: deque[Any] = field(default_factory=deque)

    def take(self, n_rows: int) -> Any:
        """Return the next rows, in their order."""
        import pyarrow as pa

        parts = []
        while n_rows:
            batch = self.batches.popleft()
            parts.append(batch.slice(0, n_rows))
            if batch.num_rows > n_rows:
                self.batches.appendleft(batch.slice(n_rows))
            n_rows -= len(parts[-1])
        if len(parts) == 1:
            return parts[0]
        return pa.Table.from_batches(parts).combine_chunks().to_batches()[0]


def _rename_both(table: Path, output: Path, receipt: Path, receipt_file: Path) -> None:
    """Give both files their names; a table never has the receipt of another one."""
    try:
        output.unlink(missing_ok=True)
        os.chmod(table, receipt.stat().st_mode)
        os.replace(receipt, receipt_file)
        os.replace(table, output)
    except BaseException as error:
        if not output.exists():
            with suppress(OSError):
                receipt_file.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise AccessError(f"{output}: {error.strerror or 'cannot be written'}") from None
        raise


def _require_own_receipt(output: Path) -> None:
    """Raise an AccessError if another table would have the same receipt: only suffixes differ."""
    for suffix in KINDS:
        other = output.with_suffix(suffix)
        if suffix != output.suffix.lower() and other.exists():
            raise AccessError(
                f"{output}: its receipt {receipt_path(output)} would also be that of {other}; "
                "choose another name"
            )
