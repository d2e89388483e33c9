"""Oracle Kubernetes Engine: where the host stands in the RDMA network.

The answer names things by OCIDs, which are longer than an attribute may be; only their last part is unique, so that is
what is published.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dranet.inventory.cloud.http import CloudError, HttpClient
from dranet.inventory.cloud.provider import Attributes, Cloud, CloudContext, ConfigJson, Identity
from dranet.model.attributes import AttributeDoc

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
)


def is_machine(context: CloudContext) -> bool:
    """Whether the firmware says so."""
    return context.firmware.asset_tag == "OracleCloud.com"


async def detect(context: CloudContext) -> Oke | None:
    """The provider if an Oracle metadata service answers."""
    http = HttpClient(context.metadata_url or DEFAULT_URL, context.timeout, _HEADERS)
    probe = await http.get("/opc/v2/instance/")
    if probe.status != 200 or not isinstance(probe.json(), dict):
        return None
    provider = Oke(http)
    await provider.refresh(())
    return provider


class Oke:
    """The host's place can change when an instance is moved, so a refresh reads it again."""

    name = "OKE"

    def __init__(self, http: HttpClient) -> None:
        self._http = http
        self._node: Attributes = {}

    def attributes(self, device: Identity) -> Attributes:
        return dict(self._node)

    async def config(self, device: Identity) -> ConfigJson | None:
        return None

    async def refresh(self, devices: Sequence[Identity]) -> bool:
        answer = await self._http.get("/opc/v2/host/")
        if answer.status != 200:
            raise CloudError(
                f"opc/v2/host answered {answer.status}: if this shape has an RDMA network, "
                "ask for its topology data to be enabled for the tenancy"
            )
        before, self._node = self._node, _place(answer.json())
        return before != self._node


def _place(host: Any) -> Attributes:
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


CLOUD = Cloud("OKE", detect, is_machine, rank=40, attributes=ATTRIBUTES)
