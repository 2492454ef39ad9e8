"""`privsketch demo`: the command; `demo_steps` has its steps."""

from __future__ import annotations

from pathlib import Path

import click

from privsketch.cli.shell.answer import JSON
from privsketch.cli.shell.options import demo_options
from privsketch.cli.shell.spending import track_spending


@click.command()
@demo_options("privsketch-demo")
@click.option("--sealed", is_flag=True, hidden=True)
@click.option("--collector", is_flag=True, hidden=True)
@JSON
def demo(output: Path, records: int, sealed: bool, collector: bool) -> None:
    """Run a study of five hospitals, from tables to a report."""
    for flag, name in ((sealed, "study"), (collector, "collector")):
        if flag:
            raise click.UsageError(f"this demo is now `privsketch {name} demo`")
    with track_spending() as spending:
        from privsketch.cli.demo_steps import run_demo

        run_demo(output, records, spending)
