"""CoreWeave Kubernetes Service (hint ``CKS``): the node's position in the fabric, from the labels of its Node.

CoreWeave has no metadata service. The labels are read once, at start.
"""

from __future__ import annotations

from collections.abc import Mapping

from dranet.core.attributes import AttributeDoc
from dranet.core.slices import STRING_BYTES
from dranet.node.inventory.cloud.provider import Attributes, Cloud, CloudContext, CloudProvider, Identity

_PREFIX = "coreweave.dra.net/"
_BACKEND = "backend.coreweave.cloud/"
_CLUSTER = "cks.coreweave.com/cluster"
_LABELS = {
    "fabricFlavor": (_BACKEND + "flavor", "flavour of the fabric"),
    "fabric": (_BACKEND + "fabric", "fabric"),
    "superpod": (_BACKEND + "superpod", "superpod in the fabric"),
    "leafgroup": (_BACKEND + "leafgroup", "leaf group number"),
    "leafgroupName": (_BACKEND + "leafgroup-name", "leaf group name"),
    "speedCurrent": (_BACKEND + "speed.current", "current speed of the fabric's links"),
    "speedExpected": (_BACKEND + "speed.expected", "expected speed of the fabric's links"),
    "rack": ("node.coreweave.cloud/rack", "rack"),
    "instanceType": ("node.kubernetes.io/instance-type", "instance type"),
}
_NO_LABEL = "the Node has no such label, or one of more than 64 bytes"
ATTRIBUTES = (
    *(AttributeDoc(_PREFIX + name, "string", meaning, _NO_LABEL) for name, (_, meaning) in _LABELS.items()),
    AttributeDoc(_PREFIX + "leafSwitch", "string", "leaf switch that the NIC should be connected to", _NO_LABEL),
)


async def detect(context: CloudContext) -> CoreWeave | None:
    """The provider if the Node has the label of a CoreWeave cluster."""
    labels = await context.node_labels()
    if not labels.get(_CLUSTER):
        return None
    return CoreWeave(labels, {address: name for name, address in context.rdma_devices.items()})


class CoreWeave(CloudProvider):
    """Knows the labels and the RDMA device at each PCI address."""

    name = "CKS"

    def __init__(self, labels: Mapping[str, str], rdma_by_pci: Mapping[str, str]) -> None:
        self._labels = labels
        self._rdma_by_pci = rdma_by_pci
        self._node = _attributes({name: labels.get(label, "") for name, (label, _) in _LABELS.items()})

    def attributes(self, device: Identity) -> Attributes:
        return {**self._node, **_attributes({"leafSwitch": self._leaf_switch(device)})}

    def _leaf_switch(self, device: Identity) -> str:
        """The label contains the RDMA device; where sysfs does not show it, the interface has the same name."""
        fallback = device.interface if device.interface.startswith("ibp") else ""
        rdma = self._rdma_by_pci.get(device.pci, fallback)
        return self._labels.get(f"{_BACKEND}neighbors.expected.{rdma}.device", "") if rdma else ""


def _attributes(values: Mapping[str, str]) -> dict[str, str]:
    """A label that is too long is dropped: cut, it would name something else."""
    return {_PREFIX + name: text for name, text in values.items() if text and len(text.encode()) <= STRING_BYTES}


CLOUD = Cloud("CKS", detect, rank=60, attributes=ATTRIBUTES)
