"""What the driver learns about its node at the start: the targets of its uplinks, and its cloud and profile providers.

Uplink targets are the node's own addresses and those of the API server. They are read once, before the first scan: a
NIC with the node's own address must never be published, not even for a moment. Nothing could be published without the
API server, so the driver waits for it; if it refuses (no permission to read the Node, no such Node), default routes
alone decide which links are uplinks.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping

import msgspec

from dranet.core.backoff import Backoff
from dranet.core.errors import InvalidInput
from dranet.core.logs import get_logger
from dranet.kubernetes.api.client import KubeClient
from dranet.kubernetes.api.errors import ApiError, ConnectionLost
from dranet.kubernetes.api.resources import NODES
from dranet.linux.sysfs import Sysfs
from dranet.node.claims.profiles import Profiles
from dranet.node.inventory.cloud import CloudProvider, ProfileProvider, check_options, find_provider
from dranet.node.inventory.cloud.node_context import cloud_context
from dranet.node.inventory.cloud.webhook import connect
from dranet.node.inventory.uplinks import UplinkTargets, parsed_addresses
from dranet.node.server.options import Options

log = get_logger(__name__)


class NodeUplinks:
    """Reads the uplink targets from the cluster."""

    def __init__(self, client: KubeClient, node: str, api_host: str) -> None:
        self._client, self._node, self._api_host = client, node, api_host
        self.targets = UplinkTargets()
        self.has_read_node = False
        """Whether the driver was allowed to read its Node."""

    async def discover(self) -> None:
        """Retry until the API server answers."""
        backoff = Backoff(self._client.rng)
        while True:
            try:
                addresses = await self._node_addresses()
                break
            except ConnectionLost as error:
                log.debug("Could not read the Node; will retry", error=error)
                await asyncio.sleep(backoff.next())
        self.targets = UplinkTargets(node_addresses=addresses, api_servers=await self._api_addresses())
        log.info(
            "Discovered uplink targets",
            node_addresses=",".join(self.targets.node_addresses),
            api_servers=",".join(self.targets.api_servers),
        )

    async def node_labels(self) -> Mapping[str, str]:
        node = await self._client.get(NODES, self._node)
        return (node.get("metadata") or {}).get("labels") or {}

    async def _node_addresses(self) -> tuple[str, ...]:
        try:
            node = await self._client.get(NODES, self._node)
        except ApiError as error:
            log.warning("Cannot read the Node's addresses; the link that has them may be published", error=error)
            return ()
        self.has_read_node = True
        addresses = (node.get("status") or {}).get("addresses") or ()
        return parsed_addresses(str(item.get("address")) for item in addresses if item.get("type") == "InternalIP")

    async def _api_addresses(self) -> tuple[str, ...]:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(self._api_host, None, type=socket.SOCK_STREAM)
        except OSError as error:
            log.warning(
                "Cannot resolve the API server's name; the link to it may be published",
                host=self._api_host,
                error=error,
            )
            return ()
        return parsed_addresses(dict.fromkeys(str(address[0]) for *_, address in found))


class Providers(msgspec.Struct, frozen=True):
    """The providers that were found, with the problems on the way."""

    cloud: CloudProvider | None
    profiles: Profiles
    problems: tuple[str, ...] = ()


async def find_providers(
    settings: Options,
    sysfs: Sysfs,
    labels: Callable[[], Awaitable[Mapping[str, str]]],
    lent: Callable[[], Collection[str]],
) -> Providers:
    """Detect the cloud, connect the webhook. Without the cloud its attributes are missing; a profile webhook is
    required."""
    options, hint = settings.cloud_provider_options, settings.cloud_provider_hint
    try:
        check_options(options, hint)
    except InvalidInput as error:
        raise InvalidInput(f"--cloud-provider-options: {error}") from error
    context = cloud_context(sysfs, settings.webhook_url, node_labels=labels, lent=lent, options=options)
    found = await find_provider(context, hint)
    for problem in found.problems:
        log.warning("Cloud provider failed; its attributes may be missing", error=problem)
    if found.provider is not None:
        log.info("Detected cloud provider", provider=found.provider.name)
    profiles = await _profile_provider(settings, found.provider)
    return Providers(found.provider, Profiles(found.provider, profiles), found.problems)


async def _profile_provider(settings: Options, cloud: CloudProvider | None) -> ProfileProvider | None:
    if settings.profile_provider == "none":
        return None
    if settings.profile_provider == "cloud":
        return cloud if isinstance(cloud, ProfileProvider) else None
    webhook = await connect(settings.webhook_url)
    if not webhook.profiles:
        raise InvalidInput(f"--profile-provider=webhook: {settings.webhook_url} does not offer profiles")
    return webhook
