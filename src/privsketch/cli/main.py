"""`privsketch`: the group of all commands.

Only click is imported here; everything heavy is imported by the command that needs it, so that
--help answers at once.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NoReturn

import click

from privsketch import __version__
from privsketch.cli.demo import demo
from privsketch.cli.design import design, plan
from privsketch.cli.fit.cluster import cluster
from privsketch.cli.fit.regress import regress
from privsketch.cli.inspect import inspect
from privsketch.cli.key import key
from privsketch.cli.learn import learn
from privsketch.cli.ledger import ledger
from privsketch.cli.merge import compare, merge
from privsketch.cli.release import release
from privsketch.cli.schema.commands import schema
from privsketch.cli.shell.answer import Answer, UnreadError, begin, begun
from privsketch.cli.shell.explain import explaining
from privsketch.cli.shell.failure import EXIT_CODES, Failure
from privsketch.cli.shell.group import SectionedGroup
from privsketch.cli.shell.stopping import Stop, stoppable
from privsketch.cli.sketch import sketch
from privsketch.cli.survey import bounds, check

_SECTIONS = {
    "One table": (demo, cluster, regress, release, schema, check, bounds),
    "Many holders": (plan, design, sketch, merge, compare, learn),
    "Budget": (ledger,),
    "Files": (inspect, key),
}
_STUDIES = "privsketch-studies"
_MOVED = {
    "keygen": "key make",
    **{name: f"key {name}" for name in ("sign", "verify", "trust")},
    **{
        name: f"study {name}"
        for name in ("enrol", "accept", "seal", "close", "tally", "join", "rehearse")
    },
    **{name: f"collector {name}" for name in ("serve", "push", "pull")},
}


class _Main(SectionedGroup):
    """The group of all commands, which prints the answer or the failure of each."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        (result, command), is_empty = begin(ctx, args), not args
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:  # in options before the command
            if is_empty:  # click shows the help
                raise
            self._fail(ctx, error, Stop(), result, command)

    def invoke(self, ctx: click.Context) -> Any:
        result, command = begun(ctx)
        with stoppable(ctx.obj) as stop:
            ctx.obj = stop
            try:
                value = super().invoke(ctx)
                stop.phase = "ending"
                result.show()
                return value
            except click.exceptions.Exit:
                raise
            except (Exception, KeyboardInterrupt) as error:
                stop.phase = "ending"
                self._fail(ctx, error, stop, result, command)
            finally:
                stop.phase = "ending"

    def _fail(
        self,
        ctx: click.Context,
        error: BaseException,
        stop: Stop,
        result: Answer,
        command: click.Command | None,
    ) -> NoReturn:
        """Print what happened and what it cost, and exit with the code of the failure."""
        from privsketch._base.errors import AccessError

        failure = Failure.of(error, stop, command)
        if isinstance(error, UnreadError) and not failure.counts:
            ctx.exit(EXIT_CODES["interrupted"])  # the reader of standard output has seen enough
        failure.show()
        with suppress(AccessError):  # standard output may be closed
            result.show(failure.to_json())
        if failure.kind == "interrupted":
            raise click.Abort from None
        ctx.exit(failure.exit_code)


@click.group(
    cls=_Main,
    context_settings={"help_option_names": ["-h", "--help"]},
    sections={
        **{title: [str(command.name) for command in group] for title, group in _SECTIONS.items()},
        "Sealed studies": ["study"],
        "Collector": ["collector"],
    },
    elsewhere={"study": _STUDIES, "collector": _STUDIES},
    moved=_MOVED,
)
@click.version_option(version=__version__, prog_name="privsketch")
@explaining
def main() -> None:
    """Learn from sensitive records without keeping them. Start with the demo."""


for _commands in _SECTIONS.values():
    for _command in _commands:
        main.add_command(_command)

if __name__ == "__main__":
    main(prog_name="privsketch")
