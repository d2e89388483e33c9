"""Read a ResourceClaim: its pods, its allocated devices, and the configuration of each request.

The only module that knows the structure of a claim. Objects are in v1 form, whatever version the server has.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from dranet.cel.device_match import device_matches
from dranet.core.errors import DranetError, InvalidInput, Problem
from dranet.core.names import DRIVER_NAME, ClaimRef
from dranet.core.netconfig import NetworkConfig
from dranet.core.netconfig_merge import merge
from dranet.core.netconfig_parse import administrator_fields, parse_leniently
from dranet.core.per_device import resolve
from dranet.node.records.plan import PodRef

Object = Mapping[str, Any]

_ADMINISTRATORS = "only a DeviceClass or a profile may set this, not a claim (docs/concepts/security.md)"


class ClaimError(DranetError):
    """A claim that cannot be prepared in its current state."""


class ClusterReader(Protocol):
    """What claims need from the API server."""

    async def claim(self, namespace: str, name: str) -> Object: ...

    async def pod(self, namespace: str, name: str) -> Object | None: ...

    async def pci_addresses(self, node: str, devices: Collection[tuple[str, str, str]]) -> list[str]: ...


class AllocatedDevice(NamedTuple):
    """One device of this driver that the scheduler allocated to a claim."""

    request: str
    pool: str
    device: str
    share_id: str | None
    admin: bool
    consumed: Mapping[str, str] = {}
    """The part of each capacity that a share has; empty for a device that is not shared."""


def claim_ref(claim: Object) -> ClaimRef:
    """Namespace, name and UID of a claim."""
    metadata = claim["metadata"]
    return ClaimRef(metadata["namespace"], metadata["name"], metadata["uid"])


def reserved_pods(claim: Object) -> list[PodRef]:
    """The pods that the claim is reserved for."""
    reserved = claim.get("status", {}).get("reservedFor") or []
    for user in reserved:
        if user.get("resource") != "pods" or user.get("apiGroup"):
            kind = f"{user.get('apiGroup', '')}/{user.get('resource')}"
            raise ClaimError(f"reserved for {kind}, but only pods can use network devices")
    return [PodRef(uid=user["uid"], name=user["name"], namespace=claim["metadata"]["namespace"]) for user in reserved]


def allocated_devices(claim: Object, driver: str = DRIVER_NAME) -> list[AllocatedDevice]:
    """The devices of this driver in the order of the allocation."""
    allocation = claim.get("status", {}).get("allocation")
    if allocation is None:
        raise ClaimError("the claim is not allocated; the scheduler has to choose devices first")
    results = (allocation.get("devices") or {}).get("results") or []
    return [
        AllocatedDevice(
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


def devices_of_other_drivers(claim: Object) -> list[tuple[str, str, str]]:
    """Driver, pool and name of the claim's devices of other drivers, such as GPUs."""
    results = (claim["status"]["allocation"].get("devices") or {}).get("results") or []
    return [(r["driver"], r["pool"], r["device"]) for r in results if r["driver"] != DRIVER_NAME]


def device_config(
    claim: Object, item: AllocatedDevice, attributes: Mapping[str, Any], *, trust_author: bool = False
) -> NetworkConfig:
    """The configuration of an allocated device that publishes these attributes."""
    places = [(one.pool, one.device) for one in allocated_devices(claim)]
    ordinal = places.index((item.pool, item.device))
    return network_config(claim, item.request, attributes, ordinal, trust_author=trust_author)


def network_config(
    claim: Object,
    request: str,
    attributes: Mapping[str, Any],
    ordinal: int = 0,
    driver: str = DRIVER_NAME,
    *,
    trust_author: bool = False,
) -> NetworkConfig:
    """The configuration of a request: fields of the claim override fields of the DeviceClass.

    Parameters by device are resolved in each entry first, so that a claim overrides all of its class. A claim that sets
    a field of administrators, for one device or for all, is refused, unless its author is trusted with them.
    """
    problems: list[Problem] = []
    layers: dict[str, list[NetworkConfig]] = {"FromClaim": [], "FromClass": []}
    for number, entry in _matching_entries(claim, request, driver):
        config, found = parse_leniently((entry["opaque"].get("parameters")) or None)
        source = str(entry.get("source", "FromClaim"))
        if not found:
            config, found = _resolved(config, attributes, ordinal)
        if source != "FromClass" and not trust_author:
            found = [*found, *(Problem(path, _ADMINISTRATORS) for path in administrator_fields(config))]
        layers.setdefault(source, []).append(config)
        problems += [Problem(f"config[{number}] ({source}) {p.path}".rstrip(), p.message) for p in found]
    if problems:
        raise InvalidInput(problems)
    return merge(*layers["FromClaim"], *layers["FromClass"])


def _resolved(
    config: NetworkConfig, attributes: Mapping[str, Any], ordinal: int
) -> tuple[NetworkConfig, list[Problem]]:
    try:
        return resolve(config, attributes, ordinal, device_matches), []
    except InvalidInput as error:
        return config, list(error.problems)


def _matching_entries(claim: Object, request: str, driver: str) -> Sequence[tuple[int, Object]]:
    """Entries of this driver that name the request or its parent request, or that name no request."""
    entries = claim["status"]["allocation"].get("devices", {}).get("config") or []
    parent = request.partition("/")[0]
    return [
        (number, entry)
        for number, entry in enumerate(entries)
        if (entry.get("opaque") or {}).get("driver") == driver
        and (not entry.get("requests") or {request, parent} & set(entry["requests"]))
    ]


def claim_names(pod: Object) -> set[str]:
    """The claims that a pod uses, named directly or created from a template."""
    from_templates = [s.get("resourceClaimName") for s in pod.get("status", {}).get("resourceClaimStatuses") or []]
    direct = [entry.get("resourceClaimName") for entry in pod.get("spec", {}).get("resourceClaims") or []]
    return {str(name) for name in (*from_templates, *direct) if name}


def container_variables(pod: Object) -> tuple[str, ...]:
    """The variables that containers of the pod set with `env`; those of `envFrom` are not known here."""
    return tuple(sorted({str(one.get("name")) for container in _containers(pod) for one in container.get("env") or ()}))


def _containers(pod: Object) -> list[Object]:
    spec = pod.get("spec", {})
    return [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]


def named_by_containers(pod: Object, claim_name: str) -> bool:
    """Whether any container of the pod lists the claim among its resources."""
    spec = pod.get("spec", {})
    status = {s["name"]: s.get("resourceClaimName") for s in pod.get("status", {}).get("resourceClaimStatuses") or []}
    aliases = {
        entry["name"]
        for entry in spec.get("resourceClaims") or []
        if claim_name in (entry.get("resourceClaimName"), status.get(entry["name"]))
    }
    return any(
        use["name"] in aliases
        for container in _containers(pod)
        for use in (container.get("resources") or {}).get("claims") or []
    )
