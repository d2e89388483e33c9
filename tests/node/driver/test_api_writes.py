"""What the driver writes to the API server for a pod: one patch after attach, one after detach."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import pytest

from dranet.core.http import Request
from dranet.kubernetes.nri.errors import PluginRejected
from dranet.testing.apiserver import Response
from dranet.testing.waiting import until

from .daemon_bench import Bench, bench

pytestmark = pytest.mark.usefixtures("may_make_namespaces")

LATE_SECONDS = 1.0
"""What comes after the write that was waited for comes within this time."""
TRIES = 12


@contextlib.contextmanager
def written(b: Bench) -> Iterator[list[str]]:
    """Method and path of every request inside the `with` that wants to change something."""
    found: list[str] = []
    handle = b.api.handle

    async def counting(request: Request) -> Response:
        if request.method != "GET":
            found.append(f"{request.method} {request.path}")
        return await handle(request)

    b.api.handle = counting  # type: ignore[method-assign]
    try:
        yield found
    finally:
        b.api.handle = handle  # type: ignore[method-assign]


async def test_pod_costs_two_patches_of_its_claim() -> None:
    async with bench() as b:
        pod = b.claim("nic0", "nic1")
        status = f"PATCH /apis/resource.k8s.io/v1/namespaces/{pod.claims[0].namespace}/resourceclaims/"
        status += f"{pod.claims[0].name}/status"
        with written(b) as starting:
            await b.node.start_pod(pod)
            await until(lambda: b.status(pod.claims[0]))
            await asyncio.sleep(LATE_SECONDS)
        with written(b) as ending:
            await b.node.stop_pod(pod)
            await until(lambda: not b.status(pod.claims[0]))
            await asyncio.sleep(LATE_SECONDS)
        assert (starting, ending) == ([status], [status])


async def test_repeated_failures_cost_one_patch_and_one_event() -> None:
    async with bench() as b:
        pod = b.claim("nic0", parameters={"routes": [{"destination": "10.99.0.0/16", "gateway": "192.0.2.1"}]})
        await b.node.prepare(pod)
        with written(b) as found:
            for _ in range(TRIES):
                with pytest.raises(PluginRejected):
                    await b.node.run_sandbox(pod)
            await until(b.events)
            await asyncio.sleep(LATE_SECONDS)
        # A NIC that goes and comes back twelve times in a second may be seen without its link: its slice says so.
        other = [one for one in found if not one.startswith("PUT /apis/resource.k8s.io/v1/resourceslices/")]
        assert sorted(one.split()[0] for one in other) == ["PATCH", "POST"]
