"""``dranet check``: is this node's network fit for a job, and if not, what is wrong and what to do."""

from __future__ import annotations

import asyncio
import json
import platform
import sys
import time
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import click

from dranet.cli.check_pair import job_options, pair

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dranet.health.policy import Policy
    from dranet.health.report import Report

HELP = """Look at every card of this node: link, speed, PCIe, MTU, GIDs, firmware, error counters, and how it compares
with its siblings and with the description of this kind of machine (--shape). Ends with 1 where something is broken, so
that a script or a health-check operator can act on it.

With --cluster it looks at no card itself, but at what the driver of each node has published of its cards."""
_FAILING = {"broken": {"broken"}, "degraded": {"broken", "degraded"}, "never": set[str]()}


@click.group(help=HELP, invoke_without_command=True)
@click.option("--sysfs", default="/sys", show_default=True, metavar="DIR", help="Where sysfs is mounted.")
@click.option("--shape", default="", metavar="NAME", help="The kind of machine this should be; '' to compare siblings.")
@click.option("--policy", "policy_file", default="", metavar="FILE", help="TOML file of severities and limits.")
@click.option(
    "--db-path",
    default="/var/run/dranet/dranet.db",
    show_default=True,
    metavar="FILE",
    help="The driver's store, read only: which cards pods have, and where. A file that is not there says none.",
)
@click.option("--cluster", is_flag=True, help="All nodes of the cluster, by what their drivers publish.")
@click.option("--kubeconfig", default="", metavar="FILE", help="With --cluster; '': found as kubectl does.")
@click.option("--context", default="", metavar="NAME", help="Context of the kubeconfig.")
@click.option(
    "--label-nodes",
    is_flag=True,
    help="With --cluster: label each node dranet.net/network-healthy=true or false, as --fail-on judges.",
)
@click.option(
    "--node",
    default="",
    metavar="NAME",
    help="Name of the node in the output; '' for its own. With --cluster: only it.",
)
@click.option("--seconds", default=2.0, show_default=True, help="Time between two looks, for what grows.")
@click.option(
    "--fail-on",
    type=click.Choice(list(_FAILING)),
    default="broken",
    show_default=True,
    help="From which severity on the exit status is 1.",
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
    """Two looks at this node, or one at the cluster."""
    from dranet.health.policy import default_policy, read_policy

    if click.get_current_context().invoked_subcommand:
        return
    if label_nodes and not cluster:
        raise click.UsageError("--label-nodes needs --cluster")
    policy = read_policy(policy_file) if policy_file else default_policy()
    if cluster:
        found = _cluster(kubeconfig, context, node, shape, policy)
    else:
        found = [_look(sysfs, shape, policy, db_path, node or platform.node().strip().lower(), seconds)]
    click.echo(_text(found, output, cluster))
    failing = {report.node: report.has(_FAILING[fail_on]) for report in found}
    if label_nodes:
        from dranet.cli.check_cluster import mark

        asyncio.run(mark(kubeconfig, context, {name: not bad for name, bad in failing.items()}))
    sys.exit(1 if any(failing.values()) else 0)


check.add_command(pair)


def _cluster(kubeconfig: str, context: str, node: str, shape: str, policy: Policy) -> list[Report]:
    from dranet.cli.check_cluster import fetch, reports
    from dranet.topology.shape import load_shape

    found = reports(asyncio.run(fetch(kubeconfig, context, node)), load_shape(shape) if shape else None, policy)
    if not found:
        raise click.ClickException(f"no ResourceSlice of dra.net {f'of node {node} ' if node else ''}in this cluster")
    return found


def _text(found: Sequence[Report], output: str, cluster: bool) -> str:
    from dranet.health.report import as_object, as_suite, as_summary, as_table

    if output == "json":
        return json.dumps([as_object(report) for report in found] if cluster else as_object(found[0]), indent=2)
    if output == "table":
        return as_summary(found) if cluster else as_table(found[0])
    root = as_suite(found[0])
    if cluster:
        root = ElementTree.Element("testsuites")
        root.extend(as_suite(report) for report in found)
    return ElementTree.tostring(root, encoding="unicode")


def _look(sysfs: str, shape: str, policy: Policy, db_path: str, node: str, seconds: float) -> Report:
    from dranet.driver.serving.health_watch import held_cards
    from dranet.driver.serving.node_devices import in_use
    from dranet.driver.serving.places import own_store
    from dranet.driver.store import Store
    from dranet.health.judging import Expected, Look, judge
    from dranet.health.node import NodeReader, expected_of, pci_of
    from dranet.health.report import Report
    from dranet.inventory import Inventory, LiveKernel, Options
    from dranet.kernel.namespace_sysfs import is_sysfs
    from dranet.topology.shape import load_shape

    read = NodeReader(sysfs, in_pods=is_sysfs(sysfs))
    with LiveKernel(sysfs) as kernel:
        inventory = Inventory(Options(filter=""), kernel)
        store = Store.copy_of(own_store(db_path))
        first = read(inventory.look(lambda: in_use(store)), held_cards(store))
        time.sleep(seconds)
        store = Store.copy_of(own_store(db_path))
        snapshot = inventory.look(lambda: in_use(store))
        cards = read(snapshot, held_cards(store))
        read.close()
    expected = expected_of(load_shape(shape), pci_of(snapshot.devices)) if shape else Expected()
    findings = judge(Look(cards, {card.device: [card] for card in first}, expected), policy)
    return Report(node, cards, findings, policy)
