"""Answers to what a person asks the page: explain this pod, show this device, try this manifest here.

The same functions answer the command line's ``explain``, ``plan`` and ``lint``; this module only puts the cluster at
hand before them. Nothing is applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from dranet.lint.linting import lint
from dranet.manifests.claim_views import CLUSTER_FILE, World, world_of
from dranet.manifests.reading import Object as Manifest
from dranet.manifests.reading import read_text
from dranet.model.errors import DranetError, InvalidInput, NotFound
from dranet.predict.explain.explain_text import to_text
from dranet.predict.explain.explaining import Explanation, explain, explain_held, explain_refusals
from dranet.predict.hardware import Hardware
from dranet.predict.jobs.rails import rails_json
from dranet.predict.jobs.rates import sentence
from dranet.predict.planning import Plan, PlannedPod, jobs, plan
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
        raise NotFound(f"no node {node!r} has published anything")
    found: dict[str, View] = {}
    for item in cluster.slices(node):
        for device in item["spec"].get("devices") or ():
            attributes = {key: _plain(value) for key, value in (device.get("attributes") or {}).items()}
            capacity = {key: value.get("value") for key, value in (device.get("capacity") or {}).items()}
            key = f"{item['spec'].get('driver', '')}/{device['name']}"
            found[key] = {**dict(sorted(attributes.items())), **dict(sorted(capacity.items()))}
    return {"devices": found}


def explain_holder(cluster: ClusterObjects, holder: Holder) -> View:
    """What ``dranet explain`` says: of allocated claims why these devices, of others why none."""
    claims = cluster.claims_of(holder)
    pod = cluster.find(PODS, (holder.namespace, holder.name)) if holder.kind == PODS else None
    if not claims and pod is None:
        raise NotFound(f"{holder} is gone")
    held = [claim for claim in claims if results(claim)]
    try:
        found = [_explain_held(cluster, claim) for claim in held]
        if len(held) < len(claims) or not claims:
            found += _explain_waiting(cluster, pod, [claim for claim in claims if not results(claim)])
    except DranetError as error:
        return {"text": str(error)}
    return {"text": to_text(found)}


def _explain_held(cluster: ClusterObjects, claim: Object) -> Explanation:
    node = next((name for result in results(claim) if (name := cluster.node_of(result))), "")
    neighbours = cluster.claims_on(node) if node else []
    world = world_of(_manifests([claim, *(other for other in neighbours if other is not claim)]))
    metadata = claim["metadata"]
    machines = hardware(cluster, [node] if node else [])
    return explain_held(world, machines, metadata.get("namespace") or "default", metadata["name"])


def _explain_waiting(cluster: ClusterObjects, pod: Object | None, waiting: list[Object]) -> list[Explanation]:
    """The pod as the scheduler sees it now; a claim without a pod as if one wanted it."""
    asked = [pod] if pod is not None else waiting
    return explain(_world(cluster, _manifests(asked)), hardware(cluster))


def plan_manifest(cluster: ClusterObjects, text: str, file: str) -> View:
    """Where the pods of a manifest would land if it were applied now."""
    objects, problems = read_text(text, file)
    fatal = [str(problem) for problem in problems if problem.fatal]
    if fatal:
        raise InvalidInput("; ".join(fatal))
    machines, world = hardware(cluster), _world(cluster, objects)
    found = plan(world, machines)
    refused = explain_refusals(world, machines, EXPLAINED) if found.unschedulable else []
    return _plan_view(found, machines, {one.pod.name: to_text([one]) for one in refused})


def lint_manifest(cluster: ClusterObjects, text: str, file: str) -> View:
    """What lint finds in it, given these machines and the cluster's classes and templates."""
    objects, problems = read_text(text, file)
    findings = lint(_world(cluster, objects).objects, problems, hardware(cluster))
    return {"findings": [one.to_json() for one in findings if one.file == file]}


EXPLAINED = 3
"""Pods whose refusal is explained whole: those after them mostly lack the same."""


def _plan_view(found: Plan, machines: Hardware, explained: Mapping[str, str]) -> View:
    return {
        "pods": [_planned(one, machines) for one in found.pods],
        "unschedulable": [
            {"name": one.pod.name, "reason": one.reason, "explanation": explained.get(one.pod.name, "")}
            for one in found.unschedulable
        ],
        "jobs": [
            {
                "workload": job.workload,
                "text": sentence(*job.main),
                "certain": job.certain,
                "places": found.places[job.workload].lines() if job.workload in found.places else [],
            }
            for job in jobs(found)
        ],
        "rails": [{"text": one["text"], "reachable": one["reachable"]} for one in rails_json(found)],
    }


def _planned(one: PlannedPod, machines: Hardware) -> View:
    """A planned pod in the shape of a holder, so that the page draws both alike."""
    node = one.placement.node
    at = places(machines.machines[node])
    claims = [
        {"name": pod_claim.ref, "devices": [held_device(result, at) for result in devices]}
        for pod_claim, devices in zip(one.pod.claims, one.placement.devices, strict=True)
    ]
    key = f"plan {one.pod.namespace}/{one.pod.name}"
    return {"key": key, "node": node, "phase": "planned", "claims": claims, **quality_view(one.quality, at)}


def _world(cluster: ClusterObjects, asked: list[Manifest]) -> World:
    """What is asked about, with everything of the cluster that bears on it: what a file holds itself comes first."""
    here = {(item.kind, item.namespace, item.name) for item in asked}
    wanted = {
        key for pod in world_of(asked).pods for ref in pod.claims
        for key in ((TEMPLATES, pod.namespace, ref.template), (CLAIMS, pod.namespace, ref.claim))
    }  # fmt: skip
    around = _manifests(item for kind in (CLASSES, NODES) for item in cluster.objects(kind))
    around += _manifests(item for item in cluster.objects(CLAIMS) if results(item))
    named = _manifests(item for kind in (TEMPLATES, CLAIMS) for item in cluster.objects(kind) if not results(item))
    around += [item for item in named if (item.kind, item.namespace, item.name) in wanted]
    return world_of([*(item for item in around if (item.kind, item.namespace, item.name) not in here), *asked])


def _manifests(items: Iterable[Object]) -> list[Manifest]:
    """Objects of the cluster as if they had been read from a file."""
    listed = {"apiVersion": "v1", "kind": "List", "items": list(items)}
    return read_text(msgspec.json.encode(listed).decode(), CLUSTER_FILE)[0]


def _plain(value: Mapping[str, Any]) -> Any:
    """The one value of an attribute, whatever its kind."""
    return next(iter(value.values()), None)
