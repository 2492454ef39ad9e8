"""A group of commands that lists them in the order in which they are used."""

from __future__ import annotations

import click


class Group(click.Group):
    """Commands in their order, where click's own groups sort them by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands."""
        return list(self.commands)
