"""A live cluster as input: its objects and its version. Read-only.

Objects that influence scheduling are read too, as far as the permissions allow; the output lists what could not be
read. The client libraries are imported only when they are needed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from dranet.advise.manifests import CLUSTER_FILE, KINDS, Located, Object, SourceText, Span, locate_in, recording_object

if TYPE_CHECKING:
    from dranet.kubernetes.api.client import KubeClient
    from dranet.kubernetes.api.resources import Resource

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
    unlisted = {text.partition(" of the cluster")[0] for text in unread}
    around.append(recording_object(version, _listed_kinds(unlisted)))
    return LiveCluster(_objects(objects), _objects(around), tuple(unread), version)


def _listed_kinds(unlisted: set[str]) -> list[str]:
    from dranet.kubernetes.api import resources

    every = (*_needed(), *resources.SCHEDULING_RESOURCES)
    return [resource.kind for resource in every if resource.plural not in unlisted]


def _needed() -> tuple[Resource, ...]:
    from dranet.kubernetes.api import resources

    return (
        resources.RESOURCE_SLICES,
        resources.DEVICE_CLASSES,
        resources.RESOURCE_CLAIMS,
        resources.RESOURCE_CLAIM_TEMPLATES,
        resources.NODES,
        resources.PODS,
    )


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

    objects: list[Raw] = []
    around: list[Raw] = []
    unread: list[str] = []
    config = load_config(cluster.kubeconfig, context=cluster.context)
    async with KubeClient.from_config(config, decoder=InterningDecoder()) as client:
        for resource in _needed():
            objects += (await client.list(resource))[0]
        for resource in resources.SCHEDULING_RESOURCES:
            try:
                around += (await client.list(resource))[0]
            except ApiError as error:
                unread.append(f"{resource.plural} of the cluster: the API server answered {error.code}")
        around += await _custom_objects(client)
        try:
            version = str((await client.request("GET", "/version")).get("gitVersion") or "")
        except ApiError:
            version = ""
    return objects, around, unread, version


_BUILT_IN = {"", "apps", "batch", "policy", "autoscaling"}
_MORE_KINDS = {("kueue.x-k8s.io", kind) for kind in ("ResourceFlavor", "ClusterQueue", "LocalQueue", "Topology")} | {
    ("resource.k8s.io", "DeviceTaintRule")
}
"""Kinds without pods that plans read, besides the workload kinds of operators."""


async def _custom_objects(client: KubeClient) -> list[Raw]:
    """Workloads of operators, and what restricts them, in the version that the server prefers."""
    from dranet.kubernetes.api.errors import ApiError
    from dranet.kubernetes.api.resources import Resource

    wanted = {key for key in KINDS if key[0] not in _BUILT_IN} | _MORE_KINDS
    found: list[Raw] = []
    try:
        groups = (await client.request("GET", "/apis")).get("groups") or []
        for group in groups:
            name, versions = group["name"], [one["version"] for one in group["versions"]]
            if name not in {key[0] for key in wanted}:
                continue
            seen: set[str] = set()
            for version in versions:
                for one in (await client.request("GET", f"/apis/{name}/{version}")).get("resources") or []:
                    if (name, one["kind"]) not in wanted or "/" in one["name"] or one["kind"] in seen:
                        continue
                    seen.add(one["kind"])
                    path = Resource(one["name"], one["kind"], name, version).path(version)
                    items = (await client.request("GET", path)).get("items") or []
                    found += [{"apiVersion": f"{name}/{version}", "kind": one["kind"], **item} for item in items]
    except ApiError:
        return found
    return found
