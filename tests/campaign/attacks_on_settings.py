"""Attacks of a malicious pod on its links in place: names, addresses, sizes, queues, programs, settings.

One function for each attack. The kernel may refuse it; then nothing has happened.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dranet.linux import addresses, codec, links, neighbours, routes, rules
from dranet.linux.codec import NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, Message
from dranet.linux.ethtool import Ethtool
from dranet.linux.netlink import NetlinkError
from dranet.linux.traffic import bpf, tc
from tests.campaign.attacker import Act, NothingThere, NotPossible, PodNetwork

_libc = ctypes.CDLL(None, use_errno=True)
MS_BIND = 0x1000


def rename(p: PodNetwork) -> None:
    nic = p.nic()
    p.route.batch([links.change(nic.index, up=False), links.change(nic.index, name=f"x{p.name()[4:]}")])


def swap_names(p: PodNetwork) -> None:
    nics = p.nics()
    if len(nics) < 2:
        raise NothingThere
    one, two = p.random.sample(nics, 2)
    p.route.batch(
        [
            links.change(one.index, up=False),
            links.change(two.index, up=False),
            links.change(one.index, name="swapping"),
            links.change(two.index, name=one.name),
            links.change(one.index, name=two.name),
        ]
    )


def name_of_host_link(p: PodNetwork) -> None:
    nic = p.nic()
    p.route.batch([links.change(nic.index, up=False), links.change(nic.index, name=p.random.choice(p.host_names))])


def altname(p: PodNetwork) -> None:
    p.route.request(links.add_altname(p.nic().index, p.name() + "-a-name-longer-than-fifteen"))


def altname_of_host_link(p: PodNetwork) -> None:
    p.route.request(links.add_altname(p.nic().index, p.random.choice(p.host_names)))


def remove_altname(p: PodNetwork) -> None:
    nic = p.nic()
    if not nic.altnames:
        raise NothingThere
    p.route.request(links.delete_altname(nic.index, p.random.choice(nic.altnames)))


def altname_of_temporary_name(p: PodNetwork) -> None:
    """The temporary name of links that the driver moves to the host."""
    nic = p.nic()
    p.route.request(links.add_altname(nic.index, f"dranet{p.random.choice((nic.index, 2, 3, 4, 5)):x}"))


def mac(p: PodNetwork) -> None:
    tail = ":".join(f"{p.random.randrange(256):02x}" for _ in range(5))
    p.route.request(links.change(p.nic().index, mac=f"02:{tail}"))


def mac_of_sibling(p: PodNetwork) -> None:
    nics = p.nics()
    if len(nics) < 2:
        raise NothingThere
    one, two = p.random.sample(nics, 2)
    p.route.request(links.change(one.index, mac=two.mac))


def flags(p: PodNetwork) -> None:
    mask = p.random.choice((links.IFF_PROMISC, links.IFF_ALLMULTI, links.IFF_NOARP, links.IFF_MULTICAST))
    nic = p.nic()
    p.route.request(links.change_flags(nic.index, mask, ~nic.flags & mask))


def offloads(p: PodNetwork) -> None:
    with Ethtool() as ethtool:
        nic = p.nic()
        known = ethtool.features(nic.index)
        free = [name for name, feature in known.items() if feature.changeable]
        chosen = p.random.sample(free, min(3, len(free)))
        ethtool.set_features(nic.index, {name: not known[name].active for name in chosen})


def _discipline(p: PodNetwork, kind: str, options: bytes = b"") -> None:
    payload = tc.TCMSG.pack(0, p.nic().index, 0, 0xFFFFFFFF, 0) + codec.text(1, kind) + options
    try:
        p.route.request(Message(36, NLM_F_CREATE | NLM_F_REPLACE, payload, f"put {kind} on a link"))
    except NetlinkError as error:
        if error.errno in (errno.ENOENT, errno.EOPNOTSUPP):
            raise NotPossible(str(error)) from error
        raise


def discipline_fifo(p: PodNetwork) -> None:
    _discipline(p, "pfifo", codec.u32(2, p.random.randrange(1, 50)))


def discipline_fq(p: PodNetwork) -> None:
    _discipline(p, p.random.choice(("fq", "fq_codel", "noqueue", "bfifo")))


def filters(p: PodNetwork) -> None:
    """clsact, and a filter that drops everything where the kernel has matchall."""
    nic = p.nic()
    head = tc.TCMSG.pack(0, nic.index, 0xFFFF0000, tc.CLSACT, 0)
    message = Message(36, NLM_F_CREATE | NLM_F_EXCL, head + codec.text(1, "clsact"), "put clsact on a link")
    drop = tc.TCMSG.pack(0, nic.index, 0, tc.INGRESS, (1 << 16) | socket.htons(3)) + codec.text(1, "matchall")
    p.route.batch([message, Message(44, NLM_F_CREATE | NLM_F_EXCL, drop, "put a filter on a link")])


_PASS = struct.pack("=BBhiBBhi", 0xB7, 0, 0, 2, 0x95, 0, 0, 0)
"""`return 2`: XDP lets every packet pass; for TCX it means that they are dropped."""
_XDP, _SCHED_CLS = 6, 3
_XDP_MODES = {"generic": 1 << 1, "native": 1 << 2, "as the driver can": 0}


def _program(kind: int, attach_type: int = 0) -> int:
    """A descriptor. A pod that is root only of its own user namespace may not load a program."""
    code, licence = ctypes.create_string_buffer(_PASS), ctypes.create_string_buffer(b"GPL")
    attribute = bytearray(128)
    struct.pack_into("=IIQQ", attribute, 0, kind, 2, ctypes.addressof(code), ctypes.addressof(licence))
    struct.pack_into("=I", attribute, 68, attach_type)
    return bpf.call(bpf.PROG_LOAD, attribute, "load a program")[0]


def xdp(p: PodNetwork) -> None:
    """The program stays on the link without the descriptor."""
    program, flags = _program(_XDP), p.random.choice(sorted(_XDP_MODES.values()))
    try:
        attached = codec.nested(43, codec.u32(1, program) + codec.u32(3, flags))
        head = links.IFINFO.pack(0, 0, p.nic().index, 0, 0)
        p.route.request(Message(links.RTM_NEWLINK, 0, head + attached, "attach XDP"))
    finally:
        os.close(program)


def xdp_held_by_a_link(p: PodNetwork) -> None:
    """It stays while the pod holds the BPF link."""
    program = _program(_XDP, bpf.ATTACH_XDP)
    flags = p.random.choice(sorted(_XDP_MODES.values()))
    try:
        words = struct.pack("=IIII", program, p.nic().index, bpf.ATTACH_XDP, flags)
        p.held.append(bpf.call(bpf.LINK_CREATE, words, "attach XDP by a link")[0])
    finally:
        os.close(program)


def tcx(p: PodNetwork) -> None:
    """It runs before all tc filters and drops everything."""
    hook = bpf.ATTACH_TYPES[p.random.choice(("tcx/ingress", "tcx/egress"))]
    program = _program(_SCHED_CLS, hook)
    try:
        bpf.call(bpf.PROG_ATTACH, struct.pack("=III", p.nic().index, program, hook), "attach TCX")
    finally:
        os.close(program)


def sysctls(p: PodNetwork) -> None:
    family = p.random.choice(("ipv4", "ipv6"))
    folder = Path(f"/proc/sys/net/{family}/conf/{p.nic().name}")
    names = sorted(path.name for path in folder.iterdir() if path.stat().st_mode & 0o200)
    for name in p.random.sample(names, min(6, len(names))):
        try:
            (folder / name).write_text(p.random.choice(("0", "1", "2", "3")))
        except OSError:
            continue


def delete_addresses(p: PodNetwork) -> None:
    index = p.nic().index
    p.route.batch([addresses.delete(a) for a in addresses.list_addresses(p.route, index)])


def own_addresses(p: PodNetwork) -> None:
    index = p.nic().index
    cidrs = (f"10.{p.random.randrange(4)}.0.1/24", "fd00:bad::1/64")
    p.route.batch([addresses.add(addresses.from_cidr(cidr, index)) for cidr in cidrs])


def own_routes(p: PodNetwork) -> None:
    index = p.nic().index
    made = [routes.to(d, index=index, scope=routes.SCOPE_LINK) for d in ("0.0.0.0/0", "10.99.0.0/16")]
    p.route.batch([routes.add(route, replace=True) for route in made])


def own_rules(p: PodNetwork) -> None:
    p.route.request(rules.add(rules.Rule(family=socket.AF_INET, table=77, priority=p.random.randrange(1, 30000))))


def own_neighbours(p: PodNetwork) -> None:
    entry = neighbours.permanent(p.nic().index, "10.0.0.77", "02:00:00:00:00:77")
    p.route.request(neighbours.add(entry, replace=True))


_CHANGES: dict[str, Callable[[PodNetwork], dict[str, Any]]] = {
    "broadcast": lambda p: {"broadcast": "33:33:00:00:00:01"},
    "mtu": lambda p: {"mtu": p.random.choice((68, 1280, 9000, 65535))},
    "txqlen": lambda p: {"txqlen": p.random.randrange(1, 5000)},
    "group": lambda p: {"group": p.random.randrange(1, 1 << 31)},
    "alias": lambda p: {"alias": "\udcff\n" * 100},
    "down": lambda p: {"up": False},
    "up": lambda p: {"up": True},
    "gso_max_size": lambda p: {"gso_max_size": p.random.randrange(2000, 65000)},
    "gso_max_segs": lambda p: {"gso_max_segs": p.random.randrange(1, 60)},
    "gro_max_size": lambda p: {"gro_max_size": p.random.randrange(2000, 65000)},
    "link_mode": lambda p: {"link_mode": 1},
    "ipv4_sizes": lambda p: dict.fromkeys(("gso_ipv4_max_size", "gro_ipv4_max_size"), p.random.randrange(2000, 65000)),
}
"""Attacks that change one thing of a link, by the name in reports."""


def _change(name: str) -> Act:
    def act(p: PodNetwork) -> None:
        p.route.request(links.change(p.nic().index, **_CHANGES[name](p)))

    act.__name__ = name
    return act


SETTING_ATTACKS: tuple[Act, ...] = (
    *map(_change, _CHANGES),
    rename,
    swap_names,
    name_of_host_link,
    altname,
    altname_of_host_link,
    remove_altname,
    altname_of_temporary_name,
    mac,
    mac_of_sibling,
    flags,
    offloads,
    discipline_fifo,
    discipline_fq,
    filters,
    xdp,
    xdp_held_by_a_link,
    tcx,
    sysctls,
    delete_addresses,
    own_addresses,
    own_routes,
    own_rules,
    own_neighbours,
)
