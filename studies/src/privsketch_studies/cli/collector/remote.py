"""`privsketch collector push` and `pull`: files to a collector and back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privsketch.cli.shell.answer import JSON, answer, say
from privsketch.cli.shell.options import PATH
from privsketch.cli.shell.output import say_written

if TYPE_CHECKING:
    from privsketch_studies.collector.client import Client

_URL = click.argument("url", metavar="URL")
_TOKEN_FILE = click.option(
    "--token-file",
    type=PATH,
    envvar="PRIVSKETCH_TOKEN_FILE",
    show_envvar=True,
    help="File with your token in its first line, which only you can read; PRIVSKETCH_TOKEN may "
    "hold the token itself. A token is never an argument.",
)
_ALLOW_HTTP = click.option(
    "--allow-http",
    is_flag=True,
    help="Send the token without TLS to another machine, in a network that you trust.",
)


def _client(url: str, token_file: Path | None, allow_http: bool) -> Client:
    from privsketch._base.errors import FileError
    from privsketch.signing.documents import read_small
    from privsketch_studies.collector.client import TOKEN_VARIABLE, Client

    if token_file is not None:
        lines = read_small(token_file, secret=True).decode("utf-8", "replace").split("\n")
        token = lines[0].strip()
        if not token:
            raise FileError(f"{token_file}: no token in its first line")
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
    """Hand files in at a collector: a sketch, or files of a sealed study.

    URL is the address of the study. What is acknowledged is on the collector's disk. The same file
    again changes nothing; another one in its place is refused. A signature beside a sketch goes
    with it.

    \b
    privsketch collector push https://collector.example/studies/heart site-3.sketch \\
               --token-file my.token
    """
    from privsketch_studies.collector.client import push

    client = _client(url, token_file, allow_http)
    done: list[dict[str, Any]] = []
    for one in push(client, files):
        said = "kept" if one.is_new else "was there"
        say(f"{said:<11} {one.file}, a {one.kind}: event {one.event} {one.event_digest[:16]}")
        done.append(
            {
                "file": str(one.file),
                "kind": one.kind,
                "digest": one.digest,
                "is_new": one.is_new,
                "event": one.event,
                "event_digest": one.event_digest,
            }
        )
    answer(study=client.study, pushed=done)


@click.command()
@_URL
@click.option("-o", "--output", type=PATH, required=True, help="Folder, made if there is none.")
@_TOKEN_FILE
@_ALLOW_HTTP
@JSON
def pull(url: str, output: Path, token_file: Path | None, allow_http: bool) -> None:
    """Fetch what you may have of a study: files, the total, and what happened.

    Of a sealed study it makes a mailbox, on which study show, verify, close, tally and join work.
    Of an open one it has the design, the total, and the sketches that you may see. The chain of
    events is checked, and must go on from the one that was pulled into the folder before.

    \b
    privsketch collector pull https://collector.example/studies/heart -o heart/ \\
               --token-file my.token
    """
    from privsketch_studies.collector.client import pull

    client = _client(url, token_file, allow_http)
    found = pull(client, output)
    for file in found.written:
        say_written(file)
    say(f"study       {client.study} is {found.state}")
    say(f"events      {found.n_events}, unbroken, up to {found.head[:16]}")
    answer(
        written=list(found.written),
        unchanged=list(found.unchanged),
        study=client.study,
        state=found.state,
        n_events=found.n_events,
        head=found.head,
    )
