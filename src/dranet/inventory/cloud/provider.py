"""What a cloud provider is: the one small interface that the providers share and others can implement.

A provider answers from what it already knows, so that a look at the node never waits for the network: ``refresh``
fetches, everything else only reads. The two calls that belong to preparing a claim (``config`` and the profile calls)
may wait, because preparing may.

To add a provider, write one module whose ``CLOUD`` is a :class:`Cloud`, and publish the module as an entry point in
the group ``dranet.cloud_providers``. The entry point's name is the hint people will write. Nothing else names a
provider: order, documentation and lint take what the declaration says.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from dranet.model.attributes import AttributeDoc
from dranet.model.device import AttributeValue

Attributes = Mapping[str, AttributeValue]
ConfigJson = dict[str, Any]
"""The user's NetworkConfig as JSON; the driver parses and merges it."""
ClaimJson = Mapping[str, Any]
"""A ResourceClaim as the API server tells it; at release only what was recorded: who it is and whose."""


class Identity(msgspec.Struct, frozen=True):
    """How a device may be recognised from outside the node. Empty text means that it has no such thing."""

    device: str
    interface: str = ""
    mac: str = ""
    pci: str = ""
    driver: str = ""
    """The kernel driver of its PCI function, such as ``efa``."""
    link_layer: str = ""
    """``ether``, ``infiniband`` and so on; of a device without an interface empty."""
    rdma: str = ""
    """Its RDMA device."""
    gateway6: str = ""
    """Gateway of an IPv6 default route in the main table through this interface."""


class Firmware(msgspec.Struct, frozen=True):
    """What the firmware says about this machine (``/sys/class/dmi/id``); empty where it does not."""

    vendor: str = ""
    product: str = ""
    asset_tag: str = ""


class HostRoute(msgspec.Struct, frozen=True):
    """A route of the node, as far as it matters to those who copy or avoid it."""

    destination: str
    gateway: str = ""
    interface: str = ""


class NodeNetwork(Protocol):
    """The node's own network, for providers that make something of it when a claim is prepared. Each call may raise
    a DranetError."""

    def addresses(self, interface: str) -> Sequence[str]:
        """Global addresses with prefix length, of both families; none where there is no such interface."""
        ...

    def routes(self) -> Sequence[HostRoute]:
        """Unicast routes of all tables but the local one."""
        ...

    def bond_mode(self, interface: str) -> str:
        """Such as ``802.3ad``; empty for what is no bond."""
        ...

    def arp_settings(self, interface: str) -> Mapping[str, int]:
        """``arpIgnore`` and ``arpAnnounce``."""
        ...

    def shares_rdma(self) -> bool:
        """Whether all namespaces see all RDMA devices."""
        ...


class NoNetwork:
    """Where nothing can be told of the node's network, as from a recording."""

    def addresses(self, interface: str) -> Sequence[str]:
        return ()

    def routes(self) -> Sequence[HostRoute]:
        return ()

    def bond_mode(self, interface: str) -> str:
        return ""

    def arp_settings(self, interface: str) -> Mapping[str, int]:
        return {}

    def shares_rdma(self) -> bool:
        return True


async def _no_labels() -> Mapping[str, str]:
    return {}


class CloudContext(msgspec.Struct, frozen=True):
    """What a provider needs to know to detect itself."""

    firmware: Firmware = Firmware()
    metadata_url: str = ""
    """Ask here instead of the provider's usual address."""
    webhook_url: str = ""
    rdma_devices: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The node's RDMA devices by name, each with its PCI address, from sysfs."""
    timeout: float = 2.0
    """Seconds that one request may take."""
    node_labels: Callable[[], Awaitable[Mapping[str, str]]] = _no_labels
    """The labels of the node in its cluster; asking may fail with a DranetError."""
    network: NodeNetwork = NoNetwork()
    lent: Callable[[], Collection[str]] = tuple
    """The addresses that stored claims have, with prefix length: whoever gives out addresses gives none twice."""
    options: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict)
    """``--cloud-provider-options`` by provider, whose name is in small letters, and option."""


class CloudProvider(Protocol):
    """Where a node runs, and what that place knows about its devices."""

    @property
    def name(self) -> str: ...

    def attributes(self, device: Identity) -> Attributes:
        """Attributes of this device, from what is known now."""
        ...

    async def config(self, device: Identity) -> ConfigJson | None:
        """Network configuration that this place wants for the device; None where it has no opinion."""
        ...

    async def refresh(self, devices: Sequence[Identity]) -> bool:
        """Fetch again what can change; True if something did. On failure what was known stays known."""
        ...


@runtime_checkable
class ProfileProvider(Protocol):
    """Turns the name of a profile in a claim into configuration, for one device and one claim."""

    async def get_profile(self, device: Identity, claim: ClaimJson, config: ConfigJson) -> ConfigJson: ...

    async def release_profile(self, device: Identity, claim: ClaimJson, config: ConfigJson) -> None: ...


@runtime_checkable
class ParentProvider(Protocol):
    """A cloud that wants children made of links that cannot be moved, such as bonds."""

    def offers(self, interface: str) -> bool:
        """Whether this link is to be offered although the kernel will not let it go."""
        ...


Detect = Callable[[CloudContext], Awaitable[CloudProvider | None]]


class Cloud(NamedTuple):
    """A cloud that can be asked, with all that the rest of the house must know of it before it answers."""

    name: str
    """The hint people write; also the name of the entry point."""
    detect: Detect
    is_machine: Callable[[CloudContext], bool] = lambda _: False
    """Whether the firmware names this cloud: then only it is asked, and patiently."""
    rank: int = 100
    """Who wins where several answer: the lowest, then the first by name."""
    attributes: tuple[AttributeDoc, ...] = ()
    """What it may publish, for the reference page and for lint."""
    options: Mapping[str, Callable[[str], object]] = {}
    """What ``--cloud-provider-options`` may say to it, each with its check, which raises ValueError in words."""
