"""kube-scheduler's choice of nodes, predicted: same filters, same points, same words.

    from dranet.scheduling import Scheduler, TraitsReader, read_node
    scheduler = Scheduler([read_node(raw) for raw in nodes], slices=slices, classes=classes)
    verdict = scheduler.decide(TraitsReader().read_pod(pod, claims))
    if verdict.places:
        scheduler.take(verdict.pod, scheduler.choose(verdict))

All objects are plain v1 JSON, with API defaults applied or not. The default profile of 1.36 is meant. Not considered:
volumes (VolumeRestrictions, NodeVolumeLimits, VolumeBinding, VolumeZone), extenders, other profiles, pods being
resized, devices that wait for binding conditions.
"""

from dranet.scheduling.claims import Claims
from dranet.scheduling.cycle import Rejection
from dranet.scheduling.device_kinds import device_kinds
from dranet.scheduling.nodes import Alike, NodeFacts, Taint, read_node
from dranet.scheduling.pods import Pod, Traits, TraitsReader
from dranet.scheduling.scheduler import Scheduler
from dranet.scheduling.verdict import Place, Preemption, Verdict

__all__ = [
    "Alike", "Claims", "NodeFacts", "Place", "Pod", "Preemption", "Rejection", "Scheduler", "Taint", "Traits",
    "TraitsReader", "Verdict", "device_kinds", "read_node",
]  # fmt: skip
