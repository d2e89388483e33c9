"""The slices that a machine will publish, before it exists, in the forms that autoscalers read.

Values that differ from one boot to the next are omitted: addresses, UUIDs, identifiers of a cloud's network and racks.
Device names, PCIe roots, NUMA nodes and kinds stay: claims select by them. Bindings express the roots without naming
them: "these devices will share this attribute".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dranet.core import attributes as attr
from dranet.machines.shape import Shape
from dranet.machines.shape_devices import shape_slices

_PER_BOOT = {attr.MAC, attr.IPV4, attr.IPV6, attr.ALIAS, attr.STATE, "uuid"}
_KEPT_OF_CLOUDS = ("/machineType", "/vmSize", "/instanceType", "/erdma", "/networkName")
_BOUND = (attr.PCIE_ROOT, attr.STANDARD_NUMA_NODE)


def node_template(shape: Shape, form: str, node: str = "NODE") -> list[dict[str, Any]]:
    """The objects of one form; ``node`` stands for the name the node will have."""
    slices = [_lasting(raw) for raw in shape_slices(shape, node)]
    if form == "slices":
        return slices
    return [_karpenter(shape, slices)] if form == "karpenter" else [_dra_config(shape, raw) for raw in _drivers(slices)]


def _lasting(raw: Mapping[str, Any]) -> dict[str, Any]:
    spec = raw["spec"]
    devices = [
        {**device, "attributes": {k: v for k, v in (device.get("attributes") or {}).items() if _lasts(k)}}
        for device in spec.get("devices") or ()
    ]
    return {**raw, "spec": {**spec, "devices": devices}}


def _lasts(name: str) -> bool:
    of_cloud = "." in name.partition("/")[0] and name.partition("/")[0] not in {"dra.net", attr.STANDARD_DOMAIN}
    return name not in _PER_BOOT and (not of_cloud or name.endswith(_KEPT_OF_CLOUDS))


def _karpenter(shape: Shape, slices: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The fields of Karpenter's DynamicResources, which a cloud provider gives with an instance type."""
    listed = list(slices)
    templates = [
        {
            "driver": raw["spec"]["driver"],
            "pool": {"name": raw["spec"]["pool"]["name"]},
            "devices": raw["spec"]["devices"],
        }
        for raw in listed
    ]
    return {
        "instanceType": shape.name,
        "dynamicResources": {"resourceSliceTemplates": templates, "attributeBindings": list(_bindings(listed))},
    }


def _bindings(slices: Iterable[Mapping[str, Any]]) -> Iterable[dict[str, Any]]:
    for name in _BOUND:
        sharing: dict[str, list[dict[str, str]]] = {}
        for raw in slices:
            spec = raw["spec"]
            for device in spec["devices"]:
                if (value := device["attributes"].get(name)) is not None:
                    place = {"driver": spec["driver"], "pool": spec["pool"]["name"], "device": device["name"]}
                    sharing.setdefault(str(value), []).append(place)
        yield from ({"attribute": name, "devices": devices} for devices in sharing.values() if len(devices) > 1)


def _drivers(slices: Iterable[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Slices by driver."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for raw in slices:
        found.setdefault(raw["spec"]["driver"], []).append(raw)
    return list(found.values())


def _dra_config(shape: Shape, slices: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Karpenter's own test object: a driver that publishes these devices on nodes of the type."""
    driver = slices[0]["spec"]["driver"]
    terms = [{"matchExpressions": [_of_type(shape)]}]
    published = [{"devices": raw["spec"]["devices"]} for raw in slices]
    return {
        "apiVersion": "test.karpenter.sh/v1alpha1",
        "kind": "DRAConfig",
        "metadata": {"name": f"{shape.name}-{driver}".replace("/", "-")},
        "spec": {
            "driver": driver,
            "pools": [{"name": shape.name, "nodeSelectorTerms": terms, "resourceSlices": published}],
        },
    }


def _of_type(shape: Shape) -> dict[str, Any]:
    return {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [shape.name]}
