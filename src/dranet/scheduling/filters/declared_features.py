"""NodeDeclaredFeatures: what only newer kubelets can do, and say so in ``status.declaredFeatures``.

Two things a pod can ask for while it is scheduled are behind such features: a user namespace together with the host's
network, and a container whose end restarts all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dranet.model.untyped import at, mappings
from dranet.scheduling.amounts import containers
from dranet.scheduling.cycle import Check, Cycle, Rejection
from dranet.scheduling.nodes import Alike

REJECTION = Rejection(("node(s) didn't match Pod's required features",))


def prepare(cycle: Cycle) -> Check | None:
    """Skipped for pods that ask for nothing new."""
    wanted = _wanted(cycle.traits.spec)
    if not wanted:
        return None

    def check(alike: Alike) -> Rejection | None:
        facts = alike.sample.facts
        return None if facts.open or wanted <= facts.features else REJECTION

    return check


def _wanted(spec: Mapping[str, Any]) -> frozenset[str]:
    found = set()
    if spec.get("hostNetwork") is True and spec.get("hostUsers") is False:
        found.add("UserNamespacesHostNetworkSupport")
    rules = [rule for _, container in containers(spec) for rule in mappings(container.get("restartPolicyRules"))]
    if any(at(rule, "action") == "RestartAllContainers" for rule in rules):
        found.add("RestartAllContainersOnContainerExits")
    return frozenset(found)
