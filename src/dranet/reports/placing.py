"""Which GPUs and cards each pod of a run had: from the claims where they are given, else from the log.

Rank lines give a pod's GPUs by PCI address, so a known shape with those GPUs at those addresses is the machine.
Cards are in the log only where NCCL or Open MPI named them. A claim is tied to its pod by `status.reservedFor`;
pods nobody reserved it for are taken to hold devices of the same names, as pods of one template do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from dranet.reports.runs import Run
from dranet.topology.machine import DeviceId, Machine, Part, machine_of_shape
from dranet.topology.shape import Shape, load_shape, shape_names


class Held(msgspec.Struct, frozen=True):
    """The devices of one allocated claim."""

    claim: str
    node: str
    devices: tuple[DeviceId, ...]
    pods: tuple[str, ...] = ()


class RunHost(msgspec.Struct, frozen=True):
    """One host of a run with its GPUs and cards."""

    host: str
    gpus: tuple[Part, ...]
    nics: tuple[Part, ...]
    cards_known: bool
    """False where no claim and no line of the log names the pod's cards."""
    machine: Machine


def place(run: Run, machines: Mapping[str, Machine], held: Sequence[Held], text: str = "") -> list[RunHost]:
    """The pods of a run; empty where nothing tells what it ran on. ``text`` may name a machine shape."""
    hosts = run.hosts or tuple(dict.fromkeys(pod for claim in held for pod in claim.pods)) or ("",)
    placed = [_place(run, host, machines, held, text) for host in hosts]
    return [pod for pod in placed if pod is not None] if all(placed) else []


def _place(run: Run, host: str, machines: Mapping[str, Machine], held: Sequence[Held], text: str) -> RunHost | None:
    mine = [claim for claim in held if host in claim.pods] or list(held)
    addresses = [rank.address for rank in run.ranks if rank.host == host and rank.address]
    machine = _machine(run, host, addresses, machines, mine, text)
    if machine is None:
        return None
    claimed = {device for claim in mine for device in claim.devices}
    gpus = [gpu for gpu in machine.gpus if any(_is_at(gpu, address) for address in addresses)]
    gpus = gpus or [gpu for gpu in machine.gpus if gpu.id in claimed or gpu.device in run.evidence.gpus]
    nics = [nic for nic in machine.nics if nic.id in claimed] or _named(machine, run, host, len(gpus))
    return RunHost(host, tuple(gpus), tuple(nics), bool(nics), machine)


def _machine(
    run: Run, host: str, addresses: list[str], machines: Mapping[str, Machine], held: list[Held], text: str
) -> Machine | None:
    if found := next((machines[claim.node] for claim in held if claim.node in machines), None):
        return found
    known = machines.values() if machines else _recognised(run, host, text)
    fits = (m for m in known if all(any(_is_at(gpu, address) for gpu in m.gpus) for address in addresses))
    return next(fits, None)


def _recognised(run: Run, host: str, text: str) -> Iterable[Machine]:
    """Known shapes with the products of the rank lines; without rank lines, shapes the text names."""
    products = {rank.product for rank in run.ranks if rank.host == host and rank.product}
    for name in shape_names():
        shape = load_shape(name)
        if products == _products(shape) if products else not run.ranks and shape.name in text:
            yield machine_of_shape(shape, host)


def _products(shape: Shape) -> set[str]:
    return {str(shape.gpu_kind(gpu).attributes.get("productName")) for gpu in shape.gpus}


def _is_at(part: Part, address: str) -> bool:
    """nccl-tests leaves out the function, and old versions all but the bus."""
    return part.address.startswith(address) if ":" in address else part.address.split(":")[1:2] == [address]


def _named(machine: Machine, run: Run, host: str, gpus: int) -> list[Part]:
    """Cards by the names in the log. A list shorter than that of the GPUs is only what somebody happened to mention."""
    cards = run.evidence.cards
    names = cards.get(host) or cards.get("") or next(iter(cards.values()), ())
    found = [nic for nic in machine.nics if nic.title in names or (nic.interface and nic.interface in names)]
    return found if len(found) >= max(gpus, 1) else []
