"""Alibaba Cloud: instance type, which cards are eRDMA ones, and children of the bonds of an eFLO network.

eRDMA cards do not call themselves network cards on the PCI bus; sysfs is what tells them apart. An eFLO bond cannot be
moved, so it is offered for what can be made of it: an IPVLAN child with one of the addresses set aside for them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from ipaddress import IPv6Network

from dranet.inventory.cloud import eflo
from dranet.inventory.cloud.http import CloudError, HttpClient, Response
from dranet.inventory.cloud.provider import Attributes, ClaimJson, Cloud, CloudContext, ConfigJson, Identity
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
    provider = Alibaba(HttpClient(context.metadata_url or DEFAULT_URL, context.timeout), erdma, context)
    identity = await provider.fetch("/latest/meta-data/instance-id")
    if identity.status != 200 or not identity.text.strip() or "<" in identity.text:
        return None
    with contextlib.suppress(CloudError):
        await provider.refresh(())
    return provider


class Alibaba:
    """The instance type can change only while the instance is stopped; a refresh fills it in if it was missing."""

    name = "ALIBABA"

    def __init__(self, http: HttpClient, erdma_addresses: frozenset[str], context: CloudContext) -> None:
        self._http = http
        self._erdma = erdma_addresses
        self._network, self._lent = context.network, context.lent
        self._node: Attributes = {}
        self._promised: dict[tuple[str, str], str] = {}
        """Addresses by claim and device: between the promise and the stored claim nobody else knows of them."""

    def attributes(self, device: Identity) -> Attributes:
        return {**self._node, **({"alibaba.dra.net/erdma": True} if device.pci in self._erdma else {})}

    def offers(self, interface: str) -> bool:
        return self._eflo_network(interface) is not None

    async def config(self, device: Identity) -> ConfigJson | None:
        if not device.interface or not await asyncio.to_thread(self.offers, device.interface):
            return None
        return {"profile": eflo.PROFILE, "interface": {"type": "IPVLAN"}}

    async def get_profile(self, device: Identity, claim: ClaimJson, config: ConfigJson) -> ConfigJson:
        if config.get("profile") != eflo.PROFILE:
            raise CloudError(f"Alibaba has no profile {config.get('profile')!r}, only {eflo.PROFILE}")
        link = config.get("interface") or {}
        if link.get("type") not in ("IPVLAN", "Macvlan"):
            return {}
        network = await asyncio.to_thread(self._eflo_network, device.interface)
        if network is None:
            raise CloudError(
                f"{device.interface or device.device} is no eFLO bond: 802.3ad, with a global IPv6 network"
            )
        asked = list(link.get("addresses") or ())
        given = [] if asked else [self._promise(device, claim, network)]
        found: ConfigJson = {"interface": {"addresses": given}} if given else {}
        if config.get("routes") or config.get("rules") or link.get("vrf"):
            return found
        return found | eflo.routing(device.interface, asked or given, await asyncio.to_thread(self._network.routes))

    async def release_profile(self, device: Identity, claim: ClaimJson, config: ConfigJson) -> None:
        self._promised.pop((claim["metadata"]["uid"], device.device), None)

    def _promise(self, device: Identity, claim: ClaimJson, network: IPv6Network) -> str:
        key = (claim["metadata"]["uid"], device.device)
        if key not in self._promised:
            self._promised[key] = eflo.first_free(network, {*self._lent(), *self._promised.values()})
        return self._promised[key]

    def _eflo_network(self, interface: str) -> IPv6Network | None:
        if self._network.bond_mode(interface) != eflo.BOND_MODE:
            return None
        return eflo.network_of(self._network.addresses(interface))

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
