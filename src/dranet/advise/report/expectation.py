"""What a run should reach: with its own devices, and with as many well-aligned devices.

GPUs come from the rank lines of the log, by PCI address: a known shape with GPUs at these addresses is the machine.
NICs come from the claims, or from the log if NCCL or Open MPI names them. `status.reservedFor` ties a claim to its pod;
pods without a claim are assumed to have devices of the same names, like all pods of one template.

The figures are those of `dranet.machines.bandwidth` for the collective of the run, and for the algorithm in its log. A
peak is compared with the figure for large messages, an average with the average of the model over the same sizes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from dranet.advise.report import nixl, perftest
from dranet.advise.report.runs import Run
from dranet.machines.alignment import Alignment, align
from dranet.machines.bandwidth import (
    SWEEP_SIZES,
    Estimate,
    JobPod,
    NoEstimate,
    Transfer,
    estimate,
    perfectly_aligned,
    sweep_average,
)
from dranet.machines.collectives import ALL_REDUCE, RING
from dranet.machines.distance import Distance, distance
from dranet.machines.machine import DeviceId, Machine, MachineDevice, machine_of_shape
from dranet.machines.shape import Shape, load_shape, shape_names


class AllocatedClaim(msgspec.Struct, frozen=True):
    """An allocated claim."""

    claim: str
    node: str
    devices: tuple[DeviceId, ...]
    pods: tuple[str, ...] = ()


class Host(msgspec.Struct, frozen=True):
    """A host of a run with its GPUs and NICs."""

    host: str
    gpus: tuple[MachineDevice, ...]
    nics: tuple[MachineDevice, ...]
    nics_known: bool
    """False if neither a claim nor the log names the NICs of the pod."""
    machine: Machine


def find_hosts(
    run: Run, machines: Mapping[str, Machine], claims: Sequence[AllocatedClaim], text: str = ""
) -> list[Host]:
    """The hosts of a run; empty if the machine is unknown. ``text`` may contain the name of a machine shape."""
    names = run.hosts or tuple(dict.fromkeys(pod for claim in claims for pod in claim.pods)) or ("",)
    hosts = [_host(run, name, machines, claims, text) for name in names]
    return [host for host in hosts if host is not None] if all(hosts) else []


def _host(
    run: Run, host: str, machines: Mapping[str, Machine], claims: Sequence[AllocatedClaim], text: str
) -> Host | None:
    own = [claim for claim in claims if host in claim.pods] or list(claims)
    addresses = [rank.address for rank in run.ranks if rank.host == host and rank.address]
    machine = _machine(run, host, addresses, machines, own, text)
    if machine is None:
        return None
    claimed = {device for claim in own for device in claim.devices}
    gpus = [gpu for gpu in machine.gpus if any(_is_at(gpu, address) for address in addresses)]
    gpus = gpus or [gpu for gpu in machine.gpus if gpu.id in claimed or gpu.device in run.evidence.gpus]
    if not gpus and machines and len(addresses) <= len(machine.gpus):
        gpus = list(machine.gpus[: len(addresses)])  # the user names the machine, whose GPUs have other addresses
    nics = [nic for nic in machine.nics if nic.id in claimed] or _nics_in_log(machine, run, host, len(gpus))
    return Host(host, tuple(gpus), tuple(nics), bool(nics), machine)


def _machine(
    run: Run, host: str, addresses: list[str], machines: Mapping[str, Machine], claims: list[AllocatedClaim], text: str
) -> Machine | None:
    if found := next((machines[claim.node] for claim in claims if claim.node in machines), None):
        return found
    known = machines.values() if machines else _matching_shapes(run, host, text)
    fits = (m for m in known if all(any(_is_at(gpu, address) for gpu in m.gpus) for address in addresses))
    # A machine that the user names counts also if its GPUs have other addresses.
    return next(fits, None) or next((m for m in machines.values() if len(m.gpus) >= len(addresses)), None)


def _matching_shapes(run: Run, host: str, text: str) -> Iterable[Machine]:
    """Shapes with the GPU products of the rank lines; without rank lines, shapes whose name is in the text."""
    products = _products_in_log(run, host)
    for name in shape_names():
        shape = load_shape(name)
        if products == _products(shape) if products else not run.ranks and shape.name in text:
            yield machine_of_shape(shape, host)


def _products_in_log(run: Run, host: str) -> set[str]:
    return {rank.product for rank in run.ranks if rank.host == host and rank.product}


def _products(shape: Shape) -> set[str]:
    return {str(shape.gpu_kind(gpu).attributes.get("productName")) for gpu in shape.gpus}


def _is_at(part: MachineDevice, address: str) -> bool:
    """nccl-tests prints the address without the function, and old versions print only the bus."""
    return part.address.startswith(address) if ":" in address else part.address.split(":")[1:2] == [address]


def _nics_in_log(machine: Machine, run: Run, host: str, gpus: int) -> list[MachineDevice]:
    """NICs by their names in the log. Fewer NICs than GPUs are not the whole list, so they are ignored."""
    nics = run.evidence.nics
    names = nics.get(host) or nics.get("") or next(iter(nics.values()), ())
    found = [nic for nic in machine.nics if nic.title in names or (nic.interface and nic.interface in names)]
    return found if len(found) >= max(gpus, 1) else []


PERFTEST = perftest.PROGRAMS


class Expected(msgspec.Struct, frozen=True):
    """The expected bandwidth of a run."""

    allocated: Estimate
    """With the devices of the run."""
    best: Estimate
    """With as many devices, each GPU near its NIC."""
    nics_known: bool
    alignments: tuple[tuple[Host, Alignment], ...] = ()

    @property
    def worst(self) -> Distance:
        """The farthest pair of all pods with known NICs."""
        return max((alignment.worst for _, alignment in self.alignments if alignment.pairs), default=Distance.UNKNOWN)


class Comparison(msgspec.Struct, frozen=True):
    """The figure of a run that is compared with the model, in GB/s."""

    what: str
    measured: float
    allocated: float
    best: float


def expect(run: Run, pods: Sequence[Host]) -> Expected | NoEstimate:
    """The expected bandwidth, or the reason why it is unknown."""
    if reason := not_comparable(run):
        return NoEstimate(reason)
    if not pods:
        return NoEstimate("the machine of this run is unknown: add the --slices, --shape or --claim that has its GPUs")
    if run.collective in PERFTEST:
        return _point_to_point(pods, run.bidirectional)
    if not any(pod.gpus or pod.nics for pod in pods):
        return NoEstimate(f"the log has {_rank_lines(run)}, so the GPUs and NICs of the run are unknown: add --claim")
    if reason := _other_gpus(run, pods):
        return NoEstimate(reason)
    alone = len(pods) == 1 and len(run.hosts) == 1
    aligned = [(pod, Alignment() if alone else align(pod.gpus, pod.nics)) for pod in pods]
    members = [_member(pod, alignment, alone) for pod, alignment in aligned]
    if len(members) == 1 and not alone:
        ranks = max(len(members[0].gpus), 1)
        members *= max((run.world or 0) // ranks, 2)  # one claim represents all pods of its template
    known = alone or all(pod.nics_known for pod in pods)
    return _expected(run, members, known, tuple(aligned))


def not_comparable(run: Run) -> str:
    """Why no machine would give a figure for this run, or an empty string."""
    if run.ran_alone and len(run.ranks) > 1:
        return "every process is rank 0 of its own job, so no data was exchanged: build nccl-tests with MPI=1"
    if run.ran_alone:
        return "a single rank exchanges no data"
    if run.moved_nothing:
        return "the bus bandwidth is 0 at every size, as for a single rank: check that nccl-tests was built with MPI=1"
    if run.collective == nixl.PROGRAM:
        backend = run.settings.get("Backend", "")
        if backend in nixl.STORAGE:
            return f"the {backend} backend of nixlbench measures storage, not the network"
        return "NIXL transfers are not modelled: the log does not show which links the backend used"
    if not run.collective and not run.large_messages:
        return "the log does not show which collective ran: add the line with the command"
    return ""


def _rank_lines(run: Run) -> str:
    return f"{len(run.ranks)} of {run.world} rank lines" if run.ranks else "no rank lines"


def _other_gpus(run: Run, pods: Sequence[Host]) -> str:
    """The GPUs of the rank lines against those of the machine; names differ in details such as the memory size."""
    for pod in pods:
        logged = next(iter(sorted(_products_in_log(run, pod.host))), "")
        listed = next((gpu.product for gpu in pod.gpus if gpu.product), "")
        words = [set(re.findall(r"[A-Z]+\d+[A-Z]*", name)) for name in (logged, listed)]
        if all(words) and not words[0] & words[1]:
            return f"the log has {logged}, but {pod.machine.shape or 'the machine'} has {listed}"
    return ""


def _expected(
    run: Run, members: list[JobPod], nics_known: bool, aligned: tuple[tuple[Host, Alignment], ...]
) -> Expected | NoEstimate:
    collective, algorithm = run.collective or ALL_REDUCE, run.evidence.algorithm
    size = run.peak[1] if run.peak else None
    found = estimate(members, collective, algorithm=algorithm, size=size)
    best = estimate([perfectly_aligned(member) for member in members], collective, algorithm=algorithm, size=size)
    if isinstance(found, NoEstimate):
        return found
    return best if isinstance(best, NoEstimate) else Expected(found, best, nics_known, aligned)


def compare(run: Run, expected: Expected) -> Comparison | None:
    """The peak if there are rows, else the average; None for a run without figures."""
    allocated, best = expected.allocated, expected.best
    if peak := run.peak:
        return Comparison("at its best size", peak[0], allocated.gbytes, best.gbytes)
    if run.average is None:
        return None
    if run.large_messages or run.world is None:
        return Comparison("for large messages", run.average, allocated.gbytes, best.gbytes)
    sizes = run.sizes or SWEEP_SIZES
    at = [sweep_average(found, sizes) for found in (allocated, best)]
    return Comparison("on average over its sizes", run.average, *at)


def _member(pod: Host, alignment: Alignment, alone: bool) -> JobPod:
    if not pod.gpus:
        return JobPod((), unpaired_nics=pod.nics)
    if not alone and not pod.nics_known:
        alignment = align(pod.gpus, _nearest_nics(pod.machine, pod.gpus))
    return JobPod(pod.gpus, alignment)


def _nearest_nics(machine: Machine, gpus: Sequence[MachineDevice]) -> list[MachineDevice]:
    """The nearest NIC for each GPU: the best that the hardware can reach."""
    left = [nic for nic in machine.nics if nic.rdma]
    chosen: list[MachineDevice] = []
    for gpu in gpus:
        if left:
            chosen.append(min(left, key=lambda nic: distance(gpu.position, nic.position)))
            left.remove(chosen[-1])
    return chosen


def _point_to_point(pods: Sequence[Host], both_ways: bool) -> Expected | NoEstimate:
    """Point to point between NICs, without GPUs; the sum of both directions if the run measured that."""
    if not all(pod.nics for pod in pods):
        return NoEstimate("the machine has no NIC of the name in the log: add --claim")
    members = [JobPod((), unpaired_nics=pod.nics[:1]) for pod in pods]
    found = estimate(members * (2 if len(members) == 1 else 1), "send_recv", algorithm=RING)
    if isinstance(found, NoEstimate):
        return found
    rate = found.gbytes * (2 if both_ways else 1)
    straight = replace(found, gbytes=rate, transfers=(Transfer(0.0),))  # perftest keeps many messages in flight
    return Expected(straight, straight, True)
