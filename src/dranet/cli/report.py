"""``dranet report``: the result of a benchmark against what hardware and allocation should give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from dranet.cli.inputs import Cluster, cluster_options, gather, hardware_options, print_coloured, print_json
from dranet.manifests.reading import Object
from dranet.manifests.workloads import mapping, sequence
from dranet.model.errors import DranetError, InvalidInput, NotFound
from dranet.reports.placing import Held
from dranet.reports.reading import read_log
from dranet.reports.rendering import to_json, to_svg, to_text
from dranet.reports.verdict import judge

HELP = """Read the output of nccl-tests, ib_write_bw or the all-reduce of the examples (a log with anything around
it, - or nothing is standard input), draw bandwidth against size, and say whether it is as good as it
should be and, if not, the likely reasons.

GPUs are taken from the log. Cards are taken from the claims of the job's pods: --claim (repeat it for
each pod), or claims among the files of --slices."""


@click.command(help=HELP)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True), default="-")
@click.option(
    "--claim", "claims", multiple=True, metavar="[NAMESPACE/]NAME", help="An allocated claim of the job's pods."
)
@hardware_options
@cluster_options
@click.option("-o", "--output", type=click.Choice(["table", "json", "svg"]), default="table")
def report(
    file: str,
    claims: tuple[str, ...],
    shapes: tuple[str, ...],
    slices: tuple[str, ...],
    cluster: Cluster | None,
    output: str,
) -> None:
    """Read, judge, print."""
    with click.open_file(file, encoding="utf-8", errors="replace") as stream:
        log = read_log(stream.read())
    if not log.runs:
        raise click.ClickException(
            f"{file}: no table of nccl-tests, ib_write_bw or bus bandwidth in there, and no line of NCCL"
        )
    try:
        given = gather(slices, shapes, (), bool(claims and not slices), cluster)
        held = _held(given.world.everything, claims)
    except DranetError as error:
        raise click.ClickException(str(error)) from error
    for warning in log.warnings:
        click.echo(f"{file}: {warning}", err=True)
    machines = given.hardware.machines if given.hardware else {}
    judged = [judge(run, machines, held, log.words) for run in log.runs]
    if output == "json":
        print_json(to_json(judged))
    elif output == "svg":
        click.echo(to_svg(judged), nl=False)
    else:
        print_coloured(to_text(judged))


def _held(objects: Sequence[Object], names: tuple[str, ...]) -> list[Held]:
    """The named claims, which must be allocated; without names, all allocated ones at hand."""
    claims = [obj for obj in objects if obj.kind == "ResourceClaim"]
    if not names:
        return [held for obj in claims if (held := _of(obj)) is not None]
    found = []
    for wanted in names:
        namespace, _, name = wanted.rpartition("/")
        named = [obj for obj in claims if obj.name == name and namespace in {"", obj.namespace}]
        if not named:
            raise NotFound(
                f"no ResourceClaim {wanted}; add its file with --slices, or name the cluster with --kubeconfig"
            )
        if len(named) > 1:
            raise InvalidInput(f"{len(named)} claims are called {wanted}: write --claim NAMESPACE/{name}")
        held = _of(named[0])
        if held is None:
            raise NotFound(f"claim {wanted} is not allocated")
        found.append(held)
    return found


def _of(obj: Object) -> Held | None:
    status = mapping(obj.data.get("status"))
    results = [
        mapping(raw) for raw in sequence(mapping(mapping(status.get("allocation")).get("devices")).get("results"))
    ]
    if not results:
        return None
    pods = [_text(mapping(raw), "name") for raw in sequence(status.get("reservedFor"))]
    devices = tuple((_text(result, "driver"), _text(result, "device")) for result in results)
    return Held(obj.name, _text(results[0], "pool"), devices, tuple(filter(None, pods)))


def _text(of: dict[str, Any], key: str) -> str:
    value = of.get(key)
    return value if isinstance(value, str) else ""
