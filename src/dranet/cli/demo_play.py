"""The inner half of ``dranet demo``: play the stories before an audience and report what came of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import click

from dranet.cli.demo_view import Progress, TextView
from dranet.sandbox.demo import Audience, Play, PodReport, StoryResult
from dranet.sandbox.isolation import Quarters
from dranet.sandbox.stories import Story

INTERRUPTED = 130


def play(stories: Sequence[Story], quarters: Quarters, keep: bool, output: str) -> int:
    """Play all stories; the exit status."""
    kept = stories[-1] if keep else None
    audience = TextView(quarters, kept) if output == "text" else Progress(quarters, kept)
    try:
        results = asyncio.run(_all(stories, quarters, audience))
    except KeyboardInterrupt:
        click.echo("\nInterrupted. Nothing is left behind.", err=True)
        return INTERRUPTED
    if output == "json":
        click.echo(json.dumps(as_json(results), indent=2, ensure_ascii=False))
    return 1 if any(result.failures for result in results) else 0


async def _all(stories: Sequence[Story], quarters: Quarters, audience: Audience) -> list[StoryResult]:
    try:
        results = [await Play(story, quarters.folder, audience).run() for story in stories]
        audience.curtain(results)
        return results
    finally:
        audience.leave()


def as_json(results: Sequence[StoryResult]) -> dict[str, Any]:
    """What scripts read."""
    return {"scenarios": [_scenario(result) for result in results]}


def _scenario(result: StoryResult) -> dict[str, Any]:
    return {
        "name": result.story.name,
        "pods": [_pod(pod) for pod in result.pods],
        "checks": {"passed": result.passed, "failed": len(result.failures)},
        "failures": result.failures,
    }


def _pod(pod: PodReport) -> dict[str, Any]:
    return {
        "pod": pod.pod,
        "node": pod.node,
        "devices": list(pod.devices),
        "attach_ms": pod.attach_ms,
        "detach_ms": pod.detach_ms,
        "alignment": pod.alignment,
        "busbw": pod.busbw,
    }
