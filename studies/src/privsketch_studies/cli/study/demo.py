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
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import privsketch as ps
import privsketch_studies as studies
from privsketch._base.errors import PrivsketchError
from privsketch._base.types import Floats
from privsketch.cli.shell.answer import answer, say, wants_json
from privsketch.cli.shell.facts import model_facts
from privsketch.cli.shell.output import require_empty
from privsketch.cli.shell.progress import spinner
from privsketch.cli.story import (
    DELTA,
    N_CLUSTERS,
    SCHEMA,
    error_ratio,
    indent,
    kept_records,
    step,
    write_tables,
)
from privsketch.pages.report.html import save_report

EPSILON = 0.05  # small enough that the noise of five separate sketches matters
ALONE = 0.5  # epsilon that each hospital accepts if all others collude
TELLERS = ("auditor", "university")
OWNER = "owner"
REPEATS = 5  # of the comparison, because noise is random


class Person:
    """Participant with a folder, keys and state of their own."""

    def __init__(self, folder: Path) -> None:
        self.name, self.folder = folder.name, folder
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def environment(self) -> dict[str, str]:
        """Environment of their processes, with a state folder and no other privsketch variable."""
        others = {key: value for key, value in os.environ.items() if "PRIVSKETCH_" not in key}
        state = str((self.folder / "state").resolve())
        return {**others, "PRIVSKETCH_HOME": state, "PYTHONWARNINGS": "ignore"}

    def run(self, *arguments: object) -> str:
        """Run a command in a process of its own and return its output."""
        command = [sys.executable, "-m", "privsketch.cli.main", *map(str, arguments)]
        done = subprocess.run(  # noqa: S603 (this program, with arguments of its own)
            command,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines()
            raise PrivsketchError(f"{self.name}: {lines[-1] if lines else 'the command failed'}")
        return done.stdout

    def hand(self, name: str, *others: Person) -> None:
        """Copy a file to other participants."""
        for other in others:
            shutil.copy(self.folder / name, other.folder / name)


def run_sealed_demo(folder: Path, n_records: int) -> None:
    """Run the demo with `n_records` patients at each site; files stay in `folder`."""
    require_empty(folder, "ballots are cast once")
    started = time.perf_counter()
    say("Five hospitals want a total with the noise of one release, and show nobody their sums.")
    say("Two tellers, who need not trust each other, add up ballots that neither can read.")
    sites = [Person(folder / f"site-{n + 1}") for n in range(5)]
    tellers = [Person(folder / name) for name in TELLERS]
    owner, mailbox = Person(folder / OWNER), folder / "mailbox"
    mailbox.mkdir()
    for path, site in zip(write_tables(folder, n_records), sites, strict=True):
        shutil.move(path, site.folder / f"visits{path.suffix}")
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
    tables = [next(site.folder.glob("visits.*")) for site in sites]
    with spinner("k-means on all records, and sketches with noise of their own"):
        records = np.concatenate([kept_records(path) for path in tables])
        sealed = error_ratio(records, model)
        plain = ps.Design.plan(
            n_components=N_CLUSTERS,
            domain=SCHEMA,
            budget=ps.Budget(EPSILON, DELTA),
            n_records=n_records,
            random_state=7,
        )
        apart = float(np.median([_apart(tables, plain, records) for _ in range(REPEATS)]))
    say(f"    squared error relative to k-means on all {len(records):,} records")
    say(f"      sealed, one noise for all         {sealed:.3f}")
    say(f"      each hospital with its own noise  {apart:.3f} (median of {REPEATS})")
    say(f"\nDone in {time.perf_counter() - started:.0f} s. Open {owner.folder / 'report.html'}")
    if wants_json():
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        answer(
            written=[path for path in files if "state" not in path.parts],
            fingerprint=study.design.fingerprint,
            n_clusters_found=None,
            error_ratio=sealed,
            error_ratio_apart=apart,
            seconds=time.perf_counter() - started,
            **model_facts(model),
        )


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
    with spinner("keys and cards"), ThreadPoolExecutor(2) as pool:
        list(pool.map(_make_key, (*sites, *tellers, owner)))
        list(pool.map(_enrol, sites, [False] * len(sites)))
        list(pool.map(_enrol, tellers, [True] * len(tellers)))
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
        others = [other for other in tellers if other is not teller]
        for file in teller.folder.glob("s.study.*.sig"):
            teller.hand(file.name, owner, *sites, *others)


def _cast_ballots(
    owner: Person, sites: Sequence[Person], tellers: Sequence[Person], mailbox: Path
) -> None:
    """Seal all tables, have tellers check the ballots, and close the list."""
    step(
        "Every hospital reads its table once and puts a ballot into the mailbox",
        f"privsketch study seal s.study visits.csv --key site-1.key --accept-alone {ALONE} "
        "-o site-1.ballot",
    )
    with spinner("sealing"), ThreadPoolExecutor(2) as pool:
        list(pool.map(_seal, sites))
    for site in sites:
        shutil.copy(site.folder / f"{site.name}.ballot", mailbox)
    size = (mailbox / "site-1.ballot").stat().st_size
    say(f"    {len(sites)} ballots of {size:,} bytes each; to others they are random bytes")

    step("Tellers check that every ballot adds up, and the owner closes the list", _CLOSE)
    ballots = [f"../mailbox/{site.name}.ballot" for site in sites]
    for teller in tellers:
        key, checked = f"{teller.name}.study.key", f"{teller.name}.checked"
        teller.run("study", "check", "s.study", *ballots, "--key", key, "-o", checked)
        shutil.copy(teller.folder / checked, mailbox)
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
        key, output = f"{teller.name}.study.key", f"{teller.name}.tally"
        files = ("s.study", "../mailbox", "--list", "s.closed")
        teller.run("study", "tally", *files, "--key", key, "-o", output)
        teller.hand(output, owner)
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


def _make_key(person: Person) -> None:
    person.run("key", "make", f"{person.name}.key", "--no-passphrase")


def _enrol(person: Person, is_teller: bool) -> None:
    role: Sequence[object] = ["--teller"] if is_teller else ["--accept-alone", ALONE]
    key, card = f"{person.name}.key", f"{person.name}.card"
    person.run("study", "enrol", "design.json", "--key", key, *role, "-o", card)


def _seal(site: Person) -> None:
    site.run("key", "trust", f"{TELLERS[0]}.pub")
    table = next(site.folder.glob("visits.*")).name
    cost = ["--key", f"{site.name}.key", "--accept-alone", ALONE]
    site.run("study", "seal", "s.study", table, *cost, "-o", f"{site.name}.ballot")


def _apart(tables: Sequence[Path], design: ps.Design, records: Floats) -> float:
    """Return the error of centers from sketches that have noise of their own."""
    sketches = [ps.sketch(path, design, source=path.parent.name) for path in tables]
    return error_ratio(records, ps.learn_kmeans(ps.merge(sketches), N_CLUSTERS))
