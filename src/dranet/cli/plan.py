"""``dranet plan``: predict what the scheduler does with manifests on given machines."""

from __future__ import annotations

import click
from msgspec.structs import replace

from dranet.advise.lint import ERROR, WARNING, finding_text, lint_manifests
from dranet.advise.plan.node_pools import parse_pools, size_pools
from dranet.advise.plan.planning import Plan
from dranet.advise.plan.planning import plan as make_plan
from dranet.advise.plan.rails import rails_json
from dranet.advise.plan.render import plan_json, plan_text
from dranet.cli.inputs import (
    Cluster,
    Files,
    assume_class_option,
    cluster_options,
    feature_gates_option,
    files_option,
    gather,
    hardware_options,
    kubernetes_option,
    live_option,
    print_coloured,
    print_json,
    print_yaml,
    progress_option,
    schema,
    some,
)
from dranet.cli.progress import stage
from dranet.core.columns import at_most
from dranet.core.errors import DranetError

_FINDINGS = 5
"""Lint findings on standard error, before the rest is only counted."""
_HELP = """Predict on which nodes and with which devices pods will run, how well devices are aligned, and what is left.

The first line is the answer: how many pods fit, the worst pair of GPU and NIC, the bandwidth to expect, and what does
not fit. Below are a table (equivalent pods in one row, problems first), details, and what the plan assumes.

The exit status is 0 even if pods cannot be scheduled, unless --fail-on is given.

--shape NAME=MIN..MAX is a pool that can grow: the plan shows how many nodes are needed.

\b
Examples:
  dranet plan -f job.yaml --shape a4-highgpu-8g=4
  dranet plan -f job.yaml --live --fail-on misaligned"""


@click.command(help=_HELP)
@progress_option
@files_option
@hardware_options
@assume_class_option
@live_option
@cluster_options
@kubernetes_option
@feature_gates_option
@click.option(
    "--fail-on", multiple=True, type=click.Choice(["unschedulable", "misaligned"]),
    help="Exit 1 if a pod cannot be scheduled, or if a NIC is too far from its GPU for GPUDirect; repeatable.",
)  # fmt: skip
@click.option(
    "-o", "--output", type=click.Choice(["table", "wide", "json", "yaml", "name"]), default="table", show_default=True,
    help="wide lists every pod with its devices, name lists the pods that fit.",
)  # fmt: skip
def plan(
    files: Files,
    shapes: tuple[str, ...],
    slices: tuple[str, ...],
    assumed: tuple[str, ...],
    live: bool,
    cluster: Cluster | None,
    kubernetes: str | None,
    feature_gates: str,
    fail_on: tuple[str, ...],
    output: str,
) -> None:
    try:
        fixed, pools = parse_pools(shapes)
        given = gather(files, fixed, slices, live, cluster, assumed)
        version = given.release(kubernetes, feature_gates)
        shown = (ERROR, WARNING)
        stage("linting")
        findings = lint_manifests(given.manifests, given.problems, given.hardware, version, shown) if files else []
        for text in at_most([finding_text(finding) for finding in findings], _FINDINGS, "dranet lint lists all"):
            click.echo(text, err=True)
        stage("planning")
        found, growth = (
            size_pools(given.manifests, given.hardware, pools, version)
            if pools
            else (make_plan(given.manifests, given.machines, version), None)
        )
        found = replace(found, not_considered=(*found.not_considered, *given.cluster.unread))
    except DranetError as error:
        raise click.ClickException(str(error)) from error
    if not found.exact:
        text = "evaluates pools and slices in undefined order, so it may allocate other devices (exact from 1.36)"
        click.echo(f"warning: Kubernetes {version[0]}.{version[1]} {text}", err=True)
    if output in {"json", "yaml"}:
        grown = {"growth": growth.to_json(pools)} if growth else {}
        made = {**schema("plan"), **plan_json(found), "rails": rails_json(found), **grown}
        print_json(made) if output == "json" else print_yaml(made)
    elif output == "name":
        click.echo("".join(f"pod/{pod.name}\n" for pod in found.placed_pods), nl=False)
    else:
        text = plan_text(found, wide=output == "wide")
        print_coloured(text + ("\n\n" + "\n".join(growth.lines(pools)) if growth else ""))
    failed = [text for name in fail_on if (text := _failure(found, name))]
    if failed:
        raise click.ClickException("; ".join(failed))


def _failure(found: Plan, wanted: str) -> str:
    if wanted == "unschedulable":
        names = [refusal.pod.name for refusal in found.unschedulable]
        unknown = [refusal.pod.name for refusal in found.unknown]
        failed = [f"{len(names)} cannot be scheduled: {some(names)}"] * bool(names)
        return "; ".join([*failed, *[f"{len(unknown)} not decided: {some(unknown)}"] * bool(unknown)])
    names = [one.pod.name for one in found.pods if one.quality.misaligned]
    return f"{len(names)} with a NIC too far from its GPU: {some(names)}" if names else ""
