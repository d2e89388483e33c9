"""Reads claims, pods and slices from the API server."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from dranet.core.attributes import PCI_BUS_ID
from dranet.core.device import Device
from dranet.core.logs import get_logger
from dranet.core.names import DRIVER_NAME
from dranet.kubernetes.api.client import KubeClient
from dranet.kubernetes.api.errors import Forbidden, ObjectNotFound
from dranet.kubernetes.api.resources import PODS, RESOURCE_CLAIMS, RESOURCE_SLICES

log = get_logger(__name__)

Object = Mapping[str, Any]
_PCI_ADDRESSES = (PCI_BUS_ID, "pciBusID", "pciAddr")
"""The standard attribute, and those that GPU drivers used before it existed."""


class ApiServer:
    """The `ClusterReader` of a running driver."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._has_warned_about_pods = False

    async def claim(self, namespace: str, name: str) -> Object:
        return await self._client.get(RESOURCE_CLAIMS, name, namespace)

    async def pod(self, namespace: str, name: str) -> Object | None:
        """None where the pod does not exist; raises Forbidden, which is logged once."""
        try:
            return await self._client.get(PODS, name, namespace)
        except ObjectNotFound:
            return None
        except Forbidden as error:
            self._warn_once(error)
            raise

    def _warn_once(self, error: Forbidden) -> None:
        if not self._has_warned_about_pods:
            log.warning("Cannot read pods, grant `get`; RDMA devices go to all containers of a pod", error=error)
        self._has_warned_about_pods = True

    async def claims_of_node(self, node: str) -> list[Object]:
        """Every claim that has a device of this node; for recovery."""
        found, _ = await self._client.list(RESOURCE_CLAIMS)
        return [claim for claim in found if _uses(claim, node)]

    async def claims_named(self, names: Iterable[tuple[str, str]]) -> list[Object]:
        """Claims by namespace and name, without deleted ones."""
        found = []
        for namespace, name in sorted(names):
            with contextlib.suppress(ObjectNotFound):
                found.append(await self.claim(namespace, name))
        return found

    async def published(self, node: str) -> list[Device]:
        """The devices in this node's slices."""
        fields = f"spec.nodeName={node},spec.driver={DRIVER_NAME}"
        found, _ = await self._client.list(RESOURCE_SLICES, fields=fields)
        return [Device.from_api(raw) for item in found for raw in item["spec"].get("devices") or []]

    async def pci_addresses(self, node: str, devices: Collection[tuple[str, str, str]]) -> list[str]:
        """The PCI addresses of devices of other drivers (driver, pool, name) on this node, if published."""
        slices, _ = await self._client.list(RESOURCE_SLICES, fields=f"spec.nodeName={node}")
        shown = (
            Device.from_api(raw)
            for spec in (item["spec"] for item in slices)
            for raw in spec.get("devices") or []
            if (spec["driver"], spec["pool"]["name"], raw["name"]) in devices
        )
        found = (device.attributes.get(name) for device in shown for name in _PCI_ADDRESSES)
        return sorted({address.lower() for address in found if isinstance(address, str)})


def _uses(claim: Object, node: str) -> bool:
    allocation = claim.get("status", {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or []
    return any(r["driver"] == DRIVER_NAME and r["pool"] == node for r in results)
