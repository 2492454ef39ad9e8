"""`privsketch plan`: what a study could look like, before any record is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from privsketch.cli.options import study_options
from privsketch.cli.output import say_cautions
from privsketch.cli.shell.answer import JSON, answer, wants_json

if TYPE_CHECKING:
    from privsketch.design.alternatives import Alternative, Plan

_HEADINGS = (
    "",
    "alternative",
    "map",
    "frequencies",
    "features",
    "masks",
    "noise",
    "noise-to-signal",
    "expected error",
    "verdict",
    "time per million",
    "size",
)
_NUMBERS = {"features", "noise-to-signal", "time per million", "size"}
_COLOURS = {"good": "green", "rough": "yellow", "hopeless": "red"}


@click.command()
@study_options
@click.option(
    "--rate",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.1,
    show_default=True,
    help="Share of features or records that masks keep.",
)
@JSON
def plan(study: dict[str, Any], rate: float, **choices: Any) -> None:
    """Compare designs for a study: accuracy, time and size, from public facts alone.

    Nothing is read and nothing is spent. The error is by how much the cost of k-means, the
    squared distances of records to their centers, will exceed that without privacy; for
    principal components the share of their variance that will be lost. Noise-to-signal is the
    squared error of the whole sketch over its own square. The time is that of one core for a
    million records, by a model that is the same everywhere; `privsketch sketch --dry-run`
    measures a design on the machine at hand.

    \b
    privsketch plan -k 10 --box 0 1 --dim 8 --epsilon 0.5 --delta 1e-6 --records 1e5
    """
    from privsketch.cli.progress import spinner
    from privsketch.design.alternatives import alternatives
    from privsketch.sketching.cost import design_cost

    given = {name: value for name, value in choices.items() if value is not None}
    with spinner("comparing designs"):
        found = alternatives({**study, **given}, design_cost, rate=rate)
    budget, names = study["budget"], study["columns"]
    said = say_cautions(study["domain"], budget, choices.get("n_records"), names)
    if wants_json():
        answer(**plan_to_json(found))
        return
    _show(found, said)


def plan_to_json(found: Plan) -> dict[str, Any]:
    """As plain JSON values."""
    return {
        "recommended": found.recommended.name,
        "reasons": list(found.reasons),
        "alternatives": [one.to_json() for one in found.alternatives],
    }


def _show(found: Plan, said: Sequence[str]) -> None:
    """The table and the reasons; none of the cautions that were `said`."""
    from rich.console import Console

    console = Console()
    rows = [_row(one, one is found.recommended) for one in found.alternatives]
    if console.is_terminal:
        _show_coloured(console, rows)
    else:
        widths = [max(len(row[i]) for row in [_HEADINGS, *rows]) for i in range(len(_HEADINGS))]
        for row in [_HEADINGS, *rows]:
            cells = (
                cell.rjust(width) if heading in _NUMBERS else cell.ljust(width)
                for heading, cell, width in zip(_HEADINGS, row, widths, strict=True)
            )
            click.echo("  ".join(cells).rstrip())
    click.echo()
    click.echo(f"recommended  {found.recommended.name}: {found.recommended.options()}")
    for reason in found.reasons:
        if not any(text in reason for text in said):
            click.echo(f"             {reason}")


def _show_coloured(console: Any, rows: list[tuple[str, ...]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in _HEADINGS:
        table.add_column(heading, justify="right" if heading in _NUMBERS else "left")
    for row in rows:
        cells = [Text(cell, style=_COLOURS.get(cell, "")) for cell in row]
        table.add_row(*cells, style="bold" if row[0] else "")
    console.print(table)


def _row(one: Alternative, recommended: bool) -> tuple[str, ...]:
    from privsketch.design.alternatives import percent

    facts = one.to_json()
    return (
        "->" if recommended else "",
        one.name,
        facts["feature_map"],
        facts["frequencies"],
        f"{facts['n_features']}",
        facts["masks"],
        facts["noise"],
        f"{one.noise.total:.2g}",
        f"{percent(one.low)} to {percent(one.high)} %",
        one.verdict,
        _time(one.nanoseconds),
        _size(one.size),
    )


def _time(nanoseconds: float) -> str:
    """Of a million records, one core."""
    seconds = nanoseconds / 1000
    if seconds < 120:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _size(n_bytes: int) -> str:
    if n_bytes < 1000:
        return f"{n_bytes} B"
    return f"{n_bytes / 1000:.1f} kB" if n_bytes < 1e6 else f"{n_bytes / 1e6:.1f} MB"
