"""`privsketch merge` and `compare`: the sum of several sketches, and how sources differ."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from privsketch.cli.shell.answer import JSON, answer, wants_json
from privsketch.cli.shell.options import PATH
from privsketch.cli.shell.output import caution, note, require_available, say, say_written, write
from privsketch.cli.shell.signing import SIGNED_BY

if TYPE_CHECKING:
    from privsketch.pages.comparison.result import Comparison
    from privsketch.sketching.sketch import Sketch

_ALLOW_WEIGHTS = click.option(
    "--allow-weights",
    is_flag=True,
    help="Accept sketches that state that their records count more than once.",
)


@click.command()
@click.argument("sketches", nargs=-1, required=True, type=PATH)
@click.option(
    "-o", "--output", type=PATH, required=True, help="File of the sum, or - for standard output."
)
@click.option(
    "--same-records", is_flag=True, help="Accept sketches of the same source, whose costs add up."
)
@click.option(
    "--weights",
    help="How often the records of each sketch count: whole numbers like 2,1,1. "
    "The default is once.",
)
@_ALLOW_WEIGHTS
@click.option(
    "--refuse-alarms",
    is_flag=True,
    help="Write nothing if a source looks wrong, or if nothing can be compared, for scripts. Any "
    "number of sketches from two on is compared.",
)
@SIGNED_BY
@click.option("--force", is_flag=True, help="Replace an existing output.")
@JSON
def merge(
    sketches: tuple[Path, ...],
    output: Path,
    same_records: bool,
    weights: str | None,
    allow_weights: bool,
    refuse_alarms: bool,
    signed_by: tuple[str, ...],
    force: bool,
) -> None:
    """Add up the sketches of one study, and compare three or more.

    A source that looks wrong, such as one in other units, is an alarm. It stays in the total, and
    is a concern of every model that is learned from it. Nothing is spent.

    \b
    privsketch merge site-*.sketch -o all.sketch
    privsketch merge *.sketch -o all.sketch --signed-by a.pub --signed-by b.pub
    """
    from privsketch.cli.shell.signing import load_sketches
    from privsketch.pages.comparison.merge import merge_compared
    from privsketch.sketching.merge import weight_lines

    factors = None
    if weights is not None:
        try:
            factors = [int(item) for item in weights.split(",")]
        except ValueError:
            raise click.BadParameter(f"--weights {weights}: expected a list like 2,1,1") from None
    require_available(output, force, "it would be replaced")
    parts = load_sketches(sketches, signed_by)
    total, comparison = merge_compared(
        parts,
        same_records=same_records,
        weights=factors,
        allow_weights=allow_weights,
        compare=True if refuse_alarms else None,
    )
    if refuse_alarms:
        comparison = _require_no_alarm(parts, total, comparison, output)
    verdict = total.verdict
    write(total.save, output)
    say(total.receipt.describe(), output)
    for line in [*weight_lines(total), *(() if comparison is None else comparison.notes)]:
        note(line, output)
    for text in () if verdict is None else verdict.concerns():
        caution(text, heading="ALARM")
    lines = [] if verdict is None else [verdict.describe_compared(total.sources)]
    for line in [*lines, *([] if comparison is None else comparison.merge_lines())]:
        say(line, output)
    say_written(output)
    if wants_json():
        from privsketch.cli.shell.facts import sketch_facts

        answer(written=[output], **sketch_facts(total))


def _require_no_alarm(
    parts: Sequence[Sketch], total: Sketch, comparison: Comparison | None, output: Path
) -> Comparison | None:
    """Refuse a total with an alarm, or without any comparison, and return the comparison.

    Verdicts of totals are about three sources or more. Two sources are compared here: that one of
    them looks wrong is enough to refuse, although nobody can say which.
    """
    from privsketch._base.errors import MergeError
    from privsketch.pages.comparison.compare import compare_parts

    alarms: Sequence[str] = () if total.verdict is None else total.verdict.alarm_texts()
    if not alarms and comparison is None and len(parts) > 1:
        comparison = compare_parts(list(parts))
        alarms = comparison.alarm_lines()
        if not alarms:
            note(
                "too few sources for a verdict; compared with each other, none looks wrong", output
            )
    if alarms:
        raise MergeError(f"merge: a source looks wrong: {'; '.join(alarms)}")
    if comparison is None and (total.verdict is None or not total.verdict.compared):
        raise MergeError("merge: one sketch alone, of sources that nobody has compared")
    return comparison


@click.command()
@click.argument("sketches", nargs=-1, required=True, type=PATH)
@click.option("--report", type=PATH, help="File of a report with a picture (HTML).")
@_ALLOW_WEIGHTS
@SIGNED_BY
@click.option("--force", is_flag=True, help="Replace an existing report.")
@JSON
def compare(
    sketches: tuple[Path, ...],
    report: Path | None,
    allow_weights: bool,
    signed_by: tuple[str, ...],
    force: bool,
) -> None:
    """Find sources that differ, and whether a unit explains it.

    SKETCHES are files, or folders of them, such as one that `collector pull` has written. Only
    public sketches are used, and nothing is spent. An alarm means that a source looks wrong: the
    factor of a unit (pounds for kilograms), a shift, a cut or an exchange of columns explains how
    it differs, or it shares noise or records with another one. Other differences are reported
    without an explanation.

    \b
    privsketch compare site-*.sketch --report sites.html
    privsketch compare heart/
    """
    import privsketch as ps
    from privsketch.cli.shell.signing import load_sketches

    files = [file for path in sketches for file in _files_of(path)]
    if len(files) < 2:
        raise click.UsageError(
            f"give two sketches or more, and not {len(files)}: one is compared with the others"
        )
    if report is not None:
        require_available(report, force, "it would be replaced")
    comparison = ps.compare(load_sketches(files, signed_by), allow_weights=allow_weights)
    if report is not None:  # before any text, because its reader may close standard output
        from privsketch.pages.comparison.page import save_comparison

        write(lambda path: save_comparison(comparison, path), report)
    say(comparison.describe(), report)
    if report is not None:
        say_written(report)
    if wants_json():
        answer(written=[] if report is None else [report], **comparison.to_json())


def _files_of(path: Path) -> list[Path]:
    """Return the sketches in a folder, or the file itself.

    A folder that was pulled has a folder of sketches, beside their total.
    """
    if not path.is_dir():
        return [path]
    folder = path / "sketches"
    return sorted((folder if folder.is_dir() else path).glob("*.sketch"))
