"""``dranet suggest``: the claim template that gives aligned devices on given machines."""

from __future__ import annotations

import click

from dranet.cli.inputs import gather, hardware_options, kubeconfig_option, live_option
from dranet.model.errors import DranetError
from dranet.predict.suggesting import suggest as find
from dranet.predict.suggesting import to_text


@click.command(help="Write the claim template that gives aligned GPUs and cards, and prove it by planning it.")
@click.option("--gpus", type=click.IntRange(0), default=1, show_default=True, help="GPUs of one pod.")
@click.option("--nics", type=click.IntRange(0), default=1, show_default=True, help="Network cards of one pod.")
@hardware_options
@live_option
@kubeconfig_option
def suggest(
    gpus: int, nics: int, shapes: tuple[str, ...], slices: tuple[str, ...], live: bool, kubeconfig: str | None
) -> None:
    """Print the manifest; what was proved stands in it as comments."""
    try:
        given = gather((), shapes, slices, live, kubeconfig)
        found = find(given.machines, gpus, nics)
    except DranetError as error:
        raise click.ClickException(str(error)) from error
    click.echo(to_text(found), nl=False)
