"""What the node lives by, as the cluster knows it: its own addresses, and where its API server is.

Asked once, before the first look at the node: a card must not be offered, not even for a moment, when the node's own
address is on it. Without the API server nothing could be published anyway, so it is waited for; one that does not tell
(no right to read the Node, no such Node) is not: then default routes alone say what the uplinks are.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Mapping

from dranet.basics.backoff import Backoff
from dranet.inventory.uplinks import Lifelines, parsed_addresses
from dranet.kube.client import KubeClient
from dranet.kube.errors import ApiError, ConnectionLost
from dranet.kube.resources import NODES

log = logging.getLogger(__name__)


class NodeLifelines:
    """Tells the inventory what was learnt."""

    def __init__(self, client: KubeClient, node: str, api_host: str) -> None:
        self._client, self._node, self._api_host = client, node, api_host
        self.known = Lifelines()
        self.has_seen_node = False
        """Whether the driver has been allowed to read its node."""

    async def learn(self) -> None:
        """Ask until there is an answer."""
        backoff = Backoff(self._client.rng)
        while True:
            try:
                addresses = await self._node_addresses()
                break
            except ConnectionLost as error:
                log.debug("asking for the node's addresses: %s", error)
                await asyncio.sleep(backoff.next())
        self.known = Lifelines(node_addresses=addresses, api_servers=await self._api_addresses())
        log.info("links are kept for the node itself that have or reach %s", self.known)

    async def node_labels(self) -> Mapping[str, str]:
        """What the cluster has written on the node."""
        node = await self._client.get(NODES, self._node)
        return (node.get("metadata") or {}).get("labels") or {}

    async def _node_addresses(self) -> tuple[str, ...]:
        try:
            node = await self._client.get(NODES, self._node)
        except ApiError as error:
            log.warning(
                "the node's own addresses cannot be read, so the link that has them may be offered to pods: %s", error
            )
            return ()
        self.has_seen_node = True
        told = (node.get("status") or {}).get("addresses") or ()
        return parsed_addresses(str(item.get("address")) for item in told if item.get("type") == "InternalIP")

    async def _api_addresses(self) -> tuple[str, ...]:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(self._api_host, None, type=socket.SOCK_STREAM)
        except OSError as error:
            log.warning(
                "the address of the API server %s cannot be found, so the link to it may be offered to pods: %s",
                self._api_host,
                error,
            )
            return ()
        return parsed_addresses(dict.fromkeys(str(address[0]) for *_, address in found))
