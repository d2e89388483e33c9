"""Rebuilding plans when the store begins empty: from the claims, the runtime's pods and what the kernel shows.

A claim whose pod runs gets a plan from the card that is found inside; what the card was on the host is taken from what
we published about it (name, MTU, addresses), which is less than the store knew but enough to bring it home. A claim
whose pod does not run yet is prepared anew. Until all that is done nothing is published and no claim is served: what
stands published is the only witness of how the cards were, and an answer given too early would be wrong. A node that
has published nothing yet has nothing to rebuild and does not wait.

Where the reference driver ran before, its database is a second witness: it withdraws cards while pods have them, and
its rights may not allow to list claims. It names both.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from dranet.basics.backoff import Backoff
from dranet.driver.claims.adoption import Published, Recorded
from dranet.driver.claims.allotment import consumers
from dranet.driver.claims.prepare import Preparer, ref_of
from dranet.driver.log_fields import about
from dranet.driver.reference import checkpoint
from dranet.driver.reference.bolt import BoltError
from dranet.driver.reference.checkpoint import Checkpoint
from dranet.driver.serving.api_server import ApiServer
from dranet.driver.serving.sandboxes import Listed
from dranet.driver.store import Store
from dranet.kube.errors import Forbidden, KubeError, Missing
from dranet.model.errors import DranetError

log = logging.getLogger(__name__)

Object = Mapping[str, Any]
Answer = TypeVar("Answer")


class Rebuilder:
    """Makes up for an empty store, once; where the API server is away it tries until it is back."""

    def __init__(
        self,
        store: Store,
        *,
        node: str,
        cluster: ApiServer,
        preparer: Preparer,
        delays: Backoff,
        reference: str = "",
    ) -> None:
        """`reference` is where the reference driver would have its database; it is read and never written."""
        self._store = store
        self._node = node
        self._cluster = cluster
        self._preparer = preparer
        self._delays = delays
        self._reference = reference
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
                log.warning("cannot find out which pods of this node have cards, trying again: %s", error)
                await asyncio.sleep(self._delays.next())

    async def _is_new(self) -> bool:
        """Whether this node has never done anything: a cluster's claims are too many to be read for nothing."""
        if self._store.set_aside is not None or (await self._checkpoint()).pods:
            return False
        return not await self._cluster.published(self._node)

    async def _checkpoint(self) -> Checkpoint:
        try:
            found = await asyncio.to_thread(checkpoint.read, self._reference) if self._reference else None
        except (BoltError, OSError) as error:
            log.warning("the reference driver's database cannot be used: %s", error)
            found = None
        return found or Checkpoint({})

    async def _rebuild(self, listed: Listed) -> None:
        if await self._is_new():
            return
        theirs = await self._checkpoint()
        devices = {**theirs.devices, **{device.name: device for device in await self._cluster.published(self._node)}}
        for claim in await self._claims(theirs):
            with about(claim=ref_of(claim)):
                try:
                    await self._claim(claim, listed, devices, theirs.configs)
                except Missing:
                    continue  # the claim has ended since
                except KubeError:
                    raise
                except (DranetError, OSError) as error:
                    log.error("cannot be rebuilt: %s", error)
        log.info("rebuilt %d plans from the cluster and the kernel", len(self._store.plans))

    async def _claims(self, theirs: Checkpoint) -> list[Object]:
        try:
            return await self._cluster.claims_of_node(self._node)
        except Forbidden as error:
            log.warning(
                "claims cannot be listed: grant `list`. %d are known from the reference driver's database; cards of "
                "other pods that run now will come home as the kernel leaves them (%s)",
                len(theirs.claims),
                error,
            )
            return await self._cluster.claims_named(theirs.claims)

    async def _claim(self, claim: Object, listed: Listed, devices: Published, recorded: Recorded) -> None:
        users = consumers(claim)
        if not users or self._store.get(claim["metadata"]["uid"]) is not None:
            return
        found = []
        for user in users:
            namespaces = dict.fromkeys(sandbox.netns for sandbox in listed.get(user.uid, ()) if sandbox.netns)
            found.append(await self._preparer.adopt(claim, user, namespaces, devices, recorded))
        if not all(found):
            await self._preparer.prepare(ref_of(claim))
