"""A model of kube-scheduler: the same filters, scores and messages.

    from dranet.scheduler import PodInfoReader, Scheduler, read_node
    scheduler = Scheduler([read_node(raw) for raw in nodes], slices=slices, classes=classes)
    result = scheduler.decide(PodInfoReader().read_pod(pod, claims))
    if result.feasible:
        scheduler.bind(result.pod, scheduler.select_host(result))

All objects are plain v1 JSON, with API defaults applied or not. It models the default profile of 1.36. Not considered:
volumes (VolumeRestrictions, NodeVolumeLimits, VolumeBinding, VolumeZone), extenders, other profiles, in-place resize,
devices with binding conditions.
"""

from dranet.scheduler.allocation.equivalence import device_signatures
from dranet.scheduler.framework import ScheduleResult
from dranet.scheduler.nodes import Node, NodeInfo, read_node
from dranet.scheduler.pods import Pod, PodInfo, PodInfoReader
from dranet.scheduler.scheduler import Scheduler

__all__ = [
    "Node",
    "NodeInfo",
    "Pod",
    "PodInfo",
    "PodInfoReader",
    "ScheduleResult",
    "Scheduler",
    "device_signatures",
    "read_node",
]
