"""A ballot on neighbouring tables, the second time with the noise of the first: the same words."""

from types import SimpleNamespace

import numpy as np
import pytest

from privsketch.noise import OWN_SAMPLER
from privsketch.sketching import exact_sums
from privsketch.testing import replay
from privsketch_studies.sealing import added, level_share, sealed_sums
from studies.tests.sealed import GAUSSIAN, PURE, People


def words_of(study, people, ballot):
    """All words of all levels, as all tellers together would see them."""
    holder = ballot.require_of(study).key
    contents = [ballot.opened(study, key) for key in people.study_keys]
    return [
        added(
            [
                level_share(study, content, holder, teller, level)
                for teller, content in enumerate(contents)
            ]
        ).tolist()
        for level in range(study.n_levels)
    ]


@pytest.mark.parametrize("design", [GAUSSIAN, PURE], ids=["holders", "tellers"])
def test_a_ballot_depends_on_records_through_its_noise_alone(design, tmp_path, monkeypatch):
    """Nothing exact is in any word of any level, check words among them; it costs "alone"."""
    monkeypatch.setenv("PRIVSKETCH_HOME", str(tmp_path))
    people = People(design=design)
    study = people.open_study()
    (law,) = study.sharing.holder_laws[0]
    key = people.holders[0]

    def run(rows):
        ballot = sealed_sums(study, exact_sums([rows], design, n_threads=1), key, key.name)
        return SimpleNamespace(
            receipt=law.receipt(law.scale, None, OWN_SAMPLER), words=words_of(study, people, ballot)
        )

    table = np.random.default_rng(0).uniform(-1, 1, size=(50, 2))
    found = replay(run, table, table[1:])
    assert found.first.words == found.second.words
    assert 0 < found.share_of_budget <= 1
    assert study.alone == pytest.approx(law.epsilon)
