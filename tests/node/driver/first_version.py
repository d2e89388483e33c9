"""The rows of a store as the first version's driver reads them: frozen, and never to be changed.

That driver decodes into its kernel room's records, so every field of a link is required, and ignores what it does not
know. What a driver writes today must pass through here, or a downgrade loses NICs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

Attributes = tuple[tuple[int, bytes], ...]


class Kernel(msgspec.Struct, frozen=True, kw_only=True):
    pass


class XdpProgram(msgspec.Struct, frozen=True):
    mode: str
    id: int


class LinkCounters(msgspec.Struct, frozen=True):
    rx_packets: int


class Link(Kernel, frozen=True):
    index: int
    name: str
    kind: str
    flags: int
    mtu: int
    mac: str
    permanent_mac: str
    alias: str
    operstate: str
    encapsulation: str
    master: int
    parent_index: int | None
    parent_netnsid: int | None
    parent_device: str
    parent_bus: str
    gso_max_size: int | None
    gro_max_size: int | None
    gso_ipv4_max_size: int | None
    gro_ipv4_max_size: int | None
    num_vf: int | None
    altnames: tuple[str, ...]
    promiscuity: int
    txqlen: int
    group: int
    xdp_programs: tuple[XdpProgram, ...]
    info: bytes
    counters: LinkCounters | None
    ipv4_settings: tuple[int, ...] = ()
    ipv6_settings: tuple[int, ...] = ()


class Address(Kernel, frozen=True):
    family: int
    index: int
    local: str
    prefix: int
    peer: str | None = None
    broadcast: str | None = None
    scope: int = 0
    flags: int = 0
    label: str = ""
    preferred: int = 0xFFFFFFFF
    valid: int = 0xFFFFFFFF
    metric: int = 0
    protocol: int = 0


class NextHop(Kernel, frozen=True):
    index: int
    gateway: str | None = None
    weight: int = 1
    flags: int = 0
    others: Attributes = ()


class Route(Kernel, frozen=True):
    family: int
    destination: str
    index: int | None = None
    gateway: str | None = None
    preferred_source: str | None = None
    source: str | None = None
    table: int = 254
    metric: int = 0
    scope: int = 0
    protocol: int = 3
    type: int = 1
    tos: int = 0
    flags: int = 0
    metrics: Attributes = ()
    next_hops: tuple[NextHop, ...] = ()
    expires: int = 0
    others: Attributes = ()


class Rule(Kernel, frozen=True):
    family: int
    priority: int | None = None
    table: int = 254
    source: str | None = None
    destination: str | None = None
    incoming: str = ""
    outgoing: str = ""
    mark: int = 0
    mark_mask: int | None = None
    action: int = 1
    flags: int = 0
    tos: int = 0
    protocol: int = 0
    suppress_prefix_length: int | None = None
    others: Attributes = ()


class Neighbour(Kernel, frozen=True):
    family: int
    index: int
    destination: str
    mac: str = ""
    state: int = 0x80
    flags: int = 0
    type: int = 0
    protocol: int = 0
    extended_flags: int = 0


class Consumer(Kernel, frozen=True):
    uid: str
    name: str
    namespace: str


class CharDevice(Kernel, frozen=True):
    path: str
    major: int
    minor: int


class RdmaPart(Kernel, frozen=True):
    device: str
    char_devices: tuple[CharDevice, ...] = ()


class HostSide(Kernel, frozen=True):
    link: Link
    pci: str | None = None
    addresses: tuple[Address, ...] = ()
    routes: tuple[Route, ...] = ()
    rules: tuple[Rule, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    features: Mapping[str, bool] = {}
    private_flags: Mapping[str, bool] = {}


class VrfPart(Kernel, frozen=True):
    name: str
    table: int


class PodSide(Kernel, frozen=True):
    name: str
    mtu: int | None = None
    mac: str | None = None
    sizes: Mapping[str, int] = {}
    sysctls: Mapping[str, str] = {}
    addresses: tuple[Address, ...] = ()
    routes: tuple[Route, ...] = ()
    rules: tuple[Rule, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    features: Mapping[str, bool] = {}
    private_flags: Mapping[str, bool] = {}
    detach_bpf: bool = False
    vrf: VrfPart | None = None
    dhcp: bool = False


class DevicePlan(Kernel, frozen=True):
    device: str
    pool: str
    request: str
    share_id: str | None = None
    host: HostSide | None = None
    pod: PodSide | None = None
    rdma: RdmaPart | None = None
    profile: str | None = None
    profile_config: Mapping[str, Any] = {}
    lease: Mapping[str, Any] = {}
    snapshot: Mapping[str, Any] = {}


class ClaimPlan(Kernel, frozen=True):
    uid: str
    namespace: str
    name: str
    pod: Consumer
    devices: tuple[DevicePlan, ...] = ()
    named: bool | None = None
    netns: str | None = None
    boot: str = ""
    provisional: bool = False


def decode(raw: bytes) -> ClaimPlan:
    return msgspec.json.decode(raw, type=ClaimPlan)
