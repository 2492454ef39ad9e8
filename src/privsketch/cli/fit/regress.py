"""`privsketch regress`: a private regression or classifier of one holder's files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privsketch.cli.fit.forecast import sketch_facts, sketch_lines
from privsketch.cli.fit.run import Outputs, fit_options, opened_table
from privsketch.cli.shell.options import (
    DOMAIN,
    EPSILON,
    NEIGHBOURS,
    PATH,
    TableOptions,
    domain_of,
    listed_names,
    stated_domain,
    stated_engine,
    with_options,
)
from privsketch.cli.shell.output import caution, caution_decimals, say, say_cautions
from privsketch.cli.shell.spending import end_dry_run, track_spending

if TYPE_CHECKING:
    from privsketch import Budget, ClassifierModel, RegressionModel, Sketch
    from privsketch.design.recipe import Design
    from privsketch.facts.domain import Domain
    from privsketch.facts.schema import Schema

_AGAIN = "learning from its records again would spend the budget again"


@dataclass(frozen=True)
class Question:
    """Which column is explained by which others; all others if none are stated."""

    target: str
    on: tuple[str, ...]

    def column(self, schema: Schema) -> str:
        """Return the column of the target, which may be a label of it: "ward" of "ward=A"."""
        from privsketch.facts.terms import label_coordinate

        found = label_coordinate(schema, self.target)
        return self.target if found is None else found[0].name

    def asked(self, schema: Schema) -> Schema:
        """Return the schema of the columns that the question is about; no other is released."""
        from privsketch._base.errors import ParameterError

        target = self.column(schema)
        for name in (target, *self.on):
            if name not in schema.names:
                option = "target" if name == target else "on"
                raise ParameterError(
                    option, name, f"expected a column of {', '.join(schema.names)}"
                )
        if target in self.on:
            raise ParameterError("on", target, "is the target itself")
        kept = {target, *self.on} if self.on else set(schema.names)
        return replace(schema, columns=tuple(c for c in schema.columns if c.name in kept))

    def design(
        self,
        domain: Domain | Schema,
        budget: Budget,
        names: tuple[str, ...] | None,
        n_records: float | None,
    ) -> Design:
        """Return the design for a sketch that answers the question."""
        from privsketch.design.plan import plan_design
        from privsketch.facts.labels import Labelled
        from privsketch.facts.schema import schema_of

        schema, target, task = schema_of(domain), self.target, "regression"
        if schema is not None:
            target = self.column(schema)
            (column,) = (column for column in schema.columns if column.name == target)
            task = "classification" if isinstance(column, Labelled) else task
        return plan_design(
            task=task,
            target=target,
            domain=domain,
            budget=budget,
            n_records=n_records,
            columns=names,
            random_state=0,  # all second moments: nothing is drawn
        )

    def model(self, sketch: Sketch) -> RegressionModel | ClassifierModel:
        """Learn the answer: a classifier if the target is a flag or a category."""
        import privsketch as ps

        design, on = sketch.design, list(self.on) or None
        if design.task == "classification" and design.target == self.target:
            return ps.learn_classifier(sketch, self.target, on)
        return ps.learn_regression(sketch, self.target, on)


@click.command()
@click.argument("data", nargs=-1, required=True, type=PATH)
@click.option(
    "--target",
    required=True,
    metavar="COLUMN",
    help="Column to explain: a number, a date, a label such as ward=A; or a flag or a category, of "
    "which a classifier is made.",
)
@click.option(
    "--on",
    metavar="COLUMNS",
    help="Columns that explain it: a,b,c. All others if left out. With a schema only these are "
    "released, with less noise for each.",
)
@with_options(*DOMAIN)
@click.option("--epsilon", type=EPSILON, required=True, help="Privacy budget.")
@click.option(
    "--delta",
    type=float,
    default=0.0,
    show_default=True,
    help="0 is pure differential privacy; with more there is less noise.",
)
@NEIGHBOURS
@fit_options("Say what it would cost and what to expect of it, without reading a record.")
def regress(
    stated: TableOptions,
    target: str,
    on: str | None,
    box: tuple[str, str] | None,
    ball: float | None,
    schema: Path | None,
    center: str,
    epsilon: float,
    delta: float,
    neighbours: str,
    n_records: float | None,
    n_threads: int | None,
    source: str | None,
    ledger: Any,
    output: Path | None,
    report: Path | None,
    title: str | None,
    dry_run: bool,
    force: bool,
) -> None:
    """Learn what goes with a column, privately, and write a report.

    DATA: one or more .parquet, .csv, .tsv, .xlsx, .arrow or .npy files, folders of them, or
    patterns like "part-*.parquet", read once, in blocks. Charges the budget once, at the end.
    The report has coefficients with intervals. To ask more questions of the same records at no
    further cost, make a sketch instead (`design`, `sketch`, `learn`).

    \b
    privsketch regress visits.csv --schema schema.json --target pressure --on age,ward \\
        --epsilon 1 --delta 1e-6 -o model.json --report report.html
    """
    with track_spending() as spending:
        import privsketch as ps
        from privsketch.cli.shell.facts import cost_facts
        from privsketch.cli.shell.progress import record_bar
        from privsketch.facts.schema import schema_of
        from privsketch.ledger.entry import cost_of_budget, writing_to

        # Learn what is wrong before anything is spent.
        outputs = Outputs.of(output, report, title, source, dry_run=dry_run)
        outputs.require(stated, force, _AGAIN)
        question = Question(target, tuple(listed_names(on) or ()))
        if schema is None and stated.facts.get("missing") not in (None, "error"):
            raise click.UsageError(
                f"--missing {stated.facts['missing']}: a regression has a rule for each column; "
                "describe the columns by a --schema"
            )
        domain = stated_domain(box, ball, center, None, schema)
        domain = question.asked(domain) if isinstance(domain, ps.Schema) else domain
        domain, table, files = opened_table(stated, domain, ledger)
        if files.selection.is_found:
            raise click.UsageError(
                "--target: names in the header of a text file are not public; state them with "
                "--columns, or describe the columns by a --schema"
            )
        domain = domain_of(domain, files.dim)
        budget = ps.Budget(epsilon, delta, neighbours)  # type: ignore[arg-type]
        recipe = question.design(domain, budget, files.record_names, n_records)
        # Columns are scaled by their bounds, so that those of a box may differ in width.
        said = say_cautions(recipe.schema or domain, budget, n_records, files.record_names)
        caution_decimals(stated, schema_of(domain), schema)
        if dry_run:
            lines = [*sketch_lines(recipe, n_threads, said), files.looked_at, "nothing was spent"]
            say("\n".join(lines), None)
            end_dry_run(
                ledger,
                lambda: cost_of_budget(recipe.budget),
                lambda: {
                    "looked_at": files.looked_at,
                    "task": recipe.task,
                    "target": target,
                    "dim": recipe.dim,
                    "cost": cost_facts(recipe.budget),
                    **sketch_facts(recipe, n_threads),
                },
            )
            return
        if n_records is not None and recipe.forecast().verdict != "good":
            caution(f"forecast: {recipe.forecast().describe()}")
        with record_bar(table) as advance, writing_to(str(outputs.model)):

            def progress(done: int) -> None:
                spending.stop.raise_if_stopped()
                advance(done)

            released = ps.sketch(
                table,
                recipe,
                source=outputs.source_name,
                engine=stated_engine(None, n_threads=n_threads),
                progress=progress,
                ledger=ledger,
            )
        outputs.write(question.model(released), released, files, ledger, spending)
