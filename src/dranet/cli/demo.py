"""``dranet demo``: the product at work on this machine, with no GPUs and no cluster.

The command starts itself again in namespaces of its own and plays the stories there; see `dranet.sandbox.isolation`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

import click

from dranet.cli.inputs import print_json
from dranet.sandbox.demo import Audience, Play, StoryResult
from dranet.sandbox.isolation import Quarters, run_isolated, settle
from dranet.sandbox.stories import STORIES, Story, chosen

INTERRUPTED = 130


@click.command(help="See it all at work on this machine: five documents as stories, on sandbox machines.")
@click.argument("scenarios", nargs=-1, metavar="[SCENARIO]...")
@click.option("--list", "only_list", is_flag=True, help="List the scenarios.")
@click.option("--keep", is_flag=True, help="Leave the last scenario running and say how to look around.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
@click.option("--inside", is_flag=True, hidden=True, help="Already in namespaces of its own.")
def demo(scenarios: tuple[str, ...], only_list: bool, keep: bool, output: str, inside: bool) -> None:
    """Play the scenarios, all of them if none is named; the exit status tells whether every check passed."""
    stories = chosen(scenarios)
    if only_list:
        _list(stories, output)
    elif not inside:
        options = ["--inside", *(["--keep"] if keep else []), "-o", output]
        sys.exit(run_isolated([sys.executable, "-m", "dranet", "demo", *options, *scenarios]))
    else:
        sys.exit(_play(stories, settle(), keep, output))


def _list(stories: Sequence[Story], output: str) -> None:
    if output == "json":
        print_json({"scenarios": [{"name": story.name, "title": story.title} for story in STORIES]})
        return
    for story in stories:
        click.echo(f"{story.name:12}{story.title}")


def _play(stories: Sequence[Story], quarters: Quarters, keep: bool, output: str) -> int:
    audience = _audience(output, quarters, stories[-1] if keep else None)
    try:
        results = asyncio.run(_all(stories, quarters, audience))
    except KeyboardInterrupt:
        click.echo("\nInterrupted. Nothing is left behind.", err=True)
        return INTERRUPTED
    if output == "json":
        print_json(as_json(results))
    return 1 if any(result.failures for result in results) else 0


def _audience(output: str, quarters: Quarters, kept: Story | None) -> Audience:
    from dranet.cli.demo_view import Progress, TextView

    return TextView(quarters, kept) if output == "text" else Progress(quarters, kept)


async def _all(stories: Sequence[Story], quarters: Quarters, audience: Audience) -> list[StoryResult]:
    try:
        results = [await Play(story, quarters.folder, audience).run() for story in stories]
        audience.curtain(results)
        return results
    finally:
        audience.leave()


def as_json(results: Sequence[StoryResult]) -> dict[str, Any]:
    """What scripts read."""
    return {
        "scenarios": [
            {
                "name": result.story.name,
                "pods": [
                    {
                        "pod": pod.pod,
                        "node": pod.node,
                        "devices": list(pod.devices),
                        "attach_ms": pod.attach_ms,
                        "detach_ms": pod.detach_ms,
                        "alignment": pod.alignment,
                        "busbw": pod.busbw,
                    }
                    for pod in result.pods
                ],
                "checks": {"passed": result.passed, "failed": len(result.failures)},
                "failures": result.failures,
            }
            for result in results
        ]
    }
