"""`privsketch cluster`: private clusters of files that one holder has, in one command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privsketch._base.plugins import plugin_names
from privsketch.cli.fit.forecast import Study, forecast_facts, forecast_text
from privsketch.cli.fit.run import Outputs, fit_options, opened_table
from privsketch.cli.shell.options import (
    BUDGET,
    DOMAIN,
    PATH,
    NumberOrAuto,
    PartName,
    TableOptions,
    domain_of,
    stated_domain,
    stated_engine,
    with_options,
)
from privsketch.cli.shell.output import caution_decimals, say, say_cautions
from privsketch.cli.shell.settings import OF_DESIGNS, method_settings, stated_settings
from privsketch.cli.shell.spending import Spending, end_dry_run, track_spending
from privsketch.facts.budget import checked_source

if TYPE_CHECKING:
    from privsketch import ClusterModel, Sketch
    from privsketch.clustering.choose import Choice
    from privsketch.tables.table import Table

_AGAIN = "clustering its records again would spend the budget again"
_METHODS = {
    "squares": ("auto", "pipeline", "sketch", "cells", "partition-tree"),
    "distances": ("auto", "rounds", "partition-tree"),
}


def methods_of(loss: str) -> tuple[str, ...]:
    """Return the names of methods for a loss. Methods that packages register are for k-means."""
    registered = plugin_names("methods") if loss == "squares" else ()
    return tuple(dict.fromkeys([*_METHODS[loss], *registered]))


def _all_methods() -> list[str]:
    return list(dict.fromkeys(name for loss in _METHODS for name in methods_of(loss)))


class _MethodOption(click.Option):
    """An option whose help lists the methods of installed packages too."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the option and its help."""
        squares, distances = (", ".join(methods_of(loss)[1:]) for loss in _METHODS)
        self.help = (
            "auto chooses from public facts: columns, clusters, budget, --records. Squared "
            f"distances: {squares}; distances: {distances}."
        )
        return super().get_help_record(ctx)


@click.command()
@click.argument("data", nargs=-1, required=True, type=PATH)
@click.option(
    "-k",
    "--clusters",
    "n_clusters",
    type=NumberOrAuto(),
    required=True,
    help="How many clusters; auto takes the number from a sketch as well, at no cost.",
)
@click.option(
    "--max-clusters",
    type=int,
    help="Largest number that -k auto considers, and that the sketch is planned for; 20 if left "
    "out.",
)
@with_options(*DOMAIN, *BUDGET)
@click.option(
    "--loss",
    type=click.Choice(list(_METHODS)),
    default="squares",
    show_default=True,
    help="What centers make small: squared distances (k-means) or distances (k-medians).",
)
@click.option(
    "--method",
    cls=_MethodOption,
    type=PartName("METHOD", _all_methods),
    default="auto",
    show_default=True,
    help="How clusters are found; auto chooses from public facts.",
)
@method_settings
@click.option(
    "--seed", "random_state", type=int, help="Seed of public randomness; noise has no seed."
)
@fit_options("Say which method would be used and what it would cost, without reading a record.")
def cluster(
    stated: TableOptions,
    box: tuple[str, str] | None,
    ball: float | None,
    schema: Path | None,
    center: str,
    epsilon: float,
    delta: float,
    neighbours: str,
    loss: str,
    method: str,
    max_clusters: int | None,
    n_threads: int | None,
    source: str | None,
    ledger: Any,
    output: Path | None,
    report: Path | None,
    title: str | None,
    dry_run: bool,
    force: bool,
    settings: tuple[str, ...],
    **facts: Any,
) -> None:
    """Find clusters in a table, privately, and write a report.

    DATA: one or more .parquet, .csv, .tsv, .xlsx, .arrow or .npy files, folders of them, or
    patterns like "part-*.parquet", read several times, in blocks. Charges the budget once:
    from the first noisy number on it counts as spent.

    \b
    privsketch cluster data.parquet -k 10 --epsilon 1 --delta 1e-6 --ball 13 \\
        -o model.json --report report.html
    privsketch cluster data.parquet -k auto --max-clusters 15 --epsilon 1 \\
        --delta 1e-6 --ball 13 -o model.json
    """
    with track_spending(adaptive=True) as spending:
        import privsketch as ps
        from privsketch.facts.schema import schema_of
        from privsketch.ledger.entry import cost_of_budget, writing_to

        # Learn what is wrong before anything is spent.
        outputs = Outputs.of(output, report, title, source, dry_run=dry_run)
        outputs.require(stated, force, _AGAIN)
        domain = stated_domain(box, ball, center, None, schema)
        domain, table, files = opened_table(stated, domain, ledger)
        study = Study(
            domain=domain_of(domain, files.dim),
            budget=ps.Budget(epsilon, delta, neighbours),  # type: ignore[arg-type]
            names=files.record_names,
            max_clusters=_largest(facts["n_clusters"], max_clusters),
            settings=stated_settings(settings, method, loss, facts["n_clusters"]),
            loss=loss,
            **facts,
        )
        choice = _choice(method, loss, study)
        said = say_cautions(study.domain, study.budget, study.n_records, study.names)
        caution_decimals(stated, schema_of(domain), schema)
        if dry_run:
            say(forecast_text(study, choice, files, n_threads, said), None)
            end_dry_run(
                ledger,
                lambda: cost_of_budget(study.charged),
                lambda: {
                    "looked_at": files.looked_at,
                    **forecast_facts(study, choice, n_threads),
                },
            )
            return
        if schema is None:  # columns that are found by their names are named from here on
            table = table.stating(columns=files.selection.columns or files.selection.names)
        options = {
            "n_threads": n_threads,
            "source": None if outputs.source_name is None else checked_source(outputs.source_name),
            "ledger": ledger,
        }
        with writing_to(str(outputs.model)):
            model, released = _run(table, study, loss, choice, options, spending)
        outputs.write(model, released, files, ledger, spending)


def _run(
    table: Table,
    study: Study,
    loss: str,
    choice: Choice,
    options: dict[str, Any],
    spending: Spending,
) -> tuple[ClusterModel, Sketch | None]:
    """Return the model with the names of its columns; show bars.

    Charges: the budget, once.
    """
    from privsketch.cli.shell.progress import pass_bars

    with pass_bars(table) as advance:

        def progress(name: str, done: int) -> None:
            spending.stop.raise_if_stopped()
            advance(name, done)

        model, released = _learned(table, study, loss, choice, progress, options)
    return replace(model, columns=study.names, reason=choice.reason), released


def _largest(n_clusters: int | str, max_clusters: int | None) -> int | None:
    """Return the largest number that -k auto considers; None if the number is stated."""
    from privsketch.learning.kmeans.learner import DEFAULT_MAX_CLUSTERS, check_choices

    check_choices(n_clusters, max_clusters)
    if n_clusters == "auto" and max_clusters is None:
        return DEFAULT_MAX_CLUSTERS
    return max_clusters


def _choice(method: str, loss: str, study: Study) -> Choice:
    """Return a method, and the reason if it was chosen here."""
    from privsketch.clustering.choose import Choice, choose_method
    from privsketch.clustering.limits import require_searchable

    if study.n_clusters == "auto":
        _require_sketch(method, loss)
        reason = "only a sketch tells the number of clusters" if method == "auto" else ""
        require_searchable("sketch", study.max_clusters or 1, name="max_clusters")
        return Choice("sketch", reason)
    if method not in methods_of(loss):
        known = ", ".join(methods_of(loss))
        raise click.UsageError(f"--method {method} does not go with --loss {loss}; use {known}")
    if loss == "distances":
        choice = Choice("rounds" if method == "auto" else method)
        require_searchable(choice.method, int(study.n_clusters), loss)
        return choice
    return choose_method(
        method,
        n_clusters=int(study.n_clusters),
        domain=study.box,
        budget=study.budget,
        n_records=study.n_records,
    )


def _require_sketch(method: str, loss: str) -> None:
    """Refuse -k auto for all that asks records about a number of centers stated before."""
    if loss != "squares":
        raise click.UsageError(
            f"-k auto does not go with --loss {loss}: only a sketch tells the number of clusters; "
            "state -k, or find it with --loss squares first"
        )
    if method not in ("auto", "sketch"):
        raise click.UsageError(
            f"-k auto does not go with --method {method}: only a sketch tells the number of "
            "clusters; state -k, or use --method sketch"
        )


def _learned(
    table: Table,
    study: Study,
    loss: str,
    choice: Choice,
    progress: Callable[[str, int], None],
    options: dict[str, Any],
) -> tuple[ClusterModel, Sketch | None]:
    """Return the model, and the sketch that it was learned from, if it was.

    Charges: the budget, once.
    """
    import privsketch as ps
    from privsketch.clustering.choose import cluster_with
    from privsketch.clustering.medians import cluster_medians
    from privsketch.clustering.run import clustered

    if choice.method == "sketch":
        progress("sketch", 0)
        released = ps.sketch(
            table,
            study.design(),
            engine=stated_engine(None, n_threads=options.pop("n_threads")),
            progress=lambda done: progress("sketch", done),
            **options,
        )
        model = ps.learn_kmeans(
            released,
            study.n_clusters,
            max_clusters=study.max_clusters,
            random_state=study.random_state,
            **{name: value for name, value in study.settings.items() if name not in OF_DESIGNS},
        )
        return replace(model, receipt=choice.annotate(model.receipt)), released
    facts = {
        "domain": study.domain,
        "budget": study.budget,
        "n_records": study.n_records,
        "random_state": study.random_state,
        "progress": progress,
        **study.settings,
        **options,
    }
    if loss == "distances":
        return clustered(
            cluster_medians, table, int(study.n_clusters), method=choice.method, **facts
        ), None
    return cluster_with(choice, table, int(study.n_clusters), **facts), None
