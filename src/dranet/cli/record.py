"""``dranet record``: write the objects of a cluster that a plan reads to a file."""

from __future__ import annotations

import click
import msgspec

from dranet.advise.manifests import without_bookkeeping
from dranet.cli.inputs import Cluster, cluster_options
from dranet.cli.live_cluster import read_cluster
from dranet.core.errors import DranetError

_HELP = """Write the objects of a cluster that plan, explain and lint read into one file.

The file has nodes, slices, claims, pods, workloads, and what the API server and the scheduler take into account. It
never has Secrets or ConfigMaps; environment variables in pod specs are part of it. Use it with --slices on a machine
that cannot reach the cluster.

\b
Examples:
  dranet record -o cluster.json
  dranet plan -f job.yaml --slices cluster.json"""


@click.command(help=_HELP)
@cluster_options
@click.option("-o", "--output", default="-", metavar="FILE", help="The file to write; by default standard output.")
def record(cluster: Cluster | None, output: str) -> None:
    try:
        there = read_cluster(cluster or Cluster())
    except DranetError as error:
        raise click.ClickException(str(error)) from error
    items = [without_bookkeeping(obj.data) for obj in (*there.surroundings, *there.objects)]
    text = msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items})
    with click.open_file(output, "wb") as out:
        out.write(text + b"\n")
    for line in there.unread:
        click.echo(f"not recorded: {line}", err=True)
    if output != "-":
        click.echo(f"Recorded {len(items)} objects of Kubernetes {there.version or '(unknown version)'} in {output}")
