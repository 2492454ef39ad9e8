"""`join`: the tallies of all tellers add up to the total, an ordinary sketch."""

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

NOT_COMPARED = (
    "the parts of a sealed total cannot be compared: ask every holder whether privsketch study "
    "seal --dry-run showed its columns in the units of the design"
)
TallySource = Tally | str | os.PathLike[str]


def join(study: SealedStudy, tallies: Iterable[TallySource]) -> Sketch:
    """Add up the tallies of all tellers to the total over all ballots that count.

    Charges: nothing beyond what holders were charged when they cast their ballots. Anyone can do it
    and gets the same result.

    Parameters
    ----------
    study : SealedStudy
    tallies : list of Tally or path
        One tally of each teller, over the same list.

    Returns
    -------
    Sketch
        Its `sources` are the holders that count; its receipt states what is assumed of them and of
        the tellers.
    """
    parts = total_values(study, tallies)
    total = joined_sketch(
        study.design,
        parts.values,
        study.sharing,
        sources=[study.holders[number].name for number in parts.holders],
        study=study.fingerprint,
        exact_count=parts.exact_count,
        sampler=parts.sampler,
    )
    require_possible(total)
    return total


class TotalValues(NamedTuple):
    """Integers of the total, and the numbers of its holders on the roster."""

    values: Integers
    exact_count: int | None
    holders: tuple[int, ...]
    sampler: str


def all_tallies(study: SealedStudy, tallies: Iterable[TallySource]) -> dict[int, Tally]:
    """Return the tally of every teller by its number; refuse if one is missing or invalid.

    The tallies may be of different lists: every key has been used in that case too.
    """
    by_teller: dict[int, Tally] = {}
    for number, source in enumerate(tallies):
        if isinstance(source, Tally):
            what, tally = f"tally {number + 1}", source
        else:
            what, tally = os.fspath(source), Tally.load(source)
        teller = tally.require_of(study, what)
        if by_teller.setdefault(teller, tally).to_bytes() != tally.to_bytes():
            raise StudyError(
                f"{what}: a second tally of {study.tellers[teller].name!r}, unlike its first; a "
                "teller tallies once"
            )
    missing = [card.name for number, card in enumerate(study.tellers) if number not in by_teller]
    if missing:
        raise StudyError(
            f"the tally of {', '.join(map(repr, missing))} is missing: all tellers are needed"
        )
    return by_teller


def fits_checks(
    study: SealedStudy, tally: Tally, closed: ClosedList, checked: Iterable[CheckedBallots]
) -> bool | None:
    """Whether a tally is the sum of what its teller has published of the ballots of a list.

    None if the teller has not published all of them. Noise of tellers does not change these words.
    """
    published: dict[str, Words] = {}
    for file in checked:
        published.update(file.shares)
    if not set(closed.ballots.values()) <= set(published):
        return None
    expected = added([published[digest][[tally.level]] for digest in closed.ballots.values()])
    return bool((check_shares(tally.words[None], study.weights) == expected).all())


def total_values(study: SealedStudy, tallies: Iterable[TallySource]) -> TotalValues:
    """Return the integers of the total; refuse tallies that do not add up."""
    by_teller = all_tallies(study, tallies)
    first = by_teller[0]
    for teller, tally in by_teller.items():
        if (tally.closed_list, tally.holders) != (first.closed_list, first.holders):
            raise StudyError(
                f"{study.tellers[0].name!r} and {study.tellers[teller].name!r} have tallied "
                "different lists: there is no total, and nothing was revealed"
            )
    words = added([by_teller[number].words for number in range(len(study.tellers))])
    values = without_checks(words, study.weights, len(first.holders))
    if values is None:
        raise MergeError(
            "the tallies do not add up: the total is noise. A teller is wrong; privsketch study "
            "check STUDY *.closed *.checked *.tally names one whose tally is not the sum of what "
            "it has checked"
        )
    integers = as_integers(values)
    n_values = study.n_words - N_CHECKS - study.counts_records
    count = int(integers[n_values]) if study.counts_records else None
    samplers = {tally.sampler for tally in by_teller.values()}
    sampler = REPLACED if REPLACED in samplers else first.sampler
    return TotalValues(integers[:n_values], count, first.holders, sampler)
