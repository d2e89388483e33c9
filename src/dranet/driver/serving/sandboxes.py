"""The sandboxes of a pod, as the runtime lists them: also those that have ended.

A runtime keeps an exited sandbox in its list until the kubelet has it removed, minutes or days later, and lists in no
order. So a pod may have many, and only one of them can have its cards. The kernel says which namespaces still exist
and the plan which of them got the cards; only where both leave it open does the list decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from dranet.driver.records.plan import ClaimPlan
from dranet.kernel import namespaces
from dranet.nri.messages import PodSandbox


class Sandbox(NamedTuple):
    """One sandbox: its network namespace, empty on the host's network, and whether the runtime says that it runs."""

    netns: str
    runs: bool = True


Listed = Mapping[str, Sequence[Sandbox]]
"""What the runtime listed, by pod UID."""


def network_namespace(pod: PodSandbox) -> str:
    """The path of the pod's network namespace; empty for a pod on the host's network."""
    return next((namespace.path for namespace in pod.linux.namespaces if namespace.type == "network"), "")


def by_pod(pods: Iterable[PodSandbox]) -> dict[str, list[Sandbox]]:
    """Every sandbox under the UID of its pod."""
    found: dict[str, list[Sandbox]] = {}
    for pod in pods:
        # An ended sandbox has no process; a runtime that never tells processes has all its sandboxes alike.
        found.setdefault(pod.uid, []).append(Sandbox(network_namespace(pod), runs=pod.pid != 0))
    return found


def with_cards(plan: ClaimPlan, sandboxes: Sequence[Sandbox]) -> str | None:
    """The namespace that should have the plan's cards; None where no sandbox of the pod is left.

    Among several that exist, one that runs goes before one that has ended, and the one that has the cards before any
    other: a card is never taken out of a pod on the word of a list alone.
    """
    left = [sandbox for sandbox in sandboxes if sandbox.netns and namespaces.exists(sandbox.netns)]
    candidates = [sandbox.netns for sandbox in left if sandbox.runs] or [sandbox.netns for sandbox in left]
    if plan.netns in candidates:
        return plan.netns
    return max(candidates, default=None)
