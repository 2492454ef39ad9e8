"""`privsketch cluster`: private clusters of files that one holder has, in one command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privsketch.cli.options import (
    BUDGET,
    DOMAIN,
    chosen_columns,
    require_free,
    stated_domain,
    with_options,
)
from privsketch.cli.spending import WatchedFiles, told_what_was_spent

if TYPE_CHECKING:
    from privsketch import Budget, Design, KMeansModel, Sketch
    from privsketch.domain import Domain
    from privsketch.learning.center_model import CenterModel
    from privsketch.methods import Choice

_PATH = click.Path(path_type=Path)
_AGAIN = "clustering its records again would spend the budget again"
METHODS = {
    "squares": (
        "auto",
        "pipeline",
        "sketch",
        "partition-tree",
        "lloyd",
        "grid",
        "sample-aggregate",
        "k-variates",
    ),
    "distances": ("auto", "rounds", "partition-tree"),
}


@click.command()
@click.argument("data", nargs=-1, required=True, type=_PATH)
@click.option("-k", "--clusters", "n_clusters", type=int, required=True, help="How many clusters.")
@with_options(*DOMAIN, *BUDGET)
@click.option(
    "--loss",
    type=click.Choice(list(METHODS)),
    default="squares",
    show_default=True,
    help="What centres make small: squared distances (k-means) or distances (k-medians).",
)
@click.option(
    "--method",
    type=click.Choice(list(dict.fromkeys(name for names in METHODS.values() for name in names))),
    default="auto",
    show_default=True,
    help="auto chooses from public facts: columns, clusters, budget, --records. Squared distances: "
    f"{', '.join(METHODS['squares'][1:])}; distances: {', '.join(METHODS['distances'][1:])}.",
)
@click.option(
    "--records",
    "n_records",
    type=float,
    help="Public order of magnitude of the number of records; it is never taken from the files.",
)
@click.option("--columns", help="Columns that make a record, in order: a,b,c. All if left out.")
@click.option(
    "--missing",
    type=click.Choice(["error", "center"]),
    default="error",
    show_default=True,
    help="Refuse missing values, or centre them.",
)
@click.option("--threads", "n_threads", type=int, help="All cores if left out.")
@click.option(
    "--seed", "random_state", type=int, help="Seed of public randomness; noise has no seed."
)
@click.option("--source", help="Name of this set of records; the output's name if left out.")
@click.option("-o", "--output", type=_PATH, required=True, help="File of the model, JSON.")
@click.option("--report", type=_PATH, help="File of an HTML report.")
@click.option("--title", help="Of the report.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Say which method would be used and what it would cost, without reading a record.",
)
@click.option("--force", is_flag=True, help="Replace existing outputs: spends the budget again.")
def cluster(
    data: tuple[Path, ...],
    box: tuple[str, str] | None,
    ball: float | None,
    center: str,
    epsilon: float,
    delta: float,
    neighbours: str,
    loss: str,
    method: str,
    columns: str | None,
    missing: str,
    n_threads: int | None,
    source: str | None,
    output: Path,
    report: Path | None,
    title: str | None,
    dry_run: bool,
    force: bool,
    **facts: Any,
) -> None:
    """Find private clusters of records that one holder has.

    DATA: one or more .parquet, .csv, .arrow or .npy files, read several times, in blocks.
    Charges the budget once: from the first noisy number on it counts as spent.

    \b
    privsketch cluster data.parquet -k 10 --epsilon 1 --delta 1e-6 --ball 13 \\
        -o model.json --report report.html
    """
    import privsketch as ps
    from privsketch.budget import checked_source
    from privsketch.cli.progress import pass_bars, stoppable
    from privsketch.report.html import save_report

    # Learn what is wrong before anything is spent.
    _require_outputs(data, output, report, force)
    files = _record_files(data, chosen_columns(columns, data))
    study = _Study(
        domain=stated_domain(box, ball, center, None).with_dim(files.dim),
        budget=ps.Budget(epsilon, delta, neighbours),  # type: ignore[arg-type]
        names=files.record_names,
        **facts,
    )
    choice = _choice(method, loss, study)
    if dry_run:
        click.echo(_forecast(study, choice))
        return
    options = {
        "columns": files.chosen.columns or files.record_names,
        "missing": missing,
        "n_threads": n_threads,
        "source": checked_source(source or output.stem),
    }
    table = WatchedFiles(data)
    with (
        told_what_was_spent(table),
        stoppable() as require_going,
        pass_bars(data) as advance,
    ):

        def progress(name: str, done: int) -> None:
            require_going()
            advance(name, done)

        model, released = _learned(table, study, loss, choice, progress, options)
        if not isinstance(model, ps.KMeansModel):
            model = replace(model, columns=study.names)
        require_going()
        model.save(output)
    if isinstance(model, ps.KMeansModel):  # which does not know why it is one
        click.echo(_method_line(choice))
    click.echo(model.describe())
    if source is None:
        click.echo(
            f"note        the source is named after the output, {output.stem}: another run on "
            "these records, whatever its name, costs again"
        )
    click.echo(f"written to {output}")
    if report is not None:
        save_report(model, released, report, title=title)
        click.echo(f"written to {report}")


@dataclass(frozen=True)
class _Study:
    """The public facts of a run."""

    domain: Domain
    budget: Budget
    n_clusters: int
    n_records: float | None
    random_state: int | None
    names: tuple[str, ...] | None

    def design(self) -> Design:
        """For a sketch of the records."""
        import privsketch as ps

        return ps.Design.plan(
            task="kmeans",
            n_components=self.n_clusters,
            domain=self.domain,
            budget=self.budget,
            n_records=self.n_records,
            random_state=self.random_state,
            columns=self.names,
        )


def _choice(method: str, loss: str, study: _Study) -> Choice:
    """A method, and the reason if it was chosen here."""
    from privsketch.methods import Choice, chosen_method

    if method not in METHODS[loss]:
        known = ", ".join(METHODS[loss])
        raise click.UsageError(f"--method {method} does not go with --loss {loss}; use {known}")
    if loss == "distances":
        return Choice("rounds" if method == "auto" else method)
    return chosen_method(
        method,
        n_clusters=study.n_clusters,
        domain=study.domain,
        budget=study.budget,
        n_records=study.n_records,
    )


def _learned(
    table: WatchedFiles,
    study: _Study,
    loss: str,
    choice: Choice,
    progress: Callable[[str, int], None],
    options: dict[str, Any],
) -> tuple[KMeansModel | CenterModel, Sketch | None]:
    """The model, and the sketch that it was learned from, if it was.

    Charges: the budget, once.
    """
    import privsketch as ps
    from privsketch.clustering.medians import cluster_medians
    from privsketch.methods import cluster_by
    from privsketch.readers import checked_missing

    if choice.method == "sketch":
        progress("sketch", 0)
        released = ps.sketch(
            table, study.design(), progress=lambda done: progress("sketch", done), **options
        )
        model = ps.learn_kmeans(released, study.n_clusters, random_state=study.random_state)
        return replace(model, receipt=choice.receipt(model.receipt)), released
    facts = {
        "domain": study.domain,
        "budget": study.budget,
        "n_records": study.n_records,
        "random_state": study.random_state,
        "missing_to_center": checked_missing(options.pop("missing")),
        "progress": progress,
        **options,
    }
    if loss == "distances":
        return cluster_medians(table, study.n_clusters, method=choice.method, **facts), None
    return cluster_by(choice, table, study.n_clusters, **facts), None


def _forecast(study: _Study, choice: Choice) -> str:
    """What a run would be like, from public facts."""
    from privsketch.clustering.plan import plan_pipeline

    lines = [
        _method_line(choice),
        f"record      {study.domain.dim} columns",
        f"domain      {study.domain.describe()}",
        f"cost        at most {study.budget.describe()}",
    ]
    if choice.method == "sketch":
        lines += ["", study.design().describe(), ""]
    elif choice.method == "pipeline" and study.n_records is not None:
        dim = len(study.domain.half_widths)
        plan = plan_pipeline(study.n_clusters, dim, study.budget, study.n_records)
        lines.append(f"plan        {plan.describe()}")
    return "\n".join([*lines, "nothing was read or spent"])


def _method_line(choice: Choice) -> str:
    return f"method      {choice.method}" + (f": {choice.reason}" if choice.reason else "")


def _record_files(data: tuple[Path, ...], columns: Sequence[str | int] | None) -> Any:
    """The columns that make a record, from names and types alone."""
    from privsketch.errors import RecordError
    from privsketch.readers.carried import RecordFiles

    try:
        return RecordFiles.of(data, columns)
    except RecordError as error:  # nothing is carried along here
        advice = ", or copy it unprotected with carry=[...]"
        raise RecordError(str(error).replace(advice, "")) from None


def _require_outputs(
    data: tuple[Path, ...], output: Path, report: Path | None, force: bool
) -> None:
    """Refuse outputs that cannot be written, that meet, or that would replace what is of value."""
    from privsketch.errors import FileError

    outputs = [path for path in (output, report) if path is not None]
    for path in outputs:
        require_free(path, force, _AGAIN)
    taken = [path.resolve() for path in (*data, *outputs)]
    for path in outputs:
        if taken.count(path.resolve()) > 1:
            raise FileError(f"{path}: given twice; records and results need a file each")
