"""``dranet suggest``: write a claim template for aligned devices on given machines."""

from __future__ import annotations

import click

from dranet.advise.manifests import is_quantity
from dranet.advise.suggest import compute_domain, fleet_text, same_rails_text, suggest_fleet, suggest_same_rails
from dranet.cli.inputs import Cluster, cluster_options, gather, hardware_options, live_option
from dranet.core.errors import InvalidInput

_HELP = """Write a claim template for aligned GPUs and NICs, and check it with a plan. For several kinds of machines it
writes one template if possible, else one for each kind.

\b
Example:
  dranet suggest --gpus 2 --nics 2 --shape a4-highgpu-8g"""


@click.command(help=_HELP)
@click.option("--gpus", type=click.IntRange(0), default=1, show_default=True, help="GPUs of one pod.")
@click.option("--nics", type=click.IntRange(0), default=1, show_default=True, help="NICs of one pod.")
@click.option(
    "--share", metavar="AMOUNT", default="", help="Bandwidth of each NIC instead of the whole NIC, such as 100G."
)
@click.option("--same-rails", is_flag=True, help="Keep all pods of a job on the same rails.")
@click.option("--pods", type=click.IntRange(2), default=2, show_default=True, help="Pods of the job, for --same-rails.")
@hardware_options
@live_option
@cluster_options
def suggest(
    gpus: int,
    nics: int,
    share: str,
    same_rails: bool,
    pods: int,
    shapes: tuple[str, ...],
    slices: tuple[str, ...],
    live: bool,
    cluster: Cluster | None,
) -> None:
    if share and (same_rails or not nics or not is_quantity(share)):
        raise InvalidInput(f"--share {share}: write an amount such as 100G, without --same-rails")
    given = gather((), shapes, slices, live, cluster)
    if same_rails:
        text = same_rails_text(suggest_same_rails(given.manifests, given.machines, gpus, nics, pods))
    else:
        text = fleet_text(suggest_fleet(given.machines, gpus, nics, share))
    click.echo(text + compute_domain(given.machines, gpus, nics), nl=False)
