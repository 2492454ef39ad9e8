"""`privsketch inspect`: the content of a file."""

from __future__ import annotations

from pathlib import Path

import click

from privsketch.cli.shell.answer import JSON, answer, wants_json
from privsketch.cli.shell.options import PATH
from privsketch.cli.shell.output import say


@click.command()
@click.argument("file", type=PATH)
@JSON
def inspect(file: Path) -> None:
    """Describe the content of a file of privsketch.

    FILE is a design, schema, sketch, model, public key or receipt, or a released table, whose
    receipt is described. With privsketch-studies, it may be a file of a sealed study.

    \b
    privsketch inspect study.json
    """
    from privsketch._base.files import from_bytes, kind_of, with_companions
    from privsketch.cli.shell.signing import checked_bytes
    from privsketch.models.base import Model
    from privsketch.projection.files import receipt_beside

    table, receipt = file, receipt_beside(file)
    if receipt is not None:
        say(f"table       {file}, described by {receipt}", None)
        file = receipt
    data, signer = checked_bytes(file)
    if signer is not None:
        click.echo(f"signed by   {signer.name}", err=True)
    content = with_companions(from_bytes(data, str(file)), file)
    say(content.describe(), None)
    if isinstance(content, Model):
        say("\n" + content.receipt.describe(), None)
    if wants_json():
        from privsketch.cli.shell.facts import file_facts, key_facts

        answer(
            table=None if receipt is None else table,
            file=file,
            signer=None if signer is None else key_facts(signer),
            **file_facts(str(kind_of(data, str(file))), content),
        )
