"""``dranet lint``: mistakes in manifests, found before a job burns money."""

from __future__ import annotations

import sys

import click

from dranet import __version__
from dranet.cli.inputs import (
    files_option,
    hardware,
    hardware_options,
    print_coloured,
    print_json,
    progress_option,
    recorded,
    release,
)
from dranet.cli.progress import stage
from dranet.lint.linting import at_least, lint_world, to_github, to_json, to_text
from dranet.lint.rules import RULES
from dranet.lint.rules.base import SEVERITIES
from dranet.lint.sarif import to_sarif
from dranet.manifests.claim_views import world_of
from dranet.manifests.reading import read_files
from dranet.model.errors import DranetError
from dranet.model.near_names import did_you_mean

HELP = """Check manifests. Exits 1 when there is anything as bad as --fail-on says. Rules: docs/lint-rules.md. To leave
one out in one place, write the comment "# dranet: ignore[RULE]" there: docs/ci.md."""
FORMS = ("table", "json", "github", "sarif")


def _rules(_ctx: click.Context, _param: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if name not in RULES:
            raise click.UsageError(f"--disable {name}: no such rule{did_you_mean(name, RULES)}")
    return names


@click.command(help=HELP)
@progress_option
@files_option
@hardware_options
@click.option("--kubernetes", metavar="1.XX", default="1.36", show_default=True, help="Version of the server.")
@click.option("--disable", multiple=True, metavar="RULE", callback=_rules, help="Leave this rule out; repeatable.")
@click.option(
    "--fail-on", type=click.Choice([*SEVERITIES, "never"]), default="error", show_default=True,
    help="Exit 1 from this severity on.",
)  # fmt: skip
@click.option("-o", "--output", type=click.Choice(FORMS), default="table")
@click.argument("more_files", nargs=-1, metavar="[FILE]...")
def lint(
    files: tuple[str, ...],
    shapes: tuple[str, ...],
    slices: tuple[str, ...],
    kubernetes: str,
    disable: tuple[str, ...],
    fail_on: str,
    output: str,
    more_files: tuple[str, ...],
) -> None:
    """Read, check, print."""
    if not files and not more_files:
        raise click.UsageError("no files: use -f FILE, or -f - for standard input")
    try:
        stage("reading")
        objects, problems = read_files([*files, *more_files])
        world = world_of(objects, recorded(slices))
        machines = hardware(world, shapes)
        stage("linting")
        findings = lint_world(world, problems, machines, release(kubernetes), disabled=disable)
    except DranetError as error:
        raise click.ClickException(str(error)) from error
    if output == "json":
        print_json(to_json(findings))
    elif output == "sarif":
        print_json(to_sarif(findings, __version__))
    elif output == "github":
        click.echo(to_github(findings))
    else:
        print_coloured(to_text(findings))
    sys.exit(int(fail_on != "never" and at_least(findings, fail_on)))
