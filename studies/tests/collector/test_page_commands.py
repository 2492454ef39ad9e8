"""Commands to copy from a page: they run as they stand, with nothing filled in but capitals."""

import glob
import html
import re
import shlex
import time
from pathlib import Path

import numpy as np
import pytest

import privsketch as ps
from privsketch_studies.collector import make_study
from studies.tests.collector.test_web_pages import Browser, answering, both_report
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


def set_aside(world, study, digest, because):
    path = f"/studies/{study}/uploads/{digest}/set-aside"
    assert world.ask("olga", "POST", path, json={"because": because}).is_success


def test_commands_run_again_after_a_sketch_was_set_aside(tmp_path, monkeypatch):
    """In the same folder, where the first sketch lies; the page has the reason."""
    world = World(str(tmp_path / "c.db"))
    token = world.add("central", "site")
    in_folder(tmp_path / "central", monkeypatch, token, "central.token")
    with serving(str(tmp_path / "c.db")) as address:
        for n_aside in range(3):
            text = Browser(world, "central").text("/studies/heart")
            assert ("was set aside and does not count:</b> in pounds" in text) == (n_aside > 0)
            lines = [line.replace("http://testserver", address) for line in commands_on(text)]
            for line in lines[1:]:
                succeeded(*shlex.split(line)[1:])
            (upload,) = world.ask("olga", "GET", "/studies/heart/uploads").json()
            assert "was set aside" not in Browser(world, "central").text("/studies/heart")
            set_aside(world, "heart", upload["digest"], "in pounds")
    names = ["central-2.sketch", "central-3.sketch", "central.sketch"]
    assert sorted(file.name for file in Path().glob("*.sketch")) == names
    world.store.close()


def test_the_site_of_an_alarm_gets_the_command_that_checks_its_units(world, tmp_path, monkeypatch):
    world.client.app.state.jobs = answering({"alarms": ["south: x"], "sources": ["south"]})
    both_report(world)
    while "being compared" in (text := Browser(world, "south").text("/studies/heart")):
        time.sleep(0.05)
    assert [line.split()[:3] for line in commands_on(text)[1:]] == [
        ["privsketch", "collector", "pull"],
        ["privsketch", "check", "heart/design.json"],
    ]
    assert commands_on(Browser(world, "north").text("/studies/heart")) == []


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
        fill_in["lungs/TELLER.pub"] = "lungs/tom.pub"  # from a folder that was pulled
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
        text = Browser(world, "olga").text("/studies/lungs")
        assert "Wait for ann, bob, tim and tom to enrol" in text
        assert commands_on(text) == []
        # Ann's first card is set aside, and so is Tom's: their commands run all the same.
        for name in ("ann", "tom"):
            assert copied(name).startswith("uploaded"), name
            (card,) = world.ask(name, "GET", "/studies/lungs/uploads").json()
            set_aside(world, "lungs", card["digest"], "EPSILON <too> small")
            text = Browser(world, name).text("/studies/lungs")
            assert "Your card was set aside and does not count:</b> EPSILON &lt;too" in text
        fill_in["EPSILON"] = "8"  # the same card would be refused
        for name in (*people, "olga", "tom", "tim", "ann"):
            assert copied(name).startswith("uploaded"), name
        assert "or <code>tom</code> with the key" in Browser(world, "bob").text("/studies/lungs")
        for name in ("bob", "tom", "tim", "olga"):
            assert copied(name).startswith("uploaded"), name
        assert [copied(name)[:8] for name in ("tom", "tim")] == ["uploaded"] * 2
    assert world.ask("ann", "GET", "/studies/lungs").json()["state"] == "tallied"
    assert len(world.total("ann", "lungs").sources) == 2
    assert commands_on(Browser(world, "ann").text("/studies/lungs")) == []
    world.store.close()
