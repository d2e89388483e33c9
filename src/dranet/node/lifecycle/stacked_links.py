"""Devices that return from a pod are free of links that the pod stacked on them and hid in another namespace.

The next pod would otherwise share its NIC with the pod before it. Prepare refuses a NIC with something stacked on it,
so whatever is there when the NIC returns was made by its pod, and is deleted. What cannot be found is removed with the
netdev, by rebinding the PCI function. A NIC that stays occupied is withheld: a taint says why.
"""

from __future__ import annotations

from collections.abc import Sequence

from dranet.core.errors import KernelError
from dranet.core.logs import get_logger
from dranet.linux import pci
from dranet.linux.files import becomes_true
from dranet.linux.links import Link, get_links
from dranet.linux.stacked_links import can_be_checked, delete_stacked, find_stacked
from dranet.node.namespaces import Host
from dranet.node.records.plan import AttachMode, DevicePlan

log = get_logger(__name__)

_REMOVAL_SECONDS = 2.0
"""How long the kernel may take to remove the links of a namespace that is gone."""

Returned = Sequence[tuple[DevicePlan, Link | None]]


class StackedLinks:
    """Checks and frees devices; remembers those that stay occupied."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._occupied: dict[str, int] = {}
        """Link indexes by device."""

    def free(self, returned: Returned, *, last_resort: bool) -> tuple[list[str], bool]:
        """Remove what is stacked on devices that are back on the host.

        Returns the problems, and whether a PCI function was rebound, so that its netdev is another one now. The last
        resort may take seconds, and interrupts whatever else the function does.
        """
        devices = {link.index: device for device, link in returned if link and _is_checked(device, link)}
        found = find_stacked(self._host.route, list(devices))
        if found:
            found = self._delete(list(found), last_resort)
        rebound = {index for index in found if last_resort and self._rebind(devices[index])}
        occupied = {index: message for index, message in found.items() if index not in rebound}
        for index, device in devices.items():
            self._occupied.pop(device.name, None)
            if index in occupied:
                self._occupied[device.name] = index
        return [f"{devices[index].name}: {message}" for index, message in occupied.items()], bool(rebound)

    def _delete(self, indexes: Sequence[int], last_resort: bool) -> dict[int, str]:
        """What is left then. A namespace that is being removed takes its links with it, in the background."""
        deleted = delete_stacked(self._host.namespace, indexes, self._host.proc_root)
        log.warning("Deleted links that a pod left on its devices", links=", ".join(deleted))
        if last_resort:
            becomes_true(lambda: not find_stacked(self._host.route, indexes), _REMOVAL_SECONDS)
        return find_stacked(self._host.route, indexes)

    def _rebind(self, device: DevicePlan) -> bool:
        address = device.host_state.pci if device.host_state else None
        if address is None or not self._host.may_rebind:
            return False
        log.warning("Rebinding a PCI function to remove links of a pod", device=device.name, pci_address=address)
        try:
            pci.rebind(self._host.sysfs_root, address)
        except KernelError as error:
            log.error("Cannot rebind a PCI function", device=device.name, error=error)
            return False
        return True

    @property
    def occupied(self) -> dict[str, str]:
        """Devices that are not free, each with a message. Checked again, because the other namespace may be gone."""
        if not self._occupied:
            return {}
        there = [link.index for link in get_links(self._host.route, list(self._occupied.values())) if link is not None]
        found = find_stacked(self._host.route, there)
        known = tuple(self._occupied.items())
        for name, index in known:
            if index not in found:
                self._occupied.pop(name, None)
        return {name: found[index] for name, index in known if index in found}


def _is_checked(device: DevicePlan, link: Link) -> bool:
    return device.mode is AttachMode.MOVED and can_be_checked(link)
