"""Validation in the fake API server, with the real server's messages.

Only rules that a driver can break: the limits of slices (:mod:`dranet.core.slices`), immutable fields, and status
entries for devices that are not allocated to the claim.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

from dranet.core.device import Device
from dranet.core.errors import Problem
from dranet.core.slices import slice_problems

Object = dict[str, Any]

_REASONS = {
    400: "BadRequest",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
}
_CONDITIONS_MAX = 8
_IPS_MAX = 16


class Refusal(Exception):
    """An error response: code, message and, for invalid objects, the fields."""

    def __init__(self, code: int, message: str, *, reason: str = "", problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        causes = [{"reason": "FieldValueInvalid", "field": item.path, "message": item.message} for item in problems]
        self.code = code
        self.status: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "message": message,
            "reason": reason or _REASONS.get(code, "InternalError"),
            "details": {"causes": causes},
            "code": code,
        }


def check_slice(obj: Object, old: Object | None) -> None:
    """Raises Refusal for an invalid slice."""
    spec = obj["spec"]
    devices = [Device.from_api(raw) for raw in spec.get("devices") or ()]
    problems = [Problem(f"spec.{item.path}", item.message) for item in slice_problems(devices)]
    pool = spec.get("pool") or {}
    if not pool.get("name"):
        problems.append(Problem("spec.pool.name", "required"))
    if pool.get("resourceSliceCount", 0) < 1:
        problems.append(Problem("spec.pool.resourceSliceCount", "must be greater than zero"))
    if pool.get("generation", 0) < 0:
        problems.append(Problem("spec.pool.generation", "must be greater than or equal to zero"))
    if not spec.get("driver"):
        problems.append(Problem("spec.driver", "required"))
    if sum(bool(spec.get(name)) for name in ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")) != 1:
        problems.append(Problem("spec", "exactly one of nodeName, nodeSelector, allNodes, perDeviceNodeSelection"))
    problems += _changes(spec, old["spec"]) if old else []
    _refuse(obj, problems)


def _changes(spec: Object, old: Object) -> list[Problem]:
    fixed = {"spec.driver": (spec.get("driver"), old.get("driver"))}
    fixed["spec.nodeName"] = (spec.get("nodeName"), old.get("nodeName"))
    fixed["spec.pool.name"] = (spec["pool"].get("name"), old["pool"].get("name"))
    return [Problem(path, "field is immutable") for path, (new, before) in fixed.items() if new != before]


def check_claim(obj: Object, old: Object | None) -> None:
    """Raises Refusal for an invalid claim status."""
    status = obj.get("status") or {}
    held = {device_key(item) for item in ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()}
    problems: list[Problem] = []
    for index, item in enumerate(status.get("devices") or ()):
        path = f"status.devices[{index}]"
        if device_key(item) not in held:
            problems.append(Problem(path, "must be an allocated device in the claim"))
        problems += _device_status_problems(path, item)
    if old is not None and old.get("spec") != obj.get("spec"):
        problems.append(Problem("spec", "field is immutable"))
    _refuse(obj, problems)


def _device_status_problems(path: str, item: Object) -> list[Problem]:
    problems = []
    conditions, ips = item.get("conditions") or [], (item.get("networkData") or {}).get("ips") or []
    if len(conditions) > _CONDITIONS_MAX or len({entry["type"] for entry in conditions}) < len(conditions):
        problems.append(Problem(f"{path}.conditions", f"at most {_CONDITIONS_MAX}, each type once"))
    for number, entry in enumerate(conditions):
        if (
            not entry.get("reason")
            or not entry.get("lastTransitionTime")
            or entry.get("status") not in {"True", "False"}
        ):
            problems.append(Problem(f"{path}.conditions[{number}]", "needs status, reason and lastTransitionTime"))
    if len(ips) > _IPS_MAX:
        problems.append(Problem(f"{path}.networkData.ips", f"must have at most {_IPS_MAX} items"))
    return problems + [Problem(f"{path}.networkData.ips", f"{ip!r} is not in CIDR form") for ip in ips if not _cidr(ip)]


def _cidr(text: str) -> bool:
    try:
        return "/" in text and str(ipaddress.ip_interface(text)) == text
    except ValueError:
        return False


def device_key(item: Mapping[str, Any]) -> tuple[str, ...]:
    """The key of a device in a claim."""
    return item["driver"], item["pool"], item["device"], item.get("shareID") or ""


def _refuse(obj: Object, problems: Sequence[Problem]) -> None:
    if problems:
        text = "; ".join(map(str, problems))
        raise Refusal(422, f'{obj["kind"]} "{obj["metadata"]["name"]}" is invalid: {text}', problems=problems)
