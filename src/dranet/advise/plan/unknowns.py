"""What the input does not say about a request: a missing class, template or attribute is unknown, not absent.

A shape has the GPUs and NICs of a machine. It has no devices of other drivers, no partitions, and no attributes that
depend on the configuration of a node. Slices of a cluster have everything, so nothing is unknown there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from dranet.advise.manifests import Manifests, driver_attributes, known_classes, meant_class
from dranet.advise.plan.hardware import Hardware, PublishedDevice, hardware_of_shapes
from dranet.advise.plan.pending_pods import PendingPod
from dranet.advise.plan.selectors import SelectorTester, attributes_read, named_drivers
from dranet.core.attributes import IPV4, IPV6, MAC
from dranet.core.untyped import as_dict, as_dicts, as_list, get_path
from dranet.machines.shape import load_shape, shape_names
from dranet.scheduler.claims import request_classes

_EXAMPLES = (IPV4, IPV6, MAC, "gpu.nvidia.com/uuid")
"""Attributes whose values in a shape are those of an example."""
_SLICES = "describe the devices with --slices"


class Unknowns:
    """Answers for one input, each question once."""

    def __init__(self, manifests: Manifests, hardware: Hardware | None, tester: SelectorTester) -> None:
        self._manifests, self._tester = manifests, tester
        self._shape = hardware if hardware is not None and hardware.shaped else None
        self._classes: dict[str, str] = {}
        self._devices: dict[str, list[PublishedDevice]] = {}

    def of_pod(self, pod: PendingPod) -> str:
        """Why nothing is known about the placement of a pod; empty if something is."""
        return next(self._of_pod(pod), "")

    def _of_pod(self, pod: PendingPod) -> Iterator[str]:
        if not self._manifests.complete:
            yield from _missing_claims(pod)
        if pod.problem:
            return
        for one in pod.claims:
            for name, device_class in request_classes(one.claim):
                if device_class not in self._manifests.classes and (why := self.of_class(device_class)):
                    yield f"request {name}: {why}"
        for one in pod.claims:
            for request in as_dicts(get_path(one.claim, "spec", "devices", "requests")):
                yield from self._of_alternatives(request, list(_compared(one.claim, str(request.get("name")))))

    def _of_alternatives(self, request: Mapping[str, Any], compared: list[str]) -> Iterator[str]:
        """Of the alternatives of a request, one with known devices is enough."""
        found = []
        for fields in as_dicts(request.get("firstAvailable")) or [as_dict(request.get("exactly"))]:
            texts = [str(get_path(s, "cel", "expression") or "") for s in as_dicts(fields.get("selectors"))]
            found.append(self.of_request(str(fields.get("deviceClassName") or ""), texts, compared))
        if all(found):
            yield f"request {request.get('name')}: {found[0]}"

    def of_request(self, device_class: str, texts: Iterable[str], compared: Iterable[str] = ()) -> str:
        """Why the devices that a request may get are not known; empty if they are.

        ``texts`` are its selectors, ``compared`` the attributes of constraints that cover it.
        """
        return (
            self.of_class(device_class) or self._of_selectors(device_class, texts) or self._of(device_class, compared)
        )

    def of_class(self, name: str) -> str:
        """Why the devices of a class are not known; empty if they are."""
        if name not in self._classes:
            self._classes[name] = self._of_class(name)
        return self._classes[name]

    def _of_class(self, name: str) -> str:
        if name not in self._manifests.classes:
            return "" if self._manifests.complete else f"no DeviceClass {name!r} in the input; {class_hint(name)}"
        if self._shape is None or self._class_devices(name):
            return ""
        drivers = ", ".join(sorted(named_drivers(self._manifests.class_selectors[name])))
        of_driver = f" (driver {drivers})" if drivers else ""
        return f"the shape has no device of class {name!r}{of_driver}; describe these devices with --slices"

    def _class_devices(self, name: str) -> list[PublishedDevice]:
        if name not in self._devices:
            texts = self._manifests.class_selectors.get(name, ("false",))
            every = self._shape.devices if self._shape is not None else []
            self._devices[name] = [d for d in every if all(self._tester.verdict(text, d) is True for text in texts)]
        return self._devices[name]

    def _of_selectors(self, device_class: str, texts: Iterable[str]) -> str:
        if self._shape is None:
            return ""
        for text in texts:
            for _, name in attributes_read(text):
                missing = name not in self._shape.attribute_names and name not in _shape_facts(None)
                if missing or (name in _EXAMPLES and not self._any_match(device_class, text)):
                    return f"the shape does not have {'' if missing else 'your values of '}{name}; {_SLICES}"
        return ""

    def _any_match(self, device_class: str, text: str) -> bool:
        return any(self._tester.verdict(text, device) is True for device in self._class_devices(device_class))

    def _of(self, device_class: str, compared: Iterable[str]) -> str:
        """Attributes of constraints: those that a driver may publish, and that no shape has."""
        if self._shape is None:
            return ""
        for driver in {device.driver for device in self._class_devices(device_class)}:
            may_have = driver_attributes().get(driver, frozenset())
            for name in compared:
                if name in may_have - self._shape.published[driver] and name not in _shape_facts(driver):
                    return f"the shape does not have {name} of driver {driver}; {_SLICES}"
        return ""


def class_hint(name: str) -> str:
    """What a user does about a class that is not in the input."""
    meant = meant_class(name, known_classes())
    return meant or f"add its file with -f, or --assume-class {name}=DRIVER"


def _compared(claim: Mapping[str, Any], request: str) -> Iterator[str]:
    for constraint in as_dicts(get_path(claim, "spec", "devices", "constraints")):
        covered = as_list(constraint.get("requests"))
        if not covered or any(str(name).partition("/")[0] == request for name in covered):
            yield str(constraint.get("matchAttribute") or constraint.get("distinctAttribute") or "")


def _missing_claims(pod: PendingPod) -> Iterator[str]:
    known = {one.ref for one in pod.claims}
    for entry in as_dicts(pod.spec.get("resourceClaims")):
        template, claim = entry.get("resourceClaimTemplateName"), entry.get("resourceClaimName")
        if entry.get("name") not in known and (template or claim):
            kind = "ResourceClaimTemplate" if template else "ResourceClaim"
            name = str(template or claim)
            yield f"no {kind} {name!r} in namespace {pod.namespace} of the input; add its file with -f"


@cache
def _shape_facts(driver: str | None) -> frozenset[str]:
    """Attributes of a driver, or of all, that shapes have where machines have them: missing there, they are missing."""
    shapes = hardware_of_shapes((name, load_shape(name), 0) for name in shape_names())
    return shapes.attribute_names if driver is None else shapes.published.get(driver, frozenset())
