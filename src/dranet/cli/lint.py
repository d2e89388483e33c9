"""``dranet lint``: mistakes in manifests, found before a job burns money."""

from __future__ import annotations

import sys

import click

from dranet.cli.inputs import files_option, hardware, hardware_options, print_coloured, print_json, recorded, release
from dranet.lint.linting import has_errors, lint_world, to_github, to_json, to_text
from dranet.manifests.claim_views import world_of
from dranet.manifests.reading import read_files
from dranet.model.errors import DranetError


@click.command(help="Check manifests. Exits 1 when there are errors. Rules: docs/lint-rules.md.")
@files_option
@hardware_options
@click.option("--kubernetes", metavar="1.XX", default="1.36", show_default=True, help="Version of the server.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "github"]), default="table")
@click.argument("more_files", nargs=-1, metavar="[FILE]...")
def lint(
    files: tuple[str, ...],
    shapes: tuple[str, ...],
    slices: tuple[str, ...],
    kubernetes: str,
    output: str,
    more_files: tuple[str, ...],
) -> None:
    """Read, check, print."""
    if not files and not more_files:
        raise click.UsageError("no files: use -f FILE, or -f - for standard input")
    try:
        objects, problems = read_files([*files, *more_files])
        world = world_of(objects, recorded(slices))
        findings = lint_world(world, problems, hardware(world, shapes), release(kubernetes))
    except DranetError as error:
        raise click.ClickException(str(error)) from error
    if output == "json":
        print_json(to_json(findings))
    elif output == "github":
        click.echo(to_github(findings))
    else:
        print_coloured(to_text(findings))
    sys.exit(int(has_errors(findings)))
