"""Studies and what is in them, as facts of an answer and as words about what comes next."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privsketch.signing.keys import PublicKey
    from privsketch_studies.sealing.lists import Agreed
    from privsketch_studies.sealing.study import SealedStudy


def mailbox_facts(study: SealedStudy, folder: Path) -> dict[str, Any]:
    """What lies in a folder of this study, by whom; files that are anything else do not count."""
    from privsketch._base.errors import PrivsketchError
    from privsketch_studies.sealing.ballots import Ballot
    from privsketch_studies.sealing.lists import Agreed, ClosedList, agreed, checked_in
    from privsketch_studies.sealing.tally import Tally
    from privsketch_studies.sealing.void import VoidStudy

    digests: dict[str, str] = {}
    tallies: set[str] = set()
    voids: set[str] = set()
    is_closed = False
    for file in sorted(folder.glob("*.ballot")):
        try:
            ballot = Ballot.load(file)
            digests[ballot.digest] = ballot.require_of(study).name
        except PrivsketchError:
            continue
    for file in sorted(folder.glob("*.closed")):
        try:
            ClosedList.load(file).require_of(study)
            is_closed = True
        except PrivsketchError:
            continue
    for file in sorted(folder.glob("*.tally")):
        try:
            tallies.add(study.tellers[Tally.load(file).require_of(study)].name)
        except PrivsketchError:
            continue
    for file in sorted(folder.glob("*.void")):
        try:
            voids.add(study.tellers[VoidStudy.load(file).require_of(study)].name)
        except PrivsketchError:
            continue
    checked = checked_in(study, folder)
    seen = {  # by each teller
        card.name: {
            digest for one in checked if one.require_of(study) == n for digest in one.shares
        }
        for n, card in enumerate(study.tellers)
    }
    try:
        common = agreed(study, checked)
    except PrivsketchError:  # not all have checked, or one has said two things
        common = Agreed(frozenset(), frozenset(), {})
    known_good = {digests[one] for one in common.good if one in digests}
    return {
        "ballots": sorted(set(digests.values())),
        "checked": [name for name, known in seen.items() if digests and set(digests) <= known],
        "unfit": sorted({digests[digest] for digest in common.unfit if digest in digests}),
        "unopened": unopened_facts(common, digests, but=known_good),
        "is_closed": is_closed,
        "tallies": sorted(tallies),
        "voids": sorted(voids),
    }


def unopened_facts(
    found: Agreed, holders: dict[str, str], but: Container[str]
) -> list[dict[str, Any]]:
    """Whose ballots some tellers have not said they can open, by digests; but not of some people.

    A second ballot of somebody, whose first one is good, is nobody's concern.
    """
    return [
        {"holder": holders[digest], "tellers": list(tellers)}
        for digest, tellers in found.unopened.items()
        if digest in holders and holders[digest] not in but
    ]


def next_steps(study: SealedStudy, found: dict[str, Any], me: PublicKey | None) -> list[str]:
    """What is expected next: of somebody, or of all."""
    holders = {card.key.identity: card.name for card in study.holders}
    tellers = {card.key.identity: card.name for card in study.tellers}
    steps: list[tuple[bytes | None, str]] = []
    if found["voids"]:
        steps += [
            (identity, f"{name}: the study is void; say so too (privsketch study void)")
            for identity, name in tellers.items()
            if name not in (*found["voids"], *found["tallies"])
        ]
        steps += _last_steps(study)
    elif not study.is_open:
        steps += [
            (identity, f"{name}: accept the study (privsketch study accept)")
            for identity, name in tellers.items()
            if name not in study.accepted
        ]
    elif not found["is_closed"]:
        steps += [
            (identity, f"{name}: seal your records (privsketch study seal)")
            for identity, name in holders.items()
            if name not in found["ballots"]
        ]
        owner = None if study.owner is None else study.owner.identity
        whose = "a teller" if study.owner is None else study.owner.name
        if len(found["ballots"]) >= study.min_holders:
            steps += [
                (
                    identity,
                    f"{name}: check the ballots when all are in (privsketch study check --key)",
                )
                for identity, name in tellers.items()
                if name not in found["checked"]
            ]
            text = "close the list when all are in and checked (privsketch study close)"
            steps.append((owner, f"{whose}: {text}"))
    elif len(found["tallies"]) < len(study.tellers):
        steps += [
            (identity, f"{name}: tally, with your study key (privsketch study tally)")
            for identity, name in tellers.items()
            if name not in found["tallies"]
        ]
    else:
        steps.append((None, "anybody: join the tallies (privsketch study join)"))
        steps += _last_steps(study)
    return [text for identity, text in steps if me is None or identity in (None, me.identity)]


def _last_steps(study: SealedStudy) -> list[tuple[bytes | None, str]]:
    """What is left when a study has ended."""
    from privsketch_studies.sealing.study_keys import is_destroyed

    steps: list[tuple[bytes | None, str]] = []
    for card in study.tellers:
        if card.study_key is not None and not is_destroyed(card.study_key.fingerprint):
            words = "destroy your study key, and the ballots (privsketch study destroy)"
            steps.append((card.key.identity, f"{card.name}: {words}"))
    for card in study.holders:
        words = "if you keep a ledger, end the entry of your ballot (privsketch study settle)"
        steps.append((card.key.identity, f"{card.name}: {words}"))
    return steps
