"""Who has a claim next, while its pod ends: the pod's successor in a StatefulSet, or one made again after force.

The kubelet takes a claim for prepared until the call that unprepares it is over, and then forgets it, also for a pod
that came while the call was under way. That pod has a sandbox and never gets a container ("unable to get claim info").
So unprepare is refused while a successor is there. Asked again once it knows of both pods, the kubelet only strikes the
first one off, and does not ask us at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any, Protocol

from dranet.driver.claims.allotment import allotted, consumers
from dranet.driver.records.plan import ClaimPlan, PodRef
from dranet.model.errors import DranetError

Object = Mapping[str, Any]
ASK_SECONDS = 1.0
"""The client itself would wait ten times as long, and the pod that ends with it."""


class ClusterSide(Protocol):
    """What is asked of the API server."""

    async def claim(self, namespace: str, name: str) -> Object: ...

    async def pod(self, namespace: str, name: str) -> Object | None: ...


async def next_user(cluster: ClusterSide, node: str, plan: ClaimPlan, known: Collection[str]) -> PodRef | None:
    """A pod on this node that the claim is reserved for, other than those with these UIDs.

    None as well where the API server does not say: unprepare must work without it.
    """
    try:
        async with asyncio.timeout(ASK_SECONDS):
            claim = await cluster.claim(plan.namespace, plan.name)
            if claim["metadata"]["uid"] != plan.uid or all(item.pool != node for item in allotted(claim)):
                return None
            for user in consumers(claim):
                if user.uid not in known and await _comes(cluster, node, user):
                    return user
    except (DranetError, TimeoutError):
        pass
    return None


async def _comes(cluster: ClusterSide, node: str, user: PodRef) -> bool:
    """Whether it is a pod of this node that will still need the claim: what is reserved may be for one long gone."""
    pod = await cluster.pod(user.namespace, user.name)
    if pod is None or pod["metadata"]["uid"] != user.uid or pod["spec"].get("nodeName") != node:
        return False
    ends = "deletionTimestamp" in pod["metadata"]
    return not ends and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
