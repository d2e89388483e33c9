"""Jobs of several pods on isolated rails: whether the claim keeps them on the same ones."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dranet.lint.rules.base import INFO, WARNING, Context, Finding, finding, rule
from dranet.lint.rules.examples import template_example
from dranet.manifests.claim_views import Claim, Request
from dranet.model.attributes import IF_NAME, RAIL
from dranet.predict.hardware import Unit
from dranet.predict.request_drivers import nic_requests
from dranet.topology.machine import natural

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
"""Kinds whose pods serve by themselves; those of all others are taken to be one job."""
_GKE = re.compile(r"gpu\d+rdma\d+")
_CLASS = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: dranet}
spec:
  selectors: [{cel: {expression: 'device.driver == "dra.net"'}}]
---
"""


def _claim(selector: str) -> str:
    return template_example(
        f"""
        requests:
        - name: nic
          exactly:
            deviceClassName: dranet
            selectors:
            - cel:
                expression: '{selector}'
        """
    )


@rule(
    "rails-not-forced",
    WARNING,
    "Pods of one job that may get cards of different, isolated rails",
    why="On isolated rails card 0 of one node reaches card 0 of another and no other card. Each pod of a job gets the "
    "first free card that fits, so two pods on one node, or one beside a busy card, end on different rails and cannot "
    "talk; nothing says so until the job hangs.",
    bad=_CLASS + _PODS + _claim('device.attributes["dra.net"].rdma == true'),
    good=_CLASS + _PODS + _claim('device.attributes["dra.net"].rail == "0"'),
    shape="bm.gpu.h100.8",
)
def rails_not_forced(context: Context) -> Iterator[Finding]:
    if context.hardware is None:
        return
    seen: set[int] = set()
    for pods in context.world.pods:
        if len(pods.names) < 2 or pods.owner.kind in _INDEPENDENT:
            continue
        for claim in context.world.claims_of(pods):
            requests = nic_requests(context.world, claim)
            if id(claim.owner) in seen or claim.owner.kind != "ResourceClaimTemplate" or not requests:
                continue
            seen.add(id(claim.owner))
            cards = [unit for request in requests for unit in _candidates(context, request)]
            if rails := _open_choice(cards, requests):
                yield _finding(claim, requests[0], pods.owner.name, rails, _severity(cards))


def _severity(cards: list[Unit]) -> str:
    """Cards that GKE numbers are in one VPC: whether it routes between their subnets is not known, so only a hint."""
    names = [(unit.raw.get("attributes") or {}).get(IF_NAME, {}).get("string", "") for unit in cards]
    return INFO if all(_GKE.fullmatch(name) for name in names) else WARNING


def _finding(claim: Claim, request: Request, workload: str, rails: list[str], severity: str) -> Finding:
    message = (
        f"pods of {workload} may get cards of rails {', '.join(rails)}, which do not reach each other "
        "where rails are isolated: nothing keeps them on the same rails"
    )
    wanted = [f'"{rail}"' for rail in rails[: request.count]]
    choice = f"== {wanted[0]}" if len(wanted) == 1 else f"in [{', '.join(wanted)}]"
    fix = (
        f'add a selector to {request.name!r}, such as device.attributes["dra.net"].rail {choice}, '
        "or let dranet suggest --same-rails write it"
    )
    return finding("rails-not-forced", claim.owner, request.path, message, fix, severity=severity)


def _candidates(context: Context, request: Request) -> list[Unit]:
    if context.hardware is None or request.mode == "All":
        return []
    return context.candidates(request)


def _open_choice(cards: list[Unit], requests: list[Request]) -> list[str]:
    """The rails these requests may get, where they are more than the cards they take."""
    values = ((unit.raw.get("attributes") or {}).get(RAIL, {}).get("string", "") for unit in cards)
    rails = {value for value in values if value}
    wanted = sum(request.count for request in requests)
    return sorted(rails, key=natural) if len(rails) > wanted else []
