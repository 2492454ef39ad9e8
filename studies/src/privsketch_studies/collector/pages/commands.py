"""Commands for a member to copy: those of the next steps, with the names of the study.

They hold no secret: a token is read from a file. What a member must fill in is written in capitals.
"""

from __future__ import annotations

import re
from shlex import quote

from privsketch_studies.collector.members import Member
from privsketch_studies.collector.pages.views import Head

TABLE, ALONE, TELLER = "TABLE.csv", "EPSILON", "TELLER.pub"
_STUDY = "{box}/{box}.study"
_TRUST = "privsketch key trust {teller}"
_SEAL = f"privsketch study seal {_STUDY} {{table}} --key {{me}}.key --accept-alone {{alone}}"
_KEY = "privsketch key make {me}.key"
# By the kind of file that the member uploads next: its name, and the commands that make it.
_STEPS: dict[str, tuple[str, tuple[str, ...]]] = {
    "sketch": (
        "{me}.sketch",
        (
            "privsketch check {box}/design.json {table}",
            "privsketch sketch {box}/design.json {table} --source {source} -o {me}.sketch",
        ),
    ),
    "site card": (
        "{me}.card",
        (
            _KEY,
            "privsketch study enrol {box}/design.json --key {me}.key --accept-alone {alone} "
            "-o {me}.card",
        ),
    ),
    "teller card": (
        "{me}-teller.card",
        (
            _KEY,
            "privsketch study enrol {box}/design.json --key {me}.key --teller "
            "--study-key {me}.study.key -o {me}-teller.card",
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
            _TRUST,
            f"privsketch study check {_STUDY} {{box}}/*.ballot --key {{me}}.study.key "
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
            "--key {me}.study.key -o {me}.tally",
        ),
    ),
}


def commands_of(
    head: Head, member: Member, address: str, kinds: tuple[str, ...], signer: str
) -> list[str]:
    """Return the commands that lead to a member's next uploads; none if nothing is to be uploaded.

    Parameters
    ----------
    head : Head
    member : Member
    address : str
        Address of the collector.
    kinds : tuple of str
        Kinds of files that the member uploads next.
    signer : str
        Fingerprint of the key on the member's card, or an empty text.
    """
    me = re.sub(r"[^A-Za-z0-9_.-]+", "-", member.name).strip(".-") or "member"
    values = {"box": head.study.name, "me": me, "source": quote(member.name)}
    values |= {"table": TABLE, "alone": ALONE, "teller": TELLER, "signer": signer[:16]}
    url = quote(f"{address.rstrip('/')}/studies/{head.study.name}")
    token = f"--token-file {me}.token"
    made = []
    for step in _steps_of(kinds, head.roles):
        file, commands = _STEPS[step]
        lines = [line.format(**values) for line in commands if line != _KEY or member.key is None]
        if step == "sketch" and member.key is not None:
            lines.append(f"privsketch key sign {me}.sketch --key {me}.key")
        lines.append(f"privsketch collector push {url} {file.format(**values)} {token}")
        made += [line for line in lines if line not in made]
    if not made:
        return []
    start = ["pip install privsketch-studies"]
    return [*start, f"privsketch collector pull {url} -o {head.study.name} {token}", *made]


def _steps_of(kinds: tuple[str, ...], roles: tuple[str, ...]) -> list[str]:
    """Return the steps to the next files of a member with these roles."""
    steps = []
    for kind in kinds:
        if kind == "card":
            steps += [f"{role} card" for role in ("site", "teller") if role in roles]
        elif kind in _STEPS and (kind != "closed" or "owner" in roles):
            steps.append(kind)
    return steps
