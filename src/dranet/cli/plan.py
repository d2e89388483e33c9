"""``dranet plan``: what the scheduler will do with these manifests on these machines."""

from __future__ import annotations

from dataclasses import replace

import click

from dranet.cli.inputs import (
    files_option,
    gather,
    hardware_options,
    kubeconfig_option,
    kubernetes_option,
    live_option,
    print_coloured,
    print_json,
)
from dranet.lint.linting import finding_text, lint_world
from dranet.lint.rules.base import ERROR, WARNING
from dranet.model.errors import DranetError
from dranet.predict.growing import grow, split_pools
from dranet.predict.plan_text import plan_text
from dranet.predict.planning import plan as make_plan
from dranet.predict.planning import to_json
from dranet.predict.rails import rails_json

HELP = """Which pod lands where, with which devices, how well aligned, and what is left. Exits 0 when there is a plan,
even one in which pods cannot be scheduled; 1 when there is none.

--shape NAME=MIN..MAX is a pool that may grow: the plan says how many nodes of which kind are needed."""


@click.command(help=HELP)
@files_option
@hardware_options
@live_option
@kubeconfig_option
@kubernetes_option
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table")
def plan(
    files: tuple[str, ...],
    shapes: tuple[str, ...],
    slices: tuple[str, ...],
    live: bool,
    kubeconfig: str | None,
    kubernetes: str | None,
    output: str,
) -> None:
    """Read, plan, print; what lint finds goes to standard error."""
    try:
        fixed, pools = split_pools(shapes)
        given = gather(files, fixed, slices, live, kubeconfig)
        version = given.release(kubernetes)
        shown = (ERROR, WARNING)
        for finding in lint_world(given.world, given.problems, given.hardware, version, shown) if files else ():
            click.echo(finding_text(finding), err=True)
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
