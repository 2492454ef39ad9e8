"""`privsketch demo`: the command; `story` has its steps."""

from __future__ import annotations

from pathlib import Path

import click

from privsketch.cli.shell.answer import JSON
from privsketch.cli.shell.options import PATH
from privsketch.cli.shell.spending import reported_spending


@click.command()
@click.option(
    "--output",
    "-o",
    type=PATH,
    default=Path("privsketch-demo"),
    show_default=True,
    help="Folder for the files of the demo.",
)
@click.option(
    "--records",
    type=click.IntRange(min=100),
    default=20_000,
    show_default=True,
    help="Number of patients of each of the five sites.",
)
@click.option("--sealed", is_flag=True, hidden=True)
@click.option("--collector", is_flag=True, hidden=True)
@JSON
def demo(output: Path, records: int, sealed: bool, collector: bool) -> None:
    """Run a study of five hospitals, from tables to a report."""
    for flag, name in ((sealed, "study"), (collector, "collector")):
        if flag:
            raise click.UsageError(f"this demo is now `privsketch {name} demo`")
    with reported_spending() as spending:
        from privsketch.cli.story import run_demo

        run_demo(output, records, spending)
