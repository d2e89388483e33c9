"""NodeDeclaredFeatures: pods that need a kubelet feature, which newer kubelets list in ``status.declaredFeatures``.

Two features matter for scheduling: a user namespace together with the host's network, and a container whose exit
restarts all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dranet.core.untyped import as_dicts, get_path
from dranet.scheduler.framework import Cycle, Filter, Status
from dranet.scheduler.nodes import EquivalenceClass
from dranet.scheduler.resources import all_containers

_STATUS = Status(("node(s) didn't match Pod's required features",))


def pre_filter(cycle: Cycle) -> Filter | None:
    required = _required_features(cycle.info.spec)
    if not required:
        return None

    def check(group: EquivalenceClass) -> Status | None:
        node = group.sample.node
        return None if node.allocatable_partial or required <= node.declared_features else _STATUS

    return check


def _required_features(spec: Mapping[str, Any]) -> frozenset[str]:
    found = set()
    if spec.get("hostNetwork") is True and spec.get("hostUsers") is False:
        found.add("UserNamespacesHostNetworkSupport")
    rules = [rule for _, container in all_containers(spec) for rule in as_dicts(container.get("restartPolicyRules"))]
    if any(get_path(rule, "action") == "RestartAllContainers" for rule in rules):
        found.add("RestartAllContainersOnContainerExits")
    return frozenset(found)
