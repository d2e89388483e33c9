"""A live cluster as input: its objects and its version. Read-only.

Objects that influence scheduling are read too, as far as the permissions allow; the output lists what could not be
read. The client libraries are imported only when they are needed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import Any

from dranet.advise.manifests import CLUSTER_FILE, Located, Object, SourceText, Span, locate_in

Raw = dict[str, Any]
_NO_TEXT = SourceText("")


@dataclass(frozen=True, slots=True)
class Cluster:
    """The options that select a cluster."""

    kubeconfig: str | None = None
    context: str | None = None


@dataclass(frozen=True)
class LiveCluster:
    """The objects of a cluster."""

    objects: tuple[Object, ...] = ()
    """Slices, classes, claims, templates, nodes and pods."""
    surroundings: tuple[Object, ...] = ()
    """Other objects that influence scheduling: namespaces, quotas, services."""
    unread: tuple[str, ...] = ()
    """Resources that could not be listed, and why."""
    version: str = ""
    """Version of the API server, such as v1.36.4."""


def read_cluster(cluster: Cluster) -> LiveCluster:
    """Read all objects that the commands use."""
    import asyncio

    objects, around, unread, version = asyncio.run(_read(cluster))
    return LiveCluster(_objects(objects), _objects(around), tuple(unread), version)


def _objects(items: list[Raw]) -> tuple[Object, ...]:
    """Without a text form, because a large cluster would need three times the memory."""
    return tuple(Object(item, CLUSTER_FILE, partial(_located, item), _NO_TEXT) for item in items)


def _located(item: Raw) -> Located:
    """Positions of fields in the object as JSON, computed only if a message needs one."""
    text = json.dumps(item, indent=2)
    return locate_in(Span(SourceText(text), 0, len(text)))()


async def _read(cluster: Cluster) -> tuple[list[Raw], list[Raw], list[str], str]:
    from dranet.kubernetes.api import resources
    from dranet.kubernetes.api.client import KubeClient
    from dranet.kubernetes.api.config import load_config
    from dranet.kubernetes.api.errors import ApiError
    from dranet.kubernetes.api.interning import InterningDecoder

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
    async with KubeClient.from_config(config, decoder=InterningDecoder()) as client:
        for resource in needed:
            objects += (await client.list(resource))[0]
        for resource in resources.SCHEDULING_RESOURCES:
            try:
                around += (await client.list(resource))[0]
            except ApiError as error:
                unread.append(f"{resource.plural} of the cluster: the API server answered {error.code}")
        try:
            version = str((await client.request("GET", "/version")).get("gitVersion") or "")
        except ApiError:
            version = ""
    return objects, around, unread, version
