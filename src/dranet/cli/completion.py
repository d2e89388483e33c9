"""``dranet completion``: a few lines for the shell's start-up file, as other tools of Kubernetes give them."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from dranet.cli.main import load_group

PROGRAM = "dranet"
ASKED_BY = f"_{PROGRAM.upper()}_COMPLETE"
"""The variable by which those lines ask the program itself what fits."""


@click.command(
    help="Lines that make a shell complete commands, options and shapes: `source <(dranet completion bash)`."
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print them."""
    kind = get_completion_class(shell)
    assert kind is not None, shell
    click.echo(kind(load_group(), {}, PROGRAM, ASKED_BY).source())
