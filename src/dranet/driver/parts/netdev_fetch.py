"""A card that has left its pod for somewhere else: looked for, waited for, and at last forced home.

A pod may move its card on into a namespace of its own, and somebody outside the pod may keep that namespace alive. The
netdev of a PCI function always is in some namespace, so such a card is never given up: either it is found in one that
a process lives in or holds, or its namespace is dying and the kernel brings it home in a moment, or the function is
rebound to its driver, which makes the netdev anew at home. A virtual card that cannot be found has been destroyed.
"""

from __future__ import annotations

import logging
import random
import time

from dranet.driver.namespaces import Host, PodNamespace
from dranet.driver.parts.netdev_identity import Card, find_at_home, find_in_pod, is_virtual, temporary_name
from dranet.driver.records.kernel_rows import LinkRow
from dranet.kernel import links, namespaces, rebind
from dranet.kernel.errors import KernelError
from dranet.kernel.hardware import pci_function
from dranet.kernel.sysfs import Sysfs
from dranet.model.errors import DranetError

log = logging.getLogger(__name__)

DYING_SECONDS = 2.0
"""How long a dying namespace may take to give hardware back; the kernel does it in the background."""


class CardAway(DranetError):
    """Hardware that is in a namespace nobody can find."""


def unheard_of_name() -> str:
    """For a card whose name for travelling is taken: a pod can guess that one, but not this."""
    return f"dranet{random.SystemRandom().randrange(1 << 32):08x}"


def fetch(host: Host, card: Card, *, last_resort: bool) -> None:
    """Bring home a card that is in no place where it should be; raises CardAway for hardware that cannot be had."""
    found = card[0]
    if _cannot_be_mistaken(found.link) and _taken_from_anywhere(host, card):
        log.warning("%s was found in a namespace outside of its pod and taken home", found.link.name)
        return
    if not last_resort or found.link.kind != "device" or not _is_in_the_machine(host, found.pci):
        return
    if _comes_by_itself(host, card):
        return
    away = f"{found.link.name} ({found.pci or found.link.parent_device}) is in a network namespace nobody can find"
    if not host.may_rebind or found.pci is None:
        raise CardAway(f"{away}, and may not be rebound (--rebind-lost-cards): end what keeps that namespace alive")
    log.warning("%s: its PCI function is rebound to get it home", away)
    try:
        rebind.rebind(host.sysfs_root, found.pci)
    except KernelError as error:
        raise CardAway(f"{away}: {error}") from error


def _cannot_be_mistaken(was: LinkRow) -> bool:
    """Other namespaces are other people's: only what is known without doubt may be taken from there."""
    return not is_virtual(was) or was.kind == "veth"


def _taken_from_anywhere(host: Host, card: Card) -> bool:
    home = host.namespace.identity()
    for namespace in namespaces.everywhere(host.proc_root):
        with PodNamespace(namespace) as place:
            if namespace.identity() != home and _taken(host, place, card):
                return True
    return False


def _taken(host: Host, place: PodNamespace, card: Card) -> bool:
    try:
        (link,) = find_in_pod(place, [card], host)
        if link is None:
            return False
        place.route.batch(
            [links.change(link.index, up=False), *(links.delete_altname(link.index, name) for name in link.altnames)]
        )
        for name in (temporary_name(card[0]), unheard_of_name()):
            (error,) = place.route.batch([links.change(link.index, namespace_fd=host.namespace.fd, name=name)])
            if error is None:
                return True
        return False
    except (KernelError, OSError) as error:
        log.info("cannot look into a network namespace: %s", error)
        return False


def _is_in_the_machine(host: Host, pci: str | None) -> bool:
    """A function that was pulled out, or taken from its driver, has no netdev anywhere."""
    if pci is None:
        return True
    function = pci_function(Sysfs(host.sysfs_root), pci)
    return function is not None and function.driver is not None


def _comes_by_itself(host: Host, card: Card) -> bool:
    end = time.monotonic() + DYING_SECONDS
    while time.monotonic() < end:
        if find_at_home(host.route, [card])[0] is not None:
            return True
        time.sleep(0.02)
    return False
