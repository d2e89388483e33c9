"""Where the page looks: a live cluster, or what was recorded of one.

A source fills a `ClusterObjects` once (`load`), or fills it and keeps it true (`follow`).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from dranet.kube import resources
from dranet.kube.client import KubeClient, WatchEvent
from dranet.kube.client import Object as ApiObject
from dranet.kube.reflector import follow
from dranet.kube.resources import Resource
from dranet.web.cluster import KINDS, PODS, ClusterObjects, Object, asks_for_claims, object_key

WATCHED = (
    resources.RESOURCE_SLICES,
    resources.RESOURCE_CLAIMS,
    resources.PODS,
    resources.DEVICE_CLASSES,
    resources.RESOURCE_CLAIM_TEMPLATES,
    resources.NODES,
)


class Source(Protocol):
    """Something to look at."""

    @property
    def title(self) -> str:
        """What the page says it shows."""

    @property
    def live(self) -> bool:
        """Whether it changes."""

    @property
    def client(self) -> KubeClient | None:
        """The API server behind it, where there is one."""

    async def load(self, cluster: ClusterObjects) -> None:
        """Everything, once."""

    async def follow(self, cluster: ClusterObjects) -> None:
        """Everything, and then every change, until cancelled."""


@dataclass(frozen=True, slots=True)
class RecordedSource:
    """Objects of a file or of machine shapes, in v1 shape."""

    title: str
    objects: tuple[Object, ...]
    live: bool = False
    client: None = None

    async def load(self, cluster: ClusterObjects) -> None:
        """Sort them by kind; what the page does not know is left out."""
        for kind in KINDS:
            cluster.replace(kind, [item for item in self.objects if item.get("kind") == kind])

    async def follow(self, cluster: ClusterObjects) -> None:
        """Nothing ever changes."""
        await self.load(cluster)


@dataclass(frozen=True, slots=True)
class LiveSource:
    """A cluster behind its API server."""

    title: str
    client: KubeClient
    live: bool = True

    async def load(self, cluster: ClusterObjects) -> None:
        """One list of each kind; raises where one is refused."""
        for resource in WATCHED:
            items, _ = await self.client.list(resource)
            _Listener(cluster, resource).replaced(items)

    async def follow(self, cluster: ClusterObjects) -> None:
        """Watch each kind; one that is refused is tried again, the others go on. An unreachable server raises."""
        await self.client.resource_version()
        async with asyncio.TaskGroup() as group:
            for resource in WATCHED:
                listener = _Listener(cluster, resource)
                group.create_task(follow(self.client, resource, listener, trouble=listener.trouble))


class _Listener:
    """Carries one kind from the reflector to the cluster. Pods that ask for no claim are not kept: most do not."""

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

    def trouble(self, reason: str) -> None:
        self._cluster.note_trouble(self._kind, reason)

    def _wanted(self, item: Object) -> bool:
        return self._kind != PODS or asks_for_claims(item)
