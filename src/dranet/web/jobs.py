"""Which job a pod belongs to, what people started and not what a controller made of it on the way; and the whole job.

A pod names its owner. Some owners are made by others that leave their name in a label; a ReplicaSet is named after its
Deployment and the hash of its template.
"""

from __future__ import annotations

import math

from dranet.model.names import DRIVER_NAME
from dranet.web.cluster import Object

MEASURED = f"{DRIVER_NAME}/busbw"
"""An annotation by which a pod tells what its job has measured, in GB/s: nobody else knows."""
_WRAPPERS = {
    "jobset.sigs.k8s.io/jobset-name": "JobSet",
    "leaderworkerset.sigs.k8s.io/name": "LeaderWorkerSet",
    "ray.io/cluster": "RayCluster",
}
_HASH = "pod-template-hash"


def job_of(pod: Object | None) -> str:
    """``Kind/name`` in the pod's namespace; empty where nobody made the pod but a person."""
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
    """What the pod's annotation says, where it says a number above nothing."""
    said = (((pod or {}).get("metadata") or {}).get("annotations") or {}).get(MEASURED, "")
    try:
        found = float(said)
    except ValueError:
        return None
    return round(found, 1) if math.isfinite(found) and found > 0 else None
