"""Groups of commands: ordered by use, under headings, with those of other distributions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from privsketch._base.plugins import find_plugin, plugin_names


class Group(click.Group):
    """A group that lists commands in the order in which they were added; click sorts them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return list(self.commands)


class SectionedGroup(Group):
    """The whole command line: commands under headings, plugins, and advice for old names.

    Parameters
    ----------
    sections : mapping
        Headings, and the names of the commands below each.
    elsewhere : mapping
        Names of commands of other distributions, and the distribution to install.
    moved : mapping
        Old names of commands, and what to write instead.
    """

    def __init__(
        self,
        *,
        sections: Mapping[str, Sequence[str]],
        elsewhere: Mapping[str, str],
        moved: Mapping[str, str],
        **options: object,
    ) -> None:
        super().__init__(**options)  # type: ignore[arg-type]  # click's own, all of them optional
        self.sections, self.elsewhere, self.moved = sections, elsewhere, moved

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in the order of their sections."""
        available = dict.fromkeys([*self.commands, *plugin_names("commands")])
        ordered = [name for section in self.sections.values() for name in section]
        return [*dict.fromkeys([name for name in (*ordered, *available) if name in available])]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of this name; its distribution is imported only now."""
        if cmd_name in self.commands:
            return self.commands[cmd_name]
        plugin = find_plugin("commands", cmd_name)
        if plugin is None:
            return None
        if not isinstance(plugin.part, click.Command):
            raise click.UsageError(f"{cmd_name}: {plugin.origin} registers no command of click's")
        return plugin.part

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; the error for an old name states the new one."""
        name = args[0]
        if self.get_command(ctx, name) is None:
            if name in self.moved:
                raise click.UsageError(f"{name!r} is now `privsketch {self.moved[name]}`", ctx)
            if name in self.elsewhere:
                raise click.UsageError(
                    f"{name!r} is part of {self.elsewhere[name]}: pip install "
                    f"{self.elsewhere[name]}",
                    ctx,
                )
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write all commands on one screen of 80 by 30 characters."""
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        names = self.list_commands(ctx)
        in_sections = {name for section in self.sections.values() for name in section}
        sections = {**self.sections, "Other": [name for name in names if name not in in_sections]}
        width = max(map(len, names))
        formatter.write_paragraph()
        for heading, commands in sections.items():
            in_section = {name: self.get_command(ctx, name) for name in commands if name in names}
            if in_section:
                formatter.write(f"{heading}:\n")
            for name, command in in_section.items():
                help_text = "" if command is None else command.get_short_help_str(limit=200)
                formatter.write(f"  {name:<{width}}  {help_text}\n")
        formatter.write_paragraph()
        formatter.write(
            "Each command has --help. `privsketch --explain epsilon` says which to take.\n"
        )
