"""`join`: tallies of all tellers to the total, a sketch like any other."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from privsketch._base.errors import MergeError
from privsketch._base.types import Integers
from privsketch.noise.mechanism import REPLACED
from privsketch.sketching.joined import joined_sketch
from privsketch.sketching.limits import require_possible
from privsketch.sketching.sketch import Sketch
from privsketch_studies.errors import StudyError
from privsketch_studies.sealing.lists import CheckedBallots, ClosedList
from privsketch_studies.sealing.splitting import (
    N_CHECKS,
    Words,
    added,
    as_integers,
    check_shares,
    without_checks,
)
from privsketch_studies.sealing.study import SealedStudy
from privsketch_studies.sealing.tally import Tally

TallySource = Tally | str | os.PathLike[str]


def join(study: SealedStudy, tallies: Iterable[TallySource]) -> Sketch:
    """Add the tallies of all tellers up: the total over all ballots that count.

    Charges: nothing beyond what holders were charged when they cast their ballots. Anybody can do
    it, and gets the same.

    Parameters
    ----------
    study : SealedStudy
    tallies : list of Tally or path
        One of each teller, over the same list.

    Returns
    -------
    Sketch
        Its `sources` are the holders that count; its receipt says what must be true of them and of
        the tellers.
    """
    found = joined(study, tallies)
    total = joined_sketch(
        study.design,
        found.values,
        study.sharing,
        sources=[study.holders[place].name for place in found.holders],
        study=study.fingerprint,
        exact_count=found.exact_count,
        sampler=found.sampler,
    )
    require_possible(total)
    return total


class Joined(NamedTuple):
    """The total, and whose it is: places on the roster."""

    values: Integers
    exact_count: int | None
    holders: tuple[int, ...]
    sampler: str


def all_tallies(study: SealedStudy, tallies: Iterable[TallySource]) -> dict[int, Tally]:
    """The tally of every teller, by its number; an error if one is missing or none of this study.

    Lists that differ are not looked at: every key has then been used, whatever the total is.
    """
    found: dict[int, Tally] = {}
    for number, source in enumerate(tallies):
        if isinstance(source, Tally):
            what, one = f"tally {number + 1}", source
        else:
            what, one = os.fspath(source), Tally.load(source)
        teller = one.require_of(study, what)
        if found.setdefault(teller, one).to_bytes() != one.to_bytes():
            raise StudyError(
                f"{what}: a second tally of {study.tellers[teller].name!r}, unlike its first; a "
                "teller tallies once"
            )
    missing = [card.name for place, card in enumerate(study.tellers) if place not in found]
    if missing:
        raise StudyError(
            f"the tally of {', '.join(map(repr, missing))} is missing: all tellers are needed"
        )
    return found


def fits_checks(
    study: SealedStudy, tally: Tally, closed: ClosedList, checked: Iterable[CheckedBallots]
) -> bool | None:
    """Whether a tally is what its teller has published of the ballots of a list, added up.

    None where that is not known of all of them. Noise of tellers changes neither of these words.
    """
    published: dict[str, Words] = {}
    for one in checked:
        published.update(one.shares)
    if not set(closed.ballots.values()) <= set(published):
        return None
    expected = added([published[digest][[tally.level]] for digest in closed.ballots.values()])
    return bool((check_shares(tally.words[None], study.weights) == expected).all())


def joined(study: SealedStudy, tallies: Iterable[TallySource]) -> Joined:
    """The integers of the total, once everything about the tallies was found right."""
    found = all_tallies(study, tallies)
    first = found[0]
    for teller, one in found.items():
        if (one.closed_list, one.holders) != (first.closed_list, first.holders):
            raise StudyError(
                f"{study.tellers[0].name!r} and {study.tellers[teller].name!r} have tallied "
                "different lists: there is no total, and nothing was revealed"
            )
    words = added([found[place].words for place in range(len(study.tellers))])
    values = without_checks(words, study.weights, len(first.holders))
    if values is None:
        raise MergeError(
            "the tallies do not add up: the total is noise. A teller is wrong; privsketch study "
            "check names one whose tally is not the sum of what it has checked (STUDY *.closed "
            "*.checked *.tally)"
        )
    integers = as_integers(values)
    n_values = study.n_words - N_CHECKS - study.counts_records
    count = int(integers[n_values]) if study.counts_records else None
    samplers = {one.sampler for one in found.values()}
    sampler = REPLACED if REPLACED in samplers else first.sampler
    return Joined(integers[:n_values], count, first.holders, sampler)
