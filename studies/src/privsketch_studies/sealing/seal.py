"""`seal`: a holder's records to its ballot. It may be cast once in a study, ever."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from privsketch._base.errors import (
    AccessError,
    BudgetError,
    ParameterError,
    PrivsketchError,
    RecordError,
)
from privsketch.design.cautions import warn_of
from privsketch.facts.budget import exact, number_text, require_limits
from privsketch.ledger.contents import Entry, Reservation
from privsketch.ledger.cost import Cost
from privsketch.ledger.entry import LedgerName, entered, named
from privsketch.signing.keys import Key, PublicKey
from privsketch.signing.trusted import found_key, pinned_keys
from privsketch.sketching.build import cost_of_design, engine_sums
from privsketch.sketching.sums import ExactSums
from privsketch.tables.marks import noter_of
from privsketch.tables.reading import checked_missing, stops_nothing
from privsketch.tables.untyped.format import FileFormat
from privsketch_studies.errors import StudyError
from privsketch_studies.sealing.ballots import SUFFIX, Ballot, insecure_of, make_ballot, samplers_of
from privsketch_studies.sealing.cards import checked_alone
from privsketch_studies.sealing.once import (
    ballot_slot,
    entry_slot,
    gone_slot,
    keep_once,
    kept,
    require_keepable,
)
from privsketch_studies.sealing.splitting import as_words, with_checks
from privsketch_studies.sealing.study import SealedStudy

_LOST = (
    "the ledger has an entry of a ballot in this study, which is neither kept here nor in the "
    "mailbox: if it was handed out, look for it, since another one costs alone again; if the "
    "process was stopped before it was written, nobody has seen it"
)

Trusted = Iterable[PublicKey | str | PathLike[str]]


def seal(
    data: Any,
    study: SealedStudy,
    *,
    key: Key,
    accept_alone: float,
    trusted: Trusted | None = None,
    mailbox: str | PathLike[str] | None = None,
    max_epsilon: float | None = None,
    max_delta: float | None = None,
    columns: Sequence[str | int] | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
    decimal: str = ".",
    encoding: str = "utf-8",
    sheet: str | None = None,
    quotes: bool | None = None,
    n_records: int | None = None,
    missing: str = "error",
    unreadable: str = "error",
    n_threads: int | None = None,
    engine: str | None = None,
    n_workers: int | None = None,
    scheduler: Any = None,
    progress: Callable[[int], None] | None = None,
    ledger: LedgerName = None,
) -> Ballot:
    """Read records once and seal their noisy sums into a ballot.

    Charges: epsilon and delta of the design, for the total; and "alone" for the case that all
    others join forces. Both count from now on, once: a second call gives the ballot of the first,
    whatever the records, and costs nothing.

    Parameters
    ----------
    data : array, table, path, list of paths, iterable of blocks, Dask collection, Spark DataFrame
        As for `sketch`. A holder without records casts a ballot too: its absence would tell.
    study : SealedStudy
        Signed by all tellers, one of whom this holder has pinned, or is.
    key : Key
        The holder's, which is on the roster.
    accept_alone : float
        The largest epsilon that this holder accepts for the case that all tellers, or all other
        holders, join forces. It has no default.
    trusted : list of PublicKey, path or name, optional
        Whose signatures count among the tellers'; all pinned keys if left out.
    mailbox : path, optional
        A folder of ballots: one of this key is looked for there before anything is read. Another
        machine may have cast it, or this one before it was brought back from a backup.
    max_epsilon, max_delta, columns, header, delimiter, decimal, encoding, sheet, quotes
        As for `sketch`.
    n_records, missing, unreadable
        As for `sketch`.
    n_threads, engine, n_workers, scheduler, progress
        As for `sketch`.
    ledger : (path, name), optional
        As for `sketch`. The entry stays reserved until the study ends.

    Returns
    -------
    Ballot
        To be put where tellers find it; nothing in it is secret.
    """
    holder = require_sealable(study, key, accept_alone, trusted, max_epsilon, max_delta)
    slot = ballot_slot(study.digest, key.fingerprint)
    earlier = earlier_ballot(study, key.public, mailbox)
    if earlier is not None:
        warn_of(["a ballot was cast in this study before: it is given again, and nothing is read"])
        _enter_earlier(study, holder, ledger)
        return Ballot.from_bytes(keep_once(slot, earlier.to_bytes()), str(slot))
    if study.is_late():
        raise StudyError(f"the last day to cast a ballot was {study.last_day} (UTC)")
    require_keepable(slot)
    if entries_of_ballot(study, holder, ledger, "reserved"):
        warn_of([_LOST])  # people may make an error of it: before it is spent
    design = study.design
    missing_to_center = checked_missing(missing, design.schema)
    format = FileFormat(header, delimiter, decimal, encoding, sheet, quotes, n_records, unreadable)
    with entered(
        ledger,
        lambda: cost_of_design(design),
        what=what_of(study),
        source=holder,
        alone=lambda: cost_alone(study),
        is_total=stops_nothing(design.schema, format, to_center=missing_to_center),
    ) as entry:
        noter = noter_of(entry.key, design.schema)
        found = engine_sums(
            data,
            design,
            engine=engine,
            columns=columns,
            format=format,
            missing_to_center=missing_to_center,
            n_threads=n_threads,
            n_workers=n_workers,
            scheduler=scheduler,
            progress=progress,
            noter=noter,
        )
        if noter is not None:
            noter.add(found.marks)
            entry.saw(noter)
        ballot = sealed_sums(study, found, key, holder)
        if entry.reserved is not None:
            keep_once(entry_slot(study.digest, ballot.digest), entry.reserved.id.encode("ascii"))
        stands = Ballot.from_bytes(keep_once(slot, ballot.to_bytes()), str(slot))
        if stands.digest != ballot.digest and entry.reserved is not None:
            _take_back(study, holder, ledger, entry.reserved, stands)
    return stands


def sealed_sums(study: SealedStudy, found: ExactSums, key: Key, holder: str) -> Ballot:
    """Noise, check words, shares; exact sums do not leave this function."""
    if study.counts_records and found.n_records == 0:
        raise RecordError(
            "the table has no records: under `neighbours='replace'` the number of records is "
            "public and must be at least 1"
        )
    exact_words = study.design.sum_noise.weighted(found.sums, found.n_records, n_kept=found.n_kept)
    noisy, receipt = study.sharing.draw_holder(exact_words, source=holder)
    values = as_words(noisy)
    if study.counts_records:
        count = np.full((len(values), 1), found.n_records, dtype=np.uint64)
        values = np.concatenate([values, count], axis=1)
    sampler = insecure_of(samplers_of(receipt))
    return make_ballot(study, with_checks(values, study.weights), key, sampler)


def require_sealable(
    study: SealedStudy,
    key: Key,
    accept_alone: float,
    trusted: Trusted | None = None,
    max_epsilon: float | None = None,
    max_delta: float | None = None,
) -> str:
    """The holder's name; an error unless it may cast a ballot. No record is read."""
    if not isinstance(study, SealedStudy):
        raise ParameterError(f"study: expected a SealedStudy, got {type(study).__name__}")
    alone = checked_alone(accept_alone)
    holder = study.holders[study.place_of(key.public)]
    study.require_open()
    keys = pinned_keys() if trusted is None else [found_key(item) for item in trusted]
    known = {one.identity for one in keys} | {key.public.identity}
    if not any(card.key.identity in known for card in study.tellers):
        raise StudyError(
            "none of the tellers is pinned here: compare the fingerprint of one that you trust "
            "with its holder, by phone, and pin it (privsketch key trust FILE.pub)"
        )
    if not study.is_accepted_by(alone):
        raise BudgetError(
            f"the study asks you to accept alone = {number_text(study.alone)}, for the case that "
            f"all others join forces, which is above `accept_alone={number_text(alone)}`; no "
            "record was read"
        )
    require_limits(study.design.budget, max_epsilon, max_delta)
    return holder.name


def earlier_ballot(
    study: SealedStudy, key: PublicKey, mailbox: str | PathLike[str] | None = None
) -> Ballot | None:
    """The ballot that a holder has cast in a study, here or by what lies in a mailbox; or None."""
    if kept(gone_slot(study.digest, key.fingerprint)) is not None:
        raise StudyError("a ballot was cast in this study, and destroyed when the study had ended")
    slot = ballot_slot(study.digest, key.fingerprint)
    stored = kept(slot)
    if stored is not None:
        return Ballot.from_bytes(stored, str(slot))
    return None if mailbox is None else _own_ballot(study, Path(mailbox), key)


def _own_ballot(study: SealedStudy, mailbox: Path, key: PublicKey) -> Ballot | None:
    """The ballot of this holder that lies in a mailbox; an error if there are two."""
    if not mailbox.is_dir():
        raise AccessError(f"{mailbox}: no folder, so that no earlier ballot can be looked for")
    found: dict[str, Ballot] = {}
    for file in sorted(mailbox.glob(f"*{SUFFIX}")):
        try:
            one = Ballot.load(file)
        except PrivsketchError:
            continue  # whatever it is, this key has not signed it
        if (one.study, one.holder) == (study.digest, key.fingerprint):
            one.require_of(study, str(file))
            found[one.digest] = one
    if len(found) > 1:
        raise StudyError(
            f"{mailbox}: {len(found)} ballots of yours in this study lie there, and a holder casts "
            "one; each of them costs alone. Nothing was read"
        )
    return next(iter(found.values()), None)


def _enter_earlier(study: SealedStudy, holder: str, ledger: LedgerName) -> None:
    """Reserve what an earlier ballot costs in a ledger that does not know of it."""
    found = named(ledger)
    if found is not None and not entries_of_ballot(study, holder, ledger):
        book, name = found
        cost, alone = cost_of_design(study.design), cost_alone(study)
        book.reserve(name, cost, what=what_of(study), source=holder, alone=alone)


def _take_back(
    study: SealedStudy, holder: str, ledger: LedgerName, own: Reservation, stands: Ballot
) -> None:
    """Take the entry of a ballot back that nobody has seen, if the one that stands has its own.

    Two have sealed at once, and the other one was first. If its entry is in another ledger or in
    none, this one counts for it.
    """
    other = kept(entry_slot(study.digest, stands.digest))
    found = named(ledger)
    known = [entry.id for entry in entries_of_ballot(study, holder, ledger, "reserved")]
    if found is not None and other is not None and other.decode("ascii") in known:
        found[0].commit(own, void=True)


def entries_of_ballot(
    study: SealedStudy, holder: str, ledger: LedgerName, state: str | None = None
) -> list[Entry]:
    """What a ledger has about a holder's ballot in a study, the oldest first."""
    found = named(ledger)
    if found is None:
        return []
    book, name = found
    return [
        entry
        for entry in book.entries(name)
        if (entry.what, entry.source) == (what_of(study), holder) and state in (None, entry.state)
    ]


def what_of(study: SealedStudy) -> str:
    """How a ledger calls a ballot of a study."""
    return f"ballot in study {study.fingerprint}"


def cost_alone(study: SealedStudy) -> Cost:
    """What a ballot costs if all others join forces, for a ledger."""
    cost, budget = study.sharing.cost_alone(), study.design.budget
    rho = None if cost.rho is None else exact(cost.rho)
    return Cost(exact(cost.epsilon), exact(cost.delta), rho, budget.neighbours, budget.unit)
