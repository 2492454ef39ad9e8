"""`privsketch collector`: the web service for studies, and its client."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from privsketch.cli.shell.answer import JSON, answer, say
from privsketch.cli.shell.group import Group
from privsketch.cli.shell.options import PATH, demo_options
from privsketch.cli.shell.output import caution, say_written
from privsketch_studies.cli.collector.admin import (
    add_member,
    add_study,
    alarm_text,
    backup_store,
    check_store,
    renew_token,
    restore_store,
    revoke,
    serve,
    show,
)

if TYPE_CHECKING:
    from privsketch_studies.collector.client import Client

_URL = click.argument("url", metavar="URL")
_TOKEN_FILE = click.option(
    "--token-file",
    type=PATH,
    envvar="PRIVSKETCH_TOKEN_FILE",
    show_envvar=True,
    help="File that only you can read, with your token on its first line. PRIVSKETCH_TOKEN may "
    "hold the token itself. A token is never an argument.",
)
_ALLOW_HTTP = click.option(
    "--allow-http",
    is_flag=True,
    help="Send the token to another machine without TLS, in a network that you trust.",
)


def _client(url: str, token_file: Path | None, allow_http: bool) -> Client:
    from privsketch._base.errors import FileError
    from privsketch.signing.documents import read_small
    from privsketch_studies.collector.client import TOKEN_VARIABLE, Client

    if token_file is not None:
        lines = read_small(token_file, secret=True).decode("utf-8", "replace").split("\n")
        token = lines[0].strip()
        if not token:
            raise FileError(f"{token_file}: the first line has no token")
    else:
        token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if not token:
        raise click.UsageError(f"no token; give --token-file FILE, or set {TOKEN_VARIABLE}")
    return Client(url, token, allow_http=allow_http)


@click.command()
@_URL
@click.argument("files", nargs=-1, required=True, type=PATH)
@_TOKEN_FILE
@_ALLOW_HTTP
@JSON
def push(url: str, files: tuple[Path, ...], token_file: Path | None, allow_http: bool) -> None:
    """Upload a sketch, or files of a sealed study, to a collector.

    URL is the address of the study. An acknowledged file is on the collector's disk. Pushing
    the same file again changes nothing; a different file in its place is refused. A signature
    beside a sketch is uploaded with it.

    \b
    privsketch collector push https://example.org/studies/heart site-3.sketch \\
               --token-file my.token
    """
    from privsketch_studies.collector.kinds import phrase_of
    from privsketch_studies.collector.sending import push

    client = _client(url, token_file, allow_http)
    pushed = push(client, files)
    for file in pushed:
        state = "uploaded" if file.is_new else "known"
        event = f"event {file.event} {file.event_digest[:16]}"
        say(f"{state:<11} {file.file}, {phrase_of(file.kind)}: {event}")
    answer(study=client.study, pushed=[{**vars(file), "file": str(file.file)} for file in pushed])


@click.command()
@_URL
@click.option(
    "-o",
    "--output",
    type=PATH,
    required=True,
    help="Folder for the files; it is created if needed.",
)
@_TOKEN_FILE
@_ALLOW_HTTP
@JSON
def pull(url: str, output: Path, token_file: Path | None, allow_http: bool) -> None:
    """Download the files of a study that you may see.

    A sealed study becomes a mailbox for `study show`, `study check`, `study close`, `study tally`
    and `study join`. An open study gives its design, the total, and the sketches that you may see.
    The chain of events is checked, and must continue the one in the folder. An alarm of the
    comparison of the sites, which the total keeps, is repeated.

    \b
    privsketch collector pull https://example.org/studies/heart -o heart/ \\
               --token-file my.token
    """
    from privsketch_studies.collector.client import pull

    client = _client(url, token_file, allow_http)
    result = pull(client, output)
    for file in result.written:
        say_written(file)
    say(f"study       {client.study} is {result.state}")
    say(f"events      {result.n_events}, unbroken, up to {result.head[:16]}")
    for text in result.alarms:
        caution(alarm_text(client.study, text))
    answer(
        written=list(result.written),
        unchanged=list(result.unchanged),
        study=client.study,
        state=result.state,
        n_events=result.n_events,
        head=result.head,
    )


@click.command()
@demo_options("privsketch-collector-demo")
@JSON
def demo(output: Path, records: int) -> None:
    """Run an open and a sealed study through a collector and its web pages."""
    from privsketch_studies.cli.collector.demo import run_collector_demo

    run_collector_demo(output, records)


@click.group(
    cls=Group,
    commands=[
        *(push, pull, serve, add_member, renew_token, revoke, add_study, show),
        *(check_store, backup_store, restore_store, demo),
    ],
)
def collector() -> None:
    """Run a web service for studies, or exchange files with one.

    \b
    privsketch collector push https://example.org/studies/heart site-3.sketch
    privsketch collector pull https://example.org/studies/heart -o heart/
    privsketch collector serve --store collector.db
    privsketch collector add-member olga --makes-studies --token-file olga.token
    """
