"""``dranet topo``: distances between GPUs and NICs, as nvidia-smi shows them, and as a picture."""

from __future__ import annotations

import click

from dranet.cli.inputs import gather, print_json
from dranet.manifests.reading import Object
from dranet.model.errors import DranetError, InvalidInput, NotFound
from dranet.topology.alignment import align
from dranet.topology.machine import DeviceId, Machine, machine_of_shape
from dranet.topology.matrix import to_json, to_text
from dranet.topology.picture import to_svg


@click.command(help="The topology matrix of a machine: this one, a shape, a node's slices or a node of the cluster.")
@click.option("--shape", "shapes", multiple=True, metavar="NAME", help="A machine shape, or a shape file.")
@click.option("--slices", "slices", multiple=True, metavar="FILE", help="Recorded ResourceSlices.")
@click.option("--node", metavar="NAME", help="This node, of the slices or else of the live cluster.")
@click.option("--sysfs", metavar="DIR", default="/sys", help="The sysfs to read when nothing else is named.")
@click.option("--claim", metavar="[NAMESPACE/]NAME", help="Highlight this allocated claim in the picture.")
@click.option("--kubeconfig", metavar="FILE", help="Kubeconfig of the live cluster.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "svg"]), default="table")
def topo(
    shapes: tuple[str, ...],
    slices: tuple[str, ...],
    node: str | None,
    sysfs: str,
    claim: str | None,
    kubeconfig: str | None,
    output: str,
) -> None:
    """Print one machine; several slices or shapes without --node print them one after the other."""
    try:
        machines, objects = _machines(shapes, slices, node, sysfs, kubeconfig)
        picked = _claimed(objects, claim) if claim else {}
    except DranetError as error:
        raise click.ClickException(str(error)) from error
    if len(machines) > 1 and output != "table":
        raise click.ClickException(
            f"{len(machines)} nodes; choose one with --node: {', '.join(m.node for m in machines)}"
        )
    for machine in machines:
        _show(machine, picked.get(machine.node, []), output, title=len(machines) > 1)


def _show(machine: Machine, picked: list[DeviceId], output: str, *, title: bool) -> None:
    if output == "json":
        print_json(to_json(machine))
    elif output == "svg":
        gpus = [gpu for gpu in machine.gpus if gpu.id in picked]
        nics = [nic for nic in machine.nics if nic.id in picked]
        click.echo(to_svg(machine, picked, align(gpus, nics).pairs), nl=False)
    else:
        click.echo((f"{machine.node}\n\n" if title else "") + to_text(machine))


def _machines(
    shapes: tuple[str, ...], slices: tuple[str, ...], node: str | None, sysfs: str, kubeconfig: str | None
) -> tuple[list[Machine], list[Object]]:
    live = bool(kubeconfig or (node and not shapes and not slices))
    if not shapes and not slices and not live:
        return [_this_machine(sysfs)], []
    given = gather(slices, shapes, (), live, kubeconfig)
    machines = dict(given.hardware.machines) if given.hardware else {}
    if not machines:
        raise InvalidInput("no ResourceSlice of any node found; is the driver running, and is this the right file?")
    if node is None:
        return list(machines.values()), given.objects
    if node not in machines:
        raise NotFound(f"no node {node!r}; there are {', '.join(machines)}")
    return [machines[node]], given.objects


def _this_machine(sysfs: str) -> Machine:
    from dranet.sandbox.capture import capture

    machine = machine_of_shape(capture("this machine", sysfs), "this machine")
    if not machine.gpus and not machine.nics:
        raise NotFound(f"no GPU and no network card on the PCI bus of {sysfs}; try --shape NAME")
    return machine


def _claimed(objects: list[Object], claim: str) -> dict[str, list[DeviceId]]:
    """By node (pool), the devices an allocated claim holds."""
    namespace, _, name = claim.rpartition("/")
    for obj in objects:
        if obj.kind == "ResourceClaim" and obj.name == name and namespace in {"", obj.namespace}:
            results = (((obj.data.get("status") or {}).get("allocation") or {}).get("devices") or {}).get("results")
            if not results:
                raise NotFound(f"claim {claim} is not allocated")
            found: dict[str, list[DeviceId]] = {}
            for result in results:
                found.setdefault(result["pool"], []).append((result["driver"], result["device"]))
            return found
    raise NotFound(f"no ResourceClaim {claim} among the objects; add its file with --slices, or use --kubeconfig")
