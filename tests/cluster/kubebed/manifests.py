"""Short ways to write the objects scenarios are made of; every one returns a plain dictionary to change at will."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from . import parts
from .images import BUSYBOX_IMAGE

Manifest = dict[str, Any]
# On a cluster that is not a bed the image has another name: any with a shell and busybox's tools will do.
POD_IMAGE = os.environ.get("BED_POD_IMAGE", BUSYBOX_IMAGE)
RESOURCE_API = parts.resource_api(parts.kubernetes_version(os.environ.get("K8S", parts.DEFAULT_KUBERNETES)))
# Process 1 of a container hears SIGTERM only with a handler: a bare sleep would use up the whole grace period.
IDLE = ("sh", "-c", "trap 'exit 0' TERM; sleep 1000000 & wait")


def pod(
    name: str,
    *,
    node: str | None = None,
    claims: Mapping[str, str] | None = None,
    templates: Mapping[str, str] | None = None,
    command: Sequence[str] = IDLE,
    image: str = POD_IMAGE,
    labels: Mapping[str, str] | None = None,
    grace: int = 1,
) -> Manifest:
    """A pod of one container that uses `claims` (pod-local name to ResourceClaim) and `templates` (to its template).

    A pod is tied to a node by selector, not by `nodeName`: that would pass by the scheduler, which allocates claims.
    """
    used = [{"name": local, "resourceClaimName": claim} for local, claim in (claims or {}).items()]
    used += [{"name": local, "resourceClaimTemplateName": source} for local, source in (templates or {}).items()]
    container: Manifest = {"name": "main", "image": image, "imagePullPolicy": "IfNotPresent", "command": list(command)}
    spec: Manifest = {"containers": [container], "terminationGracePeriodSeconds": grace, "restartPolicy": "Never"}
    if used:
        container["resources"] = {"claims": [{"name": entry["name"]} for entry in used]}
        spec["resourceClaims"] = used
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": dict(labels or {})}, "spec": spec}


def request(
    name: str, device_class: str, *, selector: str | None = None, count: int = 1, everything: bool = False
) -> Manifest:
    """One request of a claim: `count` devices of a class, or all of them."""
    exactly: Manifest = {"deviceClassName": device_class}
    exactly |= {"allocationMode": "All"} if everything else {"allocationMode": "ExactCount", "count": count}
    if selector:
        exactly["selectors"] = [{"cel": {"expression": selector}}]
    return {"name": name, "exactly": exactly}


def claim(
    name: str, *requests: Manifest, constraints: Sequence[Manifest] = (), config: Sequence[Manifest] = ()
) -> Manifest:
    spec = _claim_spec(requests, constraints, config)
    return {"apiVersion": RESOURCE_API, "kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec}


def claim_template(
    name: str, *requests: Manifest, constraints: Sequence[Manifest] = (), config: Sequence[Manifest] = ()
) -> Manifest:
    spec = {"spec": _claim_spec(requests, constraints, config)}
    return {"apiVersion": RESOURCE_API, "kind": "ResourceClaimTemplate", "metadata": {"name": name}, "spec": spec}


def opaque(driver: str, parameters: Manifest, *requests: str) -> Manifest:
    """Configuration a claim carries for a driver; for all requests unless some are named."""
    entry: Manifest = {"opaque": {"driver": driver, "parameters": parameters}}
    return {**entry, "requests": list(requests)} if requests else entry


def _claim_spec(requests: Sequence[Manifest], constraints: Sequence[Manifest], config: Sequence[Manifest]) -> Manifest:
    devices: Manifest = {"requests": list(requests)}
    if constraints:
        devices["constraints"] = list(constraints)
    if config:
        devices["config"] = list(config)
    return {"devices": devices}
