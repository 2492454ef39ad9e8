"""The report's content about principal components: variances with errors, and loadings."""

from __future__ import annotations

import numpy as np

from privsketch.facts.schema import Schema
from privsketch.facts.units import field_columns, field_values
from privsketch.models.components import PCAModel
from privsketch.models.drawing.axes import axis_of
from privsketch.models.drawing.components import variances_size
from privsketch.pages.report.fields import MAX_REPORT_ROWS, Cell, bounds_words, field_text
from privsketch.pages.report.rendering import (
    Content,
    Plots,
    record_card,
    require_own_sketch,
    svg_of,
)
from privsketch.pages.report.tables import Head, Table, tone_table
from privsketch.sketching.sketch import Sketch


def pca_content(model: PCAModel, sketch: Sketch | None, *, with_plots: bool) -> Content:
    """Return the parts of the page that are about principal components."""
    require_own_sketch(model, sketch)
    share = float(model.explained_variance_ratio.sum())
    about = "the noisy mean" if model.centered else "the center of the domain"
    records = record_card(model, sketch)
    if sketch is not None and sketch.exact_count is None:
        origin = "planned" if sketch.n_records is None else "noisy"
        records = (records[0], f"records ({origin})")
    loadings, n_hidden = _loading_table(model)
    return Content(
        template="components.html",
        noun="principal components",
        cards=[
            (f"{model.n_components}", "component" if model.n_components == 1 else "components"),
            records,
            (f"{share:.1%}", f"of the variance about {about}"),
        ],
        remark=_remark(model),
        public_fact="the directions in which records vary",
        values={
            "variances": _variance_table(model),
            "total": max(model.total_variance, 1e-300),
            "plots": [_variance_plot(model)] if with_plots else [],
            "loadings": loadings,
            "n_hidden": n_hidden,
        },
    )


def _remark(model: PCAModel) -> str:
    subject = "The component stands" if model.n_components == 1 else "All components stand"
    words = f"{subject} out of the noise."
    if model.centered:
        return words
    return f"{words} They are computed about the center of the domain, not the mean."


def _variance_table(model: PCAModel) -> Table:
    """Return variances with errors; with a schema their shares, since columns differ in units."""
    ratios, errors = model.explained_variance_ratio, model.standard_errors
    total = max(model.total_variance, 1e-300)
    rows = zip(model.explained_variance, errors, ratios, np.cumsum(ratios), strict=True)
    cells = []
    for variance, error, share, cumulative in rows:
        texts = [f"{variance:.4g} ± {error:.2g}", f"{share:.1%}", f"{cumulative:.1%}"]
        if model.schema is not None:
            texts = [f"{share:.1%} ± {100 * error / total:.2g}", f"{cumulative:.1%}"]
        cells.append([Cell(text) for text in texts])
    names = ["variance", "share", "so far"]
    if model.schema is not None:
        names = ["share of the variance", "so far"]
    return tone_table(
        [Head(str(k + 1)) for k in range(model.n_components)],
        names,
        cells,
        "Variance of the records along each component",
        "component",
        is_narrow=True,
    )


def _loading_table(model: PCAModel) -> tuple[Table, int]:
    """Return a table of columns by components, and the number of columns left out."""
    heads = [str(k + 1) for k in range(model.n_components)]
    if model.schema is None:
        names = [Head(name) for name in model.column_names]
        rows = _loading_rows(model)
        caption = "Loadings of each column on the components"
    else:
        names, rows = _unit_rows(model, model.schema)
        heads = [*(["mean"] if model.centered else []), *heads]
        caption = "Change of each column with one standard deviation along a component"
    table = tone_table(names[:MAX_REPORT_ROWS], heads, rows[:MAX_REPORT_ROWS], caption, "")
    return table, max(0, len(names) - MAX_REPORT_ROWS)


def _loading_rows(model: PCAModel) -> list[list[Cell]]:
    """Return loadings with their tones, a row for every field."""
    _, texts, tones = model.readable_loadings()
    columns = zip(zip(*texts, strict=True), tones.T.tolist(), strict=True)
    return [
        [Cell(text, tone=tone) for text, tone in zip(*column, strict=True)] for column in columns
    ]


def _unit_rows(model: PCAModel, schema: Schema) -> tuple[list[Head], list[list[Cell]]]:
    """Return names and loadings in units; the mean comes first if the model is centered."""
    means = field_values(schema, model.mean[np.newaxis])[0]
    rows, names = _loading_rows(model), []
    for column, fields in field_columns(schema):
        is_label = fields.stop - fields.start > 1
        for number, field in enumerate(range(fields.start, fields.stop)):
            name = column.fields[number] if is_label else column.name
            names.append(Head(name, "" if is_label else bounds_words(column)))
            if model.centered:
                rows[field].insert(0, Cell(field_text(column, float(means[field]), None)[0]))
    return names, rows


def _variance_plot(model: PCAModel) -> Plots:
    """Draw the explained variances with errors, and the variance of further directions."""
    figure, axis = axis_of(*variances_size(model.n_components))
    model.draw_variances(axis)
    heading = "Variance along the components"
    return Plots(heading, (svg_of(figure, "variances", heading),))
