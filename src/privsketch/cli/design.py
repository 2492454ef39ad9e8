"""`privsketch plan` and `design`: the public recipe that all holders of a study share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shutil import get_terminal_size
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import click

from privsketch._base.plugins import plugin_names
from privsketch.cli.shell.answer import JSON, answer, wants_json
from privsketch.cli.shell.options import PATH, PartName, choice, listed_numbers, study_options
from privsketch.cli.shell.output import (
    require_available,
    say,
    say_cautions,
    say_written,
    wrap_text,
    write,
)
from privsketch.cli.shell.signing import KEY, PASSPHRASE_FILE, sign_result, signing_key

if TYPE_CHECKING:
    from privsketch.design.alternatives import Alternative, DesignComparison

_LAWS = (
    *("multi-scale", "mixed", "adapted-radius", "gaussian", "structured"),
    *("orthobases", "normal"),
)
_MAPS = ("fourier", "one-bit", "cells", "quadratic", "second-moments", "taxicab")
_WIDE_HEADINGS = (
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
# For narrow terminals: the name states what differs from the planned design, and is wrapped.
_NARROW_HEADINGS = ("", "alternative", "features", "error, %", "verdict", "time", "size")
_SHOWN_IN_NAMES = ("map", "frequencies", "masks", "noise")
_NARROW_NOTE = (
    "Times are for a million records. A wider terminal (COLUMNS=200) and --json also show "
    "noise-to-signal and all options of every alternative."
)
_NUMBERS = {"features", "noise-to-signal", "time per million", "time", "size"}
_MIN_WIDTH = 80
_INDENT = 13  # width of the heading "recommended" and its margin
_COLOURS = {"good": "green", "rough": "yellow", "hopeless": "red"}


class _Frequencies(PartName):
    """A name of a law, or a file of an array."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the name, or the array in the file."""
        if not str(value).endswith(".npy"):
            return super().convert(value, param, ctx)
        import numpy as np

        try:
            return np.load(value, allow_pickle=False)
        except (OSError, ValueError, EOFError):
            self.fail(f"{value}: no file of a NumPy array", param, ctx)


@click.command()
@study_options
@choice(
    "--noise",
    ["gaussian", "cube", "laplace"],
    help="Kind of noise. If left out: gaussian for delta > 0, else cube, or laplace for pca, "
    "regression and classification.",
    open=True,
)
@click.option(
    "--features",
    "n_features",
    type=int,
    help="Number of features, which is the size of the sketch. If left out, the forecast decides.",
)
@click.option(
    "--feature-map",
    type=PartName("MAP", lambda: [*_MAPS, *plugin_names("feature_maps")]),
    help=f"How a record becomes features: {', '.join(_MAPS)}, or the map of a package. If left "
    "out: fourier, or cells for a few columns; for pca quadratic or second-moments; for regression "
    "and classification second-moments, or taxicab if delta = 0.",
)
@click.option(
    "--masks",
    metavar="MASKS",
    help="Secret subsampling, such as uniform:100, block:512, poisson:0.1 or records:0.5; join "
    "several with +.",
)
@click.option(
    "--frequencies",
    type=_Frequencies("LAW", lambda: [*_LAWS, *plugin_names("frequency_laws")]),
    help=f"Law of the frequencies: {', '.join(_LAWS)}. multi-scale, mixed and structured need no "
    "scale; mixed is for schemas with labels or cycles, orthobases and normal are for quadratic "
    "features. A .npy file has frequencies of your own, (features, columns) in radians per unit of "
    "a record.",
)
@click.option(
    "--scale",
    "frequency_scale",
    metavar="SCALE",
    help="Scale of the features, between the width and the distance of clusters: one number, or a "
    "range like 0.1,2.",
)
@choice(
    "--count",
    ["released", "omitted", "public"],
    help="Whether the sketch contains a noisy number of records, none, or the public number.",
    open=True,
)
@choice(
    "--mean",
    ["released", "omitted"],
    help="For pca, regression and classification: whether the sketch contains a noisy mean, about "
    "which moments are taken. It needs 3 % more Gaussian or 25 % more Laplace noise. The default "
    "of pca is omitted.",
    open=True,
)
@click.option(
    "--holders",
    "n_holders",
    type=int,
    help="For a sealed study: number of holders that share the noise of their total.",
)
@choice(
    "--sharing",
    ["holders", "tellers"],
    help="With --holders: who adds the noise. Each holder adds a part of it, or each teller all of "
    "it. The default is holders if delta > 0, else tellers.",
    open=True,
)
@click.option("--seed", "random_state", type=int, help="Public seed of the frequencies.")
@click.option(
    "--insecure",
    is_flag=True,
    is_eager=True,
    help="Plan a design without noise, so without privacy, for research on public or made-up "
    "records; --epsilon and --delta are left out. `privsketch sketch` needs --insecure too.",
)
@click.option(
    "-o",
    "--output",
    type=PATH,
    required=True,
    help="File of the design (JSON), or - for standard output.",
)
@KEY
@PASSPHRASE_FILE
@click.option(
    "--force", is_flag=True, help="Replace an existing design, whose sketches become useless."
)
@JSON
def design(
    study: dict[str, Any],
    frequency_scale: str | None,
    output: Path,
    key_file: Path | None,
    passphrase_file: Path | None,
    force: bool,
    **choices: Any,
) -> None:
    """Make the public recipe that all holders of a study share.

    \b
    privsketch design -k 9 --ball 1 --dim 3 --epsilon 1 --delta 1e-6 -o study.json
    """
    from privsketch.design.cautions import describe_design
    from privsketch.design.plan import plan_design

    if choices["insecure"] and key_file is not None:
        raise click.UsageError("--key: what is insecure gets no signature; leave it out")
    require_available(output, force, "a new design would not fit the sketches of the old one")
    signer = signing_key(key_file, passphrase_file, output)
    scale: Any = None if frequency_scale is None else listed_numbers(frequency_scale)
    has_budget = study["budget"] is not None
    if choices["n_holders"] is not None and choices["sharing"] is None and has_budget:
        choices["sharing"] = "holders" if study["budget"].delta > 0 else "tellers"
    planned = plan_design(**study, frequency_scale=scale, **choices)
    stated = study["domain"] if planned.schema is None else planned.schema
    cautions = say_cautions(stated, planned.budget, choices["n_records"], planned.columns)
    write(planned.save, output)
    signatures = sign_result(signer, output, planned.to_bytes(), "design")
    say(describe_design(planned, shown=cautions), output)
    say_written(output)
    if wants_json():
        from privsketch.cli.shell.facts import design_facts

        answer(written=[output, *signatures], **design_facts(planned))


@click.command()
@study_options
@click.option(
    "--rate",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.1,
    show_default=True,
    help="Share of features or records that masks keep, in the alternatives with masks.",
)
@JSON
def plan(study: dict[str, Any], rate: float, **choices: Any) -> None:
    """Compare designs by accuracy, time and size, from public facts.

    Nothing is read and nothing is spent. The expected error is the excess of the k-means cost
    (squared distances of records to their centers) over that without privacy. For principal
    components it is the share of their variance that is lost, for regression and classification
    that of what other columns tell about the target. Noise-to-signal is the squared error
    of the whole sketch over its squared norm. The time is for a million records on one core,
    by a model that is the same on every machine; `privsketch sketch --dry-run` measures it on your
    machine.

    \b
    privsketch plan -k 9 --box 0 1 --dim 8 --epsilon 1 --delta 1e-6 --records 1e5
    """
    from privsketch.cli.shell.progress import spinner
    from privsketch.design.alternatives import alternatives
    from privsketch.sketching.cost import design_cost

    options = {name: value for name, value in choices.items() if value is not None}
    with spinner("comparing designs"):
        comparison = alternatives({**study, **options}, design_cost, rate=rate)
    budget, names = study["budget"], study["columns"]
    stated = comparison.alternatives[0].design.schema or study["domain"]
    cautions = say_cautions(
        stated, budget, choices.get("n_records"), names, width=_terminal_width()
    )
    if wants_json():
        answer(**plan_to_json(comparison))
        return
    _show(comparison, cautions)


def plan_to_json(comparison: DesignComparison) -> dict[str, Any]:
    """Return a plan as plain JSON values."""
    return {
        "recommended": comparison.recommended.name,
        "reasons": list(comparison.reasons),
        "alternatives": [alternative.to_json() for alternative in comparison.alternatives],
    }


def _terminal_width() -> int:
    """Return the width of the terminal: COLUMNS if it is set, and 80 without a terminal."""
    return max(_MIN_WIDTH, get_terminal_size((_MIN_WIDTH, 24)).columns)


def _show(comparison: DesignComparison, cautions: Sequence[str]) -> None:
    """Print the table and the reasons, except for cautions that were already printed."""
    from rich.console import Console

    width = _terminal_width()
    recommended = comparison.recommended
    rows = [_row(item, item is recommended) for item in comparison.alternatives]
    widths = _widths(_WIDE_HEADINGS, rows)
    is_wide = sum(widths) + 2 * (len(widths) - 1) <= width
    headings = _WIDE_HEADINGS if is_wide else _NARROW_HEADINGS
    if not is_wide:
        rows = [_narrow_row(row, rows[0]) for row in rows]
        widths = _widths(headings, rows)
        widths[1] -= max(0, sum(widths) + 2 * (len(widths) - 1) - width)
    console = Console(width=width)
    for row in [headings, *rows]:
        _print_row(console, headings, row, widths)
    console.print()
    choice_text = f"{recommended.name}: {recommended.options()}"
    reasons = [
        text for text in comparison.reasons if not any(caution in text for caution in cautions)
    ]
    notes = [] if is_wide else [_NARROW_NOTE]
    for index, text in enumerate([choice_text, *reasons, *notes]):
        say(wrap_text(text, "" if index else "recommended", _INDENT, width), None)


def _widths(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(headings, *rows, strict=True)]


def _print_row(
    console: Any, headings: Sequence[str], row: Sequence[str], widths: Sequence[int]
) -> None:
    """Print a row of the table; the name of the alternative may take several lines."""
    from rich.text import Text

    name, *continuation = wrap(row[1], widths[1], subsequent_indent="  ", break_on_hyphens=False)
    line = Text(style="bold" if row[0] or row is headings else "")
    for heading, cell, width in zip(headings, (row[0], name, *row[2:]), widths, strict=True):
        text = cell.rjust(width) if heading in _NUMBERS else cell.ljust(width)
        line.append(text + "  ", style=_COLOURS.get(cell))
    indent = " " * (widths[0] + 2)
    for text_line in (line, *(Text(indent + part, style=line.style) for part in continuation)):
        text_line.rstrip()
        console.print(text_line, soft_wrap=True)


def _narrow_row(row: Sequence[str], planned: Sequence[str]) -> tuple[str, ...]:
    """Return the cells of a narrow row; the name includes what differs from the planned design."""
    cells = dict(zip(_WIDE_HEADINGS, row, strict=True))
    differences = [
        cells[heading].replace("+", " + ")
        for heading, planned_cell in zip(_WIDE_HEADINGS, planned, strict=True)
        if heading in _SHOWN_IN_NAMES
        and (cells[heading] != planned_cell or row is planned)
        and cells[heading] != "none"
        and cells[heading] not in cells["alternative"]
    ]
    name = cells["alternative"] + (f" ({', '.join(differences)})" if differences else "")
    error = cells["expected error"].removesuffix(" %")
    time, size = cells["time per million"], cells["size"]
    return (row[0], name, cells["features"], error, cells["verdict"], time, size)


def _row(alternative: Alternative, is_recommended: bool) -> tuple[str, ...]:
    from privsketch.design.alternatives import percent

    facts = alternative.to_json()
    return (
        "->" if is_recommended else "",
        alternative.name,
        facts["feature_map"],
        facts["frequencies"],
        f"{facts['n_features']}",
        facts["masks"],
        facts["noise"],
        f"{alternative.noise.total:.2g}",
        f"{percent(alternative.low)} to {percent(alternative.high)} %",
        alternative.verdict,
        _time_text(alternative.nanoseconds),
        _size_text(alternative.size),
    )


def _time_text(nanoseconds: float) -> str:
    """Return the time for a million records, from that for one record."""
    seconds = nanoseconds / 1000
    if seconds < 120:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _size_text(n_bytes: int) -> str:
    if n_bytes < 1000:
        return f"{n_bytes} B"
    return f"{n_bytes / 1000:.1f} kB" if n_bytes < 1e6 else f"{n_bytes / 1e6:.1f} MB"
