"""`privsketch`: the life of a sketch from the shell.

Only click is imported here; everything heavy is imported by the command that needs
it, so that --help answers at once.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import click

from privsketch import __version__
from privsketch.cli.cluster import cluster
from privsketch.cli.keys.commands import keygen, sign, trust, verify
from privsketch.cli.keys.options import KEY, PASSPHRASE_FILE, SIGNED_BY, sign_result, signing_key
from privsketch.cli.learn import learn
from privsketch.cli.ledger.commands import ledger
from privsketch.cli.options import PATH, choice, listed_numbers, study_options
from privsketch.cli.output import note, require_free, say, say_cautions, say_written, write
from privsketch.cli.plan import plan
from privsketch.cli.release import release
from privsketch.cli.schema import schema
from privsketch_studies.cli.study.ballots import close, join, seal, tally
from privsketch_studies.cli.study.studies import accept, enrol, rehearse, study
from privsketch_studies.cli.collector.admin import collector, serve
from privsketch_studies.cli.collector.remote import pull, push
from privsketch.cli.shell.answer import JSON, Answer, UnreadError, answer, begin, begun, wants_json
from privsketch.cli.shell.failure import EXIT_CODES, Failure
from privsketch.cli.shell.group import Group
from privsketch.cli.sketch import sketch
from privsketch.cli.spending import reported_spending
from privsketch.cli.stopping import Stop, stoppable
from privsketch.cli.survey import bounds, check

_ALLOW_WEIGHTS = click.option(
    "--allow-weights",
    is_flag=True,
    help="Accept sketches that say of themselves that their records count more often than once.",
)


class _Main(Group):
    """Ends every command with its answer or its failure."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        asked, says_nothing = begin(ctx, args), not args
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:  # of what stands before the command
            if says_nothing:  # click shows the help
                raise
            self._fail(ctx, error, Stop(), *asked)

    def invoke(self, ctx: click.Context) -> Any:
        told, command = begun(ctx)
        with stoppable(ctx.obj) as stop:
            ctx.obj = stop
            try:
                result = super().invoke(ctx)
                stop.phase = "ending"
                told.show()
                return result
            except click.exceptions.Exit:
                raise
            except (Exception, KeyboardInterrupt) as error:
                stop.phase = "ending"
                self._fail(ctx, error, stop, told, command)
            finally:
                stop.phase = "ending"

    def _fail(
        self,
        ctx: click.Context,
        error: BaseException,
        stop: Stop,
        told: Answer,
        command: click.Command | None,
    ) -> NoReturn:
        """Say what happened and what it cost; the exit code says it too."""
        from privsketch._base.errors import AccessError

        failure = Failure.of(error, stop, command)
        if isinstance(error, UnreadError) and not failure.counts:
            ctx.exit(EXIT_CODES["interrupted"])  # the reader has seen enough, and knows it
        failure.show()
        with suppress(AccessError):  # of a standard output that nobody reads
            told.show(failure.to_json())
        if failure.kind == "interrupted":
            raise click.Abort from None
        ctx.exit(failure.exit_code)


@click.group(cls=_Main, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version=__version__, prog_name="privsketch")
def main() -> None:
    """Learn from sensitive records without keeping them.

    Each holder makes a private sketch of its records by a shared design; a collector
    merges the sketches; anyone learns clusters from the sum. Start with the demo.
    """


@main.command()
@click.option(
    "--output",
    "-o",
    type=PATH,
    default=Path("privsketch-demo"),
    show_default=True,
    help="Folder for the files of the demo.",
)
@click.option(
    "--records",
    type=click.IntRange(min=100),
    default=20_000,
    show_default=True,
    help="Patients of each of the five sites.",
)
@click.option("--sealed", is_flag=True, help="With the noise of one release among all five.")
@click.option(
    "--collector",
    is_flag=True,
    help="With a service between them, and its pages: open, then sealed.",
)
@JSON
def demo(output: Path, records: int, sealed: bool, collector: bool) -> None:
    """Five hospitals, one study: schema, sketch, merge, learn, report."""
    if collector:
        if sealed:
            raise click.UsageError("--collector shows an open study, and then a sealed one")
        from privsketch_studies.cli.collector.demo import run_collector_demo

        run_collector_demo(output, records)
        return
    if sealed:
        from privsketch_studies.cli.study.demo import run_sealed_demo

        run_sealed_demo(output, records)
        return
    with reported_spending() as spending:
        from privsketch.cli.demo import run_demo

        run_demo(output, records, spending)


main.add_command(schema)
main.add_command(check)
main.add_command(bounds)
main.add_command(plan)


@main.command()
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
    from privsketch.design.plan import plan_design
    from privsketch.design.words import describe_design

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


main.add_command(sketch)


@main.command()
@click.argument("sketches", nargs=-1, required=True, type=PATH)
@click.option(
    "-o", "--output", type=PATH, required=True, help="File of the sum; - for standard output."
)
@click.option(
    "--same-records", is_flag=True, help="Accept sketches of the same source; their budgets add."
)
@click.option(
    "--weights",
    help="Whole numbers, one for each sketch: how often its records count; once if left out.",
)
@_ALLOW_WEIGHTS
@SIGNED_BY
@click.option("--force", is_flag=True, help="Replace an existing output.")
@JSON
def merge(
    sketches: tuple[Path, ...],
    output: Path,
    same_records: bool,
    weights: str | None,
    allow_weights: bool,
    signed_by: tuple[str, ...],
    force: bool,
) -> None:
    """Add sketches of one study up.

    \b
    privsketch merge site-*.sketch -o all.sketch
    privsketch merge *.sketch -o all.sketch --signed-by a.pub --signed-by b.pub
    """
    import privsketch as ps
    from privsketch.cli.keys.checking import load_sketches
    from privsketch.sketching.merge import weight_lines

    factors = None
    if weights is not None:
        try:
            factors = [int(item) for item in weights.split(",")]
        except ValueError:
            raise click.BadParameter(f"--weights {weights}: expected a list like 2,1,1") from None
    require_free(output, force, "it would be replaced")
    parts = load_sketches(sketches, signed_by)
    total = ps.merge(parts, same_records=same_records, weights=factors, allow_weights=allow_weights)
    write(total.save, output)
    say(total.receipt.describe(), output)
    for line in weight_lines(total):
        note(line, output)
    found = ps.compare(parts, allow_weights=True) if len(parts) > 1 else None
    for line in [] if found is None else found.merge_lines():
        say(line, output)
    say_written(output)
    if wants_json():
        from privsketch.cli.shell.facts import sketch_facts

        alarms = [] if found is None else found.alarm_lines()
        answer(written=[output], alarms=alarms, **sketch_facts(total))


@main.command()
@click.argument("sketches", nargs=-1, required=True, type=PATH)
@click.option("--report", type=PATH, help="File of a page with a picture, HTML.")
@_ALLOW_WEIGHTS
@SIGNED_BY
@click.option("--force", is_flag=True, help="Replace an existing report.")
@JSON
def compare(
    sketches: tuple[Path, ...],
    report: Path | None,
    allow_weights: bool,
    signed_by: tuple[str, ...],
    force: bool,
) -> None:
    """Say which source is unlike the others, and whether a unit explains it.

    A function of public sketches: nothing is spent. An alarm is a shift, or the factor of a unit
    (pounds for kilograms), of few columns that explains a source. Other differences are told as
    such.

    \b
    privsketch compare site-*.sketch --report sites.html
    """
    import privsketch as ps
    from privsketch.cli.keys.checking import load_sketches

    if len(sketches) < 2:
        raise click.UsageError("give two sketches or more: one is compared with the others")
    if report is not None:
        require_free(report, force, "it would be replaced")
    found = ps.compare(load_sketches(sketches, signed_by), allow_weights=allow_weights)
    if report is not None:  # before any words, whose reader may leave
        from privsketch.pages.report.sources import save_comparison

        write(lambda path: save_comparison(found, path), report)
    say(found.describe(), report)
    if report is not None:
        say_written(report)
    if wants_json():
        answer(written=[] if report is None else [report], **found.to_json())


main.add_command(learn)
main.add_command(cluster)
main.add_command(release)
main.add_command(ledger)


@main.command()
@click.argument("file", type=PATH)
@JSON
def inspect(file: Path) -> None:
    """Say what a file of privsketch contains.

    A design, schema, sketch, model, public key or receipt; of a released table, its receipt. Of a
    sealed study: the study, a card, a ballot, a closed list or a tally.

    \b
    privsketch inspect study.json
    """
    from privsketch._load import loaded
    from privsketch.cli.keys.checking import checked_bytes
    from privsketch.models.base import Model
    from privsketch.projection.files import receipt_beside
    from privsketch_studies.sealing.study import SealedStudy

    table, receipt = file, receipt_beside(file)
    if receipt is not None:
        say(f"table       {file}, described by {receipt}", None)
        file = receipt
    data, signer = checked_bytes(file)
    if signer is not None:
        click.echo(f"signed by   {signer.name}", err=True)
    found = loaded(data, str(file))
    if isinstance(found, SealedStudy):
        found = SealedStudy.load(file)  # with the signatures of tellers
    say(found.describe(), None)
    if isinstance(found, Model):
        say("\n" + found.receipt.describe(), None)
    if wants_json():
        from privsketch.cli.shell.facts import file_facts, key_facts

        answer(
            table=None if receipt is None else table,
            file=file,
            signer=None if signer is None else key_facts(signer),
            **file_facts(found),
        )


main.add_command(keygen)
main.add_command(sign)
main.add_command(verify)
main.add_command(trust)
for command in (enrol, study, accept, seal, close, tally, join, rehearse):
    main.add_command(command)
for command in (serve, push, pull, collector):
    main.add_command(command)
