"""Oracle Kubernetes Engine: the host's position in the RDMA network, and child interfaces on its RDMA NICs.

The metadata names things by OCIDs, which are longer than an attribute may be; their last part is unique, and that is
published. Oracle's agent on the node manages the RDMA NICs, so they stay on the host, and pods get child interfaces
(:mod:`dranet.node.inventory.cloud.oke_rdma`).
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from dranet.core.attributes import AttributeDoc
from dranet.node.inventory.cloud import oke_rdma
from dranet.node.inventory.cloud.http import CloudError, HttpClient
from dranet.node.inventory.cloud.provider import Attributes, ClaimJson, Cloud, CloudContext, ConfigJson, Identity

DEFAULT_URL = "http://169.254.169.254"
_HEADERS = {"Authorization": "Bearer Oracle"}
_PREFIX = "oke.dra.net/"
_TOPOLOGY = (
    ("hpcIslandId", "customerHPCIslandId"),
    ("networkBlockId", "customerNetworkBlock"),
    ("localBlockId", "customerLocalBlock"),
    ("gpuMemoryFabricId", "customerGpuMemoryFabric"),
)
_SUFFIX_CHARS = 60
ATTRIBUTES = (
    AttributeDoc("oke.dra.net/hpcIslandId", "string", "HPC island", "no topology data"),
    AttributeDoc("oke.dra.net/networkBlockId", "string", "network block", "empty in the metadata"),
    AttributeDoc("oke.dra.net/localBlockId", "string", "local block", "no topology data"),
    AttributeDoc("oke.dra.net/rackId", "string", "rack", "empty in the metadata"),
    AttributeDoc("oke.dra.net/gpuMemoryFabricId", "string", "GPU memory fabric", "empty in the metadata"),
    AttributeDoc("oke.dra.net/shape", "string", "shape of the instance", "empty in the metadata"),
    AttributeDoc("oke.dra.net/rdmaFabricIpv6", "bool", "the RDMA network uses IPv6", "no fabric data"),
    AttributeDoc("oke.dra.net/rdmaFabricPlanes", "int", "planes of the RDMA network", "no fabric data"),
    AttributeDoc("oke.dra.net/rdmaChildIpv4Cidr", "string", "address range of child interfaces", "no IPv4 fabric"),
)
RANGE_OPTION = "rdma-child-ipv4-cidr"
_RDMA_NAME = re.compile(r"rdma\d+")
_FABRIC_IPV6 = _PREFIX + "rdmaFabricIpv6"


def is_machine(context: CloudContext) -> bool:
    """Whether the firmware names this cloud."""
    return context.firmware.asset_tag == "OracleCloud.com"


async def detect(context: CloudContext) -> Oke | None:
    """The provider if an Oracle metadata service answers."""
    http = HttpClient(context.metadata_url or DEFAULT_URL, context.timeout, _HEADERS)
    probe = await http.get("/opc/v2/instance/")
    if probe.status != 200 or not isinstance(probe.json(), dict):
        return None
    provider = Oke(http, context)
    await provider.refresh(())
    return provider


class Oke:
    """Moving an instance changes the host's position, so every refresh reads it."""

    name = "OKE"

    def __init__(self, http: HttpClient, context: CloudContext) -> None:
        self._http = http
        self._network = context.network
        option = context.options.get("oke", {}).get(RANGE_OPTION, oke_rdma.DEFAULT_RANGE)
        self._range = oke_rdma.child_range(option)
        self._node: Attributes = {}
        self._vnics: tuple[oke_rdma.Vnic, ...] = ()

    def attributes(self, device: Identity) -> Attributes:
        return dict(self._node)

    async def config(self, device: Identity) -> ConfigJson | None:
        if device.link_layer == "infiniband":
            return {"profile": oke_rdma.PROFILE}  # the profile's error says how to keep such a NIC on the host
        if self._node.get(_FABRIC_IPV6) or not await asyncio.to_thread(self._is_rdma_nic, device):
            return None
        return {"profile": oke_rdma.PROFILE, "interface": {"type": "IPVLAN"}}

    def _is_rdma_nic(self, device: Identity) -> bool:
        """By the agent's interface name, or by the agent's address: some shapes keep the system's names."""
        if device.link_layer != "ether":
            return False
        addresses = self._network.addresses(device.interface) if device.rdma else ()
        found = [ipaddress.ip_interface(address).ip for address in addresses]
        return bool(_RDMA_NAME.fullmatch(device.interface)) or any(ip in oke_rdma.AGENT_NETWORK for ip in found)

    async def get_profile(self, device: Identity, claim: ClaimJson, config: ConfigJson) -> ConfigJson:
        if config.get("profile") != oke_rdma.PROFILE:
            raise CloudError(f"unknown profile {config.get('profile')!r}; the provider OKE has only {oke_rdma.PROFILE}")
        if device.link_layer == "infiniband":
            raise CloudError(
                "InfiniBand NICs of OKE stay on the host; start the driver with --move-ib-interfaces=false"
            )
        oke_rdma.check_supported(config)
        if not self._vnics:
            raise CloudError(
                "the subnet of this node is not known yet: opc/v2/vnics has not returned it; will retry every minute"
            )
        return await asyncio.to_thread(self._child, device.interface, config)

    def _child(self, interface: str, config: ConfigJson) -> ConfigJson:
        network = self._network
        if not network.shares_rdma():
            raise CloudError(f"profile {oke_rdma.PROFILE} needs the shared RDMA mode: rdma system set netns shared")
        number, address = oke_rdma.child(interface, network.addresses(interface), self._vnics[0], self._range)
        service = os.environ.get("KUBERNETES_SERVICE_HOST", "")
        oke_rdma.check_free(self._range, self._vnics, network.routes(), service)
        return oke_rdma.configuration(number, address, network.arp_settings(interface), config)

    async def release_profile(self, device: Identity, claim: ClaimJson, config: ConfigJson) -> None:
        """Nothing to release: the address follows from the NIC."""

    async def refresh(self, devices: Sequence[Identity]) -> bool:
        answer = await self._http.get("/opc/v2/host/")
        if answer.status != 200:
            raise CloudError(
                f"opc/v2/host returned {answer.status}; if this shape has an RDMA network, "
                "ask for its topology data to be enabled for the tenancy"
            )
        host = answer.json()
        before, self._node = self._node, {**_position(host), **await self._shape(), **self._fabric(host)}
        self._vnics = await self._ask_vnics() or self._vnics
        return before != self._node

    async def _shape(self) -> Attributes:
        answer = await self._http.get_if_any("/opc/v2/instance/")
        instance = answer.json() if answer.status == 200 else None
        shape = _text(instance, "shape") if isinstance(instance, dict) else ""
        known = {key: value for key, value in self._node.items() if key == _PREFIX + "shape"}
        return {_PREFIX + "shape": shape} if shape else known

    async def _ask_vnics(self) -> tuple[oke_rdma.Vnic, ...]:
        answer = await self._http.get_if_any("/opc/v2/vnics/")
        return oke_rdma.vnics(answer.json()) if answer.status == 200 else ()

    def _fabric(self, host: Mapping[str, Any]) -> Attributes:
        """Incomplete fabric data counts as none."""
        match host.get("rdmaFabricData"):
            case {"ipv6": bool(ipv6), "planes": int(planes)}:
                children = {} if ipv6 else {_PREFIX + "rdmaChildIpv4Cidr": str(self._range)}
                return {_FABRIC_IPV6: ipv6, _PREFIX + "rdmaFabricPlanes": planes, **children}
        return {}


def _position(host: Any) -> Attributes:
    if not isinstance(host, dict):
        raise CloudError("opc/v2/host is not an object")
    found = {_PREFIX + "networkBlockId": _text(host, "networkBlockId"), _PREFIX + "rackId": _text(host, "rackId")}
    topology = host.get("rdmaTopologyData")
    if isinstance(topology, dict):
        short = {_PREFIX + name: ocid_suffix(_text(topology, field)) for name, field in _TOPOLOGY}
        found |= {key: value for key, value in short.items() if value}
    return {key: value for key, value in found.items() if value}


def _text(raw: Mapping[str, Any], key: str) -> str:
    return str(raw.get(key) or "")


def ocid_suffix(ocid: str) -> str:
    """The unique part of an OCID: what follows the last dot, at most its last 60 characters."""
    if not ocid:
        return ""
    if "ocid" not in ocid or "." not in ocid:
        raise CloudError(f"{ocid!r} is not an OCID")
    return ocid.rpartition(".")[2][-_SUFFIX_CHARS:]


CLOUD = Cloud("OKE", detect, is_machine, rank=40, attributes=ATTRIBUTES, options={RANGE_OPTION: oke_rdma.child_range})
