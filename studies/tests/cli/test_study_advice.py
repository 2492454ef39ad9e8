"""Advice of the commands for studies: what errors tell can be done, and is told to who needs it."""

from pathlib import Path

import pytest

import privsketch as ps
import privsketch_studies
from privsketch._base import document
from tests.advice import faults, texts_in
from tests.commands import INTEGRITY, refused, run, succeeded

DESIGN = ("-k", 2, "--box", -1, 1, "--dim", 2, "--epsilon", 0.5, "--delta", "1e-6")


@pytest.fixture
def keys(folder, monkeypatch):
    """Keys of four holders and two tellers, and a design for four holders."""
    monkeypatch.setenv("PRIVSKETCH_HOME", str(folder / "home"))
    for name in ("h0", "h1", "h2", "h3", "a", "b"):
        succeeded("key", "make", f"{name}.key", "--no-passphrase")
    succeeded("design", *DESIGN, "--features", 8, "--holders", 4, "-o", "design.json")
    return folder


def enrol(name, *options):
    return run(
        "study", "enrol", "design.json", "--key", f"{name}.key", *options, "-o", f"{name}.card"
    )


def asked_of(text):
    """The epsilon that a message asks a holder to accept."""
    return float(text.partition("asks for --accept-alone ")[2].split()[0])


def test_advice_in_the_sources_can_be_followed():
    found = []
    for place, text, command in texts_in(Path(privsketch_studies.__file__).parent):
        found += [f"{place}: {fault}" for fault in faults(text, command)]
    assert found == []


def test_a_card_is_never_replaced_and_no_option_is_named_that_would(keys):
    assert enrol("h0", "--accept-alone", 5).exit_code == 0
    again = enrol("h0", "--accept-alone", 5)
    assert "never replaced; name another file" in again.stderr
    assert "--force" not in again.stderr


def test_a_holder_is_told_what_to_accept_before_the_owner_is(keys):
    """With the number in the error a study is made, and with a hundredth less it is not."""
    told = enrol("h0").stderr
    least = asked_of(told)
    short = enrol("h0", "--accept-alone", 0.99 * least)
    assert short.exit_code == 0
    assert "careful" in short.stderr
    assert f"--accept-alone {least:g} or more" in short.stderr
    for name in ("h1", "h2", "h3"):
        enrolled = enrol(name, "--accept-alone", least)
        assert enrolled.exit_code == 0
        assert "careful" not in enrolled.stderr
    for name in ("a", "b"):
        assert enrol(name, "--teller").exit_code == 0
    make = ["study", "make", "design.json", "-o", "s.study"]
    cards = ["h1.card", "h2.card", "h3.card", "a.card", "b.card"]
    refusal = run(*make, "h0.card", *cards)
    assert refusal.exit_code != 0
    advised = refusal.stderr.partition("privsketch study enrol --accept-alone ")[2].split(";")[0]
    (keys / "h0.card").unlink()
    assert enrol("h0", "--accept-alone", advised).exit_code == 0
    succeeded(*make, "h0.card", *cards)


def test_a_design_without_a_number_of_holders_says_that_it_depends_on_it(keys):
    succeeded("design", *DESIGN, "--features", 8, "-o", "design.json", "--force")
    told = enrol("h0").stderr
    assert "does not state the number of holders" in told
    assert "`privsketch design --holders`" in told
    assert "careful" not in enrol("h0", "--accept-alone", 0.001).stderr


def test_no_study_takes_a_design_of_a_guessed_schema(keys):
    content = ps.Design.plan(
        n_components=2, domain=ps.Schema([ps.Number("age", 0, 110)]), random_state=0,
        budget=ps.Budget(1.0, 1e-6), n_features=20,
    ).to_json()  # fmt: skip
    content["schema"]["columns"][0]["guessed"] = ["high"]
    (keys / "guessed.json").write_bytes(document("design", content))
    assert enrol("h0", "--accept-alone", 9).exit_code == 0
    store = ("--store", keys / "c.db")
    succeeded("collector", "add-member", "olga", "--makes-studies", *store)
    for command in (
        ["study", "enrol", "guessed.json", "--key", "h0.key", "--teller", "-o", "h.card"],
        ["study", "make", "guessed.json", "h0.card", "-o", "s.study"],
        ["collector", "add-study", "heart", "guessed.json", "--owner", "olga", *store],
    ):
        assert "guess" in refused(keys, *command, code=INTEGRITY)
