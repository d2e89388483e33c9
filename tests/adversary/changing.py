"""What a hostile pod makes of its cards where they are: names, addresses, sizes, queues, programs, settings.

One function an act. The kernel may refuse; then nothing has happened.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
from pathlib import Path

from dranet.kernel import addresses, codec, links, neighbours, routes, rules
from dranet.kernel.codec import NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, Message
from dranet.kernel.ethtool import Ethtool
from dranet.kernel.netlink import NetlinkError
from dranet.kernel.traffic import bpf, tc
from tests.adversary.attacker import Act, NothingThere, NotPossible, Prey

_libc = ctypes.CDLL(None, use_errno=True)
MS_BIND = 0x1000


def rename(p: Prey) -> None:
    card = p.card()
    p.route.batch([links.change(card.index, up=False), links.change(card.index, name=f"x{p.name()[4:]}")])


def swap_names(p: Prey) -> None:
    cards = p.cards()
    if len(cards) < 2:
        raise NothingThere
    one, two = p.random.sample(cards, 2)
    p.route.batch(
        [
            links.change(one.index, up=False),
            links.change(two.index, up=False),
            links.change(one.index, name="swapping"),
            links.change(two.index, name=one.name),
            links.change(one.index, name=two.name),
        ]
    )


def name_of_host_link(p: Prey) -> None:
    card = p.card()
    p.route.batch([links.change(card.index, up=False), links.change(card.index, name=p.random.choice(p.host_names))])


def altname(p: Prey) -> None:
    p.route.request(links.add_altname(p.card().index, p.name() + "-a-name-longer-than-fifteen"))


def altname_of_host_link(p: Prey) -> None:
    p.route.request(links.add_altname(p.card().index, p.random.choice(p.host_names)))


def altname_taken_away(p: Prey) -> None:
    card = p.card()
    if not card.altnames:
        raise NothingThere
    p.route.request(links.delete_altname(card.index, p.random.choice(card.altnames)))


def altname_of_the_way_home(p: Prey) -> None:
    """The name under which the driver lets cards travel."""
    card = p.card()
    p.route.request(links.add_altname(card.index, f"dranet{p.random.choice((card.index, 2, 3, 4, 5)):x}"))


def mac(p: Prey) -> None:
    tail = ":".join(f"{p.random.randrange(256):02x}" for _ in range(5))
    p.route.request(links.change(p.card().index, mac=f"02:{tail}"))


def mac_of_sibling(p: Prey) -> None:
    cards = p.cards()
    if len(cards) < 2:
        raise NothingThere
    one, two = p.random.sample(cards, 2)
    p.route.request(links.change(one.index, mac=two.mac))


def broadcast(p: Prey) -> None:
    p.route.request(links.change(p.card().index, broadcast="33:33:00:00:00:01"))


def mtu(p: Prey) -> None:
    p.route.request(links.change(p.card().index, mtu=p.random.choice((68, 1280, 9000, 65535))))


def txqlen(p: Prey) -> None:
    p.route.request(links.change(p.card().index, txqlen=p.random.randrange(1, 5000)))


def group(p: Prey) -> None:
    p.route.request(links.change(p.card().index, group=p.random.randrange(1, 1 << 31)))


def alias(p: Prey) -> None:
    p.route.request(links.change(p.card().index, alias="\udcff\n" * 100))


def flags(p: Prey) -> None:
    mask = p.random.choice((links.IFF_PROMISC, links.IFF_ALLMULTI, links.IFF_NOARP, links.IFF_MULTICAST))
    card = p.card()
    p.route.request(links.change_flags(card.index, mask, ~card.flags & mask))


def down(p: Prey) -> None:
    p.route.request(links.change(p.card().index, up=False))


def up(p: Prey) -> None:
    p.route.request(links.change(p.card().index, up=True))


def gso_max_size(p: Prey) -> None:
    p.route.request(links.change(p.card().index, gso_max_size=p.random.randrange(2000, 65000)))


def gso_max_segs(p: Prey) -> None:
    p.route.request(links.change(p.card().index, gso_max_segs=p.random.randrange(1, 60)))


def gro_max_size(p: Prey) -> None:
    p.route.request(links.change(p.card().index, gro_max_size=p.random.randrange(2000, 65000)))


def ipv4_sizes(p: Prey) -> None:
    value = p.random.randrange(2000, 65000)
    p.route.request(links.change(p.card().index, gso_ipv4_max_size=value, gro_ipv4_max_size=value))


def link_mode(p: Prey) -> None:
    p.route.request(links.change(p.card().index, link_mode=1))


def offloads(p: Prey) -> None:
    with Ethtool() as ethtool:
        card = p.card()
        known = ethtool.features(card.index)
        free = [name for name, feature in known.items() if feature.changeable]
        chosen = p.random.sample(free, min(3, len(free)))
        ethtool.set_features(card.index, {name: not known[name].active for name in chosen})


def _discipline(p: Prey, kind: str, options: bytes = b"") -> None:
    payload = tc._TCMSG.pack(0, p.card().index, 0, 0xFFFFFFFF, 0) + codec.text(1, kind) + options
    try:
        p.route.request(Message(36, NLM_F_CREATE | NLM_F_REPLACE, payload, f"put {kind} on a card"))
    except NetlinkError as error:
        if error.errno in (errno.ENOENT, errno.EOPNOTSUPP):
            raise NotPossible(str(error)) from error
        raise


def discipline_fifo(p: Prey) -> None:
    _discipline(p, "pfifo", codec.u32(2, p.random.randrange(1, 50)))


def discipline_fq(p: Prey) -> None:
    _discipline(p, p.random.choice(("fq", "fq_codel", "noqueue", "bfifo")))


def filters(p: Prey) -> None:
    """A place for filters on the way in and out, and, where the kernel has one, a filter that drops everything."""
    card = p.card()
    head = tc._TCMSG.pack(0, card.index, 0xFFFF0000, tc.CLSACT, 0)
    message = Message(36, NLM_F_CREATE | NLM_F_EXCL, head + codec.text(1, "clsact"), "put clsact on a card")
    drop = tc._TCMSG.pack(0, card.index, 0, tc.INGRESS, (1 << 16) | socket.htons(3)) + codec.text(1, "matchall")
    p.route.batch([message, Message(44, NLM_F_CREATE | NLM_F_EXCL, drop, "put a filter on a card")])


_PASS = struct.pack("=BBhiBBhi", 0xB7, 0, 0, 2, 0x95, 0, 0, 0)
"""`return 2`: XDP lets every packet pass; for TCX it means that they are dropped."""
_XDP, _SCHED_CLS = 6, 3
_XDP_MODES = {"generic": 1 << 1, "native": 1 << 2, "as the driver can": 0}


def _program(kind: int, attach_type: int = 0) -> int:
    """A descriptor. A pod that is root of its own user namespace alone may not load any; then that is refused."""
    code, licence = ctypes.create_string_buffer(_PASS), ctypes.create_string_buffer(b"GPL")
    attribute = bytearray(128)
    struct.pack_into("=IIQQ", attribute, 0, kind, 2, ctypes.addressof(code), ctypes.addressof(licence))
    struct.pack_into("=I", attribute, 68, attach_type)
    return bpf.call(bpf.PROG_LOAD, attribute, "load a program")[0]


def xdp(p: Prey) -> None:
    """The program is the card's from now on; the descriptor is not needed."""
    program, flags = _program(_XDP), p.random.choice(sorted(_XDP_MODES.values()))
    try:
        attached = codec.nested(43, codec.u32(1, program) + codec.u32(3, flags))
        head = links._IFINFO.pack(0, 0, p.card().index, 0, 0)
        p.route.request(Message(links.RTM_NEWLINK, 0, head + attached, "attach XDP"))
    finally:
        os.close(program)


def xdp_held_by_a_link(p: Prey) -> None:
    """It stays on as long as somebody holds the BPF link: this pod does until it ends."""
    program = _program(_XDP, bpf.ATTACH_XDP)
    flags = p.random.choice(sorted(_XDP_MODES.values()))
    try:
        words = struct.pack("=IIII", program, p.card().index, bpf.ATTACH_XDP, flags)
        p.held.append(bpf.call(bpf.LINK_CREATE, words, "attach XDP by a link")[0])
    finally:
        os.close(program)


def tcx(p: Prey) -> None:
    """In front of all filters of tc; it drops everything."""
    hook = bpf.ATTACH_TYPES[p.random.choice(("tcx/ingress", "tcx/egress"))]
    program = _program(_SCHED_CLS, hook)
    try:
        bpf.call(bpf.PROG_ATTACH, struct.pack("=III", p.card().index, program, hook), "attach TCX")
    finally:
        os.close(program)


def sysctls(p: Prey) -> None:
    family = p.random.choice(("ipv4", "ipv6"))
    folder = Path(f"/proc/sys/net/{family}/conf/{p.card().name}")
    names = sorted(path.name for path in folder.iterdir() if path.stat().st_mode & 0o200)
    for name in p.random.sample(names, min(6, len(names))):
        try:
            (folder / name).write_text(p.random.choice(("0", "1", "2", "3")))
        except OSError:
            continue


def forget_addresses(p: Prey) -> None:
    index = p.card().index
    p.route.batch([addresses.delete(a) for a in addresses.list_addresses(p.route, index)])


def own_addresses(p: Prey) -> None:
    index = p.card().index
    cidrs = (f"10.{p.random.randrange(4)}.0.1/24", "fd00:bad::1/64")
    p.route.batch([addresses.add(addresses.from_cidr(cidr, index)) for cidr in cidrs])


def own_routes(p: Prey) -> None:
    index = p.card().index
    made = [routes.to(d, index=index, scope=routes.SCOPE_LINK) for d in ("0.0.0.0/0", "10.99.0.0/16")]
    p.route.batch([routes.add(route, replace=True) for route in made])


def own_rules(p: Prey) -> None:
    p.route.request(rules.add(rules.Rule(family=socket.AF_INET, table=77, priority=p.random.randrange(1, 30000))))


def own_neighbours(p: Prey) -> None:
    entry = neighbours.permanent(p.card().index, "10.0.0.77", "02:00:00:00:00:77")
    p.route.request(neighbours.add(entry, replace=True))


ACTS: tuple[Act, ...] = (
    rename,
    swap_names,
    name_of_host_link,
    altname,
    altname_of_host_link,
    altname_taken_away,
    altname_of_the_way_home,
    mac,
    mac_of_sibling,
    broadcast,
    mtu,
    txqlen,
    group,
    alias,
    flags,
    down,
    up,
    gso_max_size,
    gso_max_segs,
    gro_max_size,
    ipv4_sizes,
    link_mode,
    offloads,
    discipline_fifo,
    discipline_fq,
    filters,
    xdp,
    xdp_held_by_a_link,
    tcx,
    sysctls,
    forget_addresses,
    own_addresses,
    own_routes,
    own_rules,
    own_neighbours,
)
