"""``dranet check``: find network faults of this node, or of all nodes by what their drivers publish."""

from __future__ import annotations

import asyncio
import json
import platform
import sys
import time
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import click

from dranet.cli.check_pair import job_options, pair
from dranet.core.device import FaultKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dranet.machines.shape import Shape
    from dranet.node.health.policy import Policy
    from dranet.node.health.report import Report

_HELP = """Check every NIC of this node: link, speed, PCIe, MTU, GIDs, firmware and error counters. Compare it with the
other NICs of the node and with the machine shape (--shape). Exit with status 1 if a NIC is broken, or if the shape has
more NICs than the node.

With --cluster, check the NICs of all nodes by the ResourceSlices that their drivers publish.

\b
Examples:
  dranet check
  dranet check --shape a4-highgpu-8g -o json
  dranet check --cluster --label-nodes"""
_LABEL = "dranet.net/network-healthy"
_PAGE = 100
"""Slices a request: a response with hundreds of large slices would be larger than everything else in memory."""
_FAILING = {"broken": {"broken"}, "degraded": {"broken", "degraded"}, "never": set[str]()}


@click.group(help=_HELP, invoke_without_command=True)
@click.option("--sysfs", default="/sys", show_default=True, metavar="DIR", help="Where sysfs is mounted.")
@click.option(
    "--shape",
    default="",
    metavar="NAME",
    help="Machine shape that this node should have.",
)
@click.option("--policy", "policy_file", default="", metavar="FILE", help="TOML file with severities and limits.")
@click.option(
    "--db-path",
    default="/var/run/dranet/dranet.db",
    show_default=True,
    metavar="FILE",
    help="State file of the driver, read only: shows which NICs are in pods. May be missing.",
)
@click.option("--cluster", is_flag=True, help="Check all nodes of the cluster by what their drivers publish.")
@click.option("--kubeconfig", default="", metavar="FILE", help="Kubeconfig file; empty to find it as kubectl does.")
@click.option("--context", default="", metavar="NAME", help="Context of the kubeconfig.")
@click.option(
    "--label-nodes",
    is_flag=True,
    help="With --cluster: set the label dranet.net/network-healthy=true or false on each node.",
)
@click.option(
    "--node",
    default="",
    metavar="NAME",
    help="Node name in the output; empty for the host name. With --cluster: check only this node.",
)
@click.option("--seconds", default=2.0, show_default=True, help="Seconds between two readings of the counters.")
@click.option(
    "--fail-on",
    type=click.Choice(list(_FAILING)),
    default="broken",
    show_default=True,
    help="Lowest severity that sets exit status 1.",
)
@click.option("-o", "--output", type=click.Choice(["table", "json", "junit"]), default="table", show_default=True)
@job_options
def check(
    sysfs: str,
    shape: str,
    policy_file: str,
    db_path: str,
    cluster: bool,
    kubeconfig: str,
    context: str,
    label_nodes: bool,
    node: str,
    seconds: float,
    fail_on: str,
    output: str,
) -> None:
    from dranet.node.health.policy import default_policy, read_policy

    if click.get_current_context().invoked_subcommand:
        return
    if label_nodes and not cluster:
        raise click.UsageError("--label-nodes needs --cluster")
    policy = read_policy(policy_file) if policy_file else default_policy()
    if cluster:
        found = _cluster(kubeconfig, context, node, shape, policy)
    else:
        found = [_check_node(sysfs, shape, policy, db_path, node or platform.node().strip().lower(), seconds)]
    click.echo(_text(found, output, cluster))
    failing = {report.node: _fails(report, fail_on, shape) for report in found}
    if label_nodes:
        asyncio.run(_set_labels(kubeconfig, context, {name: not bad for name, bad in failing.items()}))
    sys.exit(1 if any(failing.values()) else 0)


check.add_command(pair)


def _fails(report: Report, fail_on: str, shape: str) -> bool:
    """A machine with fewer NICs than the shape that the user named fails, whatever the severity of that fault."""
    missing = bool(shape) and any(finding.fault == FaultKind.CARD_MISSING for finding in report.findings)
    return report.has(_FAILING[fail_on]) or (missing and fail_on != "never")


def _cluster(kubeconfig: str, context: str, node: str, shape: str, policy: Policy) -> list[Report]:
    from dranet.machines.shape import load_shape

    slices = asyncio.run(_fetch_slices(kubeconfig, context, node))
    found = _reports(slices, load_shape(shape) if shape else None, policy)
    if not found:
        where = f"for node {node}" if node else "in the cluster"
        raise click.ClickException(f"no ResourceSlice of driver dra.net {where}; check that the driver runs")
    return found


async def _fetch_slices(kubeconfig: str, context: str, node: str) -> list[Mapping[str, Any]]:
    from dranet.core.names import DRIVER_NAME
    from dranet.kubernetes.api.client import KubeClient
    from dranet.kubernetes.api.config import load_config
    from dranet.kubernetes.api.resources import RESOURCE_SLICES

    fields = f"spec.driver={DRIVER_NAME}" + (f",spec.nodeName={node}" if node else "")
    async with KubeClient.from_config(load_config(kubeconfig or None, context=context or None)) as client:
        return [one async for page, _ in client.pages(RESOURCE_SLICES, fields=fields, limit=_PAGE) for one in page]


def _reports(slices: Iterable[Mapping[str, Any]], shape: Shape | None, policy: Policy) -> list[Report]:
    """One report a node, by node name."""
    from dranet.node.health.checks import Expected, Observation, find_faults
    from dranet.node.health.node_reader import expected_from_shape
    from dranet.node.health.readings import devices_by_node, published_pci_addresses, published_readings
    from dranet.node.health.report import Report

    found = []
    for node, devices in devices_by_node(slices).items():
        readings = published_readings(devices)
        expected = expected_from_shape(shape, published_pci_addresses(devices)) if shape else Expected()
        found.append(Report(node, readings, find_faults(Observation(readings, expected=expected), policy), policy))
    return found


async def _set_labels(kubeconfig: str, context: str, healthy: Mapping[str, bool]) -> None:
    """Label each node with its result; needs the right to patch nodes."""
    from dranet.kubernetes.api.client import KubeClient
    from dranet.kubernetes.api.config import load_config
    from dranet.kubernetes.api.resources import NODES

    async with KubeClient.from_config(load_config(kubeconfig or None, context=context or None)) as client:
        for node, is_healthy in healthy.items():
            await client.merge_patch(NODES, node, {"metadata": {"labels": {_LABEL: str(is_healthy).lower()}}})


def _text(found: Sequence[Report], output: str, cluster: bool) -> str:
    from dranet.node.health.report import as_junit, as_object, as_summary, as_table

    if output == "json":
        return json.dumps([as_object(report) for report in found] if cluster else as_object(found[0]), indent=2)
    if output == "table":
        return as_summary(found) if cluster else as_table(found[0])
    root = as_junit(found[0])
    if cluster:
        root = ElementTree.Element("testsuites")
        root.extend(as_junit(report) for report in found)
    return ElementTree.tostring(root, encoding="unicode")


def _check_node(sysfs: str, shape: str, policy: Policy, db_path: str, node: str, seconds: float) -> Report:
    from dranet.linux.sysfs import is_sysfs
    from dranet.machines.shape import load_shape
    from dranet.node.health.checks import Expected, Observation, find_faults
    from dranet.node.health.node_reader import NodeReader, expected_from_shape, pci_by_device
    from dranet.node.health.report import Report
    from dranet.node.inventory import Inventory, InventoryOptions, LiveKernel
    from dranet.node.server.health_watch import claimed_devices
    from dranet.node.server.node_devices import in_use
    from dranet.node.server.process import store_path
    from dranet.node.store import Store

    read = NodeReader(sysfs, in_pods=is_sysfs(sysfs))
    with LiveKernel(sysfs) as kernel:
        inventory = Inventory(InventoryOptions(filter=""), kernel)
        store = Store.read_copy(store_path(db_path))
        first = read(inventory.scan(lambda: in_use(store)), claimed_devices(store))
        time.sleep(seconds)
        store = Store.read_copy(store_path(db_path))
        snapshot = inventory.scan(lambda: in_use(store))
        readings = read(snapshot, claimed_devices(store))
        read.close()
    expected = expected_from_shape(load_shape(shape), pci_by_device(snapshot.devices)) if shape else Expected()
    findings = find_faults(Observation(readings, {reading.device: [reading] for reading in first}, expected), policy)
    return Report(node, readings, findings, policy)
