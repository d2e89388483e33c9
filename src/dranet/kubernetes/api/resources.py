"""Resource types of the API and their versions, and time stamps in the API's format.

All code uses v1 objects. v1 and v1beta2 have the same shape. v1beta1 (Kubernetes 1.32 and 1.33) differs in two places:
device fields are under ``basic``, and the fields of a request are not under ``exactly``. `to_version` and
`from_version` convert at the edge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import msgspec

from dranet.kubernetes.api.errors import ConfigError

GROUP = "resource.k8s.io"
PREFERENCE = ("v1", "v1beta2", "v1beta1")
Now = Callable[[], datetime]
"""The wall clock, so that a test can replace it."""


def utc_now() -> datetime:
    return datetime.now(UTC)


def timestamp(moment: datetime) -> str:
    """RFC 3339 in UTC with seconds, as the API writes it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Resource(msgspec.Struct, frozen=True):
    """One resource type. Discovery chooses the version of resource.k8s.io; other groups have a fixed version."""

    plural: str
    kind: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = False

    @property
    def negotiated(self) -> bool:
        """Whether its version depends on the server."""
        return self.group == GROUP

    def path(self, version: str, namespace: str | None = None, name: str | None = None, sub: str | None = None) -> str:
        """The URL path of the collection, or of one object or its subresource."""
        parts = ["/apis", self.group, version] if self.group else ["/api", version]
        if namespace is not None:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        parts += [quote(part, safe="") for part in (name, sub) if part]
        return "/".join(parts)


RESOURCE_SLICES = Resource("resourceslices", "ResourceSlice", GROUP)
RESOURCE_CLAIMS = Resource("resourceclaims", "ResourceClaim", GROUP, namespaced=True)
RESOURCE_CLAIM_TEMPLATES = Resource("resourceclaimtemplates", "ResourceClaimTemplate", GROUP, namespaced=True)
DEVICE_CLASSES = Resource("deviceclasses", "DeviceClass", GROUP)
NODES = Resource("nodes", "Node")
PODS = Resource("pods", "Pod", namespaced=True)
EVENTS = Resource("events", "Event", namespaced=True)
SCHEDULING_RESOURCES = (
    Resource("namespaces", "Namespace"),
    Resource("services", "Service", namespaced=True),
    Resource("resourcequotas", "ResourceQuota", namespaced=True),
    Resource("limitranges", "LimitRange", namespaced=True),
    Resource("priorityclasses", "PriorityClass", "scheduling.k8s.io"),
    Resource("runtimeclasses", "RuntimeClass", "node.k8s.io"),
    Resource("serviceaccounts", "ServiceAccount", namespaced=True),
    Resource("replicasets", "ReplicaSet", "apps", namespaced=True),
    Resource("statefulsets", "StatefulSet", "apps", namespaced=True),
    Resource("deployments", "Deployment", "apps", namespaced=True),
    Resource("daemonsets", "DaemonSet", "apps", namespaced=True),
    Resource("jobs", "Job", "batch", namespaced=True),
    Resource("cronjobs", "CronJob", "batch", namespaced=True),
    Resource("poddisruptionbudgets", "PodDisruptionBudget", "policy", namespaced=True),
    Resource("horizontalpodautoscalers", "HorizontalPodAutoscaler", "autoscaling", "v2", namespaced=True),
    Resource("validatingadmissionpolicies", "ValidatingAdmissionPolicy", "admissionregistration.k8s.io"),
    Resource("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", "admissionregistration.k8s.io"),
)
"""What admission, controllers and scheduling depend on, in addition to nodes and claims. Only predictions read them."""

_FLAT_REQUEST_FIELDS = (
    "deviceClassName",
    "selectors",
    "allocationMode",
    "count",
    "adminAccess",
    "tolerations",
    "capacity",
)


def choose_version(served: list[str]) -> str:
    """The version to use with a server that serves these; raises ConfigError."""
    for version in PREFERENCE:
        if version in served:
            return version
    raise ConfigError(
        f"the API server serves {GROUP} in {', '.join(served) or 'no version'}; one of {', '.join(PREFERENCE)} is "
        "needed (Kubernetes 1.34 serves v1 by default; on 1.32 and 1.33 enable the API and the "
        "DynamicResourceAllocation feature gate)"
    )


def to_version(obj: Mapping[str, Any], version: str) -> dict[str, Any]:
    """A v1 object in the shape of ``version``."""
    out = {**obj, "apiVersion": f"{GROUP}/{version}"}
    return _reshape(out, _device_to_beta1, _request_to_beta1) if version == "v1beta1" else out


def from_version(obj: Mapping[str, Any], version: str) -> dict[str, Any]:
    """An object of ``version`` in the v1 shape."""
    out = {**obj, "apiVersion": f"{GROUP}/v1"}
    return _reshape(out, _device_from_beta1, _request_from_beta1) if version == "v1beta1" else out


def _reshape(obj: dict[str, Any], device: Any, request: Any) -> dict[str, Any]:
    kind = obj.get("kind")
    if kind == "ResourceSlice" and (obj.get("spec") or {}).get("devices"):
        obj["spec"] = {**obj["spec"], "devices": [device(item) for item in obj["spec"]["devices"]]}
    elif kind == "ResourceClaim" and obj.get("spec"):
        obj["spec"] = _reshape_claim_spec(obj["spec"], request)
    elif kind == "ResourceClaimTemplate" and (obj.get("spec") or {}).get("spec"):
        obj["spec"] = {**obj["spec"], "spec": _reshape_claim_spec(obj["spec"]["spec"], request)}
    return obj


def _reshape_claim_spec(spec: Mapping[str, Any], request: Any) -> dict[str, Any]:
    devices = spec.get("devices") or {}
    if not devices.get("requests"):
        return dict(spec)
    return {**spec, "devices": {**devices, "requests": [request(item) for item in devices["requests"]]}}


def _device_to_beta1(device: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": device["name"], "basic": {key: value for key, value in device.items() if key != "name"}}


def _device_from_beta1(device: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": device["name"], **(device.get("basic") or {})}


def _request_to_beta1(request: Mapping[str, Any]) -> dict[str, Any]:
    out = {key: value for key, value in request.items() if key != "exactly"}
    return {**out, **(request.get("exactly") or {})}


def _request_from_beta1(request: Mapping[str, Any]) -> dict[str, Any]:
    flat = {key: request[key] for key in _FLAT_REQUEST_FIELDS if key in request}
    out = {key: value for key, value in request.items() if key not in flat}
    return {**out, "exactly": flat} if flat else out
