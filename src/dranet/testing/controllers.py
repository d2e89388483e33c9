"""The cluster's controllers: they create pods from workloads and claims from templates.

The objects have the names, owners, annotations and status that the real controllers write, as far as a driver sees
them. Pods are created once and in order, and are not recreated.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Sequence
from typing import Any

from dranet.advise.manifests import ClaimSource, Manifests, PodSet, to_v1
from dranet.advise.manifests import Object as Manifest
from dranet.core.errors import NotFound
from dranet.core.untyped import as_dict, as_list
from dranet.kubernetes.api import resources
from dranet.kubernetes.api.client import KubeClient
from dranet.kubernetes.api.resources import Resource

Object = dict[str, Any]
_POD_CLAIM = "resource.kubernetes.io/pod-claim-name"


async def apply(client: KubeClient, manifests: Sequence[Manifest], *, template: str | None = None) -> list[Object]:
    """Create classes, templates, claims and pods; returns the pods. `template` replaces the pods' claim template."""
    found = Manifests(manifests)
    for made in _classes(found):
        await client.create(resources.DEVICE_CLASSES, made)
    for manifest in manifests:
        if manifest.kind == "ResourceClaimTemplate":
            await client.create(resources.RESOURCE_CLAIM_TEMPLATES, to_v1(manifest.data), manifest.namespace)
        if manifest.kind == "ResourceClaim":
            await client.create(resources.RESOURCE_CLAIMS, to_v1(manifest.data), manifest.namespace)
    return [await _pod(client, spec, name, template) for spec in found.pods for name in spec.names]


async def withdraw(client: KubeClient, pods: Sequence[Object]) -> None:
    """Delete the pods with their claims, then all other claims, templates and classes."""
    for pod in pods:
        await _delete_pod(client, pod)
    for resource in (resources.RESOURCE_CLAIMS, resources.RESOURCE_CLAIM_TEMPLATES, resources.DEVICE_CLASSES):
        for item in (await client.list(resource))[0]:
            metadata = item["metadata"]
            await client.delete(resource, metadata["name"], metadata.get("namespace"))


async def _delete_pod(client: KubeClient, pod: Object) -> None:
    """Delete the pod and the claims that it owns."""
    namespace = pod["metadata"]["namespace"]
    for claim in (await client.list(resources.RESOURCE_CLAIMS, namespace))[0]:
        owners = {owner["uid"] for owner in claim["metadata"].get("ownerReferences") or ()}
        if pod["metadata"]["uid"] in owners:
            await client.delete(resources.RESOURCE_CLAIMS, claim["metadata"]["name"], namespace)
    await client.delete(resources.PODS, pod["metadata"]["name"], namespace)


async def write_status(client: KubeClient, resource: Resource, obj: Object, status: Object) -> Object:
    """Replace the status of an object; raises Conflict if the object has changed."""
    version = await client.resource_version() if resource.negotiated else resource.version
    metadata = obj["metadata"]
    path = resource.path(version, metadata["namespace"], metadata["name"], "status")
    return await client.request("PUT", path, body={**obj, "status": status})


def claim_names(pod: Object) -> dict[str, str]:
    """The names of the pod's claims by their names in the pod spec."""
    made = {s["name"]: s["resourceClaimName"] for s in as_dict(pod.get("status")).get("resourceClaimStatuses") or ()}
    entries = as_list(pod["spec"].get("resourceClaims"))
    return {entry["name"]: entry.get("resourceClaimName") or made[entry["name"]] for entry in entries}


def _classes(found: Manifests) -> list[Object]:
    """The classes of the claims, including those that a driver's installation brings."""
    wanted = {request.device_class for claim in found.claims for request in claim.requests}
    return [
        {key: value for key, value in found.classes[name].items() if key != "status"}
        for name in sorted(wanted & set(found.classes))
    ]


async def _pod(client: KubeClient, spec: PodSet, name: str, template: str | None) -> Object:
    filled = copy.deepcopy(spec.spec)
    for entry in as_list(filled.get("resourceClaims")):
        if template and entry.get("resourceClaimTemplateName"):
            entry["resourceClaimTemplateName"] = template
    owner = {"apiVersion": spec.owner.api_version, "kind": spec.owner.kind, "name": spec.owner.name, "uid": _uid()}
    metadata: Object = {"name": name, "namespace": spec.namespace, "uid": _uid()}
    if spec.owner.kind != "Pod":
        metadata["ownerReferences"] = [{**owner, "controller": True}]
    pod = await client.create(resources.PODS, {"metadata": metadata, "spec": filled}, spec.namespace)
    made = [await _claim(client, pod, ref, template or ref.template) for ref in spec.claims if ref.template]
    if not made:
        return pod
    return await write_status(client, resources.PODS, pod, {"phase": "Pending", "resourceClaimStatuses": made})


async def _claim(client: KubeClient, pod: Object, ref: ClaimSource, template: str | None) -> Object:
    """Create a claim from a template, owned by its pod; returns the entry for the pod's status."""
    namespace, pod_name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    known = {item["metadata"]["name"]: item for item in (await client.list(_TEMPLATES, namespace))[0]}
    if template not in known:
        raise NotFound(f"pod {pod_name}: no ResourceClaimTemplate {template}; known: {', '.join(sorted(known))}")
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod_name, "uid": pod["metadata"]["uid"], "controller": True}
    metadata = {
        "generateName": f"{pod_name}-{ref.name}-",
        "namespace": namespace,
        "uid": _uid(),
        "annotations": {_POD_CLAIM: ref.name},
        "ownerReferences": [owner],
    }
    claim = {"metadata": metadata, "spec": known[template]["spec"]["spec"]}
    made = await client.create(resources.RESOURCE_CLAIMS, claim, namespace)
    return {"name": ref.name, "resourceClaimName": made["metadata"]["name"]}


_TEMPLATES = resources.RESOURCE_CLAIM_TEMPLATES


def _uid() -> str:
    return str(uuid.uuid4())
