"""HTML of results in notebooks: a few facts and a table, without scripts or external resources.

Colours follow the notebook, light or dark: text inherits, lines and shades are half transparent.
All text is escaped, because names of columns and sources are untrusted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

HEADING = 12  # width of the headings in the lines of a description
MAX_HTML_COLUMNS = 10  # fit the width of a notebook; tables with more are transposed
MAX_HTML_ROWS = 40  # fill a screen
_LINE_STYLE = "border:0;border-bottom:1px solid rgba(128,138,150,.35);"
_CELL_STYLE = f"{_LINE_STYLE}padding:2px 10px 2px 0;vertical-align:top;background:none;"
_LEFT_STYLE = f"{_CELL_STYLE}text-align:left;"
_RIGHT_STYLE = f"{_CELL_STYLE}text-align:right;font-variant-numeric:tabular-nums;"
_CAREFUL_STYLE = "border-left:3px solid #bf8700;padding-left:8px;"
_TABLE_STYLE = "border-collapse:collapse;margin:6px 0;font-size:13px;color:inherit;"


def described(title: str, lines: Iterable[str], *tables: str) -> str:
    """Render the lines of a description, with their headings, and tables."""
    facts: list[tuple[str, str]] = []
    for line in lines:
        heading, text = line[:HEADING].strip(), line[HEADING:].strip()
        if line.startswith(" ") and heading:  # an item of a list
            facts.append(("", line.rstrip()))
        elif not heading and facts:
            name, previous = facts.pop()
            facts.append((name, f"{previous}\n{text}"))
        else:
            facts.append((heading, text))
    careful = [text for name, text in facts if name == "careful"]
    return shown(title, [fact for fact in facts if fact[0] != "careful"], *tables, careful=careful)


def shown(
    title: str, facts: Iterable[tuple[str, str]], *tables: str, careful: Iterable[str] = ()
) -> str:
    """Render a title, warnings, tables, and facts with their names."""
    warnings = "".join(
        f'<div style="{_CAREFUL_STYLE}">Careful: {escape(words)}</div>' for words in careful
    )
    rows = "".join(
        f'<tr style="background:none"><th style="{_LEFT_STYLE}font-weight:600">{escape(name)}</th>'
        f'<td style="{_LEFT_STYLE}white-space:pre-wrap{_type_of(words)}">{escape(words)}</td></tr>'
        for name, words in facts
    )
    return (
        f'<div style="max-width:100%;overflow-x:auto;color:inherit"><b>{escape(title)}</b>'
        f'{warnings}{"".join(tables)}<table style="{_TABLE_STYLE}">{rows}</table></div>'
    )


def _type_of(words: str) -> str:
    """Return the style that aligns text of several lines: a monospace font."""
    return ";font-family:monospace" if "\n" in words else ""


def table(
    corner: str, heads: Sequence[str], names: Sequence[str], rows: Sequence[Sequence[str]]
) -> str:
    """Render rows of cells with row and column headings; many columns are transposed."""
    if len(names) > MAX_HTML_COLUMNS:
        turned = [[row[j] for row in rows] for j in range(len(names))]
        heads, names, rows = names, heads, turned
    head = "".join(f'<th style="{_RIGHT_STYLE}">{escape(name)}</th>' for name in names)
    lines = "".join(
        f'<tr style="background:none"><th style="{_LEFT_STYLE}font-weight:400">{escape(name)}</th>'
        + "".join(f'<td style="{_RIGHT_STYLE}">{escape(cell)}</td>' for cell in row)
        + "</tr>"
        for name, row in zip(heads[:MAX_HTML_ROWS], rows[:MAX_HTML_ROWS], strict=True)
    )
    n_left_out = len(rows) - MAX_HTML_ROWS
    note = f"<div>{n_left_out} more rows</div>" if n_left_out > 0 else ""
    return (
        f'<table style="{_TABLE_STYLE}"><tr style="background:none"><th style="{_LEFT_STYLE}">'
        f"{escape(corner)}</th>{head}</tr>{lines}</table>{note}"
    )
