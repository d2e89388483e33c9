"""Views of nodes and holders for the page: small, and equal if nothing visible has changed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from typing import Any

from dranet.advise.manifests import gpu_limits
from dranet.advise.plan.jobs import LIMIT_TEXTS
from dranet.advise.plan.quality import Figure, Quality, device_quality, quality_with_plugin
from dranet.core.device import FaultKind
from dranet.core.names import DRIVER_NAME
from dranet.core.untyped import as_strings, get_path
from dranet.machines.bandwidth import NoEstimate, is_direct
from dranet.machines.distance import Distance
from dranet.machines.machine import DeviceId, Machine, MachineDevice
from dranet.machines.topology_labels import labels_from_slices, topology_levels
from dranet.scheduler.allocation.shares import share_text
from dranet.web.cluster import (
    CLAIMS,
    KINDS,
    NODES,
    PODS,
    ClusterObjects,
    Holder,
    Object,
    WatchError,
    object_key,
    pool_key,
    results,
)
from dranet.web.jobs import job_of, measured_of
from dranet.web.layouts import layout, places

_ELSEWHERE_KEY = f"{DRIVER_NAME}/{FaultKind.NETDEV_ELSEWHERE}"
_BLOCKS = (
    "gce.dra.net/block",
    "azure.dra.net/interconnectGroupId",
    "azure.dra.net/placementGroupId",
    "oke.dra.net/networkBlockId",
)
"""Attributes with which clouds publish which machines are close to each other."""

View = dict[str, Any]


def node_view(cluster: ClusterObjects, node: str) -> tuple[View, tuple[str, View]]:
    """A node with its faults, and its layout. The views of holders tell which devices are in use."""
    machine = cluster.machine(node)
    key, plan = layout(machine)
    at = places(machine)
    view: View = {"name": node, "layout": key, **_unpublished(cluster, node, at), **_faults(cluster, node, at)}
    if block := block_of(cluster, node):
        view["block"] = block
    if problem := _problem(cluster, node):
        view["problem"] = problem
    return view, (key, plan)


def stale_view(errors: Mapping[str, WatchError]) -> View | None:
    """Since when the data may be stale, which kinds, and why; None if it is up to date."""
    if not errors:
        return None
    first = min(errors.values())
    since = first.since.astimezone(UTC).isoformat(timespec="seconds")
    return {"since": since, "kinds": [kind for kind in KINDS if kind in errors], "reason": first.reason}


def holder_view(cluster: ClusterObjects, holder: Holder) -> View | None:
    """A holder with its claims, devices and alignment; None if it no longer exists."""
    claims = cluster.claims_of(holder)
    pod = cluster.find(PODS, (holder.namespace, holder.name)) if holder.kind == PODS else None
    asked = ((pod or {}).get("spec") or {}).get("resourceClaims") or ()
    if not claims and not asked:
        return None
    node = node_of(cluster, pod, claims)
    machine = cluster.machine(node)
    at = places(machine)
    view: View = {
        "key": str(holder),
        "node": node,
        "phase": _phase(holder, pod, claims),
        "claims": [_claim(claim, at) for claim in claims],
    }
    if job := job_of(pod):
        view["job"] = job
    if measured := measured_of(pod):
        view["measured"] = measured
    return {**view, **quality_view(quality_of(machine, pod, claims), at)}


def quality_view(found: Quality, at: Mapping[DeviceId, int]) -> View:
    """Pairs by their index in the layout, and the expected bandwidth."""
    if not found.alignment.pairs:
        return {"pairs": [], "worst": ""}
    view: View = {
        "pairs": [
            {"gpu": at[pair.gpu.id], "nic": at[pair.nic.id], "distance": str(pair.distance), "direct": _direct(pair)}
            for pair in found.alignment.pairs
        ],
        "worst": str(found.alignment.worst),
        "busbw": None if found.busbw is None else round(found.busbw, 1),
        **_figure(found.expected),
        "of_best": None if found.of_best is None else round(found.of_best, 3),
    }
    if any(_direct(pair) is False for pair in found.alignment.pairs):
        view["misplaced"] = True
    if not found.certain:
        view["uncertain"] = True
    return view


def _direct(pair: Any) -> bool | None:
    return None if pair.distance is Distance.UNKNOWN else is_direct(pair)


def _figure(expected: Figure) -> View:
    """The assumptions of a figure, or why there is none."""
    if isinstance(expected, NoEstimate):
        return {"why": expected.reason}
    limits = f"{expected.range_text}; {LIMIT_TEXTS[expected.bound]}"
    return {"assumes": f"{expected.algorithm} among pods like this, {limits}"}


def quality_of(machine: Machine, pod: Object | None, claims: list[Object]) -> Quality:
    """The alignment of a holder's GPUs and NICs, and the expected bandwidth."""
    held = {(result["driver"], result["device"]) for claim in claims for result in results(claim)}
    gpus = [part for part in machine.gpus if part.id in held]
    nics = [part for part in machine.nics if part.id in held]
    wanted = sum(gpu_limits(dict((pod or {}).get("spec") or {})).values())
    free: list[MachineDevice] = [gpu for gpu in machine.gpus if gpu not in gpus]
    return quality_with_plugin(gpus, nics, free, wanted) if wanted and nics else device_quality(gpus, nics)


def _unpublished(cluster: ClusterObjects, node: str, at: Mapping[DeviceId, int]) -> View:
    """Allocated devices that the node does not publish."""
    pools = {pool_key(item) for item in cluster.slices(node)}
    found = [
        {"claim": "/".join(object_key(claim)), "name": result["device"]}
        for claim in cluster.claims_on(node)
        for result in sorted(results(claim), key=lambda result: str(result["device"]))
        if (result["driver"], result["pool"]) in pools and (result["driver"], result["device"]) not in at
        if not result.get("adminAccess")
    ]
    return {"unpublished": found} if found else {}


def _faults(cluster: ClusterObjects, node: str, at: Mapping[DeviceId, int]) -> View:
    """Taints by index, and devices whose interface is in another namespace."""
    taints: dict[int, list[str]] = {}
    for item in cluster.slices(node):
        for device in item["spec"].get("devices") or ():
            place = at.get((item["spec"].get("driver", ""), device["name"]))
            if place is not None and device.get("taints"):
                taints[place] = [_taint(taint) for taint in device["taints"]]
    found = [{"at": place, "taints": taints[place]} for place in sorted(taints)]
    away = [place for place in sorted(taints) if any(t.startswith(f"{_ELSEWHERE_KEY}:") for t in taints[place])]
    return {key: value for key, value in (("tainted", found), ("elsewhere", away)) if value}


def _taint(taint: Mapping[str, Any]) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key', '')}{value}:{taint.get('effect', '')}"


def block_of(cluster: ClusterObjects, node: str) -> str:
    """The cloud's name for the group of close machines; empty if unknown."""
    for item in cluster.slices(node):
        for device in item["spec"].get("devices") or ():
            attributes = device.get("attributes") or {}
            for name in _BLOCKS:
                if value := (attributes.get(name) or {}).get("string"):
                    return str(value)
    labels = node_labels(cluster, node)
    return labels[topology_levels([labels])[-1]] if topology_levels([labels]) else ""


def node_labels(cluster: ClusterObjects, node: str) -> dict[str, str]:
    """The node's labels, and attributes of its slices under the names of labels."""
    published = labels_from_slices(dict(item) for item in cluster.slices(node)).get(node, {})
    return {**published, **as_strings(get_path(dict(cluster.find(NODES, ("", node)) or {}), "metadata", "labels"))}


def _problem(cluster: ClusterObjects, node: str) -> str:
    """An incomplete pool, from which kube-scheduler allocates nothing."""
    pools: dict[tuple[str, str], list[Object]] = {}
    for item in cluster.slices(node):
        pools.setdefault(pool_key(item), []).append(item)
    for (driver, pool), items in sorted(pools.items()):
        expected = items[0]["spec"].get("pool", {}).get("resourceSliceCount") or 1
        if len(items) != expected:
            return f"pool {pool} of {driver} is incomplete: {len(items)} of {expected} slices"
    return ""


def node_of(cluster: ClusterObjects, pod: Object | None, claims: list[Object]) -> str:
    """The node of a holder; empty if it is not scheduled."""
    if pod is not None and (bound := (pod.get("spec") or {}).get("nodeName")):
        return str(bound)
    found = [cluster.node_of(result) for claim in claims for result in results(claim)]
    return next((node for node in found if node), "")


def _phase(holder: Holder, pod: Object | None, claims: list[Object]) -> str:
    if pod is not None:
        return str((pod.get("status") or {}).get("phase") or "Pending")
    allocated = bool(claims) and all(results(claim) for claim in claims)
    if holder.kind == CLAIMS:
        return "allocated, no pod" if allocated else "not allocated"
    return "reserved" if allocated else "Pending"


def _claim(claim: Object, at: Mapping[DeviceId, int]) -> View:
    view: View = {"name": claim["metadata"]["name"], "devices": [held_device(r, at) for r in results(claim)]}
    trouble = _trouble(claim)
    return {**view, "trouble": trouble} if trouble else view


def held_device(result: Mapping[str, Any], at: Mapping[DeviceId, int]) -> View:
    """A device of a claim by its index in the layout, or by name if it is not published."""
    place = at.get((result["driver"], result["device"]))
    view: View = {"request": result.get("request", "")}
    if share := share_text(result):
        view["share"] = share
    view |= {"name": result["device"]} if place is None else {"at": place}
    return {**view, "admin": True} if result.get("adminAccess") else view


def _trouble(claim: Object) -> list[str]:
    """Conditions with status False, by device."""
    entries = (claim.get("status") or {}).get("devices") or ()
    return [
        f"{entry.get('device', '')}: {condition.get('type', '')}: "
        f"{condition.get('message') or condition.get('reason', '')}"
        for entry in entries
        for condition in entry.get("conditions") or ()
        if condition.get("status") == "False"
    ]
