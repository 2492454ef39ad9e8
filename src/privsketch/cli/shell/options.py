"""Options that commands share, and what they mean: a study, a table, an engine, a ledger.

Only click and the names of plugins are imported here, so that --help answers at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from privsketch._base.plugins import plugin_names

if TYPE_CHECKING:
    from privsketch.facts.domain import Domain
    from privsketch.facts.schema import Schema
    from privsketch.tables.table import Table


# What cannot be read is told by whoever reads it, with the exit code of a file.
PATH = click.Path(path_type=Path, readable=False)


def choice(
    name: str, values: Sequence[str], *, help: str, open: bool = False
) -> Callable[[Any], Any]:
    """Return an option with a choice of words; the default is the first, or open."""
    default: dict[str, Any] = {} if open else {"default": values[0], "show_default": True}
    return click.option(name, type=click.Choice(values), help=help, **default)


def dry_run(help: str) -> Callable[[Any], Any]:
    """Return the option --dry-run, which reads no record and spends nothing."""
    return click.option("--dry-run", is_flag=True, help=help)


class PartName(click.ParamType):  # type: ignore[type-arg]
    """A name of ours or of a part that a package registers, looked up when the option is used."""

    def __init__(self, name: str, names: Callable[[], Sequence[str]]) -> None:
        self.name, self._names = name, names

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the name if a part has it."""
        return click.Choice(list(self._names())).convert(value, param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names that begin so."""
        return click.Choice(list(self._names())).shell_complete(ctx, param, incomplete)


class NumberOrAuto(click.ParamType):  # type: ignore[type-arg]
    """A whole number or the word auto."""

    name = "INTEGER|auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, or the word."""
        if value == "auto" or isinstance(value, int):
            return value
        try:
            return int(value)
        except ValueError:
            self.fail(f"{value!r} is not a whole number or auto", param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the word, for shells that ask."""
        return [CompletionItem("auto")] if "auto".startswith(incomplete) else []


class Epsilon(click.types.FloatParamType):
    """A budget; who leaves it out is told where to read what it is."""

    def get_missing_message(self, *_: Any, **__: Any) -> str:
        """Return what the error for a missing option adds."""
        return EXPLAINED


EXPLAINED = "`privsketch --explain epsilon` says what it is and which to take"
EPSILON = Epsilon()
DOMAIN = (
    click.option(
        "--box",
        nargs=2,
        metavar="LOW HIGH",
        help="Records lie in a box; numbers, or lists like 0,0,18.",
    ),
    click.option("--ball", type=float, metavar="RADIUS", help="Records lie in a ball."),
    click.option(
        "--schema",
        type=PATH,
        metavar="FILE",
        help="What is public about the table: kinds and bounds of columns, missing values, "
        "persons. In place of --box and --ball; `privsketch schema draft` begins one.",
    ),
    click.option(
        "--center",
        metavar="CENTER",
        default="0",
        show_default=True,
        help="Center of the ball: a number or a list.",
    ),
)


class _BudgetOption(click.Option):
    """An option that is required unless --insecure is there."""

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        """Return the value, or None where there is no budget."""
        try:
            return super().process_value(ctx, value)
        except click.MissingParameter:
            if ctx.params.get("insecure"):
                return None
            raise


NEIGHBOURS = choice(
    "--neighbours", ["add-remove", "replace"], help="Which change of a table stays hidden."
)
BUDGET = (
    click.option(
        "--epsilon", cls=_BudgetOption, type=EPSILON, required=True, help="Privacy budget."
    ),
    click.option(
        "--delta",
        cls=_BudgetOption,
        type=float,
        required=True,
        help="Use 0 for pure differential privacy.",
    ),
    NEIGHBOURS,
)
_FILES = (
    click.option(
        "--header/--no-header",
        "header",
        default=None,
        help="Whether the first line of CSV and TSV files, or row of a sheet, has the names of the "
        "columns. It is taken for a header if nothing is said, and refused if it has numbers; "
        "without a header columns are called 0, 1, ...",
    ),
    click.option(
        "--delimiter",
        metavar="CHARACTER",
        help="What separates the cells of text files, like ';'; commas if left out, tabs in .tsv.",
    ),
    choice("--decimal", [".", ","], help="What stands before the decimals of a number in text."),
    click.option(
        "--encoding",
        default="utf-8",
        show_default=True,
        help="Of text files, like latin-1, cp1252 or utf-16.",
    ),
    click.option("--sheet", metavar="NAME", help="Of .xlsx files with more than one."),
    click.option(
        "--quotes/--no-quotes",
        "quotes",
        default=None,
        help="Whether cells of text files may be quoted. Cells of .csv files may if nothing is "
        "said; a .tsv file in which a cell begins with a quote is refused.",
    ),
)
_RELEASED = (
    click.option(
        "--n-records",
        "sheet_records",
        type=int,
        metavar="NUMBER",
        help="Public number of records of an .xlsx sheet; needed for --neighbours replace and for "
        "released rows.",
    ),
    click.option(
        "--unreadable",
        type=click.Choice(["error", "missing"]),
        help="What to do with cells that cannot be read: stop with an error, or treat them as "
        "missing values. What the schema says if left out, or an error.",
    ),
)
MISSING = choice("--missing", ["error", "center"], help="Refuse missing values, or center them.")
LIMITS = (
    click.option(
        "--max-epsilon", type=float, help="Refuse a design that asks for a larger epsilon."
    ),
    click.option("--max-delta", type=float, help="Refuse a design that asks for a larger delta."),
)
SPEND_AGAIN = click.option(
    "--force", is_flag=True, help="Replace existing outputs: spends the budget again."
)
THREADS = click.option("--threads", "n_threads", type=int, help="All cores if left out.")
# Fields of an engine by the options of commands, and what to use in place of other options.
_ENGINE_FIELDS: dict[str, dict[str, str]] = {
    "threads": {"n_threads": "n_threads"},
    "pool": {"n_workers": "n_workers"},
    "dask": {"n_workers": "n_workers", "scheduler": "client"},
    "spark": {"scheduler": "session"},
    "cuda": {"n_threads": "n_threads"},
}
_ADVICE = {
    "n_threads": "its workers use one thread each; say how many workers instead",
    "n_workers": "only `engine='pool'` and `engine='dask'` have workers; say how many threads "
    "instead",
    "scheduler": "only `engine='dask'` and `engine='spark'` have a scheduler",
}
_ENGINE = (
    click.option(
        "--engine",
        type=PartName("ENGINE", lambda: [*_ENGINE_FIELDS, *plugin_names("engines")]),
        help="Where records are summed: threads of this process by default; pool, processes of "
        "this machine; a cluster of dask or spark; cuda, a device of NVIDIA's; or an engine that "
        "a package registers.",
    ),
    click.option("--workers", "n_workers", type=int, help="Processes of --engine pool."),
    click.option(
        "--scheduler",
        metavar="ADDRESS",
        help="Dask scheduler, like tcp://host:8786, or Spark master, like spark://host:7077.",
    ),
)
SOURCE = click.option(
    "--source", help="Name of this set of records; the output's name if left out."
)
_COMPONENT_TASKS = ("kmeans", "gaussian-mixture", "pca")
_STUDY = (
    choice(
        "--task",
        [*_COMPONENT_TASKS, "regression", "classification"],
        help="What will be learned; a sketch for clusters serves mixtures and the other way "
        "round, with less certainty. Principal components (pca) need --ball or --schema, "
        "classification --schema.",
    ),
    click.option(
        "-k",
        "--components",
        "n_components",
        type=int,
        help="Number of clusters, Gaussians or principal components to plan for; the largest "
        "likely for -k auto. Regression and classification have none.",
    ),
    click.option(
        "--target",
        metavar="COLUMN",
        help="For regression and classification: the column to predict, which gets less noise. If "
        "left out, any column can be predicted.",
    ),
    choice(
        "--clip",
        ["corner", "uniform"],
        help="For regression and classification: the ball that records are moved into. corner "
        "holds all of them; uniform is smaller, with less noise, and bends coefficients.",
        open=True,
    ),
    click.option(
        "--covariance-type",
        type=click.Choice(["full", "tied", "diag", "spherical"]),
        help="Shapes of the Gaussians to make room for; full in few columns, else diagonal.",
    ),
    *DOMAIN,
    click.option("--dim", type=int, help="Number of columns of a record."),
    *BUDGET,
    click.option(
        "--records",
        "n_records",
        type=float,
        help="Public order of magnitude of the number of records of one holder; if left out, the "
        "plan assumes as many as would suffice.",
    ),
    click.option("--columns", help="Names of the columns of a record: a,b,c."),
)


_LEDGER = (
    click.option(
        "--ledger",
        "ledger_file",
        type=PATH,
        metavar="FILE",
        help="Enter it in this ledger before noise is drawn, and refuse it above the limit; what "
        "PRIVSKETCH_LEDGER names if left out.",
    ),
    click.option(
        "--dataset",
        metavar="NAME",
        help="Whose limit it counts against: the ledger's name for these records; its only one, or "
        "what PRIVSKETCH_DATASET names, if left out.",
    ),
)


def ledger_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options for the ledger of a release, which arrive as `ledger`."""

    @wraps(command)
    def with_ledger(*, ledger_file: Path | None, dataset: str | None, **options: Any) -> None:
        ledger = ledger_file if dataset is None else (ledger_file, dataset)
        command(ledger=ledger, **options)

    decorated: Callable[..., None] = with_options(*_LEDGER)(with_ledger)
    return decorated


def with_options(*options: Callable[..., Any]) -> Callable[..., Any]:
    """Return a decorator that adds several options, shown by --help in this order."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def demo_options(folder: str) -> Callable[..., Any]:
    """Return the options that all demos share; files go to `folder` unless a path is given."""
    return with_options(
        click.option(
            "--output",
            "-o",
            type=PATH,
            default=Path(folder),
            show_default=True,
            help="Folder for the files of the demo.",
        ),
        click.option(
            "--records",
            type=click.IntRange(min=100),
            default=20_000,
            show_default=True,
            help="Number of patients of each of the five sites.",
        ),
    )


@dataclass(frozen=True)
class TableOptions:
    """What the options of a command state about a table."""

    paths: tuple[Path, ...]
    columns: str | None
    facts: dict[str, Any]

    @cached_property
    def table(self) -> Table:
        """The table; columns of .npy files, which have no names, are numbers."""
        from privsketch.tables.table import Table

        table = Table(list(self.paths), **self.facts)
        names: Sequence[str | int] | None = listed_names(self.columns)
        is_array = all(path.suffix.lower() == ".npy" for path in table.all_files)
        if names is not None and is_array and all(str(name).isdecimal() for name in names):
            names = [int(name) for name in names]
        return table.stating(columns=names)


_FACTS = {
    **{name: name for name in ("header", "delimiter", "decimal", "encoding", "sheet", "quotes")},
    **{"sheet_records": "n_records", "missing": "missing", "unreadable": "unreadable"},
}


def file_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options for how files are written; facts of the table arrive as `stated`."""

    @wraps(command)
    def with_table(
        *, data: tuple[Path, ...] | Path, columns: str | None = None, **options: Any
    ) -> None:
        paths = data if isinstance(data, tuple) else (data,)
        facts = {fact: options.pop(name) for name, fact in _FACTS.items() if name in options}
        facts["unreadable"] = facts.get("unreadable") or "error"
        command(stated=TableOptions(paths, columns, facts), **options)

    decorated: Callable[..., None] = with_options(*_FILES)(with_table)
    return decorated


def table_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options for how files are written, and what a release needs to know beside that."""
    return file_options(with_options(*_RELEASED)(command))


def with_unreadable(domain: Domain | Schema, table: Table) -> tuple[Domain | Schema, Table]:
    """Return domain and table; a schema states itself what becomes of unreadable cells."""
    from privsketch.facts.schema import Schema

    if not isinstance(domain, Schema) or table.unreadable == "error":
        return domain, table
    return replace(domain, unreadable="missing"), table.stating(unreadable="error")


def engine_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options for engines; they arrive as `engine`, as functions take it."""

    @wraps(command)
    def with_engine(
        *,
        engine: str | None,
        n_threads: int | None,
        n_workers: int | None,
        scheduler: str | None,
        **options: Any,
    ) -> None:
        stated = {"n_threads": n_threads, "n_workers": n_workers, "scheduler": scheduler}
        command(engine=stated_engine(engine, **stated), **options)

    decorated: Callable[..., None] = with_options(THREADS, *_ENGINE)(with_engine)
    return decorated


def stated_engine(name: str | None, **stated: int | str | None) -> Any:
    """Return an engine with its options, or None if nothing is stated."""
    from privsketch._base.errors import ParameterError
    from privsketch.sketching import engines

    given = {option: value for option, value in stated.items() if value is not None}
    if name is None and not given:
        return None
    fields = _ENGINE_FIELDS.get(name or "threads", {})
    for option, value in given.items():
        if option not in fields:
            raise ParameterError(
                f"`{option}={value!r}` with `engine={name or 'threads'!r}`: {_ADVICE[option]}"
            )
    if name is not None and name not in _ENGINE_FIELDS:
        return name  # of another package
    kind = getattr(engines, (name or "threads").title())
    return kind(**{fields[option]: value for option, value in given.items()})


def study_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options for task, components, domain, budget, number of records and columns.

    Those that take more than one to make sense arrive as `study`: domain, budget and
    columns as `Design.plan` wants them.
    """

    @wraps(command)
    def with_study(
        *,
        box: tuple[str, str] | None,
        ball: float | None,
        schema: Path | None,
        center: str,
        dim: int | None,
        epsilon: float | None,
        delta: float | None,
        neighbours: str,
        columns: str | None,
        **rest: Any,
    ) -> None:
        import privsketch as ps

        if rest["n_components"] is None and rest["task"] in _COMPONENT_TASKS:
            raise click.MissingParameter(param_hint="'-k' / '--components'", param_type="option")
        names = listed_names(columns)
        if schema is not None and (names is not None or dim is not None):
            raise click.UsageError("--schema names the columns; leave --columns and --dim out")
        dim = len(names) if dim is None and names is not None else dim
        domain = stated_domain(box, ball, center, dim, schema)
        budget = None
        if not rest.get("insecure"):
            budget = ps.Budget(epsilon, delta, neighbours)  # type: ignore[arg-type]
        elif (epsilon, delta, neighbours) != (None, None, "add-remove"):
            raise click.UsageError("--insecure: there is no budget; leave --epsilon, --delta out")
        command(study={"domain": domain, "budget": budget, "columns": names}, **rest)

    decorated: Callable[..., None] = with_options(*_STUDY)(with_study)
    return decorated


def stated_domain(
    box: tuple[str, str] | None,
    ball: float | None,
    center: str,
    dim: int | None,
    schema: Path | None = None,
) -> Domain | Schema:
    """Return the public facts about records that --schema, --box or --ball state."""
    import privsketch as ps

    if sum(given is not None for given in (box, ball, schema)) != 1:
        raise click.UsageError(
            "give one of --schema FILE, --box LOW HIGH and --ball RADIUS: what is public about "
            "records"
        )
    if schema is not None:
        return ps.Schema.load(schema)
    if box is not None:
        return ps.Box(low=listed_numbers(box[0]), high=listed_numbers(box[1]), dim=dim)
    return ps.Ball(dim=dim, radius=ball, center=listed_numbers(center))


def domain_of(domain: Domain | Schema, dim: int) -> Domain | Schema:
    """Return the domain of records of files that have `dim` columns to use."""
    from privsketch._base.errors import RecordError
    from privsketch.facts.schema import Schema
    from privsketch.tables.memory import wrong_width

    if isinstance(domain, Schema):
        return domain
    if domain.dim is not None and domain.dim != dim:
        raise RecordError(wrong_width("the table", dim, domain.dim))
    return domain.with_dim(dim)


def listed_numbers(text: str) -> float | list[float]:
    """Return one number, or several that commas separate."""
    try:
        numbers = [float(item) for item in text.split(",")]
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a number or a list like 0,0,18") from None
    return numbers[0] if len(numbers) == 1 else numbers


def listed_names(text: str | None) -> list[str] | None:
    """Return names that commas separate; None stays None."""
    return None if text is None else [name.strip() for name in text.split(",")]
