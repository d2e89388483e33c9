"""``dranet suggest``: the claim template that gives aligned devices on given machines."""

from __future__ import annotations

import click

from dranet.cli.inputs import Cluster, cluster_options, gather, hardware_options, live_option
from dranet.manifests.claim_views import is_quantity
from dranet.model.errors import DranetError, InvalidInput
from dranet.predict.suggest.compute_domain import compute_domain
from dranet.predict.suggest.fleet_suggesting import fleet_text, suggest_fleet
from dranet.predict.suggest.rail_suggesting import same_rails_text, suggest_same_rails

HELP = """Write the claim template that gives aligned GPUs and cards, and prove it by planning it. For several kinds of
machines: one template where one does, else one for each kind."""


@click.command(help=HELP)
@click.option("--gpus", type=click.IntRange(0), default=1, show_default=True, help="GPUs of one pod.")
@click.option("--nics", type=click.IntRange(0), default=1, show_default=True, help="Network cards of one pod.")
@click.option("--share", metavar="AMOUNT", default="", help="A share of each card instead of the card, such as 100G.")
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
    """Print the manifest; what was proved stands in it as comments."""
    try:
        if share and (same_rails or not nics or not is_quantity(share)):
            raise InvalidInput(f"--share {share}: an amount such as 100G, of at least one card, without --same-rails")
        given = gather((), shapes, slices, live, cluster)
        if same_rails:
            text = same_rails_text(suggest_same_rails(given.world, given.machines, gpus, nics, pods))
        else:
            text = fleet_text(suggest_fleet(given.machines, gpus, nics, share))
    except DranetError as error:
        raise click.ClickException(str(error)) from error
    click.echo(text + compute_domain(given.machines, gpus, nics), nl=False)
