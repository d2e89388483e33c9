"""Nodes that do not take a pod whatever its claims are, and what in the pod would change that.

Taints, selectors, amounts and the like come before devices: a node that is ruled out by them has enough of everything,
and a claim that is blamed for it would be changed for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from dranet.model.untyped import at, mapping, texts
from dranet.predict.explain.relaxing import Change
from dranet.predict.placing import Scheduler
from dranet.predict.pods_to_place import Pod

_SELECTOR = "node(s) didn't match Pod's node affinity/selector"


def ruled_out_nodes(scheduler: Scheduler, pod: Pod) -> dict[str, str]:
    """By node, why it does not even take the pod without its claims."""
    verdict = scheduler.decide(replace(pod, claims=()))
    return {
        name: _because(scheduler, pod, name, ", ".join(rejection.reasons))
        for alike, rejection in verdict.rejected
        for name in alike.names
    }


def _because(scheduler: Scheduler, pod: Pod, node: str, reasons: str) -> str:
    if scheduler.nodes[node].cordoned:
        return "cordoned, perhaps drained: no pod is scheduled there until kubectl uncordon"
    for resource, count in pod.plugin_gpus.items():
        free = scheduler.nodes[node].plugin_free(resource)
        if free is not None and free < count and reasons == f"Insufficient {resource}":
            return f"{reasons}: {count} wanted, {free} free"
    wanted = texts(pod.spec.get("nodeSelector"))
    labels = scheduler.nodes[node].labels
    missing = [f"{key}={value}" for key, value in wanted.items() if labels.get(key) != value]
    if reasons == _SELECTOR and missing:
        has = [f"{key}={labels[key]}" for key in wanted if key in labels and labels[key] != wanted[key]]
        return f"its nodeSelector asks for {', '.join(missing)}; the node has {', '.join(has) or 'no such label'}"
    return f"{reasons}: whatever its claims are"


def pod_changes(scheduler: Scheduler, pod: Pod) -> Iterator[Change]:
    """Changes of the pod itself that would give it a node, claims and all."""
    for text, spec in _edits(pod.spec):
        verdict = scheduler.decide(replace(pod, spec=spec))
        taking = {name for place in verdict.places for name in place.alike.names}
        nodes = tuple(name for name in scheduler.nodes if name in taking)
        if nodes:
            yield Change(text, nodes)


def _edits(spec: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    selector = texts(spec.get("nodeSelector"))
    for key, value in selector.items():
        rest = {k: v for k, v in selector.items() if k != key}
        yield f"take {key}: {value} out of the pod's nodeSelector", {**spec, "nodeSelector": rest}
    if at(spec, "affinity", "nodeAffinity"):
        rest = {k: v for k, v in mapping(spec.get("affinity")).items() if k != "nodeAffinity"}
        yield "take out the pod's node affinity", {**spec, "affinity": rest}
    for key, name in (("podAffinity", "affinity to other pods"), ("podAntiAffinity", "anti-affinity to other pods")):
        if at(spec, "affinity", key):
            rest = {k: v for k, v in mapping(spec.get("affinity")).items() if k != key}
            yield f"take out the pod's {name}", {**spec, "affinity": rest}
    if spec.get("topologySpreadConstraints"):
        yield "take out the pod's topologySpreadConstraints", {**spec, "topologySpreadConstraints": []}
    tolerations = [*(spec.get("tolerations") or ()), {"operator": "Exists"}]
    yield "tolerate the nodes' taints", {**spec, "tolerations": tolerations}
