"""The walk-through of studies/docs/sealed.md, run as it stands: hospitals, tellers and an owner."""

import glob
import re
import shlex
import shutil
from pathlib import Path

import pytest

from privsketch.cli.demo_steps import SCHEMA, write_tables
from privsketch.signing import encryption
from tests.commands import run

PAGE = Path(__file__).parents[2] / "docs" / "sealed.md"
SITES = [f"site-{n}" for n in range(1, 6)]
TELLERS = ["auditor", "university"]
ALL = {"site-1": SITES, "auditor": TELLERS, "owner": ["owner"]}
LINE = re.compile(r"(?P<who>[\w-]+)\$ (?P<command>.+)")


def steps():
    """Commands of the page: whose, what, and the lines that it says they print."""
    found = []
    for block in re.findall(r"```console\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        for line in block.splitlines():
            match = LINE.fullmatch(line)
            if match:
                found.append((match["who"], match["command"], []))
            else:
                found[-1][2].append(line)
    return found


def expanded(words):
    """What a shell makes of patterns."""
    for word in words:
        yield from sorted(glob.glob(word)) if "*" in word else [word]


@pytest.mark.slow
def test_the_walk_through_runs_as_it_stands(tmp_path, monkeypatch):
    monkeypatch.setattr(encryption, "_SCRYPT", {"n": 16, "r": 1, "p": 1})
    (tmp_path / "mailbox").mkdir()
    for name in (*SITES, *TELLERS, "owner"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "pass").write_text(f"correct horse of {name}\n")
        (tmp_path / name / "pass").chmod(0o600)
    for path, name in zip(write_tables(tmp_path, 400), SITES, strict=True):
        shutil.move(path, tmp_path / name / f"visits{path.suffix}")
    SCHEMA.save(tmp_path / "owner" / "schema.json")
    monkeypatch.setenv("PRIVSKETCH_PASSPHRASE_FILE", "pass")
    commands = steps()
    assert len(commands) >= 20
    for who, command, told in commands:
        for person in ALL[who]:
            monkeypatch.chdir(tmp_path / person)
            monkeypatch.setenv("PRIVSKETCH_HOME", str(tmp_path / person / "state"))
            # Paths of the mailbox that name one of a group are everybody's own.
            mine = (
                command
                if command.startswith("privsketch study close")
                else named(command, who, person)
            )
            mine = with_table(mine, tmp_path / person)
            words = list(expanded(shlex.split(mine)))
            if words[0] == "cp":
                shutil.copy(words[1], words[2])
                continue
            assert words.pop(0) == "privsketch"
            result = run(*words)
            assert result.exit_code == 0, (person, mine, result.output, result.exception)
            lines = result.output.splitlines()
            for line in told:
                pattern = ".*".join(map(re.escape, named(line, who, person).split("...")))
                assert any(re.fullmatch(pattern, one.rstrip()) for one in lines), (line, lines)
    assert (tmp_path / "owner" / "report.html").exists()
    assert not list((tmp_path / "mailbox").glob("*.ballot"))
    assert not list(tmp_path.glob("*/*.study.key"))


def named(text, who, person):
    """The same words for another person of the group; what is about both tellers stays."""
    if "--tally" in text or who == "owner":
        return text.replace(f"{who}.study.key", f"{person}.study.key")
    if who == "site-1":
        return text.replace("site-1", person)
    return text.replace(who, person)


def with_table(command, folder):
    """The file of the table, which has another format at every site."""
    found = next(folder.glob("visits.*"), None)
    return command if found is None else command.replace("visits.csv", found.name)
