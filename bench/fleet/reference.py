"""A stand-in for the reference driver: asks the API server what a Go driver with an informer asks, and when.

Not the Go program. What it does is written down from how client-go behaves: list out of the server's memory and then
watch, also after every watch that broke; waits of 0.8 s, doubled up to 30 s, each up to twice as long by chance. Its
resync goes over what it knows and sends no request. A slice is written where it differs. Like ours it has a node's
connections to itself; a Go driver has one for everything (HTTP/2), which is not played.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from dranet.core.device import Device
from dranet.core.names import DRIVER_NAME
from dranet.core.slices import resource_slices
from dranet.kubernetes.api.client import KubeClient, Object
from dranet.kubernetes.api.errors import KubeError
from dranet.kubernetes.api.resources import NODES, RESOURCE_SLICES

FIRST_WAIT, LONGEST_WAIT = 0.8, 30.0
WATCH_SECONDS = (300, 600)


class ReferencePublisher:
    """The same surface as our publisher's, as far as the fleet needs it."""

    def __init__(self, client: KubeClient, node: str) -> None:
        self._client, self._node = client, node
        self._fields = f"spec.nodeName={node},spec.driver={DRIVER_NAME}"
        self._devices: Sequence[Device] = ()
        self._stored: Object | None = None
        self._known = False
        self._wake = asyncio.Event()
        self._in_sync = asyncio.Event()

    def publish(self, devices: Sequence[Device]) -> None:
        self._devices = devices
        self._in_sync.clear()
        self._wake.set()

    async def published(self) -> None:
        await self._in_sync.wait()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._inform())
            group.create_task(self._sync_forever())

    async def _inform(self) -> None:
        wait = FIRST_WAIT
        while True:
            with contextlib.suppress(KubeError, TimeoutError):
                items, position = await self._client.list_cached(RESOURCE_SLICES, fields=self._fields)
                wait = FIRST_WAIT
                self._stored, self._known = (items[0] if items else None), True
                self._wake.set()
                await self._watch(position)
            await asyncio.sleep(wait * (1 + self._client.rng.random()))
            wait = min(wait * 2, LONGEST_WAIT)

    async def _watch(self, position: str) -> None:
        seconds = self._client.rng.randint(*WATCH_SECONDS)
        watch = self._client.watch(RESOURCE_SLICES, position, fields=self._fields, seconds=seconds)
        async with contextlib.aclosing(watch) as events:
            async for event in events:
                if event.type in {"ADDED", "MODIFIED"}:
                    self._stored = event.object
                elif event.type == "DELETED":
                    self._stored = None
                    self._wake.set()

    async def _sync_forever(self) -> None:
        wait = FIRST_WAIT
        uid = ""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not self._known:
                continue
            try:
                uid = uid or (await self._client.get(NODES, self._node))["metadata"]["uid"]
                await self._sync(uid)
                wait = FIRST_WAIT
            except KubeError:
                self._wake.set()
                await asyncio.sleep(wait * (1 + self._client.rng.random()))
                wait = min(wait * 2, LONGEST_WAIT)

    async def _sync(self, uid: str) -> None:
        [wanted] = resource_slices(self._devices, node=self._node, driver=DRIVER_NAME, node_uid=uid)
        stored = self._stored
        if stored is None:
            self._stored = await self._client.create(RESOURCE_SLICES, _first(wanted))
        elif stored["spec"]["devices"] != wanted["spec"]["devices"]:
            spec = {**stored["spec"], "devices": wanted["spec"]["devices"]}
            self._stored = await self._client.replace(RESOURCE_SLICES, {**stored, "spec": spec})
        self._in_sync.set()


def _first(item: Object) -> Object:
    return {**item, "spec": {**item["spec"], "pool": {**item["spec"]["pool"], "generation": 1}}}
