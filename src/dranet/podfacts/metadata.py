"""Device metadata files (KEP-5304): what a container reads of its devices, at a path that every driver keeps.

One file for each request of a claim. It is a stream of JSON objects, the same data once for each version of the format,
newest first: a reader takes the first it knows, so both the library of 1.36 (alpha only) and later ones are served.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from dranet.model.limits import ATTRIBUTES_PER_DEVICE
from dranet.model.names import DRIVER_NAME
from dranet.podfacts.card import ClaimIdentity, PodCard

BASE = "/var/run/kubernetes.io/dra-device-attributes"
VERSIONS = ("metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1")
_MOST_ADDRESSES = 16


def request_folder(request: str) -> str:
    """Sub-requests share the folder of their request: a container names only that."""
    return request.partition("/")[0]


def container_path(claim: ClaimIdentity, request: str) -> str:
    """Where a container finds the file of a request."""
    if claim.pod_claim_name:
        kind, name = "resourceclaimtemplates", claim.pod_claim_name
    else:
        kind, name = "resourceclaims", claim.name
    return f"{BASE}/{kind}/{name}/{request_folder(request)}/{DRIVER_NAME}-metadata.json"


def stream(claim: ClaimIdentity, cards: Sequence[PodCard], *, generation: int = 1) -> bytes:
    """The file of one request: its cards, once for each version."""
    metadata = {"name": claim.name, "namespace": claim.namespace, "uid": claim.uid, "generation": generation}
    pod_claim = {"podClaimName": claim.pod_claim_name} if claim.pod_claim_name else {}
    names = sorted({card.request for card in cards})
    requests = [{"name": name, "devices": [_device(c) for c in cards if c.request == name]} for name in names]
    objects = (
        {"kind": "DeviceMetadata", "apiVersion": version, "metadata": metadata, **pod_claim, "requests": requests}
        for version in VERSIONS
    )
    return b"".join(msgspec.json.format(msgspec.json.encode(one), indent=2) + b"\n" for one in objects)


def _device(card: PodCard) -> dict[str, Any]:
    device: dict[str, Any] = {
        "driver": DRIVER_NAME,
        "pool": card.pool,
        "name": card.device,
        "attributes": _attributes(card),
    }
    if card.interface:
        network: dict[str, Any] = {"interfaceName": card.interface}
        if card.addresses:
            network["ips"] = list(dict.fromkeys(card.addresses))[:_MOST_ADDRESSES]
        if card.mac:
            network["hardwareAddress"] = card.mac
        device["networkData"] = network
    return device


def _attributes(card: PodCard) -> dict[str, Any]:
    """What the slice says, and what only the pod's side shows as far as the API's limit leaves room."""
    found = dict(card.attributes)
    extra: dict[str, Any] = {}
    if card.gid is not None:
        extra[f"{DRIVER_NAME}/gidIndex"] = {"int": card.gid.index}
        extra[f"{DRIVER_NAME}/gid"] = {"string": card.gid.text}
    if card.rdma_device:
        extra[f"{DRIVER_NAME}/rdmaDevice"] = {"string": card.rdma_device}
        extra[f"{DRIVER_NAME}/rdmaPort"] = {"int": card.port}
    if card.fabric:
        extra[f"{DRIVER_NAME}/fabric"] = {"string": card.fabric}
    for name, value in extra.items():
        if len(found) < ATTRIBUTES_PER_DEVICE or name in found:
            found[name] = value
    return dict(sorted(found.items()))
