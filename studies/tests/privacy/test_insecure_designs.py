"""Designs without noise: no sealed study, card, ballot or collector takes one."""

import json

import numpy as np
import pytest

import privsketch as ps
import privsketch_studies as studies
from privsketch_studies.collector import Client, make_study, push
from studies.tests.sealed import GAUSSIAN, People
from studies.tests.server import DESIGN, World
from tests.commands import run

INSECURE = GAUSSIAN.without_noise()
REFUSED = "INSECURE.* does not take it"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A user whose state nobody else sees."""
    monkeypatch.setenv("PRIVSKETCH_HOME", str(tmp_path / "home"))


def test_nobody_enrols_for_one():
    key = ps.Key.generate("site")
    with pytest.raises(ps.ParameterError, match=REFUSED):
        studies.Card.holder(INSECURE, key=key, accept_alone=1.0)
    with pytest.raises(ps.ParameterError, match=REFUSED):
        studies.Card.teller(INSECURE, key=key)


def test_no_study_is_made_or_read_with_one():
    people = People()
    with pytest.raises(ps.ParameterError, match=REFUSED):
        studies.SealedStudy(INSECURE, cards=people.cards, **people.options)
    fields = json.loads(people.made().to_bytes())
    fields["design"] = INSECURE.to_json()
    data = json.dumps(fields, separators=(",", ":")).encode()
    with pytest.raises(ps.FileError):
        studies.SealedStudy.from_bytes(data)


def test_no_ballot_is_cast_with_one():
    """A study whose design was exchanged in memory, or by a pickle, stops before a record."""
    people = People()
    study = people.open_study()
    study.design = INSECURE

    def unread():
        raise AssertionError("a record was read")
        yield

    with pytest.raises(ps.ParameterError, match="INSECURE"):
        studies.seal(
            unread(),
            study,
            key=people.holders[0],
            accept_alone=10.0,
            trusted=people.trusted,
            ledger=None,
        )


def test_commands_refuse_one(tmp_path):
    INSECURE.save(tmp_path / "study.json")
    key = tmp_path / "site.key"
    assert run("key", "make", "--no-passphrase", key).exit_code == 0
    result = run(
        "study",
        "enrol",
        tmp_path / "study.json",
        "--key",
        key,
        "--accept-alone",
        1,
        "-o",
        tmp_path / "site.card",
    )
    assert result.exit_code != 0
    assert "INSECURE" in result.output
    assert not (tmp_path / "site.card").exists()


def test_a_collector_takes_neither_design_nor_sketch(tmp_path):
    world = World(str(tmp_path / "collector.db"))
    exact = DESIGN.without_noise()
    with pytest.raises(ps.ParameterError, match=REFUSED):
        make_study(world.store, "lungs", exact.to_bytes(), owner="olga")
    answer = world.ask(
        "olga", "POST", "/studies", params={"name": "lungs"}, content=exact.to_bytes()
    )
    assert answer.status_code >= 400
    released = ps.sketch(np.zeros((50, 2)), exact, source="north", insecure=True)
    assert world.push("north", released.to_bytes()).status_code >= 400
    # Nor with the magic of a private sketch.
    assert world.push("north", b"\x89privsk\n" + released.to_bytes()[8:]).status_code >= 400
    assert world.ask("olga", "GET", "/studies/heart/uploads").json() == []
    world.store.close()


def test_a_client_sends_no_byte_of_one(tmp_path):
    class Silent(Client):
        def __init__(self):
            pass

        def call(self, *arguments, **options):
            raise AssertionError("a byte was sent")

    exact = DESIGN.without_noise()
    ps.sketch(np.zeros((50, 2)), exact, source="a", insecure=True).save(tmp_path / "a.sketch")
    exact.save(tmp_path / "study.json")
    for name in ("a.sketch", "study.json"):
        with pytest.raises(ps.FileError, match=r"INSECURE.*no byte of it left"):
            push(Silent(), [tmp_path / name])
