"""`privsketch study`: sealed studies, in which only the total over all holders becomes known."""

from __future__ import annotations

from pathlib import Path

import click

from privsketch.cli.shell.answer import JSON
from privsketch.cli.shell.group import Group
from privsketch.cli.shell.options import PATH
from privsketch_studies.cli.study.ballots import close, join, seal, tally
from privsketch_studies.cli.study.checking import check
from privsketch_studies.cli.study.making import (
    accept,
    destroy,
    enrol,
    make,
    rehearse,
    settle,
    show,
    void,
)


@click.group(cls=Group)
def study() -> None:
    """Run a sealed study: only the total over all holders becomes known.

    Holders seal ballots, and tellers add up ballots that they cannot read. The commands below are
    in the order of use; `study show` shows the next steps.

    \b
    privsketch study make design.json *.card -o s.study
    privsketch study show s.study
    """


@click.command()
@click.option(
    "--output",
    "-o",
    type=PATH,
    default=Path("privsketch-study-demo"),
    show_default=True,
    help="Folder for the files of the demo.",
)
@click.option(
    "--records",
    type=click.IntRange(min=100),
    default=20_000,
    show_default=True,
    help="Patients of each of the five sites.",
)
@JSON
def demo(output: Path, records: int) -> None:
    """Run a sealed study of five hospitals and two tellers."""
    from privsketch_studies.cli.study.demo import run_sealed_demo

    run_sealed_demo(output, records)


_COMMANDS = (
    *(enrol, make, accept, show, rehearse, seal, check, close, tally, join),
    *(settle, void, destroy, demo),
)
for _command in _COMMANDS:
    study.add_command(_command)
