"""``dranet inventory``: the devices of this node or of a machine shape: published ones, skipped ones and why."""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from dranet.core import attributes as names
from dranet.core.attributes import DEFAULT_FILTER

if TYPE_CHECKING:
    from dranet.core.device import Device
    from dranet.node.inventory import Inventory, InventoryOptions, Snapshot


@click.command()
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "yaml"]),
    default="table",
    show_default=True,
    help="A table, JSON, or the ResourceSlices as YAML.",
)
@click.option("--sysfs", default="/sys", show_default=True, metavar="DIR", help="Where sysfs is mounted.")
@click.option(
    "--filter",
    "expression",
    default=DEFAULT_FILTER,
    metavar="CEL",
    help="CEL expression that selects the devices to publish; empty for all.",
)
@click.option(
    "--cloud-provider-hint",
    "hint",
    default="",
    metavar="NAME",
    help="Cloud provider, webhook or NONE; empty to detect it.",
)
@click.option("--webhook-url", default="", metavar="URL", help="URL of the webhook provider.")
@click.option(
    "--move-ib-interfaces",
    "move_ib",
    type=bool,
    default=True,
    show_default=True,
    metavar="BOOL",
    help="If false, IPoIB interfaces stay in the host network namespace and their devices are RDMA only.",
)
@click.option(
    "--uplink-interfaces",
    "uplinks",
    default="",
    metavar="NAMES",
    help="Uplinks of the node, comma-separated, with * and ?; empty for interfaces with default routes.",
)
@click.option(
    "--offer-interfaces",
    "offered",
    default="",
    metavar="NAMES",
    help="Interfaces or PCI addresses to publish although the node uses them for its own network.",
)
@click.option(
    "--rail-source",
    default="auto",
    show_default=True,
    metavar="SOURCE",
    help="Source of rails: auto, network, subnet, interface:PATTERN or off.",
)
@click.option("--shape", default="", metavar="NAME", help="Machine shape or shape file, instead of this node.")
@click.option("--node", default="", metavar="NAME", help="Node name in the output; empty for the host name.")
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
    """List the network devices of this node: what would be published, and what is skipped and why."""
    from dranet.node.inventory import InventoryOptions
    from dranet.node.inventory.infrastructure import parse_patterns
    from dranet.node.inventory.rails import RailSource

    options = InventoryOptions(
        filter=expression,
        move_ib_interfaces=move_ib,
        uplink_interfaces=parse_patterns(uplinks),
        offer_interfaces=parse_patterns(offered),
        rails=RailSource.parse(rail_source),
    )
    if shape:
        name, snapshot = _of_shape(shape, options)
    else:
        name, snapshot = platform.node().strip().lower(), _of_this_node(sysfs, options, hint, webhook_url)
    text = {"json": as_json, "yaml": as_yaml, "table": as_table}[output](node or name, snapshot)
    click.echo(text, nl=False, color=False if os.environ.get("NO_COLOR") else None)


def _of_this_node(sysfs: str, options: InventoryOptions, hint: str, webhook_url: str) -> Snapshot:
    from dranet.core.errors import InvalidInput
    from dranet.node.inventory import Inventory, LiveKernel
    from dranet.node.inventory.cloud import find_provider, hint_problem
    from dranet.node.inventory.cloud.node_context import cloud_context

    if problem := hint_problem(hint, webhook_url):
        raise InvalidInput(f"--cloud-provider-hint: {problem}")
    with LiveKernel(sysfs) as kernel:
        found = asyncio.run(find_provider(cloud_context(kernel.sysfs(), webhook_url), hint))
        return asyncio.run(_scan(Inventory(options, kernel, found.provider, problems=found.problems)))


async def _scan(inventory: Inventory) -> Snapshot:
    """Scan again after the cloud provider answered: a webhook needs the devices of the first scan."""
    snapshot = inventory.scan()
    return inventory.scan() if await inventory.ask_cloud(snapshot) else snapshot


def _of_shape(name: str, options: InventoryOptions) -> tuple[str, Snapshot]:
    """The name of the shape, and the devices that its nodes publish."""
    from dranet.machines.shape import load_shape
    from dranet.machines.shape_devices import nic_devices
    from dranet.node.inventory import Netdev, NetdevLocation, NodeDevice, Skipped, Snapshot
    from dranet.node.inventory.filter import DeviceFilter

    keeps = DeviceFilter(options.filter).keeps
    shape = load_shape(name)
    devices = nic_devices(shape)
    return shape.name, Snapshot(
        devices=tuple(NodeDevice(device=d, netdev=Netdev(location=NetdevLocation.NONE)) for d in devices if keeps(d)),
        skipped=tuple(Skipped(d.name, "excluded by --filter") for d in devices if not keeps(d)),
    )


def as_json(node: str, snapshot: Snapshot) -> str:
    """One object; each device as in a v1 ResourceSlice."""
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

    from dranet.core.slices import resource_slices

    return str(yaml.safe_dump_all(resource_slices(snapshot.published, node=node), sort_keys=False))


def as_table(node: str, snapshot: Snapshot) -> str:
    """A table; without colours in a pipe."""
    rows = [_row(device) for device in snapshot.published]
    parts = [_heading(f"{node}: {len(rows)} device{'s' * (len(rows) != 1)}")]
    parts += _columns(_HEADINGS, rows) if rows else []
    if snapshot.gpus:
        gpus = [[str(g.pci), _known(g.numa_node), g.pcie_root or "-", f"{g.vendor}:{g.product}"] for g in snapshot.gpus]
        parts += ["", _heading("GPUs (published by their own driver)")]
        parts += _columns(["PCI ADDRESS", "NUMA", "PCIE ROOT", "VENDOR:PRODUCT"], gpus)
    if snapshot.skipped:
        parts += ["", _heading("not published"), *_columns([], [[s.name, s.reason] for s in snapshot.skipped])]
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
    """Rows in aligned columns; widths are computed before colours are added."""
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
