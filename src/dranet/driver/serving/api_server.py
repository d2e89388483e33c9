"""The API server as prepare sees it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from dranet.kube.client import KubeClient
from dranet.kube.errors import Forbidden, Missing
from dranet.kube.resources import PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from dranet.model.attributes import PCI_BUS_ID
from dranet.model.device import Device
from dranet.model.names import DRIVER_NAME

log = logging.getLogger(__name__)

Object = Mapping[str, Any]
_PCI_ADDRESSES = (PCI_BUS_ID, "pciBusID", "pciAddr")
"""The standard name, and those under which GPU drivers told it before there was one."""


class ApiServer:
    """Claims and pods by name."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._has_said_that_pods_are_hidden = False

    async def claim(self, namespace: str, name: str) -> Object:
        return await self._client.get(RESOURCE_CLAIMS, name, namespace)

    async def pod(self, namespace: str, name: str) -> Object | None:
        """None where there is none; raises Forbidden, which is said in the log once."""
        try:
            return await self._client.get(PODS, name, namespace)
        except Missing:
            return None
        except Forbidden as error:
            self._say_that_pods_are_hidden(error)
            raise

    def _say_that_pods_are_hidden(self, error: Forbidden) -> None:
        if not self._has_said_that_pods_are_hidden:
            log.warning("pods cannot be read, so RDMA devices go to all containers of a pod: grant `get` (%s)", error)
        self._has_said_that_pods_are_hidden = True

    async def claims_of_node(self, node: str) -> list[Object]:
        """Every claim that has a device of this node; for rebuilding what was lost."""
        found, _ = await self._client.list(RESOURCE_CLAIMS)
        return [claim for claim in found if _uses(claim, node)]

    async def claims_named(self, names: Iterable[tuple[str, str]]) -> list[Object]:
        """Claims by namespace and name; those that have ended are left out."""
        found = []
        for namespace, name in sorted(names):
            with contextlib.suppress(Missing):
                found.append(await self.claim(namespace, name))
        return found

    async def published(self, node: str) -> list[Device]:
        """The devices in this node's slices."""
        fields = f"spec.nodeName={node},spec.driver={DRIVER_NAME}"
        found, _ = await self._client.list(RESOURCE_SLICES, fields=fields)
        return [Device.from_api(raw) for item in found for raw in item["spec"].get("devices") or []]

    async def pci_addresses(self, node: str, devices: Collection[tuple[str, str, str]]) -> list[str]:
        """Where devices of other drivers (driver, pool, name) are on this node's PCI bus, if their slices say so."""
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
