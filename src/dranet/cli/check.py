"""``dranet check``: is this node's network fit for a job, and if not, what is wrong and what to do."""

from __future__ import annotations

import json
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import click

from dranet.cli.check_pair import job_options, pair

if TYPE_CHECKING:
    from dranet.health.judging import Finding
    from dranet.health.policy import Policy
    from dranet.health.reading import CardReading

HELP = """Look at every card of this node: link, speed, PCIe, MTU, GIDs, firmware, error counters, and how it compares
with its siblings and with the description of this kind of machine (--shape). Ends with 1 where something is broken, so
that a script or a health-check operator can act on it."""
_FAILING = {"broken": {"broken"}, "degraded": {"broken", "degraded"}, "never": set[str]()}


@dataclass(frozen=True)
class Report:
    """All that was found on a node."""

    node: str
    cards: Sequence[CardReading]
    findings: Sequence[Finding]
    policy: Policy

    def of(self, device: str) -> list[Finding]:
        return [finding for finding in self.findings if finding.device == device]


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
@click.option("--node", default="", metavar="NAME", help="Name of the node in the output; '' for its own.")
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
    sysfs: str, shape: str, policy_file: str, db_path: str, node: str, seconds: float, fail_on: str, output: str
) -> None:
    """Two looks, judged together."""
    if click.get_current_context().invoked_subcommand:
        return
    report = _look(sysfs, shape, policy_file, db_path, node or platform.node().strip().lower(), seconds)
    click.echo({"table": as_table, "json": as_json, "junit": as_junit}[output](report))
    sys.exit(1 if any(finding.severity in _FAILING[fail_on] for finding in report.findings) else 0)


check.add_command(pair)


def _look(sysfs: str, shape: str, policy_file: str, db_path: str, node: str, seconds: float) -> Report:
    from dranet.driver.serving.health_watch import held_cards
    from dranet.driver.serving.node_devices import in_use
    from dranet.driver.serving.places import own_store
    from dranet.driver.store import Store
    from dranet.health.judging import Expected, Look, judge
    from dranet.health.node import NodeReader, expected_of
    from dranet.health.policy import default_policy, read_policy
    from dranet.inventory import Inventory, LiveKernel, Options
    from dranet.topology.shape import load_shape

    policy = read_policy(policy_file) if policy_file else default_policy()
    read = NodeReader(sysfs, in_pods=sysfs == "/sys")
    with LiveKernel(sysfs) as kernel:
        inventory = Inventory(Options(filter=""), kernel)
        store = Store.copy_of(own_store(db_path))
        first = read(inventory.look(lambda: in_use(store)), held_cards(store))
        time.sleep(seconds)
        store = Store.copy_of(own_store(db_path))
        snapshot = inventory.look(lambda: in_use(store))
        cards = read(snapshot, held_cards(store))
        read.close()
    expected = expected_of(load_shape(shape), snapshot.devices) if shape else Expected()
    findings = judge(Look(cards, {card.device: [card] for card in first}, expected), policy)
    return Report(node, cards, findings, policy)


def as_json(report: Report) -> str:
    """One object a node."""
    from dranet.health.node import not_told

    return json.dumps(
        {
            "node": report.node,
            "healthy": not report.findings,
            "findings": [
                {
                    "device": f.device,
                    "fault": str(f.fault),
                    "severity": f.severity,
                    "message": f.message,
                    "remedy": report.policy[f.fault].remedy,
                }
                for f in report.findings
            ],
            "devices": [
                {"device": card.device, "interface": card.interface, "notTold": not_told(card)} for card in report.cards
            ],
        },
        indent=2,
    )


def as_table(report: Report) -> str:
    """A line a card, then each finding with what to do."""
    from dranet.health.node import not_told

    lines = [f"{report.node}: {len(report.cards)} cards"]
    for card in report.cards:
        found = report.of(card.device)
        verdict = ", ".join(str(f.fault) for f in found) or "ok"
        unknown = not_told(card)
        rest = f"   (not told by the kernel: {', '.join(unknown)})" if unknown else ""
        lines.append(f"  {card.device:28} {card.interface or '-':16} {verdict}{rest}")
    for finding in report.findings:
        lines += ["", f"{finding.severity}: {finding.device or report.node}: {finding.message}"]
        lines.append(f"    {report.policy[finding.fault].remedy}")
    if not report.cards:
        lines.append("  no PCI or RDMA card was found; `dranet inventory` says what was seen and left alone")
    return "\n".join(lines)


def as_junit(report: Report) -> str:
    """A test case a card, and one for the node."""
    suite = ElementTree.Element("testsuite", name=f"dranet check {report.node}", tests=str(len(report.cards) + 1))
    suite.set("failures", str(len({finding.device for finding in report.findings})))
    for device in ["", *(card.device for card in report.cards)]:
        case = ElementTree.SubElement(suite, "testcase", classname=report.node, name=device or "node")
        for finding in report.of(device):
            failure = ElementTree.SubElement(case, "failure", type=str(finding.fault), message=finding.message)
            failure.text = report.policy[finding.fault].remedy
    return ElementTree.tostring(suite, encoding="unicode")
