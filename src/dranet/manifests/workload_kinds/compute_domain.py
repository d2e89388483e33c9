"""NVIDIA's ComputeDomain: its controller makes the claim template that pods of the domain name.

The pods of the domain are other workloads; what the controller runs on each node belongs to the driver and waits for
them, so the domain itself has no pods to plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dranet.manifests.objects import Object
from dranet.manifests.plain_values import mapping, reach
from dranet.manifests.workload_kinds.base import Lookup, Omitted, PodGroup, workload

API_GROUP = "resource.nvidia.com"
DRIVER = "compute-domain.nvidia.com"
CHANNEL_CLASS = "compute-domain-default-channel.nvidia.com"


@workload(API_GROUP, "ComputeDomain")
def pods(obj: Object, look: Lookup) -> Iterator[PodGroup | Omitted]:
    yield from ()


def made_template(obj: Object) -> Object | None:
    """The ResourceClaimTemplate the controller makes, if the domain names one; its places are the domain's."""
    channel = mapping(reach(obj.data, ("spec", "channel")))
    name = mapping(channel.get("resourceClaimTemplate")).get("name")
    if obj.kind != "ComputeDomain" or not isinstance(name, str) or not name:
        return None
    return Object(_template(obj, name, channel), obj.file, obj.locate, obj.source)


def _template(obj: Object, name: str, channel: dict[str, Any]) -> dict[str, Any]:
    parameters = {
        "apiVersion": f"{API_GROUP}/v1beta1",
        "kind": "ComputeDomainChannelConfig",
        "domainID": str(mapping(obj.data.get("metadata")).get("uid") or ""),
        "allocationMode": str(channel.get("allocationMode") or "Single"),
    }
    devices = {
        "requests": [{"name": "channel", "exactly": {"deviceClassName": CHANNEL_CLASS}}],
        "config": [{"requests": ["channel"], "opaque": {"driver": DRIVER, "parameters": parameters}}],
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": obj.namespace},
        "spec": {"spec": {"devices": devices}},
    }
