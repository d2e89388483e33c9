"""One object, three API versions: everything inside speaks v1, these pure functions speak to older servers.

v1 and v1beta2 have the same shape. v1beta1 (Kubernetes 1.32 and 1.33) differs in two places: device fields stand under
``basic``, and the fields of a request stand flat instead of under ``exactly``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dranet.kube.errors import ConfigError

GROUP = "resource.k8s.io"
PREFERENCE = ("v1", "v1beta2", "v1beta1")

_FLAT_REQUEST_FIELDS = (
    "deviceClassName",
    "selectors",
    "allocationMode",
    "count",
    "adminAccess",
    "tolerations",
    "capacity",
)


def choose(served: list[str]) -> str:
    """The version to speak with a server that serves these."""
    for version in PREFERENCE:
        if version in served:
            return version
    raise ConfigError(
        f"the API server serves {GROUP} in {', '.join(served) or 'no version'}; one of {', '.join(PREFERENCE)} is "
        "needed (Kubernetes 1.34 serves v1 by default; on 1.32 and 1.33 enable the API and the "
        "DynamicResourceAllocation feature gate)"
    )


def to_version(obj: Mapping[str, Any], version: str) -> dict[str, Any]:
    """A v1 object in the shape of ``version``."""
    out = {**obj, "apiVersion": f"{GROUP}/{version}"}
    return _reshape(out, _device_to_beta1, _request_to_beta1) if version == "v1beta1" else out


def from_version(obj: Mapping[str, Any], version: str) -> dict[str, Any]:
    """An object of ``version`` in the v1 shape."""
    out = {**obj, "apiVersion": f"{GROUP}/v1"}
    return _reshape(out, _device_from_beta1, _request_from_beta1) if version == "v1beta1" else out


def _reshape(obj: dict[str, Any], device: Any, request: Any) -> dict[str, Any]:
    kind = obj.get("kind")
    if kind == "ResourceSlice" and (obj.get("spec") or {}).get("devices"):
        obj["spec"] = {**obj["spec"], "devices": [device(item) for item in obj["spec"]["devices"]]}
    elif kind == "ResourceClaim" and obj.get("spec"):
        obj["spec"] = _reshape_claim_spec(obj["spec"], request)
    elif kind == "ResourceClaimTemplate" and (obj.get("spec") or {}).get("spec"):
        obj["spec"] = {**obj["spec"], "spec": _reshape_claim_spec(obj["spec"]["spec"], request)}
    return obj


def _reshape_claim_spec(spec: Mapping[str, Any], request: Any) -> dict[str, Any]:
    devices = spec.get("devices") or {}
    if not devices.get("requests"):
        return dict(spec)
    return {**spec, "devices": {**devices, "requests": [request(item) for item in devices["requests"]]}}


def _device_to_beta1(device: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": device["name"], "basic": {key: value for key, value in device.items() if key != "name"}}


def _device_from_beta1(device: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": device["name"], **(device.get("basic") or {})}


def _request_to_beta1(request: Mapping[str, Any]) -> dict[str, Any]:
    out = {key: value for key, value in request.items() if key != "exactly"}
    return {**out, **(request.get("exactly") or {})}


def _request_from_beta1(request: Mapping[str, Any]) -> dict[str, Any]:
    flat = {key: request[key] for key in _FLAT_REQUEST_FIELDS if key in request}
    out = {key: value for key, value in request.items() if key not in flat}
    return {**out, "exactly": flat} if flat else out
