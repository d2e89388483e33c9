"""``dranet plan``: what the scheduler will do with these manifests on these machines."""

from __future__ import annotations

import click

from dranet.cli.inputs import (
    files_option,
    gather,
    hardware_options,
    kubeconfig_option,
    live_option,
    print_coloured,
    print_json,
    release,
)
from dranet.manifests.lint import lint
from dranet.manifests.plan_text import plan_text
from dranet.manifests.planning import plan as make_plan
from dranet.manifests.planning import to_json
from dranet.manifests.views import world_of
from dranet.model.errors import DranetError, InvalidInput


@click.command(help="Which pod lands where, with which devices, how well aligned, and what is left.")
@files_option
@hardware_options
@live_option
@kubeconfig_option
@click.option("--kubernetes", metavar="1.XX", default="1.36", show_default=True, help="Version of the scheduler.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table")
def plan(
    files: tuple[str, ...],
    shapes: tuple[str, ...],
    slices: tuple[str, ...],
    live: bool,
    kubeconfig: str | None,
    kubernetes: str,
    output: str,
) -> None:
    """Read, plan, print; what lint finds goes to standard error."""
    version = release(kubernetes)
    try:
        given = gather(files, shapes, slices, live, kubeconfig)
        if given.hardware is None:
            raise InvalidInput("no machines: name them with --shape NAME=COUNT, --slices FILE or --live")
        world = world_of(given.objects)
        found = make_plan(world, given.hardware, version)
        written = [obj for obj in given.objects if obj.file != "<cluster>"]
        findings = [f for f in lint(written, (), given.hardware, version) if f.severity != "info"]
    except DranetError as error:
        raise click.ClickException(str(error)) from error
    for finding in findings:
        place = f"{finding.file}:{finding.line}:{finding.column}"
        click.echo(f"{place}: {finding.severity}: {finding.message} [{finding.rule}]", err=True)
    if output == "json":
        print_json(to_json(found))
    else:
        print_coloured(plan_text(found))
