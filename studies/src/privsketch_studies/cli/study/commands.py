"""`privsketch study`: sealed studies, in which only the total over all holders becomes known."""

from __future__ import annotations

from pathlib import Path

import click

from privsketch.cli.shell.answer import JSON, answer, say
from privsketch.cli.shell.group import Group
from privsketch.cli.shell.options import demo_options
from privsketch_studies.cli.study.ballots import close, join, seal, tally
from privsketch_studies.cli.study.checking import check
from privsketch_studies.cli.study.making import (
    STUDY,
    accept,
    destroy,
    enrol,
    make,
    settle,
    show,
    void,
)


@click.command()
@STUDY
@click.option("--turnout", type=int, help="Number of holders who cast a ballot; all by default.")
@JSON
def rehearse(study_file: Path, turnout: int | None) -> None:
    """Rehearse a study with made-up records and temporary keys.

    The rehearsal runs on this machine, with the same participants, design and noise. It spends
    nothing, and uses none of your keys.

    \b
    privsketch study rehearse s.study
    """
    from privsketch_studies.sealing.rehearsal import rehearse
    from privsketch_studies.sealing.study import SealedStudy

    study = SealedStudy.load(study_file)
    steps: list[str] = []

    def progress(text: str) -> None:
        steps.append(text)
        say(f"now         {text}")

    result = rehearse(study, turnout=turnout, progress=progress)
    say(f"done        {result.turnout} ballots of {result.ballot_bytes} bytes, tallied and joined")
    say(f"noise       {result.noise_ratio:.3f} times that of the receipt; expected is about 1")
    answer(
        fingerprint=study.fingerprint,
        turnout=result.turnout,
        ballot_bytes=result.ballot_bytes,
        noise_ratio=result.noise_ratio,
        steps=steps,
    )


@click.command()
@demo_options("privsketch-study-demo")
@JSON
def demo(output: Path, records: int) -> None:
    """Run a sealed study of five hospitals and two tellers."""
    from privsketch_studies.cli.study.demo import run_sealed_demo

    run_sealed_demo(output, records)


@click.group(
    cls=Group,
    commands=[
        *(enrol, make, accept, show, rehearse, seal, check, close, tally, join),
        *(settle, void, destroy, demo),
    ],
)
def study() -> None:
    """Run a sealed study: only the total over all holders becomes known.

    Holders seal ballots, and tellers add up ballots that they cannot read. The commands below are
    in the order of use; `study show` shows the next steps.

    \b
    privsketch study make design.json *.card -o s.study
    privsketch study show s.study
    """
