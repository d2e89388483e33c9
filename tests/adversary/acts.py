"""What a hostile pod does to its cards: one function an act. The kernel may refuse; then nothing has happened.

Kinds of links that this kernel does not have raise NotPossible, and the campaign's table says so.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import signal
import socket
import struct
import time
from pathlib import Path

from dranet.kernel import addresses, codec, links, neighbours, routes, rules
from dranet.kernel.codec import NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, Message
from dranet.kernel.ethtool import Ethtool
from dranet.kernel.namespaces import CLONE_NEWNET, Namespace
from dranet.kernel.netlink import NetlinkError, NetlinkSocket
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


def _enslave(p: Prey, kind: str, *data: bytes) -> None:
    master = p.make(links.create(p.name(), kind, *data))
    card = p.card()
    p.route.request(links.change(card.index, up=False))
    p.route.batch([links.change(card.index, master=master.index), links.change(master.index, up=True)])


def bridge(p: Prey) -> None:
    _enslave(p, "bridge")


def bond(p: Prey) -> None:
    _enslave(p, "bond")


def vrf(p: Prey) -> None:
    _enslave(p, "vrf", codec.u32(1, p.random.randrange(1000, 2000)))


def _stack(p: Prey, kind: str, *data: bytes) -> None:
    p.make(links.create(p.name(), kind, *data, parent=p.card().index))


def vlan(p: Prey) -> None:
    _stack(p, "vlan", codec.u16(1, p.random.randrange(1, 4095)))


def macvlan(p: Prey) -> None:
    _stack(p, "macvlan", codec.u32(1, p.random.choice((1, 2, 4))))


def macvlan_passthru(p: Prey) -> None:
    """It makes the card promiscuous and takes its address over."""
    _stack(p, "macvlan", codec.u32(1, 8))


def ipvlan(p: Prey) -> None:
    _stack(p, "ipvlan")


def vxlan(p: Prey) -> None:
    data = (codec.u32(1, p.random.randrange(1, 1 << 24)), codec.u32(3, p.card().index), codec.u16(15, 0xB512))
    p.make(links.create(p.name(), "vxlan", *data))


def flood_of_links(p: Prey) -> None:
    for _ in range(5):
        p.make(links.create(p.name(), "bridge"))


def _child(p: Prey) -> Namespace:
    p.children.append(Namespace.create())
    return p.children[-1]


def child_kept_by_a_descriptor(p: Prey) -> None:
    p.route.request(links.change(p.card().index, namespace_fd=_child(p).fd))


def child_kept_by_a_process(p: Prey) -> None:
    child = Namespace.create()
    p.keepers.append(os.fork())
    if p.keepers[-1] == 0:
        _libc.prctl(1, signal.SIGKILL)  # all of a pod's processes end with it
        _libc.setns(child.fd, CLONE_NEWNET)
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2:
                try:
                    os.close(int(name))
                except OSError:
                    pass
        time.sleep(600)
        os._exit(0)
    p.route.request(links.change(p.card().index, namespace_fd=child.fd))
    child.close()


def child_kept_by_a_mount(p: Prey) -> None:
    child = Namespace.create()
    target = p.folder / p.name()
    target.touch()
    if _libc.mount(f"/proc/self/fd/{child.fd}".encode(), str(target).encode(), None, MS_BIND, None) != 0:
        child.close()
        raise OSError(ctypes.get_errno(), "mount")
    p.route.request(links.change(p.card().index, namespace_fd=child.fd))
    child.close()


def back_from_a_child(p: Prey) -> None:
    """Cards that come back have other indexes if theirs are taken meanwhile."""
    if not p.children:
        raise NothingThere
    with Namespace.current() as here, NetlinkSocket(namespace_fd=p.random.choice(p.children).fd) as there:
        found = [link for link in links.list_links(there) if not link.is_loopback]
        there.batch([links.change(link.index, namespace_fd=here.fd) for link in found])


def child_forgotten(p: Prey) -> None:
    """The namespace dies with whatever is in it."""
    if not p.children:
        raise NothingThere
    p.children.pop(p.random.randrange(len(p.children))).close()


def _veth(name: str, *, index: int = 0, peer_index: int = 0, peer_fd: int | None = None, mac: str = "") -> Message:
    def head(number: int) -> bytes:
        return links._IFINFO.pack(0, 0, number, 0, 0)

    peer = head(peer_index) + codec.text(3, f"p{name}"[:15])
    peer += codec.u32(28, peer_fd) if peer_fd is not None else b""
    info = codec.text(1, "veth") + codec.nested(2, codec.nested(1, peer))
    payload = head(index) + codec.text(3, name) + codec.nested(18, info)
    if mac:
        payload += codec.attribute(1, codec.mac_bytes(mac))
    return Message(16, NLM_F_CREATE | NLM_F_EXCL, payload, f"create the veth link {name}")


def _impostor(p: Prey, message: Message) -> None:
    name = message.what.rsplit(" ", 1)[-1]
    p.made |= {name, f"p{name}"[:15]}
    p.route.request(message)


def impostor_by_mac(p: Prey) -> None:
    _impostor(p, _veth(p.name(), mac=p.card().mac))


def impostor_by_name(p: Prey) -> None:
    """The card gives its name to a link of the pod's own, with the same MAC; and there is one by each name of home."""
    card = p.card()
    p.route.batch([links.change(card.index, up=False), links.change(card.index, name=f"x{p.name()[4:]}")])
    _impostor(p, _veth(card.name, mac=card.mac))


def impostor_by_host_name(p: Prey) -> None:
    _impostor(p, _veth(p.random.choice(p.host_names), mac=p.card().mac))


def impostor_by_index(p: Prey) -> None:
    """The card goes out and comes back; a link with its index, its peer's index, its name and its MAC is there."""
    card = p.card()
    with Namespace.current() as here, Namespace.create() as there, NetlinkSocket(namespace_fd=there.fd) as route:
        p.route.request(links.change(card.index, namespace_fd=there.fd))
        try:
            far = _child(p)  # card and peer may have the same index, so the impostor's peer is in a child, too
            made = _veth(card.name, index=card.index, peer_index=card.parent_index or 0, peer_fd=far.fd, mac=card.mac)
            _impostor(p, made)
        finally:
            (moved,) = [link for link in links.list_links(route) if not link.is_loopback]
            route.request(links.change(moved.index, namespace_fd=here.fd, name=f"x{p.name()[4:]}"))


def impostor_of_the_way_home(p: Prey) -> None:
    card = p.card()
    _impostor(p, _veth(f"dranet{card.index:x}", mac=card.mac))


def delete(p: Prey) -> None:
    p.route.request(links.delete(p.card().index))


def delete_all(p: Prey) -> None:
    p.route.batch([links.delete(card.index) for card in p.cards()])


def die(p: Prey) -> None:
    """Its processes end; the runtime has not noticed yet."""
    os._exit(1)


def exhaust_descriptors(p: Prey) -> None:
    """As many as a process may have; they are given back, or nothing else could be tried."""
    kept = []
    try:
        for _ in range(min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 4096)):
            kept.append(os.open("/proc/self/ns/net", os.O_RDONLY))
    except OSError:
        pass
    finally:
        for fd in kept:
            os.close(fd)


ACTS: dict[str, Act] = {
    act.__name__: act
    for act in (
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
        bridge,
        bond,
        vrf,
        vlan,
        macvlan,
        macvlan_passthru,
        ipvlan,
        vxlan,
        flood_of_links,
        child_kept_by_a_descriptor,
        child_kept_by_a_process,
        child_kept_by_a_mount,
        back_from_a_child,
        child_forgotten,
        impostor_by_mac,
        impostor_by_name,
        impostor_by_host_name,
        impostor_by_index,
        impostor_of_the_way_home,
        delete,
        delete_all,
        die,
        exhaust_descriptors,
    )
}
RUINOUS = frozenset({"delete", "delete_all", "child_forgotten", "die"})
HIDING = frozenset({"child_kept_by_a_descriptor", "child_kept_by_a_process", "child_kept_by_a_mount"})
"""Both seldom, or no card would be left for the others."""
