"""NetworkConfig: what a user may ask of a card, the opaque parameters of a claim or class.

The structs are the schema: field names, types, checks and documentation stand together, the strict parser
(`netconfig_parse`) walks them, and `docs/reference/parameters.md` is generated from them. UNSET means "not said", which
is not the same as false, zero or empty: only said things override.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from dranet.model.names import interface_name_problem

Check = Callable[[object], str | None]

RESERVED_TABLES = (253, 254, 255)
SCOPE_UNIVERSE, SCOPE_LINK = 0, 253
ARP_IGNORE_VALUES = (0, 1, 2, 3, 8)
_RATE = re.compile(r"[1-9][0-9]*[kMGT]?")
_MAC_BYTES = (6, 8, 20)
_MAC_FORMS = (
    re.compile(r"[0-9a-f]{2}(?::[0-9a-f]{2})+"),
    re.compile(r"[0-9a-f]{2}(?:-[0-9a-f]{2})+"),
    re.compile(r"[0-9a-f]{4}(?:\.[0-9a-f]{4})+"),
)


class Field(msgspec.Struct, frozen=True):
    """What the documentation and the parser need to know of one field beyond its type."""

    meaning: str
    default: str = "unchanged"
    check: Check | None = None
    required: bool = False


def parse_hardware_address(text: str) -> bytes | None:
    """The bytes of an EUI-48, EUI-64 or 20-byte IPoIB address in colon, dash or dot form; None where it is none."""
    lowered = text.lower()
    if not any(form.fullmatch(lowered) for form in _MAC_FORMS):
        return None
    raw = bytes.fromhex(re.sub(r"[:.\-]", "", lowered))
    return raw if len(raw) in _MAC_BYTES else None


def _hardware_address(value: object) -> str | None:
    if parse_hardware_address(str(value)) is None:
        return f"{value!r} is not a hardware address such as 00:11:22:33:44:55"
    return None


def _cidr(value: object) -> str | None:
    text = str(value)
    try:
        ipaddress.ip_interface(text)
    except ValueError:
        return f"{text!r} is not an address with a prefix length such as 10.0.0.1/24"
    address, slash, prefix = text.partition("/")
    if not slash or not prefix.isdigit():
        return f"{text!r} has no prefix length; for a single address write {address}/{128 if ':' in address else 32}"
    return None


def _ip(value: object) -> str | None:
    try:
        ipaddress.ip_address(str(value))
    except ValueError:
        return f"{value!r} is not an IP address"
    return None


def _rate(value: object) -> str | None:
    if _RATE.fullmatch(str(value)):
        return None
    return f"{value!r} is not a rate in bit/s such as 25G or 2500M"


def _interface_name(value: object) -> str | None:
    return interface_name_problem(str(value))


def _one_of(*allowed: int | str) -> Check:
    return lambda value: None if value in allowed else f"{value} is none of {', '.join(map(str, allowed))}"


def _between(low: int, high: int | None = None) -> Check:
    def check(value: object) -> str | None:
        assert isinstance(value, int)
        if value < low or (high is not None and value > high):
            return (
                f"{value} is out of range: must be {low} to {high}" if high is not None else f"must be at least {low}"
            )
        return None

    return check


def _vrf_table(value: object) -> str | None:
    if value in RESERVED_TABLES:
        return f"table {value} is one of the kernel's own (253 default, 254 main, 255 local); choose another"
    return _between(1, 2**32 - 1)(value)


_INT32_MAX = 2**31 - 1
_POSITIVE = _between(1, _INT32_MAX)
_TABLE = _between(0, 2**32 - 1)

PASSTHROUGH, IPVLAN, MACVLAN = "Passthrough", "IPVLAN", "Macvlan"
CHILD_TYPES = (IPVLAN, MACVLAN)
"""Types whose card stays on the node: the pod gets an interface made on top of it."""
STATIC, DHCP, UNNUMBERED, SLAAC = "Static", "DHCP", "Unnumbered", "SLAAC"
IPVLAN_MODES, IPVLAN_FLAGS = ("L2", "L3", "L3S"), ("Bridge", "Private", "VEPA")
MACVLAN_MODES = ("Bridge", "Private", "VEPA", "Passthru")
IPV6_MINIMUM_MTU = 1280
LIBRARIES = ("nccl", "ucx", "mpi", "gloo", "efa")
"""What `environment` may name: communication libraries whose settings containers can be given."""

Text = str | UnsetType
Number = int | UnsetType
Flag = bool | UnsetType


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """Common settings of every part: immutable, strict, camelCase on the wire, only said things written."""


class Vrf(_Part, frozen=True):
    """A VRF device in the pod that the card is enslaved to."""

    name: Annotated[
        str, Field("name of the VRF device in the pod", default="required", check=_interface_name, required=True)
    ]
    table: Annotated[
        Number, Field("routing table of the VRF", default="1000 + hash(name) mod 1000", check=_vrf_table)
    ] = UNSET


class Ipvlan(_Part, frozen=True):
    """How an IPVLAN child works. The kernel keeps one mode for all children of a card."""

    mode: Annotated[Text, Field("L2, L3 or L3S; the reference knows L2", "L2", _one_of(*IPVLAN_MODES))] = UNSET
    flag: Annotated[
        Text, Field("Bridge, Private or VEPA; the reference knows Bridge", "Bridge", _one_of(*IPVLAN_FLAGS))
    ] = UNSET


class Macvlan(_Part, frozen=True):
    """How a macvlan child works (ours)."""

    mode: Annotated[Text, Field("Bridge, Private, VEPA or Passthru", "Bridge", _one_of(*MACVLAN_MODES))] = UNSET


class Interface(_Part, frozen=True):
    """The link itself."""

    type: Annotated[
        Text,
        Field(
            "Passthrough moves the card into the pod; IPVLAN and Macvlan (ours) make a child of it there",
            "Passthrough",
            _one_of(PASSTHROUGH, *CHILD_TYPES),
        ),
    ] = UNSET
    addressing: Annotated[
        Text,
        Field(
            "Static, DHCP, SLAAC, or for children Unnumbered: no address at all",
            "Static",
            _one_of(STATIC, DHCP, UNNUMBERED, SLAAC),
        ),
    ] = UNSET
    ipvlan: Annotated[Ipvlan | UnsetType, Field("with type IPVLAN only", "L2, Bridge")] = UNSET
    macvlan: Annotated[Macvlan | UnsetType, Field("with type Macvlan only (ours)", "Bridge")] = UNSET
    name: Annotated[Text, Field("name inside the pod", default="the host's name", check=_interface_name)] = UNSET
    addresses: Annotated[
        list[str] | UnsetType,
        Field("addresses with prefix length", default="the host's global addresses", check=_cidr),
    ] = UNSET
    dhcp: Annotated[Flag, Field("older form of addressing: DHCP", default="false")] = UNSET
    mtu: Annotated[Number, Field("MTU; for a virtual function at most its PF's", check=_between(68, _INT32_MAX))] = (
        UNSET
    )
    hardware_addr: Annotated[Text, Field("hardware address", check=_hardware_address)] = UNSET
    gso_max_size: Annotated[Number, Field("largest GSO packet", check=_POSITIVE)] = UNSET
    gro_max_size: Annotated[Number, Field("largest GRO packet", check=_POSITIVE)] = UNSET
    gso_ipv4_max_size: Annotated[Number, Field("largest GSO packet for IPv4", check=_POSITIVE)] = msgspec.field(
        default=UNSET, name="gsoIPv4MaxSize"
    )
    gro_ipv4_max_size: Annotated[Number, Field("largest GRO packet for IPv4", check=_POSITIVE)] = msgspec.field(
        default=UNSET, name="groIPv4MaxSize"
    )
    disable_ebpf_programs: Annotated[Flag, Field("detach tc, TCX and XDP programs from the card", default="false")] = (
        UNSET
    )
    forwarding: Annotated[
        Flag, Field("IPv4 and IPv6 forwarding on this interface", default="the pod namespace's own")
    ] = UNSET
    arp_ignore: Annotated[
        Number, Field("arp_ignore sysctl", default="the pod namespace's own", check=_one_of(*ARP_IGNORE_VALUES))
    ] = UNSET
    arp_announce: Annotated[
        Number, Field("arp_announce sysctl", default="the pod namespace's own", check=_between(0, 2))
    ] = UNSET
    accept_ra: Annotated[
        Number,
        Field("accept_ra sysctl: router advertisements", default="the pod namespace's own", check=_between(0, 2)),
    ] = msgspec.field(default=UNSET, name="acceptRA")
    bandwidth_ceiling: Annotated[
        Text, Field("most that a share of a card may send, in bit/s, such as 25G (ours)", "the whole card", _rate)
    ] = UNSET
    vrf: Annotated[Vrf | UnsetType, Field("VRF the card joins in the pod", default="none")] = UNSET

    @property
    def is_child(self) -> bool:
        """Whether the card stays on the node and the pod gets an interface on top of it."""
        return self.type in CHILD_TYPES

    @property
    def uses_dhcp(self) -> bool:
        """Whether the address comes from DHCP, said in either form."""
        return self.addressing == DHCP or self.dhcp is True

    @property
    def is_for_each_pod(self) -> bool:
        """Whether each of several pods that name one claim can have such an interface of its own."""
        alone = self.macvlan is not UNSET and self.macvlan.mode == "Passthru"
        own_address = self.uses_dhcp or self.addressing in (UNNUMBERED, SLAAC)
        return self.is_child and own_address and not self.addresses and not self.hardware_addr and not alone


class Route(_Part, frozen=True):
    """A route through the card."""

    destination: Annotated[
        str, Field("network with prefix length; 0.0.0.0/0 for the default", "required", _cidr, required=True)
    ]
    gateway: Annotated[Text, Field("next hop; required unless scope is 253", "none", _ip)] = UNSET
    source: Annotated[Text, Field("preferred source address", "none", _ip)] = UNSET
    scope: Annotated[Number, Field("0 (universe) or 253 (link)", "0", _one_of(SCOPE_UNIVERSE, SCOPE_LINK))] = UNSET
    table: Annotated[Number, Field("routing table; with a VRF its table is used", "main", _TABLE)] = UNSET


class Rule(_Part, frozen=True):
    """A policy routing rule in the pod."""

    priority: Annotated[Number, Field("preference", "chosen by the kernel", _between(0, 32767))] = UNSET
    source: Annotated[Text, Field("source network with prefix length", "any", _cidr)] = UNSET
    destination: Annotated[Text, Field("destination network with prefix length", "any", _cidr)] = UNSET
    table: Annotated[Number, Field("table to look up", "main", _TABLE)] = UNSET


class Neighbor(_Part, frozen=True):
    """A permanent neighbour entry."""

    destination: Annotated[str, Field("IP address", "required", _ip, required=True)]
    hardware_addr: Annotated[str, Field("its hardware address", "required", _hardware_address, required=True)]


class Ethtool(_Part, frozen=True):
    """Offload features and private flags by name."""

    features: Annotated[
        dict[str, bool] | UnsetType,
        Field("feature name (kernel name, or ethtool's short or long name) to on or off", default="unchanged"),
    ] = UNSET
    private_flags: Annotated[
        dict[str, bool] | UnsetType, Field("driver private flag to on or off", default="unchanged")
    ] = UNSET


class VirtualFunction(_Part, frozen=True):
    """What the physical function decides over a virtual one that the driver made (--sriov-vfs; ours)."""

    vlan: Annotated[Number, Field("VLAN of its packets, unseen by the pod", "0: none", _between(0, 4094))] = UNSET
    vlan_priority: Annotated[Number, Field("priority in that VLAN", "0", _between(0, 7))] = UNSET
    trust: Annotated[Flag, Field("may change its MAC and receive what is not for it", "false")] = UNSET
    spoof_check: Annotated[Flag, Field("packets with another source MAC are dropped", "as the driver makes it")] = UNSET
    max_rate: Annotated[Number, Field("Mbit/s it may send at most", "0: no limit", _between(0, _INT32_MAX))] = UNSET
    min_rate: Annotated[Number, Field("Mbit/s kept for it", "0: none", _between(0, _INT32_MAX))] = UNSET


class NetworkConfig(_Part, frozen=True):
    """The whole of a claim's or class's parameters for driver dra.net."""

    profile: Annotated[Text, Field("name handed to the profile provider at prepare", "none")] = UNSET
    interface: Annotated[Interface | UnsetType, Field("the link itself", "nothing is changed")] = UNSET
    routes: Annotated[list[Route] | UnsetType, Field("routes through the card", "the host's, where they fit")] = UNSET
    rules: Annotated[list[Rule] | UnsetType, Field("policy rules; not with a VRF", "the host's, where they fit")] = (
        UNSET
    )
    neighbors: Annotated[list[Neighbor] | UnsetType, Field("permanent neighbours", "the host's permanent ones")] = UNSET
    ethtool: Annotated[Ethtool | UnsetType, Field("offloads and private flags", "unchanged")] = UNSET
    vf: Annotated[
        VirtualFunction | UnsetType, Field("what its physical function decides over a virtual one (ours)", "unchanged")
    ] = UNSET
    environment: Annotated[
        list[str] | UnsetType,
        Field(
            f"libraries that are told of the card in containers: {', '.join(LIBRARIES)}; see in-the-pod.md (ours)",
            "none",
            _one_of(*LIBRARIES),
        ),
    ] = UNSET

    @property
    def link(self) -> Interface:
        """The interface part, empty where nothing was said."""
        return Interface() if self.interface is UNSET else self.interface


def vrf_table(vrf: Vrf) -> int:
    """The VRF's table: as said, else that of its name."""
    return default_table(vrf.name) if vrf.table is UNSET else vrf.table


def default_table(name: str) -> int:
    """The routing table of a name: 1000 to 1999 from its FNV-1a hash, the same on every node."""
    digest = 0x811C9DC5
    for byte in name.encode():
        digest = ((digest ^ byte) * 0x01000193) & 0xFFFFFFFF
    return 1000 + digest % 1000
