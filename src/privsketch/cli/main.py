"""`privsketch`: the life of a sketch from the shell.

Only click is imported here; everything heavy is imported by the command that needs
it, so that --help answers at once.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from privsketch import __version__
from privsketch.cli.cluster import cluster
from privsketch.cli.keys.commands import keygen, sign, trust, verify
from privsketch.cli.keys.options import KEY, PASSPHRASE_FILE, SIGNED_BY, sign_result, signing_key
from privsketch.cli.learn import learn
from privsketch.cli.options import choice, listed_numbers, study_options
from privsketch.cli.output import require_free, say, say_cautions, say_written, write
from privsketch.cli.plan import plan
from privsketch.cli.release import release
from privsketch.cli.schema import schema
from privsketch.cli.sketch import sketch
from privsketch.cli.stopping import stoppable
from privsketch.cli.survey import bounds, check

if TYPE_CHECKING:
    pass

_PATH = click.Path(path_type=Path)


class _Failure(click.ClickException):
    exit_code = 2


def shell_words(command: click.Command | None) -> Callable[[str, str | None], str]:
    """How a command's parameters are said in a shell; those it does not have, as in Python."""
    options = {
        option.name: option
        for option in (command.params if command is not None else ())
        if isinstance(option, click.Option)
    }

    def words(name: str, value: str | None) -> str:
        option = options.get(name)
        if option is None:
            return name if value is None else f"{name}={value}"
        told = max(option.opts, key=len)
        if option.is_flag:
            return max(option.secondary_opts, key=len) if value == "False" else told
        if value is None:
            return told
        return f"{told} {'a,b,c' if value == '[...]' else quote(value.strip(chr(39)))}"

    return words


class _Group(click.Group):
    """Turns our errors into one line on stderr and exit code 2; lists commands in their order."""

    def invoke(self, ctx: click.Context) -> Any:
        from privsketch.errors import PrivsketchError

        with stoppable(ctx.obj) as stop:
            ctx.obj = stop
            try:
                return super().invoke(ctx)
            except PrivsketchError as error:
                if not stop.was_asked:
                    notes = getattr(error, "__notes__", ())
                    words = shell_words(self.get_command(ctx, ctx.invoked_subcommand or ""))
                    raise _Failure("; ".join([error.told(words), *notes])) from None
            except click.ClickException as error:
                error.show()
                for note in getattr(error, "__notes__", ()):
                    click.echo(note, err=True)
                ctx.exit(error.exit_code)
            except Exception:
                if not stop.was_asked:
                    raise
            except KeyboardInterrupt:
                pass
            finally:
                stop.phase = "ending"
            # Whatever error an interrupt has become on its way, it is no other one's.
            if not stop.told:  # by a command that reads records; no other one can spend
                click.echo("nothing was spent", err=True)
            raise click.Abort

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
    help="Patients of each of the five sites.",
)
def demo(output: Path, records: int) -> None:
    """Five hospitals, one study: schema, sketch, merge, learn, report."""
    from privsketch.cli.demo import run_demo

    run_demo(output, records)


main.add_command(schema)
main.add_command(check)
main.add_command(bounds)
main.add_command(plan)


@main.command()
@study_options
@choice(
    "--noise",
    ["gaussian", "cube", "laplace"],
    help="Gaussian if delta > 0; else the cube, or Laplace for pca.",
    open=True,
)
@click.option(
    "--features",
    "n_features",
    type=int,
    help="Size of the sketch; chosen by forecast if left out.",
)
@choice(
    "--feature-map",
    ["fourier", "one-bit", "quadratic", "second-moments"],
    help="Fourier if left out; for pca the better of the last two.",
    open=True,
)
@click.option(
    "--masks",
    metavar="MASKS",
    help="Secret subsampling: uniform:100, block:512, poisson:0.1, records:0.5, joined by +.",
)
@choice(
    "--frequencies",
    ["multi-scale", "adapted-radius", "gaussian", "structured", "orthobases", "normal"],
    help="Law of the frequencies; multi-scale and structured need no scale, the last two are "
    "for quadratic features.",
    open=True,
)
@click.option(
    "--scale",
    "frequency_scale",
    metavar="SCALE",
    help="Scale of the features, between width and distance of clusters: 0.5, or 0.1,2.",
)
@choice(
    "--count",
    ["released", "omitted", "public"],
    help="Whether a noisy number of records is part of the sketch.",
    open=True,
)
@choice(
    "--mean",
    ["released", "omitted"],
    help="For pca: whether a noisy mean is part of the sketch, so that components can be centered; "
    "3 % more Gaussian, 25 % more Laplace noise. Omitted if left out.",
    open=True,
)
@click.option("--seed", "random_state", type=int, help="Public seed of the frequencies.")
@click.option(
    "-o",
    "--output",
    type=_PATH,
    required=True,
    help="File of the design, JSON; - for standard output.",
)
@KEY
@PASSPHRASE_FILE
@click.option("--force", is_flag=True, help="Replace an existing design: its sketches are lost.")
def design(
    study: dict[str, Any],
    frequency_scale: str | None,
    output: Path,
    key_file: Path | None,
    passphrase_file: Path | None,
    force: bool,
    **choices: Any,
) -> None:
    """Make the public recipe that all holders of a study share.

    \b
    privsketch design -k 10 --box 0 1 --columns a,b,c --epsilon 0.5 --delta 1e-6 -o study.json
    """
    from privsketch.design.plan import plan_design
    from privsketch.design.words import describe_design

    require_free(output, force, "a new design would not fit the sketches of the old one")
    signer = signing_key(key_file, passphrase_file, output)
    scale: Any = None if frequency_scale is None else listed_numbers(frequency_scale)
    planned = plan_design(**study, frequency_scale=scale, **choices)
    said = say_cautions(study["domain"], planned.budget, choices["n_records"], planned.columns)
    write(planned.save, output)
    sign_result(signer, output, planned.to_bytes(), "design")
    say(describe_design(planned, said=said), output)
    say_written(output)


main.add_command(sketch)


@main.command()
@click.argument("sketches", nargs=-1, required=True, type=_PATH)
@click.option(
    "-o", "--output", type=_PATH, required=True, help="File of the sum; - for standard output."
)
@click.option(
    "--same-records", is_flag=True, help="Accept sketches of the same source; their budgets add."
)
@click.option(
    "--weights",
    help="Whole numbers, one for each sketch: how often its records count; once if left out.",
)
@SIGNED_BY
@click.option("--force", is_flag=True, help="Replace an existing output.")
def merge(
    sketches: tuple[Path, ...],
    output: Path,
    same_records: bool,
    weights: str | None,
    signed_by: tuple[str, ...],
    force: bool,
) -> None:
    """Add sketches of one study up.

    \b
    privsketch merge site-*.sketch -o all.sketch
    privsketch merge site-*.sketch -o all.sketch --signed-by site-1.pub --signed-by site-2.pub
    """
    import privsketch as ps
    from privsketch.cli.keys.checking import load_sketches

    factors = None
    if weights is not None:
        try:
            factors = [int(item) for item in weights.split(",")]
        except ValueError:
            raise click.BadParameter(f"--weights {weights}: expected a list like 2,1,1") from None
    require_free(output, force, "it would be replaced")
    parts = load_sketches(sketches, signed_by)
    total = ps.merge(parts, same_records=same_records, weights=factors)
    write(total.save, output)
    say(total.receipt.describe(), output)
    say_written(output)


main.add_command(learn)
main.add_command(cluster)
main.add_command(release)


@main.command()
@click.argument("file", type=_PATH)
def inspect(file: Path) -> None:
    """Say what a design, sketch, model or receipt contains; of a released table, its receipt."""
    import privsketch as ps
    from privsketch.cli.keys.checking import checked_bytes
    from privsketch.models.base import Model
    from privsketch.projection.files import receipt_beside

    receipt = receipt_beside(file)
    if receipt is not None:
        click.echo(f"table       {file}, described by {receipt}")
        file = receipt
    _, signer = checked_bytes(file)
    if signer is not None:
        click.echo(f"signed by   {signer.name}", err=True)
    found = ps.load(file)
    click.echo(found.describe())
    if isinstance(found, Model):
        click.echo("\n" + found.receipt.describe())


main.add_command(keygen)
main.add_command(sign)
main.add_command(verify)
main.add_command(trust)
