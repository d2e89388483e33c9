"""Compares small clusters with the recorded decisions of kube-scheduler, one pod after the other.

A step agrees when both or neither place the pod, the message is one that the scheduler may give, the recorded node is
among our best nodes, and the devices on it are equal. The comparison then continues from the recorded choice.

kube-scheduler retries unschedulable pods when something changes in their favour. A recording does not show when that
happened or where they went, so every possible state is followed until a later step rules it out; a step agrees when it
agrees in one of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dranet.core.quantity import Quantity, parse_quantity
from dranet.core.untyped import as_dict, as_dicts, get_path, name_of, namespace_of
from dranet.scheduler import Pod, PodInfoReader, Scheduler, ScheduleResult, device_signatures, read_node
from dranet.scheduler.claims import claim_key

Object = dict[str, Any]
_POSSIBILITIES = 64


def compare_world(line: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    """Name and difference (None: agrees) of every step."""
    objects: list[Object] = line["objects"]
    reader = PodInfoReader(
        of_kind(objects, "PriorityClass"), of_kind(objects, "RuntimeClass"), of_kind(objects, "Service")
    )
    claims = {claim_key(raw): raw for raw in of_kind(objects, "ResourceClaim")}
    possible = [_Possibility((), scheduler_of(objects))]
    refused: list[Pod] = []
    for number, step in enumerate(line["steps"]):
        pod = reader.read_pod(step["pod"], _claims(step["pod"], claims))
        every = [one for known in possible for one in _tried_again(objects, known, refused)][:_POSSIBILITIES]
        found = [(one, compare_step(one.scheduler, pod, step["verdict"])) for one in every]
        right = [one for one, difference in found if difference is None]
        name, node = f"world {line.get('id')}, pod {number} ({pod.name})", step["verdict"].get("node")
        if node and not right:  # the state is unknown now: our scheduler does not place the pod on this node
            yield name, f"{found[0][1]}; the pods after it are not compared"
            return
        yield name, None if right else found[0][1]
        possible = right or every[:1]
        possible = [one.without(step["verdict"].get("preempted") or ()) for one in possible]
        if node:
            possible = [one.with_pod(pod, node) for one in possible]
        elif str(step["verdict"].get("message")).startswith("running PreBind"):
            possible = [new for one in possible for new in one.stumbled(objects, pod)]
        elif line.get("refused") != "deleted":
            refused.append(pod)


@dataclass(frozen=True, slots=True)
class _Possibility:
    """One possible state of the cluster."""

    placed: tuple[tuple[Pod, str], ...]
    """Pods and their nodes, in scheduling order."""
    scheduler: Scheduler

    def with_pod(self, pod: Pod, node: str) -> _Possibility:
        """Add a pod. This changes the scheduler in place, so the state before is no longer valid."""
        self.scheduler.bind(pod, node)
        return _Possibility((*self.placed, (pod, node)), self.scheduler)

    def stumbled(self, objects: list[Object], pod: Pod) -> Iterator[_Possibility]:
        """PreBind failed after the claims were allocated, on one of the best nodes."""
        nodes = self.scheduler.decide(pod).best_nodes
        for node in nodes:
            other = self if len(nodes) == 1 else self.copy(objects)
            other.scheduler.fail_prebind(pod, node)
            yield other

    def without(self, names: Collection[str]) -> _Possibility:
        """Remove preempted pods."""
        for pod, node in self.placed:
            if pod.name in names:
                self.scheduler.remove_pod(pod.info, node)
        return _Possibility(tuple(one for one in self.placed if one[0].name not in names), self.scheduler)

    def copy(self, objects: list[Object]) -> _Possibility:
        scheduler = scheduler_of(objects)
        for pod, node in self.placed:
            scheduler.bind(pod, node)
        return _Possibility(self.placed, scheduler)


def _tried_again(objects: list[Object], known: _Possibility, refused: list[Pod]) -> Iterator[_Possibility]:
    """The same state, and the states in which unschedulable pods were placed on nodes that fit by now."""
    yield known
    there = {pod.name for pod, _ in known.placed}
    for pod in refused if known.placed else ():
        for node in known.scheduler.decide(pod).best_nodes if pod.name not in there else ():
            yield from _tried_again(objects, known.copy(objects).with_pod(pod, node), refused)


def scheduler_of(objects: list[Object]) -> Scheduler:
    """A scheduler over the objects of a cluster without pods."""
    nodes, slices = of_kind(objects, "Node"), of_kind(objects, "ResourceSlice")
    labels = {name_of(raw): as_dict(get_path(raw, "metadata", "labels")) for raw in nodes}
    claims, classes = of_kind(objects, "ResourceClaim"), of_kind(objects, "DeviceClass")
    kinds = device_signatures(slices, labels, [str(claims), str(classes)])
    return Scheduler(
        [read_node(raw, device_signature=kinds[name_of(raw)]) for raw in nodes],
        slices=slices,
        classes=classes,
        allocated={
            claim_key(raw): get_path(raw, "status", "allocation")
            for raw in claims
            if get_path(raw, "status", "allocation")
        },
        namespaces={
            name_of(raw): as_dict(get_path(raw, "metadata", "labels")) for raw in of_kind(objects, "Namespace")
        },
    )


def of_kind(objects: list[Object], kind: str) -> list[Object]:
    """All objects of a kind, in order."""
    return [raw for raw in objects if raw.get("kind") == kind]


def _claims(pod: Object, known: Mapping[tuple[str, str], Object]) -> list[Object]:
    named = [str(raw.get("resourceClaimName")) for raw in as_dicts(get_path(pod, "spec", "resourceClaims"))]
    return [known[namespace_of(pod), name] for name in named]


def compare_step(scheduler: Scheduler, pod: Pod, recorded: Mapping[str, Any]) -> str | None:
    """What differs for one pod; None if nothing does."""
    verdict = scheduler.decide(pod)
    node = recorded.get("node") or recorded.get("nominated")
    if node is None:
        allowed = verdict.messages or (verdict.message or f"fits on {', '.join(verdict.best_nodes)}",)
        return None if recorded["message"] in allowed else _differ(recorded["message"], " or ".join(allowed))
    if "preempted" in recorded:
        return _preemption_differs(verdict, recorded)
    if node not in verdict.best_nodes:
        return _differ(f"node {node}", verdict.message or f"node {_ranking(verdict)}")
    devices = _devices(scheduler, pod, node)
    return None if devices == recorded["devices"] else _differ(str(recorded["devices"]), str(devices))


def _preemption_differs(verdict: ScheduleResult, recorded: Mapping[str, Any]) -> str | None:
    """Compare the number of victims: which of equally important pods are evicted depends on their start times."""
    if recorded.get("first") not in ("", verdict.message):
        return _differ(recorded["first"], verdict.message or f"fits on {', '.join(verdict.best_nodes)}")
    sizes = {one.node: len(one.victims) for one in verdict.preemptions}
    node = recorded.get("node") or recorded.get("nominated")
    if sizes.get(str(node)) == len(recorded["preempted"]):
        return None
    return _differ(f"{recorded['preempted']} leave {node}", f"so many leave: {sizes}, {verdict.message}")


def device_row(result: Mapping[str, Any]) -> list[Any]:
    """A device as recorded: request, driver, pool, device, and the consumed capacity of a shared one."""
    names = [result[field] for field in ("request", "driver", "pool", "device")]
    if not result.get("shareID"):
        return names
    return [*names, {name: _stored(str(amount)) for name, amount in as_dict(result.get("consumedCapacity")).items()}]


def _stored(amount: str) -> str:
    """The form in which the API server stores a quantity: 25000000000 becomes 25G, and 29296875Ki stays."""
    read = parse_quantity(amount)
    return str(Quantity(read.unscaled, read.scale, read.format))


def _devices(scheduler: Scheduler, pod: Pod, node: str) -> dict[str, list[list[Any]]]:
    waiting, outcome = scheduler.find_devices(pod, node)
    new = {claim_key(claim): allocation for claim, allocation in zip(waiting, outcome.results, strict=True)}
    found = {
        name_of(claim): new.get(claim_key(claim)) or scheduler.claims.allocated[claim_key(claim)]
        for claim in pod.claims
    }
    return {
        name: [device_row(result) for result in as_dicts(get_path(allocation, "devices", "results"))]
        for name, allocation in found.items()
    }


def _ranking(verdict: ScheduleResult) -> str:
    places = sorted(verdict.feasible, key=lambda place: -place.score)
    return "; ".join(f"{' '.join(place.nodes)} {place.score}" for place in places)


def _differ(expected: str, ours: str) -> str:
    return f"expected {expected}\n    got      {ours}"
