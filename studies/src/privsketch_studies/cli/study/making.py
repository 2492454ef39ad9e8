"""Commands on a study itself: enrol, make, accept, show, void, destroy, settle, rehearse."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from privsketch.cli.shell.answer import JSON, answer, say
from privsketch.cli.shell.options import PATH, choice, ledger_options
from privsketch.cli.shell.output import caution, count_text, note, require_available, say_written
from privsketch.cli.shell.signing import PASSPHRASE_FILE, given_passphrase, opened_key

STUDY = click.argument("study_file", metavar="STUDY", type=PATH)


def key_option(text: str) -> Callable[[Any], Any]:
    """Return the option for a private key, with this help text."""
    return click.option("--key", "key_file", type=PATH, required=True, help=text)


def output_option(text: str) -> Callable[[Any], Any]:
    """Return the option for the output file, with this help text."""
    return click.option("-o", "--output", type=PATH, required=True, help=text)


def files_option(name: str, parameter: str, text: str) -> Callable[[Any], Any]:
    """Return an option for several files, with this help text."""
    return click.option(name, parameter, type=PATH, multiple=True, help=text)


def mailbox_option(text: str) -> Callable[[Any], Any]:
    """Return the option for a folder to search, with this help text."""
    return click.option("--mailbox", type=PATH, metavar="FOLDER", help=text)


FORCE = click.option("--force", is_flag=True, help="Replace an existing output.")


@click.command()
@click.argument("design_file", metavar="DESIGN", type=PATH)
@key_option("Your own private key, which signs the card.")
@click.option(
    "--accept-alone",
    type=float,
    metavar="EPSILON",
    help="As a holder: the largest epsilon that you accept if everyone else colludes. There is no "
    "default; without it the command says what the design asks for.",
)
@click.option("--teller", is_flag=True, help="As a teller: make a new key for this study.")
@click.option(
    "--study-key",
    "study_key_file",
    type=PATH,
    help="With --teller: file of the new key. By default it lies beside your own key and has the "
    "card's name with .study.key.",
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

    The card is public: send it to the person who makes the study. A teller's new key is secret and
    has the passphrase of the teller's own key. Keep it on this machine and out of backups: only
    this machine records what the key has done, and only here can it accept, tally or end a study.

    \b
    privsketch study enrol design.json --key h3.key --accept-alone 0.25 -o h3.card
    privsketch study enrol design.json --key a.key --teller -o a.card
    """
    from privsketch._base.errors import AccessError
    from privsketch._base.formats import require_writable
    from privsketch.cli.shell.signing import load_design
    from privsketch.signing.keys import Key, is_locked
    from privsketch_studies.sealing.cards import Card, usual_alone

    if study_key_file is not None and not teller:
        raise click.UsageError("--study-key goes with --teller")
    design = load_design(design_file, ())
    asked = usual_alone(design)
    if teller == (accept_alone is not None):
        raise click.UsageError(
            f"give either --accept-alone EPSILON, as a holder, or --teller; {_asked_words(asked)}"
        )
    if accept_alone is not None and asked is not None and accept_alone < asked * (1 - 1e-9):
        caution(f"{_asked_words(asked)}; a study with these settings cannot use this card")
    require_available(output, None, "a card is never replaced")
    if not teller:
        key = opened_key(key_file, passphrase_file)
        card = Card.holder(design, key=key, accept_alone=float(accept_alone or 0.0))
        card.save(output)
        say(card.describe())
        say_written(output)
        say("next        send the card to the person who makes the study; nothing in it is secret")
        answer(written=[output], **card.facts(), study_key_file=None)
        return
    # By default beside the teller's own key, because cards lie where everyone finds them.
    path = study_key_file or key_file.parent / output.with_suffix(".study.key").name
    if path.is_symlink() or path.exists():
        raise AccessError(f"{path} exists; a key is never overwritten")
    require_writable(path)
    passphrase = given_passphrase(key_file, passphrase_file) if is_locked(key_file) else None
    key = Key.load(key_file, passphrase=passphrase)
    card, study_key = Card.teller(design, key=key)
    study_key.save(path, passphrase=passphrase)
    card.save(output)
    if passphrase is None:
        caution(f"{path} has no passphrase: anyone who can read it can open ballots")
    say(card.describe())
    say(f"secret      {path}: only for you, only on this machine, in no backup")
    say(f"public      {output}: send it to the person who makes the study")
    answer(written=[path, output], **card.facts(), study_key_file=path)


def _asked_words(asked: float | None) -> str:
    """Return what holders have to accept for a study of a design with the usual settings."""
    if asked is None:
        return (
            "the design does not state the number of holders, on which it depends what a holder "
            "has to accept; `privsketch design --holders` states it"
        )
    from privsketch_studies.sealing.cards import alone_text

    least = alone_text(asked)
    return f"a study of this design with the usual settings asks for --accept-alone {least} or more"


@click.command()
@STUDY
@key_option("The teller's own private key, not the one for the study.")
@PASSPHRASE_FILE
@JSON
def accept(study_file: Path, key_file: Path, passphrase_file: Path | None) -> None:
    """Sign a study as one of its tellers: once for each study key.

    Use the machine where you enrolled, and where you will tally: no other machine knows what your
    study key has done. Read the study first (`privsketch study show`), and compare its fingerprint
    with the others by phone.

    \b
    privsketch study accept s.study --key a.key
    """
    from privsketch.signing.signature import digit_groups
    from privsketch_studies.sealing.study import SealedStudy, acceptance_path

    study = SealedStudy.load(study_file)
    key = opened_key(key_file, passphrase_file)
    signature = study.accept(key)
    path = acceptance_path(study_file, signature.fingerprint)
    signature.save(path)
    say(f"accepted    study {digit_groups(study.fingerprint)}, as teller {key.name}")
    missing = [card.name for card in study.tellers if card.name not in study.accepted]
    waiting = f"waiting     for {', '.join(missing)} to accept"
    say(waiting if missing else "open        all tellers have accepted")
    say(f"next        put {path.name} beside the study, where everyone finds it")
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
    help="Who adds noise: holders share one, or each teller adds one. The default is holders if "
    "delta > 0.",
    open=True,
)
@click.option("--min-holders", type=int, help="Fewest ballots to tally; two thirds by default.")
@click.option(
    "--colluding",
    type=int,
    help="Number of holders who may collude with dishonest tellers; a third by default.",
)
@click.option("--last-day", metavar="DATE", help="Last day to cast ballots, like 2026-12-31.")
@click.option(
    "--owner",
    "owner_file",
    type=PATH,
    metavar="FILE.pub",
    help="Public key of the person who closes the list of ballots; by default any teller may.",
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
    """Make a study from a design and cards.

    The study fixes the participants and how they share the noise. A card of a teller is for one
    study: a study key is used once.

    \b
    privsketch study make design.json *.card --owner me.pub -o s.study
    """
    from privsketch.cli.shell.signing import load_design
    from privsketch.signing.keys import PublicKey
    from privsketch_studies.sealing.study import SealedStudy

    require_available(output, None, "ballots may have been cast in it")
    study = SealedStudy(
        load_design(design_file, ()),
        cards=list(cards),
        noise=noise,
        min_holders=min_holders,
        colluding=colluding,
        last_day=last_day,
        owner=None if owner_file is None else PublicKey.load(owner_file),
    )
    study.save(output)
    say(study.describe())
    for text in study.cautions:
        caution(text)
    say_written(output)
    say("next        compare the fingerprint with all by phone; tellers: privsketch study accept")
    answer(written=[output], **study.facts())


@click.command()
@STUDY
@mailbox_option("Folder of ballots; by default that of the study.")
@click.option("--me", metavar="KEY", help="Your public key: show your own next steps only.")
@JSON
def show(study_file: Path, mailbox: Path | None, me: str | None) -> None:
    """Describe a study, its progress and the next steps.

    \b
    privsketch study show s.study --me h3.pub
    """
    from privsketch.signing.trusted import resolve_key
    from privsketch_studies.cli.study.checking import mailbox_facts, next_steps
    from privsketch_studies.sealing.lists import UNFIT, unopened_words
    from privsketch_studies.sealing.study import SealedStudy

    study = SealedStudy.load(study_file)
    folder = study_file.parent if mailbox is None else mailbox
    files = mailbox_facts(study, folder)
    steps = next_steps(study, files, None if me is None else resolve_key(me))
    say(study.describe())
    for text in study.cautions:
        caution(text)
    closed = "closed" if files["is_closed"] else "open"
    void = f", void by the statement of {', '.join(files['voids'])}" if files["voids"] else ""
    n_ballots, n_tallies = len(files["ballots"]), len(files["tallies"])
    counts = f"{count_text(n_ballots, 'ballot')}, list {closed}, {count_text(n_tallies, 'tally')}"
    say(f"mailbox     {counts}{void}")
    for name in files["unfit"]:
        caution(f"the ballot of {name}: {UNFIT}; privsketch study close leaves it out")
    for ballot in files["unopened"]:
        caution(f"the ballot of {ballot['holder']}: {unopened_words(study, ballot['tellers'])}")
    for name in files["not_listed"]:
        caution(f"the ballot of {name} is not on the closed list and counts nowhere")
    for text in steps:
        say(f"next        {text}")
    answer(**study.facts(), mailbox=files, next=steps)


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
@mailbox_option("Folder to search for an earlier tally of yours; by default that of the study.")
@output_option("File of the statement, for all holders.")
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
    """End a study without a total, as a teller.

    The command destroys the study key and writes a statement of that. It refuses a key that has
    tallied or was made elsewhere. Holders get their costs back if all tellers make this statement,
    or one whom they trust (`privsketch study settle`).

    \b
    privsketch study void s.study --key a.key --study-key a.study.key -o a.void
    """
    from privsketch.signing.signature import digit_groups
    from privsketch_studies.sealing.study import SealedStudy
    from privsketch_studies.sealing.void import void_study

    study = SealedStudy.load(study_file)
    require_available(output, None, "a statement is never replaced")
    key = opened_key(key_file, passphrase_file)
    folder = mailbox or study_file.parent
    statement = void_study(study, key=key, study_key_file=study_key_file, mailbox=folder)
    statement.save(output)
    say(f"void        study {digit_groups(study.fingerprint)}, by the statement of {key.name}")
    say(f"destroyed   {study_key_file}")
    say_written(output)
    answer(written=[output], fingerprint=study.fingerprint, teller=key.name)


@click.command()
@STUDY
@click.argument("ballots", nargs=-1, type=PATH)
@files_option(
    "--study-key", "study_key_files", "File of your key for this study, which is DESTROYED."
)
@files_option(
    "--tally",
    "tally_files",
    "Tally of a teller; repeat it for all tellers, to show that the study has ended.",
)
@files_option("--void", "void_files", "Statement that the study is void, which shows that too.")
@JSON
def destroy(
    study_file: Path,
    ballots: tuple[Path, ...],
    study_key_files: tuple[Path, ...],
    tally_files: tuple[Path, ...],
    void_files: tuple[Path, ...],
) -> None:
    """Destroy your study key and ballots when a study has ended. This cannot be undone.

    As long as all study keys exist, someone who gets them and the ballots can open what each holder
    sealed. The command refuses a study that has not ended: all tellers must have tallied, or one of
    them states that the study is void.

    BALLOTS are files or folders; only ballots of this study are removed from them. Copies of
    ballots that holders sealed as this user are removed too, and their digests stay.

    \b
    privsketch study destroy s.study mailbox/ --study-key a.study.key \\
               --tally a.tally --tally b.tally
    """
    from privsketch_studies.sealing.study import SealedStudy
    from privsketch_studies.sealing.void import VoidStudy, destroy

    if not tally_files and not void_files:
        raise click.UsageError("give --tally FILE for every teller, or --void FILE")
    study = SealedStudy.load(study_file)
    destroyed = destroy(
        study,
        study_key_files=study_key_files,
        ballots=ballots,
        tallies=tally_files,
        voids=[VoidStudy.load(file) for file in void_files],
    )
    for path in destroyed.study_keys:
        say(f"destroyed   {path}: overwritten and removed; it can open nothing now")
    copies = count_text(destroyed.n_kept, "copy of a holder", "copies of holders")
    say(f"removed     {count_text(len(destroyed.ballots), 'ballot')}, {copies} here")
    if destroyed.study_keys:
        caution(
            "destroy copies of the key yourself: in backups, snapshots, synchronised folders. A "
            "solid-state disk may keep overwritten data, which only the passphrase and disk "
            "encryption protect"
        )
    else:
        note("no study key was destroyed; name it with --study-key", None)
    answer(
        fingerprint=study.fingerprint,
        study_keys=[str(path) for path in destroyed.study_keys],
        ballots=[str(path) for path in destroyed.ballots],
        n_kept=destroyed.n_kept,
    )


@click.command()
@STUDY
@click.option("--holder", required=True, help="Holder of the ballot: the name on the roster.")
@click.option("--total", "total_file", type=PATH, help="Total of the study, a sketch file.")
@files_option(
    "--void", "void_files", "Statement of a teller that the study is void; repeat it for others."
)
@files_option(
    "--tally",
    "tally_files",
    "Tally of a teller, if your ballot was left out; repeat it for all tellers.",
)
@click.option(
    "--trust",
    "trusted",
    metavar="KEY",
    help="With --void: the teller whose statement is enough for you: a .pub file, or the name of a "
    "pinned key. By default the statements of all tellers are needed.",
)
@mailbox_option(
    "With --void: another folder to search for a tally or a total, which prove that the study is "
    "not void. The folders of STUDY and of --void are always searched, with all below them."
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
    """End the entry of a ballot in your ledger.

    The total ends it, or statements that the study is void. A ballot counts from the moment it is
    sealed. Its cost is taken back if all tellers state that the study is void. If a teller that you
    name with --trust states it, the cost "alone" is taken back as well. An entry is ended once. A
    tally or a total beside STUDY or the statements proves that the study is not void.

    \b
    privsketch study settle s.study --holder h3 --total s.sketch --ledger l.ledger
    privsketch study settle s.study --holder h3 --void a.void --trust a \\
               --ledger l.ledger
    """
    from privsketch.cli.shell.spending import echo_warnings
    from privsketch.sketching.sketch import Sketch
    from privsketch_studies.sealing.study import SealedStudy
    from privsketch_studies.sealing.void import VoidStudy, settle

    if [total_file is not None, bool(void_files), bool(tally_files)].count(True) != 1:
        raise click.UsageError("give one of --total SKETCH, --void FILE and --tally FILE")
    if trusted is not None and not void_files:
        raise click.UsageError("--trust goes with --void")
    study = SealedStudy.load(study_file)
    folders = [study_file.parent, *(file.parent for file in void_files)]
    folders += [] if mailbox is None else [mailbox]
    with echo_warnings():
        settled = settle(
            study,
            holder,
            ledger=ledger,
            total=None if total_file is None else Sketch.load(total_file),
            voids=[VoidStudy.load(file) for file in void_files],
            tallies=tally_files,
            trusted=trusted,
            mailbox=folders,
        )
    cost = "the receipt of the total"
    if settled.is_free:
        cost = "no cost" if settled.is_alone_free else 'no cost but "alone", which stays'
    entries = count_text(settled.n_entries, "entry")
    say(f"settled     {entries} of {holder}, now with {cost}")
    answer(
        fingerprint=study.fingerprint,
        holder=holder,
        n_entries=settled.n_entries,
        is_void=bool(void_files),
        is_free=settled.is_free,
        is_alone_free=settled.is_alone_free,
    )
