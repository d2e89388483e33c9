"""``dranet completion``: the completion script of a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from dranet.cli.main import load_group

_PROGRAM = "dranet"
_VARIABLE = f"_{_PROGRAM.upper()}_COMPLETE"
"""Environment variable with which the script calls the program."""


@click.command(help="Print the script that completes commands, options and shapes: `source <(dranet completion bash)`.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    kind = get_completion_class(shell)
    assert kind is not None, shell
    click.echo(kind(load_group(), {}, _PROGRAM, _VARIABLE).source())
