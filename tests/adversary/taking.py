"""How a hostile pod takes its cards away: under masters, into namespaces, with impostors in their place, or by its end.

One function an act. Kinds of links that this kernel does not have raise NotPossible, and the campaign's table says so.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import time

from dranet.kernel import codec, links
from dranet.kernel.codec import NLM_F_CREATE, NLM_F_EXCL, Message
from dranet.kernel.namespaces import CLONE_NEWNET, Namespace
from dranet.kernel.netlink import NetlinkSocket
from tests.adversary.attacker import Act, NothingThere, Prey

_libc = ctypes.CDLL(None, use_errno=True)
MS_BIND = 0x1000


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
    """No bridges: the kernel holds its network lock for a whole grace period to delete each of them."""
    for _ in range(5):
        _impostor(p, _veth(p.name()))


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
    """As many as its process may have, which it says itself: not thousands, that would be time and no more a threat.
    They are given back, or nothing else could be tried."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    kept = []
    try:
        while True:
            kept.append(os.open("/proc/self/ns/net", os.O_RDONLY))
    except OSError:
        pass
    finally:
        for fd in kept:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


ACTS: tuple[Act, ...] = (
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
