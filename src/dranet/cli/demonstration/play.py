"""The inner half of ``dranet demo``: play the stories before an audience and report what came of them."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import click

from dranet.cli.demonstration.view import Progress, TextView
from dranet.sandbox.cluster import SandboxCluster
from dranet.sandbox.demo import Audience, Beside, Play, PodReport, StoryResult
from dranet.sandbox.isolation import Quarters
from dranet.sandbox.stories import Story

INTERRUPTED = 130


def play(stories: Sequence[Story], quarters: Quarters, keep: bool, output: str, page: int | None = None) -> int:
    """Play all stories; the exit status."""
    kept = stories[-1] if keep else None
    audience = TextView(quarters, kept) if output == "text" else Progress(quarters, kept)
    try:
        results = asyncio.run(_all(stories, quarters, audience, page))
    except KeyboardInterrupt:
        click.echo("\nInterrupted. Nothing is left behind.", err=True)
        return INTERRUPTED
    if output == "json":
        click.echo(json.dumps(as_json(results), indent=2, ensure_ascii=False))
    return 1 if any(result.failures for result in results) else 0


async def _all(stories: Sequence[Story], quarters: Quarters, audience: Audience, page: int | None) -> list[StoryResult]:
    try:
        results = [await Play(story, quarters.folder, audience, beside=_page(page)).run() for story in stories]
        audience.curtain(results)
        return results
    finally:
        audience.leave()


def _page(socket_number: int | None) -> Beside:
    """The page beside a story: shows the sandbox's cluster for as long as it stands."""

    @asynccontextmanager
    async def beside(cluster: SandboxCluster) -> AsyncIterator[None]:
        if socket_number is None:
            yield
            return
        from dranet.web import LiveSource, serving

        listener = socket.socket(fileno=os.dup(socket_number))
        async with serving(LiveSource("dranet demo", cluster.client), listener=listener):
            yield

    return beside


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
