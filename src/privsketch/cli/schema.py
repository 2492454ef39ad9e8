"""`privsketch schema`: draft a schema from a file's names and types, and check one.

None of these commands reads a record.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privsketch.cli.shell.answer import JSON, answer, remark
from privsketch.cli.shell.failure import shell_words
from privsketch.cli.shell.group import Group
from privsketch.cli.shell.options import PATH, TableOptions, choice, file_options
from privsketch.cli.shell.output import require_available, say, say_written, write

if TYPE_CHECKING:
    from privsketch._base.errors import PrivsketchError
    from privsketch.facts.budget import Neighbours


@click.group(cls=Group)
def schema() -> None:
    """Draft and check the public description of a table.

    A schema states the kinds and bounds of columns, what happens to missing values, and which
    column names persons.
    """


@schema.command()
@click.argument("data", type=PATH)
@click.option(
    "-o",
    "--output",
    type=PATH,
    required=True,
    help="File of the schema (JSON), or - for standard output.",
)
@choice(
    "--neighbours",
    ["add-remove", "replace"],
    help="Which change of a table will stay hidden. With add-remove, records that miss a value are "
    "left out; with replace, they are completed, because their number is public.",
)
@file_options
@click.option("--force", is_flag=True, help="Replace an existing schema with all edits in it.")
@JSON
def draft(stated: TableOptions, output: Path, neighbours: Neighbours, force: bool) -> None:
    """Draft a schema from the names and types of a file's columns.

    No record is read; you fill in the bounds. CSV files have names only. With the rules of this
    draft, missing and unreadable cells do not stop a release.

    \b
    privsketch schema draft data.parquet -o schema.json
    """
    from privsketch._base.formats import write_file
    from privsketch.tables.survey.draft import drafted

    require_available(output, force, "what was written in it would be lost")
    found = drafted(stated.table, neighbours)
    text = json.dumps(found, indent=2, ensure_ascii=False) + "\n"
    write(lambda path: write_file(path, text.encode()), output)
    n_columns = len(found["columns"])
    if n_columns == 1 and any(mark in found["columns"][0]["name"] for mark in ";\t|,"):
        doubt = (
            "one column with marks in its name: are cells separated by them? "
            "say --delimiter ';', for instance"
        )
        say(f"careful     {doubt}", output)
        remark("cautions", doubt)
    say(f"{n_columns} columns, by their names and types; no record was read", output)
    say(f"next        fill in what is null; then `privsketch schema check {output}`", output)
    say_written(output)
    answer(written=[output], n_columns=n_columns)


def _field(name: str, value: str | None) -> str:
    """Return a parameter as a field of a schema's file."""
    return f'"{name}"' if value is None else f'"{name}": {value}'.replace("'", '"')


@schema.command("check")
@click.argument("file", metavar="SCHEMA", type=PATH)
@click.argument("data", nargs=-1, type=PATH)
@file_options
@JSON
def check_schema(file: Path, stated: TableOptions) -> None:
    """Check a schema, and whether files have its columns.

    Only names and types of DATA are compared, and no record is read; `privsketch check` reads
    records.

    \b
    privsketch schema check schema.json data.parquet
    """
    from privsketch._base.errors import ParameterError, RecordError
    from privsketch._base.formats import parse_json, read_file
    from privsketch.facts.schema import Schema
    from privsketch.tables.survey.draft import misfits, open_places

    content = parse_json(read_file(file), str(file))
    found = open_places(content)
    failing: type[PrivsketchError] = ParameterError
    facts: dict[str, Any] = {"schema": None, "dim": None, "stops": []}
    if not found:
        described = Schema.from_json(content)
        say(described.describe(), None)
        say(f"{'record':<12} {described.dim} numbers", None)
        stops = [ParameterError(text).rendered(_field) for text in described.stops()]
        for text in stops:
            say(f"careful      one record can stop a release: {text}", None)
        facts = {"schema": described.to_json(), "dim": described.dim, "stops": stops}
        failing = RecordError
        words = shell_words(click.get_current_context().command)
        unfit = misfits(described, stated.table)
        found = [RecordError(text).rendered(words) for text in unfit]
    for text in found:
        say(f"open         {text}", None)
    answer(ready=not found, open=found, **facts)
    if found:
        things = "1 thing" if len(found) == 1 else f"{len(found)} things"
        raise failing(f"{file}: {things} to mend before it can be used")
    say(
        "ready        nothing is open"
        + ("; names and types of all files fit" * bool(stated.paths)),
        None,
    )
