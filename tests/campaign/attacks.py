"""All attacks of a malicious pod; here those that remove its links: under masters, into namespaces, by impostors.

One function for each attack. Kinds of links that this kernel does not have raise NotPossible; the table shows them.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import time

from dranet.linux import codec, links
from dranet.linux.codec import NLM_F_CREATE, NLM_F_EXCL, Message
from dranet.linux.namespaces import CLONE_NEWNET, Namespace
from dranet.linux.netlink import NetlinkSocket
from tests.campaign.attacker import Act, NothingThere, PodNetwork
from tests.campaign.attacks_on_settings import SETTING_ATTACKS

_libc = ctypes.CDLL(None, use_errno=True)
MS_BIND = 0x1000


def _enslave(p: PodNetwork, kind: str, *data: bytes) -> None:
    master = p.make(links.create(p.name(), kind, *data))
    nic = p.nic()
    p.route.request(links.change(nic.index, up=False))
    p.route.batch([links.change(nic.index, master=master.index), links.change(master.index, up=True)])


def bridge(p: PodNetwork) -> None:
    _enslave(p, "bridge")


def bond(p: PodNetwork) -> None:
    _enslave(p, "bond")


def vrf(p: PodNetwork) -> None:
    _enslave(p, "vrf", codec.u32(1, p.random.randrange(1000, 2000)))


def _stack(p: PodNetwork, kind: str, *data: bytes) -> None:
    p.make(links.create(p.name(), kind, *data, parent=p.nic().index))


def vlan(p: PodNetwork) -> None:
    _stack(p, "vlan", codec.u16(1, p.random.randrange(1, 4095)))


def macvlan(p: PodNetwork) -> None:
    _stack(p, "macvlan", codec.u32(1, p.random.choice((1, 2, 4))))


def macvlan_passthru(p: PodNetwork) -> None:
    """It makes the parent promiscuous and takes over its MAC."""
    _stack(p, "macvlan", codec.u32(1, 8))


def ipvlan(p: PodNetwork) -> None:
    _stack(p, "ipvlan")


def vxlan(p: PodNetwork) -> None:
    data = (codec.u32(1, p.random.randrange(1, 1 << 24)), codec.u32(3, p.nic().index), codec.u16(15, 0xB512))
    p.make(links.create(p.name(), "vxlan", *data))


def flood_of_links(p: PodNetwork) -> None:
    """Not bridges: the kernel holds its network lock for a whole grace period to delete each of them."""
    for _ in range(5):
        _impostor(p, _veth(p.name()))


def _child(p: PodNetwork) -> Namespace:
    p.children.append(Namespace.create())
    return p.children[-1]


def child_kept_by_a_descriptor(p: PodNetwork) -> None:
    p.route.request(links.change(p.nic().index, namespace_fd=_child(p).fd))


def child_kept_by_a_process(p: PodNetwork) -> None:
    child = Namespace.create()
    p.keepers.append(os.fork())
    if p.keepers[-1] == 0:
        _libc.prctl(1, signal.SIGKILL)  # all processes of a pod end with it
        _libc.setns(child.fd, CLONE_NEWNET)
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2:
                try:
                    os.close(int(name))
                except OSError:
                    pass
        time.sleep(600)
        os._exit(0)
    p.route.request(links.change(p.nic().index, namespace_fd=child.fd))
    child.close()


def child_kept_by_a_mount(p: PodNetwork) -> None:
    child = Namespace.create()
    target = p.folder / p.name()
    target.touch()
    if _libc.mount(f"/proc/self/fd/{child.fd}".encode(), str(target).encode(), None, MS_BIND, None) != 0:
        child.close()
        raise OSError(ctypes.get_errno(), "mount")
    p.route.request(links.change(p.nic().index, namespace_fd=child.fd))
    child.close()


def back_from_a_child(p: PodNetwork) -> None:
    """Links that come back have other indexes if theirs are taken by then."""
    if not p.children:
        raise NothingThere
    with Namespace.current() as here, NetlinkSocket(namespace_fd=p.random.choice(p.children).fd) as there:
        found = [link for link in links.list_links(there) if not link.is_loopback]
        there.batch([links.change(link.index, namespace_fd=here.fd) for link in found])


def child_forgotten(p: PodNetwork) -> None:
    """The kernel removes the namespace and the links in it."""
    if not p.children:
        raise NothingThere
    p.children.pop(p.random.randrange(len(p.children))).close()


def _veth(name: str, *, index: int = 0, peer_index: int = 0, peer_fd: int | None = None, mac: str = "") -> Message:
    def head(number: int) -> bytes:
        return links.IFINFO.pack(0, 0, number, 0, 0)

    peer = head(peer_index) + codec.text(3, f"p{name}"[:15])
    peer += codec.u32(28, peer_fd) if peer_fd is not None else b""
    info = codec.text(1, "veth") + codec.nested(2, codec.nested(1, peer))
    payload = head(index) + codec.text(3, name) + codec.nested(18, info)
    if mac:
        payload += codec.attribute(1, codec.mac_bytes(mac))
    return Message(16, NLM_F_CREATE | NLM_F_EXCL, payload, f"create the veth link {name}")


def _impostor(p: PodNetwork, message: Message) -> None:
    name = message.what.rsplit(" ", 1)[-1]
    p.made |= {name, f"p{name}"[:15]}
    p.route.request(message)


def impostor_by_mac(p: PodNetwork) -> None:
    _impostor(p, _veth(p.name(), mac=p.nic().mac))


def impostor_by_name(p: PodNetwork) -> None:
    """The NIC is renamed, and a link of the pod gets its name and MAC."""
    nic = p.nic()
    p.route.batch([links.change(nic.index, up=False), links.change(nic.index, name=f"x{p.name()[4:]}")])
    _impostor(p, _veth(nic.name, mac=nic.mac))


def impostor_by_host_name(p: PodNetwork) -> None:
    _impostor(p, _veth(p.random.choice(p.host_names), mac=p.nic().mac))


def impostor_by_index(p: PodNetwork) -> None:
    """While the NIC is away, a link gets its index, its peer's index, its name and its MAC."""
    nic = p.nic()
    with Namespace.current() as here, Namespace.create() as there, NetlinkSocket(namespace_fd=there.fd) as route:
        p.route.request(links.change(nic.index, namespace_fd=there.fd))
        try:
            far = _child(p)  # NIC and peer may have the same index, so the impostor's peer is in a child namespace
            made = _veth(nic.name, index=nic.index, peer_index=nic.parent_index or 0, peer_fd=far.fd, mac=nic.mac)
            _impostor(p, made)
        finally:
            (moved,) = [link for link in links.list_links(route) if not link.is_loopback]
            route.request(links.change(moved.index, namespace_fd=here.fd, name=f"x{p.name()[4:]}"))


def impostor_with_temporary_name(p: PodNetwork) -> None:
    nic = p.nic()
    _impostor(p, _veth(f"dranet{nic.index:x}", mac=nic.mac))


def delete(p: PodNetwork) -> None:
    p.route.request(links.delete(p.nic().index))


def delete_all(p: PodNetwork) -> None:
    p.route.batch([links.delete(nic.index) for nic in p.nics()])


def die(p: PodNetwork) -> None:
    """Its processes end before the runtime notices."""
    os._exit(1)


def exhaust_descriptors(p: PodNetwork) -> None:
    """All that its process may open, with a low limit to save time. They are closed so that later attacks work."""
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


_ON_LINKS: tuple[Act, ...] = (
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
    impostor_with_temporary_name,
    delete,
    delete_all,
    die,
    exhaust_descriptors,
)

ACTS: dict[str, Act] = {act.__name__: act for act in (*SETTING_ATTACKS, *_ON_LINKS)}
"""By name. A seed picks by position: one attack more changes every sequence."""
RUINOUS = frozenset({"delete", "delete_all", "child_forgotten", "die"})
HIDING = frozenset({"child_kept_by_a_descriptor", "child_kept_by_a_process", "child_kept_by_a_mount"})
"""Both are rare, or no NIC would be left for the others."""
