"""`privsketch design`: the public recipe that all holders of a study share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from privsketch.cli.keys.options import KEY, PASSPHRASE_FILE, sign_result, signing_key
from privsketch.cli.shell.answer import JSON, answer, wants_json
from privsketch.cli.shell.options import PATH, choice, listed_numbers, study_options
from privsketch.cli.shell.output import require_free, say, say_cautions, say_written, write


@click.command()
@study_options
@choice(
    "--noise",
    ["gaussian", "cube", "laplace"],
    help="Gaussian if delta > 0; else the cube, or Laplace for pca.",
    open=True,
)
@click.option(
    "--features",
    "n_features",
    type=int,
    help="Size of the sketch; chosen by forecast if left out.",
)
@choice(
    "--feature-map",
    ["fourier", "one-bit", "cells", "quadratic", "second-moments"],
    help="Fourier if left out, cells for a few columns; for pca the better of the last two.",
    open=True,
)
@click.option(
    "--masks",
    metavar="MASKS",
    help="Secret subsampling: uniform:100, block:512, poisson:0.1, records:0.5, joined by +.",
)
@choice(
    "--frequencies",
    ["multi-scale", "adapted-radius", "gaussian", "structured", "orthobases", "normal"],
    help="Law of the frequencies; multi-scale and structured need no scale, the last two are "
    "for quadratic features.",
    open=True,
)
@click.option(
    "--scale",
    "frequency_scale",
    metavar="SCALE",
    help="Scale of the features, between width and distance of clusters: 0.5, or 0.1,2.",
)
@choice(
    "--count",
    ["released", "omitted", "public"],
    help="Whether a noisy number of records is part of the sketch.",
    open=True,
)
@choice(
    "--mean",
    ["released", "omitted"],
    help="For pca: whether a noisy mean is part of the sketch, so that components can be centered; "
    "3 % more Gaussian, 25 % more Laplace noise. Omitted if left out.",
    open=True,
)
@click.option(
    "--holders",
    "n_holders",
    type=int,
    help="For a sealed study: how many holders share the noise of their total.",
)
@choice(
    "--sharing",
    ["holders", "tellers"],
    help="With --holders: who adds that noise, each holder a part or each teller all of it; "
    "holders if delta > 0.",
    open=True,
)
@click.option("--seed", "random_state", type=int, help="Public seed of the frequencies.")
@click.option(
    "-o",
    "--output",
    type=PATH,
    required=True,
    help="File of the design, JSON; - for standard output.",
)
@KEY
@PASSPHRASE_FILE
@click.option("--force", is_flag=True, help="Replace an existing design: its sketches are lost.")
@JSON
def design(
    study: dict[str, Any],
    frequency_scale: str | None,
    output: Path,
    key_file: Path | None,
    passphrase_file: Path | None,
    force: bool,
    **choices: Any,
) -> None:
    """Make the public recipe that all holders of a study share.

    \b
    privsketch design -k 9 --ball 1 --dim 3 --epsilon 1 --delta 1e-6 -o study.json
    """
    from privsketch.design.cautions import describe_design
    from privsketch.design.plan import plan_design

    require_free(output, force, "a new design would not fit the sketches of the old one")
    signer = signing_key(key_file, passphrase_file, output)
    scale: Any = None if frequency_scale is None else listed_numbers(frequency_scale)
    if choices["n_holders"] is not None and choices["sharing"] is None:
        choices["sharing"] = "holders" if study["budget"].delta > 0 else "tellers"
    planned = plan_design(**study, frequency_scale=scale, **choices)
    said = say_cautions(study["domain"], planned.budget, choices["n_records"], planned.columns)
    write(planned.save, output)
    signatures = sign_result(signer, output, planned.to_bytes(), "design")
    say(describe_design(planned, said=said), output)
    say_written(output)
    if wants_json():
        from privsketch.cli.shell.facts import design_facts

        answer(written=[output, *signatures], **design_facts(planned))
