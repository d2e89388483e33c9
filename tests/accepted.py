"""The differences between the state of a NIC before and after a pod that are not failures, each with its reason.

This is the only place for them: pictures leave out what is listed here, and the campaign accepts nothing else. Somebody
reviews each line that comes.
"""

from __future__ import annotations

RAW_ATTRIBUTES = {
    6: "the kernel's own qdisc differs for a link that has never been up; configured ones are compared by tc",
    7: "counters",
    14: "the I/O memory map, of hardware",
    23: "counters",
    26: "counters and timers; its settings are compared one by one",
    35: "counts changes of the carrier",
    47: "counts changes of the carrier",
    48: "counts changes of the carrier",
}
"""Attributes of RTM_NEWLINK, by number."""

SYSCTLS = {"stable_secret": "cannot be read before it is written, and the kernel draws it"}

SHOWN_BY_IP = {
    "ifindex": "the kernel chooses another one if this one is taken on the host",
    "valid_life_time": "runs out",
    "preferred_life_time": "runs out",
    "expires": "runs out",
    "used": "counts seconds",
    "updated": "counts seconds",
    "confirmed": "counts seconds",
    "probes": "counts",
    "refcnt": "counts",
    "nodad": "restored addresses work at once; the flag has no effect later",
    "tentative": "ends by itself",
    "dynamic": "follows from the lifetime",
    "flags": "of routes: `linkdown` and `dead` follow from the carrier",
}
"""Keys of the JSON of ip, wherever they are."""

SHOWN_BY_TC = {
    "stats": "counters",
    "direct_packets_stat": "a counter",
    "refcnt": "counts",
    "index": "the kernel numbers actions",
    "installed": "counts seconds",
    "used": "counts seconds",
    "expires": "runs out",
    "fh": "the kernel numbers the tables of u32 filters in the order of creation",
    "ht": "the kernel numbers the tables of u32 filters in the order of creation",
    "key_ht": "the kernel numbers the tables of u32 filters in the order of creation",
}
"""Keys of the JSON of tc, wherever they are."""

ROUTES = {
    "kernel": "the kernel adds them for addresses, some of them seconds later",
    "ra": "of router advertisements, which come again",
    "redirect": "of the network, and runs out",
}
"""Routes by their protocol."""

LINK_SCOPE_ADDRESSES = "the kernel adds them when the link comes up, after duplicate address detection"
JOINED_MULTICAST = "multicast addresses that sockets and protocols joined leave and return with them"
RESOLVED_NEIGHBOURS = "neighbours that the kernel learned are not configuration"

IPVLAN_MODE = frozenset({"kind", "flags", "neighbours"})
"""Of a child, if the pod created an ipvlan link: all ipvlan children of a parent have the mode of the last one, and L3
has no neighbours (docs/evidence/malicious-pods.md)."""

IPVLAN_ALLMULTI = frozenset({"allmulti"})
"""Of a parent whose ipvlan child had the flag: the kernel never decreases its counter.

See docs/evidence/malicious-pods.md."""

KNOWN_AFTER_LOST_STORE = ("name", "mtu", "address", "addresses")
"""After a lost store only what was published can be restored (docs/architecture.md)."""
