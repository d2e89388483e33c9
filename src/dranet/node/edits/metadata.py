"""Device metadata files (KEP-5304): what a container reads about its devices, at the path that the KEP defines.

There is one file for each request of a claim. It is a stream of JSON objects, the same data once for each version of
the format, newest first: a reader takes the first version it knows, so the library of 1.36 (alpha only) and later ones
work. The files of a claim are in a folder of its UID, so that deleting a claim cannot remove the files of a new claim
with the same name.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from dranet.core.logs import get_logger
from dranet.core.names import DRIVER_NAME
from dranet.core.slices import ATTRIBUTES_PER_DEVICE
from dranet.node.edits.container_edits import Mount, write_file
from dranet.node.edits.pod_device import ClaimIdentity, PodDevice
from dranet.node.records.plan import ClaimPlan

log = get_logger(__name__)

_BASE = "/var/run/kubernetes.io/dra-device-attributes"
VERSIONS = ("metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1")
_MAX_ADDRESSES = 16


def write_metadata(folder: Path, plan: ClaimPlan, devices: Sequence[PodDevice]) -> tuple[Mount, ...]:
    """Write one file for each request; returns the mounts that bring them into containers."""
    claim = ClaimIdentity(plan.namespace, plan.name, plan.uid, plan.pod_claim)
    requests = sorted({_request_folder(device.request) for device in devices})
    try:
        return tuple(_write(folder, claim, request, devices) for request in requests)
    except OSError as error:
        # The files are only information, so the pod starts without them.
        log.warning("Cannot write device metadata for containers", claim=plan.ref, error=error)
        return ()


def _write(folder: Path, claim: ClaimIdentity, request: str, devices: Sequence[PodDevice]) -> Mount:
    path = folder / claim.uid / f"{request}.json"
    write_file(path, stream(claim, [device for device in devices if _request_folder(device.request) == request]))
    return Mount(str(path), container_path(claim, request))


def _request_folder(request: str) -> str:
    """A container names a request, so the sub-requests of a request share its folder."""
    return request.partition("/")[0]


def container_path(claim: ClaimIdentity, request: str) -> str:
    """Where a container finds the file of a request."""
    if claim.pod_claim_name:
        kind, name = "resourceclaimtemplates", claim.pod_claim_name
    else:
        kind, name = "resourceclaims", claim.name
    return f"{_BASE}/{kind}/{name}/{_request_folder(request)}/{DRIVER_NAME}-metadata.json"


def stream(claim: ClaimIdentity, devices: Sequence[PodDevice], *, generation: int = 1) -> bytes:
    """The file of one request: its devices, once for each version."""
    metadata = {"name": claim.name, "namespace": claim.namespace, "uid": claim.uid, "generation": generation}
    pod_claim = {"podClaimName": claim.pod_claim_name} if claim.pod_claim_name else {}
    names = sorted({device.request for device in devices})
    requests = [{"name": name, "devices": [_device(d) for d in devices if d.request == name]} for name in names]
    objects = (
        {"kind": "DeviceMetadata", "apiVersion": version, "metadata": metadata, **pod_claim, "requests": requests}
        for version in VERSIONS
    )
    return b"".join(msgspec.json.format(msgspec.json.encode(one), indent=2) + b"\n" for one in objects)


def _device(device: PodDevice) -> dict[str, Any]:
    found: dict[str, Any] = {
        "driver": DRIVER_NAME,
        "pool": device.pool,
        "name": device.device,
        "attributes": _attributes(device),
    }
    if device.interface:
        network: dict[str, Any] = {"interfaceName": device.interface}
        if device.addresses:
            network["ips"] = list(dict.fromkeys(device.addresses))[:_MAX_ADDRESSES]
        if device.mac:
            network["hardwareAddress"] = device.mac
        found["networkData"] = network
    return found


def _attributes(device: PodDevice) -> dict[str, Any]:
    """The published attributes, and those known only in the pod as far as the API's limit allows."""
    found = dict(device.attributes)
    extra: dict[str, Any] = {}
    if device.gid is not None:
        extra[f"{DRIVER_NAME}/gidIndex"] = {"int": device.gid.index}
        extra[f"{DRIVER_NAME}/gid"] = {"string": device.gid.text}
    if device.rdma_device:
        extra[f"{DRIVER_NAME}/rdmaDevice"] = {"string": device.rdma_device}
        extra[f"{DRIVER_NAME}/rdmaPort"] = {"int": device.port}
    if device.fabric:
        extra[f"{DRIVER_NAME}/fabric"] = {"string": device.fabric}
    for name, value in extra.items():
        if len(found) < ATTRIBUTES_PER_DEVICE or name in found:
            found[name] = value
    return dict(sorted(found.items()))
