"""A cluster to look at: the sandbox's API server with machines of known shapes, and the page over it, in a thread.

Pods are made and scheduled by the sandbox's own controllers and scheduler, so claims and statuses are what a cluster
would have. Calls from a test run in the thread's loop and come back when they are done.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from dranet.advise.manifests import Object, must_read, read_text
from dranet.core.http import Request
from dranet.kubernetes.api import resources
from dranet.kubernetes.api.client import KubeClient
from dranet.kubernetes.api.errors import ConnectionLost
from dranet.machines.shape_devices import expand_shape_specs, shape_slices
from dranet.testing import controllers
from dranet.testing.apiserver import Response, SandboxApiServer
from dranet.testing.faults import LocalTransport
from dranet.testing.scheduler import Scheduler
from dranet.web import LiveSource, serving

EXAMPLES = Path(__file__).parents[2] / "examples"
T = TypeVar("T")


class Line(LocalTransport):
    """The way to the API server, which can be cut."""

    cut = False

    async def open(self, request: Request) -> Response:
        if self.cut:
            raise ConnectionLost("no answer")
        return await super().open(request)


class Lab:
    """The cluster behind the page."""

    def __init__(self) -> None:
        self.api = SandboxApiServer()
        self.line = Line(self.api)
        self.client = KubeClient(self.line)
        self.scheduler = Scheduler(self.client)
        self.url = ""
        self._loop = asyncio.new_event_loop()

    def machines(self, *specs: str) -> None:
        """``a4-highgpu-8g=2`` and the like."""
        for node, shape, index in expand_shape_specs(list(specs)):
            self.api.put(resources.NODES, {"metadata": {"name": node}})
            for item in shape_slices(shape, node, index):
                self.api.put(resources.RESOURCE_SLICES, item)

    async def run(self, files: Sequence[str], *, template: str | None = None, replicas: int | None = None) -> list[Any]:
        """Apply examples and schedule their pods that want claims; of MPI workers only so many."""
        manifests = must_read([EXAMPLES / file for file in files])
        for manifest in manifests if replicas is not None else ():
            if manifest.kind == "MPIJob":
                manifest.data["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] = replicas
        return await self._run(manifests, template, schedule=True)

    async def run_text(self, text: str, *, schedule: bool = True) -> list[Any]:
        """The same for a manifest at hand."""
        return await self._run(read_text(text, "text")[0], None, schedule)

    async def _run(self, manifests: list[Object], template: str | None, schedule: bool) -> list[Any]:
        for item in self.api.objects(resources.DEVICE_CLASSES):  # the same class may come with several examples
            self.api.remove(resources.DEVICE_CLASSES, item["metadata"]["name"])
        pods = await controllers.apply(self.client, manifests, template=template)
        return [await self._schedule(pod) if schedule and pod["spec"].get("resourceClaims") else pod for pod in pods]

    async def _schedule(self, pod: Any) -> Any:
        placed = await self.scheduler.schedule(pod)
        return await controllers.write_status(
            self.client, resources.PODS, placed, {**placed.get("status", {}), "phase": "Running"}
        )

    def change_slice(self, node: str, driver: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        """Rewrite every device of one pool."""
        for item in self.api.objects(resources.RESOURCE_SLICES):
            spec = item["spec"]
            if (spec["nodeName"], spec["driver"]) == (node, driver):
                devices = [change(device) for device in spec["devices"]]
                self.api.put(resources.RESOURCE_SLICES, {**item, "spec": {**spec, "devices": devices}})

    def cut(self) -> None:
        """From now on the API server cannot be reached; streams that are open end."""
        self.line.cut = True
        self.api.end_watches()

    def do(self, work: Awaitable[T]) -> T:
        """Run something in the cluster's loop and wait for it."""

        async def waited() -> T:
            return await work

        return asyncio.run_coroutine_threadsafe(waited(), self._loop).result(60)

    def call(self, work: Callable[[], T]) -> T:
        """The same for a plain function."""

        async def called() -> T:
            return work()

        return self.do(called())

    def _live(self, ready: threading.Event, ends: asyncio.Event) -> None:
        async def live() -> None:
            async with serving(LiveSource("the lab", self.client)) as self.url:
                ready.set()
                await ends.wait()

        self._loop.run_until_complete(live())
        self._loop.close()


@contextlib.contextmanager
def lab() -> Iterator[Lab]:
    """A lab with its page; ``url`` is where."""
    made, ready, ends = Lab(), threading.Event(), asyncio.Event()
    thread = threading.Thread(target=made._live, args=(ready, ends))
    thread.start()
    try:
        if not ready.wait(30):
            raise AssertionError("the page did not start")
        yield made
    finally:
        made._loop.call_soon_threadsafe(ends.set)
        thread.join(30)
