"""What the random generators build their clusters of; every function returns a plain dictionary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Object = dict[str, Any]
HOST = "kubernetes.io/hostname"
ROOT = "resource.kubernetes.io/pcieRoot"


def node(name: str, amounts: Object, labels: Object | None = None, taints: Sequence[Object] = ()) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {HOST: name, **(labels or {})}},
        "spec": {"taints": list(taints)},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def pod(name: str, spec: Object, namespace: str = "default", **metadata: Any) -> Object:
    metadata = {"name": name, "namespace": namespace, **metadata}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"terminationGracePeriodSeconds": 0, **spec},
    }


def use_claims(spec: Object, claims: Sequence[str]) -> None:
    """The pod's first container uses these claims."""
    spec["resourceClaims"] = [{"name": f"d{i}", "resourceClaimName": name} for i, name in enumerate(claims)]
    spec["containers"][0].setdefault("resources", {})["claims"] = [{"name": f"d{i}"} for i in range(len(claims))]


def resource(kind: str, name: str, spec: Object, **metadata: str) -> Object:
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


def node_slice(name: str, node: str, driver: str, devices: list[Object]) -> Object:
    """The only slice of a node's pool."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    return resource("ResourceSlice", name, {"driver": driver, "nodeName": node, "pool": pool, "devices": devices})
