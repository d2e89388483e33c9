"""kube-scheduler's device allocation, predicted: same answers, same errors, same number of search steps.

    from dranet.allocation import Allocator, Allocation, NoFit
    outcome = Allocator(node, slices, classes, allocated=[...], version="1.36").allocate(claims)

All objects are plain v1 JSON: `node` is `{"name", "labels"}` or a Node, `allocated` a list of device results as in a
claim's status (`driver`, `pool`, `device`, and `shareID`, `consumedCapacity`, `adminAccess` where set), `claims` the
unallocated claims of one pod in pod order, with API defaults applied or not.

The outcome is one of
    Allocation(results, steps)          one AllocationResult per claim; `.devices` lists all device results
    NoFit(steps)                        nothing fits on this node ("cannot allocate all claims")
    AllocationError(kind, message, steps)   "fatal": aborts the pod on all nodes; "node": this node only; "timeout"

For many questions keep a `ClusterDevices`: `cluster.allocate(node, claims)`, then `cluster.commit(outcome)` to take the
devices. Its `state` (AllocatedState) has `add` and `remove` for device results. `cluster.schedule(claims, nodes)` tries
nodes in turn and remembers which are full.

`diagnose(cluster, node, claims)` says for every device of a node the first rule that ruled it out, per request.
`SelectorCompiler` compiles and evaluates single selectors. Before 1.36 the scheduler's order is random where a node
has several pools or slices: `cluster.rules.defined_order` is False then, and a prediction is one of several possible.
"""

from dranet.allocation.allocator import Allocator, ClusterDevices
from dranet.allocation.diagnosis import DeviceVerdict, RequestDiagnosis, diagnose
from dranet.allocation.kubernetes_cel import COST_LIMIT, MAX_LENGTH, CelFeatures, UnknownVersion
from dranet.allocation.nodes import Node
from dranet.allocation.outcome import Allocation, AllocationError, NoFit, Outcome
from dranet.allocation.rules import Rules, rules_for
from dranet.allocation.search import SearchLimits
from dranet.allocation.selectors import DeviceInput, Selector, SelectorCompiler, Verdict, device_input
from dranet.allocation.state import AllocatedState

__all__ = [
    "COST_LIMIT", "MAX_LENGTH", "AllocatedState", "Allocation", "AllocationError", "Allocator", "CelFeatures",
    "ClusterDevices", "DeviceInput", "DeviceVerdict", "NoFit", "Node", "Outcome", "RequestDiagnosis", "Rules",
    "SearchLimits", "Selector", "SelectorCompiler", "UnknownVersion", "Verdict", "device_input", "diagnose",
    "rules_for",
]  # fmt: skip
