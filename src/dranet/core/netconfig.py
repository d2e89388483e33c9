"""NetworkConfig: the opaque parameters of a claim or DeviceClass for driver dra.net.

The structs are the schema, with field names, types, checks and documentation in one place. The strict parser
(`netconfig_parse`) walks them, and `docs/reference/parameters.md` is generated from them. UNSET means that a field is
absent, which is not the same as false, zero or empty: only present fields override.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from dranet.core.names import interface_name_problem

_Check = Callable[[object], str | None]

_RESERVED_TABLES = (253, 254, 255)
SCOPE_UNIVERSE, SCOPE_LINK = 0, 253
_ARP_IGNORE_VALUES = (0, 1, 2, 3, 8)
_RATE = re.compile(r"[1-9][0-9]*[kMGT]?")
_MAC_BYTES = (6, 8, 20)
_MAC_FORMS = (
    re.compile(r"[0-9a-f]{2}(?::[0-9a-f]{2})+"),
    re.compile(r"[0-9a-f]{2}(?:-[0-9a-f]{2})+"),
    re.compile(r"[0-9a-f]{4}(?:\.[0-9a-f]{4})+"),
)


class Field(msgspec.Struct, frozen=True):
    """What the parser and the documentation need for a field besides its type."""

    meaning: str
    default: str = "unchanged"
    check: _Check | None = None
    required: bool = False
    administrator: bool = False
    """Reaches beyond the pod that has the device: only a DeviceClass, the cloud provider or a profile may set it."""


def parse_hardware_address(text: str) -> bytes | None:
    """The bytes of an EUI-48, EUI-64 or 20-byte IPoIB address in colon, dash or dot form, or None."""
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


def _one_of(*allowed: int | str) -> _Check:
    return lambda value: None if value in allowed else f"{value} is not one of {', '.join(map(str, allowed))}"


def _between(low: int, high: int | None = None) -> _Check:
    def check(value: object) -> str | None:
        assert isinstance(value, int)
        if value < low or (high is not None and value > high):
            return (
                f"{value} is out of range: must be {low} to {high}" if high is not None else f"must be at least {low}"
            )
        return None

    return check


def _rail_table(value: object) -> str | None:
    # Rails are added to it: leave room below the kernel's tables and the tables of VRFs.
    return _between(1, 252)(value) if isinstance(value, int) and value < 256 else _between(2000, 2**31)(value)


def _rail_gateway(value: object) -> str | None:
    if value in (FIRST, HOST, NO) or _ip(value) is None:
        return None
    return f"{value!r} is not first, host, none or an IP address"


def _vrf_table(value: object) -> str | None:
    if value in _RESERVED_TABLES:
        return f"table {value} is reserved by the kernel (253 default, 254 main, 255 local); choose another"
    return _between(1, 2**32 - 1)(value)


FIRST, HOST, NO, LINK, GATEWAY = "first", "host", "none", "link", "gateway"
"""Values of `railRouting`."""
_INT32_MAX = 2**31 - 1
_POSITIVE = _between(1, _INT32_MAX)
_TABLE = _between(0, 2**32 - 1)

PASSTHROUGH, IPVLAN, MACVLAN = "Passthrough", "IPVLAN", "Macvlan"
CHILD_TYPES = (IPVLAN, MACVLAN)
"""Types that leave the NIC on the node and create a child interface of it in the pod."""
STATIC, DHCP, UNNUMBERED, SLAAC = "Static", "DHCP", "Unnumbered", "SLAAC"
IPVLAN_MODES, IPVLAN_FLAGS = ("L2", "L3", "L3S"), ("Bridge", "Private", "VEPA")
MACVLAN_MODES = ("Bridge", "Private", "VEPA", "Passthru")
IPV6_MINIMUM_MTU = 1280
LIBRARIES = ("nccl", "ucx", "mpi", "gloo", "efa")
"""Allowed values of `environment`: communication libraries for which containers get environment variables."""

_Text = str | UnsetType
_Number = int | UnsetType
_Flag = bool | UnsetType


class _Block(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """Common settings of all structs: immutable, strict, camelCase in JSON, absent fields omitted."""


class Vrf(_Block, frozen=True):
    """A VRF device in the pod, which becomes the master of the interface."""

    name: Annotated[
        str, Field("name of the VRF device in the pod", default="required", check=_interface_name, required=True)
    ]
    table: Annotated[
        _Number, Field("routing table of the VRF", default="1000 + hash(name) mod 1000", check=_vrf_table)
    ] = UNSET


class Ipvlan(_Block, frozen=True):
    """Settings of an IPVLAN child. The kernel has one mode for all children of an interface."""

    mode: Annotated[_Text, Field("L2, L3 or L3S; the reference driver has L2", "L2", _one_of(*IPVLAN_MODES))] = UNSET
    flag: Annotated[
        _Text, Field("Bridge, Private or VEPA; the reference driver has Bridge", "Bridge", _one_of(*IPVLAN_FLAGS))
    ] = UNSET


class Macvlan(_Block, frozen=True):
    """Settings of a macvlan child (ours)."""

    mode: Annotated[_Text, Field("Bridge, Private, VEPA or Passthru", "Bridge", _one_of(*MACVLAN_MODES))] = UNSET


class Interface(_Block, frozen=True):
    """The link itself."""

    type: Annotated[
        _Text,
        Field(
            "Passthrough moves the interface into the pod; IPVLAN and Macvlan (ours) create a child of it there",
            "Passthrough",
            _one_of(PASSTHROUGH, *CHILD_TYPES),
        ),
    ] = UNSET
    addressing: Annotated[
        _Text,
        Field(
            "Static, DHCP, SLAAC, or (for children) Unnumbered: no address",
            "Static",
            _one_of(STATIC, DHCP, UNNUMBERED, SLAAC),
        ),
    ] = UNSET
    ipvlan: Annotated[Ipvlan | UnsetType, Field("with type IPVLAN only", "L2, Bridge")] = UNSET
    macvlan: Annotated[Macvlan | UnsetType, Field("with type Macvlan only (ours)", "Bridge")] = UNSET
    name: Annotated[_Text, Field("name inside the pod", default="the host's name", check=_interface_name)] = UNSET
    addresses: Annotated[
        list[str] | UnsetType,
        Field("addresses with prefix length", default="the host's global addresses", check=_cidr),
    ] = UNSET
    dhcp: Annotated[_Flag, Field("older form of addressing: DHCP", default="false")] = UNSET
    mtu: Annotated[_Number, Field("MTU; for a virtual function at most its PF's", check=_between(68, _INT32_MAX))] = (
        UNSET
    )
    hardware_addr: Annotated[_Text, Field("hardware address", check=_hardware_address)] = UNSET
    gso_max_size: Annotated[_Number, Field("largest GSO packet", check=_POSITIVE)] = UNSET
    gro_max_size: Annotated[_Number, Field("largest GRO packet", check=_POSITIVE)] = UNSET
    gso_ipv4_max_size: Annotated[_Number, Field("largest GSO packet for IPv4", check=_POSITIVE)] = msgspec.field(
        default=UNSET, name="gsoIPv4MaxSize"
    )
    gro_ipv4_max_size: Annotated[_Number, Field("largest GRO packet for IPv4", check=_POSITIVE)] = msgspec.field(
        default=UNSET, name="groIPv4MaxSize"
    )
    disable_ebpf_programs: Annotated[
        _Flag, Field("detach tc, TCX and XDP programs from the interface", default="false", administrator=True)
    ] = UNSET
    forwarding: Annotated[
        _Flag, Field("IPv4 and IPv6 forwarding on this interface", default="the pod namespace's own")
    ] = UNSET
    arp_ignore: Annotated[
        _Number, Field("arp_ignore sysctl", default="the pod namespace's own", check=_one_of(*_ARP_IGNORE_VALUES))
    ] = UNSET
    arp_announce: Annotated[
        _Number, Field("arp_announce sysctl", default="the pod namespace's own", check=_between(0, 2))
    ] = UNSET
    rp_filter: Annotated[
        _Number,
        Field(
            "rp_filter sysctl (ours); the kernel uses the larger of this and `all`, so 2 (loose) undoes a strict `all`",
            default="the pod namespace's own",
            check=_between(0, 2),
        ),
    ] = UNSET
    accept_ra: Annotated[
        _Number,
        Field("accept_ra sysctl: router advertisements", default="the pod namespace's own", check=_between(0, 2)),
    ] = msgspec.field(default=UNSET, name="acceptRA")
    bandwidth_ceiling: Annotated[
        _Text, Field("maximum send rate of a share, in bit/s, such as 25G (ours)", "the link speed", _rate)
    ] = UNSET
    vrf: Annotated[Vrf | UnsetType, Field("VRF that the interface joins in the pod", default="none")] = UNSET

    @property
    def is_child(self) -> bool:
        """Whether the NIC stays on the node and the pod gets a child interface of it."""
        return self.type in CHILD_TYPES

    @property
    def uses_dhcp(self) -> bool:
        """Whether the address comes from DHCP, in either form."""
        return self.addressing == DHCP or self.dhcp is True

    @property
    def supports_multiple_pods(self) -> bool:
        """Whether each of several pods of one claim can have such an interface of its own."""
        exclusive = self.macvlan is not UNSET and self.macvlan.mode == "Passthru"
        own_address = self.uses_dhcp or self.addressing in (UNNUMBERED, SLAAC)
        return self.is_child and own_address and not self.addresses and not self.hardware_addr and not exclusive


class Route(_Block, frozen=True):
    """A route through the interface."""

    destination: Annotated[
        str, Field("network with prefix length; 0.0.0.0/0 for the default", "required", _cidr, required=True)
    ]
    gateway: Annotated[_Text, Field("next hop; required unless scope is 253", "none", _ip)] = UNSET
    source: Annotated[_Text, Field("preferred source address", "none", _ip)] = UNSET
    scope: Annotated[_Number, Field("0 (universe) or 253 (link)", "0", _one_of(SCOPE_UNIVERSE, SCOPE_LINK))] = UNSET
    table: Annotated[_Number, Field("routing table; with a VRF its table is used", "main", _TABLE)] = UNSET


class Rule(_Block, frozen=True):
    """A policy routing rule in the pod."""

    priority: Annotated[_Number, Field("preference", "chosen by the kernel", _between(0, 32767))] = UNSET
    source: Annotated[_Text, Field("source network with prefix length", "any", _cidr)] = UNSET
    destination: Annotated[_Text, Field("destination network with prefix length", "any", _cidr)] = UNSET
    table: Annotated[_Number, Field("table to look up", "main", _TABLE)] = UNSET


class Neighbor(_Block, frozen=True):
    """A permanent neighbour entry."""

    destination: Annotated[str, Field("IP address", "required", _ip, required=True)]
    hardware_addr: Annotated[str, Field("its hardware address", "required", _hardware_address, required=True)]


class Ethtool(_Block, frozen=True):
    """Offload features and private flags by name."""

    features: Annotated[
        dict[str, bool] | UnsetType,
        Field("feature name (kernel name, or ethtool's short or long name) to on or off", default="unchanged"),
    ] = UNSET
    private_flags: Annotated[
        dict[str, bool] | UnsetType, Field("driver private flag to on or off", default="unchanged")
    ] = UNSET


class VirtualFunction(_Block, frozen=True):
    """Settings of a virtual function that the driver created (--sriov-vfs; ours), made on its physical function."""

    vlan: Annotated[_Number, Field("VLAN of its packets, invisible to the pod", "0: none", _between(0, 4094))] = UNSET
    vlan_priority: Annotated[_Number, Field("priority in that VLAN", "0", _between(0, 7))] = UNSET
    trust: Annotated[_Flag, Field("may change its MAC and receive packets for other addresses", "false")] = UNSET
    spoof_check: Annotated[_Flag, Field("drop packets with another source MAC", "the NIC driver's default")] = UNSET
    max_rate: Annotated[_Number, Field("maximum send rate in Mbit/s", "0: no limit", _between(0, _INT32_MAX))] = UNSET
    min_rate: Annotated[_Number, Field("guaranteed send rate in Mbit/s", "0: none", _between(0, _INT32_MAX))] = UNSET


class RailRouting(_Block, frozen=True):
    """A routing table for each NIC of a pod, so that each address sends through its own NIC and gateway (ours)."""

    tables: Annotated[
        _Number, Field("table of rail 0; a NIC of rail N uses this number plus N", "100", _rail_table)
    ] = UNSET
    priority: Annotated[_Number, Field("preference of the rule of each address", "32000", _between(1, 32765))] = UNSET
    gateway: Annotated[
        _Text,
        Field(
            "first (first address of the NIC's own network), host (the gateway of the node's routes through the NIC), "
            "none, or an address",
            "first",
            _rail_gateway,
        ),
    ] = UNSET
    same_rail: Annotated[
        _Text,
        Field("how the NIC's own network is reached: link (directly) or gateway", LINK, _one_of(LINK, GATEWAY)),
    ] = UNSET
    cross_rail: Annotated[
        _Text,
        Field("how the networks in `rails` of other rails are reached: gateway or none", GATEWAY, _one_of(GATEWAY, NO)),
    ] = UNSET


@dataclass(frozen=True)
class PerDevice:
    """Parameters for the devices that match. Their texts may contain words such as {rail}."""

    match: str
    """A CEL expression over `device`, as in selectors; empty for all devices."""
    parameters: Mapping[str, Any]
    """As written: words are replaced when the device is known."""


class NetworkConfig(_Block, frozen=True):
    """All parameters of a claim or DeviceClass for driver dra.net."""

    profile: Annotated[_Text, Field("name passed to the profile provider during prepare", "none")] = UNSET
    interface: Annotated[Interface | UnsetType, Field("the link itself", "nothing is changed")] = UNSET
    routes: Annotated[list[Route] | UnsetType, Field("routes through the interface", "the host's that apply")] = UNSET
    rules: Annotated[list[Rule] | UnsetType, Field("policy rules; not with a VRF", "the host's that apply")] = UNSET
    neighbors: Annotated[list[Neighbor] | UnsetType, Field("permanent neighbours", "the host's permanent ones")] = UNSET
    ethtool: Annotated[Ethtool | UnsetType, Field("offloads and private flags", "unchanged")] = UNSET
    rail_routing: Annotated[
        RailRouting | UnsetType, Field("a routing table for each NIC by its rail (ours)", "none")
    ] = UNSET
    rails: Annotated[
        dict[str, list[str]] | UnsetType,
        Field("networks of each rail, by the value of dra.net/rail; for railRouting (ours)", "none", _cidr),
    ] = UNSET
    per_device: Annotated[
        list[PerDevice] | UnsetType,
        Field("parameters by device: any of these fields, and `match`; see rail-routing.md (ours)", "none"),
    ] = UNSET
    vf: Annotated[
        VirtualFunction | UnsetType, Field("settings of a virtual function (ours)", "unchanged", administrator=True)
    ] = UNSET
    environment: Annotated[
        list[str] | UnsetType,
        Field(
            f"libraries that containers get variables for: {', '.join(LIBRARIES)}; see in-the-pod.md (ours)",
            "none",
            _one_of(*LIBRARIES),
        ),
    ] = UNSET

    @property
    def link(self) -> Interface:
        """The interface block, empty if absent."""
        return Interface() if self.interface is UNSET else self.interface


def vrf_table(vrf: Vrf) -> int:
    """The configured table of a VRF, else the default one of its name."""
    return default_table(vrf.name) if vrf.table is UNSET else vrf.table


def default_table(name: str) -> int:
    """A table between 1000 and 1999 from the name's FNV-1a hash, so that it is the same on every node."""
    digest = 0x811C9DC5
    for byte in name.encode():
        digest = ((digest ^ byte) * 0x01000193) & 0xFFFFFFFF
    return 1000 + digest % 1000
