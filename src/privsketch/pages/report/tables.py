"""Tables of a page: columns as rows and clusters as columns, or the other way round if that fits.

On a phone, and where there are more clusters than fit beside each other, a row becomes a heading
with its cells below, so that nothing is cut off. Colours are places between the public bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from privsketch.models.drawing.axes import cluster_colors
from privsketch.pages.report.fields import Cell, Parts, Row, center_rows, share_text, width_rows
from privsketch.pages.report.words import words_of

MAX_ACROSS = 6  # fields beside each other, on a page as wide as paper; by trial
MAX_PARTS = 8  # clusters beside each other
ON_PHONES, ON_DESKS = 4, 11  # cells beside each other where rows are folded


def portraits(parts: Parts) -> str:
    """A line of words for each part."""
    told = words_of(parts)
    lines = []
    for k, text in enumerate(told):
        words = f"<b>{escape(text)}</b>" if text else "<span>nothing stands out</span>"
        share = share_text(max(float(parts.weights[k]), 0.0))[0]
        lines.append(f"<li><span>{_dot(parts, k)}</span><span>{share}</span>{words}</li>")
    if parts.size < 2:
        return ""
    others = f"Compared with the other {parts.noun}s"
    if parts.errors is None:
        how = f"{others}: what differs by a tenth of the public bounds; errors are not known here."
    else:
        how = f"{others}: what differs by more than its error, and the most."
    return f'<ul class="portraits">{"".join(lines)}</ul><p><small>{how}</small></p>'


def part_table(parts: Parts) -> str:
    """All centers: a row for each field, or for each part where fields are few."""
    rows, hidden = center_rows(parts)
    shares = tuple(Cell(*_share(weight), place=float(weight)) for weight in parts.weights)
    rows.insert(0, Row("share of records", "", shares, is_share=True))
    if parts.size > 1:
        rows.append(Row(f"nearest other {parts.noun}", "", nearest_others(parts)))
    caption = f"{parts.noun.title()}s: " + (
        "columns down, each with its public bounds" if is_turned(parts, rows) else "columns across"
    )
    table = (
        _turned(parts, rows, caption) if is_turned(parts, rows) else _upright(parts, rows, caption)
    )
    count = len(rows) - 1 - (parts.size > 1)
    more = (
        f"<p>The {count} columns in which centers differ most; {hidden} more columns are in the "
        "model file.</p>"
        if hidden
        else ""
    )
    return f"{table}{more}{_legend(parts, rows)}"


def _share(weight: float) -> tuple[str, str]:
    return f"{100 * weight:.1f} %", ""


def is_turned(parts: Parts, rows: Sequence[Row]) -> bool:
    """Whether columns are rows."""
    return len(rows) > MAX_ACROSS or any(row.of for row in rows)


def _legend(parts: Parts, rows: Sequence[Row]) -> str:
    words = []
    if any(row.cells[0].place is not None and not row.is_share for row in rows):
        words.append(
            "Colours and marks show where a center lies between the public bounds of its column"
            + (", with the standard deviation of records around it." if _has_spread(rows) else ".")
        )
    if any(row.is_share for row in rows[1:]):
        words.append("Bars are shares.")
    if parts.errors is not None:
        words.append(_ERROR_WORDS)
    if parts.size > 1 and parts.schema is not None:
        words.append(DISTANCE_WORDS)
    return f"<p><small>{' '.join(words)}</small></p>" if words else ""


def _has_spread(rows: Sequence[Row]) -> bool:
    return any(cell.spread > 0 for row in rows for cell in row.cells)


def nearest_others(parts: Parts) -> tuple[Cell, ...]:
    """For every center the one nearest to it, and how far it is."""
    found = []
    for k, center in enumerate(parts.centers):
        away = np.linalg.norm(parts.centers - center, axis=1)
        away[k] = np.inf
        other = int(away.argmin())
        found.append(Cell(f"{other + 1}", f"at {away[other]:.3g}"))
    return tuple(found)


def spread_table(parts: Parts) -> str:
    """How far records lie around their center, folded."""
    rows = width_rows(parts)
    if not rows:
        return ""
    caption = f"Standard deviations of records inside each {parts.noun}"
    turned = parts.schema is not None or is_turned(parts, rows)
    table = _turned(parts, rows, caption) if turned else _upright(parts, rows, caption)
    return f"<details><summary>Spread inside the {parts.noun}s</summary>{table}</details>"


def _turned(parts: Parts, rows: Sequence[Row], caption: str) -> str:
    """Columns down, parts across."""
    head = "".join(f'<th scope="col">{_dot(parts, k)}</th>' for k in range(parts.size))
    lines = []
    group = ""
    for row in rows:
        if row.of and row.of != group:
            lines.append(
                f'<tr><th scope="rowgroup" class="group" colspan="{parts.size + 1}">'
                f"{escape(row.of)} <small>shares</small></th></tr>"
            )
        group = row.of
        cells = "".join(_cell(cell, row, str(k + 1)) for k, cell in enumerate(row.cells))
        of = ' class="of"' if row.of else ""
        lines.append(f'<tr><th scope="row"{of}>{_name(row)}</th>{cells}</tr>')
    corner = f'<td><small class="corner">{parts.noun}</small></td>'
    return _table(f"<tr>{corner}{head}</tr>", lines, caption, folding=parts.size > MAX_PARTS)


def _upright(parts: Parts, rows: Sequence[Row], caption: str) -> str:
    """Parts down, columns across."""
    head = "".join(f'<th scope="col">{_name(row)}</th>' for row in rows)
    lines = []
    for k in range(parts.size):
        cells = "".join(_cell(row.cells[k], row, row.name) for row in rows)
        lines.append(f'<tr><th scope="row">{_dot(parts, k)}</th>{cells}</tr>')
    corner = f'<td><small class="corner">{parts.noun}</small></td>'
    return _table(f"<tr>{corner}{head}</tr>", lines, caption, folding=False)


def _table(head: str, lines: Sequence[str], caption: str, *, folding: bool) -> str:
    kind = "parts folding" if folding else "parts"
    count = head.count("<th ")
    across = f"--narrow:{_even(count, ON_PHONES)};--wide:{_even(count, ON_DESKS)}"
    return (
        f'<div class="scroll"><table class="{kind}" style="{across}">'
        f"<caption>{escape(caption)}</caption><thead>{head}</thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def _even(count: int, most: int) -> int:
    """How many cells to put beside each other, so that all rows of them are about as long."""
    return -(-count // max(1, -(-count // most)))


def _name(row: Row) -> str:
    note = f" <small>{escape(row.note)}</small>" if row.note else ""
    return f"{escape(row.name)}{note}"


def _cell(cell: Cell, row: Row, where: str) -> str:
    small = f" <small>{escape(cell.error)}</small>" if cell.error else ""
    look = ""
    if cell.place is not None:
        spread = f";--w:{min(cell.spread, 1.0):.3f}" if cell.spread > 0 else ""
        place = min(max(cell.place, 0.0), 1.0)
        look = f' class="p {"s" if row.is_share else "h"}" style="--p:{place:.3f}{spread}"'
    return f'<td data-k="{escape(where)}"{look}>{escape(cell.text)}{small}</td>'


def _dot(parts: Parts, k: int) -> str:
    color = cluster_colors(parts.size)[k]
    return f'<span class="dot" style="background:{color}"></span>{k + 1}'


def tone_table(
    names: Sequence[tuple[str, str]],
    columns: Sequence[str],
    cells: Sequence[Sequence[tuple[str, float | None]]],
    caption: str,
    corner: str,
    *,
    narrow: bool = False,
) -> str:
    """Rows of texts with a tone from -1 to 1, which colours them."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    lines = []
    for (name, note), row in zip(names, cells, strict=True):
        numbers = "".join(
            _toned(text, tone, where) for (text, tone), where in zip(row, columns, strict=True)
        )
        lines.append(f'<tr><th scope="row">{_name(Row(name, note, ()))}</th>{numbers}</tr>')
    first = f"<td><small>{escape(corner)}</small></td>"
    table = _table(f"<tr>{first}{head}</tr>", lines, caption, folding=len(columns) > MAX_PARTS + 1)
    return table.replace('class="parts', 'class="narrow parts', 1) if narrow else table


def _toned(text: str, tone: float | None, where: str) -> str:
    look = ""
    if tone is not None and np.isfinite(tone):
        color = "--heat" if tone >= 0 else "--cool"
        look = f' class="d" style="--tone:var({color});--p:{min(abs(tone), 1.0):.3f}"'
    return f'<td data-k="{escape(where)}"{look}>{escape(text)}</td>'


_ERROR_WORDS = (
    "The small numbers are standard errors of the centers, from the privacy noise and from the "
    "sampling of records: a center is off by more than 1.6 of them in one case of ten."
)
DISTANCE_WORDS = (
    "Distances are those by which clusters are made: the whole range of a number is 2, two "
    "different categories, yes and no, or opposite places of a cycle are 1 apart, times the "
    "weight of the column."
)
