"""`seal`: turn a holder's records into a ballot, once in a study."""

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
from privsketch.design.validity import require_private
from privsketch.facts.budget import exact, number_text, require_limits
from privsketch.ledger.contents import Entry, Reservation
from privsketch.ledger.cost import Cost
from privsketch.ledger.entry import LedgerName, named_data_set, open_entry
from privsketch.signing.keys import Key, PublicKey
from privsketch.signing.trusted import pinned_keys, resolve_key
from privsketch.sketching.build import cost_of_design, engine_sums
from privsketch.sketching.engines.engine import Engine
from privsketch.sketching.sums import ExactSums
from privsketch.tables.marks import noter_of
from privsketch.tables.table import Table, checked_missing
from privsketch_studies.errors import StudyError
from privsketch_studies.sealing.ballots import Ballot, combined_sampler, make_ballot, samplers_of
from privsketch_studies.sealing.cards import alone_text, checked_alone
from privsketch_studies.sealing.lists import closed_list_in
from privsketch_studies.sealing.once import (
    ballot_file,
    destroyed_ballot_file,
    entry_file,
    read_state,
    require_writable_state,
    write_once,
)
from privsketch_studies.sealing.splitting import as_words, with_checks
from privsketch_studies.sealing.study import SealedStudy

_LOST = (
    "the ledger has an entry of a ballot in this study, which is neither stored here nor in the "
    "mailbox: if it was published, find it, because another one costs alone again; if the process "
    "was stopped before it was written, no one has seen it"
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
    engine: str | Engine | None = None,
    progress: Callable[[int], None] | None = None,
    ledger: LedgerName = None,
) -> Ballot:
    """Read records once and seal their noisy sums into a ballot.

    Charges: epsilon and delta of the design, for the total; and "alone" for the case that all
    others collude. Both count from now on, once: a second call returns the ballot of the first,
    whatever the records are, and costs nothing.

    Parameters
    ----------
    data : Table, array, frame, path, list of paths, iterable of blocks, Dask or Spark table
        As for `sketch`. A holder without records casts a ballot too: its absence would reveal that.
    study : SealedStudy
        Study that all tellers have signed; the holder has pinned one of them, or is one.
    key : Key
        The holder's key, which is on the roster.
    accept_alone : float
        The largest epsilon that this holder accepts if all tellers, or all other holders, collude.
        It has no default.
    trusted : list of PublicKey, path or name, optional
        Tellers that the holder trusts; by default all pinned keys.
    mailbox : path, optional
        Folder that is searched before anything is read: for an earlier ballot of this key, which
        another machine may have cast, or this one before it was restored from a backup; and for a
        closed list, after which no ballot counts.
    max_epsilon, max_delta, columns, engine, progress
        As for `sketch`.
    ledger : (path, name), optional
        As for `sketch`. The entry stays reserved until the study ends.

    Returns
    -------
    Ballot
        Ballot to publish for the tellers; nothing in it is secret.
    """
    holder = require_sealable(study, key, accept_alone, trusted, max_epsilon, max_delta)
    slot = ballot_file(study.digest, key.fingerprint)
    earlier = earlier_ballot(study, key.public, mailbox)
    if earlier is not None:
        warn_of(["a ballot was cast in this study before: it is returned, and nothing is read"])
        _enter_earlier(study, holder, ledger)
        return Ballot.from_bytes(write_once(slot, earlier.to_bytes()), str(slot))
    require_in_time(study, mailbox)
    require_writable_state(slot)
    if entries_of_ballot(study, holder, ledger, "reserved"):
        warn_of([_LOST])  # callers may turn the warning into an error before anything is spent
    design = study.design
    table = Table.of(data, columns)
    checked_missing(table.missing, design.schema)
    with open_entry(
        ledger,
        lambda: cost_of_design(design),
        what=what_of(study),
        source=holder,
        alone=lambda: cost_alone(study),
        is_total=table.stops_nothing(design.schema),
    ).entered() as entry:
        noter = noter_of(entry.key, design.schema)
        sums = engine_sums(table, design, engine, noter=noter, progress=progress)
        if noter is not None:
            noter.add(sums.marks)
            entry.set_marks_source(noter)
        ballot = sealed_sums(study, sums, key, holder)
        if entry.reserved is not None:
            write_once(entry_file(study.digest, ballot.digest), entry.reserved.id.encode("ascii"))
        stands = Ballot.from_bytes(write_once(slot, ballot.to_bytes()), str(slot))
        if stands.digest != ballot.digest and entry.reserved is not None:
            _take_back(study, holder, ledger, entry.reserved, stands)
    return stands


def sealed_sums(study: SealedStudy, found: ExactSums, key: Key, holder: str) -> Ballot:
    """Add noise and check words, and make a ballot; exact sums do not leave this function."""
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
    sampler = combined_sampler(samplers_of(receipt))
    return make_ballot(study, with_checks(values, study.weights), key, sampler)


def require_sealable(
    study: SealedStudy,
    key: Key,
    accept_alone: float,
    trusted: Trusted | None = None,
    max_epsilon: float | None = None,
    max_delta: float | None = None,
) -> str:
    """Return the holder's name; refuse a holder who may not cast a ballot."""
    if not isinstance(study, SealedStudy):
        raise ParameterError(f"study: expected a SealedStudy, got {type(study).__name__}")
    require_private(study.design, "a sealed study")
    alone = checked_alone(accept_alone)
    holder = study.holder_with(key.public)
    study.require_open()
    keys = pinned_keys() if trusted is None else [resolve_key(item) for item in trusted]
    trusted_identities = {item.identity for item in keys} | {key.public.identity}
    if not any(card.key.identity in trusted_identities for card in study.tellers):
        raise StudyError(
            "none of the tellers is pinned here: compare the fingerprint of one that you trust "
            "with its holder, by phone, and pin it (privsketch key trust FILE.pub)"
        )
    if not study.is_accepted_by(alone):
        raise BudgetError(
            f"the study asks you to accept alone = {alone_text(study.alone)}, for the case that "
            f"all others collude, which is above `accept_alone={number_text(alone)}`; no record "
            "was read"
        )
    require_limits(study.design.budget, max_epsilon, max_delta)
    return holder.name


def require_in_time(study: SealedStudy, mailbox: str | PathLike[str] | None) -> None:
    """Refuse a ballot that no list can have: after the last day, or beside a closed list."""
    if study.is_late():
        raise StudyError(f"the last day to cast a ballot was {study.last_day} (UTC)")
    closed = None if mailbox is None else closed_list_in(study, mailbox)
    if closed is not None:
        raise StudyError(
            f"{closed}: the list of this study is closed, and a ballot that is cast now counts "
            "nowhere; no record was read"
        )


def earlier_ballot(
    study: SealedStudy, key: PublicKey, mailbox: str | PathLike[str] | None = None
) -> Ballot | None:
    """Return the earlier ballot of a holder, from this machine or a mailbox; None if none."""
    if read_state(destroyed_ballot_file(study.digest, key.fingerprint)) is not None:
        raise StudyError("a ballot was cast in this study, and destroyed after its end")
    slot = ballot_file(study.digest, key.fingerprint)
    stored = read_state(slot)
    if stored is not None:
        return Ballot.from_bytes(stored, str(slot))
    return None if mailbox is None else _own_ballot(study, Path(mailbox), key)


def _own_ballot(study: SealedStudy, mailbox: Path, key: PublicKey) -> Ballot | None:
    """Return the ballot of this holder in a mailbox; refuse a mailbox with two."""
    if not mailbox.is_dir():
        raise AccessError(f"{mailbox}: not a folder; it cannot be searched for an earlier ballot")
    ballots: dict[str, Ballot] = {}
    for file in sorted(mailbox.glob(f"*{Ballot.SUFFIX}")):
        try:
            ballot = Ballot.load(file)
        except PrivsketchError:
            continue  # not a ballot, so this key has not signed it
        if (ballot.study, ballot.holder) == (study.digest, key.fingerprint):
            ballot.require_of(study, str(file))
            ballots[ballot.digest] = ballot
    if len(ballots) > 1:
        raise StudyError(
            f"{mailbox}: it has {len(ballots)} ballots of yours in this study, but a holder casts "
            "one; each of them costs alone. No record was read"
        )
    return next(iter(ballots.values()), None)


def _enter_earlier(study: SealedStudy, holder: str, ledger: LedgerName) -> None:
    """Reserve the cost of an earlier ballot in a ledger that has no entry of it."""
    data_set = named_data_set(ledger)
    if data_set is not None and not entries_of_ballot(study, holder, ledger):
        book, name = data_set
        cost, alone = cost_of_design(study.design), cost_alone(study)
        book.reserve(name, cost, what=what_of(study), source=holder, alone=alone)


def _take_back(
    study: SealedStudy, holder: str, ledger: LedgerName, reserved: Reservation, stored: Ballot
) -> None:
    """Take back the entry of a discarded ballot, if the ballot that counts has its own entry.

    Two processes have sealed at once, and the other one was first. If its entry is in another
    ledger or in none, this entry counts for it.
    """
    other = read_state(entry_file(study.digest, stored.digest))
    data_set = named_data_set(ledger)
    ids = [entry.id for entry in entries_of_ballot(study, holder, ledger, "reserved")]
    if data_set is not None and other is not None and other.decode("ascii") in ids:
        data_set[0].commit(reserved, void=True)


def entries_of_ballot(
    study: SealedStudy, holder: str, ledger: LedgerName, state: str | None = None
) -> list[Entry]:
    """Return the ledger entries of a holder's ballot in a study, oldest first."""
    data_set = named_data_set(ledger)
    if data_set is None:
        return []
    book, name = data_set
    return [
        entry
        for entry in book.entries(name)
        if (entry.what, entry.source) == (what_of(study), holder) and state in (None, entry.state)
    ]


def what_of(study: SealedStudy) -> str:
    """Return the name of a study's ballot in a ledger."""
    return f"ballot in study {study.fingerprint}"


def cost_alone(study: SealedStudy) -> Cost:
    """Return the cost of a ballot if all others collude, for a ledger."""
    cost, budget = study.sharing.cost_alone(), study.design.budget
    rho = None if cost.rho is None else exact(cost.rho)
    return Cost(exact(cost.epsilon), exact(cost.delta), rho, budget.neighbours, budget.unit)
