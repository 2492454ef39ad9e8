"""A rehearsal: the same study with made-up records and keys that are thrown away, on one machine.

Everybody's part is done once, with the real noise, files and checks, in a temporary folder. It
costs nothing: no record is read, and the keys of the real study are not touched.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from privsketch._base.types import Floats
from privsketch.design.recipe import Design
from privsketch.facts.domain import Box
from privsketch.noise.mechanism import entered_noise
from privsketch.signing.keys import Key
from privsketch.sketching.sums import exact_sums
from privsketch_studies.sealing.cards import Card
from privsketch_studies.sealing.join import join
from privsketch_studies.sealing.lists import ClosedList, check_ballots
from privsketch_studies.sealing.once import kept_in
from privsketch_studies.sealing.seal import sealed_sums
from privsketch_studies.sealing.study import SealedStudy
from privsketch_studies.sealing.tally import tally


@dataclass(frozen=True)
class Rehearsal:
    """How a rehearsal went.

    Attributes
    ----------
    turnout : int
        Ballots that were tallied.
    ballot_bytes : int
        Size of one ballot.
    noise_ratio : float
        Standard deviation of the noise in the total, over what its receipt says; near 1.
    study : SealedStudy
        The one that was played, with keys of the same names.
    """

    turnout: int
    ballot_bytes: int
    noise_ratio: float
    study: SealedStudy


def rehearse(
    study: SealedStudy,
    *,
    turnout: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> Rehearsal:
    """Play a study through with made-up records; an error wherever the real one would have one.

    Charges: nothing; no record is read.

    Parameters
    ----------
    study : SealedStudy
        Whose people and design are played; it may be open or not.
    turnout : int, optional
        How many holders cast a ballot; all if left out.
    progress : callable, optional
        Called with what is done next, in words.
    """
    told = progress or (lambda words: None)
    n_ballots = len(study.holders) if turnout is None else turnout
    study.sharing.level_of(n_ballots)  # refuses what is no turnout
    with (
        tempfile.TemporaryDirectory() as folder,
        kept_in(Path(folder)),
        entered_noise(lambda: None),  # nothing is released that anybody's records are in
    ):
        return _played(study, n_ballots, told)


def _played(study: SealedStudy, n_ballots: int, told: Callable[[str], None]) -> Rehearsal:
    design = study.design
    told("keys and cards")
    holders = [Key.generate(card.name) for card in study.holders]
    known = {key.name: key for key in holders}
    tellers = [known.get(card.name) or Key.generate(card.name) for card in study.tellers]
    owner = Key.generate("owner of the rehearsal")
    cards = [
        Card.holder(design, key=key, accept_alone=float(card.accept_alone or study.alone))
        for key, card in zip(holders, study.holders, strict=True)
    ]
    enrolled = [Card.teller(design, key=key) for key in tellers]
    cards += [card for card, _ in enrolled]
    fresh = [key for _, key in enrolled]
    played = SealedStudy(
        design,
        cards=cards,
        noise=study.noise,
        min_holders=study.min_holders,
        colluding=study.colluding,
        owner=owner.public,
    )
    told(f"{len(tellers)} tellers accept")
    for key in tellers:
        played.accept(key)
    told(f"{n_ballots} holders seal made-up records")
    rng = np.random.default_rng()  # of records that nobody has; noise has its own function
    sums = [exact_sums([_made_up(design, rng)], design, n_threads=1) for _ in range(n_ballots)]
    ballots = [
        sealed_sums(played, found, key, key.name)
        for found, key in zip(sums, holders[:n_ballots], strict=True)
    ]
    told("tellers check, the owner closes the list")
    checked = [check_ballots(played, ballots, key=one)[0] for one in fresh]
    closed = ClosedList.of(played, ballots, key=owner, checked=checked)
    told("tellers tally")
    tallies = [tally(played, ballots, closed, key=one, checked=checked) for one in fresh]
    told("tallies join")
    total = join(played, tallies)
    exact = sum(design.sum_noise.weighted(found.sums, found.n_records) for found in sums)
    n_sums = design.sum_noise.sums_law.n_components
    noise = (total.values - exact)[:n_sums].astype(np.float64)
    size = float(np.sqrt(np.mean(noise**2) / played.sharing.variance(n_ballots)))
    return Rehearsal(n_ballots, len(ballots[0].to_bytes()), size, played)


def _made_up(design: Design, rng: np.random.Generator) -> Floats:
    """A hundred records that lie in the domain."""
    domain = design.domain
    spread = rng.uniform(-1.0, 1.0, size=(100, design.dim))
    if not isinstance(domain, Box):
        spread /= np.sqrt(design.dim)
    return np.asarray(domain.center_vector + spread * domain.half_widths)
