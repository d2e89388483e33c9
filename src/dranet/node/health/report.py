"""The results of a health check of a node, as text, as JSON and as JUnit XML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

import msgspec

from dranet.node.health.checks import Finding
from dranet.node.health.policy import Policy
from dranet.node.health.readings import DeviceReading, unreported_values


class Report(msgspec.Struct, frozen=True):
    """One node."""

    node: str
    devices: Sequence[DeviceReading]
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
    devices = [
        {"device": reading.device, "interface": reading.interface, "notReported": unreported_values(reading)}
        for reading in report.devices
    ]
    return {"node": report.node, "healthy": not report.findings, "findings": findings, "devices": devices}


def _verdict(report: Report) -> str:
    """``ok``, or the number of findings by severity and the first of them."""
    if not report.findings:
        return "ok"
    counts = Counter(finding.severity for finding in report.findings)
    worst = min(report.findings, key=lambda finding: finding.severity)  # broken is before degraded
    shown = ", ".join(f"{counts[severity]} {severity}" for severity in sorted(counts))
    return f"{shown}: {worst.device or 'the node'}: {worst.fault}"


def as_table(report: Report) -> str:
    """One line for each device, then each finding with its remedy."""
    lines = [f"{report.node}: {len(report.devices)} devices, {_verdict(report)}"]
    for reading in report.devices:
        verdict = ", ".join(str(f.fault) for f in report.of(reading.device)) or "ok"
        unknown = unreported_values(reading)
        rest = f"   (not reported by the kernel: {', '.join(unknown)})" if unknown else ""
        lines.append(f"  {reading.device:28} {reading.interface or '-':16} {verdict}{rest}")
    for finding in report.findings:
        lines += ["", f"{finding.severity}: {finding.device or report.node}: {finding.message}"]
        lines.append(f"    {report.policy[finding.fault].remedy}")
    if not report.devices:
        lines.append(
            "  no PCI or RDMA network device found; run `dranet inventory` to see what the driver skips and why"
        )
    return "\n".join(lines)


def as_summary(reports: Sequence[Report]) -> str:
    """A cluster: one line for each node, followed by its findings."""
    healthy = sum(not report.findings for report in reports)
    lines = [f"{len(reports)} nodes, {healthy} healthy"]
    for report in sorted(reports, key=lambda report: not report.findings):
        bad = len({finding.device for finding in report.findings})
        lines.append(f"{report.node}: {len(report.devices)} devices, {f'{bad} with faults' if bad else 'ok'}")
        for f in report.findings:
            lines.append(f"  {f.severity}: {f.device or 'the node'}: {f.fault}: {f.message}")
    hidden = "PCIe links, GIDs, firmware, error counters, carrier changes and faults of severity degraded"
    lines.append(f"not considered: {hidden}. ResourceSlices do not show them: run `dranet check` on a node.")
    return "\n".join(lines)


def as_junit(report: Report) -> ElementTree.Element:
    """A JUnit test suite: one test case for each device, and one for the node."""
    suite = ElementTree.Element("testsuite", name=f"dranet check {report.node}", tests=str(len(report.devices) + 1))
    suite.set("failures", str(len({finding.device for finding in report.findings})))
    for device in ["", *(reading.device for reading in report.devices)]:
        case = ElementTree.SubElement(suite, "testcase", classname=report.node, name=device or "node")
        for finding in report.of(device):
            failure = ElementTree.SubElement(case, "failure", type=str(finding.fault), message=finding.message)
            failure.text = report.policy[finding.fault].remedy
    return suite
