"""``dranet topo``: distances between GPUs and NICs, as nvidia-smi shows them, and as a picture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import click
from msgspec.structs import replace

from dranet.allocation.shares import share_text
from dranet.cli.inputs import Cluster, Given, cluster_options, complete_shape, gather, print_json
from dranet.manifests.claim_views import Claim, World
from dranet.model.errors import DranetError, InvalidInput, NotFound
from dranet.predict.cluster_now import allocated_results, held_claims
from dranet.predict.explain.explaining import explain_claim
from dranet.topology.alignment import align
from dranet.topology.machine import DeviceId, Machine, Part, machine_of_shape
from dranet.topology.matrix import labelled, to_json, to_text
from dranet.topology.picture import to_svg
from dranet.topology.shape_devices import nodes_of

HELP = """The topology matrix of a machine: this one, a shape, a node's slices or a node of the cluster. With --claim
the picture shows a claim's devices: those it holds; for one that holds none, and for a template, those it would get;
with --pod those of all claims of a pod. -o nccl-xml writes the machine, or that part of it, as a file for
NCCL_TOPO_FILE."""
THIS_MACHINE = "this machine"

Shares = Mapping[str, list[str]]


@click.command(help=HELP)
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_shape,
    help="A machine shape, or a shape file.",
)
@click.option("--slices", "slices", multiple=True, metavar="FILE", help="Recorded ResourceSlices.")
@click.option("--node", metavar="NAME", help="This node, of the slices or else of the live cluster.")
@click.option("--sysfs", metavar="DIR", default="/sys", help="The sysfs to read when nothing else is named.")
@click.option("-f", "--filename", "files", multiple=True, metavar="FILE", help="Manifests with the claim.")
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
    """Print one machine; several slices or shapes without --node print them one after the other."""
    try:
        given, picked = None, dict[str, list[DeviceId]]()
        if not shapes and not slices and not node and not cluster:
            machines = [_this_machine(sysfs)]
        else:
            given = gather(files, shapes, slices, bool(node and not shapes and not slices), cluster)
            picked = _picked(given, _claims(given.world, claim, pod))
            machines = _machines(given, node, picked)
    except DranetError as error:
        raise click.ClickException(str(error)) from error
    if len(machines) > 1 and output != "table":
        raise click.ClickException(
            f"{len(machines)} nodes; choose one with --node: {', '.join(m.node for m in machines)}"
        )
    if output == "nccl-xml":
        only = picked.get(machines[0].node, []) if claim or pod else None
        _write_nccl(shapes, given, sysfs, machines[0], only)
        return
    for machine in machines:
        shares = _shares(given.world, machine) if given else {}
        _show(machine, picked.get(machine.node, []), output, shares, title=len(machines) > 1)


def _write_nccl(
    shapes: tuple[str, ...], given: Given | None, sysfs: str, machine: Machine, picked: list[DeviceId] | None
) -> None:
    """Of this machine what its sysfs shows, as pods get it; else from a shape: the one named, or that of the slices."""
    from dranet.topology.importers.slices import shape_of_slices
    from dranet.topology.nccl_export import to_nccl_xml

    try:
        if given is None:
            click.echo(_from_sysfs(sysfs, machine), nl=False)
            return
        named = next((shape for node, shape, _ in nodes_of(list(shapes)) if node == machine.node), None)
        shape = named or shape_of_slices(given.world.checked_slices(), machine.node, machine.node)
        parts = [machine.find(device) for device in picked or ()]
        only = None if picked is None else [part.address for part in parts if part and part.address]
        click.echo(to_nccl_xml(shape, only), nl=False)
    except DranetError as error:
        raise click.ClickException(str(error)) from error


def _from_sysfs(sysfs: str, machine: Machine) -> bytes:
    from dranet.kernel.sysfs import Sysfs
    from dranet.podfacts.nccl_topology import topology_file

    nets = {nic.address: nic.title or nic.device for nic in machine.nics if nic.address}
    content, _ = topology_file(Sysfs(sysfs), {**{gpu.address: "" for gpu in machine.gpus if gpu.address}, **nets})
    return content


def _shares(world: World, machine: Machine) -> dict[str, list[str]]:
    """By label, what claims have of cards that are shared."""
    labels = {part.id: label for label, part in labelled(machine).items()}
    found: dict[str, list[str]] = {}
    for (namespace, name), results in sorted(held_claims(world).items()):
        for result in results:
            device = str(result["device"])
            label = labels.get((str(result["driver"]), device)) or device
            if result["pool"] == machine.node and (share := share_text(result)):
                found.setdefault(label, []).append(f"{namespace}/{name} {share}")
    return found


def _show(machine: Machine, picked: list[DeviceId], output: str, shares: Shares, *, title: bool) -> None:
    if output == "json":
        print_json({**to_json(machine), **({"shares": shares} if shares else {})})
    elif output == "svg":
        gpus = [gpu for gpu in machine.gpus if gpu.id in picked]
        nics = [nic for nic in machine.nics if nic.id in picked]
        click.echo(to_svg(machine, picked, align(gpus, nics).pairs), nl=False)
    else:
        click.echo((f"{machine.node}\n\n" if title else "") + to_text(machine))
        for label, takers in sorted(shares.items()):
            click.echo(f"Shares of {label}: {'; '.join(takers)}")


def _machines(given: Given, node: str | None, picked: dict[str, list[DeviceId]]) -> list[Machine]:
    """The named node, else those where a claim's devices are, else all."""
    machines = dict(given.hardware.machines) if given.hardware else {}
    if not machines:
        raise InvalidInput("no ResourceSlice of any node found; is the driver running?")
    if node is None:
        return [machine for name, machine in machines.items() if not picked or name in picked]
    if node not in machines:
        raise NotFound(f"no node {node!r}; there are {', '.join(machines)}")
    return [machines[node]]


VIRTIO = "1af4"


def _this_machine(sysfs: str) -> Machine:
    """The machine as nvidia-smi shows it: with one NUMA node everything is near it, though the kernel does not say so
    of a virtual machine's devices; and a card of virtio is a way out of the virtual machine, not hardware of it."""
    from dranet.topology.capture import capture

    shape = capture(THIS_MACHINE, sysfs)
    made = machine_of_shape(shape, THIS_MACHINE)
    virtual = {str(nic.pci) for nic in shape.nics if shape.nic_kind(nic).vendor_id == VIRTIO and not nic.rdma}
    shown = [nic for nic in made.nics if nic.address not in virtual]
    if not made.gpus and not shown:
        raise NotFound(f"no GPU and no network card on the PCI bus of {sysfs}; try --shape NAME")
    for nic in made.nics:
        if nic.address in virtual:
            click.echo(f"not shown: {nic.title or nic.device}, a card of virtio", err=True)
    only = shape.numa[0].node if len(shape.numa) == 1 else None
    return replace(made, gpus=_placed(made.gpus, only), nics=_placed(shown, only))


def _placed(parts: Iterable[Part], numa: int | None) -> tuple[Part, ...]:
    return tuple(
        part if part.place.numa is not None else replace(part, place=replace(part.place, numa=numa)) for part in parts
    )


def _picked(given: Given, claims: Iterable[Claim]) -> dict[str, list[DeviceId]]:
    """By node, the devices that claims hold or would get."""
    picked: dict[str, list[DeviceId]] = {}
    for claim in claims:
        results = allocated_results(World((claim.owner,)))
        if not results:
            found = explain_claim(given.world, given.machines, claim)
            if found.placed is None:
                wanted = f"{claim.owner.kind} {claim.owner.name}"
                raise InvalidInput(f"{wanted} cannot be placed on these machines: {found.reason}")
            results = [result for group in found.placed.placement.devices for result in group]
        for result in results:
            picked.setdefault(result["pool"], []).append((result["driver"], result["device"]))
    return picked


def _claims(world: World, claim: str | None, pod: str | None) -> list[Claim]:
    """The claim that was named, and those of the pod that was."""
    found = [_find(world, claim)] if claim else []
    return found + (_claims_of_pod(world, pod) if pod else [])


def _claims_of_pod(world: World, wanted: str) -> list[Claim]:
    namespace, _, name = wanted.rpartition("/")
    for pod in world.pods:
        if name in pod.names and namespace in {"", pod.namespace}:
            claims = world.claims_of(pod)
            if len(claims) < len(pod.claims):
                raise NotFound(f"pod {wanted} names claims that are not among the objects; name their file with -f")
            return claims
    raise NotFound(f"no pod {wanted} among the objects; name its file with -f")


def _find(world: World, wanted: str) -> Claim:
    namespace, _, name = wanted.rpartition("/")
    for claim in world.all_claims:
        if claim.owner.name == name and namespace in {"", claim.owner.namespace}:
            return claim
    raise NotFound(f"no ResourceClaim and no template {wanted} among the objects; name its file with -f")
