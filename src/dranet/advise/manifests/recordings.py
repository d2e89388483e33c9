"""Recordings of a cluster: its objects, and an object that names the kinds that were read completely.

Without that object, a missing PriorityClass may exist in the cluster and not in the file. With it, it does not exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dranet.advise.manifests.objects import Object
from dranet.core.untyped import as_list, as_strings, get_path

RECORDING = "Recording"
NEEDED_KINDS = (
    "Namespace", "Service", "ServiceAccount", "ResourceQuota", "LimitRange", "PriorityClass", "RuntimeClass",
    "ReplicaSet", "StatefulSet", "Deployment", "DaemonSet", "Job", "Pod", "ResourceClaim", "ResourceClaimTemplate",
    "DeviceClass", "Node", "ResourceSlice",
)  # fmt: skip
"""Kinds that most plans need. A recording of all of them answers every question about what exists."""
_DROPPED = "kubectl.kubernetes.io/last-applied-configuration"


def recording_object(version: str, kinds: Iterable[str]) -> dict[str, Any]:
    """The object that describes a recording."""
    return {
        "apiVersion": "dranet.dev/v1",
        "kind": RECORDING,
        "metadata": {"name": "recording"},
        "kubernetes": version,
        "kinds": sorted(set(kinds)),
    }


def listed_kinds(recordings: Sequence[Object]) -> frozenset[str]:
    """The kinds that recordings have completely."""
    return frozenset(str(kind) for obj in recordings for kind in as_list(obj.data.get("kinds")))


def recorded_version(recordings: Sequence[Object]) -> str:
    """The version of the API server that was recorded; empty if unknown."""
    return next((str(obj.data.get("kubernetes") or "") for obj in recordings), "")


def without_bookkeeping(data: dict[str, Any]) -> dict[str, Any]:
    """An object without what only its writers need: managed fields, and a copy of itself in an annotation."""
    metadata = {key: value for key, value in (data.get("metadata") or {}).items() if key != "managedFields"}
    annotations = as_strings(get_path(data, "metadata", "annotations"))
    if _DROPPED in annotations:
        metadata["annotations"] = {key: value for key, value in annotations.items() if key != _DROPPED}
    return {**data, "metadata": metadata}
