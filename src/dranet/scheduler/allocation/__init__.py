"""kube-scheduler's device allocation, predicted: same answers, same errors, same number of search steps.

    from dranet.scheduler.allocation import Allocation, ClusterDevices, NoFit
    outcome = ClusterDevices(slices, classes, allocated=[...], version="1.36").allocate(node, claims)

All objects are plain v1 JSON: `node` is `{"name", "labels"}` or a Node, `allocated` a list of device results as in a
claim's status (`driver`, `pool`, `device`, and `shareID`, `consumedCapacity`, `adminAccess` where set), `claims` the
unallocated claims of one pod in pod order, with API defaults applied or not.

The outcome is one of
    Allocation(results, steps)          one AllocationResult per claim; `.devices` lists all device results
    NoFit(steps)                        nothing fits on this node ("cannot allocate all claims")
    AllocationError(kind, message, steps)   "fatal": aborts the pod on all nodes; "node": this node only; "timeout"

Keep the `ClusterDevices` for many questions; `cluster.commit(outcome)` takes the devices. Its `state` (AllocatedState)
has `add` and `remove` for device results.

`diagnose(cluster, node, claims)` says for every device of a node the first rule that ruled it out, per request.
`SelectorCompiler` compiles and evaluates single selectors. Before 1.36 the scheduler's order is random where a node
has several pools or slices: `cluster.rules.defined_order` is False then, and a prediction is one of several possible.
"""

from dranet.scheduler.allocation.allocator import ClusterDevices
from dranet.scheduler.allocation.diagnosis import DeviceDiagnosis, RequestDiagnosis, diagnose
from dranet.scheduler.allocation.kubernetes_cel import COST_LIMIT, MAX_LENGTH, CelFeatures
from dranet.scheduler.allocation.nodes import NodeLabels
from dranet.scheduler.allocation.outcome import Allocation, AllocationError, NoFit, Outcome
from dranet.scheduler.allocation.rules import Rules, rules_for
from dranet.scheduler.allocation.search import SearchLimits
from dranet.scheduler.allocation.selectors import (
    DeviceInput,
    DeviceSelector,
    SelectorCompiler,
    SelectorResult,
    device_input,
)
from dranet.scheduler.allocation.state import AllocatedState
from dranet.scheduler.releases import UnknownVersion

__all__ = [
    "COST_LIMIT",
    "MAX_LENGTH",
    "AllocatedState",
    "Allocation",
    "AllocationError",
    "CelFeatures",
    "ClusterDevices",
    "DeviceDiagnosis",
    "DeviceInput",
    "DeviceSelector",
    "NoFit",
    "NodeLabels",
    "Outcome",
    "RequestDiagnosis",
    "Rules",
    "SearchLimits",
    "SelectorCompiler",
    "SelectorResult",
    "UnknownVersion",
    "device_input",
    "diagnose",
    "rules_for",
]
