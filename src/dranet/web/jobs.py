"""Which job a pod belongs to: what people started, not what a controller made of it on the way.

A pod names its owner. Some owners are made by others that leave their name in a label; a ReplicaSet is named after its
Deployment and the hash of its template.
"""

from __future__ import annotations

from dranet.web.cluster import Object

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
