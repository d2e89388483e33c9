"""Amazon EC2: on Neuron instances, the groups of EFA devices and Neuron devices.

Nothing of this changes while an instance runs, so it is read once.
"""

from __future__ import annotations

import re

from dranet.core.attributes import AttributeDoc
from dranet.node.inventory.cloud.http import HttpClient
from dranet.node.inventory.cloud.neuron import GROUP_SIZES, device_groups
from dranet.node.inventory.cloud.provider import Attributes, Cloud, CloudContext, CloudProvider, Identity

DEFAULT_URL = "http://169.254.169.254"
_NEURON_FAMILY = re.compile(r"(?:trn|inf)\d")
_TOKEN_TTL = {"X-aws-ec2-metadata-token-ttl-seconds": "300"}
_NO_GROUP = "not an EFA device of a Neuron instance"
ATTRIBUTES = tuple(
    AttributeDoc(f"resource.aws.com/devicegroup{size}_id", "string", f"group of {what}", _NO_GROUP)
    for size, what in ((1, "one Neuron device"), *((size, f"{size} Neuron devices") for size in GROUP_SIZES))
)


def is_machine(context: CloudContext) -> bool:
    """Whether the firmware names this cloud."""
    return context.firmware.vendor == "Amazon EC2"


async def detect(context: CloudContext) -> Aws | None:
    """The provider if EC2 serves an instance identity document (with a session token where IMDSv2 is on)."""
    http = HttpClient(context.metadata_url or DEFAULT_URL, context.timeout)
    token = await http.request("PUT", "/latest/api/token", headers=_TOKEN_TTL)
    headers = {"X-aws-ec2-metadata-token": token.text} if token.status == 200 else {}
    document = await http.get("/latest/dynamic/instance-identity/document", headers)
    if document.status != 200:
        return None
    raw = document.json()
    instance_type = raw.get("instanceType") if isinstance(raw, dict) else None
    if not isinstance(instance_type, str):
        return None
    # The firmware names the exact model, the key of the tables; the document proves that this is EC2.
    return Aws(instance_type, context.firmware.product or instance_type)


class Aws(CloudProvider):
    """Attributes follow from the instance type alone."""

    name = "AWS"

    def __init__(self, instance_type: str, model: str) -> None:
        self.instance_type = instance_type
        self._groups = device_groups(model) if _NEURON_FAMILY.match(instance_type) else {}

    def attributes(self, device: Identity) -> Attributes:
        return dict(self._groups.get(device.pci, {})) if device.driver == "efa" else {}


CLOUD = Cloud("AWS", detect, is_machine, rank=20, attributes=ATTRIBUTES)
