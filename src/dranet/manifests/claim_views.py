"""Claims as rules and plans look at them: requests with the place of every part, whatever API version they are in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import msgspec

from dranet.manifests.classes import known_classes
from dranet.manifests.reading import Object
from dranet.manifests.versions import to_v1
from dranet.manifests.workload_kinds.compute_domain import made_template
from dranet.manifests.workloads import ClaimSource, LeftOut, PodSpec, mapping, reach, read_workloads, sequence
from dranet.manifests.yaml_nodes import FieldPath
from dranet.model.errors import InvalidInput, Problem
from dranet.model.quantity import QuantityError, parse_quantity

CLUSTER_FILE = "<cluster>"
"""Stands for a file where objects were read from a cluster."""


class Selector(msgspec.Struct, frozen=True):
    """A CEL expression and where it stands."""

    owner: Object
    path: FieldPath
    text: str


class Request(msgspec.Struct, frozen=True):
    """What one (sub)request of a claim asks for."""

    name: str
    """``req``, or ``req/sub`` for an alternative of firstAvailable."""
    path: FieldPath
    """Where its fields stand (below ``exactly`` where there is one)."""
    device_class: str
    count: int
    mode: str
    selectors: tuple[Selector, ...]
    fields: dict[str, Any]
    """Everything it says, as written."""

    @property
    def parent(self) -> str:
        """The name of the request itself."""
        return self.name.partition("/")[0]


class Claim(msgspec.Struct, frozen=True):
    """A ResourceClaim or the claim inside a ResourceClaimTemplate."""

    owner: Object
    base: FieldPath
    """Where its ``devices`` stands."""
    requests: tuple[Request, ...]
    constraints: tuple[dict[str, Any], ...]
    configs: tuple[dict[str, Any], ...]
    v1: dict[str, Any]
    """The whole object as a server stores it."""

    def constrained(self, request: Request, constraint: dict[str, Any]) -> bool:
        """Whether a constraint covers a request."""
        names = constraint.get("requests") or []
        return not names or request.name in names or request.parent in names


@dataclass(frozen=True)
class World:
    """All objects at hand, looked at from every side."""

    objects: tuple[Object, ...]
    """What the question is about."""
    background: tuple[Object, ...] = ()
    """What is there anyway: the objects of a cluster. They are looked up, and never planned or linted themselves."""

    @cached_property
    def everything(self) -> tuple[Object, ...]:
        """Background first: what is asked about comes later and wins."""
        return (*self.background, *self.objects)

    @cached_property
    def pods(self) -> list[PodSpec]:
        """Every group of pods."""
        return self._workloads[0]

    @cached_property
    def left_out(self) -> list[LeftOut]:
        """Objects no pods come of, each with the reason."""
        return self._workloads[1]

    @cached_property
    def _workloads(self) -> tuple[list[PodSpec], list[LeftOut]]:
        return read_workloads(self.objects, self.background)

    @cached_property
    def claims(self) -> list[Claim]:
        """Every claim and template the question is about."""
        return [claim for obj in self.objects if (claim := _claim(obj)) is not None]

    @cached_property
    def all_claims(self) -> list[Claim]:
        """Those of the background too, and those that controllers make."""
        made = [template for obj in self.everything if (template := made_template(obj)) is not None]
        return [claim for obj in (*made, *self.background) if (claim := _claim(obj)) is not None] + self.claims

    @cached_property
    def classes(self) -> dict[str, dict[str, Any]]:
        """Classes by name in v1 shape: those of the input that a server accepts, and the usual ones beside them.

        Of a cluster all classes are read: there the usual ones are not taken for granted.
        """
        found = [obj for obj in self.everything if obj.kind == "DeviceClass" and not empty_selectors(obj, ("spec",))]
        usual = {} if any(obj.file == CLUSTER_FILE for obj in self.everything) else known_classes()
        return usual | {obj.name: to_v1(obj.data) for obj in found}

    @cached_property
    def class_texts(self) -> dict[str, tuple[str, ...]]:
        """The expressions of every class, in order."""
        raw = {name: sequence(mapping(made.get("spec")).get("selectors")) for name, made in self.classes.items()}
        return {
            name: tuple(str(mapping(mapping(entry).get("cel")).get("expression", "")) for entry in entries)
            for name, entries in raw.items()
        }

    @cached_property
    def by_kind(self) -> dict[str, list[Object]]:
        """All objects, those of the background first, by kind."""
        found: dict[str, list[Object]] = {}
        for obj in self.everything:
            found.setdefault(obj.kind, []).append(obj)
        return found

    @cached_property
    def controllers(self) -> dict[tuple[str, str, str], Object]:
        """ReplicaSets and StatefulSets by kind, namespace and name: what spreads the pods they own."""
        found = [*self.by_kind.get("ReplicaSet", ()), *self.by_kind.get("StatefulSet", ())]
        return {(obj.kind, obj.namespace, obj.name): obj for obj in found}

    @cached_property
    def slices(self) -> list[dict[str, Any]]:
        """ResourceSlices among the objects, in v1 shape; those that lack what every slice has are left out."""
        return [raw for _, raw, problems in self._read_slices if not problems]

    def checked_slices(self) -> list[dict[str, Any]]:
        """The same, but a slice that cannot be used is an error."""
        wrong = [(obj, path, text) for obj, _, problems in self._read_slices for path, text in problems]
        if wrong:
            raise InvalidInput([Problem(_place(obj, path), text) for obj, path, text in wrong])
        return self.slices

    @cached_property
    def _read_slices(self) -> list[tuple[Object, dict[str, Any], list[tuple[FieldPath, str]]]]:
        return [(obj, *_read_slice(obj)) for obj in self.everything if obj.kind == "ResourceSlice"]

    def claim_of(self, pod: PodSpec, ref: ClaimSource) -> Claim | None:
        """The claim a pod refers to, if the files hold it."""
        named = ("ResourceClaimTemplate", ref.template) if ref.template else ("ResourceClaim", ref.claim)
        for kind, name in (("ResourceClaim", ref.generated), named) if ref.generated else (named,):
            found = self._claim_by_name.get((kind, name or "", pod.namespace))
            if found is not None:
                return found
        return None

    @cached_property
    def _claim_by_name(self) -> dict[tuple[str, str, str], Claim]:
        return {(c.owner.kind, c.owner.name, c.owner.namespace): c for c in self.all_claims}

    def claims_of(self, pod: PodSpec) -> list[Claim]:
        """All claims of a pod that the files hold."""
        return [claim for ref in pod.claims if (claim := self.claim_of(pod, ref)) is not None]

    @cached_property
    def selectors(self) -> list[Selector]:
        """Every selector: those of classes first, then those of claims."""
        found = [s for obj in self.objects if obj.kind == "DeviceClass" for s in selectors_at(obj, ("spec",))]
        return found + [s for claim in self.claims for request in claim.requests for s in request.selectors]


def selectors_at(obj: Object, path: FieldPath) -> Iterator[Selector]:
    """The selectors below a class spec or a request."""
    for i, raw in enumerate(sequence(reach(obj.data, (*path, "selectors")))):
        text = mapping(mapping(raw).get("cel")).get("expression")
        if isinstance(text, str):
            yield Selector(obj, (*path, "selectors", i, "cel", "expression"), text)


def _read_slice(obj: Object) -> tuple[dict[str, Any], list[tuple[FieldPath, str]]]:
    """In v1 shape, and what is wrong with it. One of a cluster was checked by the server before it stored it, and is
    read in v1 shape: looking at every value of a fleet again would take longer than planning on it."""
    if obj.file == CLUSTER_FILE:
        return obj.data, []
    raw = to_v1(obj.data)
    return raw, list(_slice_problems(obj.name, raw["spec"]))


def slice_problems(obj: Object) -> Iterator[tuple[FieldPath, str]]:
    """What keeps a ResourceSlice from being used, each with its place."""
    return _slice_problems(obj.name, to_v1(obj.data)["spec"])


def _slice_problems(name: str, spec: dict[str, Any]) -> Iterator[tuple[FieldPath, str]]:
    for steps in (("driver",), ("pool", "name")):
        if not reach(spec, steps):
            yield ("spec", *steps), f"ResourceSlice {name}: no spec.{'.'.join(steps)}"
    for i, entry in enumerate(spec.get("sharedCounters") or ()):
        if not entry.get("name"):
            yield ("spec", "sharedCounters", i), "a counter set without a name"
        yield from _quantity_problems(entry.get("counters"), ("spec", "sharedCounters", i, "counters"))
    for i, device in enumerate(spec.get("devices") or ()):
        yield from _device_problems(("spec", "devices", i), device)


def _device_problems(base: FieldPath, device: dict[str, Any]) -> Iterator[tuple[FieldPath, str]]:
    if not device.get("name"):
        yield base, "a device without a name"
    for key, value in (device.get("attributes") or {}).items():
        if len(value) != 1 or [] in value.values():
            yield (*base, "attributes", key), f"attribute {key} must have one of string, int, bool or version"
    for key, value in (device.get("capacity") or {}).items():
        if "value" not in value:
            yield (*base, "capacity", key), f"capacity {key} has no value"
    yield from _quantity_problems(device.get("capacity"), (*base, "capacity"))
    for i, taint in enumerate(device.get("taints") or ()):
        if not taint.get("key") or not taint.get("effect"):
            yield (*base, "taints", i), "a taint needs key and effect"
    for i, counter in enumerate(device.get("consumesCounters") or ()):
        if not counter.get("counterSet"):
            yield (*base, "consumesCounters", i), "consumesCounters needs a counterSet"
        yield from _quantity_problems(counter.get("counters"), (*base, "consumesCounters", i, "counters"))


def _quantity_problems(entries: Any, base: FieldPath) -> Iterator[tuple[FieldPath, str]]:
    """Values of capacities or counters, and what their policies say."""
    for path, value in _quantities(entries, base):
        if not is_quantity(value):
            yield path, f"{value!r} is no quantity such as 400G or 16Gi"


def _quantities(value: Any, path: FieldPath) -> Iterator[tuple[FieldPath, Any]]:
    for key, item in mapping(value).items():
        if key in {"value", "default", "min", "max", "step"} and not isinstance(item, dict):
            yield (*path, key), item
        elif key == "validValues":
            yield from (((*path, key, i), one) for i, one in enumerate(item))
        else:
            yield from _quantities(item, (*path, key))


def is_quantity(value: object) -> bool:
    """Whether Kubernetes reads this as a quantity."""
    return value is not None and _reads_as_quantity(str(value))


@lru_cache(maxsize=4096)
def _reads_as_quantity(text: str) -> bool:
    try:
        parse_quantity(text)
    except QuantityError:
        return False
    return True


def _place(obj: Object, path: FieldPath) -> str:
    mark = obj.at(path)
    return f"{obj.file}:{mark.line}:{mark.column}"


def empty_selectors(obj: Object, path: FieldPath) -> list[FieldPath]:
    """Selectors below a class spec or a request that hold no expression: no server accepts them."""
    raw = sequence(reach(obj.data, (*path, "selectors")))
    texts = (mapping(mapping(entry).get("cel")).get("expression") for entry in raw)
    return [(*path, "selectors", i) for i, text in enumerate(texts) if not isinstance(text, str)]


def world_of(objects: Iterable[Object], background: Iterable[Object] = ()) -> World:
    """The view over these objects, among those of a cluster."""
    return World(tuple(objects), tuple(background))


def _claim(obj: Object) -> Claim | None:
    base: FieldPath | None = {"ResourceClaim": ("spec",), "ResourceClaimTemplate": ("spec", "spec")}.get(obj.kind)
    if base is None:
        return None
    devices = mapping(reach(obj.data, (*base, "devices")))
    return Claim(
        obj,
        base,
        tuple(_requests(obj, (*base, "devices", "requests"))),
        tuple(mapping(raw) for raw in sequence(devices.get("constraints"))),
        tuple(mapping(raw) for raw in sequence(devices.get("config"))),
        to_v1(obj.data),
    )


def _requests(obj: Object, path: FieldPath) -> Iterator[Request]:
    for i, raw in enumerate(sequence(reach(obj.data, path))):
        one, name = mapping(raw), str(mapping(raw).get("name", ""))
        alternatives = sequence(one.get("firstAvailable"))
        for j, alternative in enumerate(alternatives):
            sub = f"{name}/{mapping(alternative).get('name', '')}"
            yield _request(obj, (*path, i, "firstAvailable", j), sub, mapping(alternative))
        if not alternatives:
            nested = isinstance(one.get("exactly"), dict)
            where: FieldPath = (*path, i, "exactly") if nested else (*path, i)
            yield _request(obj, where, name, mapping(reach(obj.data, where)))


def _request(obj: Object, path: FieldPath, name: str, fields: dict[str, Any]) -> Request:
    count, mode = fields.get("count"), fields.get("allocationMode")
    return Request(
        name,
        path,
        str(fields.get("deviceClassName") or ""),
        count if isinstance(count, int) and not isinstance(count, bool) else 1,
        mode if isinstance(mode, str) else "ExactCount",
        tuple(selectors_at(obj, path)),
        fields,
    )
