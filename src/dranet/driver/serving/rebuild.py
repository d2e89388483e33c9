"""Rebuilding plans when the store begins empty: from the claims, the runtime's pods and what the kernel shows.

A claim whose pod runs gets a plan from the card that is found inside; what the card was on the host is taken from what
we published about it (name, MTU, addresses), which is less than the store knew but enough to bring it home. A claim
whose pod does not run yet is prepared anew. Until all that is done nothing is published and no claim is served: what
stands published is the only witness of how the cards were, and an answer given too early would be wrong. A node that
has published nothing yet has nothing to rebuild and does not wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from dranet.basics.backoff import Backoff
from dranet.driver.claims.allotment import Allotted, allotted, config_for, consumer
from dranet.driver.claims.prepare import Preparer
from dranet.driver.log_fields import about
from dranet.driver.namespaces import PodNamespace
from dranet.driver.records.plan import ClaimPlan, DevicePlan
from dranet.driver.serving.api_server import ApiServer
from dranet.driver.serving.sandboxes import Listed, Sandbox
from dranet.driver.store import Store
from dranet.inventory import Netdev, NodeDevice, Place
from dranet.kernel.namespaces import NamespaceGone
from dranet.kube.errors import KubeError, Missing
from dranet.model import attributes
from dranet.model.device import Device
from dranet.model.errors import DranetError, NotFound
from dranet.model.names import ClaimRef
from dranet.model.pci import PciAddress

log = logging.getLogger(__name__)

Object = Mapping[str, Any]
Answer = TypeVar("Answer")


class Rebuilder:
    """Makes up for an empty store, once; where the API server is away it tries until it is back."""

    def __init__(self, store: Store, *, node: str, cluster: ApiServer, preparer: Preparer, delays: Backoff) -> None:
        self._store = store
        self._node = node
        self._cluster = cluster
        self._preparer = preparer
        self._delays = delays
        self._finished = asyncio.Event()

    async def finished(self) -> None:
        """Wait until the store holds what can be known: at once for one that always did, and on a new node."""
        if self._store.is_complete or await self._until_heard(self._is_new):
            await self._finish()
        await self._finished.wait()

    async def __call__(self, listed: Listed) -> None:
        """The runtime has told which pods run: find their claims."""
        if self._store.is_complete:
            return
        await self._until_heard(lambda: self._rebuild(listed))
        await self._finish()

    async def _finish(self) -> None:
        await asyncio.to_thread(self._store.completed)
        self._finished.set()

    async def _until_heard(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        while True:
            try:
                return await ask()
            except KubeError as error:
                log.warning("cannot find out what this node already does, trying again: %s", error)
                await asyncio.sleep(self._delays.next())

    async def _is_new(self) -> bool:
        """Whether this node has never done anything: a cluster's claims are too many to be read for nothing."""
        return self._store.set_aside is None and not await self._cluster.published(self._node)

    async def _rebuild(self, listed: Listed) -> None:
        if await self._is_new():
            return
        devices = {device.name: device for device in await self._cluster.published(self._node)}
        for claim in await self._cluster.claims_of_node(self._node):
            with about(claim=_ref(claim)):
                try:
                    await self._claim(claim, listed, devices)
                except Missing:
                    continue  # the claim has ended since
                except KubeError:
                    raise
                except (DranetError, OSError) as error:
                    log.error("cannot be rebuilt: %s", error)
        log.info("rebuilt %d plans from the cluster and the kernel", len(self._store.plans))

    async def _claim(self, claim: Object, listed: Listed, devices: Mapping[str, Device]) -> None:
        metadata, user = claim["metadata"], consumer(claim)
        if user is None or self._store.get(metadata["uid"]) is not None:
            return
        netns, inside = await asyncio.to_thread(self._search, claim, listed.get(user.uid, ()), devices)
        if inside is None:
            await self._preparer.prepare(_ref(claim))
            return
        plan = ClaimPlan(
            uid=metadata["uid"],
            namespace=metadata["namespace"],
            name=metadata["name"],
            pod=user,
            devices=inside,
            named=await self._preparer.named(user, metadata["name"]),
            netns=netns,
            boot=self._preparer.cards.host.boot,
        )
        await asyncio.to_thread(self._store.put, plan)

    def _search(
        self, claim: Object, sandboxes: Sequence[Sandbox], devices: Mapping[str, Device]
    ) -> tuple[str | None, tuple[DevicePlan, ...] | None]:
        """The one of the pod's sandboxes that has the claim's cards, with their plans."""
        for netns in dict.fromkeys(sandbox.netns for sandbox in sandboxes if sandbox.netns):
            if (inside := self._inside(claim, netns, devices)) is not None:
                return netns, inside
        return None, None

    def _inside(self, claim: Object, netns: str, devices: Mapping[str, Device]) -> tuple[DevicePlan, ...] | None:
        """Plans of a claim whose cards are all inside its pod; None where any is not."""
        try:
            with PodNamespace.open(netns) as pod:
                return tuple(self._device(pod, claim, item, devices.get(item.device)) for item in allotted(claim))
        except (NamespaceGone, NotFound):
            return None

    def _device(self, pod: PodNamespace, claim: Object, item: Allotted, published: Device | None) -> DevicePlan:
        if published is None:
            raise NotFound(f"{item.device} is not published")
        device = self._preparer.planner.adopt(pod, item, published, config_for(claim, item.request))
        return msgspec.structs.replace(device, snapshot=_snapshot(published, device))


def _ref(claim: Object) -> ClaimRef:
    metadata = claim["metadata"]
    return ClaimRef(metadata["namespace"], metadata["name"], metadata["uid"])


def _snapshot(published: Device, device: DevicePlan) -> dict[str, Any]:
    said = published.attributes
    netdev = Netdev(place=Place.NONE)
    if device.found is not None:
        netdev = Netdev(place=Place.ELSEWHERE, name=device.found.link.name, index=device.found.link.index)
    pci, rdma = said.get(attributes.PCI_ADDRESS), said.get(attributes.RDMA_DEVICE)
    address = PciAddress.find(str(pci)) if pci else None
    return NodeDevice(device=published, netdev=netdev, pci=address, rdma_device=str(rdma) if rdma else None).to_record()
