"""Nodes on paper: objects without a kubelet, enough for the scheduler to choose among hundreds of machines.

No kubelet means no heartbeat, so such a node is tainted from the start and for ever: pods meant for it tolerate
everything (`on_paper`). They are scheduled, their claims are allocated, and nothing ever starts or, when they are
deleted, ends: delete them by force.
"""

from __future__ import annotations

from typing import Any

Manifest = dict[str, Any]
LABEL = "bed/paper"


def paper_node(name: str, cpu: str = "192", memory: str = "2Ti", pods: str = "110") -> Manifest:
    resources = {"cpu": cpu, "memory": memory, "pods": pods}
    labels = {"kubernetes.io/hostname": name, LABEL: "yes"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"capacity": resources, "allocatable": resources},
    }


def on_paper(pod: Manifest) -> Manifest:
    """The pod, meant for nodes on paper and no others."""
    wanted = {
        "nodeSelector": {LABEL: "yes"},
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 0,
    }
    metadata = {**pod["metadata"], "labels": {**pod["metadata"].get("labels", {}), LABEL: "yes"}}
    return {**pod, "metadata": metadata, "spec": {**pod["spec"], **wanted}}
