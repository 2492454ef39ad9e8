"""A rehearsal: the same study on one machine, with made-up records and temporary keys.

All participants act once, with the real noise, files and checks, in a temporary folder. It costs
nothing: no record is read, and the keys of the real study are not used.
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
from privsketch_studies.sealing.once import use_state_folder
from privsketch_studies.sealing.seal import sealed_sums
from privsketch_studies.sealing.study import SealedStudy
from privsketch_studies.sealing.tally import tally


@dataclass(frozen=True)
class Rehearsal:
    """Result of a rehearsal.

    Attributes
    ----------
    turnout : int
        Number of ballots that were tallied.
    ballot_bytes : int
        Size of one ballot.
    noise_ratio : float
        Standard deviation of the noise in the total over that of its receipt; about 1.
    study : SealedStudy
        The rehearsed study, with keys of the same names.
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
    """Rehearse a study with made-up records; it fails wherever the real study would.

    Charges: nothing; no record is read.

    Parameters
    ----------
    study : SealedStudy
        Study with the participants and the design to use; it need not be open.
    turnout : int, optional
        Number of holders who cast a ballot; all by default.
    progress : callable, optional
        Called with a text about the next step.
    """
    report = progress or (lambda text: None)
    n_ballots = len(study.holders) if turnout is None else turnout
    study.sharing.level_of(n_ballots)  # refuses an impossible turnout
    with (
        tempfile.TemporaryDirectory() as folder,
        use_state_folder(Path(folder)),
        entered_noise(lambda: None),  # nothing is released from real records
    ):
        return _run(study, n_ballots, report)


def _run(study: SealedStudy, n_ballots: int, report: Callable[[str], None]) -> Rehearsal:
    design = study.design
    report("keys and cards")
    holders = [Key.generate(card.name) for card in study.holders]
    holder_keys = {key.name: key for key in holders}
    tellers = [holder_keys.get(card.name) or Key.generate(card.name) for card in study.tellers]
    owner = Key.generate("owner of the rehearsal")
    cards = [
        Card.holder(design, key=key, accept_alone=float(card.accept_alone or study.alone))
        for key, card in zip(holders, study.holders, strict=True)
    ]
    enrolled = [Card.teller(design, key=key) for key in tellers]
    cards += [card for card, _ in enrolled]
    study_keys = [key for _, key in enrolled]
    copy = SealedStudy(
        design,
        cards=cards,
        noise=study.noise,
        min_holders=study.min_holders,
        colluding=study.colluding,
        owner=owner.public,
    )
    report(f"{len(tellers)} tellers accept")
    for key in tellers:
        copy.accept(key)
    report(f"{n_ballots} holders seal made-up records")
    rng = np.random.default_rng()  # for made-up records; noise has a generator of its own
    sums = [
        exact_sums([_made_up_records(design, rng)], design, n_threads=1) for _ in range(n_ballots)
    ]
    ballots = [
        sealed_sums(copy, sums_of_holder, key, key.name)
        for sums_of_holder, key in zip(sums, holders[:n_ballots], strict=True)
    ]
    report("tellers check, the owner closes the list")
    checked = [check_ballots(copy, ballots, key=key)[0] for key in study_keys]
    closed = ClosedList.of(copy, ballots, key=owner, checked=checked)
    report("tellers tally")
    tallies = [tally(copy, ballots, closed, key=key, checked=checked) for key in study_keys]
    report("tallies join")
    total = join(copy, tallies)
    exact = sum(design.sum_noise.weighted(part.sums, part.n_records) for part in sums)
    n_sums = design.sum_noise.sums_law.n_components
    noise = (total.values - exact)[:n_sums].astype(np.float64)
    size = float(np.sqrt(np.mean(noise**2) / copy.sharing.variance(n_ballots)))
    return Rehearsal(n_ballots, len(ballots[0].to_bytes()), size, copy)


def _made_up_records(design: Design, rng: np.random.Generator) -> Floats:
    """Return a hundred records within the domain."""
    domain = design.domain
    spread = rng.uniform(-1.0, 1.0, size=(100, design.dim))
    if not isinstance(domain, Box):
        spread /= np.sqrt(design.dim)
    return np.asarray(domain.center_vector + spread * domain.half_widths)
