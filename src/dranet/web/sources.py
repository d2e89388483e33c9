"""The source of the page's data: a live cluster, or a recording.

A source fills a `ClusterObjects` once (`load`), or keeps it up to date (`follow`).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from dranet.kubernetes.api import resources
from dranet.kubernetes.api.client import KubeClient, WatchEvent
from dranet.kubernetes.api.client import Object as ApiObject
from dranet.kubernetes.api.reflector import list_and_watch
from dranet.kubernetes.api.resources import Resource
from dranet.web.cluster import KINDS, PODS, ClusterObjects, Object, asks_for_claims, object_key

DRIVER_NAMESPACE = "kube-system"
"""Where the install guide puts the driver."""
WATCHED = (
    resources.RESOURCE_SLICES,
    resources.RESOURCE_CLAIMS,
    resources.PODS,
    resources.DEVICE_CLASSES,
    resources.RESOURCE_CLAIM_TEMPLATES,
    resources.NODES,
)


class Source(Protocol):
    """A source of objects."""

    @property
    def title(self) -> str:
        """The title of the page."""

    @property
    def live(self) -> bool:
        """Whether it changes."""

    @property
    def client(self) -> KubeClient | None:
        """The client of a live cluster."""

    async def load(self, cluster: ClusterObjects) -> None:
        """Load all objects once."""

    async def follow(self, cluster: ClusterObjects) -> None:
        """Load all objects and follow changes until cancelled."""


@dataclass(frozen=True, slots=True)
class RecordedSource:
    """Objects of a file or of machine shapes, in v1 shape."""

    title: str
    objects: tuple[Object, ...]
    live: bool = False
    client: None = None

    async def load(self, cluster: ClusterObjects) -> None:
        """Group the objects by kind; unknown kinds are ignored."""
        for kind in KINDS:
            cluster.replace(kind, [item for item in self.objects if item.get("kind") == kind])

    async def follow(self, cluster: ClusterObjects) -> None:
        """A recording does not change."""
        await self.load(cluster)


@dataclass(frozen=True, slots=True)
class LiveSource:
    """A cluster behind its API server."""

    title: str
    client: KubeClient
    live: bool = True
    driver_namespace: str = DRIVER_NAMESPACE

    async def load(self, cluster: ClusterObjects) -> None:
        """List each kind once; raises if one is refused."""
        for resource in WATCHED:
            items, _ = await self.client.list(resource)
            _Listener(cluster, resource).replaced(items)

    async def follow(self, cluster: ClusterObjects) -> None:
        """Watch each kind; retries those that are refused. Raises if the server is unreachable."""
        await self.client.resource_version()
        async with asyncio.TaskGroup() as group:
            for resource in WATCHED:
                listener = _Listener(cluster, resource)
                group.create_task(list_and_watch(self.client, resource, listener, on_error=listener.set_error))


class _Listener:
    """Forwards one kind from the reflector to the cluster. Ignores pods without claims, which are the majority."""

    def __init__(self, cluster: ClusterObjects, resource: Resource) -> None:
        self._cluster = cluster
        self._kind = resource.kind

    def replaced(self, items: list[ApiObject]) -> None:
        self._cluster.replace(self._kind, filter(self._wanted, items))

    def changed(self, event: WatchEvent) -> None:
        if event.type == "DELETED" or not self._wanted(event.object):
            self._cluster.remove(self._kind, object_key(event.object))
        else:
            self._cluster.put(self._kind, event.object)

    def set_error(self, reason: str) -> None:
        self._cluster.set_watch_error(self._kind, reason)

    def _wanted(self, item: Object) -> bool:
        return self._kind != PODS or asks_for_claims(item)
