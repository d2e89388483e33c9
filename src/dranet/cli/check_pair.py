"""``dranet check pair``: pods measure between their NICs; and ``dranet check --emit-job``: the Job that runs it."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from dranet import __version__
from dranet.core import podinfo

if TYPE_CHECKING:
    from dranet.advise.preflight.coordinator import Settings
    from dranet.advise.preflight.model import Member

_HELP = """Measure the network between the NICs of several pods. The Job of `dranet check --emit-job` runs this command
in each pod.

For each pair of NICs it measures reachability, path MTU, latency, loss and TCP throughput; and RDMA bandwidth if the
image contains ib_write_bw. The pod of rank 0 coordinates, prints the result and exits with status 1 if it finds a
fault."""

_IMAGE = f"localhost/dranet:{__version__}"


@click.command(help=_HELP)
@click.option("-n", "--members", type=click.IntRange(2), required=True, help="Number of pods.")
@click.option("--first", default="", metavar="HOST", help="Host name of the pod of rank 0; required in all other pods.")
@click.option("--rank", type=int, envvar="JOB_COMPLETION_INDEX", required=True, help="Number of this pod, from 0.")
@click.option("--node", envvar="NODE_NAME", default="", metavar="NAME", help="Node name; empty for the host name.")
@click.option("--seconds", default=0.4, show_default=True, help="Duration of each throughput test.")
@click.option("--streams", default=4, show_default=True, help="TCP connections of each NIC.")
@click.option("--rounds", default=0, show_default=True, help="Number of partners of each pod; 0 for log2 of all pods.")
@click.option(
    "--slow-below",
    default=60,
    show_default=True,
    help="A NIC is slow below this percentage of the median of comparable NICs.",
)
@click.option("--wait", default=120.0, show_default=True, help="Seconds to wait for the other pods.")
@click.option("--port", default=7471, show_default=True, help="First of three consecutive ports.")
@click.option(
    "--base", default=podinfo.BASE, show_default=True, metavar="DIR", help="Directory of the mounted metadata files."
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
    from dranet.advise.preflight.coordinator import Settings
    from dranet.advise.preflight.member import nics_of_pod, run_member
    from dranet.advise.preflight.model import Member
    from dranet.advise.preflight.probes import has_perftest

    nics, notes = nics_of_pod(base)
    me = Member(rank, node or platform.node(), tuple(nics), has_perftest())
    if rank == 0:
        settings = Settings(members, port, wait, seconds, streams, rounds, slow_below / 100)
        sys.exit(_coordinate(me, settings, notes, output))
    if not first:
        raise click.UsageError("--first is required if --rank is not 0: the host name of the pod of rank 0")
    run_member(me, first, port, wait)
    for note in notes:
        click.echo(f"note: {note}")
    click.echo(f"{me.node}: measured with {len(nics)} NICs; the result is in the log of the pod of rank 0")


def _coordinate(me: Member, settings: Settings, notes: list[str], output: str) -> int:
    from dranet.advise.preflight.coordinator import run_coordinator
    from dranet.advise.preflight.diagnosis import findings, to_json, to_table

    measured, seconds = run_coordinator(me, settings, tuple(notes))
    found = findings(measured, settings.slow_below)
    if output != "json":
        click.echo(to_table(measured, found, seconds))
    if output != "table":
        click.echo(to_json(measured, found, seconds))
    return 1 if found else 0


def job_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--emit-job` and its flags. `--emit-job` prints the manifests and exits before the command runs.

    Its flags are eager, so that click reads them first and their order on the command line does not matter.
    """
    for option in (
        click.option(
            "--emit-job",
            is_flag=True,
            expose_value=False,
            callback=_emit_job,
            help="Print a Job that runs `dranet check pair` in pods, and exit.",
        ),
        _job_option("-n", "--members", type=click.IntRange(2), default=2, help="Pods of the Job, one a node."),
        _job_option("--template", default="", metavar="NAME", help="ResourceClaimTemplate of the pods of the Job."),
        _job_option(
            "--image", default=_IMAGE, metavar="NAME", help="Image of the Job; with perftest it also measures RDMA."
        ),
        _job_option("--job-name", default="dranet-check", metavar="NAME", help="Name of the Job and its Service."),
    ):
        command = option(command)
    return command


def _job_option(*names: str, **more: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def keep(context: click.Context, param: click.Parameter, value: object) -> None:
        context.meta[f"job.{param.name}"] = value

    return click.option(*names, is_eager=True, expose_value=False, show_default=True, callback=keep, **more)


def _emit_job(context: click.Context, _param: click.Parameter, requested: bool) -> None:
    if not requested:
        return
    import yaml

    from dranet.advise.preflight.job import manifests

    members, template, image, name = (
        context.meta[f"job.{key}"] for key in ("members", "template", "image", "job_name")
    )
    if not template:
        raise click.UsageError("--emit-job needs --template: the ResourceClaimTemplate whose NICs are measured")
    click.echo(yaml.safe_dump_all(manifests(name, members, template, image=image), sort_keys=False), nl=False)
    context.exit()
