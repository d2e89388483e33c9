"""``dranet init``: what a cloud needs for this driver, as commands with names filled in; printed, and run only if told.

It knows no cloud's API: the clouds' own tools do, and they know who you are.
"""

from __future__ import annotations

import shlex
import subprocess

import click

from dranet.cli.installing.cloud_commands import CLOUDS, Step, Wanted, default_machine_type, machine_types, steps
from dranet.model.errors import DranetError

REGIONS = {"gke": "us-central1", "aks": "eastus", "eks": "us-east-1", "oke": "us-ashburn-1"}


@click.command()
@click.option("--cloud", required=True, type=click.Choice(list(CLOUDS)), help="Where.")
@click.option("--cluster", default="dranet", show_default=True, help="The cluster's name; its OCID on oke.")
@click.option("--pool", default="gpu", show_default=True, help="Name of the node pool.")
@click.option("--project", default="my-project", show_default=True, help="Project on gke, resource group on aks.")
@click.option("--region", help="Else a usual one of the cloud.")
@click.option("--zone", help="gke, eks: where the nodes are; else the first of the region.")
@click.option("--machine-type", help="Else the one of the cloud's walk-through.")
@click.option("--nodes", default=2, show_default=True, type=click.IntRange(1), help="How many nodes.")
@click.option("--kubernetes", default="1.34", show_default=True, help="Version of the cluster.")
@click.option("--registry", default="registry.example.com/team", show_default=True, help="Where image and chart are.")
@click.option(
    "--dry-run/--no-dry-run", default=True, show_default=True, help="Print the commands; else run them in turn."
)
def init(
    cloud: str,
    cluster: str,
    pool: str,
    project: str,
    region: str | None,
    zone: str | None,
    machine_type: str | None,
    nodes: int,
    kubernetes: str,
    registry: str,
    dry_run: bool,
) -> None:
    """The commands that make a cluster with cards in a cloud and install this driver there."""
    region = region or REGIONS[cloud]
    zone = zone or (f"{region}-a" if cloud == "gke" else f"{region}a")
    machine = machine_type or default_machine_type(cloud)
    known = machine_types(cloud)
    if known and machine not in known:
        raise DranetError(f"networks of {machine} are not known; known on {cloud}: {', '.join(known)}")
    wanted = Wanted(cluster, pool, machine, nodes, kubernetes, registry, project, region, zone)
    for step in steps(cloud, wanted):
        click.echo(_printed(step))
        if not dry_run:
            _run(step)


def _printed(step: Step) -> str:
    lines = [shlex.join(command) for command in step.commands]
    if step.input:
        lines[-1] += f" <<'EOF'\n{step.input}EOF"
    return "\n".join([f"# {step.why}", *lines, ""])


def _run(step: Step) -> None:
    for command in step.commands:
        given = step.input if command is step.commands[-1] and step.input else None
        try:
            status = subprocess.run(command, input=given, text=True).returncode
        except FileNotFoundError as error:
            raise DranetError(f"{command[0]} is not installed, and {shlex.join(command)} needs it") from error
        if status:
            raise DranetError(
                f"{shlex.join(command)} ended with {status}; what came before it is done, the rest is not"
            )
