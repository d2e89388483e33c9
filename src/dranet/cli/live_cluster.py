"""A cluster as input: its objects and its version, read once and never written.

What decides where pods go is read as well, as far as the server lets us; what it does not let us see is said in the
answer. The libraries that talk to it are loaded only when it is asked.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import Any

from dranet.manifests.claim_views import CLUSTER_FILE
from dranet.manifests.objects import Located, Object, locate_in
from dranet.manifests.source_text import SourceText, Span

Raw = dict[str, Any]
_NO_TEXT = SourceText("")


@dataclass(frozen=True, slots=True)
class Cluster:
    """Which cluster, as the options name it."""

    kubeconfig: str | None = None
    context: str | None = None


@dataclass(frozen=True)
class LiveCluster:
    """What a cluster holds."""

    objects: tuple[Object, ...] = ()
    """Slices, classes, claims, templates, nodes and pods."""
    surroundings: tuple[Object, ...] = ()
    """What pods meet there: namespaces, quotas, services and the like."""
    unread: tuple[str, ...] = ()
    """What the server did not let us see, and why."""
    version: str = ""
    """Of the server, such as v1.36.4."""


def read_cluster(cluster: Cluster) -> LiveCluster:
    """Everything of interest in a cluster."""
    import asyncio

    objects, around, unread, version = asyncio.run(_read(cluster))
    return LiveCluster(_objects(objects), _objects(around), tuple(unread), version)


def _objects(items: list[Raw]) -> tuple[Object, ...]:
    """As they came: written out as text and read again, a large cluster would be in memory three times."""
    return tuple(Object(item, CLUSTER_FILE, partial(_located, item), _NO_TEXT) for item in items)


def _located(item: Raw) -> Located:
    """Places in the object as JSON, for who asks where something stands."""
    text = json.dumps(item, indent=2)
    return locate_in(Span(SourceText(text), 0, len(text)))()


async def _read(cluster: Cluster) -> tuple[list[Raw], list[Raw], list[str], str]:
    from dranet.kube import resources
    from dranet.kube.client import KubeClient
    from dranet.kube.config import load_config
    from dranet.kube.errors import ApiError
    from dranet.kube.thrift import Thrift

    needed = (
        resources.RESOURCE_SLICES,
        resources.DEVICE_CLASSES,
        resources.RESOURCE_CLAIMS,
        resources.RESOURCE_CLAIM_TEMPLATES,
        resources.NODES,
        resources.PODS,
    )
    objects: list[Raw] = []
    around: list[Raw] = []
    unread: list[str] = []
    config = load_config(cluster.kubeconfig, context=cluster.context)
    async with KubeClient.from_config(config, thrift=Thrift()) as client:
        for resource in needed:
            objects += (await client.list(resource))[0]
        for resource in resources.SURROUNDINGS:
            try:
                around += (await client.list(resource))[0]
            except ApiError as error:
                unread.append(f"{resource.plural} of the cluster: the server answered {error.code}")
        try:
            version = str((await client.request("GET", "/version")).get("gitVersion") or "")
        except ApiError:
            version = ""
    return objects, around, unread, version
