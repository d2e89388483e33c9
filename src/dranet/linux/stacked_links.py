"""Links that are stacked on a NIC from any network namespace: macvlan, ipvlan, bridge and bond ports, and the like.

The kernel leaves such a link in place when the NIC below it changes its namespace, and shows it only in the namespace
where it is. But a NIC has one receive handler, and a macvlan in mode passthru is refused while another exists. So the
kernel itself answers whether anything is stacked: it accepts a passthru macvlan only on a NIC that is free.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from dranet.core.errors import KernelError
from dranet.linux import links, virtual_links
from dranet.linux.links import Link
from dranet.linux.namespaces import Namespace, find_namespaces
from dranet.linux.netlink import NetlinkSocket

_STACKED_KINDS = ("macvlan", "macvtap", "ipvlan", "ipvtap", "vlan", "macsec")
_TAKEN = {
    errno.EINVAL: "a macvlan in another network namespace is stacked on it",
    errno.EBUSY: "a link in another network namespace (such as ipvlan or a bridge) is stacked on it",
}


def can_be_checked(link: Link) -> bool:
    """The kernel puts no macvlan on links of other types, and one on a child link lands on its parent."""
    return link.encapsulation == "ether" and link.kind not in ("macvlan", "ipvlan") and not link.master


def find_stacked(route: NetlinkSocket, indexes: Sequence[int]) -> dict[int, str]:
    """Those of the links that something is stacked on, each with a message.

    The links must be down: while a passthru macvlan exists, it gets the packets. A kernel without macvlan, and a link
    that is gone, prove nothing and are not reported.
    """
    if not indexes:
        return {}
    with Namespace.create() as aside, NetlinkSocket(namespace_fd=aside.fd) as inside:
        probes = [
            virtual_links.create_macvlan(f"probe{number}", index, "passthru", namespace_fd=aside.fd)
            for number, index in enumerate(indexes)
        ]
        answers = route.batch(probes)
        # Before the namespace is closed: the kernel would remove them in the background.
        inside.batch([links.delete(link.index) for link in links.list_links(inside) if link.kind == "macvlan"])
    failed = {index: error.errno for index, error in zip(indexes, answers, strict=True) if error is not None}
    return {index: _TAKEN[code] for index, code in failed.items() if code in _TAKEN}


def delete_beside(route: NetlinkSocket, indexes: Sequence[int]) -> None:
    """Delete what is stacked on links in their own namespace."""
    own = [link for link in links.list_links(route) if link.parent_index in indexes and link.parent_netnsid is None]
    route.batch([links.delete(link.index) for link in own if link.kind in _STACKED_KINDS])


def delete_stacked(below: Namespace, indexes: Sequence[int], proc_root: str = "/proc") -> list[str]:
    """Delete what is stacked on links of one namespace, as far as the namespaces of processes show it."""
    deleted = []
    for namespace in find_namespaces(proc_root):
        with namespace:
            if namespace.identity() != below.identity():
                deleted += _delete_in(namespace, below, indexes)
    return deleted


def _delete_in(namespace: Namespace, below: Namespace, indexes: Sequence[int]) -> list[str]:
    try:
        with NetlinkSocket(namespace_fd=namespace.fd) as route:
            number = links.ensure_nsid(route, below.fd)
            found = [
                link
                for link in links.list_links(route)
                if link.kind in _STACKED_KINDS and link.parent_index in indexes and link.parent_netnsid == number
            ]
            answers = route.batch([links.delete(link.index) for link in found])
    except (KernelError, OSError):
        return []  # a namespace that is being removed, and its links with it
    return [f"{link.name} ({link.kind})" for link, error in zip(found, answers, strict=True) if error is None]
