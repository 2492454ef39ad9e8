"""`privsketch release`: rows instead of sums, each projected and hidden by noise of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from privsketch.cli.shell.answer import JSON, answer, wants_json
from privsketch.cli.shell.options import (
    DOMAIN,
    EPSILON,
    MISSING,
    PATH,
    SOURCE,
    SPEND_AGAIN,
    THREADS,
    TableOptions,
    choice,
    domain_of,
    dry_run,
    ledger_options,
    listed_names,
    stated_domain,
    table_options,
    with_options,
    with_unreadable,
)
from privsketch.cli.shell.output import (
    require_available,
    require_distinct,
    require_file,
    required_output,
    say,
    say_cautions,
    say_source,
)
from privsketch.cli.shell.spending import end_dry_run, say_remaining, track_spending

_AGAIN = "releasing its records again would spend the budget again"


@click.command()
@click.argument("data", nargs=-1, required=True, type=PATH)
@click.option(
    "-o",
    "--output",
    type=PATH,
    help="Table of released rows: .parquet, .csv, .arrow, .feather or .npy. Needed unless "
    "--dry-run is there.",
)
@click.option("--epsilon", type=EPSILON, required=True, help="Privacy budget.")
@click.option(
    "--delta",
    type=float,
    default=0.0,
    show_default=True,
    help="0 is pure differential privacy. With more, and without --seed, the matrix is fresh "
    "for this one release, which takes less noise from about ten components on.",
)
@click.option(
    "-k",
    "--components",
    "n_components",
    type=int,
    required=True,
    help="Numbers that are released for each record.",
)
@with_options(*DOMAIN)
@choice(
    "--protect",
    ["row", "element"],
    help="What is hidden: all that a record says, or one entry of it.",
)
@click.option(
    "--bound",
    type=float,
    metavar="DISTANCE",
    help="Hide only changes by at most this distance; the diameter of the domain, which hides "
    "all, if left out.",
)
@choice("--bound-norm", ["l2", "l1"], help="Distance of rows that --bound speaks of.")
@choice("--noise", ["auto", "laplace", "gaussian"], help="Gaussian noise needs --delta.")
@choice(
    "--calibration",
    ["auto", "realised", "fresh", "union", "paper"],
    help="realised: private at this very matrix; fresh: for a matrix nobody knew; auto: the less "
    "noisy one that is allowed; union and paper are for comparison.",
)
@click.option(
    "--seed",
    "random_state",
    type=int,
    help="Seed of the matrix, which makes the matrix public: anyone can draw it again. Noise has "
    "no seed. If left out, the matrix is secret.",
)
@click.option(
    "--columns",
    help="Columns that make a record, in order: a,b,c. All but the carried ones if left out, and "
    "all of them must be numeric.",
)
@table_options
@click.option(
    "--carry",
    metavar="COLUMNS",
    help="Columns to copy UNPROTECTED, named one by one: id,label. Their values pass through "
    "unchanged; those of CSV files as text.",
)
@MISSING
@THREADS
@SOURCE
@ledger_options
@click.option(
    "--publish-matrix",
    "matrix_file",
    type=PATH,
    metavar="FILE",
    help="Write the matrix to a .npy file, once the release is complete.",
)
@dry_run("Say how much noise each number would have, without reading a record or spending.")
@SPEND_AGAIN
@JSON
def release(
    stated: TableOptions,
    output: Path | None,
    box: tuple[str, str] | None,
    ball: float | None,
    schema: Path | None,
    center: str,
    n_components: int,
    carry: str | None,
    n_threads: int | None,
    source: str | None,
    ledger: Any,
    matrix_file: Path | None,
    dry_run: bool,
    force: bool,
    **choices: Any,
) -> None:
    """Publish every record as a few projected, noisy numbers.

    DATA: one or more .parquet, .csv, .tsv, .xlsx, .arrow or .npy files, folders of them, or
    patterns like "part-*.parquet", read in their order. Charges the budget once, when the
    table is complete; its receipt is written beside it. Noise hides a record behind the
    domain, not behind the other records: it does not shrink with their number, which is
    public.

    Row i of the output is row i of the input: a table sorted by something secret tells that
    order. Shuffle it, or sort it by something public, first.

    \b
    privsketch release data.parquet --epsilon 4 --components 10 --protect row \\
        --ball 3 -o released.parquet
    """
    with track_spending() as spending:
        import privsketch as ps
        from privsketch.cli.shell.progress import record_bar
        from privsketch.facts.schema import require_rows, schema_of
        from privsketch.ledger.entry import counted_refusals, writing_to
        from privsketch.projection.files import receipt_path, release_files
        from privsketch.tables.carried import RecordFiles
        from privsketch.tables.table import checked_missing

        domain = stated_domain(box, ball, center, None, schema)
        domain, table = with_unreadable(domain, stated.table)
        # Learn it before anything is released.
        if not dry_run:
            require_file(required_output(output), "a released table stands beside its receipt")
            _require_outputs(stated, required_output(output), matrix_file, force)
        carried = listed_names(carry) or []
        encoding = schema_of(domain)
        if encoding is not None:
            require_rows(encoding)
        with counted_refusals(ledger, what="rows"):
            records = RecordFiles.of(table, carried, encoding, neighbours="replace")
        projection = ps.Projection.draw(domain_of(domain, records.dim), n_components, **choices)
        budget = ps.Budget(choices["epsilon"], choices["delta"], "replace")
        say_cautions(domain, budget, None)  # the number of records is not known yet
        if carried:
            click.secho(
                f"UNPROTECTED: {', '.join(carried)} will be copied as they are, for everyone who "
                "gets the table",
                err=True,
                bold=True,
            )
        if dry_run:
            say(_forecast(projection, records), None)
            end_dry_run(
                ledger,
                projection.cost,
                lambda: {"looked_at": records.looked_at, **_forecast_facts(projection)},
            )
            return
        output = required_output(output)
        with record_bar(table, "releasing") as advance, writing_to(str(output)):

            def progress(done: int) -> None:
                spending.stop.raise_if_stopped()
                advance(done)

            description, n_rows = release_files(
                records,
                projection,
                output,
                source=source or output.stem,
                missing_to_center=checked_missing(table.missing, encoding),
                n_threads=n_threads,
                progress=progress,
                finish=spending.stop.finish,
                ledger=ledger,
            )
        spending.mark_written(output)
        say(description.describe(), None)
        say_source(source, output, "release of")
        say_remaining(ledger, output)
        say(f"written to {output}, {n_rows} rows, and {receipt_path(output)}", None)
        if matrix_file is not None:
            _write_matrix(matrix_file, projection)
            say(f"written to {matrix_file}, the matrix of this release", None)
        if wants_json():
            from privsketch.cli.shell.facts import receipt_facts

            files = [output, receipt_path(output), *([matrix_file] if matrix_file else [])]
            told = {"description": description.to_json(), **receipt_facts(description.receipt)}
            answer(dry_run=False, written=files, **told)


def _require_outputs(
    stated: TableOptions, output: Path, matrix_file: Path | None, force: bool
) -> None:
    """Refuse outputs that cannot be written, that meet, or that would replace what is of value."""
    from privsketch._base.errors import AccessError
    from privsketch.projection.files import receipt_path
    from privsketch.tables.writing import table_kind

    table_kind(output)
    outputs = [output, receipt_path(output) if output.name else output]
    if matrix_file is not None:
        if matrix_file.suffix.lower() != ".npy":
            raise AccessError(f"{matrix_file}: a matrix is written as .npy")
        outputs.append(matrix_file)
    for path in outputs:
        require_available(path, force, "choose another name" if path is matrix_file else _AGAIN)
    require_distinct(stated, outputs)


def _forecast(projection: Any, records: Any) -> str:
    """Forecast a release from public numbers."""
    receipt = projection.receipt()
    reach = projection.protection.reach / projection.n_components**0.5
    noise, law = projection.noise_variance**0.5, projection.noise.law
    return "\n".join(
        [
            f"record      {projection.dim} columns",
            f"signal      a record at the edge of the domain is about {reach:.4g} in each number",
            f"noise       standard deviation {noise:.4g} in each number, {law.kind}",
            receipt.describe(),
            records.looked_at,
            "nothing was spent; a matrix without a seed is drawn anew, and with it the "
            "noise of calibrations that follow it",
        ]
    )


def _forecast_facts(projection: Any) -> dict[str, Any]:
    """Return the forecast for machines."""
    from privsketch.cli.shell.facts import receipt_facts

    return {
        "dim": projection.dim,
        "n_components": projection.n_components,
        "signal": projection.protection.reach / projection.n_components**0.5,
        "noise": projection.noise.law.kind,
        "noise_std": projection.noise_variance**0.5,
        **receipt_facts(projection.receipt()),
    }


def _write_matrix(path: Path, projection: Any) -> None:
    import io

    import numpy as np

    from privsketch._base.formats import write_file

    content = io.BytesIO()
    np.save(content, projection.matrix.values)
    write_file(path, content.getvalue())
