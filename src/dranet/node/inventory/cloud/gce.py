"""Google Compute Engine: machine type, physical location, and the network of each interface by its MAC."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from dranet.core.attributes import AttributeDoc
from dranet.core.device import AttributeValue
from dranet.node.inventory.cloud.http import CloudError, HttpClient, expect_ok
from dranet.node.inventory.cloud.provider import Attributes, Cloud, CloudContext, CloudProvider, Identity

DEFAULT_URL = "http://169.254.169.254"
_HEADERS = {"Metadata-Flavor": "Google"}
_PREFIX = "gce.dra.net/"
_ROOT = "/computeMetadata/v1/instance/"
_UNKNOWN_MAC = "the metadata does not have the MAC"
ATTRIBUTES = (
    AttributeDoc("gce.dra.net/machineType", "string", "machine type", "not on GCE"),
    AttributeDoc("gce.dra.net/block", "string", "physical block of the host", "not in the metadata"),
    AttributeDoc("gce.dra.net/subBlock", "string", "physical sub-block of the host", "not in the metadata"),
    AttributeDoc("gce.dra.net/host", "string", "physical host", "not in the metadata"),
    AttributeDoc("gce.dra.net/networkName", "string", "VPC network of this interface", _UNKNOWN_MAC),
    AttributeDoc("gce.dra.net/networkProjectNumber", "int", "project of that network", _UNKNOWN_MAC),
    AttributeDoc("gce.dra.net/ipAliases", "string", "alias ranges, comma-joined, cut to 64 bytes", "there are none"),
)


def is_machine(context: CloudContext) -> bool:
    """Whether the firmware names this cloud."""
    return context.firmware.vendor == "Google"


async def detect(context: CloudContext) -> Gce | None:
    """The provider if a Google metadata service answers; its own header proves it."""
    host = os.environ.get("GCE_METADATA_HOST", "")
    url = context.metadata_url or (f"http://{host}" if host else DEFAULT_URL)
    provider = Gce(HttpClient(url, context.timeout, _HEADERS))
    probe = await provider.http.get(_ROOT + "machine-type")
    if probe.status != 200 or probe.headers.get("metadata-flavor") != "Google":
        return None
    await provider.refresh(())
    return provider


class Gce(CloudProvider):
    """Metadata is read at every refresh: hosts migrate, interfaces and alias ranges change."""

    name = "GCE"

    def __init__(self, http: HttpClient) -> None:
        self.http = http
        self._node: Attributes = {}
        self._interfaces: Mapping[str, Attributes] = {}

    def attributes(self, device: Identity) -> Attributes:
        return {**self._node, **self._interfaces.get(device.mac.lower(), {})}

    async def refresh(self, devices: Sequence[Identity]) -> bool:
        before = (self._node, self._interfaces)
        machine_type = expect_ok(await self.http.get(_ROOT + "machine-type"), "instance/machine-type").text
        path = _ROOT + "network-interfaces/?recursive=true&alt=json"
        interfaces = expect_ok(await self.http.get(path), "instance/network-interfaces").json()
        host = await self.http.get_if_any(_ROOT + "attributes/physical_host")
        self._node = {
            _PREFIX + "machineType": machine_type.strip().rsplit("/", 1)[-1],
            **(_physical_host(host.text) if host.status == 200 else {}),
        }
        self._interfaces = _by_mac(interfaces)
        return before != (self._node, self._interfaces)


def _physical_host(text: str) -> dict[str, AttributeValue]:
    """``/block/subblock/host``; with fewer parts nothing is known."""
    parts = text.strip().removeprefix("/").split("/", 2)
    if len(parts) < 3:
        return {}
    return {_PREFIX + key: part for key, part in zip(("block", "subBlock", "host"), parts, strict=True)}


def _by_mac(interfaces: Any) -> dict[str, Attributes]:
    if not isinstance(interfaces, list):
        raise CloudError("instance/network-interfaces is not a list")
    return {str(i.get("mac", "")).lower(): _interface(i) for i in interfaces if isinstance(i, dict) and i.get("mac")}


def _interface(raw: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """``projects/<number>/networks/<name>`` and the alias ranges."""
    found: dict[str, AttributeValue] = {}
    match str(raw.get("network", "")).split("/"):
        case ["projects", project, "networks", network] if project.isdigit():
            found[_PREFIX + "networkName"] = network
            found[_PREFIX + "networkProjectNumber"] = int(project)
    if aliases := raw.get("ipAliases"):
        found[_PREFIX + "ipAliases"] = ",".join(str(alias) for alias in aliases)
    return found


CLOUD = Cloud("GCE", detect, is_machine, rank=10, attributes=ATTRIBUTES)
