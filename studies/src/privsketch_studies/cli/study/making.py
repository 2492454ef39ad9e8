"""Commands about the study itself: enrol, make, accept, show, void, destroy, settle, rehearse."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from privsketch.cli.shell.answer import JSON, answer, say, wants_json
from privsketch.cli.shell.options import PATH, choice, ledger_options
from privsketch.cli.shell.output import caution, note, require_free, say_written
from privsketch.cli.shell.signing import PASSPHRASE_FILE, given_passphrase, opened_key

STUDY = click.argument("study_file", metavar="STUDY", type=PATH)


def key_option(words: str) -> Callable[[Any], Any]:
    """The option for somebody's private key."""
    return click.option("--key", "key_file", type=PATH, required=True, help=words)


def output_option(words: str) -> Callable[[Any], Any]:
    """The option for the file that is written."""
    return click.option("-o", "--output", type=PATH, required=True, help=words)


FORCE = click.option("--force", is_flag=True, help="Replace an existing output.")


@click.command()
@click.argument("design_file", metavar="DESIGN", type=PATH)
@key_option("Your own private key, which signs the card.")
@click.option(
    "--accept-alone",
    type=float,
    metavar="EPSILON",
    help="As a holder: the largest epsilon that you accept if everybody else joins forces. There "
    "is no default.",
)
@click.option("--teller", is_flag=True, help="As a teller: a new key for this study is made.")
@click.option(
    "--study-key",
    "study_key_file",
    type=PATH,
    help="With --teller: file of the new key; beside your own key if left out, with the card's "
    "name and .study.key.",
)
@output_option("File of the card.")
@PASSPHRASE_FILE
@JSON
def enrol(
    design_file: Path,
    key_file: Path,
    accept_alone: float | None,
    teller: bool,
    study_key_file: Path | None,
    output: Path,
    passphrase_file: Path | None,
) -> None:
    """Enrol in a sealed study: as a holder of records, or as a teller.

    The card is public: send it to whoever makes the study. A teller's new key is secret, has the
    passphrase of the teller's own key, and must stay on this machine and out of backups: here it
    is written down what it does, and on no other machine does it accept, tally or end a study.

    \b
    privsketch study enrol design.json --key h3.key --accept-alone 0.25 -o h3.card
    privsketch study enrol design.json --key a.key --teller -o a.card
    """
    from privsketch._base.errors import AccessError
    from privsketch._base.formats import require_writable
    from privsketch.cli.shell.signing import load_design
    from privsketch.signing.keys import Key, is_locked
    from privsketch_studies.sealing.cards import Card

    if teller == (accept_alone is not None):
        raise click.UsageError("give one of --accept-alone EPSILON, for holders, and --teller")
    if study_key_file is not None and not teller:
        raise click.UsageError("--study-key goes with --teller")
    design = load_design(design_file, ())
    require_free(output, False, "a card is not replaced")
    if not teller:
        key = opened_key(key_file, passphrase_file)
        card = Card.holder(design, key=key, accept_alone=float(accept_alone or 0.0))
        card.save(output)
        say(card.describe())
        say_written(output)
        say("next        send the card to whoever makes the study; nothing in it is secret")
        answer(written=[output], **card.facts(), study_key_file=None)
        return
    # Beside the teller's own key: cards are put where everybody finds them.
    path = study_key_file or key_file.parent / output.with_suffix(".study.key").name
    if path.is_symlink() or path.exists():
        raise AccessError(f"{path} exists; a key is never overwritten")
    require_writable(path)
    passphrase = given_passphrase(key_file, passphrase_file) if is_locked(key_file) else None
    key = Key.load(key_file, passphrase=passphrase)
    card, fresh = Card.teller(design, key=key)
    fresh.save(path, passphrase=passphrase)
    card.save(output)
    if passphrase is None:
        caution(f"{path} has no passphrase: whoever can read it can open ballots")
    say(card.describe())
    say(f"secret      {path}: for you alone, on this machine alone, in no backup; you destroy it")
    say(f"public      {output}: send it to whoever makes the study")
    answer(written=[path, output], **card.facts(), study_key_file=path)


@click.command()
@STUDY
@key_option("The teller's own private key, not the one for the study.")
@PASSPHRASE_FILE
@JSON
def accept(study_file: Path, key_file: Path, passphrase_file: Path | None) -> None:
    """Sign a study as one of its tellers: once for a study key, ever.

    Do it on the machine where you enrolled, and which will tally: no other one knows what your
    study key has done. Look at the study first (`privsketch study show`), and read its
    fingerprint out to the others.

    \b
    privsketch study accept s.study --key a.key
    """
    from privsketch.signing.signature import spoken
    from privsketch_studies.sealing.study import SealedStudy, acceptance_path

    study = SealedStudy.load(study_file)
    key = opened_key(key_file, passphrase_file)
    signature = study.accept(key)
    path = acceptance_path(study_file, signature)
    signature.save(path)
    say(f"accepted    study {spoken(study.fingerprint)}, as teller {key.name}")
    missing = [card.name for card in study.tellers if card.name not in study.accepted]
    say(f"missing     {', '.join(missing)}" if missing else "open        all tellers have accepted")
    say(f"next        put {path.name} beside the study, for everybody")
    answer(
        written=[path],
        fingerprint=study.fingerprint,
        teller=key.name,
        accepted=list(study.accepted),
        is_open=study.is_open,
    )


@click.command()
@click.argument("design_file", metavar="DESIGN", type=PATH)
@click.argument("cards", nargs=-1, required=True, type=PATH)
@choice(
    "--noise",
    ["holders", "tellers"],
    help="Who adds noise: holders share one, or each teller adds one. Holders if delta > 0.",
    open=True,
)
@click.option("--min-holders", type=int, help="Least number of ballots; two thirds if left out.")
@click.option(
    "--colluding",
    type=int,
    help="Holders who may pool what they know with cheating tellers; a third if left out.",
)
@click.option("--last-day", metavar="DATE", help="Until when ballots are cast, like 2026-12-31.")
@click.option(
    "--owner",
    "owner_file",
    type=PATH,
    metavar="FILE.pub",
    help="Public key of who closes the list of ballots; every teller may if left out.",
)
@output_option("File of the study.")
@JSON
def make(
    design_file: Path,
    cards: tuple[Path, ...],
    noise: str | None,
    min_holders: int | None,
    colluding: int | None,
    last_day: str | None,
    owner_file: Path | None,
    output: Path,
) -> None:
    """Freeze a study: its design, all who take part, and how noise is shared.

    Every study has a name of its own, so that cards serve again only with new study keys.

    \b
    privsketch study make design.json *.card --owner me.pub -o s.study
    """
    from privsketch.cli.shell.signing import load_design
    from privsketch.signing.keys import PublicKey
    from privsketch_studies.sealing.study import SealedStudy

    require_free(output, False, "a study is not replaced: ballots may have been cast in it")
    made = SealedStudy(
        load_design(design_file, ()),
        cards=list(cards),
        noise=noise,
        min_holders=min_holders,
        colluding=colluding,
        last_day=last_day,
        owner=None if owner_file is None else PublicKey.load(owner_file),
    )
    made.save(output)
    say(made.describe())
    for text in made.cautions:
        caution(text)
    say_written(output)
    say("next        read the fingerprint out to all; tellers: privsketch study accept")
    answer(written=[output], **made.facts())


@click.command()
@STUDY
@click.option(
    "--mailbox", type=PATH, metavar="FOLDER", help="Where ballots lie; the study's own folder."
)
@click.option("--me", metavar="KEY", help="Your public key: what is expected of you alone.")
@JSON
def show(study_file: Path, mailbox: Path | None, me: str | None) -> None:
    """Say what a study is, how far it is, and what is expected next.

    \b
    privsketch study show s.study --me h3.pub
    """
    from privsketch.signing.trusted import found_key
    from privsketch_studies.cli.study.facts import mailbox_facts, next_steps
    from privsketch_studies.sealing.lists import UNFIT, unopened_words
    from privsketch_studies.sealing.study import SealedStudy

    found = SealedStudy.load(study_file)
    folder = study_file.parent if mailbox is None else mailbox
    there = mailbox_facts(found, folder)
    steps = next_steps(found, there, None if me is None else found_key(me))
    say(found.describe())
    for text in found.cautions:
        caution(text)
    closed = "closed" if there["is_closed"] else "open"
    void = f", void by the word of {', '.join(there['voids'])}" if there["voids"] else ""
    say(f"mailbox     {len(there['ballots'])} ballots, list {closed}, "
        f"{len(there['tallies'])} tallies{void}")  # fmt: skip
    for name in there["unfit"]:
        caution(f"the ballot of {name}: {UNFIT}; privsketch study close leaves it out")
    for one in there["unopened"]:
        caution(f"the ballot of {one['holder']}: {unopened_words(one['tellers'])}")
    for text in steps:
        say(f"next        {text}")
    answer(**found.facts(), mailbox=there, next=steps)


@click.command()
@STUDY
@key_option("The teller's own private key, not the one for the study.")
@click.option(
    "--study-key",
    "study_key_file",
    type=PATH,
    required=True,
    help="File of the key for this study, which is DESTROYED.",
)
@click.option(
    "--mailbox",
    type=PATH,
    metavar="FOLDER",
    help="Where a tally of yours might lie already; the study's own folder if left out.",
)
@output_option("File that says so, for all holders.")
@PASSPHRASE_FILE
@JSON
def void(
    study_file: Path,
    key_file: Path,
    study_key_file: Path,
    mailbox: Path | None,
    output: Path,
    passphrase_file: Path | None,
) -> None:
    """End a study without a total, as a teller: destroy the study key, and say so.

    Refused if the key has tallied, and where it was not made. Holders take their costs back by the
    words of all tellers, or by that of one whom they name (`privsketch study settle`).

    \b
    privsketch study void s.study --key a.key --study-key a.study.key -o a.void
    """
    from privsketch.signing.signature import spoken
    from privsketch_studies.sealing.study import SealedStudy
    from privsketch_studies.sealing.void import void_study

    found = SealedStudy.load(study_file)
    require_free(output, False, "a statement is not replaced")
    key = opened_key(key_file, passphrase_file)
    place = mailbox or study_file.parent
    said = void_study(found, key=key, study_key_file=study_key_file, mailbox=place)
    said.save(output)
    say(f"void        study {spoken(found.fingerprint)}, as far as {key.name} can tell")
    say(f"destroyed   {study_key_file}")
    say_written(output)
    answer(written=[output], fingerprint=found.fingerprint, teller=key.name)


@click.command()
@STUDY
@click.argument("ballots", nargs=-1, type=PATH)
@click.option(
    "--study-key",
    "study_key_files",
    type=PATH,
    multiple=True,
    help="File of your key for this study, which is DESTROYED.",
)
@click.option(
    "--tally",
    "tally_files",
    type=PATH,
    multiple=True,
    help="Of every teller, which say that the study has ended; repeat it.",
)
@click.option(
    "--void", "void_files", type=PATH, multiple=True, help="Or a statement that it is void."
)
@JSON
def destroy(
    study_file: Path,
    ballots: tuple[Path, ...],
    study_key_files: tuple[Path, ...],
    tally_files: tuple[Path, ...],
    void_files: tuple[Path, ...],
) -> None:
    """Destroy your study key, and ballots, when a study has ended. It cannot be undone.

    As long as all study keys exist, whoever gets hold of them and of the ballots can open what each
    holder sealed. Refused until all tellers have tallied, or one says that the study is void.

    BALLOTS: files, or folders; those of this study are removed from them, and nothing else. Ballots
    that holders have sealed under this user are removed too; that they did stays known.

    \b
    privsketch study destroy s.study mailbox/ --study-key a.study.key \\
               --tally a.tally --tally b.tally
    """
    from privsketch_studies.sealing.destroy import destroy
    from privsketch_studies.sealing.study import SealedStudy
    from privsketch_studies.sealing.void import VoidStudy

    if not tally_files and not void_files:
        raise click.UsageError("give --tally FILE for every teller, or --void FILE")
    found = SealedStudy.load(study_file)
    gone = destroy(
        found,
        study_key_files=study_key_files,
        ballots=ballots,
        tallies=tally_files,
        voids=[VoidStudy.load(file) for file in void_files],
    )
    for path in gone.study_keys:
        say(f"destroyed   {path}: overwritten and removed; it opens nothing any more")
    say(f"removed     {len(gone.ballots)} ballots, {gone.n_kept} that were kept for holders here")
    if gone.study_keys:
        caution(
            "copies of the key are yours to destroy: in backups, snapshots, synchronised folders. "
            "A solid-state disk may keep what was overwritten; the passphrase and disk encryption "
            "are what protects it then"
        )
    else:
        note("no study key was destroyed; name it with --study-key", None)
    answer(
        fingerprint=found.fingerprint,
        study_keys=[str(path) for path in gone.study_keys],
        ballots=[str(path) for path in gone.ballots],
        n_kept=gone.n_kept,
    )


@click.command()
@STUDY
@click.option("--holder", required=True, help="Whose ballot: the name on the roster.")
@click.option("--total", "total_file", type=PATH, help="The joined total, a sketch.")
@click.option(
    "--void", "void_files", type=PATH, multiple=True, help="Statements of tellers; repeat it."
)
@click.option(
    "--tally",
    "tally_files",
    type=PATH,
    multiple=True,
    help="Tallies of every teller, if your ballot was left out; repeat it.",
)
@click.option(
    "--trust",
    "trusted",
    metavar="KEY",
    help="With --void: the one teller whose word you take: a .pub file, or the name of a pinned "
    "key. Without it, all tellers must say so.",
)
@click.option(
    "--mailbox",
    type=PATH,
    metavar="FOLDER",
    help="With --void: one more folder where a tally or a total may lie, so that it is not void. "
    "Those of STUDY and of --void are looked at in any case, and all folders below.",
)
@ledger_options
@JSON
def settle(
    study_file: Path,
    holder: str,
    total_file: Path | None,
    void_files: tuple[Path, ...],
    tally_files: tuple[Path, ...],
    trusted: str | None,
    mailbox: Path | None,
    ledger: Any,
) -> None:
    """End the entry of a ballot in your ledger: by the total, or because the study is void.

    A ballot counts from the moment it is sealed. A void takes its cost back if all tellers say so,
    and "alone" too if one says so whom you name with --trust: then its word is enough. An entry is
    ended once. No void counts where a tally or a total lies beside STUDY or the statements.

    \b
    privsketch study settle s.study --holder h3 --total total.sketch --ledger my.ledger
    privsketch study settle s.study --holder h3 --void a.void --trust a --ledger my.ledger
    """
    from privsketch.cli.shell.spending import shown_warnings
    from privsketch.sketching.sketch import Sketch
    from privsketch_studies.sealing.study import SealedStudy
    from privsketch_studies.sealing.void import VoidStudy, settle

    if [total_file is not None, bool(void_files), bool(tally_files)].count(True) != 1:
        raise click.UsageError("give one of --total SKETCH, --void FILE and --tally FILE")
    if trusted is not None and not void_files:
        raise click.UsageError("--trust goes with --void")
    found = SealedStudy.load(study_file)
    places = [study_file.parent, *(file.parent for file in void_files)]
    places += [] if mailbox is None else [mailbox]
    with shown_warnings():
        done = settle(
            found,
            holder,
            ledger=ledger,
            total=None if total_file is None else Sketch.load(total_file),
            voids=[VoidStudy.load(file) for file in void_files],
            tallies=tally_files,
            trusted=trusted,
            mailbox=places,
        )
    how = "have the receipt of the total"
    if done.is_free:
        how = "cost nothing" if done.is_alone_free else "cost nothing but alone, which stays"
    say(f"settled     {done.n_entries} entries of {holder}; they {how}")
    answer(
        fingerprint=found.fingerprint,
        holder=holder,
        n_entries=done.n_entries,
        is_void=bool(void_files),
        is_free=done.is_free,
        is_alone_free=done.is_alone_free,
    )


@click.command()
@STUDY
@click.option("--turnout", type=int, help="How many holders take part; all if left out.")
@JSON
def rehearse(study_file: Path, turnout: int | None) -> None:
    """Play a study through on this machine, with made-up records and keys that are thrown away.

    The same people, design and noise; nothing is spent, and no key of yours is touched.

    \b
    privsketch study rehearse s.study
    """
    from privsketch_studies.sealing.rehearsal import rehearse
    from privsketch_studies.sealing.study import SealedStudy

    found = SealedStudy.load(study_file)
    steps: list[str] = []

    def progress(words: str) -> None:
        steps.append(words)
        say(f"now         {words}")

    went = rehearse(found, turnout=turnout, progress=progress)
    say(f"done        {went.turnout} ballots of {went.ballot_bytes} bytes were tallied and joined")
    say(f"noise       {went.noise_ratio:.3f} of what the receipt says; near 1 is right")
    if wants_json():
        answer(
            fingerprint=found.fingerprint,
            turnout=went.turnout,
            ballot_bytes=went.ballot_bytes,
            noise_ratio=went.noise_ratio,
            steps=steps,
        )
