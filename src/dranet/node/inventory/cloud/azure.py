"""Microsoft Azure: VM size, placement, and policy routing for secondary NICs.

A secondary NIC on Azure has no default route, so a pod that owns it reaches only its subnet. The configuration from
here gives each NIC its own routing table for packets with the NIC's source addresses.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

from dranet.core.attributes import AttributeDoc
from dranet.node.inventory.cloud.http import CloudError, HttpClient, expect_ok
from dranet.node.inventory.cloud.provider import Attributes, Cloud, CloudContext, ConfigJson, Identity

DEFAULT_URL = "http://169.254.169.254"
_VERSION = "api-version=2025-11-11"
_ASSET_TAG = "7783-7084-3265-9085-8269-3286-77"
"""The chassis asset tag of all Azure virtual machines."""
_NODE_FIELDS = ("vmSize", "placementGroupId", "interconnectGroupId", "interconnectSubgroupId")
_FIRST_TABLE = 100
_RULE_PRIORITY = 1000
"""Between the local table (0) and the main table (32766); a rule without a priority would precede both."""
ATTRIBUTES = (
    AttributeDoc("azure.dra.net/vmSize", "string", "VM size", "empty in the metadata"),
    AttributeDoc("azure.dra.net/placementGroupId", "string", "placement group", "empty in the metadata"),
    AttributeDoc("azure.dra.net/interconnectGroupId", "string", "interconnect group", "empty in the metadata"),
    AttributeDoc("azure.dra.net/interconnectSubgroupId", "string", "interconnect sub-group", "empty in the metadata"),
)


def is_machine(context: CloudContext) -> bool:
    """Whether the firmware names this cloud."""
    return context.firmware.asset_tag == _ASSET_TAG


async def detect(context: CloudContext) -> Azure | None:
    """The provider if an Azure metadata service answers."""
    http = HttpClient(context.metadata_url or DEFAULT_URL, context.timeout, {"Metadata": "true"})
    probe = await http.get(f"/metadata/instance?{_VERSION}&format=text")
    if probe.status != 200:
        return None
    provider = Azure(http)
    await provider.refresh(())
    return provider


class Azure:
    """Metadata is read at every refresh: NICs are attached to and detached from running machines."""

    name = "AZURE"

    def __init__(self, http: HttpClient) -> None:
        self._http = http
        self._node: Attributes = {}
        self._nics: Mapping[str, tuple[int, Mapping[str, Any]]] = {}

    def attributes(self, device: Identity) -> Attributes:
        return dict(self._node)

    async def config(self, device: Identity) -> ConfigJson | None:
        index, nic = self._nics.get(_plain(device.mac), (0, None))
        return None if nic is None else _policy_routing(nic, _FIRST_TABLE + index, device.gateway6)

    async def refresh(self, devices: Sequence[Identity]) -> bool:
        before = (self._node, self._nics)
        answer = await self._http.get(f"/metadata/instance/compute?{_VERSION}&format=json")
        compute = expect_ok(answer, "metadata/instance/compute").json()
        if not isinstance(compute, dict) or "vmSize" not in compute:
            raise CloudError("metadata/instance/compute has no vmSize; this is not an Azure metadata service")
        self._node = {f"azure.dra.net/{key}": str(compute[key]) for key in _NODE_FIELDS if compute.get(key)}
        network = await self._http.get_if_any(f"/metadata/instance/network?{_VERSION}&format=json")
        if network.status == 200:
            self._nics = _nics_by_mac(network.json())
        return before != (self._node, self._nics)


def _nics_by_mac(network: Any) -> dict[str, tuple[int, Mapping[str, Any]]]:
    interfaces = network.get("interface") if isinstance(network, dict) else None
    if not isinstance(interfaces, list):
        return {}
    return {_plain(str(c.get("macAddress", ""))): (i, c) for i, c in enumerate(interfaces) if isinstance(c, dict)}


def _plain(mac: str) -> str:
    return mac.replace(":", "").replace("-", "").lower()


def _policy_routing(nic: Mapping[str, Any], table: int, gateway6: str) -> ConfigJson | None:
    rules, routes = [], []
    for source, default, gateway in (*_ipv4(nic), *_ipv6(nic, gateway6)):
        rules.append({"source": source, "table": table, "priority": _RULE_PRIORITY})
        routes.append({"destination": default, "gateway": gateway, "table": table})
    return {"rules": rules, "routes": routes} if rules else None


def _ipv4(nic: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Azure's router has the first address of every subnet."""
    found = []
    for subnet in _entries(nic, "ipv4", "subnet"):
        try:
            network = ipaddress.IPv4Network(f"{subnet.get('address')}/{subnet.get('prefix')}")
        except ValueError:
            continue
        if network.prefixlen < 31:
            found.append((str(network), "0.0.0.0/0", str(network.network_address + 1)))
    return found[:1]


def _ipv6(nic: Mapping[str, Any], gateway: str) -> list[tuple[str, str, str]]:
    """Azure assigns single IPv6 addresses; only the node's own default route names their router."""
    addresses = _entries(nic, "ipv6", "ipAddress")
    try:
        address = ipaddress.IPv6Address(str(addresses[0].get("privateIpAddress", ""))) if addresses else None
    except ValueError:
        return []
    if not gateway or address is None or address.is_link_local:
        return []
    return [(f"{address}/128", "::/0", gateway)]


def _entries(nic: Mapping[str, Any], family: str, key: str) -> list[Mapping[str, Any]]:
    part = nic.get(family)
    entries = part.get(key) if isinstance(part, dict) else None
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


CLOUD = Cloud("AZURE", detect, is_machine, rank=30, attributes=ATTRIBUTES)
