"""Variants of one claim for a number of GPUs and NICs, from the simplest to the most specific.

whole    all GPUs and NICs of a machine: nothing to align
match    one constraint on an attribute that both drivers publish
groups   several groups, each with its own constraint: half a machine below two PCIe roots
pinned   no common attribute: selectors by address and NUMA node, one template a NUMA node
sides    devices of several NUMA nodes in one pod, a number of each, by address and NUMA node
exact    the devices of the best choice, by their addresses: one such pod a machine

`suggestion` plans each variant and decides whether it works.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from dranet.advise.plan.hardware import Hardware
from dranet.advise.plan.quality import DeviceChoice
from dranet.core.attributes import (
    BANDWIDTH,
    NUMA_NODE,
    PCI_ADDRESS,
    PCI_BUS_ID,
    PCIE_ROOT,
    RAIL,
    RDMA,
    STANDARD_NUMA_NODE,
)
from dranet.core.names import DRIVER_NAME
from dranet.machines.distance import distance
from dranet.machines.machine import Machine, MachineDevice, reads_directly

COMMON = (PCIE_ROOT, STANDARD_NUMA_NODE)
_MAX_GROUPS = 16

Group = tuple[Sequence[MachineDevice], Sequence[MachineDevice]]
"""GPUs and NICs that belong together."""


class Request(msgspec.Struct, frozen=True):
    """What one request, or one alternative of it, asks for."""

    name: str
    device_class: str
    count: int
    selectors: tuple[str, ...] = ()
    share: str = ""
    """The share of a NIC's bandwidth; empty for a whole NIC."""


Constraint = tuple[tuple[str, ...], str]
"""Names of requests, and the attribute they must share."""


class Template(msgspec.Struct, frozen=True):
    """One ResourceClaimTemplate to write. A request with several alternatives is a firstAvailable."""

    name: str
    requests: tuple[tuple[Request, ...], ...]
    constraints: tuple[Constraint, ...] = ()
    unaligned: str = ""
    """Why no constraint keeps GPUs and NICs together: the reason in a lint ignore comment."""

    @property
    def manifest(self) -> str:
        """As YAML."""
        lines = [
            "apiVersion: resource.k8s.io/v1",
            "kind: ResourceClaimTemplate",
            "metadata:",
            f"  name: {self.name}",
            "spec:",
            "  spec:",
            "    devices:",
            *([f"      # dranet: ignore[no-alignment-constraint] {self.unaligned}"] if self.unaligned else []),
            "      requests:",
        ]
        for alternatives in self.requests:
            lines += _request_lines(alternatives)
        if self.constraints:
            lines.append("      constraints:")
        for names, attribute in self.constraints:
            lines += [f"      - requests: [{', '.join(names)}]", f"        matchAttribute: {attribute}"]
        return "\n".join(lines) + "\n"


class Variant(msgspec.Struct, frozen=True):
    """How a claim keeps devices together, and its templates, of which a pod uses one."""

    how: str
    templates: tuple[Template, ...]

    @property
    def manifest(self) -> str:
        """All templates as YAML."""
        return "---\n".join(template.manifest for template in self.templates)


def claim_variants(
    hardware: Hardware,
    machine: Machine,
    gpus: int,
    nics: int,
    best: DeviceChoice | None,
    rails: Sequence[str] = (),
    share: str = "",
) -> Iterator[Variant]:
    """Every way worth trying; ``best`` is the nearest choice of devices the machine allows, if both kinds are asked.

    With ``rails`` only NICs of these rails: the machine has no others then. With ``share`` a share of each NIC.
    """
    writer = _Writer(machine, gpus, nics, rails, share)
    if best is None:
        yield Variant("one kind of device: nothing to align", writer.template(writer.plain()))
        return
    if gpus == len(machine.gpus) and nics == len(machine.nics):
        yield writer.unaligned("all GPUs and NICs of the machine: nothing to align")
    elif _all_alike(machine):
        yield writer.unaligned("every GPU is equally far from every NIC: nothing to align")
    common = [attribute for attribute in COMMON if _both_publish(hardware, machine, attribute)]
    for count in range(1, _MAX_GROUPS + 1):
        if gpus % count == 0 and nics % count == 0:
            for attribute in common:
                yield writer.matched([(gpus // count, nics // count)] * count, attribute)
    for attribute in common:
        sizes = [(len(chosen), len(nics_there)) for chosen, nics_there in _groups(best, attribute)]
        # If GPUs and NICs never share the attribute, groups would constrain nothing.
        if any(gpu_count and nic_count for gpu_count, nic_count in sizes):
            yield writer.matched(_joined(sizes), attribute)
    yield from writer.pinned()
    yield writer.sides(_groups(best, STANDARD_NUMA_NODE))
    yield writer.exact(best)
    yield writer.unaligned("no attribute aligns GPUs and NICs on this machine")


def _all_alike(machine: Machine) -> bool:
    return len({distance(gpu.position, nic.position) for gpu in machine.gpus for nic in machine.nics}) == 1


def _joined(sizes: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Large groups first; devices that are in no group with the other kind in one request each, with a count."""
    both = sorted((size for size in sizes if all(size)), key=sum, reverse=True)
    gpus, nics = (sum(size[i] for size in sizes if not all(size)) for i in (0, 1))
    return [*both, *([(gpus, 0)] if gpus else []), *([(0, nics)] if nics else [])]


def _both_publish(hardware: Hardware, machine: Machine, attribute: str) -> bool:
    drivers = {part.driver for part in (*machine.gpus, *machine.nics)}
    return all(attribute in hardware.published.get(driver, ()) for driver in drivers)


def _groups(best: DeviceChoice, attribute: str) -> list[Group]:
    """The devices of a choice, those with one value of the attribute together."""

    def value(part: MachineDevice) -> Hashable:
        return part.position.root if attribute == PCIE_ROOT else part.position.numa

    gpus, nics, _ = best
    values = dict.fromkeys(map(value, (*gpus, *nics)))
    return [([g for g in gpus if value(g) == one], [n for n in nics if value(n) == one]) for one in values]


class _Writer:
    """Writes claims for one machine and one number of devices."""

    def __init__(self, machine: Machine, gpus: int, nics: int, rails: Sequence[str] = (), share: str = "") -> None:
        self._machine, self._gpus, self._nics, self._share = machine, gpus, nics, share
        rail = f"rail-{'-'.join(rails)}" if rails else ""
        name = "-".join(filter(None, (f"{gpus}gpu" if gpus else "", f"{nics}nic" if nics else "", rail)))
        self._name = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60]
        self._every: tuple[str, ...] = (
            (f"{cel_attribute(RDMA)} == true",) if any(nic.rdma for nic in machine.nics) else ()
        )
        self._every += (_on_rails(rails),) if rails else ()

    def plain(self) -> list[Request]:
        """Nothing but the numbers."""
        return [request for request in (self._gpu("gpu", self._gpus), self._nic("nic", self._nics)) if request.count]

    def unaligned(self, why: str) -> Variant:
        """Nothing but the numbers, on purpose."""
        return Variant(why, tuple(replace(made, unaligned=why) for made in self.template(self.plain())))

    def matched(self, sizes: Sequence[tuple[int, int]], attribute: str) -> Variant:
        """A constraint for each group of GPUs and NICs."""
        short = attribute.rpartition("/")[2]
        if len(sizes) == 1:
            return Variant(f"one {short} for all", self.template(self.plain(), [(("gpu", "nic"), attribute)]))
        requests: list[Request] = []
        constraints: list[Constraint] = []
        for i, (gpus, nics) in enumerate(sizes):
            wanted = [r for r in (self._gpu(f"gpu-{i}", gpus), self._nic(f"nic-{i}", nics)) if r.count]
            requests += wanted
            if gpus and nics:
                constraints.append((tuple(request.name for request in wanted), attribute))
        return Variant(f"{len(sizes)} groups, each with one {short}", self.template(requests, constraints))

    def pinned(self) -> Iterator[Variant]:
        """One template for each NUMA node that has enough of both."""
        made: list[Template] = []
        for numa in sorted({part.position.numa for part in self._machine.gpus if part.position.numa is not None}):
            near, nics = self._of_node(numa)
            if len(near) >= self._gpus and len(nics) >= self._nics:
                requests = [self._gpu("gpu", self._gpus, _at(near)), self._nic("nic", self._nics, _on_node(numa))]
                made += self._chosen(requests, [(near, nics)], name=f"{self._name}-numa{numa}")
        if made:
            yield Variant("chosen by PCI address and NUMA node, one template for each", tuple(made))

    def sides(self, groups: Sequence[Group]) -> Variant:
        """So many devices of each NUMA node as the best choice has there."""
        requests, offered = [], []
        for gpus, nics in groups:
            numa = next(part.position.numa for part in (*gpus, *nics))
            there = self._of_node(numa)
            if gpus:
                requests.append(self._gpu(f"gpu-{numa}", len(gpus), _at(there[0])))
            if nics:
                requests.append(self._nic(f"nic-{numa}", len(nics), _on_node(numa)))
                offered.append((there[0] if gpus else [], there[1]))
        return Variant("chosen by PCI address and NUMA node, a number of each", self._chosen(requests, offered))

    def exact(self, best: DeviceChoice) -> Variant:
        """The devices of the best choice and no others."""
        nics = f"{cel_attribute(PCI_ADDRESS)} in {_addresses(best[1])}"
        requests = [self._gpu("gpu", self._gpus, _at(best[0])), self._nic("nic", self._nics, nics)]
        return Variant("exactly these devices, by PCI address", self._chosen(requests, [best[:2]]))

    def _chosen(self, requests: Sequence[Request], groups: Sequence[Group], *, name: str = "") -> tuple[Template]:
        """A template that names devices; it gets a lint reason if some of those it may get are far from each other."""
        (made,) = self.template(requests, name=name)
        every = [(gpu, nic) for gpu in self._machine.gpus for nic in self._machine.nics]
        near = all(gpus and all(reads_directly(g, n) for g in gpus for n in nics) for gpus, nics in groups)
        meant = near or not any(reads_directly(gpu, nic) for gpu, nic in every)
        return (made if meant else replace(made, unaligned="chosen by position, as near as a claim can request"),)

    def _of_node(self, numa: int | None) -> tuple[list[MachineDevice], list[MachineDevice]]:
        gpus = [part for part in self._machine.gpus if part.position.numa == numa and part.address]
        return gpus, [part for part in self._machine.nics if part.position.numa == numa]

    def _gpu(self, name: str, count: int, *selectors: str) -> Request:
        driver = self._machine.gpus[0].driver if self._machine.gpus else ""
        return Request(name, driver, count, selectors)

    def _nic(self, name: str, count: int, *selectors: str) -> Request:
        driver = self._machine.nics[0].driver if self._machine.nics else DRIVER_NAME
        return Request(
            name, "dranet" if driver == DRIVER_NAME else driver, count, (*self._every, *selectors), self._share
        )

    def template(
        self, requests: Sequence[Request], constraints: Sequence[Constraint] = (), *, name: str = ""
    ) -> tuple[Template]:
        """One template of plain requests."""
        return (Template(name or self._name, tuple((request,) for request in requests), tuple(constraints)),)


def _request_lines(alternatives: Sequence[Request]) -> list[str]:
    """A plain request, or one with alternatives, whose names are ``request/alternative``."""
    first = alternatives[0]
    if len(alternatives) == 1:
        return [f"      - name: {first.name}", "        exactly:", *_fields(first, " " * 10)]
    lines = [f"      - name: {first.name.partition('/')[0]}", "        firstAvailable:"]
    for one in alternatives:
        lines += [f"        - name: {one.name.partition('/')[2]}", *_fields(one, " " * 10)]
    return lines


def _fields(request: Request, space: str) -> list[str]:
    lines = [f"{space}deviceClassName: {request.device_class}"]
    if request.count > 1:
        lines.append(f"{space}count: {request.count}")
    if request.share:
        lines += [f"{space}capacity:", f"{space}  requests:", f"{space}    {BANDWIDTH}: {request.share}"]
    if request.selectors:
        lines.append(f"{space}selectors:")
    for text in request.selectors:
        lines += [f"{space}- cel:", f"{space}    expression: '{text}'"]
    return lines


def cel_attribute(attribute: str) -> str:
    """An attribute as CEL reads it."""
    domain, _, name = attribute.partition("/")
    return f'device.attributes["{domain}"].{name}'


def _addresses(parts: Sequence[MachineDevice]) -> str:
    quoted = ", ".join(f'"{part.address}"' for part in parts)
    return f"[{quoted}]"


def _at(parts: Sequence[MachineDevice]) -> str:
    """GPUs by their addresses, under the name their driver publishes them by."""
    amd = parts and parts[0].driver == "gpu.amd.com"
    return f"{cel_attribute('gpu.amd.com/pciAddr' if amd else PCI_BUS_ID)} in {_addresses(parts)}"


def _on_rails(rails: Sequence[str]) -> str:
    quoted = [f'"{rail}"' for rail in rails]
    return (
        f"{cel_attribute(RAIL)} == {quoted[0]}"
        if len(quoted) == 1
        else f"{cel_attribute(RAIL)} in [{', '.join(quoted)}]"
    )


def _on_node(numa: int | None) -> str:
    return f"{cel_attribute(NUMA_NODE)} == {numa}"
