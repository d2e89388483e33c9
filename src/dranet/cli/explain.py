"""``dranet explain``: why a claim got its devices, or why it gets none and what would change that."""

from __future__ import annotations

import click

from dranet.cli.inputs import (
    Cluster,
    cluster_options,
    files_option,
    gather,
    hardware_options,
    kubernetes_option,
    live_option,
    print_coloured,
    print_json,
    progress_option,
)
from dranet.cli.progress import stage
from dranet.model.errors import DranetError
from dranet.predict.explain.explain_text import to_json, to_text
from dranet.predict.explain.explaining import explain as explain_pods
from dranet.predict.explain.explaining import explain_claim, find_claim

HELP = """For a pod or claim that cannot be placed: what rules out each device, and the smallest change that would help.
For one that can, or an allocated claim: why these devices, and better ones that were free. Where the files hold no
pod and no waiting claim, every allocated claim is explained."""


@click.command(help=HELP)
@progress_option
@files_option
@hardware_options
@live_option
@cluster_options
@click.option("--claim", metavar="[NAMESPACE/]NAME", help="One claim, of the cluster or of the files.")
@kubernetes_option
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table")
def explain(
    files: tuple[str, ...],
    shapes: tuple[str, ...],
    slices: tuple[str, ...],
    live: bool,
    cluster: Cluster | None,
    claim: str | None,
    kubernetes: str | None,
    output: str,
) -> None:
    """Read, explain, print."""
    try:
        given = gather(files, shapes, slices, live or bool(claim and not files and not slices), cluster)
        version = given.release(kubernetes)
        stage("explaining")
        if claim:
            namespace, _, name = claim.rpartition("/")
            wanted = find_claim(given.world, namespace, name)
            found = [explain_claim(given.world, given.machines, wanted, version)]
        else:
            found = explain_pods(given.world, given.machines, version)
    except DranetError as error:
        raise click.ClickException(str(error)) from error
    if output == "json":
        print_json(to_json(found, given.cluster.unread))
    else:
        print_coloured(to_text(found, given.cluster.unread))
