"""NVIDIA's ComputeDomain: its controller creates the claim template that pods of the domain name.

The pods of the domain belong to other workloads. The controller's own pods on each node wait for those, so the domain
itself has no pods to plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dranet.advise.manifests.objects import Object
from dranet.advise.manifests.workload_kinds.base import FindObject, PodSet, Skipped, workload
from dranet.core.untyped import as_dict, get_path

_API_GROUP = "resource.nvidia.com"
COMPUTE_DOMAIN_DRIVER = "compute-domain.nvidia.com"
_CHANNEL_CLASS = "compute-domain-default-channel.nvidia.com"


@workload(_API_GROUP, "ComputeDomain")
def compute_domain(obj: Object, find: FindObject) -> Iterator[PodSet | Skipped]:
    yield from ()


def channel_template(obj: Object) -> Object | None:
    """The ResourceClaimTemplate that the controller creates, if the domain names one; positions are the domain's."""
    channel = as_dict(get_path(obj.data, "spec", "channel"))
    name = as_dict(channel.get("resourceClaimTemplate")).get("name")
    if obj.kind != "ComputeDomain" or not isinstance(name, str) or not name:
        return None
    return Object(_template(obj, name, channel), obj.file, obj.locate, obj.source)


def _template(obj: Object, name: str, channel: dict[str, Any]) -> dict[str, Any]:
    parameters = {
        "apiVersion": f"{_API_GROUP}/v1beta1",
        "kind": "ComputeDomainChannelConfig",
        "domainID": str(as_dict(obj.data.get("metadata")).get("uid") or ""),
        "allocationMode": str(channel.get("allocationMode") or "Single"),
    }
    devices = {
        "requests": [{"name": "channel", "exactly": {"deviceClassName": _CHANNEL_CLASS}}],
        "config": [{"requests": ["channel"], "opaque": {"driver": COMPUTE_DOMAIN_DRIVER, "parameters": parameters}}],
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": obj.namespace},
        "spec": {"spec": {"devices": devices}},
    }
