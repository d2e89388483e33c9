"""``dranet lint``: find mistakes in manifests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import click

from dranet import __version__
from dranet.advise.lint import (
    FIXABLE,
    RULES,
    SEVERITIES,
    Finding,
    at_least,
    fix_text,
    lint_manifests,
    to_github,
    to_json,
    to_sarif,
    to_text,
)
from dranet.advise.manifests import Fetched, ManifestFile, Manifests, read_files, read_texts
from dranet.cli.inputs import (
    Files,
    assume_class_option,
    assumed_classes,
    feature_gates_option,
    files_option,
    hardware,
    hardware_options,
    print_coloured,
    print_json,
    progress_option,
    recorded,
    release,
    schema,
)
from dranet.cli.progress import stage
from dranet.core.errors import did_you_mean

_HELP = """Find mistakes in manifests. Exit with status 1 if a finding has the severity of --fail-on or a worse one.

Rules: docs/reference/lint-rules.md. To ignore a rule at one place, add the comment "# dranet: ignore[RULE]" there.

\b
Examples:
  dranet lint job.yaml
  dranet lint job.yaml --fix
  dranet lint manifests/ -R --shape a4-highgpu-8g --fail-on warning"""
_FORMATS = ("table", "json", "github", "sarif")


def _rules(_ctx: click.Context, _param: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if name not in RULES:
            raise click.UsageError(f"--disable {name}: no such rule{did_you_mean(name, RULES)}")
    return names


def _correct(files: list[Fetched], lint_files: Callable[[Iterable[ManifestFile]], list[Finding]]) -> None:
    """Correct the files one after the other; the others are what a file refers to."""
    for i, file in enumerate(files):
        if not Path(file.name).is_file():
            raise click.UsageError(f"--fix writes files; {file.name} is not one")

        def findings(text: str, i: int = i, name: str = file.name) -> list[Finding]:
            every = lint_files([*files[:i], Fetched(name, text), *files[i + 1 :]])
            return [finding for finding in every if finding.file == name]

        fixed = fix_text(file.text, findings)
        if fixed.findings:
            files[i] = Fetched(file.name, fixed.text)
            Path(file.name).write_text(fixed.text, "utf-8")
        for finding in fixed.findings:
            click.echo(f"fixed: {finding.file}: {finding.message} [{finding.rule}]", err=True)


@click.command(help=_HELP)
@progress_option
@files_option
@hardware_options
@assume_class_option
@click.option("--kubernetes", metavar="1.XX", default="1.36", show_default=True, help="Version of the API server.")
@feature_gates_option
@click.option("--disable", multiple=True, metavar="RULE", callback=_rules, help="Disable a rule; repeatable.")
@click.option(
    "--fail-on", type=click.Choice([*SEVERITIES, "never"]), default="error", show_default=True,
    help="Lowest severity that sets exit status 1.",
)  # fmt: skip
@click.option("--fix", is_flag=True, help=f"Write corrections that need no decision: {', '.join(FIXABLE)}.")
@click.option("-o", "--output", type=click.Choice(_FORMATS), default="table")
def lint(
    files: Files,
    shapes: tuple[str, ...],
    slices: tuple[str, ...],
    assumed: tuple[str, ...],
    kubernetes: str,
    feature_gates: str,
    disable: tuple[str, ...],
    fail_on: str,
    fix: bool,
    output: str,
) -> None:
    if not files:
        raise click.UsageError("no files: write dranet lint FILE, or dranet lint - for standard input")
    stage("reading")
    known, version = [*recorded(slices), *assumed_classes(assumed)], release(kubernetes, feature_gates)

    def lint_files(given: Iterable[ManifestFile]) -> list[Finding]:
        objects, problems = read_files(given)
        manifests = Manifests(objects, known)
        return lint_manifests(manifests, problems, hardware(manifests, shapes), version, disabled=disable)

    stage("linting")
    if fix:
        _correct(list(read_texts(files)), lint_files)
    findings = lint_files(files)
    if output == "json":
        print_json({**schema("lint"), **to_json(findings)})
    elif output == "sarif":
        print_json(to_sarif(findings, __version__))
    elif output == "github":
        click.echo(to_github(findings))
    else:
        print_coloured(to_text(findings))
    sys.exit(int(fail_on != "never" and at_least(findings, fail_on)))
