"""`privsketch schema`: draft a schema from a file, accept or change its guesses, and check it.

Of these commands only `draft --look` reads records.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privsketch.cli.shell.answer import JSON, answer, remark
from privsketch.cli.shell.failure import shell_words
from privsketch.cli.shell.group import Group
from privsketch.cli.shell.options import PATH, TableOptions, choice, file_options, listed_names
from privsketch.cli.shell.output import count_text, require_available, say, say_written, write

if TYPE_CHECKING:
    from privsketch._base.errors import PrivsketchError
    from privsketch.facts.budget import Neighbours


@click.group(cls=Group)
def schema() -> None:
    """Draft, edit and check the public description of a table.

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
@click.option(
    "--look",
    is_flag=True,
    help="Read records, and propose kinds, round bounds, labels and spellings, each marked as a "
    "guess. What it shows and writes is private until you accept it.",
)
@click.option("--force", is_flag=True, help="Replace an existing schema with all edits in it.")
@JSON
def draft(
    stated: TableOptions, output: Path, neighbours: Neighbours, look: bool, force: bool
) -> None:
    """Draft a schema from the names and types of a file's columns.

    No record is read; you fill in the bounds. CSV files have names only. With --look records are
    read, and what is open is proposed. Nothing is released by a proposal before you accept it. With
    the rules of a draft, missing and unreadable cells do not stop a release.

    \b
    privsketch schema draft data.parquet -o schema.json
    privsketch schema draft data.csv --look -o schema.json
    """
    from privsketch.tables.survey.draft import drafted

    require_available(output, force, "what was written in it would be lost")
    if look:
        content, left_out = _proposed(stated, neighbours, output)
    else:
        content, left_out = drafted(stated.table, neighbours), {}
    write(lambda path: _save(path, content), output)
    n_columns = len(content["columns"])
    if advice := _delimiter_words(stated):
        say(f"careful     {advice}", output)
        remark("cautions", advice)
    if look:
        columns = count_text(n_columns, "column")
        say(f"private: {columns}, proposed from a look at the records", output)
        say(
            f"next        see what is guessed, and take it: `privsketch schema accept {output}`",
            output,
        )
        say(f"            or change it on a page: `privsketch schema edit {output}`", output)
    else:
        columns = count_text(n_columns, "column")
        say(f"{columns}, by their names and types; no record was read", output)
        say(f"next        fill in what is null: `privsketch schema edit {output}`", output)
    say_written(output)
    answer(written=[output], n_columns=n_columns, looked=look, left_out=left_out)


def _proposed(
    stated: TableOptions, neighbours: Neighbours, output: Path
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a proposed schema, and why columns are left out of it; show both as private."""
    from privsketch._base.errors import RecordError
    from privsketch.cli.shell.progress import record_bar
    from privsketch.tables.survey.draft import delimiter_advice
    from privsketch.tables.survey.propose import proposed
    from privsketch.tables.survey.result import MARK

    stop = click.get_current_context().find_root().obj
    with record_bar(stated.table, "looking") as advance:

        def progress(done: int) -> None:
            stop.raise_if_stopped()
            advance(done)

        found = proposed(stated.table, neighbours, progress=progress)
    for name, reason in found.left_out.items():
        say(f"{MARK}left out     {name}: {reason}", output)
    for name, doubt in found.doubts.items():
        say(f"{MARK}careful      {name}: {doubt}", output)
    if not found.schema["columns"]:
        advice = delimiter_advice(stated.table)
        raise RecordError(f"no column could be proposed{'; ' * bool(advice)}{advice}")
    return found.schema, found.left_out


def _delimiter_words(stated: TableOptions) -> str:
    """Return a caution about a first line that seems to have another delimiter, or nothing."""
    from privsketch._base.errors import RecordError
    from privsketch.tables.survey.draft import delimiter_advice

    words = shell_words(click.get_current_context().command)
    return RecordError(delimiter_advice(stated.table)).rendered(words)


def _save(path: Path, content: dict[str, Any]) -> None:
    """Write a schema; guesses are private, and nobody else may read a file that has some."""
    from privsketch._base.formats import write_file
    from privsketch.facts.guesses import guesses_in

    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    write_file(path, text.encode(), is_private=bool(guesses_in(content)))


def _load(file: Path) -> dict[str, Any]:
    """Return the content of a schema's file, which may have open places and guesses."""
    from privsketch._base.errors import FileError
    from privsketch._base.formats import parse_json, read_file

    content = parse_json(read_file(file), str(file))
    if not isinstance(content, dict) or not isinstance(content.get("columns"), list):
        raise FileError(f'{file}: not a schema, which is an object with "columns", a list')
    return content


@schema.command()
@click.argument("file", metavar="SCHEMA", type=PATH)
@click.option("--columns", help="Columns whose guesses to accept: a,b,c; all if left out.")
@click.option("--yes", is_flag=True, help="Do not ask: for scripts.")
@JSON
def accept(file: Path, columns: str | None, yes: bool) -> None:
    """Show what is guessed in a schema, and remove the marks of what you accept.

    A guess was read off records. Accepted, it becomes a public fact: take a bound or a label only
    if somebody who has never seen the records could have named it. Until then nothing is released
    by this schema.

    \b
    privsketch schema accept schema.json
    privsketch schema accept schema.json --columns age,sex --yes
    """
    from privsketch.facts.guesses import guesses_in, without_guesses
    from privsketch.tables.survey.result import MARK

    content = _load(file)
    found = guesses_in(content)
    taken = found if columns is None else _named(content, listed_names(columns) or [], found)
    width = max(len(_PERSONS), *(len(_label(name)) for name in taken or [None]))
    for name, fields in taken.items():
        texts = [f"{field} {_value_text(value)}" for field, value in fields.items()]
        say(f"{MARK}guessed      {_label(name):<{width}}  {', '.join(texts)}", None)
    if taken and not yes:
        if not _is_asked():
            raise click.UsageError("nobody can be asked here; --yes accepts without a question")
        question = "Could somebody who has never seen the records have named all of these?"
        click.confirm(question, abort=True, err=True)
    rest = without_guesses(content, taken)
    if taken:
        _save(file, rest)
    left = [_label(name) for name in guesses_in(rest)]
    n_taken = sum(map(len, taken.values()))
    say(f"accepted     {count_text(n_taken, 'guess', 'guesses')}", None)
    if left:
        say(f"left         {', '.join(left)}", None)
    else:
        say(f"next         a look at the table, for nothing: `privsketch check {file} DATA`", None)
    answer(
        written=[file] if taken else [],
        accepted={_label(name): list(fields) for name, fields in taken.items()},
        left=left,
    )


@schema.command()
@click.argument("file", metavar="SCHEMA", type=PATH)
@click.option("--no-browser", is_flag=True, help="Only show the address of the page.")
@JSON
def edit(file: Path, no_browser: bool) -> None:
    """Edit a schema on a page in your browser: kinds, bounds, units, labels, missing values.

    The page comes from this machine and is for you alone: its address works once. What is wrong is
    said beside its field. Guesses that you leave as they are can be accepted or stay marked. The
    command ends when you have saved, or with Ctrl-C, which changes nothing.

    \b
    privsketch schema edit schema.json
    """
    from privsketch._base.errors import AccessError, FileError
    from privsketch._base.formats import read_file, require_writable
    from privsketch.cli.schema import editing
    from privsketch.facts.guesses import guesses_in

    require_writable(file)
    before, content = read_file(file), _load(file)
    if not all(isinstance(column, dict) for column in content["columns"]):
        raise FileError(f"{file}: not a schema: a column is no object")
    saved: dict[str, Any] = {}

    def save(edited: dict[str, Any]) -> None:
        if read_file(file) != before:
            raise AccessError(f"{file} has changed since this page was opened; start again")
        _save(file, edited)
        saved.update(edited)

    def told(address: str) -> None:
        click.echo(f"page        {address}", err=True)
        click.echo("            it works once; the command ends when you have saved", err=True)

    stop = click.get_current_context().find_root().obj
    editing.edit(
        file.name, content, save,
        told=told, browser=not no_browser, raise_if_stopped=stop.raise_if_stopped,
    )  # fmt: skip
    left = [_label(name) for name in guesses_in(saved)]
    if left:
        say(f"left         {', '.join(left)}", None)
    say_written(file)
    answer(written=[file], left=left)


def _is_asked() -> bool:
    """Return whether somebody can answer a question."""
    return sys.stdin is not None and sys.stdin.isatty()


_PERSONS = "persons"  # what is guessed about the whole table


def _label(name: str | None) -> str:
    """Return the name of a column with guesses, or of the whole table."""
    return _PERSONS if name is None else name


def _named(
    content: dict[str, Any], names: list[str], found: dict[str | None, dict[str, Any]]
) -> dict[str | None, dict[str, Any]]:
    """Return the guesses of these columns; "persons" is the table unless a column is called so."""
    from privsketch._base.errors import ParameterError

    known = {str(column.get("name")) for column in content["columns"]}
    keys: dict[str, str | None] = {_PERSONS: None} | {name: name for name in known}
    for name in names:
        if name not in keys:
            raise ParameterError("columns", name, "is no column of the schema")
    wanted = {keys[name] for name in names}
    return {name: fields for name, fields in found.items() if name in wanted}


def _value_text(value: Any) -> str:
    """Return a guessed value in one line."""
    if value is None:
        return "none: every row is a person"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


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
    found = open_places(content, str(file))
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
