"""Explanations as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dranet.advise.explain.changes import Change
from dranet.advise.explain.explanation import Explanation
from dranet.advise.explain.node_reports import NodeReport, RequestReport
from dranet.advise.plan.placement import DeviceResult
from dranet.advise.plan.quality import Quality
from dranet.advise.plan.summary import short_reason
from dranet.machines.bandwidth import Estimate

SHOWN = 12
"""Devices listed for one request before the rest is only counted."""


def explanation_verdict(found: list[Explanation]) -> str:
    """One line: how many pods can be placed, the worst pair, and the first pod that cannot."""
    placed = [one for one in found if one.placed]
    refused = [one for one in found if not one.placed]
    parts = [f"{len(placed):,} of {len(found):,} pod{'s' * (len(found) != 1)} can be placed"]
    pairs = [one.placed.quality.alignment for one in placed if one.placed and one.placed.quality.alignment.pairs]
    parts += [f"worst pair {max(pair.worst for pair in pairs)}"] if pairs else []
    if any(one.better for one in placed):
        parts.append("better devices were free")
    if refused:
        more = f" and {len(refused) - 1:,} more" if len(refused) > 1 else ""
        parts.append(f"not {refused[0].pod.name}{more}: {short_reason(refused[0].reason)}")
    return "; ".join(parts)


def explanation_text(found: list[Explanation], unread: Sequence[str] = ()) -> str:
    """One block a pod, refused ones first, then what was not considered; ``unread``: what a cluster hides."""
    ordered = sorted(found, key=lambda one: one.placed is not None)
    blocks = [_placed(one) if one.placed else _refused(one) for one in ordered]
    left = _not_considered(found, unread)
    return "\n\n".join([*blocks, *(["\n".join(["not considered:", *(f"  {text}" for text in left)])] if left else [])])


def _not_considered(found: list[Explanation], unread: Sequence[str]) -> list[str]:
    return list(dict.fromkeys([*(text for one in found for text in one.not_considered), *unread]))


def _refused(one: Explanation) -> str:
    lines = [f"{one.pod.name}: cannot be placed", f"  {one.reason}"]
    for node in one.nodes:
        lines.append(f"  {_names(node)}: {node.summary}")
        for report in node.requests:
            lines += _request_lines(report)
    if one.changes:
        lines.append("  what would make it fit, the smallest change first:")
        for change in one.changes:
            lines.append(f"    - {_change(change)}")
            lines += [f"        {line}" for line in change.claim.splitlines()]
    elif one.reaches_scheduler:
        lines.append(
            "  no single change of the claim or pod, and no two changes of the claim, make it fit on these nodes"
        )
    return "\n".join(lines)


def _change(change: Change) -> str:
    return f"{change.text} (then on {_some(change.nodes)})" if change.nodes else change.text


def _request_lines(report: RequestReport) -> list[str]:
    lines = [f"    request {report.request}: {report.wanted} wanted, {report.fitting} of {len(report.devices)} fit"]
    others = sum(device.of_another_class for device in report.devices)
    lines += [f"      {_some(devices)}: {rule}" for rule, devices in _by_rule(report)]
    return [*lines, f"      {others} of another class"] if others else lines


def _by_rule(report: RequestReport) -> list[tuple[str, tuple[str, ...]]]:
    """Rules with the devices they exclude; those of another class were never an option and are left out."""
    groups: dict[str, list[str]] = {}
    for device in report.devices:
        if device.rule and not device.of_another_class:
            groups.setdefault(f"{device.rule}: {device.detail}", []).append(device.device)
    return [(rule, tuple(devices)) for rule, devices in groups.items()]


def _placed(one: Explanation) -> str:
    assert one.placed is not None
    lines = [f"{one.pod.name}: on {one.placed.placement.node}"]
    if one.ending:
        lines.append(f"  {one.ending}")
    for pod_claim, results in zip(one.pod.claims, one.placed.placement.devices, strict=True):
        for result in results:
            share = f", {result.share}" if result.share else ""
            device = f"{result.driver} {result.device}{_display_name(one, result)}{share}"
            lines.append(f"  {pod_claim.ref}/{result.request}: {device}")
    if not any(one.placed.placement.devices):
        return "\n".join([*lines, "  it requests no device that a driver publishes"])
    lines.append("  why these: the first devices in slice order that fit all requests together")
    for report in one.passed_over:
        passed = f"    passed over for {report.request}: "
        lines += [f"{passed}{_some(devices)}: {rule}" for rule, devices in _by_rule(report)]
    return "\n".join(lines + _alignment(one, one.placed.quality))


def _display_name(one: Explanation, result: DeviceResult) -> str:
    name = one.machine.display_name(result.id) if one.machine else ""
    return f"  ({name})" if name else ""


def _alignment(one: Explanation, quality: Quality) -> list[str]:
    if not quality.alignment.pairs:
        return []
    lines = [f"  worst pair: {quality.alignment.worst}{_rate(quality)}"]
    if not quality.certain:
        lines.append(f"  the GPUs come from a device plugin, any that are free: at best {quality.luckiest}")
        lines.append("  to be sure: request the GPUs in the claim; dranet suggest writes it")
    elif one.better:
        names, best = one.better
        lines.append(f"  better and free: {', '.join(names)} (worst pair {best.alignment.worst}{_rate(best)})")
        lines.append("  to get such a pair every time: dranet suggest writes the claim")
    else:
        lines.append("  no better devices were free")
    return lines


def _rate(quality: Quality) -> str:
    return f", {quality.expected.range_text}" if isinstance(quality.expected, Estimate) else ""


def _names(node: NodeReport) -> str:
    return _some(node.nodes)


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def explanation_json(found: list[Explanation], unread: Sequence[str] = ()) -> dict[str, Any]:
    """As `dranet explain -o json` prints it."""
    verdict = explanation_verdict(found)
    return {"verdict": verdict, "pods": [_json(one) for one in found], "not_considered": _not_considered(found, unread)}


def _json(one: Explanation) -> dict[str, Any]:
    made: dict[str, Any] = {"pod": one.pod.name, "verdict": "allocated" if one.placed else "impossible"}
    if one.placed:
        made["node"] = one.placed.placement.node
        made["devices"] = [result.to_json() for group in one.placed.placement.devices for result in group]
        made |= one.placed.quality.to_json()
        made["passed_over"] = [_request_json(report) for report in one.passed_over]
        if one.ending:
            made["ending"] = one.ending
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
    made["changes"] = [_change_json(change) for change in one.changes]
    return made


def _change_json(change: Change) -> dict[str, Any]:
    made: dict[str, Any] = {"change": change.text, "nodes": list(change.nodes)}
    return {**made, "claim": change.claim} if change.claim else made


def _request_json(report: RequestReport) -> dict[str, Any]:
    return {
        "claim": report.claim,
        "request": report.request,
        "needed": "all" if report.wants_all else report.needed,
        "fitting": report.fitting,
        "ruled_out": [{"device": d.device, "rule": d.rule, "detail": d.detail} for d in report.devices if d.rule],
    }
