"""`privsketch sketch`: one holder's records to their private sketch."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from privsketch.cli.shell.answer import JSON, answer, wants_json
from privsketch.cli.shell.options import (
    LIMITS,
    MISSING,
    PATH,
    SOURCE,
    SPEND_AGAIN,
    TableOptions,
    dry_run,
    engine_options,
    ledger_options,
    table_options,
    with_options,
)
from privsketch.cli.shell.output import (
    caution_decimals,
    require_available,
    require_distinct,
    required_output,
    say,
    say_source,
    say_written,
    source_name,
    write,
)
from privsketch.cli.shell.signing import KEY, PASSPHRASE_FILE, SIGNED_BY, sign_result, signing_key
from privsketch.cli.shell.spending import end_dry_run, say_remaining, track_spending

_MIN_DIGITS = 16  # eight are found by trying designs for an hour
_PERSONS = (
    "persons     finding the records of each that count is not included; rows wait for it in "
    "memory, and\n            beyond 256 MB in a temporary file without a name"
)


@click.command()
@click.argument("design_file", metavar="DESIGN", type=PATH)
@click.argument("data", nargs=-1, required=True, type=PATH)
@click.option(
    "-o",
    "--output",
    type=PATH,
    help="File of the sketch; - for standard output. Needed unless --dry-run is there.",
)
@SOURCE
@ledger_options
@click.option("--columns", help="Columns that make a record, in order: a,b,c.")
@table_options
@MISSING
@engine_options
@click.option(
    "--expect",
    metavar="FINGERPRINT",
    help="Refuse any design but this one: the first 16 or more characters of its fingerprint.",
)
@SIGNED_BY
@with_options(*LIMITS)
@KEY
@PASSPHRASE_FILE
@click.option(
    "--insecure",
    is_flag=True,
    help="Make exact sums, without noise and without privacy, of an insecure design: for research "
    "on public or made-up records. No ledger, merge with private sketches, study or signature "
    "takes them.",
)
@dry_run("Say what the sketch would cost and how long it would take, without reading a record.")
@SPEND_AGAIN
@JSON
def sketch(
    design_file: Path,
    stated: TableOptions,
    output: Path | None,
    source: str | None,
    ledger: Any,
    engine: Any,
    expect: str | None,
    signed_by: tuple[str, ...],
    max_epsilon: float | None,
    max_delta: float | None,
    key_file: Path | None,
    passphrase_file: Path | None,
    insecure: bool,
    dry_run: bool,
    force: bool,
) -> None:
    """Read records once and publish their private sketch.

    DATA: one or more .parquet, .csv, .tsv, .xlsx, .arrow or .npy files, folders of them, or
    patterns like "part-*.parquet". Charges the budget of the design once, at the end.
    With --key the sketch is signed, and its source named after the key unless --source is there.

    \b
    privsketch sketch study.json data.parquet -o site-3.sketch
    privsketch sketch study.json data.parquet -o site-3.sketch --key site-3.key \\
               --signed-by designer.pub --max-epsilon 0.5 --max-delta 1e-6
    """
    with track_spending() as spending:
        import privsketch as ps
        from privsketch._base.errors import AccessError, FileError
        from privsketch.cli.shell.progress import record_bar
        from privsketch.cli.shell.signing import load_design
        from privsketch.facts.budget import require_limits
        from privsketch.ledger.entry import writing_to
        from privsketch.sketching.build import cost_of_design, require_consent

        if not dry_run:
            required_output(output)
        recipe = load_design(design_file, signed_by)
        if expect is not None and len(expect) < _MIN_DIGITS:
            raise FileError(
                f"--expect {expect}: {_MIN_DIGITS} or more characters of a fingerprint are needed; "
                "with fewer, somebody could try designs until one fits"
            )
        if expect is not None and not recipe.fingerprint.startswith(expect.lower()):
            raise FileError(
                f"{design_file}: its fingerprint is {recipe.fingerprint[:16]}, not {expect}"
            )
        require_consent(recipe, insecure=insecure)
        if insecure and key_file is not None:
            raise click.UsageError("--key: what is insecure gets no signature; leave it out")
        require_limits(recipe.budget, max_epsilon, max_delta)
        if sys.stderr is not None and sys.stderr.isatty():
            asks = recipe.budget.describe()
            click.echo(f"design {recipe.fingerprint[:16]} asks for {asks}", err=True)
        caution_decimals(stated, recipe.schema, design_file)
        if dry_run:
            cost = ps.estimate_cost(recipe, n_threads=getattr(engine, "n_threads", None))
            told = str(cost)
            if recipe.budget.unit.person is not None:
                told = f"{cost}\n{_PERSONS}"
            say(f"{recipe.describe()}\n\n{told}\n\nno record was read; nothing was spent", None)

            def facts() -> dict[str, Any]:
                from privsketch.cli.shell.facts import design_facts

                return {**design_facts(recipe), "estimate": asdict(cost)}

            end_dry_run(ledger, lambda: cost_of_design(recipe), facts)
            return
        # Learn it before the budget is spent.
        output = required_output(output)
        require_available(output, force, "sketching its records again would spend the budget again")
        require_distinct(stated, [output])
        if output.resolve() == design_file.resolve():
            raise AccessError(f"{output}: given twice; designs and results need a file each")
        signer = signing_key(key_file, passphrase_file, output)
        if signer is not None and source is None:
            source = signer.name  # whoever adds sketches up compares the two
        with record_bar(stated.table) as advance, writing_to(str(output)):

            def progress(done: int) -> None:
                spending.stop.raise_if_stopped()
                advance(done)

            released = ps.sketch(
                stated.table,
                recipe,
                source=source_name(source, output),
                engine=engine,
                progress=progress,
                ledger=ledger,
                insecure=insecure,
            )
        spending.stop.finish()
        write(released.save, output, spending.mark_begun)
        spending.mark_written(output)
        signatures = sign_result(signer, output, released.to_bytes(), "sketch")
        say(released.receipt.describe(), output)
        say_source(source, output, "sketch of")
        say_remaining(ledger, output)
        say_written(output)
        if wants_json():
            from privsketch.cli.shell.facts import sketch_facts

            answer(dry_run=False, written=[output, *signatures], **sketch_facts(released))
