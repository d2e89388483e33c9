"""``dranet explain``: why a claim got its devices, or why it cannot be allocated."""

from __future__ import annotations

import click

from dranet.advise.explain import explain as explain_pods
from dranet.advise.explain import explain_claim, explanation_json, explanation_text, explanation_verdict, find_claim
from dranet.cli.inputs import (
    Cluster,
    Files,
    cluster_options,
    feature_gates_option,
    files_option,
    gather,
    hardware_options,
    kubernetes_option,
    live_option,
    print_coloured,
    print_json,
    progress_option,
    schema,
)
from dranet.cli.progress import stage

_HELP = """Explain the allocation of pods and claims.

For a pod or claim that cannot be allocated: what excludes each device, and the smallest change that helps. For one that
can, or an allocated claim: why these devices, and better ones that were free. Without pods and pending claims in the
files, it explains every allocated claim."""


@click.command(help=_HELP)
@progress_option
@files_option
@hardware_options
@live_option
@cluster_options
@click.option("--claim", metavar="[NAMESPACE/]NAME", help="Explain only this claim of the cluster or the files.")
@kubernetes_option
@feature_gates_option
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table")
def explain(
    files: Files,
    shapes: tuple[str, ...],
    slices: tuple[str, ...],
    live: bool,
    cluster: Cluster | None,
    claim: str | None,
    kubernetes: str | None,
    feature_gates: str,
    output: str,
) -> None:
    given = gather(files, shapes, slices, live or bool(claim and not files and not slices), cluster)
    version = given.release(kubernetes, feature_gates)
    stage("explaining")
    if claim:
        namespace, _, name = claim.rpartition("/")
        wanted = find_claim(given.manifests, namespace, name)
        found = [explain_claim(given.manifests, given.machines, wanted, version)]
    else:
        found = explain_pods(given.manifests, given.machines, version)
    if output == "json":
        print_json({**schema("explain"), **explanation_json(found, given.cluster.unread)})
    else:
        text = explanation_text(found, given.cluster.unread)
        print_coloured(f"{explanation_verdict(found)}\n\n{text}")
