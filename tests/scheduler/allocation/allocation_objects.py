"""Short ways to write slices, classes and claims."""

from __future__ import annotations

from typing import Any

DRIVER = "acme.example"
NODE = {"name": "node-1", "labels": {}}


def device(name: str, *, driver: str = DRIVER, memory: str = "", **fields: Any) -> dict[str, Any]:
    """Attributes by keyword (`numa=1`); other fields through `extra={...}`."""
    extra = fields.pop("extra", {})
    attributes = {key: _attribute(value) for key, value in fields.items()}
    capacity = {"memory": {"value": memory}} if memory else {}
    return {"name": name, "attributes": attributes, **({"capacity": capacity} if capacity else {}), **extra}


def _attribute(value: Any) -> dict[str, Any]:
    kind = "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "string"
    return {kind: value}


def slice_(
    pool: str, devices: list[dict[str, Any]], *, name: str = "", count: int = 1, generation: int = 1,
    driver: str = DRIVER, **spec: Any,
) -> dict[str, Any]:  # fmt: skip
    where = (
        {} if {"allNodes", "nodeSelector", "perDeviceNodeSelection", "nodeName"} & set(spec) else {"nodeName": "node-1"}
    )
    pool_spec = {"name": pool, "generation": generation, "resourceSliceCount": count}
    return {
        "metadata": {"name": name or f"slice-{driver}-{pool}"},
        "spec": {"driver": driver, "pool": pool_spec, **where, "devices": devices, **spec},
    }


def class_(name: str = "any", *selectors: str, config: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    expressions = selectors or (f'device.driver == "{DRIVER}"',)
    spec: dict[str, Any] = {"selectors": [{"cel": {"expression": one}} for one in expressions]}
    if config:
        spec["config"] = config
    return {"metadata": {"name": name}, "spec": spec}


def want(*selectors: str, count: int = 1, mode: str = "ExactCount", cls: str = "any", **extra: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"deviceClassName": cls, "allocationMode": mode, **extra}
    if mode == "ExactCount":
        body["count"] = count
    if selectors:
        body["selectors"] = [{"cel": {"expression": one}} for one in selectors]
    return body


def at_least(memory: str) -> str:
    return f'device.capacity["{DRIVER}"].memory.compareTo(quantity("{memory}")) >= 0'


def claim(name: str, constraints: list[dict[str, Any]] | None = None, **requests: Any) -> dict[str, Any]:
    """Requests by keyword: a dict is `exactly`, a list of (name, dict) is `firstAvailable`."""
    entries: list[dict[str, Any]] = []
    for request, body in requests.items():
        if isinstance(body, list):
            entries.append({"name": request, "firstAvailable": [{"name": sub, **one} for sub, one in body]})
        else:
            entries.append({"name": request, "exactly": body})
    devices: dict[str, Any] = {"requests": entries}
    if constraints:
        devices["constraints"] = constraints
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"devices": devices}}


def match(attribute: str, *requests: str) -> dict[str, Any]:
    return {"matchAttribute": f"{DRIVER}/{attribute}", **({"requests": list(requests)} if requests else {})}


def distinct(attribute: str, *requests: str) -> dict[str, Any]:
    return {"distinctAttribute": f"{DRIVER}/{attribute}", **({"requests": list(requests)} if requests else {})}


def taken(device_name: str, pool: str = "p", driver: str = DRIVER) -> dict[str, Any]:
    return {"driver": driver, "pool": pool, "device": device_name}
