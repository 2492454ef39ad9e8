"""`privsketch`: the life of a sketch from the shell.

Only click is imported here; everything heavy is imported by the command that needs
it, so that --help answers at once.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privsketch import __version__
from privsketch.cli.options import chosen_columns, listed_numbers, require_free, study_options
from privsketch.cli.plan import plan
from privsketch.cli.release import release
from privsketch.cli.reproduce import reproduce

if TYPE_CHECKING:
    from privsketch import GaussianMixtureModel, KMeansModel, PCAModel, Sketch

_PATH = click.Path(path_type=Path)


class _Failure(click.ClickException):
    exit_code = 2


def _as_options(message: str) -> str:
    """A message about parameters in the words of the shell."""
    words = {
        "same_records=True": "--same-records",
        "columns=[...]": "--columns a,b,c",
        "give dim=": "give --dim",
        "needs frequency_scale=": "needs --scale",
        "frequency_scale=": "--scale ",
        "n_workers=": "--workers ",
        "n_features=": "--features ",
        "n_records=": "--records ",
        "scheduler=": "--scheduler ",
        "carry=[...]": "--carry a,b,c",
        "with bound=,": "with --bound,",
        "with random_state:": "with --seed:",
        "leave random_state out": "leave --seed out",
    }
    for python, shell in words.items():
        message = message.replace(python, shell)
    return re.sub(
        r"\b(" + "|".join(_OPTIONS) + r")='([^']*)'",
        lambda found: f"--{found[1].replace('_', '-')} {found[2]}",
        message,
    )


_OPTIONS = (
    "task",
    "noise",
    "count",
    "mean",
    "masks",
    "neighbours",
    "missing",
    "engine",
    "decoder",
    "method",
    "frequencies",
    "feature_map",
    "covariance_type",
    "protect",
    "bound_norm",
    "calibration",
)


class _NumberOrAuto(click.ParamType):  # type: ignore[type-arg]
    """A whole number or the word auto."""

    name = "INTEGER|auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "auto" or isinstance(value, int):
            return value
        try:
            return int(value)
        except ValueError:
            self.fail(f"{value!r} is not a whole number or auto", param, ctx)


class _Group(click.Group):
    """Turns our errors into one line on stderr and exit code 2; lists commands in their order."""

    def invoke(self, ctx: click.Context) -> Any:
        from privsketch.errors import PrivsketchError

        try:
            return super().invoke(ctx)
        except PrivsketchError as error:
            raise _Failure(_as_options(str(error))) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version=__version__, prog_name="privsketch")
def main() -> None:
    """Learn from sensitive records without keeping them.

    Each holder makes a private sketch of its records by a shared design; a collector
    merges the sketches; anyone learns clusters from the sum. Start with the demo.
    """


@main.command()
@click.option(
    "--output",
    "-o",
    type=_PATH,
    default=Path("privsketch-demo"),
    show_default=True,
    help="Folder for the files of the demo.",
)
@click.option(
    "--records",
    type=click.IntRange(min=100),
    default=20_000,
    show_default=True,
    help="Records of each of the five sites.",
)
def demo(output: Path, records: int) -> None:
    """Five sites, one study: sketch, merge, learn, report."""
    from privsketch.cli.demo import run_demo

    run_demo(output, records)


main.add_command(plan)


@main.command()
@study_options
@click.option(
    "--noise",
    type=click.Choice(["gaussian", "cube", "laplace"]),
    help="Gaussian if delta > 0; else the cube, or Laplace for pca.",
)
@click.option(
    "--features",
    "n_features",
    type=int,
    help="Size of the sketch; chosen by forecast if left out.",
)
@click.option(
    "--feature-map",
    type=click.Choice(["fourier", "one-bit", "quadratic", "second-moments"]),
    help="Fourier if left out; for pca the better of the last two.",
)
@click.option(
    "--masks",
    metavar="MASKS",
    help="Secret subsampling: uniform:100, block:512, poisson:0.1, records:0.5, joined by +.",
)
@click.option(
    "--frequencies",
    type=click.Choice(
        ["multi-scale", "adapted-radius", "gaussian", "structured", "orthobases", "normal"]
    ),
    help="Law of the frequencies; multi-scale and structured need no scale, the last two are "
    "for quadratic features.",
)
@click.option(
    "--scale",
    "frequency_scale",
    metavar="SCALE",
    help="Scale of the features, between width and distance of clusters: 0.5, or 0.1,2.",
)
@click.option(
    "--count",
    type=click.Choice(["released", "omitted", "public"]),
    help="Whether a noisy number of records is part of the sketch.",
)
@click.option(
    "--mean",
    type=click.Choice(["released", "omitted"]),
    help="For pca: whether a noisy mean is part of the sketch, so that components can be centred; "
    "3 % more Gaussian, 25 % more Laplace noise. Omitted if left out.",
)
@click.option("--seed", "random_state", type=int, help="Public seed of the frequencies.")
@click.option("-o", "--output", type=_PATH, required=True, help="File of the design, JSON.")
@click.option("--force", is_flag=True, help="Replace an existing design: its sketches are lost.")
def design(
    study: dict[str, Any],
    frequency_scale: str | None,
    output: Path,
    force: bool,
    **choices: Any,
) -> None:
    """Make the public recipe that all holders of a study share.

    \b
    privsketch design -k 10 --box 0 1 --columns a,b,c --epsilon 0.5 --delta 1e-6 -o study.json
    """
    import privsketch as ps

    require_free(output, force, "a new design would not fit the sketches of the old one")
    scale: Any = None if frequency_scale is None else listed_numbers(frequency_scale)
    planned = ps.Design.plan(**study, frequency_scale=scale, **choices)
    planned.save(output)
    click.echo(planned.describe())
    click.echo(f"written to {output}")


@main.command()
@click.argument("design_file", metavar="DESIGN", type=_PATH)
@click.argument("data", nargs=-1, required=True, type=_PATH)
@click.option("-o", "--output", type=_PATH, required=True, help="File of the sketch.")
@click.option("--source", help="Name of this set of records; the output's name if left out.")
@click.option("--columns", help="Columns that make a record, in order: a,b,c.")
@click.option(
    "--missing",
    type=click.Choice(["error", "center"]),
    default="error",
    show_default=True,
    help="Refuse missing values, or centre them.",
)
@click.option("--threads", "n_threads", type=int, help="All cores if left out.")
@click.option(
    "--engine",
    type=click.Choice(["threads", "pool", "dask"]),
    help="Who reads: threads if left out, processes of this machine, or a Dask cluster.",
)
@click.option("--workers", "n_workers", type=int, help="Processes of --engine pool.")
@click.option("--scheduler", metavar="ADDRESS", help="Dask scheduler, like tcp://host:8786.")
@click.option(
    "--expect",
    metavar="FINGERPRINT",
    help="Refuse any design but this one: the first 8 or more characters of its fingerprint.",
)
@click.option("--force", is_flag=True, help="Replace an existing output: spends the budget again.")
def sketch(
    design_file: Path,
    data: tuple[Path, ...],
    output: Path,
    source: str | None,
    columns: str | None,
    missing: str,
    n_threads: int | None,
    engine: str | None,
    n_workers: int | None,
    scheduler: str | None,
    expect: str | None,
    force: bool,
) -> None:
    """Read records once and publish their private sketch.

    DATA: one or more .parquet, .csv, .arrow or .npy files. Charges the budget of the
    design once, at the end.

    \b
    privsketch sketch study.json data.parquet -o site-3.sketch
    """
    import privsketch as ps
    from privsketch.cli.progress import record_bar
    from privsketch.errors import FileError

    recipe = ps.Design.load(design_file)
    if expect is not None and (len(expect) < 8 or not recipe.fingerprint.startswith(expect)):
        raise FileError(
            f"{design_file}: its fingerprint is {recipe.fingerprint[:16]}, not {expect}"
        )
    if sys.stderr.isatty():
        asks = recipe.budget.describe()
        click.echo(f"design {recipe.fingerprint[:16]} asks for {asks}", err=True)
    # Learn it before the budget is spent.
    require_free(output, force, "sketching its records again would spend the budget again")
    with record_bar(data) as advance:
        released = ps.sketch(
            list(data),
            recipe,
            source=source or output.stem,
            columns=chosen_columns(columns, data),
            missing=missing,
            n_threads=n_threads,
            engine=engine,
            n_workers=n_workers,
            scheduler=scheduler,
            progress=advance,
        )
    released.save(output)
    click.echo(released.receipt.describe())
    if source is None:
        click.echo(
            f"note        the source is named after the output, {output.stem}: another sketch of "
            "these records, whatever its name, costs again"
        )
    click.echo(f"written to {output}")


@main.command()
@click.argument("sketches", nargs=-1, required=True, type=_PATH)
@click.option("-o", "--output", type=_PATH, required=True, help="File of the sum.")
@click.option(
    "--same-records", is_flag=True, help="Accept sketches of the same source; their budgets add."
)
@click.option(
    "--weights",
    help="Whole numbers, one for each sketch: how often its records count; once if left out.",
)
@click.option("--force", is_flag=True, help="Replace an existing output.")
def merge(
    sketches: tuple[Path, ...],
    output: Path,
    same_records: bool,
    weights: str | None,
    force: bool,
) -> None:
    """Add sketches of one study up.

    \b
    privsketch merge site-*.sketch -o all.sketch
    """
    import privsketch as ps

    factors = None
    if weights is not None:
        try:
            factors = [int(item) for item in weights.split(",")]
        except ValueError:
            raise click.BadParameter(f"--weights {weights}: expected a list like 2,1,1") from None
    require_free(output, force, "it would be replaced")
    parts = [ps.Sketch.load(path) for path in sketches]
    total = ps.merge(parts, same_records=same_records, weights=factors)
    total.save(output)
    click.echo(total.receipt.describe())
    click.echo(f"written to {output}")


@main.command()
@click.argument("sketch_file", metavar="SKETCH", type=_PATH)
@click.option(
    "--task",
    type=click.Choice(["kmeans", "gaussian-mixture", "pca"]),
    help="What to learn; what the design was planned for if left out.",
)
@click.option(
    "-k",
    "--clusters",
    "number",
    type=_NumberOrAuto(),
    help="Number of clusters, Gaussians or components; the design's if left out; auto takes the "
    "number of clusters or components from the sketch.",
)
@click.option("--max-clusters", type=int, help="Largest number that -k auto considers.")
@click.option(
    "--covariance-type",
    type=click.Choice(["full", "tied", "diag", "spherical"]),
    help="Shapes of the Gaussians of a mixture; full if left out.",
)
@click.option(
    "--method",
    type=click.Choice(["auto", "burer-monteiro", "convex"]),
    help="Search for principal components; auto if left out.",
)
@click.option("-o", "--output", type=_PATH, help="File of the model, JSON.")
@click.option("--report", type=_PATH, help="File of an HTML report.")
@click.option("--title", help="Of the report.")
@click.option(
    "--decoder",
    type=click.Choice(["joint", "cl-ompr"]),
    help="Search for clusters; joint if left out, cl-ompr is the one of the papers.",
)
@click.option(
    "--starts",
    "n_starts",
    type=click.IntRange(min=1),
    help="Most searches; fewer are made if one explains the sketch.",
)
@click.option("--seed", "random_state", type=int, help="Public seed of the searches.")
def learn(
    sketch_file: Path,
    task: str | None,
    output: Path | None,
    report: Path | None,
    title: str | None,
    **choices: Any,
) -> None:
    """Learn clusters, a mixture or principal components from a sketch, at no further cost.

    \b
    privsketch learn all.sketch -k 10 -o model.json --report report.html
    """
    import privsketch as ps
    from privsketch.cli.progress import spinner

    for path, starts in ((output, _MODEL_STARTS), (report, (b"<!doctype html",))):
        if path is not None:
            is_old_result = any(_starts_with(path, start) for start in starts)
            require_free(path, is_old_result, "it is not of the same kind; move it")
    released = ps.Sketch.load(sketch_file)
    task = task or released.design.task
    given = {name: value for name, value in choices.items() if value is not None}
    with spinner("learning"):
        model = _learn(released, task, given)
    if output is not None:
        model.save(output)
    if report is not None:
        from privsketch.report.html import save_report

        save_report(model, released, report, title=title)
    click.echo(model.describe())
    for path in (output, report):
        if path is not None:
            click.echo(f"written to {path}")


def _learn(
    released: Sketch, task: str, given: dict[str, Any]
) -> KMeansModel | GaussianMixtureModel | PCAModel:
    """The model of a task; options of the other ones are refused."""
    import privsketch as ps

    own = {
        "kmeans": ("max_clusters", "decoder", "n_starts"),
        "gaussian-mixture": ("covariance_type", "n_starts"),
        "pca": ("method",),
    }
    for name in given:
        if name not in (*own[task], "number", "random_state"):
            option = "--starts" if name == "n_starts" else "--" + name.replace("_", "-")
            raise click.UsageError(f"{option} does not go with --task {task}")
    number = given.pop("number", None)
    if task == "kmeans":
        return ps.learn_kmeans(released, number, **given)
    if task == "pca":
        return ps.learn_pca(released, number, **given)
    if number == "auto":
        raise click.UsageError(
            "-k auto counts clusters (--task kmeans); a mixture needs a number of Gaussians"
        )
    return ps.learn_gaussian_mixture(released, number, **given)


_MODEL_STARTS = (
    b'{\n  "format": "privsketch-kmeans-model"',
    b'{\n  "format": "privsketch-gaussian-mixture-model"',
    b'{\n  "format": "privsketch-pca-model"',
)


def _starts_with(path: Path, start: bytes) -> bool:
    """Whether a file is an earlier result of the same kind, which may be replaced."""
    try:
        with path.open("rb") as stream:
            return stream.read(len(start)) == start
    except OSError:
        return False


main.add_command(release)


@main.command()
@click.argument("file", type=_PATH)
def inspect(file: Path) -> None:
    """Say what a design, sketch, model or receipt contains; of a released table, its receipt."""
    import privsketch as ps
    from privsketch.formats import SKETCH_MAGIC, parse_json, read_file
    from privsketch.release_files import receipt_beside

    receipt = receipt_beside(file)
    if receipt is not None:
        click.echo(f"table       {file}, described by {receipt}")
        file = receipt
    data = read_file(file)
    if data.startswith(SKETCH_MAGIC):
        click.echo(ps.Sketch.from_bytes(data, str(file)).describe())
        return
    kind = parse_json(data, str(file)).get("format")
    if kind == "privsketch-release":
        click.echo(ps.ReleaseDescription.load(file).describe())
        return
    model: KMeansModel | GaussianMixtureModel | PCAModel
    if kind == "privsketch-kmeans-model":
        model = ps.KMeansModel.load(file)
    elif kind == "privsketch-gaussian-mixture-model":
        model = ps.GaussianMixtureModel.load(file)
    elif kind == "privsketch-pca-model":
        model = ps.PCAModel.load(file)
    else:
        click.echo(ps.Design.load(file).describe())
        return
    click.echo(model.describe() + "\n\n" + model.receipt.describe())


main.add_command(reproduce)
