"""Commands for whoever runs a collector, on its machine: serve, members, studies, backups."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privsketch.cli.shell.answer import JSON, answer, say
from privsketch.cli.shell.options import PATH
from privsketch.cli.shell.output import caution, require_free, say_written

if TYPE_CHECKING:
    from privsketch_studies.collector.store.engine import Store

STORE = click.option(
    "--store",
    envvar="PRIVSKETCH_STORE",
    show_envvar=True,
    default="collector.db",
    show_default=True,
    metavar="PLACE",
    help="File of SQLite, or postgresql://user@host/name. An address with a password belongs into "
    "the environment variable.",
)
_NAME = click.argument("name")
_TOKEN_FILE = click.option(
    "--token-file", type=PATH, help="New file for the token, which only you can read."
)


@contextmanager
def _opened(place: str) -> Iterator[Store]:
    from privsketch_studies.collector.store.engine import Store

    store = Store(place)
    try:
        yield store
    finally:
        store.close()


@click.command()
@STORE
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True)
@click.option(
    "--proxies",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESSES",
    help="Proxies whose word on who asks is taken, by commas. TLS belongs to the proxy.",
)
@click.option(
    "--member-rate",
    type=click.FloatRange(min=0, min_open=True),
    default=20.0,
    show_default=True,
    help="Requests a second of one member, in the long run.",
)
@click.option("--check", is_flag=True, help="Bring the store up to date, and do not serve.")
@JSON
def serve(store: str, host: str, port: int, proxies: str, member_rate: float, check: bool) -> None:
    """Serve a collector: studies, uploads, totals.

    The store is made if there is none. Make the first member who may make studies with
    privsketch collector add-member NAME --makes-studies. It listens on this machine only unless
    told otherwise; a proxy before it does TLS.

    \b
    privsketch collector serve --store collector.db --port 8000
    """
    from privsketch_studies.collector.collector import Collector
    from privsketch_studies.collector.members import has_members
    from privsketch_studies.collector.settings import Settings

    with _opened(store) as found:
        if not has_members(found):
            caution(
                "nobody can use this collector yet: privsketch collector add-member NAME "
                "--makes-studies"
            )
        kind = "sqlite" if found.is_sqlite else "postgresql"
        if check:
            say(f"store       ready, {kind}")
            answer(address=None, database=kind)
            return
        from privsketch_studies.collector.web.server import (
            listen,
            log_to_standard_error,
            make_server,
        )

        settings = Settings(member_rate=member_rate, member_burst=5 * member_rate)
        server = make_server(Collector(found, settings), proxies=proxies)
        with listen(host, port) as sock:
            shown = f"[{host}]" if ":" in host else host
            address = f"http://{shown}:{sock.getsockname()[1]}"
            log_to_standard_error()
            say(f"serving     {address}, {kind}")
            sys.stdout.flush()
            server.run(sockets=[sock])
        say("stopped     all that was acknowledged is in the store")
        answer(address=address, database=kind)


@click.command("add-member")
@_NAME
@click.option("--study", help="Give the member roles in this study.")
@click.option(
    "--role",
    "roles",
    multiple=True,
    type=click.Choice(["owner", "site", "teller", "reader"]),
    help="With --study; repeat it for several.",
)
@click.option(
    "--key",
    "key_file",
    type=PATH,
    metavar="FILE.pub",
    help="The member's public key: what they hand in must be signed by it.",
)
@click.option("--makes-studies", is_flag=True, help="The member may make studies, and own them.")
@click.option("--known", is_flag=True, help="Of somebody who is a member: only give the roles.")
@_TOKEN_FILE
@STORE
@JSON
def add_member(
    name: str,
    study: str | None,
    roles: tuple[str, ...],
    key_file: Path | None,
    makes_studies: bool,
    known: bool,
    token_file: Path | None,
    store: str,
) -> None:
    """Make a member, whose token is shown this once; only a hash of it is kept.

    \b
    privsketch collector add-member north --study heart --role site --key north.pub
    """
    from privsketch.signing.keys import PublicKey
    from privsketch_studies.collector import members

    if known and (study is None or key_file is not None or makes_studies or token_file is not None):
        raise click.UsageError("--known goes with --study and --role, and nothing else")
    if token_file is not None:
        require_free(token_file, False, "a token is not replaced")
    key = None if key_file is None else PublicKey.load(key_file)
    with _opened(store) as found:
        token = None
        if known:
            members.give_roles(found, name, str(study), roles)
        else:
            token = members.add_member(
                found, name, study=study, as_roles=roles, key=key, makes_studies=makes_studies
            )
    say(f"member      {name}" + (f", {', '.join(roles)} in {study}" if study else ""))
    _tell_token(token, token_file, member=name, study=study, roles=list(roles))


@click.command("renew-token")
@_NAME
@_TOKEN_FILE
@STORE
@JSON
def renew_token(name: str, token_file: Path | None, store: str) -> None:
    """Give a member a new token; the old one is worth nothing from now on.

    \b
    privsketch collector renew-token north --token-file north.token
    """
    from privsketch_studies.collector import members

    if token_file is not None:
        require_free(token_file, False, "a token is not replaced")
    with _opened(store) as found:
        token = members.renew_token(found, name)
    say(f"member      {name}")
    _tell_token(token, token_file, member=name)


@click.command("revoke")
@_NAME
@STORE
@JSON
def revoke(name: str, store: str) -> None:
    """End what a member's token can do; what was handed in with it stays.

    \b
    privsketch collector revoke north
    """
    from privsketch_studies.collector import members

    with _opened(store) as found:
        members.revoke_token(found, name)
    say(f"revoked     {name}")
    answer(member=name)


@click.command("add-study")
@_NAME
@click.argument("design_file", metavar="DESIGN", type=PATH)
@click.option("--owner", required=True, help="The member who owns it.")
@click.option("--title", help="One line that says what it is about.")
@click.option("--sealed", is_flag=True, help="For ballots: only the total will show.")
@click.option("--last-day", metavar="DATE", help="Of uploads, UTC, like 2026-12-31.")
@STORE
@JSON
def add_study(
    name: str,
    design_file: Path,
    owner: str,
    title: str | None,
    sealed: bool,
    last_day: str | None,
    store: str,
) -> None:
    """Make a study of a design. NAME stands in its address: lower-case letters, digits, hyphens.

    \b
    privsketch collector add-study heart design.json --owner olga --last-day 2026-12-31
    """
    from privsketch.cli.shell.signing import checked_bytes
    from privsketch_studies.collector.studies import make_study, parse_day

    data, _ = checked_bytes(design_file)
    day = None if last_day is None else parse_day(last_day)
    with _opened(store) as found:
        made = make_study(found, name, data, owner=owner, title=title, sealed=sealed, last_day=day)
    say(f"study       {made.name}, {'sealed' if sealed else 'open'}, owned by {owner}")
    say(f"design      {made.design.fingerprint}")
    answer(study=made.name, is_sealed=sealed, owner=owner, design=made.design.fingerprint)


@click.command("show")
@STORE
@JSON
def show(store: str) -> None:
    """List studies and members, and how far they are.

    \b
    privsketch collector show
    """
    from privsketch_studies.collector.members import list_members
    from privsketch_studies.collector.progress import progress_of
    from privsketch_studies.collector.studies import list_studies

    with _opened(store) as found:
        people: list[dict[str, Any]] = [
            {
                "name": one.name,
                "makes_studies": one.makes_studies,
                "is_revoked": one.is_revoked,
                "roles": {study: list(own) for study, own in one.roles.items()},
            }
            for one in list_members(found)
        ]
        told: list[dict[str, Any]] = []
        for study in list_studies(found):
            progress = progress_of(found, study)
            reported = sum(site.at is not None for site in progress.sites)
            say(f"study       {study.name}: {progress.state}, {reported} of "
                f"{len(progress.sites)} sites have reported")  # fmt: skip
            fact = {"name": study.name, "title": study.title, "is_sealed": study.is_sealed}
            told.append(
                {
                    **fact,
                    "state": progress.state,
                    "n_sites": len(progress.sites),
                    "n_reported": reported,
                }
            )
    for person in people:
        own = [f"{', '.join(roles)} in {study}" for study, roles in person["roles"].items()]
        told_roles = ["revoked"] if person["is_revoked"] else []
        told_roles += ["makes studies"] if person["makes_studies"] else []
        say(f"member      {person['name']}: {'; '.join([*told_roles, *own]) or 'no role'}")
    answer(studies=told, members=people)


@click.command("check")
@STORE
@JSON
def check_store(store: str) -> None:
    """Check all chains of events, and the bytes of every upload against them.

    \b
    privsketch collector check
    """
    from privsketch_studies.collector.verify import verify_store

    with _opened(store) as found:
        seen = verify_store(found)
    _tell_verified("unbroken", seen)
    answer(**vars(seen))


@click.command("backup")
@click.argument("file", type=PATH)
@STORE
@JSON
def backup_store(file: Path, store: str) -> None:
    """Write all of a store into one new file, while it is served; checked before it counts.

    Whatever database the store is in, the backup is a file of SQLite. It is as confidential as the
    store.

    \b
    privsketch collector backup collector-2026-12-31.backup
    """
    from privsketch_studies.collector.backup import backup

    with _opened(store) as found:
        seen = backup(found, file)
    _tell_verified("backed up", seen)
    say_written(file)
    answer(written=[file], **vars(seen))


@click.command("restore")
@click.argument("file", type=PATH)
@STORE
@JSON
def restore_store(file: Path, store: str) -> None:
    """Fill an empty store from a backup, which is checked first.

    \b
    privsketch collector restore collector-2026-12-31.backup --store new.db
    """
    from privsketch_studies.collector.backup import restore

    with _opened(store) as found:
        seen = restore(file, found)
    _tell_verified("restored", seen)
    answer(**vars(seen))


def _tell_verified(word: str, seen: Any) -> None:
    say(f"{word:<11} {seen.n_uploads} uploads, {seen.n_events} events in {seen.n_chains} chains")


def _tell_token(token: str | None, token_file: Path | None, **facts: Any) -> None:
    """Show a token, once: in a file, or on standard output."""
    from privsketch.signing.documents import write_new

    written = []
    if token is not None and token_file is not None:
        write_new(token_file, f"{token}\n".encode("ascii"))
        written, token = [token_file], None
        say(f"token       in {token_file}; hand it over where nobody else listens")
    elif token is not None:
        say(f"token       {token}")
        say("            shown this once; hand it over where nobody else listens")
    answer(written=written, token=token, **facts)
