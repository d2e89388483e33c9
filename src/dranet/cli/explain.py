"""``dranet explain``: why a claim got its devices, or why it gets none and what would change that."""

from __future__ import annotations

import click

from dranet.cli.inputs import (
    files_option,
    gather,
    hardware_options,
    kubeconfig_option,
    live_option,
    print_coloured,
    print_json,
    release,
)
from dranet.manifests.explain_text import to_json, to_text
from dranet.manifests.explaining import explain as explain_pods
from dranet.manifests.explaining import explain_claim
from dranet.manifests.views import world_of
from dranet.model.errors import DranetError, InvalidInput

HELP = """For a pod or claim that cannot be placed: what rules out each device, and the smallest change that would help.
For one that can, or an allocated claim: why these devices, and better ones that were free. Where the files hold no
pod and no waiting claim, every allocated claim is explained."""


@click.command(help=HELP)
@files_option
@hardware_options
@live_option
@kubeconfig_option
@click.option("--claim", metavar="[NAMESPACE/]NAME", help="One claim, of the cluster or of the files.")
@click.option("--kubernetes", metavar="1.XX", default="1.36", show_default=True, help="Version of the scheduler.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table")
def explain(
    files: tuple[str, ...],
    shapes: tuple[str, ...],
    slices: tuple[str, ...],
    live: bool,
    kubeconfig: str | None,
    claim: str | None,
    kubernetes: str,
    output: str,
) -> None:
    """Read, explain, print."""
    version = release(kubernetes)
    try:
        given = gather(files, shapes, slices, live or bool(claim and not files and not slices), kubeconfig)
        if given.hardware is None:
            raise InvalidInput("no machines: name them with --shape NAME=COUNT, --slices FILE or --live")
        world = world_of(given.objects)
        if claim:
            namespace, _, name = claim.rpartition("/")
            found = [explain_claim(world, given.hardware, namespace, name, version)]
        else:
            found = explain_pods(world, given.hardware, version)
    except DranetError as error:
        raise click.ClickException(str(error)) from error
    if output == "json":
        print_json(to_json(found))
    else:
        print_coloured(to_text(found))
