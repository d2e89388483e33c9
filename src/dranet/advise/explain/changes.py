"""The smallest change that makes an impossible claim fit, found by trying.

Changes are ordered by how little they remove: a misspelt name, another attribute for a constraint, no constraint, one
selector less, a tolerated taint, no capacity, fewer devices, devices that other claims hold. Each is tried alone on
every kind of node, then in pairs. A missing class cannot be tried: it is only named. A constraint that wants more
devices with one attribute value than any machine has gets the claim that requests them in groups.
"""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from dranet.advise.plan.hardware import Hardware
from dranet.advise.plan.pending_pods import PendingPod
from dranet.advise.plan.placement import NodeView, Simulator
from dranet.advise.plan.selectors import attributes_read
from dranet.advise.suggest import best_on, machine_kinds, single_machine
from dranet.core.attributes import PCIE_ROOT, STANDARD_NUMA_NODE
from dranet.core.errors import InvalidInput, nearest
from dranet.core.names import DRIVER_NAME
from dranet.machines.machine import Machine, MachineDevice
from dranet.scheduler.allocation.allocator import ClusterDevices
from dranet.scheduler.allocation.outcome import Allocation
from dranet.scheduler.allocation.requests import MAX_RESULTS
from dranet.scheduler.allocation.state import AllocatedState

ATTRIBUTES = ("resource.kubernetes.io/pcieRoot", "resource.kubernetes.io/numaNode", "dra.net/numaNode")
_MAX_PAIRS = 200

Claims = list[dict[str, Any]]
Edit = Callable[[Claims], object]


class Change(msgspec.Struct, frozen=True):
    """The text of a change, and the nodes that would then accept the pod."""

    text: str
    nodes: tuple[str, ...]
    claim: str = ""
    """The claim that does it, where it is not a small change."""


class _Option(msgspec.Struct, frozen=True):
    text: str
    edit: Edit
    frees_devices: bool = False
    """Whether devices in use count as free."""


def changes_that_fit(simulator: Simulator, pod: PendingPod) -> list[Change]:
    """Every single change that helps; if none does, the first pair that does."""
    claims = simulator.waiting_claims(pod)
    missing = _missing_classes(simulator.cluster, claims)
    if missing:
        return [Change(_to_get_class(name, simulator.cluster.classes), ()) for name in missing]
    nodes = [node for node in simulator.nodes.values() if not simulator.excludes(node, pod)]
    if not claims or not nodes:
        return []
    options = list(_options(simulator.cluster, claims))
    found = [change for option in options if (change := _try(simulator.cluster, nodes, claims, [option]))]
    if found:
        return _least(found)
    pairs = itertools.islice(itertools.combinations(options, 2), _MAX_PAIRS)
    return next(([change] for pair in pairs if (change := _try(simulator.cluster, nodes, claims, list(pair)))), [])


def _least(found: list[Change]) -> list[Change]:
    """Of several counts that fit, only the largest is worth saying."""
    seen: set[str] = set()
    kept = []
    for change in found:
        key = change.text.partition(" to ")[0] if change.text.startswith("lower the count") else change.text
        if key not in seen:
            seen.add(key)
            kept.append(change)
    return kept


def _try(cluster: ClusterDevices, nodes: list[NodeView], claims: Claims, options: list[_Option]) -> Change | None:
    changed = copy.deepcopy(claims)
    try:
        for option in reversed(options):  # from the back, so that indexes still hold
            option.edit(changed)
    except IndexError:
        return None  # two changes of one and the same place
    held, answers = cluster.state, {}
    try:
        if any(option.frees_devices for option in options):
            cluster.state = AllocatedState(shares=cluster.rules.consumable_capacity)
        for node in nodes:
            if node.key not in answers:
                outcome = cluster.allocate({"name": node.name, "labels": dict(node.labels)}, changed)
                answers[node.key] = isinstance(outcome, Allocation)
    finally:
        cluster.state = held
    fitting = tuple(node.name for node in nodes if answers[node.key])
    return Change(" and ".join(option.text for option in options), fitting) if fitting else None


def _missing_classes(cluster: ClusterDevices, claims: Claims) -> list[str]:
    asked = dict.fromkeys(part.get("deviceClassName", "") for _, _, part in _parts(claims))
    return [name for name in asked if name not in cluster.classes]


def _to_get_class(name: str, classes: Iterable[str]) -> str:
    near = nearest(name, list(classes))
    meant = f"did you mean {near}? Else " if near else ""
    return f"{meant}create the DeviceClass {name}, or add its file with -f"


Where = tuple[int, int, int | None]
"""A (sub)request by its indexes: claim, request, and alternative of firstAvailable."""


def _parts(claims: Claims) -> Iterator[tuple[Where, str, dict[str, Any]]]:
    """Every request and every alternative, with its full name."""
    for c, claim in enumerate(claims):
        for r, request in enumerate((claim["spec"].get("devices") or {}).get("requests") or ()):
            if "exactly" in request:
                yield (c, r, None), request["name"], request["exactly"]
            for a, part in enumerate(request.get("firstAvailable") or ()):
                yield (c, r, a), f"{request['name']}/{part['name']}", part


def _part(claims: Claims, where: Where) -> dict[str, Any]:
    request: dict[str, Any] = claims[where[0]]["spec"]["devices"]["requests"][where[1]]
    found: dict[str, Any] = request["exactly"] if where[2] is None else request["firstAvailable"][where[2]]
    return found


def _options(cluster: ClusterDevices, claims: Claims) -> Iterator[_Option]:
    published = _published(cluster)
    for c, claim in enumerate(claims):
        yield from _constraint_options(c, claim["spec"].get("devices") or {}, published)
    for where, name, part in _parts(claims):
        yield from _selector_options(where, name, part, published)
    if any(device.taints for slice_ in cluster.slices for device in slice_.devices):
        yield _Option("tolerate the devices' taints", _tolerate)
    for where, name, part in _parts(claims):
        if part.get("capacity"):
            yield _Option(f"take out the capacity of request {name}", _without_capacity(where))
    for where, name, part in _parts(claims):
        yield from _count_options(where, name, part)
    if cluster.state.exclusive or cluster.state.shared:
        yield _Option("wait until devices in use are free again", lambda claims: None, frees_devices=True)


def _constraint_options(c: int, devices: dict[str, Any], published: frozenset[str]) -> Iterator[_Option]:
    for i, constraint in enumerate(devices.get("constraints") or ()):
        name = constraint.get("matchAttribute")
        if name and (near := _meant(name, published)):
            full = f"{name.partition('/')[0]}/{near}"
            yield _Option(f"no device has {name}; did you mean {near}? Match on that", _swap(c, i, full))
            continue
        for other in ATTRIBUTES:
            if name and other != name:
                yield _Option(f"match on {other} instead of {name}", _swap(c, i, other))
        shown = name or constraint.get("distinctAttribute")
        yield _Option(f"take out the constraint on {shown}", _drop_constraint(c, i))


def _published(cluster: ClusterDevices) -> frozenset[str]:
    """Every attribute and capacity that some device has, with its domain."""
    return frozenset(
        name if "/" in name else f"{slice_.driver}/{name}"
        for slice_ in cluster.slices
        for device in slice_.devices
        for key in ("attributes", "capacity")
        for name in device.raw.get(key) or ()
    )


def _selector_options(where: Where, name: str, part: dict[str, Any], published: frozenset[str]) -> Iterator[_Option]:
    for s, selector in enumerate(part.get("selectors") or ()):
        expression = str((selector.get("cel") or {}).get("expression", ""))
        text = " ".join(expression.split())
        misspelt = _corrected(expression, published)
        if misspelt is not None:
            text, corrected = misspelt
            yield _Option(f"{text} in selector #{s} of request {name}", _rewrite(where, s, corrected))
            continue
        yield _Option(f"take out selector #{s} of request {name} ({text})", _drop_selector(where, s))


def _count_options(where: Where, name: str, part: dict[str, Any]) -> Iterator[_Option]:
    """Fewer devices: lower counts for a count, any count for all."""
    if part.get("allocationMode") == "All":
        for count in range(MAX_RESULTS, 0, -1):
            yield _Option(f"lower the count of request {name} from all to {count}", _set_count(where, count))
    else:
        for count in range(min(part.get("count", 1), MAX_RESULTS + 1) - 1, 0, -1):
            yield _Option(f"lower the count of request {name} to {count}", _set_count(where, count))


def _corrected(expression: str, published: frozenset[str]) -> tuple[str, str] | None:
    """For a misspelt attribute: the text of the correction, and the corrected selector."""
    for offset, full in attributes_read(expression):
        if near := _meant(full, published):
            text = f"no device has {full}; did you mean {near}? Write it"
            return text, expression[:offset] + near + expression[offset + len(full.partition("/")[2]) :]
    return None


def _meant(full: str, published: frozenset[str]) -> str | None:
    """For an attribute that no device has, the name that is like it in its domain."""
    domain, _, name = full.partition("/")
    known = [one.partition("/")[2] for one in published if one.startswith(f"{domain}/")]
    return nearest(name, sorted(known)) if name not in known else None


def _rewrite(where: Where, s: int, expression: str) -> Edit:
    return lambda claims: _part(claims, where)["selectors"][s]["cel"].update(expression=expression)


def _swap(c: int, i: int, name: str) -> Edit:
    return lambda claims: claims[c]["spec"]["devices"]["constraints"][i].update(matchAttribute=name)


def _drop_constraint(c: int, i: int) -> Edit:
    return lambda claims: claims[c]["spec"]["devices"]["constraints"].pop(i)


def _drop_selector(where: Where, s: int) -> Edit:
    return lambda claims: _part(claims, where)["selectors"].pop(s)


def _without_capacity(where: Where) -> Edit:
    return lambda claims: _part(claims, where).pop("capacity", None)


def _set_count(where: Where, count: int) -> Edit:
    return lambda claims: _part(claims, where).update(allocationMode="ExactCount", count=count)


def _tolerate(claims: Claims) -> None:
    for _, _, part in _parts(claims):
        part["tolerations"] = [*(part.get("tolerations") or ()), {"operator": "Exists"}]


Numbers = tuple[int, int]
"""GPUs and NICs."""


def groups_that_fit(simulator: Simulator, pod: PendingPod, hardware: Hardware) -> Iterator[Change]:
    """For each constraint that asks for more together than any machine has together."""
    for claim in simulator.waiting_claims(pod):
        devices = claim["spec"].get("devices") or {}
        for constraint in devices.get("constraints") or ():
            attribute = str(constraint.get("matchAttribute"))
            wanted = _wanted(simulator, devices, constraint.get("requests") or ())
            if attribute in {PCIE_ROOT, STANDARD_NUMA_NODE} and all(wanted):
                yield from _change(hardware, attribute, wanted)


def _change(hardware: Hardware, attribute: str, wanted: Numbers) -> Iterator[Change]:
    fits = [_most(machine, attribute, wanted) for machine in machine_kinds(hardware)]
    if not fits or any(have[0] >= wanted[0] and have[1] >= wanted[1] for have in fits):
        return
    for machine, have in zip(machine_kinds(hardware), fits, strict=True):
        try:
            found = best_on(single_machine(hardware, machine), machine, *wanted)
        except InvalidInput:
            continue
        short = attribute.rpartition("/")[2]
        text = (
            f"one {short} of {machine.shape or machine.node} holds at most {have[0]} GPUs and {have[1]} NICs, "
            f"{wanted[0]} and {wanted[1]} are requested: write it as `dranet suggest --gpus {wanted[0]} "
            f"--nics {wanted[1]}` does ({found.how})"
        )
        yield Change(text, (), found.manifest)
        return


def _wanted(simulator: Simulator, devices: dict[str, Any], names: Any) -> Numbers:
    """GPUs and NICs that a constraint wants together."""
    gpus = nics = 0
    for request in devices.get("requests") or ():
        part = request.get("exactly") or {}
        if names and request["name"] not in names:
            continue
        described = str(simulator.cluster.classes.get(part.get("deviceClassName"), {}))
        count = part.get("count", 1) if part.get("allocationMode") != "All" else 0
        if DRIVER_NAME in described:
            nics += count
        elif "gpu." in described:
            gpus += count
    return gpus, nics


def _most(machine: Machine, attribute: str, wanted: Numbers) -> Numbers:
    """The best that devices with one value of the attribute come to."""

    def value(part: MachineDevice) -> object:
        return part.position.root if attribute == PCIE_ROOT else part.position.numa

    gpus, nics = (Counter(map(value, parts)) for parts in (machine.gpus, machine.nics))
    both = [(gpus[one], nics[one]) for one in {*gpus, *nics} - {None}]
    return max(both, key=lambda have: (min(have[0], wanted[0]) + min(have[1], wanted[1]), have), default=(0, 0))
