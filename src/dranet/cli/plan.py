"""``dranet plan``: what the scheduler will do with these manifests on these machines."""

from __future__ import annotations

import click
from msgspec.structs import replace

from dranet.cli.inputs import (
    Cluster,
    cluster_options,
    files_option,
    gather,
    hardware_options,
    kubernetes_option,
    live_option,
    print_coloured,
    print_json,
    progress_option,
    some,
)
from dranet.cli.progress import stage
from dranet.lint.linting import finding_text, lint_world
from dranet.lint.rules.base import ERROR, WARNING
from dranet.model.errors import DranetError
from dranet.predict.growing import grow, split_pools
from dranet.predict.jobs.rails import rails_json
from dranet.predict.plan_text import plan_text
from dranet.predict.planning import Plan, to_json
from dranet.predict.planning import plan as make_plan

HELP = """Which pod lands where, with which devices, how well aligned, and what is left. Exits 0 when there is a plan,
even one in which pods cannot be scheduled; 1 when there is none, or when --fail-on is met.

--shape NAME=MIN..MAX is a pool that may grow: the plan says how many nodes of which kind are needed."""


@click.command(help=HELP)
@progress_option
@files_option
@hardware_options
@live_option
@cluster_options
@kubernetes_option
@click.option(
    "--fail-on", multiple=True, type=click.Choice(["unschedulable", "misaligned"]),
    help="Exit 1 when a pod cannot be scheduled, or a card is too far from its GPU to read its memory; repeatable.",
)  # fmt: skip
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table")
def plan(
    files: tuple[str, ...],
    shapes: tuple[str, ...],
    slices: tuple[str, ...],
    live: bool,
    cluster: Cluster | None,
    kubernetes: str | None,
    fail_on: tuple[str, ...],
    output: str,
) -> None:
    """Read, plan, print; what lint finds goes to standard error."""
    try:
        fixed, pools = split_pools(shapes)
        given = gather(files, fixed, slices, live, cluster)
        version = given.release(kubernetes)
        shown = (ERROR, WARNING)
        stage("linting")
        for finding in lint_world(given.world, given.problems, given.hardware, version, shown) if files else ():
            click.echo(finding_text(finding), err=True)
        stage("planning")
        found, growth = (
            grow(given.world, given.hardware, pools, version)
            if pools
            else (make_plan(given.world, given.machines, version), None)
        )
        found = replace(found, not_considered=(*found.not_considered, *given.cluster.unread))
    except DranetError as error:
        raise click.ClickException(str(error)) from error
    if not found.exact:
        text = "looks at pools and slices in no defined order: it may take other devices"
        click.echo(f"warning: Kubernetes {version[0]}.{version[1]} {text} (exact from 1.36)", err=True)
    if output == "json":
        grown = {"growth": growth.to_json(pools)} if growth else {}
        print_json({**to_json(found), "rails": rails_json(found), **grown})
    else:
        print_coloured(plan_text(found) + ("\n\n" + "\n".join(growth.lines(pools)) if growth else ""))
    failed = [text for name in fail_on if (text := _failure(found, name))]
    if failed:
        raise click.ClickException("; ".join(failed))


def _failure(found: Plan, wanted: str) -> str:
    """What of the plan is not to be accepted."""
    if wanted == "unschedulable":
        names = [refusal.pod.name for refusal in found.unschedulable]
        return f"{len(names)} cannot be scheduled: {some(names)}" if names else ""
    names = [one.pod.name for one in found.pods if one.quality.misaligned]
    return f"{len(names)} with a card too far from its GPU: {some(names)}" if names else ""
