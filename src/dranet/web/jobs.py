"""The job of a pod: the workload that a user created, not an object that a controller derived from it.

A pod has an owner. Some owners belong to a higher workload, whose name is in a label. The name of a ReplicaSet is that
of its Deployment and the hash of the pod template.
"""

from __future__ import annotations

import math

from dranet.core.names import DRIVER_NAME
from dranet.web.cluster import Object

MEASURED = f"{DRIVER_NAME}/busbw"
"""The annotation with which a pod reports the bus bandwidth that its job measured, in GB/s."""
_WRAPPERS = {
    "jobset.sigs.k8s.io/jobset-name": "JobSet",
    "leaderworkerset.sigs.k8s.io/name": "LeaderWorkerSet",
    "ray.io/cluster": "RayCluster",
}
_HASH = "pod-template-hash"


def job_of(pod: Object | None) -> str:
    """``Kind/name`` in the pod's namespace; empty for a pod without an owner."""
    metadata = (pod or {}).get("metadata") or {}
    labels = metadata.get("labels") or {}
    for label, kind in _WRAPPERS.items():
        if name := labels.get(label):
            return f"{kind}/{name}"
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            kind, name = owner.get("kind", ""), owner.get("name", "")
            if kind == "ReplicaSet" and name.endswith(f"-{labels.get(_HASH)}"):
                return f"Deployment/{name.removesuffix(f'-{labels[_HASH]}')}"
            return f"{kind}/{name}"
    return ""


def measured_of(pod: Object | None) -> float | None:
    """The measured bandwidth in the pod's annotation, if it is a positive number."""
    text = (((pod or {}).get("metadata") or {}).get("annotations") or {}).get(MEASURED, "")
    try:
        found = float(text)
    except ValueError:
        return None
    return round(found, 1) if math.isfinite(found) and found > 0 else None
