"""``dranet suggest``: write a claim template for aligned devices, or a workload that uses one."""

from __future__ import annotations

from difflib import unified_diff

import click

from dranet.advise.manifests import is_quantity, read_texts
from dranet.advise.suggest import (
    align_workloads,
    compute_domain,
    fleet_text,
    pod_snippet,
    same_rails_text,
    suggest_fleet,
    suggest_same_rails,
)
from dranet.cli.inputs import (
    Cluster,
    Files,
    cluster_options,
    files_option,
    gather,
    hardware_options,
    kubernetes_option,
    live_option,
    progress_option,
)
from dranet.core.errors import InvalidInput

_HELP = """Write a claim template for aligned GPUs and NICs, and check it with a plan. For several kinds of machines it
writes one template if possible, else one for each kind.

With FILE, write the workload itself (Job, MPIJob, RayCluster, JobSet, LeaderWorkerSet, Deployment and others) with the
claim in its pods: resourceClaims, claims of containers, IPC_LOCK, settings for NCCL. GPUs of a device plugin are
removed. Comments and order stay. The first line is the verdict of the plan.

\b
Examples:
  dranet suggest --gpus 2 --nics 2 --shape a4-highgpu-8g
  dranet suggest job.yaml --shape a4-highgpu-8g=2 > aligned.yaml
  dranet suggest job.yaml --shape a4-highgpu-8g=2 --diff"""


@click.command(help=_HELP)
@progress_option
@files_option
@click.option("--gpus", type=click.IntRange(0), help="GPUs of one pod; by default 1, or what the pods of FILE request.")
@click.option("--nics", type=click.IntRange(0), help="NICs of one pod; by default 1, or what the pods of FILE request.")
@click.option(
    "--share", metavar="AMOUNT", default="", help="Bandwidth of each NIC instead of the whole NIC, such as 100G."
)
@click.option("--same-rails", is_flag=True, help="Keep all pods of a job on the same rails.")
@click.option("--pods", type=click.IntRange(2), default=2, show_default=True, help="Pods of the job, for --same-rails.")
@click.option("--diff", is_flag=True, help="With FILE: print only what changes.")
@hardware_options
@live_option
@cluster_options
@kubernetes_option
def suggest(
    files: Files,
    gpus: int | None,
    nics: int | None,
    share: str,
    same_rails: bool,
    pods: int,
    diff: bool,
    shapes: tuple[str, ...],
    slices: tuple[str, ...],
    live: bool,
    cluster: Cluster | None,
    kubernetes: str | None,
) -> None:
    if share and (same_rails or nics == 0 or not is_quantity(share)):
        raise InvalidInput(f"--share {share}: write an amount such as 100G, without --same-rails")
    if files and (share or same_rails):
        raise click.UsageError("--share and --same-rails write a template; leave out FILE")
    if diff and not files:
        raise click.UsageError("--diff needs FILE")
    given = gather((), shapes, slices, live, cluster)
    if files:
        texts = [(one.name, one.text) for one in read_texts(files)]
        existing = list(given.manifests.all_objects)
        found = align_workloads(texts, existing, given.machines, (gpus, nics), given.release(kubernetes))
        names = ", ".join(name for name, _ in texts)
        lines = unified_diff(found.before.splitlines(True), found.after.splitlines(True), names, f"{names} (aligned)")
        click.echo("".join(lines) if diff else found.after, nl=False)
        return
    gpus, nics = 1 if gpus is None else gpus, 1 if nics is None else nics
    if same_rails:
        text = same_rails_text(suggest_same_rails(given.manifests, given.machines, gpus, nics, pods))
    else:
        text = fleet_text(suggest_fleet(given.machines, gpus, nics, share))
    click.echo(text + compute_domain(given.machines, gpus, nics) + pod_snippet(text, gpus, nics), nl=False)
