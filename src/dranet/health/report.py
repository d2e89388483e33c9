"""All that a check found on a node, as a table, as JSON and as JUnit's XML."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

import msgspec

from dranet.health.judging import Finding
from dranet.health.node import not_told
from dranet.health.policy import Policy
from dranet.health.reading import CardReading


class Report(msgspec.Struct, frozen=True):
    """One node."""

    node: str
    cards: Sequence[CardReading]
    findings: Sequence[Finding]
    policy: Policy

    def of(self, device: str) -> list[Finding]:
        return [finding for finding in self.findings if finding.device == device]

    def has(self, severities: set[str]) -> bool:
        return any(finding.severity in severities for finding in self.findings)


def as_object(report: Report) -> dict[str, Any]:
    """For JSON."""
    findings = [
        {
            "device": f.device,
            "fault": str(f.fault),
            "severity": f.severity,
            "message": f.message,
            "remedy": report.policy[f.fault].remedy,
        }
        for f in report.findings
    ]
    devices = [{"device": card.device, "interface": card.interface, "notTold": not_told(card)} for card in report.cards]
    return {"node": report.node, "healthy": not report.findings, "findings": findings, "devices": devices}


def as_table(report: Report) -> str:
    """A line a card, then each finding with what to do."""
    lines = [f"{report.node}: {len(report.cards)} cards"]
    for card in report.cards:
        verdict = ", ".join(str(f.fault) for f in report.of(card.device)) or "ok"
        unknown = not_told(card)
        rest = f"   (not told by the kernel: {', '.join(unknown)})" if unknown else ""
        lines.append(f"  {card.device:28} {card.interface or '-':16} {verdict}{rest}")
    for finding in report.findings:
        lines += ["", f"{finding.severity}: {finding.device or report.node}: {finding.message}"]
        lines.append(f"    {report.policy[finding.fault].remedy}")
    if not report.cards:
        lines.append("  no PCI or RDMA card was found; `dranet inventory` says what was seen and left alone")
    return "\n".join(lines)


def as_summary(reports: Sequence[Report]) -> str:
    """A cluster: a line a node that is well, the findings of those that are not."""
    lines = []
    for report in reports:
        bad = len({finding.device for finding in report.findings})
        lines.append(f"{report.node}: {len(report.cards)} cards, {f'{bad} with faults' if bad else 'ok'}")
        for f in report.findings:
            lines.append(f"  {f.severity}: {f.device or 'the node'}: {f.fault}: {f.message}")
    well = sum(not report.findings for report in reports)
    lines.append(
        f"{len(reports)} nodes, {well} well. Not looked at from here, see `dranet check` on a node: PCIe links,"
    )
    lines.append(
        "GIDs, firmware, error counters, carrier changes, and whatever the drivers' policies count as degraded."
    )
    return "\n".join(lines)


def as_suite(report: Report) -> ElementTree.Element:
    """JUnit: a test case a card, and one for the node."""
    suite = ElementTree.Element("testsuite", name=f"dranet check {report.node}", tests=str(len(report.cards) + 1))
    suite.set("failures", str(len({finding.device for finding in report.findings})))
    for device in ["", *(card.device for card in report.cards)]:
        case = ElementTree.SubElement(suite, "testcase", classname=report.node, name=device or "node")
        for finding in report.of(device):
            failure = ElementTree.SubElement(case, "failure", type=str(finding.fault), message=finding.message)
            failure.text = report.policy[finding.fault].remedy
    return suite
