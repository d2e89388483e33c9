"""The interface of a cloud provider, which other packages can implement.

A provider answers from what it already knows, so that a scan never waits for the network: ``refresh`` fetches,
everything else only reads. The calls for preparing a claim (``config`` and the profile calls) may wait.

To add a provider, write one module whose ``CLOUD`` is a :class:`Cloud`, and register the module as an entry point in
the group ``dranet.cloud_providers``. The entry point's name is the hint that operators write. Nothing else names a
provider: order, documentation and lint read the declaration.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from dranet.core.attributes import AttributeDoc
from dranet.core.device import AttributeValue

Attributes = Mapping[str, AttributeValue]
ConfigJson = dict[str, Any]
"""The user's NetworkConfig as JSON; the driver parses and merges it."""
ClaimJson = Mapping[str, Any]
"""A ResourceClaim from the API server; at release only the stored metadata: name, namespace, UID and owner."""


class Identity(msgspec.Struct, frozen=True):
    """By what a cloud may recognise a device. An empty text means that the device does not have it."""

    device: str
    interface: str = ""
    mac: str = ""
    pci: str = ""
    driver: str = ""
    """The kernel driver of its PCI function, such as ``efa``."""
    link_layer: str = ""
    """``ether``, ``infiniband`` and so on; empty for a device without an interface."""
    rdma: str = ""
    """Its RDMA device."""
    gateway6: str = ""
    """Gateway of an IPv6 default route in the main table through this interface."""


class Firmware(msgspec.Struct, frozen=True):
    """What the firmware says about this machine (``/sys/class/dmi/id``); empty where unknown."""

    vendor: str = ""
    product: str = ""
    asset_tag: str = ""


class HostRoute(msgspec.Struct, frozen=True):
    """A route of the node."""

    destination: str
    gateway: str = ""
    interface: str = ""


class NodeNetwork:
    """The node's network, for providers that need it when a claim is prepared. Each call may raise a DranetError.

    This one is that of a recorded node, whose network is unknown.
    """

    def addresses(self, interface: str) -> Sequence[str]:
        """Global addresses with prefix length, of both families; none if the interface does not exist."""
        return ()

    def routes(self) -> Sequence[HostRoute]:
        """Unicast routes of all tables but the local one."""
        return ()

    def bond_mode(self, interface: str) -> str:
        """Such as ``802.3ad``; empty for a link that is not a bond."""
        return ""

    def arp_settings(self, interface: str) -> Mapping[str, int]:
        """``arpIgnore`` and ``arpAnnounce``."""
        return {}

    def shares_rdma(self) -> bool:
        """Whether all namespaces see all RDMA devices."""
        return True


async def _no_labels() -> Mapping[str, str]:
    return {}


class CloudContext(msgspec.Struct, frozen=True):
    """What a provider needs for its detection."""

    firmware: Firmware = Firmware()
    metadata_url: str = ""
    """Replaces the provider's usual address."""
    webhook_url: str = ""
    rdma_devices: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The node's RDMA devices by name, each with its PCI address, from sysfs."""
    timeout: float = 2.0
    """Seconds that one request may take."""
    node_labels: Callable[[], Awaitable[Mapping[str, str]]] = _no_labels
    """Fetches the labels of the Node; may raise a DranetError."""
    network: NodeNetwork = NodeNetwork()
    lent: Callable[[], Collection[str]] = tuple
    """Returns the addresses of stored claims, with prefix length, so that a provider assigns none twice."""
    options: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict)
    """``--cloud-provider-options`` by provider (in lower case) and option."""


class CloudProvider(Protocol):
    """The cloud a node runs in, and what it knows about the node's devices. A provider may inherit the defaults."""

    @property
    def name(self) -> str: ...

    def attributes(self, device: Identity) -> Attributes:
        """Attributes of this device, from what is known already."""
        ...

    async def config(self, device: Identity) -> ConfigJson | None:
        """Network configuration that the cloud requires for the device; None if it requires none."""
        return None

    async def refresh(self, devices: Sequence[Identity]) -> bool:
        """Fetch what can change; True if something did. After a failure the known values stay."""
        return False


@runtime_checkable
class ProfileProvider(Protocol):
    """Turns the profile name in a claim into configuration, for one device and one claim."""

    async def get_profile(self, device: Identity, claim: ClaimJson, config: ConfigJson) -> ConfigJson: ...

    async def release_profile(self, device: Identity, claim: ClaimJson, config: ConfigJson) -> None: ...


@runtime_checkable
class ParentProvider(Protocol):
    """A cloud that needs child interfaces on links that cannot move, such as bonds."""

    def offers(self, interface: str) -> bool:
        """Whether to offer this link although the kernel refuses to move it."""
        ...


Detect = Callable[[CloudContext], Awaitable[CloudProvider | None]]


class Cloud(NamedTuple):
    """The declaration of a provider: all that is known about it before it is detected."""

    name: str
    """The hint that operators write; also the name of the entry point."""
    detect: Detect
    is_machine: Callable[[CloudContext], bool] = lambda _: False
    """Whether the firmware names this cloud: then only it is asked, with a longer timeout."""
    rank: int = 100
    """If several clouds answer, the lowest rank wins, then the first by name."""
    attributes: tuple[AttributeDoc, ...] = ()
    """The attributes it may publish, for the reference page and for lint."""
    options: Mapping[str, Callable[[str], object]] = {}
    """Its ``--cloud-provider-options``, each with a check that raises ValueError with a message."""
