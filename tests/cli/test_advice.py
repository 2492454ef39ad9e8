"""Every advice in a message is a command that there is, with options that it has."""

from pathlib import Path

import pytest

import privsketch
from tests.advice import command_of, every_command, faults, texts_in
from tests.commands import PLUGINS, contents, run, succeeded

SOURCES = Path(privsketch.__file__).parent


def test_advice_in_the_sources_can_be_followed():
    found, n_texts = [], 0
    for place, text, command in texts_in(SOURCES):
        n_texts += "privsketch " in text
        found += [f"{place}: {fault}" for fault in faults(text, command, elsewhere=PLUGINS)]
    assert found == []
    assert n_texts > 50


@pytest.mark.parametrize(
    "text",
    [
        "`privsketch keymake my.key`",
        "`privsketch key mark my.key`",
        "`privsketch check FILE --force`",
        "see privsketch schema accepts FILE",
        "exists (--force replaces it)",
        "say --headers, or `privsketch check --headers`",
    ],
)
def test_wrong_advice_would_be_found(text):
    command, _ = command_of(("check",))
    assert faults(text, command)


def test_right_advice_is_none():
    command, _ = command_of(("sketch",))
    for text in (
        "exists (--force replaces it); `privsketch ledger check X --head X` shows it",
        "`privsketch schema accept FILE` shows every guess",
        "privsketch may be asked; files of privsketch are --force",
        "`privsketch X demo`",
        "`privsketch --explain epsilon`",
    ):
        assert faults(text, command) == []
    assert {"schema edit", "key make", "sketch"} <= {name for name, _ in every_command()}


def test_a_signed_output_is_advised_as_the_command_can(folder):
    """What is advised works: the file and its signature are replaced."""
    succeeded("key", "make", "my.key", "--no-passphrase")
    design = ["design", "-k", 2, "--box", -1, 1, "--dim", 2, "--epsilon", 1, "--delta", 0]
    succeeded(*design, "-o", "d.json", "--key", "my.key")
    (folder / "d.json").unlink()
    assert "--force" in run(*design, "-o", "d.json").stderr
    succeeded(*design, "-o", "d.json", "--force")
    assert "d.json.sig" not in {path.name for path in contents(folder)}


def test_cheap_advice_runs(folder):
    """The commands that errors and next steps name, one after the other, as they are written."""
    (folder / "t.csv").write_text("x,label\n" + "0.5,a\n0.7,b\n" * 20)
    said = succeeded("schema", "draft", "t.csv", "--look", "-o", "s.json").stdout
    assert "`privsketch schema accept s.json`" in said
    assert "`privsketch schema edit s.json`" in said
    said = succeeded("schema", "accept", "s.json", "--yes").stdout
    assert "`privsketch check s.json DATA`" in said
    succeeded("check", "s.json", "t.csv")
    assert "`privsketch --explain epsilon`" in run("cluster", "t.csv", "-k", 2).stderr
    succeeded("--explain", "epsilon")
    said = succeeded("ledger", "create", "b.ledger").stdout
    assert "privsketch ledger add b.ledger NAME --epsilon ... --delta ..." in said
    succeeded("ledger", "add", "b.ledger", "NAME", "--epsilon", 1, "--delta", 0)
