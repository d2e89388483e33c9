"""Links that the node's network is built of. They stay on the host, although the kernel might move them.

Moving such a link breaks others: a pod network loses its bridge, a tunnel its NIC, a bond its member, virtual functions
their physical one. The operator may offer one explicitly (``--offer-interfaces``), except where the kernel would refuse
to move it: preparing it would take it down for nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase, translate
from functools import lru_cache

from dranet.linux.hardware import PciFunction
from dranet.linux.links import Link
from dranet.node.inventory.cloud.provider import CloudProvider, ParentProvider
from dranet.node.inventory.options import InventoryOptions

_ANY_KIND: frozenset[str] = frozenset()
_PAIRS = frozenset({"veth", "netkit"})

_OWNERS: tuple[tuple[str, str, frozenset[str]], ...] = (
    # Name pattern, owner, link kinds. Host ends of pod links have such short names that only the kind tells them apart.
    ("antrea-*", "Antrea", _ANY_KIND),
    ("azv*", "Azure CNI", _PAIRS),
    ("br-ex", "OVN-Kubernetes", _ANY_KIND),
    ("br-int", "OVN-Kubernetes", _ANY_KIND),
    ("cali*", "Calico", _PAIRS),
    ("*.cali", "Calico", _ANY_KIND),
    ("*.calico", "Calico", _ANY_KIND),
    ("cbr0", "kubenet", _ANY_KIND),
    ("cilium_*", "Cilium", _ANY_KIND),
    ("lxc*", "Cilium", _PAIRS),
    ("cni*", "the pod network", _ANY_KIND),
    ("docker*", "Docker", _ANY_KIND),
    ("dummyvtep*", "the pod network", _ANY_KIND),
    ("eni*", "the AWS VPC CNI", _PAIRS),
    ("flannel*", "Flannel", _ANY_KIND),
    ("genev_sys_*", "Open vSwitch", _ANY_KIND),
    ("gke*", "GKE's pod network", _PAIRS),
    ("kube-*", "kube-proxy or kube-router", _ANY_KIND),
    ("lxdbr*", "LXD", _ANY_KIND),
    ("nodelocaldns*", "NodeLocal DNSCache", _ANY_KIND),
    ("ovn*", "OVN", _ANY_KIND),
    ("ovs-*", "Open vSwitch", _ANY_KIND),
    ("podman*", "Podman", _ANY_KIND),
    ("tunl0", "the kernel's IP-in-IP tunnels (Calico, kube-router)", _ANY_KIND),
    ("virbr*", "libvirt", _ANY_KIND),
    ("vxlan_sys_*", "Open vSwitch", _ANY_KIND),
    ("weave*", "Weave Net", _ANY_KIND),
)
_TUNNELS = frozenset(
    {
        *("amt", "bareudp", "geneve", "gtp", "l2tpeth", "tun", "vxlan", "wireguard", "xfrm"),
        *("erspan", "gre", "gretap", "ip6erspan", "ip6gre", "ip6gretap"),
        *("ip6tnl", "ipip", "sit", "vti", "vti6"),
    }
)
_PSEUDO = frozenset({"ifb", "nlmon", "vsockmon", "teql"})
"""Links that are tools of the kernel, to shape or record traffic: no packet of a pod leaves the node through them."""
_SWITCHES = {
    "bridge": "bridge",
    "bond": "bond",
    "team": "team",
    "vrf": "VRF",
    "hsr": "HSR ring",
    "openvswitch": "port of Open vSwitch",
}


AGGREGATE_KINDS = frozenset({"bond", "team"})
"""Several NICs as one. It cannot move, but pods can have child interfaces on it."""


def immovable_reason(link: Link) -> str | None:
    """Why the kernel would refuse to move a link. Kernels before 6.15 do not report it: there the kind decides."""
    if link.immovable or link.kind in _SWITCHES:
        what = f" is a {_SWITCHES[link.kind]} and" if link.kind in _SWITCHES else ""
        return f"it{what} cannot leave the host network namespace"
    return None


def infrastructure_links(links: Sequence[Link]) -> dict[int, str]:
    """By index, why each link that belongs to the node's network stays on the host."""
    by_index = {link.index: link for link in links}
    on_top = _stacked(links)
    reasons = {link.index: _reason(link, by_index, on_top.get(link.index, [])) for link in links}
    return {index: reason for index, reason in reasons.items() if reason is not None}


def vfs_in_use_reason(function: PciFunction) -> str | None:
    """Why a physical function with virtual functions stays: they go down with its link."""
    if not function.sriov_num_vfs:
        return None
    count = f"{function.sriov_num_vfs} virtual function{'s' * (function.sriov_num_vfs != 1)}"
    return f"it has {count} (sriov_numvfs), whose links depend on it"


def parse_patterns(text: str) -> tuple[str, ...]:
    """A flag's comma-separated list of names, with * and ? as in a shell."""
    return tuple(filter(None, (part.strip() for part in text.split(","))))


def matches_any(names: Sequence[str], wanted: Iterable[str]) -> bool:
    """Whether a pattern matches one of the names."""
    return any(fnmatchcase(name, pattern) for pattern in wanted for name in names)


_OWNED = re.compile("|".join(translate(pattern) for pattern, *_ in _OWNERS))
"""All patterns in one: most names match none, and trying each was a quarter of the time to scan many links."""


def _stacked(links: Iterable[Link]) -> dict[int, list[str]]:
    """By index, the names of the links stacked on each link, as far as they are in this namespace."""
    found: dict[int, list[str]] = {}
    for link in links:
        if link.lower_index:
            found.setdefault(link.lower_index, []).append(link.name)
    return found


@lru_cache(maxsize=4096)
def _owner(name: str, kind: str) -> str | None:
    """The owner of a link, by its name."""
    if not _OWNED.match(name):
        return None
    owners = (o for pattern, o, kinds in _OWNERS if fnmatchcase(name, pattern) and (not kinds or kind in kinds))
    return next(owners, None)


def _reason(link: Link, by_index: Mapping[int, Link], on_top: Sequence[str]) -> str | None:
    if owner := _owner(link.name, link.kind):
        return f"its name belongs to {owner}"
    if link.kind in _TUNNELS:
        return f"it is a tunnel of the node ({link.kind})"
    if link.kind in _PSEUDO:
        return f"it is a pseudo device of the kernel ({link.kind})"
    master = by_index.get(link.master)
    if master is not None and master.kind != "vrf":  # a link moves out of a VRF and back without affecting others
        what = _SWITCHES.get(master.kind, "link")
        return f"it is part of the {what} {master.name}"
    if on_top:
        shown = ", ".join(sorted(on_top)[:3]) + (", ..." if len(on_top) > 3 else "")
        return f"{shown} {'is' if len(on_top) == 1 else 'are'} stacked on it"
    if link.kind == "netkit":
        return "it is the host end of a pod's link (netkit)"
    return None


class LinkPolicy:
    """Decides which links stay on the host, for one scan."""

    def __init__(
        self,
        options: InventoryOptions,
        uplinks: Mapping[int, str],
        infrastructure: Mapping[int, str],
        cloud: CloudProvider | None,
    ) -> None:
        self._options, self._uplinks, self._infrastructure, self._cloud = options, uplinks, infrastructure, cloud

    def required_reason(self, link: Link, address: str | None) -> str | None:
        """Why the node needs a link."""
        if link.is_loopback:
            return "it is the loopback interface"
        if link.index in self._uplinks:
            return self._uplinks[link.index]
        reason = self._infrastructure.get(link.index)
        return self._immovable_reason(link) or self.unless_offered(reason, link.name, address)

    def unless_offered(self, reason: str | None, interface: str, address: str | None) -> str | None:
        """The reason, unless the operator offers the interface explicitly."""
        if reason is None or matches_any((interface, address or ""), self._options.offer_interfaces):
            return None
        return f"{reason}; use --offer-interfaces={interface} to offer it"

    def ipoib_reason(self, link: Link) -> str | None:
        if link.kind == "ipoib" and not self._options.move_ib_interfaces:
            return "IPoIB interfaces stay on the host (--move-ib-interfaces=false); its NIC is offered as RDMA-only"
        return None

    def _immovable_reason(self, link: Link) -> str | None:
        """Why a link cannot move, unless it is offered as the parent of child interfaces."""
        reason = immovable_reason(link)
        if reason is None or (isinstance(self._cloud, ParentProvider) and self._cloud.offers(link.name)):
            return None
        if link.kind not in AGGREGATE_KINDS:
            return reason
        # Only by its full name: a pattern such as `*` means NICs, and a claim for a whole bond is refused.
        offered = link.name in self._options.offer_interfaces
        return None if offered else f"{reason}; use --offer-interfaces={link.name} to offer it for child interfaces"
