"""Reading a ResourceClaim: who may use it, what it was given, and what was asked of the devices.

Pure, and the only place that knows the shape of a claim. Objects come in v1 form, whatever the server speaks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dranet.driver.records.plan import PodRef
from dranet.model.errors import DranetError, InvalidInput, Problem
from dranet.model.names import DRIVER_NAME
from dranet.model.netconfig import NetworkConfig
from dranet.model.netconfig_merge import merge
from dranet.model.netconfig_parse import examine

Object = Mapping[str, Any]


class ClaimError(DranetError):
    """A claim that cannot be prepared as it stands."""


class Allotted(NamedTuple):
    """One device of ours that the scheduler gave to a claim."""

    request: str
    pool: str
    device: str
    share_id: str | None
    admin: bool
    consumed: Mapping[str, str] = {}
    """What of each capacity a share has; empty for a device that is not shared."""


def consumers(claim: Object) -> list[PodRef]:
    """The pods the claim is reserved for; none while nobody has reserved it."""
    reserved = claim.get("status", {}).get("reservedFor") or []
    for user in reserved:
        if user.get("resource") != "pods" or user.get("apiGroup"):
            kind = f"{user.get('apiGroup', '')}/{user.get('resource')}"
            raise ClaimError(f"reserved for {kind}, only pods can use a card")
    return [PodRef(uid=user["uid"], name=user["name"], namespace=claim["metadata"]["namespace"]) for user in reserved]


def allotted(claim: Object, driver: str = DRIVER_NAME) -> list[Allotted]:
    """Our devices in the order of the allocation."""
    allocation = claim.get("status", {}).get("allocation")
    if allocation is None:
        raise ClaimError("the claim is not allocated; the scheduler has to choose devices first")
    results = (allocation.get("devices") or {}).get("results") or []
    return [
        Allotted(
            r["request"],
            r["pool"],
            r["device"],
            r.get("shareID"),
            bool(r.get("adminAccess")),
            {name: str(amount) for name, amount in (r.get("consumedCapacity") or {}).items()},
        )
        for r in results
        if r["driver"] == driver
    ]


def of_other_drivers(claim: Object) -> list[tuple[str, str, str]]:
    """Driver, pool and name of the devices that others give to the claim: GPUs, for one."""
    results = (claim["status"]["allocation"].get("devices") or {}).get("results") or []
    return [(r["driver"], r["pool"], r["device"]) for r in results if r["driver"] != DRIVER_NAME]


def config_for(claim: Object, request: str, driver: str = DRIVER_NAME) -> NetworkConfig:
    """What claim and class ask for this request, the claim's words over the class's, field by field."""
    entries = _matching(claim, request, driver)
    problems: list[Problem] = []
    layers: dict[str, list[NetworkConfig]] = {"FromClaim": [], "FromClass": []}
    for number, entry in entries:
        config, found = examine((entry["opaque"].get("parameters")) or None)
        source = str(entry.get("source", "FromClaim"))
        layers.setdefault(source, []).append(config)
        problems += [Problem(f"config[{number}] ({source}) {p.path}".rstrip(), p.message) for p in found]
    if problems:
        raise InvalidInput(problems)
    return merge(*layers["FromClaim"], *layers["FromClass"])


def _matching(claim: Object, request: str, driver: str) -> Sequence[tuple[int, Object]]:
    """Entries for our driver that name this request, its parent request, or no request at all."""
    entries = claim["status"]["allocation"].get("devices", {}).get("config") or []
    parent = request.partition("/")[0]
    return [
        (number, entry)
        for number, entry in enumerate(entries)
        if (entry.get("opaque") or {}).get("driver") == driver
        and (not entry.get("requests") or {request, parent} & set(entry["requests"]))
    ]


def claims_of(pod: Object) -> set[str]:
    """The names of the claims that a pod uses, given by name or made from a template."""
    made = [status.get("resourceClaimName") for status in pod.get("status", {}).get("resourceClaimStatuses") or []]
    given = [entry.get("resourceClaimName") for entry in pod.get("spec", {}).get("resourceClaims") or []]
    return {str(name) for name in (*made, *given) if name}


def variables_of(pod: Object) -> tuple[str, ...]:
    """The variables that containers of the pod set one by one; what `envFrom` brings is not known here."""
    found = {str(one.get("name")) for container in _containers(pod) for one in container.get("env") or ()}
    return tuple(sorted(found))


def _containers(pod: Object) -> list[Object]:
    spec = pod.get("spec", {})
    return [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]


def named_by_containers(pod: Object, claim_name: str) -> bool:
    """Whether any container of the pod lists the claim among its resources."""
    spec = pod.get("spec", {})
    status = {s["name"]: s.get("resourceClaimName") for s in pod.get("status", {}).get("resourceClaimStatuses") or []}
    ours = {
        entry["name"]
        for entry in spec.get("resourceClaims") or []
        if claim_name in (entry.get("resourceClaimName"), status.get(entry["name"]))
    }
    return any(
        use["name"] in ours
        for container in _containers(pod)
        for use in (container.get("resources") or {}).get("claims") or []
    )
