"""What the node's network is built of: links that nobody should give away, though the kernel might let them.

Moving such a link breaks others: a pod network loses its bridge, a tunnel its card, a bond its member, virtual
functions their physical one. The operator may name one all the same (``--offer-interfaces``), except where the kernel
would refuse to move it: preparing it would take it down for nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase, translate
from functools import lru_cache

from dranet.kernel.hardware import PciFunction
from dranet.kernel.links import Link

ANYTHING: frozenset[str] = frozenset()
PAIRS = frozenset({"veth", "netkit"})

OWNERS: tuple[tuple[str, str, frozenset[str]], ...] = (
    # name pattern, owner, kinds it is meant for (the names of hosts' ends of pods are too short to be told otherwise)
    ("antrea-*", "Antrea", ANYTHING),
    ("azv*", "Azure CNI", PAIRS),
    ("br-ex", "OVN-Kubernetes", ANYTHING),
    ("br-int", "OVN-Kubernetes", ANYTHING),
    ("cali*", "Calico", PAIRS),
    ("*.cali", "Calico", ANYTHING),
    ("*.calico", "Calico", ANYTHING),
    ("cbr0", "kubenet", ANYTHING),
    ("cilium_*", "Cilium", ANYTHING),
    ("lxc*", "Cilium", PAIRS),
    ("cni*", "the pod network", ANYTHING),
    ("docker*", "Docker", ANYTHING),
    ("dummyvtep*", "the pod network", ANYTHING),
    ("eni*", "the AWS VPC CNI", PAIRS),
    ("flannel*", "Flannel", ANYTHING),
    ("genev_sys_*", "Open vSwitch", ANYTHING),
    ("gke*", "GKE's pod network", PAIRS),
    ("kube-*", "kube-proxy or kube-router", ANYTHING),
    ("lxdbr*", "LXD", ANYTHING),
    ("nodelocaldns*", "NodeLocal DNSCache", ANYTHING),
    ("ovn*", "OVN", ANYTHING),
    ("ovs-*", "Open vSwitch", ANYTHING),
    ("podman*", "Podman", ANYTHING),
    ("tunl0", "the kernel's IP-in-IP tunnels (Calico, kube-router)", ANYTHING),
    ("virbr*", "libvirt", ANYTHING),
    ("vxlan_sys_*", "Open vSwitch", ANYTHING),
    ("weave*", "Weave Net", ANYTHING),
)
TUNNELS = frozenset(
    {
        *("amt", "bareudp", "geneve", "gtp", "l2tpeth", "tun", "vxlan", "wireguard", "xfrm"),
        *("erspan", "gre", "gretap", "ip6erspan", "ip6gre", "ip6gretap"),
        *("ip6tnl", "ipip", "sit", "vti", "vti6"),
    }
)
SWITCHES = {
    "bridge": "bridge",
    "bond": "bond",
    "team": "team",
    "vrf": "VRF",
    "hsr": "HSR ring",
    "openvswitch": "port of Open vSwitch",
}


AGGREGATES = frozenset({"bond", "team"})
"""Several cards as one: it stays on the node, and yet pods can have it, by children on top of it."""


def immovable(link: Link) -> str | None:
    """Why the kernel would refuse to move a link; kernels before 6.15 do not tell, so there the kinds speak."""
    if link.immovable or link.kind in SWITCHES:
        what = f" is a {SWITCHES[link.kind]} and" if link.kind in SWITCHES else ""
        return f"it{what} cannot leave the node's network namespace"
    return None


def infrastructure(links: Sequence[Link]) -> dict[int, str]:
    """Index of every link that others stand on or that is somebody's, with the reason in words."""
    by_index = {link.index: link for link in links}
    on_top = _on_top(links)
    reasons = {link.index: _reason(link, by_index, on_top.get(link.index, [])) for link in links}
    return {index: reason for index, reason in reasons.items() if reason is not None}


def live_functions(function: PciFunction) -> str | None:
    """Why a card with virtual functions stays: they live by its link, and taking that down takes them all down."""
    if not function.sriov_num_vfs:
        return None
    count = f"{function.sriov_num_vfs} virtual function{'s' * (function.sriov_num_vfs != 1)}"
    return f"it has {count} (sriov_numvfs), which would go down with it"


def patterns(text: str) -> tuple[str, ...]:
    """A flag's list of names, with commas; * and ? as in a shell."""
    return tuple(filter(None, (part.strip() for part in text.split(","))))


def is_named(names: Sequence[str], wanted: Iterable[str]) -> bool:
    """Whether a pattern of the operator's fits one of the names."""
    return any(fnmatchcase(name, pattern) for pattern in wanted for name in names)


_OWNED = re.compile("|".join(translate(pattern) for pattern, *_ in OWNERS))
"""All patterns in one: most names fit none, and trying them one by one was a quarter of a look at many links."""


def _on_top(links: Iterable[Link]) -> dict[int, list[str]]:
    """The names of the links that stand on each link, in this namespace; those that went on into pods are not seen."""
    found: dict[int, list[str]] = {}
    for link in links:
        if link.lower_index:
            found.setdefault(link.lower_index, []).append(link.name)
    return found


@lru_cache(maxsize=4096)
def _owner(name: str, kind: str) -> str | None:
    """Whose a link is, by its name."""
    if not _OWNED.match(name):
        return None
    owners = (o for pattern, o, kinds in OWNERS if fnmatchcase(name, pattern) and (not kinds or kind in kinds))
    return next(owners, None)


def _reason(link: Link, by_index: Mapping[int, Link], on_top: Sequence[str]) -> str | None:
    if owner := _owner(link.name, link.kind):
        return f"it belongs to {owner}, by its name"
    if link.kind in TUNNELS:
        return f"it is a tunnel of the node ({link.kind})"
    master = by_index.get(link.master)
    if master is not None and master.kind != "vrf":  # out of a VRF and back into it a card goes alone
        what = SWITCHES.get(master.kind, "link")
        return f"it is part of the {what} {master.name}"
    if on_top:
        shown = ", ".join(sorted(on_top)[:3]) + (", ..." if len(on_top) > 3 else "")
        return f"{shown} {'stands' if len(on_top) == 1 else 'stand'} on it"
    if link.kind == "netkit":
        return "it is the node's end of a pod's network (netkit)"
    return None
