"""Requests of the page: explain a pod, show a device, plan or lint a manifest.

They call the functions of the commands ``explain``, ``plan`` and ``lint`` with the objects of the cluster. Nothing is
applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from dranet.advise.explain import Explanation, explain, explain_held, explain_refusals, explanation_text
from dranet.advise.lint import lint
from dranet.advise.manifests import CLUSTER_FILE, Manifests, read_text
from dranet.advise.manifests import Object as Manifest
from dranet.advise.plan.hardware import Hardware
from dranet.advise.plan.jobs import rate_text
from dranet.advise.plan.planning import Plan, plan, rated_jobs
from dranet.advise.plan.quality import PlannedPod
from dranet.advise.plan.rails import rails_json
from dranet.core.errors import DranetError, InvalidInput, NotFound
from dranet.web.cluster import CLAIMS, CLASSES, NODES, PODS, TEMPLATES, ClusterObjects, Holder, Object, results
from dranet.web.layouts import places
from dranet.web.views import View, held_device, quality_view


def hardware(cluster: ClusterObjects, nodes: Iterable[str] | None = None) -> Hardware:
    """The machines, all of them or those named."""
    names = sorted(cluster.nodes_with_slices if nodes is None else nodes)
    slices = tuple(dict(item) for name in names for item in cluster.slices(name))
    return Hardware(slices, {name: cluster.machine(name) for name in names})


def node_details(cluster: ClusterObjects, node: str) -> View:
    """Every attribute and capacity of every device, by driver and name."""
    if node not in cluster.nodes_with_slices:
        raise NotFound(f"node {node!r} has no ResourceSlices")
    found: dict[str, View] = {}
    for item in cluster.slices(node):
        for device in item["spec"].get("devices") or ():
            attributes = {key: _plain(value) for key, value in (device.get("attributes") or {}).items()}
            capacity = {key: value.get("value") for key, value in (device.get("capacity") or {}).items()}
            key = f"{item['spec'].get('driver', '')}/{device['name']}"
            found[key] = {**dict(sorted(attributes.items())), **dict(sorted(capacity.items()))}
    return {"devices": found}


def explain_holder(cluster: ClusterObjects, holder: Holder) -> View:
    """The output of ``dranet explain``: why an allocated claim has its devices, or why another has none."""
    claims = cluster.claims_of(holder)
    pod = cluster.find(PODS, (holder.namespace, holder.name)) if holder.kind == PODS else None
    if not claims and pod is None:
        raise NotFound(f"{holder} no longer exists")
    held = [claim for claim in claims if results(claim)]
    try:
        found = [_explain_held(cluster, claim) for claim in held]
        if len(held) < len(claims) or not claims:
            found += _explain_waiting(cluster, pod, [claim for claim in claims if not results(claim)])
    except DranetError as error:
        return {"text": str(error)}
    return {"text": explanation_text(found)}


def _explain_held(cluster: ClusterObjects, claim: Object) -> Explanation:
    node = next((name for result in results(claim) if (name := cluster.node_of(result))), "")
    neighbours = cluster.claims_on(node) if node else []
    manifests = Manifests(_manifests([claim, *(other for other in neighbours if other is not claim)]))
    metadata = claim["metadata"]
    machines = hardware(cluster, [node] if node else [])
    return explain_held(manifests, machines, metadata.get("namespace") or "default", metadata["name"])


def _explain_waiting(cluster: ClusterObjects, pod: Object | None, waiting: list[Object]) -> list[Explanation]:
    """Explain a waiting pod; a claim without a pod is explained as if a pod used it."""
    asked = [pod] if pod is not None else waiting
    return explain(_world(cluster, _manifests(asked)), hardware(cluster))


def plan_manifest(cluster: ClusterObjects, text: str, file: str) -> View:
    """Where kube-scheduler would place the pods of a manifest now."""
    objects, problems = read_text(text, file)
    fatal = [str(problem) for problem in problems if problem.fatal]
    if fatal:
        raise InvalidInput("; ".join(fatal))
    machines, manifests = hardware(cluster), _world(cluster, objects)
    found = plan(manifests, machines)
    refused = explain_refusals(manifests, machines, EXPLAINED) if found.unschedulable else []
    return _plan_view(found, machines, {one.pod.name: explanation_text([one]) for one in refused})


def lint_manifest(cluster: ClusterObjects, text: str, file: str) -> View:
    """The findings of lint with these machines and the cluster's classes and templates."""
    objects, problems = read_text(text, file)
    findings = lint(_world(cluster, objects).objects, problems, hardware(cluster))
    return {"findings": [one.to_json() for one in findings if one.file == file]}


EXPLAINED = 3
"""Only so many unschedulable pods are explained; the others mostly fail for the same reason."""


def _plan_view(found: Plan, machines: Hardware, explained: Mapping[str, str]) -> View:
    return {
        "pods": [_planned(one, machines) for one in found.pods],
        "unschedulable": [
            {"name": one.pod.name, "reason": one.reason, "explanation": explained.get(one.pod.name, "")}
            for one in (*found.unschedulable, *found.unknown)
        ],
        "jobs": [
            {
                "workload": job.workload,
                "text": rate_text(*job.main),
                "certain": job.certain,
                "places": found.places[job.workload].lines() if job.workload in found.places else [],
            }
            for job in rated_jobs(found)
        ],
        "rails": [{"text": one["text"], "reachable": one["reachable"]} for one in rails_json(found)],
    }


def _planned(one: PlannedPod, machines: Hardware) -> View:
    """A planned pod in the format of a holder, so that the page draws both the same way."""
    node = one.placement.node
    at = places(machines.machines[node])
    claims = [
        {"name": pod_claim.ref, "devices": [held_device(result.raw, at) for result in devices]}
        for pod_claim, devices in zip(one.pod.claims, one.placement.devices, strict=True)
    ]
    key = f"plan {one.pod.namespace}/{one.pod.name}"
    return {"key": key, "node": node, "phase": "planned", "claims": claims, **quality_view(one.quality, at)}


def _world(cluster: ClusterObjects, asked: list[Manifest]) -> Manifests:
    """What is asked about, with everything of the cluster that bears on it: what a file holds itself comes first."""
    here = {(item.kind, item.namespace, item.name) for item in asked}
    wanted = {
        key for pod in Manifests(asked).pods for ref in pod.claims
        for key in ((TEMPLATES, pod.namespace, ref.template), (CLAIMS, pod.namespace, ref.claim))
    }  # fmt: skip
    around = _manifests(item for kind in (CLASSES, NODES) for item in cluster.objects(kind))
    around += _manifests(item for item in cluster.objects(CLAIMS) if results(item))
    named = _manifests(item for kind in (TEMPLATES, CLAIMS) for item in cluster.objects(kind) if not results(item))
    around += [item for item in named if (item.kind, item.namespace, item.name) in wanted]
    return Manifests([*(item for item in around if (item.kind, item.namespace, item.name) not in here), *asked])


def _manifests(items: Iterable[Object]) -> list[Manifest]:
    """Objects of the cluster as if they had been read from a file."""
    listed = {"apiVersion": "v1", "kind": "List", "items": list(items)}
    return read_text(msgspec.json.encode(listed).decode(), CLUSTER_FILE)[0]


def _plain(value: Mapping[str, Any]) -> Any:
    """The one value of an attribute, whatever its kind."""
    return next(iter(value.values()), None)
