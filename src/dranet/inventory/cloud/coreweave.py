"""CoreWeave Kubernetes Service (hint ``CKS``): where the node stands in the fabric, from the labels of its Node.

There is no metadata service to ask; CoreWeave writes what it knows on the Node. It is read once, at the start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dranet.inventory.cloud.provider import Attributes, Cloud, CloudContext, ConfigJson, Identity
from dranet.model.attributes import AttributeDoc
from dranet.model.limits import STRING_BYTES

_PREFIX = "coreweave.dra.net/"
_BACKEND = "backend.coreweave.cloud/"
_CLUSTER = "cks.coreweave.com/cluster"
_LABELS = {
    "fabricFlavor": (_BACKEND + "flavor", "flavour of the fabric"),
    "fabric": (_BACKEND + "fabric", "fabric"),
    "superpod": (_BACKEND + "superpod", "superpod in the fabric"),
    "leafgroup": (_BACKEND + "leafgroup", "leaf group, by its number"),
    "leafgroupName": (_BACKEND + "leafgroup-name", "leaf group, by its name"),
    "speedCurrent": (_BACKEND + "speed.current", "speed of the fabric's links now"),
    "speedExpected": (_BACKEND + "speed.expected", "speed that they should have"),
    "rack": ("node.coreweave.cloud/rack", "rack"),
    "instanceType": ("node.kubernetes.io/instance-type", "instance type"),
}
_NOT_SAID = "the Node has no such label, or one of more than 64 bytes"
ATTRIBUTES = (
    *(AttributeDoc(_PREFIX + name, "string", meaning, _NOT_SAID) for name, (_, meaning) in _LABELS.items()),
    AttributeDoc(_PREFIX + "leafSwitch", "string", "leaf switch that the card should be plugged into", _NOT_SAID),
)


async def detect(context: CloudContext) -> CoreWeave | None:
    """The provider if the Node says which CoreWeave cluster it belongs to."""
    labels = await context.node_labels()
    if not labels.get(_CLUSTER):
        return None
    return CoreWeave(labels, {address: name for name, address in context.rdma_devices.items()})


class CoreWeave:
    """Knows the labels and which RDMA device sits at which PCI address."""

    name = "CKS"

    def __init__(self, labels: Mapping[str, str], rdma_by_pci: Mapping[str, str]) -> None:
        self._labels = labels
        self._rdma_by_pci = rdma_by_pci
        self._node = _told({name: labels.get(label, "") for name, (label, _) in _LABELS.items()})

    def attributes(self, device: Identity) -> Attributes:
        return {**self._node, **_told({"leafSwitch": self._leaf_switch(device)})}

    def _leaf_switch(self, device: Identity) -> str:
        """The label goes by the RDMA device; one that is not seen is called as the interface is."""
        fallback = device.interface if device.interface.startswith("ibp") else ""
        rdma = self._rdma_by_pci.get(device.pci, fallback)
        return self._labels.get(f"{_BACKEND}neighbors.expected.{rdma}.device", "") if rdma else ""

    async def config(self, device: Identity) -> ConfigJson | None:
        return None

    async def refresh(self, devices: Sequence[Identity]) -> bool:
        return False


def _told(values: Mapping[str, str]) -> dict[str, str]:
    """Cut, a label would name something else; so one that is too long is left out."""
    return {_PREFIX + name: text for name, text in values.items() if text and len(text.encode()) <= STRING_BYTES}


CLOUD = Cloud("CKS", detect, rank=60, attributes=ATTRIBUTES)
