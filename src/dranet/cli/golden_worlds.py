"""Small clusters and what the real kube-scheduler said of pods given to it one after the other.

A step is right when fitting or not agrees, the message is one the scheduler may give, the node it chose is among our
best, and the devices there are equal. The recorded choice is then taken as made, whatever we would have chosen.

The scheduler tries refused pods again by itself once something has changed in their favour, such as a pod they want to
be near. A recording does not say when, nor where they went: every possibility is followed until a later step rules it
out, and a step is right when it is right in one of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dranet.model.quantity import Quantity, parse_quantity
from dranet.model.untyped import at, mapping, mappings, name_of, namespace_of
from dranet.scheduling import Pod, Scheduler, TraitsReader, Verdict, device_kinds, read_node
from dranet.scheduling.claims import key_of

Object = dict[str, Any]
_POSSIBILITIES = 64


def compare_world(line: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    """Name and difference (None: agrees) of every step."""
    objects: list[Object] = line["objects"]
    reader = TraitsReader(
        of_kind(objects, "PriorityClass"), of_kind(objects, "RuntimeClass"), of_kind(objects, "Service")
    )
    claims = {key_of(raw): raw for raw in of_kind(objects, "ResourceClaim")}
    possible = [_Possibility((), scheduler_of(objects))]
    refused: list[Pod] = []
    for number, step in enumerate(line["steps"]):
        pod = reader.read_pod(step["pod"], _claims(step["pod"], claims))
        every = [one for known in possible for one in _tried_again(objects, known, refused)][:_POSSIBILITIES]
        found = [(one, compare_step(one.scheduler, pod, step["verdict"])) for one in every]
        right = [one for one, difference in found if difference is None]
        name, node = f"world {line.get('id')}, pod {number} ({pod.name})", step["verdict"].get("node")
        if node and not right:  # how things stand now nobody can say: our own scheduler would not have put it there
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
    """How things may stand."""

    placed: tuple[tuple[Pod, str], ...]
    """Pods and their nodes, in the order in which they came there."""
    scheduler: Scheduler

    def with_pod(self, pod: Pod, node: str) -> _Possibility:
        """One pod more; the possibility without it is no more."""
        self.scheduler.take(pod, node)
        return _Possibility((*self.placed, (pod, node)), self.scheduler)

    def stumbled(self, objects: list[Object], pod: Pod) -> Iterator[_Possibility]:
        """The pod did not get there, but its claims did: on one of the best nodes."""
        nodes = self.scheduler.decide(pod).best_nodes
        for node in nodes:
            other = self if len(nodes) == 1 else self.copy(objects)
            other.scheduler.stumble(pod, node)
            yield other

    def without(self, names: Collection[str]) -> _Possibility:
        """Some pods less: others made them leave."""
        for pod, node in self.placed:
            if pod.name in names:
                self.scheduler.leave(pod.traits, node)
        return _Possibility(tuple(one for one in self.placed if one[0].name not in names), self.scheduler)

    def copy(self, objects: list[Object]) -> _Possibility:
        scheduler = scheduler_of(objects)
        for pod, node in self.placed:
            scheduler.take(pod, node)
        return _Possibility(self.placed, scheduler)


def _tried_again(objects: list[Object], known: _Possibility, refused: list[Pod]) -> Iterator[_Possibility]:
    """How things may stand by now: as they were, or with refused pods on nodes that have come to fit."""
    yield known
    there = {pod.name for pod, _ in known.placed}
    for pod in refused if known.placed else ():
        for node in known.scheduler.decide(pod).best_nodes if pod.name not in there else ():
            yield from _tried_again(objects, known.copy(objects).with_pod(pod, node), refused)


def scheduler_of(objects: list[Object]) -> Scheduler:
    """A scheduler over the objects of a cluster without pods."""
    nodes, slices = of_kind(objects, "Node"), of_kind(objects, "ResourceSlice")
    labels = {name_of(raw): mapping(at(raw, "metadata", "labels")) for raw in nodes}
    claims, classes = of_kind(objects, "ResourceClaim"), of_kind(objects, "DeviceClass")
    kinds = device_kinds(slices, labels, [str(claims), str(classes)])
    return Scheduler(
        [read_node(raw, devices=kinds[name_of(raw)]) for raw in nodes],
        slices=slices,
        classes=classes,
        allocated={key_of(raw): at(raw, "status", "allocation") for raw in claims if at(raw, "status", "allocation")},
        namespaces={name_of(raw): mapping(at(raw, "metadata", "labels")) for raw in of_kind(objects, "Namespace")},
    )


def of_kind(objects: list[Object], kind: str) -> list[Object]:
    """All objects of a kind, in order."""
    return [raw for raw in objects if raw.get("kind") == kind]


def _claims(pod: Object, known: Mapping[tuple[str, str], Object]) -> list[Object]:
    named = [str(raw.get("resourceClaimName")) for raw in mappings(at(pod, "spec", "resourceClaims"))]
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


def _preemption_differs(verdict: Verdict, recorded: Mapping[str, Any]) -> str | None:
    """Others made room. Of victims that are equally important, which ones is up to the scheduler's clock."""
    if recorded.get("first") not in ("", verdict.message):
        return _differ(recorded["first"], verdict.message or f"fits on {', '.join(verdict.best_nodes)}")
    sizes = {one.node: len(one.victims) for one in verdict.preemptions}
    node = recorded.get("node") or recorded.get("nominated")
    if sizes.get(str(node)) == len(recorded["preempted"]):
        return None
    return _differ(f"{recorded['preempted']} leave {node}", f"so many leave: {sizes}, {verdict.message}")


def device_row(result: Mapping[str, Any]) -> list[Any]:
    """A device as a line records it: of a share also how much of the device it is."""
    names = [result[field] for field in ("request", "driver", "pool", "device")]
    if not result.get("shareID"):
        return names
    return [*names, {name: _stored(str(amount)) for name, amount in mapping(result.get("consumedCapacity")).items()}]


def _stored(amount: str) -> str:
    """As the API server writes an amount again that it has read: 25000000000 is 25G then, and 29296875Ki stays."""
    read = parse_quantity(amount)
    return str(Quantity(read.unscaled, read.scale, read.format))


def _devices(scheduler: Scheduler, pod: Pod, node: str) -> dict[str, list[list[Any]]]:
    waiting, outcome = scheduler.devices(pod, node)
    new = {key_of(claim): allocation for claim, allocation in zip(waiting, outcome.results, strict=True)}
    found = {
        name_of(claim): new.get(key_of(claim)) or scheduler.claims.allocated[key_of(claim)] for claim in pod.claims
    }
    return {
        name: [device_row(result) for result in mappings(at(allocation, "devices", "results"))]
        for name, allocation in found.items()
    }


def _ranking(verdict: Verdict) -> str:
    places = sorted(verdict.places, key=lambda place: -place.points)
    return "; ".join(f"{' '.join(place.nodes)} {place.points}" for place in places)


def _differ(expected: str, ours: str) -> str:
    return f"expected {expected}\n    got      {ours}"
