"""Explanations for people and for programs."""

from __future__ import annotations

from typing import Any

from dranet.manifests.explaining import Explanation, NodeReport, RequestReport

SHOWN = 12
"""Devices listed for one request before the rest is only counted."""


def to_text(found: list[Explanation]) -> str:
    """One block a pod."""
    return "\n\n".join(_placed(one) if one.placed else _refused(one) for one in found)


def _refused(one: Explanation) -> str:
    lines = [f"{one.pod.name}: cannot be placed", f"  {one.reason}"]
    for node in one.nodes:
        lines.append(f"  {_names(node)}: {node.summary}")
        for report in node.requests:
            lines += _request_lines(report)
    if one.changes:
        lines.append("  what would make it fit, the smallest change first:")
        lines += [f"    - {change.text} (then on {_some(change.nodes)})" for change in one.changes]
    elif not one.pod.problem:
        lines.append("  no single change of the claim, nor two, would make it fit on these nodes")
    return "\n".join(lines)


def _request_lines(report: RequestReport) -> list[str]:
    lines = [f"    request {report.request}: {report.needed} wanted, {report.fitting} of {len(report.devices)} fit"]
    groups: dict[tuple[str, str], list[str]] = {}
    for device in report.devices:
        if device.rule:
            groups.setdefault((device.rule, device.detail), []).append(device.device)
    for (rule, detail), devices in groups.items():
        if rule.startswith("class selector"):
            lines.append(f"      {len(devices)} devices are of another class")
        else:
            lines.append(f"      {_some(tuple(devices))}: {rule}: {detail}")
    return lines


def _placed(one: Explanation) -> str:
    assert one.placed is not None
    placement, quality = one.placed.placement, one.placed.quality
    lines = [f"{one.pod.name}: on {placement.node}"]
    for pod_claim, results in zip(one.pod.claims, placement.devices, strict=True):
        for result in results:
            lines.append(f"  {pod_claim.ref}/{result['request']}: {result['driver']} {result['device']}")
    lines.append("  why these: the first devices in slice order that fit all requests together")
    for report in one.passed_over:
        groups: dict[tuple[str, str], list[str]] = {}
        for device in report.devices:
            if not device.rule.startswith("class selector"):
                groups.setdefault((device.rule, device.detail), []).append(device.device)
        lines += [f"    passed over for {report.request}: {_some(tuple(d))}: {r}: {t}" for (r, t), d in groups.items()]
    if quality.alignment.pairs:
        rate = f", about {quality.busbw:.1f} GB/s" if quality.busbw is not None else ""
        lines.append(f"  worst pair: {quality.alignment.worst}{rate}")
    if one.better:
        names, best = one.better
        rate = f", about {best.busbw:.1f} GB/s" if best.busbw is not None else ""
        lines.append(f"  better and free: {', '.join(names)} (worst pair {best.alignment.worst}{rate})")
        lines.append("  to get such a pair every time: dranet suggest writes the claim")
    elif quality.alignment.pairs and quality.certain:
        lines.append("  no better devices were free")
    return "\n".join(lines)


def _names(node: NodeReport) -> str:
    return _some(node.nodes)


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def to_json(found: list[Explanation]) -> dict[str, Any]:
    """As `dranet explain -o json` prints it."""
    return {"pods": [_json(one) for one in found]}


def _json(one: Explanation) -> dict[str, Any]:
    made: dict[str, Any] = {"pod": one.pod.name, "verdict": "allocated" if one.placed else "impossible"}
    if one.placed:
        made["node"] = one.placed.placement.node
        made["devices"] = [
            {key: result[key] for key in ("request", "driver", "pool", "device")}
            for group in one.placed.placement.devices
            for result in group
        ]
        made |= one.placed.quality.to_json()
        made["passed_over"] = [_request_json(report) for report in one.passed_over]
        made["better"] = {"devices": list(one.better[0]), **one.better[1].to_json()} if one.better else None
        return made
    made["reason"] = one.reason
    made["nodes"] = [
        {
            "nodes": list(node.nodes),
            "summary": node.summary,
            "requests": [_request_json(report) for report in node.requests],
        }
        for node in one.nodes
    ]
    made["changes"] = [{"change": change.text, "nodes": list(change.nodes)} for change in one.changes]
    return made


def _request_json(report: RequestReport) -> dict[str, Any]:
    return {
        "claim": report.claim,
        "request": report.request,
        "needed": report.needed,
        "fitting": report.fitting,
        "ruled_out": [{"device": d.device, "rule": d.rule, "detail": d.detail} for d in report.devices if d.rule],
    }
