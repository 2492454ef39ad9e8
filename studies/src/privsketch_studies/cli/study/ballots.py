"""Commands on ballots, from records to the total of all holders: seal, close, tally, join."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from privsketch.cli.shell.answer import JSON, answer, say, wants_json
from privsketch.cli.shell.options import (
    LIMITS,
    MISSING,
    PATH,
    THREADS,
    TableOptions,
    dry_run,
    ledger_options,
    stated_engine,
    table_options,
    with_options,
)
from privsketch.cli.shell.output import (
    caution,
    count_text,
    require_available,
    require_distinct,
    required_output,
    say_written,
)
from privsketch.cli.shell.signing import PASSPHRASE_FILE, opened_key
from privsketch.cli.shell.spending import end_dry_run, say_remaining, track_spending
from privsketch_studies.cli.study.making import (
    FORCE,
    STUDY,
    files_option,
    key_option,
    mailbox_option,
    output_option,
)

if TYPE_CHECKING:
    from privsketch.tables.table import Table
    from privsketch_studies.sealing.ballots import Ballot
    from privsketch_studies.sealing.lists import CheckedBallots, Unchecked
    from privsketch_studies.sealing.study import SealedStudy

_CHECKED_HELP = (
    "Result of a teller's check (privsketch study check); repeat it for others. By default those "
    "beside the ballots."
)


@click.command()
@STUDY
@click.argument("data", nargs=-1, required=True, type=PATH)
@key_option("Your own private key, which is on the roster.")
@click.option(
    "--accept-alone",
    type=float,
    required=True,
    metavar="EPSILON",
    help="The largest epsilon that you accept if everyone else colludes. There is no default.",
)
@click.option("-o", "--output", type=PATH, help="File of the ballot. Needed unless --dry-run.")
@click.option(
    "--trust",
    "trusted",
    multiple=True,
    metavar="KEY",
    help="Teller that you trust: a .pub file, or the name of a pinned key; by default all pinned.",
)
@mailbox_option(
    "Folder to search for an earlier ballot of yours and for a closed list; by default that of the "
    "study."
)
@ledger_options
@click.option("--columns", help="Columns that make a record, in order: a,b,c.")
@table_options
@MISSING
@THREADS
@with_options(*LIMITS)
@PASSPHRASE_FILE
@dry_run("Check the records, for your eyes only, and show what the ballot would cost.")
@JSON
def seal(
    study_file: Path,
    stated: TableOptions,
    key_file: Path,
    accept_alone: float,
    output: Path | None,
    trusted: tuple[str, ...],
    mailbox: Path | None,
    ledger: Any,
    n_threads: int | None,
    max_epsilon: float | None,
    max_delta: float | None,
    passphrase_file: Path | None,
    dry_run: bool,
) -> None:
    """Read records once and seal their noisy sums into a ballot.

    A closed list in the folder of the study ends it: a late ballot is refused, and nothing is read.
    A holder casts one ballot in a study: a second run returns the first ballot and costs nothing,
    even if another machine made it and it lies in the mailbox. The cost and the cost "alone" count
    from now on. A sealed sum hides wrong units: check the records with --dry-run first, which has
    the exit code 3 where `privsketch check` has it.

    \b
    privsketch study seal s.study data.csv --key h3.key --accept-alone 0.25 \\
               --dry-run
    privsketch study seal s.study data.csv --key h3.key --accept-alone 0.25 \\
               -o h3.ballot
    """
    with track_spending() as spending:
        import privsketch_studies as studies
        from privsketch.cli.shell.progress import record_bar
        from privsketch.ledger.entry import writing_to
        from privsketch.signing.signature import digit_groups
        from privsketch_studies.sealing.seal import (
            earlier_ballot,
            require_in_time,
            require_sealable,
        )

        if not dry_run:
            required_output(output)
        study = studies.SealedStudy.load(study_file)
        key = opened_key(key_file, passphrase_file)
        holder = require_sealable(study, key, accept_alone, trusted or None, max_epsilon, max_delta)
        folder = mailbox or study_file.parent
        is_repeat = earlier_ballot(study, key.public, folder) is not None
        if not is_repeat:
            require_in_time(study, folder)
        say(f"study       {digit_groups(study.fingerprint)}: compare it with the others by phone")
        _say_risks(study)
        table = stated.table
        if dry_run:
            facts = {"holder": holder, "was_cast": is_repeat, **_cost_facts(study)}
            _try_out(study, table, ledger, facts)
            return
        output = required_output(output)
        require_available(output, None, "a ballot is never replaced")
        require_distinct(stated, [output])

        with record_bar(table) as advance, writing_to(str(output)):

            def progress(done: int) -> None:
                spending.stop.raise_if_stopped()
                advance(done)

            ballot = studies.seal(
                table,
                study,
                key=key,
                accept_alone=accept_alone,
                trusted=trusted or None,
                mailbox=folder,
                max_epsilon=max_epsilon,
                max_delta=max_delta,
                engine=stated_engine(None, n_threads=n_threads),
                progress=progress,
                ledger=ledger,
            )
        spending.stop.finish()
        ballot.save(output)
        if not is_repeat:
            spending.mark_written(output)
        say(f"ballot      {ballot.digest}")
        say_written(output)
        if not is_repeat:
            say_remaining(ledger, output)
        say(f"next        {_next_of(study, ballot, folder)}")
        answer(
            dry_run=False,
            written=[output],
            holder=holder,
            was_cast=is_repeat,
            digest=ballot.digest,
            **_cost_facts(study),
        )


def _next_of(study: SealedStudy, ballot: Ballot, folder: Path) -> str:
    """Return what a holder does with a ballot, which a closed list may have or not."""
    from privsketch_studies.sealing.lists import ClosedList, closed_list_in

    file = closed_list_in(study, folder)
    if file is None:
        return "put it into the mailbox; nothing in it is secret"
    if ballot.digest in ClosedList.load(file).ballots.values():
        return f"nothing: {file} has this ballot, and it counts"
    return (
        f"nothing: {file} is closed without this ballot, and it counts nowhere; when all tellers "
        "have tallied, end its entry in your ledger (privsketch study settle --tally)"
    )


def _try_out(study: SealedStudy, table: Table, ledger: Any, facts: dict[str, Any]) -> None:
    """End a dry run; refuse records that would spoil a ballot, as `privsketch check` does."""
    import privsketch as ps
    from privsketch._base.errors import RecordError
    from privsketch.sketching.build import cost_of_design

    found = ps.check(table, study.design)
    if not wants_json():  # exact numbers are for the holder's eyes, and not for logs
        say(found.describe())
    say("no ballot was made; nothing was spent")
    end_dry_run(ledger, lambda: cost_of_design(study.design), lambda: facts)
    if not found.is_readable:
        raise RecordError("`privsketch study seal` would refuse this table")
    if found.alarms:
        raise RecordError(
            "a ballot of this table would be spoiled; `privsketch study seal --dry-run` says by "
            "what, in its last lines"
        )


def _say_risks(study: SealedStudy) -> None:
    """Show what others could learn, before any record is read."""
    for cost in study.sharing.costs():
        say(f"risk        {cost.who}: {cost.text}")


def _cost_facts(study: SealedStudy) -> dict[str, Any]:
    facts = study.facts()
    return {name: facts[name] for name in ("fingerprint", "alone", "cost", "risks")}


@click.command()
@STUDY
@click.argument("ballots", nargs=-1, required=True, type=PATH)
@key_option("The owner's private key; a teller's where the study has no owner.")
@files_option("--checked", "checked_files", _CHECKED_HELP)
@click.option(
    "--leave-out",
    "leave_out",
    multiple=True,
    metavar="HOLDER",
    help="Leave out the ballot of this holder, which not all tellers have checked; repeat it for "
    "others. Without it such a ballot stops the command.",
)
@output_option("File of the closed list.")
@PASSPHRASE_FILE
@JSON
def close(
    study_file: Path,
    ballots: tuple[Path, ...],
    key_file: Path,
    checked_files: tuple[Path, ...],
    leave_out: tuple[str, ...],
    output: Path,
    passphrase_file: Path | None,
) -> None:
    """Close the list of ballots that count. All tellers must tally the same list.

    BALLOTS are files or folders. A ballot that not all tellers have checked stops the command: have
    it checked again, or leave it out with --leave-out. The list leaves out ballots whose check
    words do not add up over all tellers. In that case the ballot or a teller is wrong, and it is
    not possible to tell which.

    \b
    privsketch study close s.study mailbox/ --key owner.key \\
               --checked a.checked --checked b.checked -o s.closed
    """
    import privsketch_studies as studies
    from privsketch_studies.sealing.ballots import own_ballots
    from privsketch_studies.sealing.lists import CheckedBallots, unchecked_ballots, verdict_of

    study = studies.SealedStudy.load(study_file)
    require_available(output, None, "tellers may have tallied it")
    checked = [CheckedBallots.load(file) for file in checked_files]
    checked = checked or _checked_beside(study, ballots)
    verdict = verdict_of(study, checked)
    unchecked = unchecked_ballots(study, ballots, checked)
    _require_left_out(study_file, ballots, unchecked, leave_out)
    key = opened_key(key_file, passphrase_file)
    closed = studies.ClosedList.of(study, list(ballots), key=key, checked=checked)
    closed.save(output)
    owners = {ballot.digest: card.name for _, ballot, card in own_ballots(study, ballots)}
    counted = [card.name for card in study.holders if card.key.fingerprint in closed.ballots]
    missing = [card.name for card in study.holders if card.name not in counted]
    unfit = {owners[digest] for digest in verdict.unfit if digest in owners}
    left_out = sorted(unfit - set(counted))
    unopened = [
        {"holder": ballot.holder, "tellers": list(ballot.tellers)}
        for ballot in unchecked
        if ballot.holder not in left_out
    ]
    never = [name for name in missing if name not in owners.values()]
    say(f"closed      {count_text(len(counted), 'ballot')} of {len(study.holders)} holders")
    if never:
        say(f"no ballot   of {', '.join(never)} among these files")
    _caution_of(study, unopened, left_out)
    say(f"digest      {closed.digest}")
    say_written(output)
    say("next        send it to all tellers: each of them tallies once")
    answer(
        written=[output],
        fingerprint=study.fingerprint,
        digest=closed.digest,
        holders=counted,
        missing=missing,
        left_out=left_out,
        unopened=unopened,
    )


def _require_left_out(
    study_file: Path,
    ballots: tuple[Path, ...],
    unchecked: list[Unchecked],
    leave_out: tuple[str, ...],
) -> None:
    """Refuse to close without ballots that lie there, unless their holders are named."""
    from privsketch_studies.errors import StudyError

    holders = {ballot.holder for ballot in unchecked}
    for name in leave_out:
        if name not in holders:
            raise click.UsageError(
                f"--leave-out {name}: no ballot of {name} waits for a check; to leave out another "
                "ballot, name the files of those that count instead of their folder"
            )
    waiting = [ballot for ballot in unchecked if ballot.holder not in leave_out]
    if not waiting:
        return
    texts = [
        f"{ballot.what}: the ballot of {ballot.holder} is not checked by "
        f"{' and '.join(ballot.tellers)}"
        for ballot in waiting
    ]
    folders = dict.fromkeys(path if path.is_dir() else path.parent for path in ballots)
    files = " ".join(quote(str(folder)) + "/*.ballot" for folder in folders)
    names = " ".join(
        f"--leave-out {quote(name)}" for name in dict.fromkeys(ballot.holder for ballot in waiting)
    )
    raise StudyError(
        f"{'; '.join(texts)}. No list was closed. Next, each of these tellers: privsketch study "
        f"check {quote(str(study_file))} {files} --key STUDY-KEY -o NAME.checked; then close "
        f"again. A ballot that a teller cannot open stays unchecked: {names} closes the list "
        "without it, and it counts nowhere"
    )


def _caution_of(study: SealedStudy, unopened: list[dict[str, Any]], left_out: list[str]) -> None:
    """Say which ballots the list leaves out, and what follows from that."""
    from privsketch_studies.sealing.lists import UNFIT, unopened_words

    for ballot in unopened:
        caution(
            f"the ballot of {ballot['holder']} is left out: "
            f"{unopened_words(study, ballot['tellers'])}. Before you publish this list, you may "
            "close another one with the ballot"
        )
    for name in left_out:
        caution(
            f"the ballot of {name} is left out: {UNFIT}. {name} must not seal again, which would "
            "cost alone a second time; the tallies end the entry in its ledger (privsketch study "
            "settle --tally)"
        )


def _checked_beside(study: SealedStudy, ballots: tuple[Path, ...]) -> list[CheckedBallots]:
    """Return what tellers have checked, from the folders of the ballots."""
    from privsketch_studies.sealing.lists import checked_files_in

    folders = dict.fromkeys(path if path.is_dir() else path.parent for path in ballots)
    return [checked for folder in folders for checked in checked_files_in(study, folder)]


@click.command()
@STUDY
@click.argument("ballots", nargs=-1, required=True, type=PATH)
@click.option("--list", "list_file", type=PATH, required=True, help="The closed list.")
@key_option("The teller's key for this study.")
@mailbox_option("Folder to search for an earlier tally of yours; by default that of the ballots.")
@files_option("--checked", "checked_files", _CHECKED_HELP)
@output_option("File of the tally.")
@PASSPHRASE_FILE
@FORCE
@JSON
def tally(
    study_file: Path,
    ballots: tuple[Path, ...],
    list_file: Path,
    key_file: Path,
    mailbox: Path | None,
    checked_files: tuple[Path, ...],
    output: Path,
    passphrase_file: Path | None,
    force: bool,
) -> None:
    """Add up your shares of the listed ballots, once for each study key.

    The command repeats all checks, with the results of the other tellers: it names a ballot that
    does not add up before it uses your key. A repeat returns the same bytes, and any other list is
    refused. The tally is public; it reveals nothing without the tallies of all other tellers.

    \b
    privsketch study tally s.study mailbox/ --list s.closed --key a.study.key \\
               -o a.tally
    """
    import privsketch_studies as studies

    study = studies.SealedStudy.load(study_file)
    require_available(output, force, "it would be replaced")
    key = opened_key(key_file, passphrase_file)
    folder = mailbox or (ballots[0] if ballots[0].is_dir() else ballots[0].parent)
    checked = list(checked_files) or _checked_beside(study, ballots)
    result = studies.tally(
        study, list(ballots), list_file, key=key, checked=checked, mailbox=folder
    )
    result.save(output)
    say(f"tally       of {key.name}, over {len(result.holders)} ballots")
    say(f"list        {result.closed_list}")
    say_written(output)
    say(f"next        publish it; once the total is joined, destroy {key_file} and the ballots")
    say("            (privsketch study destroy)")
    answer(
        written=[output],
        fingerprint=study.fingerprint,
        teller=key.name,
        list=result.closed_list,
        n_ballots=len(result.holders),
    )


@click.command()
@STUDY
@click.argument("tallies", nargs=-1, required=True, type=PATH)
@output_option("File of the total, a sketch.")
@FORCE
@JSON
def join(study_file: Path, tallies: tuple[Path, ...], output: Path, force: bool) -> None:
    """Add up the tallies of all tellers to the total.

    The total is an ordinary sketch. Nobody sees the holders' parts, so nobody can compare them: a
    holder in other units, or with a shifted column, is in the total unnoticed.

    \b
    privsketch study join s.study *.tally -o total.sketch
    privsketch learn total.sketch -k 10 -o model.json
    """
    import privsketch_studies as studies
    from privsketch.cli.shell.facts import sketch_facts
    from privsketch_studies.sealing.join import NOT_COMPARED

    study = studies.SealedStudy.load(study_file)
    require_available(output, force, "it would be replaced")
    total = studies.join(study, list(tallies))
    total.save(output)
    say(total.receipt.describe())
    caution(NOT_COMPARED)
    say_written(output)
    say("next        tellers destroy study keys and ballots (privsketch study destroy)")
    say("next        holders end the entries in their ledgers (privsketch study settle)")
    if wants_json():
        answer(written=[output], study=study.fingerprint, **sketch_facts(total))
