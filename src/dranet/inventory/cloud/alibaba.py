"""Alibaba Cloud: instance type, and which cards are eRDMA ones.

eRDMA cards do not call themselves network cards on the PCI bus; sysfs is what tells them apart.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from dranet.inventory.cloud.http import CloudError, HttpClient, Response
from dranet.inventory.cloud.provider import Attributes, Cloud, CloudContext, ConfigJson, Identity
from dranet.model.attributes import AttributeDoc

DEFAULT_URL = "http://100.100.100.200"
_TOKEN_TTL = {"X-aliyun-ecs-metadata-token-ttl-seconds": "21600"}
ATTRIBUTES = (
    AttributeDoc("alibaba.dra.net/instanceType", "string", "instance type", "the metadata does not answer"),
    AttributeDoc("alibaba.dra.net/erdma", "bool", "an eRDMA card", "other cards"),
)


def is_machine(context: CloudContext) -> bool:
    """Whether the firmware says so."""
    return context.firmware.vendor == "Alibaba Cloud"


async def detect(context: CloudContext) -> Alibaba | None:
    """The provider if an Alibaba metadata service hands out a token and names the instance."""
    erdma = frozenset(address for name, address in context.rdma_devices.items() if name.startswith("erdma"))
    provider = Alibaba(HttpClient(context.metadata_url or DEFAULT_URL, context.timeout), erdma)
    identity = await provider.fetch("/latest/meta-data/instance-id")
    if identity.status != 200 or not identity.text.strip() or "<" in identity.text:
        return None
    with contextlib.suppress(CloudError):
        await provider.refresh(())
    return provider


class Alibaba:
    """The instance type can change only while the instance is stopped; a refresh fills it in if it was missing."""

    name = "ALIBABA"

    def __init__(self, http: HttpClient, erdma_addresses: frozenset[str]) -> None:
        self._http = http
        self._erdma = erdma_addresses
        self._node: Attributes = {}

    def attributes(self, device: Identity) -> Attributes:
        return {**self._node, **({"alibaba.dra.net/erdma": True} if device.pci in self._erdma else {})}

    async def config(self, device: Identity) -> ConfigJson | None:
        return None

    async def refresh(self, devices: Sequence[Identity]) -> bool:
        if self._node:
            return False
        answer = await self.fetch("/latest/meta-data/instance/instance-type")
        if answer.status == 200 and answer.text.strip():
            self._node = {"alibaba.dra.net/instanceType": answer.text.strip()}
        return bool(self._node)

    async def fetch(self, path: str) -> Response:
        """One answer, asked with a token of its own."""
        token = await self._http.request("PUT", "/latest/api/token", headers=_TOKEN_TTL)
        if token.status != 200:
            raise CloudError(f"latest/api/token answered {token.status}")
        return await self._http.get(path, {"X-aliyun-ecs-metadata-token": token.text.strip()})


CLOUD = Cloud("ALIBABA", detect, is_machine, rank=50, attributes=ATTRIBUTES)
