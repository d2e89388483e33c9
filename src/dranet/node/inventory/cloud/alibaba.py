"""Alibaba Cloud: the instance type, eRDMA devices, and child interfaces on the bonds of an eFLO network.

The PCI class of an eRDMA device is not a network class; sysfs tells which ones they are. An eFLO bond cannot move, so
it is offered as the parent of an IPVLAN child with one of the addresses reserved for children.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from ipaddress import IPv6Network

from dranet.core.attributes import AttributeDoc
from dranet.node.inventory.cloud import eflo
from dranet.node.inventory.cloud.http import CloudError, HttpClient, Response
from dranet.node.inventory.cloud.provider import Attributes, ClaimJson, Cloud, CloudContext, ConfigJson, Identity

DEFAULT_URL = "http://100.100.100.200"
_TOKEN_TTL = {"X-aliyun-ecs-metadata-token-ttl-seconds": "21600"}
ATTRIBUTES = (
    AttributeDoc("alibaba.dra.net/instanceType", "string", "instance type", "the metadata service does not answer"),
    AttributeDoc("alibaba.dra.net/erdma", "bool", "an eRDMA device", "not an eRDMA device"),
)


def is_machine(context: CloudContext) -> bool:
    """Whether the firmware names this cloud."""
    return context.firmware.vendor == "Alibaba Cloud"


async def detect(context: CloudContext) -> Alibaba | None:
    """The provider if an Alibaba metadata service issues a token and names the instance."""
    erdma = frozenset(address for name, address in context.rdma_devices.items() if name.startswith("erdma"))
    provider = Alibaba(HttpClient(context.metadata_url or DEFAULT_URL, context.timeout), erdma, context)
    identity = await provider.fetch("/latest/meta-data/instance-id")
    if identity.status != 200 or not identity.text.strip() or "<" in identity.text:
        return None
    with contextlib.suppress(CloudError):
        await provider.refresh(())
    return provider


class Alibaba:
    """The instance type changes only while the instance is stopped, so it is fetched until it is known."""

    name = "ALIBABA"

    def __init__(self, http: HttpClient, erdma_addresses: frozenset[str], context: CloudContext) -> None:
        self._http = http
        self._erdma = erdma_addresses
        self._network, self._lent = context.network, context.lent
        self._node: Attributes = {}
        self._reserved: dict[tuple[str, str], str] = {}
        """Addresses by claim and device, until the claim is stored and `lent` has them."""

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
            raise CloudError(f"unknown profile {config.get('profile')!r}; the provider ALIBABA has only {eflo.PROFILE}")
        link = config.get("interface") or {}
        if link.get("type") not in ("IPVLAN", "Macvlan"):
            return {}
        network = await asyncio.to_thread(self._eflo_network, device.interface)
        if network is None:
            raise CloudError(
                f"{device.interface or device.device} is not an eFLO bond; "
                "an eFLO bond has mode 802.3ad and a global IPv6 network"
            )
        requested = list(link.get("addresses") or ())
        assigned = [] if requested else [self._reserve(device, claim, network)]
        found: ConfigJson = {"interface": {"addresses": assigned}} if assigned else {}
        if config.get("routes") or config.get("rules") or link.get("vrf"):
            return found
        return found | eflo.routing(
            device.interface, requested or assigned, await asyncio.to_thread(self._network.routes)
        )

    async def release_profile(self, device: Identity, claim: ClaimJson, config: ConfigJson) -> None:
        self._reserved.pop((claim["metadata"]["uid"], device.device), None)

    def _reserve(self, device: Identity, claim: ClaimJson, network: IPv6Network) -> str:
        key = (claim["metadata"]["uid"], device.device)
        if key not in self._reserved:
            self._reserved[key] = eflo.first_free(network, {*self._lent(), *self._reserved.values()})
        return self._reserved[key]

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
        """One response; every request needs a new token."""
        token = await self._http.request("PUT", "/latest/api/token", headers=_TOKEN_TTL)
        if token.status != 200:
            raise CloudError(f"latest/api/token answered {token.status}")
        return await self._http.get(path, {"X-aliyun-ecs-metadata-token": token.text.strip()})


CLOUD = Cloud("ALIBABA", detect, is_machine, rank=50, attributes=ATTRIBUTES)
