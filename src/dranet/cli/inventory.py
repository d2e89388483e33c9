"""``dranet inventory``: what is on this node (or on a machine shape), what would be published, and what not and why."""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from dranet.model import attributes as names
from dranet.model.attributes import DEFAULT_FILTER

if TYPE_CHECKING:
    from dranet.inventory import Inventory, Options, Snapshot
    from dranet.model.device import Device


@click.command()
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "yaml"]),
    default="table",
    show_default=True,
    help="A table for people, everything as JSON, or the ResourceSlices as YAML.",
)
@click.option("--sysfs", default="/sys", show_default=True, metavar="DIR", help="Where sysfs is mounted.")
@click.option(
    "--filter", "expression", default=DEFAULT_FILTER, metavar="CEL", help="Which devices to offer; '' for all."
)
@click.option(
    "--cloud-provider-hint",
    "hint",
    default="",
    metavar="NAME",
    help="Name of a cloud provider, webhook or NONE; '' to detect.",
)
@click.option("--webhook-url", default="", metavar="URL", help="Where the webhook provider listens.")
@click.option(
    "--move-ib-interfaces",
    "move_ib",
    type=bool,
    default=True,
    show_default=True,
    metavar="BOOL",
    help="False: IPoIB interfaces stay on the node, and their cards are RDMA only.",
)
@click.option(
    "--uplink-interfaces",
    "uplinks",
    default="",
    metavar="NAMES",
    help="The node's uplinks, with commas; * and ? as in a shell; '' for those with default routes.",
)
@click.option(
    "--offer-interfaces",
    "offered",
    default="",
    metavar="NAMES",
    help="Interfaces or PCI addresses to offer although the node's network is built of them.",
)
@click.option(
    "--rail-source",
    default="auto",
    show_default=True,
    metavar="SOURCE",
    help="Where rails come from: auto, network, subnet, interface:PATTERN or off.",
)
@click.option("--shape", default="", metavar="NAME", help="A machine shape or shape file instead of this node.")
@click.option("--node", default="", metavar="NAME", help="Name of the node in the output; '' for its own.")
def inventory(
    output: str,
    sysfs: str,
    expression: str,
    hint: str,
    webhook_url: str,
    move_ib: bool,
    uplinks: str,
    offered: str,
    rail_source: str,
    shape: str,
    node: str,
) -> None:
    """What is on this node, what would be published about it, and what is left alone and why."""
    from dranet.inventory import Options
    from dranet.inventory.infrastructure import patterns
    from dranet.inventory.rails import RailSource

    options = Options(
        filter=expression,
        move_ib_interfaces=move_ib,
        uplink_interfaces=patterns(uplinks),
        offer_interfaces=patterns(offered),
        rails=RailSource.parse(rail_source),
    )
    if shape:
        name, snapshot = _of_shape(shape, options)
    else:
        name, snapshot = platform.node().strip().lower(), _of_this_node(sysfs, options, hint, webhook_url)
    text = {"json": as_json, "yaml": as_yaml, "table": as_table}[output](node or name, snapshot)
    click.echo(text, nl=False, color=False if os.environ.get("NO_COLOR") else None)


def _of_this_node(sysfs: str, options: Options, hint: str, webhook_url: str) -> Snapshot:
    from dranet.inventory import Inventory, LiveKernel
    from dranet.inventory.cloud import find_provider, hint_problem
    from dranet.inventory.machine import cloud_context
    from dranet.model.errors import InvalidInput

    if problem := hint_problem(hint, webhook_url):
        raise InvalidInput(f"--cloud-provider-hint: {problem}")
    with LiveKernel(sysfs) as kernel:
        found = asyncio.run(find_provider(cloud_context(kernel.sysfs(), webhook_url), hint))
        return asyncio.run(_look_twice(Inventory(options, kernel, found.provider, problems=found.problems)))


async def _look_twice(inventory: Inventory) -> Snapshot:
    """A webhook answers about devices, so it can be asked only after a first look."""
    snapshot = inventory.look()
    return inventory.look() if await inventory.ask_cloud(snapshot) else snapshot


def _of_shape(name: str, options: Options) -> tuple[str, Snapshot]:
    """The shape's own name and what its nodes publish; they have no kernel, so there is nothing else to tell."""
    from dranet.inventory import Netdev, NodeDevice, Place, Skipped, Snapshot
    from dranet.inventory.filter import DeviceFilter
    from dranet.topology.shape import load_shape
    from dranet.topology.shape_devices import nic_devices

    keeps = DeviceFilter(options.filter).keeps
    shape = load_shape(name)
    devices = nic_devices(shape)
    return shape.name, Snapshot(
        devices=tuple(NodeDevice(device=d, netdev=Netdev(place=Place.NONE)) for d in devices if keeps(d)),
        skipped=tuple(Skipped(d.name, "the filter (--filter) leaves it out") for d in devices if not keeps(d)),
    )


def as_json(node: str, snapshot: Snapshot) -> str:
    """One object; each device is exactly what stands in a v1 ResourceSlice."""
    import msgspec

    content = {
        "node": node,
        "devices": [device.to_api() for device in snapshot.published],
        "skipped": [{"name": skipped.name, "reason": skipped.reason} for skipped in snapshot.skipped],
        "problems": list(snapshot.problems),
    }
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode() + "\n"


def as_yaml(node: str, snapshot: Snapshot) -> str:
    """The ResourceSlices that would be published."""
    import yaml

    from dranet.model.slices import resource_slices

    return str(yaml.safe_dump_all(resource_slices(snapshot.published, node=node), sort_keys=False))


def as_table(node: str, snapshot: Snapshot) -> str:
    """For people; colours disappear in a pipe."""
    rows = [_row(device) for device in snapshot.published]
    parts = [_heading(f"{node}: {len(rows)} device{'s' * (len(rows) != 1)}")]
    parts += _columns(_HEADINGS, rows) if rows else []
    if snapshot.gpus:
        gpus = [[str(g.pci), _known(g.numa_node), g.pcie_root or "-", f"{g.vendor}:{g.product}"] for g in snapshot.gpus]
        parts += ["", _heading("GPUs nearby (published by their own driver)")]
        parts += _columns(["PCI ADDRESS", "NUMA", "PCIE ROOT", "VENDOR:PRODUCT"], gpus)
    if snapshot.skipped:
        parts += ["", _heading("left alone"), *_columns([], [[s.name, s.reason] for s in snapshot.skipped])]
    if snapshot.problems:
        parts += ["", _heading("problems"), *(click.style(problem, fg="yellow") for problem in snapshot.problems)]
    return "\n".join(parts) + "\n"


_HEADINGS = ["DEVICE", "INTERFACE", "STATE", "KIND", "RDMA", "SPEED", "NUMA", "PCIE ROOT", "PRODUCT"]
_STATE_COLOURS = {"up": "green", "down": "red", "lower-layer-down": "red"}


def _row(device: Device) -> list[str]:
    shown = device.attributes
    return [
        device.name,
        str(shown.get(names.IF_NAME, "-")),
        str(shown.get(names.STATE, "-")),
        _kind(device),
        str(shown.get(names.RDMA_DEVICE, "-")),
        device.capacity.get(names.LINK_SPEED, "-"),
        _known(shown.get(names.NUMA_NODE)),
        str(shown.get(names.PCIE_ROOT, "-")),
        str(shown.get(names.PCI_DEVICE, "-")),
    ]


def _kind(device: Device) -> str:
    if device.attributes.get(names.IB_ONLY):
        return "RDMA only"
    if device.attributes.get(names.IS_SRIOV_VF):
        return "VF"
    return "PF" if device.attributes.get(names.SRIOV) else str(device.attributes.get(names.TYPE, "-"))


def _known(value: object) -> str:
    return "-" if value is None else str(value)


def _heading(text: str) -> str:
    return click.style(text, bold=True)


def _columns(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows in aligned columns; width is measured before colour is added."""
    everything = [*([headings] if headings else []), *rows]
    widths = [max(len(row[column]) for row in everything) for column in range(len(everything[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in everything
    ]
    if headings:
        lines[0] = click.style(lines[0], dim=True)
    return ["  " + _coloured(line) for line in lines]


def _coloured(line: str) -> str:
    for state, colour in _STATE_COLOURS.items():
        if f" {state} " in line:
            return line.replace(f" {state} ", f" {click.style(state, fg=colour)} ", 1)
    return line
