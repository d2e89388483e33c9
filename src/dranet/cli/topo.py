"""``dranet topo``: distances between GPUs and NICs as a matrix and as a picture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import click
from msgspec.structs import replace

from dranet.advise.explain import explain_claim
from dranet.advise.manifests import Claim, Manifests
from dranet.advise.plan.cluster import allocated_claims, allocated_devices
from dranet.cli.inputs import Cluster, Given, cluster_options, complete_shape, gather, print_json, schema
from dranet.core.errors import InvalidInput, NotFound
from dranet.machines.alignment import align
from dranet.machines.machine import DeviceId, Machine, MachineDevice, machine_of_shape
from dranet.machines.matrix import labelled_devices, to_json, to_text
from dranet.machines.shape_devices import expand_shape_specs
from dranet.machines.svg import to_svg

_HELP = """Print the topology matrix of this machine, a machine shape, or a node of recorded slices or of the cluster.

With --claim, -o svg highlights the devices of a claim: the allocated ones, or those that a pending claim or a template
would get. With --pod it highlights the devices of all claims of a pod. -o nccl-xml writes a file for NCCL_TOPO_FILE."""
_THIS_MACHINE = "this machine"

Shares = Mapping[str, list[str]]


@click.command(help=_HELP)
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_shape,
    help="Machine shape or shape file.",
)
@click.option("--slices", "slices", multiple=True, metavar="FILE", help="Recorded ResourceSlices.")
@click.option("--node", metavar="NAME", help="Node of the slices or of the live cluster.")
@click.option("--sysfs", metavar="DIR", default="/sys", help="sysfs of this machine.")
@click.option("-f", "--filename", "files", multiple=True, metavar="FILE", help="Manifests that contain the claim.")
@click.option("--claim", metavar="[NAMESPACE/]NAME", help="Highlight the devices of this claim or template.")
@click.option("--pod", metavar="[NAMESPACE/]NAME", help="Highlight the devices of all claims of this pod.")
@cluster_options
@click.option("-o", "--output", type=click.Choice(["table", "json", "svg", "nccl-xml"]), default="table")
def topo(
    shapes: tuple[str, ...],
    slices: tuple[str, ...],
    node: str | None,
    sysfs: str,
    files: tuple[str, ...],
    claim: str | None,
    pod: str | None,
    cluster: Cluster | None,
    output: str,
) -> None:
    given, picked = None, dict[str, list[DeviceId]]()
    if not shapes and not slices and not node and not cluster:
        machines = [_this_machine(sysfs)]
    else:
        given = gather(files, shapes, slices, bool(node and not shapes and not slices), cluster)
        picked = _picked(given, _claims(given.manifests, claim, pod))
        machines = _machines(given, node, picked)
    if len(machines) > 1 and output != "table":
        raise click.ClickException(
            f"{len(machines)} nodes; choose one with --node: {', '.join(m.node for m in machines)}"
        )
    if output == "nccl-xml":
        only = picked.get(machines[0].node, []) if claim or pod else None
        _write_nccl(shapes, given, sysfs, machines[0], only)
        return
    for machine in machines:
        shares = _shares(given.manifests, machine) if given else {}
        _show(machine, picked.get(machine.node, []), output, shares, title=len(machines) > 1)


def _write_nccl(
    shapes: tuple[str, ...], given: Given | None, sysfs: str, machine: Machine, picked: list[DeviceId] | None
) -> None:
    """From the sysfs of this machine, as pods get it; else from the named shape, or from the slices."""
    from dranet.machines.importers.slices import shape_of_slices
    from dranet.machines.nccl_export import to_nccl_xml

    if given is None:
        click.echo(_from_sysfs(sysfs, machine), nl=False)
        return
    named = next((shape for node, shape, _ in expand_shape_specs(list(shapes)) if node == machine.node), None)
    shape = named or shape_of_slices(given.manifests.checked_slices(), machine.node, machine.node)
    parts = [machine.find(device) for device in picked or ()]
    only = None if picked is None else [part.address for part in parts if part and part.address]
    click.echo(to_nccl_xml(shape, only), nl=False)


def _from_sysfs(sysfs: str, machine: Machine) -> bytes:
    from dranet.linux.sysfs import Sysfs
    from dranet.node.edits.nccl_topology import topology_file

    nets = {nic.address: nic.title or nic.device for nic in machine.nics if nic.address}
    content, _ = topology_file(Sysfs(sysfs), {**{gpu.address: "" for gpu in machine.gpus if gpu.address}, **nets})
    return content


def _shares(manifests: Manifests, machine: Machine) -> dict[str, list[str]]:
    """By label, the claims that have a share of a NIC."""
    labels = {part.id: label for label, part in labelled_devices(machine).items()}
    found: dict[str, list[str]] = {}
    for (namespace, name), results in sorted(allocated_claims(manifests).items()):
        for result in results:
            label = labels.get(result.id) or result.device
            if result.pool == machine.node and (share := result.share):
                found.setdefault(label, []).append(f"{namespace}/{name} {share}")
    return found


def _show(machine: Machine, picked: list[DeviceId], output: str, shares: Shares, *, title: bool) -> None:
    if output == "json":
        print_json({**schema("topo"), **to_json(machine), **({"shares": shares} if shares else {})})
    elif output == "svg":
        gpus = [gpu for gpu in machine.gpus if gpu.id in picked]
        nics = [nic for nic in machine.nics if nic.id in picked]
        click.echo(to_svg(machine, picked, align(gpus, nics).pairs), nl=False)
    else:
        click.echo((f"{machine.node}\n\n" if title else "") + to_text(machine))
        for label, takers in sorted(shares.items()):
            click.echo(f"Shares of {label}: {'; '.join(takers)}")


def _machines(given: Given, node: str | None, picked: dict[str, list[DeviceId]]) -> list[Machine]:
    """The named node, else the nodes of the claim's devices, else all."""
    machines = dict(given.hardware.machines) if given.hardware else {}
    if not machines:
        raise InvalidInput("no ResourceSlice of any node; check that the driver runs")
    if node is None:
        return [machine for name, machine in machines.items() if not picked or name in picked]
    if node not in machines:
        raise NotFound(f"--node {node}: no such node; known: {', '.join(machines)}")
    return [machines[node]]


_VIRTIO_VENDOR = "1af4"


def _this_machine(sysfs: str) -> Machine:
    """The machine as nvidia-smi shows it.

    In a virtual machine the kernel reports no NUMA node for devices: with one NUMA node, all devices belong to it. A
    virtio NIC is not hardware of the machine, so it is left out.
    """
    from dranet.machines.capture import capture

    shape = capture(_THIS_MACHINE, sysfs)
    made = machine_of_shape(shape, _THIS_MACHINE)
    virtual = {str(nic.pci) for nic in shape.nics if shape.nic_kind(nic).vendor_id == _VIRTIO_VENDOR and not nic.rdma}
    shown = [nic for nic in made.nics if nic.address not in virtual]
    if not made.gpus and not shown:
        raise NotFound(f"no GPU and no NIC on the PCI bus of {sysfs}; use --shape NAME")
    for nic in made.nics:
        if nic.address in virtual:
            click.echo(f"not shown: {nic.title or nic.device}, a virtio NIC", err=True)
    only = shape.numa[0].node if len(shape.numa) == 1 else None
    return replace(made, gpus=_placed(made.gpus, only), nics=_placed(shown, only))


def _placed(parts: Iterable[MachineDevice], numa: int | None) -> tuple[MachineDevice, ...]:
    return tuple(
        part if part.position.numa is not None else replace(part, position=replace(part.position, numa=numa))
        for part in parts
    )


def _picked(given: Given, claims: Iterable[Claim]) -> dict[str, list[DeviceId]]:
    """By node, the devices that claims have or would get."""
    picked: dict[str, list[DeviceId]] = {}
    for claim in claims:
        results = allocated_devices(Manifests((claim.owner,)))
        if not results:
            found = explain_claim(given.manifests, given.machines, claim)
            if found.placed is None:
                wanted = f"{claim.owner.kind} {claim.owner.name}"
                raise InvalidInput(f"{wanted} cannot be placed on these machines: {found.reason}")
            results = [result for group in found.placed.placement.devices for result in group]
        for result in results:
            picked.setdefault(result.pool, []).append(result.id)
    return picked


def _claims(manifests: Manifests, claim: str | None, pod: str | None) -> list[Claim]:
    """The claim of --claim and the claims of --pod."""
    found = [_find(manifests, claim)] if claim else []
    return found + (_claims_of_pod(manifests, pod) if pod else [])


def _claims_of_pod(manifests: Manifests, wanted: str) -> list[Claim]:
    namespace, _, name = wanted.rpartition("/")
    for pod in manifests.pods:
        if name in pod.names and namespace in {"", pod.namespace}:
            claims = manifests.claims_of(pod)
            if len(claims) < len(pod.claims):
                raise NotFound(f"pod {wanted} has claims that are not in the input; add their file with -f")
            return claims
    raise NotFound(f"no pod {wanted} in the input; add its file with -f")


def _find(manifests: Manifests, wanted: str) -> Claim:
    namespace, _, name = wanted.rpartition("/")
    for claim in manifests.all_claims:
        if claim.owner.name == name and namespace in {"", claim.owner.namespace}:
            return claim
    raise NotFound(f"no ResourceClaim or ResourceClaimTemplate {wanted} in the input; add its file with -f")
