"""Commands to copy from a page: they run as they stand, with nothing filled in but capitals."""

import glob
import html
import re
import shlex

import numpy as np
import pytest

import privsketch as ps
from privsketch_studies.collector import make_study
from studies.tests.collector.test_web_pages import Browser
from studies.tests.server import DESIGN, World, serving
from tests.commands import succeeded

NAME = "Saint Mary's; echo $HOME"


def commands_on(text):
    block = re.search(r'(?s)<ol class="commands">(.*?)</ol>', text)
    return [] if block is None else [
        html.unescape(line) for line in re.findall(r"<code>(.*?)</code>", block.group(1))
    ]  # fmt: skip


def in_folder(folder, monkeypatch, tokens, name):
    """A folder of a member, with the token that the page asks for, and a table."""
    folder.mkdir()
    monkeypatch.chdir(folder)
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1, 1, (60, 2))
    np.savetxt("TABLE.csv", rows, delimiter=",", header="x,y", comments="")
    (folder / name).write_text(tokens)
    (folder / name).chmod(0o600)


def test_a_site_that_copies_every_command_has_reported(tmp_path, monkeypatch):
    world = World(str(tmp_path / "c.db"))
    token = world.add(NAME, "site")
    with serving(str(tmp_path / "c.db")) as address:
        text = Browser(world, NAME).text("/studies/heart")
        assert token not in text
        assert "psk_" not in text
        lines = [line.replace("http://testserver", address) for line in commands_on(text)]
        assert lines[0] == "pip install privsketch-studies"
        assert [line.split()[:3] for line in lines[1:]] == [
            ["privsketch", "collector", "pull"],
            ["privsketch", "check", "heart/design.json"],
            ["privsketch", "sketch", "heart/design.json"],
            ["privsketch", "collector", "push"],
        ]
        in_folder(tmp_path / "site", monkeypatch, token, "Saint-Mary-s-echo-HOME.token")
        for line in lines[1:]:
            program, *arguments = shlex.split(line)
            assert program == "privsketch"
            assert not {";", "&&", "|"} & set(arguments)
            succeeded(*arguments)
        (file,) = (tmp_path / "site").glob("*.sketch")
        assert ps.load(file).sources == (NAME,)
    (upload,) = world.ask("olga", "GET", "/studies/heart/uploads").json()
    assert (upload["member"], upload["whose"]) == (NAME, NAME)
    assert commands_on(Browser(world, NAME).text("/studies/heart")) == []
    world.store.close()


def test_a_site_with_a_key_gets_the_command_that_signs(world):
    world.add("east", "site", key=ps.Key.generate("east").public)
    lines = commands_on(Browser(world, "east").text("/studies/heart"))
    assert "privsketch key sign east.sketch --key east.key" in lines


@pytest.mark.slow
@pytest.mark.browser
def test_a_sealed_study_by_commands_from_its_pages_alone(tmp_path, monkeypatch):
    """Everybody copies what the page shows, in a folder of their own, until there is a total."""
    world = World(str(tmp_path / "c.db"))
    make_study(world.store, "lungs", DESIGN.to_bytes(), owner="olga", sealed=True)
    people = {"ann": "site", "bob": "site", "tom": "teller", "tim": "teller"}
    for name, role in people.items():
        world.add(name, role, study="lungs")
    for name in ("olga", *people):
        in_folder(tmp_path / name, monkeypatch, world.tokens[name], f"{name}.token")
    (tmp_path / "words").write_text("six words that nobody else knows")
    (tmp_path / "words").chmod(0o600)
    monkeypatch.setenv("PRIVSKETCH_PASSPHRASE_FILE", str(tmp_path / "words"))
    fill_in = {"EPSILON": "9"}

    def copied(name):
        """Run the commands on the page of a member, and say what the last one printed."""
        monkeypatch.chdir(tmp_path / name)
        monkeypatch.setenv("PRIVSKETCH_HOME", str(tmp_path / name / "home"))
        other = "tim" if name == "tom" else "tom"
        fill_in["TELLER.pub"] = str(tmp_path / other / f"{other}.pub")
        lines = commands_on(Browser(world, name).text("/studies/lungs"))
        assert len(lines) >= 3
        assert len(set(lines)) == len(lines)
        for line in lines[1:]:
            arguments = []
            for argument in shlex.split(line.replace("http://testserver", address))[1:]:
                argument = fill_in.get(argument, argument)
                arguments += sorted(glob.glob(argument)) if "*" in argument else [argument]
            said = succeeded(*arguments)
        return said.output

    with serving(str(tmp_path / "c.db")) as address:
        for name in (*people, "olga", "tom", "tim", "ann", "bob", "tom", "tim", "olga"):
            assert copied(name).startswith("uploaded"), name
        assert [copied(name)[:8] for name in ("tom", "tim")] == ["uploaded"] * 2
    assert world.ask("ann", "GET", "/studies/lungs").json()["state"] == "tallied"
    assert len(world.total("ann", "lungs").sources) == 2
    assert commands_on(Browser(world, "ann").text("/studies/lungs")) == []
    world.store.close()
