"""Nodes that reject a pod independently of its claims, and the changes of the pod that would help.

Taints, node selectors and resources are checked before devices: a change of the claim would not help on such a node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from dranet.advise.explain.changes import Change
from dranet.advise.plan.pending_pods import PendingPod
from dranet.advise.plan.placement import Simulator
from dranet.core.untyped import as_dict, as_strings, get_path

_SELECTOR = "node(s) didn't match Pod's node affinity/selector"


def excluded_nodes(simulator: Simulator, pod: PendingPod) -> dict[str, str]:
    """By node, why it does not even take the pod without its claims."""
    verdict = simulator.decide(replace(pod, claims=()))
    return {
        name: _because(simulator, pod, name, ", ".join(rejection.reasons))
        for nodes, rejection in verdict.rejected
        for name in nodes.names
    }


def _because(simulator: Simulator, pod: PendingPod, node: str, reasons: str) -> str:
    if simulator.nodes[node].cordoned:
        return "cordoned: no pod is scheduled there until kubectl uncordon"
    for resource, count in pod.plugin_gpus.items():
        free = simulator.nodes[node].gpus_free(resource)
        if free is not None and free < count and reasons == f"Insufficient {resource}":
            return f"{reasons}: {count} wanted, {free} free"
    wanted = as_strings(pod.spec.get("nodeSelector"))
    labels = simulator.nodes[node].labels
    missing = [f"{key}={value}" for key, value in wanted.items() if labels.get(key) != value]
    if reasons == _SELECTOR and missing:
        has = [f"{key}={labels[key]}" for key in wanted if key in labels and labels[key] != wanted[key]]
        return f"its nodeSelector asks for {', '.join(missing)}; the node has {', '.join(has) or 'no such label'}"
    return f"{reasons}: independent of its claims"


def pod_changes(simulator: Simulator, pod: PendingPod) -> Iterator[Change]:
    """Changes of the pod itself that would give it a node, claims and all."""
    for text, spec in _edits(pod.spec):
        verdict = simulator.decide(replace(pod, spec=spec))
        taking = {name for place in verdict.feasible for name in place.group.names}
        nodes = tuple(name for name in simulator.nodes if name in taking)
        if nodes:
            yield Change(text, nodes)


def _edits(spec: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    selector = as_strings(spec.get("nodeSelector"))
    for key, value in selector.items():
        rest = {k: v for k, v in selector.items() if k != key}
        yield f"take {key}: {value} out of the pod's nodeSelector", {**spec, "nodeSelector": rest}
    if get_path(spec, "affinity", "nodeAffinity"):
        rest = {k: v for k, v in as_dict(spec.get("affinity")).items() if k != "nodeAffinity"}
        yield "take out the pod's node affinity", {**spec, "affinity": rest}
    for key, name in (("podAffinity", "affinity to other pods"), ("podAntiAffinity", "anti-affinity to other pods")):
        if get_path(spec, "affinity", key):
            rest = {k: v for k, v in as_dict(spec.get("affinity")).items() if k != key}
            yield f"take out the pod's {name}", {**spec, "affinity": rest}
    if spec.get("topologySpreadConstraints"):
        yield "take out the pod's topologySpreadConstraints", {**spec, "topologySpreadConstraints": []}
    tolerations = [*(spec.get("tolerations") or ()), {"operator": "Exists"}]
    yield "tolerate the nodes' taints", {**spec, "tolerations": tolerations}
