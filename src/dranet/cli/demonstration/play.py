"""The inner half of ``dranet demo``: play the scenarios before an observer and report what came of them."""

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
from dranet.testing.cluster import SandboxCluster
from dranet.testing.demo import ClusterCompanion, Observer, PodReport, ScenarioResult, ScenarioRunner
from dranet.testing.isolation import SandboxRoot
from dranet.testing.scenarios import Scenario

INTERRUPTED = 130


def play(scenarios: Sequence[Scenario], sandbox: SandboxRoot, keep: bool, output: str, page: int | None = None) -> int:
    """Play all scenarios; the exit status."""
    kept = scenarios[-1] if keep else None
    observer = TextView(sandbox, kept) if output == "text" else Progress(sandbox, kept)
    try:
        results = asyncio.run(_all(scenarios, sandbox, observer, page))
    except KeyboardInterrupt:
        click.echo("\nInterrupted. Nothing is left behind.", err=True)
        return INTERRUPTED
    if output == "json":
        click.echo(json.dumps(as_json(results), indent=2, ensure_ascii=False))
    return 1 if any(result.failures for result in results) else 0


async def _all(
    scenarios: Sequence[Scenario], sandbox: SandboxRoot, observer: Observer, page: int | None
) -> list[ScenarioResult]:
    try:
        results = [
            await ScenarioRunner(scenario, sandbox.folder, observer, companion=_page(page)).run()
            for scenario in scenarios
        ]
        observer.finish(results)
        return results
    finally:
        observer.close()


def _page(socket_number: int | None) -> ClusterCompanion:
    """Serves the page of the sandbox's cluster while a scenario runs."""

    @asynccontextmanager
    async def serve_page(cluster: SandboxCluster) -> AsyncIterator[None]:
        if socket_number is None:
            yield
            return
        from dranet.web import LiveSource, serving

        listener = socket.socket(fileno=os.dup(socket_number))
        async with serving(LiveSource("dranet demo", cluster.client), listener=listener):
            yield

    return serve_page


def as_json(results: Sequence[ScenarioResult]) -> dict[str, Any]:
    """What scripts read."""
    return {"scenarios": [_scenario(result) for result in results]}


def _scenario(result: ScenarioResult) -> dict[str, Any]:
    return {
        "name": result.scenario.name,
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
