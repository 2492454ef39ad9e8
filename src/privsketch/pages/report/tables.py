"""Tables of a page: a row for each column of the records, or for each cluster if columns are few.

On a phone, and if there are many clusters, a row becomes a heading with its cells below, so that
nothing is cut off. The colour of a cell shows its position between the public bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privsketch.models.drawing.axes import cluster_colors
from privsketch.pages.report.fields import Cell, Parts, Row, center_rows, share_text, width_rows
from privsketch.pages.report.words import words_of

MAX_FIELD_COLUMNS = 6  # fields beside each other: their names and errors fit the width of paper
MAX_PART_COLUMNS = 8  # clusters beside each other: their values and errors fit as well
# Cells beside each other in folded rows: numbers with errors fit a phone, and the page on a desk.
MAX_CELLS_ON_PHONES, MAX_CELLS_ON_DESKS = 4, 11

_ERROR_WORDS = (
    "The small numbers are standard errors of the centers, from {}the sampling of records. The "
    "error exceeds 1.6 standard errors in one case of ten."
)
DISTANCE_WORDS = (
    "Distances are those of the clustering: the whole range of a number is 2. Two different "
    "categories, yes and no, or opposite points of a cycle are 1 apart. The weight of a column "
    "multiplies its distances."
)


@dataclass(frozen=True)
class Head:
    """Heading of a row or a column; clusters have the same colour as in plots."""

    name: str
    note: str = ""
    color: str = ""


@dataclass(frozen=True)
class TableRow:
    """A row of a table; `group` is a heading above it, `is_label` marks the rows of a group."""

    head: Head
    cells: tuple[Cell, ...]
    group: str = ""
    is_label: bool = False


@dataclass(frozen=True)
class Table:
    """A table whose rows are folded on phones, and everywhere if `is_folding`.

    `group_note` stands behind the headings of groups, and says what their cells are.
    """

    caption: str
    corner: str
    heads: tuple[Head, ...]
    rows: tuple[TableRow, ...]
    is_folding: bool = False
    is_narrow: bool = False
    group_note: str = ""

    @property
    def classes(self) -> str:
        """CSS classes of the table."""
        return f"{'narrow ' * self.is_narrow}parts{' folding' * self.is_folding}"

    @property
    def n_narrow(self) -> int:
        """Cells beside each other on a phone."""
        return _cells_per_line(len(self.heads), MAX_CELLS_ON_PHONES)

    @property
    def n_wide(self) -> int:
        """Cells beside each other on a desk, if the table is folded there."""
        return _cells_per_line(len(self.heads), MAX_CELLS_ON_DESKS)


def _cells_per_line(count: int, maximum: int) -> int:
    """Return the number of cells of a line that makes all lines about equally long."""
    return -(-count // max(1, -(-count // maximum)))


@dataclass(frozen=True)
class PartTables:
    """Words and tables of a page about clusters or components.

    Attributes
    ----------
    noun : str
        Name of one part: cluster or component.
    portraits : tuple of (str, str, str)
        Colour, share and description of each part; empty if there is only one part.
    has_errors : bool
        Whether standard errors are known.
    centers : Table
    n_shown, n_hidden : int
        Columns in the table of centers, and those left out.
    legend : tuple of str
        Sentences that explain the table of centers.
    spread : Table or None
        Standard deviations of records inside the parts.
    """

    noun: str
    portraits: tuple[tuple[str, str, str], ...]
    has_errors: bool
    centers: Table
    n_shown: int
    n_hidden: int
    legend: tuple[str, ...]
    spread: Table | None


def tables_of(parts: Parts) -> PartTables:
    """Return the words and tables for the parts of a model."""
    fields, n_hidden = center_rows(parts)
    shares = tuple(
        Cell(f"{100 * weight:.1f} %", position=float(weight), is_share=True)
        for weight in parts.weights
    )
    rows = [Row("share of records", "", shares), *fields]
    if parts.size > 1:
        rows.append(Row(f"nearest other {parts.noun}", "", _nearest_others(parts)))
    caption = f"{parts.noun.title()} centers."
    if any(row.cells[0].position is not None and not row.is_share for row in fields):
        caption += " The bar shows where each value lies between the column's public bounds."
    return PartTables(
        noun=parts.noun,
        portraits=_portraits(parts),
        has_errors=parts.errors is not None,
        centers=_table(parts, rows, caption, fields_are_rows=_fields_are_rows(rows)),
        n_shown=len(fields),
        n_hidden=n_hidden,
        legend=_legend(parts, fields),
        spread=_spread_table(parts),
    )


def _portraits(parts: Parts) -> tuple[tuple[str, str, str], ...]:
    if parts.size < 2:
        return ()
    shares = [share_text(max(float(weight), 0.0))[0] for weight in parts.weights]
    return tuple(zip(cluster_colors(parts.size), shares, words_of(parts), strict=True))


def _nearest_others(parts: Parts) -> tuple[Cell, ...]:
    """Return a cell for every center: the number of the nearest other center, and the distance."""
    cells = []
    for k, center in enumerate(parts.centers):
        distances = np.linalg.norm(parts.centers - center, axis=1)
        distances[k] = np.inf
        nearest = int(distances.argmin())
        cells.append(Cell(f"{nearest + 1}", f"at {distances[nearest]:.3g}"))
    return tuple(cells)


def _legend(parts: Parts, fields: Sequence[Row]) -> tuple[str, ...]:
    sentences = []
    if any(cell.spread > 0 for row in fields for cell in row.cells):
        sentences.append("Around its mark, a bar shows the standard deviation of records.")
    if any(row.is_share for row in fields):
        sentences.append("Bars of categories and of yes or no show shares.")
    if parts.errors is not None:
        noise = "the privacy noise and from " if parts.is_private else ""
        sentences.append(_ERROR_WORDS.format(noise))
    if parts.size > 1 and parts.schema is not None:
        sentences.append(DISTANCE_WORDS)
    return tuple(sentences)


def _spread_table(parts: Parts) -> Table | None:
    rows = width_rows(parts)
    if not rows:
        return None
    caption = f"Standard deviations of records inside each {parts.noun}"
    fields_are_rows = parts.schema is not None or _fields_are_rows(rows)
    return _table(parts, rows, caption, fields_are_rows=fields_are_rows)


def _fields_are_rows(rows: Sequence[Row]) -> bool:
    """Return whether fields become rows: if there are many, or labels in groups."""
    return len(rows) > MAX_FIELD_COLUMNS or any(row.category for row in rows)


def _table(parts: Parts, rows: Sequence[Row], caption: str, *, fields_are_rows: bool) -> Table:
    """Return a table of fields by parts, or of parts by fields."""
    numbers = [Head(f"{k + 1}", color=color) for k, color in enumerate(cluster_colors(parts.size))]
    names = [Head(row.name, row.note) for row in rows]
    if not fields_are_rows:
        lines = [
            TableRow(number, tuple(row.cells[k] for row in rows))
            for k, number in enumerate(numbers)
        ]
        return Table(caption, parts.noun, tuple(names), tuple(lines))
    lines, group = [], ""
    for name, row in zip(names, rows, strict=True):
        is_new = row.category != group
        group = row.category
        lines.append(TableRow(name, row.cells, group if is_new else "", is_label=bool(group)))
    is_folding = parts.size > MAX_PART_COLUMNS
    return Table(caption, parts.noun, tuple(numbers), tuple(lines), is_folding, group_note="shares")


def tone_table(
    names: Sequence[Head],
    columns: Sequence[str],
    cells: Sequence[Sequence[Cell]],
    caption: str,
    corner: str,
    *,
    is_narrow: bool = False,
) -> Table:
    """Return a table of cells that may have a tone."""
    heads = tuple(Head(name) for name in columns)
    rows = tuple(TableRow(head, tuple(row)) for head, row in zip(names, cells, strict=True))
    is_folding = len(columns) > MAX_PART_COLUMNS + 1
    return Table(caption, corner, heads, rows, is_folding, is_narrow)
