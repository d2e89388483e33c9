"""Jobs of several pods on isolated rails: whether their claims keep them on the same rails."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dranet.advise.lint.rules.base import (
    INFO,
    WARNING,
    Context,
    Finding,
    class_example,
    finding,
    request_example,
    rule,
    selectors_example,
    template_example,
)
from dranet.advise.manifests import Claim, Request
from dranet.advise.plan.hardware import PublishedDevice
from dranet.advise.plan.selectors import nic_requests
from dranet.core.attributes import IF_NAME, RAIL
from dranet.machines.machine import natural_sort_key

_PODS = """
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: train}
spec:
  replicas: 2
  selector: {matchLabels: {app: train}}
  template:
    metadata: {labels: {app: train}}
    spec:
      resourceClaims: [{name: nic, resourceClaimTemplateName: nic}]
      containers:
      - name: worker
        image: example
        resources: {claims: [{name: nic}]}
---
"""
_INDEPENDENT = {"Deployment", "ReplicaSet", "ReplicationController", "DaemonSet"}
"""Kinds whose pods are independent; the pods of other kinds count as one job."""
_GKE = re.compile(r"gpu\d+rdma\d+")


def _claim(selector: str) -> str:
    """The class, the pods and their template with this selector."""
    template = template_example(request_example(selectors=selectors_example(f"'{selector}'")))
    return f"{class_example()}---\n{_PODS}{template}"


@rule(
    "rails-not-forced",
    WARNING,
    "Pods of one job that may get NICs of different, isolated rails",
    why="On isolated rails NIC 0 of a node reaches only NIC 0 of other nodes. Each pod of a job gets the first free "
    "NIC that fits, so two pods on one node get different rails and cannot communicate: the job hangs.",
    bad=_claim('device.attributes["dra.net"].rdma == true'),
    good=_claim('device.attributes["dra.net"].rail == "0"'),
    shape="bm.gpu.h100.8",
)
def rails_not_forced(context: Context) -> Iterator[Finding]:
    if context.hardware is None:
        return
    seen: set[int] = set()
    for pods in context.manifests.pods:
        if len(pods.names) < 2 or pods.owner.kind in _INDEPENDENT:
            continue
        for claim in context.manifests.claims_of(pods):
            requests = nic_requests(context.manifests, claim)
            if id(claim.owner) in seen or claim.owner.kind != "ResourceClaimTemplate" or not requests:
                continue
            seen.add(id(claim.owner))
            nics = [unit for request in requests for unit in _candidates(context, request)]
            if rails := _open_choice(nics, requests):
                yield _finding(claim, requests[0], pods.owner.name, rails, _severity(nics))


def _severity(nics: list[PublishedDevice]) -> str:
    """Info for NICs that GKE numbers: they share a VPC, which may route between their subnets."""
    names = [(unit.raw.get("attributes") or {}).get(IF_NAME, {}).get("string", "") for unit in nics]
    return INFO if all(_GKE.fullmatch(name) for name in names) else WARNING


def _finding(claim: Claim, request: Request, workload: str, rails: list[str], severity: str) -> Finding:
    message = (
        f"pods of {workload} may get NICs of different rails ({', '.join(rails)}), "
        "which cannot communicate if rails are isolated"
    )
    wanted = [f'"{rail}"' for rail in rails[: request.count]]
    choice = f"== {wanted[0]}" if len(wanted) == 1 else f"in [{', '.join(wanted)}]"
    fix = (
        f'add a selector to {request.name!r}, such as device.attributes["dra.net"].rail {choice}, '
        "or use `dranet suggest --same-rails`"
    )
    return finding(claim.owner, request.path, message, fix, severity)


def _candidates(context: Context, request: Request) -> list[PublishedDevice]:
    if context.hardware is None or request.mode == "All":
        return []
    return context.candidates(request)


def _open_choice(nics: list[PublishedDevice], requests: list[Request]) -> list[str]:
    """The rails that these requests may get, if there are more of them than requested NICs."""
    values = ((unit.raw.get("attributes") or {}).get(RAIL, {}).get("string", "") for unit in nics)
    rails = {value for value in values if value}
    wanted = sum(request.count for request in requests)
    return sorted(rails, key=natural_sort_key) if len(rails) > wanted else []
