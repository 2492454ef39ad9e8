"""What `cluster` and `regress` share: options of one table, and how its model is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privsketch._base.errors import PrivsketchError
from privsketch.cli.shell.answer import JSON, answer, wants_json
from privsketch.cli.shell.options import (
    MISSING,
    PATH,
    SOURCE,
    SPEND_AGAIN,
    THREADS,
    TableOptions,
    dry_run,
    ledger_options,
    table_options,
    with_options,
    with_unreadable,
)
from privsketch.cli.shell.output import (
    note,
    require_available,
    require_distinct,
    require_file,
    required_output,
    say,
    say_source,
    say_written,
    source_name,
    write,
)
from privsketch.cli.shell.spending import Spending, say_remaining

if TYPE_CHECKING:
    from privsketch.facts.domain import Domain
    from privsketch.facts.schema import Schema
    from privsketch.models.base import Model
    from privsketch.sketching.sketch import Sketch
    from privsketch.tables.carried import RecordFiles
    from privsketch.tables.table import Table


def fit_options(dry_run_help: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds the options of a table, of its ledger and of a model's files."""
    return with_options(
        click.option(
            "--records",
            "n_records",
            type=float,
            help="Public order of magnitude of the number of records; it is never taken from the "
            "files.",
        ),
        click.option(
            "--columns", help="Columns that make a record, in order: a,b,c. All if left out."
        ),
        table_options,
        MISSING,
        THREADS,
        SOURCE,
        ledger_options,
        click.option(
            "-o",
            "--output",
            type=PATH,
            help="File of the model, JSON; - for standard output. Needed unless --dry-run is "
            "there.",
        ),
        click.option("--report", type=PATH, help="File of an HTML report."),
        click.option("--title", help="Title of the report."),
        dry_run(dry_run_help),
        SPEND_AGAIN,
        JSON,
    )


def opened_table(
    stated: TableOptions, domain: Domain | Schema, ledger: Any
) -> tuple[Domain | Schema, Table, RecordFiles]:
    """Return the public facts, the table and its files, of which no record was read yet."""
    from privsketch.facts.schema import schema_of
    from privsketch.ledger.entry import counted_refusals
    from privsketch.tables.carried import RecordFiles

    domain, table = with_unreadable(domain, stated.table)
    with counted_refusals(ledger, what="run"):
        files = RecordFiles.of(table, carry=None, schema=schema_of(domain))
    return domain, table, files


@dataclass(frozen=True)
class Outputs:
    """Where a model and its report go, and the name of the records; no files in a dry run."""

    files: tuple[Path, ...]
    report: Path | None
    title: str | None
    source: str | None

    @classmethod
    def of(
        cls,
        output: Path | None,
        report: Path | None,
        title: str | None,
        source: str | None,
        *,
        dry_run: bool,
    ) -> Outputs:
        """Return stated outputs; raise a usage error if the model has no file."""
        files = () if dry_run else (required_output(output), *([report] if report else []))
        return cls(files, report, title, source)

    @property
    def model(self) -> Path:
        """File of the model."""
        return self.files[0]

    @property
    def source_name(self) -> str | None:
        """Public name of the records: the stated one, or that of the model."""
        return source_name(self.source, self.model)

    def require(self, stated: TableOptions, force: bool, again: str) -> None:
        """Refuse files that cannot be written, that meet, or that would replace what is of value.

        `again` says what a replaced file would cost.
        """
        if self.files:
            require_file(self.report, "a report is a page of its own")
        for path in self.files:
            require_available(path, force, again)
        require_distinct(stated, self.files)

    def write(
        self,
        model: Model,
        released: Sketch | None,
        files: RecordFiles,
        ledger: Any,
        spending: Spending,
    ) -> None:
        """Write the model, which was paid for, then the report; say what happened."""
        from privsketch._base.formats import write_file

        page = None if self.report is None else _page(model, released, self.title)
        spending.stop.finish()
        write(model.save, self.model, spending.mark_begun)
        spending.mark_written(self.model)
        say(model.describe(), self.model)
        say_source(self.source, self.model, "run on")
        say_remaining(ledger, self.model)
        if files.selection.is_found:
            note(
                "names in the header of a text file are not published: state them with --columns "
                "to have them in the model",
                self.model,
            )
        say_written(self.model)
        if isinstance(page, PrivsketchError):
            raise page
        if page is not None and self.report is not None:
            write_file(self.report, page)
            say(f"written to {self.report}", self.model)
        if wants_json():
            from privsketch.cli.shell.facts import model_facts

            answer(dry_run=False, written=list(self.files), **model_facts(model))


def _page(model: Model, released: Sketch | None, title: str | None) -> bytes | PrivsketchError:
    """Return the report, or its error: the model was paid for and is kept."""
    from privsketch.pages.report.html import report_page

    try:
        return report_page(model, released, title=title).encode("utf-8")  # type: ignore[arg-type]
    except PrivsketchError as error:
        return error
