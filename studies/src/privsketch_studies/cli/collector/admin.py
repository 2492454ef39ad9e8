"""Commands for the operator of a collector, on its machine: serve, members, studies, backups."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privsketch.cli.shell.answer import JSON, answer, say
from privsketch.cli.shell.options import PATH
from privsketch.cli.shell.output import caution, count_text, require_available, say_written

if TYPE_CHECKING:
    from privsketch_studies.collector.store.engine import Store
    from privsketch_studies.collector.studies import Study

STORE = click.option(
    "--store",
    envvar="PRIVSKETCH_STORE",
    show_envvar=True,
    default="collector.db",
    show_default=True,
    metavar="LOCATION",
    help="SQLite file, or postgresql://user@host/name. Put an address with a password into the "
    "environment variable.",
)
_NAME = click.argument("name")
_NEW_TOKEN_FILE = click.option(
    "--token-file", type=PATH, help="New file for the token, which only you can read."
)


@contextmanager
def _open_store(location: str) -> Iterator[Store]:
    from privsketch_studies.collector.store.engine import Store

    store = Store(location)
    try:
        yield store
    finally:
        store.close()


@click.command()
@STORE
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="Port to listen at; 0 is any free one.",
)
@click.option(
    "--proxies",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESSES",
    help="Proxies that may state the address of a client, separated by commas.",
)
@click.option(
    "--member-rate",
    type=click.FloatRange(min=0, min_open=True),
    default=20.0,
    show_default=True,
    help="Requests a second of one member in the long run.",
)
@click.option("--check", is_flag=True, help="Create or migrate the store, and do not serve.")
@JSON
def serve(store: str, host: str, port: int, proxies: str, member_rate: float, check: bool) -> None:
    """Run a collector: its API and its pages.

    The store is created if there is none. Add the first member who may make studies with privsketch
    collector add-member NAME --makes-studies. By default the collector listens on this machine
    only, behind a proxy that does TLS.

    \b
    privsketch collector serve --store collector.db --port 8000
    """
    from privsketch_studies.collector.collector import Collector, Settings
    from privsketch_studies.collector.members import has_members

    with _open_store(store) as database:
        if not has_members(database):
            caution(
                "this collector has no members yet: add one with privsketch collector add-member "
                "NAME --makes-studies"
            )
        kind = "sqlite" if database.is_sqlite else "postgresql"
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
        server = make_server(Collector(database, settings), proxies=proxies)
        with listen(host, port) as sock:
            host_in_url = f"[{host}]" if ":" in host else host
            address = f"http://{host_in_url}:{sock.getsockname()[1]}"
            log_to_standard_error()
            say(f"serving     {address}, {kind}")
            sys.stdout.flush()
            server.run(sockets=[sock])
        say("stopped     all acknowledged uploads are in the store")
        answer(address=address, database=kind)


@click.command("add-member")
@_NAME
@click.option("--study", help="Study in which the member gets roles.")
@click.option(
    "--role",
    "roles",
    multiple=True,
    type=click.Choice(["owner", "site", "teller", "reader"]),
    help="With --study: role of the member; repeat it for several.",
)
@click.option(
    "--key",
    "key_file",
    type=PATH,
    metavar="FILE.pub",
    help="The member's public key. Their uploads must then be signed with it.",
)
@click.option("--makes-studies", is_flag=True, help="Allow the member to make and own studies.")
@click.option("--known", is_flag=True, help="Give the roles to a member who exists already.")
@_NEW_TOKEN_FILE
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
    """Add a member and show the token, which cannot be shown again.

    \b
    privsketch collector add-member north --study heart --role site --key n.pub
    """
    from privsketch.signing.keys import PublicKey
    from privsketch_studies.collector import members

    if known and (study is None or key_file is not None or makes_studies or token_file is not None):
        raise click.UsageError("--known goes with --study and --role only")
    if token_file is not None:
        require_available(token_file, None, "a token is never replaced")
    key = None if key_file is None else PublicKey.load(key_file)
    with _open_store(store) as database:
        token = None
        if known:
            members.give_roles(database, name, str(study), roles)
        else:
            token = members.add_member(
                database, name, study=study, as_roles=roles, key=key, makes_studies=makes_studies
            )
    say(f"member      {name}" + (f", {', '.join(roles)} in {study}" if study else ""))
    _show_token(token, token_file, member=name, study=study, roles=list(roles))


@click.command("renew-token")
@_NAME
@_NEW_TOKEN_FILE
@STORE
@JSON
def renew_token(name: str, token_file: Path | None, store: str) -> None:
    """Give a member a new token; the old one stops working.

    \b
    privsketch collector renew-token north --token-file north.token
    """
    from privsketch_studies.collector import members

    if token_file is not None:
        require_available(token_file, None, "a token is never replaced")
    with _open_store(store) as database:
        token = members.renew_token(database, name)
    say(f"member      {name}")
    _show_token(token, token_file, member=name)


@click.command("revoke")
@_NAME
@STORE
@JSON
def revoke(name: str, store: str) -> None:
    """Revoke a member's token; the member's uploads stay.

    \b
    privsketch collector revoke north
    """
    from privsketch_studies.collector import members

    with _open_store(store) as database:
        members.revoke_token(database, name)
    say(f"revoked     {name}")
    answer(member=name)


@click.command("add-study")
@_NAME
@click.argument("design_file", metavar="DESIGN", type=PATH)
@click.option("--owner", required=True, help="Member who owns the study.")
@click.option("--title", help="One line that says what the study is about.")
@click.option("--sealed", is_flag=True, help="Make a sealed study: only the total becomes known.")
@click.option("--last-day", metavar="DATE", help="Last day of uploads, UTC, like 2026-12-31.")
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
    """Make a study from a design.

    NAME is part of the study's address: lower-case letters, digits and hyphens.

    \b
    privsketch collector add-study heart design.json --owner olga
    """
    from privsketch.cli.shell.signing import checked_bytes
    from privsketch_studies.collector.studies import make_study, parse_day

    data, _ = checked_bytes(design_file)
    day = None if last_day is None else parse_day(last_day)
    with _open_store(store) as database:
        study = make_study(
            database, name, data, owner=owner, title=title, sealed=sealed, last_day=day
        )
    say(f"study       {study.name}, {'sealed' if sealed else 'open'}, owned by {owner}")
    say(f"design      {study.design.fingerprint}")
    answer(study=study.name, is_sealed=sealed, owner=owner, design=study.design.fingerprint)


@click.command("show")
@STORE
@JSON
def show(store: str) -> None:
    """List studies with their progress, and members with their roles.

    The sites of open studies are compared, and alarms are shown.

    \b
    privsketch collector show
    """
    from privsketch_studies.collector.members import list_members
    from privsketch_studies.collector.progress import progress_of
    from privsketch_studies.collector.studies import list_studies

    with _open_store(store) as database:
        people: list[dict[str, Any]] = [
            {
                "name": member.name,
                "makes_studies": member.makes_studies,
                "is_revoked": member.is_revoked,
                "roles": {study: list(own) for study, own in member.roles.items()},
            }
            for member in list_members(database)
        ]
        rows: list[dict[str, Any]] = []
        for study in list_studies(database):
            progress = progress_of(database, study)
            n_sites, n_reported = len(progress.sites), progress.n_reported
            reported = f"{n_reported} of {count_text(n_sites, 'site')} reported"
            say(f"study       {study.name}: {progress.state}, {reported}")
            for text in _alarms_of(database, study):
                caution(alarm_text(study.name, text))
            row = {"name": study.name, "title": study.title, "is_sealed": study.is_sealed}
            counts = {"n_sites": n_sites, "n_reported": n_reported}
            rows.append({**row, "state": progress.state, **counts})
    for person in people:
        facts = ["revoked"] if person["is_revoked"] else []
        facts += ["makes studies"] if person["makes_studies"] else []
        facts += [f"{', '.join(roles)} in {study}" for study, roles in person["roles"].items()]
        say(f"member      {person['name']}: {'; '.join(facts) or 'no role'}")
    answer(studies=rows, members=people)


def alarm_text(study: str, alarm: str) -> str:
    """Return the text for an alarm of the comparison of a study's sites."""
    return f"alarm in {study}: {alarm}; until it is settled, the total is probably wrong"


def _alarms_of(database: Store, study: Study) -> list[str]:
    """Return the alarms of the comparison of the sites of an open study."""
    from privsketch_studies.collector.collector import Collector
    from privsketch_studies.errors import CollectorError

    if not study.is_sealed:
        with suppress(CollectorError):  # no site has reported
            verdict = Collector(database).totals.compute(study.name, compare=True).sketch.verdict
            return [] if verdict is None else verdict.alarm_texts()
    return []


@click.command("check")
@STORE
@JSON
def check_store(store: str) -> None:
    """Check all chains of events, and all uploads against them.

    \b
    privsketch collector check
    """
    from privsketch_studies.collector.verify import verify_store

    with _open_store(store) as database:
        verified = verify_store(database)
    _answer_verified("unbroken", verified)


@click.command("backup")
@click.argument("file", type=PATH)
@STORE
@JSON
def backup_store(file: Path, store: str) -> None:
    """Write a store to one new file, and check it.

    The collector may run meanwhile. The backup is an SQLite file, also of a store in PostgreSQL. It
    is as confidential as the store.

    \b
    privsketch collector backup collector-2026-12-31.backup
    """
    from privsketch_studies.collector.backup import backup

    with _open_store(store) as database:
        verified = backup(database, file)
    say_written(file)
    _answer_verified("backed up", verified, written=[file])


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

    with _open_store(store) as database:
        verified = restore(file, database)
    _answer_verified("restored", verified)


def _answer_verified(word: str, verified: Any, **facts: Any) -> None:
    """Report what a check of a store has covered."""
    chains = f"{count_text(verified.n_events, 'event')} in {count_text(verified.n_chains, 'chain')}"
    say(f"{word:<11} {count_text(verified.n_uploads, 'upload')}, {chains}")
    answer(**facts, **vars(verified))


def _show_token(token: str | None, token_file: Path | None, **facts: Any) -> None:
    """Show a new token: write it to a file, or to standard output."""
    from privsketch.signing.documents import write_new

    files = []
    if token is not None and token_file is not None:
        write_new(token_file, f"{token}\n".encode("ascii"))
        files, token = [token_file], None
        say(f"token       in {token_file}; pass it on over a confidential channel")
    elif token is not None:
        say(f"token       {token}")
        say("            it cannot be shown again; pass it on over a confidential channel")
    answer(written=files, token=token, **facts)
