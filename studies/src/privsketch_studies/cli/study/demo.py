"""The demo of sealed studies: five hospitals, two tellers and an owner, each in its own folder.

The commands of each participant run in processes of their own, in their folder and with their own
state, and see only files that they were given. The records are those of the library's demo,
synthetic and public, so that the total can be compared with sketches that have noise of their own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import privsketch as ps
import privsketch_studies as studies
from privsketch._base.errors import PrivsketchError
from privsketch._base.types import Floats
from privsketch.cli import demo_steps
from privsketch.cli.demo_steps import DELTA, N_CLUSTERS, SCHEMA, error_ratio, indent, step
from privsketch.cli.shell.answer import say
from privsketch.cli.shell.output import require_empty
from privsketch.cli.shell.progress import spinner
from privsketch.pages.report.html import save_report

EPSILON = 0.05  # small enough that the noise of five separate sketches matters
ALONE = 0.5  # epsilon that each hospital accepts if all others collude
TELLERS = ("auditor", "university")
OWNER = "owner"
N_REPEATS = 5  # of the comparison, because noise is random


class Person:
    """Participant with a folder, keys and state of their own."""

    def __init__(self, folder: Path) -> None:
        self.name, self.folder = folder.name, folder
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def environment(self) -> dict[str, str]:
        """Environment of their processes, with a state folder and no other privsketch variable."""
        variables = {key: value for key, value in os.environ.items() if "PRIVSKETCH_" not in key}
        state = str((self.folder / "state").resolve())
        return {**variables, "PRIVSKETCH_HOME": state, "PYTHONWARNINGS": "ignore"}

    def run(self, *arguments: object) -> str:
        """Run a command in a process of its own and return its output."""
        command = [sys.executable, "-m", "privsketch.cli.main", *map(str, arguments)]
        process = subprocess.run(  # noqa: S603 (this program, with arguments of its own)
            command,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if process.returncode != 0:
            lines = process.stderr.strip().splitlines()
            raise PrivsketchError(f"{self.name}: {lines[-1] if lines else 'the command failed'}")
        return process.stdout

    def hand(self, name: str, *recipients: Person) -> None:
        """Copy a file to other participants."""
        for recipient in recipients:
            shutil.copy(self.folder / name, recipient.folder / name)

    @property
    def table(self) -> Path:
        """Table of a hospital."""
        return next(self.folder.glob("visits.*"))

    def make_key(self) -> None:
        """Make a key of their own."""
        self.run("key", "make", f"{self.name}.key", "--no-passphrase")

    def enrol(self, design: str) -> str:
        """Write a card, as a teller or as a holder, and return the name of its file."""
        role: Sequence[object] = ["--accept-alone", ALONE]
        if self.name in TELLERS:
            role = ["--teller"]
        key, card = f"{self.name}.key", f"{self.name}.card"
        self.run("study", "enrol", design, "--key", key, *role, "-o", card)
        return card

    def seal(self, study: str) -> str:
        """Seal the table, and return the name of the ballot's file."""
        key, ballot = f"{self.name}.key", f"{self.name}.ballot"
        cost = ("--key", key, "--accept-alone", ALONE)
        self.run("study", "seal", study, self.table.name, *cost, "-o", ballot)
        return ballot

    def check(self, study: str, ballots: Sequence[str]) -> str:
        """Check ballots as a teller, and return the name of the result's file."""
        key, checked = f"{self.name}.study.key", f"{self.name}.checked"
        self.run("study", "check", study, *ballots, "--key", key, "-o", checked)
        return checked

    def tally(self, study: str, ballots: str, closed_list: str) -> str:
        """Tally the ballots in a folder, and return the name of the tally's file."""
        key, tally = f"{self.name}.study.key", f"{self.name}.tally"
        files = (study, ballots, "--list", closed_list)
        self.run("study", "tally", *files, "--key", key, "-o", tally)
        return tally


def hospitals(folder: Path, n_records: int) -> list[Person]:
    """Return five hospitals, each with a table of `n_records` patients in a folder of its own."""
    sites = [Person(folder / f"site-{n + 1}") for n in range(demo_steps.N_SITES)]
    for path, site in zip(demo_steps.write_tables(folder, n_records), sites, strict=True):
        shutil.move(path, site.folder / f"visits{path.suffix}")
    return sites


def all_records(sites: Sequence[Person]) -> Floats:
    """Return the encoded records of all tables, one of each patient."""
    return np.concatenate([demo_steps.kept_records(site.table) for site in sites])


def files_of(folder: Path) -> list[Path]:
    """Return the files of a demo, without the state of its participants."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return [path for path in paths if "state" not in path.parts]


def in_parallel(work: Callable[..., object], people: Sequence[object]) -> None:
    """Call a function for several people, two at a time."""
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, people))


def run_sealed_demo(folder: Path, n_records: int) -> None:
    """Run the demo with `n_records` patients at each site; files stay in `folder`."""
    require_empty(folder, "ballots are cast once")
    started = time.perf_counter()
    say("Five hospitals want a total with the noise of one release, and show nobody their sums.")
    say("Two tellers, who need not trust each other, add up ballots that neither can read.")
    sites = hospitals(folder, n_records)
    tellers = [Person(folder / name) for name in TELLERS]
    owner, mailbox = Person(folder / OWNER), folder / "mailbox"
    mailbox.mkdir()
    _make_study(owner, sites, tellers, n_records)
    study = studies.SealedStudy.load(owner.folder / "s.study")
    say(indent(study.describe()))
    _cast_ballots(owner, sites, tellers, mailbox)
    _tally(owner, tellers)
    total = ps.Sketch.load(owner.folder / "total.sketch")

    step("The total is an ordinary sketch", "privsketch learn total.sketch -k 6")
    with spinner("learning"):
        model = ps.learn_kmeans(total, N_CLUSTERS)
    model.save(owner.folder / "model.json")
    save_report(model, total, owner.folder / "report.html", title="Five hospitals, sealed")

    step("How good is the model? Only a demo can tell, because its records are public", None)
    with spinner("k-means on all records, and sketches with noise of their own"):
        records = all_records(sites)
        sealed = error_ratio(records, model)
        design = demo_steps.plan_design(EPSILON, n_records)
        ratios = [_ratio_apart(sites, design, records) for _ in range(N_REPEATS)]
        apart = float(np.median(ratios))
    say(f"    squared error relative to k-means on all {len(records):,} records")
    say(f"      sealed, one noise for all         {sealed:.3f}")
    say(f"      each hospital with its own noise  {apart:.3f} (median of {N_REPEATS})")
    say(f"\nDone in {time.perf_counter() - started:.0f} s. Open {owner.folder / 'report.html'}")
    files = files_of(folder)
    demo_steps.answer_demo(files, study.design, model, sealed, started, ratio_apart=apart)


def _make_study(
    owner: Person, sites: Sequence[Person], tellers: Sequence[Person], n_records: int
) -> None:
    """Write the design, enrol everyone, make the study and have tellers accept it."""
    step("The owner writes the public design; its noise is planned for the total", _DESIGN)
    SCHEMA.save(owner.folder / "schema.json")
    owner.run(*_DESIGN.split()[1:], "--records", n_records)
    owner.hand("design.json", *sites, *tellers)

    step(
        "Everyone makes a key. Hospitals state what they accept if all others collude",
        f"privsketch study enrol design.json --key site-1.key --accept-alone {ALONE} "
        "-o site-1.card",
    )
    with spinner("keys and cards"):
        in_parallel(Person.make_key, (*sites, *tellers, owner))
        in_parallel(lambda person: person.enrol("design.json"), (*sites, *tellers))
    for person in (*sites, *tellers):
        person.hand(f"{person.name}.card", owner)
    for teller, other in zip(tellers, tellers[::-1], strict=True):
        teller.hand(f"{teller.name}.pub", *sites, other)
        other.run("key", "trust", f"{teller.name}.pub")
    say("    fingerprints of tellers are compared by phone: privsketch key trust auditor.pub")

    step("The owner makes the study, and every teller signs it", _MAKE)
    cards = [f"{person.name}.card" for person in (*sites, *tellers)]
    owner.run(*("study", "make", "design.json", *cards, "--owner", f"{OWNER}.pub", "-o", "s.study"))
    owner.hand("s.study", *tellers, *sites)
    for teller in tellers:
        teller.run("study", "accept", "s.study", "--key", f"{teller.name}.key")
        other_tellers = [other for other in tellers if other is not teller]
        for file in teller.folder.glob("s.study.*.sig"):
            teller.hand(file.name, owner, *sites, *other_tellers)


def _cast_ballots(
    owner: Person, sites: Sequence[Person], tellers: Sequence[Person], mailbox: Path
) -> None:
    """Seal all tables, have tellers check the ballots, and close the list."""
    step(
        "Every hospital reads its table once and puts a ballot into the mailbox",
        f"privsketch study seal s.study visits.csv --key site-1.key --accept-alone {ALONE} "
        "-o site-1.ballot",
    )
    with spinner("sealing"):
        in_parallel(_seal, sites)
    for site in sites:
        shutil.copy(site.folder / f"{site.name}.ballot", mailbox)
    size = (mailbox / "site-1.ballot").stat().st_size
    say(f"    {len(sites)} ballots of {size:,} bytes each; to others they are random bytes")

    step("Tellers check that every ballot adds up, and the owner closes the list", _CLOSE)
    ballots = [f"../mailbox/{site.name}.ballot" for site in sites]
    for teller in tellers:
        shutil.copy(teller.folder / teller.check("s.study", ballots), mailbox)
    owner.run(
        *("study", "close", "s.study", "../mailbox", "--key", f"{OWNER}.key", "-o", "s.closed")
    )
    owner.hand("s.closed", *tellers)


def _tally(owner: Person, tellers: Sequence[Person]) -> None:
    """Tally, join the total, and destroy study keys."""
    step(
        "Each teller tallies once; anyone can join the tallies",
        "privsketch study tally s.study mailbox --list s.closed --key auditor.study.key "
        "-o auditor.tally",
    )
    for teller in tellers:
        teller.hand(teller.tally("s.study", "../mailbox", "s.closed"), owner)
    tallies = [f"{name}.tally" for name in TELLERS]
    owner.run("study", "join", "s.study", *tallies, "-o", "total.sketch")
    say(indent(ps.Sketch.load(owner.folder / "total.sketch").receipt.describe()))

    step("Tellers destroy their study keys, which could still open ballots", _DESTROY)
    for teller, other in zip(tellers, tellers[::-1], strict=True):
        other.hand(f"{other.name}.tally", teller)
        end = [part for name in TELLERS for part in ("--tally", f"{name}.tally")]
        teller.run("study", "destroy", "s.study", "--study-key", f"{teller.name}.study.key", *end)


_DESIGN = (
    f"privsketch design -k {N_CLUSTERS} --schema schema.json --epsilon {EPSILON} --delta {DELTA} "
    "--holders 5 --seed 7 -o design.json"
)
_MAKE = "privsketch study make design.json *.card --owner owner.pub -o s.study"
_CLOSE = "privsketch study close s.study mailbox --key owner.key -o s.closed"
_DESTROY = (
    "privsketch study destroy s.study --study-key auditor.study.key --tally auditor.tally ..."
)


def _seal(site: Person) -> None:
    site.run("key", "trust", f"{TELLERS[0]}.pub")
    site.seal("s.study")


def _ratio_apart(sites: Sequence[Person], design: ps.Design, records: Floats) -> float:
    """Return the error of centers from sketches that have noise of their own."""
    sketches = [ps.sketch(site.table, design, source=site.name) for site in sites]
    return error_ratio(records, ps.learn_kmeans(ps.merge(sketches), N_CLUSTERS))
