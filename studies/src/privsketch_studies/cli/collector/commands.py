"""`privsketch collector`: the service that holds studies, and its clients."""

from __future__ import annotations

from pathlib import Path

import click

from privsketch.cli.shell.answer import JSON
from privsketch.cli.shell.group import Group
from privsketch.cli.shell.options import PATH
from privsketch_studies.cli.collector.admin import (
    add_member,
    add_study,
    backup_store,
    check_store,
    renew_token,
    restore_store,
    revoke,
    serve,
    show,
)
from privsketch_studies.cli.collector.remote import pull, push


@click.group(cls=Group)
def collector() -> None:
    """Serve studies to many sites, or hand files in at such a service.

    \b
    privsketch collector push https://collector.example/studies/heart site-3.sketch
    privsketch collector pull https://collector.example/studies/heart -o heart/
    privsketch collector serve --store collector.db
    privsketch collector add-member olga --makes-studies --token-file olga.token
    """


@click.command()
@click.option(
    "--output",
    "-o",
    type=PATH,
    default=Path("privsketch-collector-demo"),
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
    """Run an open and a sealed study of five hospitals over a collector, with its pages."""
    from privsketch_studies.cli.collector.demo import run_collector_demo

    run_collector_demo(output, records)


_COMMANDS = (
    *(push, pull, serve, add_member, renew_token, revoke, add_study, show),
    *(check_store, backup_store, restore_store, demo),
)
for _command in _COMMANDS:
    collector.add_command(_command)
