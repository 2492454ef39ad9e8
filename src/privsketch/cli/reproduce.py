"""`privsketch reproduce`: figures and tables of the papers, run again."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("names", metavar="[TARGET]...", nargs=-1)
@click.option("--quick", is_flag=True, help="Fewer repetitions: less than two minutes each.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("privsketch-reproduced"),
    show_default=True,
    help="Folder for CSV files, pictures and words; files of the same names are replaced.",
)
def reproduce(names: tuple[str, ...], quick: bool, output: Path) -> None:
    """Run experiments of the papers and compare with what they print.

    Without a TARGET: the list of them. Records are synthetic. Noise has no seed, so numbers
    differ from run to run, by as much as their standard errors say.

    \b
    privsketch reproduce jll-table1 --quick -o results
    """
    from privsketch.cli.progress import share_bar
    from privsketch.reproduce.results import aligned, run
    from privsketch.reproduce.targets import TARGETS, find_target

    if not names:
        lines = [
            [one.name, _time(one.quick_seconds), _time(one.seconds), f"{one.paper}, {one.shows}"]
            for one in TARGETS
        ]
        width = max(len(line[3]) for line in lines)
        padded = [[*line[:3], line[3].ljust(width)] for line in lines]
        click.echo(aligned(["target", "quick", "full", "what".ljust(width)], padded))
        return
    targets = [find_target(name) for name in names]
    for target in targets:
        with share_bar(target.name) as progress:
            outcome = run(target, output, "quick" if quick else "full", progress)
        click.echo(outcome.text)
        for path in outcome.files:
            click.echo(f"written to {path}")


def _time(seconds: int) -> str:
    return f"{seconds} s" if seconds < 120 else f"{seconds / 60:.0f} min"
