"""Commands for a member to copy: those of the next steps, with the names of the study.

They hold no secret: a token is read from a file. What a member must fill in is written in capitals.
"""

from __future__ import annotations

import re
from shlex import quote

from privsketch_studies.collector.members import Member
from privsketch_studies.collector.pages.views import Head, OwnFiles

TABLE, ALONE, TELLER = "TABLE.csv", "EPSILON", "TELLER"
_STUDY = "{box}/{box}.study"
_TRUST = "privsketch key trust {box}/{teller}.pub"
_SEAL = f"privsketch study seal {_STUDY} {{table}} --key {{me}}.key --accept-alone {{alone}}"
_KEY = "privsketch key make {me}.key"
_CHECK = "privsketch check {box}/design.json {table}"
# By the kind of file that the member uploads next: its name, and the commands that make it.
_STEPS: dict[str, tuple[str, tuple[str, ...]]] = {
    "sketch": (
        "{me}{nth}.sketch",
        (
            _CHECK,
            "privsketch sketch {box}/design.json {table} --source {source} -o {me}{nth}.sketch",
        ),
    ),
    "site card": (
        "{me}{nth}.card",
        (
            _KEY,
            "privsketch study enrol {box}/design.json --key {me}.key --accept-alone {alone} "
            "-o {me}{nth}.card",
        ),
    ),
    "teller card": (
        "{me}-teller{nth}.card",
        (
            _KEY,
            "privsketch study enrol {box}/design.json --key {me}.key --teller "
            "--study-key {study_key} -o {me}-teller{nth}.card",
        ),
    ),
    "study": (
        "{box}.study",
        (
            _KEY,
            "privsketch study make {box}/design.json {box}/*.card --owner {me}.pub -o {box}.study",
        ),
    ),
    "accept": (
        _STUDY + ".{signer}.sig",
        (
            f"privsketch study show {_STUDY}",
            f"privsketch study accept {_STUDY} --key {{me}}.key",
        ),
    ),
    "ballot": (
        "{me}.ballot",
        (
            _TRUST,
            f"{_SEAL} --dry-run",
            f"{_SEAL} -o {{me}}.ballot",
        ),
    ),
    "checked": (
        "{me}.checked",
        (
            f"privsketch study check {_STUDY} {{box}}/*.ballot --key {{study_key}} "
            "-o {me}.checked",
        ),
    ),
    "closed": (
        "{box}.closed",
        (f"privsketch study close {_STUDY} {{box}} --key {{me}}.key -o {{box}}.closed",),
    ),
    "tally": (
        "{me}.tally",
        (
            f"privsketch study tally {_STUDY} {{box}} --list {{box}}/{{box}}.closed "
            "--key {study_key} -o {me}.tally",
        ),
    ),
}


def commands_of(head: Head, member: Member, address: str, own: OwnFiles) -> list[str]:
    """Return the commands of a member's next steps; none if there is nothing to be done.

    Parameters
    ----------
    head : Head
    member : Member
    address : str
        Address of the collector.
    own : OwnFiles
        What the member uploads next, and what it uploaded before.
    """
    me = re.sub(r"[^A-Za-z0-9_.-]+", "-", member.name).strip(".-") or "member"
    box = head.study.name
    values = {"box": box, "me": me, "source": quote(member.name), "table": TABLE, "alone": ALONE}
    values |= {"teller": TELLER, "signer": own.signer[:16]}
    values["study_key"] = f"{me}{_suffix(own.n_aside('card'))}.study.key"
    url = quote(f"{address.rstrip('/')}/studies/{box}")
    token = f"--token-file {me}.token"
    has_key = member.key is not None or own.n_aside("card") > 0
    made = [_CHECK.format(**values)] if own.is_alarmed else []
    for step in _steps_of(own.kinds, head.roles):
        # What was set aside lies there still, and no command replaces it.
        values["nth"] = _suffix(own.n_aside(step.split()[-1]))
        file, commands = _STEPS[step]
        unneeded = {_KEY: has_key, _TRUST: own.is_teller}
        lines = [line.format(**values) for line in commands if not unneeded.get(line)]
        if step == "sketch" and member.key is not None:
            lines.append(f"privsketch key sign {file.format(**values)} --key {me}.key")
        lines.append(f"privsketch collector push {url} {file.format(**values)} {token}")
        made += [line for line in lines if line not in made]
    if not made:
        return []
    start = ["pip install privsketch-studies"]
    return [*start, f"privsketch collector pull {url} -o {box} {token}", *made]


def _suffix(n_aside: int) -> str:
    """Return the end of the name of a file that takes the place of others."""
    return f"-{n_aside + 1}" if n_aside else ""


def _steps_of(kinds: tuple[str, ...], roles: tuple[str, ...]) -> list[str]:
    """Return the steps to the next files of a member with these roles."""
    steps = []
    for kind in kinds:
        if kind == "card":
            steps += [f"{role} card" for role in ("site", "teller") if role in roles]
        elif kind in _STEPS and (kind != "closed" or "owner" in roles):
            steps.append(kind)
    return steps
