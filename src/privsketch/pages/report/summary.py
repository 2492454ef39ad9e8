"""The report's content about a summary: means and shares, of all records and by group."""

from __future__ import annotations

from privsketch.facts.labels import Labelled
from privsketch.models.summary import DROWNED_TEXT, WITHIN_WORDS, Field, SummaryModel, size_text
from privsketch.pages.report.fields import Cell
from privsketch.pages.report.rendering import Content, require_own_sketch
from privsketch.pages.report.tables import MAX_PART_COLUMNS, Head, Table, TableRow
from privsketch.sketching.sketch import Sketch


def summary_content(model: SummaryModel, sketch: Sketch | None) -> Content:
    """Return the parts of the page that are about a summary."""
    require_own_sketch(model, sketch)
    number, _, between = size_text(model.size()).partition(" (")
    groups = () if model.by is None else model.labels_of(model.by)
    size = f"records ({between.rstrip(')')})" if between else "records (public)"
    lost = any(DROWNED_TEXT in cells for _, cells in model.shown_table(model.by)[1])
    return Content(
        template="summary.html",
        noun="summary" if model.by is None else f"summary by {model.by}",
        cards=[
            (number, size),
            (f"{len(model.fields)}", "means and shares"),
            (f"{len(groups) or 1}", f"groups, by {model.by}" if groups else "group: all records"),
        ],
        remark="No concern: neither noise nor the bounds of the columns speak against these "
        "numbers.",
        public_fact="the means of the columns",
        values={
            "table": _table(model),
            "within": WITHIN_WORDS if model.by is not None else "",
            "lost": lost,
        },
    )


def _table(model: SummaryModel) -> Table:
    """Return a row for each mean or share: all records, standard deviation, and each group."""
    heads, rows = model.shown_table(model.by)
    found, above = [TableRow(Head("records"), tuple(map(_cell, rows[0][1])))], ""
    shown = [f for f in model.fields if model.by is None or _name_of(f) != model.by]
    for field, (_, texts) in zip(shown, rows[1:], strict=True):
        is_label = isinstance(field.column, Labelled) and not field.column.is_line
        group = _name_of(field) if is_label else ""
        kind = field.kind if field.kind == "geometric mean" else ""
        note = ", ".join(text for text in (field.unit.strip(), kind) if text)
        head = Head(field.name.removeprefix(f"{group}=") if group else field.name, note)
        cells = tuple(map(_cell, texts))
        found.append(TableRow(head, cells, group if group != above else "", is_label))
        above = group
    caption = "Means and shares with 95 % intervals"
    if model.by is not None:
        caption += f", of all records and by {model.by}"
    is_folding = len(heads) > MAX_PART_COLUMNS
    return Table(
        caption,
        "",
        tuple(map(Head, heads)),
        tuple(found),
        is_folding,
        group_note="shares",
    )


def _name_of(field: Field) -> str:
    """Return the name of a field's column."""
    return field.name if field.column is None else field.column.name


def _cell(text: str) -> Cell:
    """Return a cell with the estimate above its interval."""
    number, _, between = text.partition(" (")
    return Cell(number, between.rstrip(")"))
