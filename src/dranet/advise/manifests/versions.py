"""Convert resource.k8s.io objects of any API version to v1, as an API server without strict validation stores them.

Unknown fields are dropped, as such a server does: a `config` in the wrong place is lost, and the plan must show the
result. Defaults are filled in. Values of a wrong type are dropped too, so that later code never sees them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dranet.advise.manifests.schema import (
    FLAT_REQUEST_FIELDS,
    RESOURCE,
    RESOURCE_GROUP,
    Schema,
    conforms,
    known_part,
)


def version_of(api_version: str) -> str | None:
    """``resource.k8s.io/v1beta1`` gives ``v1beta1``; other groups give None."""
    group, _, version = api_version.rpartition("/")
    return version if group == RESOURCE_GROUP else None


def is_served(api_version: str) -> bool:
    """Whether a server that plans can be made for serves this version of resource.k8s.io."""
    version = version_of(api_version)
    return version is None or version in RESOURCE


def to_v1(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A claim, template, class or slice as v1; unknown versions are read as v1."""
    kind = str(raw.get("kind"))
    version = version_of(str(raw.get("apiVersion"))) or "v1"
    schemas = RESOURCE.get(version, RESOURCE["v1"])
    if kind not in schemas:
        return dict(raw)
    made: dict[str, Any] = _known_part(raw, schemas[kind])
    made["apiVersion"] = f"{RESOURCE_GROUP}/v1"
    made["metadata"] = {"name": "", **_metadata(made.get("metadata"))}
    spec = made.get("spec")
    made["spec"] = spec if isinstance(spec, dict) else {}
    if kind == "ResourceSlice" and version == "v1beta1":
        made["spec"] = {**made["spec"], "devices": [_device(device) for device in made["spec"].get("devices") or ()]}
    if kind == "ResourceClaim":
        made["spec"] = _claim_spec(made["spec"], version)
    if kind == "ResourceClaimTemplate":
        made["spec"] = {**made["spec"], "spec": _claim_spec(made["spec"].get("spec") or {}, version)}
    return made


def _known_part(raw: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """The part of an object that the schema has. An object that conforms is not copied, because copying the objects of
    a large cluster takes longer than planning on it: so nothing below `to_v1` may change values in place."""
    if conforms(raw, schema):
        return dict(raw)
    made: dict[str, Any] = known_part(raw, schema)
    return made


def _metadata(value: Any) -> dict[str, Any]:
    """Metadata without names that are not text."""
    entries = value.items() if isinstance(value, Mapping) else ()
    return {key: inner for key, inner in entries if key not in _NAMES or isinstance(inner, str)}


_NAMES = ("name", "namespace", "generateName")


def _device(device: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": device.get("name", ""), **(device.get("basic") or {})}


def _claim_spec(spec: Mapping[str, Any], version: str) -> dict[str, Any]:
    devices = spec.get("devices") or {}
    requests = [_request(request, version) for request in devices.get("requests") or ()]
    return {**spec, "devices": {**devices, "requests": requests}}


def _request(request: Mapping[str, Any], version: str) -> dict[str, Any]:
    made = {"name": "", **(_nested(request) if version == "v1beta1" else request)}
    if made.get("firstAvailable"):
        made["firstAvailable"] = [_defaults({"name": "", **part}) for part in made["firstAvailable"]]
    if "exactly" in made:
        made["exactly"] = _defaults(made["exactly"])
    return made


def _nested(request: Mapping[str, Any]) -> dict[str, Any]:
    flat = {key: request[key] for key in FLAT_REQUEST_FIELDS if key in request}
    rest = {key: value for key, value in request.items() if key not in flat}
    return {**rest, "exactly": flat} if flat else rest


def _defaults(part: Mapping[str, Any]) -> dict[str, Any]:
    made = {"allocationMode": "ExactCount", **part}
    return {"count": 1, **made} if made["allocationMode"] == "ExactCount" else made
