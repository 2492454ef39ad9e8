"""What a report shows of principal components: variances with errors, and loadings."""

from __future__ import annotations

from html import escape

import numpy as np

from privsketch.facts.schema import Schema
from privsketch.facts.units import field_columns, field_values
from privsketch.models.components import PCAModel
from privsketch.models.drawing.axes import axis_of
from privsketch.models.drawing.components import variances_size
from privsketch.pages.report.drawing import Content, notes_of, plot_of, record_card
from privsketch.pages.report.fields import bounds_words, field_text
from privsketch.pages.report.tables import tone_table
from privsketch.sketching.sketch import Sketch

MAX_TABLE_COLUMNS = 50  # of all there are; by trial


def pca_content(model: PCAModel, sketch: Sketch, *, with_plots: bool) -> Content:
    """The parts of the page that are about principal components."""
    share = float(model.explained_variance_ratio.sum())
    about = "the noisy mean" if model.centered else "the center of the domain"
    sections = [_variance_table(model), _loading_table(model)]
    if with_plots:
        sections.insert(1, f"<h3>Variance along the components</h3>{variance_plot(model)}")
    records = record_card(model.n_records, sketch)
    if sketch.exact_count is None:
        records = (records[0], "records, noisy" if sketch.n_records is not None else "planned for")
    return Content(
        title="Private principal components",
        cards=[
            (f"{model.n_components}", "components"),
            records,
            (f"{share:.1%}", f"of the variance about {about}"),
        ],
        notes=notes_of((*model.receipt.cautions, *model.concerns), _all_well(model)),
        sections=sections,
        public_fact="the directions in which records vary",
    )


def _all_well(model: PCAModel) -> str:
    found = "The component stands" if model.n_components == 1 else "All components stand"
    about = "" if model.centered else " They are about the center of the domain, not the mean."
    return f"{found} out of the noise.{about}"


def _variance_table(model: PCAModel) -> str:
    """Variances with errors; with a schema their shares, since columns have different units."""
    ratios = model.explained_variance_ratio
    in_shares = model.schema is not None
    total = max(model.total_variance, 1e-300)
    parts = zip(
        model.explained_variance, model.standard_errors, ratios, np.cumsum(ratios), strict=True
    )
    cells = []
    for variance, error, part, so_far in parts:
        shares = [(f"{part:.1%}", None), (f"{so_far:.1%}", None)]
        if in_shares:
            shares[0] = (f"{part:.1%} ± {100 * error / total:.2g}", None)
            cells.append(shares)
        else:
            cells.append([(f"{variance:.4g} ± {error:.2g}", None), *shares])
    names = ("share of the variance", "so far") if in_shares else ("variance", "share", "so far")
    table = tone_table(
        [(str(k + 1), "") for k in range(model.n_components)],
        names,
        cells,
        "Variance of the records along each component",
        "component",
        narrow=True,
    )
    more = f" {escape(model.more_words, quote=False)}." if model.more_words else ""
    left = (
        f"Per further direction, {model.noise_variance / total:.2%} of the variance are left."
        if in_shares
        else f"Total variance {model.total_variance:.4g}; per direction, "
        f"{model.noise_variance:.4g} are left."
    )
    return (
        f"{table}<p>{left} The noise is expected to cost "
        f"{100 * model.lost_variance:.2g} % of what the best components hold. Numbers after ± "
        "are standard errors, from the privacy noise and from the sampling of records. The signs "
        "of a component are a convention: its largest loading is positive.</p>"
        f"<p>Fit: {model.fit_words}.{more}</p>"
    )


def _loading_table(model: PCAModel) -> str:
    """One row for every column of the records, one column for every component."""
    across = [str(k + 1) for k in range(model.n_components)]
    if model.schema is None:
        names = [(name, "") for name in model.column_names]
        rows = _loading_rows(model)
        caption = "Loadings: columns down, components across"
    else:
        names, rows = _unit_rows(model, model.schema)
        across = [*(["mean"] if model.centered else []), *across]
        caption = "How far each column moves with one standard deviation along a component"
    hidden = max(0, len(names) - MAX_TABLE_COLUMNS)
    more = f"<p>{hidden} more columns are in the model file.</p>" if hidden else ""
    shown = slice(MAX_TABLE_COLUMNS)
    return f"<h3>Loadings</h3>{tone_table(names[shown], across, rows[shown], caption, '')}{more}"


def _loading_rows(model: PCAModel) -> list[list[tuple[str, float | None]]]:
    """Words and tones, a row for every field."""
    _, texts, tones = model.readable_loadings()
    columns = zip(zip(*texts, strict=True), tones.T.tolist(), strict=True)
    return [list(zip(words, shades, strict=True)) for words, shades in columns]


def _unit_rows(
    model: PCAModel, schema: Schema
) -> tuple[list[tuple[str, str]], list[list[tuple[str, float | None]]]]:
    """Loadings in units, with the mean before them if it is known."""
    means = field_values(schema, model.mean[np.newaxis])[0]
    rows, names = _loading_rows(model), []
    for column, fields in field_columns(schema):
        is_label = fields.stop - fields.start > 1
        for number, field in enumerate(range(fields.start, fields.stop)):
            name = column.fields[number] if is_label else column.name
            names.append((name, "" if is_label else bounds_words(column)))
            if model.centered:
                rows[field].insert(0, (field_text(column, float(means[field]), None)[0], None))
    return names, rows


def variance_plot(model: PCAModel) -> str:
    """Bars of the explained variances with errors, and what is left per direction."""
    figure, axis = axis_of(*variances_size(model.n_components))
    model.draw_variances(axis)
    return plot_of(figure, "variances", "Variance along the components")
