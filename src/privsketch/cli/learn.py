"""`privsketch learn`: models from a sketch, at no further cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privsketch._base.formats import unmarked_kind
from privsketch._base.plugins import plugin_names
from privsketch.cli.shell.answer import JSON, answer, wants_json
from privsketch.cli.shell.options import (
    PATH,
    NumberOrAuto,
    PartName,
    choice,
    listed_names,
    with_options,
)
from privsketch.cli.shell.output import (
    file_kind,
    is_standard,
    require_available,
    require_file,
    say,
    say_written,
    write,
)
from privsketch.cli.shell.settings import decoder_settings

if TYPE_CHECKING:
    from privsketch import Sketch
    from privsketch.models.base import Model


_CHOICES = (  # whose defaults depend on the sketch, or are those of the functions
    (
        "--task",
        ["kmeans", "gaussian-mixture", "pca", "regression", "classification", "summary"],
        "What to learn. The default is the task of the design.",
    ),
    (
        "--covariance-type",
        ["full", "tied", "diag", "spherical"],
        "Shape of the Gaussians of a mixture. The default is full.",
    ),
    (
        "--method",
        ["auto", "burer-monteiro", "convex"],
        "How to search for principal components. The default is auto.",
    ),
)


@click.command()
@click.argument("sketch_file", metavar="SKETCH", type=PATH)
@click.option(
    "-k",
    "--clusters",
    "number",
    type=NumberOrAuto(),
    help="Number of clusters, Gaussians or components; auto estimates that of clusters or "
    "components from the sketch. The default is the number of the design.",
)
@click.option("--max-clusters", type=int, help="Largest number that -k auto considers.")
@with_options(*(choice(name, values, help=text, open=True) for name, values, text in _CHOICES))
@click.option(
    "--target",
    metavar="COLUMN",
    help="For regression and classification: the column to explain, or a label such as ward=A. "
    "That of the design if left out.",
)
@click.option(
    "--on",
    metavar="COLUMNS",
    help="For regression and classification: columns that explain it, a,b,c. All others if left "
    "out.",
)
@click.option(
    "--by",
    metavar="COLUMN",
    help="For a summary: the flag or category whose labels are groups.",
)
@click.option(
    "--decoder",
    type=PartName("DECODER", lambda: ["joint", "cl-ompr", *plugin_names("decoders")]),
    help="How to search for clusters: joint, cl-ompr, or the decoder of a package. The default is "
    "joint; the papers use cl-ompr.",
)
@click.option(
    "--n-init",
    type=click.IntRange(min=1),
    help="Largest number of searches; fewer are made if one explains the sketch.",
)
@click.option("--seed", "random_state", type=int, help="Public seed of the searches.")
@decoder_settings
@click.option(
    "-o", "--output", type=PATH, help="File of the model (JSON), or - for standard output."
)
@click.option("--report", type=PATH, help="File of an HTML report.")
@click.option("--title", help="Title of the report.")
@click.option("--force", is_flag=True, help="Replace an existing model and an existing report.")
@JSON
def learn(
    sketch_file: Path,
    task: str | None,
    output: Path | None,
    report: Path | None,
    title: str | None,
    force: bool,
    settings: tuple[str, ...],
    **choices: Any,
) -> None:
    """Learn clusters, components, a regression or means from a sketch.

    Nothing is spent. A sketch that no records can have produced is refused, as by `merge`.

    \b
    privsketch learn all.sketch -k 10 -o model.json --report report.html
    privsketch learn all.sketch --task regression --target pressure --on age,ward
    privsketch learn all.sketch --task summary --by ward
    """
    from privsketch._base.errors import AccessError
    from privsketch._base.formats import write_file
    from privsketch.cli.shell.progress import spinner
    from privsketch.cli.shell.signing import load_sketch
    from privsketch.sketching.limits import require_possible

    require_file(report, "a report is a page of its own")
    if output is not None and report is not None and output.resolve() == report.resolve():
        raise AccessError(f"{report}: given twice; model and report need a file each")
    for path, is_replaceable in ((output, _is_model), (report, _is_page)):
        if path is not None:
            if path.exists() and not is_standard(path) and not is_replaceable(path):
                raise AccessError(f"{path} exists, and is no earlier result of this kind; move it")
            require_available(path, force, "it would be replaced")
    sketch = load_sketch(sketch_file)
    require_possible(sketch)
    task = task or sketch.design.task
    options = {name: value for name, value in choices.items() if value is not None}
    if "on" in options:
        options["on"] = listed_names(options["on"])
    if settings:
        is_kmeans = task == "kmeans"
        options["options"] = is_kmeans and _decoder_options(
            settings, options.get("decoder", "joint")
        )
    with spinner("learning"):
        model = _learn(sketch, task, options)
        page = None
        if report is not None:
            from privsketch.pages.report.html import report_page

            page = report_page(model, sketch, title=title)  # type: ignore[arg-type]
    click.get_current_context().find_root().obj.finish()
    if output is not None:
        write(model.save, output)
    if report is not None and page is not None:
        write_file(report, page.encode("utf-8"))
    say(model.describe(), output)
    if output is not None:
        say_written(output)
    if report is not None:
        say(f"written to {report}", output)
    if wants_json():
        from privsketch.cli.shell.facts import model_facts

        answer(written=[path for path in (output, report) if path], **model_facts(model))


# Options of each task.
_OPTIONS = {
    "kmeans": ("number", "random_state", "max_clusters", "decoder", "n_init", "options"),
    "gaussian-mixture": ("number", "random_state", "covariance_type", "n_init"),
    "pca": ("number", "random_state", "method"),
    "regression": ("target", "on"),
    "classification": ("target", "on"),
    "summary": ("by",),
}
_NAMES = {"number": "-k", "options": "--option", "random_state": "--seed"}


def _learn(sketch: Sketch, task: str, options: dict[str, Any]) -> Model:
    """Learn the model of a task; options of other tasks are refused."""
    import warnings

    import privsketch as ps

    for name in options:
        if name not in _OPTIONS[task]:
            option = _NAMES.get(name, "--" + name.replace("_", "-"))
            raise click.UsageError(f"{option} does not go with --task {task}")
    if task == "regression":
        return ps.learn_regression(sketch, **options)
    if task == "classification":
        return ps.learn_classifier(sketch, **options)
    if task == "summary":
        return ps.learn_summary(sketch, **options)
    number = options.pop("number", None)
    if task == "kmeans":
        with warnings.catch_warnings():  # what they say is among the concerns, which are shown
            warnings.simplefilter("ignore", ps.PrivsketchWarning)
            return ps.learn_kmeans(sketch, number, **options)
    if task == "pca":
        return ps.learn_pca(sketch, number, **options)
    if number == "auto":
        raise click.UsageError(
            "-k auto counts clusters (--task kmeans); a mixture needs a number of Gaussians"
        )
    return ps.learn_gaussian_mixture(sketch, number, **options)


def _decoder_options(texts: tuple[str, ...], decoder: str) -> dict[str, Any]:
    """Return the settings of a decoder that --option states."""
    from privsketch._base.settings import parsed_settings
    from privsketch.learning.kmeans.learner import decoder_settings, find_decoder

    settings = decoder_settings(find_decoder(decoder)[0])
    return parsed_settings(settings, texts, f"--decoder {decoder}")


def _is_model(path: Path) -> bool:
    return unmarked_kind(file_kind(path) or "") in (
        "cluster-model",
        "gaussian-mixture-model",
        "pca-model",
        "regression-model",
        "classifier-model",
        "summary-model",
    )


def _is_page(path: Path) -> bool:
    from privsketch._base.formats import beginning_of

    start = b"<!doctype html"
    return beginning_of(path, len(start)) == start
