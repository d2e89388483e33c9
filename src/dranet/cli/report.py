"""``dranet report``: compare the result of a benchmark with what the allocated devices should reach."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from dranet.advise.manifests import Object
from dranet.advise.report import AllocatedClaim, Log, Run, judge, read_log, to_json, to_svg, to_text
from dranet.cli.inputs import Cluster, cluster_options, gather, hardware_options, print_coloured, print_json, schema
from dranet.core.errors import DranetError, InvalidInput, NotFound
from dranet.core.untyped import as_dict, as_list

_HELP = """Read the logs of nccl-tests, rccl-tests, ib_write_bw, nixlbench or the all-reduce of the examples, from FILEs
or standard input. Plot the bandwidth, compare it with the expected one, and list the likely reasons of a difference.
Several runs are shown side by side. The logs may contain other lines.

GPUs are read from the log. NICs are read from the claims of the job: --claim (repeat it for each pod), or claims in the
files of --slices."""


@click.command(help=_HELP)
@click.argument("files", nargs=-1, metavar="[FILE]...", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option(
    "--claim",
    "claims",
    multiple=True,
    metavar="[NAMESPACE/]NAME",
    help="Allocated claim of a pod of the job; repeatable.",
)
@hardware_options
@cluster_options
@click.option("-o", "--output", type=click.Choice(["table", "json", "svg"]), default="table")
def report(
    files: tuple[str, ...],
    claims: tuple[str, ...],
    shapes: tuple[str, ...],
    slices: tuple[str, ...],
    cluster: Cluster | None,
    output: str,
) -> None:
    logs = [(file, _read(file)) for file in files or ("-",)]
    try:
        given = gather(slices, shapes, (), bool(claims and not slices), cluster)
        allocated = _allocated_claims(given.manifests.all_objects, claims)
    except DranetError as error:
        raise click.ClickException(str(error)) from error
    for file, log in logs:
        for warning in log.warnings:
            click.echo(f"{file}: {warning}", err=True)
    machines = given.hardware.machines if given.hardware else {}
    named = [(replace(run, title=_title(run, file, len(logs))), log.words) for file, log in logs for run in log.runs]
    judged = [judge(run, machines, allocated, words) for run, words in named]
    if output == "json":
        print_json({**schema("report"), **to_json(judged)})
    elif output == "svg":
        click.echo(to_svg(judged), nl=False)
    else:
        print_coloured(to_text(judged))


def _read(file: str) -> Log:
    with click.open_file(file, encoding="utf-8", errors="replace") as stream:
        log = read_log(stream.read())
    if not log.runs:
        raise click.ClickException(f"{file}: no output of nccl-tests, rccl-tests, ib_write_bw, nixlbench or NCCL")
    return log


def _title(run: Run, file: str, files: int) -> str:
    return run.title if files == 1 else ", ".join(filter(None, (Path(file).name, run.title)))


def _allocated_claims(objects: Sequence[Object], names: tuple[str, ...]) -> list[AllocatedClaim]:
    """The named claims, which must be allocated; without names, all allocated ones at hand."""
    claims = [obj for obj in objects if obj.kind == "ResourceClaim"]
    if not names:
        return [allocated for obj in claims if (allocated := _allocated_claim(obj)) is not None]
    found = []
    for wanted in names:
        namespace, _, name = wanted.rpartition("/")
        named = [obj for obj in claims if obj.name == name and namespace in {"", obj.namespace}]
        if not named:
            raise NotFound(f"no ResourceClaim {wanted}; add its file with --slices, or the cluster with --kubeconfig")
        if len(named) > 1:
            raise InvalidInput(f"--claim {wanted}: {len(named)} claims have this name; write --claim NAMESPACE/{name}")
        allocated = _allocated_claim(named[0])
        if allocated is None:
            raise NotFound(f"claim {wanted} is not allocated")
        found.append(allocated)
    return found


def _allocated_claim(obj: Object) -> AllocatedClaim | None:
    status = as_dict(obj.data.get("status"))
    results = [
        as_dict(raw) for raw in as_list(as_dict(as_dict(status.get("allocation")).get("devices")).get("results"))
    ]
    if not results:
        return None
    pods = [_text(as_dict(raw), "name") for raw in as_list(status.get("reservedFor"))]
    devices = tuple((_text(result, "driver"), _text(result, "device")) for result in results)
    return AllocatedClaim(obj.name, _text(results[0], "pool"), devices, tuple(filter(None, pods)))


def _text(of: dict[str, Any], key: str) -> str:
    value = of.get(key)
    return value if isinstance(value, str) else ""
