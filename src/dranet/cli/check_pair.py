"""``dranet check pair``: pods measure between their cards; and ``dranet check --emit-job``: the Job that runs it."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from dranet import __version__, podinfo

if TYPE_CHECKING:
    from dranet.pairing.running import Plan
    from dranet.pairing.values import Member

HELP = """Inside pods, started by the Job of `dranet check --emit-job`: measure between the cards of all pods which
rails answer, path MTU, latency, loss, TCP throughput by card and in all, and RDMA bandwidth where the image has
ib_write_bw. The first pod (--rank 0) conducts, prints the result and ends with 1 where something is wrong."""

EMIT = "Print a Job that measures between nodes (`dranet check pair` in pods), and end."
IMAGE = f"localhost/dranet:{__version__}"


@click.command(help=HELP)
@click.option("-n", "--members", type=click.IntRange(2), required=True, help="How many pods take part.")
@click.option("--first", default="", metavar="HOST", help="Where the pod of rank 0 is; needed by all others.")
@click.option("--rank", type=int, envvar="JOB_COMPLETION_INDEX", required=True, help="Number of this pod, from 0 on.")
@click.option("--node", envvar="NODE_NAME", default="", metavar="NAME", help="Name of the node; '' for the host's.")
@click.option("--seconds", default=0.4, show_default=True, help="How long each card sends.")
@click.option("--streams", default=4, show_default=True, help="TCP connections of each card.")
@click.option("--rounds", default=0, show_default=True, help="Partners that each pod meets; 0 for log2 of all.")
@click.option("--slow-below", default=60, show_default=True, help="Per cent of its siblings that a card must give.")
@click.option("--wait", default=120.0, show_default=True, help="Seconds to wait for the other pods.")
@click.option("--port", default=7471, show_default=True, help="First of three ports that are used.")
@click.option(
    "--base", default=podinfo.BASE, show_default=True, metavar="DIR", help="Where metadata files are mounted."
)
@click.option("-o", "--output", type=click.Choice(["table", "json", "log"]), default="table", show_default=True)
def pair(
    members: int,
    first: str,
    rank: int,
    node: str,
    seconds: float,
    streams: int,
    rounds: int,
    slow_below: int,
    wait: float,
    port: int,
    base: str,
    output: str,
) -> None:
    """Conduct, or take part."""
    from dranet.pairing import perftest
    from dranet.pairing.facts import cards_of_pod
    from dranet.pairing.member import take_part
    from dranet.pairing.running import Plan
    from dranet.pairing.values import Member

    cards, notes = cards_of_pod(base)
    me = Member(rank, node or platform.node(), tuple(cards), perftest.available())
    if rank == 0:
        plan = Plan(members, port, wait, seconds, streams, rounds, slow_below / 100)
        sys.exit(_conduct(me, plan, notes, output))
    if not first:
        raise click.UsageError("--first is needed where the rank is not 0: the host name of the pod of rank 0")
    take_part(me, first, port, wait)
    for note in notes:
        click.echo(f"note: {note}")
    click.echo(f"{me.node}: took part with {len(cards)} cards; the result is in the log of the first pod")


def _conduct(me: Member, plan: Plan, notes: list[str], output: str) -> int:
    from dranet.pairing.rendering import as_json, as_table
    from dranet.pairing.running import conduct
    from dranet.pairing.verdict import findings

    outcome, took = conduct(me, plan, tuple(notes))
    found = findings(outcome, plan.below)
    if output != "json":
        click.echo(as_table(outcome, found, took))
    if output != "table":
        click.echo(as_json(outcome, found, took))
    return 1 if found else 0


def job_options(command: Callable[..., None]) -> Callable[..., None]:
    """The flags of `--emit-job`, which prints and ends: the command below them never hears of them.

    They are read before the flag itself (eager), so that their order on the command line does not matter.
    """
    for option in (
        click.option("--emit-job", is_flag=True, expose_value=False, callback=_emit_job, help=EMIT),
        _kept("-n", "--members", type=click.IntRange(2), default=2, help="Pods of the Job, each on a node of its own."),
        _kept("--template", default="", metavar="NAME", help="ResourceClaimTemplate whose cards the Job measures."),
        _kept("--image", default=IMAGE, metavar="NAME", help="Image of the Job; one with perftest measures RDMA too."),
        _kept("--job-name", default="dranet-check", metavar="NAME", help="Name of the Job and its Service."),
    ):
        command = option(command)
    return command


def _kept(*names: str, **more: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def keep(context: click.Context, param: click.Parameter, value: object) -> None:
        context.meta[f"job.{param.name}"] = value

    return click.option(*names, is_eager=True, expose_value=False, show_default=True, callback=keep, **more)


def _emit_job(context: click.Context, _param: click.Parameter, asked: bool) -> None:
    if not asked:
        return
    import yaml

    from dranet.pairing.job import manifests

    members, template, image, name = (
        context.meta[f"job.{key}"] for key in ("members", "template", "image", "job_name")
    )
    if not template:
        raise click.UsageError("--emit-job needs --template: the ResourceClaimTemplate whose cards shall be measured")
    click.echo(yaml.safe_dump_all(manifests(name, members, template, image=image), sort_keys=False), nl=False)
    context.exit()
