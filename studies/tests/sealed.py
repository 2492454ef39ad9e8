"""A sealed study with all its people, as tests need one; keys are thrown away with it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import privsketch as ps
import privsketch_studies as studies
from privsketch_studies import check_ballots
from privsketch_studies.sealing import VoidStudy, as_words, make_ballot, signed_json, with_checks

DESIGN = {
    "n_components": 2,
    "domain": ps.Box(-1, 1, dim=2),
    "n_features": 6,
    "random_state": 0,
}
GAUSSIAN = ps.Design.plan(**DESIGN, budget=ps.Budget(0.1, 1e-6), noise="gaussian")
PURE = ps.Design.plan(**DESIGN, budget=ps.Budget(0.1))
REPLACE = ps.Design.plan(**DESIGN, budget=ps.Budget(0.1, 1e-6, "replace"), noise="gaussian")
_LINE: dict[str, Any] = {
    "task": "regression",
    "target": "x2",
    "domain": ps.Box(-1, 1, dim=2),
    "n_records": 1000,
    "random_state": 0,
}
REGRESSION = ps.Design.plan(**_LINE, budget=ps.Budget(0.1, 1e-6))
PURE_REGRESSION = ps.Design.plan(**_LINE, budget=ps.Budget(0.1))


@dataclass
class People:
    """Who takes part, with their secrets."""

    design: ps.Design = GAUSSIAN
    n_holders: int = 4
    n_tellers: int = 2
    accept_alone: float = 10.0
    options: dict = field(default_factory=lambda: {"min_holders": 3, "colluding": 1})

    def __post_init__(self):
        self.holders = [ps.Key.generate(f"site {n:03}") for n in range(self.n_holders)]
        self.tellers = [ps.Key.generate(f"teller {n}") for n in range(self.n_tellers)]
        self.owner = ps.Key.generate("owner")
        enrolled = [studies.Card.teller(self.design, key=key) for key in self.tellers]
        self.study_keys = [key for _, key in enrolled]
        self.cards = [
            studies.Card.holder(self.design, key=key, accept_alone=self.accept_alone)
            for key in self.holders
        ] + [card for card, _ in enrolled]

    def made(self, **more):
        """A study that nobody has accepted yet."""
        options = {"owner": self.owner.public, **self.options, **more}
        return studies.SealedStudy(self.design, cards=self.cards, **options)

    def open_study(self, **more):
        """One that all tellers have accepted."""
        study = self.made(**more)
        for key in self.tellers:
            study.accept(key)
        return study

    @property
    def trusted(self):
        """The tellers that holders have pinned: one."""
        return [self.tellers[0].public]

    def seal(self, study, data, holder):
        return studies.seal(
            data, study, key=self.holders[holder], accept_alone=100.0, trusted=self.trusted
        )

    def checked(self, study, ballots):
        """What all tellers have checked."""
        return [check_ballots(study, ballots, key=key)[0] for key in self.study_keys]

    def closed(self, study, ballots):
        checked = self.checked(study, ballots)
        return studies.ClosedList.of(study, ballots, key=self.owner, checked=checked)

    def tally(self, study, ballots, closed_list, teller, **more):
        """The tally of one teller, after all of them have checked the ballots."""
        checked = self.checked(study, [ballots] if isinstance(ballots, Path) else ballots)
        key = self.study_keys[teller]
        return studies.tally(study, ballots, closed_list, key=key, checked=checked, **more)

    def tallies(self, study, ballots, closed_list):
        tellers = range(len(self.study_keys))
        return [self.tally(study, ballots, closed_list, teller) for teller in tellers]


def integers(rng, study, extreme=False):
    """Values of one ballot, (n_levels, n_values), as large as can be."""
    shape = study.n_levels, study.n_words - 2
    if extreme:
        return rng.choice([-(2**63), 2**63 - 1, -1, 0, 1], size=shape)
    return rng.integers(-(2**63), 2**63 - 1, size=shape, endpoint=True)


def cast(study, values, key):
    """A ballot of these values, whatever records they are of."""
    return make_ballot(study, with_checks(as_words(np.asarray(values)), study.weights), key)


def forged_list(study, pairs, key):
    """A closed list of these pairs of holders and ballots, whoever may sign one."""
    content = {"study": study.digest, "ballots": [list(pair) for pair in pairs]}
    return studies.ClosedList.from_bytes(signed_json("closed-list", content, key))


def list_of(study, ballots, key):
    """A closed list of all of these ballots, whatever tellers have found."""
    return forged_list(study, [(one.holder, one.digest) for one in ballots], key)


def forged_void(study, teller, study_key):
    """A teller's word that it has published no tally, true or not."""
    statement = "published no tally, destroyed the key"
    content = {"study": study.digest, "study_key": study_key, "statement": statement}
    return VoidStudy.from_bytes(signed_json("void-study", content, teller))


def random_words(rng, study):
    """What is no ballot: words of which none follows from the others."""
    shape = study.n_levels, study.n_words
    return rng.integers(2**64, size=shape, dtype=np.uint64)
