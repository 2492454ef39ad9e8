"""`privsketch check` and `privsketch bounds`: before a study, for nothing or for a little."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privsketch.cli.shell.answer import JSON, answer, say, standard_output, wants_json
from privsketch.cli.shell.options import (
    EPSILON,
    MISSING,
    PATH,
    THREADS,
    TableOptions,
    choice,
    dry_run,
    file_options,
    ledger_options,
)
from privsketch.cli.shell.spending import end_dry_run, say_remaining, track_spending

if TYPE_CHECKING:
    from privsketch import Check
    from privsketch.design.recipe import Design
    from privsketch.facts.schema import Schema
    from privsketch.tables.table import Table


@click.command()
@click.argument("design_file", metavar="DESIGN", type=PATH)
@click.argument("data", nargs=-1, required=True, type=PATH)
@click.option("--columns", help="Columns that make a record, in order: a,b,c.")
@file_options
@MISSING
@JSON
def check(
    design_file: Path,
    stated: TableOptions,
) -> None:
    """Look at a table before anything is spent. For its holder alone.

    DESIGN: a design, or a schema. Rows, persons, missing and unreadable cells, values outside of
    the bounds, labels that are not listed, columns in another unit, what would be left out. All of
    it is exact and private, and every line says so; it is shown here and written nowhere. Nothing
    is spent.

    The worst comes last, and the exit code is 3 if a release would refuse the table, or if more
    than half of the values of a column, or of the rows, would be moved or lost.

    \b
    privsketch check study.json data.csv
    """
    import privsketch as ps
    from privsketch._base.errors import RecordError
    from privsketch.cli.shell.failure import shell_words
    from privsketch.cli.shell.progress import record_bar

    wanted = _design_or_schema(design_file)
    context = click.get_current_context()
    stop, words = context.find_root().obj, shell_words(context.command)
    with record_bar(stated.table, "looking") as advance:

        def progress(done: int) -> None:
            stop.raise_if_stopped()
            advance(done)

        found = ps.check(stated.table, wanted, progress=progress)
    say(found.describe(words))
    if wants_json():
        answer(**{**check_facts(found), "advice": found.advice_texts(words)})
    if not found.is_readable:
        raise RecordError("a release would refuse this table")
    if found.alarms:
        raise RecordError("a release of this table would be spoiled; the last lines say by what")


def check_facts(found: Check) -> dict[str, Any]:
    """Return all counts: exact, for the holder alone, and marked so."""
    facts = asdict(found)
    columns = [
        {**column, "faults": dict(column["faults"]), "n_wrong": one.n_wrong}
        for column, one in zip(facts.pop("columns"), found.columns, strict=True)
    ]
    return {
        "private": True,
        "notice": "for the holder of these records alone: exact numbers, not to be published or "
        "kept",
        "readable": found.is_readable,
        "alarms": found.alarms,
        **facts,
        "advice": found.advice_texts(),
        "columns": columns,
    }


def _design_or_schema(path: Path) -> Design | Schema:
    """Load a design or a schema; guesses may be looked at before they are accepted."""
    from privsketch._base.formats import parse_json, read_file, reading
    from privsketch.cli.shell.output import caution
    from privsketch.cli.shell.signing import load_design
    from privsketch.facts.guesses import guesses_in, without_guesses
    from privsketch.facts.schema import Schema

    content = parse_json(read_file(path), str(path))
    is_schema = isinstance(content, dict) and isinstance(content.get("columns"), list)
    if not is_schema or "format" in content:
        return load_design(path)
    if guesses_in(content):
        caution(f"{path} has guesses; no release takes it before `privsketch schema accept {path}`")
    with reading(str(path)):
        return Schema.from_json(without_guesses(content))


@click.command()
@click.argument("data", nargs=-1, required=True, type=PATH)
@click.option("--columns", required=True, help="Columns of numbers to propose bounds for: a,b,c.")
@click.option("--epsilon", type=EPSILON, required=True, help="What it may cost; delta is 0.")
@choice("--neighbours", ["add-remove", "replace"], help="Which change of a table stays hidden.")
@click.option("--person", help="The column that names persons: then one person is protected.")
@click.option(
    "--max-records",
    type=int,
    default=1,
    show_default=True,
    help="How many records of a person count; noise grows by as much.",
)
@click.option(
    "--rows-per-person",
    type=int,
    help="Where no column names persons: a public bound on their rows, taken on trust.",
)
@choice("--missing-person", ["error", "drop"], help="What is done with rows that name no person.")
@choice(
    "--unreadable",
    ["error", "missing"],
    help="What to do with cells that cannot be read: stop with an error, or treat them as missing.",
)
@click.option(
    "--max-outside",
    type=float,
    default=0.001,
    show_default=True,
    help="Share of the values, by noisy counts, that bounds may leave out at their ends.",
)
@file_options
@click.option("--source", help="Name of this set of records in the receipt; none if left out.")
@ledger_options
@THREADS
@dry_run("Say what it would cost, and what a ledger would say, without reading a record.")
@JSON
def bounds(
    stated: TableOptions,
    dry_run: bool,
    **options: Any,
) -> None:
    """Propose bounds for a schema from noisy counts.

    Bounds that people know cost nothing and are better: use this where nobody knows any. It
    charges --epsilon at once, whatever comes out, and that adds to all that follows.

    \b
    privsketch bounds data.csv --columns income,weight --epsilon 0.1
    """
    with track_spending() as spending:
        import privsketch as ps
        from privsketch.cli.shell.progress import record_bar

        if dry_run:
            _end_dry_bounds(stated.table, **options)
            return
        with record_bar(stated.table, "counting") as advance:

            def progress(done: int) -> None:
                spending.stop.raise_if_stopped()
                advance(done)

            found = ps.private_bounds(stated.table, progress=progress, **options)
        spending.stop.finish()
        spending.mark_begun()
        with standard_output():
            say(found.describe())
            say_remaining(options["ledger"], None)
        if wants_json():
            from privsketch.cli.shell.facts import receipt_facts

            answer(dry_run=False, **found.to_json(), **receipt_facts(found.receipt))


def _end_dry_bounds(
    table: Table,
    *,
    epsilon: float,
    neighbours: Any,
    ledger: Any,
    **options: Any,
) -> None:
    """Show the cost of bounds."""
    import privsketch as ps
    from privsketch.cli.shell.facts import cost_facts
    from privsketch.ledger.entry import cost_of_budget
    from privsketch.tables.survey.bounds import doublings

    rules = {
        name: options[name]
        for name in ("person", "max_records", "rows_per_person", "missing_person")
    }
    schema = doublings(table.columns or (), unreadable=table.unreadable, **rules)
    budget = schema.charged(ps.Budget(epsilon, 0.0, neighbours))
    say(f"columns     {', '.join(schema.names)}\ncost        {budget.describe()}")
    say("no record was read; nothing was spent")
    facts = {"names": list(schema.names), "cost": cost_facts(budget)}
    end_dry_run(ledger, lambda: cost_of_budget(budget), lambda: facts)
