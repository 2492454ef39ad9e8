"""`python -m papers`: figures and tables of the papers, run again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from privsketch._base.errors import PrivsketchError


class _Failure(click.ClickException):
    exit_code = 2


class _Command(click.Command):
    """Turns our errors into one line on stderr and exit code 2."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except PrivsketchError as error:
            raise _Failure("; ".join([str(error), *getattr(error, "__notes__", ())])) from None


@click.command(cls=_Command)
@click.argument("names", metavar="[TARGET]...", nargs=-1)
@click.option("--quick", is_flag=True, help="Less of everything: under two minutes each.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("papers-output"),
    show_default=True,
    help="Folder for CSV files, pictures and words; files of the same names are replaced.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    help="Processes that share the work; one per core if left out.",
)
@click.option("--again", is_flag=True, help="Run parts that are kept again.")
def main(names: tuple[str, ...], quick: bool, output: Path, jobs: int | None, again: bool) -> None:
    """Run experiments of the papers and compare with what they print.

    Without a TARGET: the list of them. A TARGET may be the first word of some names, which is that
    of a paper, or "all". Records are synthetic or public. Noise has no seed, so numbers differ from
    run to run, by as much as their standard errors say.

    A run can be stopped: its parts are kept in the folder "cells" of the output as they are done,
    and the same command goes on with what is left. Parts run again when the code or a library that
    they depend on has changed.

    \b
    python -m papers jll-table1 --quick -o results
    python -m papers all --quick -o results
    """
    from papers.harness.results import duration, run
    from papers.harness.targets import TARGETS, find_targets
    from papers.harness.views import aligned
    from privsketch._base.threads import checked_threads
    from privsketch.cli.shell.progress import share_bar

    if not names:
        lines = [
            [one.name, *map(duration, reversed(one.seconds)), f"{one.paper}, {one.view.shows}"]
            for one in TARGETS
        ]
        full, quickly = (
            sum(times) for times in zip(*(one.seconds for one in TARGETS), strict=True)
        )
        lines.append(["all", duration(quickly), duration(full), ""])
        headings = ["target", "quick", "full", "what (times of two cores)"]
        width = max(len(line[3]) for line in lines)
        padded = [[*line[:3], line[3].ljust(width)] for line in [headings, *lines]]
        click.echo(aligned(padded[0], padded[1:]))
        return
    for target in find_targets(names):
        try:
            with share_bar(target.name) as progress:
                outcome = run(
                    target,
                    output,
                    "quick" if quick else "full",
                    progress,
                    n_jobs=checked_threads(jobs),
                    again=again,
                )
        except KeyboardInterrupt:
            kept = output / "cells"
            click.echo(f"stopped; the same command goes on with what is in {kept}", err=True)
            raise
        click.echo(outcome.text)
        for path in outcome.files:
            click.echo(f"written to {path}")


if __name__ == "__main__":
    main(prog_name="python -m papers")
