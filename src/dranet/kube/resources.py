"""The resource types we speak of, and where they live."""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from dranet.kube.versions import GROUP


class Resource(msgspec.Struct, frozen=True):
    """One resource type. The version of the resource group is chosen by discovery, others are fixed."""

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
SURROUNDINGS = (
    Resource("namespaces", "Namespace"),
    Resource("services", "Service", namespaced=True),
    Resource("resourcequotas", "ResourceQuota", namespaced=True),
    Resource("limitranges", "LimitRange", namespaced=True),
    Resource("priorityclasses", "PriorityClass", "scheduling.k8s.io"),
    Resource("runtimeclasses", "RuntimeClass", "node.k8s.io"),
    Resource("replicasets", "ReplicaSet", "apps", namespaced=True),
    Resource("statefulsets", "StatefulSet", "apps", namespaced=True),
)
"""What decides where pods go, beside nodes and claims. Only predictions read them."""
